//! Flags of the HTTP server: connection limit, TLS, allowed hosts.
//!
//! Reads their files at the start and at SIGHUP; errors name the flag and the file. If the
//! environment variables of Mesos request TLS and the flags do not, the service refuses to start,
//! so that traffic is never unencrypted by mistake.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Once;

use clap::{ArgAction, Args};
use http::{AllowedHosts, HttpOptions};
use nix::sys::resource::{Resource, getrlimit};
use runtime::Clock;
use transport::tls::{Tls, TlsSettings, TlsSettingsError};
use transport::{Identity, Revocations};

use crate::flags::access;
use crate::flags::boolean;
use crate::output::error::{CliError, Outcome};
use crate::service::machine_name;
use crate::service::reload::Reload;

/// The minimum of connections per service, if many services share a low limit of open files.
const CONNECTIONS_MIN: usize = 16;
/// Several services of one process log it once.
static LOGGED: Once = Once::new();

/// The limit of open files of this process.
fn open_files() -> Outcome<u64> {
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    let (files, _) = limit.map_err(|error| CliError::because("the limit of open files", &error))?;
    Ok(files)
}

/// The flags that masters and agents share.
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct HttpFlags {
    /// Maximum of open HTTP connections, at most half of this process' limit of open files. At the
    /// limit a new connection replaces an idle one, or a busy one of an address that exceeds its
    /// share; otherwise it is answered with 503, except for /health. A client must read a response
    /// within 75 s and one second more per 256 KiB
    #[arg(long, env = "MEROS_HTTP_CONNECTIONS_MAX", default_value_t = 4096, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub http_connections_max: u32,
    /// Serve HTTPS instead of HTTP: a PEM file with this service's certificate, followed by those
    /// between it and the authority that clients trust. Read again at SIGHUP
    #[arg(long, env = "MEROS_HTTP_CERTIFICATE", value_name = "FILE")]
    pub http_certificate: Option<PathBuf>,
    /// The key of --http_certificate: a PEM file. Read again at SIGHUP
    #[arg(long, env = "MEROS_HTTP_KEY", value_name = "FILE")]
    pub http_key: Option<PathBuf>,
    /// Accept client certificates of these authorities, a PEM file. The principal is the name in
    /// the certificate: `NAME` of an operator's certificate by `meros certs`, of a framework's for
    /// the scheduler API only, the common name of others. HTTP Basic credentials, where required
    /// and sent, take precedence. Read again at SIGHUP
    #[arg(long, env = "MEROS_HTTP_CLIENT_CA", value_name = "FILE")]
    pub http_client_ca: Option<PathBuf>,
    /// Require a certificate of --http_client_ca from every HTTPS client
    #[arg(long, env = "MEROS_HTTP_REQUIRE_CLIENT_CERTIFICATE", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub http_require_client_certificate: bool,
    /// Also answer plain HTTP on the same port: during a migration to HTTPS, and for executors that
    /// only support HTTP
    #[arg(long, env = "MEROS_HTTP_PLAIN", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub http_plain: bool,
    /// Revoked certificates: revocation lists (X509 CRL) of the authorities of --certs and
    /// --http_client_ca, a PEM file. New links and HTTPS connections with such certificates are
    /// refused. Read again at SIGHUP
    #[arg(long, env = "MEROS_CRL", value_name = "FILE")]
    pub crl: Option<PathBuf>,
    /// Host names accepted in requests, in addition to IP addresses, localhost, --hostname and this
    /// machine's own names: names from DNS, a proxy or a Kubernetes service. `*.example.com` means
    /// every name below example.com, `*` any name. A request for another host gets 403, because a
    /// foreign web page may have directed a browser here (DNS rebinding)
    #[arg(long, env = "MEROS_ALLOWED_HOSTS", value_name = "NAME,...", value_delimiter = ',', value_parser = allowed_host)]
    pub allowed_hosts: Vec<String>,
    /// Wrap responses in the function named by `?jsonp=`, as Mesos does. Every web page in a user's
    /// browser can then read everything that the user can read without a password
    #[arg(long, env = "MEROS_JSONP", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub jsonp: bool,
}

impl Default for HttpFlags {
    fn default() -> Self {
        Self {
            http_connections_max: 4096,
            http_certificate: None,
            http_key: None,
            http_client_ca: None,
            http_require_client_certificate: false,
            http_plain: false,
            crl: None,
            allowed_hosts: Vec::new(),
            jsonp: false,
        }
    }
}

