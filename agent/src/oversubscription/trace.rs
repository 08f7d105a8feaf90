//! Usage traces (`--record_usage`): measurements as lines of JSON, for judging estimators.
//!
//! The recorder measures at an interval and appends to a file; the earlier file is kept as
//! `FILE.1` when it is full. A line has no names of frameworks, executors or tasks:
//!
//! | field | contents |
//! |---|---|
//! | `at` | time of the measurement, in seconds since 1970 |
//! | `total` | the agent's resources, as the text of `--resources` |
//! | `containers` | one entry for each: `id`, and `regular` and `lent`, its allocated amounts |
//! | `cpu_secs`, `throttled_secs` of a container | CPU time, and time throttled by its quota, since its start |
//! | `mem_bytes` | memory without page cache |
//! | `sla` | objectives of its tasks: the text of the label, the value, the time of the value; absent without |
//! | `wait_secs` | time in which it waited for CPUs, memory, input and output since its start; absent if not counted |

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use module_api::usage::CurrentUsage;
use protocol::usage::{Objective, Pressure, TaskObjective, Throttle};
use protocol::{
    ContainerId, ExecutorId, ExecutorUsage, FrameworkId, ResourceStatistics, ResourceUsage,
};
use resources::{Resources, Revocable};
use runtime::Timestamp;
use runtime::prelude::*;
use serde::{Deserialize, Serialize};

/// Time between two measurements.
const INTERVAL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a file, of which there are at most two.
const FILE_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Line {
    at: f64,
    total: String,
    containers: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    id: String,
    regular: String,
    lent: String,
    cpu_secs: f64,
    throttled_secs: f64,
    mem_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait_secs: Option<[f64; 3]>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sla: Vec<(String, f64, f64)>,
}

/// A line that is not of a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a line of --record_usage, not `{line}`: {problem}")]
pub struct InvalidLine {
    line: String,
    problem: String,
}

/// One measurement as a line. Containers without statistics are left out.
pub fn write(at: Timestamp, usage: &ResourceUsage) -> String {
    let seconds = |at: Timestamp| at.as_nanos() as f64 / 1e9;
    let entry = |executor: &ExecutorUsage| {
        let measured = executor.statistics.as_ref()?;
        let waiting = || {
            let kinds = [
                measured.cpu_pressure,
                measured.mem_pressure,
                measured.io_pressure,
            ];
            let [cpu, mem, io] = kinds.map(|kind| kind.map(|kind| kind.some_secs));
            Some([cpu?, mem?, io?])
        };
        let cache = measured.mem_cache_bytes.unwrap_or_default();
        let total = measured
            .mem_total_bytes
            .map(|total| total.saturating_sub(cache));
        let amounts = |resources: Resources| resources.quantities().to_string();
        Some(Entry {
            id: executor.container_id.to_string(),
            regular: amounts(executor.allocated.non_revocable()),
            lent: amounts(executor.allocated.revocable()),
            cpu_secs: measured.cpus_user_time_secs + measured.cpus_system_time_secs,
            throttled_secs: measured.cpus_throttled_time_secs.unwrap_or_default(),
            mem_bytes: total.unwrap_or(measured.mem_rss_bytes),
            wait_secs: waiting(),
            sla: { executor.objectives.iter() }
                .map(|one| (one.objective.to_string(), one.value, seconds(one.at)))
                .collect(),
        })
    };
    let line = Line {
        at: seconds(at),
        total: usage.total.quantities().to_string(),
        containers: usage.executors.iter().filter_map(entry).collect(),
    };
    // Numbers and texts always have a form in JSON.
    serde_json::to_string(&line).unwrap_or_default()
}

