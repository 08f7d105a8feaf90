//! Reliable senders and their receivers, over links that break and receivers that die.

use std::time::Duration;

use super::*;
use crate::identity::NodeId;
use crate::prelude::*;
use crate::testing::memory::Network;
use crate::testing::simulate_network;
use crate::wire::codec;

mod desk;

use desk::*;

const SECOND: Duration = Duration::from_secs(1);

/// A framework's node with a reliable sender, a master's node with a receiver, and a link between
/// them.
struct Stage {
    network: Network,
    framework: Node,
    master: Node,
    courier: ReliableSender,
    desk: Pid,
    diary: Diary,
}

impl Stage {
    async fn new(network: Network, bounds: Bounds) -> Self {
        let framework = network.node("framework", Role::Framework, &[Role::Master]);
        let courier = framework.reliable_sender(bounds).unwrap();
        let diary = Diary::default();
        let master = network.node("master", Role::Master, &[Role::Framework]);
        let actor = RecordingReceiver::new(&network, &diary);
        master.spawn("desk", actor).unwrap();
        let desk = framework.find("master", "desk", SECOND).await.unwrap();
        courier.retarget(&desk);
        Self {
            network,
            framework,
            master,
            courier,
            desk,
            diary,
        }
    }

    async fn pass(&self, seconds: u64) {
        let clock = self.framework.clock();
        clock.advance(Duration::from_secs(seconds)).await;
    }

    async fn heal(&self) {
        self.network.heal("framework", "master");
        self.framework.connect("master").await.unwrap();
    }

    fn count(&self, name: &str) -> f64 {
        self.framework.counters()[&format!("delivery/{name}")]
    }

    fn handled(&self) -> Vec<String> {
        read(&self.diary)
    }
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

// Covers S132.
#[test]
fn messages_sent_while_disconnected_arrive_once_in_order() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        assert_eq!(stage.courier.send(Note(0)).unwrap().await, Ok(()));
        stage.network.sever("framework", "master");
        let receipts: Vec<_> = (1..500)
            .map(|n| stage.courier.send(Note(n)).unwrap())
            .collect();
        stage.pass(60).await;
        assert_eq!(
            (stage.handled(), stage.courier.waiting()),
            (numbers(0..1), 499)
        );
        stage.heal().await;
        stage.courier.retarget(&stage.desk);
        let started = stage.framework.clock().now();
        stage.courier.settled().await;
        assert_eq!(stage.framework.clock().now(), started, "at once");
        for receipt in receipts {
            assert_eq!(receipt.await, Ok(()));
        }
        assert_eq!(stage.handled(), numbers(0..500));
    });
}

/// S132, W17.
#[test]
fn unacknowledged_messages_are_resent_but_handled_once() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        stage.courier.send(Note(1)).unwrap();
        let cut = stage.courier.send(Cut(2)).unwrap();
        stage.pass(1).await;
        assert_eq!(
            (stage.handled(), stage.courier.waiting()),
            (numbers(1..3), 2)
        );
        stage.heal().await;
        stage.courier.send(Note(3)).unwrap();
        stage.courier.retarget(&stage.desk);
        assert_eq!(cut.await, Ok(()));
        stage.courier.settled().await;
        assert_eq!(stage.handled(), numbers(1..4));
        assert_eq!(stage.master.counters()["delivery/duplicates"], 2.0);
    });
}

// Covers S132.
#[test]
fn unacknowledged_messages_reach_the_next_receiver() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        assert_eq!(stage.courier.send(Note(1)).unwrap().await, Ok(()));
        stage.courier.send(Cut(2)).unwrap();
        stage.pass(1).await;
        stage.network.leave("master");
        stage.courier.pause();
        let receipt = stage.courier.send(Note(3)).unwrap();
        let standby = stage
            .network
            .node("standby", Role::Master, &[Role::Framework]);
        let diary = Diary::default();
        standby
            .spawn("desk", RecordingReceiver::new(&stage.network, &diary))
            .unwrap();
        let desk = stage
            .framework
            .find("standby", "desk", SECOND)
            .await
            .unwrap();
        stage.pass(60).await;
        assert!(read(&diary).is_empty(), "paused");
        stage.courier.retarget(&desk);
        assert_eq!(receipt.await, Ok(()));
        assert_eq!(
            read(&diary),
            numbers(2..4),
            "1 was acknowledged by the first"
        );
    });
}

