//! What the QUIC transport promises, over real sockets on the loopback.

use std::net::Ipv4Addr;
use std::time::Duration;

use runtime::prelude::*;
use tokio::net::UdpSocket;

use super::*;
use crate::certificates::{Authority, server_name};
use crate::testing::*;

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn quick() -> Options {
    Options {
        idle_timeout: Duration::from_millis(600),
        keep_alive: Duration::from_millis(100),
        handshake_timeout: Duration::from_secs(3),
        farewell_timeout: Duration::from_millis(500),
        ..Options::default()
    }
}

/// A node on the network, with an actor `noter` on it.
struct Member {
    node: Node,
    endpoint: Endpoint,
    notes: Notes,
    noter: Handle<Noter>,
}

impl Member {
    fn with(authority: &Authority, name: &str, role: Role, options: Options) -> Self {
        Self::at(authority, name, role, options, LOCALHOST)
    }

    fn at(
        authority: &Authority,
        name: &str,
        role: Role,
        options: Options,
        address: SocketAddr,
    ) -> Self {
        let accepts = match role {
            Role::Master => &[Role::Master, Role::Agent, Role::Framework, Role::Operator][..],
            _ => &[Role::Master],
        };
        let node = Node::builder(name).role(role).accepts(accepts).build();
        let identity = authority.issue(role, name).unwrap();
        let endpoint = Endpoint::bind(node.clone(), &identity, address, options).unwrap();
        let notes = Notes::default();
        let noter = node.spawn("noter", Noter(notes.clone())).unwrap();
        Self {
            node,
            endpoint,
            notes,
            noter,
        }
    }

    fn new(authority: &Authority, name: &str, role: Role) -> Self {
        Self::with(authority, name, role, quick())
    }

    fn address(&self) -> String {
        self.endpoint.address().unwrap().to_string()
    }

    async fn find_noter(&self, of: &Member) -> Pid {
        let address = match of.node.role() {
            Role::Master => of.address(),
            role => format!("{role}@{}", of.address()),
        };
        self.node.find(&address, "noter", PATIENCE).await.unwrap()
    }

    async fn hears(&self, count: usize) -> Vec<String> {
        let what = format!("{count} notes, there are {:?}", self.notes.all());
        eventually(self.node.clock(), &what, || self.notes.len() >= count).await;
        self.notes.all()
    }
}

fn master_and_agent() -> (Member, Member) {
    let authority = Authority::create().unwrap();
    let master = Member::new(&authority, "master-1", Role::Master);
    (master, Member::new(&authority, "agent-1", Role::Agent))
}

#[test]
fn tells_and_asks_cross_in_both_directions_and_in_order() {
    play(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        for number in 0..1000 {
            agent.node.tell(&noter, said(number)).unwrap();
        }
        assert_eq!(
            agent.node.ask(&noter, Turn(vec![1, 2, 3]), PATIENCE).await,
            Ok(vec![3, 2, 1])
        );
        assert_eq!(
            master.notes.all(),
            (0..1000)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
        );
        // The other way round on the same connection: the agent is linked at its own address.
        let back = master.find_noter(&agent).await;
        assert_eq!(
            master.node.ask(&back, Turn(vec![4, 5]), PATIENCE).await,
            Ok(vec![5, 4])
        );
        assert_eq!((master.endpoint.links(), agent.endpoint.links()), (1, 1));
        assert_eq!(
            master.node.peers()[0].address,
            format!("agent@{}", agent.address())
        );
    });
}

#[test]
fn the_ping_lane_is_a_stream_of_its_own() {
    play(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        agent.node.tell(&noter, Pinged(1)).unwrap();
        agent.node.tell(&noter, said(2)).unwrap();
        agent.node.tell(&noter, Pinged(3)).unwrap();
        let mut notes = master.hears(3).await;
        notes.sort();
        assert_eq!(notes, ["2", "ping 1", "ping 3"]);
    });
}

#[test]
fn large_messages_arrive_whole_and_in_order_with_their_neighbours() {
    play(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        let mut expected = Vec::new();
        for number in 0..30 {
            let message = if number % 3 == 1 {
                large(number, 300_000 + 7000 * number as usize)
            } else {
                said(number)
            };
            agent.node.tell(&noter, message).unwrap();
            expected.push(number.to_string());
        }
        let long = vec![9; 3 << 20];
        assert_eq!(
            agent.node.ask(&noter, Turn(long.clone()), PATIENCE).await,
            Ok(long)
        );
        assert_eq!(master.notes.all(), expected);
    });
}

