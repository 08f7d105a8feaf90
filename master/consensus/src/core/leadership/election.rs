//! The election timeout, and when a member must not start an election.

use raft::StateRole;
use rand::Rng;

use crate::core::Core;

impl Core {
    /// Whether the next tick may start an election, if it is due. Entries that are not synced must
    /// not win one; the tick after the write may start it.
    pub(in crate::core) fn may_campaign(&self) -> bool {
        let raft = &self.raw.raft;
        let due = raft.state != StateRole::Leader
            && raft.election_elapsed + 1 >= raft.randomized_election_timeout();
        !due || self.settled()
    }

    /// Whether the whole log is on the disk. The raft crate assumes this when a member requests
    /// votes.
    pub(in crate::core) fn settled(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        log.persisted == log.last_index() && self.stash.log_is_on_disk()
    }

    /// The raft crate draws election timeouts from a thread-local generator.
    /// [`config`](crate::core::config) makes its range far larger than allowed here, so a freshly
    /// drawn one is recognized by its size and replaced by one from the seed before it is used.
    pub(in crate::core) fn draw_timeout(&mut self) {
        let base = self.settings.election_ticks;
        if self.raw.raft.randomized_election_timeout() >= 2 * base {
            let drawn = self.rng.random_range(base..2 * base);
            self.raw.raft.set_randomized_election_timeout(drawn);
        }
    }
}
