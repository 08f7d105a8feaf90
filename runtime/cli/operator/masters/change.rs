//! The next step of a change of the group, decided from the group's status. Pure.
//!
//! A [`Change`] gets the group's status repeatedly and returns the next step until the goal is
//! reached. So it can be resumed at any point, by this command or a later one, and no step is
//! repeated. It keeps the id of its master, because a removed one has no entry to be found by. The
//! leader alone decides whether a change is safe.

use consensus::core::PeerState;
use consensus::member::operator::{ChangeMasters, VoteRole};

use super::view::{Group, Row};
use crate::flags;

/// The lag in entries up to which a learner has caught up.
const CAUGHT_UP: u64 = 100;

/// A master by number or address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterRef {
    /// As `meros masters list` shows it.
    Id(u64),
    /// `host:port`.
    At(String),
}

impl std::str::FromStr for MasterRef {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(id) if id > 0 => Ok(Self::Id(id)),
            Ok(_) => Err("0 is no master's number: expected one above 0, or HOST:PORT".to_owned()),
            Err(_) => flags::master_address(text).map(Self::At),
        }
    }
}

impl std::fmt::Display for MasterRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "master {id}"),
            Self::At(address) => f.write_str(address),
        }
    }
}

/// The goal of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A master at this address has caught up, and votes unless it stays a learner.
    Added {
        /// Its address.
        address: String,
        /// Whether it stays a learner.
        learner: bool,
    },
    /// It is a voter.
    Promoted(MasterRef),
    /// One is a voter, and another is removed.
    Replaced {
        /// The removed master.
        old: MasterRef,
        /// The new voter.
        new: MasterRef,
    },
    /// It is removed.
    Removed(MasterRef),
    /// It leads; without a name, any other master than the present leader.
    Leading(Option<MasterRef>),
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The goal is reached; the result.
    Done(String),
    /// Send this request to the leader.
    Send(ChangeMasters),
    /// Query again later; the reason.
    Wait(String),
    /// The goal cannot be reached; the reason and the remedy.
    Refuse(String),
}

/// A master that a change concerns.
#[derive(Debug, Default)]
struct Subject {
    /// Its number, once known.
    id: Option<u64>,
    /// Its address.
    address: String,
}

impl Subject {
    /// Finds its entry, unless it was found before.
    fn find(&mut self, group: &Group, which: &MasterRef) {
        let member = match (self.id, which) {
            (Some(id), _) => group.member(id),
            (None, MasterRef::Id(id)) => group.member(*id),
            (None, MasterRef::At(address)) => group.member_at(address),
        };
        if let Some(member) = member {
            self.id = Some(member.id);
            if let Some(address) = &member.address {
                self.address.clone_from(address);
            }
        }
    }

    fn vote(&self, group: &Group) -> Option<VoteRole> {
        Some(group.member(self.id?)?.vote)
    }
}

/// The master in a message.
impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.id, self.address.as_str()) {
            (Some(id), "") => write!(f, "master {id}"),
            (Some(id), address) => write!(f, "master {id} at {address}"),
            (None, address) => f.write_str(address),
        }
    }
}

/// A change in progress.
#[derive(Debug)]
pub struct Change {
    goal: Goal,
    /// The master that it concerns.
    target: Subject,
    /// The master that it replaces.
    old: Subject,
    /// The leader at the beginning.
    first_leader: Option<u64>,
    asked: bool,
}

impl Change {
    /// A change without any step yet.
    pub fn new(goal: Goal) -> Self {
        Self {
            goal,
            target: Subject::default(),
            old: Subject::default(),
            first_leader: None,
            asked: false,
        }
    }

    /// The next step, given the group's status.
    pub fn next(&mut self, group: &Group) -> Next {
        let Some((leader, _)) = &group.leader else {
            return Next::Wait(group.summary());
        };
        let leader = *leader;
        self.first_leader.get_or_insert(leader);
        let next = match self.goal.clone() {
            Goal::Added { address, learner } => self.add(group, address, learner),
            Goal::Promoted(which) => self.promote(group, &which),
            Goal::Replaced { old, new } => self.replace(group, &old, &new),
            Goal::Removed(which) => self.remove(group, &which),
            Goal::Leading(which) => self.lead(group, leader, which.as_ref()),
        };
        self.asked |= matches!(next, Next::Send(_));
        next
    }

