//! A whole cluster in this process: [`LocalCluster`], and the verb `meros local`.
//!
//! Each member has its own node, thread, socket and certificate, and they speak as they would on machines of their own. The certificates
//! come from an authority that is kept in the work directory, beside an operator's and a framework's, where the other verbs look.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use runtime::Role;
use transport::{Authority, Identity};

use crate::access::{Access, AccessFlags};
use crate::agent::{self, AgentFlags};
use crate::certs::{default_work_dir, keep_operators, leave_master, local_directory};
use crate::door::DoorFlags;
use crate::failure::{Failure, Outcome};
use crate::flags::{Text, Threads, ThreadsFlag};
use crate::master::{self, ElectionFlags, GroupPlan, MasterFlags};
use crate::member::{Member, free_port};
use crate::operator::Operator;
use crate::renewal::{self, Again};
use crate::signals::Signals;
use crate::{on_this_thread, out};

/// How long all agents may take to register.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether they have.
const READY_LOOK: Duration = Duration::from_millis(10);

/// Run a whole cluster on this machine
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct LocalArgs {
    /// Masters: one, or a group of up to seven that survives the loss of fewer than half
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=7))]
    masters: u16,
    /// Agents
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=1000))]
    agents: u16,
    /// The first master's port; agent i has this port and i, further masters have those after the agents'
    #[arg(long, env = "MESOS_PORT", default_value_t = 5050, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Where state, certificates and sandboxes are kept [default: $XDG_STATE_HOME/meros/local or ~/.local/state/meros/local]
    #[arg(long, env = "MESOS_WORK_DIR", value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Modules and their parameters: JSON, or a file of it
    #[arg(long, env = "MESOS_MODULES", value_name = "JSON")]
    modules: Option<Text>,
    /// Who may come over HTTP: a file of JSON with principals and their secrets. Read again at SIGHUP
    #[arg(long, env = "MESOS_CREDENTIALS", value_name = "FILE")]
    credentials: Option<PathBuf>,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    door: DoorFlags,
    #[command(flatten)]
    threads: ThreadsFlag,
    #[command(flatten, next_help_heading = "The master")]
    master: MasterFlags,
    #[command(flatten, next_help_heading = "Each agent")]
    agent: AgentFlags,
}

/// What a local cluster is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `meros` program, which starts executors. Tests name it, since theirs is another.
    pub program: PathBuf,
    /// Where everything is kept; made if missing.
    pub work_dir: PathBuf,
    /// How many masters.
    pub masters: u16,
    /// How many agents.
    pub agents: u16,
    /// The first master's port, agent *i* has this and *i*, further masters those after the agents'; 0 takes any free ones.
    pub port: u16,
    /// The master's flags.
    pub master: MasterFlags,
    /// Each agent's flags.
    pub agent: AgentFlags,
    /// `--modules`, for all members.
    pub modules: Option<Text>,
    /// `--credentials`, for all members.
    pub credentials: Option<PathBuf>,
    /// What is asked of who comes over HTTP, by all members.
    pub access: AccessFlags,
    /// What the pages of all members are served with.
    pub door: DoorFlags,
    /// Where the actors of each member run.
    pub threads: Threads,
}

impl Options {
    /// One agent with all that this machine has, on any free ports.
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
            modules: None,
            credentials: None,
            access: AccessFlags::default(),
            door: DoorFlags::default(),
            threads: Threads::default(),
        }
    }

    /// The masters' ports: known before they start, since each of a group is told where all are.
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

    /// The same with agents of these resources.
    pub fn resources(mut self, text: &str) -> Self {
        self.agent.resources = Some(Text(text.to_owned()));
        self
    }
}

/// A whole cluster in this process. Dropping it stops it.
pub struct LocalCluster {
    /// Agents before their master, so that they are stopped while they can still say farewell.
    members: Vec<Member>,
    masters: Vec<SocketAddr>,
    agents: Vec<SocketAddr>,
    certs: PathBuf,
    authority: Authority,
    again: Vec<Again>,
}

