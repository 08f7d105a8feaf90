//! A container whose executor is cut off: its stream of HTTP or its link broke, and it may subscribe again.
//!
//! Pure. Which executors may, and what becomes of those that do not in time. What it may not have heard it is told again when it is back
//! ([`Container::catch_up`](super::Container::catch_up)); how long it may take is the containerizer's to say.

use std::time::Duration;

use protocol::{Capability, Reason, TaskState, duration};

use super::{Container, Effect, Phase};

/// What is remembered of an executor that comes and goes.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// Whether somebody will look whether it has come back.
    awaited: bool,
    /// Whether it has come back since, and has left again.
    left_again: bool,
}

impl Absence {
    /// Its executor hears nothing any more. However often it comes and goes, only one deadline is set.
    fn begin(&mut self) -> Vec<Effect> {
        match self.awaited {
            true => {
                self.left_again = true;
                Vec::new()
            }
            false => {
                self.awaited = true;
                vec![Effect::AwaitReturn]
            }
        }
    }
}

impl Container {
    /// The executor's actor is gone. Its process usually ends at the same moment, unless it was only a stream or a link that broke: who hears over
    /// HTTP, or outlives its agent and has something to do, may subscribe again.
    pub fn disconnected(&mut self, grace: Duration) -> Vec<Effect> {
        self.actor = None;
        if self.phase != Phase::Running {
            return Vec::new();
        }
        if self.is_streamed() || self.is_kept() && self.has_live_tasks() {
            return self.absence.begin();
        }
        self.phase = Phase::Terminating;
        match self.has_live_tasks() {
            true => vec![Effect::Destroy],
            false => vec![Effect::DestroyAfter(grace)],
        }
    }

    /// The time in which an executor that was cut off should have subscribed again is over.
    pub fn return_overdue(&mut self, patience: Duration) -> Vec<Effect> {
        let is_away = self.phase == Phase::Running && self.actor.is_none();
        self.absence.awaited = false;
        let left_again = std::mem::take(&mut self.absence.left_again);
        if !is_away {
            return Vec::new();
        }
        if left_again {
            return self.absence.begin();
        }
        let patience = duration::format(patience);
        self.fate = Some((
            TaskState::Gone.as_told(self.framework.can(Capability::PartitionAware)),
            Reason::ExecutorReregistrationTimeout,
            format!("Executor did not reregister within {patience}"),
        ));
        self.destroy()
    }
}