impl HttpFlags {
    /// The HTTP options of the only service in this process.
    pub fn options(&self) -> Outcome<HttpOptions> {
        self.options_among(1)
    }

    /// The HTTP options of one of several services in this process.
    pub fn options_among(&self, members: usize) -> Outcome<HttpOptions> {
        if let Some(hint) = hint(self.http_certificate.is_some(), |name| {
            std::env::var(name).ok()
        }) {
            return Err(CliError::usage(hint));
        }
        let tls = match self.read()? {
            None => None,
            Some(shown) => {
                let tls = Tls::new(&shown, &Clock::real());
                Some(tls.map_err(|unusable| self.unusable(&unusable))?)
            }
        };
        Ok(HttpOptions {
            connections_max: self.connections_max(open_files()?, members),
            tls,
            plain: self.http_plain,
            hosts: AllowedHosts::default().with(&self.allowed_hosts),
            jsonp: self.jsonp,
            ..HttpOptions::default()
        })
    }

    /// The connection limit of each of `members` services, given the limit of open files, of which
    /// half is reserved for other uses.
    fn connections_max(&self, files: u64, members: usize) -> usize {
        let asked = self.http_connections_max as usize;
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        let most = (files / 2 / members).max(CONNECTIONS_MIN);
        if most < asked {
            let log = || {
                tracing::info!(
                    asked,
                    most,
                    files,
                    "limiting HTTP connections below --http_connections_max, to half of the limit of open files"
                );
            };
            LOGGED.call_once(log);
        }
        asked.min(most)
    }

    /// Whether clients can authenticate with certificates.
    pub fn certifies(&self) -> bool {
        self.http_client_ca.is_some()
    }

    /// The URL scheme of the pages.
    pub fn scheme(&self) -> &'static str {
        match self.http_certificate {
            Some(_) => "https",
            None => "http",
        }
    }

    /// The flags as shown to operators.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let files = [
            ("http_certificate", &self.http_certificate),
            ("http_key", &self.http_key),
            ("http_client_ca", &self.http_client_ca),
            ("crl", &self.crl),
        ];
        let files = files.into_iter().filter_map(|(name, file)| {
            let file = file.as_ref()?.display().to_string();
            Some((name.to_owned(), file))
        });
        let others = [
            (
                "http_connections_max",
                self.http_connections_max.to_string(),
            ),
            (
                "http_require_client_certificate",
                self.http_require_client_certificate.to_string(),
            ),
            ("http_plain", self.http_plain.to_string()),
            ("allowed_hosts", self.allowed_hosts.join(",")),
            ("jsonp", self.jsonp.to_string()),
        ];
        let others = others.map(|(name, value)| (name.to_owned(), value));
        files.chain(others).collect()
    }

    /// The reload at SIGHUP.
    pub fn reloads(&self, options: &HttpOptions) -> Option<Reload> {
        let (flags, tls) = (self.clone(), options.tls.clone()?);
        Some(Reload::new("the certificate of HTTPS", move || {
            let Some(shown) = flags.read()? else {
                return Ok(());
            };
            let renewed = tls.renew(&shown);
            renewed.map_err(|unusable| flags.unusable(&unusable))
        }))
    }

    /// Reads the TLS files; none without TLS.
    fn read(&self) -> Outcome<Option<TlsSettings>> {
        let needs = |flag: &str, other: &str| {
            CliError::usage(format!("--{flag} has no meaning without --{other}"))
        };
        let (certificate, key) = match (&self.http_certificate, &self.http_key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(_), None) => return Err(needs("http_certificate", "http_key")),
            (None, Some(_)) => return Err(needs("http_key", "http_certificate")),
            (None, None) if self.certifies() => {
                return Err(needs("http_client_ca", "http_certificate"));
            }
            (None, None) if self.http_require_client_certificate => {
                return Err(needs("http_require_client_certificate", "http_client_ca"));
            }
            (None, None) => return Ok(None),
        };
        if self.http_require_client_certificate && !self.certifies() {
            return Err(needs("http_require_client_certificate", "http_client_ca"));
        }
        if self.http_require_client_certificate && self.http_plain {
            let problem = "--http_plain allows clients without a certificate, which --http_require_client_certificate forbids: choose one";
            return Err(CliError::usage(problem));
        }
        let clients = self.http_client_ca.as_deref();
        Ok(Some(TlsSettings {
            certificate: access::file("http_certificate", certificate)?,
            key: access::secret("http_key", key)?,
            clients: clients
                .map(|path| access::file("http_client_ca", path))
                .transpose()?,
            required: self.http_require_client_certificate,
            revocations: self.read_crl()?,
        }))
    }

    fn read_crl(&self) -> Outcome<Option<String>> {
        let read = |path| access::file("crl", path);
        self.crl.as_deref().map(read).transpose()
    }

    /// The identity, without trust in certificates that --crl revokes.
    pub fn revoking(&self, identity: Identity) -> Outcome<Identity> {
        let Some(lists) = self.read_crl()? else {
            return Ok(identity);
        };
        let revocations = Revocations::from_pem(&lists);
        let revocations =
            revocations.map_err(|why| self.unusable(&TlsSettingsError::Revocations(why)))?;
        Ok(identity.revoking(revocations))
    }

    fn unusable(&self, unusable: &TlsSettingsError) -> CliError {
        let (flag, file, why) = match unusable {
            TlsSettingsError::Certificate(why) => ("http_certificate", &self.http_certificate, why),
            TlsSettingsError::Key(why) => ("http_key", &self.http_key, why),
            TlsSettingsError::Clients(why) => ("http_client_ca", &self.http_client_ca, why),
            TlsSettingsError::Revocations(why) => ("crl", &self.crl, why),
        };
        let file = file.as_deref().unwrap_or(Path::new("")).display();
        CliError::usage(format!("--{flag}: {file} cannot be used: {why}"))
    }
}

