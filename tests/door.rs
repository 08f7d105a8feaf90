//! HTTP access to a real cluster: HTTPS with and without client certificates, reload at SIGHUP,
//! request limits and cross-site protection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::support::{Cluster, PATIENCE, eventually, get, get_over, header, request};

/// A company's certificate authority.
pub struct Company {
    key: KeyPair,
    params: CertificateParams,
}

/// A certificate and its key, as PEM text.
type Pair = (String, String);

impl Company {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self { key, params }
    }

    fn certificate(&self) -> String {
        let own = self.params.self_signed(&self.key);
        own.expect("a certificate").pem()
    }

    fn issue(&self, name: &str) -> Pair {
        let hosts = ["127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(hosts).expect("a host");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = Issuer::new(self.params.clone(), &self.key);
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes a service's certificate and key, and this authority's certificate, to a directory.
    pub fn keep(&self, directory: &Path) {
        let (certificate, key) = self.issue("service");
        for (name, text) in [
            ("service.pem", certificate),
            ("service.key", key),
            ("clients.pem", self.certificate()),
        ] {
            std::fs::write(directory.join(name), text).expect("it is written");
        }
    }
}

/// A connection of a client that trusts this authority and has this certificate.
fn connect(
    port: u16,
    trusts: &Company,
    shows: Option<&Pair>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(trusts.certificate().as_bytes());
    roots
        .add(authority.expect("a certificate"))
        .expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match shows {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
            builder
                .with_client_auth_cert(vec![certificate.expect("a certificate")], key)
                .expect("a pair")
        }
    };
    let host = ServerName::try_from("127.0.0.1").expect("a host");
    let connection = ClientConnection::new(Arc::new(config), host).expect("a client");
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("the port answers");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    StreamOwned::new(connection, stream)
}

/// The answer to a client that trusts this authority, or the connection's error.
fn ask(port: u16, trusts: &Company, shows: Option<&Pair>, request: &str) -> Result<String, String> {
    let mut stream = connect(port, trusts, shows);
    let mut text = String::new();
    let answer = stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.read_to_string(&mut text));
    match answer {
        Ok(_) => Ok(text),
        Err(_) if !text.is_empty() => Ok(text),
        Err(error) => Err(error.to_string()),
    }
}

fn page(path: &str, header: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{header}Connection: close\r\n\r\n")
}

/// Flags for TLS with the files in a directory.
fn flags(directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    [
        "--http_certificate",
        &file("service.pem"),
        "--http_key",
        &file("service.key"),
        "--http_client_ca",
        &file("clients.pem"),
    ]
    .map(str::to_owned)
    .to_vec()
}

// Covers W32; 6.3 AuthN/Z.
#[test]
fn client_certificate_gives_the_principal_over_tls() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (own, others) = (Company::new("own"), Company::new("others"));
    own.keep(directory.path());
    let acls = r#"{"get_endpoints":[{"principals":{"values":["alice"]},"paths":{"type":"ANY"}},
        {"principals":{"type":"NONE"},"paths":{"type":"ANY"}}]}"#;
    let tls = flags(directory.path());
    let mut all: Vec<&str> = tls.iter().map(String::as_str).collect();
    all.extend([
        "--authenticate_http_readonly",
        "--acls",
        acls,
        "--resources",
        "cpus:1;mem:64",
    ]);
    let cluster = Cluster::with(1, &all);
    let (alice, bob, mallory) = (own.issue("alice"), own.issue("bob"), others.issue("alice"));
    for port in [cluster.port, cluster.port + 1] {
        let status = |shows: Option<&Pair>, path: &str| {
            let text = ask(port, &own, shows, &page(path, ""))?;
            Ok(text[9..12].to_owned())
        };
        let code = |code: &str| Ok::<_, String>(code.to_owned());
        assert_eq!(status(Some(&alice), "/metrics/snapshot"), code("200"));
        assert_eq!(status(Some(&alice), "/state"), code("200"));
        assert_eq!(status(Some(&bob), "/metrics/snapshot"), code("403"));
        assert_eq!(status(None, "/state"), code("401"));
        assert_eq!(status(None, "/health"), code("200"));
        assert!(
            status(Some(&mallory), "/health").is_err(),
            "another authority's"
        );
        assert!(ask(port, &others, None, &page("/health", "")).is_err());
        // A certificate does not replace a wrong secret.
        let basic = "Authorization: Basic YWxpY2U6aHVzaA==\r\n";
        let text = ask(port, &own, Some(&alice), &page("/state", basic)).expect("an answer");
        assert!(text.starts_with("HTTP/1.1 401"), "{text}");
        // Plain HTTP gets an error.
        let (status, text) = get(port, "/health");
        assert!(
            status.contains("400") && text.contains("https://"),
            "{status} {text}"
        );
        let metrics = ask(port, &own, Some(&alice), &page("/metrics/snapshot", ""));
        let metrics = metrics.expect("an answer");
        let counted = "\"http/connections_plain_refused\":1.0";
        assert!(metrics.contains(counted), "{metrics}");
    }
    // Redirects keep the request's scheme.
    let text = ask(cluster.port, &own, None, &page("/redirect", "")).expect("an answer");
    assert_eq!(
        header(&text, "location"),
        Some(format!("//{}", cluster.master))
    );
    // Native commands have their own certificates.
    assert!(cluster.output(["run", "--", "true"]).status.success());
}

