//! ACCEPT: launches tasks and applies operations on the accepted offers.
//!
//! Pure, and linear in the tasks. Operations are applied in order; conversions are in
//! [`crate::operations`]. Each task is validated against the resources that its predecessors left,
//! recorded in the state, and sent to the agent together with the others. A bad offer rejects the
//! whole call; a bad task only itself. A call with offers of an earlier master is rejected too, but
//! that master may have launched the tasks before it failed: their known states are reported. Never
//! waits: the agent's answer comes back as status updates.

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
use crate::frameworks::counters::FrameworkCounter;
use crate::operations::ConversionRequest;
use crate::permission::Caller;
use crate::state::effects::{Effects, SendEffects, ToAgent, ToAllocator};
use crate::state::size::in_frames;
use crate::state::{MasterState, freed_offer, master_status, sum};
use crate::tasks::{Freed, Task};
use crate::validation::{self, Needs, TaskInvalid, TaskRules};

/// The sum of the valid offers of one call.
struct AcceptedOffers {
    agent_id: AgentId,
    role: Role,
    resources: Resources,
}

/// Progress of an accept.
struct AcceptContext {
    /// Remaining offered resources.
    remaining: Resources,
    /// Resources created by conversions.
    made: Resources,
    /// Shared volumes that were offered or created: each task may have a copy.
    shared: Resources,
    /// Tasks to send to the agent.
    launched: Vec<TaskInfo>,
    /// Whether anything was launched or converted.
    done: bool,
}

impl AcceptContext {
    fn of(taken: &AcceptedOffers) -> Self {
        Self {
            remaining: taken.resources.clone(),
            made: Resources::default(),
            shared: taken.resources.shared(),
            launched: Vec::new(),
            done: false,
        }
    }
}

/// The id and the kind of a conversion.
type ConversionId = (Option<OperationId>, Option<&'static str>);

/// Splits operations into tasks and the ids of conversions.
fn split_operations(operations: Vec<Operation>) -> (Vec<TaskInfo>, Vec<ConversionId>) {
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

/// Why a whole accept is rejected. The messages are those of Mesos, which clients compare.
pub(crate) enum AcceptRejected {
    /// Its offers are invalid.
    Offers(String),
    /// Its agent is not connected.
    Disconnected,
}

impl AcceptRejected {
    /// The reason in the tasks' statuses.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Offers(_) => Reason::InvalidOffers,
            Self::Disconnected => Reason::AgentDisconnected,
        }
    }

    /// The message in the tasks' statuses.
    pub fn for_task(&self) -> String {
        match self {
            Self::Offers(problem) => format!("Task launched with invalid offers: {problem}"),
            Self::Disconnected => "Agent disconnected".to_owned(),
        }
    }

    /// The message in the operations' statuses.
    pub fn for_operation(&self) -> String {
        match self {
            Self::Offers(problem) => {
                format!("Operation attempted with invalid offers: {problem}")
            }
            Self::Disconnected => "Agent disconnected".to_owned(),
        }
    }
}

impl MasterState {
    /// Handles an accept.
    pub fn accept(&mut self, call: AcceptOffers, now: Timestamp, out: &mut Effects) {
        // A rejection has already been reported.
        let _ = self.accept_unless_rejected(call, None, now, out);
    }

