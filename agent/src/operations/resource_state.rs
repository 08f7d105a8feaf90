//! The agent's resources after all operations, and unacknowledged operation statuses.
//!
//! Pure. An operation is applied in two steps with a disk write in between:
//! [`ResourceState::prepare`] computes the result, [`ResourceState::settle`] commits it. Each
//! operation has one status, its last.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::message::operation::ApplyOperation;
use protocol::{
    AgentId, AgentResources, FrameworkId, OperationId, OperationState, OperationStatus,
    OperationUpdate, Uuid,
};
use resources::{Converted, Invalid, Resources};
use runtime::Instant;

use crate::operations::checkpoint::Checkpoint;
use crate::status::stream::{RESEND_MAX, RESEND_MIN};

/// Framework and operation id.
pub type Key = (FrameworkId, OperationId);

/// The result of an operation, before it is committed.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The converted resources.
    pub step: Converted,
    /// The agent's resources afterwards.
    pub total: Resources,
}

/// An operation that is not applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// `DROPPED` or `FAILED`.
    pub state: OperationState,
    /// A text for people.
    pub message: String,
}

struct PendingStatus {
    /// Sequence number in order of application.
    number: u64,
    update: OperationUpdate,
    wait: Duration,
    due: Instant,
}

impl PendingStatus {
    /// Schedules the next resend after `wait` and returns the update.
    fn schedule_resend(&mut self, now: Instant, wait: Duration) -> OperationUpdate {
        (self.wait, self.due) = (wait, now + wait);
        self.update.clone()
    }
}

/// The agent's resources and pending statuses.
pub struct ResourceState {
    version: Uuid,
    total: Resources,
    waiting: BTreeMap<Key, PendingStatus>,
    /// The next sequence number.
    next: u64,
    settled: u64,
}

impl ResourceState {
    /// Recovers from a checkpoint, for an agent with these resources before all operations. An
    /// error says why the two are incompatible.
    pub fn recovered(
        described: &Resources,
        checkpoint: Checkpoint,
        version: Uuid,
        now: Instant,
    ) -> Result<Self, Invalid> {
        let before = checkpoint.made.without_operations();
        let rest = described.checked_sub(&before).map_err(|shortage| {
            let expected = format!(
                "at least the resources of the existing reservations and volumes, {}; missing: {}. Remove `meta/resources` of the work directory to drop them",
                before.brief(),
                shortage.lacking
            );
            Invalid::new("--resources", described.brief(), expected)
        })?;
        let mut resource_state = Self {
            version,
            total: rest + &checkpoint.made,
            waiting: BTreeMap::new(),
            next: 0,
            settled: checkpoint.settled,
        };
        for update in checkpoint.unacknowledged {
            resource_state.await_acknowledgement(update, now);
        }
        Ok(resource_state)
    }

    /// The agent's resources.
    pub fn total(&self) -> &Resources {
        &self.total
    }

    /// The report for a registration, under a new version. Operations sent for an earlier version
    /// are stale.
    pub fn report(&mut self, version: Uuid) -> AgentResources {
        self.version = version;
        AgentResources {
            version,
            total: self.total.clone(),
            operations: self.updates(),
            settled: Some(self.settled),
        }
    }

    /// Removes the statuses of operations done under another agent id, and returns their keys.
    pub fn remove_others(&mut self, agent_id: Option<&AgentId>) -> Vec<Key> {
        let mut others = Vec::new();
        self.waiting.retain(|key, waiting| {
            let did = waiting.update.status.agent_id.as_ref();
            let is_other = did.is_some_and(|did| Some(did) != agent_id);
            others.extend(is_other.then(|| key.clone()));
            !is_other
        });
        others
    }

    /// The serial of the newest finished operation.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Whether this operation is obsolete: finished already, or meant for another version. The
    /// master gets a report and resends pending operations. Operations without a serial are never
    /// resent.
    pub fn is_obsolete(&self, apply: &ApplyOperation) -> bool {
        let Some(serial) = apply.serial else {
            return false;
        };
        serial <= self.settled || !self.is_current(apply)
    }

    /// Whether the master knew the present resources when it sent this operation.
    pub fn is_current(&self, apply: &ApplyOperation) -> bool {
        apply.version == self.version
    }

