//! Operations: what a framework asks to be done with the resources of offers it accepts (SPEC 2.8, `Offer.Operation`).

use serde::{Deserialize, Serialize};

use crate::task::TaskInfo;

/// One step of an accept; steps are applied in order, each seeing the result of the one before.
///
/// Reservations and volumes come with the registry that records them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// Start these tasks.
    Launch {
        /// One or more; an empty list declines.
        tasks: Vec<TaskInfo>,
    },
}
