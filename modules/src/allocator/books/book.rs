//! Booking: the sorter's advice on a slate followed as far as the books allow.
//!
//! Pure. A wrong, late or hostile sorter costs a log line and never an over-commit, nor a limit exceeded, nor what a guarantee needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use module_api::allocator::Grant;
use module_api::sorter::{Advice, Client, Pool, Shape, Stage, is_allocatable};
use protocol::AgentId;
use resources::{Quantities, Resource, Resources, Role};
use runtime::Instant;

use super::Books;
use super::quota::room;
use super::run::Asked;
use crate::allocator::clients::{Member, Takes, index};
use crate::allocator::cutting::cut;

/// What became of the sorter's advice.
#[derive(Clone, Debug, Default)]
pub struct Booked {
    /// What was granted, each with its client.
    pub grants: Vec<(Client, Grant)>,
    /// The agents for which advice was refused, to be asked about again, in the order of the slate; where there is quota, all of them.
    pub again: Vec<u32>,
    /// Whose advice was refused where: not to be asked again in this run, lest the same be advised for ever.
    pub barred: BTreeSet<(u32, Client)>,
    /// Why advice was refused, each reason with how often.
    pub refusals: Vec<(Refusal, usize)>,
}

/// Why the books do not allow a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The slate had no such room.
    #[error("there is no such room")]
    NoRoom,
    /// The sorter was never told of such a client.
    #[error("there is no such client")]
    NoClient,
    /// The client left meanwhile.
    #[error("the client left meanwhile")]
    Left,
    /// The client took no part in this pool when the sorter was asked.
    #[error("the client takes no part")]
    Inactive,
    /// The client takes no part any more.
    #[error("the client takes no part any more")]
    Paused,
    /// By what the sorter was told, too little of the room was for this client.
    #[error("the room has too little for the client")]
    NoPortion,
    /// The agent is gone or is not to be offered any more.
    #[error("the agent is not offered any more")]
    NoAgent,
    /// The client must not be offered this agent.
    #[error("the client is not to be offered this agent")]
    Incapable,
    /// Too little is left there for this client, or too little of it fits in what limits and guarantees leave.
    #[error("too little is left for the client")]
    TooLittle,
    /// The client refused such an offer a while ago.
    #[error("the client refused this before")]
    Filtered,
}

impl Refusal {
    /// Whether a sorter that heeds what it was told would not have advised this. Other refusals are ordinary: something changed while
    /// it was thinking, or something that a slate does not say stands against it.
    pub fn is_fault(self) -> bool {
        match self {
            Self::NoRoom | Self::NoClient | Self::Inactive | Self::NoPortion => true,
            Self::Left | Self::Paused | Self::NoAgent => false,
            Self::Incapable | Self::TooLittle | Self::Filtered => false,
        }
    }
}

impl Books {
    /// Follows the advice in its order, as far as the books allow.
    pub fn book(&mut self, mut asked: Asked, advice: &[Advice], now: Instant) -> Booked {
        let mut booked = Booked::default();
        if !self.is_current(&asked) {
            return booked;
        }
        self.settle();
        let mut again = vec![false; asked.agents.len()];
        for one in advice {
            let n = one.room as usize;
            match self.follow(&mut asked, *one, now) {
                Ok(followed) => {
                    again[n] |= followed.less;
                    if followed.shaped {
                        // What is left may be for it as well, but not in this run: else it would be offered an agent in a crowd of pieces.
                        let (slot, _) = asked.agents[n];
                        booked.barred.insert((slot, followed.grant.0));
                        self.look_again(slot);
                    }
                    booked.grants.push(followed.grant);
                }
                Err(refusal) => {
                    if let Some((again, (slot, _))) = again.get_mut(n).zip(asked.agents.get(n)) {
                        *again = true;
                        // Whatever number a sorter says: who is not there needs no bar, and a table by numbers no place for it.
                        if self.clients.get(one.client).is_some() {
                            booked.barred.insert((*slot, one.client));
                        }
                    }
                    booked.refuse(refusal);
                }
            }
        }
        // What was refused somewhere has spent what quota leaves, as the sorter has it: others may have gone without elsewhere.
        if !self.quotas.is_empty() && again.contains(&true) {
            again.fill(true);
        }
        let refused = asked.agents.iter().zip(again).filter(|(_, again)| *again);
        booked.again = refused.map(|((slot, _), _)| *slot).collect();
        if asked.stage == Stage::Fair && !self.quotas.is_empty() {
            self.note_short(&asked);
        }
        booked
    }

