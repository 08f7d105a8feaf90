//! A member's turns: what the replica says is to be done, is done here.
//!
//! A turn is taken behind whatever waits in the mailbox, so that all that came together is one write. Who waits for an answer is
//! remembered by ticket, and told in the words of [`ProposeError`].

use std::collections::{BTreeMap, VecDeque};

use runtime::prelude::*;

use super::charter::{Answered, Entered, agreed_form};
use super::founding::Acquainted;
use super::handle::ProposeError;
use super::roster::RosterRefused;
use super::{Arrived, Member, PacketSent, Part, Phase, Replicated};
use crate::core::{ReadId, Rejected, Role as RaftRole, Unsafe};
use crate::log::{Identity, LogStore, Members, Write};
use crate::machine::StateMachine;
use crate::replica::{Compaction, Done, Failed, Step, Ticket};
use crate::wire::Packet;

/// The leader looks so often, in ticks, whether something of the charter is to be set right.
const CHORES_TICKS: u64 = 10;

/// Take a turn: everything that came before this is heard.
pub(super) struct Go;

impl Message for Go {
    type Result = ();
}

/// Who waits for the end of a proposal.
pub(super) enum Waiter<A> {
    /// An operation of the machine.
    Machine(Promise<Result<A, ProposeError>>),
    /// A change of the seats.
    Roster(Promise<Result<u64, ProposeError>>),
    /// A change of the members.
    Members(Promise<Result<Members, ProposeError>>),
    /// An empty directory elsewhere.
    Seat(Promise<Acquainted>),
}

/// Who waits for a read; called with the machine, or with why there is none.
pub(super) type Reader<M> = Box<dyn FnOnce(Result<&M, ProposeError>) + Send>;

/// What the disk does, one after the other, in the order of the steps: a snapshot is kept before the write of a later step, which may
/// have made it worthless. At most one of each kind waits.
enum Work {
    Write { number: u64, write: Write },
    Compact(Compaction),
}

/// Leaves as soon as nobody waits, or at this tick.
pub(super) struct Retiring {
    pub until: u64,
    pub promises: Vec<Promise<()>>,
}

/// A member that takes part.
pub(super) struct Running<M: Replicated> {
    pub identity: Identity,
    pub replica: Part<M>,
    pub waiters: BTreeMap<Ticket, Waiter<M::Answer>>,
    pub readers: BTreeMap<ReadId, Reader<M>>,
    work: VecDeque<Work>,
    /// A turn is on its way.
    awake: bool,
    next_chores: u64,
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
            next_chores: 0,
            retiring: None,
        }
    }

    /// It takes part no more: what was under way may have been done.
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
            Waiter::Roster(promise) => promise.answer(Err(error)),
            Waiter::Members(promise) => promise.answer(Err(error)),
            Waiter::Seat(promise) => promise.answer(Acquainted::Lives { leader: None }),
        }
    }
}

impl<M: Replicated> Handler<Go> for Member<M> {
    type Result = ();

    fn handle(&mut self, _: Go, ctx: &mut Context<Self>) {
        if let Phase::Running(running) = &mut self.phase {
            running.awake = false;
            self.turn(ctx);
        }
    }
}

impl<M: Replicated> Member<M> {
    /// Something was put in: a turn follows, behind what waits already.
    pub(super) fn wake(&mut self, ctx: &mut Context<Self>) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if !running.awake {
            running.awake = true;
            if ctx.handle().tell(Go).is_err() {
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
            let roster = &replica.machine().roster;
            if roster.is_dismissed(me, replica.members()) {
                return self.leave(ctx);
            }
        }
        self.use_disk(ctx);
        self.tell_leadership(ctx);
        self.leave_if_done(ctx);
    }

