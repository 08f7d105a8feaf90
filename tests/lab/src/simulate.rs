//! The verb `meros-lab simulate`: simulates a cluster in virtual time under faults, with checkers
//! for every invariant.
//!
//! Runs one or more seeds, with the real actors but without real sockets, disks or processes. After
//! a failure it searches for the shortest history that still fails, and prints the command that
//! replays it. The simulator does the work; this file turns flags into scenarios and results into
//! text.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use protocol::text::duration;
use runtime::{Clock, Instant};
use serde_json::{Value, json};
use simulator::report::{self, NO_FAULT};
use simulator::scenario::faults;
use simulator::scenario::shrink::shrink;
use simulator::{Fault, Profile, Run, Scenario, Tally, Violation, Wiring, checkers};

use meros::output::error::{CliError, Outcome};
use meros::{flags, out};

use crate::huge;

/// Default bound for the real transport: larger clusters use memory.
const QUIC_AGENTS_MAX: u32 = 100;

/// The largest group of masters.
const MASTERS_MAX: u32 = 9;

const NOTES: &str = "\
The simulated cluster: one master (with `--masters 3` a group) and its allocator, agents and frameworks with their drivers, all of them the real ones, on one thread \
in virtual time, with simulated links, disks and task processes. `--for` is how long faults may come; then none comes any more, and \
all must recover.

The load: five kinds of frameworks by turns (long services; short batch tasks, some of which fail; the same on revocable resources; \
tasks in executors of their own; one that declines most offers), the first three with task groups, keep about two tasks for each agent among them, replace those that \
end, and kill some. Agents have 4 to 16 cores; one in four has some reserved for the role `ads`, one in three lends some, which its QoS controller takes back when the machine is busy.

The faults: `network` loses, repeats and delays packets, cuts links one way or both, and lets readers be slow. `machines` crashes and \
restarts nodes, the master too, kills executors alone, lets isolators fail, makes disks slow or fail, machines busy with other work, and clocks jump or drift; and an operator changes quotas and weights, and takes machines down. `all` is both, `none` is only the load. With `--fault`, exactly those.
A group of masters meets more: leaders that are cut off, unheard, deaf or paused, followers that come and go, or were away for so long that they \
are sent a snapshot, and crashes in the middle of a write or after a packet.

The command fails when an invariant is broken, and when something never happened that the profile should cause.

Try it: meros-lab simulate --seed 7 --for 10mins
A group of masters: meros-lab simulate --masters 3 --seed 7 --for 10mins
Twenty thousand seeds of it: meros-lab simulate --masters 3 --seeds 20000 --agents 3 --frameworks 3 --for 2mins --transport memory --jobs 2
Ten thousand seeds: meros-lab simulate --seeds 10000 --agents 3 --frameworks 3 --for 2mins --jobs 2
All that happens in a run: meros-lab simulate --seed 7 --for 1min --log simulator=trace";

/// Simulate a cluster in virtual time, under faults and with every invariant checked
#[derive(Args, Debug)]
#[command(rename_all = "snake_case", after_help = NOTES)]
pub struct SimulateArgs {
    /// Seed of all randomness: the same seed and flags give the same run and the same hash
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Number of masters, odd and at most 9: 1 runs alone, more form a group
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = masters)]
    masters: u32,
    /// Number of agents
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=20_000))]
    agents: u32,
    /// Number of frameworks
    #[arg(long, value_name = "M", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    frameworks: u32,
    /// Which faults happen: none, network, machines, all
    #[arg(long, value_name = "PROFILE", default_value = "all", value_parser = profile)]
    faults: Profile,
    /// Virtual time during which faults occur; afterwards the cluster must recover
    #[arg(long = "for", value_name = "DURATION", default_value = "10mins", value_parser = virtual_time)]
    duration: Duration,
    /// What carries the messages: quic (the real transport), memory (plain frames) [default: quic
    /// up to 100 agents, else memory]
    #[arg(long, value_name = "TRANSPORT", value_parser = wiring)]
    transport: Option<Wiring>,
    /// A fault that replaces the profile's, such as `90secs+30secs crash agent-2`; may be given
    /// several times, or `none`
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    fault: Vec<OneFault>,
    /// Number of seeds to run, from `--seed` on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Run seeds from `--seed` on for this much real time; at least one seed
    #[arg(long, value_name = "DURATION", value_parser = flags::duration)]
    for_real: Option<Duration>,
    /// Number of threads that run seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// After a failure, number of runs to search for a shorter history
    #[arg(long, value_name = "N", default_value_t = 200)]
    shrink_runs: u32,
    /// Print one line of JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What `--fault` names: a fault, or none.
