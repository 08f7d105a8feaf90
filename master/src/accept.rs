//! Accept: what becomes of offers that a framework takes, and of what it wants done with them (SPEC 2.2 ACCEPT, 3.13).
//!
//! Pure, and linear in the tasks. Operations are applied in order; what conversions do is in [`crate::operations`]. Each task is validated against what its predecessors left over, booked, and sent to the agent
//! together with the others. One bad offer voids the whole call; one bad task only itself. A call with offers of an earlier
//! master is void too, but its tasks may run: that master may have sent them off before it failed, so what is known of them is
//! told (S132). It never waits: what the agent makes of its tasks comes back as status updates.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use module_api::allocator::Converted;
use protocol::message::scheduler::AcceptOffers;
use protocol::message::task::RunTasks;
use protocol::{
    AgentId, ExecutorId, ExecutorInfo, FrameworkId, Offer, OfferId, Operation, OperationId, Reason,
    TaskId, TaskInfo, TaskState, TaskStatus,
};
use resources::{Invalid, Resource, Resources, Role};
use runtime::Timestamp;

use crate::agents::Standing;
use crate::books::{Books, freed_offer, master_status, sum};
use crate::dealings::Dealing;
use crate::effects::{Effects, Tell, ToAgent, ToAllocator};
use crate::operations::Wish;
use crate::permission::Asker;
use crate::size::in_frames;
use crate::tasks::{Freed, Task};
use crate::validation::{self, TaskInvalid, TaskRules};

/// The offers of a valid accept, added up.
struct Taken {
    agent_id: AgentId,
    role: Role,
    resources: Resources,
}

/// What has come of an accept so far.
struct Work {
    /// What is left of the offers.
    remaining: Resources,
    /// What conversions have made.
    made: Resources,
    /// Shared volumes that were offered or made: each task may have a copy.
    shared: Resources,
    /// What the agent is still to be told to run.
    launched: Vec<TaskInfo>,
    /// Whether anything was launched or converted.
    done: bool,
}

impl Work {
    fn of(taken: &Taken) -> Self {
        Self {
            remaining: taken.resources.clone(),
            made: Resources::default(),
            shared: taken.resources.shared(),
            launched: Vec::new(),
            done: false,
        }
    }
}

/// The name and the kind of a conversion.
type Refused = (Option<OperationId>, Option<&'static str>);

/// The tasks of these operations, and what the conversions are called.
fn parted(operations: Vec<Operation>) -> (Vec<TaskInfo>, Vec<Refused>) {
    let (mut tasks, mut conversions) = (Vec::new(), Vec::new());
    for operation in operations {
        match operation {
            Operation::Convert { id, conversion } => {
                conversions.push((id, Some(conversion.name())));
            }
            launch => tasks.extend(launch.into_tasks()),
        }
    }
    (tasks, conversions)
}

/// Why a whole accept is void. The messages are in the words of Mesos, which clients compare.
pub(crate) enum Void {
    /// Its offers are invalid.
    Offers(String),
    /// Its agent is not connected.
    Disconnected,
}

impl Void {
    /// The reason that its tasks get.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Offers(_) => Reason::InvalidOffers,
            Self::Disconnected => Reason::AgentDisconnected,
        }
    }

    /// The message that its tasks get.
    pub fn for_task(&self) -> String {
        match self {
            Self::Offers(problem) => format!("Task launched with invalid offers: {problem}"),
            Self::Disconnected => "Agent disconnected".to_owned(),
        }
    }

    /// The message that its operations get.
    pub fn for_operation(&self) -> String {
        match self {
            Self::Offers(problem) => {
                format!("Operation attempted with invalid offers: {problem}")
            }
            Self::Disconnected => "Agent disconnected".to_owned(),
        }
    }
}

impl Books {
    /// The framework takes these offers.
    pub fn accept(&mut self, call: AcceptOffers, now: Timestamp, out: &mut Effects) {
        // Of a void one all has been told.
        let _ = self.accept_unless_void(call, None, now, out);
    }