// Covers S132.
#[test]
fn messages_after_a_panic_reach_the_next_incarnation() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        let (network, diary) = (stage.network.clone(), stage.diary.clone());
        let policy = Supervision::Restart {
            backoff: SECOND,
            backoff_max: SECOND,
            limit: 1,
        };
        let make = move || RecordingReceiver::new(&network, &diary);
        stage.master.supervise("office", policy, make).unwrap();
        // The owner of the name: the reliable sender needs no notice of the restart.
        let office = Pid::new("office", stage.master.id().clone(), 0);
        stage.courier.retarget(&office);
        assert_eq!(stage.courier.send(Note(1)).unwrap().await, Ok(()));
        stage.courier.send(Note(2)).unwrap();
        stage.courier.send(FallOnce(3)).unwrap();
        let last = stage.courier.send(Note(4)).unwrap();
        assert_eq!(last.await, Ok(()));
        // Once per incarnation: 2 was handled, but that incarnation ended before it could
        // acknowledge it.
        assert_eq!(stage.handled(), ["1", "2", "falling", "2", "3", "4"]);
    });
}

#[test]
fn slow_receiver_handles_resent_messages_once() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        stage.courier.send(Rest).unwrap();
        stage.courier.send(Note(0)).unwrap();
        stage.pass(1).await;
        stage.courier.send(Note(1)).unwrap();
        stage.courier.send(Note(2)).unwrap();
        stage.courier.settled().await;
        assert_eq!(
            stage.handled(),
            ["rest", "rested", "0", "1", "2"],
            "not while it rests"
        );
        assert!(stage.count("resent") >= 3.0);
    });
}

#[test]
fn unaccepted_messages_are_refused_and_others_delivered() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        let unheard = stage.courier.send(NotAccepted).unwrap();
        let note = stage.courier.send(Note(1)).unwrap();
        let wrong_role = stage.courier.send(MastersOnly).unwrap();
        let reason = |end| match end {
            Err(DeliveryError::Refused { reason }) => reason,
            other => panic!("{other:?}"),
        };
        let refusal = reason(unheard.await);
        assert!(refusal.contains("does not accept message"), "{refusal}");
        let refusal = reason(wrong_role.await);
        assert!(
            refusal.ends_with("masters_only from role framework"),
            "{refusal}"
        );
        assert_eq!((note.await, stage.handled()), (Ok(()), numbers(1..2)));
        assert_eq!(
            (stage.count("failed"), stage.count("delivered")),
            (2.0, 1.0)
        );
        assert_eq!(stage.master.counters()["delivery/refused"], 2.0);
        assert_eq!(stage.framework.peers().len(), 1, "the link stands");
    });
}

#[test]
fn undecodable_body_is_refused_without_closing_the_link() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        let numbered = Sequenced {
            from: Pid::new("forger", stage.framework.id().clone(), 9),
            stream: 1,
            floor: 1,
            first: 1,
            messages: vec![Some(EncodedMessage {
                id: Note::ID,
                version: Note::VERSION,
                body: Body(vec![1, 2, 3].into()),
                older: Vec::new(),
            })],
        };
        let taken = stage.framework.ask(&stage.desk, numbered, SECOND).await;
        let taken = taken.unwrap().unwrap();
        assert_eq!((taken.next, taken.refused.len()), (2, 1));
        assert!(taken.refused[0].1.contains("left over"), "{taken:?}");
        assert_eq!(stage.framework.peers().len(), 1);
    });
}

#[test]
fn sender_of_another_node_is_rejected() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        let numbered = Sequenced {
            from: Pid::new("scheduler", NodeId::new("other", 5), 1),
            stream: 1,
            floor: 1,
            first: 1,
            messages: Vec::new(),
        };
        let taken = stage.framework.ask(&stage.desk, numbered, SECOND).await;
        assert!(
            matches!(taken, Ok(Err(NotAcknowledged::Never { .. }))),
            "{taken:?}"
        );
    });
}

