//! The registry's records in a store: one for each agent, unreachable agent, framework, removed
//! framework, leading scheduler, key of a framework's state, quota and weight of a role, scheduled
//! machine, gone agent, agent with orders, and accepted operation.
//!
//! Each value begins with the id and version of its form, like messages on the wire, so that a
//! later version can identify it. Pure except for the given store. An unknown record is an error
//! with its key.

use protocol::message::state::{self, StateValue};
use protocol::{AgentId, AgentInfo, AgentOrders, FrameworkId, MachineId, Quota};
use runtime::wire::codec;
use runtime::wire::message::id_of;
use runtime::{Pid, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use storage::{Changes, Record, Store, VALUE_BYTES_MAX};

use super::accepted::{AcceptedOperation, AcceptedRecord};
use super::local::OpenError;
use super::machines::Machine;
use super::state::{Entry, FrameworkEntry, RegistryState};
use super::{RegistryError, RegistryOperation};

const PAGE: usize = 1_000;
/// The form's version, in each value after the form's id.
const FORM: u16 = 1;
/// Bytes of a value before its content.
const HEAD: usize = 6;

/// A kind of record: the prefix of its keys, which is also the name of its form.
#[derive(Clone, Copy)]
struct Kind(&'static str);

const AGENT: Kind = Kind("registry/agent/");
const UNREACHABLE: Kind = Kind("registry/unreachable/");
const FRAMEWORK: Kind = Kind("registry/framework/");
const REMOVED: Kind = Kind("registry/removed/");
const LEADING: Kind = Kind("registry/leading/");
const STATE: Kind = Kind("registry/state/");
const QUOTA: Kind = Kind("registry/quota/");
const WEIGHT: Kind = Kind("registry/weight/");
const MACHINE: Kind = Kind("registry/machine/");
const GONE: Kind = Kind("registry/gone/");
const ORDERS: Kind = Kind("registry/orders/");
const ACCEPTED: Kind = Kind("registry/accepted/");
const VERSION: Kind = Kind("registry/version/");

/// A key of a framework's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRecord {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The key.
    pub key: String,
    /// The value.
    pub value: StateValue,
}

impl Kind {
    fn key(self, id: &str) -> Vec<u8> {
        [self.0.as_bytes(), id.as_bytes()].concat()
    }

    fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>, RegistryError> {
        let refused = |reason: String| RegistryError::Refused { reason };
        let body = codec::encode(value).map_err(|error| refused(error.to_string()))?;
        let mut bytes = Vec::with_capacity(HEAD + body.len());
        bytes.extend(id_of(self.0).to_le_bytes());
        bytes.extend(FORM.to_le_bytes());
        bytes.extend(body);
        if bytes.len() > VALUE_BYTES_MAX {
            let (found, kind) = (bytes.len(), self.0);
            let reason =
                format!("{kind} record is {found} bytes: expected at most {VALUE_BYTES_MAX}");
            return Err(refused(reason));
        }
        Ok(bytes)
    }

    fn decode<T: DeserializeOwned>(self, record: &Record) -> Result<T, OpenError> {
        let damaged = |reason: String| OpenError::Record {
            key: String::from_utf8_lossy(&record.key).into_owned(),
            reason,
        };
        let head = record
            .value
            .get(..HEAD)
            .ok_or_else(|| damaged("shorter than its head".to_owned()))?;
        let expected = [
            id_of(self.0).to_le_bytes().as_slice(),
            &FORM.to_le_bytes()[..],
        ]
        .concat();
        if head != expected.as_slice() {
            return Err(damaged(format!(
                "its form is {head:02x?}, expected {expected:02x?}"
            )));
        }
        codec::decode(&record.value[HEAD..]).map_err(|error| damaged(error.to_string()))
    }
}

/// Refuses an operation whose record would be too large for a store.
pub(super) fn check(operation: &RegistryOperation) -> Result<(), RegistryError> {
    match operation {
        RegistryOperation::AdmitAgent { info } | RegistryOperation::MarkAgentReachable { info } => {
            AGENT.encode(info).map(drop)
        }
        RegistryOperation::AdmitFramework { info, deadline } => FRAMEWORK
            .encode(&FrameworkEntry {
                info: info.clone(),
                deadline: *deadline,
            })
            .map(drop),
        RegistryOperation::AppointScheduler { info, .. } => FRAMEWORK
            .encode(&FrameworkEntry {
                info: info.clone(),
                deadline: None,
            })
            .map(drop),
        RegistryOperation::ChangeFrameworkState { key, value, .. } => state::check_key(key)
            .and_then(|()| state::check_value(value.as_deref().unwrap_or_default()))
            .map_err(|invalid| RegistryError::Refused {
                reason: invalid.to_string(),
            }),
        RegistryOperation::UpdateQuotas { quotas } => quotas
            .iter()
            .try_for_each(|record| QUOTA.encode(&record).map(drop)),
        RegistryOperation::AcceptOperations {
            agent_id,
            operations,
        } => operations
            .iter()
            .try_for_each(|(serial, operation)| check_accepted(agent_id, *serial, operation)),
        RegistryOperation::ForgetOperations { .. }
        | RegistryOperation::UpdateWeights { .. }
        | RegistryOperation::UpdateMaintenanceSchedule { .. }
        | RegistryOperation::StartMaintenance { .. }
        | RegistryOperation::StopMaintenance { .. }
        | RegistryOperation::MarkAgentGone { .. }
        | RegistryOperation::DrainAgent { .. }
        | RegistryOperation::MarkAgentDrained { .. }
        | RegistryOperation::DeactivateAgent { .. }
        | RegistryOperation::ReactivateAgent { .. }
        | RegistryOperation::CancelDrain { .. }
        | RegistryOperation::MarkAgentUnreachable { .. }
        | RegistryOperation::RemoveAgent { .. }
        | RegistryOperation::RemoveFramework { .. } => Ok(()),
    }
}

/// Refuses an operation whose record would be too large for a store.
pub(crate) fn check_accepted(
    agent_id: &AgentId,
    serial: u64,
    operation: &AcceptedOperation,
) -> Result<(), RegistryError> {
    ACCEPTED.encode(&(agent_id, serial, operation)).map(drop)
}

/// Adds the changes that update these records to `state`.
pub(super) fn write(
    state: &RegistryState,
    touched: &[Entry],
    changes: &mut Changes,
) -> Result<(), RegistryError> {
    for entry in touched {
        let (key, value) = match entry {
            Entry::Agent(id) => (
                AGENT.key(id.as_str()),
                state
                    .agents
                    .get(id)
                    .map(|info| AGENT.encode(info))
                    .transpose()?,
            ),
            Entry::Unreachable(id) => (
                UNREACHABLE.key(id.as_str()),
                state
                    .unreachable
                    .get(id)
                    .map(|since| UNREACHABLE.encode(since))
                    .transpose()?,
            ),
            Entry::Framework(id) => (
                FRAMEWORK.key(id.as_str()),
                state
                    .frameworks
                    .get(id)
                    .map(|entry| FRAMEWORK.encode(entry))
                    .transpose()?,
            ),
            Entry::Removed(id) => (
                REMOVED.key(id.as_str()),
                state
                    .removed_frameworks
                    .contains(id)
                    .then(|| REMOVED.encode(id))
                    .transpose()?,
            ),
            Entry::Leading(id) => (
                LEADING.key(id.as_str()),
                state
                    .leading
                    .get(id)
                    .map(|pid| LEADING.encode(pid))
                    .transpose()?,
            ),
            Entry::State(framework_id, key) => {
                let value = state.framework_states.get(framework_id, key);
                let record = value.map(|value| StateRecord {
                    framework_id: framework_id.clone(),
                    key: key.clone(),
                    value: value.clone(),
                });
                // No id contains a slash, so keys of different frameworks differ.
                let place = format!("{framework_id}/{key}");
                let value = record.map(|record| STATE.encode(&record)).transpose()?;
                (STATE.key(&place), value)
            }
            Entry::Quota(role) => {
                let record = state.quotas.get_key_value(role);
                let value = record.map(|record| QUOTA.encode(&record)).transpose()?;
                (QUOTA.key(role), value)
            }
            Entry::Weight(role) => {
                let record = state.weights.get_key_value(role);
                let value = record.map(|record| WEIGHT.encode(&record)).transpose()?;
                (WEIGHT.key(role), value)
            }
            Entry::Machine(id) => {
                let machine = state.machines.get(id);
                let value = machine.map(|machine| MACHINE.encode(&(id, machine)));
                // No address contains a slash, so keys of different machines differ.
                let place = format!("{}/{}", id.ip(), id.hostname());
                (MACHINE.key(&place), value.transpose()?)
            }
            Entry::Gone(id) => {
                let since = state.gone.get(id);
                let value = since.map(|since| GONE.encode(since)).transpose()?;
                (GONE.key(id.as_str()), value)
            }
            Entry::Orders(id) => {
                let orders = state.orders.get(id);
                let value = orders.map(|orders| ORDERS.encode(orders)).transpose()?;
                (ORDERS.key(id.as_str()), value)
            }
            Entry::Accepted(id, serial) => {
                let operation = state.accepted.get(id, *serial);
                // Encoded like an `AcceptedRecord`, without a copy.
                let value = operation.map(|operation| ACCEPTED.encode(&(id, serial, operation)));
                // No id contains a slash, so keys of different agents differ.
                let place = format!("{id}/{serial:020}");
                (ACCEPTED.key(&place), value.transpose()?)
            }
        };
        match value {
            Some(value) => changes.put(key, value),
            None => changes.remove(key),
        };
    }
    changes.put(VERSION.key(""), VERSION.encode(&state.version)?);
    Ok(())
}

/// Reads the whole content.
pub(super) fn load(store: &dyn Store) -> Result<RegistryState, OpenError> {
    let mut state = RegistryState::default();
    each(store, AGENT, |record| {
        let info: AgentInfo = AGENT.decode(record)?;
        if let Some(id) = info.id.clone() {
            state.agents.insert(id, info);
        }
        Ok(())
    })?;
    each(store, UNREACHABLE, |record| {
        let since: Timestamp = UNREACHABLE.decode(record)?;
        let id: AgentId = id_in(UNREACHABLE, record)?;
        state.unreachable.insert(id, since);
        Ok(())
    })?;
    each(store, FRAMEWORK, |record| {
        let entry: FrameworkEntry = FRAMEWORK.decode(record)?;
        if let Some(id) = entry.info.id.clone() {
            state.frameworks.insert(id, entry);
        }
        Ok(())
    })?;
    each(store, REMOVED, |record| {
        let id: FrameworkId = REMOVED.decode(record)?;
        state.removed_frameworks.push_back(id);
        Ok(())
    })?;
    each(store, LEADING, |record| {
        let pid: Pid = LEADING.decode(record)?;
        let id: FrameworkId = id_in(LEADING, record)?;
        state.leading.insert(id, pid);
        Ok(())
    })?;
    each(store, STATE, |record| {
        let record: StateRecord = STATE.decode(record)?;
        let states = &mut state.framework_states;
        states.set(&record.framework_id, &record.key, Some(record.value));
        Ok(())
    })?;
    each(store, QUOTA, |record| {
        state
            .quotas
            .extend([QUOTA.decode::<(String, Quota)>(record)?]);
        Ok(())
    })?;
    each(store, WEIGHT, |record| {
        state
            .weights
            .extend([WEIGHT.decode::<(String, f64)>(record)?]);
        Ok(())
    })?;
    each(store, MACHINE, |record| {
        let (id, machine): (MachineId, Machine) = MACHINE.decode(record)?;
        state.machines.put(id, machine);
        Ok(())
    })?;
    each(store, GONE, |record| {
        let since: Timestamp = GONE.decode(record)?;
        state.gone.insert(id_in(GONE, record)?, since);
        Ok(())
    })?;
    each(store, ORDERS, |record| {
        let orders: AgentOrders = ORDERS.decode(record)?;
        state.orders.insert(id_in(ORDERS, record)?, orders);
        Ok(())
    })?;
    each(store, ACCEPTED, |record| {
        let record: AcceptedRecord = ACCEPTED.decode(record)?;
        let accepted = &mut state.accepted;
        accepted.put(record.agent_id, record.serial, record.operation);
        Ok(())
    })?;
    each(store, VERSION, |record| {
        state.version = VERSION.decode(record)?;
        Ok(())
    })?;
    Ok(state)
}

/// The id at the end of a record's key.
fn id_in<T: std::str::FromStr<Err = protocol::InvalidId>>(
    kind: Kind,
    record: &Record,
) -> Result<T, OpenError> {
    let key = String::from_utf8_lossy(&record.key).into_owned();
    key.get(kind.0.len()..)
        .unwrap_or_default()
        .parse()
        .map_err(|error: protocol::InvalidId| OpenError::Record {
            reason: error.to_string(),
            key,
        })
}

/// Reads all records of one kind, a page at a time.
fn each(
    store: &dyn Store,
    kind: Kind,
    mut read: impl FnMut(&Record) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = store.page(kind.0.as_bytes(), after.as_deref(), PAGE)?;
        for record in &page {
            read(record)?;
        }
        let full = page.len() == PAGE;
        after = page.into_iter().next_back().map(|record| record.key);
        if !full {
            return Ok(());
        }
    }
}