    /// The same, for whoever has more to tell of a void one. An `invalid_offer` is an id among the others that is no id.
    pub(crate) fn accept_unless_void(
        &mut self,
        call: AcceptOffers,
        invalid_offer: Option<&str>,
        now: Timestamp,
        out: &mut Effects,
    ) -> Result<(), Void> {
        self.counters.count("master/messages_launch_tasks");
        let taken = match invalid_offer {
            Some(id) => Err(no_longer_valid(id)),
            None => self.check_offers(&call.framework_id, &call.offer_ids),
        };
        let offers = self.take_offers(&call.framework_id, &call.offer_ids);
        let taken = match taken {
            Ok(taken) => taken,
            Err(void) => {
                // No filter, but not before the next batch either: whoever always errs must not spin.
                for offer in offers {
                    self.recovered(freed_offer(&offer), Some(Duration::ZERO), out);
                }
                let others = call.offer_ids.iter().any(|id| !self.ids.minted(id));
                let (tasks, conversions) = parted(call.operations);
                // All of an accept is of one agent.
                let agent = tasks.first().map(|task| &task.agent_id);
                for conversion in conversions {
                    let (framework, id) = (&call.framework_id, &conversion.0);
                    let told = others && self.tell_if_accepted(framework, id, agent, out);
                    if !told {
                        self.refuse_operation(
                            &call.framework_id,
                            None,
                            conversion,
                            &void.for_operation(),
                            out,
                        );
                    }
                }
                for task in tasks {
                    match others && self.may_run(&call.framework_id, &task) {
                        true => self.tell_how_it_is(&call.framework_id, &task, now, out),
                        false => self.void(&call.framework_id, &task, &void, now, out),
                    }
                }
                return Err(void);
            }
        };
        self.counters.add("master/offers_accepted", offers.len());
        let framework = &call.framework_id;
        self.frameworks
            .dealt(framework, Dealing::OfferAccepted, offers.len());
        let mut work = Work::of(&taken);
        for operation in call.operations {
            self.operate_on(&call.framework_id, &taken, operation, &mut work, now, out);
        }
        let freed = |resources| Freed {
            framework_id: call.framework_id.clone(),
            agent_id: taken.agent_id.clone(),
            resources,
        };
        // Whoever takes an offer for nothing has refused it; else no time is no filter.
        let refuse = Some(call.filters.refuse());
        match refuse.filter(|refuse| !work.done || !refuse.is_zero()) {
            // What was made just now was not refused.
            Some(refuse) => {
                let others = work.remaining.saturating_sub(&work.made);
                let made = work.remaining.saturating_sub(&others);
                self.recovered(freed(others), Some(refuse), out);
                self.recovered(freed(made), None, out);
            }
            // At once, so that no run begins in between and offers it in two pieces.
            None => self.recovered(freed(work.remaining), None, out),
        }
        self.run(&call.framework_id, &taken.agent_id, work.launched, out);
        Ok(())
    }

    /// One step of an accept.
    fn operate_on(
        &mut self,
        framework: &FrameworkId,
        taken: &Taken,
        operation: Operation,
        work: &mut Work,
        now: Timestamp,
        out: &mut Effects,
    ) {
        match operation {
            Operation::Launch { tasks } => {
                self.frameworks.dealt(framework, Dealing::Launch, 1);
                self.launch_all(framework, taken, tasks, work, now, out);
            }
            Operation::LaunchGroup { executor, tasks } => {
                self.frameworks.dealt(framework, Dealing::LaunchGroup, 1);
                let invalid = self.why_no_group(framework, taken, &executor, &tasks, work);
                for task in tasks {
                    let reason = Reason::TaskGroupInvalid;
                    self.refuse_task(framework, taken, &task, reason, &invalid, now, out);
                }
            }
            Operation::Convert { id, conversion } => {
                if let Some(dealing) = Dealing::operation(conversion.name()) {
                    self.frameworks.dealt(framework, dealing, 1);
                }
                let wish = Wish {
                    framework_id: framework,
                    agent_id: &taken.agent_id,
                    role: &taken.role,
                    id,
                    conversion,
                };
                // What was launched before comes first to the agent as well.
                let launched = std::mem::take(&mut work.launched);
                self.run(framework, &taken.agent_id, launched, out);
                if let Some(step) = self.convert(wish, &mut work.remaining, out) {
                    work.done = true;
                    work.made.subtract_what_is_there(&step.consumed);
                    work.shared.subtract_what_is_there(&step.consumed);
                    work.shared += &step.converted.shared();
                    work.made += step.converted;
                }
            }
        }
    }