    /// Notes of which of these agents quota keeps back what is worth an offer.
    fn note_short(&mut self, asked: &Asked) {
        self.settle();
        let tightest = self.quotas.tightest();
        let loosest = self.loosest(asked.stage.pool());
        for &(slot, serial) in &asked.agents {
            if self.keeps(asked.stage, slot) {
                continue;
            }
            let Some(agent) = self.agent_at(slot, serial) else {
                continue;
            };
            let room = room(agent.sides[index(asked.stage.pool())].available());
            if is_allocatable(&room.free, &loosest) {
                self.quotas.note_short(slot, &room.free, &tightest);
            }
            self.quotas.note_reserved(slot, &room);
        }
    }

    fn follow(
        &mut self,
        asked: &mut Asked,
        advice: Advice,
        now: Instant,
    ) -> Result<Followed, Refusal> {
        let (stage, n) = (asked.stage, advice.room as usize);
        let pool = stage.pool();
        let place = asked.agents.get(n).zip(asked.rooms.get_mut(n));
        let (&(slot, serial), room) = place.ok_or(Refusal::NoRoom)?;
        let Some(member) = self.clients.get(advice.client) else {
            let departed = self.clients.departed(advice.client);
            let departed = departed.ok_or(Refusal::NoClient)?;
            // The sorter does not know yet that nobody has it.
            let reserved = self.charging.as_ref().map(|_| room.reserved.clone());
            self.quotas
                .presume(stage, &departed.role, departed.shape(), room);
            self.clients
                .presume_given(pool, &reserved.unwrap_or_default(), room);
            return Err(Refusal::Left);
        };
        let taker = Taker::of(advice.client, member, stage);
        let (framework_id, active) = (member.framework.clone(), member.is_active(pool));
        let believed_active = member.is_believed_active(pool);
        let shape_believed = member.shape_believed();
        let sets_believed =
            shape_believed.map_or(&asked.sets_min[..], |shape| shape.sets(&asked.sets_min));
        let reserved = self.charging.as_ref().map(|_| room.reserved.clone());
        let presumed = self
            .quotas
            .presume(stage, &taker.role, shape_believed, room);
        let worth_it = is_allocatable(&presumed, sets_believed);
        self.clients
            .presume_given(pool, &reserved.unwrap_or_default(), room);
        self.clients.presume(pool, taker.client, &presumed);
        if !believed_active {
            return Err(Refusal::Inactive);
        }
        if !worth_it {
            return Err(Refusal::NoPortion);
        }
        if !active {
            return Err(Refusal::Paused);
        }
        let granted = self.grant(&taker, (slot, serial), &asked.sets_min, now)?;
        let shaped = taker.shape.as_ref().is_some_and(Shape::is_bounded);
        let less = (shaped || !self.quotas.is_empty()) && !granted.amount.contains(&presumed);
        let grant = Grant {
            framework_id,
            role: taker.role.as_str().to_owned(),
            agent_id: granted.agent_id,
            session: granted.session,
            resources: granted.resources,
        };
        Ok(Followed {
            grant: (taker.client, grant),
            less,
            shaped,
        })
    }

