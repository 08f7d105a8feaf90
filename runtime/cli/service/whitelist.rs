//! The master's whitelist: a file of hosts, read at the start and at each SIGHUP.
//!
//! An invalid file ends the master at the start; later it is logged and the old list stays in
//! effect. Does not watch the file, because only its writer knows when it is complete.

use std::path::{Path, PathBuf};

use ::master::agents::whitelist::{self, Hosts};

use crate::output::error::{CliError, Outcome};
use crate::service::signals::Hangups;

/// The largest file, in bytes.
const FILE_MAX: u64 = 16 << 20;

/// The file of the whitelist.
pub struct Whitelist {
    path: PathBuf,
    hangups: Hangups,
}

/// Parses `--whitelist`: a path, also as `file:///PATH`, or `*` for no list.
pub fn path(given: &str) -> Option<PathBuf> {
    let path = given.strip_prefix("file://").unwrap_or(given);
    (path != "*").then(|| PathBuf::from(path))
}

impl Whitelist {
    /// Opens the file at `path` and reads its hosts.
    pub fn open(path: PathBuf, hangups: Hangups) -> Outcome<(Self, Hosts)> {
        let hosts = read(&path)?;
        Ok((Self { path, hangups }, hosts))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it at each SIGHUP and passes the hosts to `admit`. Ends when no SIGHUP can follow.
    pub async fn follow(mut self, admit: impl Fn(Hosts)) {
        while self.hangups.next().await {
            match read(&self.path) {
                Ok(hosts) => admit(hosts),
                Err(failure) => {
                    tracing::error!(reason = %failure, "the whitelist is invalid, keeping the old one");
                }
            }
        }
    }
}

fn read(path: &Path) -> Outcome<Hosts> {
    let cannot = |problem: &str| {
        CliError::new(format!(
            "--whitelist: {} cannot be used: {problem}",
            path.display()
        ))
    };
    let size = std::fs::metadata(path).map_err(|error| cannot(&error.to_string()))?;
    if size.len() > FILE_MAX {
        return Err(cannot(&format!("expected at most {FILE_MAX} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| cannot(&error.to_string()))?;
    let hosts = whitelist::parse(&text).map_err(|problem| cannot(&problem))?;
    let path = path.display();
    match hosts.len() {
        0 => tracing::warn!(%path, "the whitelist is empty, no agent is offered"),
        hosts => tracing::info!(%path, hosts, "offering only agents of whitelisted hosts"),
    }
    Ok(Some(hosts))
}

#[cfg(test)]
mod tests {
    use testkit::assert_contains;

    use super::*;

    #[test]
    fn invalid_whitelist_is_refused_by_path() {
        assert_eq!(path("*"), None);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        let given = path(&format!("file://{}", file.display())).unwrap();
        assert_eq!(given, file);
        let missing = read(&file).unwrap_err().to_string();
        assert_contains!(missing, "hosts cannot be used: No such file");
        std::fs::write(&file, "one\ntwo hosts\n").unwrap();
        let wrong = read(&file).unwrap_err().to_string();
        assert!(wrong.contains("line 2 is `two hosts`"), "{wrong}");
        std::fs::write(&file, "one\n").unwrap();
        assert_eq!(read(&file).unwrap(), Some(["one".to_owned()].into()));
    }
}
