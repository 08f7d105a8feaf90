//! Peers that say anything, at any time, and logs that hold anything: a member refuses, and never falls.

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use crate::core::{Core, MembershipChange, Settings, Turn, bootstrap};
use crate::log::{Entry, EntryKind, HardState, Identity, Loaded, Members, Snapshot};
use crate::wire::{Chunk, Message, MessageKind, Packet, Received, SnapshotHead};

/// A number near something the member knows, or far from everything.
#[derive(Clone, Copy, Debug)]
enum Near {
    Zero,
    Known(i64),
    Exactly(u64),
}

impl Near {
    fn to(self, known: u64) -> u64 {
        match self {
            Self::Zero => 0,
            Self::Known(distance) => known.saturating_add_signed(distance),
            Self::Exactly(number) => number,
        }
    }
}

fn near() -> impl Strategy<Value = Near> {
    let edges = prop_oneof![Just(u64::MAX), Just(1 << 62), Just((1 << 62) + 1), 0..6u64];
    prop_oneof![1 => Just(Near::Zero), 9 => (-3i64..4).prop_map(Near::Known), 1 => edges.prop_map(Near::Exactly)]
}

fn kind() -> impl Strategy<Value = MessageKind> {
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

fn members() -> impl Strategy<Value = Members> {
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
    let sound = prop::sample::subsequence(vec![1, 2, 3, 4, 5], 1..5).prop_map(|voters| Members {
        voters,
        ..Members::default()
    });
    prop_oneof![any, sound]
}

/// The bytes of a change of members, as a peer could have written them into an entry.
fn change_bytes() -> impl Strategy<Value = Vec<u8>> {
    // Steps as the codec writes them: a count, and then for each its kind and an id; and a context's length.
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
struct Draft {
    kind: MessageKind,
    from: u64,
    to: Near,
    term: Near,
    log_term: Near,
    index: Near,
    entries: Vec<(u8, i64, Vec<u8>)>,
    gap: i64,
    commit: Near,
    commit_term: Near,
    reject: bool,
    hint: Near,
    context: Vec<u8>,
}

fn draft() -> impl Strategy<Value = Draft> {
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
enum Event {
    Hear(Box<Draft>),
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
    /// Enough votes to lead, if it asked for any.
    Elect,
    /// A follower accepts everything.
    Accept(u64),
}

fn event() -> impl Strategy<Value = Event> {
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
        12 => draft().prop_map(|draft| Event::Hear(Box::new(draft))),
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
    ]
}

fn plain(kind: MessageKind, from: u64, term: u64) -> Message {
    Message {
        kind,
        to: 1,
        from,
        term,
        log_term: 0,
        index: 0,
        entries: Vec::new(),
        commit: 0,
        commit_term: 0,
        reject: false,
        reject_hint: 0,
        context: Vec::new(),
    }
}

struct Victim {
    core: Core,
    turn: Option<Turn>,
}

impl Victim {
    fn new(voters: Vec<u64>, learners: Vec<u64>) -> Self {
        let members = Members {
            voters,
            learners,
            ..Members::default()
        };
        let write = bootstrap(members, b"state".to_vec().into());
        let loaded = Loaded {
            identity: None,
            hard: write.hard.unwrap(),
            snapshot: write.snapshot.unwrap(),
            entries: Vec::new(),
        };
        Self::loaded(loaded).unwrap()
    }

    fn loaded(loaded: Loaded) -> Option<Self> {
        let identity = Identity { id: 1, group: 9 };
        let core = Core::new(
            Settings::default(),
            identity,
            loaded,
            SmallRng::seed_from_u64(4),
        )
        .ok()?;
        Some(Self { core, turn: None })
    }

    fn hear(&mut self, draft: Draft) {
        let status = self.core.status();
        let term = draft.term.to(status.now.term);
        let index = draft.index.to(status.last);
        let log_term = draft.log_term.to(status.now.term);
        let entries = draft
            .entries
            .into_iter()
            .enumerate()
            .map(|(nth, (kind, above, data))| Entry {
                term: log_term.max(1).saturating_add_signed(above),
                index: index
                    .saturating_add(1 + nth as u64)
                    .saturating_add_signed(draft.gap),
                kind: [
                    EntryKind::Membership,
                    EntryKind::JointMembership,
                    EntryKind::Operation,
                ][usize::from(kind.min(2))],
                data,
                context: Vec::new(),
            });
        let mut entries: Vec<Entry> = entries.collect();
        if !matches!(
            draft.kind,
            MessageKind::Append | MessageKind::ReadIndex | MessageKind::ReadIndexIs
        ) {
            entries.clear();
        }
        let message = Message {
            to: draft.to.to(1),
            log_term,
            index,
            entries,
            commit: draft.commit.to(status.committed),
            commit_term: draft.commit_term.to(status.now.term),
            reject: draft.reject,
            reject_hint: draft.hint.to(status.last),
            context: draft.context,
            ..plain(draft.kind, draft.from, term)
        };
        let _ = self.core.step(draft.from, Packet::Raft(message));
    }

    fn happen(&mut self, event: Event) {
        let status = self.core.status();
        let term = status.now.term;
        match event {
            Event::Hear(draft) => self.hear(*draft),
            Event::Chunk(from, leader_term, index, snapshot_term, members, whole) => {
                let data = vec![5; 40];
                let head = SnapshotHead {
                    index: index.to(status.last),
                    term: snapshot_term.to(term),
                    members,
                    total: if whole { 40 } else { 90 },
                    crc: crc32c::crc32c(&data),
                };
                let chunk = Chunk {
                    leader_term: leader_term.to(term),
                    head,
                    offset: 0,
                    data,
                };
                let _ = self.core.step(from, Packet::Chunk(chunk));
            }
            Event::Received(from, index, snapshot_term, bytes, refused) => {
                let received = Received {
                    index: index.to(status.snapshot),
                    term: snapshot_term.to(term),
                    crc: 3,
                    bytes,
                    refused,
                };
                let _ = self.core.step(from, Packet::Received(received));
            }
            Event::Ticks(count) => (0..count).for_each(|_| self.core.tick()),
            Event::Propose => {
                let _ = self.core.propose(vec![1; 24], vec![2; 10]);
            }
            Event::Read => {
                let _ = self.core.read();
            }
            Event::Change(change) => {
                let _ = self.core.change(Vec::new(), &change);
            }
            Event::Transfer(to) => {
                let _ = self.core.transfer(to);
            }
            Event::Unreachable(peer) => self.core.unreachable(peer),
            Event::Turn => self.turn(),
            Event::Persisted => self.persisted(),
            Event::Snapshot(keep) => {
                if let Some(snapshot) = self.core.snapshot(status.applied, vec![1, 2, 3].into()) {
                    self.core
                        .compacted(snapshot, status.applied.saturating_sub(keep));
                }
            }
            Event::Elect => {
                for kind in [MessageKind::PreVoted, MessageKind::Voted] {
                    for from in 2..6 {
                        let term =
                            self.core.status().now.term + u64::from(kind == MessageKind::PreVoted);
                        let _ = self.core.step(from, Packet::Raft(plain(kind, from, term)));
                    }
                    self.settle();
                }
            }
            Event::Accept(from) => {
                let accepted = Message {
                    index: status.last,
                    ..plain(MessageKind::Appended, from, term)
                };
                let _ = self.core.step(from, Packet::Raft(accepted));
            }
        }
    }

    fn turn(&mut self) {
        if let Some(turn) = self.core.turn() {
            self.turn = Some(turn);
        }
    }

    fn persisted(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.core.persisted(turn.number);
        }
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.persisted();
            self.turn();
            if self.turn.is_none() {
                return;
            }
        }
    }
}

fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("MEROS_HOSTILE_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(asked.unwrap_or(usual))
}

fn loaded() -> impl Strategy<Value = Loaded> {
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

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn whatever_peers_say_a_voter_does_not_fall(size in 1..4u64, events in prop::collection::vec(event(), 1..80)) {
        let mut victim = Victim::new((1..=size).collect(), Vec::new());
        for event in events {
            victim.happen(event);
        }
        victim.settle();
    }

    #[test]
    fn whatever_peers_say_a_learner_does_not_fall(events in prop::collection::vec(event(), 1..80)) {
        let mut victim = Victim::new(vec![2, 3], vec![1]);
        for event in events {
            victim.happen(event);
        }
        victim.settle();
    }

    #[test]
    fn whatever_peers_say_a_newcomer_does_not_fall(events in prop::collection::vec(event(), 1..80)) {
        let mut victim = Victim::loaded(Loaded::default()).unwrap();
        for event in events {
            victim.happen(event);
        }
        victim.settle();
    }

    #[test]
    fn a_log_that_contradicts_itself_is_refused_and_any_other_can_be_lived_with(loaded in loaded(), events in prop::collection::vec(event(), 0..40)) {
        if let Some(mut victim) = Victim::loaded(loaded) {
            for event in events {
                victim.happen(event);
            }
            victim.settle();
        }
    }
}
