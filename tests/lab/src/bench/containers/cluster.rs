//! A master and an agent of `meros` in processes of their own, for measurements of containers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use meros::certs::save_client_identities;
use meros::operator::Operator;
use meros::service::free_port;
use runtime::{Clock, Role};
use scheduler_driver::DriverRef;
use transport::Authority;

use crate::bench::Result;
use crate::bench::launch::{Following, Launches, begin};
use crate::bench::process::ServiceProcess;

/// Timeout for registrations.
const UP_PATIENCE: Duration = Duration::from_secs(120);
/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A registered agent with its master. Its containers and control groups go with it.
pub struct Cluster {
    pub clock: Clock,
    authority: Authority,
    directory: PathBuf,
    master_at: String,
    /// Where the agent listens.
    pub agent_at: String,
    agent_flags: Vec<String>,
    /// The control group of the agent's containers.
    root: String,
    operator: Operator,
    /// `None` only between two processes.
    agent: Option<ServiceProcess>,
    _master: ServiceProcess,
}

impl Cluster {
    /// Starts both with their files in this directory, and waits until the agent is registered.
    pub async fn start(directory: &Path, agent_flags: &[(&str, String)]) -> Result<Self> {
        let certs = directory.join("certs");
        let authority = Authority::load_or_create(&certs)?;
        save_client_identities(&authority, &certs)?;
        let address = || free_port().map(|port| format!("127.0.0.1:{port}"));
        let (master_at, agent_at) = (address()?, address()?);
        let interval = "--allocation_interval=5ms";
        let master = ServiceProcess::start("master", &master_at, directory, &[interval])?;
        let root = format!("meros-bench-{}", std::process::id());
        let own = [
            ("master", master_at.clone()),
            ("cgroups_root", root.clone()),
            // Containers of a failed measurement end.
            ("recovery_timeout", "1mins".to_owned()),
        ];
        let flags = own.iter().chain(agent_flags);
        let operator = authority.issue(Role::Operator, "bench")?;
        let mut cluster = Self {
            clock: Clock::real(),
            operator: Operator::with(&operator, &master_at).await?,
            authority,
            directory: directory.to_owned(),
            master_at,
            agent_at,
            agent_flags: flags
                .map(|(name, value)| format!("--{name}={value}"))
                .collect(),
            root,
            agent: None,
            _master: master,
        };
        cluster.start_agent().await?;
        Ok(cluster)
    }

    /// The agent's process.
    pub fn agent(&self) -> Result<&ServiceProcess> {
        Ok(self.agent.as_ref().ok_or("no agent")?)
    }

    /// Starts the agent, and waits until it is registered.
    pub async fn start_agent(&mut self) -> Result {
        let flags: Vec<&str> = self.agent_flags.iter().map(String::as_str).collect();
        let agent = ServiceProcess::start("agent", &self.agent_at, &self.directory, &flags)?;
        self.agent = Some(agent);
        self.agent_is(true).await
    }

    /// Kills the agent, and waits until its master knows.
    pub async fn kill_agent(&mut self) -> Result {
        self.agent.take().ok_or("no agent")?.kill();
        self.agent_is(false).await
    }

    /// Waits until the agent is registered and connected, or not.
    async fn agent_is(&self, active: bool) -> Result {
        let is_active = async || {
            let view = self.operator.view().await?;
            Result::Ok(view.agents.iter().any(|one| one.active))
        };
        let waiting = async {
            while is_active().await? != active {
                self.clock.sleep(POLL_INTERVAL).await;
            }
            Ok(())
        };
        self.clock.timeout(UP_PATIENCE, waiting).await?
    }

    /// Starts a framework with this load.
    pub fn begin(&self, mut launches: Launches) -> Result<(DriverRef, Following)> {
        let following = launches.follow();
        let identity = self.authority.issue(Role::Framework, launches.name)?;
        let driver = begin(&self.master_at, &identity, launches, &self.clock)?;
        Ok((driver, following))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.leave();
        }
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        let groups = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (mount, kind) = (fields.next()?, fields.next()?);
            let group = Path::new(mount).join(&self.root);
            kind.starts_with("cgroup").then_some(group)
        });
        for group in groups {
            let _ = std::fs::remove_dir(group); // Not every hierarchy is used.
        }
    }
}
