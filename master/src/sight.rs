//! Sight: what of the books somebody may see (SPEC 3.7: `view_*`, `get_quotas`).
//!
//! Pure. Gives books in which nothing else is, so that whatever is made of them, a page, an answer or an event, shows no more. Sums that
//! belong to agents and roles stay whole, as in Mesos: what is used of an agent is no secret, whose it is may be one.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::{Acls, Action, Approver, Subject};
use protocol::{ExecutorInfo, FrameworkId, FrameworkInfo};

use crate::books::Books;
use crate::tasks::Task;

/// What somebody may see.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight {
    frameworks: Approver,
    tasks: Approver,
    executors: Approver,
    roles: Approver,
    quotas: Approver,
}

impl Sight {
    /// What this subject may see.
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

    /// Whether that is everything.
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

    /// Whether this framework is seen.
    pub fn framework(&self, info: &FrameworkInfo) -> bool {
        self.frameworks.allows(info.user.as_str())
    }

    /// Whether this task is seen, of a framework that describes itself so.
    pub fn task(&self, task: &Task, framework: &FrameworkInfo) -> bool {
        let user = task.user.as_ref().unwrap_or(&framework.user);
        self.framework(framework) && self.tasks.allows(user.as_str())
    }

    /// Whether this task is seen, of a framework that these books know.
    pub fn sees(&self, task: &Task, books: &Books) -> bool {
        let (id, frameworks) = (&task.framework_id, &books.frameworks);
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

    /// Whether this executor is seen, of a framework that describes itself so.
    pub fn executor(&self, executor: &ExecutorInfo, framework: &FrameworkInfo) -> bool {
        let user = executor.command.user.as_ref().unwrap_or(&framework.user);
        self.framework(framework) && self.executors.allows(user.as_str())
    }

    /// Whether this role is seen: its weight, its frameworks and what is reserved for it.
    pub fn role(&self, role: &str) -> bool {
        self.roles.allows(role)
    }

    /// Whether this role's quota is seen.
    pub fn quota(&self, role: &str) -> bool {
        self.quotas.allows(role)
    }

    /// Books with what is seen of these, and nothing else. Costs nothing where everything is seen, else a look at each task.
    pub fn books(&self, books: &Arc<Books>) -> Arc<Books> {
        if self.is_whole() {
            return books.clone();
        }
        let mut seen = Books::clone(books);
        let of_known = seen.frameworks.iter().map(|one| (&one.id, &one.info));
        let of_completed = seen.frameworks.completed();
        let of_completed = of_completed.map(|one| (&one.framework.id, &one.framework.info));
        let infos: BTreeMap<FrameworkId, FrameworkInfo> = of_known
            .chain(of_completed)
            .map(|(id, info)| (id.clone(), info.clone()))
            .collect();
        // What belongs to a framework that nobody knows is seen by none who does not see everything.
        let task = |task: &Task| {
            let info = infos.get(&task.framework_id);
            info.is_some_and(|info| self.task(task, info))
        };
        seen.tasks.keep_seen(&task, |owner, executor| {
            let info = infos.get(owner);
            info.is_some_and(|info| self.executor(executor, info))
        });
        seen.frameworks
            .keep_seen(|info| self.framework(info), &task);
        let quotas = books.quotas.iter().filter(|(role, _)| self.quota(role));
        seen.quotas = Arc::new(
            quotas
                .map(|(role, quota)| (role.clone(), quota.clone()))
                .collect(),
        );
        let weights = books.weights.iter().filter(|(role, _)| self.role(role));
        seen.weights = Arc::new(
            weights
                .map(|(role, weight)| (role.clone(), *weight))
                .collect(),
        );
        seen.roles_seen = Some(Arc::new(self.roles.clone()));
        Arc::new(seen)
    }
}

#[cfg(test)]
mod tests;
