//! One run over the books: slates for the sorter, and its advice booked as grants (DESIGN 6, SPEC 4.5).
//!
//! Pure: the order of agents is shuffled by whoever begins the run. Advice is followed only as far as the books allow, so that a wrong,
//! late or hostile sorter costs a log line and never an over-commit. Stages: fair sharing of what is regular, then of what is revocable.
//! Guarantees (quota) will be a stage before them, on the same slates.

use std::collections::BTreeSet;
use std::sync::Arc;

use module_api::allocator::Grant;
use module_api::sorter::{Advice, Change, Client, Exclusion, Pool, Room, Slate, is_allocatable};
use resources::{Quantities, Resource, Resources, Role};
use runtime::Instant;

use super::{Agent, Books};
use crate::allocator::clients::{Clients, Takes, index};

/// A slate that the sorter has been asked about, as the allocator remembers it.
#[derive(Clone, Debug)]
pub struct Asked {
    epoch: u64,
    pool: Pool,
    /// The agent behind each room, by slot and serial.
    agents: Vec<(u32, u64)>,
    /// The rooms, chopped along with the advice, so that what the sorter presumes is known.
    rooms: Vec<Room>,
    sets_min: Vec<Quantities>,
}

/// What became of the sorter's advice.
#[derive(Clone, Debug, Default)]
pub struct Booked {
    /// What was granted, each with its client.
    pub grants: Vec<(Client, Grant)>,
    /// The agents for which advice was refused, to be asked about again, in the order of the slate.
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
    /// There is no such client, or it left meanwhile.
    #[error("there is no such client")]
    NoClient,
    /// The client takes no part, in this pool or any more.
    #[error("the client takes no part")]
    Inactive,
    /// The agent is gone or is not to be offered any more.
    #[error("the agent is not offered any more")]
    NoAgent,
    /// The client must not be offered this agent.
    #[error("the client is not to be offered this agent")]
    Incapable,
    /// Too little is left there for this client.
    #[error("too little is left for the client")]
    TooLittle,
    /// The client refused such an offer a while ago.
    #[error("the client refused this before")]
    Filtered,
}

impl Books {
    /// The agents of the run that begins now, to be shuffled. Filters that have ended are let go first.
    pub fn candidates(&mut self, now: Instant, batch: bool) -> Vec<u32> {
        self.expire(now);
        self.take_marked(batch)
    }

