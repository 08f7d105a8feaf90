//! Flags that say who may come and do what: credentials, realms, ACLs, rate limits (SPEC 3.7, 3.3, 3.8).
//!
//! Reads what they name once, at the start, and says by flag and field what cannot be used. Secrets are only ever in files: a command line
//! can be read by everybody on the machine. What operators are shown of these flags has no secret in it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use authority::{Acls, Credentials, RateLimits, Throttle};
use clap::{ArgAction, Args};
use http::Realms;
use resources::Invalid;

use crate::failure::{Failure, Outcome};

/// The largest file.
const FILE_MAX: u64 = 16 << 20;

/// The flags of masters and agents alike.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct AccessFlags {
    /// Who reads pages over HTTP must say who it is, by HTTP Basic; /health, /version and /redirect answer everybody
    #[arg(long, env = "MESOS_AUTHENTICATE_HTTP_READONLY", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL", hide_default_value = true, hide_possible_values = true)]
    pub authenticate_http_readonly: bool,
    /// Who changes something over HTTP, or asks the operator API, must say who it is, by HTTP Basic
    #[arg(long, env = "MESOS_AUTHENTICATE_HTTP_READWRITE", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL", hide_default_value = true, hide_possible_values = true)]
    pub authenticate_http_readwrite: bool,
    /// Who may do what: Mesos' access control lists as JSON, or a file of it. Read at the start only [default: everybody everything]
    #[arg(long, env = "MESOS_ACLS", value_name = "JSON|FILE")]
    pub acls: Option<String>,
    /// Nobody may do what no access control list is about, whatever `permissive` in --acls says
    #[arg(long, env = "MEROS_ACLS_DENY_BY_DEFAULT", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL", hide_default_value = true, hide_possible_values = true)]
    pub acls_deny_by_default: bool,
    /// `local` is the only one
    #[arg(long, env = "MESOS_AUTHORIZERS", hide = true, value_parser = ["local"])]
    pub authorizers: Option<String>,
    /// `basic` is the only one
    #[arg(long, env = "MESOS_HTTP_AUTHENTICATORS", hide = true, value_parser = ["basic"])]
    pub http_authenticators: Option<String>,
}

/// The flags that only masters have.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct MasterAccessFlags {
    /// Frameworks that come over HTTP must say who they are, by HTTP Basic
    #[arg(long, env = "MESOS_AUTHENTICATE_HTTP_FRAMEWORKS", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL", hide_default_value = true, hide_possible_values = true)]
    pub authenticate_http_frameworks: bool,
    /// The principal of a framework with a native driver must be the name in its certificate. Without it the principal is its own word
    #[arg(long, env = "MESOS_AUTHENTICATE_FRAMEWORKS", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL", hide_default_value = true, hide_possible_values = true)]
    pub authenticate_frameworks: bool,
    /// Agents always prove who they are, by certificates
    #[arg(long, env = "MESOS_AUTHENTICATE_AGENTS", default_missing_value = "true", num_args = 0..=1, require_equals = true, hide = true,
        value_name = "BOOL")]
    pub authenticate_agents: Option<bool>,
    /// How many calls a second are handled of each principal, and how many may wait: Mesos' JSON, or a file of it [default: no limit]
    #[arg(long, env = "MESOS_RATE_LIMITS", value_name = "JSON|FILE")]
    pub rate_limits: Option<String>,
}

/// What these flags name, read.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// What each realm asks for.
    pub realms: Realms,
    /// Who may do what.
    pub acls: Arc<Acls>,
    /// The flags as operators are shown them.
    pub shown: BTreeMap<String, String>,
}

impl AccessFlags {
    /// What these flags of an agent name; `credentials` is the file and its flag.
    pub fn read(&self, credentials: (&str, Option<&Path>)) -> Outcome<Access> {
        self.with(credentials, &MasterAccessFlags::default())
    }

