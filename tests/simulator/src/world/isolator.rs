//! Simulated isolators: modules of an agent that report each request about a container.
//!
//! What they have prepared stays on the machine until it is cleaned up, as control groups do, also
//! when the agent's process ends: its next process names the containers that run, and the isolators
//! remove the rest. They answer within [`ANSWER_MAX`]. While a fault lasts, some answers are late,
//! also too late for the agent; some preparations are refused, or cannot be carried out by the
//! launcher; and some containers exceed a limit. Nothing happens on the real machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use module_api::isolator::{
    CleanUpContainer, ContainerLimited, LaunchPlan, Limitation, MeasureContainers, Measured,
    Namespaces, PrepareContainer, RecoverContainers, UpdateContainer,
};
use module_api::{Fault, IsolatorRef};
use protocol::{ContainerId, Reason};
use rand::Rng;
use rand::rngs::SmallRng;
use resources::Resources;
use runtime::prelude::*;
use runtime::{Promise, Reply, SpawnError, promise};

use crate::bug::ContainerBug;
use crate::event::{EventKind, IsolationStep};
use crate::watch::Watch;

/// The isolators of an agent, in the order in which they prepare.
pub const NAMES: [&str; 2] = ["first_isolator", "second_isolator"];

/// Maximum time of an answer without a fault.
const ANSWER_MAX: Duration = Duration::from_millis(5);
/// Maximum time of a late answer that the agent waits for.
const LATE_MAX: Duration = Duration::from_secs(20);
/// The time of an answer that the agent does not wait for.
const TOO_LATE: Duration = Duration::from_secs(IsolatorRef::PATIENCE.as_secs() + 10);
/// Interval at which a container may exceed a limit.
const LIMIT_EVERY: Duration = Duration::from_secs(5);
/// A variable in the plan of a container that the launcher cannot isolate.
const IMPOSSIBLE: &str = "SIMULATED_ISOLATION_FAILS";

/// Whether the launcher cannot carry out this plan.
pub fn is_impossible(plan: &LaunchPlan) -> bool {
    plan.environment.contains_key(IMPOSSIBLE)
}

/// The isolation of one agent's machine, which outlives the agent's process. Clones share it.
#[derive(Clone)]
pub struct MachineIsolation(Arc<Shared>);

struct Shared {
    watch: Watch,
    agent: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether a fault lasts.
    is_faulty: bool,
    /// The prepared containers by isolator, with the limit that each has exceeded.
    prepared: BTreeMap<&'static str, BTreeMap<ContainerId, Option<Limitation>>>,
}

impl MachineIsolation {
    /// The isolation of a machine without containers.
    pub fn new(watch: &Watch, agent: &str) -> Self {
        Self(Arc::new(Shared {
            watch: watch.clone(),
            agent: agent.to_owned(),
            state: Mutex::default(),
        }))
    }

    /// Sets whether a fault lasts.
    pub fn set_faulty(&self, is_faulty: bool) {
        self.state().is_faulty = is_faulty;
    }

    /// Starts the isolators for the agent's process on this node.
    pub fn start(&self, node: &Node) -> Result<Vec<IsolatorRef>, SpawnError> {
        let isolators = NAMES.into_iter().map(|name| {
            let isolator = SimulatedIsolator {
                name,
                machine: self.clone(),
                rng: node.rng(),
                containerizer: None,
            };
            let handle = node.spawn(name, isolator)?;
            Ok(IsolatorRef::new(handle.refer()))
        });
        isolators.collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, isolator: &str, container: &ContainerId, step: IsolationStep) {
        self.0.watch.fact(EventKind::Isolated {
            agent: &self.0.agent,
            isolator,
            container,
            step,
        });
    }
}

/// An isolator of one process of the agent.
struct SimulatedIsolator {
    name: &'static str,
    machine: MachineIsolation,
    rng: SmallRng,
    /// Set by the first request.
    containerizer: Option<Pid>,
}

impl SimulatedIsolator {
    /// Whether one of so many containers is affected by a fault, if one lasts.
    fn fails_once_in(&mut self, number: u32) -> bool {
        self.machine.state().is_faulty && self.rng.random_ratio(1, number)
    }

    fn report(&self, container: &ContainerId, step: IsolationStep) {
        self.machine.report(self.name, container, step);
    }

