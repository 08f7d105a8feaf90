//! A container whose executor is disconnected and may subscribe again.
//!
//! Pure. Decides which executors may return and what happens after the deadline. Lost messages are
//! repeated by [`Container::resend_lost`](super::Container::resend_lost); the containerizer chooses
//! the deadline.

use std::time::Duration;

use protocol::text::duration;
use protocol::{Capability, Reason, TaskState};

use super::{Container, Effect, Phase};

/// Disconnections of an executor.
#[derive(Debug, Default)]
pub(super) struct Disconnections {
    /// Whether a deadline is set.
    awaited: bool,
    /// Whether it returned and disconnected again since.
    left_again: bool,
}

impl Disconnections {
    /// Starts a disconnection. At most one deadline is set at a time.
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
    /// The executor's actor is gone. Usually its process ends too; but an HTTP executor, or a
    /// checkpointed one with live tasks, may have lost only its connection and subscribe again.
    pub fn disconnected(&mut self, grace: Duration) -> Vec<Effect> {
        self.actor = None;
        if self.phase != Phase::Running {
            return Vec::new();
        }
        if self.uses_http() || self.is_checkpointed() && self.has_live_tasks() {
            return self.disconnections.begin();
        }
        self.phase = Phase::Terminating;
        match self.has_live_tasks() {
            true => vec![Effect::Destroy],
            false => vec![Effect::DestroyAfter(grace)],
        }
    }

    /// The deadline for subscribing again has passed.
    pub fn return_overdue(&mut self, patience: Duration) -> Vec<Effect> {
        let is_away = self.phase == Phase::Running && self.actor.is_none();
        self.disconnections.awaited = false;
        let left_again = std::mem::take(&mut self.disconnections.left_again);
        if !is_away {
            return Vec::new();
        }
        if left_again {
            return self.disconnections.begin();
        }
        let patience = duration::format(patience);
        self.end_status = Some((
            TaskState::Gone.for_framework(self.framework.can(Capability::PartitionAware)),
            Reason::ExecutorReregistrationTimeout,
            format!("Executor did not reregister within {patience}"),
        ));
        self.destroy()
    }
}
