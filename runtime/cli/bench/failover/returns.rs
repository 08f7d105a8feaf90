//! Agents with tasks come back to a new leader, all at once: within this process, and over QUIC from processes of their own.
//!
//! The agents are a crowd of stand-ins (see [`super::super::crowd`]); the master, its allocator, its registry and its links are real.
//! Within this process nothing is carried over a network, but every message is encoded, sent and decoded.

use std::time::Duration;

use futures_util::future::try_join_all;
use master::measure::Crowd;
use master::registry::{MemoryRegistry, Registry, RegistryOperation};
use master::{Started, TakeSnapshot};
use runtime::memory::Network;
use runtime::prelude::*;
use runtime::{NodeId, Placement};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::super::crowd::{self, Come, StandIn, Tally};
use super::super::part::Part;
use super::super::{Figure, rounded};
use super::group::Group;
use super::{FailoverArgs, say};
use crate::failure::{Failure, Outcome};

/// What Mesos takes for 20,000 agents with 100,000 tasks, with messages inside one process, recorded on a machine like this one.
const MESOS_SECONDS: f64 = 3.9;
/// How often it is measured within the process; the median counts.
const ROUNDS: usize = 3;
/// How long a master may take to read a registry in memory.
const LEADING_MAX: Duration = Duration::from_secs(60);
/// All agents within the process share one link.
const OUTGOING_MAX: usize = 1 << 30;
/// Sockets that one process of a crowd opens at most.
const CROWD_MAX: u32 = 9_000;

/// Within this process: seconds with equal digests, and with a master that knows nothing of their tasks.
pub async fn within(args: &FailoverArgs) -> Outcome<Vec<Figure>> {
    let (mut full, mut digest) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        say(
            args,
            &format!("{} agents in memory: round {round} of {ROUNDS}", args.crowd),
        );
        let (first, second) = one_round(args).await?;
        full.push(first);
        digest.push(second);
    }
    let figure = |bench, mut seconds: Vec<f64>, asked_for| {
        seconds.sort_by(f64::total_cmp);
        let each: Vec<Value> = seconds.iter().map(|one| json!(rounded(*one))).collect();
        Figure {
            bench,
            figure: seconds[seconds.len() / 2],
            unit: "s",
            limit: MESOS_SECONDS,
            limit_is: "Mesos, 20,000 agents with 100,000 tasks, recorded",
            parameters: json!({
                "agents": args.crowd, "tasks": args.crowd * args.tasks_each, "each_s": each, "ratio_asked_for": asked_for,
            }),
        }
    };
    Ok(vec![
        figure("reregister_digest", digest, 0.1),
        figure("reregister_full", full, 1.0),
    ])
}

/// Seconds until all are back with a master that knows nothing of their tasks, and then with one that knows all.
async fn one_round(args: &FailoverArgs) -> Outcome<(f64, f64)> {
    let failed = |error: &dyn std::error::Error| Failure::because("a crowd in memory", error);
    let network = Network::new();
    let master = Node::builder("master")
        .role(Role::Master)
        .accepts(&[Role::Agent])
        .placement(Placement::services())
        .outgoing_max(OUTGOING_MAX)
        .build();
    let home = Node::builder("agents")
        .role(Role::Agent)
        .accepts(&[Role::Master])
        .outgoing_max(OUTGOING_MAX)
        .build();
    network.join(&master, "master");
    network.join(&home, "agents");
    let crowd = Crowd::of(0..args.crowd, args.tasks_each).map_err(|error| failed(&error))?;
    let recorded = crowd.recorded();
    let allocator = crowd::allocator(&master)?;
    let first = Box::new(registry(&recorded).await?);
    let started = crowd::lead_after(&master, &allocator, first, None)?;

    let (tally, mut watched) = watch::channel(Tally::default());
    let mut agents = Vec::new();
    for (number, report) in crowd.reports.into_iter().enumerate() {
        let former = NodeId::new("former", 1);
        let stand_in =
            StandIn::new(report, vec!["master".to_owned()], tally.clone()).back_from(former);
        let agent = home.spawn(&format!("agent-{number}"), stand_in);
        agents.push(agent.map_err(|error| failed(&error))?);
    }
    // The link is there, and the master has read its registry.
    home.find("master", "master", Patience::WhileLinked)
        .await
        .map_err(|error| failed(&error))?;
    let full = come(&home, &agents, &mut watched).await?;
    // The next master, with this one's books as its mirror has them.
    let books = started.master.ask(TakeSnapshot, Patience::WhileLinked);
    let books = books.await.map_err(|error| failed(&error))?;
    stop(&master, &started).await;
    let next = Box::new(registry(&recorded).await?);
    let started = crowd::lead_after(&master, &allocator, next, Some(books))?;
    leads(&home, &started).await?;
    let digest = come(&home, &agents, &mut watched).await?;
    // The master before its agents and its allocator, whose ends would alarm it.
    stop(&master, &started).await;
    home.shutdown().await;
    master.shutdown().await;
    Ok((full, digest))
}

