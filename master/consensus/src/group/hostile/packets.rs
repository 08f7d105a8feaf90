//! Generators of hostile packets: mostly close to valid ones, where they do most harm.

use proptest::prelude::*;

use crate::core::MembershipChange;
use crate::log::{Entry, EntryKind, HardState, Loaded, Members, Snapshot};
use crate::wire::MessageKind;

/// A number close to one that the member knows, or far from all.
#[derive(Clone, Copy, Debug)]
pub(super) enum Near {
    Zero,
    Known(i64),
    Exactly(u64),
}

impl Near {
    pub(super) fn to(self, known: u64) -> u64 {
        match self {
            Self::Zero => 0,
            Self::Known(distance) => known.saturating_add_signed(distance),
            Self::Exactly(number) => number,
        }
    }
}

pub(super) fn near() -> impl Strategy<Value = Near> {
    let edges = prop_oneof![Just(u64::MAX), Just(1 << 62), Just((1 << 62) + 1), 0..6u64];
    prop_oneof![1 => Just(Near::Zero), 9 => (-3i64..4).prop_map(Near::Known), 1 => edges.prop_map(Near::Exactly)]
}

pub(super) fn kind() -> impl Strategy<Value = MessageKind> {
    use MessageKind::*;
    prop::sample::select(vec![
        Append,
        Append,
        Append,
        Appended,
        Appended,
        Vote,
        Voted,
        Voted,
        Heartbeat,
        HeartbeatHeard,
        TimeoutNow,
        ReadIndex,
        ReadIndexIs,
        PreVote,
        PreVoted,
        PreVoted,
    ])
}

pub(super) fn members() -> impl Strategy<Value = Members> {
    let ids = || prop::collection::vec(prop_oneof![9 => 1..5u64, 1 => Just(0)], 0..4);
    let any = (ids(), ids(), ids(), ids(), any::<bool>()).prop_map(
        |(voters, learners, voters_outgoing, learners_next, auto_leave)| Members {
            voters,
            learners,
            voters_outgoing,
            learners_next,
            auto_leave,
        },
    );
    let sound = prop::sample::subsequence(vec![1, 2, 3, 4, 5], 1..5).prop_map(Members::of);
    prop_oneof![any, sound]
}

/// The encoded bytes of a membership change, as a peer could have written them into an entry.
pub(super) fn change_bytes() -> impl Strategy<Value = Vec<u8>> {
    // Steps as encoded: a count, then kind and id of each; then a context's length.
    let step = (0..4u8, 0..6u8);
    let steps = prop::collection::vec(step, 0..4).prop_map(|steps| {
        let mut bytes = vec![steps.len() as u8];
        bytes.extend(steps.into_iter().flat_map(|(kind, id)| [kind, id]));
        bytes.push(0);
        bytes
    });
    prop_oneof![4 => steps, 1 => prop::collection::vec(any::<u8>(), 0..9), 1 => Just(Vec::new())]
}

#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) kind: MessageKind,
    pub(super) from: u64,
    pub(super) to: Near,
    pub(super) term: Near,
    pub(super) log_term: Near,
    pub(super) index: Near,
    pub(super) entries: Vec<(u8, i64, Vec<u8>)>,
    pub(super) gap: i64,
    pub(super) commit: Near,
    pub(super) commit_term: Near,
    pub(super) reject: bool,
    pub(super) hint: Near,
    pub(super) context: Vec<u8>,
}

