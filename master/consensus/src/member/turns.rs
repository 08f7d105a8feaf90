//! A member's turns: carries out the replica's steps on disk and network.
//!
//! A turn is queued behind the mailbox's present content, so that all messages that arrived
//! together share one write. Waiting callers are kept by ticket, and receive errors as
//! [`ProposeError`].

use std::collections::{BTreeMap, VecDeque};

use runtime::prelude::*;

use super::address_book::AddressRefused;
use super::bootstrap::Introduced;
use super::handle::ProposeError;
use super::metadata::{GroupAnswer, GroupOperation, agreed_format};
use super::{Arrived, Member, PacketSent, Part, Phase, Replicated};
use crate::core::{ReadId, Rejected, Role as RaftRole, Unsafe};
use crate::log::{Identity, LogStore, Members, Write};
use crate::machine::StateMachine;
use crate::replica::{Compaction, Done, Failed, Step, Ticket};
use crate::wire::Packet;

/// The interval in ticks at which the leader checks the group metadata for needed changes.
const HOUSEKEEPING_TICKS: u64 = 10;

/// Take a turn. Sent to the own mailbox, behind all waiting messages.
pub(super) struct TakeTurn;

impl Message for TakeTurn {
    type Result = ();
}

/// A caller that waits for the end of a proposal.
pub(super) enum Waiter<A> {
    /// An operation of the machine.
    Machine(Promise<Result<A, ProposeError>>),
    /// A change of the addresses.
    Address(Promise<Result<u64, ProposeError>>),
    /// A change of the members.
    Members(Promise<Result<Members, ProposeError>>),
    /// A remote member with an empty directory.
    Admission(Promise<Introduced>),
}

/// A caller that waits for a read. Called with the machine or an error.
pub(super) type Reader<M> = Box<dyn FnOnce(Result<&M, ProposeError>) + Send>;

/// A disk operation. They run one at a time in the order of the steps: a snapshot is stored before
/// the write of a later step, which may make it obsolete. At most one of each kind waits.
enum Work {
    Write { number: u64, write: Write },
    Compact(Compaction),
}

/// The member ends once no caller waits, or at this tick.
pub(super) struct Retiring {
    pub until: u64,
    pub promises: Vec<Promise<()>>,
}

/// A member that takes part in the group.
pub(super) struct Running<M: Replicated> {
    pub identity: Identity,
    pub replica: Part<M>,
    pub waiters: BTreeMap<Ticket, Waiter<M::Answer>>,
    pub readers: BTreeMap<ReadId, Reader<M>>,
    work: VecDeque<Work>,
    /// A [`TakeTurn`] is in the mailbox.
    awake: bool,
    next_housekeeping: u64,
    pub retiring: Option<Retiring>,
}

impl<M: Replicated> Running<M> {
    pub fn new(identity: Identity, replica: Part<M>) -> Self {
        Self {
            identity,
            replica,
            waiters: BTreeMap::new(),
            readers: BTreeMap::new(),
            work: VecDeque::new(),
            awake: false,
            next_housekeeping: 0,
            retiring: None,
        }
    }

    /// Ends all waiting callers. Pending proposals may have been committed.
    pub fn finish(self, reason: &str) {
        for waiter in self.waiters.into_values() {
            waiter.fail(ProposeError::Unknown);
        }
        for reader in self.readers.into_values() {
            reader(Err(ProposeError::Broken {
                reason: reason.to_owned(),
            }));
        }
        for promise in self.retiring.into_iter().flat_map(|one| one.promises) {
            promise.answer(());
        }
    }
}

impl<A: 'static> Waiter<A> {
    pub fn fail(self, error: ProposeError) {
        match self {
            Waiter::Machine(promise) => promise.answer(Err(error)),
            Waiter::Address(promise) => promise.answer(Err(error)),
            Waiter::Members(promise) => promise.answer(Err(error)),
            Waiter::Admission(promise) => promise.answer(Introduced::Running { leader: None }),
        }
    }
}

impl<M: Replicated> Handler<TakeTurn> for Member<M> {
    type Result = ();

    fn handle(&mut self, _: TakeTurn, ctx: &mut Context<Self>) {
        if let Phase::Running(running) = &mut self.phase {
            running.awake = false;
            self.turn(ctx);
        }
    }
}

