//! Errors at the start of a master.

use runtime::SpawnError;

use crate::config::InvalidConfig;

/// Why a master was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An invalid setting: correct the flag that it names.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// An invalid master id.
    #[error(transparent)]
    Id(#[from] protocol::InvalidId),
    /// Its actor cannot be started on this node.
    #[error("the master's actor cannot be started")]
    Spawn(#[from] SpawnError),
}