    fn add(&mut self, group: &Group, address: String, learner: bool) -> Next {
        self.target.find(group, &MasterRef::At(address.clone()));
        match self.target.vote(group) {
            None | Some(VoteRole::None) => {
                let there = group.masters.iter().find(|row| row.address == address);
                if let Some(row) = there.filter(|row| row.role == "stranger") {
                    return Next::Refuse(format!(
                        "{address} cannot be added: {}; a master joins with an empty directory: stop it, move its directory away, and try again",
                        row.note
                    ));
                }
                self.target.address.clone_from(&address);
                Next::Send(ChangeMasters::Add { address })
            }
            Some(VoteRole::Voter) => self.votes(group),
            Some(VoteRole::Outgoing) => Next::Wait(format!("{} is being removed", self.target)),
            Some(VoteRole::Learner) => {
                let (target, id) = (&self.target, self.target.id.unwrap_or_default());
                match self.missing(group, id) {
                    Some(reason) => Next::Wait(reason),
                    None if learner => Next::Done(format!(
                        "{target} is a learner and has caught up; `meros masters promote {id}` makes it a voter"
                    )),
                    None => Next::Send(ChangeMasters::Promote { id }),
                }
            }
        }
    }

    /// The entries that an added learner lacks, or why it lacks them; `None` once it has caught up.
    fn missing(&self, group: &Group, id: u64) -> Option<String> {
        let target = &self.target;
        let peer = group.member(id).and_then(|member| member.peer);
        let row = group.master(id);
        if row.is_none_or(|row| row.log.is_none()) {
            return Some(self.not_there(group, row));
        }
        match peer {
            Some(peer) if peer.matched > 0 && peer.lag <= CAUGHT_UP => None,
            Some(peer) => Some(match peer.state {
                PeerState::Snapshot { sent, total } => {
                    format!("{target} receives the registry: {sent} of {total} bytes")
                }
                _ => format!("{target} lacks {} entries", peer.lag),
            }),
            None => Some(format!("{target} has not yet contacted the leader")),
        }
    }

    fn votes(&self, group: &Group) -> Next {
        let already = if self.asked { "" } else { " already" };
        Next::Done(format!("{} votes{already}{}", self.target, counted(group)))
    }

    /// Instructions for an operator if the new master has not connected.
    fn not_there(&self, group: &Group, row: Option<&Row>) -> String {
        let Some(row) = row.filter(|row| row.role != "waiting") else {
            let waits = row.map_or("", |row| row.note.as_str());
            return format!("{} starts: {waits}", self.target);
        };
        let members = group.members.iter();
        let voters: Vec<&str> = members
            .filter(|member| member.vote == VoteRole::Voter)
            .filter_map(|member| member.address.as_deref())
            .collect();
        let address = &self.target.address;
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        format!(
            "{} is a member and does not run ({}); start it with an empty directory: meros master --work_dir DIR --hostname {host} --port {port} \
             --initial_masters {}",
            self.target,
            row.note,
            voters.join(",")
        )
    }

    fn promote(&mut self, group: &Group, which: &MasterRef) -> Next {
        self.target.find(group, which);
        match self.target.vote(group) {
            None => Next::Refuse(format!(
                "{which} is not a member: add it with `meros masters add HOST:PORT`"
            )),
            Some(VoteRole::None) => Next::Refuse(format!(
                "the number of {} is only reserved: run `meros masters add {}` again",
                self.target, self.target.address
            )),
            Some(VoteRole::Voter) => self.votes(group),
            Some(VoteRole::Outgoing) => Next::Wait(format!("{} is being removed", self.target)),
            Some(VoteRole::Learner) => match self.target.id {
                Some(id) => Next::Send(ChangeMasters::Promote { id }),
                None => Next::Wait(format!("{which} has no number yet")),
            },
        }
    }

