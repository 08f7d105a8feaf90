//! How a member with an empty directory begins: by founding a group, alone or with the others of
//! `--initial_masters`, or by admission to a running group.
//!
//! A directory with content continues under its identity; this module is only for empty ones. An
//! empty directory may be new or wiped, and a wiped member that votes again under its old number
//! can elect a leader that lacks acknowledged entries. So the member first asks the others:
//!
//! - *Founding.* A group of n needs a majority for every action, so of the n / 2 others without
//!   which this member's earlier vote or acknowledgement had no effect, each has a trace of it. If
//!   n - n / 2 of the others report that they are untouched (empty, or founded and never in an
//!   election), at least one of those is among them: this member never took part, and neither did
//!   the group act without it. The member then writes the same initial state as all founders.
//! - *A group of one* needs no other. The group's id is random (the mark of the directory), so that
//!   a wiped master founds a group of another id, and never mixes with members of the earlier one.
//! - *A running group.* The entry for this address holds the mark of the directory that took it. If
//!   another directory took it, this one is refused, and an operator must assign a new number
//!   (`meros masters remove`, `add`). If none did, the leader first commits that this mark takes
//!   it. A majority without this member holds that entry, so no later leader lacks it. Even if this
//!   number took part in the seconds before, that majority also holds every entry that it
//!   acknowledged, and no candidate for which it voted can still win. The member starts in the
//!   leader's term, with its vote given to that leader.
//! - Otherwise it waits, and reports for which masters. A majority wiped at once cannot be
//!   distinguished from a new group; that case needs `meros registry restore`.
//!
//! Pure: [`Introductions`] collects the answers and returns a [`BootstrapDecision`]. Answers cross
//! the wire as [`Introduced`].

use std::collections::{BTreeMap, BTreeSet};

use runtime::remote;
use runtime::wire::message::id_of;
use serde::{Deserialize, Serialize};

use super::address_book::AddressBook;
use super::settings::is_address;
use crate::log::{HardState, Identity, Members, Write};
use crate::wire::NUMBER_MAX;

/// Request of a member with an empty directory for its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduce {
    /// The sender's address.
    pub address: String,
    /// A random mark that identifies the sender's directory; above 1.
    pub mark: u64,
}

/// The answer to [`Introduce`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Introduced {
    /// The receiver's directory is empty too. The group that its own list would found; 0 if it is
    /// not on its list itself.
    Empty {
        /// See [`group_of`].
        group: u64,
    },
    /// The receiver has founded this group, which has not acted yet.
    Untouched {
        /// The group.
        group: u64,
    },
    /// The group runs, and another member leads.
    Running {
        /// The leader's address, if known.
        leader: Option<String>,
    },
    /// The group runs and has no entry for the sender's address.
    NotMember,
    /// The sender's mark has taken its entry, and that is committed.
    Admitted {
        /// The sender's number.
        id: u64,
        /// The group.
        group: u64,
        /// The leader's term.
        term: u64,
        /// The leader's own number.
        leader: u64,
    },
    /// Another directory has taken the entry.
    Taken {
        /// A message for the operator.
        reason: String,
    },
}

remote! { Introduce = "consensus/acquaint" v1 -> Introduced }

/// The id of the group that these founders make. Independent of the order of the addresses.
pub fn group_of(addresses: &[String]) -> u64 {
    let list = sorted(addresses).join("\n");
    (u64::from(id_of(&list)) << 32) | u64::from(id_of(&format!("{list}\n")))
}

fn sorted(addresses: &[String]) -> Vec<String> {
    let mut sorted = addresses.to_vec();
    sorted.sort();
    sorted
}

/// The answers so far.
#[derive(Clone, Debug)]
pub struct Introductions {
    me: String,
    mark: u64,
    founders: Vec<String>,
    answers: BTreeMap<String, Introduced>,
}

/// The decision from all answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootstrapDecision {
    /// Write the initial state, then claim the directory, and start.
    Begin {
        /// The identity of the directory.
        identity: Identity,
        /// The initial state.
        first: InitialState,
    },
    /// Ask again later.
    Wait {
        /// The reason, for an operator.
        reason: String,
    },
    /// The member must not take part.
    Refuse {
        /// The reason and the remedy, for an operator.
        reason: String,
    },
}

/// The initial state of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitialState {
    /// The group's first snapshot, with these members and addresses.
    Founding(Members, AddressBook),
    /// Only a vote: the leader sends the rest.
    Vote(Write),
}

impl Introductions {
    /// For the member at this address, whose empty directory has this mark; no answers yet. Without
    /// initial members it is the only founder.
    pub fn new(me: &str, initial: &[String], mark: u64) -> Self {
        let founders = match initial {
            [] => vec![me.to_owned()],
            _ => sorted(initial),
        };
        Self {
            me: me.to_owned(),
            mark,
            founders,
            answers: BTreeMap::new(),
        }
    }