    /// All offers known, of this framework, of one agent that is connected, and of one role.
    fn check_offers(&self, framework: &FrameworkId, ids: &[OfferId]) -> Result<Taken, Void> {
        let void = Void::Offers;
        let mut seen = BTreeSet::new();
        if let Some(id) = ids.iter().find(|id| !seen.insert(*id)) {
            return Err(void(format!("Duplicate offer {id} in offer list")));
        }
        let mut first: Option<&Arc<Offer>> = None;
        let mut parts = Vec::with_capacity(ids.len());
        for id in ids {
            let offer = self.offers.get(id);
            let offer = offer.filter(|offer| offer.framework_id == *framework);
            let offer = offer.ok_or_else(|| no_longer_valid(id.as_str()))?;
            let first = *first.get_or_insert(offer);
            if offer.role != first.role {
                return Err(void(format!(
                    "Aggregated offers must be allocated to the same role. Offer {id} uses role '{} but another is using role '{}",
                    offer.role, first.role
                )));
            }
            if offer.agent_id != first.agent_id {
                return Err(void(format!(
                    "Aggregated offers must belong to one single agent. Offer {id} uses agent {} and agent {}",
                    offer.agent_id, first.agent_id
                )));
            }
            parts.push(&offer.resources);
        }
        let first = first.ok_or_else(|| void("No offers specified".to_owned()))?;
        if self.agents.connected(&first.agent_id).is_none() {
            return Err(Void::Disconnected);
        }
        let role = Role::new(&first.role).map_err(|invalid| void(invalid.to_string()))?;
        Ok(Taken {
            agent_id: first.agent_id.clone(),
            role,
            resources: sum(parts),
        })
    }

    /// Takes those of these offers that are the framework's; they can be used no more, whatever else happens.
    fn take_offers(&mut self, framework: &FrameworkId, ids: &[OfferId]) -> Vec<Arc<Offer>> {
        let mut taken = Vec::new();
        for id in ids {
            let offer = self.offers.get(id);
            if offer.is_some_and(|offer| offer.framework_id == *framework) {
                taken.extend(self.offers.remove(id));
            }
        }
        taken
    }

    /// Whether an earlier master may have launched this task: somebody knows it, or its agent has not been heard yet, or is gone for good, and its tasks were told so.
    fn may_run(&self, framework: &FrameworkId, task: &TaskInfo) -> bool {
        let known = self.tasks.find(framework, &task.task_id).is_some();
        known
            || match self.agents.standing(&task.agent_id) {
                Standing::Recovered | Standing::Unreachable(_) | Standing::Gone => true,
                Standing::Registered(_) | Standing::Unknown => false,
            }
    }

    /// Tells how a task is as reconciliation would: nothing, while its agent may still bring it.
    fn tell_how_it_is(
        &mut self,
        framework: &FrameworkId,
        task: &TaskInfo,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let agent = Some(&task.agent_id);
        if let Some(status) = self.how_is(framework, &task.task_id, agent, now) {
            self.tell_status(framework, status, out);
        }
    }

    /// Tells that this task will not run.
    fn void(
        &mut self,
        framework: &FrameworkId,
        task: &TaskInfo,
        void: &Void,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let known = self.frameworks.get(framework);
        let (state, reason) = (TaskState::Dropped, void.reason());
        let status = master_status(known, &task.task_id, state, reason, void.for_task(), now);
        let status = status.on(&task.agent_id);
        self.refuse(framework, task, state, status, out);
    }

    /// Tells that this task is refused in that state, and remembers it.
    pub(crate) fn refuse(
        &mut self,
        framework: &FrameworkId,
        task: &TaskInfo,
        state: TaskState,
        status: TaskStatus,
        out: &mut Effects,
    ) {
        self.task_ended(framework, &status);
        if self.frameworks.get(framework).is_some() {
            let mut refused = Task::placed(framework.clone(), task, Resources::default(), state);
            refused.shorten();
            refused.statuses.push(status.clone());
            self.tasks.refuse(refused);
        }
        self.tell_status(framework, status, out);
    }

