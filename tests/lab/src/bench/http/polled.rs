//! Launches while clients poll `/state` of a large cluster, compared with launches without polling.
//!
//! It is one load of many short slices, alternately polled and not, because whole loads differ by
//! more than the measured effect. The polled slices alternate between plain and compressed pages;
//! clients in Go and Python request the latter by default.
//!
//! The cluster has one real agent, which runs the tasks, and the synthetic agents of
//! [`state`](super::state), which only make the page large. Their resources are reserved for an
//! unused role, so that all launches use the real agent. The pollers stand for other machines and
//! run in a process of their own ([`readers`](super::readers)); the parameters include the pages
//! per second that they received.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use master::state::measure::SyntheticAgents;
use protocol::FrameworkInfo;
use protocol::message::registration::RegisterAgent;
use resources::{Resources, Role as ResourceRole};
use runtime::prelude::*;
use runtime::{Clock, Instant, Role};
use scheduler_driver::{DriverRef, SchedulerDriver};
use serde_json::json;
use simulator::synthetic_agents::{MasterCounts, SyntheticAgent, register};
use tokio::sync::watch;
use transport::{Authority, Endpoint};

use super::super::launch::{self, Launches};
use super::super::part::Part;
use super::super::{Figure, crowd_part, of_crowd, rounded};
use super::HttpArgs;
use super::client::Connection;
use super::launches::{WIDTH, native};
use super::readers::PollResults;
use super::state::{DecliningScheduler, FINISHED, all_are, end_half, owners};
use meros::flags::Threads;
use meros::output::error::{CliError, Outcome};
use meros::service::local::LocalCluster;

/// Duration of a slice; short, so that other work on the machine affects both kinds equally.
const SLICE: Duration = Duration::from_secs(2);
/// Loads of `--tasks` tasks without a pause between them.
const LOADS: u32 = 28;
/// Encodings of requested pages, with the names of their figures.
const ENCODINGS: [(&str, &str); 2] = [
    ("identity", "launch_polled"),
    ("gzip", "launch_polled_gzip"),
];
/// Goal for the rate with pollers, as a fraction of the rate without.
const WANTED: f64 = 0.95;

/// Launches while clients poll `/state`, compared with launches without polling: one figure for
/// each encoding.
pub async fn measure(args: &HttpArgs) -> Outcome<Vec<Figure>> {
    let tasks = args.tasks.saturating_mul(LOADS);
    args.say(&format!(
        "{tasks} tasks, alone and beside {} clients that poll /state of {} other agents every {:?}, plain and compressed, by turns of {SLICE:?}",
        args.pollers, args.agents, args.poll_interval
    ));
    let (_directory, mut options) = launch::cluster_for(WIDTH, Threads::default())?;
    // Otherwise the page would include the first load.
    options.master.max_completed_frameworks = Some(0);
    let cluster = LocalCluster::start(options).await?;
    let crowd = RunningAgents::start(&cluster, args).await?;
    // Warms up before the page is measured.
    native(&cluster, args.tasks.div_ceil(4)).await?;
    let bytes = Connection::open(&cluster.master())
        .await?
        .get("/state")
        .await?
        .len();
    let mut pollers = Vec::new();
    for (encoding, _) in ENCODINGS {
        pollers.push(Pollers::start(&cluster, args, encoding).await?);
    }
    let clock = Clock::real();
    let mut recorder = SliceRecorder::of(&clock);
    let ended = {
        let launches = Launches::new("native", tasks, WIDTH, false)?;
        let load = pin!(launch::measure(&cluster, launches, &clock));
        match select(load, pin!(recorder.take(&mut pollers))).await {
            Either::Left((times, _)) => launch::ends(&times?),
            Either::Right((failure, _)) => return Err(failure),
        }
    };
    drop(pollers);
    crowd.stop().await;
    cluster.stop()?;
    let SliceRecorder {
        slices, results, ..
    } = recorder;
    let mut figures = Vec::new();
    for (encoding_index, (encoding, bench)) in ENCODINGS.into_iter().enumerate() {
        let Some(Compared {
            polled,
            alone,
            ratios,
        }) = Compared::of(encoding_index, &slices, &ended)
        else {
            let problem = format!(
                "--tasks is `{}`: expected more than end within {SLICE:?}",
                args.tasks
            );
            return Err(CliError::new(problem));
        };
        let column = |of: fn(&PollResults) -> f64| {
            let results = results.iter().filter(|(asked, _)| *asked == encoding_index);
            results
                .map(|(_, results)| rounded(of(results)))
                .collect::<Vec<f64>>()
        };
        figures.push(Figure {
            bench,
            figure: polled,
            unit: "tasks/s",
            limit: alone,
            limit_is: "the same in the slices of that load in which nobody polls",
            parameters: json!({
                "tasks": tasks, "side_by_side": WIDTH, "slice_ms": SLICE.as_millis() as u64, "encoding": encoding,
                "pollers": args.pollers, "poll_interval_ms": args.poll_interval.as_millis() as u64, "bytes": bytes,
                "agents": args.agents, "running": args.agents * args.tasks_each, "completed": args.agents * args.tasks_each,
                "pollers_nice": 19, "pages_per_second": column(|results| results.pages as f64 / results.seconds),
                "bytes_per_second": column(|results| results.bytes as f64 / results.seconds),
                "page_p50_ms": column(|results| results.p50_ms), "page_p99_ms": column(|results| results.p99_ms),
                "ratios": ratios.iter().copied().map(rounded).collect::<Vec<_>>(), "wanted": WANTED,
                "cores": std::thread::available_parallelism().map_or(0, usize::from),
            }),
        });
    }
    Ok(figures)
}

