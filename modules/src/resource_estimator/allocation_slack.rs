//! The estimator of allocation slack: resources of the agent that nobody has allocated.
//!
//! They are offered as regular resources too: best-effort tasks use them until regular tasks take
//! them, and then the QoS controller makes room. Idle reservations are not counted, since the
//! allocator lends those.

use module_api::{ModuleError, Parameters};
use protocol::ResourceUsage;
use resources::{Name, Quantities, Resources};

use super::usage_slack::MEMORY;
use super::{EstimatorPolicy, lend};

const HEADROOM: &str = "headroom";
/// Part of the agent that is never lent, for the next regular task.
const HEADROOM_DEFAULT: f64 = 0.1;

/// Lends unallocated resources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocationSlack {
    headroom: f64,
    memory: bool,
}

impl AllocationSlack {
    /// Reads the parameters.
    pub fn from_parameters(given: &Parameters) -> Result<Self, ModuleError> {
        given.only(&[HEADROOM, MEMORY])?;
        Ok(Self {
            headroom: super::part(given, HEADROOM, HEADROOM_DEFAULT)?,
            memory: super::lends_memory(given)?,
        })
    }
}

impl EstimatorPolicy for AllocationSlack {
    fn lendable(&self, usage: &ResourceUsage) -> Resources {
        let mut allocated = Resources::new();
        for executor in &usage.executors {
            allocated += &executor.allocated.non_revocable().unallocate();
        }
        let total = usage.total.quantities();
        let free = total.saturating_sub(&allocated.quantities());
        let unreserved = usage.total.saturating_sub(&allocated).unreserved();
        let free = free.lesser(&unreserved.quantities());
        let names = match self.memory {
            true => &[Name::Cpus, Name::Mem][..],
            false => &[Name::Cpus],
        };
        let mut amounts = Quantities::new();
        for name in names {
            let headroom = self.headroom * total.get(name).as_f64();
            let amount = free.get(name).as_f64() - headroom;
            super::add(&mut amounts, name.clone(), amount);
        }
        lend(&amounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::usage;

    fn lent(given: Parameters, total: &str, allocated: &str) -> String {
        let estimator = AllocationSlack::from_parameters(&given).unwrap();
        let usage = ResourceUsage {
            total: Resources::parse(total).unwrap(),
            ..usage(allocated)
        };
        estimator.lendable(&usage).quantities().to_string()
    }

    // Covers S5 in part: allocation slack.
    #[test]
    fn unallocated_cpus_are_lent_without_the_headroom() {
        let none = || Parameters::none("allocation_slack");
        assert_eq!(
            lent(none(), "cpus:10;mem:1024", "web:cpus:4;mem:512"),
            "cpus:5"
        );
        let all = || none().with(HEADROOM, "0").with(MEMORY, "true");
        assert_eq!(
            lent(
                all(),
                "cpus:10;mem:1024",
                "web:cpus:4;mem:512 batch:cpus*:3"
            ),
            "cpus:6;mem:512",
            "the total, of which three CPUs are lent"
        );
        assert_eq!(lent(all(), "cpus:4", "web:cpus:4"), "");
    }

    #[test]
    fn idle_reservations_are_not_lent() {
        let given = || Parameters::none("allocation_slack").with(HEADROOM, "0");
        let total = "cpus:4;cpus(ads):8";
        assert_eq!(lent(given(), total, "web:cpus:1"), "cpus:3");
        assert_eq!(lent(given(), total, "web:cpus(ads):6"), "cpus:4");
        assert_eq!(lent(given(), "cpus:12", "web:cpus(ads):10"), "cpus:2");
    }

    #[test]
    fn invalid_headroom_is_refused() {
        let given = Parameters::none("allocation_slack").with(HEADROOM, "10");
        let error = AllocationSlack::from_parameters(&given).unwrap_err();
        assert!(error.to_string().contains("`headroom` is `10`"), "{error}");
    }
}