    /// Validates and books each task.
    fn launch_all(
        &mut self,
        framework: &FrameworkId,
        taken: &Taken,
        tasks: Vec<TaskInfo>,
        work: &mut Work,
        now: Timestamp,
        out: &mut Effects,
    ) {
        for mut task in tasks {
            self.copy_shared(framework, taken, &task, work, out);
            match self.launch(framework, taken, &mut task, &mut work.remaining) {
                Ok(()) => {
                    work.done = true;
                    work.launched.push(task);
                }
                Err((reason, invalid)) => {
                    self.refuse_task(framework, taken, &task, reason, &invalid, now, out);
                }
            }
        }
    }

    /// Why a group is not run: too little is left for it, or else that there is nobody to run it.
    fn why_no_group(
        &self,
        framework: &FrameworkId,
        taken: &Taken,
        executor: &ExecutorInfo,
        tasks: &[TaskInfo],
        work: &Work,
    ) -> TaskInvalid {
        let lacking = self.frameworks.get(framework).and_then(|framework| {
            let rules = TaskRules {
                framework,
                agent_id: &taken.agent_id,
                role: &taken.role,
                remaining: &work.remaining,
                tasks: &self.tasks,
                policy: &self.policy,
            };
            rules.group_needs(executor, tasks).err()
        });
        lacking.unwrap_or_else(|| {
            let expected = "LAUNCH, with the tasks one by one: there is no default executor yet to run them as a group";
            Invalid::new("type", "LAUNCH_GROUP", expected).into()
        })
    }

    /// Gives what is left of the offers another copy of each shared volume that a task before this one has taken and this one wants.
    fn copy_shared(
        &self,
        framework: &FrameworkId,
        taken: &Taken,
        task: &TaskInfo,
        work: &mut Work,
        out: &mut Effects,
    ) {
        if work.shared.is_empty() {
            return;
        }
        let wanted = task.resources.allocate(&taken.role).shared();
        let is_gone = |volume: &Resource| {
            work.shared.contains_resource(volume) && !work.remaining.contains_resource(volume)
        };
        let copies = wanted.filter(is_gone);
        if copies.is_empty() {
            return;
        }
        work.remaining += &copies;
        out.allocator(ToAllocator::Converted(Converted {
            framework_id: framework.clone(),
            agent_id: taken.agent_id.clone(),
            consumed: Resources::default(),
            converted: copies,
        }));
    }

