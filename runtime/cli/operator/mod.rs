//! The operator's connection to a master and its agents, for the verbs that inspect or change a
//! cluster.
//!
//! One connection per verb. Never acts as a framework.
//!
//! | module | contents |
//! |---|---|
//! | `drain` | `meros maintenance drain --at_a_time` |
//! | `exec` | the verbs `meros exec` and `meros attach`: commands and terminals in containers |
//! | `explain` | `meros explain`: why a framework gets no offers |
//! | `json` | a cluster's view as JSON, with the names of `/state` |
//! | `kill` | the verb `meros kill TASK` |
//! | `list` | the verbs that list agents, frameworks, tasks and so on |
//! | `logs` | the verb `meros logs TASK`: the output of a task, from its agent |
//! | `maintenance` | `meros maintenance show | schedule | cancel | down | up` |
//! | `masters` | the verbs `meros masters list | add | remove | promote | transfer` |
//! | `members` | the members of a group of masters, each queried directly |
//! | `oversubscription` | `meros oversubscription`: usage, lent resources and corrections of agents |
//! | `registry` | the verbs `meros registry dump | restore` |
//! | `reservations` | the verbs that change reservations and volumes of an agent |
//! | `roles` | `meros roles` |
//! | `terminal` | a task's output on a terminal |

pub mod drain;
pub mod exec;
pub mod explain;
pub mod json;
pub mod kill;
pub mod list;
pub mod logs;
pub mod maintenance;
pub mod masters;
pub mod members;
pub mod oversubscription;
pub mod registry;
pub mod reservations;
pub mod roles;
mod terminal;

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use authority::THROTTLE_QUEUE_TIMEOUT;
use clap::Args;
use futures_util::future::select_ok;
use protocol::discovery::find_leader;
use protocol::message::operator::{OverRateLimit, ViewCluster};
use protocol::view::{AgentView, ClusterView};
use rand::Rng;
use runtime::{AskError, Node, Pid, Remote, Role};
use transport::{Endpoint, Identity, Options};

use crate::certs::CertsFlag;
use crate::flags;
use crate::output::error::{CliError, Outcome};

/// The time limit for an answer to an operator, including the queue of `--rate_limits`.
pub const ANSWER_TIMEOUT: Duration = THROTTLE_QUEUE_TIMEOUT.saturating_add(Duration::from_secs(5));
/// The time limit for a first answer to a connection attempt, short because a person waits.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// The time that a finished verb waits for its farewells to be acknowledged; failed connection
/// attempts never are.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(300);

/// The time limit for finding the leader through one master: a group without a leader elects one
/// within a second or two.
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of the search for a leader.
const LEADER_POLL: Duration = Duration::from_millis(100);

/// The cluster of a verb.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct ClusterFlags {
    /// The masters, or some of them: each knows the leader [default: those of `meros local`]
    #[arg(long, env = "MEROS_MASTER", value_name = "HOST:PORT,...", value_parser = flags::master_addresses)]
    pub master: Option<String>,
    /// Its certificates.
    #[command(flatten)]
    pub certs: CertsFlag,
}

impl ClusterFlags {
    /// The masters' addresses, separated by commas.
    fn addresses(&self) -> String {
        let given = self.master.clone();
        given.unwrap_or_else(|| self.certs.master())
    }

    /// The verb's identity: this principal, or an operator named after its process.
    fn identity(&self, principal: Option<&str>) -> Outcome<Identity> {
        let name = match principal {
            Some(principal) => principal.to_owned(),
            None => format!("{}{}", authority::UNNAMED_OPERATOR, std::process::id()),
        };
        self.certs.identity(Role::Operator, &name)
    }
}

/// Show what the cluster has
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ListArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// An operator's node, connected to a master.
pub struct Operator {
    node: Node,
    endpoint: Endpoint,
    master: Pid,
}

impl Operator {
    /// Connects to the cluster of the flags.
    pub async fn connect(flags: &ClusterFlags) -> Outcome<Self> {
        Self::connect_as(flags, None).await
    }

    /// Connects to the cluster of the flags under this principal. If no certificate can be issued,
    /// the stored one must have that name, because the master checks it.
    pub async fn connect_as(flags: &ClusterFlags, principal: Option<&str>) -> Outcome<Self> {
        Self::with(&flags.identity(principal)?, &flags.addresses()).await
    }