    /// The same, but returns a rejection so that the caller can report more. `invalid_offer` is an
    /// offer id that is no valid id.
    pub(crate) fn accept_unless_rejected(
        &mut self,
        call: AcceptOffers,
        invalid_offer: Option<&str>,
        now: Timestamp,
        out: &mut Effects,
    ) -> Result<(), AcceptRejected> {
        self.counters.count("master/messages_launch_tasks");
        let taken = match invalid_offer {
            Some(id) => Err(no_longer_valid(id)),
            None => self.check_offers(&call.framework_id, &call.offer_ids),
        };
        let offers = self.take_offers(&call.framework_id, &call.offer_ids);
        let taken = match taken {
            Ok(taken) => taken,
            Err(rejected) => {
                // No filter, but not before the next batch either, so that a faulty framework does
                // not get the offer in a tight loop.
                for offer in offers {
                    self.recovered(freed_offer(&offer), Some(Duration::ZERO), out);
                }
                let others = call.offer_ids.iter().any(|id| !self.ids.minted(id));
                let (tasks, conversions) = split_operations(call.operations);
                // All operations of an accept are on one agent.
                let agent = tasks.first().map(|task| &task.agent_id);
                for conversion in conversions {
                    let (framework, id) = (&call.framework_id, &conversion.0);
                    let reported = others && self.report_if_accepted(framework, id, agent, out);
                    if !reported {
                        self.refuse_operation(
                            &call.framework_id,
                            None,
                            conversion,
                            &rejected.for_operation(),
                            out,
                        );
                    }
                }
                for task in tasks {
                    match others && self.may_run(&call.framework_id, &task) {
                        true => self.report_known_status(&call.framework_id, &task, now, out),
                        false => {
                            self.report_rejected(&call.framework_id, &task, &rejected, now, out)
                        }
                    }
                }
                return Err(rejected);
            }
        };
        self.counters.add("master/offers_accepted", offers.len());
        let framework = &call.framework_id;
        self.frameworks
            .count(framework, FrameworkCounter::OfferAccepted, offers.len());
        let mut work = AcceptContext::of(&taken);
        for operation in call.operations {
            self.operate_on(&call.framework_id, &taken, operation, &mut work, now, out);
        }
        let freed = |resources| Freed {
            framework_id: call.framework_id.clone(),
            agent_id: taken.agent_id.clone(),
            resources,
        };
        // An accept without a launch or conversion is a refusal; otherwise a zero filter is none.
        let refuse = Some(call.filters.refuse());
        match refuse.filter(|refuse| !work.done || !refuse.is_zero()) {
            // Resources created just now were not refused.
            Some(refuse) => {
                let others = work.remaining.saturating_sub(&work.made);
                let made = work.remaining.saturating_sub(&others);
                self.recovered(freed(others), Some(refuse), out);
                self.recovered(freed(made), None, out);
            }
            // In one message, so that no allocator run offers it in two pieces.
            None => self.recovered(freed(work.remaining), None, out),
        }
        self.run(&call.framework_id, &taken.agent_id, work.launched, out);
        Ok(())
    }

    /// Applies one operation of an accept.
    fn operate_on(
        &mut self,
        framework: &FrameworkId,
        taken: &AcceptedOffers,
        operation: Operation,
        work: &mut AcceptContext,
        now: Timestamp,
        out: &mut Effects,
    ) {
        match operation {
            Operation::Launch { tasks } => {
                self.frameworks
                    .count(framework, FrameworkCounter::Launch, 1);
                self.launch_all(framework, taken, tasks, work, now, out);
            }
            Operation::LaunchGroup { executor, tasks } => {
                self.frameworks
                    .count(framework, FrameworkCounter::LaunchGroup, 1);
                self.launch_group(framework, taken, &executor, tasks, work, now, out);
            }
            Operation::Convert { id, conversion } => {
                if let Some(dealing) = FrameworkCounter::operation(conversion.name()) {
                    self.frameworks.count(framework, dealing, 1);
                }
                let wish = ConversionRequest {
                    framework_id: framework,
                    agent_id: &taken.agent_id,
                    role: &taken.role,
                    id,
                    conversion,
                };
                // Earlier launches must reach the agent before the conversion.
                let launched = std::mem::take(&mut work.launched);
                self.run(framework, &taken.agent_id, launched, out);
                if let Some(step) = self.convert(wish, &mut work.remaining, out) {
                    work.done = true;
                    work.made.saturating_sub_assign(&step.consumed);
                    work.shared.saturating_sub_assign(&step.consumed);
                    work.shared += &step.converted.shared();
                    work.made += step.converted;
                }
            }
        }
    }

    /// Checks that all offers are known, belong to this framework, and share one connected agent
    /// and one role.
    fn check_offers(
        &self,
        framework: &FrameworkId,
        ids: &[OfferId],
    ) -> Result<AcceptedOffers, AcceptRejected> {
        let rejected = AcceptRejected::Offers;
        let mut seen = BTreeSet::new();
        if let Some(id) = ids.iter().find(|id| !seen.insert(*id)) {
            return Err(rejected(format!("Duplicate offer {id} in offer list")));
        }
        let mut first: Option<&Arc<Offer>> = None;
        let mut parts = Vec::with_capacity(ids.len());
        for id in ids {
            let offer = self.offers.get(id);
            let offer = offer.filter(|offer| offer.framework_id == *framework);
            let offer = offer.ok_or_else(|| no_longer_valid(id.as_str()))?;
            let first = *first.get_or_insert(offer);
            if offer.role != first.role {
                return Err(rejected(format!(
                    "Aggregated offers must be allocated to the same role. Offer {id} uses role '{} but another is using role '{}",
                    offer.role, first.role
                )));
            }
            if offer.agent_id != first.agent_id {
                return Err(rejected(format!(
                    "Aggregated offers must belong to one single agent. Offer {id} uses agent {} and agent {}",
                    offer.agent_id, first.agent_id
                )));
            }
            parts.push(&offer.resources);
        }
        let first = first.ok_or_else(|| rejected("No offers specified".to_owned()))?;
        if self.agents.connected(&first.agent_id).is_none() {
            return Err(AcceptRejected::Disconnected);
        }
        let role = Role::new(&first.role).map_err(|invalid| rejected(invalid.to_string()))?;
        Ok(AcceptedOffers {
            agent_id: first.agent_id.clone(),
            role,
            resources: sum(parts),
        })
    }