    /// Tells that this task is invalid, or that its offers have too little for it.
    #[expect(
        clippy::too_many_arguments,
        reason = "a status is made of as many things"
    )]
    fn refuse_task(
        &mut self,
        framework: &FrameworkId,
        taken: &Taken,
        task: &TaskInfo,
        reason: Reason,
        invalid: &TaskInvalid,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let known = self.frameworks.get(framework);
        let state = match reason {
            Reason::InvalidOffers => TaskState::Dropped, // Elsewhere, or later, it may run.
            _ => TaskState::Error,
        };
        let message = invalid.to_string();
        let status = master_status(known, &task.task_id, state, reason, message, now);
        self.refuse(framework, task, state, status.on(&taken.agent_id), out);
    }

    fn launch(
        &mut self,
        framework: &FrameworkId,
        taken: &Taken,
        task: &mut TaskInfo,
        remaining: &mut Resources,
    ) -> Result<(), (Reason, TaskInvalid)> {
        let invalid = |invalid| (Reason::TaskInvalid, invalid);
        let framework = self.frameworks.get(framework).ok_or_else(|| {
            let expected = "a framework that is subscribed";
            invalid(Invalid::new("framework_id", framework, expected).into())
        })?;
        let rules = TaskRules {
            framework,
            agent_id: &taken.agent_id,
            role: &taken.role,
            remaining,
            tasks: &self.tasks,
            policy: &self.policy,
        };
        let needs = rules.check(task).map_err(invalid)?;
        let too_long = |invalid: Invalid| (Reason::InvalidOffers, invalid.into());
        self.check_long(&framework.id, task, &needs)
            .map_err(too_long)?;
        Asker::framework(&self.policy.acls, &framework.info)
            .run(task, &framework.info)
            .map_err(|forbidden| {
                let problem = validation::unauthorized_task(task, framework, &forbidden);
                (Reason::TaskUnauthorized, problem)
            })?;
        remaining.subtract(&needs.total).map_err(|shortage| {
            invalid(Invalid::new("task.resources", shortage, "what is offered").into())
        })?;
        task.resources = needs.task.clone();
        if let (Some(executor), Some((resources, _))) = (&mut task.executor, needs.executor) {
            executor.resources = resources;
        }
        let placed = Task::placed(framework.id.clone(), task, needs.task, TaskState::Staging);
        self.forget_revocation(&placed.framework_id, &placed.id);
        self.tasks.insert(placed, task.executor.as_ref());
        Ok(())
    }

    /// Sends tasks to their agent, several in one message.
    fn run(
        &self,
        framework: &FrameworkId,
        agent: &AgentId,
        tasks: Vec<TaskInfo>,
        out: &mut Effects,
    ) {
        let (Some(framework), Some(agent)) =
            (self.frameworks.get(framework), self.agents.get(agent))
        else {
            return;
        };
        for tasks in in_frames(tasks) {
            let framework = framework.info.clone();
            out.agent(&agent.pid, ToAgent::Run(RunTasks { framework, tasks }));
        }
    }

    /// The message with these tasks did not reach their agent: they never ran, and what they held is free. Those of which more is known are
    /// left as they are.
    pub fn not_launched(&mut self, unsent: Unsent, now: Timestamp, out: &mut Effects) {
        let framework = unsent.framework_id;
        let mut executors = BTreeSet::new();
        for (id, agent, executor) in unsent.tasks {
            let is_staging =
                |task: &Task| task.agent_id == agent && task.state == TaskState::Staging;
            if !self.tasks.get(&framework, &id).is_some_and(is_staging) {
                continue;
            }
            let status = master_status(
                self.frameworks.get(&framework),
                &id,
                TaskState::Dropped,
                Reason::AgentDisconnected,
                "Agent disconnected",
                now,
            )
            .on(&agent);
            let freed = self.tasks.update(&framework, &id, |task| {
                task.observe(&status, status.state);
            });
            if let Some(freed) = freed {
                self.recovered(freed, None, out);
                self.task_ended(&framework, &status);
                self.tasks.complete(&framework, &id);
                self.tell_status(&framework, status, out);
            }
            executors.extend(executor.map(|executor| (agent, executor)));
        }
        for (agent, executor) in executors {
            self.drop_unused_executor(&agent, &framework, &executor, out);
        }
    }

    /// Forgets an executor that was never started because its only tasks never arrived.
    fn drop_unused_executor(
        &mut self,
        agent: &AgentId,
        framework: &FrameworkId,
        executor: &ExecutorId,
        out: &mut Effects,
    ) {
        let runs_there = |owner: &FrameworkId, task: &TaskId| {
            let task = self.tasks.get(owner, task);
            owner == framework && task.is_some_and(|task| task.executor_id == *executor)
        };
        let on = self.tasks.on_agent(agent);
        let used = on.is_some_and(|on| on.tasks().any(|(owner, task)| runs_there(owner, task)));
        if !used && let Some(freed) = self.tasks.remove_executor(agent, framework, executor) {
            self.recovered(freed, None, out);
        }
    }
}

/// An offer that is unknown, not the framework's, or used.
fn no_longer_valid(id: &str) -> Void {
    Void::Offers(format!("Offer {id} is no longer valid"))
}

/// What must be undone if a [`RunTasks`] does not go out.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsent {
    framework_id: FrameworkId,
    tasks: Vec<(TaskId, AgentId, Option<ExecutorId>)>,
}

impl Unsent {
    /// What must be undone if this does not go out.
    pub fn of(message: &RunTasks) -> Option<Self> {
        let task = |task: &TaskInfo| {
            let executor = task.executor.as_ref();
            let executor = executor.map(|executor| executor.executor_id.clone());
            (task.task_id.clone(), task.agent_id.clone(), executor)
        };
        Some(Self {
            framework_id: message.framework.id.clone()?,
            tasks: message.tasks.iter().map(task).collect(),
        })
    }
}
