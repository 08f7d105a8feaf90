//! The pending proposals of this member.

use std::collections::BTreeMap;

use super::seen::Ticket;
use super::{Done, Failed};

struct Pending {
    /// The term of the latest proposal.
    term: u64,
    /// Context and data, to propose again; none for a change of members.
    entry: Option<(Vec<u8>, Vec<u8>)>,
    since: u64,
}

/// The proposals of this run that have not ended.
pub(super) struct Tickets {
    member: u64,
    incarnation: u64,
    next: u64,
    now: u64,
    pending: BTreeMap<Ticket, Pending>,
    late: Vec<Ticket>,
}

impl Tickets {
    pub fn new(member: u64, incarnation: u64) -> Self {
        Self {
            member,
            incarnation,
            next: 1,
            now: 0,
            pending: BTreeMap::new(),
            late: Vec::new(),
        }
    }

    pub fn issue(&mut self) -> Ticket {
        let sequence = self.next;
        self.next += 1;
        Ticket {
            member: self.member,
            incarnation: self.incarnation,
            sequence,
        }
    }

    pub fn add(&mut self, ticket: Ticket, term: u64, entry: Option<(Vec<u8>, Vec<u8>)>) {
        let since = self.now;
        self.pending.insert(ticket, Pending { term, entry, since });
    }

    /// Removes a ticket that has ended. Returns whether it was pending.
    pub fn forget(&mut self, ticket: &Ticket) -> bool {
        self.pending.remove(ticket).is_some()
    }

    pub fn entry(&self, ticket: &Ticket) -> Option<(Vec<u8>, Vec<u8>)> {
        self.pending.get(ticket)?.entry.clone()
    }

    /// Records that it was proposed again.
    pub fn proposed_again(&mut self, ticket: &Ticket, term: u64) {
        if let Some(pending) = self.pending.get_mut(ticket) {
            pending.term = term;
        }
    }

    /// The tickets proposed before this term.
    pub fn proposed_before(&self, term: u64) -> Vec<Ticket> {
        self.pending
            .iter()
            .filter(|(_, pending)| pending.term < term)
            .map(|(ticket, _)| *ticket)
            .collect()
    }

    pub fn tick(&mut self, max: u64) {
        self.now += 1;
        let late = self
            .pending
            .iter()
            .filter(|(_, pending)| self.now - pending.since >= max);
        self.late.extend(late.map(|(ticket, _)| *ticket));
        self.pending
            .retain(|_, pending| self.now - pending.since < max);
    }

    pub fn any_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Ends the tickets whose time limit has passed.
    pub fn take_late<A>(&mut self, answers: &mut Vec<(Ticket, Result<Done<A>, Failed>)>) {
        answers.extend(
            self.late
                .drain(..)
                .map(|ticket| (ticket, Err(Failed::Unknown))),
        );
    }
}