    /// The id of the group that this member would found; 0 if it is no founder.
    pub fn group(&self) -> u64 {
        match self.founders.as_slice() {
            [only] if *only == self.me => self.mark,
            founders if founders.contains(&self.me) => group_of(founders),
            _ => 0,
        }
    }

    /// The addresses to ask: all others on the list, and every reported leader.
    pub fn addresses_to_ask(&self) -> BTreeSet<String> {
        let leaders = self.answers.values().filter_map(|answer| match answer {
            Introduced::Running { leader } => leader.clone(),
            _ => None,
        });
        let all = self.founders.iter().cloned().chain(leaders);
        all.filter(|address| *address != self.me && is_address(address))
            .take(2 * crate::wire::MEMBERS_MAX)
            .collect()
    }

    /// Records the answer from this address.
    pub fn answered(&mut self, address: String, answer: Introduced) {
        self.answers.insert(address, answer);
    }

    /// The decision from all answers so far.
    pub fn decision(&self) -> BootstrapDecision {
        for (address, answer) in &self.answers {
            match answer {
                Introduced::Taken { reason } => {
                    return BootstrapDecision::Refuse {
                        reason: reason.clone(),
                    };
                }
                Introduced::Admitted {
                    id,
                    group,
                    term,
                    leader,
                } => {
                    return admitted(address, *id, *group, *term, *leader);
                }
                _ => {}
            }
        }
        if let Some(reason) = self.running_group() {
            return BootstrapDecision::Wait { reason };
        }
        match self.founders.iter().position(|one| *one == self.me) {
            Some(place) => self.found(place as u64 + 1),
            None => BootstrapDecision::Wait {
                reason: format!(
                    "{} is not in --initial_masters, and none of {} leads a group yet",
                    self.me,
                    self.founders.join(", ")
                ),
            },
        }
    }

    fn running_group(&self) -> Option<String> {
        let mut reason = None;
        for (address, answer) in &self.answers {
            match answer {
                Introduced::NotMember => {
                    return Some(format!(
                        "{} is not a member of the group at {address}: run `meros masters add {}`",
                        self.me, self.me
                    ));
                }
                Introduced::Running { .. } => {
                    reason = Some(format!(
                        "the group at {address} is running: waiting for its leader"
                    ));
                }
                _ => {}
            }
        }
        reason
    }

    fn found(&self, id: u64) -> BootstrapDecision {
        let group = self.group();
        let is_untouched = |address: &str| {
            matches!(self.answers.get(address),
                Some(Introduced::Empty { group: its } | Introduced::Untouched { group: its }) if *its == group)
        };
        let others = self.founders.iter().map(String::as_str);
        let (ready, missing): (Vec<&str>, Vec<&str>) = others
            .filter(|one| *one != self.me)
            .partition(|one| is_untouched(one));
        let needed = needed(self.founders.len());
        if ready.len() < needed {
            let differs = missing.iter().find(|one| {
                matches!(
                    self.answers.get(**one),
                    Some(Introduced::Empty { .. } | Introduced::Untouched { .. })
                )
            });
            let reason = match differs {
                Some(one) => format!("{one} was started with another --initial_masters"),
                None => {
                    let missing = missing.join(", ");
                    format!(
                        "founding a group needs {needed} others, {} are there: waiting for {missing}",
                        ready.len()
                    )
                }
            };
            return BootstrapDecision::Wait { reason };
        }
        let members = Members::of(1..=self.founders.len() as u64);
        BootstrapDecision::Begin {
            identity: Identity { id, group },
            first: InitialState::Founding(members, AddressBook::founding(&self.founders)),
        }
    }
}

/// The number of other founders that must be untouched, so that any majority's others include at
/// least one of them.
fn needed(founders: usize) -> usize {
    (founders - founders / 2).min(founders - 1)
}

/// Validates the leader's answer before it is used.
fn admitted(address: &str, id: u64, group: u64, term: u64, leader: u64) -> BootstrapDecision {
    let sound = |number: u64| (1..=NUMBER_MAX).contains(&number);
    if !(sound(id) && sound(term) && sound(leader)) || id == leader {
        let reason = format!(
            "{address} assigned number {id} in term {term} under leader {leader}, which is invalid"
        );
        return BootstrapDecision::Wait { reason };
    }
    let hard = HardState {
        term,
        vote: leader,
        commit: 0,
    };
    BootstrapDecision::Begin {
        identity: Identity { id, group },
        first: InitialState::Vote(Write {
            hard: Some(hard),
            ..Write::default()
        }),
    }
}

#[cfg(test)]
mod tests;