    /// Computes the result of an operation, or why it is not applied.
    pub fn prepare(&self, apply: &ApplyOperation) -> Result<Prepared, Refused> {
        if !self.is_current(apply) {
            let message = format!(
                "it was meant for version {} of the agent's resources, which is {} now",
                apply.version, self.version
            );
            return Err(Refused {
                state: OperationState::Dropped,
                message,
            });
        }
        let mut total = self.total.clone();
        let conversion = apply.conversion.allocated(None);
        match conversion.apply(&mut total, &self.total) {
            Ok(step) => Ok(Prepared { step, total }),
            Err(error) => Err(Refused {
                state: OperationState::Failed,
                message: error.to_string(),
            }),
        }
    }

    /// The checkpoint to write before the operation counts as applied.
    pub fn checkpoint(
        &self,
        apply: &ApplyOperation,
        prepared: &Prepared,
        update: Option<&OperationUpdate>,
    ) -> Checkpoint {
        let settled = self.settled.max(apply.serial.unwrap_or(0));
        self.checkpoint_of(&prepared.total, update, settled)
    }

    /// The checkpoint to restore if that write failed.
    pub fn checkpoint_before(&self) -> Checkpoint {
        self.checkpoint_of(&self.total, None, self.settled)
    }

    fn checkpoint_of(
        &self,
        total: &Resources,
        update: Option<&OperationUpdate>,
        settled: u64,
    ) -> Checkpoint {
        let mut unacknowledged = self.updates();
        unacknowledged.extend(update.cloned());
        Checkpoint {
            made: total.checkpointed(),
            unacknowledged,
            settled,
        }
    }

    /// Commits an operation after its checkpoint was written.
    pub fn settle(&mut self, apply: &ApplyOperation, prepared: Prepared) {
        self.total = prepared.total;
        self.finish_failed(apply);
    }

    /// Finishes an operation without applying it. Persisted with the next checkpoint only: if the
    /// process ends before, a resent operation may still be applied, so the failure is final only
    /// for a master that does not resend it.
    pub fn finish_failed(&mut self, apply: &ApplyOperation) {
        self.settled = self.settled.max(apply.serial.unwrap_or(0));
    }

    /// Resends this update until its framework acknowledges it.
    pub fn await_acknowledgement(&mut self, update: OperationUpdate, now: Instant) {
        let key = (
            update.framework_id.clone(),
            update.status.operation_id.clone(),
        );
        let waiting = PendingStatus {
            number: self.next,
            update,
            wait: RESEND_MIN,
            due: now + RESEND_MIN,
        };
        self.next += 1;
        self.waiting.insert(key, waiting);
    }

    /// The framework has acknowledged this status.
    pub fn acknowledge(&mut self, key: &Key, uuid: Uuid) {
        let waiting = self.waiting.get(key);
        if waiting.is_some_and(|waiting| waiting.update.status.uuid == Some(uuid)) {
            self.waiting.remove(key);
        }
    }

    /// Updates with an overdue acknowledgement, to resend; their wait doubles.
    pub fn overdue(&mut self, now: Instant) -> Vec<OperationUpdate> {
        let late = self.in_order().into_iter();
        let late = late.filter(|waiting| waiting.due <= now);
        let schedule_resend =
            late.map(|waiting| waiting.schedule_resend(now, (waiting.wait * 2).min(RESEND_MAX)));
        schedule_resend.collect()
    }

    /// All updates, to send to a new master; the waits restart.
    pub fn all(&mut self, now: Instant) -> Vec<OperationUpdate> {
        let all = self.in_order().into_iter();
        all.map(|waiting| waiting.schedule_resend(now, RESEND_MIN))
            .collect()
    }

    /// Pending updates in order of application, since one operation may depend on another.
    fn in_order(&mut self) -> Vec<&mut PendingStatus> {
        let mut waiting: Vec<_> = self.waiting.values_mut().collect();
        waiting.sort_unstable_by_key(|waiting| waiting.number);
        waiting
    }

    /// Pending statuses in the same order.
    fn updates(&self) -> Vec<OperationUpdate> {
        let mut waiting: Vec<_> = self.waiting.values().collect();
        waiting.sort_unstable_by_key(|waiting| waiting.number);
        let updates = waiting.into_iter().map(|waiting| waiting.update.clone());
        updates.collect()
    }

