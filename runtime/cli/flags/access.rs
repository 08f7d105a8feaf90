//! Access control flags: credentials, realms, ACLs, rate limits.
//!
//! Reads their files at the start and at SIGHUP; errors name the flag and the field. Secrets are
//! only in files, because all users of a machine can read command lines. The values shown to
//! operators contain no secrets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use authority::{Acls, Credentials, RateLimits, Reloadable, THROTTLE_QUEUE_MAX, Throttle};
use clap::{ArgAction, Args};
use http::Realms;
use resources::Invalid;

use crate::flags::boolean;
use crate::output::error::{CliError, Outcome};
use crate::service::reload::Reload;

/// The largest file, in bytes.
const FILE_MAX: u64 = 16 << 20;

/// The flags that masters and agents share.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct AccessFlags {
    /// Require authentication of readers over HTTP, by HTTP Basic or a certificate
    /// (--http_client_ca); /health, /version and /redirect are always open
    #[arg(long, env = "MESOS_AUTHENTICATE_HTTP_READONLY", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub authenticate_http_readonly: bool,
    /// Require authentication of writers over HTTP, and for the operator API, by HTTP Basic or a
    /// certificate
    #[arg(long, env = "MESOS_AUTHENTICATE_HTTP_READWRITE", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub authenticate_http_readwrite: bool,
    /// Access control lists in Mesos' format: JSON, or a file with it, which is read again at
    /// SIGHUP [default: everything is allowed]
    #[arg(long, env = "MESOS_ACLS", value_name = "JSON|FILE")]
    pub acls: Option<String>,
    /// Deny actions that no access control list covers, regardless of `permissive` in --acls
    #[arg(long, env = "MEROS_ACLS_DENY_BY_DEFAULT", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub acls_deny_by_default: bool,
    /// Limits of requests and calls per second for each principal, and of the waiting ones
    /// (`capacity`, at most 64): Mesos' JSON, or a file with it, which is read again at SIGHUP. All
    /// pages and calls over HTTP count, except /health, /version, /redirect and those of executors;
    /// refused ones count too, those of unknown clients as requests without a principal. At
    /// masters, calls of native drivers also count [default: no limit]
    #[arg(long, env = "MESOS_RATE_LIMITS", value_name = "JSON|FILE")]
    pub rate_limits: Option<String>,
    /// Only `local` is supported
    #[arg(long, env = "MESOS_AUTHORIZERS", hide = true, value_parser = ["local"])]
    pub authorizers: Option<String>,
    /// Only `basic` is supported
    #[arg(long, env = "MESOS_HTTP_AUTHENTICATORS", hide = true, value_parser = ["basic"])]
    pub http_authenticators: Option<String>,
}

/// The flags of masters only.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct MasterAccessFlags {
    /// Require authentication of frameworks over HTTP, by HTTP Basic or a certificate
    /// (--http_client_ca)
    #[arg(long, env = "MESOS_AUTHENTICATE_HTTP_FRAMEWORKS", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub authenticate_http_frameworks: bool,
    /// Require that the principal of a framework with a native driver is the name in its
    /// certificate. Without it the principal is not verified
    #[arg(long, env = "MESOS_AUTHENTICATE_FRAMEWORKS", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub authenticate_frameworks: bool,
}

/// The values that these flags refer to.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The authentication of each realm.
    pub realms: Realms,
    /// The access control lists.
    pub acls: Reloadable<Acls>,
    /// The rate limits.
    pub throttle: Throttle,
    /// The known principals.
    credentials: Reloadable<Credentials>,
    /// The flags as shown to operators.
    pub shown: BTreeMap<String, String>,
}

impl AccessFlags {
    /// Reads the flags of an agent. `credentials` is its flag and file; `certified` means that
    /// clients may use certificates.
    pub fn read(&self, credentials: (&str, Option<&Path>), certified: bool) -> Outcome<Access> {
        self.with(credentials, certified, &MasterAccessFlags::default())
    }

    /// Reads the flags of a master.
    pub fn with(
        &self,
        (flag, path): (&str, Option<&Path>),
        certified: bool,
        master: &MasterAccessFlags,
    ) -> Outcome<Access> {
        let mut access = Access::default();
        if let Some(path) = path {
            access.credentials.replace(credentials(flag, path)?);
        }
        let mut show = |name: &str, value: String| access.shown.insert(name.to_owned(), value);
        if let Some(path) = path {
            show(flag, path.display().to_string());
        }
        let realms = [
            (
                "authenticate_http_readonly",
                self.authenticate_http_readonly,
                &mut access.realms.readonly,
            ),
            (
                "authenticate_http_readwrite",
                self.authenticate_http_readwrite,
                &mut access.realms.readwrite,
            ),
            (
                "authenticate_http_frameworks",
                master.authenticate_http_frameworks,
                &mut access.realms.frameworks,
            ),
        ];
        for (name, wanted, realm) in realms {
            show(name, wanted.to_string());
            if !wanted {
                continue;
            }
            if path.is_none() && !certified {
                let problem = format!(
                    "--{name}: without --{flag} or --http_client_ca no client could authenticate"
                );
                return Err(CliError::usage(problem));
            }
            *realm = Some(access.credentials.clone());
        }
        for (name, given) in [("acls", &self.acls), ("rate_limits", &self.rate_limits)] {
            if let Some(given) = given {
                show(name, given.clone());
            }
        }
        if self.acls_deny_by_default {
            show("acls_deny_by_default", "true".to_owned());
        }
        access.acls.replace(self.read_acls()?);
        access.throttle.set_limits(self.read_limits()?);
        Ok(access)
    }

