//! Kills the leader under load several times, and measures the time to recover.
//!
//! Masters, agents, drivers and links are real; tasks have no processes. At the end every task must
//! have run exactly once and finished, or never have started and been reported as such to its
//! framework.

use std::time::Duration;

use futures_util::try_join;
use runtime::{Clock, Instant};
use serde_json::{Value, json};

use super::super::{Figure, rounded};
use super::agents::Agents;
use super::group::Group;
use super::ledger::{Ledger, Verdict};
use super::load::Load;
use super::probe::Probe;
use super::{FailoverArgs, say};
use meros::output::error::{CliError, Outcome};

/// Timeout of each recovery.
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout of the first registration of all agents, which is not measured.
const START_PATIENCE: Duration = Duration::from_secs(300);
/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Goals in milliseconds.
const COMMIT_MAX: f64 = 1000.0;
const REGISTERED_MAX: f64 = 2000.0;

/// Milliseconds from one kill.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Round {
    /// Until the registry commits the next operation.
    commit: f64,
    /// Until all agents are registered with the new leader.
    agents: f64,
    /// Until all frameworks are subscribed to it.
    frameworks: f64,
    /// Until a task launched after the kill is running.
    launch: f64,
}

impl Round {
    fn registered(&self) -> f64 {
        self.agents.max(self.frameworks)
    }
}

/// Kills the leader `kills` times.
pub async fn measure(args: &FailoverArgs) -> Outcome<Vec<Figure>> {
    let mut group = Group::start(args.directory.as_deref())?;
    let clock = group.clock().clone();
    group.leader().await?;
    say(args, &format!("{} agents register", args.agents));
    let agents = Agents::start(&group, args.agents).await?;
    agents.with_a_master(&clock, "", START_PATIENCE).await?;
    let load = Load::start(&group, args.frameworks as usize)?;
    let probe = Probe::new(&group)?;
    until(&clock, &load, "all frameworks", |ledger| {
        ledger.all_subscribed(Instant::default())
    })
    .await?;
    let mut rounds = Vec::new();
    for number in 1..=args.kills {
        clock.sleep(args.pause).await;
        let round = kill(&mut group, &agents, &load, &probe).await?;
        say(
            args,
            &format!(
                "kill {number}: next commit after {:.0} ms, all agents {:.0} ms, all frameworks {:.0} ms, next launch {:.0} ms",
                round.commit, round.agents, round.frameworks, round.launch
            ),
        );
        rounds.push(round);
    }
    load.ledger().close();
    say(args, "the last tasks end");
    until(&clock, &load, "the end of all tasks", |ledger| {
        (ledger.living() == 0).then_some(clock.now())
    })
    .await
    .or_else(|failure| match load.ledger().is_over() {
        Some(_) => Err(failure),
        None => Ok(clock.now()), // The verdict names them.
    })?;
    let verdict = load.ledger().verdict(&agents.record().starts());
    load.stop().await;
    drop(agents);
    judged(&verdict)?;
    Ok(figures(args, &rounds, &verdict))
}

/// One kill. The killed master is a follower again at the end.
async fn kill(group: &mut Group, agents: &Agents, load: &Load, probe: &Probe) -> Outcome<Round> {
    let clock = group.clock().clone();
    let leader = group.leader().await?;
    let dead = group.addresses()[leader].clone();
    let begun = clock.now();
    group.kill(leader);
    let left: Vec<String> = group
        .alive()
        .map(|(_, address)| address.to_owned())
        .collect();
    let since = |at: Instant| (at - begun).as_secs_f64() * 1000.0;
    let commit = async {
        probe.commit(&left, PATIENCE).await?;
        Ok(since(clock.now()))
    };
    let back = async {
        agents.with_a_master(&clock, &dead, PATIENCE).await?;
        Ok(since(clock.now()))
    };
    let frameworks = until(&clock, load, "all frameworks", |ledger| {
        ledger.all_subscribed(begun)
    });
    let launch = until(&clock, load, "the next launch", |ledger| {
        ledger.first_running(begun)
    });
    let (commit, agents, frameworks, launch) = try_join!(commit, back, frameworks, launch)?;
    group.start_again(leader).await?;
    Ok(Round {
        commit,
        agents,
        frameworks: since(frameworks),
        launch: since(launch),
    })
}

