//! What an agent has after all operations, and the statuses that their frameworks have not acknowledged (SPEC 3.5, 5.3).
//!
//! Pure: no clock, no disk, no mailbox. An operation is applied in two steps, because a disk stands between them: [`Held::prepare`] says
//! what would be, [`Held::settle`] makes it so. Each operation has one status, its last.

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

/// Whose operation, and its name there.
pub type Key = (FrameworkId, OperationId);

/// What an operation would make of the agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// What becomes what.
    pub step: Converted,
    /// All that the agent would have.
    pub total: Resources,
}

/// An operation that is not applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// `DROPPED` or `FAILED`.
    pub state: OperationState,
    /// A sentence for people.
    pub message: String,
}

struct Waiting {
    /// Later ones have higher numbers.
    number: u64,
    update: OperationUpdate,
    wait: Duration,
    due: Instant,
}

impl Waiting {
    /// It is sent again now, and once more after this wait.
    fn again(&mut self, now: Instant, wait: Duration) -> OperationUpdate {
        (self.wait, self.due) = (wait, now + wait);
        self.update.clone()
    }
}

/// What the agent has.
pub struct Held {
    version: Uuid,
    total: Resources,
    waiting: BTreeMap<Key, Waiting>,
    /// The number of the next status that waits.
    next: u64,
    settled: u64,
}

impl Held {
    /// An agent of these resources, before all operations, that finds this checkpoint. An error says why the two do not fit.
    pub fn recovered(
        described: &Resources,
        checkpoint: Checkpoint,
        version: Uuid,
        now: Instant,
    ) -> Result<Self, Invalid> {
        let before = checkpoint.made.before_operations();
        let rest = described.checked_sub(&before).map_err(|shortage| {
            let expected = format!(
                "at least what reservations and volumes were made of, {}; {} lacks. Remove `meta/resources` of the work directory to forget them",
                before.brief(),
                shortage.lacking
            );
            Invalid::new("--resources", described.brief(), expected)
        })?;
        let mut held = Self {
            version,
            total: rest + &checkpoint.made,
            waiting: BTreeMap::new(),
            next: 0,
            settled: checkpoint.settled,
        };
        for update in checkpoint.unacknowledged {
            held.await_acknowledgement(update, now);
        }
        Ok(held)
    }

    /// All that the agent has.
    pub fn total(&self) -> &Resources {
        &self.total
    }

    /// What a master is told when the agent registers. Whatever was sent to it before that is stale.
    pub fn report(&mut self, version: Uuid) -> AgentResources {
        self.version = version;
        AgentResources {
            version,
            total: self.total.clone(),
            operations: self.updates(),
            settled: Some(self.settled),
        }
    }

    /// Forgets the statuses of operations that it did as another agent than this one; gives which those are.
    pub fn forget_others(&mut self, agent_id: Option<&AgentId>) -> Vec<Key> {
        let mut others = Vec::new();
        self.waiting.retain(|key, waiting| {
            let did = waiting.update.status.agent_id.as_ref();
            let is_other = did.is_some_and(|did| Some(did) != agent_id);
            others.extend(is_other.then(|| key.clone()));
            !is_other
        });
        others
    }

    /// The serial of the newest operation that is over.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Whether this is said in vain: it is over, or it was meant for what the agent had before. Whoever has said it hears what there is, and
    /// says again what is still to be done. What bears no serial is never said again.
    pub fn is_in_vain(&self, apply: &ApplyOperation) -> bool {
        let Some(serial) = apply.serial else {
            return false;
        };
        serial <= self.settled || !self.is_current(apply)
    }

    /// Whether a master that has sent this knows what there was before it, so that it knows what there is after it.
    pub fn is_current(&self, apply: &ApplyOperation) -> bool {
        apply.version == self.version
    }

    /// What this operation would make of the agent, or why it is not applied.
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

    /// What is to be on the disk before an operation that would make this counts as applied.
    pub fn checkpoint(
        &self,
        apply: &ApplyOperation,
        prepared: &Prepared,
        update: Option<&OperationUpdate>,
    ) -> Checkpoint {
        let settled = self.settled.max(apply.serial.unwrap_or(0));
        self.checkpoint_of(&prepared.total, update, settled)
    }

    /// What is to be on the disk again if an operation could not be kept there.
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

    /// It is on the disk: so it is.
    pub fn settle(&mut self, apply: &ApplyOperation, prepared: Prepared) {
        self.total = prepared.total;
        self.give_up(apply);
    }

