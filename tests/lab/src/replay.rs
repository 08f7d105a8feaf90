//! The verb `replay`: judges estimators and QoS controllers by a recorded usage trace.
//!
//! A model, not a measurement: regular containers use CPUs as recorded, and best-effort work uses
//! all that is lent. Best-effort use beyond the CPUs that were idle in the same interval is
//! regretted; regular containers wait for as much, which is the pressure that the controller sees,
//! and lengthens latencies and slows progress.
//! Memory is not replayed. The oracle lends exactly the idle CPUs of the coming interval.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use agent::oversubscription::trace;
use clap::Args;
use meros::out;
use meros::output::error::{CliError, Outcome};
use module_api::{ModuleError, ModuleKind, Parameters};
use modules::qos_controller::{
    PressurePolicy, PressureSettings, QosPolicy, SlaPolicy, SlaSettings,
};
use modules::resource_estimator::{
    AllocationSlack, EstimatorPolicy, Fixed, Noop, PressureAwarePlan, SlackSettings, UsageSlack,
};
use modules::usage_history::UsageHistory;
use modules::usage_history::pressure::PressureSource;
use protocol::usage::{Objective, Pressure, Throttle};
use protocol::{
    ContainerId, ExecutorId, ExecutorUsage, FrameworkId, QosCorrection, ResourceStatistics,
    ResourceUsage,
};
use resources::{Resources, Revocable};
use runtime::{Instant, Timestamp};

/// Judge estimators and QoS controllers by a trace of `meros agent --record_usage`
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ReplayArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Resource estimator: noop, fixed, usage_slack, allocation_slack, pressure_aware
    #[arg(long, value_name = "NAME", default_value = "usage_slack")]
    estimator: String,
    /// A parameter of the estimator; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    estimator_parameter: Vec<(String, String)>,
    /// QoS controller: noop, pressure, sla
    #[arg(long, value_name = "NAME", default_value = "noop")]
    qos: String,
    /// A parameter of the QoS controller; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    qos_parameter: Vec<(String, String)>,
    /// Draw idle and lent CPUs over time into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

pub fn parameters(module: &str, given: &[(String, String)]) -> Parameters {
    let none = Parameters::none(module);
    let with = |all: Parameters, (key, value): &(String, String)| all.with(key, value);
    given.iter().fold(none, with)
}

pub type Estimator = Box<dyn EstimatorPolicy>;
pub type Controller = Box<dyn QosPolicy>;

/// Recorded traces have no pressure of the machine.
fn no_pressure() -> PressureSource {
    Box::new(|| None)
}

pub fn estimator(given: &Parameters) -> Result<Estimator, ModuleError> {
    Ok(match given.module() {
        "noop" => Box::new(Noop),
        "fixed" => Box::new(Fixed::from_parameters(given)?),
        "allocation_slack" => Box::new(AllocationSlack::from_parameters(given)?),
        "pressure_aware" => {
            Box::new(PressureAwarePlan::from_parameters(given)?.estimator(no_pressure()))
        }
        "usage_slack" => Box::new(UsageSlack::new(SlackSettings::from_parameters(given)?)),
        name => return Err(unknown(ModuleKind::ResourceEstimator, name)),
    })
}

pub fn controller(given: &Parameters) -> Result<Option<Controller>, ModuleError> {
    Ok(match given.module() {
        "noop" => None,
        "sla" => Some(Box::new(SlaPolicy::new(SlaSettings::from_parameters(
            given,
        )?))),
        "pressure" => {
            let settings = PressureSettings::from_parameters(given)?;
            Some(Box::new(PressurePolicy::new(settings, no_pressure())))
        }
        name => return Err(unknown(ModuleKind::QosController, name)),
    })
}

fn unknown(kind: ModuleKind, name: &str) -> ModuleError {
    ModuleError::Unknown {
        kind,
        name: name.to_owned(),
        known: match kind {
            ModuleKind::QosController => "noop, pressure, sla",
            _ => "noop, fixed, usage_slack, allocation_slack, pressure_aware",
        }
        .to_owned(),
    }
}

pub type Trace = Vec<(Timestamp, ResourceUsage)>;