/// Waits until the ledger meets the condition.
async fn until(
    clock: &Clock,
    load: &Load,
    what: &str,
    look: impl Fn(&Ledger) -> Option<Instant>,
) -> Outcome<Instant> {
    let begun = clock.now();
    loop {
        {
            let ledger = load.ledger();
            if let Some(reason) = ledger.is_over() {
                return Err(CliError::new(format!("a framework cannot go on: {reason}")));
            }
            if let Some(at) = look(&ledger) {
                return Ok(at);
            }
        }
        if clock.now() - begun > PATIENCE {
            return Err(CliError::new(format!("not within {PATIENCE:?}: {what}")));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}

/// A lost or duplicated task is a failure, whatever the times.
fn judged(verdict: &Verdict) -> Outcome {
    if verdict.problems.is_empty() {
        return Ok(());
    }
    Err(CliError::new(format!(
        "of {} tasks some were lost or doubled: {}",
        verdict.launched,
        verdict.problems.join("; ")
    )))
}

fn figures(args: &FailoverArgs, rounds: &[Round], verdict: &Verdict) -> Vec<Figure> {
    let figure = |bench, limit, limit_is, of: fn(&Round) -> f64| {
        let mut each: Vec<f64> = rounds.iter().map(of).collect();
        let in_order: Vec<Value> = each.iter().map(|each| json!(rounded(*each))).collect();
        each.sort_by(f64::total_cmp);
        let parameters = json!({
            "agents": args.agents,
            "frameworks": args.frameworks,
            "kills": args.kills,
            "median_ms": rounded(each.get(each.len() / 2).copied().unwrap_or_default()),
            "each_ms": in_order,
            "launched": verdict.launched,
            "finished": verdict.finished,
            "refused": verdict.refused,
        });
        Figure {
            bench,
            figure: each.last().copied().unwrap_or_default(),
            unit: "ms",
            limit,
            limit_is,
            parameters,
        }
    };
    let most = "the most that the worst may be";
    vec![
        figure("failover_commit", COMMIT_MAX, most, |round| round.commit),
        figure("failover_registered", REGISTERED_MAX, most, |round| {
            round.registered()
        }),
        figure("failover_launch", REGISTERED_MAX, most, |round| {
            round.launch
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::args;
    use super::*;

    #[test]
    fn a_lost_task_fails_the_measurement_and_is_named() {
        let mut verdict = Verdict {
            launched: 7,
            finished: 6,
            ..Verdict::default()
        };
        assert!(judged(&verdict).is_ok());
        verdict.problems.push("t was started 2 times".to_owned());
        let failure = judged(&verdict).unwrap_err().to_string();
        assert!(failure.contains("of 7 tasks") && failure.contains("t was started 2 times"));
    }

    #[test]
    fn figure_is_the_worst_kill() {
        let round = |commit, agents, frameworks| Round {
            commit,
            agents,
            frameworks,
            launch: agents,
        };
        let rounds = [
            round(400.0, 900.0, 800.0),
            round(700.0, 600.0, 1500.0),
            round(500.0, 700.0, 600.0),
        ];
        let figures = figures(&args(&[]).unwrap(), &rounds, &Verdict::default());
        assert_eq!(figures[0].figure, 700.0);
        assert_eq!(figures[0].parameters["median_ms"], 500.0);
        assert_eq!(figures[1].figure, 1500.0);
        assert_eq!(figures[2].parameters["each_ms"][1], 600.0);
    }
}
