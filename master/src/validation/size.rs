//! Sizes: bounds in bytes on texts that a framework chooses and the master remembers.
//!
//! Pure. Mesos has no such bounds, so they are far above what frameworks say; without them a few tasks fill the memory of a master.

use protocol::task::labels_bytes;
use protocol::{CommandInfo, ExecutorInfo, FrameworkInfo, TaskInfo};
use resources::Invalid;

/// The most bytes of a task with its executor, without their `data`.
pub(crate) const TASK_BYTES_MAX: usize = 1 << 20;
/// The most bytes of `data` of a task and its executor, which the master passes on.
const DATA_BYTES_MAX: usize = 4 << 20;
/// The most bytes of a framework's description of itself.
const FRAMEWORK_BYTES_MAX: usize = 1 << 20;

/// Whether a task is small enough.
pub(super) fn task(task: &TaskInfo) -> Result<(), Invalid> {
    let executor = task.executor.as_ref();
    let command = task.command.as_ref().map_or(0, CommandInfo::text_bytes);
    let parts = [
        ("task.name", task.name.len()),
        ("task.labels", labels_bytes(&task.labels)),
        ("task.command", command),
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

/// Whether a framework's description of itself is small enough.
pub(super) fn framework(info: &FrameworkInfo) -> Result<(), Invalid> {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let parts = [
        ("framework.user", info.user.len()),
        ("framework.name", info.name.len()),
        ("framework.roles", info.roles.iter().map(String::len).sum()),
        ("framework.hostname", info.hostname.len()),
        ("framework.principal", text(&info.principal)),
        ("framework.webui_url", text(&info.webui_url)),
        ("framework.labels", labels_bytes(&info.labels)),
    ];
    bounded("framework", &parts, FRAMEWORK_BYTES_MAX)
}

/// Names the largest part where all are too large together.
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
