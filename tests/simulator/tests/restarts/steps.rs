//! The steps of a history, and a framework's retries.

use std::collections::BTreeMap;

use master::state::MasterState;
use proptest::prelude::*;
use protocol::message::operator::{UpdateQuotas, UpdateWeights};
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::scheduler::{AcceptOffers, SuppressOffers};
use protocol::message::task::TaskUpdated;
use protocol::{
    AgentId, CommandInfo, Filters, Operation, Quota, Source, StatusUpdate, TaskId, TaskInfo,
    TaskState, TaskStatus, Uuid,
};
use resources::{
    Conversion, DiskInfo, Name, Quantities, Reservation, Resource, Resources, Revocable,
};

use crate::world::{Fall, PATIENCE, ROLES, STEP, World};

/// Maximum attempts of a framework.
const TRIES: usize = 8;
/// The roles that may have a quota or a weight.
const RANKS: [&str; 4] = ["a/b", "a/c", "d", "a"];

#[derive(Clone, Debug)]
pub enum Step {
    Launch(usize, u32),
    /// A task of the framework ends.
    End(usize),
    Decline(usize, u32),
    Suppress(usize),
    Revive(usize),
    Reserve(usize, u32),
    Unreserve(usize),
    /// The framework creates a volume on its reserved disk.
    Create(usize),
    /// It destroys its volumes.
    Destroy(usize),
    Quota(usize, u32, Option<u32>),
    Weight(usize, u32),
    Lend(usize, u32),
    /// An agent leaves with all of its tasks, and another starts on its host.
    ReplaceAgent(usize),
    /// A framework is torn down with all of its tasks, and another starts in its role.
    ReplaceFramework(usize),
}

/// A crash some scheduler turns after a step.
#[derive(Clone, Debug)]
pub struct Accident {
    pub step: usize,
    pub turns: usize,
    pub allocator: bool,
}

pub fn step() -> impl Strategy<Value = Step> {
    let who = || 0..ROLES.len();
    prop_oneof![
        4 => (who(), 1_u32..5).prop_map(|(f, n)| Step::Launch(f, n)),
        2 => who().prop_map(Step::End),
        2 => (who(), 0_u32..9).prop_map(|(f, n)| Step::Decline(f, n)),
        1 => who().prop_map(Step::Suppress),
        1 => who().prop_map(Step::Revive),
        2 => (who(), 1_u32..5).prop_map(|(f, n)| Step::Reserve(f, n)),
        1 => who().prop_map(Step::Unreserve),
        2 => who().prop_map(Step::Create),
        1 => who().prop_map(Step::Destroy),
        2 => (0..RANKS.len(), 0_u32..8, proptest::option::of(20_u32..60))
            .prop_map(|(r, guarantee, limit)| {
                // The use of a shared limit depends on the order of requests: this one leaves
                // enough for both.
                let limit = limit.map(|limit| if r == 3 { limit + 200 } else { limit });
                Step::Quota(r, guarantee, limit)
            }),
        1 => (0..RANKS.len(), 1_u32..4).prop_map(|(r, weight)| Step::Weight(r, weight)),
        1 => (who(), 0_u32..4).prop_map(|(a, n)| Step::Lend(a, n)),
        1 => who().prop_map(Step::ReplaceAgent),
        1 => who().prop_map(Step::ReplaceFramework),
    ]
}

pub fn accident() -> impl Strategy<Value = Accident> {
    (0_usize..12, 0_usize..60, prop::bool::weighted(0.7)).prop_map(|(step, turns, allocator)| {
        Accident {
            step,
            turns,
            allocator,
        }
    })
}

impl World {
    /// Accepts all regular offers of a framework with this operation.
    async fn accept(&self, f: usize, wish: impl Fn(&Resources) -> Option<Operation>) {
        let offers = self.offers(f).await;
        let regular = offers
            .iter()
            .filter(|offer| offer.resources.revocable().is_empty());
        let mut pool = Resources::new();
        let mut offer_ids = Vec::new();
        for offer in regular {
            pool += &offer.resources;
            offer_ids.push(offer.id.clone());
        }
        if let Some(operation) = wish(&pool).filter(|_| !offer_ids.is_empty()) {
            let accept = AcceptOffers {
                framework_id: self.tenants[f].id.clone(),
                offer_ids,
                operations: vec![operation],
                filters: Filters {
                    refuse_seconds: 0.0,
                },
            };
            self.say(f, accept);
        }
    }

