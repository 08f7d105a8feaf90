//! Three masters in processes of their own, one of which is killed and restarted.
//!
//! Timeouts are the defaults. The leader is found through the masters' HTTP pages.

use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime::{Clock, Role};
use tempfile::TempDir;
use transport::{Authority, Identity};

use super::super::process::Process;
use super::page;
use meros::output::error::{CliError, Outcome};
use meros::service::agent::own_program;
use meros::service::free_port;

/// Number of masters.
pub const MASTERS: usize = 3;
/// Timeout of an election.
const ELECTION: Duration = Duration::from_secs(60);
/// Interval of polls for the leader.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// A page that is cheap for the master.
const PAGE: &str = "/flags";

/// The group. Dropping it ends the masters.
pub struct Group {
    program: PathBuf,
    masters: Vec<Option<Process>>,
    addresses: Vec<String>,
    authority: Authority,
    clock: Clock,
    directory: TempDir,
}

impl Group {
    /// Starts three masters that write below `directory`, or in a temporary directory.
    pub fn start(directory: Option<&Path>) -> Outcome<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("meros-");
        let made = match directory {
            Some(directory) => builder.tempdir_in(directory),
            None => builder.tempdir(),
        };
        let directory =
            made.map_err(|error| CliError::because("cannot make a temporary directory", &error))?;
        let authority = Authority::load_or_create(&directory.path().join("certs"))
            .map_err(|error| CliError::because("cannot make certificates", &error))?;
        let port = |_| free_port().map(|port| format!("127.0.0.1:{port}"));
        let mut group = Self {
            program: own_program()?,
            masters: Vec::new(),
            addresses: (0..MASTERS).map(port).collect::<Outcome<_>>()?,
            authority,
            clock: Clock::real(),
            directory,
        };
        for index in 0..MASTERS {
            let master = group.process(index)?;
            group.masters.push(Some(master));
        }
        Ok(group)
    }

    /// The clock of the measurement.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The group's directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Directory of its certificates.
    pub fn certs(&self) -> PathBuf {
        self.directory().join("certs")
    }

    /// Addresses of all masters, including killed ones.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Indices and addresses of the running masters.
    pub fn alive(&self) -> impl Iterator<Item = (usize, &str)> {
        let all = self.masters.iter().zip(&self.addresses).enumerate();
        all.filter(|(_, (master, _))| master.is_some())
            .map(|(index, (_, address))| (index, address.as_str()))
    }

    /// Issues a certificate of the group's authority.
    pub fn issue(&self, role: Role, name: &str) -> Outcome<Identity> {
        let issued = self.authority.issue(role, name);
        issued.map_err(|error| CliError::because("cannot issue a certificate", &error))
    }

    /// Waits for a leader and returns its index.
    pub async fn leader(&self) -> Outcome<usize> {
        let begun = self.clock.now();
        loop {
            for (index, address) in self.alive() {
                if page::status(&self.clock, address, PAGE).await == Some(200) {
                    return Ok(index);
                }
            }
            self.pause(begun, "no master acts").await?;
        }
    }

    /// Kills a master without warning.
    pub fn kill(&mut self, index: usize) {
        if let Some(master) = self.masters.get_mut(index).and_then(Option::take) {
            master.kill();
        }
    }

    /// Restarts a killed master in its directory, and waits until it knows the leader.
    pub async fn start_again(&mut self, index: usize) -> Outcome {
        self.masters[index] = Some(self.process(index)?);
        let begun = self.clock.now();
        let redirects = Some(307);
        while page::status(&self.clock, &self.addresses[index], PAGE).await != redirects {
            self.pause(begun, "the master that was killed does not follow")
                .await?;
        }
        Ok(())
    }

    /// Highest resident memory of a master, in MiB.
    pub fn peak(&self, index: usize) -> Outcome<f64> {
        match self.masters.get(index) {
            Some(Some(master)) => master.peak(),
            _ => Err(CliError::new(format!("master {index} does not run"))),
        }
    }

    async fn pause(&self, begun: runtime::Instant, what: &str) -> Outcome {
        if self.clock.now() - begun > ELECTION {
            return Err(CliError::new(format!("{what} within {ELECTION:?}")));
        }
        self.clock.sleep(POLL_INTERVAL).await;
        Ok(())
    }

    fn process(&self, index: usize) -> Outcome<Process> {
        let address = &self.addresses[index];
        let port = address.rsplit(':').next().unwrap_or_default();
        let work_dir = self.directory().join(format!("master-{index}"));
        let arguments = [
            "master",
            "--ip=127.0.0.1",
            "--port",
            port,
            "--work_dir",
            &work_dir.display().to_string(),
            "--initial_masters",
            &self.addresses.join(","),
        ];
        Process::start(&self.program, &arguments, self.directory())
    }
}
