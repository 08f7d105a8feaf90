//! A whole cluster in this process: [`LocalCluster`], and the verb `meros local`.
//!
//! Each service has its own node, thread, socket and certificate, and they communicate as on
//! separate machines. The certificates come from an authority in the work directory, with an
//! operator's and a framework's beside it, where the other verbs look for them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use runtime::Role;
use transport::{Authority, Identity};

use crate::certs::{
    default_work_dir, local_directory, save_client_identities, store_master_address,
};
use crate::flags::access::{Access, AccessFlags};
use crate::flags::http::HttpFlags;
use crate::flags::{Text, Threads, ThreadsFlag};
use crate::operator::Operator;
use crate::output::error::{CliError, Outcome};
use crate::service::agent::{self, AgentFlags};
use crate::service::images::ImagePlan;
use crate::service::isolation::Isolation;
use crate::service::master::{self, GroupPlan, MasterFlags};
use crate::service::modules::ModulesFlags;
use crate::service::reload::{self, Reload};
use crate::service::signals::Signals;
use crate::service::{ServiceThread, free_port};
use crate::{on_this_thread, out};

/// The time limit for all agents to register.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of checks for that.
const READY_CHECK: Duration = Duration::from_millis(10);

/// Run a whole cluster on this machine
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct LocalArgs {
    /// Number of masters: one, or a group of up to seven that survives the loss of fewer than half
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=7))]
    masters: u16,
    /// Number of agents
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=1000))]
    agents: u16,
    /// The first master's port; agent i has this port + i, further masters have the ports after the
    /// agents'
    #[arg(long, env = "MESOS_PORT", default_value_t = 5050, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Directory of state, certificates and sandboxes [default: $XDG_STATE_HOME/meros/local or
    /// ~/.local/state/meros/local]
    #[arg(long, env = "MESOS_WORK_DIR", value_name = "DIR")]
    work_dir: Option<PathBuf>,
    #[command(flatten)]
    modules: ModulesFlags,
    /// Principals and secrets for HTTP Basic: a JSON file. Read again at SIGHUP
    #[arg(long, env = "MESOS_CREDENTIALS", value_name = "FILE")]
    credentials: Option<PathBuf>,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    http_flags: HttpFlags,
    #[command(flatten)]
    threads: ThreadsFlag,
    #[command(flatten, next_help_heading = "The master")]
    master: MasterFlags,
    #[command(flatten, next_help_heading = "Each agent")]
    agent: AgentFlags,
}

/// The configuration of a local cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `meros` program, which starts executors. Tests set it, because they run in another
    /// program.
    pub program: PathBuf,
    /// The directory of everything; created if missing.
    pub work_dir: PathBuf,
    /// The number of masters.
    pub masters: u16,
    /// The number of agents.
    pub agents: u16,
    /// The first master's port; agent *i* has this + *i*, further masters the ports after the
    /// agents'. 0 means any free ports.
    pub port: u16,
    /// The masters' flags.
    pub master: MasterFlags,
    /// Each agent's flags.
    pub agent: AgentFlags,
    /// The isolators of a lone agent. Several agents of one machine cannot share a control group.
    pub isolation: Isolation,
    /// The flags of modules, for all services.
    pub modules: ModulesFlags,
    /// `--credentials`, for all services.
    pub credentials: Option<PathBuf>,
    /// The access flags, for all services.
    pub access: AccessFlags,
    /// The HTTP flags, for all services.
    pub http_flags: HttpFlags,
    /// The thread placement of each service.
    pub threads: Threads,
}

impl Options {
    /// One agent with this machine's resources, on free ports.
    pub fn new(program: impl Into<PathBuf>, work_dir: impl Into<PathBuf>) -> Self {
        let master = MasterFlags {
            allocator: "hierarchical".to_owned(),
            sorter: "drf".to_owned(),
            ..MasterFlags::default()
        };
        let noop = || "noop".to_owned();
        let agent = AgentFlags {
            default_role: "*".to_owned(),
            resource_estimator: noop(),
            qos_controller: noop(),
            ..AgentFlags::default()
        };
        Self {
            program: program.into(),
            work_dir: work_dir.into(),
            masters: 1,
            agents: 1,
            port: 0,
            master,
            agent,
            isolation: Isolation::none(),
            modules: ModulesFlags::default(),
            credentials: None,
            access: AccessFlags::default(),
            http_flags: HttpFlags::default(),
            threads: Threads::default(),
        }
    }

    /// The masters' ports, chosen before the start because each member of a group needs all of
    /// them.
    fn master_ports(&self) -> Outcome<Vec<u16>> {
        match (self.masters, self.port) {
            (1, port) => Ok(vec![port]),
            (masters, 0) => (0..masters).map(|_| free_port()).collect(),
            (masters, port) => (0..masters)
                .map(|index| match index {
                    0 => Ok(port),
                    _ => agent_port(port, self.agents + index),
                })
                .collect(),
        }
    }

