//! The registry as a state machine that a group of masters replicates.
//!
//! Driven by `consensus`: the same operations in the same order on every member. Contains only
//! [`RegistryState`]. A snapshot begins with the id and version of its form, and is written in
//! pieces within the codec's limit, at any size. Reads no clock and never fails: a refused
//! operation changes nothing, and the refusal is its answer.
//!
//! Operations have one form, the first, whose bytes are in `machine/golden.txt`. A new or changed
//! operation requires a second form, see [`StateMachine::newest_format`].

use bytes::{BufMut, BytesMut};
use consensus::machine::{CannotRestore, StateMachine};
use protocol::{AgentId, AgentInfo, AgentOrders, FrameworkId, MachineId, Quota};
use runtime::wire::codec;
use runtime::wire::codec::Garbled;
use runtime::wire::message::id_of;
use runtime::{Pid, Timestamp};
use serde::{Deserialize, Serialize};

use super::accepted::AcceptedRecord;
use super::machines::Machine;
use super::record::{self, StateRecord};
use super::state::{FrameworkEntry, RegistryState};
use super::{Applied, RegistryError, RegistryOperation};

/// The name of a snapshot's form.
const NAME: &str = "registry/snapshot";
/// Its version.
const FORM: u16 = 1;
/// Maximum records per piece. Each is bounded ([`record::check`]), so a piece stays within the
/// codec's limit.
const PIECE_RECORDS: usize = 256;
/// Maximum version in a snapshot, so that counting on never overflows.
const VERSION_MAX: u64 = 1 << 62;

/// A record of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SnapshotRecord {
    /// Number of applied operations.
    Version(u64),
    /// An admitted agent.
    Agent(AgentInfo),
    /// An unreachable agent, and since when.
    Unreachable(AgentId, Timestamp),
    /// An admitted framework.
    Framework(FrameworkEntry),
    /// A removed framework; oldest first.
    Removed(FrameworkId),
    /// The leading scheduler of a framework with standbys.
    Leading(FrameworkId, Pid),
    /// A key of a framework's state.
    State(StateRecord),
    /// The quota of a role.
    Quota(String, Quota),
    /// The weight of a role.
    Weight(String, f64),
    /// A scheduled machine.
    Machine(MachineId, Machine),
    /// An agent that is gone for good, and since when.
    Gone(AgentId, Timestamp),
    /// Operators' orders for an agent.
    Orders(AgentId, AgentOrders),
    /// An accepted operation.
    Accepted(AcceptedRecord),
}

/// The replicated registry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegistryMachine {
    state: RegistryState,
}

impl RegistryMachine {
    /// An empty registry, as in every new group.
    pub fn new() -> Self {
        Self::default()
    }

    /// The content.
    pub fn state(&self) -> &RegistryState {
        &self.state
    }
}

impl StateMachine for RegistryMachine {
    type Operation = RegistryOperation;
    type Answer = Result<Applied, RegistryError>;

    fn apply(&mut self, _: u64, operation: RegistryOperation) -> Self::Answer {
        record::check(&operation)?;
        self.state.change(&operation)
    }

