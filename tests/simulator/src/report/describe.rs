//! Renders events as one line of text for failure reports, and facts in the form that is hashed.
//!
//! Plain functions. Only messages about offers and tasks are rendered in full; others by their
//! name.

use std::fmt::{self, Display, Write};

use protocol::message::executor::{EndTask, ExecutorUpdated, LaunchTask};
use protocol::message::registration::DisownTasks;
use protocol::message::scheduler::{
    AcceptOffers, AcknowledgeStatus, DeclineOffers, KillTask, Lost, OfferRescinded, OffersMade,
    StatusChanged,
};
use protocol::message::task::{RunTasks, TaskUpdated};
use protocol::{ContainerId, Operation, TaskInfo, TaskStatus};

use crate::event::{CommandTask, EventKind, RegistryCaller, SeenMessage};
use crate::linear::RegistryModel;

/// Maximum parts of a message that are rendered.
const PARTS_MAX: usize = 8;

/// Appends the content of a message to this text; nothing if its name suffices. Called for every
/// message, so it allocates no text.
pub fn message(text: &mut String, observed: &SeenMessage<'_>) {
    if observed.reply {
        return;
    }
    // Writing to a string cannot fail.
    let _ = match observed.name {
        "scheduler/offers_made" => with_body(observed, |made: &OffersMade| {
            list(text, &made.offers, |text, offer| {
                write!(text, "{} of {}", offer.id, offer.agent_id)
            })
        }),
        "scheduler/offer_rescinded" => with_body(observed, |rescinded: &OfferRescinded| {
            put(text, &rescinded.offer_id)
        }),
        "scheduler/accept_offers" => with_body(observed, |accepted| accept(text, accepted)),
        "scheduler/decline_offers" => with_body(observed, |decline: &DeclineOffers| {
            list(text, &decline.offer_ids, put)
        }),
        "scheduler/kill_task" => with_body(observed, |kill: &KillTask| put(text, &kill.task_id)),
        "scheduler/acknowledge_status" => with_body(observed, |known: &AcknowledgeStatus| {
            put(text, &known.task_id)
        }),
        "scheduler/status_changed" => with_body(observed, |changed: &StatusChanged| {
            status(text, &changed.status)
        }),
        "scheduler/lost" => with_body(observed, |lost: &Lost| put(text, &lost.agent_id)),
        "task/run_tasks" => with_body(observed, |run: &RunTasks| list(text, &run.tasks, task)),
        "task/task_updated" => with_body(observed, |updated: &TaskUpdated| {
            status(text, &updated.update.status)
        }),
        "executor/launch_task" => with_body(observed, |launch: &LaunchTask| {
            put(text, &launch.task.task_id)
        }),
        "executor/end_task" => with_body(observed, |end: &EndTask| put(text, &end.task_id)),
        "executor/executor_updated" => with_body(observed, |updated: &ExecutorUpdated| {
            status(text, &updated.status)
        }),
        "registration/disown_tasks" => with_body(observed, |disown: &DisownTasks| {
            list(text, &disown.tasks, |text, (_, task)| put(text, task))
        }),
        _ => Ok(()),
    };
}

fn with_body<M: 'static>(
    observed: &SeenMessage<'_>,
    tell: impl FnOnce(&M) -> fmt::Result,
) -> fmt::Result {
    observed.is::<M>().map_or(Ok(()), tell)
}

fn put(text: &mut String, part: &impl Display) -> fmt::Result {
    write!(text, "{part}")
}

