//! The leader's lease: the time for which it may answer reads without asking the others (optional).
//!
//! The raft crate's own lease is too long: a leader without followers notices that up to two
//! election timeouts later, and another may lead after one. This one starts at a request that a
//! majority has answered: each of them votes for none for an election timeout from then on. The
//! lease lasts for [`LEASE_PART`] of that, not counting the incomplete ticks at both ends. A member
//! that has just started may have forgotten such an answer, so it votes for none for as long
//! ([`Lease::forbids_votes`]). Times are in ticks.

use crate::core::Settings;

/// The longest lease, as a fraction of an election timeout: no clock may run 1.5 times as fast as
/// another.
const LEASE_PART: (u64, u64) = (2, 3);

/// The lease of this member, if it leads.
pub(crate) struct Lease {
    wanted: bool,
    election_ticks: u64,
    until: Option<u64>,
    /// A handover was tried, so another leader may be elected within the lease.
    forfeited: bool,
}

impl Lease {
    pub fn new(settings: &Settings) -> Self {
        Self {
            wanted: settings.lease_reads,
            election_ticks: settings.election_ticks as u64,
            until: None,
            forfeited: false,
        }
    }

    /// A majority has answered a request of this tick.
    pub fn confirm(&mut self, asked: u64) {
        let (part, of) = LEASE_PART;
        let passes = self.election_ticks.saturating_sub(1) * part / of;
        if self.wanted && !self.forfeited && passes > 0 {
            self.until = self.until.max(Some(asked + passes - 1));
        }
    }

    /// Whether reads may be answered from the lease now.
    pub fn holds(&self, now: u64) -> bool {
        self.until.is_some_and(|until| now <= until)
    }

    /// Ends the lease, because votes or majorities may have changed; the next answer starts it
    /// again.
    pub fn end(&mut self) {
        self.until = None;
    }

    /// Ends the lease until this member's leadership ends.
    pub fn forfeit(&mut self) {
        (self.until, self.forfeited) = (None, true);
    }

    /// The leader or the term has changed.
    pub fn begin(&mut self) {
        (self.until, self.forfeited) = (None, false);
    }

    /// Whether a member that started this many ticks ago may not vote yet.
    pub fn forbids_votes(&self, now: u64) -> bool {
        self.wanted && now < self.election_ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(lease_reads: bool, election_ticks: usize) -> Lease {
        Lease::new(&Settings {
            lease_reads,
            election_ticks,
            ..Settings::default()
        })
    }

    #[test]
    fn lease_ends_before_the_next_vote() {
        for election_ticks in 3..200 {
            let mut lease = lease(true, election_ticks);
            lease.confirm(100);
            let last = (100..).take_while(|now| lease.holds(*now)).last();
            // So many ticks may have passed here, and so few at one who votes.
            let (passed, left) = (last.unwrap() + 1 - 100, election_ticks as u64 - 1);
            assert!(
                2 * left >= 3 * passed,
                "{election_ticks}: {passed} of {left}"
            );
            lease.confirm(90);
            assert!(lease.holds(last.unwrap()), "what is older shortens nothing");
        }
    }

    #[test]
    fn no_lease_after_handover_or_without_the_setting() {
        let mut lease_of_one = lease(true, 10);
        lease_of_one.forfeit();
        lease_of_one.confirm(100);
        assert!(!lease_of_one.holds(100));
        lease_of_one.begin();
        lease_of_one.confirm(100);
        assert!(lease_of_one.holds(101) && lease_of_one.forbids_votes(9));
        lease_of_one.end();
        assert!(!lease_of_one.holds(101) && !lease_of_one.forbids_votes(10));
        let mut other = lease(false, 10);
        other.confirm(100);
        assert!(!other.holds(100) && !other.forbids_votes(0));
    }
}
