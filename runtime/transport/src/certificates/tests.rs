//! Tests of authorities and identities.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use testkit::assert_contains;

use super::*;
use crate::foreign::{DAY, ForeignAuthority, from_now};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn certificate_subject_round_trips() {
    let authority = Authority::create().unwrap();
    for role in Role::ALL {
        let identity = authority.issue(role, "Node_1.rack-2").unwrap();
        let certificate = identity.chain().unwrap().remove(0);
        assert_eq!(
            Subject::of(&certificate).unwrap(),
            Subject {
                role,
                name: "Node_1.rack-2".into()
            }
        );
    }
}

#[test]
fn certificate_is_valid_for_its_role_only() {
    let identity = Authority::create()
        .unwrap()
        .issue(Role::Agent, "agent-1")
        .unwrap();
    let certificate = identity.chain().unwrap().remove(0);
    let certificate = webpki::EndEntityCert::try_from(&certificate).unwrap();
    for role in Role::ALL {
        let asked = server_name(role).try_into().unwrap();
        assert_eq!(
            certificate.verify_is_valid_for_subject_name(&asked).is_ok(),
            role == Role::Agent,
            "{role}"
        );
    }
}

#[test]
fn reloaded_authority_issues_trusted_certificates() {
    let directory = directory();
    let first = Authority::create().unwrap();
    first.save(directory.path()).unwrap();
    let again = Authority::load(directory.path()).unwrap();
    assert_eq!(first.certificate(), again.certificate());
    assert_eq!(again.issue(Role::Master, "m").unwrap().verify(), Ok(()));
}

#[test]
fn an_existing_authority_is_never_overwritten() {
    let directory = directory();
    let first = Authority::load_or_create(directory.path()).unwrap();
    let error = Authority::create()
        .unwrap()
        .save(directory.path())
        .unwrap_err();
    assert!(matches!(error, CertificateError::Exists { .. }), "{error}");
    assert_eq!(
        Authority::load_or_create(directory.path())
            .unwrap()
            .certificate(),
        first.certificate()
    );
    let stranger = Authority::create()
        .unwrap()
        .issue(Role::Agent, "a")
        .unwrap();
    let error = stranger.save(directory.path()).unwrap_err().to_string();
    assert_contains!(error, "ca.pem", "another authority");
}

#[test]
fn saved_identity_reloads_with_a_private_key_file() {
    let directory = directory();
    let home = directory.path().join("deep/er");
    let authority = Authority::create().unwrap();
    authority
        .issue(Role::Agent, "old")
        .unwrap()
        .save(&home)
        .unwrap();
    authority
        .issue(Role::Agent, "agent-1")
        .unwrap()
        .save(&home)
        .unwrap();
    authority
        .issue(Role::Operator, "me")
        .unwrap()
        .save(&home)
        .unwrap();
    assert_eq!(
        Identity::load(&home, Role::Agent).unwrap().subject().name,
        "agent-1"
    );
    assert_eq!(
        Identity::load(&home, Role::Operator)
            .unwrap()
            .subject()
            .name,
        "me"
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.join("agent.key")), 0o600);
    assert_eq!(mode(&home), 0o700);
    let beside = directory.path().join("other");
    fs::create_dir(&beside).unwrap();
    assert_eq!(mode(home.parent().unwrap()), mode(&beside), "as any other");
    assert_eq!(
        fs::read_dir(&home).unwrap().count(),
        5,
        "no drafts are left"
    );
}