#[test]
fn handler_sees_the_original_sender() {
    struct Speaker(Pid, Option<ReliableSender>);
    impl Actor for Speaker {
        type Context = Context<Self>;
        fn started(&mut self, ctx: &mut Context<Self>) {
            let courier = ctx.reliable_sender(Bounds::default()).unwrap();
            courier.retarget(&self.0);
            courier.send(WhoAmI).unwrap();
            self.1 = Some(courier);
        }
    }
    impl Process for Speaker {}
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        let speaker = Speaker(stage.desk.clone(), None);
        stage.framework.spawn("scheduler", speaker).unwrap();
        stage.pass(1).await;
        assert_eq!(stage.handled(), [r#"Some("scheduler") of framework"#]);
        // On the receiver's own node only the message is encoded, and there is no sender.
        let speaker = Speaker(stage.desk.clone(), None);
        stage.master.spawn("scheduler", speaker).unwrap();
        stage.pass(1).await;
        assert_eq!(stage.handled()[1..], ["a neighbour"]);
    });
}

#[test]
fn send_once_keeps_order_and_never_repeats() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        stage.courier.send(Note(1)).unwrap();
        let lost = stage.courier.send_once(Cut(2)).unwrap();
        stage.pass(1).await;
        let unsent = stage.courier.send_once(Note(3)).unwrap();
        let standby = stage
            .network
            .node("standby", Role::Master, &[Role::Framework]);
        let diary = Diary::default();
        standby
            .spawn("desk", RecordingReceiver::new(&stage.network, &diary))
            .unwrap();
        let desk = stage
            .framework
            .find("standby", "desk", SECOND)
            .await
            .unwrap();
        stage.courier.retarget(&desk);
        assert_eq!(lost.await, Err(DeliveryError::Lost));
        assert_eq!(unsent.await, Ok(()), "it had not been sent before");
        assert_eq!(
            (stage.handled(), read(&diary)),
            (numbers(1..3), vec!["1".to_owned(), "3".to_owned()])
        );
    });
}

// Covers S132.
#[test]
fn memory_bound_fails_and_accepted_messages_are_delivered() {
    simulate_network(|network| async move {
        let bounds = Bounds {
            messages: 3,
            bytes: 1000,
            ..Bounds::default()
        };
        let stage = Stage::new(network, bounds).await;
        stage.courier.pause();
        stage.courier.send(Load(vec![0; 900])).unwrap();
        let full = DeliveryError::Full {
            messages: 1,
            bytes: 903,
        };
        let refused = stage.courier.send(Load(vec![0; 200]));
        assert_eq!(refused.map(drop), Err(full), "of bytes");
        stage.courier.send(Note(1)).unwrap();
        stage.courier.send(Note(2)).unwrap();
        assert!(stage.courier.send(Note(3)).is_err(), "of messages");
        assert_eq!((stage.count("full"), stage.count("waiting")), (2.0, 3.0));
        assert_eq!(stage.count("waiting_bytes"), 905.0);
        stage.courier.retarget(&stage.desk);
        stage.courier.settled().await;
        assert_eq!(stage.handled(), ["load 900", "1", "2"]);
        assert_eq!(
            (stage.count("waiting"), stage.count("waiting_bytes")),
            (0.0, 0.0)
        );
    });
}

// Covers S132.
#[test]
fn expired_messages_fail_and_younger_are_delivered() {
    simulate_network(|network| async move {
        let age = Duration::from_secs(60);
        let bounds = Bounds {
            age,
            ..Bounds::default()
        };
        let stage = Stage::new(network, bounds).await;
        stage.network.sever("framework", "master");
        let old = stage.courier.send(Note(1)).unwrap();
        stage.pass(59).await;
        let young = stage.courier.send(Note(2)).unwrap();
        let started = stage.framework.clock().now();
        assert_eq!(old.await, Err(DeliveryError::Expired { after: age }));
        assert_eq!(
            stage.framework.clock().now() - started,
            SECOND,
            "in its time"
        );
        stage.heal().await;
        stage.courier.retarget(&stage.desk);
        assert_eq!(young.await, Ok(()));
        assert_eq!(stage.handled(), numbers(2..3));
        assert_eq!(
            (stage.count("failed"), stage.count("delivered")),
            (1.0, 1.0)
        );
    });
}