    /// A warning if a service that listens on `ip` accepts commands from any client in the network.
    /// `credentials` is its password flag; `frameworks` is whether a master's schedulers must
    /// authenticate.
    pub fn exposure(
        &self,
        ip: IpAddr,
        credentials: &str,
        frameworks: Option<bool>,
        requires_certificate: bool,
    ) -> Option<String> {
        if ip.to_canonical().is_loopback() || requires_certificate {
            return None;
        }
        let realms = [
            (
                "--authenticate_http_readwrite",
                Some(self.authenticate_http_readwrite),
            ),
            ("--authenticate_http_frameworks", frameworks),
        ];
        let missing = realms.iter().filter(|(_, asks)| *asks == Some(false));
        let missing: Vec<_> = missing.map(|(flag, _)| *flag).collect();
        if missing.is_empty() {
            return None;
        }
        let missing = missing.join(" and ");
        Some(format!(
            "listening on {ip} without authentication: any client that reaches this port can command the cluster; set {missing} with --{credentials} \
             or --http_client_ca, or listen on this machine alone with --ip=127.0.0.1"
        ))
    }

    /// The files that are read again at SIGHUP, each with the shared value that it replaces.
    pub fn reloads(&self, flag: &'static str, path: Option<&Path>, access: &Access) -> Vec<Reload> {
        let mut all = Vec::new();
        if let Some(path) = path {
            let (path, shared) = (path.to_owned(), access.credentials.clone());
            all.push(Reload::new("credentials", move || {
                shared.replace(credentials(flag, &path)?);
                Ok(())
            }));
        }
        if self.acls.as_deref().is_some_and(names_file) {
            let (flags, shared) = (self.clone(), access.acls.clone());
            all.push(Reload::new("access control lists", move || {
                shared.replace(flags.read_acls()?);
                Ok(())
            }));
        }
        if self.rate_limits.as_deref().is_some_and(names_file) {
            let (flags, throttle) = (self.clone(), access.throttle.clone());
            all.push(Reload::new("rate limits", move || {
                throttle.set_limits(flags.read_limits()?);
                Ok(())
            }));
        }
        all
    }

    fn read_acls(&self) -> Outcome<Acls> {
        let acls = match &self.acls {
            None => Acls::default(),
            Some(given) => parsed("acls", &text("acls", given)?, Acls::parse)?,
        };
        match self.acls_deny_by_default {
            true => Ok(acls.denying()),
            false => Ok(acls),
        }
    }

    fn read_limits(&self) -> Outcome<RateLimits> {
        let Some(given) = &self.rate_limits else {
            return Ok(RateLimits::default());
        };
        let text = text("rate_limits", given)?;
        let limits = parsed("rate_limits", &text, RateLimits::parse)?;
        if let Some(problem) = capacity_warning(&limits) {
            tracing::warn!("{problem}");
        }
        Ok(limits)
    }
}

