//! `meros bench fairness`: how near the allocator comes to exact dominant resource fairness while tasks come and go.
//!
//! Books and sorter in virtual time (see [`modules::workload::turnover`]): the same flags give the same figures on every machine. Draws the
//! shares over time, if asked for.

mod plot;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use modules::workload::turnover::{Moment, Plan, play};
use serde_json::json;

use super::{Figure, OutputFlags, report};
use crate::failure::{Failure, Outcome};

/// The parts of the time in which shares have settled: before the late ones come, and at the end.
const SETTLED: [std::ops::Range<f64>; 2] = [0.25..0.5, 0.75..1.0];

/// How near shares come to the exact ones
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub struct FairnessArgs {
    /// How many agents
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    agents: u32,
    /// How many frameworks, of which every fourth comes when half of the time is over
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(4..=1_000))]
    frameworks: u32,
    /// How many seconds a task takes on average
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    task_seconds: u64,
    /// How many seconds are played
    #[arg(long, default_value_t = 2_400, value_parser = clap::value_parser!(u64).range(100..=86_400))]
    seconds: u64,
    /// All chance comes from it
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Draw the shares over time into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
}

impl FairnessArgs {
    fn plan(&self) -> Plan {
        let late = self.frameworks / 4;
        Plan {
            agents: self.agents,
            first: self.frameworks - late,
            late,
            task: Duration::from_secs(self.task_seconds),
            lasts: Duration::from_secs(self.seconds),
        }
    }
}

/// `meros bench fairness`.
pub fn run(args: FairnessArgs) -> Outcome {
    let plan = args.plan();
    let moments = play(&plan, args.seed);
    if let Some(path) = &args.plot {
        let drawn = plot::svg(&moments, plan.first as usize);
        std::fs::write(path, drawn).map_err(|error| {
            Failure::because(
                format!("--plot `{}` cannot be written", path.display()),
                &error,
            )
        })?;
    }
    let parameters = json!({
        "agents": args.agents, "frameworks": args.frameworks, "late": plan.late,
        "task_seconds": args.task_seconds, "seconds": args.seconds, "seed": args.seed,
    });
    let settled: Vec<&Moment> = SETTLED
        .iter()
        .flat_map(|part| {
            let place = |part: f64| (moments.len() as f64 * part) as usize;
            &moments[place(part.start)..place(part.end)]
        })
        .collect();
    let mean = |of: fn(&Moment) -> f64| {
        let sum: f64 = settled.iter().map(|moment| of(moment)).sum();
        100.0 * sum / settled.len() as f64
    };
    let waited = waited(&moments, &plan);
    let share = 1.0 / f64::from(args.frameworks);
    report(
        &[
            Figure {
                bench: "drf_deviation",
                figure: mean(Moment::deviation),
                unit: "%",
                limit: mean(|moment| moment.grain),
                limit_is: "half a task of each framework: as near as whole tasks come",
                parameters: parameters.clone(),
            },
            Figure {
                bench: "drf_late",
                figure: waited.as_secs_f64(),
                unit: "s",
                limit: f64::from(plan.late) * share * args.task_seconds as f64,
                limit_is: "the part of a task's time that the late ones' shares are of all",
                parameters,
            },
        ],
        args.output,
    );
    Ok(())
}

/// How long the late ones wait until they have nine tenths of what they should, on average.
fn waited(moments: &[Moment], plan: &Plan) -> Duration {
    let first = plan.first as usize;
    let mut late = moments.iter().filter(|moment| moment.shares.len() > first);
    let came = late.clone().next().map(|moment| moment.at);
    let has = late.find(|moment| {
        let shares = &moment.shares[first..];
        shares.iter().sum::<f64>() >= 0.9 * moment.exact * shares.len() as f64
    });
    let has = has.map_or(plan.lasts, |moment| moment.at);
    has.saturating_sub(came.unwrap_or_default())
}
