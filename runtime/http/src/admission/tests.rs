//! Admission control under load and with endless bodies.

use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use authority::{RateLimits, Throttle};
use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, post};
use bytes::Bytes;
use futures_util::future::{Either, join, join_all, select, select_all};
use futures_util::{FutureExt, StreamExt, stream};
use runtime::testing::simulate;
use v1::schema::scheduler::{Call, CallAccept, CallType};
use v1::{Form, schema};

use super::*;
use crate::api::ReceivedCall;
use crate::realm::Guard;
use crate::testing::{fetch, send};

/// Admission control with these bounds, before pages that answer with the number of bytes read.
fn gated(node: &Node, options: &HttpOptions) -> (Admission, Router) {
    let length = |body: Bytes| async move { body.len().to_string() };
    let admission = Admission::new(node, options);
    let routes = Router::new()
        .route("/api/v1/scheduler", post(length))
        .route("/api/v1/executor", post(length))
        .route("/state", any(|| async { "here" }))
        .layer(from_fn_with_state(admission.clone(), admit));
    (admission, routes)
}

/// A request to this path from this host.
fn request(host: u8, path: &str, body: impl Into<Body>) -> Request {
    let mut request = Request::post(path).body(body.into()).unwrap();
    let source = Source::from(IpAddr::from([10, 0, 0, host]));
    request.extensions_mut().insert(source);
    request
}

/// These chunks, then nothing forever.
fn endless(pieces: usize, of: usize) -> Body {
    let piece = Bytes::from(vec![b'x'; of]);
    let pieces = stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone())).take(pieces);
    Body::from_stream(pieces.chain(stream::pending()))
}

fn active(admission: &Admission) -> usize {
    admission.slots.active().all
}

#[test]
fn executors_and_health_checks_pass_full_admission() {
    simulate(|node| async move {
        let limits = r#"{"aggregate_default_qps":1}"#;
        let throttle = Throttle::new(RateLimits::parse(limits).unwrap());
        let here = || any(|| async { "here" });
        let routes = Router::new()
            .route("/health", here())
            .route("/api/v1/executor", here())
            .route("/state", here());
        let guard = Guard::new("agent", &node).with_throttle(throttle);
        let options = HttpOptions {
            requests_max: 1,
            ..HttpOptions::default()
        };
        let admission = Admission::new(&node, &options);
        let routes = guard.protect(routes);
        let routes = routes.layer(from_fn_with_state(admission.clone(), admit));
        let ask = async |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty());
            send(&routes, request.unwrap()).await.status().as_u16()
        };
        let held = RequestSlot::new(Some(admission.slots.clone()), None);
        held.enter().unwrap();
        assert_eq!(ask("/state").await, 503);
        assert_eq!(ask("/health").await, 200);
        assert_eq!(ask("/api/v1/executor").await, 200);
        drop(held);
        assert_eq!(ask("/state").await, 200);
        {
            let mut waits = std::pin::pin!(ask("/state"));
            assert!(waits.as_mut().now_or_never().is_none());
            assert_eq!(active(&admission), 0, "it stands in the line");
            node.clock().sleep(Duration::from_secs(2)).await;
            assert_eq!(waits.await, 200);
            let mut leaves = std::pin::pin!(ask("/state"));
            let _ = leaves.as_mut().now_or_never();
        }
        assert_eq!(active(&admission), 0);
    });
}

#[test]
fn an_address_gets_no_more_slots_than_it_leaves_free() {
    simulate(|node| async move {
        let options = HttpOptions {
            requests_max: 8,
            ..HttpOptions::default()
        };
        let admission = Admission::new(&node, &options);
        let arrives = |host| admission.admit_request(&request(host, "/state", ""));
        let fill = |host| {
            let all = std::iter::from_fn(|| arrives(host).ok());
            all.collect::<Vec<_>>()
        };
        let first = fill(1);
        let second = fill(2);
        let third = fill(3);
        assert_eq!([first.len(), second.len(), third.len()], [4, 2, 1]);
        let problem = arrives(1).err().unwrap().to_string();
        let words = "7 of 8 requests in progress, 4 from this address";
        assert!(problem.starts_with(words), "{problem}");
        let last = arrives(4);
        assert!(last.is_ok() && arrives(5).is_err(), "all are taken");
        drop((first, second, third, last));
        assert_eq!(active(&admission), 0);
        assert!(admission.slots.active().of.is_empty());
    });
}