/// Parses a name of `--allowed_hosts`.
fn allowed_host(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_name = !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain);
    match text == "*" || is_name {
        true => Ok(text.to_owned()),
        false => Err("expected a host name without a port, `*.` and a domain, or `*`".to_owned()),
    }
}

/// The names of this machine: `hostname`, its own name, and those derived by its `hosts` file and
/// resolver.
pub fn own_names(hostname: &str) -> Vec<String> {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = machine_name();
    let mut names = derived_names(&machine, &text("/etc/hosts"), &text("/etc/resolv.conf"));
    names.extend([hostname.to_owned(), machine]);
    names
}

/// The other names of `machine`: on its lines in a `hosts` file, and in the search domains.
fn derived_names(machine: &str, hosts: &str, resolver: &str) -> Vec<String> {
    let lines = |text: &str| -> Vec<Vec<String>> {
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default());
        lines
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect()
    };
    let mut names = Vec::new();
    for line in lines(hosts) {
        let own = line.into_iter().skip(1).collect::<Vec<_>>();
        if own.iter().any(|name| name == machine) {
            names.extend(own);
        }
    }
    for line in lines(resolver) {
        let [kind, domains @ ..] = &line[..] else {
            continue;
        };
        if matches!(kind.as_str(), "search" | "domain") {
            let domains = domains.iter().map(|domain| domain.trim_matches('.'));
            let domains = domains.filter(|domain| !domain.is_empty());
            names.extend(domains.map(|domain| format!("{machine}.{domain}")));
        }
    }
    names
}

/// The TLS variables of Mesos, and the flags that replace them.
const LIBPROCESS: [(&str, &str); 7] = [
    ("CERT_FILE", "--http_certificate"),
    ("KEY_FILE", "--http_key"),
    ("CA_FILE", "--http_client_ca"),
    ("CA_DIR", "--http_client_ca, with one file"),
    ("VERIFY_CERT", "--http_client_ca"),
    ("REQUIRE_CLIENT_CERT", "--http_require_client_certificate"),
    ("SUPPORT_DOWNGRADE", "--http_plain"),
];