    /// Gives a client all that it may have of one agent, or says why not.
    fn grant(
        &mut self,
        taker: &Taker,
        (slot, serial): (u32, u64),
        sets_min: &[Quantities],
        now: Instant,
    ) -> Result<Granted, Refusal> {
        let (client, pool) = (taker.client, taker.stage.pool());
        let keeps = self.keeps(taker.stage, slot);
        let agent = self.agents.get_mut(slot as usize).and_then(Option::as_mut);
        let agent = agent.filter(|agent| agent.serial == serial && agent.is_offered());
        let agent = agent.ok_or(Refusal::NoAgent)?;
        let member = self.clients.get_mut(client).ok_or(Refusal::Left)?;
        if !member.would_take(slot, agent) {
            return Err(Refusal::Incapable);
        }
        let side = &mut agent.sides[index(pool)];
        let available = side.available();
        // What is granted, if it is not simply all.
        let mut part = match keeps {
            true => Some(taker.portion(&available.filter(Resource::is_reserved))),
            false => taker.chop(available),
        };
        if taker.shape.is_some() {
            part = Some(taker.shaped(part.unwrap_or_else(|| available.clone())));
        }
        if taker.stage != Stage::Revocable && !self.quotas.is_empty() {
            let granted = part.as_ref().unwrap_or(available);
            let portion = self.quotas.portion(taker.stage, &taker.role, granted);
            part = Some(portion.ok_or(Refusal::TooLittle)?);
        }
        let granted = part.as_ref().unwrap_or(available);
        let amount = granted.quantities();
        if !is_allocatable(&amount, taker.sets(sets_min)) {
            return Err(Refusal::TooLittle);
        }
        let filters = agent.filters.get(client);
        let covers = |refused: &Arc<Resources>| refused.contains(granted);
        if filters.is_some_and(|filters| filters.hide(now, covers)) {
            return Err(Refusal::Filtered);
        }
        let resources = member.allocation.of(granted);
        let (agent_id, session) = (agent.id.clone(), agent.session);
        let (more, first) = side.grant(client, part, amount.clone());
        self.clients.hold(pool, client, &more, first);
        let sharing = side.is_sharing();
        if pool == Pool::Regular {
            self.touch(slot);
            self.settle();
        }
        if sharing {
            // Its shared volumes are there for others again in the next batch.
            self.look_again(slot);
        }
        Ok(Granted {
            agent_id,
            session,
            resources,
            amount,
        })
    }
}

/// Advice that was followed.
struct Followed {
    grant: (Client, Grant),
    /// Less was granted than the sorter believes, because something cannot be cut: what is left may be for others.
    less: bool,
    /// It was cut to what its client can use.
    shaped: bool,
}

/// What was taken of an agent for a client.
struct Granted {
    agent_id: AgentId,
    session: u64,
    /// Allocated to the client's role.
    resources: Resources,
    amount: Quantities,
}

impl Booked {
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

/// Who is to be given something, and what it can make use of.
pub(super) struct Taker {
    pub(super) client: Client,
    pub(super) stage: Stage,
    pub(super) role: Role,
    pub(super) takes: Takes,
    /// What its offers have at least and at most, if it says.
    pub(super) shape: Option<Shape>,
}

/// Why a resource is never given to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unfit {
    /// It is reserved for another role.
    Reserved,
    /// It is shared, and the framework does not understand that.
    Shared,
    /// Its reservation is refined, and the framework does not understand that.
    Refined,
}

impl Taker {
    pub(super) fn of(client: Client, member: &Member, stage: Stage) -> Self {
        Self {
            client,
            stage,
            role: member.role.clone(),
            takes: member.takes,
            shape: member.shape().cloned(),
        }
    }

    /// What may be given to it of what is available, if it is not all.
    pub(super) fn chop(&self, available: &Resources) -> Option<Resources> {
        let all = available.iter().all(|resource| self.takes(resource));
        (!all).then(|| available.filter(|resource| self.takes(resource)))
    }

    /// What may be given to it of what is available.
    pub(super) fn portion(&self, available: &Resources) -> Resources {
        self.chop(available).unwrap_or_else(|| available.clone())
    }

    /// What of this an offer to it has, by what it can use.
    pub(super) fn shaped(&self, mut free: Resources) -> Resources {
        let Some(shape) = &self.shape else {
            return free;
        };
        if self.stage == Stage::Guarantees {
            // Where guarantees are met, reservations of roles above are not given: they must not take the place of what is.
            free = free.filter(|own| !own.is_reserved() || own.role() == &self.role);
        }
        cut(&free, shape.most())
    }

    /// What is worth an offer to it, if these sets are for everybody else.
    pub(super) fn sets<'a>(&'a self, sets_min: &'a [Quantities]) -> &'a [Quantities] {
        let shape = self.shape.as_ref();
        shape.map_or(sets_min, |shape| shape.sets(sets_min))
    }

    fn takes(&self, resource: &Resource) -> bool {
        self.unfit(resource).is_none()
    }

    /// Why it is never given this resource.
    pub(super) fn unfit(&self, resource: &Resource) -> Option<Unfit> {
        if !resource.is_allocatable_to(&self.role) {
            Some(Unfit::Reserved)
        } else if !self.takes.shared && resource.is_shared() {
            Some(Unfit::Shared)
        } else if !self.takes.refined && resource.reservations().len() > 1 {
            Some(Unfit::Refined)
        } else {
            None
        }
    }
}
