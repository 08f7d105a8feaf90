//! Bounds on the bytes of texts that a framework chooses and the master remembers.
//!
//! Pure. Mesos has no such bounds, so they are far above the usual sizes; without them a few tasks
//! could fill a master's memory.

use protocol::task::labels_bytes;
use protocol::{CommandInfo, ExecutorInfo, FrameworkInfo, TaskInfo};
use resources::Invalid;

use crate::tasks::{ACTIVE_BYTES_MAX, FREE_BYTES, counted};

/// Maximum bytes of a task with its executor, without their `data`.
pub(crate) const TASK_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of `data` of a task and its executor, which the master forwards.
const DATA_BYTES_MAX: usize = 4 << 20;
/// Approximate bytes of a map entry besides its texts: otherwise a million empty labels would have
/// few bytes and use much memory.
const ENTRY_BYTES: usize = 64;
/// Maximum bytes of a framework's description: the registry stores it in one record of 96 KiB.
const FRAMEWORK_BYTES_MAX: usize = 90 << 10;

/// Checks a task's size.
pub(super) fn task(task: &TaskInfo) -> Result<(), Invalid> {
    let executor = task.executor.as_ref();
    let command = task.command.as_ref().map_or(0, CommandInfo::text_bytes);
    let health_check = task.health_check.as_ref();
    let check = task.check.as_ref();
    let checks = task.checks.iter();
    let checks = checks.map(|one| one.name.len() + one.check.kind.text_bytes());
    let parts = [
        ("task.name", task.name.len()),
        ("task.labels", labels_bytes(&task.labels)),
        ("task.command", command),
        ("task.container", container_bytes(task)),
        (
            "task.health_check",
            health_check.map_or(0, |check| check.kind.text_bytes()),
        ),
        (
            "task.check",
            check.map_or(0, |check| check.kind.text_bytes()),
        ),
        ("task.checks", checks.sum()),
        (
            "task.executor",
            executor.map_or(0, ExecutorInfo::text_bytes),
        ),
    ];
    bounded("task", &parts, TASK_BYTES_MAX)?;
    let parts = [
        ("task.data", task.data.len()),
        (
            "task.executor.data",
            executor.map_or(0, |executor| executor.data.len()),
        ),
    ];
    bounded("task.data", &parts, DATA_BYTES_MAX)
}

/// Checks the size of a framework's description.
pub(super) fn framework(info: &FrameworkInfo) -> Result<(), Invalid> {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let parts = [
        ("framework.user", info.user.len()),
        ("framework.name", info.name.len()),
        (
            "framework.roles",
            info.roles.iter().map(|role| role.len() + ENTRY_BYTES).sum(),
        ),
        ("framework.hostname", info.hostname.len()),
        ("framework.principal", text(&info.principal)),
        ("framework.webui_url", text(&info.webui_url)),
        ("framework.labels", labels_bytes(&info.labels)),
    ];
    bounded("framework", &parts, FRAMEWORK_BYTES_MAX)
}

/// Checks that the counted bytes of a framework's active tasks and executors leave room for a task
/// and, if new, its executor. Returns theirs; small ones are not counted, so they always fit.
pub(super) fn active(task: &TaskInfo, is_new: bool, others: usize) -> Result<usize, Invalid> {
    let health_check = task.health_check.as_ref();
    let health_check = health_check.map_or(0, |check| check.kind.text_bytes());
    let settings = container_bytes(task) + health_check;
    let own = counted(task.name.len() + labels_bytes(&task.labels) + settings);
    let executor = task.executor.as_ref().filter(|_| is_new);
    let own = own + executor.map_or(0, |executor| counted(executor_bytes(executor)));
    if own == 0 || others + own <= ACTIVE_BYTES_MAX {
        return Ok(own);
    }
    let expected = format!(
        "at most {ACTIVE_BYTES_MAX} bytes in all active tasks and executors of the framework, which have {others} without it (the first {FREE_BYTES} of each do not count)"
    );
    Err(Invalid::new("task", format!("{own} bytes"), expected))
}

/// Reports the largest part if all parts together are too large.
fn bounded(whole: &str, parts: &[(&str, usize)], most: usize) -> Result<(), Invalid> {
    let bytes: usize = parts.iter().map(|(_, bytes)| bytes).sum();
    let Some((field, largest)) = parts.iter().max_by_key(|(_, bytes)| *bytes) else {
        return Ok(());
    };
    match bytes > most {
        false => Ok(()),
        true => {
            let expected = format!("at most {most} bytes in all of `{whole}`, which has {bytes}");
            Err(Invalid::new(*field, format!("{largest} bytes"), expected))
        }
    }
}

fn container_bytes(task: &TaskInfo) -> usize {
    let container = task.container.as_ref();
    container.map_or(0, |container| container.text_bytes())
}

/// The bytes of an executor including its `data`, which the master remembers while it runs.
pub(crate) fn executor_bytes(executor: &ExecutorInfo) -> usize {
    executor.text_bytes() + executor.data.len()
}
