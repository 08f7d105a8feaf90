//! Dealings: what has passed between this master and each framework, counted for its metrics (SPEC 3.10).
//!
//! Plain numbers that only grow, of frameworks that have not ended: with its framework a count is gone. What the books say of a framework
//! (is it connected, how many tasks run) is not counted here but looked up. Heartbeats are those of streams over HTTP, whose actors
//! report them.

use protocol::TaskState;

/// Names the dealings, each as its metric is called behind the framework's name and id.
macro_rules! dealings {
    ($($dealing:ident $name:literal)*) => {
        /// One thing that passes between master and framework.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Dealing {
            $(#[doc = concat!("`", $name, "`.")] $dealing,)*
        }

        /// All of them, in the order of their numbers.
        const NAMES: [&str; [$($name),*].len()] = [$($name),*];
    };
}

dealings! {
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
    // Behind the others, since mirrors of other versions know them by their numbers.
    Heartbeat "events/heartbeat"
}

/// Those of which there is a sum as well: what it is called.
const SUMS: [&str; 3] = ["calls", "events", "operations"];

impl Dealing {
    /// A task that ended in this state, as its framework was told; nothing for one that has not ended.
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

    /// An operation of this kind, as conversions are called.
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

/// How often each has happened with one framework.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealings([u64; NAMES.len()]);

impl Default for Dealings {
    fn default() -> Self {
        Self([0; NAMES.len()])
    }
}

impl Dealings {
    /// So many more of this.
    pub fn add(&mut self, dealing: Dealing, more: usize) {
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        if let Some(count) = self.0.get_mut(dealing as usize) {
            *count = count.saturating_add(more);
        }
    }

    /// All of them by their names, and the sums of calls, events and operations.
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

    /// The counts, for a mirror.
    pub(crate) fn counts(&self) -> Vec<u64> {
        self.0.to_vec()
    }

    /// What a mirror was told; what is not known here is left out.
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
    fn dealings_are_named_as_mesos_names_them_and_summed_by_kind() {
        let mut dealings = Dealings::default();
        dealings.add(Dealing::Kill, 1);
        dealings.add(Dealing::Accept, 2);
        dealings.add(Dealing::OfferSent, 5);
        dealings.add(Dealing::operation("grow_volume").unwrap(), 1);
        dealings.add(Dealing::ended(TaskState::Error).unwrap(), 1);
        assert_eq!(Dealing::ended(TaskState::Unreachable), None);
        assert_eq!(Dealing::operation("launch"), None, "it is no conversion");
        let named: BTreeMap<_, _> = dealings.named().collect();
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
    fn a_mirror_of_another_version_takes_what_it_knows() {
        let mut dealings = Dealings::default();
        dealings.add(Dealing::TearDown, 7);
        let mut counts = dealings.counts();
        counts.push(9);
        assert_eq!(Dealings::mirrored(&counts), dealings);
        assert_eq!(Dealings::mirrored(&counts[..2]), dealings);
    }
}