/// The result of one replay, in CPU seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// All that the agent has, and the use of its regular containers.
    pub capacity: f64,
    pub used: f64,
    /// What was lent; of it, what was throttled, and what was used although it was not idle.
    pub lent: f64,
    pub throttled: f64,
    pub regretted: f64,
    /// Number of evictions.
    pub evicted: u32,
    /// Idle CPUs and lent ones, of each interval.
    pub curve: Vec<(f64, f64)>,
}

impl Judgement {
    /// Adds that of another agent over the same time.
    pub fn add(&mut self, other: &Self) {
        self.capacity += other.capacity;
        self.used += other.used;
        self.lent += other.lent;
        self.throttled += other.throttled;
        self.regretted += other.regretted;
        self.evicted += other.evicted;
        let lengths = self.curve.len().max(other.curve.len());
        self.curve.resize(lengths, (0.0, 0.0));
        for (sum, more) in self.curve.iter_mut().zip(&other.curve) {
            (sum.0, sum.1) = (sum.0 + more.0, sum.1 + more.1);
        }
    }
}

/// The best-effort work of the model.
struct BestEffort {
    cpus: f64,
    throttle: Throttle,
    cpu_secs: f64,
}

impl BestEffort {
    fn used(&self) -> f64 {
        let degree = self.throttle.cpu.unwrap_or(Throttle::WHOLE);
        self.cpus * f64::from(degree) / f64::from(Throttle::WHOLE)
    }

    fn usage(&self, at: Timestamp) -> Option<ExecutorUsage> {
        let lent = Resources::parse(&format!("cpus:{:.3}", self.cpus)).ok()?;
        Some(ExecutorUsage {
            framework_id: FrameworkId::new("replay").ok()?,
            executor_id: ExecutorId::new("best-effort").ok()?,
            executor_name: String::new(),
            is_command: false,
            container_id: ContainerId::new("best-effort").ok()?,
            allocated: lent.to_revocable(Revocable::Throttleable).ok()?,
            tasks: Vec::new(),
            statistics: Some(ResourceStatistics {
                timestamp: at,
                cpus_user_time_secs: self.cpu_secs,
                ..ResourceStatistics::default()
            }),
            throttle: self.throttle,
            objectives: Vec::new(),
        })
    }
}

/// Replays a trace. Without an estimator the oracle lends.
pub fn judge(
    trace: &Trace,
    mut estimator: Option<Estimator>,
    mut controller: Option<Controller>,
) -> Judgement {
    let mut judgement = Judgement::default();
    let mut history = UsageHistory::default();
    let mut work = BestEffort {
        cpus: 0.0,
        throttle: Throttle::default(),
        cpu_secs: 0.0,
    };
    // Seconds that regular containers have waited because of the model's best-effort work.
    let mut waited = 0.0;
    // The part of the last interval.
    let mut waiting: f64 = 0.0;
    let mut before: Option<Timestamp> = None;
    let mut clock = Instant::default();
    for (at, recorded) in trace {
        let mut usage = recorded.clone();
        usage.executors.retain(|one| !one.is_revocable());
        let used: f64 = history.advance(&usage).values().map(|one| one.cpus).sum();
        let elapsed = before.map_or(Duration::ZERO, |before| at.saturating_since(before));
        before = Some(*at);
        clock = clock + elapsed;
        let seconds = elapsed.as_secs_f64();
        let idle = (usage.total.cpus().as_f64() - used).max(0.0);
        if estimator.is_none() {
            work.cpus = idle;
        }
        let best_effort = work.used();
        let regretted = (best_effort - idle).max(0.0);
        if !elapsed.is_zero() {
            judgement.capacity += usage.total.cpus().as_f64() * seconds;
            judgement.used += used * seconds;
            judgement.lent += work.cpus * seconds;
            judgement.throttled += (work.cpus - best_effort) * seconds;
            judgement.regretted += regretted * seconds;
            judgement.curve.push((idle, work.cpus));
            work.cpu_secs += best_effort * seconds;
            waiting = regretted / (used + best_effort).max(1e-9);
            waited += waiting * seconds;
        }
        for one in usage
            .executors
            .iter_mut()
            .flat_map(|one| &mut one.objectives)
        {
            // It runs in the other part of the time.
            match one.objective {
                Objective::LatencyMillis(_) => one.value /= (1.0 - waiting).max(0.01),
                Objective::ProgressPerSecond(_) => one.value *= 1.0 - waiting,
            }
        }
        for one in usage
            .executors
            .iter_mut()
            .filter_map(|one| one.statistics.as_mut())
        {
            let more = |recorded: Option<Pressure>, waited: f64| {
                let recorded = recorded.unwrap_or_default();
                Some(Pressure {
                    some_secs: recorded.some_secs + waited,
                    ..recorded
                })
            };
            one.cpu_pressure = more(one.cpu_pressure, waited);
            one.mem_pressure = more(one.mem_pressure, 0.0);
            one.io_pressure = more(one.io_pressure, 0.0);
        }
        let mut is_evicted = false;
        if let Some(controller) = &mut controller {
            let mut seen = usage.clone();
            seen.executors
                .extend(work.usage(*at).filter(|_| work.cpus > 0.0));
            for correction in controller.corrections(&seen, clock) {
                match correction {
                    QosCorrection::Throttle { degree, .. } => work.throttle = degree,
                    QosCorrection::Restore { .. } => work.throttle = Throttle::default(),
                    QosCorrection::Kill { .. } => is_evicted = true,
                }
            }
        }
        if let Some(estimator) = &mut estimator {
            estimator.observe(&usage);
            work.cpus = estimator.lendable(&usage).cpus().as_f64();
        }
        if is_evicted {
            judgement.evicted += 1;
            (work.cpus, work.throttle, work.cpu_secs) = (0.0, Throttle::default(), 0.0);
        }
    }
    judgement
}