#[test]
fn errors_name_the_missing_or_broken_file() {
    let directory = directory();
    let home = directory.path();
    let told = |wanted: &str| {
        let error = Identity::load(home, Role::Agent).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}, expected {wanted}");
    };
    told("ca.pem does not exist");
    let authority = Authority::create().unwrap();
    authority
        .issue(Role::Agent, "a")
        .unwrap()
        .save(home)
        .unwrap();
    fs::write(home.join("agent.key"), "garbage").unwrap();
    told("agent.key is not a PEM private key");
    fs::write(
        home.join("agent.key"),
        authority.issue(Role::Agent, "b").unwrap().key,
    )
    .unwrap();
    told("agent.pem does not belong to its key");
    let stranger = Authority::create()
        .unwrap()
        .issue(Role::Agent, "a")
        .unwrap();
    fs::write(home.join("agent.key"), &stranger.key).unwrap();
    fs::write(home.join("agent.pem"), &stranger.certificate).unwrap();
    told("agent.pem was not issued by ca.pem");
    fs::write(home.join("agent.pem"), authority.certificate()).unwrap();
    told("agent.pem has no readable subject alternative names");
    let master = authority.issue(Role::Master, "m").unwrap();
    fs::write(home.join("agent.pem"), &master.certificate).unwrap();
    told("role master, expected agent");
    fs::write(home.join("agent.pem"), "x".repeat(100_000)).unwrap();
    told("agent.pem is longer than 65536 bytes");
}

#[test]
fn mismatched_authority_key_and_certificate_are_refused() {
    let (one, other) = (directory(), directory());
    Authority::create().unwrap().save(one.path()).unwrap();
    Authority::create().unwrap().save(other.path()).unwrap();
    fs::copy(other.path().join("ca.pem"), one.path().join("ca.pem")).unwrap();
    let error = Authority::load(one.path()).unwrap_err().to_string();
    assert_contains!(error, "ca.pem does not belong to ca.key");
}

#[test]
fn invalid_names_get_no_certificate() {
    let authority = Authority::create().unwrap();
    for name in ["", "a/b", "a b", "name@node", "\u{e9}", &"x".repeat(129)] {
        let error = authority.issue(Role::Agent, name).unwrap_err().to_string();
        assert!(error.contains("expected 1 to 128 letters"), "{error}");
    }
}

#[test]
fn neither_key_shows_in_a_debug_print() {
    let authority = Authority::create().unwrap();
    let identity = authority.issue(Role::Agent, "a").unwrap();
    assert_eq!(
        format!("{authority:?} {identity:?}"),
        "Authority Identity(meros://agent/a)"
    );
}

proptest! {
    #[test]
    fn invalid_certificate_bytes_never_panic(bytes: Vec<u8>) {
        prop_assert!(Subject::of(&bytes).is_err());
    }

    #[test]
    fn a_damaged_certificate_never_panics(place in 0usize..400, value: u8, length in 0usize..600) {
        let authority = Authority::create().unwrap();
        let mut bytes = authority.issue(Role::Agent, "a").unwrap().chain().unwrap().remove(0).to_vec();
        let place = place % bytes.len();
        bytes[place] = value;
        bytes.truncate(length);
        let _ = Subject::of(&bytes);
    }
}

#[test]
fn lasting_secret_is_stable_and_unique_per_node() {
    let (authority, other) = (Authority::create().unwrap(), Authority::create().unwrap());
    let issued = |authority: &Authority, role, name| {
        let identity = authority.issue(role, name).unwrap();
        identity.lasting_secret().unwrap()
    };
    let secret = issued(&authority, Role::Agent, "a-1");
    assert_eq!(secret, issued(&authority, Role::Agent, "a-1"));
    assert_ne!(secret, issued(&authority, Role::Agent, "a-2"));
    assert_ne!(secret, issued(&authority, Role::Master, "a-1"));
    assert_ne!(secret, issued(&other, Role::Agent, "a-1"));

    let kept = directory();
    let identity = authority.issue(Role::Agent, "a-1").unwrap();
    identity.save(kept.path()).unwrap();
    let loaded = || Identity::load(kept.path(), Role::Agent).unwrap();
    assert_eq!(
        loaded().lasting_secret().unwrap(),
        loaded().lasting_secret().unwrap()
    );
}

#[test]
fn certificates_depend_on_the_seed_only() {
    let issue = |seed| {
        let authority = Authority::seeded(seed).unwrap();
        let identity = authority.issue(Role::Agent, "agent-1").unwrap();
        identity.verify().unwrap();
        (identity.certificate, identity.key, identity.authority)
    };
    assert_eq!(issue(1), issue(1));
    let (one, other) = (issue(1), issue(2));
    assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2);
}

