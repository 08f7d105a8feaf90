//! What a change of a group needs next, judged from how the group looks. Pure.
//!
//! A [`Change`] is shown the group again and again and says each time what is to be done, until what was wanted is there. So it may be begun
//! again at any point, by this command or the next: what is done already is not done twice. It remembers which master it is about, for a
//! removed one has no seat to be found by. Whether the group would survive it is judged by the leader alone.

use consensus::core::PeerState;
use consensus::member::operator::{ChangeMasters, Voice};

use super::view::{Group, Row};
use crate::flags;

/// A learner that lacks at most so many entries has caught up.
const CAUGHT_UP: u64 = 100;

/// Which master: its number, or where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// As `meros masters list` shows it.
    Id(u64),
    /// `host:port`.
    At(String),
}

impl std::str::FromStr for Which {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(id) if id > 0 => Ok(Self::Id(id)),
            Ok(_) => Err("0 is no master's number: expected one above 0, or HOST:PORT".to_owned()),
            Err(_) => flags::master_address(text).map(Self::At),
        }
    }
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "master {id}"),
            Self::At(address) => f.write_str(address),
        }
    }
}

/// What an operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A master at this address listens, and has caught up.
    Added(String),
    /// It votes.
    Promoted(Which),
    /// One votes, and another has no seat.
    Replaced {
        /// Who leaves.
        old: Which,
        /// Who votes.
        new: Which,
    },
    /// It has no seat.
    Removed(Which),
    /// It leads; without a name, anybody does but who leads now.
    Leading(Option<Which>),
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// What was wanted is there: what has changed.
    Done(String),
    /// The leader should do this.
    Ask(ChangeMasters),
    /// Look again after a while: what it waits for.
    Wait(String),
    /// It will not come true: why, and what to do.
    Refuse(String),
}

/// A master that a change is about.
#[derive(Debug, Default)]
struct Subject {
    /// Its number, once that is known.
    id: Option<u64>,
    /// Where it is.
    address: String,
}

impl Subject {
    /// Finds its seat, unless it was found before.
    fn find(&mut self, group: &Group, which: &Which) {
        let seat = match (self.id, which) {
            (Some(id), _) => group.seat(id),
            (None, Which::Id(id)) => group.seat(*id),
            (None, Which::At(address)) => group.seat_at(address),
        };
        if let Some(seat) = seat {
            self.id = Some(seat.id);
            if let Some(address) = &seat.address {
                self.address.clone_from(address);
            }
        }
    }

    fn voice(&self, group: &Group) -> Option<Voice> {
        Some(group.seat(self.id?)?.voice)
    }
}

/// The master in the words of a sentence.
impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.id, self.address.as_str()) {
            (Some(id), "") => write!(f, "master {id}"),
            (Some(id), address) => write!(f, "master {id} at {address}"),
            (None, address) => f.write_str(address),
        }
    }
}

/// A change on its way.
#[derive(Debug)]
pub struct Change {
    wanted: Wanted,
    /// The master it is about.
    whom: Subject,
    /// The master that leaves for it.
    old: Subject,
    /// Who led at the beginning.
    led: Option<u64>,
    asked: bool,
}

