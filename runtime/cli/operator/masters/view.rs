//! A group of masters as a whole, put together from what each of them answered. Pure.
//!
//! The leader's word counts for who belongs to the group; without one, the word of whoever knows most. How a master stands it says itself,
//! and the leader says how far behind it is. It never guesses: what nobody has said is left out.

use std::collections::BTreeSet;

use consensus::core::{Peer, Role};
use consensus::member::operator::{LogStatus, MasterSeat, MasterStatus, Voice};
use serde_json::{Value, json};

use super::super::members::Answers;

/// One master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its number; none while it has no seat.
    pub id: Option<u64>,
    /// Where it is reached.
    pub address: String,
    /// What it is: `leader`, `follower`, `candidate`, `learner`, `waiting`, `removed`, `stranger` or `unreachable`.
    pub role: &'static str,
    /// Whether it votes, if the group has a seat for it.
    pub votes: Option<bool>,
    /// How its log stands, in its own words.
    pub log: Option<LogStatus>,
    /// Entries of the leader's that it lacks.
    pub lag: Option<u64>,
    /// Bytes of its registry on its disk.
    pub disk_bytes: Option<u64>,
    /// What an operator should know beside that.
    pub note: String,
}

/// The group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Which; none if nobody has said.
    pub id: Option<u64>,
    /// The number and address of the leader, if it has answered.
    pub leader: Option<(u64, String)>,
    /// Its term, or the highest one heard of.
    pub term: u64,
    /// Every seat.
    pub seats: Vec<MasterSeat>,
    /// Every master, seated or not, in the order of their numbers.
    pub masters: Vec<Row>,
    /// To whom the leadership is being handed.
    pub transferring: Option<u64>,
}

impl Group {
    /// The group that these answers are of.
    pub fn of(answers: &Answers) -> Self {
        let answered: Vec<&MasterStatus> = answers.values().flatten().collect();
        let logs = answered
            .iter()
            .filter_map(|status| Some((*status, status.identity?, status.log?)));
        let best = logs.max_by_key(|(_, _, log)| (log.role == Role::Leader, log.term, log.applied));
        let mut group = Self::default();
        if let Some((status, (id, of), log)) = best {
            (group.id, group.term) = (Some(of), log.term);
            group.transferring = log.transferring;
            group.seats = status.seats.clone();
            if log.role == Role::Leader {
                group.leader = Some((id, status.address.clone()));
            }
        }
        let mut named = BTreeSet::new();
        for seat in &group.seats {
            let row = group.row(seat, &answered, answers);
            named.extend([row.address.clone()]);
            named.extend(seat.address.clone());
            group.masters.push(row);
        }
        let rest = answers.iter().filter_map(|(address, answer)| match answer {
            Ok(status) => {
                let seated = named.contains(&status.address) || group.is_seated(status);
                (!seated).then(|| group.outsider(status))
            }
            Err(reason) => (!named.contains(address)).then(|| Row {
                address: address.clone(),
                role: "unreachable",
                note: reason.clone(),
                ..Row::default()
            }),
        });
        let mut rest: Vec<Row> = rest.collect();
        // Two of the addresses asked may lead to one master.
        rest.dedup();
        group.masters.extend(rest);
        group
    }

    /// The seat of this number.
    pub fn seat(&self, id: u64) -> Option<&MasterSeat> {
        self.seats.iter().find(|seat| seat.id == id)
    }

    /// The seat at this address.
    pub fn seat_at(&self, address: &str) -> Option<&MasterSeat> {
        let mut seats = self.seats.iter();
        seats.find(|seat| seat.address.as_deref() == Some(address))
    }

    /// The master of this number.
    pub fn master(&self, id: u64) -> Option<&Row> {
        self.masters.iter().find(|row| row.id == Some(id))
    }

    /// How many vote, and how many of those have answered.
    pub fn voters(&self) -> (usize, usize) {
        let voters = self.masters.iter().filter(|row| row.votes == Some(true));
        let answered = voters.clone().filter(|row| row.log.is_some());
        (voters.count(), answered.count())
    }

    /// The group in a line.
    pub fn summary(&self) -> String {
        let Some(id) = self.id else {
            return "no master of a group has answered".to_owned();
        };
        let (voters, answer) = self.voters();
        let needed = voters / 2 + 1;
        let leader = match &self.leader {
            Some((id, address)) => format!("master {id} at {address} leads in term {}", self.term),
            None => "nobody leads".to_owned(),
        };
        format!(
            "group {id:016x}: {leader}; {answer} of {voters} voters answer, {needed} are needed"
        )
    }

