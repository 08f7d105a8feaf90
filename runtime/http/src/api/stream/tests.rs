//! Event streams in virtual time: order, bounds and cut-offs.

use futures_util::{FutureExt, StreamExt};
use runtime::testing::run_simulated;
use testkit::assert_contains;
use v1::schema::scheduler::Event;

use super::queue::PIECE_COST;
use super::*;

fn streams() -> (Node, EventStreams) {
    let node = runtime::testing::node("node").build();
    let streams = EventStreams::new(&node);
    (node, streams)
}

async fn rest(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
    String::from_utf8(bytes.unwrap().to_vec()).unwrap()
}

fn json() -> Content {
    Content::One(Form::Json)
}

/// SPEC 2.1: RecordIO, with the content type of its messages or its own.
// Covers 6.3 HTTP.
#[test]
fn events_are_read_in_order_before_the_end() {
    run_simulated(async {
        let (_, streams) = streams();
        let (events, response) = streams.open(json(), Bounds::default());
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        events.write(&Event::heartbeat()).unwrap();
        events.write(&Event::error("no")).unwrap();
        events.end();
        assert_eq!(events.write(&Event::heartbeat()), Err(Closed));
        let text = rest(response).await;
        assert_eq!(
            text,
            "20\n{\"type\":\"HEARTBEAT\"}41\n{\"type\":\"ERROR\",\"error\":{\"message\":\"no\"}}"
        );
        let (_events, response) = streams.open(Content::Stream(Form::Protobuf), Bounds::default());
        assert_eq!(response.headers()[CONTENT_TYPE], "application/recordio");
        assert_eq!(
            response.headers()["Message-Content-Type"],
            "application/x-protobuf"
        );
    });
}

// Covers W4.
#[test]
fn a_slow_reader_gets_only_the_reason() {
    run_simulated(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            bytes_max: 100,
            ..Bounds::default()
        };
        let (events, response) = streams.open(json(), bounds);
        // A single event may be of any size.
        events.write(&Event::error("x".repeat(200))).unwrap();
        assert_eq!(events.lag(), None);
        events.write(&Event::heartbeat()).unwrap();
        let reason = events.lag().unwrap();
        assert!(reason.contains("more than 100"), "{reason}");
        events.cut(Some(&Event::error(&reason)));
        let text = rest(response).await;
        assert!(
            text.contains(&reason) && !text.contains("HEARTBEAT"),
            "{text}"
        );

        let (events, _response) = streams.open(json(), bounds);
        events.write(&Event::heartbeat()).unwrap();
        node.clock().advance(Duration::from_secs(75)).await;
        assert_eq!(events.lag(), None);
        node.clock().advance(Duration::from_secs(1)).await;
        assert!(events.lag().is_some_and(|reason| reason.contains("75 s")));
    });
}

/// W4: a writer of more than the bound writes in parts.
// Covers W4.
#[test]
fn a_writer_waits_until_enough_is_read() {
    run_simulated(async {
        let (_, streams) = streams();
        let (events, response) = streams.open(json(), Bounds::default());
        let mut body = response.into_body().into_data_stream();
        let mut drained = Box::pin(events.drained_to(21));
        assert_eq!(drained.as_mut().now_or_never(), Some(()), "nothing waits");
        for _ in 0..3 {
            events.write(&Event::heartbeat()).unwrap();
        }
        let (mut one, mut none) = (
            Box::pin(events.drained_to(23)),
            Box::pin(events.drained_to(0)),
        );
        let woken = futures_util::task::noop_waker();
        let mut cx = Context::from_waker(&woken);
        for (left, one_is, none_is) in [(2, false, false), (1, true, false), (0, true, true)] {
            let piece = body.next().await.unwrap().unwrap();
            assert_eq!(piece.len(), 23);
            let waits = events.shared.change(|state| state.drains.len());
            let are = [&mut one, &mut none].map(|future| future.as_mut().poll(&mut cx).is_ready());
            assert_eq!(are, [one_is, none_is], "{left} are left, {waits} wait");
        }
        events.write(&Event::heartbeat()).unwrap();
        let waits = events.drained_to(0);
        let gone = async { drop(body) };
        futures_util::future::join(waits, gone).await;
    });
}

