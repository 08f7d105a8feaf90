//! The master's whitelist: a file of hosts, read when the master starts and again at each SIGHUP.
//!
//! A file that cannot be read or understood is told: at the start it ends the master, later the list that was there goes on. Never watches
//! the file: whoever writes it says when it is whole.

use std::path::{Path, PathBuf};

use ::master::whitelist::{self, Hosts};

use crate::failure::{Failure, Outcome};
use crate::signals::Hangups;

/// The largest file.
const FILE_MAX: u64 = 16 << 20;

/// A file that is to be read again.
pub struct Whitelist {
    path: PathBuf,
    hangups: Hangups,
}

/// Reads `--whitelist`: a path, also as `file:///PATH`, or `*` for no list.
pub fn path(given: &str) -> Option<PathBuf> {
    let path = given.strip_prefix("file://").unwrap_or(given);
    (path != "*").then(|| PathBuf::from(path))
}

impl Whitelist {
    /// The file at `path`, with the hosts that it names now.
    pub fn open(path: PathBuf, hangups: Hangups) -> Outcome<(Self, Hosts)> {
        let hosts = read(&path)?;
        Ok((Self { path, hangups }, hosts))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it at each SIGHUP, and tells what it names; ends when none can come any more.
    pub async fn follow(mut self, admit: impl Fn(Hosts)) {
        while self.hangups.next().await {
            match read(&self.path) {
                Ok(hosts) => admit(hosts),
                Err(failure) => {
                    tracing::error!(reason = %failure, "the whitelist cannot be used, the old one goes on");
                }
            }
        }
    }
}

fn read(path: &Path) -> Outcome<Hosts> {
    let cannot = |problem: &str| {
        Failure::new(format!(
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
        0 => tracing::warn!(%path, "the whitelist is empty: nothing is offered to anybody"),
        hosts => tracing::info!(%path, hosts, "only hosts of the whitelist are offered"),
    }
    Ok(Some(hosts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_refused_by_its_path_and_a_star_is_no_list() {
        assert_eq!(path("*"), None);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        let given = path(&format!("file://{}", file.display())).unwrap();
        assert_eq!(given, file);
        let missing = read(&file).unwrap_err().to_string();
        assert!(
            missing.contains("hosts cannot be used: No such file"),
            "{missing}"
        );
        std::fs::write(&file, "one\ntwo hosts\n").unwrap();
        let wrong = read(&file).unwrap_err().to_string();
        assert!(wrong.contains("line 2 is `two hosts`"), "{wrong}");
        std::fs::write(&file, "one\n").unwrap();
        assert_eq!(read(&file).unwrap(), Some(["one".to_owned()].into()));
    }
}