#[derive(Clone, Debug)]
struct OneFault(Option<Fault>);

fn fault(text: &str) -> Result<OneFault, String> {
    match text {
        NO_FAULT => Ok(OneFault(None)),
        text => Fault::from_str(text)
            .map(|fault| OneFault(Some(fault)))
            .map_err(|error| error.to_string()),
    }
}

fn profile(text: &str) -> Result<Profile, String> {
    let named = Profile::NAMES.iter().find(|(_, name)| *name == text);
    named.map(|(profile, _)| *profile).ok_or_else(|| {
        format!("`{text}` is not a profile: expected none, network, machines or all")
    })
}

fn masters(text: &str) -> Result<u32, String> {
    let count = text.parse().ok();
    count
        .filter(|count| (1..=MASTERS_MAX).contains(count) && count % 2 == 1)
        .ok_or_else(|| format!("expected an odd number of masters from 1 to {MASTERS_MAX}"))
}

fn wiring(text: &str) -> Result<Wiring, String> {
    let all = [Wiring::Quic, Wiring::Memory];
    let named = all.into_iter().find(|wiring| wiring.name() == text);
    named.ok_or_else(|| format!("`{text}` is not a transport: expected quic or memory"))
}

fn virtual_time(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(100 * 24 * 60 * 60);
    let time = flags::duration(text)?;
    match time {
        time if time < Duration::from_secs(1) || time > LONGEST => Err(format!(
            "`{text}` is out of range: expected 1secs to 100days"
        )),
        time => Ok(time),
    }
}

impl SimulateArgs {
    fn scenario(&self, seed: u64) -> Scenario {
        let by_size = match self.agents {
            agents if agents <= QUIC_AGENTS_MAX => Wiring::Quic,
            _ => Wiring::Memory,
        };
        let mut faults: Vec<Fault> = self.fault.iter().filter_map(|one| one.0.clone()).collect();
        faults.sort_by_key(|fault| fault.at);
        Scenario {
            seed,
            masters: self.masters,
            agents: self.agents,
            frameworks: self.frameworks,
            duration: self.duration,
            profile: self.faults,
            wiring: self.transport.unwrap_or(by_size),
            faults: (!self.fault.is_empty()).then_some(faults),
        }
    }

    /// Rejects faults that could never happen.
    fn check(&self) -> Outcome {
        let scenario = self.scenario(self.seed);
        for fault in scenario.faults.iter().flatten() {
            if fault.at >= self.duration {
                return Err(CliError::usage(format!(
                    "--fault is `{fault}`: expected it to begin within --for {}",
                    duration::format(self.duration)
                )));
            }
            for node in fault.kind.nodes() {
                if !scenario.knows(node) {
                    let masters = match self.masters {
                        1 => "master".to_owned(),
                        masters => format!("master-1 to master-{masters}"),
                    };
                    return Err(CliError::usage(format!(
                        "--fault is `{fault}`: there is no node `{node}`, expected {masters}, agent-1 to agent-{}, framework-1 to framework-{} or the standby of such a one",
                        self.agents, self.frameworks
                    )));
                }
            }
        }
        Ok(())
    }

    /// Number of seeds at most, and whether the user asked for more than one.
    fn seeds(&self) -> (u64, bool) {
        let many = self.seeds.is_some() || self.for_real.is_some();
        let unbounded = if many { u64::MAX } else { 1 };
        (self.seeds.unwrap_or(unbounded), many)
    }
}

/// Runs one scenario on this thread.
fn simulate(scenario: &Scenario) -> Run {
    caught(scenario, || simulator::run(scenario, checkers::all(), None))
}

