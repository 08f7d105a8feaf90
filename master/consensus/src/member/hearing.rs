//! What a member hears: from its own node through its handle, and from other masters.

use runtime::prelude::*;

use super::charter::Entered;
use super::founding::{Acquaint, Acquainted};
use super::handle::{
    Change, Peek, Propose, ProposeError, Read, Reseat, Retire, Standing, Transfer, Watch,
};
use super::roster::{RosterChange, RosterRefused, is_member};
use super::turning::{Retiring, Waiter};
use super::{Arrived, Dismissed, Member, MemberStatus, PacketSent, Phase, Replicated};
use crate::core::{Rejected, Role as RaftRole, Status};
use crate::log::Members;
use crate::replica::Ticket;
use crate::wire::Refused;

/// How long a leader that retires waits for its successor, in elections.
const RETIRE_ELECTIONS: u64 = 3;

impl<M: Replicated> Handler<PacketSent> for Member<M> {
    type Result = ();

    fn handle(&mut self, said: PacketSent, ctx: &mut Context<Self>) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let PacketSent {
            group,
            from,
            address,
            reads,
            packet,
        } = said;
        if group != running.identity.group {
            self.counts.unbelieved += 1;
            tracing::debug!(from, address, "another group's packet");
            return;
        }
        let roster = &running.replica.machine().roster;
        if roster.is_dismissed(from, running.replica.members()) {
            return self.dismiss(group, from, &address, ctx);
        }
        match running.replica.step(from, packet) {
            Ok(()) => {
                self.peers.heard(from, &address);
                self.peers.reads(from, reads);
            }
            // It may have voted as well, and forgotten that: it must not vote again as the one that did.
            Err(forgotten @ Refused::Forgotten { .. }) => {
                return self.fail(&forgotten.to_string(), ctx);
            }
            Err(refused) => {
                self.counts.unbelieved += 1;
                tracing::debug!(from, address, %refused, "a packet was not believed");
            }
        }
        self.wake(ctx);
    }
}

impl<M: Replicated> Handler<Dismissed> for Member<M> {
    type Result = ();

    fn handle(&mut self, Dismissed { group, id }: Dismissed, ctx: &mut Context<Self>) {
        if let Phase::Running(running) = &self.phase
            && running.identity.group == group
            && running.identity.id == id
        {
            self.leave(ctx);
        }
    }
}

impl<M: Replicated> Handler<Arrived> for Member<M> {
    type Result = ();

    fn handle(&mut self, arrived: Arrived, ctx: &mut Context<Self>) {
        let Arrived { group, id, address } = arrived;
        if let Phase::Running(running) = &self.phase
            && running.identity.group == group
            && running.identity.id != id
        {
            self.peers.heard(id, &address);
            self.look_for_peers(ctx);
        }
    }
}

impl<M: Replicated> Handler<Exited> for Member<M> {
    type Result = ();

    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        let lost = self.peers.lost(&exited.pid, self.ticks, &mut self.rng);
        if let (Some(id), Phase::Running(running)) = (lost, &mut self.phase) {
            running.replica.unreachable(id);
            self.wake(ctx);
        }
    }
}

impl<M: Replicated> Handler<Acquaint> for Member<M> {
    type Result = Reply<Acquainted>;

    fn handle(&mut self, asked: Acquaint, ctx: &mut Context<Self>) -> Reply<Acquainted> {
        let (promise, reply) = promise();
        match self.acquainted(&asked) {
            Ok(answer) => promise.answer(answer),
            Err(id) => {
                let take = RosterChange::Take {
                    id,
                    mark: asked.mark,
                };
                self.put(Waiter::Seat(promise), ctx, |running| {
                    running.replica.propose(&Entered::Roster(take))
                });
            }
        }
        reply
    }
}

