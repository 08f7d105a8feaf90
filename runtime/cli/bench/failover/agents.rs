//! Real agents, many in one process: each with its node, sockets and certificate, on machines without processes.
//!
//! All their code is the real agent's; only what would start processes and write files is not (see [`super::machine`]). Decides nothing
//! that an agent decides.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::agent::agent::AgentState;
use ::agent::detect::Host;
use ::agent::{Modules, Settings, Started, WorkDir};
use futures_util::future::join_all;
use module_api::Parameters;
use runtime::{Clock, Node, Role};
use storage::Store;
use storage::forgetful::ForgetfulDisk;
use transport::{Endpoint, Identity, Options, unix};

use super::group::Group;
use super::machine::{Machine, Nowhere, Record};
use crate::failure::{Failure, Outcome};
use crate::member::{Member, Running};

/// What each has.
const RESOURCES: &str = "cpus:8;mem:16384;disk:100000;ports:[31000-32000]";
/// How often it is looked whether one is back.
const LOOK: Duration = Duration::from_millis(10);

/// The agents, on a thread of their own. Dropping it ends them.
pub struct Agents {
    agents: Vec<Started>,
    record: Record,
    _thread: Member,
}

impl Agents {
    /// Starts so many agents of this group.
    pub async fn start(group: &Group, count: u32) -> Outcome<Self> {
        let sockets = group.directory().join("x");
        std::fs::create_dir_all(&sockets)
            .map_err(|error| Failure::because("cannot make a directory", &error))?;
        let identity = |number| group.issue(Role::Agent, &format!("agent-{number}"));
        let plan = Plan {
            identities: (0..count).map(identity).collect::<Outcome<_>>()?,
            masters: group.addresses().to_vec(),
            sockets,
        };
        let (thread, (agents, record)) = Member::begin("agents", move || all(plan))?.wait().await?;
        Ok(Self {
            agents,
            record,
            _thread: thread,
        })
    }

    /// What was started on their machines.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Waits until each has been with a master that is not at `not_at`. Fails with how many have not.
    ///
    /// Between two looks at all that are missing only one is looked at: to ask a thousand every few milliseconds would cost their
    /// thread what it is measured for.
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
                    return Err(Failure::new(format!(
                        "at most {missing} of {all} agents have no master after {patience:?}"
                    )));
                }
                clock.sleep(LOOK).await;
            }
        }
    }
}

/// Whether this agent has been registered by a master that is not at `not_at`.
fn is_back(state: &AgentState, not_at: &str) -> bool {
    state.master.as_ref().is_some_and(|master| master != not_at)
}

struct Plan {
    identities: Vec<Identity>,
    masters: Vec<String>,
    sockets: PathBuf,
}

/// An agent's sockets, while it lives.
struct Place {
    node: Node,
    endpoint: Endpoint,
    _executors: unix::Listener,
}

/// Starts all of them on this thread.
async fn all(plan: Plan) -> Outcome<((Vec<Started>, Record), Running)> {
    let record = Record::default();
    let (mut agents, mut places) = (Vec::new(), Vec::new());
    for (number, identity) in plan.identities.iter().enumerate() {
        let (agent, place) = one(&plan, identity, number, &record)
            .map_err(|error| Failure::because(format!("agent {number}"), &*error))?;
        agents.push(agent);
        places.push(place);
    }
    let running = Running {
        ended: Box::pin(std::future::pending()),
        stop: Box::pin(async move {
            join_all(places.iter().map(|place| place.node.shutdown())).await;
            join_all(places.into_iter().map(|place| place.endpoint.close())).await;
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
) -> Result<(Started, Place), Box<dyn std::error::Error>> {
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
    };
    let disk = ForgetfulDisk::new();
    let open = Arc::new(move || Ok(Box::new(disk.open()?) as Box<dyn Store>));
    let work_dir = WorkDir::rehearsed(&work_dir, Arc::new(Nowhere), open);
    let launcher = Box::new(Machine::start(record.clone()));
    let sampler = Arc::new(|_: &[i32]| Ok(Default::default())); // Nothing runs that uses anything.
    let agent = ::agent::start_with(&node, config, work_dir, launcher, advisers, sampler)?;
    let place = Place {
        node,
        endpoint,
        _executors: executors,
    };
    Ok((agent, place))
}