/// W4: the bound of one stream is too much where there are many.
// Covers W4.
#[test]
fn many_slow_readers_share_the_common_bound() {
    run_simulated(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            common_max: Some(330_000),
            ..Bounds::default()
        };
        let open = |_| streams.open(json(), bounds);
        let (stalled, responses): (Vec<_>, Vec<_>) = (0..1000).map(open).unzip();
        let (read, response) = streams.open(json(), bounds);
        let mut body = response.into_body().into_data_stream();
        // Another kind of stream does not count.
        let common_max = None;
        let (apart, _apart) = streams.open(
            json(),
            Bounds {
                common_max,
                ..bounds
            },
        );
        let event = Event::error("x".repeat(50));
        apart.write(&Event::error("x".repeat(200_000))).unwrap();
        let (mut most, mut bursts, mut reasons) = (0, 0, Vec::new());
        for _ in 0..9 {
            // Each of them alone is far below its own bound.
            for events in &stalled {
                if events.write(&event).is_ok()
                    && let Some(reason) = events.lag()
                {
                    events.cut(None);
                    reasons.push(reason);
                }
                most = most.max(streams.waiting());
            }
            let before = streams.waiting();
            // Many times its share, and read.
            for _ in 0..100 {
                read.write(&event).unwrap();
                assert_eq!(read.lag(), None);
            }
            bursts += u32::from(streams.waiting() > 330_000);
            while streams.waiting() > before {
                assert!(body.next().await.is_some());
            }
            node.clock().sleep(BURST).await;
        }
        assert!(bursts > 0);
        assert!((297_000..=330_000).contains(&most), "{most}");
        assert!(reasons.len() > 100, "{}", reasons.len());
        assert_contains!(reasons[0], "more than 329, its share");
        assert_eq!(apart.lag(), None);
        drop(responses);
        assert_eq!((streams.waiting(), streams.open_count()), (0, 2));
    });
}

/// W4: events that arrive during the readers' grace exceed the bound, so they are bounded too.
// Covers W4.
#[test]
fn grace_shrinks_with_the_excess() {
    let max = 256 << 20;
    let of = |beyond: usize| burst(max + beyond, max).as_millis();
    assert_eq!(
        [of(0), of(8 << 20), of(16 << 20), of(1 << 30)],
        [1000, 562, 125, 125]
    );
    assert_eq!((burst(0, max), burst(1, 0)), (BURST, BURST_MIN));
}

/// W4: also if nothing more is written to slow readers.
#[test]
fn an_over_share_reader_is_rechecked_after_its_grace() {
    run_simulated(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            common_max: Some(1800),
            ..Bounds::default()
        };
        let (first, _first) = streams.open(json(), bounds);
        let (second, response) = streams.open(json(), bounds);
        for _ in 0..3 {
            first.write(&Event::error("x".repeat(200))).unwrap();
        }
        assert_eq!(
            (first.lag(), first.time_until_lag()),
            (None, None),
            "there is room"
        );
        for _ in 0..3 {
            second.write(&Event::error("x".repeat(200))).unwrap();
        }
        // The excess is so high that the grace is short.
        let moment = BURST_MIN;
        assert_eq!(
            (second.lag(), second.time_until_lag()),
            (None, Some(moment))
        );
        node.clock().advance(moment / 5).await;
        assert_eq!(
            (second.lag(), second.time_until_lag()),
            (None, Some(moment * 4 / 5))
        );
        node.clock().advance(moment * 4 / 5).await;
        let reason = second.lag().unwrap();
        assert!(reason.contains("more than 900, its share"), "{reason}");
        // A reader that has caught up is not cut off.
        let mut body = response.into_body().into_data_stream();
        assert!(body.next().await.is_some());
        assert_eq!((second.lag(), second.time_until_lag()), (None, None));
    });
}