    /// Executes the step, repeatedly if needed, until `done` or until it is impossible.
    async fn persist(
        &mut self,
        f: usize,
        falls: &mut Falls<'_>,
        wish: impl Fn(&Resources) -> Option<Operation>,
        done: impl Fn(&MasterState) -> bool,
    ) {
        for _ in 0..TRIES {
            self.accept(f, &wish).await;
            falls.come(self).await;
            self.pass(STEP).await;
            if done(&*self.books().await) {
                return;
            }
            self.revive(f);
            self.pass(STEP).await;
        }
    }

    fn total(books: &MasterState, agent: &AgentId) -> Resources {
        books.agents.get(agent).unwrap().info.resources.clone()
    }

    pub async fn take(&mut self, step: &Step, falls: &mut Falls<'_>) {
        match *step {
            Step::Launch(f, cpus) => self.launch(f, cpus, falls).await,
            Step::Reserve(f, disk) => {
                let entry = Reservation::dynamic(self.tenants[f].role.clone(), Some("ops"));
                let plain: Resources = format!("cpus:{disk};disk:{disk}").parse().unwrap();
                let resources = plain.push_reservation(&entry).unwrap();
                let wish = |pool: &Resources| {
                    let there = pool.unallocate().contains(&plain);
                    let resources = resources.clone();
                    there.then_some(Conversion::Reserve { resources })
                };
                self.convert(f, falls, |_| true, wish).await;
            }
            Step::Unreserve(f) => {
                let plain = |all: &Resources| {
                    let reserved = all.all_reserved();
                    reserved.filter(|one| !one.is_persistent_volume())
                };
                let wish = |pool: &Resources| {
                    let resources = plain(pool);
                    (!resources.is_empty()).then_some(Conversion::Unreserve { resources })
                };
                let there = |total: &Resources| !plain(total).is_empty();
                self.convert(f, falls, there, wish).await;
            }
            Step::Create(f) => {
                let id = format!("v{}", self.tasks);
                self.tasks += 1;
                let disk = |all: &Resources| {
                    let reserved = all.all_reserved().into_iter();
                    let plain =
                        |one: &Resource| one.name() == Name::Disk && !one.is_persistent_volume();
                    reserved.into_iter().find(plain)
                };
                let wish = |pool: &Resources| {
                    let disk = disk(pool)?;
                    let mut annotations = disk.annotations().clone();
                    let info = DiskInfo::persistent(id.clone(), Some("ops"), "data");
                    annotations.disk = Some(Box::new(info));
                    let volume = Resource::annotated(disk.name(), disk.amount()?, annotations);
                    let volumes = volume.unwrap().into();
                    Some(Conversion::Create { volumes })
                };
                self.convert(f, falls, |total| disk(total).is_some(), wish)
                    .await;
            }
            Step::Destroy(f) => {
                let wish = |pool: &Resources| {
                    let volumes = pool.persistent_volumes();
                    (!volumes.is_empty()).then_some(Conversion::Destroy { volumes })
                };
                let there = |total: &Resources| !total.persistent_volumes().is_empty();
                self.convert(f, falls, there, wish).await;
            }
            Step::ReplaceAgent(f) => {
                self.replace_agent(f, async |world: &mut Self| falls.come(world).await)
                    .await;
            }
            Step::ReplaceFramework(f) => {
                self.replace_framework(f, async |world: &mut Self| falls.come(world).await)
                    .await;
            }
            _ => {
                self.say_once(step).await;
                falls.come(self).await;
            }
        }
    }

    /// Executes an operation until the framework's agent has other reservations, if its resources
    /// allow it.
    async fn convert(
        &mut self,
        f: usize,
        falls: &mut Falls<'_>,
        may: impl Fn(&Resources) -> bool,
        wish: impl Fn(&Resources) -> Option<Conversion>,
    ) {
        let agent = self.tenants[f].agent.clone();
        let before = Self::total(&*self.books().await, &agent);
        if !may(&before) {
            return falls.come(self).await;
        }
        let wish = |pool: &Resources| wish(&pool.unallocate()).map(Operation::convert);
        let done = |books: &MasterState| {
            Self::total(books, &agent).all_reserved() != before.all_reserved()
        };
        self.persist(f, falls, wish, done).await;
    }

