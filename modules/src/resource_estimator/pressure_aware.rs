//! The estimator that passes on other estimates, and closes before regular tasks wait.
//!
//! Lends the sum of its sources as long as the pressure of regular containers is below half of its
//! bounds, nothing at the bounds, and a part between them. Closing takes nothing back: that is the
//! QoS controller's.

use std::time::Duration;

use module_api::{ModuleError, Parameters};
use protocol::ResourceUsage;
use resources::{Quantities, Resources};

use super::usage_slack::{SlackSettings, UsageSlack};
use super::{AllocationSlack, EstimatorPolicy, Fixed, lend};
use crate::usage_history::UsageHistory;
use crate::usage_history::pressure::{Expected, PressureBounds, PressureSource, PressureTrend};

const SOURCES: &str = "sources";
const USAGE_SLACK: &str = "usage_slack";
const SAMPLING: Duration = Duration::from_secs(5);
/// The pressure, relative to its bounds, from which on less is lent.
const CLOSING_FROM: f64 = 0.5;

type Source = Box<dyn EstimatorPolicy>;
type MakeSource = Box<dyn Fn() -> Source + Send>;

/// The configuration, from which each start of the actor makes an estimator.
pub struct PressureAwarePlan {
    sources: Vec<MakeSource>,
    bounds: PressureBounds,
}

impl PressureAwarePlan {
    /// Reads the names of the sources, joined by `+`, and their parameters, each with the name of
    /// its source and a dot before it.
    pub fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        let expected = "`usage_slack`, `allocation_slack` or `fixed`, or several joined by `+`, \
                        each once";
        let names = given.optional(SOURCES, expected, |text| {
            let names: Vec<String> = text.split('+').map(|name| name.trim().to_owned()).collect();
            let is_known = |name: &String| {
                ["usage_slack", "allocation_slack", "fixed"].contains(&name.as_str())
            };
            let is_once = |name: &String| names.iter().filter(|one| *one == name).count() == 1;
            let is_valid = names.iter().all(|name| is_known(name) && is_once(name));
            is_valid.then_some(names)
        })?;
        let names = names.unwrap_or_else(|| vec![USAGE_SLACK.to_owned()]);
        let own = given.without_prefixes(&names);
        own.only(&[&[SOURCES], &PressureBounds::KEYS[..]].concat())?;
        let make = |name: &String| -> Result<MakeSource, ModuleError> {
            let given = given.with_prefix(name);
            Ok(match name.as_str() {
                "fixed" => {
                    let fixed = Fixed::from_parameters(&given)?;
                    Box::new(move || Box::new(fixed.clone()))
                }
                "allocation_slack" => {
                    let slack = AllocationSlack::from_parameters(&given)?;
                    Box::new(move || Box::new(slack))
                }
                _ => {
                    let settings = SlackSettings::from_parameters(&given)?;
                    Box::new(move || Box::new(UsageSlack::new(settings)))
                }
            })
        };
        Ok(Self {
            sources: names.iter().map(make).collect::<Result<_, _>>()?,
            bounds: PressureBounds::from_parameters(given)?,
        })
    }

    /// An estimator without a history yet.
    pub fn estimator(&self, source: PressureSource) -> PressureAware {
        PressureAware {
            sources: self.sources.iter().map(|make| make()).collect(),
            history: UsageHistory::default(),
            trend: PressureTrend::new(self.bounds, source),
            open: 0.0,
        }
    }
}

/// The estimator.
pub struct PressureAware {
    sources: Vec<Source>,
    history: UsageHistory,
    trend: PressureTrend,
    /// The part of the estimates that is lent, from 0 to 1.
    open: f64,
}

/// The part that is lent at this pressure, which is 1 at its bound.
fn open_part(pressure: f64) -> f64 {
    ((1.0 - pressure) / (1.0 - CLOSING_FROM)).clamp(0.0, 1.0)
}

/// This part of the amounts. Ranges and sets are lent only as a whole.
fn scaled(resources: &Resources, part: f64) -> Resources {
    if part >= 1.0 {
        return resources.clone();
    }
    let mut amounts = Quantities::new();
    for (name, amount) in resources.quantities().iter() {
        super::add(&mut amounts, name.clone(), amount.as_f64() * part);
    }
    lend(&amounts)
}

impl EstimatorPolicy for PressureAware {
    fn sampling_interval(&self) -> Option<Duration> {
        let intervals = self
            .sources
            .iter()
            .filter_map(|one| one.sampling_interval());
        Some(intervals.min().unwrap_or(SAMPLING))
    }

    fn observe(&mut self, usage: &ResourceUsage) {
        self.sources.iter_mut().for_each(|one| one.observe(usage));
        let samples = self.history.advance(usage);
        self.open = match self.trend.advance(usage, &samples) {
            Expected::TooEarly => self.open,
            Expected::Unknown => 0.0,
            Expected::OfContainers(pressure) | Expected::OfMachine(pressure) => {
                open_part(pressure.greatest())
            }
        };
    }