/// A warning about capacities above the queue limit.
fn capacity_warning(limits: &RateLimits) -> Option<String> {
    let beyond = limits.capacities_beyond(THROTTLE_QUEUE_MAX);
    let (first, others) = (beyond.first()?, beyond.len() - 1);
    let more = match others {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    Some(format!(
        "--rate_limits: the capacity of {first:?}{more} is above {THROTTLE_QUEUE_MAX}: at most that many calls wait in the queue"
    ))
}

fn credentials(flag: &str, path: &Path) -> Outcome<Credentials> {
    let path = path
        .strip_prefix("file:")
        .map_or_else(|_| path.to_owned(), |rest| Path::new("/").join(rest));
    let text = secret(flag, &path)?;
    let wrong =
        |invalid: Invalid| CliError::usage(format!("--{flag}: {}: {invalid}", path.display()));
    Credentials::parse(&text).map_err(wrong)
}

/// Reads a file of secrets. Warns if other users have permissions on it, as Mesos does.
pub(crate) fn secret(flag: &str, path: &Path) -> Outcome<String> {
    let text = file(flag, path)?;
    warn_if_open(&format!("--{flag}"), path);
    Ok(text)
}

/// Warns if other users than its owner have permissions on a file of secrets.
pub(crate) fn warn_if_open(setting: &str, path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if let Some(problem) = too_open(mode) {
        let path = path.display();
        tracing::warn!(setting, %path, "{problem}");
    }
}

fn too_open(mode: u32) -> Option<String> {
    let (mode, others) = (mode & 0o777, mode & 0o077);
    (others != 0).then(|| {
        format!("permissions {mode:04o} on this file of secrets are too open: only its owner should read it (chmod 600)")
    })
}

fn parsed<T>(flag: &str, text: &str, parse: fn(&str) -> Result<T, Invalid>) -> Outcome<T> {
    parse(text).map_err(|invalid| CliError::usage(format!("--{flag}: {invalid}")))
}

/// Whether a flag names a file, in contrast to an inline value.
fn names_file(given: &str) -> bool {
    !given.trim_start().starts_with('{')
}

/// The inline value of a flag, or the content of the file that it names.
fn text(flag: &str, given: &str) -> Outcome<String> {
    if !names_file(given) {
        return Ok(given.to_owned());
    }
    let path = given.strip_prefix("file://").unwrap_or(given);
    file(flag, &PathBuf::from(path))
}

/// Reads a file that a flag names.
pub(crate) fn file(flag: &str, path: &Path) -> Outcome<String> {
    let cannot = |problem: String| {
        CliError::usage(format!(
            "--{flag}: {} cannot be used: {problem}",
            path.display()
        ))
    };
    let size = std::fs::metadata(path)
        .map_err(|error| cannot(error.to_string()))?
        .len();
    if size > FILE_MAX {
        return Err(cannot(format!("expected at most {FILE_MAX} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| cannot(error.to_string()))
}

#[cfg(test)]
mod tests {
    use testkit::assert_contains;

    use super::*;

    fn failure(outcome: Outcome<Access>) -> String {
        let failure = outcome.unwrap_err();
        assert_eq!(failure.exit_code(), crate::output::error::USAGE);
        failure.to_string()
    }

    #[test]
    fn invalid_files_are_named_without_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        let realm = AccessFlags {
            authenticate_http_readonly: true,
            ..AccessFlags::default()
        };
        let read = |flags: &AccessFlags| flags.read(("http_credentials", Some(&path)), false);
        let missing = failure(read(&realm));
        assert_contains!(missing, "--http_credentials: ", "No such file");
        std::fs::write(
            &path,
            r#"{"credentials":[{"principal":"a","secret":["hush"]}]}"#,
        )
        .unwrap();
        let wrong = failure(read(&realm));
        assert_contains!(wrong, "credentials.json: credentials.credentials[0].secret");
        assert!(!wrong.contains("hush"), "{wrong}");
        std::fs::write(
            &path,
            r#"{"credentials":[{"principal":"a","secret":"hush"}]}"#,
        )
        .unwrap();
        let access = read(&realm).unwrap();
        let proved = access
            .realms
            .readonly
            .as_ref()
            .unwrap()
            .current()
            .authenticate("a", "hush");
        assert!(proved.is_some() && access.realms.readwrite.is_none());
        assert!(!format!("{access:?}").contains("hush"));
        let url = PathBuf::from(format!("file://{}", path.display()));
        assert!(realm.read(("credentials", Some(&url)), false).is_ok());
        let none = failure(realm.read(("credentials", None), false));
        assert_contains!(none, "--authenticate_http_readonly: without --credentials");
        // A client certificate also authenticates.
        assert!(realm.read(("credentials", None), true).is_ok());

        let acls = |text: &str| AccessFlags {
            acls: Some(text.to_owned()),
            ..AccessFlags::default()
        };
        let wrong = failure(read(&acls(r#"{"run_task":[]}"#)));
        assert!(wrong.contains("--acls: acls is `run_task`"), "{wrong}");
        let file = directory.path().join("acls");
        std::fs::write(&file, r#"{"permissive":false}"#).unwrap();
        for given in [
            file.display().to_string(),
            format!("file://{}", file.display()),
        ] {
            assert!(!read(&acls(&given)).unwrap().acls.current().is_open());
        }
        let denies = AccessFlags {
            acls_deny_by_default: true,
            ..acls(r#"{"permissive":true}"#)
        };
        assert_eq!(
            *read(&denies).unwrap().acls.current(),
            Acls::default().denying()
        );
    }

    /// SPEC 3.7, 3.3.
    #[test]
    fn invalid_reloads_change_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(file(name), text).unwrap();
        let given = |name: &str| Some(file(name).display().to_string());
        let flags = AccessFlags {
            authenticate_http_readonly: true,
            acls: given("acls"),
            rate_limits: given("limits"),
            ..AccessFlags::default()
        };
        write(
            "credentials",
            r#"{"credentials":[{"principal":"a","secret":"one"}]}"#,
        );
        write("acls", r#"{"permissive":true}"#);
        write("limits", "{}");
        let path = file("credentials");
        let access = flags.read(("credentials", Some(&path)), false).unwrap();
        let reloads = flags.reloads("credentials", Some(&path), &access);
        let renew = || {
            let renewed = reloads.iter().map(Reload::renew);
            let failed = renewed.filter_map(|outcome| outcome.err());
            failed
                .map(|failure| failure.to_string())
                .collect::<Vec<_>>()
        };
        let holds = |secret: &str| {
            let credentials = access.realms.readonly.as_ref().unwrap().current();
            let is_open = access.acls.current().is_open();
            let qps = access.throttle.limit(Some("a")).map(|limit| limit.qps);
            (
                credentials.authenticate("a", secret).is_some(),
                is_open,
                qps,
            )
        };
        assert_eq!(renew(), [""; 0]);
        assert_eq!(holds("one"), (true, true, None));
        write(
            "credentials",
            r#"{"credentials":[{"principal":"a","secret":"two"}]}"#,
        );
        write("acls", r#"{"permissive":false}"#);
        write("limits", r#"{"limits":[{"principal":"a","qps":3}]}"#);
        assert_eq!(renew(), [""; 0]);
        assert_eq!(holds("two"), (true, false, Some(3.0)));
        write(
            "credentials",
            r#"{"credentials":[{"principal":"a","secret":["hush"]}]}"#,
        );
        write("acls", r#"{"run_task":[]}"#);
        write("limits", r#"{"limits":[{"principal":"a","qps":0}]}"#);
        let wrong = renew();
        for (problem, words) in
            wrong
                .iter()
                .zip(["credentials[0].secret", "run_task", "limits[0].qps"])
        {
            assert!(
                problem.contains(words) && !problem.contains("hush"),
                "{problem}"
            );
        }
        assert_eq!((wrong.len(), holds("two")), (3, (true, false, Some(3.0))));
        // Inline values are not read again.
        let in_place = AccessFlags {
            acls: Some("{}".to_owned()),
            ..AccessFlags::default()
        };
        assert!(in_place.reloads("credentials", None, &access).is_empty());
    }

    #[test]
    fn open_permissions_on_secrets_are_warned_of() {
        for mode in [0o100_600, 0o100_400, 0o700] {
            assert_eq!(too_open(mode), None);
        }
        let problem = too_open(0o100_644).unwrap();
        assert!(problem.starts_with("permissions 0644 "), "{problem}");
        assert!(too_open(0o640).is_some());
    }

    #[test]
    fn exposure_without_authentication_is_warned_of() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let open = AccessFlags::default();
        let asking = AccessFlags {
            authenticate_http_readwrite: true,
            ..AccessFlags::default()
        };
        let (all, own) = (ip("0.0.0.0"), ip("127.0.0.1"));
        let warned = |flags: &AccessFlags, ip, frameworks, certificate| {
            flags.exposure(ip, "credentials", frameworks, certificate)
        };
        for (flags, ip, frameworks, words) in [
            (
                &open,
                all,
                Some(false),
                "set --authenticate_http_readwrite and --authenticate_http_frameworks with --credentials",
            ),
            (
                &open,
                ip("10.0.0.7"),
                None,
                "set --authenticate_http_readwrite with",
            ),
            (
                &open,
                ip("::"),
                Some(true),
                "set --authenticate_http_readwrite with",
            ),
            (
                &asking,
                all,
                Some(false),
                "set --authenticate_http_frameworks with",
            ),
        ] {
            let problem = warned(flags, ip, frameworks, false).unwrap();
            assert!(problem.contains(words), "{problem}");
            assert_eq!(warned(flags, ip, frameworks, true), None);
        }
        for (flags, ip, frameworks) in [
            (&open, own, Some(false)),
            (&open, ip("::1"), Some(false)),
            (&open, ip("::ffff:127.0.0.1"), Some(false)),
            (&asking, all, None),
            (&asking, all, Some(true)),
        ] {
            assert_eq!(warned(flags, ip, frameworks, false), None);
        }
    }

    #[test]
    fn capacity_above_the_queue_limit_is_warned_of() {
        let warning_of = |text: &str| capacity_warning(&RateLimits::parse(text).unwrap());
        assert_eq!(
            warning_of(r#"{"limits":[{"principal":"a","qps":1,"capacity":64}]}"#),
            None
        );
        let long = r#"{"limits":[{"principal":"a","qps":1,"capacity":65}],"aggregate_default_qps":1,"aggregate_default_capacity":100}"#;
        let words = "the capacity of \"a\" and 1 more is above 64";
        let problem = warning_of(long).unwrap();
        assert!(problem.contains(words), "{problem}");
    }
}
