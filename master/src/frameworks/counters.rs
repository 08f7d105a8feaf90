//! Counters of each framework, for its metrics.
//!
//! Plain numbers that only grow; they end with their framework. Values that are part of the state
//! (connection, running tasks) are computed on request instead. Heartbeats are those of HTTP
//! streams, whose actors report them.

use protocol::TaskState;

/// Defines the counters, each with its metric name after the framework's name and id.
macro_rules! counters {
    ($($counter:ident $name:literal)*) => {
        /// A counter of a framework.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FrameworkCounter {
            $(#[doc = concat!("`", $name, "`.")] $counter,)*
        }

        /// All names, in the order of their numbers.
        const NAMES: [&str; [$($name),*].len()] = [$($name),*];
    };
}

counters! {
    Subscribe "calls/subscribe"
    TearDown "calls/teardown"
    Accept "calls/accept"
    Decline "calls/decline"
    AcceptInverseOffers "calls/accept_inverse_offers"
    DeclineInverseOffers "calls/decline_inverse_offers"
    Revive "calls/revive"
    Suppress "calls/suppress"
    Kill "calls/kill"
    Shutdown "calls/shutdown"
    Acknowledge "calls/acknowledge"
    AcknowledgeOperation "calls/acknowledge_operation_status"
    Reconcile "calls/reconcile"
    ReconcileOperations "calls/reconcile_operations"
    MessageSaid "calls/message"
    Request "calls/request"
    Update "calls/update_framework"
    Subscribed "events/subscribed"
    Offers "events/offers"
    InverseOffers "events/inverse_offers"
    Rescind "events/rescind"
    RescindInverseOffer "events/rescind_inverse_offer"
    Status "events/update"
    OperationStatus "events/update_operation_status"
    MessageTold "events/message"
    Failure "events/failure"
    Error "events/error"
    OfferSent "offers/sent"
    OfferAccepted "offers/accepted"
    OfferDeclined "offers/declined"
    OfferRescinded "offers/rescinded"
    Launch "operations/launch"
    LaunchGroup "operations/launch_group"
    Reserve "operations/reserve"
    Unreserve "operations/unreserve"
    Create "operations/create"
    Destroy "operations/destroy"
    GrowVolume "operations/grow_volume"
    ShrinkVolume "operations/shrink_volume"
    CreateDisk "operations/create_disk"
    DestroyDisk "operations/destroy_disk"
    Finished "tasks/terminal/task_finished"
    Failed "tasks/terminal/task_failed"
    Killed "tasks/terminal/task_killed"
    Errored "tasks/terminal/task_error"
    Lost "tasks/terminal/task_lost"
    Dropped "tasks/terminal/task_dropped"
    Gone "tasks/terminal/task_gone"
    GoneByOperator "tasks/terminal/task_gone_by_operator"
    // At the end, because mirrors of other versions know counters by number.
    Heartbeat "events/heartbeat"
}

/// Prefixes that also have a sum.
const SUMS: [&str; 3] = ["calls", "events", "operations"];

impl FrameworkCounter {
    /// The counter of a task's end, as reported to its framework; `None` for other states.
    pub fn ended(state: TaskState) -> Option<Self> {
        Some(match state {
            TaskState::Finished => Self::Finished,
            TaskState::Failed => Self::Failed,
            TaskState::Killed => Self::Killed,
            TaskState::Error => Self::Errored,
            TaskState::Lost => Self::Lost,
            TaskState::Dropped => Self::Dropped,
            TaskState::Gone => Self::Gone,
            TaskState::GoneByOperator => Self::GoneByOperator,
            _ => return None,
        })
    }

    /// The counter of an operation of this kind.
    pub fn operation(kind: &str) -> Option<Self> {
        Some(match kind {
            "reserve" => Self::Reserve,
            "unreserve" => Self::Unreserve,
            "create" => Self::Create,
            "destroy" => Self::Destroy,
            "grow_volume" => Self::GrowVolume,
            "shrink_volume" => Self::ShrinkVolume,
            _ => return None,
        })
    }
}

/// All counters of a framework.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameworkCounters([u64; NAMES.len()]);

impl Default for FrameworkCounters {
    fn default() -> Self {
        Self([0; NAMES.len()])
    }
}

impl FrameworkCounters {
    /// Adds to a counter.
    pub fn add(&mut self, counter: FrameworkCounter, more: usize) {
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        if let Some(count) = self.0.get_mut(counter as usize) {
            *count = count.saturating_add(more);
        }
    }

    /// All counters by name, and the sums of calls, events and operations.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let sums = SUMS.into_iter().map(|sum| {
            let of = |name: &str| {
                let rest = name.strip_prefix(sum);
                rest.is_some_and(|rest| rest.starts_with('/'))
            };
            let counts = NAMES.into_iter().zip(self.0);
            let counts = counts.filter(|(name, _)| of(name)).map(|(_, count)| count);
            (sum, counts.fold(0, u64::saturating_add))
        });
        NAMES.into_iter().zip(self.0).chain(sums)
    }

    /// The values, for a mirror.
    pub(crate) fn counts(&self) -> Vec<u64> {
        self.0.to_vec()
    }

    /// The counters in a mirror; unknown ones are ignored.
    pub(crate) fn mirrored(counts: &[u64]) -> Self {
        let mut all = Self::default();
        for (mine, count) in all.0.iter_mut().zip(counts) {
            *mine = *count;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// SPEC 3.10.
    #[test]
    fn framework_counters_have_mesos_names_and_sums() {
        let mut counters = FrameworkCounters::default();
        counters.add(FrameworkCounter::Kill, 1);
        counters.add(FrameworkCounter::Accept, 2);
        counters.add(FrameworkCounter::OfferSent, 5);
        counters.add(FrameworkCounter::operation("grow_volume").unwrap(), 1);
        counters.add(FrameworkCounter::ended(TaskState::Error).unwrap(), 1);
        assert_eq!(FrameworkCounter::ended(TaskState::Unreachable), None);
        assert_eq!(
            FrameworkCounter::operation("launch"),
            None,
            "it is no conversion"
        );
        let named: BTreeMap<_, _> = counters.named().collect();
        for (name, count) in [
            ("calls", 3),
            ("calls/kill", 1),
            ("calls/acknowledge_operation_status", 0),
            ("events", 0),
            ("events/rescind_inverse_offer", 0),
            ("offers/sent", 5),
            ("operations", 1),
            ("operations/grow_volume", 1),
            ("tasks/terminal/task_error", 1),
        ] {
            assert_eq!(named[name], count, "{name}");
        }
    }

    #[test]
    fn counters_from_another_version_are_read_partly() {
        let mut counters = FrameworkCounters::default();
        counters.add(FrameworkCounter::TearDown, 7);
        let mut counts = counters.counts();
        counts.push(9);
        assert_eq!(FrameworkCounters::mirrored(&counts), counters);
        assert_eq!(FrameworkCounters::mirrored(&counts[..2]), counters);
    }
}
