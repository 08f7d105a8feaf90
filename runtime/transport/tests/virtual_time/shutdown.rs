//! Shutdown: queued messages arrive, new dials are refused, and every wait is bounded.

use futures_util::FutureExt;

use super::*;

/// A node with an endpoint and a recorder.
struct Member {
    node: Node,
    endpoint: Endpoint,
    notes: Notes,
    noter: Handle<Noter>,
}

fn on(network: &VirtualUdpNetwork, name: &str, role: Role, number: u8, options: Options) -> Member {
    let (node, endpoint) = member_with(network, name, role, number, u64::from(number), options);
    let notes = Notes::default();
    let noter = node.spawn("noter", Noter(notes.clone())).unwrap();
    Member {
        node,
        endpoint,
        notes,
        noter,
    }
}

impl Member {
    async fn find_noter(&self, of: &Member) -> Pid {
        let address = of.endpoint.address().unwrap();
        let address = match of.node.role() {
            Role::Master => address.to_string(),
            role => format!("{role}@{address}"),
        };
        self.node.find(&address, "noter", PATIENCE).await.unwrap()
    }
}

/// A network that delays by 5 ms and loses one large datagram in a hundred. Small ones arrive,
/// because the packet that closes a connection is not repeated: without it the peer would report
/// another reason, later.
fn lossy() -> impl NetworkModel {
    let mut chance = SmallRng::seed_from_u64(3);
    move |datagram: Datagram| match chance.random_range(0..100) {
        0 if datagram.length > 500 => DatagramFate::Lost,
        _ => DatagramFate::After(Duration::from_millis(5)),
    }
}

fn patient() -> Options {
    Options {
        farewell_timeout: 60 * SECOND,
        ..Options::default()
    }
}

#[test]
fn shutdown_delivers_queued_bulks_then_the_reason() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), lossy());
        let master = on(&network, "master-1", Role::Master, 1, patient());
        let agent = on(&network, "agent-1", Role::Agent, 2, patient());
        let noter = agent.find_noter(&master).await;
        let back = master.find_noter(&agent).await;
        master.noter.tell(Watch(back)).unwrap();
        master
            .noter
            .ask(ReverseBytes(Vec::new()), PATIENCE)
            .await
            .unwrap();
        let mut expected = Vec::new();
        for number in 0..200 {
            let length = match number % 15 {
                0 => 300_000, // more bulks than may be sent at once
                _ => 5_000,
            };
            agent.node.tell(&noter, large(number, length)).unwrap();
            expected.push(number.to_string());
        }
        agent.node.shutdown().await;
        agent.endpoint.close().await;
        eventually(master.node.clock(), "all notes", || {
            master.notes.len() >= 201
        })
        .await;
        let notes = master.notes.all();
        assert_eq!(notes[..200], expected);
        assert_eq!(
            notes[200],
            "exited noter NodeLost(\"closed by the peer: shutdown\")"
        );
        assert_eq!(master.endpoint.links(), 0);
    });
}

#[test]
fn shutting_down_node_refuses_new_links() {
    run_simulated(async {
        let network = VirtualUdpNetwork::new(Clock::paused(), |_: Datagram| {
            DatagramFate::After(Duration::from_millis(5))
        });
        let master = on(&network, "master-1", Role::Master, 1, patient());
        let agent = on(&network, "agent-1", Role::Agent, 2, patient());
        let other = on(&network, "agent-2", Role::Agent, 3, patient());
        agent.find_noter(&master).await;
        let address = address(1).to_string();
        master.node.shutdown().await;
        // After the node's end and before the endpoint's, and then while the endpoint closes its
        // links.
        let error = other.node.connect(&address).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "10.0.0.1:5050 cannot be reached: the node is shutting down"
        );
        let mut closing = Box::pin(master.endpoint.close());
        assert!((&mut closing).now_or_never().is_none());
        let error = other.node.connect(&address).await.unwrap_err();
        assert_contains!(error.to_string(), "it takes no connections now");
        let error = master.node.connect("10.0.0.3:5050").await.unwrap_err();
        assert_eq!(error, runtime::ConnectError::ShuttingDown);
        closing.await;
    });
}

#[test]
fn unreachable_peer_delays_shutdown_by_the_farewell_timeout() {
    run_simulated(async {
        let cut = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = cut.clone();
        let network = VirtualUdpNetwork::new(Clock::paused(), move |_: Datagram| {
            match seen.load(std::sync::atomic::Ordering::Relaxed) {
                true => DatagramFate::Lost,
                false => DatagramFate::After(Duration::from_millis(5)),
            }
        });
        let master = on(&network, "master-1", Role::Master, 1, Options::default());
        let agent = on(&network, "agent-1", Role::Agent, 2, Options::default());
        let noter = agent.find_noter(&master).await;
        cut.store(true, std::sync::atomic::Ordering::Relaxed);
        agent.node.tell(&noter, large(1, 1_000_000)).unwrap();
        let (clock, farewell) = (
            agent.node.clock().clone(),
            Options::default().farewell_timeout,
        );
        let before = clock.now();
        agent.node.shutdown().await;
        agent.endpoint.close().await;
        let took = clock.now() - before;
        assert!(took >= farewell && took < 3 * farewell + SECOND, "{took:?}");
    });
}