    /// Removes those of these offers that belong to the framework: they are used up in any case.
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

    /// Whether an earlier master may have launched this task: the task is known, or its agent has
    /// not returned or is gone for good.
    fn may_run(&self, framework: &FrameworkId, task: &TaskInfo) -> bool {
        let known = self.tasks.find(framework, &task.task_id).is_some();
        known
            || match self.agents.standing(&task.agent_id) {
                Standing::Recovered | Standing::Unreachable(_) | Standing::Gone => true,
                Standing::Registered(_) | Standing::Unknown => false,
            }
    }

    /// Sends the task's state as reconciliation would; nothing while its agent may still report it.
    fn report_known_status(
        &mut self,
        framework: &FrameworkId,
        task: &TaskInfo,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let agent = Some(&task.agent_id);
        if let Some(status) = self.reconciled_status(framework, &task.task_id, agent, now) {
            self.tell_status(framework, status, out);
        }
    }

    /// Reports that this task will not run.
    fn report_rejected(
        &mut self,
        framework: &FrameworkId,
        task: &TaskInfo,
        rejected: &AcceptRejected,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let known = self.frameworks.get(framework);
        let (state, reason) = (TaskState::Dropped, rejected.reason());
        let status = master_status(
            known,
            &task.task_id,
            state,
            reason,
            rejected.for_task(),
            now,
        );
        let status = status.on(&task.agent_id);
        self.refuse(framework, task, state, status, out);
    }

    /// Reports a refused task in that state, and remembers it.
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

