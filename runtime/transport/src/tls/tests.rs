//! Handshakes over real sockets with all kinds of certificates.

use futures_util::FutureExt;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use runtime::Role;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use testkit::assert_matches;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;

use super::*;
use crate::certificates::Authority;
use crate::certificates::parse_certificates as certificates;
use crate::foreign::{DAY, ForeignAuthority, from_now};
use testkit::recorder::run_in_real_time;

/// A company's certificate authority.
struct Company(KeyPair, CertificateParams);

impl Company {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(KeyPair::generate().unwrap(), params)
    }

    fn certificate(&self) -> String {
        self.1.self_signed(&self.0).unwrap().pem()
    }

    /// A certificate with these common names for this host, and its key.
    fn issue(&self, names: &[&str], host: &str) -> (String, String) {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (at, name) in names.iter().enumerate() {
            let kind = match at {
                0 => DnType::CommonName,
                _ => DnType::CustomDnType(vec![2, 5, 4, 3]),
            };
            params.distinguished_name.push(kind, *name);
        }
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(self.1.clone(), &self.0);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// Connects as a client with this trusted authority and this certificate; returns both sides'
/// results.
async fn connect(
    tls: &Tls,
    trusts: &str,
    shows: Option<&(String, String)>,
) -> (io::Result<Option<String>>, io::Result<String>) {
    let mut roots = RootCertStore::empty();
    roots.add(certificates(trusts).unwrap().remove(0)).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match shows {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            let chain = certificates(certificate).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async {
        let (connection, _) = listener.accept().await?;
        let (mut connection, name) = tls.accept(connection).await?;
        connection.write_all(b"in").await?;
        connection.shutdown().await?;
        Ok(name.map(|principal| principal.name))
    };
    let ask = async {
        let connection = TcpStream::connect(address).await?;
        let host = ServerName::try_from("pages.example").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let mut connection = connector.connect(host, connection).await?;
        let mut text = String::new();
        connection.read_to_string(&mut text).await?;
        Ok(text)
    };
    futures_util::future::join(serve, ask).await
}

fn settings(of: &(String, String), clients: Option<String>, required: bool) -> TlsSettings {
    TlsSettings {
        certificate: of.0.clone(),
        key: of.1.clone(),
        clients,
        required,
        revocations: None,
    }
}

// Covers W32.
#[test]
fn client_principal_comes_from_its_certificate() {
    run_in_real_time(async {
        let (own, others) = (Company::new("own"), Company::new("others"));
        let server = own.issue(&[], "pages.example");
        let (alice, mallory) = (own.issue(&["alice"], "a"), others.issue(&["alice"], "a"));
        let clock = Clock::real();
        let trusts = own.certificate();
        let asks = |required| {
            Tls::new(
                &settings(&server, Some(own.certificate()), required),
                &clock,
            )
        };
        for required in [false, true] {
            let tls = asks(required).unwrap();
            let (name, text) = connect(&tls, &trusts, Some(&alice)).await;
            assert_eq!(
                (name.unwrap().as_deref(), text.unwrap().as_str()),
                (Some("alice"), "in")
            );
            let (name, text) = connect(&tls, &trusts, Some(&mallory)).await;
            assert!(name.is_err() && text.is_err());
            let (name, text) = connect(&tls, &trusts, None).await;
            match required {
                false => assert_eq!((name.unwrap(), text.unwrap().as_str()), (None, "in")),
                true => assert!(name.is_err() && text.is_err()),
            }
        }
        // A server without client authorities accepts no certificate.
        let tls = Tls::new(&settings(&server, None, false), &clock).unwrap();
        assert_eq!(connect(&tls, &trusts, Some(&alice)).await.0.unwrap(), None);
        let (name, text) = connect(&tls, &others.certificate(), None).await;
        assert!(
            name.is_err() && text.is_err(),
            "a client sees whom it does not trust"
        );
    });
}

#[test]
fn renewal_applies_and_invalid_settings_change_nothing() {
    run_in_real_time(async {
        let (old, new) = (Company::new("old"), Company::new("new"));
        let of = |company: &Company| {
            let server = company.issue(&["server"], "pages.example");
            settings(&server, Some(company.certificate()), true)
        };
        let clock = Clock::real();
        let tls = Tls::new(&of(&old), &clock).unwrap();
        let (by_old, by_new) = (old.issue(&["alice"], "a"), new.issue(&["bob"], "b"));
        let mixed = TlsSettings {
            key: of(&new).key,
            ..of(&old)
        };
        let no_certificate = TlsSettings {
            certificate: "none".to_owned(),
            ..of(&new)
        };
        let no_clients = TlsSettings {
            clients: Some(String::new()),
            ..of(&new)
        };
        assert!(matches!(tls.renew(&mixed), Err(TlsSettingsError::Key(_))));
        assert_matches!(
            tls.renew(&no_certificate),
            Err(TlsSettingsError::Certificate(_))
        );
        assert_matches!(tls.renew(&no_clients), Err(TlsSettingsError::Clients(_)));
        let (name, _) = connect(&tls, &old.certificate(), Some(&by_old)).await;
        assert_eq!(name.unwrap().as_deref(), Some("alice"));
        tls.clone().renew(&of(&new)).unwrap();
        let (name, _) = connect(&tls, &new.certificate(), Some(&by_new)).await;
        assert_eq!(name.unwrap().as_deref(), Some("bob"));
        assert!(
            connect(&tls, &new.certificate(), Some(&by_old))
                .await
                .0
                .is_err()
        );
    });
}

#[test]
fn only_changed_client_trust_is_reported() {
    run_in_real_time(async {
        let (old, new) = (Company::new("old"), Company::new("new"));
        let clock = Clock::real();
        let of = |server: &Company, clients: &str| {
            let server = server.issue(&[], "pages.example");
            settings(&server, Some(clients.to_owned()), false)
        };
        let (trusted, others) = (old.certificate(), new.certificate());
        let tls = Tls::new(&of(&old, &trusted), &clock).unwrap();
        let mut heard = std::pin::pin!(tls.client_trust_changed());
        let mut has_heard = || heard.as_mut().now_or_never().is_some();
        tls.renew(&of(&new, &trusted)).unwrap();
        assert!(!has_heard());
        let unusable = TlsSettings {
            key: String::new(),
            ..of(&new, &others)
        };
        assert!(tls.renew(&unusable).is_err() && !has_heard());
        tls.renew(&of(&new, &others)).unwrap();
        assert!(has_heard());
        assert!(tls.client_trust_changed().now_or_never().is_none());
    });
}

#[test]
fn principal_is_node_name_or_single_common_name() {
    let company = Company::new("own");
    let of = |pem: &str| Principal::of(&certificates(pem).unwrap().remove(0));
    let name = |names: &[&str]| {
        let principal = of(&company.issue(names, "host.example").0)?;
        assert_eq!(principal.role, None);
        Some(principal.name)
    };
    assert_eq!(name(&["alice"]).as_deref(), Some("alice"));
    assert_eq!(
        name(&["Zo\u{eb} of Ops"]).as_deref(),
        Some("Zo\u{eb} of Ops")
    );
    for none in [&[] as &[&str], &[""], &["a\nb"], &["alice", "root"]] {
        assert_eq!(name(none), None, "{none:?}");
    }
    assert_eq!(name(&["x".repeat(129).as_str()]), None);
    let authority = Authority::create().unwrap();
    for role in Role::ALL {
        let node = authority.issue(role, "ops").unwrap();
        let principal = Principal::of(&node.chain().unwrap()[0]).unwrap();
        assert_eq!(
            (principal.name.as_str(), principal.role),
            ("ops", Some(role))
        );
    }
    assert_eq!(Principal::of(b"no certificate"), None);
    // An invalid Meros name is not replaced by the common name.
    let with = |uris: &[&str]| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "alice");
        let uris = uris.iter().map(|uri| (*uri).try_into().unwrap());
        params.subject_alt_names = uris.map(SanType::URI).collect();
        of(&params.self_signed(&company.0).unwrap().pem())
    };
    assert_eq!(with(&["https://alice.example"]).unwrap().name, "alice");
    for wrong in [
        &["meros://operator/a", "meros://operator/b"] as &[&str],
        &["meros://king/a"],
        &["meros://operator"],
    ] {
        assert_eq!(with(wrong), None, "{wrong:?}");
    }
}

