//! Isolation: the containerizer's use of the isolators.
//!
//! Before its launch, a container is prepared by each isolator in turn; their plans together are
//! carried out by the launcher. After its last process has ended, the isolators clean up in the
//! opposite order, and only then its end is handled: they know whether it exceeded a limit. When
//! tasks come and go, the limits follow: a further task of an executor waits for them. They also
//! carry out the throttling of containers.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::isolator::{
    ContainerConfig, ContainerLimited, ContainerNetwork, ContainerResources, IsolatorRef,
    LaunchPlan, Limitation, NetworkRecovered, RecoverContainers, UpdateContainer,
};
use protocol::usage::Throttle;
use protocol::view::oversubscription::{CorrectionKind, CorrectionView};
use protocol::{ContainerId, TaskId};
use runtime::prelude::*;

use super::Containerizer;
use super::launches::settings::unmet;
use super::launches::times::LaunchPhase;
use super::machine::{Container, Phase};
use crate::launcher::ContainerEnd;

/// Time between two attempts to recover the containers of an isolator.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(1);
/// Time before limits are sent again that were not set; it doubles up to the maximum.
const LIMITS_INTERVAL: Duration = Duration::from_secs(1);
const LIMITS_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The isolators, and the containers that they know.
#[derive(Default)]
pub(super) struct Isolation {
    isolators: Vec<IsolatorRef>,
    containers: BTreeMap<ContainerId, Isolated>,
    /// The networks of containers that do not use that of the host, until their end is handled.
    networks: BTreeMap<ContainerId, ContainerNetwork>,
    /// Containers that isolators clean up after.
    cleaning: usize,
    /// Whether the isolators know the containers of an earlier agent process.
    is_recovered: bool,
    /// Containers that ended before all isolators were recovered, with their ends unless these are
    /// handled: the recovery may still list them as running, which must precede the clean-up.
    postponed: Vec<(ContainerId, Option<ContainerEnd>)>,
}

/// A container that isolators know.
#[derive(Debug, Default)]
struct Isolated {
    plan: LaunchPlan,
    /// Whether all isolators have prepared it.
    is_prepared: bool,
    /// The limits last sent.
    resources: ContainerResources,
    /// Whether they are sent again after a failure.
    is_retrying: bool,
}

impl Isolation {
    /// The merged plan of a container.
    pub(super) fn plan(&self, id: &ContainerId) -> LaunchPlan {
        let known = self.containers.get(id);
        known.map(|known| known.plan.clone()).unwrap_or_default()
    }

    /// The network of a container, if it is not that of the host.
    pub(super) fn network(&self, id: &ContainerId) -> Option<&ContainerNetwork> {
        self.networks.get(id)
    }

    /// The end of a container is handled.
    pub(super) fn forget_network(&mut self, id: &ContainerId) {
        self.networks.remove(id);
    }

    /// Whether the isolators know no container, and have cleaned up after those they knew.
    pub(super) fn is_unused(&self) -> bool {
        self.containers.is_empty() && self.cleaning == 0
    }

    /// Whether the containers of an earlier agent process are isolated again.
    pub(super) fn is_recovered(&self) -> bool {
        self.is_recovered || self.isolators.is_empty()
    }

    /// Whether the clean-up after this container has to wait for the recovery.
    fn must_wait(&self, id: &ContainerId) -> bool {
        !self.is_recovered() && self.containers.contains_key(id)
    }
}

impl Containerizer {
    /// Sets the isolators.
    #[must_use]
    pub fn with_isolators(mut self, isolators: Vec<IsolatorRef>) -> Self {
        self.isolation.isolators = isolators;
        self
    }

    /// Whether further tasks of this container wait for [`raise_limits`](Self::raise_limits).
    pub(super) fn is_isolated(&self, id: &ContainerId) -> bool {
        let known = self.isolation.containers.get(id);
        known.is_some_and(|known| known.is_prepared)
    }

