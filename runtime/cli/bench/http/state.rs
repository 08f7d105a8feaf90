//! How long the state of a large cluster takes to be asked for: `/state` in JSON, and `GET_STATE` in protobuf.
//!
//! The cluster has a crowd of agents with running tasks. As many more have ended, and their frameworks know it.

use std::net::Ipv4Addr;
use std::time::Duration;

use hyper::body::Bytes;
use protocol::message::task::TaskUpdated;
use protocol::{FrameworkInfo, Offer, Source, StatusUpdate, TaskState, TaskStatus, Uuid};
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
    let frameworks = end_half(&cluster, each).await?;
    let mut connection = Connection::open(&address).await?;
    let clock = cluster.node.clock().clone();

    let ended = agents as usize * each as usize;
    let begun = clock.now();
    // Not by the page that is measured: its first time counts.
    while over(&connection.get("/state-summary").await?) < ended {
        if clock.now() - begun > ENDING {
            return Err(Failure::new("stalled: not all tasks have ended"));
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
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
struct Bereaved;

impl Scheduler for Bereaved {
    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
        let ids = offers.into_iter().map(|offer| offer.id).collect();
        driver.decline(ids, DECLINED);
    }

    fn status(&mut self, _: &mut Verbs, _: &TaskStatus) {}
}

type Framework = (scheduler_driver::DriverRef, Node);

/// Lets all frameworks of the crowd come, and all but the first `each` tasks of every agent end.
async fn end_half(cluster: &Embedded, each: u32) -> Outcome<Vec<Framework>> {
    let failed = |error: &dyn std::error::Error| Failure::because("a crowd's tasks", error);
    let mut infos: Vec<FrameworkInfo> = Vec::new();
    for info in cluster
        .reports
        .iter()
        .flat_map(|report| &report.held.frameworks)
    {
        if infos.iter().all(|known| known.id != info.id) {
            infos.push(info.clone());
        }
    }
    let mut frameworks = Vec::new();
    for info in infos {
        let node = cluster.framework(&info);
        let driver = SchedulerDriver::new(["master"], info).start(&node, Bereaved);
        frameworks.push((driver.map_err(|error| failed(&error))?, node));
    }
    let (home, clock) = (&cluster.home, cluster.home.clock());
    let patience = Duration::from_secs(5);
    let master = home.find("master", "master", patience).await;
    let master = master.map_err(|error| failed(&error))?;
    for report in &cluster.reports {
        for task in report.held.tasks.iter().skip(each as usize) {
            let agent_id = task.info.agent_id.clone();
            let state = TaskState::Finished;
            let status = TaskStatus::new(
                task.info.task_id.clone(),
                state,
                Source::Executor,
                clock.wall(),
            );
            let mut status = status.on(&agent_id);
            status.uuid = Some(Uuid(home.fresh_uuid()));
            let update = StatusUpdate {
                framework_id: task.framework_id.clone(),
                status,
                latest_state: state,
            };
            let told = home.tell(&master, TaskUpdated { agent_id, update });
            told.map_err(|error| failed(&error))?;
        }
        // The master's mailbox is bounded.
        clock.sleep(Duration::from_millis(1)).await;
    }
    Ok(frameworks)
}

/// How many tasks have ended by this summary.
fn over(summary: &[u8]) -> usize {
    let summary: Value = serde_json::from_slice(summary).unwrap_or_default();
    let frameworks = summary["frameworks"].as_array();
    let finished = frameworks
        .into_iter()
        .flatten()
        .filter_map(|framework| framework["TASK_FINISHED"].as_u64());
    finished.sum::<u64>() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_have_ended_are_counted_over_all_frameworks() {
        let summary =
            br#"{"frameworks":[{"TASK_FINISHED":2,"TASK_RUNNING":7},{"TASK_FINISHED":1},{}]}"#;
        assert_eq!((over(summary), over(b"x")), (3, 0));
    }
}
