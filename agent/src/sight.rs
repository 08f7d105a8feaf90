//! Sight: what of an agent somebody may see (SPEC 3.7: `view_*`, `access_sandboxes`).
//!
//! Pure. Gives a survey in which nothing else is, so that whatever is made of it shows no more. Sums of the whole agent stay whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::{Acls, Action, Approver, Forbidden, Subject};
use protocol::{ExecutorInfo, FrameworkId, FrameworkInfo};
use resources::{Conversion, Resources, Role};

use crate::container::events::{ContainerView, Survey};
use crate::operations::KnownOperation;

/// As whom an executor runs.
fn user<'a>(executor: &'a ExecutorInfo, framework: &'a FrameworkInfo) -> &'a str {
    executor.command.user.as_deref().unwrap_or(&framework.user)
}

/// The part of a survey that this subject may see where frameworks, executors and tasks are told.
pub(crate) fn seen(mut survey: Survey, acls: &Acls, subject: &Subject) -> Survey {
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
    let is_seen = |framework: &FrameworkInfo| frameworks.allows(framework.user.as_str());
    survey.frameworks.retain(is_seen);
    survey.completed_frameworks.retain(is_seen);
    let known: Vec<&FrameworkInfo> = known(&survey.frameworks, &survey.completed_frameworks);
    let keeps = |container: &mut ContainerView| {
        let mut own = known.iter();
        let own = own.find(|framework| framework.id.as_ref() == Some(&container.framework_id));
        let Some(framework) = own else { return false };
        for all in [&mut container.tasks, &mut container.completed] {
            all.retain(|(task, _)| tasks.allows(task.user_in(framework)));
        }
        executors.allows(user(&container.executor, framework))
    };
    survey.containers.retain_mut(keeps);
    survey.completed.retain_mut(|run| keeps(Arc::make_mut(run)));
    survey
}

/// The part of a survey that this subject may see where containers are told, whatever else of them it may see: as in Mesos, `view_containers`
/// alone is about that, and about nothing else.
pub(crate) fn seen_containers(mut survey: Survey, acls: &Acls, subject: &Subject) -> Survey {
    let may = acls.approver(subject, Action::ViewContainers);
    if may.allows_all() {
        return survey;
    }
    let known: Vec<&FrameworkInfo> = known(&survey.frameworks, &survey.completed_frameworks);
    let is_seen = |container: &ContainerView| {
        let mut own = known.iter();
        let own = own.find(|framework| framework.id.as_ref() == Some(&container.framework_id));
        own.is_some_and(|framework| may.allows(user(&container.executor, framework)))
    };
    survey.containers.retain(is_seen);
    survey.completed.retain(|run| is_seen(run));
    survey
}

/// The frameworks that are here, and those that were.
fn known<'a>(here: &'a [FrameworkInfo], were: &'a [FrameworkInfo]) -> Vec<&'a FrameworkInfo> {
    here.iter().chain(were).collect()
}

/// Of these operations, those of frameworks that are seen and of roles that are. What nobody here knows the framework or the resources of is for
/// those who see all.
pub(crate) fn operations(
    mut all: Vec<KnownOperation>,
    survey: &Survey,
    acls: &Acls,
    subject: &Subject,
) -> Vec<KnownOperation> {
    let of = |action| acls.approver(subject, action);
    let (frameworks, roles) = (of(Action::ViewFrameworks), of(Action::ViewRoles));
    let is_seen = |id: &FrameworkId| {
        let known = known(&survey.frameworks, &survey.completed_frameworks);
        let mut known = known.into_iter();
        let framework = known.find(|framework| framework.id.as_ref() == Some(id));
        framework.map_or(frameworks.allows_all(), |framework| {
            frameworks.allows(framework.user.as_str())
        })
    };
    let shows = |conversion: &Conversion| {
        let named = conversion.named();
        resources(&named, &roles) == named
    };
    all.retain(|one| {
        let shown = one.conversion.as_ref().map_or(roles.allows_all(), shows);
        shown && is_seen(&one.update.framework_id)
    });
    all
}

/// Of an agent's resources, those of roles that are seen: what is reserved for others, or allocated to them, is left out.
pub(crate) fn resources(all: &Resources, roles: &Approver) -> Resources {
    let shows = |role: &Role| roles.allows(role.as_str());
    all.filter(|one| {
        let mut stack = one.reservations().iter();
        stack.all(|reservation| shows(&reservation.role)) && one.allocation_role().is_none_or(shows)
    })
}

/// As whom the executor runs that this run of an executor is of. Of a run that is over and forgotten nobody knows it.
pub(crate) fn owner<'a>(
    survey: &'a Survey,
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

/// The runs into whose sandboxes this subject may look, oldest first. Those of frameworks that nobody knows are not among them.
pub(crate) fn enterable<'a>(
    survey: &'a Survey,
    acls: &Acls,
    subject: &Subject,
) -> Vec<&'a ContainerView> {
    let may = acls.approver(subject, Action::AccessSandboxes);
    let known = known(&survey.frameworks, &survey.completed_frameworks);
    let known: BTreeMap<_, _> = known
        .into_iter()
        .filter_map(|framework| Some((framework.id.as_ref()?, framework)))
        .collect();
    let remembered = survey.completed.iter().map(AsRef::as_ref);
    let all = remembered.chain(&survey.containers);
    all.filter(|run| {
        let framework = known.get(&run.framework_id);
        framework.is_some_and(|framework| may.allows(user(&run.executor, framework)))
    })
    .collect()
}

/// Whether the subject may look into a sandbox of this owner. One that nobody knows the owner of is for those who may look into every one.
pub(crate) fn may_enter(
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