    /// What these flags of a master name.
    pub fn with(
        &self,
        (flag, path): (&str, Option<&Path>),
        master: &MasterAccessFlags,
    ) -> Outcome<Access> {
        let mut access = Access::default();
        let credentials = path.map(|path| credentials(flag, path)).transpose()?;
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
            let Some(credentials) = &credentials else {
                let problem = format!("--{name}: without --{flag} nobody could say who it is");
                return Err(Failure::usage(problem));
            };
            *realm = Some(credentials.clone());
        }
        let mut acls = Acls::default();
        if let Some(given) = &self.acls {
            show("acls", given.clone());
            acls = parsed("acls", &text("acls", given)?, Acls::parse)?;
        }
        if self.acls_deny_by_default {
            show("acls_deny_by_default", "true".to_owned());
            acls = acls.denying();
        }
        if let Some(given) = &master.rate_limits {
            show("rate_limits", given.clone());
        }
        access.acls = Arc::new(acls);
        Ok(access)
    }
}

impl MasterAccessFlags {
    /// What `--rate_limits` names.
    pub fn throttle(&self) -> Outcome<Throttle> {
        let Some(given) = &self.rate_limits else {
            return Ok(Throttle::default());
        };
        let limits = parsed(
            "rate_limits",
            &text("rate_limits", given)?,
            RateLimits::parse,
        )?;
        Ok(Throttle::new(limits))
    }
}

fn credentials(flag: &str, path: &Path) -> Outcome<Arc<Credentials>> {
    let path = path
        .strip_prefix("file:")
        .map_or_else(|_| path.to_owned(), |rest| Path::new("/").join(rest));
    let text = file(flag, &path)?;
    let mode = std::fs::metadata(&path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others on this machine can read the secrets in this file");
    }
    let wrong =
        |invalid: Invalid| Failure::usage(format!("--{flag}: {}: {invalid}", path.display()));
    Credentials::parse(&text).map(Arc::new).map_err(wrong)
}

fn parsed<T>(flag: &str, text: &str, parse: fn(&str) -> Result<T, Invalid>) -> Outcome<T> {
    parse(text).map_err(|invalid| Failure::usage(format!("--{flag}: {invalid}")))
}

/// What a flag says in place, or the content of the file that it names.
fn text(flag: &str, given: &str) -> Outcome<String> {
    if given.trim_start().starts_with('{') {
        return Ok(given.to_owned());
    }
    let path = given.strip_prefix("file://").unwrap_or(given);
    file(flag, &PathBuf::from(path))
}

fn file(flag: &str, path: &Path) -> Outcome<String> {
    let cannot = |problem: String| {
        Failure::usage(format!(
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
    use super::*;

    fn failure(outcome: Outcome<Access>) -> String {
        let failure = outcome.unwrap_err();
        assert_eq!(failure.exit_code(), crate::failure::USAGE);
        failure.to_string()
    }

    #[test]
    fn what_cannot_be_used_is_named_by_flag_file_and_field_and_no_secret_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        let realm = AccessFlags {
            authenticate_http_readonly: true,
            ..AccessFlags::default()
        };
        let read = |flags: &AccessFlags| flags.read(("http_credentials", Some(&path)));
        let missing = failure(read(&realm));
        assert!(
            missing.contains("--http_credentials: ") && missing.contains("No such file"),
            "{missing}"
        );
        std::fs::write(
            &path,
            r#"{"credentials":[{"principal":"a","secret":["hush"]}]}"#,
        )
        .unwrap();
        let wrong = failure(read(&realm));
        assert!(
            wrong.contains("credentials.json: credentials.credentials[0].secret"),
            "{wrong}"
        );
        assert!(!wrong.contains("hush"), "{wrong}");
        std::fs::write(
            &path,
            r#"{"credentials":[{"principal":"a","secret":"hush"}]}"#,
        )
        .unwrap();
        let access = read(&realm).unwrap();
        let proved = access.realms.readonly.as_ref().unwrap().prove("a", "hush");
        assert!(proved.is_some() && access.realms.readwrite.is_none());
        assert!(!format!("{access:?}").contains("hush"));
        let url = PathBuf::from(format!("file://{}", path.display()));
        assert!(realm.read(("credentials", Some(&url))).is_ok());
        let none = failure(realm.read(("credentials", None)));
        assert!(
            none.contains("--authenticate_http_readonly: without --credentials"),
            "{none}"
        );

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
            assert!(!read(&acls(&given)).unwrap().acls.is_open());
        }
        let denies = AccessFlags {
            acls_deny_by_default: true,
            ..acls(r#"{"permissive":true}"#)
        };
        assert_eq!(*read(&denies).unwrap().acls, Acls::default().denying());
    }
}
