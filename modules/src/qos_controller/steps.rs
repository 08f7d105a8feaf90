//! The steps in which controllers throttle. Pure.

use protocol::usage::Throttle;
use protocol::{ExecutorUsage, QosCorrection};

/// The steps of a degree, in thousandths.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    /// Factor applied to the degree in each step.
    factor: f64,
    /// The strongest degree.
    min: u16,
}

pub(super) const CPU_STEPS: Steps = Steps {
    factor: 0.5,
    min: 50,
};
/// Smaller ones: memory is taken back at once, and often needed again.
pub(super) const MEMORY_STEPS: Steps = Steps {
    factor: 0.8,
    min: 200,
};

impl Steps {
    pub(super) fn stronger(self, degree: Option<u16>) -> Option<u16> {
        let degree = f64::from(degree.unwrap_or(Throttle::WHOLE));
        Some(((degree * self.factor) as u16).max(self.min))
    }

    pub(super) fn weaker(self, degree: Option<u16>) -> Option<u16> {
        let degree = (f64::from(degree?) / self.factor).round() as u16;
        Some(degree).filter(|degree| *degree < Throttle::WHOLE)
    }
}

/// Throttles an executor, or restores it; `None` if it has this degree already.
pub(super) fn throttle(
    executor: &ExecutorUsage,
    degree: Throttle,
    reason: &str,
) -> Option<QosCorrection> {
    let framework_id = executor.framework_id.clone();
    let executor_id = executor.executor_id.clone();
    let container_id = Some(executor.container_id.clone());
    let reason = reason.to_owned();
    if degree == executor.throttle {
        return None;
    }
    Some(match degree.is_none() {
        true => QosCorrection::Restore {
            framework_id,
            executor_id,
            container_id,
            reason,
        },
        false => QosCorrection::Throttle {
            framework_id,
            executor_id,
            container_id,
            degree,
            reason,
        },
    })
}