    fn lendable(&self, usage: &ResourceUsage) -> Resources {
        let mut sum = Resources::new();
        for source in &self.sources {
            sum += &source.lendable(usage);
        }
        scaled(&sum, self.open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{measure, usage};
    use crate::usage_history::pressure::Waiting;

    fn error(given: Parameters) -> String {
        let plan = PressureAwarePlan::from_parameters(&given);
        plan.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    fn given() -> Parameters {
        Parameters::none("pressure_aware")
    }

    #[test]
    fn less_is_lent_from_half_of_the_bound_on() {
        for (pressure, expected) in [(0.0, 1.0), (0.5, 1.0), (0.75, 0.5), (1.0, 0.0), (9.0, 0.0)] {
            assert_eq!(open_part(pressure), expected, "{pressure}");
        }
    }

    #[test]
    fn estimates_close_before_the_pressure_reaches_its_bound() {
        let given = given()
            .with(SOURCES, "fixed")
            .with("fixed.resources", "cpus:10;ports:[1-2]")
            .with("cpu_pressure_max", "0.4");
        let plan = PressureAwarePlan::from_parameters(&given).unwrap();
        let mut estimator = plan.estimator(Box::new(|| None));
        let mut report = usage("web:cpus:4 batch:cpus*:4");
        let (mut at, mut waited) = (0.0, 0.0);
        let mut lent = |part: f64| {
            at += 1.0;
            waited += part;
            measure(&mut report, "web", at, 0.0);
            let web = report.executors[0].statistics.as_mut().unwrap();
            let pressure = |some_secs| {
                Some(protocol::usage::Pressure {
                    some_secs,
                    full_secs: 0.0,
                })
            };
            web.cpu_pressure = pressure(waited);
            (web.mem_pressure, web.io_pressure) = (pressure(0.0), pressure(0.0));
            estimator.observe(&report);
            estimator.lendable(&report).cpus().as_f64()
        };
        assert_eq!(lent(0.0), 0.0, "nothing is known yet");
        assert_eq!(lent(0.1), 10.0);
        assert_eq!(lent(0.2), 5.0, "a rise to 0.3 is expected");
        assert_eq!(lent(0.3), 0.0, "a rise to the bound is expected");
        assert_eq!(lent(0.3), 5.0);
        assert_eq!(lent(0.1), 10.0);
    }

    #[test]
    fn machine_stands_in_for_containers_without_pressure() {
        let plan = PressureAwarePlan::from_parameters(
            &given()
                .with(SOURCES, "fixed")
                .with("fixed.resources", "cpus:4"),
        );
        let machine = Waiting {
            mem: 0.0375,
            ..Waiting::default()
        };
        let mut estimator = plan.unwrap().estimator(Box::new(move || Some(machine)));
        let lent = |estimator: &mut PressureAware, report: &ResourceUsage| {
            estimator.observe(report);
            estimator.lendable(report).cpus().as_f64()
        };
        let mut report = usage("web:cpus:1");
        assert_eq!(lent(&mut estimator, &report), 0.0, "not measured");
        measure(&mut report, "web", 0.0, 0.0);
        assert_eq!(lent(&mut estimator, &report), 2.0);
        assert_eq!(lent(&mut estimator, &usage("")), 4.0, "no task can wait");
    }

    // Covers S5 in part: a chain of both kinds.
    #[test]
    fn sources_are_added_with_their_own_parameters() {
        let given = given()
            .with(SOURCES, "usage_slack + allocation_slack")
            .with("allocation_slack.headroom", "0")
            .with("usage_slack.warm_up", "0ns")
            .with("usage_slack.sampling_interval", "2secs");
        let plan = PressureAwarePlan::from_parameters(&given).unwrap();
        let calm = || Some(Waiting::default());
        let mut estimator = plan.estimator(Box::new(calm));
        assert_eq!(estimator.sampling_interval(), Some(Duration::from_secs(2)));
        let mut report = ResourceUsage {
            total: Resources::parse("cpus:12").unwrap(),
            ..usage("web:cpus:10")
        };
        for at in [0.0, 2.0] {
            measure(&mut report, "web", at, at);
            estimator.observe(&report);
        }
        // Eight that are allocated and unused, and two that are not allocated.
        assert_eq!(estimator.lendable(&report).cpus().as_f64(), 10.0);
    }

    #[test]
    fn errors_name_the_parameter_of_the_source() {
        for (key, text, expected) in [
            (
                SOURCES,
                "noop",
                "`sources` is `noop`: expected `usage_slack`",
            ),
            (SOURCES, "fixed+fixed", "`sources` is `fixed+fixed`"),
            (SOURCES, "fixed", "`fixed.resources` is missing"),
            (
                "usage_slack.margin_min",
                "2",
                "`usage_slack.margin_min` is `2`",
            ),
            ("usage_slack.margin", "2", "`usage_slack.margin` is given"),
            ("fixed.resources", "cpus:1", "`fixed.resources` is given"),
            ("cpu_pressure_max", "2", "`cpu_pressure_max` is `2`"),
        ] {
            let error = error(given().with(key, text));
            assert!(error.contains(expected), "{error}");
        }
    }
}
