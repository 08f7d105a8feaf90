//! Cut-off subscribers and their last events.

use v1::schema::master::EventLast;

use super::*;

impl Reader {
    /// The reason in the stream's last event, which clients of plain Mesos ignore.
    pub fn cut_because(&mut self) -> String {
        let mut last = None;
        while let Some(piece) = self.body.next().now_or_never().unwrap() {
            let piece = piece.unwrap();
            let mut piece = &piece[..];
            while let Some(record) = self.decoder.next(&mut piece).unwrap() {
                last = Some(record);
            }
        }
        let last = last.unwrap();
        let seen: Event = self.form.read(&last, Limits::default()).unwrap();
        let nothing = Event {
            r#type: Some(EventType::Unknown),
            ..Event::default()
        };
        assert_eq!(seen, nothing);
        let last: EventLast = self.form.read(&last, Limits::default()).unwrap();
        last.error.unwrap().message
    }
}

#[test]
fn oldest_subscriber_gives_way_and_closed_ones_are_forgotten() {
    simulate(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 2);
        let mut readers = Vec::new();
        for _ in 0..3 {
            let mut reader = subscribe(&stream, Form::Json).await;
            assert_eq!(reader.types(), Some(vec![EventType::Subscribed]));
            readers.push(reader);
        }
        assert_eq!(stream.subscribers(), 2);
        let because = readers[0].cut_because();
        assert!(because.contains("at most 2 are allowed"), "{because}");
        assert!(readers[1].types().is_some());
        readers.clear();
        node.clock().advance(INTERVAL * 2).await;
        assert_eq!(stream.subscribers(), 0);
        // The stream is no longer checked.
        assert_eq!(node.clock().advance(HEARTBEAT * 2).await, ());
        let mut again = subscribe(&stream, Form::Json).await;
        assert_eq!(again.types(), Some(vec![EventType::Subscribed]));
    });
}

/// W4: a thousand subscribers that never read share one copy of their events, which is freed after
/// a while.
// Covers W4; 6.3 HTTP.
#[test]
fn a_thousand_slow_subscribers_share_one_copy() {
    simulate(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 2000);
        let mut stalled = Vec::new();
        for _ in 0..1000 {
            let response = stream
                .subscribe(Content::One(Form::Json), visibility("{}"))
                .await
                .unwrap();
            stalled.push(response.into_body());
        }
        let mut reader = subscribe(&stream, Form::Json).await;
        reader.read().unwrap();
        // All first events share memory, since the state was the same.
        let first = |body: Body| async { body.into_data_stream().next().await.unwrap().unwrap() };
        let one = first(stalled.pop().unwrap()).await;
        let other = first(stalled.pop().unwrap()).await;
        assert_eq!(one.as_ptr(), other.as_ptr());

        for number in 0..6 {
            framework(&node, &master, &format!("f{number}")).await;
            node.clock().advance(HEARTBEAT).await;
            assert!(!reader.read().unwrap().is_empty(), "who reads is told");
        }
        assert_eq!(stream.subscribers(), 1, "who does not is cut off");
        assert_eq!(cut_off(&stream), ["too_slow 998"], "but the two that left");
        for body in stalled {
            assert_eq!(
                Reader::of(body, Form::Json).cut_because(),
                "Disconnected: events wait to be read for more than 75 s"
            );
        }
        assert_eq!(reader.read(), Some(vec![]));
    });
}
