//! The time of a request for the state of a large cluster: `/state` in JSON, and `GET_STATE` in
//! protobuf.
//!
//! The cluster has synthetic agents with running tasks, and as many completed tasks.

use std::net::Ipv4Addr;
use std::time::Duration;

use hyper::body::Bytes;
use protocol::message::registration::{RegisterAgent, RunningTask};
use protocol::message::task::TaskUpdated;
use protocol::{FrameworkInfo, Offer, Source, StatusUpdate, TaskState, TaskStatus, Uuid};
use runtime::Clock;
use runtime::prelude::*;
use scheduler_driver::{Calls, Scheduler, SchedulerDriver};
use serde_json::{Value, json};
use simulator::synthetic_agents::declining::DECLINED;
use simulator::synthetic_agents::embedded::Embedded;
use tokio::net::TcpListener;
use v1::Form;
use v1::schema::master::{Call, CallType};

use super::super::{Figure, of_crowd};
use super::bare;
use super::client::Connection;
use super::{FASTER, HttpArgs, MESOS_JSON, MESOS_PROTOBUF};
use meros::output::error::{CliError, Outcome};
use meros::service::{self, Pages};

/// Number of requests of each kind.
const TIMES: usize = 30;
/// Number of polls after a hundredth of the tasks has changed.
const CHANGES: usize = 9;
/// Names of the awaited states.
pub const FINISHED: &str = "TASK_FINISHED";
const KILLING: &str = "TASK_KILLING";
/// Timeout for finding the master.
const FINDING: Duration = Duration::from_secs(5);
/// Timeout for the end of all tasks.
const ENDING: Duration = Duration::from_secs(60);

/// Both figures.
pub async fn measure(args: &HttpArgs) -> Outcome<Vec<Figure>> {
    let (agents, each) = (args.agents, args.tasks_each);
    args.say(&format!(
        "{agents} agents with {each} running tasks each and as many that have ended"
    ));
    let cluster = Embedded::start(agents, 2 * each).await.map_err(of_crowd)?;
    let (pages, address) = serve(&cluster).await?;
    let frameworks = frameworks(&cluster)?;
    end_half(&cluster.home, "master", &cluster.reports, each).await?;
    let mut connection = Connection::open(&address).await?;
    let clock = cluster.node.clock().clone();

    let ended = agents as usize * each as usize;
    all_are(&mut connection, &clock, FINISHED, ended).await?;
    let ask = Call {
        r#type: Some(CallType::GetState),
        ..Call::default()
    };
    let mut figures = Vec::new();
    for (bench, mesos) in [
        ("state_json", MESOS_JSON),
        ("state_protobuf", MESOS_PROTOBUF),
    ] {
        let (mut taken, mut page) = (Vec::new(), Bytes::new());
        for _ in 0..TIMES {
            let begun = clock.now();
            page = match bench {
                "state_json" => connection.get("/state").await?,
                _ => connection.call("/api/v1", Form::Protobuf, &ask).await?,
            };
            taken.push((clock.now() - begun).as_secs_f64() * 1000.0);
        }
        let (first, bytes) = (taken[0], page.len());
        let (median, slowest) = bare::median_and_last(taken);
        let mut parameters = json!({
            "agents": agents, "running": ended, "completed": ended, "times": TIMES, "bytes": bytes,
            "bytes_per_second": (bytes as f64 / median * 1000.0).round(), "first_ms": first, "slowest_ms": slowest,
            "mesos_recorded_ms": mesos.as_secs_f64() * 1000.0,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
        });
        if bench == "state_json" {
            parameters["serde_json_writes_it_in_ms"] = json!(bare::written(&page)?);
        }
        parameters["bare_hyper_copies_it_in_ms"] = json!(bare::copied(page, TIMES).await?);
        figures.push(Figure {
            bench,
            figure: median,
            unit: "ms",
            limit: mesos.as_secs_f64() * 1000.0 / f64::from(FASTER),
            limit_is: "recorded: a fifth of what Mesos took",
            parameters,
        });
    }
    let changes = after_changes(&cluster, &mut connection, each).await?;
    if let Some(json) = figures.first_mut() {
        json.parameters["after_changes"] = changes;
    }
    drop(connection);
    for (driver, node) in frameworks {
        drop(driver);
        node.shutdown().await;
    }
    pages.stop(&clock).await;
    cluster.stop().await;
    Ok(figures)
}

/// Serves the pages and APIs of this cluster's master on a free port. Returns the address.
pub async fn serve(cluster: &Embedded) -> Outcome<(Pages, String)> {
    let cannot = |error: std::io::Error| CliError::because("cannot listen", &error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?.to_string();
    let node = &cluster.node;
    let front = master::leadership::LocalLeader::of(&cluster.master.master);
    let streams = http::api::EventStreams::new(node);
    let config = master::Config::default();
    let events = master::api::stream::open(node, &front, &config, &streams)
        .map_err(|error| CliError::because("cannot serve events", &error))?;
    // Metrics are not requested.
    let counters = http::CountersSource::default();
    let routes = master::api::routes(&front, node, &config, counters, &events, &streams);
    let pages = service::serve(
        node,
        listener,
        routes,
        ::http::HttpOptions::default(),
        streams,
    )?;
    Ok((pages, address))
}

/// Ignores the ends of its tasks.
pub struct DecliningScheduler;

impl Scheduler for DecliningScheduler {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        let ids = offers.into_iter().map(|offer| offer.id).collect();
        driver.decline(ids, DECLINED);
    }

    fn status(&mut self, _: &mut Calls, _: &TaskStatus) {}
}

