//! Common parsing of flags for all verbs.
//!
//! Flags are spelled as in Mesos (`--work_dir`); dashes are accepted everywhere. A value
//! `file:///path` stands for the file's content. Durations have Mesos' format (`15secs`).
//! [`access`] and [`http`] are flags that several verbs share, `removed` the settings of Mesos
//! that Meros rejects or accepts, and `redact` removes passwords from errors.

pub mod access;
pub mod http;
pub(crate) mod redact;
pub(crate) mod removed;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use protocol::agent::Domain;
use runtime::Placement;

use crate::flags::redact::without_password;

/// Replaces dashes in the names of long flags by underscores, up to a bare `--`. Values are
/// unchanged.
pub fn underscored(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut ours = true;
    let respell = |argument: OsString| {
        ours &= argument != "--";
        let text = match argument.into_string() {
            Ok(text) => text,
            Err(argument) => return argument,
        };
        match text.strip_prefix("--") {
            Some(flag) if ours && !flag.is_empty() => {
                let (name, value) = flag.find('=').map_or((flag, ""), |at| flag.split_at(at));
                format!("--{}{value}", name.replace('-', "_")).into()
            }
            _ => text.into(),
        }
    };
    arguments.into_iter().map(respell).collect()
}

/// How a service uses the machine's cores.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// Separate threads for the master, its registry, allocator, sorter, other modules and pages: a
    /// long allocation delays no ping
    #[default]
    Own,
    /// One thread for everything: least memory, and fewer thread switches on machines with few
    /// cores
    One,
}

impl Threads {
    /// The thread placement of the node.
    pub fn placement(self) -> Placement {
        match self {
            Threads::Own => Placement::services(),
            Threads::One => Placement::here(),
        }
    }
}

/// The thread flag of all verbs that run a service.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct ThreadsFlag {
    /// Threads of a master or agent
    #[arg(
        long,
        env = "MEROS_THREADS",
        value_enum,
        default_value_t,
        value_name = "WHICH"
    )]
    pub threads: Threads,
}

/// The keep-alive flag of masters and agents, for links between them and to frameworks.
#[derive(clap::Args, Clone, Copy, Debug)]
#[command(rename_all = "snake_case")]
pub struct KeepAliveFlag {
    /// Maximum silence on a link before the side that opened it sends a keep-alive. A peer whose
    /// machine does not respond is lost after three of them; a peer whose process has ended, within
    /// two seconds if its machine reports that
    #[arg(
        long,
        env = "MEROS_LINK_KEEP_ALIVE",
        value_parser = keep_alive,
        default_value = "10secs",
        value_name = "DURATION"
    )]
    pub link_keep_alive: Duration,
}

/// Parses the interval between two keep-alives.
fn keep_alive(text: &str) -> Result<Duration, String> {
    let given = duration(text)?;
    match (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&given) {
        true => Ok(given),
        false => Err(format!("is {text}, expected 100ms to 1hrs")),
    }
}

/// The largest file that a flag may name, in bytes.
const FILE_MAX: u64 = 16 << 20;

/// A flag's text, given directly or as `file:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

impl FromStr for Text {
    type Err = String;
    fn from_str(given: &str) -> Result<Self, String> {
        let Some(path) = given.strip_prefix("file://") else {
            return Ok(Self(given.to_owned()));
        };
        let length = std::fs::metadata(path)
            .map_err(|error| format!("{path}: {error}"))?
            .len();
        if length > FILE_MAX {
            return Err(format!(
                "{path} has {length} bytes, expected at most {FILE_MAX}"
            ));
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self(text.trim().to_owned()))
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses a duration in Mesos' format.
pub fn duration(text: &str) -> Result<Duration, String> {
    protocol::text::duration::parse(text).map_err(|error| error.to_string())
}

/// Parses a size in Mesos' format: an integer and `B`, `KB`, `MB`, `GB` or `TB`, in steps of 1024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let shift = match unit {
        "B" => Some(0),
        "KB" => Some(10),
        "MB" => Some(20),
        "GB" => Some(30),
        "TB" => Some(40),
        _ => None,
    };
    let size = number.parse::<u64>().ok().zip(shift);
    let size = size.and_then(|(number, shift)| number.checked_mul(1 << shift));
    size.ok_or_else(|| "expected a size such as `512KB` or `100MB`".to_owned())
}

/// A time limit; none means unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(pub Option<Duration>);

/// Parses a duration, or `none`.
pub fn time_limit(text: &str) -> Result<TimeLimit, String> {
    match text {
        "none" => Ok(TimeLimit(None)),
        _ => duration(text)
            .map(|time| TimeLimit(Some(time)))
            .map_err(|error| format!("{error}, or `none`")),
    }
}