    fn snapshot_into(&self, into: &mut BytesMut) -> Result<(), Garbled> {
        into.put_u32_le(id_of(NAME));
        into.put_u16_le(FORM);
        let mut records = records(&self.state).peekable();
        while records.peek().is_some() {
            // Copies one piece at a time, since the state may be large.
            let piece: Vec<SnapshotRecord> = records.by_ref().take(PIECE_RECORDS).collect();
            let length = into.len();
            into.put_u64_le(0);
            let start = into.len();
            codec::encode_into(&piece, into)?;
            let written = (into.len() - start) as u64;
            into[length..start].copy_from_slice(&written.to_le_bytes());
        }
        Ok(())
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore> {
        self.state = read(bytes).map_err(|reason| CannotRestore { reason })?;
        Ok(())
    }
}

fn records(state: &RegistryState) -> impl Iterator<Item = SnapshotRecord> {
    let agents = state.agents.values().cloned().map(SnapshotRecord::Agent);
    let unreachable = state.unreachable.iter();
    let frameworks = state.frameworks.values().cloned();
    let removed = state.removed_frameworks.iter().cloned();
    let leading = state.leading.iter();
    let states = state.framework_states.iter().map(|(id, key, value)| {
        let (framework_id, key) = (id.clone(), key.to_owned());
        StateRecord {
            framework_id,
            key,
            value: value.clone(),
        }
    });
    let quotas = state.quotas.clone().into_iter();
    let weights = state.weights.clone().into_iter();
    let machines = state.machines.iter();
    let gone = state.gone.iter();
    let orders = state.orders.iter();
    let accepted = state.accepted.iter().map(|(agent_id, serial, operation)| {
        let (agent_id, operation) = (agent_id.clone(), operation.clone());
        AcceptedRecord {
            agent_id,
            serial,
            operation,
        }
    });
    [SnapshotRecord::Version(state.version)]
        .into_iter()
        .chain(agents)
        .chain(unreachable.map(|(id, since)| SnapshotRecord::Unreachable(id.clone(), *since)))
        .chain(frameworks.map(SnapshotRecord::Framework))
        .chain(removed.map(SnapshotRecord::Removed))
        .chain(leading.map(|(id, pid)| SnapshotRecord::Leading(id.clone(), pid.clone())))
        .chain(states.map(SnapshotRecord::State))
        .chain(quotas.map(|(role, quota)| SnapshotRecord::Quota(role, quota)))
        .chain(weights.map(|(role, weight)| SnapshotRecord::Weight(role, weight)))
        .chain(machines.map(|(id, machine)| SnapshotRecord::Machine(id.clone(), machine.clone())))
        .chain(gone.map(|(id, since)| SnapshotRecord::Gone(id.clone(), *since)))
        .chain(orders.map(|(id, orders)| SnapshotRecord::Orders(id.clone(), *orders)))
        .chain(accepted.map(SnapshotRecord::Accepted))
}

fn read(bytes: &[u8]) -> Result<RegistryState, String> {
    let (form, mut rest) = bytes
        .split_first_chunk::<6>()
        .ok_or("it is shorter than its head")?;
    let expected = [
        id_of(NAME).to_le_bytes().as_slice(),
        &FORM.to_le_bytes()[..],
    ]
    .concat();
    if form.as_slice() != expected {
        return Err(format!("its form is {form:02x?}, expected {expected:02x?}"));
    }
    let mut state = RegistryState::default();
    let mut versions = 0;
    while let Some((length, after)) = rest.split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (piece, after) = after
            .split_at_checked(length)
            .ok_or_else(|| format!("a piece of {length} bytes is cut short"))?;
        let piece: Vec<SnapshotRecord> = codec::decode(piece).map_err(|error| error.to_string())?;
        for record in piece {
            versions += usize::from(matches!(record, SnapshotRecord::Version(_)));
            put(&mut state, record)?;
        }
        rest = after;
    }
    match (rest.len(), versions) {
        (0, 1) => Ok(state),
        (0, versions) => Err(format!("it names {versions} versions, expected one")),
        (left, _) => Err(format!("{left} bytes are left over")),
    }
}

