//! Long tasks: their share of each agent, and the end of tasks that run too long without the label
//! of a long task.
//!
//! Pure decisions on [`MasterState`]. The bound is the allocator's policy; only the master knows
//! the labels of tasks ([`protocol::text::reserved_labels`]). So the master publishes the remaining
//! amount for long tasks in each offer, checks each launch against it, and revokes unlabeled tasks
//! that run longer than allowed. Reserved and revocable resources are not bounded: no short task of
//! another role waits for them. A framework's own executor counts once, as long as any of its tasks
//! is long.

use std::collections::BTreeSet;
use std::time::Duration;

use module_api::allocator::LongTasksBounded;
use protocol::text::reserved_labels;
use protocol::{AgentId, ExecutorId, FrameworkId, TaskInfo};
use resources::{Attributes, Invalid, Quantities, Resources, Scalar};
use runtime::Timestamp;

use crate::state::MasterState;
use crate::state::effects::{Due, Effect, Effects};
use crate::tasks::Task;
use crate::tasks::revocation::RevocationCause;
use crate::validation::Needs;

/// Minimum time between two searches for overdue tasks.
const LOOK: Duration = Duration::from_secs(1);

/// The allocator's bound on long tasks.
#[derive(Clone, Debug)]
pub(crate) struct LongTasks {
    bound: LongTasksBounded,
    /// Counts the bounds, so that timers of earlier ones stop.
    serial: u64,
}

impl MasterState {
    /// Sets or changes the bound on long tasks.
    pub fn long_tasks_bounded(
        &mut self,
        bound: LongTasksBounded,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let serial = self.long_tasks.as_ref().map_or(0, |long| long.serial) + 1;
        self.long_tasks = Some(LongTasks { bound, serial });
        self.check_overdue(serial, now, out);
    }

    /// An agent's attributes in its offers: with the remaining amount for long tasks, if they are
    /// bounded.
    pub(crate) fn offered_attributes(&self, agent: &AgentId, own: &Attributes) -> Attributes {
        match self.left_for_long(agent) {
            Some(left) => reserved_labels::with_long_left(own, &left),
            None => own.clone(),
        }
    }

    /// Checks whether a long task may use this much of its agent.
    pub(crate) fn check_long(
        &self,
        framework: &FrameworkId,
        task: &TaskInfo,
        needs: &Needs,
    ) -> Result<(), Invalid> {
        if !reserved_labels::is_long(&task.labels)? {
            return Ok(());
        }
        let Some(left) = self.left_for_long(&task.agent_id) else {
            return Ok(());
        };
        let mut wanted = needs.task.open().quantities();
        if let (Some(executor), Some((own, _))) = (&task.executor, &needs.executor)
            && !self.serves_long(framework, &task.agent_id, &executor.executor_id)
        {
            wanted += &own.open().quantities();
        }
        if left.contains(&wanted) {
            return Ok(());
        }
        let expected = format!("at most the remaining amount for long tasks on its agent, {left}");
        Err(Invalid::new("task.resources", wanted, expected))
    }

    /// The remaining amount for long tasks on an agent, with every resource name it has; `None` if
    /// they are not bounded.
    fn left_for_long(&self, agent: &AgentId) -> Option<Quantities> {
        let share = i64::from(self.long_tasks.as_ref()?.bound.share);
        let has = self.agents.get(agent)?.info.resources.open().quantities();
        let part = |amount: Scalar| {
            let part = i128::from(amount.thousandths()) * i128::from(share) / 1000;
            let part = i64::try_from(part).ok();
            part.and_then(|part| Scalar::from_thousandths(part).ok())
        };
        let parts = has.iter();
        let mut left = Quantities::new();
        for (name, amount) in parts {
            left.set(name.clone(), part(amount).unwrap_or(amount));
        }
        let mut executors = BTreeSet::new();
        for task in self.long_on(agent) {
            take(&mut left, &task.resources);
            let own = self
                .tasks
                .executor(agent, &task.framework_id, &task.executor_id);
            let first = executors.insert((&task.framework_id, &task.executor_id));
            if let Some(own) = own.filter(|_| first) {
                take(&mut left, &own.resources);
            }
        }
        Some(left)
    }

    /// Long tasks on the agent that have not ended.
    fn long_on(&self, agent: &AgentId) -> impl Iterator<Item = &Task> {
        let on = self.tasks.on_agent(agent).into_iter();
        let tasks = on.flat_map(|on| on.tasks());
        let tasks = tasks.filter_map(|(framework, id)| self.tasks.get(framework, id));
        let tasks = tasks.filter(|task| !task.state.is_terminal());
        tasks.filter(|task| reserved_labels::is_long(&task.labels).unwrap_or_default())
    }

    /// Whether the executor is already counted for a long task.
    fn serves_long(&self, framework: &FrameworkId, agent: &AgentId, id: &ExecutorId) -> bool {
        let mut long = self.long_on(agent);
        long.any(|task| task.framework_id == *framework && task.executor_id == *id)
    }

    /// Revokes overdue tasks, and schedules the next search.
    pub fn check_overdue(&mut self, serial: u64, now: Timestamp, out: &mut Effects) {
        let current = self.long_tasks.as_ref().map(|long| long.serial);
        if current != Some(serial) {
            return;
        }
        if let Some(next) = self.revoke_overdue(now, out) {
            let wait = next.saturating_since(now).max(LOOK);
            out.push(Effect::Later(wait, Due::Overdue(serial)));
        }
    }

    /// Revokes overdue tasks. Returns when the next task will be overdue, or `None` if no task ever
    /// will.
    pub(crate) fn revoke_overdue(
        &mut self,
        now: Timestamp,
        out: &mut Effects,
    ) -> Option<Timestamp> {
        let bound = &self.long_tasks.as_ref()?.bound;
        let (most, grace) = (bound.short_max?, bound.grace);
        let mut next = now + most;
        let mut overdue = Vec::new();
        for task in self.tasks.frameworks().flat_map(|(_, of)| of.running()) {
            let is_long = reserved_labels::is_long(&task.labels).unwrap_or_default();
            let since = self.since(task).filter(|_| !is_long);
            match since.map(|since| since + most) {
                // Tasks already under revocation are skipped; if they are spared, they are searched
                // for again.
                Some(end) if end <= now => {
                    let key = (task.framework_id.clone(), task.id.clone());
                    overdue.push((key, task.agent_id.clone(), RevocationCause::Overdue(most)));
                }
                Some(end) => next = next.min(end),
                None => {}
            }
        }
        self.revoke(overdue, grace, now, out);
        Some(next)
    }
}

/// Subtracts the bounded part of these resources.
fn take(left: &mut Quantities, resources: &Resources) {
    for (name, amount) in resources.open().quantities().iter() {
        left.take(name, amount);
    }
}
