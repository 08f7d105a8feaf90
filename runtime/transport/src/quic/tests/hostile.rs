//! Peers that must not get in, and peers that misbehave once they are in.

use std::time::Duration;

use quinn::ConnectionError;
use tokio::net::UdpSocket;

use super::*;
use crate::certificates::server_name;

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
    rogue_is_told(
        garbage,
        Closing::Garbled,
        "body of 32767 bytes in a short frame",
    );
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

#[test]
fn more_handshakes_than_the_bounds_are_refused_and_may_come_back() {
    play(async {
        let authority = Authority::create().unwrap();
        let options = Options {
            handshakes_max: 1,
            handshakes_waiting_max: 0,
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
        assert!(
            error.to_string().contains("takes no connections now"),
            "{error}"
        );
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
