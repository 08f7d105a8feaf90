//! A container whose executor uses an HTTP stream. Streams break, and the newest one counts.
//!
//! Pure. Events on a broken stream may be lost, so missing tasks and kills are repeated. The
//! executor may repeat its updates, so the newest are remembered. Messages are delivered at most
//! once.

use std::collections::BTreeSet;

use protocol::message::executor::ExecutorRefused;
use protocol::{TaskId, Uuid};
use runtime::Pid;

use super::{Container, Effect, Phase};

/// Remembered updates per task. Executors rarely have more than one or two unacknowledged.
const RECEIVED_MAX: usize = 128;

impl Container {
    /// Compares a token with the executor's secret in constant time.
    pub fn token_matches(&self, token: &str) -> bool {
        authority::constant_time_eq(self.token.as_bytes(), token.as_bytes())
    }

    /// Whether its executor subscribed over HTTP, even if disconnected now.
    pub fn uses_http(&self) -> bool {
        self.uses_http
    }

    /// The executor subscribes over HTTP; `actor` writes to its stream. It reports having the tasks
    /// in `known`.
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
            Phase::Running if self.uses_http() => {}
            Phase::Running => return refused("it has subscribed over its socket"),
            _ => return refused("its container is being ended"),
        }
        self.phase = Phase::Running;
        self.actor = Some(actor);
        self.uses_http = true;
        Ok(self.resend_lost(known))
    }

    /// Whether the executor sent this update before. Records it.
    pub fn repeats(&mut self, task_id: &TaskId, uuid: Uuid) -> bool {
        let Some(task) = self.tasks.get_mut(task_id) else {
            return false;
        };
        if task.received.contains(&uuid) {
            return true;
        }
        if task.received.len() >= RECEIVED_MAX {
            task.received.pop_front();
        }
        task.received.push_back(uuid);
        false
    }

    /// Forgets a refused update, so that it is new when repeated.
    pub fn forget_update(&mut self, task_id: &TaskId, uuid: Uuid) {
        if let Some(task) = self.tasks.get_mut(task_id) {
            task.received.retain(|given| *given != uuid);
        }
    }
}
