//! Tasks launched while others poll `/state` of a large cluster, by turns with tasks launched while nobody does.
//!
//! It is one load, of which many short slices are polled and as many are not: a machine whose loads differ by more than what is looked for would
//! else say what it likes. The polled ones are by turns polled for plain pages and for compressed ones, which tools in Go and Python ask for
//! by themselves.
//!
//! The cluster has one real agent, which runs the tasks, and beside it the crowd of [`state`](super::state), which runs nothing but makes the
//! page as large. What the crowd has is reserved for a role that nobody has, so that all launches are offered the one real agent. Who polls stands
//! for other machines, in a process of its own ([`readers`](super::readers)): told is also how many pages a second they have had.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use master::measure::Crowd;
use protocol::FrameworkInfo;
use protocol::message::registration::RegisterAgent;
use resources::{Resources, Role as ResourceRole};
use runtime::prelude::*;
use runtime::{Clock, Instant, Role};
use scheduler_driver::{DriverRef, SchedulerDriver};
use serde_json::json;
use simulator::crowd::{StandIn, Tally, register};
use tokio::sync::watch;
use transport::{Authority, Endpoint};

use super::super::launch::{self, Launches};
use super::super::part::Part;
use super::super::{Figure, crowd_part, of_crowd, rounded};
use super::HttpArgs;
use super::client::Connection;
use super::launches::{WIDTH, native};
use super::readers::Had;
use super::state::{Bereaved, FINISHED, all_are, end_half, owners};
use crate::failure::{Failure, Outcome};
use crate::flags::Threads;
use crate::local::LocalCluster;

/// How long it is polled, and then not: so short that what the machine does meanwhile is for and against both.
const SLICE: Duration = Duration::from_secs(2);
/// So many loads of `--tasks` are one after the other without a pause.
const LOADS: u32 = 28;
/// How pages are asked for, and what the figure of it is called.
const WAYS: [(&str, &str); 2] = [
    ("identity", "launch_polled"),
    ("gzip", "launch_polled_gzip"),
];
/// What the launches beside pollers should reach of those without.
const WANTED: f64 = 0.95;

/// Launches while clients poll `/state`, beside launches while nobody does: a figure for each way to ask.
pub async fn measure(args: &HttpArgs) -> Outcome<Vec<Figure>> {
    let tasks = args.tasks.saturating_mul(LOADS);
    args.say(&format!(
        "{tasks} tasks, alone and beside {} clients that poll /state of {} other agents every {:?}, plain and compressed, by turns of {SLICE:?}",
        args.pollers, args.agents, args.poll_interval
    ));
    let (_directory, mut options) = launch::cluster_for(WIDTH, Threads::default())?;
    // Else the first load would be on the page.
    options.master.max_completed_frameworks = Some(0);
    let cluster = LocalCluster::start(options).await?;
    let crowd = Beside::come(&cluster, args).await?;
    // What the first load warms is nobody's, nor is the page that it makes longer.
    native(&cluster, args.tasks.div_ceil(4)).await?;
    let bytes = Connection::open(&cluster.master())
        .await?
        .get("/state")
        .await?
        .len();
    let mut pollers = Vec::new();
    for (encoding, _) in WAYS {
        pollers.push(Pollers::start(&cluster, args, encoding).await?);
    }
    let clock = Clock::real();
    let mut turns = Turns::of(&clock);
    let ended = {
        let launches = Launches::new("native", tasks, WIDTH, false)?;
        let load = pin!(launch::measure(&cluster, launches, &clock));
        match select(load, pin!(turns.take(&mut pollers))).await {
            Either::Left((times, _)) => launch::ends(&times?),
            Either::Right((failure, _)) => return Err(failure),
        }
    };
    drop(pollers);
    crowd.go().await;
    cluster.stop()?;
    let Turns { slices, had, .. } = turns;
    let mut figures = Vec::new();
    for (way, (encoding, bench)) in WAYS.into_iter().enumerate() {
        let Some(Compared {
            polled,
            alone,
            ratios,
        }) = Compared::of(way, &slices, &ended)
        else {
            let problem = format!(
                "--tasks is `{}`: expected more than end within {SLICE:?}",
                args.tasks
            );
            return Err(Failure::new(problem));
        };
        let told = |of: fn(&Had) -> f64| {
            let had = had.iter().filter(|(asked, _)| *asked == way);
            had.map(|(_, had)| rounded(of(had))).collect::<Vec<f64>>()
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
                "pollers_nice": 19, "pages_per_second": told(|had| had.pages as f64 / had.seconds),
                "bytes_per_second": told(|had| had.bytes as f64 / had.seconds),
                "page_p50_ms": told(|had| had.p50_ms), "page_p99_ms": told(|had| had.p99_ms),
                "ratios": ratios.iter().copied().map(rounded).collect::<Vec<_>>(), "wanted": WANTED,
                "cores": std::thread::available_parallelism().map_or(0, usize::from),
            }),
        });
    }
    Ok(figures)
}