impl LocalCluster {
    /// Starts master and agents, and returns when all agents have registered, so that a framework can subscribe and be offered all.
    ///
    /// To be called on a thread with a `LocalSet` (see [`on_this_thread`]).
    pub async fn start(options: Options) -> Outcome<Self> {
        let work_dir = agent::absolute(&options.work_dir)?;
        let certs = local_directory(&work_dir);
        let unusable = |error| Failure::because("cannot make the cluster's certificates", &error);
        let authority = Authority::load_or_create(&certs).map_err(unusable)?;
        keep_operators(&authority, &certs)?;
        let credentials = ("credentials", options.credentials.as_deref());
        let certified = options.door.certifies();
        let ports = options.master_ports()?;
        let initial: Vec<String> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let mut cluster = Self {
            members: Vec::new(),
            masters: Vec::new(),
            agents: Vec::new(),
            certs,
            authority,
            again: Vec::new(),
        };
        for (index, port) in (1..).zip(ports) {
            let name = match options.masters {
                1 => "master".to_owned(),
                _ => format!("master-{index}"),
            };
            let access = &options.access;
            let access = access.with(credentials, certified, &options.master.access)?;
            let door = cluster.door(&options, &access)?;
            let plan = master::Plan {
                whitelist: None,
                cluster: None,
                access,
                door,
                config: options.master.config()?,
                allocator: options.master.allocator.clone(),
                sorter: options.master.sorter.clone(),
                modules: master::modules(options.modules.as_ref())?,
                work_dir: work_dir.join(&name),
                threads: options.threads,
                keep_alive: transport::Options::default().keep_alive,
                identity: options.door.revoking(cluster.issue(Role::Master, &name)?)?,
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                hostname: None,
                group: (options.masters > 1).then(|| GroupPlan {
                    address: None,
                    initial: initial.clone(),
                    election: ElectionFlags::default(),
                }),
                speak_previous: false,
            };
            let (member, address) = Member::begin(&name, move || master::start(plan))?
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
            let door = cluster.door(&options, &access)?;
            let plan = agent::Plan {
                settings: options
                    .agent
                    .settings(cluster.addresses(), &work_dir.join(&name)),
                modules: master::modules(options.modules.as_ref())?,
                resource_estimator: options.agent.resource_estimator.clone(),
                qos_controller: options.agent.qos_controller.clone(),
                threads: options.threads,
                keep_alive: transport::Options::default().keep_alive,
                identity: options.door.revoking(cluster.issue(Role::Agent, &name)?)?,
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                program: options.program.clone(),
                speak_previous: false,
                access,
                door,
                leaves: agent::Leaves::Always,
            };
            starting.push(Member::begin(&name, move || agent::start(plan))?);
        }
        for starting in starting {
            let (member, address) = starting.wait().await?;
            cluster.members.insert(0, member);
            cluster.agents.push(address);
        }
        leave_master(&cluster.certs, &cluster.master())?;
        cluster.ready().await?;
        Ok(cluster)
    }

    /// What a member's pages are served with. What of it and of its access can be read again is kept.
    fn door(
        &mut self,
        options: &Options,
        access: &Access,
    ) -> Outcome<(http::HttpOptions, BTreeMap<String, String>)> {
        let members = usize::from(options.masters) + usize::from(options.agents);
        let door = options.door.options_among(members)?;
        let credentials = options.credentials.as_deref();
        let again = options.access.again("credentials", credentials, access);
        self.again.extend(again);
        self.again.extend(options.door.again(&door));
        Ok((door, options.door.shown()))
    }

    /// Waits until every agent has registered.
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
            if let Some(fallen) = self.members.iter().position(Member::has_ended) {
                break self
                    .members
                    .remove(fallen)
                    .stop()
                    .and(Err(Failure::new("a member of the cluster has ended")));
            }
            if clock.now() - begun > READY_PATIENCE {
                break Err(Failure::new(
                    "the agents do not register; their log lines (--log info) say why",
                ));
            }
            clock.sleep(READY_LOOK).await;
        };
        operator.close().await;
        outcome
    }

    /// Where the masters answer, as `host:port` with commas between.
    pub fn master(&self) -> String {
        self.addresses().join(",")
    }

    fn addresses(&self) -> Vec<String> {
        self.masters.iter().map(SocketAddr::to_string).collect()
    }

    /// The port of each agent's pages, in order.
    pub fn agent_ports(&self) -> Vec<u16> {
        self.agents.iter().map(SocketAddr::port).collect()
    }

    /// The directory of its certificates.
    pub fn certs(&self) -> &Path {
        &self.certs
    }

    /// A certificate of its authority.
    pub fn issue(&self, role: Role, name: &str) -> Outcome<Identity> {
        self.authority
            .issue(role, name)
            .map_err(|error| Failure::because("cannot issue a certificate", &error))
    }

    /// Completes when a member has ended by itself.
    pub async fn fallen(&self) {
        let clock = runtime::Clock::real();
        while !self.members.iter().any(Member::has_ended) {
            clock.sleep(Duration::from_millis(200)).await;
        }
    }

    /// Stops agents and then the master, in good order; tells if one had fallen.
    pub fn stop(mut self) -> Outcome {
        self.begin_stop();
        let outcomes: Vec<_> = self.members.drain(..).map(Member::stop).collect();
        outcomes.into_iter().collect()
    }
}

impl LocalCluster {
    /// Asks all agents at once to stop: the tasks of each have their grace period.
    fn begin_stop(&mut self) {
        let agents = self.agents.len();
        for agent in self.members.iter_mut().take(agents) {
            agent.begin_stop();
        }
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        self.begin_stop();
        // In order: agents first.
        self.members.drain(..).for_each(drop);
    }
}

fn agent_port(port: u16, index: u16) -> Outcome<u16> {
    port.checked_add(index).ok_or_else(|| {
        Failure::usage(format!(
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
        modules: args.modules,
        credentials: args.credentials,
        access: args.access,
        door: args.door,
        threads: args.threads.threads,
    };
    let scheme = options.door.scheme();
    on_this_thread(async move {
        let Ok(started) = signals.unless_stopped(LocalCluster::start(options)).await else {
            return Ok(());
        };
        let mut cluster = started?;
        let again = std::mem::take(&mut cluster.again);
        tokio::task::spawn_local(renewal::follow(signals.hangups(), again));
        out!("ready {scheme}://127.0.0.1:{}", cluster.masters[0].port());
        let _ = signals.unless_stopped(cluster.fallen()).await; // Either way it is over.
        cluster.stop()
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_have_the_ports_after_their_masters() {
        assert_eq!(agent_port(5050, 3).unwrap(), 5053);
        assert!(
            agent_port(u16::MAX, 1)
                .unwrap_err()
                .to_string()
                .contains("--port=65535")
        );
    }
}
