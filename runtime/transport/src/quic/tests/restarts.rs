//! Nodes that crash, shut down, restart, and dial each other at once.

use std::time::Duration;

use super::*;

/// Stands for a separate process with a recorder; after a kill it sends no packet.
struct Process {
    thread: std::thread::JoinHandle<()>,
    end: tokio::sync::oneshot::Sender<()>,
    address: SocketAddr,
}

impl Process {
    fn start(authority: &Authority, name: &'static str, role: Role, options: Options) -> Self {
        let identity = authority.issue(role, name).unwrap();
        Self::with(identity, name, role, options)
    }

    fn with(identity: Identity, name: &'static str, role: Role, options: Options) -> Self {
        let (end, ended) = tokio::sync::oneshot::channel();
        let (bound, binding) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let tasks = tokio::task::LocalSet::new();
            let life = tasks.block_on(&runtime, async {
                let node = Node::builder(name).role(role).accepts(&Role::ALL).build();
                let endpoint = Endpoint::bind(node.clone(), &identity, LOCALHOST, options).unwrap();
                let noter = node.spawn("noter", Noter(Notes::default())).unwrap();
                bound.send(endpoint.address().unwrap()).unwrap();
                let _ = ended.await;
                (node, endpoint, noter)
            });
            drop(runtime);
            drop((life, tasks));
        });
        Self {
            thread,
            end,
            address: binding.recv().unwrap(),
        }
    }

    fn kill(self) -> SocketAddr {
        self.end.send(()).unwrap();
        self.thread.join().unwrap();
        self.address
    }
}

#[test]
fn silent_crash_is_exited_once_after_idle_timeout() {
    run_in_real_time(async {
        let authority = Authority::create().unwrap();
        let agent = Member::new(&authority, "agent-1", Role::Agent);
        let master = Process::start(&authority, "master-1", Role::Master, quick());
        let noter = agent
            .node
            .find(&master.address.to_string(), "noter", PATIENCE)
            .await
            .unwrap();
        agent.noter.tell(Watch(noter.clone())).unwrap();
        agent.check_answer(&noter).await;
        let before = agent.node.clock().now();
        // Its machine is silent, too: another socket has the port and answers nothing.
        let _silent = UdpSocket::bind(master.kill()).await.unwrap();
        let notes = agent.hears(1).await;
        let took = agent.node.clock().now() - before;
        assert_starts!(notes[0], "exited noter NodeLost(\"no sign of life");
        assert!(took < Duration::from_secs(3), "told after {took:?}");
        assert_eq!(agent.endpoint.links(), 0);
        assert_eq!(
            agent
                .node
                .ask(&noter, ReverseBytes(vec![1]), PATIENCE)
                .await,
            Err(AskError::Gone)
        );
        assert_eq!(agent.notes.len(), 1);
    });
}

#[test]
fn restarted_node_resets_old_peers_at_once() {
    run_in_real_time(async {
        let authority = Authority::create().unwrap();
        let slow = Options {
            idle_timeout: Duration::from_secs(3600),
            ..quick()
        };
        let identity = authority.issue(Role::Master, "master-1").unwrap();
        let agent = Member::with(&authority, "agent-1", Role::Agent, slow.clone());
        let master = Process::with(identity.clone(), "master-1", Role::Master, slow.clone());
        let noter = agent
            .node
            .find(&master.address.to_string(), "noter", PATIENCE)
            .await
            .unwrap();
        agent.noter.tell(Watch(noter.clone())).unwrap();
        agent.check_answer(&noter).await;
        let address = master.kill();
        let node = Node::builder("master-1")
            .role(Role::Master)
            .accepts(&Role::ALL)
            .build();
        // With a stored key, and with a new key for each process, as beside the authority's key.
        let identity = authority.issue(Role::Master, "master-1").unwrap();
        let _again = Endpoint::bind(node, &identity, address, slow).unwrap();
        let notes = agent.hears(1).await;
        assert_eq!(notes, ["exited noter NodeLost(\"the peer has restarted\")"]);
    });
}

