//! The checks of one command task: one actor for each container that has any.
//!
//! Performs the task's checks and its health check: each first after its delay, then each interval
//! after the end of the last one. Judges health (`verdict`), and reports to the containerizer,
//! which alone decides what follows. GETs and connections are made here (`probe`); commands are run
//! in the container, through the containerizer. Ends with its container's command; a result that is
//! late for it is lost.
//!
//! Mesos' executor lives on when the agent restarts; here the checks begin again: the first success
//! is reported again, failures in a row are counted anew, and the delay and the grace period go on.

mod probe;
mod verdict;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::task::check::{CheckKind, CheckTiming};
use protocol::text::reserved_labels::SLA;
use protocol::{CommandInfo, TaskInfo, Termination, Uuid};
use runtime::Instant;
use runtime::prelude::*;

use self::verdict::{Health, is_healthy};
use crate::container::machine::command::HealthChange;
use crate::launcher::ProgramEnd;

/// The shortest pause between two checks, whatever their interval: checks without a pause would
/// keep the agent busy.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What a check reports or requests.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckEvent {
    /// Run this command in the container, and report its end.
    Run(Uuid, CommandInfo),
    /// Kill this command.
    Kill(Uuid),
    /// A result of the health check that matters.
    Health(HealthChange),
    /// The result of the check at this place of [`TaskInfo::all_checks`] has changed; see
    /// [`v1::convert::check_result`].
    Result(usize, Option<i32>),
    /// The first check was successful. Only of tasks with an objective.
    Measured {
        /// Its duration.
        took: Duration,
        /// The value that the task has stated; a number in the header `Meros-Sla`.
        stated: Option<f64>,
    },
    /// The first check failed: a success would have taken at least this time, as far as known. Only
    /// of tasks with an objective.
    Missed(Duration),
}

/// Receives the events.
pub type CheckEvents = Arc<dyn Fn(CheckEvent) + Send + Sync>;

/// A command of a check has ended.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct CheckCommandEnded {
    /// Its id.
    pub program: Uuid,
    /// How.
    pub end: ProgramEnd,
}

/// Which of a task's checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Health,
    /// That at this place of [`TaskInfo::all_checks`].
    Result(usize),
}

/// The check that measures the objective of its task, if it has one.
const MEASURING: Which = Which::Result(0);

/// A check.
#[derive(Clone, Debug)]
struct Check {
    kind: CheckKind,
    timing: CheckTiming,
}

/// A command of a check.
struct RunningCommand {
    which: Which,
    timeout: Option<TimerHandle>,
    /// Whether its timeout has passed: it is being killed, and has counted as failed.
    is_late: bool,
}

/// The actor.
pub struct Checker {
    health: Option<(Check, Health)>,
    /// Those of [`TaskInfo::all_checks`], each with its last reported result.
    checks: Vec<(Check, Option<i32>)>,
    /// Whether the first of them measures an objective.
    measures: bool,
    /// Its last start.
    measuring_since: Instant,
    /// The age of the task when this actor was made.
    age: Duration,
    since: Instant,
    /// Commands whose end is not reported.
    running: BTreeMap<Uuid, RunningCommand>,
    events: CheckEvents,
    /// The namespace of its container's network, if that is not the host's.
    network: Option<PathBuf>,
}

impl Checker {
    /// The checks of this task, which has run for `age`.
    pub fn new(
        task: &TaskInfo,
        age: Duration,
        network: Option<PathBuf>,
        events: CheckEvents,
    ) -> Self {
        let health = task.health_check.as_ref().map(|health| {
            let check = Check {
                kind: health.kind.clone(),
                timing: health.timing,
            };
            (check, Health::of(health))
        });
        let checks = task.all_checks().map(|(_, check)| {
            let check = Check {
                kind: check.kind.clone(),
                timing: check.timing,
            };
            (check, None)
        });
        Self {
            health,
            checks: checks.collect(),
            measures: task.labels.contains_key(SLA),
            measuring_since: Instant::default(),
            age,
            since: Instant::default(),
            running: BTreeMap::new(),
            events,
            network,
        }
    }

    fn check(&self, which: Which) -> Option<&Check> {
        match which {
            Which::Health => self.health.as_ref().map(|(check, _)| check),
            Which::Result(index) => self.checks.get(index).map(|(check, _)| check),
        }
    }