/// A registry in memory of which this was asked.
async fn registry(recorded: &[RegistryOperation]) -> Outcome<MemoryRegistry> {
    let mut registry = MemoryRegistry::new();
    for operation in recorded {
        let applied = registry.apply(operation.clone()).await;
        applied.map_err(|error| Failure::because("the registry of a crowd", &error))?;
    }
    Ok(registry)
}

/// Seconds until all of them are registered, who are told to come all at once.
async fn come(
    home: &Node,
    agents: &[Handle<StandIn>],
    watched: &mut watch::Receiver<Tally>,
) -> Outcome<f64> {
    let wanted = watched.borrow().registrations() + agents.len();
    let begun = home.clock().now();
    for agent in agents {
        drop(agent.ask(Come(None), Patience::WhileLinked)); // The tally tells.
    }
    let all = watched.wait_for(|tally| tally.registrations() >= wanted);
    all.await
        .map_err(|error| Failure::because("a crowd in memory", &error))?;
    Ok((home.clock().now() - begun).as_secs_f64())
}

/// Waits until it has read its registry, which is in memory.
async fn leads(home: &Node, started: &Started) -> Outcome {
    let begun = home.clock().now();
    while home.clock().now() - begun < LEADING_MAX {
        let books = started.master.ask(TakeSnapshot, Patience::WhileLinked);
        let books = books.await;
        let books = books.map_err(|error| Failure::because("the next master", &error))?;
        if books.has_begun() {
            return Ok(());
        }
        home.clock().sleep(Duration::from_millis(1)).await;
    }
    Err(Failure::new(format!(
        "the next master does not lead within {LEADING_MAX:?}"
    )))
}

async fn stop(node: &Node, started: &Started) {
    let pid = started.master.pid();
    node.stop_now(&pid);
    node.ended(&pid).await;
}

/// Over QUIC: the leader of three masters is killed, and the crowd comes back to the next one.
pub async fn over_quic(args: &FailoverArgs) -> Outcome<Vec<Figure>> {
    let mut group = Group::start(args.directory.as_deref())?;
    let clock = group.clock().clone();
    group.leader().await?;
    let agents = args.crowd_quic;
    let parts = agents.div_ceil(CROWD_MAX);
    say(
        args,
        &format!("{agents} agents in {parts} processes register"),
    );
    let share = |part: u32| {
        let first = part * CROWD_MAX;
        (first, CROWD_MAX.min(agents - first))
    };
    let certs = group.certs();
    let starting = (0..parts).map(|part| {
        let (first, count) = share(part);
        let arguments = vec![
            ("--master", group.addresses().join(",")),
            ("--first", first.to_string()),
            ("--agents", count.to_string()),
            ("--tasks_each", args.tasks_each.to_string()),
        ];
        let certs = certs.clone();
        async move { Part::start("crowd", "crowd-part", &arguments, &certs).await }
    });
    let mut crowd = try_join_all(starting).await?;
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let first = crowd.iter().map(|part| number(&part.first()["seconds"]));
    let first = first.fold(0.0, f64::max);
    clock.sleep(args.pause).await;

    say(args, "the leader is killed");
    let leader = group.leader().await?;
    let killed = clock.now();
    group.kill(leader);
    let leading = async {
        let next = group.leader().await?;
        Ok::<_, Failure>((next, clock.now()))
    };
    let back = async {
        let answers = try_join_all(crowd.iter_mut().map(Part::ask)).await?;
        Ok((answers, clock.now()))
    };
    let ((next, led), (answers, ended)) = futures_util::try_join!(leading, back)?;
    let seconds = (ended - led).as_secs_f64();
    let bytes = |of: &str| {
        answers
            .iter()
            .map(|answer| number(&answer[of]))
            .sum::<f64>()
    };
    let (sent, received) = (bytes("sent"), bytes("received"));
    let parameters = json!({
        "agents": agents,
        "tasks": agents * args.tasks_each,
        "processes": parts,
        "seconds_from_the_kill": rounded((ended - killed).as_secs_f64()),
        "seconds_first_time": rounded(first),
        "bytes_sent_each": rounded(sent / f64::from(agents)),
        "bytes_received_each": rounded(received / f64::from(agents)),
    });
    let figure = |bench, figure, unit, limit, limit_is| Figure {
        bench,
        figure,
        unit,
        limit,
        limit_is,
        parameters: parameters.clone(),
    };
    let peak = group.peak(next)?;
    Ok(vec![
        figure(
            "reregister_quic",
            seconds,
            "s",
            MESOS_SECONDS,
            "Mesos, 20,000 agents within one process, recorded",
        ),
        figure(
            "reregister_bytes",
            (sent + received) / f64::from(agents),
            "bytes an agent",
            0.0,
            "none: stated",
        ),
        figure("reregister_memory", peak, "MiB", 0.0, "none: stated"),
    ])
}