    /// Puts agents back for the next batch, because their run came to nothing.
    pub fn postpone(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.look_again(*slot));
    }

    /// The sorter knows nothing any more: its next slate tells it all. Answers to earlier ones count no longer.
    pub fn begin_epoch(&mut self) {
        self.epoch += 1;
        self.slates = 0;
        self.clients.forget_told();
        self.totals.iter_mut().for_each(|(_, known)| *known = false);
    }

    /// What to ask the sorter about these agents, or nothing if nobody takes part or nothing is worth an offer. `barred` are clients
    /// that are not to be given an agent for reasons that the books found out only when they were to be granted it.
    pub fn slate(
        &mut self,
        pool: Pool,
        slots: &[u32],
        barred: &BTreeSet<(u32, Client)>,
        now: Instant,
    ) -> Option<(Slate, Asked)> {
        if self.clients.active(pool) == 0 {
            return None;
        }
        let mut rooms = Vec::with_capacity(slots.len());
        let mut agents = Vec::with_capacity(slots.len());
        let mut exclusions = Exclusions::default();
        let blind = self.without_gpus(pool);
        let sets_min = self.sets_min.clone();
        for &slot in slots {
            let Some((agent, clients)) = self.agent_in(slot) else {
                continue;
            };
            if !agent.active {
                continue;
            }
            let room = room(agent.sides[index(pool)].available());
            if !may_be_allocatable(&room, &sets_min) {
                continue;
            }
            exclude_filtered(&mut exclusions, rooms.len(), agent, clients, pool, now);
            if agent.gpus {
                blind
                    .iter()
                    .for_each(|client| exclusions.add(*client, rooms.len()));
            }
            for (_, client) in barred.range((slot, 0)..=(slot, Client::MAX)) {
                exclusions.add(*client, rooms.len());
            }
            rooms.push(room);
            agents.push((slot, agent.serial));
        }
        if rooms.is_empty() {
            return None;
        }
        let (epoch, number) = (self.epoch, self.slates);
        self.slates += 1;
        let asked = Asked {
            epoch,
            pool,
            agents,
            rooms: rooms.clone(),
            sets_min: sets_min.clone(),
        };
        let slate = Slate {
            epoch,
            number,
            pool,
            changes: self.changes(number == 0),
            sets_min,
            rooms,
            exclusions: exclusions.0,
        };
        Some((slate, asked))
    }

    /// Whether an answer to this slate still counts.
    pub fn is_current(&self, asked: &Asked) -> bool {
        asked.epoch == self.epoch
    }

    fn changes(&mut self, first: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        let reweighed = std::mem::take(&mut self.reweighed);
        if first {
            let weighed = self.weights.iter().map(|(role, weight)| Change::Weighed {
                role: role.clone(),
                weight: *weight,
            });
            changes.extend(weighed);
        } else {
            let weighed = reweighed.into_iter().map(|role| {
                let weight = self.weights.get(&role).copied().unwrap_or(1.0);
                Change::Weighed { role, weight }
            });
            changes.extend(weighed);
        }
        for (pool, (total, known)) in Pool::ALL.into_iter().zip(&mut self.totals) {
            if !std::mem::replace(known, true) {
                let total = total.clone();
                changes.push(Change::Total { pool, total });
            }
        }
        self.clients.tell(&mut changes);
        changes
    }

    /// Active clients that must not be offered an agent with graphics processors (SPEC 4.5, `capable`).
    fn without_gpus(&self, pool: Pool) -> Vec<Client> {
        if self.with_gpus == 0 {
            return Vec::new();
        }
        let blind = self
            .clients
            .iter()
            .filter(|(_, member)| member.is_active(pool) && !member.takes.gpus);
        blind.map(|(client, _)| client).collect()
    }

    /// Follows the advice in its order, as far as the books allow.
    pub fn book(&mut self, mut asked: Asked, advice: &[Advice], now: Instant) -> Booked {
        let mut booked = Booked::default();
        if !self.is_current(&asked) {
            return booked;
        }
        let mut again = vec![false; asked.agents.len()];
        for one in advice {
            match self.follow(&mut asked, *one, now) {
                Ok((client, grant)) => booked.grants.push((client, grant)),
                Err(refusal) => {
                    let n = one.room as usize;
                    if let Some((again, (slot, _))) = again.get_mut(n).zip(asked.agents.get(n)) {
                        *again = true;
                        booked.barred.insert((*slot, one.client));
                    }
                    booked.refuse(refusal);
                }
            }
        }
        let refused = asked.agents.iter().zip(again).filter(|(_, again)| *again);
        booked.again = refused.map(|((slot, _), _)| *slot).collect();
        booked
    }

    fn follow(
        &mut self,
        asked: &mut Asked,
        advice: Advice,
        now: Instant,
    ) -> Result<(Client, Grant), Refusal> {
        let (pool, n) = (asked.pool, advice.room as usize);
        let place = asked.agents.get(n).zip(asked.rooms.get_mut(n));
        let (&(slot, serial), room) = place.ok_or(Refusal::NoRoom)?;
        let member = self.clients.get(advice.client).ok_or(Refusal::NoClient)?;
        let taker = Taker {
            client: advice.client,
            pool,
            role: member.role.clone(),
            takes: member.takes,
        };
        let (framework_id, active) = (member.framework.clone(), member.is_active(pool));
        self.clients
            .presume(pool, taker.client, &room.take(&taker.role));
        if !active {
            return Err(Refusal::Inactive);
        }
        let (agent_id, session, granted) =
            self.grant(&taker, (slot, serial), &asked.sets_min, now)?;
        let grant = Grant {
            framework_id,
            role: taker.role.as_str().to_owned(),
            agent_id,
            session,
            resources: granted.allocate(&taker.role),
        };
        Ok((taker.client, grant))
    }

    /// Gives a client all that it may have of one agent, or says why not.
    fn grant(
        &mut self,
        taker: &Taker,
        (slot, serial): (u32, u64),
        sets_min: &[Quantities],
        now: Instant,
    ) -> Result<(protocol::AgentId, u64, Resources), Refusal> {
        let (client, pool) = (taker.client, taker.pool);
        let agent = self.agent_at(slot, serial).filter(|agent| agent.active);
        let agent = agent.ok_or(Refusal::NoAgent)?;
        if agent.gpus && !taker.takes.gpus {
            return Err(Refusal::Incapable);
        }
        let side = &mut agent.sides[index(pool)];
        let (granted, rest) = taker.chop(side.available());
        let amount = granted.quantities();
        if !is_allocatable(&amount, sets_min) {
            return Err(Refusal::TooLittle);
        }
        let filters = agent.filters.get(client);
        let covers = |refused: &Arc<Resources>| refused.contains(&granted);
        if filters.is_some_and(|filters| filters.hide(now, covers)) {
            return Err(Refusal::Filtered);
        }
        side.grant(&granted, rest);
        let (id, session) = (agent.id.clone(), agent.session);
        let (holding, first) = agent.holders.admit(client, Default::default);
        holding[index(pool)] += &granted;
        self.clients.hold(pool, client, &amount);
        if let Some(member) = self.clients.get_mut(client).filter(|_| first) {
            member.places += 1;
        }
        Ok((id, session, granted))
    }
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
struct Taker {
    client: Client,
    pool: Pool,
    role: Role,
    takes: Takes,
}