impl<M: Replicated> Member<M> {
    /// It belongs to the group no more.
    pub(super) fn leave(&mut self, ctx: &mut Context<Self>) {
        let address = &self.settings.address;
        let reason = format!(
            "this master was removed from its group: to come back under another number, move its directory away and run `meros masters \
             add {address}`"
        );
        self.fail(&reason, ctx);
    }

    /// Whoever was removed seldom hears of it through the log, since nobody sends it the end of that.
    fn dismiss(&mut self, group: u64, id: u64, address: &str, ctx: &mut Context<Self>) {
        self.peers.heard(id, address);
        if let Some(pid) = self.peers.way_to(id) {
            // It speaks again if this is lost.
            let _ = ctx.node().tell(&pid, Dismissed { group, id });
        }
        self.look_for_peers(ctx);
    }

    /// What is said to an empty directory at once, or the seat that it must take first.
    fn acquainted(&self, asked: &Acquaint) -> Result<Acquainted, u64> {
        let nobody = Ok(Acquainted::Lives { leader: None });
        let running = match &self.phase {
            Phase::Joining(joining) => {
                let group = joining.acquaintance.group();
                return Ok(Acquainted::Empty { group });
            }
            Phase::Running(running) => running,
            Phase::Opening(_) | Phase::Over => return nobody,
        };
        let status = running.replica.status();
        if untouched(&status) {
            let group = running.identity.group;
            return Ok(Acquainted::Untouched { group });
        }
        if status.now.role != RaftRole::Leader {
            let leader = status.now.leader.and_then(|id| self.address_of(id));
            return Ok(Acquainted::Lives { leader });
        }
        let roster = &running.replica.machine().roster;
        match roster.at(&asked.address) {
            None => Ok(Acquainted::NoSeat),
            Some(_) if asked.mark < 2 => nobody,
            Some(id) if id == running.identity.id => Ok(Acquainted::Taken {
                reason: format!("{} is the address of the leader itself", asked.address),
            }),
            // It has spoken to this leader, which has not noted that yet.
            Some(id) if roster.seats[&id].mark == 0 && has_spoken(&status, id) => {
                let address = asked.address.clone();
                Ok(Acquainted::Taken {
                    reason: RosterRefused::Taken { id, address }.to_string(),
                })
            }
            Some(id) if is_member(&status.members, id) => Err(id),
            Some(_) => nobody,
        }
    }

    /// Puts something up, and remembers who waits for its end.
    fn put(
        &mut self,
        waiter: Waiter<M::Answer>,
        ctx: &mut Context<Self>,
        put: impl FnOnce(&mut super::Running<M>) -> Result<Ticket, Rejected>,
    ) {
        let error = match &mut self.phase {
            Phase::Running(running) => match put(running) {
                Ok(ticket) => {
                    running.waiters.insert(ticket, waiter);
                    self.counts.proposals += 1;
                    return self.wake(ctx);
                }
                Err(rejected) => self.refusal(rejected),
            },
            _ => self.not_running(),
        };
        self.counts.refused += 1;
        waiter.fail(error);
    }

    fn not_running(&self) -> ProposeError {
        match &self.phase {
            Phase::Joining(joining) => ProposeError::Busy {
                reason: format!("this master has no seat yet: {}", joining.waits_for),
            },
            Phase::Over => ProposeError::Broken {
                reason: self.ended.get().cloned().unwrap_or_default(),
            },
            _ => ProposeError::Busy {
                reason: "this master reads its directory".to_owned(),
            },
        }
    }
}

/// Whether nothing has happened since the group was founded: no vote, no election, no entry.
fn untouched(status: &Status) -> bool {
    status.now.term <= 1 && status.last <= 1 && status.snapshot == 1
}

fn has_spoken(status: &Status, id: u64) -> bool {
    let peer = status.peers.get(&id);
    peer.is_some_and(|peer| peer.matched > 0 || peer.silent.is_some())
}

impl<M: Replicated> Handler<Propose<M>> for Member<M> {
    type Result = Reply<Result<M::Answer, ProposeError>>;

