//! Visibility: the parts of an agent that a subject may see (`view_*`, `access_sandboxes`).
//!
//! Pure. Reduces a survey of the containers to the visible ones, so every page made of it is
//! filtered. Totals of the agent are not filtered.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::{Acls, Action, Approver, Forbidden, Subject};
use protocol::view::oversubscription::CorrectionView;
use protocol::{ContainerId, ExecutorInfo, FrameworkId, FrameworkInfo};
use resources::{Conversion, Resources, Role};

use crate::container::events::{ContainerView, ContainersView};
use crate::operations::KnownOperation;

/// The user that an executor runs as.
fn user<'a>(executor: &'a ExecutorInfo, framework: &'a FrameworkInfo) -> &'a str {
    executor.command.user.as_deref().unwrap_or(&framework.user)
}

/// The user of the executor in this container, if it is there.
pub(crate) fn user_of(survey: &ContainersView, id: &ContainerId) -> Option<String> {
    let container = survey.containers.iter().find(|one| one.id == *id)?;
    let mut frameworks = survey.frameworks.iter();
    let own = frameworks.find(|one| one.id.as_ref() == Some(&container.framework_id))?;
    Some(user(&container.executor, own).to_owned())
}

/// Filters by `view_frameworks`, `view_executors` and `view_tasks`.
pub(crate) fn visible(
    mut survey: ContainersView,
    acls: &Acls,
    subject: &Subject,
) -> ContainersView {
    let [frameworks, executors, tasks] = [
        Action::ViewFrameworks,
        Action::ViewExecutors,
        Action::ViewTasks,
    ]
    .map(|action| acls.approver(subject, action));
    let all = [&frameworks, &executors, &tasks];
    if all.into_iter().all(Approver::allows_all) {
        return survey;
    }
    let is_visible = |framework: &FrameworkInfo| frameworks.allows(framework.user.as_str());
    survey.frameworks.retain(is_visible);
    survey.completed_frameworks.retain(is_visible);
    let known: Vec<&FrameworkInfo> = known(&survey.frameworks, &survey.completed_frameworks);
    let retain = |container: &mut ContainerView| {
        let mut own = known.iter();
        let own = own.find(|framework| framework.id.as_ref() == Some(&container.framework_id));
        let Some(framework) = own else { return false };
        for all in [&mut container.tasks, &mut container.completed] {
            all.retain(|(task, _)| tasks.allows(task.user_in(framework)));
        }
        executors.allows(user(&container.executor, framework))
    };
    survey.containers.retain_mut(retain);
    survey
        .completed
        .retain_mut(|run| retain(Arc::make_mut(run)));
    survey
}

/// Drops corrections of executors that the subject may not see, or that are forgotten, and such
/// tasks, unless it may see all.
pub(crate) fn retain_visible_corrections(
    corrections: &mut Vec<CorrectionView>,
    survey: ContainersView,
    acls: &Acls,
    subject: &Subject,
) {
    let actions = [
        Action::ViewFrameworks,
        Action::ViewExecutors,
        Action::ViewTasks,
    ];
    let mut approvers = actions.iter().map(|action| acls.approver(subject, *action));
    if approvers.all(|approver| approver.allows_all()) {
        return;
    }
    let survey = visible(survey, acls, subject);
    let past = survey.completed.iter().map(AsRef::as_ref);
    let shown: BTreeMap<&ContainerId, &ContainerView> = { survey.containers.iter().chain(past) }
        .map(|container| (&container.id, container))
        .collect();
    corrections.retain_mut(|one| {
        let container = shown.get(&one.container_id);
        one.tasks.retain(|id| {
            container.is_some_and(|container| {
                let mut tasks = container.tasks.iter().chain(&container.completed);
                tasks.any(|(task, _)| task.task_id == *id)
            })
        });
        container.is_some()
    });
}

/// Filters by `view_containers` alone, as in Mesos, for endpoints that list containers.
pub(crate) fn visible_containers(
    mut survey: ContainersView,
    acls: &Acls,
    subject: &Subject,
) -> ContainersView {
    let approver = acls.approver(subject, Action::ViewContainers);
    if approver.allows_all() {
        return survey;
    }
    let known: Vec<&FrameworkInfo> = known(&survey.frameworks, &survey.completed_frameworks);
    let is_visible = |container: &ContainerView| {
        let mut own = known.iter();
        let own = own.find(|framework| framework.id.as_ref() == Some(&container.framework_id));
        own.is_some_and(|framework| approver.allows(user(&container.executor, framework)))
    };
    survey.containers.retain(is_visible);
    survey.completed.retain(|run| is_visible(run));
    survey
}

