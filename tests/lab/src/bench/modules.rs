//! `meros-lab bench modules`: a question to a foreign module, beside the same to one that is linked
//! in.
//!
//! Both are estimators that lend a constant. A question is what an agent asks: the monitor's answer,
//! which is at hand here, and then the module's. The foreign one is another process of this program
//! on the same host.

use std::process::ExitCode;

use clap::Args;
use meros::on_this_thread;
use module_api::serve::{Modules, Revocable};
use module_api::{CurrentUsage, ForeignModule, Parameters, ResourceEstimatorRef, UsageUnavailable};
use modules::foreign::{self, Starter};
use protocol::usage::{ExecutorUsage, ResourceStatistics, ResourceUsage, Throttle};
use protocol::{ContainerId, ExecutorId, FrameworkId, TaskId};
use resources::Resources;
use runtime::Clock;
use runtime::prelude::*;
use serde_json::json;

use super::{Figure, OutputFlags, Result, Times, cores, rounded};

/// The hidden verb of the module's process.
pub const MODULE: &str = "bench-module";
const NAME: &str = "constant";
const LENT: &str = "cpus:14";

/// Time of a question to a foreign module
#[derive(Args, Clone, Copy, Debug)]
#[command(rename_all = "snake_case")]
pub struct ModulesArgs {
    /// Questions to each
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    questions: u32,
    /// Executors in the usage that is asked about
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    executors: u16,
    #[command(flatten)]
    output: OutputFlags,
}

/// The `main` of the module's process.
pub fn serve() -> ExitCode {
    let lent = Resources::parse(LENT).unwrap_or_default();
    let lent = lent
        .to_revocable(Revocable::Throttleable)
        .unwrap_or_default();
    let module = Modules::new(env!("CARGO_PKG_VERSION"));
    let module = module.resource_estimator(NAME, move |_| {
        let lent = lent.clone();
        Ok(move |_: &ResourceUsage| lent.clone())
    });
    module.run()
}

struct Monitor(ResourceUsage);

impl Actor for Monitor {
    type Context = Context<Self>;
}

impl Process for Monitor {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<CurrentUsage>();
    }
}

impl Handler<CurrentUsage> for Monitor {
    type Result = std::result::Result<ResourceUsage, UsageUnavailable>;

    fn handle(&mut self, _: CurrentUsage, _: &mut Context<Self>) -> Self::Result {
        Ok(self.0.clone())
    }
}

fn usage(executors: u16) -> Result<ResourceUsage> {
    let one = |number| {
        Ok(ExecutorUsage {
            framework_id: FrameworkId::new("b9c6f2a4-framework-0001")?,
            executor_id: ExecutorId::new(format!("executor-{number}"))?,
            executor_name: "bench".to_owned(),
            is_command: true,
            container_id: ContainerId::new(format!("3f8a9b5e-container-{number}"))?,
            allocated: Resources::parse("cpus:2;mem:1024")?,
            tasks: vec![TaskId::new(format!("task-{number}"))?],
            statistics: Some(ResourceStatistics {
                cpus_user_time_secs: f64::from(number),
                mem_rss_bytes: 1 << 29,
                mem_total_bytes: Some(1 << 30),
                ..ResourceStatistics::default()
            }),
            throttle: Throttle::default(),
            objectives: Vec::new(),
        })
    };
    Ok(ResourceUsage {
        total: Resources::parse("cpus:64;mem:262144")?,
        executors: (0..executors).map(one).collect::<Result<_>>()?,
    })
}

async fn measure(estimator: &ResourceEstimatorRef, questions: u32) -> Result<Times> {
    let (clock, mut times) = (Clock::real(), Times::new()?);
    for _ in 0..questions {
        let asked = clock.now();
        let lent = estimator.oversubscribable().await?;
        times.record(clock.now() - asked)?;
        if lent.cpus().as_f64() != 14.0 {
            return Err(format!("the module lends `{lent}`, expected `{LENT}`").into());
        }
    }
    Ok(times)
}

/// Asks the foreign module and then the one that is linked in.
async fn ask_both(args: ModulesArgs) -> Result<[Times; 2]> {
    let starter = Starter {
        program: std::env::current_exe()?,
        arguments: vec![MODULE.to_owned()],
    };
    let mut registry = modules::registry();
    let module = ForeignModule {
        name: NAME.to_owned(),
        program: starter.program.clone(),
    };
    foreign::register(&mut registry, vec![module], Some(&starter));
    let mut measured = [Times::new()?, Times::new()?];
    let fixed = Parameters::none("fixed").with("resources", LENT);
    for (times, given) in measured.iter_mut().zip([Parameters::none(NAME), fixed]) {
        let node = Node::builder("bench").accepts(&[Role::Agent]).build();
        let monitor = node.spawn("monitor", Monitor(usage(args.executors)?))?;
        let estimator = registry.resource_estimator(&node, given.module(), &given)?;
        estimator.initialize(monitor.refer()).await?;
        // The first waits for the process.
        estimator.oversubscribable().await?;
        *times = measure(&estimator, args.questions).await?;
        node.shutdown().await;
    }
    Ok(measured)
}

/// `meros-lab bench modules`, all on this thread except the module's process.
pub fn run(args: &ModulesArgs) -> Result {
    let args = *args;
    let [foreign, linked] = on_this_thread(ask_both(args))??;
    let us = |times: &Times, quantile| times.ms(quantile) * 1e3;
    let figure = Figure::new("foreign_module", us(&foreign, 0.5), "us, p50")
        .beside(us(&linked, 0.5), "the same to a module that is linked in")
        .with(json!({
            "questions": args.questions, "executors": args.executors, "cores": cores(),
            "p99": rounded(us(&foreign, 0.99)), "p99_limit": rounded(us(&linked, 0.99)),
        }));
    args.output.report(&[figure]);
    Ok(())
}