    async fn launch(&mut self, f: usize, cpus: u32, falls: &mut Falls<'_>) {
        let number = self.tasks;
        self.tasks += 1;
        let agent = self.tenants[f].agent.clone();
        let id = TaskId::new(format!("t{number}")).unwrap();
        let wanted = Resources::parse(&format!("cpus:{cpus};mem:{}", cpus * 10)).unwrap();
        let (agent_id, name) = (agent.clone(), id.clone());
        let wish = move |pool: &Resources| {
            let resources = pool.unallocate().unreserved();
            let task = TaskInfo {
                name: "t".to_owned(),
                ..TaskInfo::new(name.clone(), agent_id.clone(), wanted.clone())
                    .with_command(CommandInfo::shell("true"))
            };
            let tasks = vec![task];
            resources
                .contains(&wanted)
                .then_some(Operation::Launch { tasks })
        };
        let framework = self.tenants[f].id.clone();
        let done = move |books: &MasterState| books.tasks.get(&framework, &id).is_some();
        self.persist(f, falls, wish, done).await;
    }

    async fn say_once(&mut self, step: &Step) {
        match *step {
            Step::End(f) => {
                let tenant = &self.tenants[f];
                let books = self.books().await;
                let on = books.tasks.on_agent(&tenant.agent);
                let task = on.and_then(|on| on.tasks().map(|(_, task)| task.clone()).next());
                if let Some(task) = task {
                    let (node, state) = (&tenant.agent_node, TaskState::Finished);
                    let now = node.clock().wall();
                    let mut status = TaskStatus::new(task, state, Source::Executor, now);
                    status.uuid = Some(Uuid(node.fresh_uuid()));
                    let update = StatusUpdate {
                        framework_id: tenant.id.clone(),
                        status,
                        latest_state: state,
                    };
                    let agent_id = tenant.agent.clone();
                    let update = TaskUpdated { agent_id, update };
                    node.tell(&self.master.pid(), update).unwrap();
                }
            }
            Step::Decline(f, seconds) => self.decline(f, seconds.into()).await,
            Step::Suppress(f) => {
                let framework_id = self.tenants[f].id.clone();
                let roles = Default::default();
                self.say(
                    f,
                    SuppressOffers {
                        framework_id,
                        roles,
                    },
                );
            }
            Step::Revive(f) => self.revive(f),
            Step::Quota(rank, guarantee, limit) => {
                let quota = Quota {
                    guarantees: match guarantee {
                        0 => Quantities::new(),
                        _ => quantities(guarantee),
                    },
                    limits: limit.map_or_else(Quantities::new, quantities),
                };
                let quotas = BTreeMap::from([(RANKS[rank].to_owned(), quota)]);
                let update = UpdateQuotas {
                    quotas,
                    force: true,
                };
                // A request beyond the present quotas is refused, in every run.
                let _ = self
                    .operator
                    .ask(&self.master.pid(), update, PATIENCE)
                    .await;
            }
            Step::Weight(rank, weight) => {
                let weights = BTreeMap::from([(RANKS[rank].to_owned(), weight.into())]);
                let update = UpdateWeights { weights };
                let answer = self
                    .operator
                    .ask(&self.master.pid(), update, PATIENCE)
                    .await;
                assert_eq!(answer.unwrap(), Ok(()));
            }
            Step::Lend(f, cpus) => {
                let total = Resources::parse(&format!("cpus:{cpus}")).unwrap();
                let agent_id = self.tenants[f].agent.clone();
                let total = total.to_revocable(Revocable::Throttleable).unwrap();
                let changed = OversubscribedChanged { agent_id, total };
                let node = &self.tenants[f].agent_node;
                node.tell(&self.master.pid(), changed).unwrap();
            }
            Step::Launch(..)
            | Step::Reserve(..)
            | Step::Unreserve(..)
            | Step::Create(..)
            | Step::Destroy(..)
            | Step::ReplaceAgent(..)
            | Step::ReplaceFramework(..) => {}
        }
    }
}

fn quantities(cpus: u32) -> Quantities {
    Quantities::parse(&format!("cpus:{cpus};mem:{}", cpus * 100)).unwrap()
}

/// The remaining accidents of the current step.
pub struct Falls<'a>(pub Vec<&'a Accident>);

impl Falls<'_> {
    pub async fn come(&mut self, world: &World) {
        for accident in self.0.drain(..) {
            for _ in 0..accident.turns {
                tokio::task::yield_now().await;
            }
            // It may be down already.
            let _ = match accident.allocator {
                true => world.allocator.tell(Fall),
                false => world.sorter.tell(Fall),
            };
        }
    }
}