/// A slice of time, with the index of its encoding if it was polled.
#[derive(Clone, Copy, Debug)]
struct Slice {
    polled: Option<usize>,
    from: Instant,
    to: Instant,
}

/// The slices of a load, alternately polled and not, with the results of the pollers.
struct SliceRecorder {
    clock: Clock,
    slices: Vec<Slice>,
    results: Vec<(usize, PollResults)>,
}

impl SliceRecorder {
    /// An empty record. Times are those of this clock.
    fn of(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            slices: Vec::new(),
            results: Vec::new(),
        }
    }

    /// Records slices until it is dropped at the end of the load, or until the pollers fail. There
    /// are pollers for each of the [`ENCODINGS`].
    async fn take(&mut self, pollers: &mut [Pollers]) -> CliError {
        loop {
            for (encoding_index, pollers) in pollers.iter_mut().enumerate() {
                if let Err(failure) = self.pair(encoding_index, pollers).await {
                    return failure;
                }
            }
        }
    }

    async fn pair(&mut self, encoding_index: usize, pollers: &mut Pollers) -> Outcome {
        pollers.begin().await?;
        self.slice(Some(encoding_index)).await;
        // Current pages are completed outside of all slices.
        self.results.push((encoding_index, pollers.end().await?));
        self.slice(None).await;
        Ok(())
    }

    async fn slice(&mut self, polled: Option<usize>) {
        let from = self.clock.now();
        self.clock.sleep(SLICE).await;
        let to = self.clock.now();
        self.slices.push(Slice { polled, from, to });
    }
}

/// Results of a load.
#[derive(Debug, PartialEq)]
struct Compared {
    /// Tasks that ended per second of polled slices.
    polled: f64,
    /// The same of slices without polling.
    alone: f64,
    /// The ratio of both for each pair of slices, in order.
    ratios: Vec<f64>,
}

impl Compared {
    /// Compares whole pairs, a slice polled with this encoding and the next one without. `None`
    /// without such a pair, or if a slice had no ended task.
    fn of(encoding_index: usize, slices: &[Slice], ended: &[Instant]) -> Option<Self> {
        let rate = |slices: &[Slice]| {
            let within = |slice: &Slice| slice.from..slice.to;
            let count =
                |slice: &Slice| ended.iter().filter(|at| within(slice).contains(at)).count();
            let lasted: Duration = slices.iter().map(|slice| slice.to - slice.from).sum();
            slices.iter().map(count).sum::<usize>() as f64 / lasted.as_secs_f64()
        };
        let (pairs, _) = slices.as_chunks::<2>();
        let pairs: Vec<[Slice; 2]> = pairs
            .iter()
            .filter(|[polled, _]| polled.polled == Some(encoding_index))
            .copied()
            .collect();
        let of = |place: usize| pairs.iter().map(|pair| pair[place]).collect::<Vec<_>>();
        let ratio = |[polled, alone]: &[Slice; 2]| rate(&[*polled]) / rate(&[*alone]);
        let ratios: Vec<f64> = pairs.iter().map(ratio).collect();
        let is_whole = !ratios.is_empty() && ratios.iter().all(|ratio| ratio.is_finite());
        is_whole.then(|| Self {
            polled: rate(&of(0)),
            alone: rate(&of(1)),
            ratios,
        })
    }
}

/// The synthetic agents, with running and completed tasks, and the frameworks of these.
struct RunningAgents {
    home: Node,
    _endpoint: Endpoint,
    _agents: Vec<Handle<SyntheticAgent>>,
    frameworks: Vec<DriverRef>,
}

