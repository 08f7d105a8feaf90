//! Lease: how long a leader may answer reads without asking the others, where that is wanted.
//!
//! raft has a lease of its own, and it is too long: a leader that hears nobody finds that out up to two election timeouts later, and
//! another may lead after one. This one counts from a question that a majority has answered: from then on each of them votes for nobody
//! for an election timeout, and it lasts for [`LEASE_PART`] of that, counted so that the ticks under way at both ends are not in it. A member that has just
//! started does not know whom it has promised that, so it votes for nobody for as long ([`Lease::forbids_votes`]).
//! Times are in ticks.

use super::Settings;

/// Which part of an election timeout a lease lasts at most: so no clock may be half as fast again as another.
const LEASE_PART: (u64, u64) = (2, 3);

/// The lease of this member, if it leads.
pub(crate) struct Lease {
    wanted: bool,
    election_ticks: u64,
    until: Option<u64>,
    /// It hands over, or tried to: somebody may be voted for all the same.
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

    /// A majority has answered what was asked at this time.
    pub fn confirm(&mut self, asked: u64) {
        let (part, of) = LEASE_PART;
        let passes = self.election_ticks.saturating_sub(1) * part / of;
        if self.wanted && !self.forfeited && passes > 0 {
            self.until = self.until.max(Some(asked + passes - 1));
        }
    }

    /// Whether reads may be answered at this time.
    pub fn holds(&self, now: u64) -> bool {
        self.until.is_some_and(|until| now <= until)
    }

    /// Others may vote, or other majorities decide: it counts from the next answer.
    pub fn end(&mut self) {
        self.until = None;
    }

    /// There is none as long as this member leads.
    pub fn forfeit(&mut self) {
        (self.until, self.forfeited) = (None, true);
    }

    /// Somebody else leads, or this member in another term.
    pub fn begin(&mut self) {
        (self.until, self.forfeited) = (None, false);
    }

    /// Whether a member that has been there for so long may not vote yet.
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
    fn a_lease_counts_from_the_question_and_is_over_before_anybody_may_vote() {
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
    fn whoever_hands_over_or_was_not_told_to_has_none() {
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