    /// Sets the agents' resources.
    pub fn resources(mut self, text: &str) -> Self {
        self.agent.resources = Some(Text(text.to_owned()));
        self
    }
}

/// A whole cluster in this process. Dropping it stops it.
pub struct LocalCluster {
    /// Agents before masters, so that agents are stopped while they can still unregister.
    members: Vec<ServiceThread>,
    masters: Vec<SocketAddr>,
    agents: Vec<SocketAddr>,
    certs: PathBuf,
    authority: Authority,
    reloads: Vec<Reload>,
}

impl LocalCluster {
    /// Starts masters and agents. Returns once all agents have registered, so that a framework is
    /// offered all of them.
    ///
    /// Must be called on a thread with a `LocalSet` (see [`on_this_thread`]).
    pub async fn start(options: Options) -> Outcome<Self> {
        let work_dir = agent::absolute(&options.work_dir)?;
        let certs = local_directory(&work_dir);
        let unusable = |error| CliError::because("cannot make the cluster's certificates", &error);
        let authority = Authority::load_or_create(&certs).map_err(unusable)?;
        save_client_identities(&authority, &certs)?;
        let credentials = ("credentials", options.credentials.as_deref());
        let certified = options.http_flags.certifies();
        let ports = options.master_ports()?;
        // A master alone needs no list, and may choose its port.
        let founders = ports.iter().filter(|_| ports.len() > 1);
        let initial: Vec<String> = founders.map(|port| format!("127.0.0.1:{port}")).collect();
        let mut cluster = Self {
            members: Vec::new(),
            masters: Vec::new(),
            agents: Vec::new(),
            certs,
            authority,
            reloads: Vec::new(),
        };
        for (index, port) in (1..).zip(ports) {
            let name = match options.masters {
                1 => "master".to_owned(),
                _ => format!("master-{index}"),
            };
            let access = &options.access;
            let access = access.with(credentials, certified, &options.master.access)?;
            let http = cluster.http(&options, &access)?;
            let plan = master::Plan {
                whitelist: None,
                cluster: None,
                access,
                http,
                config: options.master.config()?,
                allocator: options.master.allocator.clone(),
                sorter: options.master.sorter.clone(),
                modules: options.modules.read(&options.program)?,
                work_dir: work_dir.join(&name),
                threads: options.threads,
                keep_alive: transport::Options::default().keep_alive,
                identity: options
                    .http_flags
                    .revoking(cluster.issue(Role::Master, &name)?)?,
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                hostname: None,
                group: GroupPlan {
                    initial: initial.clone(),
                    ..GroupPlan::default()
                },
            };
            let (member, address) = ServiceThread::begin(&name, move || master::start(plan))?
                .wait()
                .await?;
            cluster.members.push(member);
            cluster.masters.push(address);
        }
        let mut starting = Vec::new();
        for index in 1..=options.agents {
            let name = format!("agent-{index}");
            let port = if options.port == 0 {
                0
            } else {
                agent_port(options.port, index)?
            };
            let access = options.access.read(credentials, certified)?;
            let http = cluster.http(&options, &access)?;
            let mut settings = options
                .agent
                .settings(cluster.addresses(), &work_dir.join(&name));
            // Each agent has a trace of its own.
            settings.record_usage = settings.record_usage.map(|file| {
                let mut file = file.into_os_string();
                file.push(format!(".{name}"));
                file.into()
            });
            let plan = agent::Plan {
                settings,
                modules: options.modules.read(&options.program)?,
                resource_estimator: options.agent.resource_estimator.clone(),
                qos_controller: options.agent.qos_controller.clone(),
                isolation: options.isolation.clone(),
                images: ImagePlan::default(),
                threads: options.threads,
                keep_alive: transport::Options::default().keep_alive,
                identity: options
                    .http_flags
                    .revoking(cluster.issue(Role::Agent, &name)?)?,
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                program: options.program.clone(),
                access,
                http,
                leave_policy: agent::LeavePolicy::Always,
            };
            starting.push(ServiceThread::begin(&name, move || agent::start(plan))?);
        }
        for starting in starting {
            let (member, address) = starting.wait().await?;
            cluster.members.insert(0, member);
            cluster.agents.push(address);
        }
        store_master_address(&cluster.certs, &cluster.master())?;
        cluster.ready().await?;
        Ok(cluster)
    }

    /// The HTTP options of a service. Also collects its reloads, and those of its access.
    fn http(
        &mut self,
        options: &Options,
        access: &Access,
    ) -> Outcome<(http::HttpOptions, BTreeMap<String, String>)> {
        let members = usize::from(options.masters) + usize::from(options.agents);
        let http_options = options.http_flags.options_among(members)?;
        let credentials = options.credentials.as_deref();
        let reloads = options.access.reloads("credentials", credentials, access);
        self.reloads.extend(reloads);
        self.reloads
            .extend(options.http_flags.reloads(&http_options));
        Ok((http_options, options.http_flags.shown()))
    }