/// W4: one large event for each of many streams is as much as many small ones.
#[test]
fn a_large_event_waits_only_within_the_common_bound() {
    run_simulated(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            common_max: Some(1000),
            ..Bounds::default()
        };
        let (first, response) = streams.open(json(), bounds);
        let (second, _second) = streams.open(json(), bounds);
        first.write(&Event::error("x".repeat(600))).unwrap();
        node.clock().advance(BURST).await;
        assert_eq!((first.lag(), first.time_until_lag()), (None, None));
        second.write(&Event::error("x".repeat(600))).unwrap();
        assert_eq!(
            (second.lag(), second.time_until_lag()),
            (None, Some(BURST_MIN))
        );
        let reason = first.lag().unwrap();
        assert!(reason.contains("more than 500, its share"), "{reason}");
        let mut body = response.into_body().into_data_stream();
        assert!(body.next().await.is_some());
        node.clock().advance(BURST).await;
        assert_eq!((first.lag(), second.lag()), (None, None));
    });
}

/// W4: nothing is written to the first while the others fill the rest.
#[test]
fn an_alarm_wakes_all_writers_but_not_per_event() {
    run_simulated(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            common_max: Some(1400),
            ..Bounds::default()
        };
        let (first, _first) = streams.open(json(), bounds);
        let (second, _second) = streams.open(json(), bounds);
        first.write(&Event::error("x".repeat(600))).unwrap();
        let mut called = Box::pin(first.next_alarm());
        assert!(called.as_mut().now_or_never().is_none());
        node.clock().advance(BURST).await;
        second.write(&Event::error("x".repeat(200))).unwrap();
        assert!(called.as_mut().now_or_never().is_none(), "there is room");
        second.write(&Event::error("x".repeat(200))).unwrap();
        assert!(called.now_or_never().is_some());
        let mut called = Box::pin(first.next_alarm());
        second.write(&Event::heartbeat()).unwrap();
        assert!(called.as_mut().now_or_never().is_none(), "just now");
        node.clock().advance(ALARM).await;
        second.write(&Event::heartbeat()).unwrap();
        assert!(called.now_or_never().is_some());
        let reason = first.lag().unwrap();
        assert!(reason.contains("more than 700, its share"), "{reason}");
        first.cut(None);
        assert_eq!((second.lag(), second.time_until_lag()), (None, None));
    });
}

/// W4: chunks that a connection has taken and cannot send are in memory as well.
#[test]
fn unsent_chunks_count_with_unread_events() {
    run_simulated(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            common_max: Some(1000),
            ..Bounds::default()
        };
        let (events, response) = streams.open(json(), bounds);
        let mut body = response.into_body().into_data_stream();
        events.write(&Event::error("x".repeat(1200))).unwrap();
        let taken = body.next().await.unwrap().unwrap();
        assert_eq!(streams.waiting(), taken.len() + PIECE_COST);
        assert_eq!(events.lag(), None, "nothing else waits");
        events.write(&Event::heartbeat()).unwrap();
        node.clock().advance(BURST).await;
        assert!(events.lag().is_some());
        drop(taken);
        assert_eq!((streams.waiting(), events.lag()), (23 + PIECE_COST, None));
        drop(body);
        assert_eq!(streams.waiting(), 0);
    });
}

#[test]
fn both_ends_see_the_end_of_a_stream() {
    run_simulated(async {
        let (_, streams) = streams();
        let (events, response) = streams.open(json(), Bounds::default());
        let mut closed = Box::pin(events.closed());
        assert!(closed.as_mut().now_or_never().is_none());
        assert_eq!(streams.open_count(), 1);
        drop(response);
        assert!(closed.as_mut().now_or_never().is_some());
        assert!(events.is_closed());
        assert_eq!(
            (events.write(&Event::heartbeat()), streams.open_count()),
            (Err(Closed), 0)
        );

        let (events, response) = streams.open(json(), Bounds::default());
        let mut body = response.into_body().into_data_stream();
        assert!(body.next().now_or_never().is_none());
        drop(events);
        assert!(body.next().now_or_never().is_some_and(|end| end.is_none()));

        let (events, response) = streams.open(json(), Bounds::default());
        streams.end_all();
        assert!(events.is_closed());
        assert_eq!(rest(response).await, "");
    });
}