/// A panic outside of all actors fails the seed like a violation, so that it is shrunk and
/// replayed.
fn caught(scenario: &Scenario, running: impl FnOnce() -> Run) -> Run {
    catch_unwind(AssertUnwindSafe(running)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let words = text.unwrap_or_else(|| "no message".to_owned());
        Run {
            hash: 0,
            tally: Tally::default(),
            faults: faults::plan(scenario),
            violation: Some(Violation {
                checker: "simulation",
                // The time of the panic is unknown.
                at: scenario.duration,
                what: format!("it panicked: {words}"),
            }),
            recent: Vec::new(),
        }
    })
}

/// Results of all seeds.
#[derive(Default)]
struct Results {
    ran: u64,
    tally: Tally,
    hash: u64,
    /// The failed run with the lowest seed.
    failed: Option<(Scenario, Run)>,
}

/// `meros-lab simulate`.
pub fn run(args: SimulateArgs) -> Outcome {
    args.check()?;
    huge::heap();
    let clock = Clock::real();
    let begin = clock.now();
    let results = run_all(&args, &clock, begin)?;
    let took = clock.now() - begin;
    if let Some((scenario, failed)) = results.failed {
        return Err(explain(&args, &scenario, failed));
    }
    let lacking = report::lacking(&args.scenario(args.seed), &results.tally);
    match args.json {
        true => out!("{}", as_json(&args, &results, took)),
        false => print(&args, &results, took),
    }
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(CliError::new(format!(
            "the simulation proves too little: 0 {} where the load and --faults {} should cause some",
            lacking.join(", 0 "),
            args.faults.name()
        ))
        .next("let it run longer with --for, or run more --seeds")),
    }
}

/// Runs the seeds, `jobs` of them in parallel. Stops after the first failure.
fn run_all(args: &SimulateArgs, clock: &Clock, begin: Instant) -> Outcome<Results> {
    let (count, _) = args.seeds();
    let time_is_up = || {
        args.for_real
            .is_some_and(|limit| clock.now() - begin >= limit)
    };
    let mut results = Results::default();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        let mut next = 0;
        let mut busy = 0;
        loop {
            while busy < u64::from(args.jobs)
                && next < count
                && results.failed.is_none()
                && (next == 0 || !time_is_up())
            {
                let scenario = args.scenario(args.seed.wrapping_add(next));
                let sender = sender.clone();
                let simulation = move || {
                    let run = simulate(&scenario);
                    let _ = sender.send((scenario, run)); // Closed after a failure.
                };
                std::thread::Builder::new()
                    .name("simulation".to_owned())
                    .spawn_scoped(threads, simulation)
                    .map_err(|error| CliError::because("cannot start a thread", &error))?;
                next += 1;
                busy += 1;
            }
            if busy == 0 {
                return Ok(results);
            }
            let Ok((scenario, run)) = receiver.recv() else {
                return Err(CliError::new("a simulation ended without a result"));
            };
            busy -= 1;
            results.take(scenario, run);
        }
    })
}

impl Results {
    fn take(&mut self, scenario: Scenario, run: Run) {
        self.ran += 1;
        self.tally.add(&run.tally);
        // Over several seeds: independent of the order in which they end.
        self.hash = match self.ran {
            1 => run.hash,
            _ => self.hash.wrapping_add(run.hash),
        };
        let lower = |(failed, _): &(Scenario, Run)| failed.seed <= scenario.seed;
        if run.violation.is_some() && !self.failed.as_ref().is_some_and(lower) {
            self.failed = Some((scenario, run));
        }
    }
}

/// Prints the details of a failure. Returns its last line.
fn explain(args: &SimulateArgs, scenario: &Scenario, failed: Run) -> CliError {
    let planned = failed.faults.len();
    let what = match &failed.violation {
        Some(violation) => format!("seed {}: {violation}", scenario.seed),
        None => String::new(),
    };
    meros::output::print::error_line(format_args!(
        "{what}\nlooking for a shorter history with at most {} more runs",
        args.shrink_runs
    ));
    match shrink(scenario, failed, args.shrink_runs, &mut simulate_apart) {
        Some(shrunk) => {
            for line in report::failure(&shrunk, planned) {
                out!("{line}");
            }
            CliError::new(format!("an invariant is broken: {what}"))
                .next(format!("replay: {}", report::command(&shrunk.scenario)))
        }
        None => CliError::new(what),
    }
}