    /// Waits until all agents have registered.
    async fn ready(&mut self) -> Outcome {
        let operator =
            Operator::with(&self.issue(Role::Operator, "starter")?, &self.master()).await?;
        let clock = operator.node().clock().clone();
        let begun = clock.now();
        let outcome = loop {
            match operator.view().await {
                Err(failure) => break Err(failure),
                Ok(view)
                    if view.agents.iter().filter(|agent| agent.active).count()
                        >= self.agents.len() =>
                {
                    break Ok(());
                }
                Ok(_) => {}
            }
            if let Some(ended) = self.members.iter().position(ServiceThread::has_ended) {
                break self
                    .members
                    .remove(ended)
                    .stop()
                    .and(Err(CliError::new("a service of the cluster has ended")));
            }
            if clock.now() - begun > READY_TIMEOUT {
                break Err(CliError::new(
                    "the agents do not register; their log lines (--log info) say why",
                ));
            }
            clock.sleep(READY_CHECK).await;
        };
        operator.close().await;
        outcome
    }

    /// The masters' addresses, as `host:port` separated by commas.
    pub fn master(&self) -> String {
        self.addresses().join(",")
    }

    fn addresses(&self) -> Vec<String> {
        self.masters.iter().map(SocketAddr::to_string).collect()
    }

    /// The HTTP port of each agent, in order.
    pub fn agent_ports(&self) -> Vec<u16> {
        self.agents.iter().map(SocketAddr::port).collect()
    }

    /// The directory of its certificates.
    pub fn certs(&self) -> &Path {
        &self.certs
    }

    /// Issues a certificate of its authority.
    pub fn issue(&self, role: Role, name: &str) -> Outcome<Identity> {
        self.authority
            .issue(role, name)
            .map_err(|error| CliError::because("cannot issue a certificate", &error))
    }

    /// Completes when a service has ended by itself.
    pub async fn any_ended(&self) {
        let clock = runtime::Clock::real();
        while !self.members.iter().any(ServiceThread::has_ended) {
            clock.sleep(Duration::from_millis(200)).await;
        }
    }

    /// Stops the agents, then the masters, gracefully. Returns an error if one had failed.
    pub fn stop(mut self) -> Outcome {
        self.request_stop();
        let outcomes: Vec<_> = self.members.drain(..).map(ServiceThread::stop).collect();
        outcomes.into_iter().collect()
    }
}

impl LocalCluster {
    /// Requests the stop of all agents at once: the tasks of each have their grace period.
    fn request_stop(&mut self) {
        let agents = self.agents.len();
        for agent in self.members.iter_mut().take(agents) {
            agent.request_stop();
        }
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        self.request_stop();
        // In order: agents first.
        self.members.drain(..).for_each(drop);
    }
}

fn agent_port(port: u16, index: u16) -> Outcome<u16> {
    port.checked_add(index).ok_or_else(|| {
        CliError::usage(format!(
            "--port={port} leaves no port for agent {index}: expected at most {}",
            u16::MAX - index
        ))
    })
}

/// `meros local`: runs until a signal stops it.
pub fn run(args: LocalArgs, signals: Signals) -> Outcome {
    agent_port(args.port, args.agents)?;
    let options = Options {
        program: agent::own_program()?,
        work_dir: args.work_dir.unwrap_or_else(default_work_dir),
        masters: args.masters,
        agents: args.agents,
        port: args.port,
        master: args.master,
        agent: args.agent,
        isolation: Isolation::none(),
        modules: args.modules,
        credentials: args.credentials,
        access: args.access,
        http_flags: args.http_flags,
        threads: args.threads.threads,
    };
    let scheme = options.http_flags.scheme();
    on_this_thread(async move {
        let Ok(started) = signals.unless_stopped(LocalCluster::start(options)).await else {
            return Ok(());
        };
        let mut cluster = started?;
        let reloads = std::mem::take(&mut cluster.reloads);
        tokio::task::spawn_local(reload::follow(signals.hangups(), reloads));
        out!("ready {scheme}://127.0.0.1:{}", cluster.masters[0].port());
        let _ = signals.unless_stopped(cluster.any_ended()).await; // either way it ends
        cluster.stop()
    })?
}

#[cfg(test)]
mod tests {
    use testkit::assert_contains;

    use super::*;

    #[test]
    fn agents_have_the_ports_after_their_masters() {
        assert_eq!(agent_port(5050, 3).unwrap(), 5053);
        assert_contains!(
            agent_port(u16::MAX, 1).unwrap_err().to_string(),
            "--port=65535"
        );
    }
}