/// The usage error if the environment variables of Mesos request TLS and the flags do not.
fn hint(has_tls: bool, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let given = |name: &str| {
        let spellings = [format!("LIBPROCESS_SSL_{name}"), format!("SSL_{name}")];
        spellings
            .into_iter()
            .find_map(|spelling| Some((variable(&spelling)?, spelling)))
    };
    let (value, enabled) = given("ENABLED")?;
    if has_tls || !matches!(value.as_str(), "1" | "true") {
        return None;
    }
    let mut problem = format!(
        "{enabled}={value} has no effect: enable HTTPS with --http_certificate and --http_key"
    );
    for (name, flag) in LIBPROCESS {
        if let Some((_, spelling)) = given(name) {
            problem.push_str(&format!("; {spelling} is now {flag}"));
        }
    }
    Some(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_variables_of_mesos_are_not_ignored() {
        let given = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                let mut pairs = pairs.iter();
                let pair = pairs.find(|(given, _)| *given == name);
                pair.map(|(_, value)| (*value).to_owned())
            }
        };
        let asks = given(&[
            ("LIBPROCESS_SSL_ENABLED", "true"),
            ("LIBPROCESS_SSL_KEY_FILE", "/key"),
            ("SSL_CA_DIR", "/ca"),
        ]);
        let text = hint(false, asks).unwrap();
        for words in [
            "LIBPROCESS_SSL_ENABLED=true",
            "--http_certificate",
            "LIBPROCESS_SSL_KEY_FILE is now --http_key",
            "SSL_CA_DIR is now --http_client_ca",
        ] {
            assert!(text.contains(words), "{text}");
        }
        assert!(!text.contains("CERT_FILE"), "{text}");
        assert_eq!(hint(true, asks), None);
        assert_eq!(hint(false, given(&[("SSL_ENABLED", "0")])), None);
        assert_eq!(
            hint(false, given(&[("LIBPROCESS_SSL_KEY_FILE", "/key")])),
            None
        );
    }

    #[test]
    fn own_names_include_hosts_file_and_domains() {
        let hosts = "127.0.0.1 localhost\n10.0.0.7 n1.example.com n1 # n1 evil.com\n10.0.0.8 n2\n";
        let resolver = "nameserver 10.0.0.1\nsearch a.example . b.example.\noptions ndots:5\n";
        let expected = ["n1.example.com", "n1", "n1.a.example", "n1.b.example"];
        assert_eq!(derived_names("n1", hosts, resolver), expected);
        assert!(derived_names("n1", "", "search").is_empty());
    }

    #[test]
    fn allowed_host_has_no_port() {
        for right in ["meros", "*", "*.svc.cluster.local", "a_b-c.example"] {
            assert_eq!(allowed_host(right).as_deref(), Ok(right));
        }
        for wrong in [
            "",
            "meros:5050",
            "http://meros",
            "a*",
            "*.",
            "*.*",
            ".a",
            "a b",
        ] {
            assert!(allowed_host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn connections_use_half_of_the_open_files() {
        let flags = HttpFlags::default();
        assert_eq!(flags.connections_max(1024, 1), 512);
        assert_eq!(flags.connections_max(1024, 4), 128);
        assert_eq!(flags.connections_max(1024, 1000), CONNECTIONS_MIN);
        assert_eq!(flags.connections_max(u64::MAX, 1), 4096);
        let few = HttpFlags {
            http_connections_max: 3,
            ..flags
        };
        assert_eq!(few.connections_max(1024, 1000), 3);
    }

    #[test]
    fn contradictory_flags_are_refused() {
        let path = || Some(PathBuf::from("/no/such/file"));
        let wrong = |change: fn(&mut HttpFlags, Option<PathBuf>)| {
            let mut flags = HttpFlags::default();
            change(&mut flags, path());
            flags.read().unwrap_err().to_string()
        };
        for (problem, words) in [
            (
                wrong(|flags, path| flags.http_key = path),
                "--http_key has no meaning without --http_certificate",
            ),
            (
                wrong(|flags, path| flags.http_certificate = path),
                "--http_certificate has no meaning without --http_key",
            ),
            (
                wrong(|flags, path| flags.http_client_ca = path),
                "--http_client_ca has no meaning",
            ),
            (
                wrong(|flags, path| {
                    (flags.http_certificate, flags.http_key) = (path.clone(), path);
                    flags.http_require_client_certificate = true;
                }),
                "without --http_client_ca",
            ),
            (
                wrong(|flags, path| {
                    (flags.http_certificate, flags.http_key) = (path.clone(), path.clone());
                    flags.http_client_ca = path;
                    (flags.http_require_client_certificate, flags.http_plain) = (true, true);
                }),
                "--http_plain allows clients",
            ),
            (
                wrong(|flags, path| {
                    (flags.http_certificate, flags.http_key) = (path.clone(), path)
                }),
                "--http_certificate: /no/such/file cannot be used: No such file",
            ),
        ] {
            assert!(problem.contains(words), "{problem}");
        }
        assert!(HttpFlags::default().read().unwrap().is_none());
    }
}