/// Parses a fault domain: `REGION/ZONE`, or Mesos' JSON object.
pub fn domain(text: &str) -> Result<Domain, String> {
    if !text.trim_start().starts_with('{') {
        return text
            .parse()
            .map_err(|invalid: resources::Invalid| format!("expected {}", invalid.expected));
    }
    let named = |name: &serde_json::Value| name.get("name")?.as_str().map(str::to_owned);
    let read = |value: serde_json::Value| {
        let domain = value.get("fault_domain")?;
        let (region, zone) = (named(domain.get("region")?)?, named(domain.get("zone")?)?);
        format!("{region}/{zone}").parse().ok()
    };
    let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let example =
        r#"{"fault_domain": {"region": {"name": "europe"}, "zone": {"name": "europe-1"}}}"#;
    read(value).ok_or_else(|| format!("expected an object such as {example}"))
}

/// Parses a boolean as Mesos does: also `1` and `0`, and an empty value is true.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("expected `true` or `false`".to_owned()),
    }
}

/// The part of a text that an error message repeats, without passwords.
pub fn shown(text: &str) -> String {
    without_password(text).chars().take(80).collect()
}

/// Environment variables by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, String>);

/// Parses environment variables: a JSON object, or a file with one. Values may be secrets, so
/// errors do not repeat them.
pub fn variables(text: &str) -> Result<Variables, String> {
    let expected = r#"expected an object of JSON with texts, such as {"PATH": "/bin:/usr/bin"}"#;
    let Text(text) = text.parse()?;
    let object: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&text).map_err(|_| expected.to_owned())?;
    let one = |(name, value): (String, serde_json::Value)| match value {
        serde_json::Value::String(value) => Ok((name, value)),
        _ => Err(format!(
            "the value of `{}` is no text: {expected}",
            shown(&name)
        )),
    };
    object
        .into_iter()
        .map(one)
        .collect::<Result<_, _>>()
        .map(Variables)
}

/// Parses `NAME=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{}` is not NAME=VALUE", shown(text))),
    }
}

/// Parses `HOST:PORT,...`; the default port is 5050.
pub fn master_addresses(text: &str) -> Result<String, String> {
    let all: Result<Vec<String>, String> = text.split(',').map(master_address).collect();
    all.map(|all| all.join(","))
}

/// Parses one `HOST:PORT`, also as a URL.
pub fn master_address(text: &str) -> Result<String, String> {
    if text.starts_with("zk://") {
        // It may contain a password, so the error does not repeat it.
        let instead = "name the masters themselves, as HOST:PORT,HOST:PORT";
        return Err(format!(
            "`zk://` is of ZooKeeper, which masters do not need any more: {instead}"
        ));
    }
    let bare = text
        .strip_prefix("http://")
        .unwrap_or(text)
        .trim_end_matches('/');
    if bare.is_empty() || bare.contains(['/', ' ', '@']) {
        return Err(format!("`{}` is not HOST:PORT", shown(text)));
    }
    if bare.parse::<SocketAddr>().is_ok() {
        return Ok(bare.to_owned());
    }
    match bare.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty()
                && !host.contains(':')
                && port.parse::<u16>().is_ok_and(|port| port > 0) =>
        {
            Ok(bare.to_owned())
        }
        None => Ok(format!("{bare}:5050")),
        _ => Err(format!(
            "`{}` is not HOST:PORT with a port from 1 to 65535",
            shown(text)
        )),
    }
}

#[cfg(test)]
mod tests {
    use testkit::assert_starts;

    use super::*;

    #[test]
    fn sizes_are_read_as_mesos_writes_them() {
        assert_eq!(bytes("0B"), Ok(0));
        assert_eq!(bytes("100MB"), Ok(100 << 20));
        assert_eq!(bytes("2TB"), Ok(2 << 40));
        for wrong in ["", "MB", "5", "5mb", "-1B", "1.5GB", "99999999999TB"] {
            let error = bytes(wrong).unwrap_err();
            assert!(error.contains("`100MB`"), "{wrong}: {error}");
        }
    }