fn list<T>(
    text: &mut String,
    parts: &[T],
    tell: impl Fn(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    for (number, part) in parts.iter().take(PARTS_MAX).enumerate() {
        if number > 0 {
            text.push_str(", ");
        }
        tell(text, part)?;
    }
    match parts.len().saturating_sub(PARTS_MAX) {
        0 => Ok(()),
        left => write!(text, " and {left} more"),
    }
}

fn task(text: &mut String, task: &TaskInfo) -> fmt::Result {
    write!(text, "{} on {}", task.task_id, task.agent_id)
}

fn status(text: &mut String, status: &TaskStatus) -> fmt::Result {
    write!(text, "{} {}", status.task_id, status.state)
}

fn accept(text: &mut String, accept: &AcceptOffers) -> fmt::Result {
    list(text, &accept.offer_ids, put)?;
    for (number, operation) in accept.operations.iter().enumerate() {
        text.push_str(if number == 0 { ": " } else { "; " });
        match operation {
            Operation::Launch { tasks } => list(text, tasks, task)?,
            Operation::LaunchGroup { tasks, .. } => {
                text.push_str("group ");
                list(text, tasks, task)?;
            }
            Operation::Convert { conversion, .. } => text.push_str(conversion.name()),
        }
    }
    Ok(())
}

/// The text of a fact.
pub fn fact(what: &EventKind<'_>) -> String {
    match what {
        EventKind::Sent(observed) | EventKind::Received(observed) => format!("{observed:?}"),
        EventKind::NodeStarted { node, role } => format!("{node} starts as {role}"),
        EventKind::NodeEnded {
            node,
            crashed: true,
        } => format!("{node} crashes"),
        EventKind::NodeEnded { node, .. } => format!("{node} ends"),
        EventKind::NodeExited { node, words, .. } => format!("{node} ends by itself: {words}"),
        EventKind::ActorPanicked { node, actor, words } => {
            format!("{actor} of {node} panics: {words}")
        }
        EventKind::AgentCrashed { agent } => format!("{agent} falls, and its machine goes on"),
        EventKind::ProcessStarted { agent, container } => format!("{agent} runs {container}"),
        EventKind::CommandStarted(CommandTask { agent, task, .. }) => {
            format!("{agent} runs {task}")
        }
        EventKind::CommandOutlived { agent, container } => {
            format!("{container} has outlived {agent}")
        }
        EventKind::CommandEnded(CommandTask { agent, task, .. }) => {
            format!("{agent} runs {task} no more")
        }
        EventKind::ProcessEnded { agent, container } => format!("{agent} runs {container} no more"),
        EventKind::ExecutorKilled { agent, container } => {
            format!("{container} is killed on {agent}")
        }
        EventKind::Isolated {
            agent,
            isolator,
            container,
            step,
        } => format!("{isolator} of {agent}: {step:?} {container}"),
        EventKind::IsolatorRecovered {
            agent,
            isolator,
            containers,
        } => {
            let containers: Vec<&str> = containers.iter().map(ContainerId::as_str).collect();
            format!("{isolator} of {agent} recovers [{}]", containers.join(", "))
        }
        EventKind::MachineBusy { agent, busy: true } => format!("{agent} is busy with other work"),
        EventKind::MachineBusy { agent, .. } => format!("{agent} is busy with other work no more"),
        EventKind::MasterBegan { node } => format!("a master acts on {node}"),
        EventKind::MasterEnded { node } => format!("no master acts on {node}"),
        EventKind::Elected { node, term } => format!("{node} leads in term {term}"),
        EventKind::RegistryRequested {
            node,
            by,
            call,
            request,
        } => {
            let who = match by {
                RegistryCaller::Master => "",
                RegistryCaller::Client => "a client on ",
            };
            let asked = RegistryModel::asked(request);
            format!("{who}{node} asks the registry ({call}): {asked}")
        }
        EventKind::RegistryAnswered { node, call, answer } => {
            let answer = answer.map_or("nothing was done".to_owned(), RegistryModel::answered);
            format!("{node} is answered by the registry ({call}): {answer}")
        }
        EventKind::LogRead { node, loaded } => format!(
            "{node} finds its log: snapshot {}, {} entries, {:?}",
            loaded.snapshot.index,
            loaded.entries.len(),
            loaded.hard
        ),
        EventKind::LogWritten { node, write } => {
            let snapshot = write.snapshot.as_ref().map(|snapshot| snapshot.index);
            let entries = write.entries.iter();
            let entries: Vec<_> = entries.map(|entry| (entry.index, entry.term)).collect();
            let hard = &write.hard;
            format!("{node} has written: snapshot {snapshot:?}, {entries:?}, {hard:?}")
        }
        EventKind::DiskReset { node } => format!("{node} has an old copy of its disk"),
        EventKind::MemberState {
            node,
            index,
            digest,
        } => format!("{node} holds {digest:016x} at {index}"),
        EventKind::FaultBegan(fault) => format!("fault begins: {:?}", fault.kind),
        EventKind::FaultEnded(fault) => format!("fault is over: {:?}", fault.kind),
        EventKind::FaultsOver => "no further fault comes".to_owned(),
    }
}