#[test]
fn sender_retries_at_least_every_ten_seconds() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        stage.network.sever("framework", "master");
        let receipt = stage.courier.send(Note(1)).unwrap();
        stage.pass(300).await;
        stage.heal().await;
        let started = stage.framework.clock().now();
        assert_eq!(receipt.await, Ok(()));
        let waited = stage.framework.clock().now() - started;
        assert!(waited <= Duration::from_secs(10), "{waited:?}");
    });
}

#[test]
fn all_sizes_keep_order_and_small_messages_share_envelopes() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        for round in 0..4 {
            (0..1000).for_each(|n| drop(stage.courier.send(Note(round * 1000 + n)).unwrap()));
            stage.courier.send(Load(vec![1; 1 << 20])).unwrap();
        }
        stage.courier.settled().await;
        let loads = [1000, 2001, 3002, 4003];
        let mut handled = stage.handled();
        for at in loads.into_iter().rev() {
            assert_eq!(handled.remove(at), "load 1048576");
        }
        assert_eq!(handled, numbers(0..4000));
        let desk = stage.master.processes().remove(0);
        let envelopes = desk
            .handled
            .iter()
            .find(|(name, _)| name.ends_with("Sequenced"));
        assert!(envelopes.is_some_and(|(_, count)| *count < 40), "{desk:?}");
        assert_eq!(stage.count("resent"), 0.0);
    });
}

#[test]
fn dropped_sender_fails_its_waiting_messages() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        stage.courier.pause();
        let receipt = stage.courier.send(Note(1)).unwrap();
        let Stage {
            courier, framework, ..
        } = stage;
        drop(courier);
        assert_eq!(receipt.await, Err(DeliveryError::Ended));
        assert_eq!(framework.counters()["delivery/failed"], 1.0);
    });
}

#[test]
fn a_node_that_shuts_down_ends_its_couriers() {
    simulate_network(|network| async move {
        let stage = Stage::new(network, Bounds::default()).await;
        stage.courier.pause();
        let receipt = stage.courier.send(Note(1)).unwrap();
        stage.framework.shutdown().await;
        assert_eq!(receipt.await, Err(DeliveryError::Ended));
        let refused = stage.courier.send(Note(2)).map(drop);
        assert_eq!(refused, Err(DeliveryError::Ended));
    });
}

/// Released messages never change: see `protocol`'s golden bytes.
#[test]
fn an_envelope_and_its_answers_keep_their_bytes() {
    let numbered = Sequenced {
        from: Pid::new("s", NodeId::new("f", 2), 7),
        stream: 3,
        floor: 4,
        first: 5,
        messages: vec![
            Some(EncodedMessage {
                id: 0x0102_0304,
                version: 1,
                body: Body(vec![9, 8].into()),
                older: Vec::new(),
            }),
            None,
        ],
    };
    let bytes = codec::encode(&numbered).unwrap();
    let expected = [
        1, b's', 1, b'f', 2, 7, 3, 4, 5, 2, 1, 252, 4, 3, 2, 1, 1, 2, 9, 8, 0,
    ];
    assert_eq!(bytes, expected);
    assert_eq!(codec::decode::<Sequenced>(&bytes), Ok(numbered));
    let taken = SequenceAck {
        next: 6,
        refused: vec![(5, "no".to_owned())],
    };
    let answers: [Result<SequenceAck, NotAcknowledged>; 3] = [
        Ok(taken),
        Err(NotAcknowledged::NotNow {
            reason: "a".to_owned(),
        }),
        Err(NotAcknowledged::Never {
            reason: "b".to_owned(),
        }),
    ];
    let bytes = answers.map(|answer| codec::encode(&answer).unwrap());
    let expected: [&[u8]; 3] = [
        &[0, 6, 1, 5, 2, b'n', b'o'],
        &[1, 0, 1, b'a'],
        &[1, 1, 1, b'b'],
    ];
    assert_eq!(bytes, expected);
}