type Framework = (scheduler_driver::DriverRef, Node);

/// The frameworks of these tasks.
pub fn owners(reports: &[RegisterAgent]) -> Vec<FrameworkInfo> {
    let mut infos: Vec<FrameworkInfo> = Vec::new();
    for info in reports.iter().flat_map(|report| &report.held.frameworks) {
        if infos.iter().all(|known| known.id != info.id) {
            infos.push(info.clone());
        }
    }
    infos
}

/// Subscribes all frameworks of the synthetic agents.
fn frameworks(cluster: &Embedded) -> Outcome<Vec<Framework>> {
    let start = |info: FrameworkInfo| {
        let node = cluster.framework(&info);
        let driver = SchedulerDriver::new(["master"], info).start(&node, DecliningScheduler);
        let failed = |error| CliError::because("a crowd's framework", &error);
        Ok((driver.map_err(failed)?, node))
    };
    owners(&cluster.reports).into_iter().map(start).collect()
}

/// Reports to the master that all but the first `each` tasks of every agent have ended, from the
/// node of these agents.
pub async fn end_half(home: &Node, master: &str, reports: &[RegisterAgent], each: u32) -> Outcome {
    let failed = |error: &dyn std::error::Error| CliError::because("a crowd's tasks", error);
    let clock = home.clock();
    let master = home.find(master, "master", FINDING).await;
    let master = master.map_err(|error| failed(&error))?;
    for report in reports {
        for task in report.held.tasks.iter().skip(each as usize) {
            tell(home, &master, task, TaskState::Finished)?;
        }
        // The master's mailbox is bounded.
        clock.sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Reports a task's state to the master.
fn tell(home: &Node, master: &Pid, task: &RunningTask, state: TaskState) -> Outcome {
    let agent_id = task.info.agent_id.clone();
    let id = task.info.task_id.clone();
    let status = TaskStatus::new(id, state, Source::Executor, home.clock().wall());
    let mut status = status.on(&agent_id);
    status.uuid = Some(Uuid(home.fresh_uuid()));
    let update = StatusUpdate {
        framework_id: task.framework_id.clone(),
        status,
        latest_state: state,
    };
    home.tell(master, TaskUpdated { agent_id, update })
        .map_err(|error| CliError::because("a crowd's tasks", &error))
}

/// Times of a poll after some running tasks have changed, in milliseconds: the median after a
/// hundredth of them, and the time after all others.
async fn after_changes(
    cluster: &Embedded,
    connection: &mut Connection,
    each: u32,
) -> Outcome<Value> {
    let home = &cluster.home;
    let master = home.find("master", "master", FINDING).await;
    let master = master.map_err(|error| CliError::because("no master", &error))?;
    let running = cluster
        .reports
        .iter()
        .flat_map(|report| report.held.tasks.iter().take(each as usize));
    let running: Vec<&RunningTask> = running.collect();
    let hundredth = running.len().div_ceil(100);
    let (mut taken, mut changed) = (Vec::new(), 0);
    for slice in 0..=CHANGES {
        let upto = match slice {
            CHANGES => running.len(),
            _ => running.len().min(changed + hundredth),
        };
        for some in running[changed..upto].chunks(10) {
            for task in some {
                tell(home, &master, task, TaskState::Killing)?;
            }
            home.clock().sleep(Duration::from_millis(1)).await;
        }
        all_are(connection, home.clock(), KILLING, upto).await?;
        let begun = home.clock().now();
        connection.get("/state").await?;
        let took = (home.clock().now() - begun).as_secs_f64() * 1000.0;
        taken.push((upto - changed, took));
        changed = upto;
    }
    let rest = taken.pop().unwrap_or_default();
    let (few, _) = bare::median_and_last(taken.iter().map(|(_, took)| *took).collect());
    Ok(json!([
        { "changed": hundredth, "ms": few, "times": CHANGES },
        { "changed": rest.0, "ms": rest.1, "times": 1 },
    ]))
}

/// Waits until `count` tasks are in this state, through a page that is not measured, since the
/// first request of a page counts.
pub async fn all_are(
    connection: &mut Connection,
    clock: &Clock,
    state: &str,
    many: usize,
) -> Outcome {
    let begun = clock.now();
    while count(&connection.get("/state-summary").await?, state) < many {
        if clock.now() - begun > ENDING {
            return Err(CliError::new(
                "stalled: not all tasks are what they should be",
            ));
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Number of tasks in this state in the summary.
fn count(summary: &[u8], state: &str) -> usize {
    let summary: Value = serde_json::from_slice(summary).unwrap_or_default();
    let frameworks = summary["frameworks"].as_array();
    let finished = frameworks
        .into_iter()
        .flatten()
        .filter_map(|framework| framework[state].as_u64());
    finished.sum::<u64>() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_a_state_are_counted_over_all_frameworks() {
        let summary =
            br#"{"frameworks":[{"TASK_FINISHED":2,"TASK_RUNNING":7},{"TASK_FINISHED":1},{}]}"#;
        let counted = [FINISHED, "TASK_RUNNING", KILLING].map(|state| count(summary, state));
        assert_eq!((counted, count(b"x", FINISHED)), ([3, 7, 0], 0));
    }
}