impl<M: Replicated> Member<M> {
    /// Queues a turn behind the waiting messages.
    pub(super) fn wake(&mut self, ctx: &mut Context<Self>) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if !running.awake {
            running.awake = true;
            if ctx.handle().tell(TakeTurn).is_err() {
                running.awake = false;
                self.turn(ctx);
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<Self>) {
        loop {
            let Phase::Running(running) = &mut self.phase else {
                return;
            };
            match running.replica.turn() {
                Ok(Some(step)) => self.carry_out(step, ctx),
                Ok(None) => break,
                Err(stop) => return self.fail(&stop.to_string(), ctx),
            }
        }
        if let Phase::Running(running) = &self.phase {
            let (replica, me) = (&running.replica, running.identity.id);
            let address_book = &replica.machine().address_book;
            if address_book.was_removed(me, replica.members()) {
                return self.leave(ctx);
            }
        }
        self.use_disk(ctx);
        self.publish_leadership(ctx);
        self.leave_if_done(ctx);
    }

    fn carry_out(&mut self, step: Step<GroupAnswer<M::Answer>>, ctx: &mut Context<Self>) {
        self.send(step.packets, ctx);
        if let Phase::Running(running) = &mut self.phase {
            let number = step.number;
            let write = step.write.map(|write| Work::Write { number, write });
            running.work.extend(write);
            if let Some(garbled) = step.snapshot_error {
                tracing::error!(%garbled, "taking a snapshot failed, the log grows");
            }
            running.work.extend(step.compaction.map(Work::Compact));
        }
        for (ticket, end) in step.answers {
            self.end(ticket, end);
        }
        for (read, end) in step.reads {
            let error = end.err().map(|rejected| self.refusal(rejected));
            if let Phase::Running(running) = &mut self.phase
                && let Some(reader) = running.readers.remove(&read)
            {
                match error {
                    Some(error) => reader(Err(error)),
                    None => reader(Ok(&running.replica.machine().machine)),
                }
            }
        }
    }

    /// Starts the next disk operation, if the disk is free.
    fn use_disk(&mut self, ctx: &mut Context<Self>) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if self.store.is_none() {
            return;
        }
        match running.work.pop_front() {
            Some(Work::Write { number, write }) => self.on_disk(
                ctx,
                move |store| store.write(&write),
                move |member, (), ctx| member.written(number, ctx),
            ),
            Some(Work::Compact(compaction)) => {
                let work = move |store: &mut dyn LogStore| {
                    store.compact(&compaction.snapshot, compaction.keep_from)?;
                    Ok(compaction)
                };
                self.on_disk(ctx, work, |member, compaction, ctx| {
                    if let Phase::Running(running) = &mut member.phase {
                        running.replica.compacted(compaction);
                        member.counts.snapshots += 1;
                        member.turn(ctx);
                    }
                });
            }
            None => {}
        }
    }

    fn written(&mut self, number: u64, ctx: &mut Context<Self>) {
        self.counts.writes += 1;
        if let Phase::Running(running) = &mut self.phase {
            running.replica.persisted(number);
        }
        self.turn(ctx);
    }