    fn handle(&mut self, Propose(operation): Propose<M>, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.put(Waiter::Machine(promise), ctx, |running| {
            running.replica.propose(&Entered::Machine(operation))
        });
        reply
    }
}

impl<M: Replicated> Handler<Reseat> for Member<M> {
    type Result = Reply<Result<u64, ProposeError>>;

    fn handle(&mut self, Reseat(change): Reseat, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.put(Waiter::Roster(promise), ctx, |running| {
            running.replica.propose(&Entered::Roster(change))
        });
        reply
    }
}

impl<M: Replicated> Handler<Change> for Member<M> {
    type Result = Reply<Result<Members, ProposeError>>;

    fn handle(&mut self, Change(change): Change, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.put(Waiter::Members(promise), ctx, |running| {
            running.replica.change(&change)
        });
        reply
    }
}

impl<M: Replicated> Handler<Transfer> for Member<M> {
    type Result = Result<(), ProposeError>;

    fn handle(&mut self, Transfer(to): Transfer, ctx: &mut Context<Self>) -> Self::Result {
        let Phase::Running(running) = &mut self.phase else {
            return Err(self.not_running());
        };
        let begun = running.replica.transfer(to);
        self.wake(ctx);
        begun.map_err(|rejected| self.refusal(rejected))
    }
}

impl<M: Replicated, R: Send + 'static> Handler<Read<M, R>> for Member<M> {
    type Result = Reply<Result<R, ProposeError>>;

    fn handle(&mut self, Read(look): Read<M, R>, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let Phase::Running(running) = &mut self.phase else {
            promise.answer(Err(self.not_running()));
            return reply;
        };
        match running.replica.read() {
            Ok(read) => {
                let reader = Box::new(move |machine: Result<&M, ProposeError>| {
                    promise.answer(machine.map(look));
                });
                running.readers.insert(read, reader);
                self.wake(ctx);
            }
            Err(rejected) => promise.answer(Err(self.refusal(rejected))),
        }
        reply
    }
}

impl<M: Replicated, R: Send + 'static> Handler<Peek<M, R>> for Member<M> {
    type Result = Result<(u64, R), ProposeError>;

    fn handle(&mut self, Peek(look): Peek<M, R>, _: &mut Context<Self>) -> Self::Result {
        let Phase::Running(running) = &self.phase else {
            return Err(self.not_running());
        };
        let replica = &running.replica;
        Ok((replica.applied(), look(&replica.machine().machine)))
    }
}

impl<M: Replicated> Handler<Standing> for Member<M> {
    type Result = MessageResult<Standing>;

    fn handle(&mut self, _: Standing, _: &mut Context<Self>) -> Self::Result {
        let status: MemberStatus = self.status();
        MessageResult(status)
    }
}

impl<M: Replicated> Handler<Watch> for Member<M> {
    type Result = ();

    fn handle(&mut self, Watch(mut watcher): Watch, _: &mut Context<Self>) {
        if self.told.as_ref().is_none_or(&mut watcher) {
            self.watchers.push(watcher);
        }
    }
}

impl<M: Replicated> Handler<Retire> for Member<M> {
    type Result = Reply<()>;

    fn handle(&mut self, _: Retire, ctx: &mut Context<Self>) -> Reply<()> {
        let (promise, reply) = promise();
        let patience = RETIRE_ELECTIONS * self.settings.raft.election_ticks as u64;
        let Phase::Running(running) = &mut self.phase else {
            promise.answer(());
            self.finish("it was stopped");
            ctx.stop();
            return reply;
        };
        let retiring = running.retiring.get_or_insert_with(|| Retiring {
            until: self.ticks + patience,
            promises: Vec::new(),
        });
        retiring.promises.push(promise);
        if !running.replica.hand_over() {
            retiring.until = retiring.until.min(self.ticks + 1); // Nobody can take it.
        }
        self.wake(ctx);
        reply
    }
}
