//! Tasks launched while others poll `/state` of a large cluster, in turns with tasks launched while nobody does.
//!
//! The cluster has one real agent, which runs the tasks, and beside it the crowd of [`state`](super::state), which runs nothing but makes the
//! page as large. What the crowd has is reserved for a role that nobody has, so that all launches are offered the one real agent. Who polls stands
//! for other machines, in a process of its own ([`readers`](super::readers)): told is also how many pages a second they have had.

use master::measure::Crowd;
use protocol::FrameworkInfo;
use protocol::message::registration::RegisterAgent;
use resources::{Resources, Role as ResourceRole};
use runtime::prelude::*;
use runtime::{Clock, Role};
use scheduler_driver::{DriverRef, SchedulerDriver};
use serde_json::json;
use simulator::crowd::{StandIn, Tally, register};
use tokio::sync::watch;
use transport::{Authority, Endpoint};

use super::super::part::Part;
use super::super::{Figure, crowd_part, launch, of_crowd, rounded};
use super::HttpArgs;
use super::client::Connection;
use super::launches::{WIDTH, native};
use super::readers::Had;
use super::state::{Bereaved, FINISHED, all_are, end_half, owners};
use crate::failure::{Failure, Outcome};
use crate::flags::Threads;
use crate::local::LocalCluster;

/// How many pairs of loads are compared, one with and one without pollers: odd, so that one of them is the middle one.
const PAIRS: usize = 7;
/// What the launches beside pollers should reach of those without.
const WANTED: f64 = 0.95;

/// Launches while clients poll `/state`, beside launches while nobody does.
pub async fn measure(args: &HttpArgs) -> Outcome<Figure> {
    args.say(&format!(
        "{} tasks, alone and beside {} clients that poll /state of {} other agents every {:?}",
        args.tasks, args.pollers, args.agents, args.poll_interval
    ));
    let (_directory, mut options) = launch::cluster_for(WIDTH, Threads::default())?;
    // Else each load leaves a page for the next that is larger by what it has launched.
    options.master.max_completed_frameworks = Some(0);
    let cluster = LocalCluster::start(options).await?;
    let crowd = Beside::come(&cluster, args).await?;
    // What the first load warms is nobody's.
    native(&cluster, args.tasks.div_ceil(4)).await?;
    let bytes = Connection::open(&cluster.master())
        .await?
        .get("/state")
        .await?
        .len();
    let mut pollers = Pollers::start(&cluster, args).await?;
    let (mut pairs, mut had) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        // Whatever drifts is for and against both.
        let (polled, alone) = match pair % 2 {
            0 => {
                let polled = polled(&cluster, args, &mut pollers, &mut had).await?;
                (polled, native(&cluster, args.tasks).await?)
            }
            _ => {
                let alone = native(&cluster, args.tasks).await?;
                let polled = polled(&cluster, args, &mut pollers, &mut had).await?;
                (polled, alone)
            }
        };
        pairs.push((polled, alone));
    }
    drop(pollers);
    crowd.go().await;
    cluster.stop()?;
    let per_second = |count: fn(&Had) -> u64| {
        let rates = had
            .iter()
            .map(|had| rounded(count(had) as f64 / had.seconds));
        rates.collect::<Vec<f64>>()
    };
    let Compared {
        polled,
        alone,
        ratios,
        missed,
    } = Compared::of(pairs);
    Ok(Figure {
        bench: "launch_polled",
        figure: polled,
        unit: "tasks/s",
        limit: alone,
        limit_is: "the same with nobody polling, in the middle one of the pairs",
        parameters: json!({
            "tasks": args.tasks, "side_by_side": WIDTH,
            "pollers": args.pollers, "poll_interval_ms": args.poll_interval.as_millis() as u64, "bytes": bytes,
            "agents": args.agents, "running": args.agents * args.tasks_each, "completed": args.agents * args.tasks_each,
            "pollers_nice": 19, "pages_per_second": per_second(|had| had.pages), "bytes_per_second": per_second(|had| had.bytes),
            "page_p50_ms": had.iter().map(|had| rounded(had.p50_ms)).collect::<Vec<_>>(),
            "page_p99_ms": had.iter().map(|had| rounded(had.p99_ms)).collect::<Vec<_>>(),
            "ratios": ratios, "wanted": WANTED, "missed": missed,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
        }),
    })
}

async fn polled(
    cluster: &LocalCluster,
    args: &HttpArgs,
    pollers: &mut Pollers,
    had: &mut Vec<Had>,
) -> Outcome<f64> {
    pollers.begin().await?;
    let rate = native(cluster, args.tasks).await?;
    had.push(pollers.end().await?);
    Ok(rate)
}

/// What pairs of rates say, each with pollers and without.
#[derive(Debug, PartialEq)]
struct Compared {
    /// Those of the pair whose ratio is the middle one.
    polled: f64,
    alone: f64,
    /// All ratios, in their order.
    ratios: Vec<f64>,
    /// How many of them are less than is wanted.
    missed: usize,
}

impl Compared {
    fn of(pairs: Vec<(f64, f64)>) -> Self {
        let ratio = |(polled, alone): &(f64, f64)| polled / alone.max(f64::EPSILON);
        let ratios: Vec<f64> = pairs.iter().map(ratio).collect();
        let missed = ratios.iter().filter(|ratio| **ratio < WANTED).count();
        let mut pairs = pairs;
        pairs.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let (polled, alone) = pairs.get(pairs.len() / 2).copied().unwrap_or_default();
        Self {
            polled,
            alone,
            ratios,
            missed,
        }
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
    async fn start(cluster: &LocalCluster, args: &HttpArgs) -> Outcome<Self> {
        let interval = format!("{}ms", args.poll_interval.as_millis());
        let flags = [
            ("--master", cluster.master()),
            ("--path", "/state".to_owned()),
            ("--readers", args.pollers.to_string()),
            ("--every", interval),
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
    fn the_middle_pair_is_the_figure_and_those_that_miss_are_counted() {
        let compared = Compared::of(vec![(90.0, 100.0), (200.0, 200.0), (194.0, 200.0)]);
        let expected = Compared {
            polled: 194.0,
            alone: 200.0,
            ratios: vec![0.9, 1.0, 0.97],
            missed: 1,
        };
        assert_eq!(compared, expected);
    }
}
