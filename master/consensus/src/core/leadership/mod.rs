//! How a member becomes the leader, and gives the leadership to another.
//!
//! | module | contents |
//! |---|---|
//! | `election` | the election timeout, and when a member must not start an election |
//! | `handover` | handover of the leadership, also away from a leader whose disk hangs |

mod election;
mod handover;
