//! Sight: what of an agent somebody may see (SPEC 3.7: `view_*`, `access_sandboxes`).
//!
//! Pure. Gives a survey in which nothing else is, so that whatever is made of it shows no more. Sums of the whole agent stay whole.

use authority::{Acls, Action, Approver, Subject};
use protocol::{ExecutorInfo, FrameworkInfo, TaskInfo};

use super::places::Sandbox;
use crate::container::events::Survey;

/// As whom a task runs.
fn user_of_task<'a>(task: &'a TaskInfo, framework: &'a FrameworkInfo) -> &'a str {
    let command = task.command.as_ref();
    let own = command.or(task.executor.as_ref().map(|executor| &executor.command));
    let user = own.and_then(|command| command.user.as_deref());
    user.unwrap_or(&framework.user)
}

/// As whom an executor runs.
fn user<'a>(executor: &'a ExecutorInfo, framework: &'a FrameworkInfo) -> &'a str {
    executor.command.user.as_deref().unwrap_or(&framework.user)
}

/// The part of a survey that this subject may see.
pub(super) fn seen(mut survey: Survey, acls: &Acls, subject: &Subject) -> Survey {
    let [frameworks, executors, containers, tasks] = [
        Action::ViewFrameworks,
        Action::ViewExecutors,
        Action::ViewContainers,
        Action::ViewTasks,
    ]
    .map(|action| acls.approver(subject, action));
    let all = [&frameworks, &executors, &containers, &tasks];
    if all.into_iter().all(Approver::allows_all) {
        return survey;
    }
    survey
        .frameworks
        .retain(|framework| frameworks.allows(framework.user.as_str()));
    let known = &survey.frameworks;
    survey.containers.retain_mut(|container| {
        let mut own = known.iter();
        let own = own.find(|framework| framework.id.as_ref() == Some(&container.framework_id));
        let Some(framework) = own else { return false };
        container
            .tasks
            .retain(|(task, _)| tasks.allows(user_of_task(task, framework)));
        let user = user(&container.executor, framework);
        executors.allows(user) && containers.allows(user)
    });
    survey
}

/// Whether the subject may look into this sandbox. Of one that is over nobody knows whose it was: it is for those who may look into any.
pub(super) fn may_enter(
    sandbox: &Sandbox,
    survey: &Survey,
    acls: &Acls,
    subject: &Subject,
) -> Result<(), authority::Forbidden> {
    let mut frameworks = survey.frameworks.iter();
    let framework = frameworks.find(|one| {
        let id = one.id.as_ref();
        id.is_some_and(|id| id.as_str() == sandbox.framework)
    });
    let mut containers = survey.containers.iter();
    let container = containers.find(|one| {
        one.framework_id.as_str() == sandbox.framework
            && one.executor.executor_id.as_str() == sandbox.executor
    });
    let owner = match (framework, container) {
        (Some(framework), Some(container)) => Some(user(&container.executor, framework)),
        _ => None,
    };
    acls.check(subject, Action::AccessSandboxes, owner)
}