    #[test]
    fn domain_has_two_formats() {
        let expected = Ok(Domain {
            region: "eu".to_owned(),
            zone: "eu-1".to_owned(),
        });
        assert_eq!(domain("eu/eu-1"), expected);
        let json = r#"{"fault_domain": {"region": {"name": "eu"}, "zone": {"name": "eu-1"}}}"#;
        assert_eq!(domain(json), expected);
        for (wrong, hint) in [
            ("eu", "REGION/ZONE"),
            ("eu/a/b", "REGION/ZONE"),
            ("{", "EOF"),
            (r#"{"fault_domain": {}}"#, "an object such as"),
        ] {
            let error = domain(wrong).unwrap_err();
            assert!(error.contains(hint), "{wrong}: {error}");
        }
    }

    #[test]
    fn invalid_variables_are_not_repeated() {
        let read = variables(r#"{"PATH": "/bin", "A": ""}"#).unwrap();
        assert_eq!(read.0["PATH"], "/bin");
        assert_eq!(read.0.len(), 2);
        for (wrong, words) in [
            ("", "an object of JSON"),
            ("PATH=secret", "an object of JSON"),
            (r#"["secret"]"#, "an object of JSON"),
            (r#"{"A": "secret", "B": 5}"#, "`B` is no text"),
            ("file:///no/such/file", "/no/such/file"),
        ] {
            let error = variables(wrong).unwrap_err();
            assert!(
                error.contains(words) && !error.contains("secret"),
                "{error}"
            );
        }
    }

    /// W8: an operator can disable the expiry of offers.
    #[test]
    fn time_limit_is_a_duration_or_none() {
        let minute = Duration::from_secs(60);
        assert_eq!(time_limit("1mins"), Ok(TimeLimit(Some(minute))));
        assert_eq!(time_limit("none"), Ok(TimeLimit(None)));
        for wrong in ["", "never", "5", "-1secs"] {
            let error = time_limit(wrong).unwrap_err();
            assert!(error.ends_with(", or `none`"), "{wrong}: {error}");
        }
    }

    /// An IPv6 address needs brackets and a port: otherwise its last group could be the port.
    #[test]
    fn ipv6_address_needs_brackets() {
        for (given, read) in [
            ("node-1", "node-1:5050"),
            ("http://node-1:80/", "node-1:80"),
            ("[::1]:5050", "[::1]:5050"),
        ] {
            assert_eq!(master_address(given).as_deref(), Ok(read));
        }
        for wrong in "::1 fe80::2:5050 a:b:80 :5050 a:0 a:b [::1]".split(' ') {
            let error = master_address(wrong).unwrap_err();
            assert_starts!(error, format!("`{wrong}` is not HOST:PORT"));
        }
    }

    #[test]
    fn errors_truncate_long_values() {
        let long = "a:".repeat(1000);
        for error in [
            master_addresses(&long).unwrap_err(),
            master_address(&format!("{long}/")).unwrap_err(),
            pair(&long).unwrap_err(),
        ] {
            assert!(error.len() < 200, "{error}");
        }
    }

    #[test]
    fn dashes_are_replaced_before_a_bare_double_dash() {
        let given = [
            "meros",
            "agent",
            "--work-dir=/a-b",
            "--work_dir",
            "/c-d",
            "--",
            "x",
            "--a-b",
        ];
        let expected = [
            "meros",
            "agent",
            "--work_dir=/a-b",
            "--work_dir",
            "/c-d",
            "--",
            "x",
            "--a-b",
        ];
        assert_eq!(
            underscored(given.map(OsString::from)),
            expected.map(OsString::from)
        );
    }

    #[test]
    fn a_value_may_be_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "cpus:4;mem:10\n").unwrap();
        let flag = format!("file://{}", file.path().display());
        assert_eq!(flag.parse(), Ok(Text("cpus:4;mem:10".to_owned())));
        assert_starts!(
            "file:///no/such/file".parse::<Text>().unwrap_err(),
            "/no/such/file: "
        );
    }

    #[test]
    fn master_address_has_a_default_port() {
        for (given, expected) in [
            ("10.0.0.1", "10.0.0.1:5050"),
            ("master:5051", "master:5051"),
            ("http://127.0.0.1:5050/", "127.0.0.1:5050"),
            ("[::1]:5050", "[::1]:5050"),
        ] {
            assert_eq!(master_address(given).as_deref(), Ok(expected));
        }
        for wrong in ["", ":5050", "host:", "host:0", "host:70000", "a b"] {
            assert!(master_address(wrong).is_err(), "{wrong}");
        }
    }

    /// W6: migration from Mesos.
    // Covers W6.
    #[test]
    fn zookeeper_address_gives_advice() {
        for given in [
            "zk://a:2181/mesos",
            "zk://a:2181,b:2181/mesos",
            "zk://u:p@a/m",
        ] {
            let error = master_addresses(given).unwrap_err();
            assert!(error.contains("HOST:PORT,HOST:PORT"), "{error}");
        }
    }
}
