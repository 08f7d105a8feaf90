//! The bounds of the registry's records, checked before an operation is applied. Pure.

use protocol::message::state::{self, StateValue};
use protocol::{AgentId, FrameworkId};
use runtime::wire::codec;
use serde::{Deserialize, Serialize};

use super::accepted::AcceptedOperation;
use super::state::FrameworkEntry;
use super::{RegistryError, RegistryOperation};

/// Maximum bytes of a record.
const RECORD_BYTES_MAX: usize = 96 * 1024;

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

/// Refuses an operation with a record that is too large.
pub(super) fn check(operation: &RegistryOperation) -> Result<(), RegistryError> {
    match operation {
        RegistryOperation::AdmitAgent { info } | RegistryOperation::MarkAgentReachable { info } => {
            check_size("agent", info)
        }
        RegistryOperation::AdmitFramework { info, deadline } => check_size(
            "framework",
            &FrameworkEntry {
                info: info.clone(),
                deadline: *deadline,
            },
        ),
        RegistryOperation::AppointScheduler { info, .. } => check_size("framework", info),
        RegistryOperation::ChangeFrameworkState { key, value, .. } => state::check_key(key)
            .and_then(|()| state::check_value(value.as_deref().unwrap_or_default()))
            .map_err(|invalid| RegistryError::Refused {
                reason: invalid.to_string(),
            }),
        RegistryOperation::UpdateQuotas { quotas } => quotas
            .iter()
            .try_for_each(|record| check_size("quota", &record)),
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

/// Refuses an accepted operation with a record that is too large.
pub(crate) fn check_accepted(
    agent_id: &AgentId,
    serial: u64,
    operation: &AcceptedOperation,
) -> Result<(), RegistryError> {
    check_size("operation", &(agent_id, serial, operation))
}

fn check_size<T: Serialize>(kind: &str, record: &T) -> Result<(), RegistryError> {
    let refused = |reason| Err(RegistryError::Refused { reason });
    match codec::encode(record).map(|bytes| bytes.len()) {
        Ok(..=RECORD_BYTES_MAX) => Ok(()),
        Ok(found) => refused(format!(
            "the {kind}'s record is {found} bytes: expected at most {RECORD_BYTES_MAX}"
        )),
        Err(error) => refused(error.to_string()),
    }
}
