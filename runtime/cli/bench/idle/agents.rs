//! The hidden verb `meros bench idle-agents`: many agents in one process that register, answer pings, and have nothing to do.
//!
//! Each has a node, a socket and a certificate of its own, so that the master sees what it would see of as many machines.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use protocol::AgentInfo;
use protocol::digest::DigestKey;
use protocol::message::registration::{PingAgent, Pong, RegisterAgent};
use runtime::prelude::*;
use transport::{Endpoint, Options};

use crate::certs::CertsFlag;
use crate::failure::{Failure, Outcome};
use crate::flags::master_address;
use crate::signals::Signals;

/// How long one of them may take to be found and admitted.
const PATIENCE: Duration = Duration::from_secs(60);

/// Stands for agents that have nothing to do
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct IdleAgentsArgs {
    #[arg(long, value_parser = master_address)]
    master: String,
    #[arg(long)]
    agents: u32,
    #[command(flatten)]
    certs: CertsFlag,
}

/// An agent with nothing behind it.
struct Idle;

impl Actor for Idle {
    type Context = Context<Self>;
}

impl Process for Idle {
    const MAILBOX: u32 = 64;

    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<PingAgent>(&[Role::Master]);
    }
}

impl Handler<PingAgent> for Idle {
    type Result = MessageResult<PingAgent>;
    fn handle(&mut self, _: PingAgent, _: &mut Context<Self>) -> Self::Result {
        MessageResult(Pong)
    }
}

/// Starts them one after the other, and keeps them until a signal comes.
pub async fn run(args: IdleAgentsArgs, signals: Signals) -> Outcome {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|error| Failure::because("the limit of open files", &error))?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
        .map_err(|error| Failure::because("the limit of open files", &error))?;
    let agents = signals.unless_stopped(all(&args)).await;
    let _agents = match agents {
        Ok(agents) => agents?,
        Err(_) => return Ok(()),
    };
    signals.stop().await;
    Ok(())
}

async fn all(args: &IdleAgentsArgs) -> Outcome<Vec<Endpoint>> {
    let mut endpoints = Vec::new();
    for number in 0..args.agents {
        endpoints.push(one(args, number).await?);
    }
    Ok(endpoints)
}

async fn one(args: &IdleAgentsArgs, number: u32) -> Outcome<Endpoint> {
    let failed = |error: &dyn std::error::Error| {
        Failure::because(format!("simulated agent {number}"), error)
    };
    let identity = args
        .certs
        .identity(Role::Agent, &format!("idle-{number}"))?;
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Agent)
        .accepts(&[Role::Master])
        .build();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = Options {
        socket_buffer: 64 << 10,
        ..Options::default()
    };
    let endpoint =
        Endpoint::bind(node.clone(), &identity, any, options).map_err(|error| failed(&error))?;
    let port = endpoint.address().map_err(|error| failed(&error))?.port();
    let idle = node.spawn("agent", Idle).map_err(|error| failed(&error))?;
    let master = node
        .find(&args.master, "master", PATIENCE)
        .await
        .map_err(|error| failed(&error))?;
    let resources = "cpus:8;mem:16384;disk:100000;ports:[31000-32000]"
        .parse()
        .map_err(|error| failed(&error))?;
    let registration = RegisterAgent {
        agent: AgentInfo {
            hostname: format!("idle-{number}"),
            port,
            resources,
            attributes: Default::default(),
            id: None,
        },
        pid: idle.pid(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        held: Default::default(),
        digest_key: DigestKey::new([0; 16]),
        oversubscribed: Default::default(),
        term_seen: 0,
    };
    let answer = node
        .ask(&master, registration, PATIENCE)
        .await
        .map_err(|error| failed(&error))?;
    answer.map_err(|error| failed(&error))?;
    Ok(endpoint)
}
