//! The verb `day`: oversubscription in a cluster over a made day.
//!
//! Each agent is judged as by [`replay`](crate::replay), with a trace that is made of the seed:
//!
//! | part of an agent of 16 CPUs | use |
//! |---|---|
//! | two to five services | a wave over the day, with its peak at 14:00, two hours sooner or later; at night 10 to 50 % of the peak; deviations of a few percent that last about ten minutes |
//! | the allocation of a service | its peak and a reserve of 20 to 100 % of it |
//! | surges | once a day on average, a service uses its whole allocation for ten minutes |
//! | on every third agent, one batch job | all of its allocation, from some time in the night for one to five hours |
//!
//! The rest of an agent is not allocated. Best-effort work uses all that is lent.

use std::f64::consts::TAU;
use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use meros::out;
use meros::output::error::{CliError, Outcome};
use module_api::ModuleError;
use modules::resource_estimator::Noop;
use protocol::{
    ContainerId, ExecutorId, ExecutorUsage, FrameworkId, ResourceStatistics, ResourceUsage,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use resources::Resources;
use runtime::Timestamp;

use crate::replay::{Judgement, Trace, controller, estimator, judge, parameters};

const CPUS: f64 = 16.0;
const HOURS: f64 = 24.0;
/// Seconds of a surge, and of the decay of deviations.
const TEN_MINUTES: f64 = 600.0;

/// Judge oversubscription in a cluster over a made day
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct DayArgs {
    /// Number of agents
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    agents: u32,
    /// Seed of the traces
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds between two measurements
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval: u32,
    /// Resource estimator, as of `meros-lab replay`
    #[arg(long, value_name = "NAME", default_value = "usage_slack")]
    estimator: String,
    /// QoS controller, as of `meros-lab replay`
    #[arg(long, value_name = "NAME", default_value = "pressure")]
    qos: String,
    /// Draw used and lent CPUs over the day into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A container of the made day.
enum Work {
    Service {
        peak: f64,
        /// Part of the peak that is used at night.
        night: f64,
        /// Hour of the peak.
        at: f64,
        /// Present deviation, a part of the peak.
        deviation: f64,
        /// Seconds that are left of a surge.
        surge: f64,
    },
    Batch {
        /// Hours.
        from: f64,
        until: f64,
    },
}

struct Container {
    id: ContainerId,
    allocated: f64,
    work: Work,
    cpu_secs: f64,
}

impl Container {
    /// CPUs in use in the interval of these seconds that begins at this hour.
    fn use_at(&mut self, hour: f64, seconds: f64, dice: &mut StdRng) -> f64 {
        match &mut self.work {
            Work::Service {
                peak,
                night,
                at,
                deviation,
                surge,
            } => {
                *surge -= seconds;
                if dice.random_bool((seconds / (HOURS * 3600.0)).min(1.0)) {
                    *surge = TEN_MINUTES;
                }
                if *surge > 0.0 {
                    return self.allocated;
                }
                let kept = (-seconds / TEN_MINUTES).exp();
                let fresh = (1.0 - kept * kept).sqrt() * 0.05;
                // Of variance one.
                *deviation = *deviation * kept + fresh * dice.random_range(-1.73..1.73);
                let wave = 0.5 + 0.5 * (TAU * (hour - *at) / HOURS).cos();
                let cpus = *peak * (*night + (1.0 - *night) * wave + *deviation);
                cpus.clamp(0.0, self.allocated)
            }
            Work::Batch { from, until } => match (*from..*until).contains(&hour) {
                true => self.allocated,
                false => 0.0,
            },
        }
    }
}

/// The containers of an agent.
fn containers(dice: &mut StdRng, number: u32) -> Option<Vec<Container>> {
    let mut free = CPUS;
    let mut all = Vec::new();
    let mut add = |allocated: f64, work| {
        // As resources are rounded.
        let allocated = (allocated.min(free) * 1000.0).floor() / 1000.0;
        free -= allocated;
        let id = ContainerId::new(format!("c{}", all.len())).ok()?;
        all.push(Container {
            id,
            allocated,
            work,
            cpu_secs: 0.0,
        });
        Some(())
    };
    if number.is_multiple_of(3) {
        let from = dice.random_range(0.0..4.0);
        let until = from + dice.random_range(1.0..5.0);
        add(2.0, Work::Batch { from, until })?;
    }
    for _ in 0..dice.random_range(2..=5) {
        let peak = dice.random_range(0.5..3.0);
        let work = Work::Service {
            peak,
            night: dice.random_range(0.1..0.5),
            at: 14.0 + dice.random_range(-2.0..2.0),
            deviation: 0.0,
            surge: 0.0,
        };
        add(peak * dice.random_range(1.2..2.0), work)?;
    }
    Some(all)
}

/// The trace of an agent over a day; `None` if a name is invalid, which none is.
fn trace(seed: u64, number: u32, interval: u32) -> Option<Trace> {
    let mut dice = StdRng::seed_from_u64(seed ^ (u64::from(number) << 32));
    let mut all = containers(&mut dice, number)?;
    let total = Resources::parse(&format!("cpus:{CPUS}")).ok()?;
    let (framework_id, executor_id) = (FrameworkId::new("day").ok()?, ExecutorId::new("e").ok()?);
    let allocated: Option<Vec<Resources>> = { all.iter() }
        .map(|one| Resources::parse(&format!("cpus:{:.3}", one.allocated)).ok())
        .collect();
    let allocated = allocated?;
    let seconds = f64::from(interval);
    let steps = (HOURS * 3600.0 / seconds) as u32;
    let measure = |step| {
        let hour = f64::from(step) * seconds / 3600.0;
        let at = Timestamp::from_nanos(u64::from(step) * u64::from(interval) * 1_000_000_000);
        let usage = |(one, allocated): (&mut Container, &Resources)| {
            if step > 0 {
                one.cpu_secs += one.use_at(hour, seconds, &mut dice) * seconds;
            }
            ExecutorUsage {
                framework_id: framework_id.clone(),
                executor_id: executor_id.clone(),
                executor_name: String::new(),
                objectives: Vec::new(),
                is_command: false,
                container_id: one.id.clone(),
                allocated: allocated.clone(),
                tasks: Vec::new(),
                statistics: Some(ResourceStatistics {
                    timestamp: at,
                    cpus_user_time_secs: one.cpu_secs,
                    ..ResourceStatistics::default()
                }),
                throttle: Default::default(),
            }
        };
        let executors = all.iter_mut().zip(&allocated).map(usage).collect();
        let total = total.clone();
        (at, ResourceUsage { total, executors })
    };
    Some((0..=steps).map(measure).collect())
}

/// The sums of all agents.
#[derive(Clone, Default)]
struct Sums {
    chosen: Judgement,
    oracle: Judgement,
    off: Judgement,
}

/// Judges one agent.
fn judge_agent(args: &DayArgs, number: u32) -> Result<Sums, ModuleError> {
    let trace = trace(args.seed, number, args.interval).unwrap_or_default();
    let chosen = estimator(&parameters(&args.estimator, &[]))?;
    let qos = controller(&parameters(&args.qos, &[]))?;
    Ok(Sums {
        chosen: judge(&trace, Some(chosen), qos),
        oracle: judge(&trace, None, None),
        off: judge(&trace, Some(Box::new(Noop)), None),
    })
}

/// `meros-lab day`.
pub fn run(args: DayArgs) -> Outcome {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let part = |first: u32| {
        let numbers = (first..args.agents).step_by(threads as usize);
        numbers.map(|number| judge_agent(&args, number)).try_fold(
            Sums::default(),
            |mut sums, one| {
                let one = one?;
                sums.chosen.add(&one.chosen);
                sums.oracle.add(&one.oracle);
                sums.off.add(&one.off);
                Ok(sums)
            },
        )
    };
    let parts: Vec<Result<Sums, ModuleError>> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || part(first)))
            .collect();
        let joined = started.into_iter().map(|thread| thread.join());
        joined
            .map(|joined| joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut sums = Sums::default();
    for part in parts {
        let part = part.map_err(|error| CliError::because("cannot judge", &error))?;
        sums.chosen.add(&part.chosen);
        sums.oracle.add(&part.oracle);
        sums.off.add(&part.off);
    }
    for line in table(&args, &sums).lines() {
        out!("{line}");
    }
    if let Some(path) = &args.svg {
        let name = path.display();
        std::fs::write(path, svg(&sums.chosen.curve))
            .map_err(|error| CliError::because(format!("cannot write {name}"), &error))?;
    }
    Ok(())
}

fn table(args: &DayArgs, sums: &Sums) -> String {
    let mut text = format!(
        "{} agents over a day, {} with the QoS controller {}\n{:12} {:>12} {:>10} {:>12} {:>10} {:>8} {:>24}\n",
        args.agents,
        args.estimator,
        args.qos,
        "",
        "utilization",
        "lent h",
        "throttled h",
        "regretted",
        "evicted",
        "evicted per lent 1000 h"
    );
    let rows = [
        ("off", &sums.off),
        ("on", &sums.chosen),
        ("oracle", &sums.oracle),
    ];
    for (name, row) in rows {
        let work = row.lent - row.throttled - row.regretted;
        let percent = |part: f64, of: f64| if of > 0.0 { 100.0 * part / of } else { 0.0 };
        let lent_hours = row.lent / 3600.0;
        let rate = if lent_hours > 0.0 {
            1000.0 * f64::from(row.evicted) / lent_hours
        } else {
            0.0
        };
        _ = writeln!(
            text,
            "{name:12} {:>10.1} % {lent_hours:>10.0} {:>12.0} {:>8.2} % {:>8} {rate:>24.2}",
            percent(row.used + work, row.capacity),
            row.throttled / 3600.0,
            percent(row.regretted, row.lent),
            row.evicted,
        );
    }
    text
}

/// Used CPUs of regular tasks (grey), and lent ones (blue) on top of them, over the day.
fn svg(curve: &[(f64, f64)]) -> String {
    const WIDTH: f64 = 1000.0;
    const HEIGHT: f64 = 300.0;
    let capacity = curve.iter().map(|(idle, _)| *idle).fold(1.0, f64::max);
    let area = |color: &str, from: fn(&(f64, f64), f64) -> f64| {
        let step = WIDTH / curve.len().max(1) as f64;
        let mut points = format!("0,{HEIGHT} ");
        for (index, point) in curve.iter().enumerate() {
            let y = HEIGHT * (1.0 - from(point, capacity) / capacity);
            _ = write!(points, "{:.1},{y:.1} ", index as f64 * step);
        }
        format!("<polygon fill=\"{color}\" points=\"{points}{WIDTH},{HEIGHT}\"/>\n")
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">\n{}{}</svg>\n",
        area("#6ad", |(idle, lent), capacity| capacity - idle
            + lent.min(*idle)),
        area("#888", |(idle, _), capacity| capacity - idle)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(estimator: &str) -> DayArgs {
        DayArgs {
            agents: 6,
            seed: 7,
            interval: 300,
            estimator: estimator.to_owned(),
            qos: "pressure".to_owned(),
            svg: None,
        }
    }

    #[test]
    fn day_is_that_of_the_seed_and_agents_differ() {
        let uses = |seed, number| {
            let last = trace(seed, number, 3600).unwrap().pop().unwrap().1;
            let statistics = last.executors.into_iter().filter_map(|one| one.statistics);
            statistics
                .map(|one| one.cpus_user_time_secs)
                .collect::<Vec<f64>>()
        };
        assert_eq!(uses(1, 0), uses(1, 0));
        assert_ne!(uses(1, 0), uses(1, 1));
        assert_ne!(uses(1, 0), uses(2, 0));
    }

    #[test]
    fn lending_raises_the_utilization_below_that_of_the_oracle() {
        for number in 0..6 {
            let one = judge_agent(&args("usage_slack"), number).unwrap();
            let used = |of: &Judgement| of.used + of.lent - of.throttled - of.regretted;
            assert_eq!((one.off.lent, one.off.used), (0.0, one.chosen.used));
            assert!(used(&one.off) < used(&one.chosen), "{number}");
            assert!(used(&one.chosen) < used(&one.oracle), "{number}");
            assert!((used(&one.oracle) / one.oracle.capacity - 1.0).abs() < 1e-9);
        }
        assert!(judge_agent(&args("slack"), 0).is_err());
    }

    #[test]
    fn picture_has_the_use_below_what_is_lent() {
        let drawn = svg(&[(8.0, 4.0), (4.0, 8.0)]);
        assert!(
            drawn.contains("#6ad\" points=\"0,300 0.0,150.0 500.0,0.0 "),
            "{drawn}"
        );
        assert!(
            drawn.contains("#888\" points=\"0,300 0.0,300.0 500.0,150.0 "),
            "{drawn}"
        );
    }
}