impl Change {
    /// Nothing has been done for it yet.
    pub fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            whom: Subject::default(),
            old: Subject::default(),
            led: None,
            asked: false,
        }
    }

    /// What to do now that the group looks like this.
    pub fn next(&mut self, group: &Group) -> Next {
        let Some((leader, _)) = &group.leader else {
            return Next::Wait(group.summary());
        };
        let leader = *leader;
        self.led.get_or_insert(leader);
        let next = match self.wanted.clone() {
            Wanted::Added(address) => self.add(group, address),
            Wanted::Promoted(which) => self.promote(group, &which),
            Wanted::Replaced { old, new } => self.replace(group, &old, &new),
            Wanted::Removed(which) => self.remove(group, &which),
            Wanted::Leading(which) => self.lead(group, leader, which.as_ref()),
        };
        self.asked |= matches!(next, Next::Ask(_));
        next
    }

    fn add(&mut self, group: &Group, address: String) -> Next {
        self.whom.find(group, &Which::At(address.clone()));
        match self.whom.voice(group) {
            None | Some(Voice::None) => {
                let there = group.masters.iter().find(|row| row.address == address);
                if let Some(row) = there.filter(|row| row.role == "stranger") {
                    return Next::Refuse(format!(
                        "{address} cannot be added: {}; a master joins with an empty directory: stop it, move its directory away, and try again",
                        row.note
                    ));
                }
                self.whom.address.clone_from(&address);
                Next::Ask(ChangeMasters::Add { address })
            }
            Some(Voice::Voter) => Next::Done(format!("{} votes already", self.whom)),
            Some(Voice::Outgoing) => Next::Wait(format!("{} is being removed", self.whom)),
            Some(Voice::Learner) => self.catch_up(group),
        }
    }

    /// A learner that was added: has it come, and what does it lack?
    fn catch_up(&self, group: &Group) -> Next {
        let (whom, id) = (&self.whom, self.whom.id.unwrap_or_default());
        let peer = group.seat(id).and_then(|seat| seat.peer);
        let row = group.master(id);
        if row.is_none_or(|row| row.log.is_none()) {
            return Next::Wait(self.not_there(group, row));
        }
        match peer {
            Some(peer) if peer.matched > 0 && peer.lag <= CAUGHT_UP => Next::Done(format!(
                "{whom} listens and has caught up; `meros masters promote {id}` lets it vote"
            )),
            Some(peer) => Next::Wait(match peer.state {
                PeerState::Snapshot { sent, total } => {
                    format!("{whom} is sent the registry: {sent} of {total} bytes")
                }
                _ => format!("{whom} lacks {} entries", peer.lag),
            }),
            None => Next::Wait(format!("{whom} has not been heard of by the leader")),
        }
    }

    /// What an operator is to do when nobody has taken the seat.
    fn not_there(&self, group: &Group, row: Option<&Row>) -> String {
        let Some(row) = row.filter(|row| row.role != "waiting") else {
            let waits = row.map_or("", |row| row.note.as_str());
            return format!("{} begins: {waits}", self.whom);
        };
        let seats = group.seats.iter();
        let voters: Vec<&str> = seats
            .filter(|seat| seat.voice == Voice::Voter)
            .filter_map(|seat| seat.address.as_deref())
            .collect();
        let address = &self.whom.address;
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        format!(
            "{} has a seat and is not there ({}); start it with an empty directory: meros master --work_dir DIR --hostname {host} --port {port} \
             --initial_masters {}",
            self.whom,
            row.note,
            voters.join(",")
        )
    }

    fn promote(&mut self, group: &Group, which: &Which) -> Next {
        self.whom.find(group, which);
        match self.whom.voice(group) {
            None => Next::Refuse(format!(
                "{which} has no seat: `meros masters add HOST:PORT` gives it one"
            )),
            Some(Voice::None) => Next::Refuse(format!(
                "the seat of {} is only reserved: run `meros masters add {}` again",
                self.whom, self.whom.address
            )),
            Some(Voice::Voter) => {
                let already = if self.asked { "" } else { " already" };
                Next::Done(format!("{} votes{already}{}", self.whom, counted(group)))
            }
            Some(Voice::Outgoing) => Next::Wait(format!("{} is being removed", self.whom)),
            Some(Voice::Learner) => match self.whom.id {
                Some(id) => Next::Ask(ChangeMasters::Promote { id }),
                None => Next::Wait(format!("{which} has no number yet")),
            },
        }
    }

    /// In one change where it can be; where half of it was done before, the other half.
    fn replace(&mut self, group: &Group, old: &Which, new: &Which) -> Next {
        self.whom.find(group, new);
        self.old.find(group, old);
        let voices = (self.whom.voice(group), self.old.voice(group));
        match (voices, self.whom.id, self.old.id) {
            (_, Some(whom), Some(old)) if whom == old => {
                Next::Refuse(format!("{} cannot take its own place", self.whom))
            }
            ((_, Some(Voice::Outgoing)), ..) => {
                Next::Wait(format!("{} is being removed", self.old))
            }
            ((Some(Voice::Learner), Some(Voice::Voter)), Some(new), Some(old)) => {
                Next::Ask(ChangeMasters::Replace { old, new })
            }
            ((Some(Voice::Voter), Some(_)), _, Some(id)) => Next::Ask(ChangeMasters::Remove { id }),
            ((Some(Voice::Voter), None), _, None) => Next::Done(format!(
                "{} votes already, and {old} has no seat",
                self.whom
            )),
            ((_, None), _, None) => Next::Refuse(format!(
                "{old} has no seat: `meros masters promote` alone lets {} vote",
                self.whom
            )),
            ((Some(Voice::Voter), None), ..) => Next::Done(format!(
                "{} votes in the place of {}{}; whoever left must not come back with its old directory",
                self.whom,
                self.old,
                counted(group)
            )),
            _ => self.promote(group, new),
        }
    }

    fn remove(&mut self, group: &Group, which: &Which) -> Next {
        self.whom.find(group, which);
        match (self.whom.voice(group), self.whom.id) {
            (Some(Voice::Outgoing), _) => Next::Wait(format!("{} is being removed", self.whom)),
            (Some(_), Some(id)) if group.leader.as_ref().is_some_and(|leader| leader.0 == id) => {
                Next::Refuse(format!(
                    "{} leads: hand that over first, with `meros masters transfer`",
                    self.whom
                ))
            }
            (Some(_), Some(id)) => Next::Ask(ChangeMasters::Remove { id }),
            _ if self.asked => Next::Done(format!(
                "{} is removed{}; it must not come back with its old directory",
                self.whom,
                counted(group)
            )),
            _ => Next::Done(format!("{which} has no seat: nothing has changed")),
        }
    }

    fn lead(&mut self, group: &Group, leader: u64, which: Option<&Which>) -> Next {
        match which {
            Some(which) => {
                self.whom.find(group, which);
                if self.whom.id.is_none() {
                    return Next::Refuse(format!(
                        "{which} has no seat: `meros masters list` shows who has"
                    ));
                }
            }
            // Whoever was chosen may be down by now; then another is.
            None if self.led == Some(leader) => match best_follower(group, leader) {
                Some(row) => (self.whom.id, self.whom.address) = (row.id, row.address.clone()),
                None => {
                    return Next::Refuse(
                        "no other master that votes answers: nobody can take over".to_owned(),
                    );
                }
            },
            None => {}
        }
        if self.led != Some(leader) && which.is_none() || self.whom.id == Some(leader) {
            let now = group.leader.as_ref();
            let whom = now.map_or(String::new(), |(id, at)| format!("master {id} at {at}"));
            return Next::Done(match self.led.filter(|led| *led != leader) {
                Some(led) => format!("{whom} leads in term {}, after master {led}", group.term),
                None => format!("{whom} leads already, in term {}", group.term),
            });
        }
        match (group.transferring, self.whom.id) {
            (Some(to), _) => Next::Wait(format!("the leadership goes over to master {to}")),
            (None, Some(id)) => Next::Ask(ChangeMasters::Transfer { id }),
            (None, None) => Next::Wait("nobody to take over is known".to_owned()),
        }
    }
}

/// Who lacks least of those who could lead.
fn best_follower(group: &Group, leader: u64) -> Option<&Row> {
    let rows = group.masters.iter();
    rows.filter(|row| row.votes == Some(true) && row.log.is_some() && row.id != Some(leader))
        .min_by_key(|row| (row.lag.unwrap_or(u64::MAX), row.id))
}

fn counted(group: &Group) -> String {
    let voters = group.seats.iter().filter(|seat| seat.voice == Voice::Voter);
    let voters = voters.count();
    format!("; {} of {voters} voters are needed", voters / 2 + 1)
}