    /// Names the recovered containers to the isolators.
    pub(super) fn recover_isolation(&mut self, ctx: &mut Context<Self>) {
        if self.isolation.isolators.is_empty() {
            return;
        }
        let live = self.containers.iter();
        let live = live.filter(|(_, container)| container.phase != Phase::Terminated);
        let ids: Vec<ContainerId> = live.map(|(_, container)| container.id.clone()).collect();
        let containers: Vec<ContainerConfig> = ids
            .iter()
            .filter_map(|id| self.container_config(id))
            .collect();
        for config in &containers {
            let isolated = Isolated {
                resources: config.resources.clone(),
                is_prepared: true,
                ..Isolated::default()
            };
            let id = config.container_id.clone();
            self.isolation.containers.insert(id, isolated);
        }
        let isolators = self.isolation.isolators.clone();
        let (containerizer, clock) = (ctx.pid().clone(), ctx.clock().clone());
        let recovering = async move {
            for isolator in isolators {
                let recover = RecoverContainers {
                    containers: containers.clone(),
                    containerizer: containerizer.clone(),
                };
                // It reports no exceeded limit before it knows the containers.
                while let Err(error) = isolator.recover(recover.clone()).await {
                    let isolator = isolator.pid();
                    tracing::error!(%isolator, %error, "containers not recovered; trying again");
                    clock.sleep(RECOVERY_INTERVAL).await;
                }
            }
        };
        ctx.then(recovering, |this, (), ctx| {
            this.isolation.is_recovered = true;
            this.lift_throttles(ctx);
            for (id, end) in std::mem::take(&mut this.isolation.postponed) {
                match end {
                    Some(end) => this.processes_ended(&id, end, ctx),
                    None => this.clean_up_rest(&id, ctx),
                }
            }
            this.tell_recovered();
        });
    }

    fn container_config(&self, id: &ContainerId) -> Option<ContainerConfig> {
        let (framework_id, container) = self.containers.entry(id)?;
        // An executor may have no task now.
        let first = container.tasks().next().map(|task| &task.info);
        let user = match first {
            Some(task) => task.user_in(&container.framework),
            None => container
                .executor
                .command
                .user
                .as_deref()
                .unwrap_or_default(),
        };
        let has_user = self.config.settings.switch_user && !user.is_empty();
        Some(ContainerConfig {
            container_id: id.clone(),
            sandbox: self.sandbox(framework_id, container),
            user: has_user.then(|| user.to_owned()),
            resources: container.resources(),
            is_command: container.is_command,
            container: container.executor.container.clone(),
            root: self.provisioning.of(id).map(|one| one.root.clone()),
            shares_limits: container.shares_limits(),
        })
    }

    /// Prepares a container whose sandbox exists, then fetches its files.
    pub(super) fn isolate(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        self.enter(id, LaunchPhase::Isolation, ctx);
        let is_wanted = |container: &Container| container.phase == Phase::Preparing;
        let is_wanted = self.containers.get(id).is_some_and(is_wanted);
        let config = self.container_config(id);
        let Some(config) = config.filter(|_| is_wanted) else {
            return self.fetch(id, ctx);
        };
        if self.isolation.isolators.is_empty() {
            let result = check_settings(&config, &LaunchPlan::default());
            return self.isolated(id, result, ctx);
        }
        let isolated = Isolated {
            resources: config.resources.clone(),
            ..Isolated::default()
        };
        self.isolation.containers.insert(id.clone(), isolated);
        let isolators = self.isolation.isolators.clone();
        let parent = id.parent().filter(|_| config.shares_limits);
        let updating = parent.and_then(|parent| self.update_isolators(&parent));
        let has_volumes =
            id.parent().is_some() && !config.resources.requests.persistent_volumes().is_empty();
        let preparing = async move {
            if let Some(updating) = updating {
                let updated = updating.await;
                updated.map_err(|problem| {
                    format!("Failed to update resources for container: {problem}")
                })?;
            }
            let mut plan = LaunchPlan::default();
            for isolator in isolators {
                match isolator.prepare(config.clone()).await {
                    Ok(more) => plan.merge(more),
                    Err(error) => return Err(error.to_string()),
                }
            }
            check_settings(&config, &plan)?;
            if has_volumes && !plan.namespaces.mount {
                let problem = "volumes of a task group need `filesystem/linux` in --isolation";
                return Err(problem.to_owned());
            }
            Ok(plan)
        };
        let id = id.clone();
        ctx.then(preparing, move |this, result, ctx| match result {
            Ok(plan) => {
                if let Some(network) = plan.network.clone() {
                    this.isolation.networks.insert(id.clone(), network);
                }
                if let Some(known) = this.isolation.containers.get_mut(&id) {
                    (known.plan, known.is_prepared) = (plan, true);
                }
                // Further tasks may have come meanwhile.
                let Some(updating) = this.update_isolators(&id) else {
                    return this.isolated(&id, Ok(()), ctx);
                };
                ctx.then(updating, move |this, result, ctx| {
                    this.isolated(&id, result, ctx);
                });
            }
            Err(problem) => this.isolated(&id, Err(problem), ctx),
        });
    }

