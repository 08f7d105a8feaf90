//! A state machine on the core: typed proposals with answers, reads, snapshots. Pure, and driven
//! like the core.
//!
//! Tracks pending proposals, and recently applied ones, so that an operation that was proposed
//! again after a lost leadership is applied once. Every proposal and read ends: with an answer, a
//! rejection, or [`Failed::Unknown`]. Never writes or sends: a [`Step`] lists the work for the
//! driver.
//!
//! | module | contents |
//! |---|---|
//! | `compaction` | when a snapshot is taken, and which entries are retained beside it |
//! | `replay` | reads a log without a member |
//! | `seen` | recently applied proposals |
//! | `stamp` | the context of a proposal in the log |
//! | `step` | the output for the driver |
//! | `tickets` | pending proposals |

mod compaction;
mod replay;
pub mod seen;
mod stamp;
mod step;
mod tickets;

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::SmallRng;
use runtime::wire::codec::Garbled;

use self::seen::Seen;
use self::stamp::Stamp;
use self::tickets::Tickets;
use crate::core::{
    Committed, Core, MembershipChange, ReadId, Rejected, Role, RoleNow, Settings, Status, Turn,
};
use crate::log::{Identity, Loaded, Members, Snapshot, Write};
use crate::machine::{CannotRestore, FIRST_FORMAT, StateMachine};
use crate::wire::{Packet, Refused};

pub use self::compaction::Compaction;
pub use self::replay::{content, replay};
pub use self::seen::{SEEN_MAX, Ticket};
pub use self::step::{Done, Failed, Policy, Step, Stop};

/// The initial snapshot that all founders of a group write before they start. The machine is in its
/// initial state.
pub fn bootstrap<M: StateMachine>(members: Members, machine: &M) -> Result<Write, Garbled> {
    let content = content(machine)?;
    Ok(crate::core::bootstrap(members, content))
}

/// One member with its copy of the state.
pub struct Replica<M: StateMachine> {
    core: Core,
    machine: M,
    policy: Policy,
    seen: Seen,
    tickets: Tickets,
    /// Reads by the index that must be applied first, with the tick at which that index was known.
    reads: BTreeMap<u64, Vec<(ReadId, u64)>>,
    late_reads: Vec<ReadId>,
    now: u64,
    read_ticks_max: u64,
    /// Index and term of the last applied entry.
    applied: (u64, u64),
    bytes_since: u64,
    /// The index of the last failed attempt at a snapshot.
    tried: u64,
    compacting: bool,
    wanted: bool,
}

impl<M: StateMachine> Replica<M> {
    /// Continues from the stored log; the machine is in its initial state. The random seed must
    /// differ at every start.
    pub fn new(
        settings: Settings,
        policy: Policy,
        identity: Identity,
        loaded: Loaded,
        mut rng: SmallRng,
        mut machine: M,
    ) -> Result<Self, Stop> {
        // Two runs of a member must not draw the same tickets: the log's content is mixed in, in
        // case the seed repeats.
        let last = loaded
            .entries
            .last()
            .map_or(loaded.snapshot.index, |entry| entry.index);
        let incarnation =
            rng.random::<u64>() ^ last.rotate_left(24) ^ loaded.hard.term.rotate_left(48);
        let tickets = Tickets::new(identity.id, incarnation);
        let read_ticks_max = settings.read_ticks_max;
        let core = Core::new(settings, identity, loaded, rng)?;
        let policy = policy.of_member(identity.id);
        let latest = core.latest_snapshot();
        let mut seen = Seen::default();
        if latest.index > 0 {
            seen = restore(&mut machine, &latest.data)?;
        }
        let applied = (latest.index, latest.term);
        Ok(Self {
            core,
            machine,
            policy,
            seen,
            tickets,
            reads: BTreeMap::new(),
            late_reads: Vec::new(),
            now: 0,
            read_ticks_max,
            applied,
            bytes_since: 0,
            tried: 0,
            compacting: false,
            wanted: false,
        })
    }

    /// The locally applied state. It may be old; see [`read`](Self::read).
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The last applied index.
    pub fn applied(&self) -> u64 {
        self.applied.0
    }

    /// The status of this member.
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// The members, as applied.
    pub fn members(&self) -> &Members {
        self.core.members()
    }

    /// This member's role, the leader and the term.
    pub fn role_now(&self) -> RoleNow {
        self.core.status_now()
    }

    /// Whether the term is on the disk: a crash cannot repeat it.
    pub fn term_is_synced(&self) -> bool {
        self.core.term_is_synced()
    }

