//! Booking: applies the sorter's advice as far as the allocator's state allows.
//!
//! Invalid, late or malicious advice never over-commits an agent, exceeds a limit or uses resources
//! that a guarantee needs; it only produces log lines. `charging` counts idle reservations for
//! their role, if enabled.

pub(in crate::allocator::state) mod charging;

use std::collections::BTreeSet;
use std::sync::Arc;

use module_api::allocator::Grant;
use module_api::sorter::{Advice, Client, Pool, Shape, Stage, is_allocatable};
use protocol::AgentId;
use resources::{Quantities, Resource, Resources, Role};
use runtime::Instant;

use super::AllocatorState;
use super::quota::room;
use super::run::PendingSlate;
use crate::allocator::clients::{ClientCapabilities, ClientRecord, pool_index};
use crate::allocator::offer_maximum::cut;

/// The result of a slate's advice.
#[derive(Clone, Debug, Default)]
pub struct BookingResult {
    /// Grants with their clients.
    pub grants: Vec<(Client, Grant)>,
    /// Agents with rejected advice, to be sent to the sorter again, in the order of the slate. If
    /// there are quotas, all agents of the slate.
    pub again: Vec<u32>,
    /// Rejected pairs of agent and client. They are excluded for the rest of the run, so that the
    /// same advice is not repeated.
    pub barred: BTreeSet<(u32, Client)>,
    /// Reasons of rejections, with their counts.
    pub refusals: Vec<(Refusal, usize)>,
}

/// Why a grant is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The slate has no such room.
    #[error("no such room in the slate")]
    NoRoom,
    /// The sorter was never told about this client.
    #[error("no such client")]
    NoClient,
    /// The client has left meanwhile.
    #[error("the client has left meanwhile")]
    Left,
    /// The client was inactive in this pool when the slate was sent.
    #[error("the client is inactive")]
    Inactive,
    /// The client has become inactive meanwhile.
    #[error("the client has become inactive")]
    Paused,
    /// By the sorter's own data, this room has too little for the client.
    #[error("the room has too little for the client")]
    NoPortion,
    /// The agent is gone or may no longer be offered.
    #[error("the agent may no longer be offered")]
    NoAgent,
    /// The client's capabilities or constraints exclude this agent.
    #[error("the client must not get this agent")]
    Incapable,
    /// Too little is free for this client, or fits within limits and guarantees.
    #[error("too little is free for the client")]
    TooLittle,
    /// A filter of the client hides the offer.
    #[error("a filter of the client hides the offer")]
    Filtered,
}

impl Refusal {
    /// Whether a correct sorter would not have given this advice. Other rejections are normal: the
    /// state changed meanwhile, or the reason is not part of a slate.
    pub fn is_fault(self) -> bool {
        match self {
            Self::NoRoom | Self::NoClient | Self::Inactive | Self::NoPortion => true,
            Self::Left | Self::Paused | Self::NoAgent => false,
            Self::Incapable | Self::TooLittle | Self::Filtered => false,
        }
    }
}

impl AllocatorState {
    /// Applies the advice in order.
    pub fn book(
        &mut self,
        mut pending: PendingSlate,
        advice: &[Advice],
        now: Instant,
    ) -> BookingResult {
        let mut booked = BookingResult::default();
        if !self.is_current(&pending) {
            return booked;
        }
        self.settle();
        let mut again = vec![false; pending.agents.len()];
        for one in advice {
            let n = one.room as usize;
            match self.follow(&mut pending, *one, now) {
                Ok(followed) => {
                    again[n] |= followed.less;
                    if followed.shaped {
                        // The rest of the agent waits for the next batch; otherwise one client
                        // would get many small offers of the same agent.
                        let (slot, _) = pending.agents[n];
                        booked.barred.insert((slot, followed.grant.0));
                        self.mark_for_batch(slot);
                    }
                    booked.grants.push(followed.grant);
                }
                Err(refusal) => {
                    if let Some((again, (slot, _))) = again.get_mut(n).zip(pending.agents.get(n)) {
                        *again = true;
                        // The number comes from the sorter: unknown clients are not recorded, so
                        // that it cannot size a table.
                        if self.clients.get(one.client).is_some() {
                            booked.barred.insert((*slot, one.client));
                        }
                    }
                    booked.refuse(refusal);
                }
            }
        }
        // By the sorter's data, rejected advice has used up quota, so other agents may have got too
        // little.
        if !self.quotas.is_empty() && again.contains(&true) {
            again.fill(true);
        }
        let refused = pending.agents.iter().zip(again).filter(|(_, again)| *again);
        booked.again = refused.map(|((slot, _), _)| *slot).collect();
        if pending.stage == Stage::Fair && !self.quotas.is_empty() {
            self.record_short(&pending);
        }
        booked
    }

