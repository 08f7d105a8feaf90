//! Message handlers of a member: from its own node through its handle, and from other masters.

use runtime::prelude::*;

use super::address_book::{AddressChange, AddressRefused, is_member};
use super::bootstrap::{Introduce, Introduced};
use super::handle::{
    Change, ChangeAddress, GetStatus, Propose, ProposeError, Read, ReadLocal, Retire, Transfer,
    Watch,
};
use super::metadata::GroupOperation;
use super::turns::{Retiring, Waiter};
use super::{Arrived, Dismissed, Member, MemberStatus, PacketSent, Phase, Replicated};
use crate::core::{Rejected, Role as RaftRole, Status};
use crate::log::Members;
use crate::replica::Ticket;
use crate::wire::Refused;

/// The time that a retiring leader waits for its successor, in election timeouts.
const RETIRE_ELECTIONS: u64 = 3;

impl<M: Replicated> Handler<PacketSent> for Member<M> {
    type Result = ();

    fn handle(&mut self, sent: PacketSent, ctx: &mut Context<Self>) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let PacketSent {
            group,
            from,
            address,
            reads,
            packet,
        } = sent;
        if group != running.identity.group {
            self.counts.rejected_packets += 1;
            tracing::debug!(from, address, "rejecting a packet of another group");
            return;
        }
        let address_book = &running.replica.machine().address_book;
        if address_book.was_removed(from, running.replica.members()) {
            return self.dismiss(group, from, &address, ctx);
        }
        match running.replica.step(from, packet) {
            Ok(()) => {
                self.peers.packet_received(from, &address);
                self.peers.reads(from, reads);
            }
            // It may also have forgotten a vote: it must not vote again under this number.
            Err(forgotten @ Refused::Forgotten { .. }) => {
                return self.fail(&forgotten.to_string(), ctx);
            }
            Err(refused) => {
                self.counts.rejected_packets += 1;
                tracing::debug!(from, address, %refused, "rejecting an invalid packet");
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
            self.peers.packet_received(id, &address);
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

impl<M: Replicated> Handler<Introduce> for Member<M> {
    type Result = Reply<Introduced>;

    fn handle(&mut self, asked: Introduce, ctx: &mut Context<Self>) -> Reply<Introduced> {
        let (promise, reply) = promise();
        match self.introduced(&asked) {
            Ok(answer) => promise.answer(answer),
            Err(id) => {
                let take = AddressChange::Take {
                    id,
                    mark: asked.mark,
                };
                self.put(Waiter::Admission(promise), ctx, |running| {
                    running.replica.propose(&GroupOperation::Address(take))
                });
            }
        }
        reply
    }
}

impl<M: Replicated> Member<M> {
    /// Ends the member after its removal from the group.
    pub(super) fn leave(&mut self, ctx: &mut Context<Self>) {
        let address = &self.settings.address;
        let reason = format!(
            "this master was removed from its group: to come back under another number, move its directory away and run `meros masters \
             add {address}`"
        );
        self.fail(&reason, ctx);
    }

    /// Notifies a removed member. It rarely learns of its removal from the log, because it receives
    /// no further entries.
    fn dismiss(&mut self, group: u64, id: u64, address: &str, ctx: &mut Context<Self>) {
        self.peers.packet_received(id, address);
        if let Some(pid) = self.peers.pid_to_send(id) {
            // If this message is lost, the peer's next packet triggers another.
            let _ = ctx.node().tell(&pid, Dismissed { group, id });
        }
        self.look_for_peers(ctx);
    }

    /// The immediate answer to an empty directory, or the number whose entry it must take first.
    fn introduced(&self, asked: &Introduce) -> Result<Introduced, u64> {
        let unknown = Ok(Introduced::Running { leader: None });
        let running = match &self.phase {
            Phase::Joining(joining) => {
                let group = joining.introductions.group();
                return Ok(Introduced::Empty { group });
            }
            Phase::Running(running) => running,
            Phase::Opening(_) | Phase::Ended => return unknown,
        };
        let status = running.replica.status();
        if untouched(&status) {
            let group = running.identity.group;
            return Ok(Introduced::Untouched { group });
        }
        if status.now.role != RaftRole::Leader {
            let leader = status.now.leader.and_then(|id| self.address_of(id));
            return Ok(Introduced::Running { leader });
        }
        let address_book = &running.replica.machine().address_book;
        match address_book.at(&asked.address) {
            None => Ok(Introduced::NotMember),
            Some(_) if asked.mark < 2 => unknown,
            Some(id) if id == running.identity.id => Ok(Introduced::Taken {
                reason: format!("{} is the address of the leader itself", asked.address),
            }),
            // It has sent packets to this leader, but the mark is not recorded yet.
            Some(id) if address_book.entries[&id].mark == 0 && has_sent(&status, id) => {
                let address = asked.address.clone();
                Ok(Introduced::Taken {
                    reason: AddressRefused::Taken { id, address }.to_string(),
                })
            }
            Some(id) if is_member(&status.members, id) => Err(id),
            Some(_) => unknown,
        }
    }

    /// Proposes, and keeps the caller's promise until the proposal ends.
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
                reason: format!(
                    "this master is not a member of a group yet: {}",
                    joining.waits_for
                ),
            },
            Phase::Ended => ProposeError::Broken {
                reason: self.ended.get().cloned().unwrap_or_default(),
            },
            _ => ProposeError::Busy {
                reason: "this master is still reading its directory".to_owned(),
            },
        }
    }
}

