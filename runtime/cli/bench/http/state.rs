//! How long the state of a large cluster takes to be asked for: `/state` in JSON, and `GET_STATE` in protobuf.
//!
//! The cluster has a crowd of agents with running tasks. As many more have ended, and their frameworks know it.

use std::net::Ipv4Addr;
use std::time::Duration;

use hyper::body::Bytes;
use protocol::message::registration::{RegisterAgent, RunningTask};
use protocol::message::task::TaskUpdated;
use protocol::{FrameworkInfo, Offer, Source, StatusUpdate, TaskState, TaskStatus, Uuid};
use runtime::Clock;
use runtime::prelude::*;
use scheduler_driver::{Scheduler, SchedulerDriver, Verbs};
use serde_json::{Value, json};
use simulator::crowd::declining::DECLINED;
use simulator::crowd::embedded::Embedded;
use tokio::net::TcpListener;
use v1::Form;
use v1::schema::master::{Call, CallType};

use super::super::{Figure, of_crowd};
use super::bare;
use super::client::Connection;
use super::{FASTER, HttpArgs, MESOS_JSON, MESOS_PROTOBUF};
use crate::failure::{Failure, Outcome};
use crate::member::{self, Pages};

/// How often each is asked.
const TIMES: usize = 30;
/// How often a hundredth of the tasks changes.
const CHANGES: usize = 9;
/// How the states are called whose tasks are waited for.
pub const FINISHED: &str = "TASK_FINISHED";
const KILLING: &str = "TASK_KILLING";
/// How long the master may take to be found.
const FINDING: Duration = Duration::from_secs(5);
/// How long tasks may take to have ended for all.
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

/// Serves the pages and APIs of this cluster's master on a free port, and says where.
pub async fn serve(cluster: &Embedded) -> Outcome<(Pages, String)> {
    let cannot = |error: std::io::Error| Failure::because("cannot listen", &error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?.to_string();
    let node = &cluster.node;
    let front = master::office::Front::of(&cluster.master.master);
    let streams = http::api::Streams::new(node);
    let config = master::Config::default();
    let events = master::http::stream::open(node, &front, &config, &streams)
        .map_err(|error| Failure::because("cannot serve events", &error))?;
    // Nobody asks for metrics.
    let counters = http::CountersSource::default();
    let routes = master::http::routes(&front, node, &config, counters, &events, &streams);
    let pages = member::serve(
        node,
        listener,
        routes,
        ::http::HttpOptions::default(),
        streams,
    )?;
    Ok((pages, address))
}

/// Hears that its tasks have ended.
pub struct Bereaved;

impl Scheduler for Bereaved {
    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
        let ids = offers.into_iter().map(|offer| offer.id).collect();
        driver.decline(ids, DECLINED);
    }

    fn status(&mut self, _: &mut Verbs, _: &TaskStatus) {}
}

type Framework = (scheduler_driver::DriverRef, Node);

/// The frameworks that these tasks belong to.
pub fn owners(reports: &[RegisterAgent]) -> Vec<FrameworkInfo> {
    let mut infos: Vec<FrameworkInfo> = Vec::new();
    for info in reports.iter().flat_map(|report| &report.held.frameworks) {
        if infos.iter().all(|known| known.id != info.id) {
            infos.push(info.clone());
        }
    }
    infos
}

/// Lets all frameworks of the crowd come.
fn frameworks(cluster: &Embedded) -> Outcome<Vec<Framework>> {
    let start = |info: FrameworkInfo| {
        let node = cluster.framework(&info);
        let driver = SchedulerDriver::new(["master"], info).start(&node, Bereaved);
        let failed = |error| Failure::because("a crowd's framework", &error);
        Ok((driver.map_err(failed)?, node))
    };
    owners(&cluster.reports).into_iter().map(start).collect()
}

/// Tells the master there that all but the first `each` tasks of every agent have ended, from the node of these agents.
pub async fn end_half(home: &Node, master: &str, reports: &[RegisterAgent], each: u32) -> Outcome {
    let failed = |error: &dyn std::error::Error| Failure::because("a crowd's tasks", error);
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

/// Tells the master that this task is in that state now.
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
        .map_err(|error| Failure::because("a crowd's tasks", &error))
}

/// How long a poll takes after some of the running tasks have changed since the one before, in milliseconds: a hundredth of them, in the middle
/// of some times, and then all that are left.
async fn after_changes(
    cluster: &Embedded,
    connection: &mut Connection,
    each: u32,
) -> Outcome<Value> {
    let home = &cluster.home;
    let master = home.find("master", "master", FINDING).await;
    let master = master.map_err(|error| Failure::because("no master", &error))?;
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

/// Waits until so many tasks are in this state, by a page that nobody measures: the first time of that one counts.
pub async fn all_are(
    connection: &mut Connection,
    clock: &Clock,
    state: &str,
    many: usize,
) -> Outcome {
    let begun = clock.now();
    while count(&connection.get("/state-summary").await?, state) < many {
        if clock.now() - begun > ENDING {
            return Err(Failure::new(
                "stalled: not all tasks are what they should be",
            ));
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// How many tasks are in this state by this summary.
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