    /// Records the agents on which quota keeps back resources that are worth an offer.
    fn record_short(&mut self, pending: &PendingSlate) {
        self.settle();
        let tightest = self.quotas.tightest();
        let loosest = self.loosest(pending.stage.pool());
        for &(slot, serial) in &pending.agents {
            if self.keeps(pending.stage, slot) {
                continue;
            }
            let Some(agent) = self.agent_at(slot, serial) else {
                continue;
            };
            let room = room(agent.pools[pool_index(pending.stage.pool())].available());
            if is_allocatable(&room.free, &loosest) {
                self.quotas.record_short(slot, &room.free, &tightest);
            }
            self.quotas.record_reserved(slot, &room);
        }
    }

    fn follow(
        &mut self,
        pending: &mut PendingSlate,
        advice: Advice,
        now: Instant,
    ) -> Result<Followed, Refusal> {
        let (stage, n) = (pending.stage, advice.room as usize);
        let pool = stage.pool();
        let place = pending.agents.get(n).zip(pending.rooms.get_mut(n));
        let (&(slot, serial), room) = place.ok_or(Refusal::NoRoom)?;
        let Some(record) = self.clients.get(advice.client) else {
            let departed = self.clients.departed(advice.client);
            let departed = departed.ok_or(Refusal::NoClient)?;
            // The sorter does not know yet that the client has left.
            let reserved = self.charging.as_ref().map(|_| room.reserved.clone());
            self.quotas
                .assume(stage, &departed.role, departed.shape(), room);
            self.clients
                .assume_given(pool, &reserved.unwrap_or_default(), room);
            return Err(Refusal::Left);
        };
        let recipient = Recipient::of(advice.client, record, stage);
        let (framework_id, active) = (record.framework.clone(), record.is_active(pool));
        let assumed_active = record.is_assumed_active(pool);
        let assumed_shape = record.assumed_shape();
        let assumed_sets =
            assumed_shape.map_or(&pending.sets_min[..], |shape| shape.sets(&pending.sets_min));
        let reserved = self.charging.as_ref().map(|_| room.reserved.clone());
        let assumed = self
            .quotas
            .assume(stage, &recipient.role, assumed_shape, room);
        let worth_it = is_allocatable(&assumed, assumed_sets);
        self.clients
            .assume_given(pool, &reserved.unwrap_or_default(), room);
        self.clients.assume(pool, recipient.client, &assumed);
        if !assumed_active {
            return Err(Refusal::Inactive);
        }
        if !worth_it {
            return Err(Refusal::NoPortion);
        }
        if !active {
            return Err(Refusal::Paused);
        }
        let granted = self.grant(&recipient, (slot, serial), &pending.sets_min, now)?;
        let shaped = recipient.shape.as_ref().is_some_and(Shape::is_bounded);
        let less = (shaped || !self.quotas.is_empty()) && !granted.amount.contains(&assumed);
        let grant = Grant {
            framework_id,
            role: recipient.role.as_str().to_owned(),
            agent_id: granted.agent_id,
            session: granted.session,
            resources: granted.resources,
        };
        Ok(Followed {
            grant: (recipient.client, grant),
            less,
            shaped,
        })
    }

    /// Grants a client all that it may get of one agent, or returns the reason of the rejection.
    fn grant(
        &mut self,
        recipient: &Recipient,
        (slot, serial): (u32, u64),
        sets_min: &[Quantities],
        now: Instant,
    ) -> Result<Granted, Refusal> {
        let (client, pool) = (recipient.client, recipient.stage.pool());
        let keeps = self.keeps(recipient.stage, slot);
        let agent = self.agents.get_mut(slot as usize).and_then(Option::as_mut);
        let agent = agent.filter(|agent| agent.serial == serial && agent.is_offered());
        let agent = agent.ok_or(Refusal::NoAgent)?;
        let record = self.clients.get_mut(client).ok_or(Refusal::Left)?;
        if !record.would_accept(slot, agent) {
            return Err(Refusal::Incapable);
        }
        let balance = &mut agent.pools[pool_index(pool)];
        let available = balance.available();
        // The granted part; `None` means all.
        let mut part = match keeps {
            true => Some(recipient.portion(&available.filter(Resource::is_reserved))),
            false => recipient.chop(available),
        };
        if recipient.shape.is_some() {
            part = Some(recipient.shaped(part.unwrap_or_else(|| available.clone())));
        }
        if recipient.stage != Stage::Revocable && !self.quotas.is_empty() {
            let granted = part.as_ref().unwrap_or(available);
            let portion = self
                .quotas
                .portion(recipient.stage, &recipient.role, granted);
            part = Some(portion.ok_or(Refusal::TooLittle)?);
        }
        let granted = part.as_ref().unwrap_or(available);
        let amount = granted.quantities();
        if !is_allocatable(&amount, recipient.sets(sets_min)) {
            return Err(Refusal::TooLittle);
        }
        let filters = agent.filters.get(client);
        let covers = |refused: &Arc<Resources>| refused.contains(granted);
        if filters.is_some_and(|filters| filters.hide(now, covers)) {
            return Err(Refusal::Filtered);
        }
        let resources = record.allocation.of(granted);
        let (agent_id, session) = (agent.id.clone(), agent.session);
        let (more, first) = balance.grant(client, part, amount.clone());
        self.clients.hold(pool, client, &more, first);
        let sharing = balance.is_sharing();
        if pool == Pool::Regular {
            self.touch(slot);
            self.settle();
        }
        if sharing {
            // Its shared volumes are available to other clients in the next batch.
            self.mark_for_batch(slot);
        }
        Ok(Granted {
            agent_id,
            session,
            resources,
            amount,
        })
    }
}

