//! The cost of the sorter as an actor: advice on one slate by a direct call, from an actor on
//! another thread, and from one behind a link.
//!
//! The slate is the first one of a cluster, with all its clients and agents. Real time, since
//! several threads are involved.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use module_api::SorterRef;
use module_api::sorter::{Slate, Stage};
use modules::sorter::{Drf, Sorter};
use modules::workload::measure::median;
use modules::workload::{Shape, Workload};
use runtime::{Clock, Instant, Node, Pid, Placement, Role};
use serde_json::Value;
use transport::{Authority, Endpoint, Options};

use super::super::Figure;
use super::SEED;
use meros::on_this_thread;
use meros::output::error::{CliError, Outcome};
use meros::service::{RunningService, ServiceThread};

/// Name of the sorter at the other node.
const NAME: &str = "sorter";
/// Timeout for finding it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The three figures, over `rounds` rounds each.
pub fn figures(shape: &Shape, rounds: u32, parameters: &Value) -> Outcome<Vec<Figure>> {
    let mut all = Workload::of(shape, SEED);
    let slots = all.candidates(true);
    let Some((slate, _)) = all.slate(Stage::Fair, &slots) else {
        return Err(CliError::new("there is nothing to share in this cluster"));
    };
    let (direct, actor, linked) = on_this_thread(measure(slate, rounds))??;
    let figure = |bench, figure| Figure {
        bench,
        figure,
        unit: "ms",
        limit: direct,
        limit_is: "the same advice by a call",
        parameters: parameters.clone(),
    };
    Ok(vec![
        figure("sorter_call", direct),
        figure("sorter_actor", actor),
        figure("sorter_linked", linked),
    ])
}

async fn measure(slate: Slate, rounds: u32) -> Outcome<(f64, f64, f64)> {
    let clock = Clock::real();
    let since = |begun: Instant| (clock.now() - begun).as_secs_f64() * 1e3;
    let mut direct = Vec::new();
    for _ in 0..rounds {
        let (mut sorter, slate) = (Drf::default(), slate.clone());
        let begun = clock.now();
        let advice = sorter.advise(slate);
        direct.push(since(begun));
        drop(advice.map_err(|fault| CliError::because("the sorter", &fault))?);
    }
    let asked = async |sorter: &SorterRef| {
        let mut taken = Vec::new();
        for _ in 0..rounds {
            let slate = slate.clone();
            let begun = clock.now();
            let advice = sorter.advice(slate).await;
            taken.push(since(begun));
            drop(advice.map_err(|error| CliError::because("the sorter", &error))?);
        }
        Ok::<_, CliError>(median(&mut taken))
    };

    let home = builder("allocator")
        .placement(Placement::services())
        .build();
    spawn(&home)?;
    let local = Pid::new(NAME, home.id().clone(), 0);
    let actor = asked(&SorterRef::new(home.refer(local))).await?;

    let authority = Authority::create()
        .map_err(|error| CliError::because("cannot make certificates", &error))?;
    let issue = |name| {
        let issued = authority.issue(Role::Master, name);
        issued.map_err(|error| CliError::because("cannot issue a certificate", &error))
    };
    let theirs = issue("sorters")?;
    let begin = move || async move {
        let node = builder("sorters").placement(Placement::services()).build();
        let endpoint = bind(&node, &theirs)?;
        spawn(&node)?;
        let address = endpoint.address();
        let address = address.map_err(|error| CliError::because("the socket", &error))?;
        let running = RunningService {
            ended: Box::pin(std::future::pending()),
            stop: Box::pin(async move {
                node.shutdown().await;
                endpoint.close().await;
            }),
            renewal: None,
        };
        Ok((address, running))
    };
    let (member, address) = ServiceThread::begin("sorters", begin)?.wait().await?;
    let endpoint = bind(&home, &issue("allocator")?)?;
    let found = home.find(&address.to_string(), NAME, PATIENCE).await;
    let found = found.map_err(|error| CliError::because("the sorter behind the link", &error))?;
    let linked = asked(&SorterRef::new(home.refer(found))).await?;
    home.shutdown().await;
    endpoint.close().await;
    member.stop()?;
    Ok((median(&mut direct), actor, linked))
}

fn builder(name: &str) -> runtime::NodeBuilder {
    Node::builder(name)
        .role(Role::Master)
        .accepts(&[Role::Master])
}

fn spawn(node: &Node) -> Outcome {
    let spawned = node.spawn(NAME, Sorter::new(Drf::default()));
    spawned
        .map(drop)
        .map_err(|error| CliError::because("cannot start the sorter", &error))
}

fn bind(node: &Node, identity: &transport::Identity) -> Outcome<Endpoint> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bound = Endpoint::bind(node.clone(), identity, any, Options::default());
    bound.map_err(|error| CliError::because("cannot open a socket", &error))
}