    /// Unacknowledged statuses.
    pub fn unacknowledged(&self) -> impl Iterator<Item = (&Key, &OperationUpdate)> {
        let waiting = self.waiting.iter();
        waiting.map(|(key, waiting)| (key, &waiting.update))
    }

    /// Whether a status is unacknowledged.
    pub fn is_unacknowledged(&self, key: &Key) -> bool {
        self.waiting.contains_key(key)
    }

    /// The earliest resend time.
    pub fn next_due(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.due).min()
    }
}

/// The last status of an operation.
pub fn update(
    key: Key,
    state: OperationState,
    message: String,
    converted: Resources,
    uuid: Uuid,
) -> OperationUpdate {
    let (framework_id, operation_id) = key;
    OperationUpdate {
        framework_id,
        status: OperationStatus {
            converted,
            uuid: Some(uuid),
            ..OperationStatus::new(operation_id, state, message)
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resources::{Conversion, Reservation};

    fn parse(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    fn reserved(text: &str) -> Resources {
        let ads = Reservation::dynamic("ads".parse().unwrap(), None);
        parse(text).push_reservation(&ads).unwrap()
    }

    fn version(number: u8) -> Uuid {
        Uuid([number; 16])
    }

    fn reserve(text: &str, number: u8) -> ApplyOperation {
        let resources = reserved(text);
        ApplyOperation {
            feedback: None,
            conversion: Conversion::Reserve { resources },
            version: version(number),
            serial: None,
        }
    }

    fn resource_state(described: &str, made: Resources) -> Result<ResourceState, Invalid> {
        let checkpoint = Checkpoint {
            made,
            unacknowledged: Vec::new(),
            settled: 3,
        };
        ResourceState::recovered(
            &parse(described),
            checkpoint,
            version(1),
            Instant::default(),
        )
    }

    #[test]
    fn stale_operation_is_dropped_and_impossible_one_fails() {
        let resource_state = resource_state("cpus:4", Resources::new()).unwrap();
        let refused = |apply| resource_state.prepare(&apply).unwrap_err().state;
        assert_eq!(refused(reserve("cpus:1", 2)), OperationState::Dropped);
        assert_eq!(refused(reserve("cpus:5", 1)), OperationState::Failed);
        let prepared = resource_state.prepare(&reserve("cpus:1", 1)).unwrap();
        assert_eq!(prepared.total, parse("cpus:3") + reserved("cpus:1"));
        assert_eq!(
            *resource_state.total(),
            parse("cpus:4"),
            "not before it is on the disk"
        );
    }

    #[test]
    fn operation_with_a_serial_is_applied_once() {
        let mut resource_state = resource_state("cpus:4", Resources::new()).unwrap();
        let apply = |serial, number| ApplyOperation {
            serial: Some(serial),
            ..reserve("cpus:1", number)
        };
        assert_eq!(resource_state.report(version(1)).settled, Some(3));
        assert!(resource_state.is_obsolete(&apply(3, 1)), "it is over");
        assert!(
            resource_state.is_obsolete(&apply(4, 2)),
            "it was meant for another"
        );
        assert!(
            !resource_state.is_obsolete(&reserve("cpus:1", 2)),
            "its master is informed"
        );
        let fifth = apply(5, 1);
        assert!(!resource_state.is_obsolete(&fifth));
        let prepared = resource_state.prepare(&fifth).unwrap();
        let kept = resource_state.checkpoint(&fifth, &prepared, None);
        assert_eq!(
            (kept.settled, resource_state.checkpoint_before().settled),
            (5, 3)
        );
        resource_state.settle(&fifth, prepared);
        assert!(resource_state.is_obsolete(&fifth) && resource_state.is_obsolete(&apply(4, 1)));
        resource_state.finish_failed(&apply(6, 1));
        assert_eq!(resource_state.report(version(2)).settled, Some(6));
    }

    #[test]
    fn report_makes_earlier_operations_stale() {
        let mut resource_state = resource_state("cpus:4", Resources::new()).unwrap();
        let before = reserve("cpus:1", 1);
        assert_eq!(resource_state.report(version(2)).version, version(2));
        assert!(resource_state.prepare(&before).is_err());
        assert!(resource_state.prepare(&reserve("cpus:1", 2)).is_ok());
    }

    #[test]
    fn checkpoint_applies_to_the_configured_resources() {
        let made = reserved("cpus:3");
        let same = resource_state("cpus:4;mem:10", made.clone()).unwrap();
        assert_eq!(*same.total(), parse("cpus:1;mem:10") + &made);
        let more = resource_state("cpus:8;mem:20", made.clone()).unwrap();
        assert_eq!(*more.total(), parse("cpus:5;mem:20") + &made);
        let error = resource_state("cpus:2;mem:10", made)
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("--resources is `cpus:2;mem:10`: expected at least"),
            "{error}"
        );
    }

    fn finished(id: &str) -> OperationUpdate {
        let key = (
            FrameworkId::new("f").unwrap(),
            OperationId::new(id).unwrap(),
        );
        let finished = OperationState::Finished;
        update(key, finished, String::new(), Resources::new(), version(9))
    }

    fn names(updates: &[OperationUpdate]) -> Vec<String> {
        let names = updates.iter().map(|update| &update.status.operation_id);
        names.map(OperationId::to_string).collect()
    }

    /// Found by a simulation (seed 2381): a volume was reported before a reservation that it was
    /// made of.
    #[test]
    fn statuses_are_sent_in_order_after_a_restart_too() {
        let mut first = resource_state("cpus:4", Resources::new()).unwrap();
        let done = ["o9", "o10", "a1"];
        for id in done {
            first.await_acknowledgement(finished(id), Instant::default());
        }
        let kept = first.checkpoint_before();
        let next = ResourceState::recovered(&parse("cpus:4"), kept, version(1), Instant::default())
            .unwrap();
        for mut resource_state in [first, next] {
            assert_eq!(names(&resource_state.report(version(2)).operations), done);
            assert_eq!(names(&resource_state.all(Instant::default())), done);
            let late = Instant::default() + RESEND_MIN;
            assert_eq!(names(&resource_state.overdue(late)), done);
            assert!(resource_state.overdue(late).is_empty(), "each waits again");
        }
    }

    #[test]
    fn statuses_of_another_agent_id_are_dropped() {
        let mut resource_state = resource_state("cpus:4", Resources::new()).unwrap();
        let ids = ["unknown", "old", "new"].map(|id| AgentId::new(id).unwrap());
        for did in &ids {
            let mut update = finished(did.as_str());
            // Checkpoints of earlier versions have no agent id.
            update.status.agent_id = (did.as_str() != "unknown").then(|| did.clone());
            resource_state.await_acknowledgement(update, Instant::default());
        }
        let told = |resource_state: &mut ResourceState| {
            names(&resource_state.report(version(1)).operations)
        };
        let forgotten = resource_state.remove_others(Some(&ids[2]));
        let forgotten: Vec<_> = forgotten.iter().map(|(_, id)| id.as_str()).collect();
        assert_eq!(forgotten, ["old"]);
        assert_eq!(told(&mut resource_state), ["unknown", "new"]);
        resource_state.remove_others(None);
        assert_eq!(told(&mut resource_state), ["unknown"]);
    }

    #[test]
    fn status_is_resent_with_growing_waits_until_acknowledged() {
        let mut resource_state = resource_state("cpus:4", Resources::new()).unwrap();
        let key = (
            FrameworkId::new("f").unwrap(),
            OperationId::new("op").unwrap(),
        );
        let (state, none) = (OperationState::Finished, Resources::new());
        let update = update(key.clone(), state, String::new(), none, version(9));
        let start = Instant::default();
        resource_state.await_acknowledgement(update.clone(), start);
        assert_eq!(resource_state.overdue(start), []);
        let first = start + RESEND_MIN;
        assert_eq!(resource_state.next_due(), Some(first));
        assert_eq!(resource_state.overdue(first), std::slice::from_ref(&update));
        assert_eq!(resource_state.next_due(), Some(first + RESEND_MIN * 2));
        resource_state.acknowledge(&key, version(8));
        assert_eq!(
            resource_state.all(first),
            [update],
            "an acknowledgement of something else"
        );
        resource_state.acknowledge(&key, version(9));
        assert_eq!(resource_state.next_due(), None);
    }
}
