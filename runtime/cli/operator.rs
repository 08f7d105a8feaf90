//! The operator's side: a connection to a master and its agents, for the verbs that look at a cluster or interfere with it.
//!
//! Remembers one connection for the time of one verb. Never speaks for a framework.

pub mod drain;
pub mod explain;
pub mod json;
pub mod kill;
pub mod list;
pub mod logs;
pub mod maintenance;
pub mod masters;
pub mod members;
pub mod owners;
pub mod registry;
pub mod roles;
pub mod tail;
mod terminal;

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use authority::LINE_PATIENCE;
use clap::Args;
use futures_util::future::select_ok;
use protocol::message::operator::{OverRateLimit, ViewCluster};
use protocol::seek::find_leader;
use protocol::view::{AgentView, ClusterView};
use rand::Rng;
use runtime::{AskError, Node, Pid, Remote, Role};
use transport::{Endpoint, Identity, Options};

use crate::certs::CertsFlag;
use crate::failure::{Failure, Outcome};
use crate::flags;

/// How long a master or agent may take to answer an operator, the wait for the operator's turn under `--rate_limits` included.
pub const PATIENCE: Duration = LINE_PATIENCE.saturating_add(Duration::from_secs(5));
/// How long a master or agent may take to answer the first packet: a person waits.
const DIAL_PATIENCE: Duration = Duration::from_secs(3);

/// How long a verb that is done waits for its farewells to be heard: one that was dialled in vain hears none.
const FAREWELL: Duration = Duration::from_millis(300);

/// How long one master is asked who leads: a group without a leader elects one within a second or two, if it can.
const LEADER_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked for a master that leads.
const LEADER_LOOK: Duration = Duration::from_millis(100);

/// Which cluster a verb speaks to.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct ClusterFlags {
    /// The masters, or some of them: each knows which one leads [default: those of `meros local`]
    #[arg(long, env = "MEROS_MASTER", value_name = "HOST:PORT,...", value_parser = flags::master_addresses)]
    pub master: Option<String>,
    /// Its certificates.
    #[command(flatten)]
    pub certs: CertsFlag,
}

impl ClusterFlags {
    /// The masters meant, with commas between.
    fn addresses(&self) -> String {
        let given = self.master.clone();
        given.unwrap_or_else(|| self.certs.master())
    }

    /// Who the verb is: this principal, or else an operator of no other name than its process.
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
    /// Which cluster.
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
    /// Connects as the flags say.
    pub async fn connect(flags: &ClusterFlags) -> Outcome<Self> {
        Self::connect_as(flags, None).await
    }

    /// Connects as the flags say, to do something in this principal's name: where no certificate can be issued, the one that is kept must be of
    /// that name, for the master asks.
    pub async fn connect_as(flags: &ClusterFlags, principal: Option<&str>) -> Outcome<Self> {
        Self::with(&flags.identity(principal)?, &flags.addresses()).await
    }

    /// Connects with this identity to the master that leads the group of those at `addresses` (`host:port`, with commas between), though none
    /// of them may lead. All are asked at once, so that one that is down holds nobody up. It waits a while until one leads.
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

    /// The node the operator speaks from.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Asks the master.
    pub async fn ask<M: Remote>(&self, question: M) -> Outcome<M::Result> {
        let answer = self.node.ask(&self.master, question, PATIENCE).await;
        answer.map_err(|error| no_answer("the master", &error))
    }

    /// Asks the master for a view, which it refuses to whoever asks too much.
    pub async fn look<T: 'static, M>(&self, question: M) -> Outcome<T>
    where
        M: Remote + runtime::prelude::Message<Result = Result<T, OverRateLimit>>,
    {
        let answer = self.ask(question).await?;
        answer.map_err(|over| Failure::because("the master does not answer", &over))
    }

    /// How the cluster looks.
    pub async fn view(&self) -> Outcome<ClusterView> {
        self.look(ViewCluster).await
    }

    /// The actor of an agent.
    pub async fn agent(&self, agent: &AgentView) -> Outcome<Pid> {
        let address = match agent.address.contains('@') {
            true => agent.address.clone(),
            false => format!("{}@{}", Role::Agent, agent.address),
        };
        let found = self.node.find(&address, "agent", PATIENCE).await;
        found
            .map_err(|error| no_answer(&format!("agent {} at {}", agent.id, agent.address), &error))
    }

    /// Says farewell.
    pub async fn close(self) {
        self.node.shutdown().await;
        self.endpoint.close().await;
    }
}

/// An operator's node and its socket.
fn open(identity: &Identity) -> Outcome<(Node, Endpoint)> {
    let roles = [Role::Master, Role::Agent];
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Operator)
        .accepts(&roles)
        .build();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let options = Options {
        handshake_timeout: DIAL_PATIENCE,
        farewell_timeout: FAREWELL,
        ..Options::default()
    };
    let endpoint = Endpoint::bind(node.clone(), identity, any, options)
        .map_err(|error| Failure::because("cannot open a socket", &error))?;
    Ok((node, endpoint))
}

/// The master that leads the group of these, as soon as one does and one of them leads there.
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
                node.clock().sleep(LEADER_LOOK).await;
            }
        })
    });
    let first = async {
        match select_ok(asked).await {
            Ok((master, _)) => master,
            Err(never) => match never {},
        }
    };
    let found = node.clock().timeout(PATIENCE, first).await;
    found.map_err(|_| {
        let reason = failure.into_inner();
        reason.unwrap_or_else(|| Failure::new(format!("none of {addresses} answers")))
    })
}

/// The master that leads: at `address`, or where the one there says. If that one knows nobody it is waited for.
async fn leading(node: &Node, address: &str) -> Outcome<Pid> {
    node.connect(address).await.map_err(|error| {
        Failure::because("no master", &error)
            .next("is it running? start one with `meros local`, or name it with --master")
    })?;
    let (asked, chance) = (vec![address.to_owned()], node.rng().random());
    let found = find_leader(node, asked, LEADER_PATIENCE, chance).await;
    found.map(|found| found.pid).map_err(|error| match error {
        AskError::Late { after } => Failure::new(format!(
            "no master that leads was found through {address} within {after:?}"
        ))
        .next("`meros masters list` shows how each of them stands"),
        error => no_answer(address, &error),
    })
}

fn no_answer(whom: &str, error: &AskError) -> Failure {
    Failure::because(format_args!("no answer from {whom}"), error)
}
