//! A certificate authority as another tool makes it, for tests: with an intermediate, certificates
//! that expire, and revocation lists.

use std::path::Path;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use runtime::{Clock, Role};

use crate::certificates::{Identity, Revocations};

/// One day, in seconds.
pub(crate) const DAY: i64 = 24 * 3600;

/// The time `seconds` from now, since the Unix epoch.
pub(crate) fn from_now(seconds: i64) -> Duration {
    let now = Clock::real().wall().as_nanos() / 1_000_000_000;
    Duration::from_secs(now.checked_add_signed(seconds).unwrap())
}

/// A root certificate and an intermediate that issues, as a company has them.
pub(crate) struct ForeignAuthority {
    /// The root certificate, which nodes trust.
    pub root: String,
    /// The intermediate certificate.
    pub intermediate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl ForeignAuthority {
    pub fn new(name: &str) -> Self {
        let params = |name: String| {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            params
        };
        let root_key = KeyPair::generate().unwrap();
        let (root, intermediate) = (
            params(format!("{name} root")),
            params(format!("{name} issuing")),
        );
        let root_certificate = root.self_signed(&root_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let signed = intermediate
            .signed_by(&key, &Issuer::new(root, root_key))
            .unwrap();
        Self {
            root: root_certificate.pem(),
            intermediate: signed.pem(),
            issuer: Issuer::new(intermediate, key),
        }
    }

    /// A certificate with this serial number and its key, valid from and until these seconds from
    /// now.
    pub fn issue(
        &self,
        mut params: CertificateParams,
        serial: u64,
        [from, until]: [i64; 2],
    ) -> (String, String) {
        let epoch = date_time_ymd(1970, 1, 1);
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_before = epoch + from_now(from);
        params.not_after = epoch + from_now(until);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes a node's certificate and key to `directory`, with the file names that an operator
    /// uses.
    pub fn keep(&self, directory: &Path, (role, name): (Role, &str), serial: u64, valid: [i64; 2]) {
        let mut params = CertificateParams::new([format!("{role}.meros")]).unwrap();
        let uri = format!("meros://{role}/{name}").try_into().unwrap();
        params.subject_alt_names.push(SanType::URI(uri));
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let (certificate, key) = self.issue(params, serial, valid);
        let write = |file: String, text: &str| {
            std::fs::write(directory.join(file), text).unwrap();
        };
        write("ca.pem".to_owned(), &self.root);
        write(
            format!("{role}.pem"),
            &format!("{certificate}{}", self.intermediate),
        );
        write(format!("{role}.key"), &key);
    }

    /// A node's identity, valid today.
    pub fn identity(&self, role: Role, name: &str, serial: u64) -> Identity {
        let directory = tempfile::tempdir().unwrap();
        self.keep(directory.path(), (role, name), serial, [-60, DAY]);
        Identity::load(directory.path(), role).unwrap()
    }

    /// A revocation list of these serial numbers, as PEM text.
    pub fn revoke(&self, serials: &[u64]) -> String {
        let time = |seconds| date_time_ymd(1970, 1, 1) + from_now(seconds);
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: time(-60),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: time(-60),
            next_update: time(DAY),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// The parsed revocation list of these serial numbers.
    pub fn revocations(&self, serials: &[u64]) -> Revocations {
        Revocations::from_pem(&self.revoke(serials)).unwrap()
    }
}
