//! Tests of the Unix transport with real socket files.

use runtime::prelude::*;
use testkit::{assert_contains, assert_matches};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use testkit::recorder::*;

struct Agent {
    node: Node,
    listener: Listener,
    notes: Notes,
    noter: Handle<Noter>,
    directory: tempfile::TempDir,
}

impl Agent {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let node = Node::builder("agent-1")
            .role(Role::Agent)
            .accepts(&[Role::Master, Role::Executor])
            .build();
        let listener = Listener::bind(
            node.clone(),
            directory.path().join("agent"),
            &[Role::Executor],
        )
        .unwrap();
        let notes = Notes::default();
        let noter = node.spawn("noter", Noter(notes.clone())).unwrap();
        Self {
            node,
            listener,
            notes,
            noter,
            directory,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("agent")
    }

    async fn hears(&self, count: usize) -> Vec<String> {
        eventually(self.node.clock(), "the agent hears", || {
            self.notes.len() >= count
        })
        .await;
        self.notes.all()
    }
}

struct Executor {
    node: Node,
    _dialling: Dialling,
}

impl Executor {
    fn new(name: &str, role: Role) -> Self {
        let node = Node::builder(name)
            .role(role)
            .accepts(&[Role::Agent])
            .build();
        let dialling = Dialling::install(&node);
        node.spawn("noter", Noter(Notes::default())).unwrap();
        Self {
            node,
            _dialling: dialling,
        }
    }

    async fn find_noter(&self, agent: &Agent) -> Pid {
        self.node
            .find(&agent.listener.address(), "noter", PATIENCE)
            .await
            .unwrap()
    }

    /// Makes the agent's recorder watch this executor's.
    async fn watched_by(&self, agent: &Agent) {
        let ours = self.node.whereis("noter").unwrap();
        agent.noter.tell(Watch(ours)).unwrap();
        agent
            .noter
            .ask(ReverseBytes(Vec::new()), PATIENCE)
            .await
            .unwrap();
    }
}

#[test]
fn all_kinds_of_messages_cross_in_order() {
    run_in_real_time(async {
        let agent = Agent::new();
        let executor = Executor::new("executor-1", Role::Executor);
        let noter = executor.find_noter(&agent).await;
        let mut expected = Vec::new();
        for number in 0..20 {
            let message = if number % 5 == 1 {
                large(number, 1 << 20)
            } else {
                numbered(number)
            };
            executor.node.tell(&noter, message).unwrap();
            expected.push(number.to_string());
        }
        assert_eq!(
            executor
                .node
                .ask(&noter, ReverseBytes(vec![1, 2, 3]), PATIENCE)
                .await,
            Ok(vec![3, 2, 1])
        );
        agent.hears(20).await;
        assert_eq!(agent.notes.all(), expected);
        executor.node.tell(&noter, Pinged(7)).unwrap();
        assert_eq!(agent.hears(21).await[20], "ping 7");
        // In the other direction on the same connection.
        let back = executor.node.whereis("noter").unwrap();
        let long = vec![5; 1 << 20];
        assert_eq!(
            agent
                .node
                .ask(&back, ReverseBytes(long.clone()), PATIENCE)
                .await,
            Ok(long)
        );
    });
}

#[test]
fn ping_overtakes_a_large_message() {
    run_in_real_time(async {
        let agent = Agent::new();
        let executor = Executor::new("executor-1", Role::Executor);
        let noter = executor.find_noter(&agent).await;
        executor.node.tell(&noter, large(0, 2 << 20)).unwrap();
        executor.node.tell(&noter, Pinged(1)).unwrap();
        assert_eq!(agent.hears(2).await, ["ping 1", "0"]);
    });
}

#[test]
fn ended_executor_is_exited_once_after_its_messages() {
    run_in_real_time(async {
        let agent = Agent::new();
        let executor = Executor::new("executor-1", Role::Executor);
        let noter = executor.find_noter(&agent).await;
        executor.watched_by(&agent).await;
        for number in 0..50 {
            executor.node.tell(&noter, large(number, 10_000)).unwrap();
        }
        executor.node.shutdown().await;
        let notes = agent.hears(51).await;
        assert_eq!(
            notes[..50],
            (0..50).map(|number| number.to_string()).collect::<Vec<_>>()
        );
        assert!(notes[50].starts_with("exited noter"), "{notes:?}");
        assert_eq!(agent.node.peers(), []);
    });
}

#[test]
fn killed_executor_is_exited_at_once() {
    run_in_real_time(async {
        let agent = Agent::new();
        let address = agent.listener.address();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let process = std::thread::spawn(move || {
            run_in_real_time(async {
                let executor = Executor::new("executor-1", Role::Executor);
                executor.node.connect(&address).await.unwrap();
                let _ = ended.await;
                executor
            })
        });
        eventually(agent.node.clock(), "the executor is linked", || {
            agent.node.peers().len() == 1
        })
        .await;
        let executor = agent.node.peers().remove(0).node;
        agent
            .noter
            .tell(Watch(Pid::new("noter", executor, 1)))
            .unwrap();
        agent
            .noter
            .ask(ReverseBytes(Vec::new()), PATIENCE)
            .await
            .unwrap();
        end.send(()).unwrap();
        drop(process.join().unwrap());
        let notes = agent.hears(1).await;
        assert!(notes[0].starts_with("exited noter NodeLost"), "{notes:?}");
    });
}

