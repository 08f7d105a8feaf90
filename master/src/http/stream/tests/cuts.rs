//! Who is cut off, and what is the last that it hears.

use v1::schema::master::EventLast;

use super::*;

impl Reader {
    /// Why the stream has ended, which it says last, in an event that is nothing to who has only Mesos' words.
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
fn the_oldest_makes_room_for_a_newer_one_and_who_has_gone_is_forgotten() {
    rehearse(|node| async move {
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
        assert!(because.contains("2 are the most"), "{because}");
        assert!(readers[1].types().is_some());
        readers.clear();
        node.clock().advance(INTERVAL * 2).await;
        assert_eq!(stream.subscribers(), 0);
        // Nobody looks any more.
        assert_eq!(node.clock().advance(HEARTBEAT * 2).await, ());
        let mut again = subscribe(&stream, Form::Json).await;
        assert_eq!(again.types(), Some(vec![EventType::Subscribed]));
    });
}

/// W4: a thousand who never read hold one copy of what they were told, and none of it after a while.
#[test]
fn a_thousand_who_do_not_read_hold_one_copy_and_are_cut_off() {
    rehearse(|node| async move {
        let master = master(&node).await;
        let stream = open_for(&node, &master, 2000);
        let mut stalled = Vec::new();
        for _ in 0..1000 {
            let response = stream
                .subscribe(Content::One(Form::Json), sight("{}"))
                .await
                .unwrap();
            stalled.push(response.into_body());
        }
        let mut reader = subscribe(&stream, Form::Json).await;
        reader.read().unwrap();
        // The first event of all of them is one piece of memory, since the books were the same.
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