    fn perform(&mut self, which: Which, ctx: &mut Context<Self>) {
        let Some(Check { kind, timing }) = self.check(which).cloned() else {
            return;
        };
        // One that the kernel cannot kill gets no successors.
        if self.running.values().any(|one| one.which == which) {
            self.done(which, None, None, ctx);
            return;
        }
        if which == MEASURING {
            self.measuring_since = ctx.clock().now();
        }
        let timeout = Some(timing.timeout).filter(|timeout| !timeout.is_zero());
        match kind {
            CheckKind::Command(command) => {
                let program = Uuid(ctx.node().fresh_uuid());
                let timeout = timeout.map(|timeout| {
                    ctx.after(timeout, move |this, ctx| this.timed_out(program, ctx))
                });
                let running = RunningCommand {
                    which,
                    timeout,
                    is_late: false,
                };
                self.running.insert(program, running);
                (self.events)(CheckEvent::Run(program, command));
            }
            other => {
                let (clock, network) = (ctx.clock().clone(), self.network.clone());
                let probing = async move {
                    let probing = probe::probe(&other, network.as_deref());
                    match timeout {
                        Some(timeout) => clock.timeout(timeout, probing).await.ok().flatten(),
                        None => probing.await,
                    }
                };
                ctx.then(probing, move |this, probed, ctx| {
                    let stated = probed.and_then(|probed| probed.stated);
                    this.done(which, probed.map(|probed| probed.result), stated, ctx);
                });
            }
        }
    }

    fn timed_out(&mut self, program: Uuid, ctx: &mut Context<Self>) {
        if let Some(running) = self.running.get_mut(&program) {
            running.is_late = true;
            let which = running.which;
            (self.events)(CheckEvent::Kill(program));
            self.done(which, None, None, ctx);
        }
    }

    fn done(
        &mut self,
        which: Which,
        result: Option<i32>,
        stated: Option<f64>,
        ctx: &mut Context<Self>,
    ) {
        if which == MEASURING && self.measures {
            let took = ctx.clock().now() - self.measuring_since;
            if let Some(check) = self.check(which) {
                let is_healthy = result.is_some_and(|result| is_healthy(&check.kind, result));
                (self.events)(match is_healthy {
                    true => CheckEvent::Measured { took, stated },
                    false => CheckEvent::Missed(took.max(check.timing.timeout)),
                });
            }
        }
        match which {
            Which::Health => {
                let age = self.age + (ctx.clock().now() - self.since);
                let change = self.health.as_mut().and_then(|(check, health)| {
                    let is_healthy = result.is_some_and(|result| is_healthy(&check.kind, result));
                    health.judge(is_healthy, age)
                });
                if let Some(change) = change {
                    (self.events)(CheckEvent::Health(change));
                }
            }
            Which::Result(index) => {
                if let Some((_, last)) = self.checks.get_mut(index)
                    && *last != result
                {
                    *last = result;
                    (self.events)(CheckEvent::Result(index, result));
                }
            }
        }
        if let Some(check) = self.check(which) {
            let interval = check.timing.interval.max(INTERVAL_MIN);
            ctx.after(interval, move |this, ctx| this.perform(which, ctx));
        }
    }
}

impl Actor for Checker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.since = ctx.clock().now();
        let results = (0..self.checks.len()).map(Which::Result);
        for which in results.chain([Which::Health]) {
            if let Some(check) = self.check(which) {
                let delay = check.timing.delay.saturating_sub(self.age);
                ctx.after(delay, move |this, ctx| this.perform(which, ctx));
            }
        }
    }
}

impl Process for Checker {
    fn accepts(_: &mut RemoteHandlers<Self>) {}
}

impl Handler<CheckCommandEnded> for Checker {
    type Result = ();
    fn handle(&mut self, ended: CheckCommandEnded, ctx: &mut Context<Self>) {
        let CheckCommandEnded { program, end } = ended;
        let ended = self.running.remove(&program);
        let Some(RunningCommand { which, timeout, .. }) = ended.filter(|ended| !ended.is_late)
        else {
            return;
        };
        if let Some(timeout) = timeout {
            ctx.cancel(timeout);
        }
        let result = match end {
            ProgramEnd::Ended(Termination::Exited(code)) => Some(code),
            ProgramEnd::Ended(Termination::Signaled(_)) => None,
            ProgramEnd::NotStarted(reason) => {
                tracing::info!(reason, "a check's command was not started");
                None
            }
        };
        self.done(which, result, None, ctx);
    }
}
