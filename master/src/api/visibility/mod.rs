//! Visibility: filters the state for a viewer (ACLs `view_*`, `get_quotas`).
//!
//! Pure. Returns a filtered state, so that pages, answers and events made from it show no more.
//! Sums of agents and roles stay complete, as in Mesos: the amount used on an agent is public, its
//! owner may not be.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::{Acls, Action, Approver, Subject};
use protocol::{ExecutorInfo, FrameworkId, FrameworkInfo};

use crate::permission::Caller;
use crate::state::MasterState;
use crate::tasks::Task;

/// The visible part of the state for a caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Visibility {
    frameworks: Approver,
    tasks: Approver,
    executors: Approver,
    roles: Approver,
    quotas: Approver,
}

impl Caller {
    /// The part of the state that it may see.
    pub fn visibility(&self) -> Visibility {
        Visibility::of(&self.acls, &self.subject)
    }
}

impl Visibility {
    /// The visibility of this identity.
    pub fn of(acls: &Acls, subject: &Subject) -> Self {
        let of = |action| acls.approver(subject, action);
        Self {
            frameworks: of(Action::ViewFrameworks),
            tasks: of(Action::ViewTasks),
            executors: of(Action::ViewExecutors),
            roles: of(Action::ViewRoles),
            quotas: of(Action::GetQuotas),
        }
    }

    /// Whether everything is visible.
    pub fn is_whole(&self) -> bool {
        let all = [
            &self.frameworks,
            &self.tasks,
            &self.executors,
            &self.roles,
            &self.quotas,
        ];
        all.into_iter().all(Approver::allows_all)
    }

    /// Whether a framework is visible.
    pub fn framework(&self, info: &FrameworkInfo) -> bool {
        self.frameworks.allows(info.user.as_str())
    }

    /// Whether a task of the framework with this description is visible.
    pub fn task(&self, task: &Task, framework: &FrameworkInfo) -> bool {
        let user = task.user.as_ref().unwrap_or(&framework.user);
        self.framework(framework) && self.tasks.allows(user.as_str())
    }

    /// Whether a task of a framework in this state is visible.
    pub fn sees(&self, task: &Task, state: &MasterState) -> bool {
        let (id, frameworks) = (&task.framework_id, &state.frameworks);
        let known = frameworks.get(id).map(|framework| &framework.info);
        let ended = || {
            let mut completed = frameworks.completed();
            let ended = completed.find(|one| one.framework.id == *id)?;
            Some(&ended.framework.info)
        };
        self.is_whole()
            || known
                .or_else(ended)
                .is_some_and(|info| self.task(task, info))
    }

    /// Whether an executor of the framework with this description is visible.
    pub fn executor(&self, executor: &ExecutorInfo, framework: &FrameworkInfo) -> bool {
        let user = executor.command.user.as_ref().unwrap_or(&framework.user);
        self.framework(framework) && self.executors.allows(user.as_str())
    }

    /// Whether a role is visible: its weight, its frameworks and its reservations.
    pub fn role(&self, role: &str) -> bool {
        self.roles.allows(role)
    }

    /// Whether a role's quota is visible.
    pub fn quota(&self, role: &str) -> bool {
        self.quotas.allows(role)
    }

    /// The visible part of the state. Free if everything is visible; otherwise visits each task.
    pub fn filter(&self, state: &Arc<MasterState>) -> Arc<MasterState> {
        if self.is_whole() {
            return state.clone();
        }
        let mut seen = MasterState::clone(state);
        let of_known = seen.frameworks.iter().map(|one| (&one.id, &one.info));
        let of_completed = seen.frameworks.completed();
        let of_completed = of_completed.map(|one| (&one.framework.id, &one.framework.info));
        let infos: BTreeMap<FrameworkId, FrameworkInfo> = of_known
            .chain(of_completed)
            .map(|(id, info)| (id.clone(), info.clone()))
            .collect();
        // Entries of unknown frameworks are visible only to viewers that see everything.
        let task = |task: &Task| {
            let info = infos.get(&task.framework_id);
            info.is_some_and(|info| self.task(task, info))
        };
        seen.tasks.keep_visible(&task, |owner, executor| {
            let info = infos.get(owner);
            info.is_some_and(|info| self.executor(executor, info))
        });
        seen.frameworks
            .keep_visible(|info| self.framework(info), &task);
        let quotas = state.quotas.iter().filter(|(role, _)| self.quota(role));
        seen.quotas = Arc::new(
            quotas
                .map(|(role, quota)| (role.clone(), quota.clone()))
                .collect(),
        );
        let weights = state.weights.iter().filter(|(role, _)| self.role(role));
        seen.weights = Arc::new(
            weights
                .map(|(role, weight)| (role.clone(), *weight))
                .collect(),
        );
        seen.visible_roles = Some(Arc::new(self.roles.clone()));
        Arc::new(seen)
    }
}

#[cfg(test)]
mod tests;