    fn isolated(&mut self, id: &ContainerId, result: Result<(), String>, ctx: &mut Context<Self>) {
        if let Err(problem) = &result {
            self.counts.container_launch_errors += 1;
            tracing::warn!(container = %id, problem, "cannot isolate container");
        }
        match result {
            Ok(()) => self.fetch(id, ctx),
            Err(_) => self.with(id, ctx, |container| container.prepared(result)),
        }
    }

    /// Sends the limits of this container with a new task, which is held back until they are set.
    pub(super) fn raise_limits(
        &mut self,
        id: &ContainerId,
        task_id: &TaskId,
        ctx: &mut Context<Self>,
    ) {
        let Some(updating) = self.update_isolators(id) else {
            return self.limits_raised(id, task_id.clone(), ctx);
        };
        let (id, task_id) = (id.clone(), task_id.clone());
        ctx.then(updating, move |this, result, ctx| match result {
            Ok(()) => this.limits_raised(&id, task_id, ctx),
            Err(problem) => {
                let problem = format!("Failed to update resources for container: {problem}");
                this.with(&id, ctx, |container| container.refuse(&task_id, problem));
                // Some isolators may have the limits with the refused task.
                this.retry_limits(id, ctx);
            }
        });
    }

    fn limits_raised(&mut self, id: &ContainerId, task_id: TaskId, ctx: &mut Context<Self>) {
        let Some((framework_id, container)) = self.containers.entry(id) else {
            return;
        };
        match container.is_checkpointed() {
            true => {
                let framework_id = framework_id.clone();
                self.record(&framework_id, Vec::new(), vec![(id.clone(), task_id)], ctx);
            }
            false => self.with(id, ctx, |container| container.release(&task_id)),
        }
    }

    /// Lowers the limits of this container after the end of a task.
    pub(super) fn lower_limits(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        // A command ends with its task. A task that is held back waits for its own update.
        let may_shrink = |one: &Container| {
            !one.is_command && !one.holds_tasks_back() && one.phase != Phase::Terminated
        };
        let may_shrink = self.containers.get(id).is_some_and(may_shrink);
        if !may_shrink || !self.is_isolated(id) {
            return;
        }
        let Some(updating) = self.update_isolators(id) else {
            return;
        };
        let id = id.clone();
        ctx.then(updating, move |this, result, ctx| {
            if let Err(problem) = result {
                tracing::warn!(container = %id, problem, "cannot lower its limits");
                this.retry_limits(id, ctx);
            }
        });
    }

    /// Adds a correction to the log; one of a nested container counts with its executor's.
    pub(super) fn corrected(
        &mut self,
        id: &ContainerId,
        kind: CorrectionKind,
        reason: &str,
        problem: Option<String>,
        ctx: &Context<Self>,
    ) {
        let found = self.containers.entry(id);
        let Some((framework_id, container)) = found.filter(|(_, one)| one.parent().is_none())
        else {
            return;
        };
        let tasks = self.tasks_in(container);
        let tasks = tasks.filter(|task| !task.state.is_terminal());
        let correction = CorrectionView {
            at: ctx.clock().wall(),
            framework_id: framework_id.clone(),
            executor_id: container.executor.executor_id.clone(),
            container_id: id.clone(),
            tasks: tasks.map(|task| task.info.task_id.clone()).collect(),
            kind,
            reason: reason.to_owned(),
            problem,
        };
        self.corrections.note(correction);
    }

    /// Throttles a container, and those nested in it that have limits of their own.
    pub(super) fn throttle(
        &mut self,
        id: &ContainerId,
        degree: Throttle,
        reason: &str,
        ctx: &mut Context<Self>,
    ) {
        let inside = self.containers.inside(id);
        let own = inside.filter(|one| !one.shares_limits());
        let mut all: Vec<ContainerId> = own.map(|one| one.id.clone()).collect();
        all.push(id.clone());
        for id in all {
            if self.is_isolated(&id) {
                self.throttle_one(id, degree, reason.to_owned(), ctx);
            } else {
                tracing::debug!(container = %id, "not throttled: no isolator knows it");
            }
        }
    }