#[test]
fn shutdown_delivers_queued_messages_before_its_reason() {
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        let back = master.find_noter(&agent).await;
        master.noter.tell(Watch(back)).unwrap();
        master
            .noter
            .ask(ReverseBytes(Vec::new()), PATIENCE)
            .await
            .unwrap();
        for number in 0..100 {
            agent.node.tell(&noter, large(number, 20_000)).unwrap();
        }
        agent.node.tell(&noter, large(100, 1 << 20)).unwrap();
        agent.node.shutdown().await;
        agent.endpoint.close().await;
        let notes = master.hears(102).await;
        let mut expected: Vec<String> = (0..=100).map(|number| number.to_string()).collect();
        expected.push(notes[101].clone());
        assert_eq!(notes, expected);
        assert!(notes[101].starts_with("exited noter"), "{}", notes[101]);
    });
}

#[test]
fn crossing_dials_leave_one_link() {
    for _ in 0..5 {
        run_in_real_time(async {
            let authority = Authority::create().unwrap();
            let one = Member::new(&authority, "master-1", Role::Master);
            let other = Member::new(&authority, "master-2", Role::Master);
            let (here, there) = (one.address(), other.address());
            let (dialled, dialled_back) =
                futures_util::future::join(one.node.connect(&there), other.node.connect(&here))
                    .await;
            assert_eq!(dialled.unwrap().node, *other.node.id());
            assert_eq!(dialled_back.unwrap().node, *one.node.id());
            assert_eq!((one.endpoint.links(), other.endpoint.links()), (1, 1));
            let (noter, back) = (one.find_noter(&other).await, other.find_noter(&one).await);
            one.noter.tell(Watch(noter.clone())).unwrap();
            other.noter.tell(Watch(back.clone())).unwrap();
            one.check_answer(&noter).await;
            other.check_answer(&back).await;
            one.node.clock().sleep(Duration::from_millis(50)).await;
            assert_eq!(
                (one.notes.all(), other.notes.all()),
                (Vec::<String>::new(), Vec::new()),
                "nobody was lost"
            );
            assert_eq!((one.endpoint.links(), other.endpoint.links()), (1, 1));
        });
    }
}

#[test]
fn concurrent_dials_share_one_connection() {
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let named = format!("master@{}", master.address());
        let addresses = [master.address(), named.clone(), master.address(), named];
        let dials = addresses.iter().map(|address| agent.node.connect(address));
        for peer in futures_util::future::join_all(dials).await {
            assert_eq!(peer.unwrap().node, *master.node.id());
        }
        assert_eq!((master.endpoint.links(), agent.endpoint.links()), (1, 1));
    });
}

#[test]
fn restarted_node_is_a_new_node_at_its_address() {
    run_in_real_time(async {
        let authority = Authority::create().unwrap();
        let slow = Options {
            idle_timeout: Duration::from_secs(60),
            ..quick()
        };
        let agent = Member::with(&authority, "agent-1", Role::Agent, slow.clone());
        let first = Member::with(&authority, "master-1", Role::Master, slow.clone());
        let (address, bound) = (first.address(), first.endpoint.address().unwrap());
        let noter = agent.find_noter(&first).await;
        agent.noter.tell(Watch(noter.clone())).unwrap();
        first.node.shutdown().await;
        first.endpoint.close().await;
        assert!(agent.hears(1).await[0].starts_with("exited noter"));
        let again = Member::at(&authority, "master-1", Role::Master, slow, bound);
        let found = agent.node.find(&address, "noter", PATIENCE).await.unwrap();
        assert_eq!(found.node(), again.node.id());
        assert_ne!(found.node(), noter.node());
        agent.check_answer(&found).await;
        assert_eq!(
            agent
                .node
                .ask(&noter, ReverseBytes(vec![1, 2]), PATIENCE)
                .await,
            Err(AskError::Gone)
        );
    });
}
