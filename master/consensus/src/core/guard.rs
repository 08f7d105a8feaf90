//! Filters messages before the raft crate, which panics if one contradicts its state.
//!
//! [`Packet::check`](crate::wire::Packet::check) has already validated the form: distinct members,
//! entries without gaps, no overflows. The checks here depend on this member's log and role.

use raft::{Raft, StateRole};

use super::memory::Memory;
use crate::wire::{Message, MessageKind, Refused};

/// The length of a read's context in bytes. Contexts are attached to heartbeats, so peers may not
/// enlarge them.
const READ_CONTEXT_BYTES: usize = 24;

/// Checks that this message can be stepped without a panic. `settled`: the whole log is synced.
pub(crate) fn check(
    raft: &Raft<Memory>,
    message: &Message,
    settled: bool,
    reads_max: usize,
) -> Result<(), Refused> {
    let last = raft.raft_log.last_index();
    let contradiction = |reason| {
        Err(Refused::Contradiction {
            kind: message.kind,
            from: message.from,
            reason,
        })
    };
    let useless = |reason| {
        Err(Refused::Useless {
            kind: message.kind,
            from: message.from,
            reason,
        })
    };
    let leads = raft.state == StateRole::Leader;
    match message.kind {
        MessageKind::Append | MessageKind::Heartbeat if leads && message.term == raft.term => {
            contradiction("this member leads in that term")
        }
        // A leader names no index beyond this member's acknowledgements.
        MessageKind::Heartbeat if message.term >= raft.term && message.commit > last => {
            Err(Refused::Forgotten {
                leader: message.from,
                acknowledged: message.commit,
                last,
            })
        }
        MessageKind::Appended if leads && message.term == raft.term => {
            if message.index > last || message.reject_hint > last {
                return contradiction("it names an entry that this leader never had");
            }
            // raft 0.7.0 would move `next` back below the matched index.
            let matched = raft
                .prs()
                .get(message.from)
                .map_or(0, |progress| progress.matched);
            if message.reject && message.index <= matched {
                return useless("it rejects an entry that it has accepted since");
            }
            Ok(())
        }
        MessageKind::TimeoutNow if message.term != raft.term || message.from != raft.leader_id => {
            useless("only the leader of this term hands over")
        }
        MessageKind::TimeoutNow if !settled => useless("the log is not synced yet"),
        MessageKind::ReadIndex => {
            let bytes = message.entries.first().map_or(0, |entry| entry.data.len());
            if bytes != READ_CONTEXT_BYTES {
                return useless("a read's context has 24 bytes");
            }
            if !leads || !raft.commit_to_current_term() {
                return useless("this member does not lead, or not long enough to know");
            }
            if raft.pending_read_count() >= reads_max {
                return useless("too many reads wait");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