impl RunningAgents {
    async fn start(cluster: &LocalCluster, args: &HttpArgs) -> Outcome<Self> {
        let (each, masters) = (args.tasks_each, vec![cluster.master()]);
        let authority = Authority::load(cluster.certs())
            .map_err(|error| CliError::because("no authority", &error))?;
        let crowd = SyntheticAgents::new(args.agents, 2 * each)
            .map_err(|error| CliError::because("no crowd", &error))?;
        let mut reports = crowd.reports;
        reports.iter_mut().try_for_each(keep_from_others)?;
        let (tally, _watched) = watch::channel(MasterCounts::default());
        let (mut agents, numbered) = (Vec::new(), (0..).zip(reports.clone()));
        let shared = numbered.collect();
        let (home, endpoint) =
            crowd_part::share(&authority, shared, &masters, &tally, &mut agents)?;
        register(&agents).await.map_err(of_crowd)?;
        let mut frameworks = Vec::new();
        for info in owners(&reports) {
            frameworks.push(framework(cluster, info)?);
        }
        end_half(&home, &masters[0], &reports, each).await?;
        let mut connection = Connection::open(&cluster.master()).await?;
        let ended = args.agents as usize * each as usize;
        all_are(&mut connection, &Clock::real(), FINISHED, ended).await?;
        Ok(Self {
            home,
            _endpoint: endpoint,
            _agents: agents,
            frameworks,
        })
    }

    async fn stop(self) {
        for framework in self.frameworks {
            let _ = framework.tear_down(); // It may have ended already.
            framework.ended().await;
        }
        self.home.shutdown().await;
    }
}

fn framework(cluster: &LocalCluster, info: FrameworkInfo) -> Outcome<DriverRef> {
    let identity = cluster.issue(Role::Framework, &info.name)?;
    let driver =
        SchedulerDriver::new([cluster.master()], info).connect(&identity, DecliningScheduler);
    driver.map_err(|error| CliError::because("cannot start a framework of the crowd", &error))
}

/// Reserves all resources of this agent for an unused role.
fn keep_from_others(report: &mut RegisterAgent) -> Outcome {
    let bad = |error: &dyn std::error::Error| CliError::because("the crowd's resources", error);
    let role = ResourceRole::new("crowd").map_err(|error| bad(&error))?;
    let parse = |text: &str| text.parse::<Resources>().map_err(|error| bad(&error));
    report.agent.resources =
        parse("cpus(crowd):32;mem(crowd):65536;disk(crowd):500000;ports(crowd):[31000-32000]")?;
    let needs = parse("cpus(crowd):0.5;mem(crowd):64")?.allocate(&role);
    for task in &mut report.held.tasks {
        task.info.resources = needs.clone();
    }
    Ok(())
}

/// Clients in a process of their own.
struct Pollers(Part);

impl Pollers {
    async fn start(cluster: &LocalCluster, args: &HttpArgs, encoding: &str) -> Outcome<Self> {
        let interval = format!("{}ms", args.poll_interval.as_millis());
        let flags = [
            ("--master", cluster.master()),
            ("--path", "/state".to_owned()),
            ("--readers", args.pollers.to_string()),
            ("--every", interval),
            ("--encoding", encoding.to_owned()),
        ];
        let part = Part::start_behind("the clients", "readers-part", &flags, cluster.certs());
        Ok(Self(part.await?))
    }

    /// Starts the polling.
    async fn begin(&mut self) -> Outcome {
        self.0.ask().await?;
        Ok(())
    }

    /// Stops the polling and returns the results.
    async fn end(&mut self) -> Outcome<PollResults> {
        let results = self.0.ask().await?;
        serde_json::from_value(results).map_err(|error| CliError::because("the clients", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polled_slices_are_compared_with_unpolled_ones() {
        let at = |millis: u64| Instant::default() + Duration::from_millis(millis);
        let slice = |polled, from, to| Slice {
            polled,
            from: at(from),
            to: at(to),
        };
        let slices = [
            slice(Some(0), 0, 1_000),
            slice(None, 1_500, 2_500),
            slice(Some(1), 2_500, 3_500),
            slice(None, 3_500, 4_500),
            slice(Some(0), 4_500, 5_500),
            slice(None, 6_000, 7_000),
            slice(Some(1), 7_000, 8_000), // The load ended before its other half.
        ];
        // Ends between two slices do not count.
        let ended = [
            999, 1_000, 1_500, 2_000, 2_500, 2_600, 2_700, 3_600, 4_000, 4_500, 5_000, 6_000,
            6_500, 7_500,
        ];
        let ended = ended.map(at);
        let expected = Compared {
            polled: 1.5,
            alone: 2.0,
            ratios: vec![0.5, 1.0],
        };
        assert_eq!(Compared::of(0, &slices, &ended), Some(expected));
        let other = Compared::of(1, &slices, &ended);
        assert_eq!(other.map(|other| other.ratios), Some(vec![1.5]));
        assert_eq!(Compared::of(0, &slices[..1], &ended), None);
        assert_eq!(Compared::of(0, &slices, &[]), None);
    }
}