    /// Connects with this identity to the leader of the group of `addresses` (`host:port`,
    /// separated by commas), even if none of them leads. All are asked at once, so one that is down
    /// delays nothing. Waits for a while until there is a leader.
    pub async fn with(identity: &Identity, addresses: &str) -> Outcome<Self> {
        let (node, endpoint) = open(identity)?;
        let master = match addresses.contains(',') {
            false => leading(&node, addresses).await?,
            true => leader_of(&node, addresses).await?,
        };
        Ok(Self {
            node,
            endpoint,
            master,
        })
    }

    /// The operator's node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Sends a request to the master.
    pub async fn ask<M: Remote>(&self, question: M) -> Outcome<M::Result> {
        let answer = self.node.ask(&self.master, question, ANSWER_TIMEOUT).await;
        answer.map_err(|error| no_answer("the master", &error))
    }

    /// Requests a view from the master, which may refuse it because of rate limits.
    pub async fn query<T: 'static, M>(&self, question: M) -> Outcome<T>
    where
        M: Remote + runtime::prelude::Message<Result = Result<T, OverRateLimit>>,
    {
        let answer = self.ask(question).await?;
        answer.map_err(|over| CliError::because("the master does not answer", &over))
    }

    /// The view of the cluster.
    pub async fn view(&self) -> Outcome<ClusterView> {
        self.query(ViewCluster).await
    }

    /// The pid of an agent's actor.
    pub async fn agent(&self, agent: &AgentView) -> Outcome<Pid> {
        let address = match agent.address.contains('@') {
            true => agent.address.clone(),
            false => format!("{}@{}", Role::Agent, agent.address),
        };
        let found = self.node.find(&address, "agent", ANSWER_TIMEOUT).await;
        found
            .map_err(|error| no_answer(&format!("agent {} at {}", agent.id, agent.address), &error))
    }

    /// Closes the connection.
    pub async fn close(self) {
        self.node.shutdown().await;
        self.endpoint.close().await;
    }
}

/// Opens an operator's node and its socket.
fn open(identity: &Identity) -> Outcome<(Node, Endpoint)> {
    let roles = [Role::Master, Role::Agent];
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Operator)
        .accepts(&roles)
        .build();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let options = Options {
        handshake_timeout: DIAL_TIMEOUT,
        farewell_timeout: FAREWELL_TIMEOUT,
        ..Options::default()
    };
    let endpoint = Endpoint::bind(node.clone(), identity, any, options)
        .map_err(|error| CliError::because("cannot open a socket", &error))?;
    Ok((node, endpoint))
}

/// The leader of the group of these addresses, as soon as one of them knows it.
async fn leader_of(node: &Node, addresses: &str) -> Outcome<Pid> {
    let failure = RefCell::new(None);
    let asked = addresses.split(',').map(|address| {
        let failure = &failure;
        Box::pin(async move {
            loop {
                match leading(node, address).await {
                    Ok(master) => return Ok::<_, Infallible>(master),
                    Err(reason) => *failure.borrow_mut() = Some(reason),
                }
                node.clock().sleep(LEADER_POLL).await;
            }
        })
    });
    let first = async {
        match select_ok(asked).await {
            Ok((master, _)) => master,
            Err(never) => match never {},
        }
    };
    let found = node.clock().timeout(ANSWER_TIMEOUT, first).await;
    found.map_err(|_| {
        let reason = failure.into_inner();
        reason.unwrap_or_else(|| CliError::new(format!("none of {addresses} answers")))
    })
}

/// The leader: at `address`, or at the address that the master there reports. Waits while it knows
/// none.
async fn leading(node: &Node, address: &str) -> Outcome<Pid> {
    node.connect(address).await.map_err(|error| {
        CliError::because("no master", &error)
            .next("is it running? start one with `meros local`, or name it with --master")
    })?;
    let (asked, chance) = (vec![address.to_owned()], node.rng().random());
    let found = find_leader(node, asked, LEADER_TIMEOUT, chance).await;
    found.map(|found| found.pid).map_err(|error| match error {
        AskError::Late { after } => CliError::new(format!(
            "no leader was found through {address} within {after:?}"
        ))
        .next("`meros masters list` shows the status of each"),
        error => no_answer(address, &error),
    })
}

fn no_answer(recipient: &str, error: &AskError) -> CliError {
    CliError::because(format_args!("no answer from {recipient}"), error)
}