    /// It is over, and not done. That is on the disk with what is done next: should this process end before, it may be said and done after all,
    /// and so nobody hears that it has failed but from a master that does not say it again.
    pub fn give_up(&mut self, apply: &ApplyOperation) {
        self.settled = self.settled.max(apply.serial.unwrap_or(0));
    }

    /// This update is sent until its framework has it.
    pub fn await_acknowledgement(&mut self, update: OperationUpdate, now: Instant) {
        let key = (
            update.framework_id.clone(),
            update.status.operation_id.clone(),
        );
        let waiting = Waiting {
            number: self.next,
            update,
            wait: RESEND_MIN,
            due: now + RESEND_MIN,
        };
        self.next += 1;
        self.waiting.insert(key, waiting);
    }

    /// The framework has this status.
    pub fn acknowledge(&mut self, key: &Key, uuid: Uuid) {
        let waiting = self.waiting.get(key);
        if waiting.is_some_and(|waiting| waiting.update.status.uuid == Some(uuid)) {
            self.waiting.remove(key);
        }
    }

    /// The updates whose acknowledgement is overdue, to be sent again; each waits twice as long next time.
    pub fn overdue(&mut self, now: Instant) -> Vec<OperationUpdate> {
        let late = self.in_order().into_iter();
        let late = late.filter(|waiting| waiting.due <= now);
        let again = late.map(|waiting| waiting.again(now, (waiting.wait * 2).min(RESEND_MAX)));
        again.collect()
    }

    /// A new master: everything is sent again at once, and the waits begin anew.
    pub fn all(&mut self, now: Instant) -> Vec<OperationUpdate> {
        let all = self.in_order().into_iter();
        all.map(|waiting| waiting.again(now, RESEND_MIN)).collect()
    }

    /// What waits, as the operations were done: one may have needed what another made.
    fn in_order(&mut self) -> Vec<&mut Waiting> {
        let mut waiting: Vec<_> = self.waiting.values_mut().collect();
        waiting.sort_unstable_by_key(|waiting| waiting.number);
        waiting
    }

    /// The statuses of what waits, in that order.
    fn updates(&self) -> Vec<OperationUpdate> {
        let mut waiting: Vec<_> = self.waiting.values().collect();
        waiting.sort_unstable_by_key(|waiting| waiting.number);
        let updates = waiting.into_iter().map(|waiting| waiting.update.clone());
        updates.collect()
    }

    /// The statuses that are not acknowledged.
    pub fn unacknowledged(&self) -> impl Iterator<Item = (&Key, &OperationUpdate)> {
        let waiting = self.waiting.iter();
        waiting.map(|(key, waiting)| (key, &waiting.update))
    }

    /// Whether this one's status is not acknowledged.
    pub fn awaits(&self, key: &Key) -> bool {
        self.waiting.contains_key(key)
    }

    /// When something is next overdue.
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

    fn held(described: &str, made: Resources) -> Result<Held, Invalid> {
        let checkpoint = Checkpoint {
            made,
            unacknowledged: Vec::new(),
            settled: 3,
        };
        Held::recovered(
            &parse(described),
            checkpoint,
            version(1),
            Instant::default(),
        )
    }

    #[test]
    fn an_operation_for_another_version_is_dropped_and_one_that_cannot_be_fails() {
        let held = held("cpus:4", Resources::new()).unwrap();
        let refused = |apply| held.prepare(&apply).unwrap_err().state;
        assert_eq!(refused(reserve("cpus:1", 2)), OperationState::Dropped);
        assert_eq!(refused(reserve("cpus:5", 1)), OperationState::Failed);
        let prepared = held.prepare(&reserve("cpus:1", 1)).unwrap();
        assert_eq!(prepared.total, parse("cpus:3") + reserved("cpus:1"));
        assert_eq!(
            *held.total(),
            parse("cpus:4"),
            "not before it is on the disk"
        );
    }