#[test]
fn required_client_certificate_is_enforced() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (own, others) = (Company::new("own"), Company::new("others"));
    own.keep(directory.path());
    let cluster = Cluster::master_alone(|command, _| {
        command.args(flags(directory.path()));
        command.arg("--http_require_client_certificate");
    });
    let health = page("/health", "");
    let ask_with = |shows: Option<&Pair>| ask(cluster.port, &own, shows, &health);
    let answer = ask_with(Some(&own.issue("alice"))).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        ask_with(None).is_err(),
        "also a page that answers everybody"
    );
    assert!(ask_with(Some(&others.issue("alice"))).is_err());
    assert!(cluster.stop().success());
}

/// SPEC 3.7, 3.3: certificates, credentials, access control lists and rate limits.
#[test]
fn sighup_reloads_valid_files_and_ignores_invalid_ones() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (old, new) = (Company::new("old"), Company::new("new"));
    old.keep(directory.path());
    let file = |name: &str| directory.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(file(name), text).expect("it is written");
    write(
        "credentials",
        r#"{"credentials":[{"principal":"ops","secret":"old"}]}"#,
    );
    write("acls", "{}");
    write("limits", "{}");
    let cluster = Cluster::master_alone(|command, _| {
        command.args(flags(directory.path()));
        command.arg("--credentials").arg(file("credentials"));
        command.arg("--acls").arg(file("acls"));
        command.arg("--rate_limits").arg(file("limits"));
        command.args(["--http_plain", "--authenticate_http_readonly"]);
        command.stderr(std::fs::File::create(file("log")).expect("a log"));
    });
    let port = cluster.port;
    let log = || std::fs::read_to_string(file("log")).unwrap_or_default();
    let hang_up = |lines: usize, words: &str| {
        cluster.process.signal("HUP");
        eventually(words, || {
            (log().matches(words).count() >= lines).then_some(())
        });
    };
    // `ops:old` and `ops:new`.
    let (by_old, by_new) = (
        "Authorization: Basic b3BzOm9sZA==",
        "Authorization: Basic b3BzOm5ldw==",
    );
    let status =
        |given: &str, path: &str| request(port, "GET", path, given, "").0[9..12].to_owned();
    assert_eq!(status(by_old, "/metrics/snapshot"), "200");
    assert_eq!(status(by_new, "/metrics/snapshot"), "401");

    write(
        "credentials",
        r#"{"credentials":[{"principal":"ops","secret":7}]}"#,
    );
    write("acls", r#"{"no_such":[]}"#);
    write("limits", r#"{"limits":[{"principal":"ops","qps":-1}]}"#);
    write("service.key", "no key");
    hang_up(4, "keeping the old one");
    for words in "credentials[0].secret no_such limits[0].qps --http_key".split(' ') {
        assert!(log().contains(words), "{words}: {}", log());
    }
    assert_eq!(status(by_old, "/metrics/snapshot"), "200");
    assert!(ask(port, &old, None, &page("/health", "")).is_ok());

    // Connections with a certificate that is now invalid are closed.
    let alice = old.issue("alice");
    let mut kept = connect(port, &old, Some(&alice));
    let keeps = page("/health", "").replace("close", "keep-alive");
    kept.write_all(keeps.as_bytes()).expect("it is asked");
    assert!(kept.read(&mut [0; 1024]).expect("an answer") > 0);
    new.keep(directory.path());
    write(
        "credentials",
        r#"{"credentials":[{"principal":"ops","secret":"new"},{"principal":"dev","secret":"new"}]}"#,
    );
    write(
        "acls",
        r#"{"get_endpoints":[{"principals":{"values":["ops"]},"paths":{"values":["/metrics"]}}, {"principals":{"type":"NONE"},"paths":{"type":"ANY"}}]}"#,
    );
    write(
        "limits",
        r#"{"limits":[{"principal":"ops","qps":0.001,"capacity":0}]}"#,
    );
    hang_up(4, ": reloaded");
    let rest = kept.read_to_string(&mut String::new());
    rest.expect("it ends in good order, and soon");
    assert!(ask(port, &old, None, &page("/health", "")).is_err());
    assert!(ask(port, &new, None, &page("/health", "")).is_ok());
    assert_eq!(status(by_old, "/metrics/snapshot"), "401");
    let dev = "Authorization: Basic ZGV2Om5ldw==";
    assert_eq!(status(dev, "/metrics/snapshot"), "403");
    assert_eq!(status(by_new, "/metrics"), "200");
    // A read also counts as one request of its principal.
    assert_eq!(status(by_new, "/state"), "503");
    assert!(cluster.stop().success());
}

/// Rate limits apply to an agent's pages and calls as to a master's.
// Covers W29.
#[test]
fn agent_requests_above_the_rate_are_delayed_or_refused() {
    let limits = r#"{"aggregate_default_qps":0.001,"aggregate_default_capacity":0}"#;
    let flags = ["--rate_limits", limits, "--resources", "cpus:1;mem:64"];
    let cluster = Cluster::with(1, &flags);
    let port = cluster.port + 1;
    let ask = |path: &str| request(port, "GET", path, "", "");
    assert!(ask("/state").0.contains("200"));
    let (head, text) = ask("/monitor/statistics");
    assert!(
        head.contains("503") && header(&head, "retry-after").is_some(),
        "{head} {text}"
    );
    let body = r#"{"type":"GET_HEALTH"}"#;
    let (head, _) = request(port, "POST", "/api/v1", "", body);
    assert!(head.contains("503"), "{head}");
    assert!(ask("/health").0.contains("200"));
}

/// A value of a public metrics page, if a connection is available.
fn metric(port: u16, name: &str) -> Option<f64> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let (_, text) = get_over(stream, "/metrics/snapshot", "Accept: */*").ok()?;
    let metrics: Value = serde_json::from_str(&text).ok()?;
    metrics[name].as_f64()
}

