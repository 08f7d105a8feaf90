//! Over HTTP: what frameworks of the v1 API say that drivers do not (SPEC 2.2 ACCEPT, SHUTDOWN, REQUEST).
//!
//! Pure decisions on [`Books`]. Of an ACCEPT some tasks and operations may have no meaning here: their framework hears so of each, and the
//! others go on; where the offers are void, so are they all. All else that is said over HTTP is said by drivers as well, and decided where that is.

use protocol::message::task::EndExecutor;
use protocol::{AgentId, ExecutorId, FrameworkId, TaskInfo, TaskState};
use resources::Resources;
use runtime::Timestamp;
use v1::convert::scheduler::{Accepted, Meaningless, Nameless};

use crate::accept::Void;
use crate::books::{Books, master_status};
use crate::effects::{Effects, Tell, ToAgent};

impl Books {
    /// The framework takes these offers, and wants things done with them of which not all have a meaning here.
    pub fn accept_in_part(&mut self, accepted: Accepted, now: Timestamp, out: &mut Effects) {
        let Accepted {
            offers,
            tasks,
            operations,
            nameless,
            invalid_offer,
        } = accepted;
        let framework = offers.framework_id.clone();
        let offer = offers.offer_ids.first().and_then(|id| self.offers.get(id));
        let agent = offer
            .filter(|offer| offer.framework_id == framework)
            .map(|offer| offer.agent_id.clone());
        let void = self.accept_unless_void(offers, invalid_offer.as_deref(), now, out);
        let void = void.err();
        // Where the offers are not there, nothing else counts.
        let agent = agent.filter(|_| void.is_none());
        for task in tasks {
            self.refuse_meaningless(&framework, agent.as_ref(), task, void.as_ref(), now, out);
        }
        if let Some(Nameless { count, first }) = nameless {
            self.counters.add("master/operations_nameless", count);
            tracing::info!(%framework, count, %first, "operations without an id have no meaning here, and are dropped");
        }
        for (id, invalid) in operations {
            let message = void.as_ref().map(Void::for_operation);
            let reason = message.unwrap_or_else(|| invalid.to_string());
            // Of what kind it is was lost where it was found invalid.
            let named = (Some(id), None);
            self.refuse_operation(&framework, agent.as_ref(), named, &reason, out);
        }
    }

    /// Tells that a task which has no meaning here does not run, and remembers it as any other that is refused. It is where its offers are or,
    /// if these are void, where it was to run.
    fn refuse_meaningless(
        &mut self,
        framework: &FrameworkId,
        offered: Option<&AgentId>,
        task: Meaningless,
        void: Option<&Void>,
        now: Timestamp,
        out: &mut Effects,
    ) {
        let (state, reason, message) = match void {
            Some(void) => (TaskState::Dropped, void.reason(), void.for_task()),
            None => (TaskState::Error, task.reason, task.message),
        };
        let known = self.frameworks.get(framework);
        let mut status = master_status(known, &task.task_id, state, reason, message, now);
        status.agent_id = offered.cloned().or_else(|| task.agent_id.clone());
        let Some(agent_id) = status.agent_id.clone() else {
            // Nowhere is no place to be remembered at.
            self.task_ended(framework, &status);
            return self.tell_status(framework, status, out);
        };
        let named = TaskInfo {
            name: task.name,
            task_id: task.task_id,
            agent_id,
            resources: Resources::default(),
            command: None,
            executor: None,
            data: Vec::new(),
            kill_policy: None,
            labels: Default::default(),
        };
        self.refuse(framework, &named, state, status, out);
    }

    /// An executor should end, with its tasks: its agent sees to it. One whose agent is away stays, as with a message to it.
    pub fn end_executor(
        &mut self,
        framework_id: FrameworkId,
        agent_id: &AgentId,
        executor_id: ExecutorId,
        out: &mut Effects,
    ) {
        match self.agents.connected(agent_id) {
            Some(agent) => {
                let end = EndExecutor {
                    framework_id,
                    executor_id,
                };
                out.agent(&agent.pid, ToAgent::EndExecutor(end));
            }
            None => self.counters.count("master/dropped_messages"),
        }
    }
}
