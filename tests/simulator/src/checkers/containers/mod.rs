//! Containers: what isolators prepare, the processes in it, and its removal.
//!
//! | module | contents |
//! |---|---|
//! | `groups` | the failure of a task ends its group |
//! | `isolation` | each container is prepared before its start and cleaned up once after its end |

pub mod groups;
pub mod isolation;
