//! When a member may become the leader, and how it gives the leadership to another. The votes
//! themselves are counted by the crate `raft`.
//!
//! | module | contents |
//! |---|---|
//! | `election` | the election timeout, and when a member must not start an election |
//! | `handover` | handover of the leadership, also away from a leader whose disk hangs |

mod election;
mod handover;
