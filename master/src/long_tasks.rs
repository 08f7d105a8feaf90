//! Long tasks: how much of each agent they may use, and what becomes of tasks that run for long without saying so (S120, S121).
//!
//! Pure decisions on [`Books`]. The bound is the allocator's policy; what tasks say of themselves ([`protocol::marks`]) only the master
//! knows. So it is the master that tells in each offer what is left for long tasks there, that holds each of them against it when it is
//! launched, and that revokes whoever has run for longer than a task may that is not marked as long. What is reserved or revocable is not
//! bounded: nobody's short tasks wait for it. A framework's own executor counts once, for as long as any task that it serves is long.

use std::collections::BTreeSet;
use std::time::Duration;

use module_api::allocator::LongTasksBounded;
use protocol::{AgentId, ExecutorId, FrameworkId, TaskInfo, marks};
use resources::{Attributes, Invalid, Quantities, Resources, Scalar};
use runtime::Timestamp;

use crate::books::Books;
use crate::effects::{Due, Effect, Effects};
use crate::revocation::Why;
use crate::tasks::Task;
use crate::validation::Needs;

/// The least time between two looks for tasks that have run for too long.
const LOOK: Duration = Duration::from_secs(1);

/// What the allocator has said of them.
#[derive(Clone, Debug)]
pub(crate) struct LongTasks {
    bound: LongTasksBounded,
    /// Counts what was said, so that looks of earlier bounds end.
    serial: u64,
}

impl Books {
    /// The allocator bounds long tasks from now on, or does it in another way.
    pub fn long_tasks_bounded(
        &mut self,
        bound: LongTasksBounded,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let serial = self.long_tasks.as_ref().map_or(0, |long| long.serial) + 1;
        self.long_tasks = Some(LongTasks { bound, serial });
        self.look_for_overdue(serial, now, out);
    }

    /// An agent's attributes as its offers have them: with what is left for long tasks there, if they are bounded.
    pub(crate) fn offered_attributes(&self, agent: &AgentId, own: &Attributes) -> Attributes {
        match self.left_for_long(agent) {
            Some(left) => marks::with_long_left(own, &left),
            None => own.clone(),
        }
    }

    /// Whether a task that is marked as long may have so much of its agent.
    pub(crate) fn check_long(
        &self,
        framework: &FrameworkId,
        task: &TaskInfo,
        needs: &Needs,
    ) -> Result<(), Invalid> {
        if !marks::is_long(&task.labels)? {
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
        let expected = format!("at most what is left for long tasks on its agent, {left}");
        Err(Invalid::new("task.resources", wanted, expected))
    }

    /// What long tasks may still use of an agent, each name that it has listed; `None` if they are not bounded.
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

    /// The long tasks there that have not ended.
    fn long_on(&self, agent: &AgentId) -> impl Iterator<Item = &Task> {
        let on = self.tasks.on_agent(agent).into_iter();
        let tasks = on.flat_map(|on| on.tasks());
        let tasks = tasks.filter_map(|(framework, id)| self.tasks.get(framework, id));
        let tasks = tasks.filter(|task| !task.state.is_terminal());
        tasks.filter(|task| marks::is_long(&task.labels).unwrap_or_default())
    }

    /// Whether that executor counts among what is long already.
    fn serves_long(&self, framework: &FrameworkId, agent: &AgentId, id: &ExecutorId) -> bool {
        let mut long = self.long_on(agent);
        long.any(|task| task.framework_id == *framework && task.executor_id == *id)
    }

    /// Revokes tasks that have run for longer than one may that is not marked as long, and looks again when the next one will have.
    pub fn look_for_overdue(&mut self, serial: u64, now: Timestamp, out: &mut Effects) {
        let current = self.long_tasks.as_ref().map(|long| long.serial);
        if current != Some(serial) {
            return;
        }
        if let Some(next) = self.revoke_overdue(now, out) {
            let wait = next.saturating_since(now).max(LOOK);
            out.push(Effect::Later(wait, Due::Overdue(serial)));
        }
    }

    /// Revokes those that have run for too long. Gives when the next one will have, or `None` if none ever has.
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
            let is_long = marks::is_long(&task.labels).unwrap_or_default();
            let since = self.since(task).filter(|_| !is_long);
            match since.map(|since| since + most) {
                // Who was told already, of whatever, is not told again; if that is withdrawn they are looked for once more.
                Some(end) if end <= now => {
                    let key = (task.framework_id.clone(), task.id.clone());
                    overdue.push((key, task.agent_id.clone(), Why::Overdue(most)));
                }
                Some(end) => next = next.min(end),
                None => {}
            }
        }
        self.revoke(overdue, grace, now, out);
        Some(next)
    }
}

/// Takes away what of these is bounded.
fn take(left: &mut Quantities, resources: &Resources) {
    for (name, amount) in resources.open().quantities().iter() {
        left.take(name, amount);
    }
}
