//! Checks: the containerizer's use of the checkers of command tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::{ContainerId, Labels, TaskInfo};
use runtime::prelude::*;
use v1::schema::NamedCheckStatus;

use crate::container::Containerizer;
use crate::container::launches::checks::{CheckCommandEnded, CheckEvent, Checker};
use crate::container::machine::Container;
use crate::launcher::ProgramEnd;

/// The checkers of containers whose command runs.
pub(in crate::container) type Checkers = BTreeMap<ContainerId, Handle<Checker>>;

/// An event of a checker.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
struct Checked {
    container_id: ContainerId,
    event: CheckEvent,
}

/// Adds the results of a task's checks, in the order of [`TaskInfo::all_checks`], to the labels of
/// a status.
pub(in crate::container) fn keep_check_results(
    labels: &mut Labels,
    task: &TaskInfo,
    results: &[Option<i32>],
) {
    let mut named = Vec::new();
    for ((name, check), result) in task.all_checks().zip(results) {
        let status = v1::convert::check_result(&check.kind, *result);
        match name {
            None => v1::convert::keep_check_status(labels, &status),
            Some(name) => named.push(NamedCheckStatus {
                name: name.to_owned(),
                status,
            }),
        }
    }
    v1::convert::keep_check_statuses(labels, named);
}

impl Containerizer {
    /// Starts the checks of a command.
    pub(in crate::container) fn start_checks(&mut self, id: &ContainerId, ctx: &Context<Self>) {
        let Some(container) = self.containers.get(id) else {
            return;
        };
        let Some(task) = container.tasks().next() else {
            return;
        };
        let (own, container_id) = (ctx.handle(), id.clone());
        let events = Arc::new(move |event| {
            let container_id = container_id.clone();
            own.tell_always(Checked {
                container_id,
                event,
            });
        });
        let network = self.isolation.network(id);
        let network = network.map(|network| network.namespace.clone());
        let checker = Checker::new(&task.info, container.age(), network, events);
        match ctx.node().spawn_unnamed("checker", checker) {
            Ok(checker) => {
                self.checkers.insert(id.clone(), checker);
            }
            Err(error) => tracing::error!(container = %id, %error, "cannot start its checks"),
        }
    }

    /// Starts the checks of a command again, if they have begun: its network is known now.
    pub(in crate::container) fn restart_checks(&mut self, id: &ContainerId, ctx: &Context<Self>) {
        if let Some(checker) = self.checkers.remove(id) {
            checker.stop();
            self.start_checks(id, ctx);
        }
    }

    /// Stops the checks of a container whose command is ending or has ended.
    pub(in crate::container) fn stop_checks(&mut self, id: &ContainerId) {
        let is_checked = self.containers.get(id).is_some_and(Container::is_checked);
        if !is_checked && let Some(checker) = self.checkers.remove(id) {
            checker.stop();
        }
    }

    /// A command of a check has ended.
    pub(in crate::container) fn check_command_ended(
        &self,
        id: &ContainerId,
        program: protocol::Uuid,
        end: ProgramEnd,
    ) {
        if let Some(checker) = self.checkers.get(id) {
            checker.tell_always(CheckCommandEnded { program, end });
        }
    }
}

impl Handler<Checked> for Containerizer {
    type Result = ();
    fn handle(&mut self, checked: Checked, ctx: &mut Context<Self>) {
        let Checked {
            container_id: id,
            event,
        } = checked;
        if !self.containers.get(&id).is_some_and(Container::is_checked) {
            return; // It has ended meanwhile, with all its processes.
        }
        match event {
            CheckEvent::Run(program, command) => self.launcher.run_program(&id, program, command),
            CheckEvent::Kill(program) => self.launcher.kill_program(&id, program),
            CheckEvent::Health(change) => {
                self.with(&id, ctx, |container| container.health_changed(change));
            }
            CheckEvent::Result(index, result) => {
                self.with(&id, ctx, |container| container.check_changed(index, result));
            }
            CheckEvent::Measured { took, stated } => {
                let now = ctx.clock().wall();
                if let Some(container) = self.containers.get_mut(&id) {
                    container.check_measured(took, stated, now);
                }
            }
            CheckEvent::Missed(took) => {
                let now = ctx.clock().wall();
                if let Some(container) = self.containers.get_mut(&id) {
                    container.check_missed(took, now);
                }
            }
        }
    }
}