impl Taker {
    /// What it is given of what is available, and what remains. Coarse: it gets all it may have.
    fn chop(&self, available: &Resources) -> (Resources, Resources) {
        if available.iter().all(|resource| self.takes(resource)) {
            return (available.clone(), Resources::new());
        }
        let granted = available.filter(|resource| self.takes(resource));
        let rest = available.filter(|resource| !self.takes(resource));
        (granted, rest)
    }

    fn takes(&self, resource: &Resource) -> bool {
        resource.is_allocatable_to(&self.role)
            && (self.takes.shared || !resource.is_shared())
            && (self.takes.refined || resource.reservations().len() < 2)
    }
}

/// The amounts of what is available, by whom they are reserved for.
fn room(available: &Resources) -> Room {
    let mut room = Room::default();
    for resource in available {
        let Some(amount) = resource.amount() else {
            continue;
        };
        if !resource.is_reserved() {
            room.free.add(resource.name(), amount);
            continue;
        }
        let owner = resource.role();
        let at = room.reserved.iter().position(|(known, _)| known == owner);
        let at = at.unwrap_or_else(|| {
            room.reserved.push((owner.clone(), Quantities::new()));
            room.reserved.len() - 1
        });
        room.reserved[at].1.add(resource.name(), amount);
    }
    room
}

/// Whether anybody at all could be given something worth an offer.
fn may_be_allocatable(room: &Room, sets_min: &[Quantities]) -> bool {
    if room.reserved.is_empty() {
        return is_allocatable(&room.free, sets_min);
    }
    let mut all = room.free.clone();
    room.reserved.iter().for_each(|(_, amount)| all += amount);
    is_allocatable(&all, sets_min)
}

/// Excludes the room for every client that refused such an offer.
fn exclude_filtered(
    exclusions: &mut Exclusions,
    n: usize,
    agent: &mut Agent,
    clients: &Clients,
    pool: Pool,
    now: Instant,
) {
    if agent.filters.is_empty() {
        return;
    }
    let available = agent.sides[index(pool)].available();
    let plain = available
        .iter()
        .all(|resource| !resource.is_reserved() && !resource.is_shared());
    // Where all is for everybody, a refusal that many share is looked at once for all of them.
    let mut seen: Option<(*const Resources, bool)> = None;
    let mut covers_all = |refused: &Arc<Resources>| match seen {
        Some((last, covers)) if std::ptr::eq(last, Arc::as_ptr(refused)) => covers,
        _ => {
            let covers = refused.contains(available);
            seen = Some((Arc::as_ptr(refused), covers));
            covers
        }
    };
    for (client, filters) in agent.filters.iter() {
        let member = clients.get(client);
        let Some(member) = member.filter(|member| member.is_active(pool)) else {
            continue;
        };
        let hidden = if plain {
            filters.hide(now, &mut covers_all)
        } else {
            let offered = available.allocatable_to(&member.role);
            filters.hide(now, |refused| refused.contains(&offered))
        };
        if hidden {
            exclusions.add(client, n);
        }
    }
}

/// Exclusions by client, in the order in which they were first needed.
#[derive(Default)]
struct Exclusions(Vec<Exclusion>, rustc_hash::FxHashMap<Client, usize>);

impl Exclusions {
    fn add(&mut self, client: Client, room: usize) {
        let at = *self.1.entry(client).or_insert_with(|| {
            self.0.push(Exclusion {
                client,
                rooms: Vec::new(),
            });
            self.0.len() - 1
        });
        self.0[at].add(room);
    }
}