    /// Advances the clock by one tick.
    pub fn tick(&mut self) {
        self.core.tick();
        self.tickets.tick(self.policy.answer_ticks_max);
        // A removed member may know the index of a read and never reach it.
        self.now += 1;
        let (now, max) = (self.now, self.read_ticks_max);
        for reads in self.reads.values_mut() {
            let late = reads.extract_if(.., |(_, since)| now - *since >= max);
            self.late_reads.extend(late.map(|(id, _)| id));
        }
        self.reads.retain(|_, reads| !reads.is_empty());
    }

    /// Handles a packet from a peer.
    pub fn step(&mut self, from: u64, packet: Packet) -> Result<(), Refused> {
        self.core.step(from, packet)
    }

    /// Proposes an operation. A later step contains its answer, under this ticket.
    pub fn propose(&mut self, operation: &M::Operation) -> Result<Ticket, Rejected> {
        let ticket = self.tickets.issue();
        self.propose_as(ticket, operation)?;
        Ok(ticket)
    }

    /// Proposes an operation that may have been proposed before under this ticket, here or at
    /// another member. It is applied once.
    pub fn propose_as(&mut self, ticket: Ticket, operation: &M::Operation) -> Result<(), Rejected> {
        let format = self.machine.format();
        let data = encode(&self.machine, operation, format)?;
        let context = Stamp { ticket, format }.to_context();
        self.core.propose(context.clone(), data.clone())?;
        let term = self.core.status_now().term;
        self.tickets.add(ticket, term, Some((context, data)));
        Ok(())
    }

    /// Changes the members, unless the change is unsafe.
    pub fn change(&mut self, change: &MembershipChange) -> Result<Ticket, Rejected> {
        let ticket = self.tickets.issue();
        let format = FIRST_FORMAT;
        self.core
            .change(Stamp { ticket, format }.to_context(), change)?;
        self.tickets.add(ticket, self.core.status_now().term, None);
        Ok(ticket)
    }

    /// Starts a linearizable read. Once a step lists it, read [`machine`](Self::machine).
    pub fn read(&mut self) -> Result<ReadId, Rejected> {
        self.core.read()
    }

    /// Transfers the leadership to this member.
    pub fn transfer(&mut self, to: u64) -> Result<(), Rejected> {
        self.core.transfer(to)
    }

    /// Transfers the leadership to the best candidate. Returns whether there is one.
    pub fn hand_over(&mut self) -> bool {
        self.core.hand_over()
    }

    /// The number of ticks without a response of the disk, if it seems to hang.
    pub fn disk_hangs(&self) -> Option<u64> {
        self.core.disk_hangs()
    }

    /// Packets sent to this peer may be lost.
    pub fn unreachable(&mut self, peer: u64) {
        self.core.unreachable(peer);
    }

    /// The write of this step is synced.
    pub fn persisted(&mut self, step: u64) {
        self.core.persisted(step);
    }

    /// The next work for the driver, if any.
    pub fn turn(&mut self) -> Result<Option<Step<M::Answer>>, Stop> {
        let turn = match self.core.turn() {
            Some(turn) => turn,
            None if self.tickets.any_late() || !self.late_reads.is_empty() => Turn::default(),
            None => return Ok(None),
        };
        let mut step = Step {
            number: turn.number,
            packets: turn.packets,
            write: turn.write,
            answers: Vec::new(),
            reads: Vec::new(),
            restored: turn.restore.is_some(),
            members: None,
            role: turn.role,
            compaction: None,
            snapshot_error: None,
        };
        self.wanted |= turn.snapshot_wanted;
        for (context, rejected) in turn.dropped {
            if let Some(ticket) = self.take_ticket(&context) {
                step.answers.push((ticket, Err(rejected.into())));
            }
        }
        if let Some(snapshot) = turn.restore {
            self.restore(snapshot, &mut step)?;
        }
        for committed in turn.committed {
            self.apply(committed, &mut step)?;
        }
        self.tickets.take_late(&mut step.answers);
        self.answer_reads(turn.reads, &mut step);
        step.compaction = self.compaction(&mut step);
        Ok(Some(step))
    }

