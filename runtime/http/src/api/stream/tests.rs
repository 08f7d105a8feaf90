//! Streams in virtual time: order, bounds, and who is cut off.

use futures_util::{FutureExt, StreamExt};
use runtime::rehearsal::stage;
use v1::schema::scheduler::Event;

use super::queue::PIECE_COST;
use super::*;

fn streams() -> (Node, Streams) {
    let node = runtime::rehearsal::node("node").build();
    let streams = Streams::new(&node);
    (node, streams)
}

async fn rest(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
    String::from_utf8(bytes.unwrap().to_vec()).unwrap()
}

fn json() -> Content {
    Content::One(Form::Json)
}

/// SPEC 2.1: RecordIO, under the type of the messages in it or under its own.
#[test]
fn events_are_read_in_the_order_they_were_written_and_an_end_comes_last() {
    stage(async {
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

/// W4.
#[test]
fn who_does_not_read_is_found_too_slow_and_is_left_with_the_reason_alone() {
    stage(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            bytes_max: 100,
            ..Bounds::default()
        };
        let (events, response) = streams.open(json(), bounds);
        // One event may be as large as it likes.
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

/// W4: whoever has more to write than may wait writes it in parts.
#[test]
fn a_writer_may_wait_until_enough_is_read_or_nobody_reads_any_more() {
    stage(async {
        let (_, streams) = streams();
        let (events, response) = streams.open(json(), Bounds::default());
        let mut body = response.into_body().into_data_stream();
        let mut drained = Box::pin(events.drained(21));
        assert_eq!(drained.as_mut().now_or_never(), Some(()), "nothing waits");
        for _ in 0..3 {
            events.write(&Event::heartbeat()).unwrap();
        }
        let (mut one, mut none) = (Box::pin(events.drained(23)), Box::pin(events.drained(0)));
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
        let waits = events.drained(0);
        let gone = async { drop(body) };
        futures_util::future::join(waits, gone).await;
    });
}

/// W4: what one may hold back is much where many do.
#[test]
fn many_who_do_not_read_hold_no_more_together_than_a_few_may_and_who_reads_is_let_be() {
    stage(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            together_max: Some(330_000),
            ..Bounds::default()
        };
        let open = |_| streams.open(json(), bounds);
        let (stalled, responses): (Vec<_>, Vec<_>) = (0..1000).map(open).unzip();
        let (read, response) = streams.open(json(), bounds);
        let mut body = response.into_body().into_data_stream();
        // Another kind of stream counts for nothing.
        let together_max = None;
        let (apart, _apart) = streams.open(
            json(),
            Bounds {
                together_max,
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
        assert!(
            reasons[0].contains("more than 329, its share"),
            "{}",
            reasons[0]
        );
        assert_eq!(apart.lag(), None);
        drop(responses);
        assert_eq!((streams.waiting(), streams.open_now()), (0, 2));
    });
}

/// W4: what comes while readers have their moment is beyond the bound, and so bounded itself.
#[test]
fn the_more_is_left_unread_beyond_the_bound_the_shorter_it_may_wait() {
    let max = 256 << 20;
    let of = |beyond: usize| burst(max + beyond, max).as_millis();
    assert_eq!(
        [of(0), of(8 << 20), of(16 << 20), of(1 << 30)],
        [1000, 562, 125, 125]
    );
    assert_eq!((burst(0, max), burst(1, 0)), (BURST, BURST_MIN));
}

/// W4: also if nothing more is written to those who do not read.
#[test]
fn who_holds_more_than_its_share_is_to_be_looked_at_again_when_its_moment_is_over() {
    stage(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            together_max: Some(1800),
            ..Bounds::default()
        };
        let (first, _first) = streams.open(json(), bounds);
        let (second, response) = streams.open(json(), bounds);
        for _ in 0..3 {
            first.write(&Event::error("x".repeat(200))).unwrap();
        }
        assert_eq!(
            (first.lag(), first.lags_in()),
            (None, None),
            "there is room"
        );
        for _ in 0..3 {
            second.write(&Event::error("x".repeat(200))).unwrap();
        }
        // There is so much that its moment is short.
        let moment = BURST_MIN;
        assert_eq!((second.lag(), second.lags_in()), (None, Some(moment)));
        node.clock().advance(moment / 5).await;
        assert_eq!(
            (second.lag(), second.lags_in()),
            (None, Some(moment * 4 / 5))
        );
        node.clock().advance(moment * 4 / 5).await;
        let reason = second.lag().unwrap();
        assert!(reason.contains("more than 900, its share"), "{reason}");
        // Whoever has read meanwhile is let be.
        let mut body = response.into_body().into_data_stream();
        assert!(body.next().await.is_some());
        assert_eq!((second.lag(), second.lags_in()), (None, None));
    });
}

/// W4: one large event for each of many is as much as many small ones.
#[test]
fn a_single_event_waits_for_long_only_while_there_is_room_for_it() {
    stage(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            together_max: Some(1000),
            ..Bounds::default()
        };
        let (first, response) = streams.open(json(), bounds);
        let (second, _second) = streams.open(json(), bounds);
        first.write(&Event::error("x".repeat(600))).unwrap();
        node.clock().advance(BURST).await;
        assert_eq!((first.lag(), first.lags_in()), (None, None));
        second.write(&Event::error("x".repeat(600))).unwrap();
        assert_eq!((second.lag(), second.lags_in()), (None, Some(BURST_MIN)));
        let reason = first.lag().unwrap();
        assert!(reason.contains("more than 500, its share"), "{reason}");
        let mut body = response.into_body().into_data_stream();
        assert!(body.next().await.is_some());
        node.clock().advance(BURST).await;
        assert_eq!((first.lag(), second.lag()), (None, None));
    });
}