/// The measurement of a line.
pub fn read(text: &str) -> Result<(Timestamp, ResourceUsage), InvalidLine> {
    let invalid = |problem: String| InvalidLine {
        line: text.chars().take(80).collect(),
        problem,
    };
    let line: Line = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let resources = |text: &str| Resources::parse(text).map_err(|error| invalid(error.to_string()));
    let at = Timestamp::from_nanos((line.at * 1e9) as u64);
    let mut usage = ResourceUsage {
        total: resources(&line.total)?,
        executors: Vec::new(),
    };
    for one in line.containers {
        let lent = resources(&one.lent)?.to_revocable(Revocable::Throttleable);
        let lent = lent.map_err(|error| invalid(error.to_string()))?;
        let wait = |kind: usize| {
            let some_secs = one.wait_secs?[kind];
            Some(Pressure {
                some_secs,
                full_secs: 0.0,
            })
        };
        let id = |problem: protocol::InvalidId| invalid(problem.to_string());
        usage.executors.push(ExecutorUsage {
            framework_id: FrameworkId::new("recorded").map_err(id)?,
            executor_id: ExecutorId::new(one.id.clone()).map_err(id)?,
            executor_name: String::new(),
            is_command: false,
            container_id: ContainerId::new(one.id.clone()).map_err(id)?,
            allocated: resources(&one.regular)? + &lent,
            tasks: Vec::new(),
            statistics: Some(ResourceStatistics {
                timestamp: at,
                processes: 1,
                threads: 1,
                cpus_user_time_secs: one.cpu_secs,
                cpus_throttled_time_secs: Some(one.throttled_secs),
                mem_rss_bytes: one.mem_bytes,
                cpu_pressure: wait(0),
                mem_pressure: wait(1),
                io_pressure: wait(2),
                ..ResourceStatistics::default()
            }),
            throttle: Throttle::default(),
            objectives: { one.sla.iter() }
                .map(|(text, value, at)| {
                    let problem = || invalid(format!("`{text}` is no objective"));
                    Ok(TaskObjective {
                        objective: Objective::parse(text).ok_or_else(problem)?,
                        value: *value,
                        at: Timestamp::from_nanos((at * 1e9) as u64),
                    })
                })
                .collect::<Result<_, _>>()?,
        });
    }
    Ok((at, usage))
}

/// Blocking. Appends a line; keeps one full file.
fn append(file: &Path, line: &str, bytes_max: u64) -> io::Result<()> {
    let size = std::fs::metadata(file).map_or(0, |found| found.len());
    if size > 0 && size + line.len() as u64 >= bytes_max {
        let mut full = file.as_os_str().to_owned();
        full.push(".1");
        std::fs::rename(file, full)?;
    }
    let mut open = OpenOptions::new().create(true).append(true).open(file)?;
    open.write_all(format!("{line}\n").as_bytes())
}

/// The actor that records.
pub struct Recorder {
    monitor: ActorRef,
    file: PathBuf,
}

impl Recorder {
    /// Records what this monitor measures.
    pub fn new(monitor: ActorRef, file: PathBuf) -> Self {
        Self { monitor, file }
    }

    fn record(&mut self, ctx: &mut Context<Self>) {
        let measuring = self.monitor.ask(CurrentUsage, PATIENCE);
        let (node, file) = (ctx.node().clone(), self.file.clone());
        let recording = async move {
            let usage = measuring.await.map_err(|error| error.to_string())?;
            let usage = usage.map_err(|unavailable| unavailable.reason)?;
            let line = write(node.clock().wall(), &usage);
            let written = node.blocking(move || append(&file, &line, FILE_MAX));
            let written = written.await.map_err(|error| error.to_string())?;
            written.map_err(|error| error.to_string())
        };
        ctx.then(recording, |this, recorded, ctx| {
            if let Err(problem) = recorded
                && !ctx.node().is_shutting_down()
            {
                let file = this.file.display();
                tracing::warn!(%file, problem, "usage not recorded");
            }
            ctx.after(INTERVAL, Self::record);
        });
    }
}

impl Actor for Recorder {
    type Context = Context<Self>;
    fn started(&mut self, ctx: &mut Self::Context) {
        self.record(ctx);
    }
}

impl Process for Recorder {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurement_survives_its_line() {
        let text = r#"{"at":10.5,"total":"cpus:4;mem:64","containers":[{"id":"c","regular":"cpus:1","lent":"cpus:2","cpu_secs":3.5,"throttled_secs":0.5,"mem_bytes":4096,"wait_secs":[1.0,2.0,3.0],"sla":[["latency:50",60.5,9.5]]},{"id":"d","regular":"mem:32","lent":"","cpu_secs":0.0,"throttled_secs":0.0,"mem_bytes":0}]}"#;
        let (at, usage) = read(text).unwrap();
        assert_eq!(at, Timestamp::from_nanos(10_500_000_000));
        assert!(usage.executors[0].is_revocable() && !usage.executors[1].is_revocable());
        assert_eq!(write(at, &usage), text);
    }

    #[test]
    fn line_of_another_file_is_refused() {
        for text in [
            "",
            "{}",
            r#"{"at":1,"total":"cpus","containers":[]}"#,
            r#"{"at":1,"total":"cpus:1","containers":[{"id":"/","regular":"","lent":"","cpu_secs":0,"throttled_secs":0,"mem_bytes":0}]}"#,
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(
                error.starts_with("expected a line of --record_usage"),
                "{error}"
            );
        }
    }

    #[test]
    fn at_most_two_files_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("trace");
        for line in ["one", "two", "three", "four", "five"] {
            append(&file, line, 12).unwrap();
        }
        let kept = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(
            (kept("trace.1"), kept("trace")),
            ("three\nfour\n".into(), "five\n".into())
        );
    }
}