    /// As JSON: one object a master.
    pub fn json(&self) -> Value {
        let group = self.id.map(|id| format!("{id:016x}"));
        let row = |row: &Row| {
            let log = |field: fn(&LogStatus) -> u64| row.log.as_ref().map(field);
            json!({
                "group": group.as_ref().filter(|_| row.role != "stranger"),
                "id": row.id,
                "address": row.address,
                "role": row.role,
                "votes": row.votes,
                "term": log(|log| log.term),
                "commit_index": log(|log| log.committed),
                "applied_index": log(|log| log.applied),
                "first_index": log(|log| log.first),
                "last_index": log(|log| log.last),
                "snapshot_index": log(|log| log.snapshot),
                "lag": row.lag,
                "disk_bytes": row.disk_bytes,
                "note": Some(&row.note).filter(|note| !note.is_empty()),
            })
        };
        self.masters.iter().map(row).collect()
    }

    fn is_seated(&self, status: &MasterStatus) -> bool {
        status
            .identity
            .is_some_and(|(id, group)| Some(group) == self.id && self.seat(id).is_some())
    }

    fn row(&self, seat: &MasterSeat, answered: &[&MasterStatus], answers: &Answers) -> Row {
        let own = answered
            .iter()
            .find(|status| status.identity == self.id.map(|group| (seat.id, group)));
        // A new leader takes whom it has not heard for one that has nothing.
        let heard = |peer: &Peer| peer.matched > 0 || peer.silent.is_some();
        let peer = seat.peer.filter(heard);
        let leads = self.leader.as_ref().is_some_and(|(id, _)| *id == seat.id);
        let mut row = Row {
            id: Some(seat.id),
            address: seat.address.clone().unwrap_or_default(),
            role: "unreachable",
            votes: Some(matches!(seat.voice, Voice::Voter | Voice::Outgoing)),
            lag: if leads {
                Some(0)
            } else {
                peer.map(|peer| peer.lag)
            },
            ..Row::default()
        };
        if let Some(status) = own {
            row.address.clone_from(&status.address);
            row.log = status.log;
            row.disk_bytes = Some(status.disk_bytes);
            row.role = match (status.log.map(|log| log.role), seat.voice) {
                (Some(Role::Leader), _) => "leader",
                (Some(Role::Candidate), _) => "candidate",
                (_, Voice::Learner | Voice::None) => "learner",
                _ => "follower",
            };
            if matches!(seat.voice, Voice::Outgoing | Voice::None) {
                row.note = voice(seat.voice).to_owned();
            } else if let Some(waiting) = &status.waiting {
                row.note.clone_from(waiting);
            }
            return row;
        }
        let why = match seat.address.as_ref().and_then(|at| answers.get(at)) {
            Some(Err(reason)) => reason.clone(),
            Some(Ok(status)) => match (&status.waiting, status.identity) {
                (Some(waiting), None) => {
                    row.role = "waiting";
                    waiting.clone()
                }
                (_, Some((id, group))) => {
                    format!("master {id} of group {group:016x} answers there")
                }
                (None, None) => "it begins".to_owned(),
            },
            None => "its address is not known yet".to_owned(),
        };
        row.note = match row.role {
            "waiting" => why,
            _ => format!("{}; {why}", voice(seat.voice)),
        };
        row
    }

    /// Somebody who answers and has no seat in the group.
    fn outsider(&self, status: &MasterStatus) -> Row {
        let (role, note) = match (&status.waiting, status.identity) {
            (Some(waiting), None) => ("waiting", waiting.clone()),
            (_, Some((_, group))) if Some(group) != self.id => {
                ("stranger", format!("it belongs to group {group:016x}"))
            }
            _ => ("removed", "it has no seat any more".to_owned()),
        };
        Row {
            id: status.identity.map(|(id, _)| id),
            address: status.address.clone(),
            role,
            log: status.log,
            disk_bytes: Some(status.disk_bytes),
            note,
            ..Row::default()
        }
    }
}

fn voice(voice: Voice) -> &'static str {
    match voice {
        Voice::Voter => "voter",
        Voice::Learner => "learner",
        Voice::Outgoing => "is being removed",
        Voice::None => "its seat is only reserved",
    }
}

/// A size for people.
fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// The headings of [`cells`].
pub const HEADINGS: [&str; 9] = [
    "ID", "ADDRESS", "ROLE", "TERM", "COMMIT", "APPLIED", "LAG", "DISK", "NOTE",
];

/// A master in a table.
pub fn cells(row: &Row) -> [String; 9] {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let number = |value: Option<u64>| or_dash(value.map(|value| value.to_string()));
    let log = |field: fn(&LogStatus) -> u64| number(row.log.as_ref().map(field));
    [
        number(row.id),
        row.address.clone(),
        row.role.to_owned(),
        log(|log| log.term),
        log(|log| log.committed),
        log(|log| log.applied),
        number(row.lag),
        or_dash(row.disk_bytes.map(size)),
        row.note.clone(),
    ]
}