#[test]
fn excess_connections_are_refused_and_counted() {
    let cluster = Cluster::with(0, &["--http_connections_max", "3"]);
    // A connection with a partial request is not closed in favour of new ones; an idle one is.
    let hold = || {
        let mut stream = TcpStream::connect(("127.0.0.1", cluster.port)).expect("it connects");
        let _ = stream.write_all(b"GET /health"); // Whoever is refused has gone already.
        stream
    };
    let mut held = vec![hold(), hold()];
    eventually("both to be there", || {
        (metric(cluster.port, "http/connections_open") == Some(3.0)).then_some(())
    });
    // The connection of the metrics request may still be open.
    eventually("one too many to be refused", || {
        let text = raw(cluster.port, &page("/version", ""));
        let is_refused = text.0.contains("503");
        if !is_refused {
            held.push(hold());
        }
        is_refused.then_some(())
    });
    // Health checks from the same address are still answered, and other addresses have their own
    // share.
    assert!(raw(cluster.port, &page("/health", "")).0.contains("200"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    let other = runtime.expect("a runtime").block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(std::net::SocketAddr::from(([127, 0, 0, 2], 0)))?;
        let connected = socket.connect(std::net::SocketAddr::from(([127, 0, 0, 1], cluster.port)));
        let other = connected.await?.into_std()?;
        other.set_nonblocking(false)?;
        std::io::Result::Ok(other)
    });
    let other = other.expect("it connects");
    let (head, _) = get_over(other, "/version", "Accept: */*").expect("an answer");
    assert!(head.contains("200"), "{head}");
    drop(held);
    eventually("the others to be let in again", || {
        let refused = metric(cluster.port, "http/connections_refused")?;
        (refused >= 1.0).then_some(())
    });
}

