//! Checkers of tasks and executors, from launch to end.
//!
//! | module | contents |
//! |---|---|
//! | `corrections` | revocable tasks give way on a busy machine, and no others do |
//! | `executors` | an executor's death ends its tasks, and its agent reports it |
//! | `launches` | one process for each container, no task launched twice |
//! | `revocations` | a revoked task is announced and gets its grace period |
//! | `states` | a task ends once and for ever, and a running one has a process |
//! | `status_origin` | no checker: the sender and reason of a status |
//! | `updates` | an update that an agent has stored reaches its framework, in order |

pub(in crate::checkers) mod corrections;
pub(in crate::checkers) mod executors;
pub(in crate::checkers) mod launches;
pub(in crate::checkers) mod revocations;
pub(in crate::checkers) mod states;
pub(in crate::checkers) mod status_origin;
pub(in crate::checkers) mod updates;