fn put(state: &mut RegistryState, record: SnapshotRecord) -> Result<(), String> {
    match record {
        SnapshotRecord::Version(version) if version > VERSION_MAX => {
            return Err(format!(
                "its version is {version}, expected at most {VERSION_MAX}"
            ));
        }
        SnapshotRecord::Version(version) => state.version = version,
        SnapshotRecord::Agent(info) => {
            let id = info.id.clone().ok_or("an agent has no id")?;
            state.agents.insert(id, info);
        }
        SnapshotRecord::Unreachable(id, since) => {
            state.unreachable.insert(id, since);
        }
        SnapshotRecord::Framework(entry) => {
            let id = entry.info.id.clone().ok_or("a framework has no id")?;
            state.frameworks.insert(id, entry);
        }
        SnapshotRecord::Removed(id) => state.removed_frameworks.push_back(id),
        SnapshotRecord::Leading(id, pid) => {
            state.leading.insert(id, pid);
        }
        SnapshotRecord::State(record) => {
            let states = &mut state.framework_states;
            states.set(&record.framework_id, &record.key, Some(record.value));
        }
        SnapshotRecord::Quota(role, quota) => drop(state.quotas.insert(role, quota)),
        SnapshotRecord::Weight(role, weight) => drop(state.weights.insert(role, weight)),
        SnapshotRecord::Machine(id, machine) => state.machines.put(id, machine),
        SnapshotRecord::Gone(id, since) => drop(state.gone.insert(id, since)),
        SnapshotRecord::Orders(id, orders) => drop(state.orders.insert(id, orders)),
        SnapshotRecord::Accepted(record) => {
            let AcceptedRecord {
                agent_id,
                serial,
                operation,
            } = record;
            state.accepted.put(agent_id, serial, operation);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use consensus::machine::FIRST_FORMAT;

    use super::super::samples::story;
    use super::*;

    fn after(operations: &[RegistryOperation]) -> RegistryMachine {
        let mut machine = RegistryMachine::new();
        for (index, operation) in (1..).zip(operations) {
            let _ = machine.apply(index, operation.clone());
        }
        machine
    }

    #[test]
    fn snapshot_round_trips_and_truncated_ones_are_refused() {
        let machine = after(&story());
        let snapshot = machine.snapshot().unwrap();
        let mut again = RegistryMachine::new();
        again.restore(&snapshot).unwrap();
        assert_eq!(again, machine);
        for length in 0..snapshot.len() {
            assert!(again.restore(&snapshot[..length]).is_err(), "{length}");
        }
        assert_eq!(again, machine, "what was refused has changed nothing");
    }

    /// Every change increments the version of a restored snapshot.
    #[test]
    fn snapshot_version_that_would_overflow_is_refused() {
        let holding = |version| {
            let state = RegistryState {
                version,
                ..RegistryState::default()
            };
            RegistryMachine { state }
        };
        let framework_id = FrameworkId::new("f").unwrap();
        let mut machine = RegistryMachine::new();
        machine
            .restore(&holding(VERSION_MAX).snapshot().unwrap())
            .unwrap();
        let applied = machine.apply(1, RegistryOperation::RemoveFramework { framework_id });
        assert_eq!(applied.unwrap().version, VERSION_MAX + 1);
        let error = machine
            .restore(&holding(u64::MAX).snapshot().unwrap())
            .unwrap_err();
        let expected = format!(
            "its version is {}, expected at most {VERSION_MAX}",
            u64::MAX
        );
        assert_eq!(error.reason, expected);
    }

    /// Stored values begin with the index of their variant: new variants come last.
    #[test]
    fn variant_indexes_stay_stable() {
        let first = |bytes: Vec<u8>| bytes[0];
        let mut places: Vec<u8> = story()
            .iter()
            .map(|operation| first(codec::encode(operation).unwrap()))
            .collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places, (0..18).chain(19..21).collect::<Vec<u8>>());
        let removed = &story()[9];
        assert_eq!(first(codec::encode(removed).unwrap()), 5);
        let machine = after(&story());
        let places: Vec<u8> = records(machine.state())
            .map(|record| first(codec::encode(&record).unwrap()))
            .collect();
        assert_eq!(places, [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 12]);
    }

    /// Every later version reads the stored bytes: an operation with other bytes is another form.
    /// `MEROS_WRITE_GOLDEN=1` rewrites the file, which is allowed only for operations that no
    /// release has written.
    #[test]
    fn operations_of_the_first_form_keep_their_bytes() {
        let machine = RegistryMachine::new();
        let line = |operation: &RegistryOperation| {
            let bytes = machine.encode(operation, FIRST_FORMAT).unwrap();
            assert_eq!(&machine.decode(&bytes, FIRST_FORMAT).unwrap(), operation);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let now: Vec<String> = story().iter().map(line).collect();
        if std::env::var_os("MEROS_WRITE_GOLDEN").is_some() {
            let file = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/registry/machine/golden.txt"
            );
            std::fs::write(file, now.join("\n") + "\n").unwrap();
        }
        let golden: Vec<&str> = include_str!("golden.txt").lines().collect();
        assert_eq!(golden, now);
    }

    #[test]
    fn unknown_snapshot_form_is_refused() {
        let mut snapshot = RegistryMachine::new().snapshot().unwrap().to_vec();
        snapshot[4] = 2;
        let error = RegistryMachine::new().restore(&snapshot).unwrap_err();
        let expected = "expected [";
        assert!(error.reason.contains(expected), "{}", error.reason);
    }

    #[test]
    fn refusal_changes_nothing_and_is_the_answer() {
        let mut machine = after(&story());
        let before = machine.clone();
        let RegistryOperation::AdmitFramework { info, .. } = story().remove(8) else {
            panic!("the story has changed");
        };
        let deadline = None;
        let refused = machine.apply(99, RegistryOperation::AdmitFramework { info, deadline });
        assert!(matches!(refused, Err(RegistryError::Refused { .. })));
        assert_eq!(machine, before);
    }

    proptest! {
        #[test]
        fn any_number_of_records_round_trips(count in 0..1_000_usize) {
            let mut machine = RegistryMachine::new();
            for nth in 0..count {
                let framework_id = FrameworkId::new(format!("f{nth}")).unwrap();
                machine.apply(nth as u64, RegistryOperation::RemoveFramework { framework_id }).unwrap();
            }
            let mut again = RegistryMachine::new();
            again.restore(&machine.snapshot().unwrap()).unwrap();
            prop_assert_eq!(again, machine);
        }

        #[test]
        fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut head = RegistryMachine::new().snapshot().unwrap()[..6].to_vec();
            head.extend(&bytes);
            let _ = RegistryMachine::new().restore(&head);
            prop_assert!(RegistryMachine::new().restore(&bytes).is_err());
        }
    }
}