/// Accepted advice.
struct Followed {
    grant: (Client, Grant),
    /// Less was granted than the sorter assumes, because a resource is indivisible; others may get
    /// the rest.
    less: bool,
    /// It was cut to the client's shape.
    shaped: bool,
}

/// Granted resources of one agent.
struct Granted {
    agent_id: AgentId,
    session: u64,
    /// Allocated to the client's role.
    resources: Resources,
    amount: Quantities,
}

impl BookingResult {
    fn refuse(&mut self, refusal: Refusal) {
        match self
            .refusals
            .iter_mut()
            .find(|(known, _)| *known == refusal)
        {
            Some((_, count)) => *count += 1,
            None => self.refusals.push((refusal, 1)),
        }
    }
}

/// A client that is to get resources, with the properties that limit them.
pub(super) struct Recipient {
    pub(super) client: Client,
    pub(super) stage: Stage,
    pub(super) role: Role,
    pub(super) capabilities: ClientCapabilities,
    /// Minimum and maximum of its offers, if it states any.
    pub(super) shape: Option<Shape>,
}

/// Why a resource is never given to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unfit {
    /// It is reserved for another role.
    Reserved,
    /// It is shared, and the framework lacks the capability.
    Shared,
    /// Its reservation is refined, and the framework lacks the capability.
    Refined,
}

impl Recipient {
    pub(super) fn of(client: Client, record: &ClientRecord, stage: Stage) -> Self {
        Self {
            client,
            stage,
            role: record.role.clone(),
            capabilities: record.capabilities,
            shape: record.shape().cloned(),
        }
    }

    /// The usable part of the available resources; `None` if all are usable.
    pub(super) fn chop(&self, available: &Resources) -> Option<Resources> {
        let all = available.iter().all(|resource| self.accepts(resource));
        (!all).then(|| available.filter(|resource| self.accepts(resource)))
    }

    /// The usable part of the available resources.
    pub(super) fn portion(&self, available: &Resources) -> Resources {
        self.chop(available).unwrap_or_else(|| available.clone())
    }

    /// The part of `free` that fits the client's shape.
    pub(super) fn shaped(&self, mut free: Resources) -> Resources {
        let Some(shape) = &self.shape else {
            return free;
        };
        if self.stage == Stage::Guarantees {
            // The stage for guarantees gives no reservations of parent roles; they must not use up
            // the maximum.
            free = free.filter(|own| !own.is_reserved() || own.role() == &self.role);
        }
        cut(&free, shape.most())
    }

    /// The smallest amounts worth an offer to this client; `sets_min` unless it has its own.
    pub(super) fn sets<'a>(&'a self, sets_min: &'a [Quantities]) -> &'a [Quantities] {
        let shape = self.shape.as_ref();
        shape.map_or(sets_min, |shape| shape.sets(sets_min))
    }

    fn accepts(&self, resource: &Resource) -> bool {
        self.unfit(resource).is_none()
    }

    /// Why this resource is never given to the client.
    pub(super) fn unfit(&self, resource: &Resource) -> Option<Unfit> {
        if !resource.is_allocatable_to(&self.role) {
            Some(Unfit::Reserved)
        } else if !self.capabilities.shared && resource.is_shared() {
            Some(Unfit::Shared)
        } else if !self.capabilities.refined && resource.reservations().len() > 1 {
            Some(Unfit::Refined)
        } else {
            None
        }
    }
}