    /// In one change if possible; if one half was done before, the other half.
    fn replace(&mut self, group: &Group, old: &MasterRef, new: &MasterRef) -> Next {
        self.target.find(group, new);
        self.old.find(group, old);
        let votes = (self.target.vote(group), self.old.vote(group));
        match (votes, self.target.id, self.old.id) {
            (_, Some(target), Some(old)) if target == old => {
                Next::Refuse(format!("{} cannot take its own place", self.target))
            }
            ((_, Some(VoteRole::Outgoing)), ..) => {
                Next::Wait(format!("{} is being removed", self.old))
            }
            ((Some(VoteRole::Learner), Some(VoteRole::Voter)), Some(new), Some(old)) => {
                Next::Send(ChangeMasters::Replace { old, new })
            }
            ((Some(VoteRole::Voter), Some(_)), _, Some(id)) => {
                Next::Send(ChangeMasters::Remove { id })
            }
            ((Some(VoteRole::Voter), None), _, None) => Next::Done(format!(
                "{} votes already, and {old} is not a member",
                self.target
            )),
            ((_, None), _, None) => Next::Refuse(format!(
                "{old} is not a member: use `meros masters promote` without --in_place_of for {}",
                self.target
            )),
            ((Some(VoteRole::Voter), None), ..) => Next::Done(format!(
                "{} votes in the place of {}{}; the removed one must not return with its old directory",
                self.target,
                self.old,
                counted(group)
            )),
            _ => self.promote(group, new),
        }
    }

    fn remove(&mut self, group: &Group, which: &MasterRef) -> Next {
        self.target.find(group, which);
        match (self.target.vote(group), self.target.id) {
            (Some(VoteRole::Outgoing), _) => {
                Next::Wait(format!("{} is being removed", self.target))
            }
            (Some(_), Some(id)) if group.leader.as_ref().is_some_and(|leader| leader.0 == id) => {
                Next::Refuse(format!(
                    "{} leads: transfer the leadership first, with `meros masters transfer`",
                    self.target
                ))
            }
            (Some(_), Some(id)) => Next::Send(ChangeMasters::Remove { id }),
            _ if self.asked => Next::Done(format!(
                "{} is removed{}; it must not return with its old directory",
                self.target,
                counted(group)
            )),
            _ => Next::Done(format!("{which} is not a member: nothing has changed")),
        }
    }

    fn lead(&mut self, group: &Group, leader: u64, which: Option<&MasterRef>) -> Next {
        match which {
            Some(which) => {
                self.target.find(group, which);
                if self.target.id.is_none() {
                    return Next::Refuse(format!(
                        "{which} is not a member: `meros masters list` shows the members"
                    ));
                }
            }
            // The chosen master may be down by now; then choose another.
            None if self.first_leader == Some(leader) => match best_follower(group, leader) {
                Some(row) => (self.target.id, self.target.address) = (row.id, row.address.clone()),
                None => {
                    return Next::Refuse(
                        "no other voter answers, so no master can take over".to_owned(),
                    );
                }
            },
            None => {}
        }
        if self.first_leader != Some(leader) && which.is_none() || self.target.id == Some(leader) {
            let now = group.leader.as_ref();
            let target = now.map_or(String::new(), |(id, at)| format!("master {id} at {at}"));
            return Next::Done(match self.first_leader.filter(|led| *led != leader) {
                Some(led) => format!("{target} leads in term {}, after master {led}", group.term),
                None => format!("{target} leads already, in term {}", group.term),
            });
        }
        match (group.transferring, self.target.id) {
            (Some(to), _) => Next::Wait(format!(
                "the leadership is being transferred to master {to}"
            )),
            (None, Some(id)) => Next::Send(ChangeMasters::Transfer { id }),
            (None, None) => Next::Wait("no candidate for the leadership is known yet".to_owned()),
        }
    }
}

/// The possible leader with the smallest lag.
fn best_follower(group: &Group, leader: u64) -> Option<&Row> {
    let rows = group.masters.iter();
    rows.filter(|row| row.votes == Some(true) && row.log.is_some() && row.id != Some(leader))
        .min_by_key(|row| (row.lag.unwrap_or(u64::MAX), row.id))
}

fn counted(group: &Group) -> String {
    let voters = group
        .members
        .iter()
        .filter(|member| member.vote == VoteRole::Voter);
    let voters = voters.count();
    format!("; {} of {voters} voters are needed", voters / 2 + 1)
}