#[test]
fn foreign_certificate_is_validated_by_current_time() {
    let company = ForeignAuthority::new("company");
    let directory = directory();
    let load = || Identity::load(directory.path(), Role::Agent);
    let keep = |valid| company.keep(directory.path(), (Role::Agent, "a"), 1, valid);
    // Issued this moment, by an intermediate.
    keep([-1, 30 * DAY]);
    let identity = load().unwrap();
    assert_eq!(
        (
            identity.subject().name.as_str(),
            identity.chain().unwrap().len()
        ),
        ("a", 2)
    );
    let left = identity.expires().unwrap().abs_diff(from_now(30 * DAY));
    assert!(left < Duration::from_secs(60), "{left:?}");
    for (valid, words) in [
        ([-3 * DAY, -DAY - 60], "is not valid now: it expired at 20"),
        ([DAY, 2 * DAY], "is not valid now: it is valid only from 20"),
    ] {
        keep(valid);
        let error = load().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    // Without the intermediate there is no path to the root.
    keep([-1, DAY]);
    let file = directory.path().join("agent.pem");
    let alone = fs::read_to_string(&file).unwrap();
    let alone = alone
        .split_inclusive("END CERTIFICATE-----")
        .next()
        .unwrap();
    fs::write(&file, alone).unwrap();
    let error = load().unwrap_err().to_string();
    assert!(error.contains("was not issued by ca.pem"), "{error}");
}

#[test]
fn expired_certificate_off_the_path_is_ignored() {
    let company = ForeignAuthority::new("company");
    let directory = directory();
    company.keep(directory.path(), (Role::Agent, "a"), 1, [-60, DAY]);
    let (expired, _) = company.issue(CertificateParams::default(), 2, [-2 * DAY, -DAY]);
    let file = directory.path().join("agent.pem");
    let chain = fs::read_to_string(&file).unwrap() + &expired;
    fs::write(&file, chain).unwrap();
    Identity::load(directory.path(), Role::Agent).unwrap();
}

/// Skipped without the command `openssl`.
#[test]
fn openssl_certificate_is_accepted() {
    let directory = directory();
    let openssl = |line: &str| {
        let mut command = std::process::Command::new("openssl");
        let output = command
            .args(line.split(' '))
            .current_dir(directory.path())
            .output();
        output.map(|output| {
            let problem = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{line}: {problem}");
        })
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let root = format!("req -x509 {key} -keyout root.key -out ca.pem -days 30 -subj /CN=company");
    if let Err(error) = openssl(&root) {
        return eprintln!("skipped: openssl cannot be run: {error}");
    }
    let extensions = "subjectAltName=DNS:agent.meros,URI:meros://agent/a-1\nextendedKeyUsage=serverAuth,clientAuth\n";
    fs::write(directory.path().join("extensions"), extensions).unwrap();
    openssl(&format!(
        "req {key} -keyout agent.key -out agent.csr -subj /CN=a-1"
    ))
    .unwrap();
    openssl("x509 -req -in agent.csr -CA ca.pem -CAkey root.key -CAcreateserial -out agent.pem -days 30 -extfile extensions").unwrap();
    let identity = Identity::load(directory.path(), Role::Agent).unwrap();
    assert_eq!(identity.subject().to_string(), "meros://agent/a-1");
}

#[test]
fn invalid_revocation_lists_are_refused() {
    let company = ForeignAuthority::new("company");
    assert!(Revocations::from_pem(&company.revoke(&[1])).is_ok());
    let two = format!(
        "{}{}",
        company.revoke(&[]),
        ForeignAuthority::new("other").revoke(&[2])
    );
    assert_eq!(Revocations::from_pem(&two).unwrap().lists().len(), 2);
    for (wrong, words) in [
        ("", "has no PEM revocation list"),
        (company.root.as_str(), "has no PEM revocation list"),
        (
            "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
            "cannot be used",
        ),
    ] {
        let error = Revocations::from_pem(wrong).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}
