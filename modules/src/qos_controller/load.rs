//! The QoS controller by system load: above a threshold, every revocable executor must yield.
//!
//! Uses the load averages over 5 and 15 minutes. The one over 1 minute fluctuates too much.

use module_api::{ModuleError, Parameters};
use protocol::{QosCorrection, ResourceUsage};
use runtime::Instant;

use super::QosPolicy;

const FIVE: &str = "load_threshold_5min";
const FIFTEEN: &str = "load_threshold_15min";

/// The machine's load averages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Over five minutes.
    pub five: f64,
    /// Over fifteen minutes.
    pub fifteen: f64,
}

impl Load {
    /// Parses the text of `/proc/loadavg`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut averages = text.split_whitespace().map(str::parse::<f64>);
        let (_one, five, fifteen) = (
            averages.next()?.ok()?,
            averages.next()?.ok()?,
            averages.next()?.ok()?,
        );
        Some(Self { five, fifteen })
    }
}

/// Reads the load; `None` if it is unavailable.
pub type LoadSource = Box<dyn FnMut() -> Option<Load> + Send>;

/// This machine's load. `/proc` is in memory, so reading it does not wait for a disk.
pub fn proc_loadavg() -> LoadSource {
    Box::new(|| Load::parse(&std::fs::read_to_string("/proc/loadavg").ok()?))
}

/// The thresholds, in runnable processes. At least one is set.
pub struct LoadPolicy {
    five: Option<f64>,
    fifteen: Option<f64>,
    source: LoadSource,
    /// The load at the last check, as the reason of corrections.
    reason: String,
}

impl LoadPolicy {
    /// Alarmed above either threshold.
    pub fn new(five: Option<f64>, fifteen: Option<f64>, source: LoadSource) -> Self {
        Self {
            five,
            fifteen,
            source,
            reason: String::new(),
        }
    }

    /// The same thresholds with another source.
    pub fn with_source(&self, source: LoadSource) -> Self {
        Self::new(self.five, self.fifteen, source)
    }

    /// Reads the two thresholds, at least one of which is required.
    pub fn from_parameters(given: &Parameters, source: LoadSource) -> Result<Self, ModuleError> {
        given.only(&[FIVE, FIFTEEN])?;
        let expected = "a number of at least 0";
        let number = |text: &str| {
            let number = text.parse::<f64>().ok()?;
            (number.is_finite() && number >= 0.0).then_some(number)
        };
        let five = given.optional(FIVE, expected, number)?;
        let fifteen = given.optional(FIFTEEN, expected, number)?;
        if five.is_none() && fifteen.is_none() {
            let expected = "a number here or as load_threshold_15min";
            given.required(FIVE, expected, number)?;
        }
        Ok(Self::new(five, fifteen, source))
    }

    /// Whether the load is strictly above a threshold. Never true for an unavailable load.
    pub fn is_too_high(&self, load: Option<Load>) -> bool {
        let above = |load: f64, threshold: Option<f64>| threshold.is_some_and(|most| load > most);
        load.is_some_and(|load| above(load.five, self.five) || above(load.fifteen, self.fifteen))
    }
}

impl QosPolicy for LoadPolicy {
    fn is_alarmed(&mut self) -> bool {
        let load = (self.source)();
        match load {
            Some(Load { five, fifteen }) => {
                self.reason =
                    format!("load average {five:.2} over 5 min, {fifteen:.2} over 15 min");
            }
            None => tracing::warn!("cannot read the system load, no corrections"),
        }
        self.is_too_high(load)
    }

    fn corrections(&mut self, usage: &ResourceUsage, _: Instant) -> Vec<QosCorrection> {
        let revocable = usage
            .executors
            .iter()
            .filter(|executor| executor.is_revocable());
        let kill = revocable.map(|executor| QosCorrection::Kill {
            framework_id: executor.framework_id.clone(),
            executor_id: executor.executor_id.clone(),
            container_id: Some(executor.container_id.clone()),
            reason: self.reason.clone(),
        });
        kill.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{killed, usage};

    fn policy(five: Option<f64>, fifteen: Option<f64>) -> LoadPolicy {
        LoadPolicy::new(five, fifteen, Box::new(|| None))
    }

    /// S30, S31: the whole matrix.
    // Covers S30; S31.
    #[test]
    fn only_a_load_strictly_above_either_threshold_is_too_high() {
        let both = policy(Some(6.0), Some(4.0));
        for (text, too_high) in [
            ("0.00 6.00 4.00 1/99 1", false),
            ("0.00 6.01 0.00 1/99 1", true),
            ("0.00 0.00 4.01 1/99 1", true),
            ("0.00 5.90 3.90 1/99 1", false),
            ("100.00 1.00 1.00 9/99 1", false),
            ("", false),
            ("1.00 much 9.00", false),
        ] {
            assert_eq!(both.is_too_high(Load::parse(text)), too_high, "{text}");
        }
        let high = Load::parse("0 7 7");
        assert!(policy(Some(6.0), None).is_too_high(high));
        assert!(policy(None, Some(4.0)).is_too_high(high));
        assert!(!policy(Some(7.0), None).is_too_high(high));
    }

    /// S15, S29, S31: one kill for each executor that has anything revocable, and for no other.
    // Covers S15 in part: the judgement and a container of one task; S24.
    // Covers S29 in part: what it advises; S31.
    #[test]
    fn exactly_the_revocable_executors_yield() {
        let usage = usage("web:cpus:2 mixed:cpus:1;mem*:32 batch:cpus*:4");
        let corrections = policy(Some(6.0), None).corrections(&usage, Instant::default());
        assert_eq!(killed(&corrections), ["mixed", "batch"]);
    }

    // Covers S31; S38 in part: what is read and advised, not the 20 seconds.
    #[test]
    fn at_least_one_valid_threshold_is_required() {
        let make = |given: Parameters| LoadPolicy::from_parameters(&given, Box::new(|| None));
        let none = || Parameters::none("load");
        assert!(make(none()).is_err());
        assert!(make(none().with(FIVE, "six")).is_err());
        assert!(make(none().with(FIVE, "-1")).is_err());
        assert!(make(none().with(FIVE, "6").with("load_threshold_1min", "9")).is_err());
        let both = make(none().with(FIVE, "6").with(FIFTEEN, "4"))
            .ok()
            .unwrap();
        assert_eq!((both.five, both.fifteen), (Some(6.0), Some(4.0)));
        assert!(make(none().with(FIFTEEN, "4.5")).is_ok());
    }

    #[test]
    fn kernel_load_file_is_readable() {
        assert!(proc_loadavg()().is_some());
    }
}