    #[test]
    fn what_has_a_serial_is_done_once_and_only_upon_what_it_was_meant_for() {
        let mut held = held("cpus:4", Resources::new()).unwrap();
        let apply = |serial, number| ApplyOperation {
            serial: Some(serial),
            ..reserve("cpus:1", number)
        };
        assert_eq!(held.report(version(1)).settled, Some(3));
        assert!(held.is_in_vain(&apply(3, 1)), "it is over");
        assert!(held.is_in_vain(&apply(4, 2)), "it was meant for another");
        assert!(
            !held.is_in_vain(&reserve("cpus:1", 2)),
            "its master hears it"
        );
        let fifth = apply(5, 1);
        assert!(!held.is_in_vain(&fifth));
        let prepared = held.prepare(&fifth).unwrap();
        let kept = held.checkpoint(&fifth, &prepared, None);
        assert_eq!((kept.settled, held.checkpoint_before().settled), (5, 3));
        held.settle(&fifth, prepared);
        assert!(held.is_in_vain(&fifth) && held.is_in_vain(&apply(4, 1)));
        held.give_up(&apply(6, 1));
        assert_eq!(held.report(version(2)).settled, Some(6));
    }

    #[test]
    fn what_was_sent_before_a_report_is_stale_after_it() {
        let mut held = held("cpus:4", Resources::new()).unwrap();
        let before = reserve("cpus:1", 1);
        assert_eq!(held.report(version(2)).version, version(2));
        assert!(held.prepare(&before).is_err());
        assert!(held.prepare(&reserve("cpus:1", 2)).is_ok());
    }

    #[test]
    fn a_checkpoint_is_laid_over_whatever_the_agent_is_started_with() {
        let made = reserved("cpus:3");
        let same = held("cpus:4;mem:10", made.clone()).unwrap();
        assert_eq!(*same.total(), parse("cpus:1;mem:10") + &made);
        let more = held("cpus:8;mem:20", made.clone()).unwrap();
        assert_eq!(*more.total(), parse("cpus:5;mem:20") + &made);
        let error = held("cpus:2;mem:10", made)
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

    /// Found by a rehearsal of a group (seed 2381): a volume was told of before one of the reservations that it was made of.
    #[test]
    fn what_was_done_is_told_as_it_was_done_by_the_next_process_too() {
        let mut first = held("cpus:4", Resources::new()).unwrap();
        let done = ["o9", "o10", "a1"];
        for id in done {
            first.await_acknowledgement(finished(id), Instant::default());
        }
        let kept = first.checkpoint_before();
        let next = Held::recovered(&parse("cpus:4"), kept, version(1), Instant::default()).unwrap();
        for mut held in [first, next] {
            assert_eq!(names(&held.report(version(2)).operations), done);
            assert_eq!(names(&held.all(Instant::default())), done);
            let late = Instant::default() + RESEND_MIN;
            assert_eq!(names(&held.overdue(late)), done);
            assert!(held.overdue(late).is_empty(), "each waits anew");
        }
    }

    #[test]
    fn what_it_did_as_another_agent_is_not_said_again() {
        let mut held = held("cpus:4", Resources::new()).unwrap();
        let ids = ["unknown", "old", "new"].map(|id| AgentId::new(id).unwrap());
        for did in &ids {
            let mut update = finished(did.as_str());
            // What was kept by an earlier Meros does not say.
            update.status.agent_id = (did.as_str() != "unknown").then(|| did.clone());
            held.await_acknowledgement(update, Instant::default());
        }
        let told = |held: &mut Held| names(&held.report(version(1)).operations);
        let forgotten = held.forget_others(Some(&ids[2]));
        let forgotten: Vec<_> = forgotten.iter().map(|(_, id)| id.as_str()).collect();
        assert_eq!(forgotten, ["old"]);
        assert_eq!(told(&mut held), ["unknown", "new"]);
        held.forget_others(None);
        assert_eq!(told(&mut held), ["unknown"]);
    }

    #[test]
    fn a_status_is_sent_until_it_is_acknowledged_and_waits_ever_longer() {
        let mut held = held("cpus:4", Resources::new()).unwrap();
        let key = (
            FrameworkId::new("f").unwrap(),
            OperationId::new("op").unwrap(),
        );
        let (state, none) = (OperationState::Finished, Resources::new());
        let update = update(key.clone(), state, String::new(), none, version(9));
        let start = Instant::default();
        held.await_acknowledgement(update.clone(), start);
        assert_eq!(held.overdue(start), []);
        let first = start + RESEND_MIN;
        assert_eq!(held.next_due(), Some(first));
        assert_eq!(held.overdue(first), std::slice::from_ref(&update));
        assert_eq!(held.next_due(), Some(first + RESEND_MIN * 2));
        held.acknowledge(&key, version(8));
        assert_eq!(
            held.all(first),
            [update],
            "an acknowledgement of something else"
        );
        held.acknowledge(&key, version(9));
        assert_eq!(held.next_due(), None);
    }
}