pub(super) fn draft() -> impl Strategy<Value = Draft> {
    let entry = (0..5u8, -1i64..2, change_bytes());
    let head = (
        kind(),
        2..6u64,
        prop_oneof![20 => Just(Near::Exactly(1)), 1 => near()],
        near(),
        near(),
        near(),
    );
    let gap = prop_oneof![12 => Just(0i64), 1 => -2i64..3];
    let context = prop_oneof![4 => Just(Vec::new()), 1 => Just(b"CampaignTransfer".to_vec()), 1 => prop::collection::vec(any::<u8>(), 24), 1 => prop::collection::vec(any::<u8>(), 0..300)];
    let tail = (
        prop::collection::vec(entry, 0..4),
        gap,
        near(),
        near(),
        any::<bool>(),
        near(),
        context,
    );
    (head, tail).prop_map(
        |(
            (kind, from, to, term, log_term, index),
            (entries, gap, commit, commit_term, reject, hint, context),
        )| Draft {
            kind,
            from,
            to,
            term,
            log_term,
            index,
            entries,
            gap,
            commit,
            commit_term,
            reject,
            hint,
            context,
        },
    )
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Receive(Box<Draft>),
    Chunk(u64, Near, Near, Near, Members, bool),
    Received(u64, Near, Near, u64, bool),
    Ticks(u8),
    Propose,
    Read,
    Change(MembershipChange),
    Transfer(u64),
    Unreachable(u64),
    Turn,
    Persisted,
    Snapshot(u64),
    /// Enough votes to win, if it requested any.
    Elect,
    /// A follower accepts everything.
    Accept(u64),
    /// A leader of this or a later term appends valid entries.
    Follow(u64, u64, Vec<u8>),
    /// That leader hands over at once.
    HandOver(u64),
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let chunk = (2..6u64, near(), near(), near(), members(), any::<bool>());
    let id = || 0..6u64;
    let change = prop_oneof![
        id().prop_map(MembershipChange::AddLearner),
        id().prop_map(MembershipChange::Promote),
        id().prop_map(MembershipChange::Remove),
        (
            prop::collection::vec(id(), 0..3),
            prop::collection::vec(id(), 0..3)
        )
            .prop_map(|(promote, remove)| MembershipChange::Swap { promote, remove }),
    ];
    prop_oneof![
        12 => draft().prop_map(|draft| Event::Receive(Box::new(draft))),
        1 => chunk.prop_map(|(from, term, index, snapshot_term, members, whole)| Event::Chunk(from, term, index, snapshot_term, members, whole)),
        1 => (2..6u64, near(), near(), any::<u64>(), any::<bool>()).prop_map(|(from, index, term, bytes, refused)| Event::Received(from, index, term, bytes, refused)),
        3 => (1..25u8).prop_map(Event::Ticks),
        3 => Just(Event::Propose),
        1 => Just(Event::Read),
        2 => change.prop_map(Event::Change),
        1 => id().prop_map(Event::Transfer),
        1 => id().prop_map(Event::Unreachable),
        4 => Just(Event::Turn),
        4 => Just(Event::Persisted),
        1 => (0..5u64).prop_map(Event::Snapshot),
        4 => Just(Event::Elect),
        4 => (2..6u64).prop_map(Event::Accept),
        3 => (2..6u64, 0..2u64, change_bytes()).prop_map(|(from, above, data)| Event::Follow(from, above, data)),
        2 => (2..6u64).prop_map(Event::HandOver),
    ]
}

pub(super) fn loaded() -> impl Strategy<Value = Loaded> {
    let entry = (0..2u64, 0..8u8, change_bytes());
    let entries = (
        0..6u64,
        prop_oneof![8 => Just(false), 1 => Just(true)],
        prop::collection::vec(entry, 0..8),
    );
    let numbers = (0..6u64, 0..4u64, 0..12u64, 0..12u64);
    (entries, members(), numbers).prop_map(
        |((first, gap, entries), members, (index, term, hard_term, commit))| {
            let mut at = (first, 1);
            let entries = entries
                .into_iter()
                .enumerate()
                .map(|(nth, (above, kind, data))| {
                    at = (at.0 + 1 + u64::from(gap && nth == 2), at.1 + above);
                    Entry {
                        term: at.1,
                        index: at.0,
                        kind: [
                            EntryKind::Membership,
                            EntryKind::JointMembership,
                            EntryKind::Operation,
                        ][usize::from(kind.min(2))],
                        data,
                        context: Vec::new(),
                    }
                });
            Loaded {
                identity: None,
                hard: HardState {
                    term: hard_term,
                    vote: 2,
                    commit,
                },
                snapshot: Snapshot {
                    index,
                    term,
                    members: if index == 0 {
                        Members::default()
                    } else {
                        members
                    },
                    data: Default::default(),
                },
                entries: entries.collect(),
            }
        },
    )
}