    fn carry_out(&mut self, step: Step<Answered<M::Answer>>, ctx: &mut Context<Self>) {
        self.send(step.packets, ctx);
        if let Phase::Running(running) = &mut self.phase {
            let number = step.number;
            let write = step.write.map(|write| Work::Write { number, write });
            running.work.extend(write);
            if let Some(garbled) = step.not_kept {
                tracing::error!(%garbled, "no snapshot could be written, so the log of this master grows");
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

    /// Gives the disk what is to be done next, if it is free.
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
            let said = PacketSent {
                group: running.identity.group,
                from: running.identity.id,
                address: self.settings.address.clone(),
                reads: running.replica.machine().newest_form(),
                packet,
            };
            let told = match self.peers.way_to(to) {
                Some(pid) => ctx.node().tell(&pid, said),
                None => Err(TellError::Gone),
            };
            match told {
                Ok(()) => {
                    self.counts.sent += 1;
                    self.peers.told(to);
                }
                Err(error) => {
                    missed = true;
                    self.counts.dropped += 1;
                    running.replica.unreachable(to);
                    if let TellError::Refused { reason } = error {
                        tracing::warn!(peer = to, %reason, "a packet could not be sent");
                    }
                }
            }
        }
        if missed {
            self.look_for_peers(ctx);
        }
    }

    fn end(&mut self, ticket: Ticket, end: Result<Done<Answered<M::Answer>>, Failed>) {
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
                Answered::Machine(answer) => promise.answer(Ok(answer)),
                _ => promise.answer(Err(ProposeError::Unknown)),
            },
            (Waiter::Roster(promise), Ok(Done::Applied { answer, .. })) => match answer {
                Answered::Roster(Ok(id)) => promise.answer(Ok(id)),
                Answered::Roster(Err(refused)) => {
                    let reason = refused.to_string();
                    promise.answer(Err(ProposeError::Refused { reason }));
                }
                _ => promise.answer(Err(ProposeError::Unknown)),
            },
            (Waiter::Seat(promise), Ok(Done::Applied { answer, .. })) => {
                promise.answer(self.seat(answer));
            }
            (Waiter::Members(promise), Ok(Done::Members { members, .. })) => {
                promise.answer(Ok(members));
            }
            // It was applied, and what was answered is not known any more: this member has begun again from a snapshot.
            (waiter, Ok(_)) => waiter.fail(ProposeError::Unknown),
        }
    }

    /// What the one who asked for a seat is told, now that it is committed whose it is.
    fn seat(&self, answer: Answered<M::Answer>) -> Acquainted {
        let nobody = Acquainted::Lives { leader: None };
        let Phase::Running(running) = &self.phase else {
            return nobody;
        };
        let now = running.replica.role_now();
        match answer {
            Answered::Roster(Ok(id)) if now.role == RaftRole::Leader => Acquainted::Seated {
                id,
                group: running.identity.group,
                term: now.term,
                leader: running.identity.id,
            },
            Answered::Roster(Err(refused @ RosterRefused::Taken { .. })) => Acquainted::Taken {
                reason: refused.to_string(),
            },
            _ => nobody,
        }
    }

    /// The same in the words of whoever proposed.
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

    /// What the leader sets right in the charter by itself.
    pub(super) fn do_chores(&mut self) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if self.ticks < running.next_chores || running.replica.role_now().role != RaftRole::Leader {
            return;
        }
        running.next_chores = self.ticks + CHORES_TICKS;
        let status = running.replica.status();
        let mut present = BTreeMap::from([(running.identity.id, self.settings.address.clone())]);
        for (id, _) in status.peers.iter().filter(|(_, peer)| peer.matched > 0) {
            if let Some(address) = self.peers.heard_at(*id) {
                present.insert(*id, address.to_owned());
            }
        }
        let charter = running.replica.machine();
        let changes = charter.roster.chores(&status.members, &present);
        let mut chores: Vec<_> = changes.into_iter().map(Entered::Roster).collect();
        let mut read = self.peers.forms();
        read.insert(running.identity.id, charter.newest_form());
        let agreed = agreed_form(&status.members, &read);
        if let Some(form) = agreed.filter(|form| *form > charter.form) {
            tracing::info!(
                form,
                "all members read this form of operations: it is written from here on"
            );
            chores.push(Entered::Form(form));
        }
        for chore in chores {
            // What is refused now is done the next time.
            let _ = running.replica.propose(&chore);
        }
    }

    /// Looks for all who have a seat, and for those to whom there is something to say.
    pub(super) fn look_for_peers(&mut self, ctx: &mut Context<Self>) {
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let roster = &running.replica.machine().roster;
        let me = running.identity.id;
        self.peers
            .want(roster.seats.keys().copied().filter(|id| *id != me));
        for (id, address) in self.peers.due(self.ticks, roster) {
            let found = ctx
                .node()
                .find(&address, super::NAME, self.settings.find_patience);
            ctx.then(found, move |member, found, ctx| match found {
                Ok(pid) => {
                    ctx.link(&pid);
                    if let Phase::Running(running) = &member.phase {
                        let arrived = Arrived {
                            group: running.identity.group,
                            id: running.identity.id,
                            address: member.settings.address.clone(),
                        };
                        // If it is gone again, its end comes by the link.
                        let _ = ctx.node().tell(&pid, arrived);
                    }
                    member.peers.found(id, pid);
                }
                Err(error) => {
                    tracing::debug!(peer = id, address, %error, "a peer was not found");
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
