//! Describe: events as one line of text, for whoever reads a failure, and facts as the hash takes them.
//!
//! Plain functions. Only messages about offers and tasks are told in full; of the rest the name suffices.

use protocol::message::executor::{EndTask, ExecutorUpdated, LaunchTask};
use protocol::message::registration::DisownTasks;
use protocol::message::scheduler::{
    AcceptOffers, AcknowledgeStatus, DeclineOffers, KillTask, Lost, OfferRescinded, OffersMade,
    StatusChanged,
};
use protocol::message::task::{RunTasks, TaskUpdated};
use protocol::{OfferId, Operation, TaskInfo, TaskStatus};

use crate::event::{Asker, Spoken, What};
use crate::linear::RegistryModel;

/// More parts of a message than this are not told.
const PARTS_MAX: usize = 8;

/// What a message is about; empty if its name says it all.
pub fn message(spoken: &Spoken<'_>) -> String {
    if spoken.reply {
        return String::new();
    }
    match spoken.name {
        "scheduler/offers_made" => told(spoken, |made: &OffersMade| {
            list(
                made.offers
                    .iter()
                    .map(|offer| format!("{} of {}", offer.id, offer.agent_id)),
            )
        }),
        "scheduler/offer_rescinded" => told(spoken, |rescinded: &OfferRescinded| {
            rescinded.offer_id.to_string()
        }),
        "scheduler/accept_offers" => told(spoken, accept),
        "scheduler/decline_offers" => {
            told(spoken, |decline: &DeclineOffers| offers(&decline.offer_ids))
        }
        "scheduler/kill_task" => told(spoken, |kill: &KillTask| kill.task_id.to_string()),
        "scheduler/acknowledge_status" => told(spoken, |known: &AcknowledgeStatus| {
            known.task_id.to_string()
        }),
        "scheduler/status_changed" => {
            told(spoken, |changed: &StatusChanged| status(&changed.status))
        }
        "scheduler/lost" => told(spoken, |lost: &Lost| lost.agent_id.to_string()),
        "task/run_tasks" => told(spoken, |run: &RunTasks| tasks(&run.tasks)),
        "task/task_updated" => told(spoken, |updated: &TaskUpdated| {
            status(&updated.update.status)
        }),
        "executor/launch_task" => told(spoken, |launch: &LaunchTask| {
            launch.task.task_id.to_string()
        }),
        "executor/end_task" => told(spoken, |end: &EndTask| end.task_id.to_string()),
        "executor/executor_updated" => {
            told(spoken, |updated: &ExecutorUpdated| status(&updated.status))
        }
        "registration/disown_tasks" => told(spoken, |disown: &DisownTasks| {
            list(disown.tasks.iter().map(|(_, task)| task.to_string()))
        }),
        _ => String::new(),
    }
}

fn told<M: 'static>(spoken: &Spoken<'_>, tell: impl FnOnce(&M) -> String) -> String {
    spoken.is::<M>().map(tell).unwrap_or_default()
}

fn list(parts: impl ExactSizeIterator<Item = String>) -> String {
    let left = parts.len().saturating_sub(PARTS_MAX);
    let mut text = parts.take(PARTS_MAX).collect::<Vec<_>>().join(", ");
    if left > 0 {
        text.push_str(&format!(" and {left} more"));
    }
    text
}

fn offers(ids: &[OfferId]) -> String {
    list(ids.iter().map(OfferId::to_string))
}

fn tasks(tasks: &[TaskInfo]) -> String {
    list(
        tasks
            .iter()
            .map(|task| format!("{} on {}", task.task_id, task.agent_id)),
    )
}

fn status(status: &TaskStatus) -> String {
    format!("{} {}", status.task_id, status.state)
}

fn accept(accept: &AcceptOffers) -> String {
    let launched = accept.operations.iter().map(|operation| match operation {
        Operation::Launch { tasks: launched } => tasks(launched),
        Operation::LaunchGroup { tasks: group, .. } => format!("group {}", tasks(group)),
        Operation::Convert { conversion, .. } => conversion.name().to_owned(),
    });
    let launched = launched.collect::<Vec<_>>().join("; ");
    format!("{}: {launched}", offers(&accept.offer_ids))
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
