//! A group of masters, assembled from the answers of its members. Pure.
//!
//! The members are those that the leader reports; without a leader, those of the master with the
//! newest log. Each master reports its own status, and the leader the lag of the others. Unreported
//! values are omitted.

use std::collections::BTreeSet;

use consensus::core::{Peer, Role};
use consensus::member::operator::{LogStatus, MasterEntry, MasterStatus, VoteRole};
use serde_json::{Value, json};

use super::super::members::Answers;

/// One master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its number; none before its admission.
    pub id: Option<u64>,
    /// Its address.
    pub address: String,
    /// Its role: `leader`, `follower`, `candidate`, `learner`, `waiting`, `removed`, `stranger` or
    /// `unreachable`.
    pub role: &'static str,
    /// Whether it votes, if it is a member.
    pub votes: Option<bool>,
    /// The status of its log, as it reports it.
    pub log: Option<LogStatus>,
    /// Its lag behind the leader, in entries.
    pub lag: Option<u64>,
    /// The size of its registry on its disk, in bytes.
    pub disk_bytes: Option<u64>,
    /// Other information for an operator.
    pub note: String,
}

/// The group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its id; none if unreported.
    pub id: Option<u64>,
    /// The masters of other groups that answered, with their groups' ids.
    pub others: Vec<(String, u64)>,
    /// The number and address of the leader, if it has answered.
    pub leader: Option<(u64, String)>,
    /// The leader's term, or the highest one reported.
    pub term: u64,
    /// All members.
    pub members: Vec<MasterEntry>,
    /// All masters, members or not, by number.
    pub masters: Vec<Row>,
    /// The target of a leadership transfer in progress.
    pub transferring: Option<u64>,
}

impl Group {
    /// Assembles the group from these answers.
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
            group.members = status.members.clone();
            let identities = answered
                .iter()
                .filter_map(|one| Some((*one, one.identity?.1)));
            let others = identities.filter(|(_, other)| *other != of);
            group.others = others.map(|(one, id)| (one.address.clone(), id)).collect();
            if log.role == Role::Leader {
                group.leader = Some((id, status.address.clone()));
            }
        }
        let mut named = BTreeSet::new();
        for member in &group.members {
            let row = group.row(member, &answered, answers);
            named.extend([row.address.clone()]);
            named.extend(member.address.clone());
            group.masters.push(row);
        }
        let rest = answers.iter().filter_map(|(address, answer)| match answer {
            Ok(status) => {
                let joined = named.contains(&status.address) || group.is_member(status);
                (!joined).then(|| group.outsider(status))
            }
            Err(reason) => (!named.contains(address)).then(|| Row {
                address: address.clone(),
                role: "unreachable",
                note: reason.clone(),
                ..Row::default()
            }),
        });
        let mut rest: Vec<Row> = rest.collect();
        // Two of the queried addresses may belong to one master.
        rest.dedup();
        group.masters.extend(rest);
        group
    }

    /// The member with this number.
    pub fn member(&self, id: u64) -> Option<&MasterEntry> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The member at this address.
    pub fn member_at(&self, address: &str) -> Option<&MasterEntry> {
        let mut members = self.members.iter();
        members.find(|member| member.address.as_deref() == Some(address))
    }

    /// The master with this number.
    pub fn master(&self, id: u64) -> Option<&Row> {
        self.masters.iter().find(|row| row.id == Some(id))
    }

    /// The number of voters, and of those that have answered.
    pub fn voters(&self) -> (usize, usize) {
        let voters = self.masters.iter().filter(|row| row.votes == Some(true));
        let answered = voters.clone().filter(|row| row.log.is_some());
        (voters.count(), answered.count())
    }

    /// The group in one line.
    pub fn summary(&self) -> String {
        let Some(id) = self.id else {
            return "no master of a group has answered".to_owned();
        };
        let (voters, answer) = self.voters();
        let needed = voters / 2 + 1;
        let leader = match &self.leader {
            Some((id, address)) => format!("master {id} at {address} leads in term {}", self.term),
            None => "there is no leader".to_owned(),
        };
        format!(
            "group {id:016x}: {leader}; {answer} of {voters} voters answer, {needed} are needed"
        )
    }

    /// The group as JSON: one object per master.
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

    fn is_member(&self, status: &MasterStatus) -> bool {
        status
            .identity
            .is_some_and(|(id, group)| Some(group) == self.id && self.member(id).is_some())
    }

    fn row(&self, member: &MasterEntry, answered: &[&MasterStatus], answers: &Answers) -> Row {
        let own = answered
            .iter()
            .find(|status| status.identity == self.id.map(|group| (member.id, group)));
        // A new leader reports a peer without messages as one without entries.
        let has_replied = |peer: &Peer| peer.matched > 0 || peer.silent.is_some();
        let peer = member.peer.filter(has_replied);
        let leads = self.leader.as_ref().is_some_and(|(id, _)| *id == member.id);
        let mut row = Row {
            id: Some(member.id),
            address: member.address.clone().unwrap_or_default(),
            role: "unreachable",
            votes: Some(matches!(member.vote, VoteRole::Voter | VoteRole::Outgoing)),
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
            row.role = match (status.log.map(|log| log.role), member.vote) {
                (Some(Role::Leader), _) => "leader",
                (Some(Role::Candidate), _) => "candidate",
                (_, VoteRole::Learner | VoteRole::None) => "learner",
                _ => "follower",
            };
            if matches!(member.vote, VoteRole::Outgoing | VoteRole::None) {
                row.note = vote(member.vote).to_owned();
            } else if let Some(waiting) = &status.waiting {
                row.note.clone_from(waiting);
            }
            return row;
        }
        let why = match member.address.as_ref().and_then(|at| answers.get(at)) {
            Some(Err(reason)) => reason.clone(),
            Some(Ok(status)) => match (&status.waiting, status.identity) {
                (Some(waiting), None) => {
                    row.role = "waiting";
                    waiting.clone()
                }
                (_, Some((id, group))) => {
                    format!("master {id} of group {group:016x} answers there")
                }
                (None, None) => "it is starting".to_owned(),
            },
            None => "its address is not known yet".to_owned(),
        };
        row.note = match row.role {
            "waiting" => why,
            _ => format!("{}; {why}", vote(member.vote)),
        };
        row
    }

    /// A master that answers and is not a member of the group.
    fn outsider(&self, status: &MasterStatus) -> Row {
        let (role, note) = match (&status.waiting, status.identity) {
            (Some(waiting), None) => ("waiting", waiting.clone()),
            (_, Some((_, group))) if Some(group) != self.id => {
                ("stranger", format!("it belongs to group {group:016x}"))
            }
            _ => ("removed", "it is no longer a member".to_owned()),
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

fn vote(vote: VoteRole) -> &'static str {
    match vote {
        VoteRole::Voter => "voter",
        VoteRole::Learner => "learner",
        VoteRole::Outgoing => "is being removed",
        VoteRole::None => "only reserved",
    }
}

/// A readable size.
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