#[test]
fn unaccepted_role_gets_the_reason() {
    run_in_real_time(async {
        let agent = Agent::new();
        let master = Executor::new("master-1", Role::Master);
        let error = master
            .node
            .connect(&agent.listener.address())
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
        assert_contains!(error.to_string(), "role master is not accepted here");
    });
}

/// Writes these bytes instead of, or after, a valid hello; the agent must close the connection and
/// serve others.
fn check_garbage_is_rejected(hello: bool, bytes: &'static [u8], wanted: &'static str) {
    run_in_real_time(async move {
        let agent = Agent::new();
        let mut rogue = UnixStream::connect(agent.path()).await.unwrap();
        if hello {
            let node = Node::builder("executor-9").role(Role::Executor).build();
            let said = node.hello();
            rogue
                .write_all(&[&[1][..], &(said.len() as u32).to_be_bytes(), &said].concat())
                .await
                .unwrap();
            eventually(agent.node.clock(), "the rogue is linked", || {
                agent.node.peers().len() == 1
            })
            .await;
        }
        rogue.write_all(bytes).await.unwrap();
        rogue.shutdown().await.unwrap();
        let mut answer = Vec::new();
        rogue.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains(wanted), "{answer:?}, expected {wanted}");
        eventually(agent.node.clock(), "the rogue is unlinked", || {
            agent.node.peers().is_empty()
        })
        .await;
        let executor = Executor::new("executor-1", Role::Executor);
        let noter = executor.find_noter(&agent).await;
        assert_eq!(
            executor
                .node
                .ask(&noter, ReverseBytes(vec![1, 2]), PATIENCE)
                .await,
            Ok(vec![2, 1])
        );
    });
}

#[test]
fn garbage_instead_of_a_hello_is_rejected() {
    check_garbage_is_rejected(false, b"GET / HTTP/1.1\r\n\r\n", "chunk of kind 71");
    check_garbage_is_rejected(
        false,
        b"\x01\xff\xff\xff\xff",
        "Hello chunk of 4294967295 bytes",
    );
    check_garbage_is_rejected(false, b"\x01\0\0\0\x03abc", "hello cannot be read");
    check_garbage_is_rejected(false, b"\x02\0\0\0\x01a", "expected a hello");
    check_garbage_is_rejected(false, b"\x01\0\0", "the stream ended after 3 bytes");
}

#[test]
fn garbage_after_the_hello_closes_only_the_link() {
    check_garbage_is_rejected(true, b"\x09\0\0\0\x01a", "chunk of kind 9");
    check_garbage_is_rejected(
        true,
        b"\x02\xff\xff\xff\xff",
        "Ordinary chunk of 4294967295 bytes",
    );
    check_garbage_is_rejected(
        true,
        b"\x02\0\0\0\x04\x7f\xff\xff\xff",
        "frame of 2147483647 bytes",
    );
    check_garbage_is_rejected(true, b"\x02\0\0\0\x06\0\0\0\x09ab", "a frame was cut off");
    check_garbage_is_rejected(true, b"\x02\0\0\0\x05\0\0\0\x01\x7f", "");
    check_garbage_is_rejected(
        true,
        b"\x03\0\0\0\x04\xff\xff\xff\xff",
        "body of 32767 bytes in a short frame",
    );
    check_garbage_is_rejected(true, b"\x04\0\0\0\x01a", "beginning of a bulk has 1 bytes");
    check_garbage_is_rejected(
        true,
        b"\x04\0\0\0\x10\0\0\0\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff",
        "one too many",
    );
    check_garbage_is_rejected(true, b"\x05\0\0\0\x09\0\0\0\0\0\0\0\x01a", "has not begun");
    check_garbage_is_rejected(true, b"\x01\0\0\0\x01a", "a second hello");
}

#[test]
fn only_stale_socket_files_are_replaced() {
    run_in_real_time(async {
        let agent = Agent::new();
        let bind = |path: PathBuf| Listener::bind(agent.node.clone(), path, &[Role::Executor]);
        let error = bind(agent.path()).err().unwrap();
        assert!(matches!(error, UnixError::Taken { .. }), "{error}");
        let stale = agent.directory.path().join("stale");
        drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
        assert!(stale.exists());
        let listener = bind(stale.clone()).unwrap();
        assert_eq!(
            std::fs::metadata(&stale).unwrap().permissions().mode() & 0o777,
            0o600
        );
        drop(listener);
        assert!(!stale.exists(), "a listener removes its file");
        let file = agent.directory.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        assert_matches!(bind(file.clone()).err().unwrap(), UnixError::Taken { .. });
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    });
}

#[test]
fn too_long_socket_path_is_an_error() {
    run_in_real_time(async {
        let agent = Agent::new();
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(96)));
        let error = Listener::bind(agent.node.clone(), path.clone(), &[])
            .err()
            .unwrap()
            .to_string();
        assert_contains!(error, "has 101 bytes, expected at most 100");
        let executor = Executor::new("executor-1", Role::Executor);
        let error = executor
            .node
            .connect(&format!("unix:{}", path.display()))
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
    });
}

#[test]
fn unix_only_node_names_its_address_form() {
    run_in_real_time(async {
        let executor = Executor::new("executor-1", Role::Executor);
        let error = executor
            .node
            .connect("localhost:5050")
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("expected unix:PATH"), "{error}");
    });
}
