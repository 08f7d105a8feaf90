//! Peers whose process is killed while their machine still answers.

use std::sync::mpsc;

use super::*;

/// Options with an idle timeout that no test waits for.
fn patient() -> Options {
    Options {
        idle_timeout: Duration::from_secs(3600),
        keep_alive: Duration::from_secs(1800),
        ..Options::default()
    }
}

/// A member on its own thread. Killing it closes its socket without a farewell.
struct Mortal {
    address: SocketAddr,
    kill: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Mortal {
    /// Links to the node at `dialled`, if any.
    fn new(authority: &Authority, name: &str, role: Role, dialled: Option<String>) -> Self {
        let identity = authority.issue(role, name).unwrap();
        let (kill, killed) = tokio::sync::oneshot::channel();
        let (starts, started) = mpsc::channel();
        let node = name.to_owned();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let local = tokio::task::LocalSet::new();
            let kept = local.block_on(&runtime, async move {
                let node = Node::builder(node).role(role).accepts(&Role::ALL).build();
                let endpoint = Endpoint::bind(node.clone(), &identity, LOCALHOST, patient());
                let endpoint = endpoint.unwrap();
                node.spawn("noter", Noter(Notes::default())).unwrap();
                if let Some(address) = dialled {
                    node.find(&address, "noter", PATIENCE).await.unwrap();
                }
                starts.send(endpoint.address().unwrap()).unwrap();
                killed.await.unwrap();
                (node, endpoint)
            });
            // First the tasks that would send a farewell.
            drop((local, runtime));
            drop(kept);
        });
        let address = started.recv_timeout(PATIENCE).unwrap();
        Self {
            address,
            kill,
            thread,
        }
    }

    fn kill(self) {
        self.kill.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

async fn learns_that_its_port_is_closed(member: &Member, clock: &Clock) {
    let noted = member.hears(1).await;
    assert_eq!(
        noted,
        [format!(
            "exited noter NodeLost({:?})",
            runtime::PROCESS_ENDED
        )]
    );
    eventually(clock, "the link is gone", || member.endpoint.links() == 0).await;
}

#[test]
fn killed_dialler_is_noticed_by_its_closed_port() {
    run_in_real_time(async {
        let authority = Authority::create().unwrap();
        let master = Member::with(&authority, "master-1", Role::Master, patient());
        let (clock, address) = (master.node.clock().clone(), master.address());
        let agent = tokio::task::spawn_blocking(move || {
            Mortal::new(&authority, "agent-1", Role::Agent, Some(address))
        });
        let agent = agent.await.unwrap();
        let noter = format!("agent@{}", agent.address);
        let noter = master.node.find(&noter, "noter", PATIENCE).await.unwrap();
        master.noter.tell(Watch(noter)).unwrap();
        tokio::task::spawn_blocking(|| agent.kill()).await.unwrap();
        learns_that_its_port_is_closed(&master, &clock).await;
    });
}

#[test]
fn killed_acceptor_is_noticed_by_its_closed_port() {
    run_in_real_time(async {
        let authority = Authority::create().unwrap();
        let agent = Member::with(&authority, "agent-1", Role::Agent, patient());
        let clock = agent.node.clock().clone();
        let master = tokio::task::spawn_blocking(move || {
            Mortal::new(&authority, "master-1", Role::Master, None)
        });
        let master = master.await.unwrap();
        let address = master.address.to_string();
        let noter = agent.node.find(&address, "noter", PATIENCE).await.unwrap();
        agent.noter.tell(Watch(noter)).unwrap();
        let shared = agent.endpoint.shared.clone();
        let socket = shared.socket.upgrade().unwrap();
        eventually(&clock, "a probe", || {
            socket.last_probe(master.address).is_some()
        })
        .await;
        drop(socket);
        tokio::task::spawn_blocking(|| master.kill()).await.unwrap();
        learns_that_its_port_is_closed(&agent, &clock).await;
    });
}
