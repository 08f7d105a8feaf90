//! Conversions between our plain types and those of the raft crate. Infallible unless stated.
//!
//! A change of members has our own encoding: the context in raft's form of an entry, the data in
//! ours. The data that the raft crate itself writes into such an entry is read only by the leader
//! that proposed it.

use bytes::Bytes;
use raft::eraftpb::{
    ConfChange, ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, Entry as RaftEntry,
    EntryType, HardState as RaftHardState, Message as RaftMessage, MessageType,
};
use serde::{Deserialize, Serialize};

use crate::log::{Entry, EntryKind, HardState, Members};
use crate::wire::{Message, MessageKind};

/// The change of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    Voter(u64),
    Learner(u64),
    Remove(u64),
}

/// A change of members in the log. No steps: the joint change ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub steps: Vec<Step>,
    /// The proposer's context.
    pub context: Vec<u8>,
}

impl Change {
    /// Decodes an entry's bytes; none if they are invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [] => Some(Self::default()),
            bytes => runtime::wire::codec::decode(bytes).ok(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        runtime::wire::codec::encode(self).unwrap_or_default()
    }

    /// The change as raft applies it. Several steps form a joint configuration that ends by itself.
    pub fn to_raft(&self) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        let steps: Vec<ConfChangeSingle> = self.steps.iter().map(single).collect();
        change.set_changes(steps.into());
        change
    }

    /// The form in which raft proposes a change of one step.
    pub fn to_simple(&self) -> Option<ConfChange> {
        let [step] = &self.steps[..] else {
            return None;
        };
        let single = single(step);
        let mut change = ConfChange {
            node_id: single.node_id,
            ..ConfChange::default()
        };
        change.set_change_type(single.get_change_type());
        Some(change)
    }
}

fn single(step: &Step) -> ConfChangeSingle {
    let (kind, id) = match *step {
        Step::Voter(id) => (ConfChangeType::AddNode, id),
        Step::Learner(id) => (ConfChangeType::AddLearnerNode, id),
        Step::Remove(id) => (ConfChangeType::RemoveNode, id),
    };
    let mut single = ConfChangeSingle {
        node_id: id,
        ..ConfChangeSingle::default()
    };
    single.set_change_type(kind);
    single
}

fn kind_of(entry: &RaftEntry) -> EntryKind {
    match entry.get_entry_type() {
        EntryType::EntryNormal => EntryKind::Operation,
        EntryType::EntryConfChange => EntryKind::Membership,
        EntryType::EntryConfChangeV2 => EntryKind::JointMembership,
    }
}

pub(crate) fn is_membership(entry: &RaftEntry) -> bool {
    kind_of(entry) != EntryKind::Operation
}

/// The approximate size of an entry in memory and in a message, in bytes.
pub(crate) fn raft_entry_size(entry: &RaftEntry) -> u64 {
    (entry.data.len() + entry.context.len()) as u64 + 24
}

pub(crate) fn entry_from_raft(entry: &RaftEntry) -> Entry {
    let kind = kind_of(entry);
    let (data, context) = match kind {
        EntryKind::Operation => (entry.data.to_vec(), entry.context.to_vec()),
        _ => (entry.context.to_vec(), Vec::new()),
    };
    Entry {
        term: entry.term,
        index: entry.index,
        kind,
        data,
        context,
    }
}

pub(crate) fn entry_to_raft(entry: Entry) -> RaftEntry {
    let mut raft = RaftEntry {
        term: entry.term,
        index: entry.index,
        ..RaftEntry::default()
    };
    let kind = match entry.kind {
        EntryKind::Operation => EntryType::EntryNormal,
        EntryKind::Membership => EntryType::EntryConfChange,
        EntryKind::JointMembership => EntryType::EntryConfChangeV2,
    };
    raft.set_entry_type(kind);
    if entry.kind == EntryKind::Operation {
        raft.data = Bytes::from(entry.data);
        raft.context = Bytes::from(entry.context);
    } else {
        raft.context = Bytes::from(entry.data);
    }
    raft
}

pub(crate) fn hard_from_raft(hard: &RaftHardState) -> HardState {
    HardState {
        term: hard.term,
        vote: hard.vote,
        commit: hard.commit,
    }
}

pub(crate) fn hard_to_raft(hard: &HardState) -> RaftHardState {
    RaftHardState {
        term: hard.term,
        vote: hard.vote,
        commit: hard.commit,
        ..RaftHardState::default()
    }
}

/// Sorted, so that equal members have equal bytes everywhere.
pub(crate) fn members_from_raft(state: &ConfState) -> Members {
    let sorted = |ids: &[u64]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    Members {
        voters: sorted(state.get_voters()),
        learners: sorted(state.get_learners()),
        voters_outgoing: sorted(state.get_voters_outgoing()),
        learners_next: sorted(state.get_learners_next()),
        auto_leave: state.auto_leave,
    }
}

pub(crate) fn members_to_raft(members: &Members) -> ConfState {
    let mut state = ConfState::default();
    state.set_voters(members.voters.clone());
    state.set_learners(members.learners.clone());
    state.set_voters_outgoing(members.voters_outgoing.clone());
    state.set_learners_next(members.learners_next.clone());
    state.auto_leave = members.auto_leave;
    state
}