    fn throttle_one(
        &mut self,
        id: ContainerId,
        degree: Throttle,
        reason: String,
        ctx: &mut Context<Self>,
    ) {
        let degree = degree.within_bounds();
        let kind = match degree.is_none() {
            true => CorrectionKind::Restore,
            false => CorrectionKind::Throttle(degree),
        };
        let container = self.containers.get_mut(&id);
        let Some(before) = container.and_then(|container| container.set_throttle(degree)) else {
            return;
        };
        let Some(updating) = self.update_isolators(&id) else {
            return;
        };
        ctx.then(updating, move |this, result, ctx| match result {
            Ok(()) => {
                tracing::info!(container = %id, %degree, "throttled");
                this.corrected(&id, kind, &reason, None, ctx);
                this.report_throttle(&id, degree, ctx);
            }
            Err(problem) => {
                tracing::warn!(container = %id, %degree, problem, "cannot throttle");
                this.corrected(&id, kind, &reason, Some(problem.clone()), ctx);
                // The controller sees that, and may advise it again. A later degree stays.
                if let Some(container) = this.containers.get_mut(&id)
                    && container.throttle() == Some(degree)
                {
                    container.set_throttle(before);
                }
                this.retry_limits(id, ctx);
            }
        });
    }

    fn report_throttle(&mut self, id: &ContainerId, degree: Throttle, ctx: &mut Context<Self>) {
        for id in self.sharing_limits(id) {
            self.with(&id, ctx, |container| container.report_throttle(degree));
        }
    }

    /// How a container is throttled now.
    pub(super) fn throttle_of(&self, id: &ContainerId) -> Throttle {
        let container = self.containers.get(id);
        let holder = container.filter(|one| one.shares_limits());
        let holder = holder.and_then(|one| self.containers.get(&one.parent()?));
        let throttle = holder.or(container).and_then(Container::throttle);
        throttle.unwrap_or_default()
    }

    /// An earlier agent process may have throttled these containers.
    fn lift_throttles(&mut self, ctx: &mut Context<Self>) {
        let lent = self.containers.iter().map(|(_, one)| one);
        let lent = lent.filter(|one| one.throttle().is_some() && self.is_isolated(&one.id));
        let lent: Vec<ContainerId> = lent.map(|one| one.id.clone()).collect();
        for id in lent {
            self.limits_not_set(&id);
            let Some(updating) = self.update_isolators(&id) else {
                continue;
            };
            ctx.then(updating, move |this, result, ctx| match result {
                Ok(()) => this.report_no_throttle(&id, ctx),
                Err(problem) => {
                    tracing::warn!(container = %id, problem, "cannot lift its throttling");
                    this.retry_limits(id, ctx);
                }
            });
        }
    }

    /// The limits of a container are set. If it is not throttled, its tasks do not stay labelled.
    fn report_no_throttle(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        if !self.throttle_of(id).is_none() {
            return;
        }
        for id in self.sharing_limits(id) {
            self.with(&id, ctx, Container::report_no_throttle);
        }
    }

    /// A container, and those in it that share its limits.
    fn sharing_limits(&self, id: &ContainerId) -> Vec<ContainerId> {
        let inside = self.containers.inside(id);
        let shared = inside.filter(|one| one.shares_limits());
        let shared = shared.map(|one| one.id.clone());
        shared.chain([id.clone()]).collect()
    }

    /// The limits are sent again with the next change.
    fn limits_not_set(&mut self, id: &ContainerId) {
        if let Some(known) = self.isolation.containers.get_mut(id) {
            known.resources = ContainerResources::default();
        }
    }

    /// Sends the current limits again until they are accepted or the container is gone: a failed
    /// update may have set a part of them.
    fn retry_limits(&mut self, id: ContainerId, ctx: &mut Context<Self>) {
        self.limits_not_set(&id);
        if let Some(known) = self.isolation.containers.get_mut(&id)
            && !known.is_retrying
        {
            known.is_retrying = true;
            self.retry_limits_after(LIMITS_INTERVAL, id, ctx);
        }
    }

    fn retry_limits_after(&mut self, pause: Duration, id: ContainerId, ctx: &mut Context<Self>) {
        ctx.after(pause, move |this, ctx| {
            let Some(updating) = this.update_isolators(&id) else {
                return this.limits_set(&id);
            };
            ctx.then(updating, move |this, result, ctx| {
                let Err(problem) = result else {
                    this.limits_set(&id);
                    return this.report_no_throttle(&id, ctx);
                };
                tracing::warn!(container = %id, problem, "limits not set; trying again");
                this.limits_not_set(&id);
                this.retry_limits_after((pause * 2).min(LIMITS_INTERVAL_MAX), id, ctx);
            });
        });
    }

    /// There is no need to send the limits again.
    fn limits_set(&mut self, id: &ContainerId) {
        if let Some(known) = self.isolation.containers.get_mut(id) {
            known.is_retrying = false;
        }
    }