/// On a thread of its own, which every run needs.
fn simulate_apart(scenario: &Scenario) -> Run {
    std::thread::scope(|threads| {
        let simulation = threads.spawn(|| simulate(scenario));
        caught(scenario, || match simulation.join() {
            Ok(run) => run,
            Err(panic) => resume_unwind(panic),
        })
    })
}

fn print(args: &SimulateArgs, results: &Results, took: Duration) {
    let scenario = args.scenario(args.seed);
    out!(
        "{}{} agents and {} frameworks over {}, faults: {}",
        match scenario.masters {
            1 => String::new(),
            masters => format!("{masters} masters, "),
        },
        scenario.agents,
        scenario.frameworks,
        scenario.wiring.name(),
        match scenario.faults {
            Some(_) => "chosen by hand",
            None => scenario.profile.name(),
        }
    );
    for (name, text) in report::summary(&results.tally) {
        out!("{name:<13} {text}");
    }
    let (_, many) = args.seeds();
    if many {
        let last = args.seed.wrapping_add(results.ran - 1);
        out!(
            "seeds         {} ran, {} to {last}, none failed, in {:.1} s",
            results.ran,
            args.seed,
            took.as_secs_f64()
        );
    }
    out!("hash          {:016x}", results.hash);
}

fn as_json(args: &SimulateArgs, results: &Results, took: Duration) -> Value {
    let scenario = args.scenario(args.seed);
    let tally = &results.tally;
    json!({
        "seed": args.seed,
        "seeds": results.ran,
        "masters": scenario.masters,
        "agents": scenario.agents,
        "frameworks": scenario.frameworks,
        "faults": scenario.profile.name(),
        "transport": scenario.wiring.name(),
        "for_secs": scenario.duration.as_secs_f64(),
        "virtual_secs": tally.virtual_time.as_secs_f64(),
        "real_secs": took.as_secs_f64(),
        "events": tally.events,
        "messages_said": tally.said,
        "messages_heard": tally.heard,
        "registrations": tally.registrations,
        "offers": tally.offers,
        "launches": tally.launches,
        "revocable_launches": tally.revocable,
        "processes": tally.processes,
        "executors_killed": tally.executors_killed,
        "conversions": tally.conversions,
        "operations": tally.operations,
        "agents_fallen": tally.agents_fallen,
        "containers_back": tally.containers_back,
        "corrections": tally.corrections,
        "revocations": tally.revocations,
        "ends": tally.task_ends,
        "snapshots": tally.snapshots,
        "failovers": tally.failovers,
        "crashes": tally.crashes,
        "restarts": tally.restarts,
        "packets_lost": tally.lost,
        "packets_repeated": tally.duplicated,
        "packets_delayed": tally.delayed,
        "links_broken": tally.broken_links,
        "disk_failures": tally.disk_failures,
        "faults_begun": tally.faults,
        "checks": tally.judgements,
        "hash": format!("{:016x}", results.hash),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use simulator::FaultKind;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SimulateArgs,
    }

    fn parsed(line: &str) -> Result<SimulateArgs, String> {
        let words = ["simulate"].into_iter().chain(line.split_terminator('|'));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.args.check().map_err(|failure| failure.to_string())?;
        Ok(line.args)
    }

    #[test]
    fn the_replay_command_means_the_same_scenario() {
        let line = "--seed|7|--masters|3|--agents|3|--frameworks|1|--for|90secs|--transport|memory|--fault|20secs+5secs crash_at leader write 3|--fault|1secs+5secs one_way agent-3 framework-1";
        let scenario = parsed(line).unwrap().scenario(7);
        assert_eq!(scenario.faults.as_ref().map(Vec::len), Some(2));
        let command = report::command(&scenario);
        let replay = command.strip_prefix("meros-lab simulate ").unwrap();
        // As a shell would split it.
        let quoted = replay.split('\'').enumerate();
        let words: Vec<String> = quoted
            .flat_map(|(number, part)| match number % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect();
        let again = parsed(&words.join("|")).unwrap();
        assert_eq!(again.scenario(again.seed), scenario);
        let none = parsed("--fault|none").unwrap().scenario(1);
        assert_eq!(none.faults, Some(Vec::new()));
        assert!(report::command(&none).ends_with("--fault 'none'"));
    }

    #[test]
    fn group_of_masters_is_odd_and_bounded() {
        for masters in [1, 3, 5, 7, 9] {
            let args = parsed(&format!("--masters|{masters}")).unwrap();
            assert_eq!(args.masters, masters);
        }
        for masters in ["0", "2", "11", "-1", "many", ""] {
            let error = parsed(&format!("--masters={masters}|--seed|1")).unwrap_err();
            for wanted in [
                "--masters",
                masters,
                "expected an odd number of masters from 1 to 9",
            ] {
                assert!(error.contains(wanted), "no `{wanted}` in: {error}");
            }
        }
    }

    /// A simulation that panics after a crash.
    #[test]
    fn panicking_run_is_shrunk_to_its_cause() {
        let scenario = parsed("--seed|3|--agents|3|--faults|all")
            .unwrap()
            .scenario(3);
        let mut run = |scenario: &Scenario| {
            let faults = faults::plan(scenario);
            caught(scenario, || {
                let crashes = |fault: &Fault| matches!(fault.kind, FaultKind::Crash { .. });
                assert!(!faults.iter().any(crashes), "over a crash");
                Run {
                    hash: 0,
                    tally: Tally::default(),
                    faults: faults.clone(),
                    violation: None,
                    recent: Vec::new(),
                }
            })
        };
        let failed = run(&scenario);
        let shrunk = shrink(&scenario, failed, 200, &mut run).unwrap();
        assert_eq!(shrunk.run.faults.len(), 1, "{:?}", shrunk.run.faults);
        let violation = shrunk.run.violation.unwrap();
        assert_eq!(violation.what, "it panicked: over a crash");
    }

    #[test]
    fn only_small_clusters_use_quic() {
        let wiring = |line: &str| parsed(line).unwrap().scenario(1).wiring;
        assert_eq!(wiring("--agents|100"), Wiring::Quic);
        assert_eq!(wiring("--agents|101"), Wiring::Memory);
        assert_eq!(wiring("--agents|101|--transport|quic"), Wiring::Quic);
    }

    #[test]
    fn wrong_flag_names_value_and_expectation() {
        for (line, words) in [
            ("--faults|some", "none, network, machines or all"),
            ("--masters|2", "odd number of masters from 1 to 9"),
            (
                "--masters|3|--fault|1secs+1secs crash master",
                "master-1 to master-3",
            ),
            ("--transport|tcp", "quic or memory"),
            ("--for|0secs", "1secs to 100days"),
            ("--for|soon", "`soon`"),
            ("--fault|10secs+1secs crash agent-11", "no node `agent-11`"),
            ("--fault|10secs+1secs melt agent-1", "melt"),
            (
                "--for|5secs|--fault|10secs+1secs crash agent-1",
                "--for 5secs",
            ),
            ("--seeds|0", "0"),
            ("--agents|lots", "lots"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn failure_of_the_lowest_seed_counts() {
        let args = parsed("--seeds|3").unwrap();
        let violation = simulator::Violation {
            checker: "offers",
            at: Duration::ZERO,
            what: String::new(),
        };
        let mut results = Results::default();
        for (seed, broken) in [(3, true), (1, false), (2, true)] {
            let scenario = args.scenario(seed);
            let run = Run {
                hash: seed,
                tally: Tally::default(),
                faults: Vec::new(),
                violation: broken.then(|| violation.clone()),
                recent: Vec::new(),
            };
            results.take(scenario, run);
        }
        assert_eq!(results.failed.unwrap().0.seed, 2);
        assert_eq!((results.ran, results.hash), (3, 6));
    }
}
