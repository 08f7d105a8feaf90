//! Handing the leadership over: at an operator's word, by a member that retires, and by a leader whose own disk hangs.
//!
//! A slow disk costs answers and not the leadership: heartbeats need none. But a leader cannot apply what its own disk has not, so while a write
//! does not come back nobody is answered. When it has been away for long, and a majority has what this disk has not, somebody of that majority
//! shall lead; if that does not come about, the next election somebody else. Whoever hands over cannot campaign before its own log is on its disk.

use std::cmp::Reverse;

use super::{Core, Rejected, Role, status};

/// A write that has been away for so many elections will hardly come back soon. Fewer: a disk that only stumbles costs a change of leaders.
/// More: whoever proposes waits longer behind one that hangs.
const HANGS_ELECTIONS: u64 = 10;

impl Core {
    /// Hands the leadership to this member, if it can be done; who leads then is told by a turn.
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
            return cannot("it has not been heard of lately");
        }
        self.feed();
        self.lease.forfeit();
        self.raw.transfer_leader(to);
        Ok(())
    }

    /// Hands the leadership to the voter that has most of the log and lives; whether there is one.
    pub fn hand_over(&mut self) -> bool {
        self.hand_to_one_of(self.successors(0))
    }

    /// The write under way has been at the disk for so many ticks; none if there is none.
    pub fn disk_silent(&self) -> Option<u64> {
        self.stash.written_at().map(|at| self.now - at)
    }

    /// The same, if it is so long that the write will hardly come back soon.
    pub fn disk_hangs(&self) -> Option<u64> {
        let max = HANGS_ELECTIONS * self.settings.election_ticks as u64;
        self.disk_silent().filter(|ticks| *ticks >= max)
    }

    /// Why whoever has waited for long has no answer.
    pub(crate) fn late(&self) -> Rejected {
        match self.disk_hangs() {
            Some(ticks) => Rejected::DiskHangs { ticks },
            None => Rejected::Late,
        }
    }

    /// A leader whose disk hangs tries another successor each election.
    pub(super) fn flee_from_disk(&mut self) {
        let log = &self.raw.raft.raft_log;
        let (persisted, others_have_more) = (log.persisted, log.committed > log.persisted);
        let leads = status::role_now(&self.raw.raft).role == Role::Leader;
        if !leads || !others_have_more || self.disk_hangs().is_none() {
            self.fled = 0;
            return;
        }
        if self.raw.raft.lead_transferee.is_some() {
            return;
        }
        let mut successors = self.successors(persisted + 1);
        if let Some(turn) = self.fled.checked_rem(successors.len()) {
            self.fled += 1;
            successors.rotate_left(turn);
        }
        self.hand_to_one_of(successors);
    }

    /// Hands the leadership to the first of these that can take it; whether there is one.
    fn hand_to_one_of(&mut self, successors: Vec<u64>) -> bool {
        successors.into_iter().any(|to| self.transfer(to).is_ok())
    }

    /// The voters that have the log up to there, whoever has most first.
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