/// A while, and in which of the [`WAYS`] it was polled.
#[derive(Clone, Copy, Debug)]
struct Slice {
    polled: Option<usize>,
    from: Instant,
    to: Instant,
}

/// The slices of a load, by turns polled and not, and what the pollers had in those.
struct Turns {
    clock: Clock,
    slices: Vec<Slice>,
    had: Vec<(usize, Had)>,
}

impl Turns {
    /// None yet. Their times are this clock's.
    fn of(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            slices: Vec::new(),
            had: Vec::new(),
        }
    }

    /// Until the load is over, and this let go of, or the pollers fail. There are some for each of the [`WAYS`].
    async fn take(&mut self, pollers: &mut [Pollers]) -> Failure {
        loop {
            for (way, pollers) in pollers.iter_mut().enumerate() {
                if let Err(failure) = self.pair(way, pollers).await {
                    return failure;
                }
            }
        }
    }

    async fn pair(&mut self, way: usize, pollers: &mut Pollers) -> Outcome {
        pollers.begin().await?;
        self.slice(Some(way)).await;
        // Pages that are begun are read to their end: that is in no slice.
        self.had.push((way, pollers.end().await?));
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

/// What the slices of a load say.
#[derive(Debug, PartialEq)]
struct Compared {
    /// Tasks that ended each second of those that were polled.
    polled: f64,
    /// And of those that were not.
    alone: f64,
    /// One to the other in each pair of slices, in their order.
    ratios: Vec<f64>,
}

impl Compared {
    /// Of whole pairs, each a slice that was polled and then one that was not, those polled in this way; nothing if there is none, or if
    /// nothing ended in one.
    fn of(way: usize, slices: &[Slice], ended: &[Instant]) -> Option<Self> {
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
            .filter(|[polled, _]| polled.polled == Some(way))
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

/// A crowd of agents beside the real one, with tasks of which half have ended, and the frameworks of these.
struct Beside {
    home: Node,
    _endpoint: Endpoint,
    _agents: Vec<Handle<StandIn>>,
    frameworks: Vec<DriverRef>,
}

impl Beside {
    async fn come(cluster: &LocalCluster, args: &HttpArgs) -> Outcome<Self> {
        let (each, masters) = (args.tasks_each, vec![cluster.master()]);
        let authority = Authority::load(cluster.certs())
            .map_err(|error| Failure::because("no authority", &error))?;
        let crowd = Crowd::new(args.agents, 2 * each)
            .map_err(|error| Failure::because("no crowd", &error))?;
        let mut reports = crowd.reports;
        reports.iter_mut().try_for_each(keep_from_others)?;
        let (tally, _watched) = watch::channel(Tally::default());
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

    async fn go(self) {
        for framework in self.frameworks {
            let _ = framework.tear_down(); // If it has ended, so much the better.
            framework.ended().await;
        }
        self.home.shutdown().await;
    }
}

fn framework(cluster: &LocalCluster, info: FrameworkInfo) -> Outcome<DriverRef> {
    let identity = cluster.issue(Role::Framework, &info.name)?;
    let driver = SchedulerDriver::new([cluster.master()], info).connect(&identity, Bereaved);
    driver.map_err(|error| Failure::because("cannot start a framework of the crowd", &error))
}

/// All that this agent has is reserved for a role that nobody has.
fn keep_from_others(report: &mut RegisterAgent) -> Outcome {
    let bad = |error: &dyn std::error::Error| Failure::because("the crowd's resources", error);
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

    /// They poll from now on.
    async fn begin(&mut self) -> Outcome {
        self.0.ask().await?;
        Ok(())
    }

    /// They poll no more; what they have had.
    async fn end(&mut self) -> Outcome<Had> {
        let had = self.0.ask().await?;
        serde_json::from_value(had).map_err(|error| Failure::because("the clients", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slices_that_were_polled_are_compared_with_those_that_were_not() {
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
        // What ends between two slices is in none.
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
