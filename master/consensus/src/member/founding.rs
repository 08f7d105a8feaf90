//! How an empty directory comes to a seat: by founding the group with the others of `--initial_masters`, or by asking a group that lives.
//!
//! A directory that holds anything goes on as whom it says, and none of this is asked. An empty one cannot tell "never used" from
//! "wiped", and a wiped member that votes again under its old number may elect a leader that lacks what was acknowledged. So
//! it asks the others first, and does nothing until it knows enough:
//!
//! * *Founding.* Whoever took part left a trace: a group of n only ever did anything with a majority, so of the n / 2 others without
//!   whom this member's old vote or acknowledgement counted for nothing, none is untouched any more. If n - n / 2 of the others say that
//!   they are untouched (empty, or founded and never in an election), at least one of those would be among them: this member
//!   has not taken part, and neither has the group done anything without it. It writes what all founders write, the same everywhere.
//! * *A group that lives.* The seat for this address remembers the mark of the directory that has taken it. If it is another's, this
//!   one is refused, and an operator gives it a new number (`meros masters remove`, `add`). If it is nobody's, the leader first commits that
//!   this mark takes it. That entry is held by a majority that this member is not part of, and no later leader can lack it; so even if this
//!   number had taken part in the seconds before the leader noted it, every entry that it once acknowledged is held by that majority
//!   too, and no candidate for whom it once voted can still win. It begins in the leader's term with its vote given to that leader.
//! * Otherwise it waits, and says for whom. A majority wiped at once cannot be told from a new group by anybody: that is what
//!   `meros registry restore` is for.
//!
//! Pure: [`Acquaintance`] is told the answers and the [`Verdict`] says what follows. The answers cross the wire as [`Acquainted`].

use std::collections::{BTreeMap, BTreeSet};

use runtime::message::id_of;
use runtime::remote;
use serde::{Deserialize, Serialize};

use super::roster::Roster;
use super::settings::is_address;
use crate::log::{HardState, Identity, Members, Write};
use crate::wire::NUMBER_MAX;

/// A directory without content asks: which seat is mine?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquaint {
    /// Where the asker is reached.
    pub address: String,
    /// What its directory is known by from now on; above 1.
    pub mark: u64,
}

/// How the one who was asked stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Acquainted {
    /// Its directory is empty too; this is the group that its own list would make, 0 if it is not on its list itself.
    Empty {
        /// See [`group_of`].
        group: u64,
    },
    /// It has founded this group, and nothing has happened there yet.
    Untouched {
        /// Which group.
        group: u64,
    },
    /// The group lives, and somebody else leads.
    Lives {
        /// Where, if that is known.
        leader: Option<String>,
    },
    /// The group lives and has no seat for this address.
    NoSeat,
    /// This seat is taken by the asker's mark, and that is committed.
    Seated {
        /// Which.
        id: u64,
        /// Of which group.
        group: u64,
        /// The leader's term.
        term: u64,
        /// The leader's own id.
        leader: u64,
    },
    /// The seat has been taken by another directory.
    Taken {
        /// What the operator should read.
        reason: String,
    },
}

remote! { Acquaint = "consensus/acquaint" v1 -> Acquainted }

/// The group that these founders make: the same for the same addresses in any order.
pub fn group_of(addresses: &[String]) -> u64 {
    let list = sorted(addresses).join("\n");
    (u64::from(id_of(&list)) << 32) | u64::from(id_of(&format!("{list}\n")))
}

fn sorted(addresses: &[String]) -> Vec<String> {
    let mut sorted = addresses.to_vec();
    sorted.sort();
    sorted
}

/// What is known so far.
#[derive(Clone, Debug)]
pub struct Acquaintance {
    me: String,
    founders: Vec<String>,
    answers: BTreeMap<String, Acquainted>,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write this, then claim the directory, and begin.
    Begin {
        /// Whose directory it becomes.
        identity: Identity,
        /// What it begins with.
        first: First,
    },
    /// Ask again later.
    Wait {
        /// For what, to be read by an operator.
        reason: String,
    },
    /// It must not take part.
    Refuse {
        /// Why not, and what to do.
        reason: String,
    },
}

