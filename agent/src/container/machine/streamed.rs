//! A container whose executor hears over a stream of HTTP. Streams break, and the executor may open another: the newest one counts.
//!
//! Pure. What an executor was told over a stream that broke it may not have read, so it is told again: the tasks that it does not know, and
//! the kills. What it has said it may say again, so the newest of it is remembered. Messages are told at most once.

use std::collections::BTreeSet;

use protocol::message::executor::ExecutorRefused;
use protocol::{TaskId, Uuid};
use runtime::Pid;

use super::{Container, Effect, Phase};

/// How many statuses of a task are known again. An executor keeps what is not acknowledged, which is seldom more than one or two.
const GIVEN_MAX: usize = 128;

impl Container {
    /// Whether this is the secret that its executor was given. Takes as long for a good guess as for a bad one.
    pub fn is_proved_by(&self, token: &str) -> bool {
        authority::is_same(self.token.as_bytes(), token.as_bytes())
    }

    /// Whether its executor has subscribed over HTTP, be it away at present.
    pub fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// The executor subscribes over HTTP, where `actor` hears for it. It says that it has the tasks that are `known`.
    pub fn subscribe_stream(
        &mut self,
        actor: Pid,
        known: &BTreeSet<TaskId>,
    ) -> Result<Vec<Effect>, ExecutorRefused> {
        let refused = |reason: &str| {
            Err(ExecutorRefused {
                reason: reason.to_owned(),
            })
        };
        match self.phase {
            Phase::Launching | Phase::Registering | Phase::Recovering => {}
            Phase::Running if self.is_streamed() => {}
            Phase::Running => return refused("it is subscribed over its socket"),
            _ => return refused("its container is being ended"),
        }
        self.phase = Phase::Running;
        self.actor = Some(actor);
        self.streamed = true;
        Ok(self.catch_up(known))
    }

    /// Whether the executor has given this status before: it says again what is not confirmed. From now on it has.
    pub fn repeats(&mut self, task_id: &TaskId, uuid: Uuid) -> bool {
        let Some(task) = self.tasks.get_mut(task_id) else {
            return false;
        };
        if task.given.contains(&uuid) {
            return true;
        }
        if task.given.len() >= GIVEN_MAX {
            task.given.pop_front();
        }
        task.given.push_back(uuid);
        false
    }

    /// This status was not taken into care, so it is new when the executor gives it again.
    pub fn not_taken(&mut self, task_id: &TaskId, uuid: Uuid) {
        if let Some(task) = self.tasks.get_mut(task_id) {
            task.given.retain(|given| *given != uuid);
        }
    }
}