    /// Validates and launches each task.
    fn launch_all(
        &mut self,
        framework: &FrameworkId,
        taken: &AcceptedOffers,
        tasks: Vec<TaskInfo>,
        work: &mut AcceptContext,
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

    /// Validates a group, and launches all of its tasks or none. An empty one is ignored: no
    /// status could report it.
    #[expect(
        clippy::too_many_arguments,
        reason = "a status is made of as many things"
    )]
    fn launch_group(
        &mut self,
        framework: &FrameworkId,
        taken: &AcceptedOffers,
        executor: &ExecutorInfo,
        mut tasks: Vec<TaskInfo>,
        work: &mut AcceptContext,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let group = tasks.first().map(|task| task.task_id.clone());
        for task in &mut tasks {
            task.executor.get_or_insert_with(|| executor.clone());
            task.group.clone_from(&group);
        }
        let needs = match self.check_group(framework, taken, executor, &tasks, work) {
            Ok(needs) => needs,
            Err((reason, invalid)) => {
                for task in tasks {
                    self.refuse_task(framework, taken, &task, reason, &invalid, now, out);
                }
                return;
            }
        };
        for (mut task, needs) in tasks.into_iter().zip(needs) {
            self.copy_shared(framework, taken, &task, work, out);
            // The group's resources were checked together.
            work.remaining.saturating_sub_assign(&needs.total);
            self.place(framework, &mut task, needs);
            work.done = true;
            work.launched.push(task);
        }
    }

    /// Checks whether a group may be launched; returns the resources of each task.
    fn check_group(
        &self,
        framework: &FrameworkId,
        taken: &AcceptedOffers,
        executor: &ExecutorInfo,
        tasks: &[TaskInfo],
        work: &AcceptContext,
    ) -> Result<Vec<Needs>, (Reason, TaskInvalid)> {
        let invalid = |invalid| (Reason::TaskGroupInvalid, invalid);
        let framework = self.frameworks.get(framework).ok_or_else(|| {
            let expected = "a framework that is subscribed";
            invalid(Invalid::new("framework_id", framework, expected).into())
        })?;
        let caller = Caller::framework(&self.policy.acls, &framework.info);
        let mut forbidden = tasks.iter().rev().filter_map(|task| {
            let forbidden = caller.run(task, &framework.info).err()?;
            Some(validation::unauthorized_member(task, framework, &forbidden))
        });
        if let Some(problem) = forbidden.next() {
            return Err((Reason::TaskGroupUnauthorized, problem));
        }
        // Each task may have a copy of a shared volume.
        let remaining = work.remaining.non_shared() + &work.shared;
        let rules = TaskRules {
            framework,
            agent_id: &taken.agent_id,
            role: &taken.role,
            remaining: &remaining,
            tasks: &self.tasks,
            policy: &self.policy,
        };
        let needs = rules.check_group(executor, tasks).map_err(invalid)?;
        for (task, needs) in tasks.iter().zip(&needs) {
            self.check_long(&framework.id, task, needs)
                .map_err(|invalid| (Reason::InvalidOffers, invalid.into()))?;
        }
        Ok(needs)
    }

    /// Adds another copy of each shared volume that this task wants and an earlier one has used.
    fn copy_shared(
        &self,
        framework: &FrameworkId,
        taken: &AcceptedOffers,
        task: &TaskInfo,
        work: &mut AcceptContext,
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

    /// Reports an invalid task, or one for which the offers do not suffice.
    #[expect(
        clippy::too_many_arguments,
        reason = "a status is made of as many things"
    )]
    fn refuse_task(
        &mut self,
        framework: &FrameworkId,
        taken: &AcceptedOffers,
        task: &TaskInfo,
        reason: Reason,
        invalid: &TaskInvalid,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let known = self.frameworks.get(framework);
        let state = match reason {
            Reason::InvalidOffers => TaskState::Dropped, // It may run elsewhere or later.
            _ => TaskState::Error,
        };
        let message = invalid.to_string();
        let status = master_status(known, &task.task_id, state, reason, message, now);
        self.refuse(framework, task, state, status.on(&taken.agent_id), out);
    }

    fn launch(
        &mut self,
        framework: &FrameworkId,
        taken: &AcceptedOffers,
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
        Caller::framework(&self.policy.acls, &framework.info)
            .run(task, &framework.info)
            .map_err(|forbidden| {
                let problem = validation::unauthorized_task(task, framework, &forbidden);
                (Reason::TaskUnauthorized, problem)
            })?;
        remaining.subtract(&needs.total).map_err(|shortage| {
            invalid(Invalid::new("task.resources", shortage, "what is offered").into())
        })?;
        self.place(&framework.id.clone(), task, needs);
        Ok(())
    }

    /// Records a valid task.
    fn place(&mut self, framework: &FrameworkId, task: &mut TaskInfo, needs: Needs) {
        task.resources = needs.task.clone();
        if let (Some(executor), Some((resources, _))) = (&mut task.executor, needs.executor) {
            executor.resources = resources;
        }
        let placed = Task::placed(framework.clone(), task, needs.task, TaskState::Staging);
        self.forget_revocation(&placed.framework_id, &placed.id);
        self.tasks.insert(placed, task.executor.as_ref());
    }

    /// Sends tasks to their agent, several per message, and a group in one.
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
        for tasks in whole_groups(tasks) {
            let framework = framework.info.clone();
            out.agent(&agent.pid, ToAgent::Run(RunTasks { framework, tasks }));
        }
    }

    /// The message with these tasks did not reach their agent: they never ran, and their resources
    /// are free. Tasks with a newer state are left alone.
    pub fn not_launched(&mut self, unsent: UnsentTasks, now: Timestamp, out: &mut Effects) {
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

    /// Forgets an executor that never started because its only tasks never arrived.
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

/// Tasks in pieces for one message each, with no group in two.
fn whole_groups(tasks: Vec<TaskInfo>) -> Vec<Vec<TaskInfo>> {
    if tasks.iter().all(|task| task.group.is_none()) {
        return in_frames(tasks);
    }
    let mut units: Vec<Vec<TaskInfo>> = Vec::new();
    for task in tasks {
        let of_last = |unit: &Vec<TaskInfo>| {
            let last = unit.last().and_then(|last| last.group.as_ref());
            last.is_some() && last == task.group.as_ref()
        };
        match units.last_mut().filter(|unit| of_last(unit)) {
            Some(unit) => unit.push(task),
            None => units.push(vec![task]),
        }
    }
    let pieces = in_frames(units).into_iter();
    pieces
        .map(|units| units.into_iter().flatten().collect())
        .collect()
}

/// An offer that is unknown, used, or of another framework.
fn no_longer_valid(id: &str) -> AcceptRejected {
    AcceptRejected::Offers(format!("Offer {id} is no longer valid"))
}

/// The tasks to undo if a [`RunTasks`] cannot be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct UnsentTasks {
    framework_id: FrameworkId,
    tasks: Vec<(TaskId, AgentId, Option<ExecutorId>)>,
}

impl UnsentTasks {
    /// The tasks to undo if this message cannot be sent.
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