#[test]
fn a_ping_overtakes_a_queue_of_large_messages() {
    play(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        for number in 0..10 {
            agent.node.tell(&noter, large(number, 4 << 20)).unwrap();
        }
        agent.node.tell(&noter, Pinged(0)).unwrap();
        let notes = master.hears(11).await;
        let place = notes.iter().position(|note| note == "ping 0").unwrap();
        assert!(
            place < 5,
            "the ping came after {place} of 10 messages of 4 MiB"
        );
    });
}

/// Dials with whatever certificate, and gives what the accepting side says.
async fn refusal(member: &Member, address: &str) -> String {
    let refused = member.node.connect(address).await.unwrap_err();
    assert!(
        matches!(refused, ConnectError::Refused { .. }),
        "{refused:?}"
    );
    refused.to_string()
}

#[test]
fn a_node_of_a_role_that_is_not_accepted_is_refused_with_a_reason() {
    play(async {
        let authority = Authority::create().unwrap();
        let master = Member::new(&authority, "master-1", Role::Master);
        let module = Member::new(&authority, "module-1", Role::Module);
        let told = refusal(&module, &master.address()).await;
        assert!(told.contains("role module is not accepted here"), "{told}");
        assert_eq!(master.endpoint.links(), 0);
    });
}

#[test]
fn a_dialler_that_wants_a_master_is_not_fooled_by_an_agent() {
    play(async {
        let (_, agent) = master_and_agent();
        let authority = Authority::create().unwrap();
        let other = Member::new(&authority, "operator-1", Role::Operator);
        let told = refusal(&other, &agent.address()).await;
        assert!(told.contains("certificate"), "{told}");
        let authority = Authority::create().unwrap();
        let agent = Member::new(&authority, "agent-1", Role::Agent);
        let operator = Member::new(&authority, "operator-1", Role::Operator);
        let told = refusal(&operator, &agent.address()).await;
        assert!(
            told.contains("not valid for name") || told.contains("NotValidForName"),
            "{told}"
        );
    });
}

#[test]
fn a_node_with_another_authoritys_certificate_is_refused_by_either_side() {
    play(async {
        let (master, agent) = master_and_agent();
        let stranger = Member::new(&Authority::create().unwrap(), "agent-2", Role::Agent);
        let told = refusal(&stranger, &master.address()).await;
        assert!(told.contains("UnknownIssuer"), "{told}");
        // One that does not check whom it dials is refused by the master all the same.
        let identity = Authority::create()
            .unwrap()
            .issue(Role::Agent, "agent-1")
            .unwrap();
        let told = raw_dial(&master, Some(&identity)).await.unwrap_err();
        assert!(told.contains("certificate"), "{told}");
        agent.find_noter(&master).await;
    });
}

#[test]
fn a_peer_with_no_certificate_is_refused() {
    play(async {
        let (master, agent) = master_and_agent();
        let told = raw_dial(&master, None).await.unwrap_err();
        assert!(told.contains("certificate"), "{told}");
        agent.find_noter(&master).await;
    });
}

/// Trusts everybody: what a peer that does not care would do.
#[derive(Debug)]
struct Careless;

