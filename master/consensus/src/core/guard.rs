//! What of a peer's messages raft may see. raft panics where a message contradicts its state; what could, is refused here.
//!
//! The shape of a message was checked before ([`Packet::check`](crate::wire::Packet::check)): members are distinct, entries follow
//! each other without a gap, no number can overflow. What is left depends on this member's log and role.

use raft::{Raft, StateRole};

use super::memory::Memory;
use crate::wire::{Message, MessageKind, Refused};

/// What a read is known by, in bytes: it is attached to heartbeats, so nobody may make it longer.
const READ_CONTEXT_BYTES: usize = 24;

/// Whether this message can be stepped without harm; `settled` says that all of the log is on the disk.
pub(crate) fn judge(
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
        // A leader names no more than what this member has acknowledged to it.
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
            // raft 0.7.0 would go back behind what is known to match.
            let matched = raft
                .prs()
                .get(message.from)
                .map_or(0, |progress| progress.matched);
            if message.reject && message.index <= matched {
                return useless("it rejects what it has accepted since");
            }
            Ok(())
        }
        MessageKind::TimeoutNow if message.term != raft.term || message.from != raft.leader_id => {
            useless("only the leader of this term hands over")
        }
        MessageKind::TimeoutNow if !settled => useless("not all that is here is on the disk yet"),
        MessageKind::ReadIndex => {
            let bytes = message.entries.first().map_or(0, |entry| entry.data.len());
            if bytes != READ_CONTEXT_BYTES {
                return useless("a read is known by 24 bytes");
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