/// Present and completed frameworks.
fn known<'a>(here: &'a [FrameworkInfo], were: &'a [FrameworkInfo]) -> Vec<&'a FrameworkInfo> {
    here.iter().chain(were).collect()
}

/// Filters operations by framework and role. One with an unknown framework or conversion is visible
/// only to subjects that may see all.
pub(crate) fn visible_operations(
    mut all: Vec<KnownOperation>,
    survey: &ContainersView,
    acls: &Acls,
    subject: &Subject,
) -> Vec<KnownOperation> {
    let of = |action| acls.approver(subject, action);
    let (frameworks, roles) = (of(Action::ViewFrameworks), of(Action::ViewRoles));
    let is_visible = |id: &FrameworkId| {
        let known = known(&survey.frameworks, &survey.completed_frameworks);
        let mut known = known.into_iter();
        let framework = known.find(|framework| framework.id.as_ref() == Some(id));
        framework.map_or(frameworks.allows_all(), |framework| {
            frameworks.allows(framework.user.as_str())
        })
    };
    let shows = |conversion: &Conversion| {
        let named = conversion.named();
        visible_resources(&named, &roles) == named
    };
    all.retain(|one| {
        let shown = one.conversion.as_ref().map_or(roles.allows_all(), shows);
        shown && is_visible(&one.update.framework_id)
    });
    all
}

/// Filters resources by role: drops those reserved for or allocated to other roles.
pub(crate) fn visible_resources(all: &Resources, roles: &Approver) -> Resources {
    let shows = |role: &Role| roles.allows(role.as_str());
    all.filter(|one| {
        let mut stack = one.reservations().iter();
        stack.all(|reservation| shows(&reservation.role)) && one.allocation_role().is_none_or(shows)
    })
}

/// The user of an executor run; `None` if the run is forgotten.
pub(crate) fn owner<'a>(
    survey: &'a ContainersView,
    framework: &str,
    executor: &str,
    run: &str,
) -> Option<&'a str> {
    let remembered = survey.completed.iter().map(AsRef::as_ref);
    let container = survey.containers.iter().chain(remembered).find(|one| {
        one.id.as_str() == run
            && one.framework_id.as_str() == framework
            && one.executor.executor_id.as_str() == executor
    })?;
    let known = known(&survey.frameworks, &survey.completed_frameworks);
    let own = known
        .into_iter()
        .find(|one| one.id.as_ref() == Some(&container.framework_id))?;
    Some(user(&container.executor, own))
}

/// The runs with sandboxes that the subject may read, oldest first. Excludes runs of unknown
/// frameworks.
pub(crate) fn readable_sandboxes<'a>(
    survey: &'a ContainersView,
    acls: &Acls,
    subject: &Subject,
) -> Vec<&'a ContainerView> {
    let approver = acls.approver(subject, Action::AccessSandboxes);
    let known = known(&survey.frameworks, &survey.completed_frameworks);
    let known: BTreeMap<_, _> = known
        .into_iter()
        .filter_map(|framework| Some((framework.id.as_ref()?, framework)))
        .collect();
    let remembered = survey.completed.iter().map(AsRef::as_ref);
    let all = remembered.chain(&survey.containers);
    all.filter(|run| {
        let framework = known.get(&run.framework_id);
        framework.is_some_and(|framework| approver.allows(user(&run.executor, framework)))
    })
    .collect()
}

/// Whether the subject may read a sandbox of this owner. If the owner is unknown, only subjects
/// that may read all sandboxes.
pub(crate) fn check_sandbox_access(
    owner: Option<&str>,
    acls: &Acls,
    subject: &Subject,
) -> Result<(), Forbidden> {
    let action = Action::AccessSandboxes;
    match owner {
        Some(_) => acls.check(subject, action, owner),
        None if acls.approver(subject, action).allows_all() => Ok(()),
        None => Err(Forbidden {
            principal: subject.principal.clone(),
            action,
            object: None,
        }),
    }
}