fn read_trace(args: &ReplayArgs) -> Result<Trace, CliError> {
    let path = args.trace.display();
    let text = std::fs::read_to_string(&args.trace)
        .map_err(|error| CliError::because(format!("cannot read {path}"), &error))?;
    let lines = text.lines().enumerate();
    let read = lines.map(|(index, line)| {
        let number = index + 1;
        trace::read(line)
            .map_err(|error| CliError::because(format!("{path}, line {number}"), &error))
    });
    read.collect()
}

/// `meros-lab replay`.
pub fn run(args: ReplayArgs) -> Outcome {
    let trace = read_trace(&args)?;
    let wrong = |error: ModuleError| CliError::because("cannot replay", &error);
    let given = parameters(&args.estimator, &args.estimator_parameter);
    let qos = parameters(&args.qos, &args.qos_parameter);
    let chosen = estimator(&given).map_err(wrong)?;
    let chosen = judge(&trace, Some(chosen), controller(&qos).map_err(wrong)?);
    let oracle = judge(&trace, None, None);
    let noop = judge(&trace, Some(Box::new(Noop)), None);
    let rows = [
        ("oracle", &oracle),
        (&*args.estimator, &chosen),
        ("noop", &noop),
    ];
    for line in table(&args, &rows).lines() {
        out!("{line}");
    }
    if let Some(path) = &args.svg {
        let name = path.display();
        std::fs::write(path, svg(&chosen.curve))
            .map_err(|error| CliError::because(format!("cannot write {name}"), &error))?;
    }
    Ok(())
}

fn table(args: &ReplayArgs, rows: &[(&str, &Judgement)]) -> String {
    let mut text = format!(
        "{} with the QoS controller {}; in CPU hours\n",
        args.estimator, args.qos
    );
    _ = writeln!(
        text,
        "{:16} {:>10} {:>10} {:>10} {:>8}",
        "estimator", "lent", "throttled", "regretted", "evicted"
    );
    for (name, row) in rows {
        let hours = |seconds: f64| seconds / 3600.0;
        _ = writeln!(
            text,
            "{name:16} {:>10.3} {:>10.3} {:>10.3} {:>8}",
            hours(row.lent),
            hours(row.throttled),
            hours(row.regretted),
            row.evicted
        );
    }
    text
}