    fn send(&mut self, packets: Vec<(u64, Packet)>, ctx: &mut Context<Self>) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let mut missed = false;
        for (to, packet) in packets {
            let message = PacketSent {
                group: running.identity.group,
                from: running.identity.id,
                address: self.settings.address.clone(),
                reads: running.replica.machine().newest_format(),
                packet,
            };
            let sent = match self.peers.pid_to_send(to) {
                Some(pid) => ctx.node().tell(&pid, message),
                None => Err(TellError::Gone),
            };
            match sent {
                Ok(()) => {
                    self.counts.sent += 1;
                    self.peers.sent_ok(to);
                }
                Err(error) => {
                    missed = true;
                    self.counts.dropped += 1;
                    running.replica.unreachable(to);
                    if let TellError::Refused { reason } = error {
                        tracing::warn!(peer = to, %reason, "sending a packet failed");
                    }
                }
            }
        }
        if missed {
            self.look_for_peers(ctx);
        }
    }

    fn end(&mut self, ticket: Ticket, end: Result<Done<GroupAnswer<M::Answer>>, Failed>) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let Some(waiter) = running.waiters.remove(&ticket) else {
            return;
        };
        match (waiter, end) {
            (waiter, Err(failed)) => {
                let error = match failed {
                    Failed::Lost => ProposeError::Lost,
                    Failed::Unknown => ProposeError::Unknown,
                    Failed::Rejected(rejected) => self.refusal(rejected),
                };
                waiter.fail(error);
            }
            (Waiter::Machine(promise), Ok(Done::Applied { answer, .. })) => match answer {
                GroupAnswer::Machine(answer) => promise.answer(Ok(answer)),
                _ => promise.answer(Err(ProposeError::Unknown)),
            },
            (Waiter::Address(promise), Ok(Done::Applied { answer, .. })) => match answer {
                GroupAnswer::Address(Ok(id)) => promise.answer(Ok(id)),
                GroupAnswer::Address(Err(refused)) => {
                    let reason = refused.to_string();
                    promise.answer(Err(ProposeError::Refused { reason }));
                }
                _ => promise.answer(Err(ProposeError::Unknown)),
            },
            (Waiter::Admission(promise), Ok(Done::Applied { answer, .. })) => {
                promise.answer(self.admission(answer));
            }
            (Waiter::Members(promise), Ok(Done::Members { members, .. })) => {
                promise.answer(Ok(members));
            }
            // The entry was applied, but the answer is lost: this member restored a snapshot that
            // contains it.
            (waiter, Ok(_)) => waiter.fail(ProposeError::Unknown),
        }
    }

    /// The answer to the remote member, after the change of its entry is committed.
    fn admission(&self, answer: GroupAnswer<M::Answer>) -> Introduced {
        let unknown = Introduced::Running { leader: None };
        let Phase::Running(running) = &self.phase else {
            return unknown;
        };
        let now = running.replica.role_now();
        match answer {
            GroupAnswer::Address(Ok(id)) if now.role == RaftRole::Leader => Introduced::Admitted {
                id,
                group: running.identity.group,
                term: now.term,
                leader: running.identity.id,
            },
            GroupAnswer::Address(Err(refused @ AddressRefused::Taken { .. })) => {
                Introduced::Taken {
                    reason: refused.to_string(),
                }
            }
            _ => unknown,
        }
    }

    /// Converts a rejection into the caller's error.
    pub(super) fn refusal(&self, rejected: Rejected) -> ProposeError {
        let reason = rejected.to_string();
        match rejected {
            Rejected::NotLeader { leader } => ProposeError::NotLeader {
                leader: leader.map(|id| self.leader(id)),
            },
            Rejected::Dropped => ProposeError::Lost,
            Rejected::DiskHangs { ticks } => ProposeError::Busy {
                reason: self.hangs(ticks),
            },
            Rejected::TooLarge { .. } | Rejected::CannotLead { .. } => {
                ProposeError::Refused { reason }
            }
            Rejected::Unsafe(Unsafe::Pending) => ProposeError::Busy { reason },
            Rejected::Unsafe(_) => ProposeError::Refused { reason },
            _ => ProposeError::Busy { reason },
        }
    }

    /// Proposes the changes that the leader makes to the metadata on its own.
    pub(super) fn run_housekeeping(&mut self) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if self.ticks < running.next_housekeeping
            || running.replica.role_now().role != RaftRole::Leader
        {
            return;
        }
        running.next_housekeeping = self.ticks + HOUSEKEEPING_TICKS;
        let status = running.replica.status();
        let mut present = BTreeMap::from([(running.identity.id, self.settings.address.clone())]);
        for (id, _) in status.peers.iter().filter(|(_, peer)| peer.matched > 0) {
            if let Some(address) = self.peers.sent_from(*id) {
                present.insert(*id, address.to_owned());
            }
        }
        let group = running.replica.machine();
        let changes = group.address_book.housekeeping(&status.members, &present);
        let mut housekeeping: Vec<_> = changes.into_iter().map(GroupOperation::Address).collect();
        let mut read = self.peers.formats();
        read.insert(running.identity.id, group.newest_format());
        let agreed = agreed_format(&status.members, &read);
        if let Some(format) = agreed.filter(|format| *format > group.format) {
            tracing::info!(
                format,
                "switching to an operation format that all members read"
            );
            housekeeping.push(GroupOperation::Format(format));
        }
        for operation in housekeeping {
            // A refused proposal is repeated at the next check.
            let _ = running.replica.propose(&operation);
        }
    }

    /// Searches for all members in the address book, and for peers with pending packets.
    pub(super) fn look_for_peers(&mut self, ctx: &mut Context<Self>) {
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let address_book = &running.replica.machine().address_book;
        let me = running.identity.id;
        self.peers
            .want(address_book.entries.keys().copied().filter(|id| *id != me));
        for (id, address) in self.peers.due(self.ticks, address_book) {
            let found = ctx
                .node()
                .find(&address, super::NAME, self.settings.find_timeout);
            ctx.then(found, move |member, found, ctx| match found {
                Ok(pid) => {
                    ctx.link(&pid);
                    if let Phase::Running(running) = &member.phase {
                        let arrived = Arrived {
                            group: running.identity.group,
                            id: running.identity.id,
                            address: member.settings.address.clone(),
                        };
                        // If the peer is gone again, the link reports its end.
                        let _ = ctx.node().tell(&pid, arrived);
                    }
                    member.peers.found(id, pid);
                }
                Err(error) => {
                    tracing::debug!(peer = id, address, %error, "finding a peer failed");
                    member.peers.missed(id, member.ticks, &mut member.rng);
                }
            });
        }
    }

    fn leave_if_done(&mut self, ctx: &mut Context<Self>) {
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let leads = running.replica.role_now().role == RaftRole::Leader;
        let waits = leads || !running.waiters.is_empty();
        if let Some(retiring) = &running.retiring
            && (!waits || self.ticks >= retiring.until)
        {
            self.finish("it was stopped");
            ctx.stop();
        }
    }
}
