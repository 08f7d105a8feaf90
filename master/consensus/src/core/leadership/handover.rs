//! Handover of the leadership: by an operator, by a retiring member, and by a leader whose disk
//! hangs.
//!
//! A slow disk delays answers but does not end the leadership, because heartbeats need no sync. But
//! a leader cannot apply entries that its own disk lacks, so a hanging write blocks all answers.
//! After a long wait, if a majority has later entries, one of that majority should lead; if that
//! fails, another one at the next election timeout. The old leader cannot campaign before its own
//! log is synced.

use std::cmp::Reverse;

use crate::core::{Core, Rejected, Role, status};

/// The election timeouts after which a write counts as hanging. Fewer: a short disk stall changes
/// the leader. More: proposers wait longer for a hanging disk.
const HANGS_ELECTIONS: u64 = 10;

impl Core {
    /// Transfers the leadership to this member if possible. A later turn reports the new leader.
    pub fn transfer(&mut self, to: u64) -> Result<(), Rejected> {
        self.may_propose()?;
        let view = self.view();
        let cannot = |reason| Err(Rejected::CannotLead { to, reason });
        if to == self.me {
            return cannot("it leads already");
        }
        if !view.members.voters.contains(&to) {
            return cannot("it does not vote");
        }
        if !view.peers.get(&to).is_some_and(|peer| peer.alive) {
            return cannot("no recent message from it");
        }
        self.feed();
        self.lease.forfeit();
        self.raw.transfer_leader(to);
        Ok(())
    }

    /// Transfers the leadership to the live voter with the longest log. Returns whether there is
    /// one.
    pub fn hand_over(&mut self) -> bool {
        self.hand_to_one_of(self.successors(0))
    }

    /// The ticks since the start of the write in progress, if any.
    pub fn disk_silent(&self) -> Option<u64> {
        self.stash.written_at().map(|at| self.now - at)
    }

    /// The same, if the write counts as hanging.
    pub fn disk_hangs(&self) -> Option<u64> {
        let max = HANGS_ELECTIONS * self.settings.election_ticks as u64;
        self.disk_silent().filter(|ticks| *ticks >= max)
    }

    /// The reason for a request's timeout.
    pub(crate) fn late(&self) -> Rejected {
        match self.disk_hangs() {
            Some(ticks) => Rejected::DiskHangs { ticks },
            None => Rejected::Late,
        }
    }

    /// A leader whose disk hangs tries another successor each election timeout.
    pub(in crate::core) fn hand_over_from_hung_disk(&mut self) {
        let log = &self.raw.raft.raft_log;
        let (persisted, others_have_more) = (log.persisted, log.committed > log.persisted);
        let leads = status::role_now(&self.raw.raft).role == Role::Leader;
        if !leads || !others_have_more || self.disk_hangs().is_none() {
            self.handover_attempts = 0;
            return;
        }
        if self.raw.raft.lead_transferee.is_some() {
            return;
        }
        let mut successors = self.successors(persisted + 1);
        if let Some(turn) = self.handover_attempts.checked_rem(successors.len()) {
            self.handover_attempts += 1;
            successors.rotate_left(turn);
        }
        self.hand_to_one_of(successors);
    }

    /// Transfers the leadership to the first of these that can take it. Returns whether there is
    /// one.
    fn hand_to_one_of(&mut self, successors: Vec<u64>) -> bool {
        successors.into_iter().any(|to| self.transfer(to).is_ok())
    }

    /// The voters that have the log up to there, longest log first.
    fn successors(&self, least: u64) -> Vec<u64> {
        let voters = &self.members.voters;
        let peers = self.raw.raft.prs().iter();
        let mut able: Vec<(u64, u64)> = peers
            .filter(|(id, _)| **id != self.me && voters.contains(*id))
            .map(|(id, progress)| (*id, progress.matched))
            .filter(|(_, matched)| *matched >= least)
            .collect();
        able.sort_by_key(|(id, matched)| (Reverse(*matched), *id));
        able.into_iter().map(|(id, _)| id).collect()
    }
}