/// Whether the group has not acted since it was founded: no vote, no election, no entry.
fn untouched(status: &Status) -> bool {
    status.now.term <= 1 && status.last <= 1 && status.snapshot == 1
}

fn has_sent(status: &Status, id: u64) -> bool {
    let peer = status.peers.get(&id);
    peer.is_some_and(|peer| peer.matched > 0 || peer.silent.is_some())
}

impl<M: Replicated> Handler<Propose<M>> for Member<M> {
    type Result = Reply<Result<M::Answer, ProposeError>>;

    fn handle(&mut self, Propose(operation): Propose<M>, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.put(Waiter::Machine(promise), ctx, |running| {
            running.replica.propose(&GroupOperation::Machine(operation))
        });
        reply
    }
}

impl<M: Replicated> Handler<ChangeAddress> for Member<M> {
    type Result = Reply<Result<u64, ProposeError>>;

    fn handle(
        &mut self,
        ChangeAddress(change): ChangeAddress,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let (promise, reply) = promise();
        self.put(Waiter::Address(promise), ctx, |running| {
            running.replica.propose(&GroupOperation::Address(change))
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

    fn handle(&mut self, Read(read_fn): Read<M, R>, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        let Phase::Running(running) = &mut self.phase else {
            promise.answer(Err(self.not_running()));
            return reply;
        };
        match running.replica.read() {
            Ok(read) => {
                let reader = Box::new(move |machine: Result<&M, ProposeError>| {
                    promise.answer(machine.map(read_fn));
                });
                running.readers.insert(read, reader);
                self.wake(ctx);
            }
            Err(rejected) => promise.answer(Err(self.refusal(rejected))),
        }
        reply
    }
}

impl<M: Replicated, R: Send + 'static> Handler<ReadLocal<M, R>> for Member<M> {
    type Result = Result<(u64, R), ProposeError>;

    fn handle(
        &mut self,
        ReadLocal(read_fn): ReadLocal<M, R>,
        _: &mut Context<Self>,
    ) -> Self::Result {
        let Phase::Running(running) = &self.phase else {
            return Err(self.not_running());
        };
        let replica = &running.replica;
        Ok((replica.applied(), read_fn(&replica.machine().machine)))
    }
}

impl<M: Replicated> Handler<GetStatus> for Member<M> {
    type Result = MessageResult<GetStatus>;

    fn handle(&mut self, _: GetStatus, _: &mut Context<Self>) -> Self::Result {
        let status: MemberStatus = self.status();
        MessageResult(status)
    }
}

impl<M: Replicated> Handler<Watch> for Member<M> {
    type Result = ();

    fn handle(&mut self, Watch(mut watcher): Watch, _: &mut Context<Self>) {
        if self.published.as_ref().is_none_or(&mut watcher) {
            self.watchers.push(watcher);
        }
    }
}

impl<M: Replicated> Handler<Retire> for Member<M> {
    type Result = Reply<()>;

    fn handle(&mut self, _: Retire, ctx: &mut Context<Self>) -> Reply<()> {
        let (promise, reply) = promise();
        let limit = RETIRE_ELECTIONS * self.settings.raft.election_ticks as u64;
        let Phase::Running(running) = &mut self.phase else {
            promise.answer(());
            self.finish("it was stopped");
            ctx.stop();
            return reply;
        };
        let retiring = running.retiring.get_or_insert_with(|| Retiring {
            until: self.ticks + limit,
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