#[test]
fn endless_bodies_block_nobody_and_leave_no_memory() {
    simulate(|node| async move {
        let (admission, routes) = gated(&node, &HttpOptions::default());
        let begin = |path| {
            let asked = fetch(&routes, request(1, path, endless(1, 1)));
            let mut asked = Box::pin(asked);
            assert!(asked.as_mut().now_or_never().is_none());
            asked
        };
        let begun = node.clock().now();
        let mut all: Vec<_> = (0..600).map(|_| begin("/api/v1/scheduler")).collect();
        assert_eq!(active(&admission), 0, "nothing is done for them");
        assert!(admission.bodies.bytes() > 600);
        let executor = begin("/api/v1/executor");
        let call = fetch(&routes, request(1, "/api/v1/scheduler", "a call")).await;
        assert_eq!(call, (200, "6".to_owned()));
        let page = fetch(&routes, request(2, "/state", "")).await;
        assert_eq!(page, (200, "here".to_owned()));
        assert_eq!(node.clock().now(), begun);
        // Half of them are dropped, half time out.
        all.truncate(300);
        assert!(admission.bodies.bytes() < 300 * 100);
        for asked in all {
            let late = (408, "the body is incomplete after 30 s".to_owned());
            assert_eq!(asked.await, late);
        }
        assert_eq!((node.clock().now() - begun).as_secs(), 30);
        drop(executor);
        let of = (admission.bodies.bytes(), admission.executor_bodies.bytes());
        assert_eq!((of, active(&admission)), ((0, 0), 0));
    });
}

#[test]
fn a_complete_body_still_needs_a_free_slot() {
    simulate(|node| async move {
        let options = HttpOptions {
            requests_max: 1,
            ..HttpOptions::default()
        };
        let (admission, routes) = gated(&node, &options);
        let slowly = || {
            let clock = node.clock().clone();
            let end = async move { clock.sleep(Duration::from_secs(1)).await };
            let end = end.into_stream().map(|()| Ok::<_, std::io::Error>("end"));
            request(1, "/api/v1/scheduler", Body::from_stream(end))
        };
        assert_eq!(fetch(&routes, slowly()).await, (200, "3".to_owned()));
        let mut asked = Box::pin(fetch(&routes, slowly()));
        assert!(asked.as_mut().now_or_never().is_none());
        let other = RequestSlot::new(Some(admission.slots.clone()), None);
        other.enter().unwrap();
        let (status, problem) = asked.await;
        assert_eq!(status, 503);
        assert!(
            problem.starts_with("1 of 1 requests in progress"),
            "{problem}"
        );
        drop(other);
        assert_eq!((admission.bodies.bytes(), active(&admission)), (0, 0));
    });
}

#[test]
fn no_address_uses_up_the_memory_for_bodies() {
    simulate(|node| async move {
        let options = HttpOptions {
            bodies_max: 4 << 20,
            executor_bodies_max: 1 << 20,
            ..HttpOptions::default()
        };
        let (admission, routes) = gated(&node, &options);
        for (path, most) in [
            ("/api/v1/scheduler", 4 << 20),
            ("/api/v1/executor", 1 << 20),
        ] {
            let mut all = Vec::new();
            let problem = loop {
                let mut asked = Box::pin(fetch(&routes, request(1, path, endless(10, 10 << 10))));
                match asked.as_mut().now_or_never() {
                    None => all.push(asked),
                    Some((status, problem)) => {
                        assert_eq!(status, 503);
                        break problem;
                    }
                }
            };
            let free = format!("of {most} bytes free; retry later");
            assert!(problem.contains(&free), "{problem}");
            let held = match path {
                "/api/v1/executor" => &admission.executor_bodies,
                _ => &admission.bodies,
            };
            let bytes = held.bytes();
            assert!((most / 3..=most / 2).contains(&bytes), "{bytes}");
            // Another address has room, and so have pages of this one.
            let other = fetch(&routes, request(2, path, vec![b'x'; 100_000])).await;
            assert_eq!(other, (200, "100000".to_owned()));
            let page = fetch(&routes, request(1, "/state", "")).await;
            assert_eq!(page, (200, "here".to_owned()));
            drop(all);
            assert_eq!(held.bytes(), 0);
        }
    });
}

/// Each uncopied chunk would keep a read buffer of the connection.
#[test]
fn a_body_sent_byte_by_byte_holds_only_counted_memory() {
    simulate(|node| async move {
        let admission = Admission::new(&node, &HttpOptions::default());
        let admitted = admission.admit_request(&request(1, "/api/v1", "")).unwrap();
        let buffer = Bytes::from(vec![b'x'; 16 << 10]);
        let pieces = [buffer.slice(..1), buffer.clone()].map(Ok::<_, std::io::Error>);
        let never = std::future::pending();
        let body = Body::from_stream(stream::iter(pieces));
        let mut body = bounded_body(body, Arc::new(admitted), StreamedBody::default(), never)
            .into_data_stream();
        let (one, all) = (body.next().await.unwrap(), body.next().await.unwrap());
        let kept = buffer.as_ptr_range();
        assert!(!kept.contains(&one.unwrap().as_ptr()));
        assert!(
            kept.contains(&all.unwrap().as_ptr()),
            "what is large is not copied"
        );
        assert!(admission.bodies.bytes() > (16 << 10) + 100);
    });
}