/// W4: nothing is written to the first while the others fill what is left.
#[test]
fn all_are_called_to_look_when_there_is_too_much_but_not_at_each_event() {
    stage(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            together_max: Some(1400),
            ..Bounds::default()
        };
        let (first, _first) = streams.open(json(), bounds);
        let (second, _second) = streams.open(json(), bounds);
        first.write(&Event::error("x".repeat(600))).unwrap();
        let mut called = Box::pin(first.crowded());
        assert!(called.as_mut().now_or_never().is_none());
        node.clock().advance(BURST).await;
        second.write(&Event::error("x".repeat(200))).unwrap();
        assert!(called.as_mut().now_or_never().is_none(), "there is room");
        second.write(&Event::error("x".repeat(200))).unwrap();
        assert!(called.now_or_never().is_some());
        let mut called = Box::pin(first.crowded());
        second.write(&Event::heartbeat()).unwrap();
        assert!(called.as_mut().now_or_never().is_none(), "just now");
        node.clock().advance(ALARM).await;
        second.write(&Event::heartbeat()).unwrap();
        assert!(called.now_or_never().is_some());
        let reason = first.lag().unwrap();
        assert!(reason.contains("more than 700, its share"), "{reason}");
        first.cut(None);
        assert_eq!((second.lag(), second.lags_in()), (None, None));
    });
}

/// W4: what a connection has taken and cannot send is in memory as well.
#[test]
fn what_a_connection_holds_counts_with_what_waits() {
    stage(async {
        let (node, streams) = streams();
        let bounds = Bounds {
            together_max: Some(1000),
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
fn whoever_ends_a_stream_both_ends_know() {
    stage(async {
        let (_, streams) = streams();
        let (events, response) = streams.open(json(), Bounds::default());
        let mut closed = Box::pin(events.closed());
        assert!(closed.as_mut().now_or_never().is_none());
        assert_eq!(streams.open_now(), 1);
        drop(response);
        assert!(closed.as_mut().now_or_never().is_some());
        assert!(events.is_closed());
        assert_eq!(
            (events.write(&Event::heartbeat()), streams.open_now()),
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
