//! A master in a process of its own, for measurements of its memory.
//!
//! Dropping it ends the process and removes its directory. Its cluster is empty.

use std::time::Duration;

use runtime::Clock;
use serde_json::Value;
use tempfile::TempDir;
use transport::Authority;

use super::super::process::Process;
use super::client::Connection;
use meros::output::error::{CliError, Outcome};
use meros::service::agent::own_program;
use meros::service::free_port;

/// Timeout of the start.
const STARTING: Duration = Duration::from_secs(30);

/// The master.
pub struct MasterProcess {
    process: Process,
    /// Address of its HTTP listener.
    pub address: String,
    /// Dropped last.
    _directory: TempDir,
}

impl MasterProcess {
    /// Starts a master with these additional flags and waits until it answers.
    pub async fn start(flags: &[&str]) -> Outcome<Self> {
        let directory = tempfile::Builder::new().prefix("meros-bench-").tempdir();
        let directory = directory
            .map_err(|error| CliError::because("cannot make a temporary directory", &error))?;
        Authority::load_or_create(&directory.path().join("certs"))
            .map_err(|error| CliError::because("cannot make certificates", &error))?;
        let (port, program) = (free_port()?.to_string(), own_program()?);
        let work_dir = directory.path().join("master").display().to_string();
        let master = [
            "master",
            "--ip",
            "127.0.0.1",
            "--port",
            &port,
            "--work_dir",
            &work_dir,
        ];
        let master = [&master, flags].concat();
        let master_process = Self {
            process: Process::start(&program, &master, directory.path())?,
            address: format!("127.0.0.1:{port}"),
            _directory: directory,
        };
        wait_for(&master_process.address).await?;
        Ok(master_process)
    }

    /// Its resident memory in MiB.
    pub fn resident(&self) -> Outcome<f64> {
        Ok(self.process.usage()?.resident)
    }

    /// The present value of a metric.
    pub async fn metric(&self, name: &str) -> Outcome<f64> {
        let mut connection = Connection::open(&self.address).await?;
        let metrics = connection.get("/metrics/snapshot").await?;
        let metrics: Value = serde_json::from_slice(&metrics)
            .map_err(|error| CliError::because("/metrics/snapshot", &error))?;
        metrics[name]
            .as_f64()
            .ok_or_else(|| CliError::new(format!("/metrics/snapshot does not say {name}")))
    }
}

async fn wait_for(address: &str) -> Outcome {
    let clock = Clock::real();
    let begun = clock.now();
    loop {
        if let Ok(mut connection) = Connection::open(address).await
            && connection.get("/state").await.is_ok()
        {
            return Ok(());
        }
        if clock.now() - begun > STARTING {
            return Err(CliError::new(format!("no master answers at {address}")));
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
}
