//! Agents with tasks that reregister with a new leader, all at once: within this process, and over
//! QUIC from separate processes.
//!
//! For the first see [`simulator::synthetic_agents::returning`]. Over QUIC the agents are synthetic
//! (see [`simulator::synthetic_agents`]) and all else is real. The agents' processes stand for
//! other machines, so they have the lowest priority and get the CPU time that the masters leave.

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use simulator::synthetic_agents::returning::{self, MESOS_SECONDS};

use super::super::part::Part;
use super::super::{Figure, of_crowd, rounded};
use super::group::Group;
use super::{FailoverArgs, say};
use meros::output::error::{CliError, Outcome};

/// Rounds within the process; the median counts.
const ROUNDS: usize = 3;
/// Largest number of sockets in one process.
const CROWD_MAX: u32 = 9_000;

/// Within this process: seconds with equal digests, and with a master that does not know the tasks.
pub async fn in_memory(args: &FailoverArgs) -> Outcome<Vec<Figure>> {
    let (mut full, mut digest) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        say(
            args,
            &format!("{} agents in memory: round {round} of {ROUNDS}", args.crowd),
        );
        let took = returning::round(args.crowd, args.tasks_each).await;
        let took = took.map_err(of_crowd)?;
        full.push(took.full);
        digest.push(took.digest);
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

/// The first agent and the number of agents for each process.
fn shares(agents: u32, each_socket: u32) -> Vec<(u32, u32)> {
    let most = CROWD_MAX.saturating_mul(each_socket);
    let parts = (0..agents).step_by(most as usize);
    parts
        .map(|first| (first, most.min(agents - first)))
        .collect()
}

/// Over QUIC: kills the leader of three masters, and waits until all agents are registered with the
/// next one.
pub async fn over_quic(args: &FailoverArgs) -> Outcome<Vec<Figure>> {
    let mut group = Group::start(args.directory.as_deref())?;
    let clock = group.clock().clone();
    group.leader().await?;
    let (agents, each_socket) = (args.crowd_quic, args.each_socket);
    let shares = shares(agents, each_socket);
    let (parts, sockets) = (shares.len(), agents.div_ceil(each_socket));
    say(
        args,
        &format!("{agents} agents with {sockets} sockets in {parts} processes register"),
    );
    let certs = group.certs();
    let starting = shares.into_iter().map(|(first, count)| {
        let arguments = vec![
            ("--master", group.addresses().join(",")),
            ("--first", first.to_string()),
            ("--agents", count.to_string()),
            ("--each_socket", each_socket.to_string()),
            ("--tasks_each", args.tasks_each.to_string()),
        ];
        let certs = certs.clone();
        async move { Part::start_behind("crowd", "crowd-part", &arguments, &certs).await }
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
        Ok::<_, CliError>((next, clock.now()))
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
        "sockets": sockets,
        "processes": parts,
        "seconds_from_the_kill": rounded((ended - killed).as_secs_f64()),
        "seconds_first_time": rounded(first),
        "bytes_sent_each": rounded(sent / f64::from(agents)),
        "bytes_received_each": rounded(received / f64::from(agents)),
        "bytes_before_each": rounded(bytes("before") / f64::from(agents)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_split_by_sockets_per_process() {
        assert_eq!(shares(20_000, 10), [(0, 20_000)]);
        assert_eq!(
            shares(20_000, 1),
            [(0, 9_000), (9_000, 9_000), (18_000, 2_000)]
        );
        assert_eq!(shares(9_000, 1), [(0, 9_000)]);
        assert_eq!(shares(18_001, 2), [(0, 18_000), (18_000, 1)]);
    }
}