/// The answer to these bytes: status line and body.
fn raw(port: u16, bytes: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the port answers");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(bytes.as_bytes()).expect("it is taken");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default();
    (status.to_owned(), body.to_owned())
}

#[test]
fn cross_site_requests_are_refused() {
    let flags = [
        "--resources",
        "cpus:1;mem:64",
        "--allowed_hosts",
        "meros.example.com,*.svc.cluster.local",
    ];
    let cluster = Cluster::with(1, &flags);
    let ports = [cluster.port, cluster.port + 1];
    let get = |port: u16, path: &str, lines: &str| {
        let request = format!("GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n");
        raw(port, &request)
    };
    let post = |port: u16, path: &str, lines: &str, kind: &str, body: &str| {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\n{lines}Content-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        raw(port, &request)
    };
    for port in ports {
        // DNS rebinding: the attacker's host name resolves to this address.
        let evil = "Host: evil.com:5050\r\nOrigin: http://evil.com:5050\r\n";
        let (status, text) = get(port, "/state", evil);
        assert!(
            status.contains("403") && text.contains("--allowed_hosts"),
            "{status} {text}"
        );
        let call = r#"{"type":"GET_HEALTH"}"#;
        let (status, _) = post(port, "/api/v1", evil, "application/json", call);
        assert!(status.contains("403"), "{status}");
        // Cross-site request forgery: a form, or a script without the right to read the answer.
        let own = format!("Host: 127.0.0.1:{port}\r\n");
        for foreign in [
            "Origin: http://evil.com",
            "Origin: null",
            "Sec-Fetch-Site: cross-site",
        ] {
            let lines = format!("{own}{foreign}\r\n");
            for path in [
                "/quota",
                "/maintenance/schedule",
                "/teardown",
                "/api/v1",
                "/api/v1/scheduler",
                "/api/v1/executor",
                "/logging/toggle?level=1&duration=1secs",
            ] {
                let (status, text) = post(port, path, &lines, "text/plain", "{}");
                assert!(status.contains("403"), "{path} {foreign}: {status} {text}");
            }
            let (status, _) = get(port, "/health", &lines);
            assert!(status.contains("200"), "{status}");
        }
        let (status, text) = get(port, "/state?jsonp=f", &own);
        assert!(
            status.contains("403") && text.contains("--jsonp"),
            "{status} {text}"
        );
        // Clients other than browsers, and the service's own pages.
        for lines in [
            own.clone(),
            "Host: localhost\r\n".to_owned(),
            "Host: meros.example.com:8080\r\n".to_owned(),
            "Host: m.ns.svc.cluster.local\r\n".to_owned(),
            format!("{own}Origin: http://127.0.0.1:{port}\r\n"),
            format!("{own}Sec-Fetch-Site: same-origin\r\n"),
        ] {
            let (status, text) = post(port, "/api/v1", &lines, "application/json", call);
            assert!(status.contains("200"), "{lines}: {status} {text}");
        }
        let (status, _) = raw(port, "GET /health HTTP/1.0\r\n\r\n");
        assert!(status.contains("200"), "{status}");
    }
}
