//! Real agents, many in one process, each with its own node, sockets and certificate.
//!
//! They run the real agent's code, except for the start of processes and for files (see
//! [`super::machine`]).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::agent::agent::AgentState;
use ::agent::host::detect::Host;
use ::agent::{Modules, Settings, Started, WorkDir};
use futures_util::future::join_all;
use module_api::Parameters;
use runtime::{Clock, Node, Role};
use storage::Store;
use testkit::disk::SimulatedDisk;
use transport::{Endpoint, Identity, Options, unix};

use super::group::Group;
use super::machine::{Machine, NoSandboxes, Record};
use meros::output::error::{CliError, Outcome};
use meros::service::{RunningService, ServiceThread};

/// Resources of each agent.
const RESOURCES: &str = "cpus:8;mem:16384;disk:100000;ports:[31000-32000]";
/// Interval of polls for a registration.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The agents, on a separate thread. Dropping this ends them.
pub struct Agents {
    agents: Vec<Started>,
    record: Record,
    _thread: ServiceThread,
}

impl Agents {
    /// Starts `count` agents for this group.
    pub async fn start(group: &Group, count: u32) -> Outcome<Self> {
        let sockets = group.directory().join("x");
        std::fs::create_dir_all(&sockets)
            .map_err(|error| CliError::because("cannot make a directory", &error))?;
        let identity = |number| group.issue(Role::Agent, &format!("agent-{number}"));
        let plan = Plan {
            identities: (0..count).map(identity).collect::<Outcome<_>>()?,
            masters: group.addresses().to_vec(),
            sockets,
        };
        let (thread, (agents, record)) = ServiceThread::begin("agents", move || all(plan))?
            .wait()
            .await?;
        Ok(Self {
            agents,
            record,
            _thread: thread,
        })
    }

    /// The record of started executors.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Waits until each agent is registered with a master other than `not_at`. Fails with the
    /// number of missing agents.
    ///
    /// Between two polls of all missing agents it polls only one: polling a thousand every few
    /// milliseconds would load the measured thread.
    pub async fn with_a_master(&self, clock: &Clock, not_at: &str, patience: Duration) -> Outcome {
        let begun = clock.now();
        let is_back = async |agent: &Started| {
            agent
                .state()
                .await
                .is_ok_and(|state| is_back(&state, not_at))
        };
        let mut missing: Vec<&Started> = self.agents.iter().collect();
        loop {
            let back = join_all(missing.iter().map(|agent| is_back(agent))).await;
            let mut back = back.into_iter();
            missing.retain(|_| !back.next().unwrap_or(false));
            let Some(first) = missing.first() else {
                return Ok(());
            };
            while !is_back(first).await {
                if clock.now() - begun > patience {
                    let (missing, all) = (missing.len(), self.agents.len());
                    return Err(CliError::new(format!(
                        "at most {missing} of {all} agents have no master after {patience:?}"
                    )));
                }
                clock.sleep(POLL_INTERVAL).await;
            }
        }
    }
}

/// Whether this agent is registered with a master other than `not_at`.
fn is_back(state: &AgentState, not_at: &str) -> bool {
    state.master.as_ref().is_some_and(|master| master != not_at)
}

struct Plan {
    identities: Vec<Identity>,
    masters: Vec<String>,
    sockets: PathBuf,
}

/// An agent's node and sockets, while it lives.
struct AgentSockets {
    node: Node,
    endpoint: Endpoint,
    _executors: unix::Listener,
}

/// Starts all agents on this thread.
async fn all(plan: Plan) -> Outcome<((Vec<Started>, Record), RunningService)> {
    let record = Record::default();
    let (mut agents, mut sockets) = (Vec::new(), Vec::new());
    for (number, identity) in plan.identities.iter().enumerate() {
        let (agent, socket) = one(&plan, identity, number, &record)
            .map_err(|error| CliError::because(format!("agent {number}"), &*error))?;
        agents.push(agent);
        sockets.push(socket);
    }
    let running = RunningService {
        ended: Box::pin(std::future::pending()),
        stop: Box::pin(async move {
            join_all(sockets.iter().map(|socket| socket.node.shutdown())).await;
            join_all(sockets.into_iter().map(|socket| socket.endpoint.close())).await;
        }),
        renewal: None,
    };
    Ok(((agents, record), running))
}

fn one(
    plan: &Plan,
    identity: &Identity,
    number: usize,
    record: &Record,
) -> Result<(Started, AgentSockets), Box<dyn std::error::Error>> {
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Agent)
        .accepts(&[Role::Master, Role::Executor])
        .build();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = Options {
        socket_buffer: 64 << 10,
        ..Options::default()
    };
    let endpoint = Endpoint::bind(node.clone(), identity, any, options)?;
    let work_dir = plan.sockets.join(number.to_string());
    let mut settings = Settings::new(plan.masters.clone(), &work_dir);
    settings.hostname = Some(any.ip().to_string());
    settings.port = endpoint.address()?.port();
    settings.resources = Some(RESOURCES.to_owned());
    settings.executor_socket = plan.sockets.join(format!("{number}.sock"));
    let host = Host {
        name: "simulated".to_owned(),
        cores: 8,
        memory: 16 << 30,
        disk: 100 << 30,
    };
    let config = settings.check_on(&host)?;
    let executors =
        unix::Listener::bind(node.clone(), config.executor_socket(), &[Role::Executor])?;
    let (registry, noop) = (::modules::registry(), Parameters::none("noop"));
    let advisers = Modules {
        resource_estimator: registry.resource_estimator(&node, "noop", &noop)?,
        qos_controller: registry.qos_controller(&node, "noop", &noop)?,
        isolators: Vec::new(),
    };
    let disk = SimulatedDisk::new();
    let open = Arc::new(move || Ok(Box::new(disk.open()?) as Box<dyn Store>));
    let work_dir = WorkDir::simulated(&work_dir, Arc::new(NoSandboxes), open);
    let launcher = Box::new(Machine::start(record.clone()));
    let sampler = Arc::new(|_: &[i32]| Ok(Default::default())); // No process uses anything.
    let agent = ::agent::start_with(&node, config, work_dir, launcher, advisers, sampler)?;
    let socket = AgentSockets {
        node,
        endpoint,
        _executors: executors,
    };
    Ok((agent, socket))
}