#[test]
fn revoked_clients_are_refused_and_trust_change_reported() {
    run_in_real_time(async {
        let (own, company) = (Company::new("own"), ForeignAuthority::new("company"));
        let clock = Clock::real();
        let server = own.issue(&[], "pages.example");
        let client = |name: &str, serial| {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            let (certificate, key) = company.issue(params, serial, [-60, DAY]);
            (format!("{certificate}{}", company.intermediate), key)
        };
        let (alice, bob) = (client("alice", 1), client("bob", 2));
        let asks = |revocations| TlsSettings {
            revocations,
            ..settings(&server, Some(company.root.clone()), true)
        };
        let trusts = own.certificate();
        let tls = Tls::new(&asks(None), &clock).unwrap();
        let (name, _) = connect(&tls, &trusts, Some(&alice)).await;
        assert_eq!(name.unwrap().as_deref(), Some("alice"));
        let mut changed = std::pin::pin!(tls.client_trust_changed());
        tls.renew(&asks(Some(company.revoke(&[1])))).unwrap();
        assert!(changed.as_mut().now_or_never().is_some());
        assert!(connect(&tls, &trusts, Some(&alice)).await.0.is_err());
        let (name, _) = connect(&tls, &trusts, Some(&bob)).await;
        assert_eq!(name.unwrap().as_deref(), Some("bob"));
        let wrong = tls.renew(&asks(Some("none".to_owned())));
        assert!(matches!(wrong, Err(TlsSettingsError::Revocations(_))));
    });
}

#[test]
fn an_expired_certificate_is_not_shown() {
    let company = ForeignAuthority::new("company");
    let clock = Clock::real();
    let settings = |valid| {
        let params = CertificateParams::new(["pages.example".to_owned()]).unwrap();
        let (certificate, key) = company.issue(params, 1, valid);
        settings(
            &(format!("{certificate}{}", company.intermediate), key),
            None,
            false,
        )
    };
    let tls = Tls::new(&settings([-60, 10 * DAY]), &clock).unwrap();
    let left = tls.expires().unwrap().abs_diff(from_now(10 * DAY));
    assert!(left < Duration::from_secs(60), "{left:?}");
    for (valid, words) in [
        ([-5 * DAY, -2 * DAY - 60], "the certificate expired at 20"),
        (
            [3 * DAY + 60, 4 * DAY],
            "the certificate is valid only from 20",
        ),
    ] {
        let error = Tls::new(&settings(valid), &clock).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
        assert!(tls.renew(&settings(valid)).is_err());
    }
    // Clients check the certificates behind the first one.
    let expired = settings([-2 * DAY, -DAY]).certificate;
    let mut own = settings([-60, DAY]);
    own.certificate += &expired;
    assert!(Tls::new(&own, &clock).is_ok());
}