impl rustls::client::danger::ServerCertVerifier for Careless {
    fn verify_server_cert(
        &self,
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &[rustls_pki_types::CertificateDer<'_>],
        _: &rustls_pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// A bare QUIC connection to the member; an error once the member has closed it in the handshake.
async fn raw_dial(
    member: &Member,
    identity: Option<&Identity>,
) -> Result<(quinn::Endpoint, Connection), String> {
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS13])
    .unwrap()
    .dangerous()
    .with_custom_certificate_verifier(Arc::new(Careless));
    let mut tls = match identity {
        None => tls.with_no_client_auth(),
        Some(identity) => tls
            .with_client_auth_cert(identity.chain().unwrap(), identity.key().unwrap())
            .unwrap(),
    };
    tls.alpn_protocols = vec![b"meros/1".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let endpoint = quinn::Endpoint::client(LOCALHOST).unwrap();
    let address = member.endpoint.address().unwrap();
    let client = ClientConfig::new(Arc::new(crypto));
    let connecting = endpoint
        .connect_with(client, address, &server_name(Role::Master))
        .unwrap();
    let connection = connecting.await.map_err(|error| error.to_string())?;
    // A server may refuse a client after the client believes that all is well.
    let clock = member.node.clock();
    match clock
        .timeout(Duration::from_millis(100), connection.closed())
        .await
    {
        Ok(error) => Err(error.to_string()),
        Err(_) => Ok((endpoint, connection)),
    }
}

/// A peer that has passed TLS as `agent-2` and then speaks for itself.
struct Rogue {
    _endpoint: quinn::Endpoint,
    connection: Connection,
    first: quinn::SendStream,
}

impl Rogue {
    async fn dial(authority: &Authority, master: &Member) -> Self {
        let identity = authority.issue(Role::Agent, "agent-2").unwrap();
        let (endpoint, connection) = raw_dial(master, Some(&identity)).await.unwrap();
        let first = connection.open_uni().await.unwrap();
        Self {
            _endpoint: endpoint,
            connection,
            first,
        }
    }

    /// Says hello under this name, as a real node would.
    async fn hello(&mut self, name: &str, role: Role) {
        let node = Node::builder(name).role(role).build();
        self.first
            .write_all(&crate::hello::framed(&node))
            .await
            .unwrap();
    }

    /// Passes for a real node until now.
    async fn link(authority: &Authority, master: &Member) -> Self {
        let mut rogue = Self::dial(authority, master).await;
        rogue.hello("agent-2", Role::Agent).await;
        eventually(master.node.clock(), "the rogue is linked", || {
            master.endpoint.links() == 1
        })
        .await;
        rogue
    }

    /// Why the master closed the connection.
    async fn told(&self) -> (u64, String) {
        match self.connection.closed().await {
            ConnectionError::ApplicationClosed(close) => (
                close.error_code.into_inner(),
                String::from_utf8_lossy(&close.reason).into_owned(),
            ),
            other => panic!("closed otherwise: {other}"),
        }
    }
}

use quinn::ConnectionError;

/// A rogue does something to the master, and is told so; the master goes on for everybody else.
fn rogue_is_told<F>(act: impl FnOnce(Rogue) -> F, code: Closing, wanted: &str)
where
    F: Future<Output = Rogue>,
{
    play(async {
        let authority = Authority::create().unwrap();
        let master = Member::new(&authority, "master-1", Role::Master);
        let rogue = act(Rogue::link(&authority, &master).await).await;
        let (told_code, told) = rogue.told().await;
        assert!(
            told_code == code as u64 && told.contains(wanted),
            "{told_code} {told}, expected {wanted}"
        );
        eventually(master.node.clock(), "the rogue is unlinked", || {
            master.endpoint.links() == 0
        })
        .await;
        let agent = Member::new(&authority, "agent-1", Role::Agent);
        let noter = agent.find_noter(&master).await;
        assert_eq!(
            agent.node.ask(&noter, Turn(vec![1, 2]), PATIENCE).await,
            Ok(vec![2, 1])
        );
    });
}

#[test]
fn a_hello_that_names_another_node_or_role_is_refused() {
    for (name, role) in [("agent-3", Role::Agent), ("agent-2", Role::Framework)] {
        play(async move {
            let authority = Authority::create().unwrap();
            let master = Member::new(&authority, "master-1", Role::Master);
            let mut rogue = Rogue::dial(&authority, &master).await;
            rogue.hello(name, role).await;
            let (code, told) = rogue.told().await;
            assert_eq!(code, Closing::Refused as u64);
            assert!(
                told.contains("the certificate says meros://agent/agent-2"),
                "{told}"
            );
            assert_eq!(master.node.peers(), []);
        });
    }
}

#[test]
fn a_hello_that_cannot_be_read_is_told() {
    for (bytes, wanted) in [
        (&b"\xff\xff\xff\xff"[..], "hello of 4294967295 bytes"),
        (&b"\x00\x00\x00\x03abc"[..], "garbled"),
        (&b"\x00\x00\x00\x00"[..], "garbled"),
    ] {
        play(async move {
            let authority = Authority::create().unwrap();
            let master = Member::new(&authority, "master-1", Role::Master);
            let mut rogue = Rogue::dial(&authority, &master).await;
            rogue.first.write_all(bytes).await.unwrap();
            let (code, told) = rogue.told().await;
            assert_eq!(code, Closing::Garbled as u64, "{told}");
            assert!(told.contains(wanted), "{told}, expected {wanted}");
        });
    }
}

#[test]
fn a_peer_that_says_nothing_is_let_go() {
    play(async {
        let authority = Authority::create().unwrap();
        let options = Options {
            handshake_timeout: Duration::from_millis(300),
            ..quick()
        };
        let master = Member::with(&authority, "master-1", Role::Master, options);
        let rogue = Rogue::dial(&authority, &master).await;
        rogue.connection.closed().await;
    });
}

#[test]
fn garbage_instead_of_frames_closes_the_link_and_the_node_goes_on() {
    let garbage = |mut rogue: Rogue| async {
        rogue
            .first
            .write_all(b"\x00\x00\x00\x10GET / HTTP/1.1\r\n")
            .await
            .unwrap();
        rogue
    };
    rogue_is_told(garbage, Closing::Garbled, "");
}

#[test]
fn a_frame_that_is_cut_off_closes_the_link_and_the_node_goes_on() {
    let cut = |mut rogue: Rogue| async {
        rogue
            .first
            .write_all(b"\x00\x00\x01\x00half")
            .await
            .unwrap();
        rogue.first.finish().unwrap();
        rogue
    };
    rogue_is_told(cut, Closing::Garbled, "cut off");
}

#[test]
fn a_frame_above_the_bound_closes_the_link_and_the_node_goes_on() {
    let long = |mut rogue: Rogue| async {
        rogue.first.write_all(b"\x7f\xff\xff\xff").await.unwrap();
        rogue
    };
    rogue_is_told(long, Closing::Garbled, "frame of 2147483647 bytes");
}

#[test]
fn garbage_in_the_ping_lane_closes_the_link_and_the_node_goes_on() {
    let garbage = |rogue: Rogue| async {
        let mut ping = rogue.connection.open_uni().await.unwrap();
        ping.write_all(b"\xff\xff\xff\xff").await.unwrap();
        rogue
    };
    rogue_is_told(garbage, Closing::Garbled, "frame of 4294967295 bytes");
}

#[test]
fn a_bulk_that_breaks_its_promise_closes_the_link_and_the_node_goes_on() {
    for (length, sent, wanted) in [
        (u64::MAX, 0, "expected at most"),
        (1 << 40, 0, "expected at most"),
        (100, 50, "cut off after 50 bytes of 100"),
        (100, 150, "longer than the 100 bytes announced"),
    ] {
        let bulk = move |rogue: Rogue| async move {
            drop(rogue.connection.open_uni().await.unwrap()); // the ping lane
            let mut bulk = rogue.connection.open_uni().await.unwrap();
            bulk.write_all(&7_u64.to_be_bytes()).await.unwrap();
            bulk.write_all(&u64::to_be_bytes(length)).await.unwrap();
            bulk.write_all(&vec![0; sent]).await.unwrap();
            bulk.finish().unwrap();
            rogue
        };
        rogue_is_told(bulk, Closing::Garbled, wanted);
    }
}

#[test]
fn a_stream_that_is_reset_closes_the_link_and_the_node_goes_on() {
    let reset = |mut rogue: Rogue| async {
        rogue.first.reset(VarInt::from_u32(9)).unwrap();
        rogue
    };
    rogue_is_told(reset, Closing::Garbled, "reset a stream with code 9");
}

#[test]
fn noise_on_the_socket_disturbs_nobody() {
    play(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        let noise = UdpSocket::bind(LOCALHOST).await.unwrap();
        for length in 0..1500 {
            let packet: Vec<u8> = (0..length).map(|at| (at * 31 + length * 7) as u8).collect();
            let _ = noise
                .send_to(&packet, master.endpoint.address().unwrap())
                .await;
        }
        assert_eq!(
            agent.node.ask(&noter, Turn(vec![1, 2]), PATIENCE).await,
            Ok(vec![2, 1])
        );
    });
}

/// A process of its own in all but name, with a `noter`: once it is killed, no packet leaves it any more.
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
fn a_peer_that_dies_without_a_word_is_exited_once_after_the_idle_timeout() {
    play(async {
        let authority = Authority::create().unwrap();
        let agent = Member::new(&authority, "agent-1", Role::Agent);
        let master = Process::start(&authority, "master-1", Role::Master, quick());
        let noter = agent
            .node
            .find(&master.address.to_string(), "noter", PATIENCE)
            .await
            .unwrap();
        agent.noter.tell(Watch(noter.clone())).unwrap();
        assert_eq!(
            agent.node.ask(&noter, Turn(vec![1, 2]), PATIENCE).await,
            Ok(vec![2, 1])
        );
        let before = agent.node.clock().now();
        master.kill();
        let notes = agent.hears(1).await;
        let took = agent.node.clock().now() - before;
        assert!(
            notes[0].starts_with("exited noter NodeLost(\"no sign of life"),
            "{notes:?}"
        );
        assert!(took < Duration::from_secs(3), "told after {took:?}");
        assert_eq!(agent.endpoint.links(), 0);
        assert_eq!(
            agent.node.ask(&noter, Turn(vec![1]), PATIENCE).await,
            Err(AskError::Gone)
        );
        assert_eq!(agent.notes.len(), 1);
    });
}

#[test]
fn a_node_that_died_and_was_started_again_tells_its_old_peers_long_before_they_time_out() {
    play(async {
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
        assert_eq!(
            agent.node.ask(&noter, Turn(vec![1, 2]), PATIENCE).await,
            Ok(vec![2, 1])
        );
        let address = master.kill();
        let node = Node::builder("master-1")
            .role(Role::Master)
            .accepts(&Role::ALL)
            .build();
        let _again = Endpoint::bind(node, &identity, address, slow).unwrap();
        let notes = agent.hears(1).await;
        assert_eq!(notes, ["exited noter NodeLost(\"the peer has restarted\")"]);
    });
}

#[test]
fn a_node_that_shuts_down_delivers_its_last_words_first_and_its_reason_after() {
    play(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        let back = master.find_noter(&agent).await;
        master.noter.tell(Watch(back)).unwrap();
        master.noter.ask(Turn(Vec::new()), PATIENCE).await.unwrap();
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
        play(async {
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
            assert_eq!(
                one.node.ask(&noter, Turn(vec![1, 2]), PATIENCE).await,
                Ok(vec![2, 1])
            );
            assert_eq!(
                other.node.ask(&back, Turn(vec![1, 2]), PATIENCE).await,
                Ok(vec![2, 1])
            );
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
fn many_who_want_the_same_node_at_once_share_one_connection() {
    play(async {
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
fn a_node_that_was_started_again_is_another_node_at_the_same_address() {
    play(async {
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
        assert_eq!(
            agent.node.ask(&found, Turn(vec![1, 2]), PATIENCE).await,
            Ok(vec![2, 1])
        );
        assert_eq!(
            agent.node.ask(&noter, Turn(vec![1, 2]), PATIENCE).await,
            Err(AskError::Gone)
        );
    });
}

#[test]
fn nobody_at_the_address_is_told_within_the_patience() {
    play(async {
        let (master, agent) = master_and_agent();
        let silent = UdpSocket::bind(LOCALHOST).await.unwrap();
        let options = Options {
            handshake_timeout: Duration::from_millis(200),
            ..quick()
        };
        let impatient = Member::with(
            &Authority::create().unwrap(),
            "agent-2",
            Role::Agent,
            options,
        );
        let error = impatient
            .node
            .connect(&silent.local_addr().unwrap().to_string())
            .await
            .unwrap_err();
        assert!(
            matches!(error, ConnectError::Unreachable { .. }),
            "{error:?}"
        );
        for (address, wanted) in [
            ("nonsense", "expected [ROLE@]HOST:PORT"),
            ("unix:/nowhere", "cannot be reached"),
        ] {
            let error = agent.node.connect(address).await.unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}, expected {wanted}");
        }
        drop(master);
    });
}

#[test]
fn an_identity_of_another_node_cannot_be_bound() {
    play(async {
        let node = Node::builder("agent-1").role(Role::Agent).build();
        let authority = Authority::create().unwrap();
        for identity in [
            authority.issue(Role::Agent, "agent-2"),
            authority.issue(Role::Master, "agent-1"),
        ] {
            let bound = Endpoint::bind(node.clone(), &identity.unwrap(), LOCALHOST, quick());
            let error = bound.err().unwrap().to_string();
            assert!(error.contains("expected meros://agent/agent-1"), "{error}");
        }
    });
}

#[test]
fn a_port_that_is_taken_is_told() {
    play(async {
        let (master, _) = master_and_agent();
        let node = Node::builder("agent-3").role(Role::Agent).build();
        let identity = Authority::create()
            .unwrap()
            .issue(Role::Agent, "agent-3")
            .unwrap();
        let taken = master.endpoint.address().unwrap();
        let error = Endpoint::bind(node, &identity, taken, quick())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(&taken.to_string()), "{error}");
    });
}

#[test]
fn more_handshakes_than_the_bound_are_refused_and_may_come_back() {
    play(async {
        let authority = Authority::create().unwrap();
        let options = Options {
            handshakes_max: 1,
            handshake_timeout: Duration::from_secs(2),
            ..quick()
        };
        let master = Member::with(&authority, "master-1", Role::Master, options);
        let silent = Rogue::dial(&authority, &master).await;
        let agent = Member::new(&authority, "agent-1", Role::Agent);
        let error = agent.node.connect(&master.address()).await.unwrap_err();
        assert!(
            matches!(error, ConnectError::Unreachable { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("too many handshakes"), "{error}");
        drop(silent);
        let clock = agent.node.clock();
        let mut attempts = 0;
        while agent.node.connect(&master.address()).await.is_err() {
            attempts += 1;
            assert!(attempts < 100, "never let in again");
            clock.sleep(Duration::from_millis(50)).await;
        }
    });
}