    fn update_isolators(
        &mut self,
        id: &ContainerId,
    ) -> Option<impl Future<Output = Result<(), String>> + use<>> {
        let resources = self.containers.get(id)?.resources();
        let known = self.isolation.containers.get_mut(id)?;
        if known.resources == resources {
            return None;
        }
        known.resources = resources.clone();
        let (isolators, container_id) = (self.isolation.isolators.clone(), id.clone());
        Some(async move {
            for isolator in isolators {
                let update = UpdateContainer {
                    container_id: container_id.clone(),
                    resources: resources.clone(),
                };
                isolator
                    .update(update)
                    .await
                    .map_err(|error| error.to_string())?;
            }
            Ok(())
        })
    }

    /// All processes of a container have ended: cleans up, then handles its end.
    pub(super) fn processes_ended(
        &mut self,
        id: &ContainerId,
        end: ContainerEnd,
        ctx: &mut Context<Self>,
    ) {
        if self.isolation.containers.contains_key(id)
            && let Some(container) = self.containers.get_mut(id)
        {
            container.processes_gone();
        }
        if self.isolation.must_wait(id) {
            return self.isolation.postponed.push((id.clone(), Some(end)));
        }
        let Some(cleaning) = self.clean_up(id) else {
            self.with(id, ctx, |container| container.ended(end));
            return;
        };
        let id = id.clone();
        ctx.then(cleaning, move |this, cleaned: CleanedUp, ctx| {
            this.cleaned_up(&cleaned);
            this.with(&id, ctx, |container| {
                if let Some(limitation) = cleaned.limitation {
                    container.exceeded(limitation);
                }
                container.ended(end)
            });
        });
    }

    /// Cleans up after a container that was not launched or was lost: its end is handled already.
    pub(super) fn clean_up_rest(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        if self.isolation.must_wait(id) {
            return self.isolation.postponed.push((id.clone(), None));
        }
        if let Some(cleaning) = self.clean_up(id) {
            ctx.then(cleaning, |this, cleaned, _| this.cleaned_up(&cleaned));
        }
    }

    fn cleaned_up(&mut self, cleaned: &CleanedUp) {
        self.isolation.cleaning -= 1;
        self.counts.container_destroy_errors += u64::from(cleaned.has_failed);
    }

    fn clean_up(&mut self, id: &ContainerId) -> Option<impl Future<Output = CleanedUp> + use<>> {
        self.isolation.containers.remove(id)?;
        self.isolation.cleaning += 1;
        let (isolators, id) = (self.isolation.isolators.clone(), id.clone());
        Some(async move {
            let mut cleaned = CleanedUp::default();
            for isolator in isolators.iter().rev() {
                match isolator.clean_up(id.clone()).await {
                    Ok(limitation) => cleaned.limitation = cleaned.limitation.or(limitation),
                    Err(error) => {
                        cleaned.has_failed = true;
                        let isolator = isolator.pid();
                        tracing::error!(container = %id, %isolator, %error, "clean-up failed");
                    }
                }
            }
            cleaned
        })
    }
}

/// The result of a container's clean-up.
#[derive(Default)]
struct CleanedUp {
    limitation: Option<Limitation>,
    /// Whether an isolator failed.
    has_failed: bool,
}

/// Fails if the plan leaves out a setting of the container.
fn check_settings(config: &ContainerConfig, plan: &LaunchPlan) -> Result<(), String> {
    let settings = config.container.as_deref();
    settings
        .and_then(|settings| unmet(settings, plan))
        .map_or(Ok(()), Err)
}

impl Handler<ContainerLimited> for Containerizer {
    type Result = ();
    fn handle(&mut self, limited: ContainerLimited, ctx: &mut Context<Self>) {
        let ContainerLimited {
            container_id,
            limitation,
        } = limited;
        tracing::info!(container = %container_id, limitation.message, "limit exceeded");
        self.with(&container_id, ctx, |container| {
            container.exceeded(limitation);
            container.destroy()
        });
    }
}

impl Handler<NetworkRecovered> for Containerizer {
    type Result = ();
    fn handle(&mut self, recovered: NetworkRecovered, ctx: &mut Context<Self>) {
        let NetworkRecovered {
            container_id,
            network,
        } = recovered;
        if self.isolation.containers.contains_key(&container_id) {
            let id = container_id.clone();
            self.isolation.networks.insert(container_id, network);
            self.restart_checks(&id, ctx);
        }
    }
}
