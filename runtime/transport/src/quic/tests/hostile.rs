//! Peers that must be refused, and linked peers that violate the protocol.

use std::time::Duration;

use quinn::ConnectionError;
use tokio::net::UdpSocket;

use super::*;
use crate::certificates::server_name;

/// Dials with any certificate; returns the accepting side's reason.
async fn refusal(member: &Member, address: &str) -> String {
    let refused = member.node.connect(address).await.unwrap_err();
    assert_matches!(refused, ConnectError::Refused { .. });
    refused.to_string()
}

#[test]
fn unaccepted_role_is_refused_with_a_reason() {
    run_in_real_time(async {
        let authority = Authority::create().unwrap();
        let master = Member::new(&authority, "master-1", Role::Master);
        let module = Member::new(&authority, "module-1", Role::Module);
        let told = refusal(&module, &master.address()).await;
        assert!(told.contains("role module is not accepted here"), "{told}");
        assert_eq!(master.endpoint.links(), 0);
    });
}

#[test]
fn agent_cannot_pose_as_master() {
    run_in_real_time(async {
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
fn foreign_certificate_is_refused_by_both_sides() {
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let stranger = Member::new(&Authority::create().unwrap(), "agent-2", Role::Agent);
        let told = refusal(&stranger, &master.address()).await;
        assert!(told.contains("UnknownIssuer"), "{told}");
        // The master also refuses a peer that does not verify the master.
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
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let told = raw_dial(&master, None).await.unwrap_err();
        assert!(told.contains("certificate"), "{told}");
        agent.find_noter(&master).await;
    });
}

/// Trusts every certificate.
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

/// A bare QUIC connection to the member; an error if the member closes it in the handshake.
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
    // A server may refuse a client after the client's handshake is complete.
    let clock = member.node.clock();
    match clock
        .timeout(Duration::from_millis(100), connection.closed())
        .await
    {
        Ok(error) => Err(error.to_string()),
        Err(_) => Ok((endpoint, connection)),
    }
}

/// A peer with a valid certificate of `agent-2` and its own protocol.
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

    /// Sends the hello of a real node with this name.
    async fn hello(&mut self, name: &str, role: Role) {
        let node = Node::builder(name).role(role).build();
        self.first
            .write_all(&crate::hello::framed(&node))
            .await
            .unwrap();
    }

    /// A rogue that is linked like a real node.
    async fn link(authority: &Authority, master: &Member) -> Self {
        let mut rogue = Self::dial(authority, master).await;
        rogue.hello("agent-2", Role::Agent).await;
        eventually(master.node.clock(), "the rogue is linked", || {
            master.endpoint.links() == 1
        })
        .await;
        rogue
    }

    /// The reason for which the master closed the connection.
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

/// A rogue acts, and the master closes its connection with this reason and continues to serve
/// others.
fn check_rogue_is_closed<F>(act: impl FnOnce(Rogue) -> F, code: Closing, wanted: &str)
where
    F: Future<Output = Rogue>,
{
    run_in_real_time(async {
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
        agent.check_answer(&noter).await;
    });
}

#[test]
fn hello_must_match_the_certificate() {
    for (name, role) in [("agent-3", Role::Agent), ("agent-2", Role::Framework)] {
        run_in_real_time(async move {
            let authority = Authority::create().unwrap();
            let master = Member::new(&authority, "master-1", Role::Master);
            let mut rogue = Rogue::dial(&authority, &master).await;
            rogue.hello(name, role).await;
            let (code, told) = rogue.told().await;
            assert_eq!(code, Closing::Refused as u64);
            assert_contains!(told, "the certificate says meros://agent/agent-2");
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
        run_in_real_time(async move {
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
    run_in_real_time(async {
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
fn garbage_frames_close_only_the_link() {
    let garbage = |mut rogue: Rogue| async {
        rogue
            .first
            .write_all(b"\x00\x00\x00\x10GET / HTTP/1.1\r\n")
            .await
            .unwrap();
        rogue
    };
    check_rogue_is_closed(garbage, Closing::Garbled, "");
}

#[test]
fn truncated_frame_closes_only_the_link() {
    let cut = |mut rogue: Rogue| async {
        rogue
            .first
            .write_all(b"\x00\x00\x01\x00half")
            .await
            .unwrap();
        rogue.first.finish().unwrap();
        rogue
    };
    check_rogue_is_closed(cut, Closing::Garbled, "cut off");
}

#[test]
fn oversized_frame_closes_only_the_link() {
    let long = |mut rogue: Rogue| async {
        rogue.first.write_all(b"\x7f\xff\xff\xff").await.unwrap();
        rogue
    };
    check_rogue_is_closed(long, Closing::Garbled, "frame of 2147483647 bytes");
}

#[test]
fn garbage_in_the_ping_lane_closes_only_the_link() {
    let garbage = |rogue: Rogue| async {
        let mut ping = rogue.connection.open_uni().await.unwrap();
        ping.write_all(b"\xff\xff\xff\xff").await.unwrap();
        rogue
    };
    check_rogue_is_closed(
        garbage,
        Closing::Garbled,
        "body of 32767 bytes in a short frame",
    );
}

#[test]
fn bulk_of_wrong_length_closes_only_the_link() {
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
        check_rogue_is_closed(bulk, Closing::Garbled, wanted);
    }
}

#[test]
fn reset_stream_closes_only_the_link() {
    let reset = |mut rogue: Rogue| async {
        rogue.first.reset(VarInt::from_u32(9)).unwrap();
        rogue
    };
    check_rogue_is_closed(reset, Closing::Garbled, "reset a stream with code 9");
}

#[test]
fn noise_on_the_socket_disturbs_nobody() {
    run_in_real_time(async {
        let (master, agent) = master_and_agent();
        let noter = agent.find_noter(&master).await;
        let noise = UdpSocket::bind(LOCALHOST).await.unwrap();
        for length in 0..1500 {
            let packet: Vec<u8> = (0..length).map(|at| (at * 31 + length * 7) as u8).collect();
            let _ = noise
                .send_to(&packet, master.endpoint.address().unwrap())
                .await;
        }
        agent.check_answer(&noter).await;
    });
}

#[test]
fn excess_handshakes_are_refused_and_may_retry() {
    run_in_real_time(async {
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
        assert_matches!(error, ConnectError::Unreachable { .. });
        assert_contains!(error.to_string(), "takes no connections now");
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