    /// Answers after a while.
    fn answer<T: 'static>(&mut self, answer: T, ctx: &mut Context<Self>) -> Reply<T> {
        let (promise, reply): (Promise<T>, Reply<T>) = promise();
        let longest = match () {
            () if self.fails_once_in(4) => LATE_MAX,
            () => ANSWER_MAX,
        };
        let delay = match self.fails_once_in(40) {
            true => TOO_LATE,
            false => longest.mul_f64(self.rng.random()),
        };
        ctx.after(delay, move |_, _| promise.answer(answer));
        reply
    }

    /// One of the prepared containers exceeds a limit.
    fn limit_some(&mut self, ctx: &Context<Self>) {
        let container = {
            let mut state = self.machine.state();
            let prepared = state.prepared.entry(self.name).or_default();
            let place = self.rng.random_range(0..prepared.len().max(1));
            prepared.keys().nth(place).cloned()
        };
        if let Some(container) = container {
            self.limit(&container, ctx);
        }
    }

    /// The container has exceeded a limit, if it is there.
    fn limit(&self, container: &ContainerId, ctx: &Context<Self>) {
        let limitation = limitation();
        let is_new = {
            let mut state = self.machine.state();
            let known = state.prepared.entry(self.name).or_default();
            let known = known.get_mut(container);
            known.is_some_and(|known| known.replace(limitation.clone()).is_none())
        };
        let Some(containerizer) = self.containerizer.clone().filter(|_| is_new) else {
            return;
        };
        self.report(container, IsolationStep::Limited);
        let limited = ContainerLimited {
            container_id: container.clone(),
            limitation,
        };
        // Otherwise the agent learns of it by the clean-up.
        let _ = ctx.node().refer(containerizer).tell(limited);
    }
}

fn limitation() -> Limitation {
    Limitation {
        resources: Resources::parse("mem:1").unwrap_or_default(),
        reason: Reason::ContainerLimitationMemory,
        message: "a simulated limit was exceeded".to_owned(),
    }
}

impl Actor for SimulatedIsolator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.every(LIMIT_EVERY, |this, ctx| {
            if this.fails_once_in(2) {
                this.limit_some(ctx);
            }
        });
    }
}

impl Process for SimulatedIsolator {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<RecoverContainers>();
        handlers.accept_local::<PrepareContainer>();
        handlers.accept_local::<UpdateContainer>();
        handlers.accept_local::<MeasureContainers>();
        handlers.accept_local::<CleanUpContainer>();
    }
}

impl Handler<RecoverContainers> for SimulatedIsolator {
    type Result = Reply<Result<(), Fault>>;

    fn handle(&mut self, recover: RecoverContainers, ctx: &mut Context<Self>) -> Self::Result {
        let RecoverContainers {
            containers,
            containerizer,
        } = recover;
        self.containerizer = Some(containerizer);
        let named = containers.into_iter().map(|config| config.container_id);
        let named: BTreeSet<ContainerId> = named.collect();
        {
            let mut state = self.machine.state();
            let known = state.prepared.entry(self.name).or_default();
            known.retain(|container, _| named.contains(container));
            for container in &named {
                known.entry(container.clone()).or_default();
            }
        }
        self.machine.0.watch.fact(EventKind::IsolatorRecovered {
            agent: &self.machine.0.agent,
            isolator: self.name,
            containers: &named,
        });
        self.answer(Ok(()), ctx)
    }
}

impl Handler<PrepareContainer> for SimulatedIsolator {
    type Result = Reply<Result<LaunchPlan, Fault>>;

    fn handle(&mut self, prepare: PrepareContainer, ctx: &mut Context<Self>) -> Self::Result {
        let container = prepare.config.container_id;
        if self.fails_once_in(6) {
            let refused = Fault::failed("a simulated isolator refuses the container");
            return self.answer(Err(refused), ctx);
        }
        {
            let mut state = self.machine.state();
            let known = state.prepared.entry(self.name).or_default();
            known.insert(container.clone(), None);
        }
        self.report(&container, IsolationStep::Prepared);
        // Volumes of a task in a group need mounts of its own.
        let mut plan = LaunchPlan {
            namespaces: Namespaces {
                mount: true,
                ..Namespaces::default()
            },
            ..LaunchPlan::default()
        };
        if self.fails_once_in(8) {
            let variable = (IMPOSSIBLE.to_owned(), String::new());
            plan.environment.extend([variable]);
        }
        self.answer(Ok(plan), ctx)
    }
}

impl Handler<UpdateContainer> for SimulatedIsolator {
    type Result = Reply<Result<(), Fault>>;

    fn handle(&mut self, update: UpdateContainer, ctx: &mut Context<Self>) -> Self::Result {
        self.report(&update.container_id, IsolationStep::Updated);
        let answer = match self.fails_once_in(6) {
            true => Err(Fault::failed("a simulated isolator cannot set the limits")),
            false => Ok(()),
        };
        self.answer(answer, ctx)
    }
}

impl Handler<MeasureContainers> for SimulatedIsolator {
    type Result = Result<Measured, Fault>;

    fn handle(&mut self, _: MeasureContainers, _: &mut Context<Self>) -> Self::Result {
        Ok(Measured::new())
    }
}

impl Handler<CleanUpContainer> for SimulatedIsolator {
    type Result = Reply<Result<Option<Limitation>, Fault>>;

    fn handle(&mut self, clean_up: CleanUpContainer, ctx: &mut Context<Self>) -> Self::Result {
        let container = clean_up.container_id;
        if self.machine.0.watch.has_bug(ContainerBug::MissedCleanUp) {
            return self.answer(Ok(None), ctx);
        }
        // A limit may be found at the end only.
        if self.fails_once_in(10) {
            self.limit(&container, ctx);
        }
        let known = {
            let mut state = self.machine.state();
            let known = state.prepared.entry(self.name).or_default();
            known.remove(&container)
        };
        self.report(&container, IsolationStep::CleanedUp);
        self.answer(Ok(known.flatten()), ctx)
    }
}