/// What a member begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// The group's first snapshot, with these members and these seats.
    Founding(Members, Roster),
    /// Nothing but a vote: the leader sends the rest.
    Vote(Write),
}

impl Acquaintance {
    /// Of the member at this address; without an answer so far.
    pub fn new(me: &str, initial: &[String]) -> Self {
        Self {
            me: me.to_owned(),
            founders: sorted(initial),
            answers: BTreeMap::new(),
        }
    }

    /// The group it would found; 0 if it is no founder.
    pub fn group(&self) -> u64 {
        match self.founders.contains(&self.me) {
            true => group_of(&self.founders),
            false => 0,
        }
    }

    /// Whom to ask: all others on the list, and whoever is said to lead.
    pub fn to_ask(&self) -> BTreeSet<String> {
        let leaders = self.answers.values().filter_map(|answer| match answer {
            Acquainted::Lives { leader } => leader.clone(),
            _ => None,
        });
        let all = self.founders.iter().cloned().chain(leaders);
        all.filter(|address| *address != self.me && is_address(address))
            .take(2 * crate::wire::MEMBERS_MAX)
            .collect()
    }

    /// Whoever is at this address has answered.
    pub fn heard(&mut self, address: String, answer: Acquainted) {
        self.answers.insert(address, answer);
    }

    /// What follows from all answers.
    pub fn verdict(&self) -> Verdict {
        for (address, answer) in &self.answers {
            match answer {
                Acquainted::Taken { reason } => {
                    return Verdict::Refuse {
                        reason: reason.clone(),
                    };
                }
                Acquainted::Seated {
                    id,
                    group,
                    term,
                    leader,
                } => {
                    return seated(address, *id, *group, *term, *leader);
                }
                _ => {}
            }
        }
        if let Some(reason) = self.lives() {
            return Verdict::Wait { reason };
        }
        match self.founders.iter().position(|one| *one == self.me) {
            Some(place) => self.found(place as u64 + 1),
            None => Verdict::Wait {
                reason: format!(
                    "{} is not in --initial_masters, and none of {} leads a group yet",
                    self.me,
                    self.founders.join(", ")
                ),
            },
        }
    }

    fn lives(&self) -> Option<String> {
        let mut reason = None;
        for (address, answer) in &self.answers {
            match answer {
                Acquainted::NoSeat => {
                    return Some(format!(
                        "the group at {address} has no seat for {}: run `meros masters add {}`",
                        self.me, self.me
                    ));
                }
                Acquainted::Lives { .. } => {
                    reason = Some(format!(
                        "the group at {address} lives: waiting for its leader"
                    ));
                }
                _ => {}
            }
        }
        reason
    }

    fn found(&self, id: u64) -> Verdict {
        let group = self.group();
        let is_untouched = |address: &str| {
            matches!(self.answers.get(address),
                Some(Acquainted::Empty { group: its } | Acquainted::Untouched { group: its }) if *its == group)
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
                    Some(Acquainted::Empty { .. } | Acquainted::Untouched { .. })
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
            return Verdict::Wait { reason };
        }
        let members = Members {
            voters: (1..=self.founders.len() as u64).collect(),
            ..Members::default()
        };
        Verdict::Begin {
            identity: Identity { id, group },
            first: First::Founding(members, Roster::founding(&self.founders)),
        }
    }
}

/// How many of the others must be untouched, so that at least one of any majority's others is among them.
fn needed(founders: usize) -> usize {
    (founders - founders / 2).min(founders - 1)
}

/// What the leader said is believed only if it can be.
fn seated(address: &str, id: u64, group: u64, term: u64, leader: u64) -> Verdict {
    let sound = |number: u64| (1..=NUMBER_MAX).contains(&number);
    if !(sound(id) && sound(term) && sound(leader)) || id == leader {
        let reason =
            format!("{address} gave seat {id} in term {term} of leader {leader}, which cannot be");
        return Verdict::Wait { reason };
    }
    let hard = HardState {
        term,
        vote: leader,
        commit: 0,
    };
    Verdict::Begin {
        identity: Identity { id, group },
        first: First::Vote(Write {
            hard: Some(hard),
            ..Write::default()
        }),
    }
}

#[cfg(test)]
mod tests;