/// Reads calls, each for a second longer than decoding takes, and records how many large ones are
/// read at the same time.
fn reader(node: &Node, admission: &Admission, most: &Arc<AtomicUsize>) -> Router {
    let (node, most, now) = (node.clone(), most.clone(), Arc::new(AtomicUsize::new(0)));
    let read = move |request: Request| async move {
        let asked = ReceivedCall::<Call>::read(&node, request).await?;
        if asked.is_large {
            let heard = asked.into_permit();
            let inside = now.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(inside, Ordering::Relaxed);
            node.clock().sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::Relaxed);
            drop(heard);
        }
        Ok::<_, Refusal>("read")
    };
    Router::new()
        .route("/api/v1/scheduler", post(read))
        .layer(from_fn_with_state(admission.clone(), admit))
}

/// An ACCEPT with this many empty operations, in the fewest bytes.
fn accept(host: u8, operations: usize) -> Request {
    let call = Call {
        r#type: Some(CallType::Accept),
        accept: Some(Box::new(CallAccept {
            operations: vec![schema::OfferOperation::default(); operations],
            ..CallAccept::default()
        })),
        ..Call::default()
    };
    let mut request = request(host, "/api/v1/scheduler", Form::Protobuf.write(&call));
    let protobuf = "application/x-protobuf".parse().unwrap();
    request.headers_mut().insert("Content-Type", protobuf);
    request
}

#[test]
fn a_call_that_waits_holds_no_slot() {
    simulate(|node| async move {
        let here = node.clone();
        let waits = move |request: Request| async move {
            let call = ReceivedCall::<Call>::read(&here, request).await;
            call.unwrap().answer_any_time();
            std::future::pending::<()>().await;
        };
        let admission = Admission::new(&node, &HttpOptions::default());
        let routes = Router::new()
            .route("/api/v1/scheduler", post(waits))
            .layer(from_fn_with_state(admission.clone(), admit));
        let wait = |padding: usize| {
            let body = format!(r#"{{"type":"REVIVE"}}{}"#, " ".repeat(padding));
            let mut call = request(1, "/api/v1/scheduler", body);
            let json = "application/json".parse().unwrap();
            call.headers_mut().insert("Content-Type", json);
            fetch(&routes, call)
        };
        let small = (0..600).map(|_| wait(0));
        // More than there are permits for large calls.
        let large = (0..9).map(|_| wait(70_000));
        let mut all = select_all(small.chain(large).map(Box::pin));
        let time = std::pin::pin!(node.clock().sleep(Duration::from_secs(60)));
        let first = select(&mut all, time).await;
        assert!(matches!(first, Either::Right(_)), "none is refused");
        assert_eq!(active(&admission), 0);
    });
}

#[test]
fn few_large_calls_are_read_concurrently() {
    simulate(|node| async move {
        let options = HttpOptions {
            requests_max: 8,
            ..HttpOptions::default()
        };
        let (admission, most) = (Admission::new(&node, &options), Arc::default());
        let routes = reader(&node, &admission, &most);
        node.slow_blocking(Duration::from_secs(2));
        // A short call may be large once it is decoded.
        let sizes = [40_000, 20_000];
        let all = |hosts: &[u8]| {
            let calls = hosts.iter().cycle().zip(sizes.iter().cycle()).take(20);
            join_all(calls.map(|(host, size)| fetch(&routes, accept(*host, *size))))
        };
        for (hosts, expected) in [(&[1][..], 2), (&[1, 2, 3], 4)] {
            most.store(0, Ordering::Relaxed);
            let meanwhile = async {
                node.clock().sleep(Duration::from_secs(1)).await;
                assert_eq!(active(&admission), expected, "who waits has no slot");
                let at = node.clock().now();
                for host in 0..4 {
                    let small = fetch(&routes, accept(host, 10)).await;
                    assert_eq!(small, (200, "read".to_owned()));
                }
                assert_eq!(node.clock().now(), at);
            };
            let (all, ()) = join(all(hosts), meanwhile).await;
            assert_eq!(most.load(Ordering::Relaxed), expected);
            assert!(all.iter().all(|said| said.0 == 200), "{all:?}");
        }
        assert_eq!(active(&admission), 0);
    });
}

#[test]
fn a_large_call_times_out_in_the_queue() {
    simulate(|node| async move {
        let admission = Admission::new(&node, &HttpOptions::default());
        let routes = reader(&node, &admission, &Arc::default());
        node.slow_blocking(Duration::from_secs(60));
        let begun = node.clock().now();
        let late = async {
            let (status, problem) = fetch(&routes, accept(1, 40_000)).await;
            assert_eq!((node.clock().now() - begun).as_secs(), 30);
            assert_eq!(status, 503);
            let words = "no turn within 30 s for this large call";
            assert!(problem.starts_with(words), "{problem}");
        };
        let two = join_all((0..2).map(|_| fetch(&routes, accept(1, 40_000))));
        let (two, ()) = join(two, late).await;
        assert!(two.iter().all(|said| said.0 == 200), "{two:?}");
    });
}