/// Idle CPUs (grey) and lent CPUs (blue) over time.
fn svg(curve: &[(f64, f64)]) -> String {
    const WIDTH: f64 = 1000.0;
    const HEIGHT: f64 = 300.0;
    let most = curve
        .iter()
        .fold(1.0_f64, |most, (idle, lent)| most.max(*idle).max(*lent));
    let line = |color: &str, value: fn(&(f64, f64)) -> f64| {
        let step = WIDTH / curve.len().max(1) as f64;
        let points = curve.iter().enumerate().map(|(index, point)| {
            let y = HEIGHT * (1.0 - value(point) / most);
            format!("{:.1},{y:.1}", index as f64 * step)
        });
        let points = points.collect::<Vec<_>>().join(" ");
        format!("<polyline fill=\"none\" stroke=\"{color}\" points=\"{points}\"/>\n")
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">\n{}{}</svg>\n",
        line("#888", |(idle, _)| *idle),
        line("#06c", |(_, lent)| *lent)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent of ten CPUs, all allocated to a container with this use in each minute.
    fn trace(minutes: &[f64]) -> Trace {
        let mut cpu_secs = 0.0;
        let line = |(minute, used): (usize, f64)| {
            cpu_secs += used * 60.0;
            let line = format!(
                r#"{{"at":{0},"total":"cpus:10","containers":[{{"id":"c","regular":"cpus:10","lent":"","cpu_secs":{cpu_secs},"throttled_secs":0,"mem_bytes":0,"wait_secs":[0,0,0],"sla":[["latency:50",40,{0}]]}}]}}"#,
                minute * 60
            );
            trace::read(&line).unwrap()
        };
        let used = std::iter::once(0.0).chain(minutes.iter().copied());
        used.enumerate().map(line).collect()
    }

    fn lender(name: &str, given: &[(&str, &str)]) -> Option<Estimator> {
        let none = Parameters::none(name);
        let given = given
            .iter()
            .fold(none, |all, (key, value)| all.with(*key, *value));
        Some(estimator(&given).unwrap())
    }

    #[test]
    fn estimates_are_between_noop_and_the_oracle() {
        let steady = trace(&[2.0; 60]);
        let oracle = judge(&steady, None, None);
        assert_eq!((oracle.lent, oracle.regretted), (8.0 * 3600.0, 0.0));
        let noop = judge(&steady, lender("noop", &[]), None);
        assert_eq!((noop.lent, noop.regretted), (0.0, 0.0));
        let slack = judge(&steady, lender("usage_slack", &[]), None);
        // Seven CPUs after the first minute.
        assert_eq!((slack.lent, slack.regretted), (7.0 * 59.0 * 60.0, 0.0));
    }

    #[test]
    fn lending_what_is_needed_is_regretted_and_corrected() {
        let mut used = vec![0.0; 10];
        used.extend([10.0; 30]);
        let surge = trace(&used);
        let fixed = || lender("fixed", &[("resources", "cpus:10")]);
        let alone = judge(&surge, fixed(), None);
        assert_eq!(alone.regretted, 30.0 * 60.0 * 10.0);
        let pressure = controller(&Parameters::none("pressure")).unwrap();
        let corrected = judge(&surge, fixed(), pressure);
        assert!(
            corrected.throttled > 0.0 && corrected.evicted > 0,
            "{corrected:?}"
        );
        assert!(corrected.regretted < alone.regretted * 0.6, "{corrected:?}");
    }

    /// The wait for best-effort work doubles the recorded 40 ms.
    #[test]
    fn missed_objective_throttles_and_never_evicts() {
        let surge = trace(&[10.0; 40]);
        let fixed = || lender("fixed", &[("resources", "cpus:10")]);
        let alone = judge(&surge, fixed(), None);
        let sla = controller(&Parameters::none("sla")).unwrap();
        let corrected = judge(&surge, fixed(), sla);
        assert_eq!(corrected.evicted, 0, "{corrected:?}");
        assert!(corrected.regretted < alone.regretted * 0.6, "{corrected:?}");
    }

    #[test]
    fn picture_has_both_curves() {
        let drawn = svg(&[(8.0, 4.0), (8.0, 2.0)]);
        assert!(drawn.contains("points=\"0.0,0.0 500.0,0.0\""), "{drawn}");
        assert!(
            drawn.contains("points=\"0.0,150.0 500.0,225.0\""),
            "{drawn}"
        );
    }
}
