//! What can go wrong when a master is started.

use runtime::SpawnError;

use crate::config::InvalidConfig;

/// Why a master was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A choice of the operator cannot be: correct the flag it names.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// Its id is not one.
    #[error(transparent)]
    Id(#[from] protocol::InvalidId),
    /// Its actor cannot run on this node.
    #[error("the master's actor cannot be started")]
    Spawn(#[from] SpawnError),
}
