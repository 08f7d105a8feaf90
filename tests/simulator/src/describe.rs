//! Describe: events as one line of text, for whoever reads a failure, and facts as the hash takes them.
//!
//! Plain functions. Only messages about offers and tasks are told in full; of the rest the name suffices.

use std::fmt::{self, Display, Write};

use protocol::message::executor::{EndTask, ExecutorUpdated, LaunchTask};
use protocol::message::registration::DisownTasks;
use protocol::message::scheduler::{
    AcceptOffers, AcknowledgeStatus, DeclineOffers, KillTask, Lost, OfferRescinded, OffersMade,
    StatusChanged,
};
use protocol::message::task::{RunTasks, TaskUpdated};
use protocol::{Operation, TaskInfo, TaskStatus};

use crate::event::{Asker, Spoken, What};
use crate::linear::RegistryModel;

/// More parts of a message than this are not told.
const PARTS_MAX: usize = 8;

/// Writes what a message is about behind this text; nothing if its name says it all. There is one for every message, so it makes no text of
/// its own.
pub fn message(text: &mut String, spoken: &Spoken<'_>) {
    if spoken.reply {
        return;
    }
    // Writing into a text does not fail.
    let _ = match spoken.name {
        "scheduler/offers_made" => told(spoken, |made: &OffersMade| {
            list(text, &made.offers, |text, offer| {
                write!(text, "{} of {}", offer.id, offer.agent_id)
            })
        }),
        "scheduler/offer_rescinded" => told(spoken, |rescinded: &OfferRescinded| {
            put(text, &rescinded.offer_id)
        }),
        "scheduler/accept_offers" => told(spoken, |accepted| accept(text, accepted)),
        "scheduler/decline_offers" => told(spoken, |decline: &DeclineOffers| {
            list(text, &decline.offer_ids, put)
        }),
        "scheduler/kill_task" => told(spoken, |kill: &KillTask| put(text, &kill.task_id)),
        "scheduler/acknowledge_status" => told(spoken, |known: &AcknowledgeStatus| {
            put(text, &known.task_id)
        }),
        "scheduler/status_changed" => told(spoken, |changed: &StatusChanged| {
            status(text, &changed.status)
        }),
        "scheduler/lost" => told(spoken, |lost: &Lost| put(text, &lost.agent_id)),
        "task/run_tasks" => told(spoken, |run: &RunTasks| list(text, &run.tasks, task)),
        "task/task_updated" => told(spoken, |updated: &TaskUpdated| {
            status(text, &updated.update.status)
        }),
        "executor/launch_task" => told(spoken, |launch: &LaunchTask| {
            put(text, &launch.task.task_id)
        }),
        "executor/end_task" => told(spoken, |end: &EndTask| put(text, &end.task_id)),
        "executor/executor_updated" => told(spoken, |updated: &ExecutorUpdated| {
            status(text, &updated.status)
        }),
        "registration/disown_tasks" => told(spoken, |disown: &DisownTasks| {
            list(text, &disown.tasks, |text, (_, task)| put(text, task))
        }),
        _ => Ok(()),
    };
}

fn told<M: 'static>(spoken: &Spoken<'_>, tell: impl FnOnce(&M) -> fmt::Result) -> fmt::Result {
    spoken.is::<M>().map_or(Ok(()), tell)
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

/// A fact of the world.
pub fn fact(what: &What<'_>) -> String {
    match what {
        What::Said(spoken) | What::Heard(spoken) => format!("{spoken:?}"),
        What::NodeStarted { node, role } => format!("{node} starts as {role}"),
        What::NodeEnded {
            node,
            crashed: true,
        } => format!("{node} crashes"),
        What::NodeEnded { node, .. } => format!("{node} ends"),
        What::NodeGaveUp { node, words, .. } => format!("{node} ends by itself: {words}"),
        What::ActorFell { node, actor, words } => format!("{actor} of {node} panics: {words}"),
        What::AgentFell { agent } => format!("{agent} falls, and its machine goes on"),
        What::ProcessStarted { agent, container } => format!("{agent} runs {container}"),
        What::ProcessEnded { agent, container } => format!("{agent} runs {container} no more"),
        What::ExecutorKilled { agent, container } => {
            format!("{container} is killed on {agent}")
        }
        What::MachineBusy { agent, busy: true } => format!("{agent} is busy with other work"),
        What::MachineBusy { agent, .. } => format!("{agent} is busy with other work no more"),
        What::MasterBegan { node } => format!("a master acts on {node}"),
        What::MasterEnded { node } => format!("no master acts on {node}"),
        What::Elected { node, term } => format!("{node} leads in term {term}"),
        What::RegistryAsked {
            node,
            by,
            call,
            request,
        } => {
            let who = match by {
                Asker::Master => "",
                Asker::Client => "a client on ",
            };
            let asked = RegistryModel::asked(request);
            format!("{who}{node} asks the registry ({call}): {asked}")
        }
        What::RegistryAnswered { node, call, answer } => {
            let answer = answer.map_or("nothing was done".to_owned(), RegistryModel::answered);
            format!("{node} is answered by the registry ({call}): {answer}")
        }
        What::LogRead { node, loaded } => format!(
            "{node} finds its log: snapshot {}, {} entries, {:?}",
            loaded.snapshot.index,
            loaded.entries.len(),
            loaded.hard
        ),
        What::LogWritten { node, write } => {
            let snapshot = write.snapshot.as_ref().map(|snapshot| snapshot.index);
            let entries = write.entries.iter();
            let entries: Vec<_> = entries.map(|entry| (entry.index, entry.term)).collect();
            let hard = &write.hard;
            format!("{node} has written: snapshot {snapshot:?}, {entries:?}, {hard:?}")
        }
        What::DiskPutBack { node } => format!("{node} has an old copy of its disk"),
        What::Holds {
            node,
            index,
            digest,
        } => format!("{node} holds {digest:016x} at {index}"),
        What::FaultBegan(fault) => format!("fault begins: {:?}", fault.kind),
        What::FaultEnded(fault) => format!("fault is over: {:?}", fault.kind),
        What::FaultsOver => "no further fault comes".to_owned(),
    }
}