fn kind_from_raft(kind: MessageType) -> Option<MessageKind> {
    Some(match kind {
        MessageType::MsgAppend => MessageKind::Append,
        MessageType::MsgAppendResponse => MessageKind::Appended,
        MessageType::MsgRequestVote => MessageKind::Vote,
        MessageType::MsgRequestVoteResponse => MessageKind::Voted,
        MessageType::MsgHeartbeat => MessageKind::Heartbeat,
        MessageType::MsgHeartbeatResponse => MessageKind::HeartbeatHeard,
        MessageType::MsgTimeoutNow => MessageKind::TimeoutNow,
        MessageType::MsgReadIndex => MessageKind::ReadIndex,
        MessageType::MsgReadIndexResp => MessageKind::ReadIndexIs,
        MessageType::MsgRequestPreVote => MessageKind::PreVote,
        MessageType::MsgRequestPreVoteResponse => MessageKind::PreVoted,
        MessageType::MsgHup
        | MessageType::MsgBeat
        | MessageType::MsgPropose
        | MessageType::MsgSnapshot
        | MessageType::MsgUnreachable
        | MessageType::MsgSnapStatus
        | MessageType::MsgCheckQuorum
        | MessageType::MsgTransferLeader => return None,
    })
}

fn kind_to_raft(kind: MessageKind) -> MessageType {
    match kind {
        MessageKind::Append => MessageType::MsgAppend,
        MessageKind::Appended => MessageType::MsgAppendResponse,
        MessageKind::Vote => MessageType::MsgRequestVote,
        MessageKind::Voted => MessageType::MsgRequestVoteResponse,
        MessageKind::Heartbeat => MessageType::MsgHeartbeat,
        MessageKind::HeartbeatHeard => MessageType::MsgHeartbeatResponse,
        MessageKind::TimeoutNow => MessageType::MsgTimeoutNow,
        MessageKind::ReadIndex => MessageType::MsgReadIndex,
        MessageKind::ReadIndexIs => MessageType::MsgReadIndexResp,
        MessageKind::PreVote => MessageType::MsgRequestPreVote,
        MessageKind::PreVoted => MessageType::MsgRequestPreVoteResponse,
    }
}

/// Converts a message of raft; none for local messages, and for snapshots, which are sent in
/// chunks.
pub(crate) fn message_from_raft(message: &RaftMessage) -> Option<Message> {
    Some(Message {
        kind: kind_from_raft(message.get_msg_type())?,
        to: message.to,
        from: message.from,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        entries: message.entries.iter().map(entry_from_raft).collect(),
        commit: message.commit,
        commit_term: message.commit_term,
        reject: message.reject,
        reject_hint: message.reject_hint,
        context: message.context.to_vec(),
    })
}

/// Converts a checked message to raft's type.
pub(crate) fn message_to_raft(message: Message) -> RaftMessage {
    let mut raft = RaftMessage::default();
    raft.set_msg_type(kind_to_raft(message.kind));
    raft.to = message.to;
    raft.from = message.from;
    raft.term = message.term;
    raft.log_term = message.log_term;
    raft.index = message.index;
    let entries: Vec<RaftEntry> = message.entries.into_iter().map(entry_to_raft).collect();
    raft.set_entries(entries.into());
    raft.commit = message.commit;
    raft.commit_term = message.commit_term;
    raft.reject = message.reject;
    raft.reject_hint = message.reject_hint;
    raft.context = Bytes::from(message.context);
    raft
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_each_kind_round_trip() {
        let change = Change {
            steps: vec![Step::Voter(4), Step::Remove(2)],
            context: vec![9; 24],
        };
        for kind in [
            EntryKind::Operation,
            EntryKind::Membership,
            EntryKind::JointMembership,
        ] {
            let operation = kind == EntryKind::Operation;
            let entry = Entry {
                term: 3,
                index: 8,
                kind,
                data: change.encode(),
                context: if operation { vec![5; 24] } else { Vec::new() },
            };
            let raft = entry_to_raft(entry.clone());
            assert_eq!(is_membership(&raft), !operation);
            assert_eq!(entry_from_raft(&raft), entry);
            if !operation {
                assert_eq!(Change::decode(&raft.context), Some(change.clone()));
            }
        }
        assert_eq!(
            Change::decode(&[]),
            Some(Change::default()),
            "nothing ends a joint change"
        );
        assert_eq!(Change::decode(&[1, 2]), None);
    }

    #[test]
    fn messages_of_each_kind_round_trip() {
        use MessageKind::*;
        let kinds = [
            Append,
            Appended,
            Vote,
            Voted,
            Heartbeat,
            HeartbeatHeard,
            TimeoutNow,
            ReadIndex,
            ReadIndexIs,
            PreVote,
            PreVoted,
        ];
        for kind in kinds {
            let message = Message {
                kind,
                to: 1,
                from: 2,
                term: 3,
                log_term: 4,
                index: 5,
                entries: vec![Entry {
                    term: 3,
                    index: 6,
                    kind: EntryKind::Operation,
                    data: vec![7],
                    context: vec![8],
                }],
                commit: 9,
                commit_term: 10,
                reject: true,
                reject_hint: 11,
                context: vec![12],
            };
            let raft = message_to_raft(message.clone());
            assert_eq!(message_from_raft(&raft), Some(message));
        }
    }
}