    fn restore(&mut self, snapshot: Snapshot, step: &mut Step<M::Answer>) -> Result<(), Stop> {
        self.seen = restore(&mut self.machine, &snapshot.data)?;
        self.applied = (snapshot.index, snapshot.term);
        self.bytes_since = 0;
        for ticket in self.tickets.proposed_before(u64::MAX) {
            let end = match self.seen.position(&ticket) {
                Some(index) => Ok(Done::Before { index }),
                None => Err(Failed::Unknown),
            };
            self.tickets.forget(&ticket);
            step.answers.push((ticket, end));
        }
        step.members = Some(snapshot.members);
        Ok(())
    }

    fn apply(&mut self, committed: Committed, step: &mut Step<M::Answer>) -> Result<(), Stop> {
        let (index, term) = committed.position();
        if term > self.applied.1 {
            self.lose(term, step);
        }
        self.applied = (index, term);
        match committed {
            Committed::Nothing { .. } => {}
            Committed::Members {
                context, members, ..
            } => {
                step.members = Some(members.clone());
                if let Some(ticket) = self.take_ticket(&context) {
                    step.answers
                        .push((ticket, Ok(Done::Members { index, members })));
                }
            }
            Committed::Operation { context, data, .. } => {
                self.operate(index, &context, &data, step)?
            }
        }
        Ok(())
    }

    /// Removes and returns the pending ticket of this entry, if it is one of this member's.
    fn take_ticket(&mut self, context: &[u8]) -> Option<Ticket> {
        let ticket = Stamp::from_context(context)?.ticket;
        self.tickets.forget(&ticket).then_some(ticket)
    }

    fn operate(
        &mut self,
        index: u64,
        context: &[u8],
        data: &[u8],
        step: &mut Step<M::Answer>,
    ) -> Result<(), Stop> {
        self.bytes_since += data.len() as u64;
        let stamp = Stamp::from_context(context);
        let ticket = stamp.map(|stamp| stamp.ticket);
        let before = ticket.and_then(|ticket| self.seen.position(&ticket));
        let end = match before {
            Some(index) => Done::Before { index },
            None => {
                let operation = stamp::operation(&self.machine, index, stamp, data)?;
                Done::Applied {
                    index,
                    answer: self.machine.apply(index, operation),
                }
            }
        };
        if let Some(ticket) = ticket {
            if before.is_none() {
                self.seen.add(ticket, index);
            }
            if self.tickets.forget(&ticket) {
                step.answers.push((ticket, Ok(end)));
            }
        }
        Ok(())
    }

    /// Handles the first applied entry of a new term: proposals of earlier terms that are not
    /// applied by now never will be. A leader proposes them again.
    fn lose(&mut self, term: u64, step: &mut Step<M::Answer>) {
        let now = self.core.status_now();
        for ticket in self.tickets.proposed_before(term) {
            let again = match self.tickets.entry(&ticket) {
                Some((context, data)) if now.role == Role::Leader => {
                    self.core.propose(context, data).is_ok()
                }
                _ => false,
            };
            if again {
                self.tickets.proposed_again(&ticket, now.term);
            } else {
                self.tickets.forget(&ticket);
                step.answers.push((ticket, Err(Failed::Lost)));
            }
        }
    }

    fn answer_reads(
        &mut self,
        reads: Vec<(ReadId, Result<u64, Rejected>)>,
        step: &mut Step<M::Answer>,
    ) {
        for (id, answer) in reads {
            match answer {
                Ok(index) => self.reads.entry(index).or_default().push((id, self.now)),
                Err(rejected) => step.reads.push((id, Err(rejected))),
            }
        }
        let why = self.core.late();
        let late = self.late_reads.drain(..);
        step.reads.extend(late.map(|id| (id, Err(why.clone()))));
        let later = self.reads.split_off(&(self.applied.0 + 1));
        for (index, reads) in std::mem::replace(&mut self.reads, later) {
            step.reads
                .extend(reads.into_iter().map(|(id, _)| (id, Ok(index))));
        }
    }
}

fn restore<M: StateMachine>(machine: &mut M, packed: &[u8]) -> Result<Seen, Stop> {
    let (seen, bytes) = seen::unpack(packed).map_err(|reason| CannotRestore { reason })?;
    machine.restore(bytes)?;
    Ok(seen)
}

/// Encodes an operation and checks that it decodes: an undecodable entry in the log would stop
/// every member.
fn encode<M: StateMachine>(
    machine: &M,
    operation: &M::Operation,
    format: u16,
) -> Result<Vec<u8>, Rejected> {
    let data = machine.encode(operation, format);
    let read_again = data.and_then(|data| machine.decode(&data, format).map(|_| data));
    read_again.map_err(|error| Rejected::Garbled {
        reason: error.to_string(),
    })
}
