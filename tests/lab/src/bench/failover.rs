//! `meros-lab bench failover`: the time to recover after the leading master is killed, and the rate
//! at which many agents reregister.
//!
//! Three measurements with masters and their default timeouts:
//! - `kills`: the leader of three masters is killed under a load of launches, several times.
//!   Masters, agents, drivers and links are real; tasks have no processes. At the end every task
//!   must have run exactly once and finished, or never have started and been reported as such.
//! - `memory`: agents with tasks that all reregister within this process (see
//!   [`simulator::synthetic_agents::returning`]).
//! - `quic`: the same over QUIC from separate processes. The agents are synthetic and all else is
//!   real. Their processes stand for other machines, so they have the lowest priority.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::agent::agent::AgentState;
use ::agent::host::detect::Host;
use ::agent::launcher::{ContainerEnd, Events, LaunchError, LaunchRequest};
use ::agent::sandbox::ReadError;
use ::agent::{Launcher, LauncherEvent, Modules, Sandboxes, Settings, Started, WorkDir};
use clap::{Args, ValueEnum};
use executor_driver::environment::TASK_ID;
use futures_util::future::{join_all, try_join_all};
use futures_util::try_join;
use meros::flags::duration;
use meros::output::error::{CliError, Outcome};
use meros::service::{RunningService, ServiceThread, free_port, machine_name, raise_open_files};
use module_api::Parameters;
use protocol::message::operator::FileChunk;
use protocol::message::scheduler::{Subscribe, Subscribed};
use protocol::{
    CommandInfo, ContainerId, Filters, FrameworkInfo, Offer, Operation, Reason, TaskId, TaskInfo,
    TaskState, TaskStatus, Termination, Wants,
};
use resources::Resources;
use runtime::prelude::*;
use runtime::{Clock, Instant};
use scheduler_driver::{Calls, DriverRef, Scheduler, SchedulerDriver, Undelivered};
use serde_json::{Value, json};
use simulator::synthetic_agents::returning::{self, MESOS_SECONDS};
use storage::Store;
use tempfile::TempDir;
use testkit::disk::SimulatedDisk;
use transport::{Authority, Endpoint, Identity, Options, unix};

use super::agents::{agent_node, agent_socket, any_port};
use super::launch::user;
use super::process::{Part, ServiceProcess};
use super::{Figure, OutputFlags, Result, client, median, ms_since, rounded};

/// Timeout of each recovery and of an election.
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout of the first registration of all agents, which is not measured.
const START_PATIENCE: Duration = Duration::from_secs(300);
/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Goals in milliseconds.
const COMMIT_MAX: f64 = 1000.0;
const REGISTERED_MAX: f64 = 2000.0;

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// The leader is killed under load
    Kills,
    /// Synthetic agents reregister within this process
    Memory,
    /// Synthetic agents reregister over QUIC
    Quic,
}

/// Time to recover after the leading master is killed
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct FailoverArgs {
    /// Measure only these
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "kills,memory,quic"
    )]
    measure: Vec<Measurement>,
    /// Real agents, on machines without processes, during the kills
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=5000))]
    agents: u32,
    /// Frameworks that launch tasks during the kills
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    frameworks: u32,
    /// Number of kills of the leader; a killed master is restarted before the next one
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
    /// The wait before each kill
    #[arg(long, default_value = "10secs", value_parser = duration, value_name = "DURATION")]
    pause: Duration,
    /// Synthetic agents within this process
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    crowd: u32,
    /// Synthetic agents over QUIC
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=25_000))]
    crowd_quic: u32,
    /// Agents that share a socket and its connections; with 1 each has its own, as on separate
    /// machines
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    each_socket: u32,
    /// Tasks that each synthetic agent reports
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    tasks_each: u32,
    /// Directory for all files of the measurement [default: the directory for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench failover`.
pub async fn run(args: &FailoverArgs) -> Result {
    raise_open_files()?;
    // Each is reported at once, since the next one may fail.
    if args.measure.contains(&Measurement::Kills) {
        args.output.report(&kills(args).await?);
    }
    if args.measure.contains(&Measurement::Memory) {
        args.output.report(&in_memory(args).await?);
    }
    if args.measure.contains(&Measurement::Quic) {
        args.output.report(&over_quic(args).await?);
    }
    Ok(())
}

/// Three masters in processes of their own, with default timeouts. Dropping it ends them.
struct Group {
    masters: Vec<Option<ServiceProcess>>,
    addresses: Vec<String>,
    authority: Authority,
    clock: Clock,
    directory: TempDir,
}

impl Group {
    /// Starts the masters, which write below `directory`, or in a temporary directory.
    fn start(directory: Option<&Path>) -> Result<Self> {
        let parent = directory.map_or_else(std::env::temp_dir, Path::to_owned);
        // The path is short, since paths of Unix sockets are bounded.
        let directory = tempfile::Builder::new()
            .prefix("meros-")
            .tempdir_in(parent)?;
        let authority = Authority::load_or_create(&directory.path().join("certs"))?;
        let address = |_| free_port().map(|port| format!("127.0.0.1:{port}"));
        let mut group = Self {
            masters: Vec::new(),
            addresses: (0..3).map(address).collect::<Outcome<_>>()?,
            authority,
            clock: Clock::real(),
            directory,
        };
        for index in 0..group.addresses.len() {
            let master = group.process(index)?;
            group.masters.push(Some(master));
        }
        Ok(group)
    }

    fn process(&self, index: usize) -> Result<ServiceProcess> {
        let all = ["--initial_masters", &self.addresses.join(",")];
        let (name, address) = (format!("master-{index}"), &self.addresses[index]);
        ServiceProcess::start(&name, address, self.directory.path(), &all)
    }

    /// Addresses of the running masters.
    fn alive(&self) -> Vec<String> {
        let all = self.masters.iter().zip(&self.addresses);
        let alive = all.filter(|(master, _)| master.is_some());
        alive.map(|(_, address)| address.clone()).collect()
    }

    fn issue(&self, role: Role, name: &str) -> Result<Identity> {
        Ok(self.authority.issue(role, name)?)
    }

    /// Waits until this master leads (200) or follows a leader (307). Asks for a page that is cheap
    /// for the master.
    async fn shows(&self, index: usize, status: u16) -> bool {
        let address = &self.addresses[index];
        self.masters[index].is_some()
            && client::status(&self.clock, address, "/flags").await == Some(status)
    }

    /// Waits for a leader and returns its index.
    async fn leader(&self) -> Result<usize> {
        let begun = self.clock.now();
        while self.clock.now() - begun < PATIENCE {
            for index in 0..self.masters.len() {
                if self.shows(index, 200).await {
                    return Ok(index);
                }
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
        Err(format!("no master leads within {PATIENCE:?}").into())
    }

    /// Kills a master without warning.
    fn kill(&mut self, index: usize) {
        if let Some(master) = self.masters.get_mut(index).and_then(Option::take) {
            master.kill();
        }
    }

    /// Restarts a killed master in its directory, and waits until it knows the leader.
    async fn start_again(&mut self, index: usize) -> Result {
        self.masters[index] = Some(self.process(index)?);
        let begun = self.clock.now();
        while !self.shows(index, 307).await {
            if self.clock.now() - begun > PATIENCE {
                return Err("the restarted master does not follow".into());
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// Milliseconds from one kill.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Round {
    /// Until the registry commits the next operation.
    commit: f64,
    /// Until all agents are registered with the new leader.
    agents: f64,
    /// Until all frameworks are subscribed to it.
    frameworks: f64,
    /// Until a task launched after the kill is running.
    launch: f64,
}

async fn kills(args: &FailoverArgs) -> Result<Vec<Figure>> {
    let mut group = Group::start(args.directory.as_deref())?;
    let clock = group.clock.clone();
    group.leader().await?;
    args.output
        .say(format_args!("{} agents register", args.agents));
    let agents = Agents::start(&group, args.agents).await?;
    agents.with_a_master(&clock, "", START_PATIENCE).await?;
    let load = Load::start(&group, args.frameworks as usize)?;
    let probe = Probe::new(&group)?;
    load.until(&clock, |ledger| ledger.all_subscribed(Instant::default()))
        .await?;
    let mut rounds = Vec::new();
    for number in 1..=args.kills {
        clock.sleep(args.pause).await;
        let round = kill(&mut group, &agents, &load, &probe).await?;
        args.output
            .say(format_args!("kill {number} of {}: {round:?}", args.kills));
        rounds.push(round);
    }
    load.ledger().closed = true;
    load.until(&clock, |ledger| (ledger.living == 0).then(|| clock.now()))
        .await?;
    let verdict = load.ledger().verdict(&agents.starts());
    load.stop().await;
    drop(agents);
    judged(&verdict)?;
    Ok(figures(args, &rounds, &verdict))
}

/// One kill. The killed master is a follower again at the end.
async fn kill(group: &mut Group, agents: &Agents, load: &Load, probe: &Probe) -> Result<Round> {
    let clock = group.clock.clone();
    let leader = group.leader().await?;
    let dead = group.addresses[leader].clone();
    let begun = clock.now();
    group.kill(leader);
    let left = group.alive();
    let since = |at: Instant| (at - begun).as_secs_f64() * 1000.0;
    let commit = async {
        probe.commit(&left).await?;
        Ok(ms_since(&clock, begun))
    };
    let back = async {
        agents.with_a_master(&clock, &dead, PATIENCE).await?;
        Ok(ms_since(&clock, begun))
    };
    let frameworks = load.until(&clock, |ledger| ledger.all_subscribed(begun));
    let launch = load.until(&clock, |ledger| ledger.first_running(begun));
    let (commit, agents, frameworks, launch) = try_join!(commit, back, frameworks, launch)?;
    group.start_again(leader).await?;
    Ok(Round {
        commit,
        agents,
        frameworks: since(frameworks),
        launch: since(launch),
    })
}

/// A lost or duplicated task is a failure, whatever the times.
fn judged(verdict: &Verdict) -> Result {
    match verdict.problems.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "of {} tasks some were lost or doubled: {}",
            verdict.launched,
            verdict.problems.join("; ")
        )
        .into()),
    }
}

fn figures(args: &FailoverArgs, rounds: &[Round], verdict: &Verdict) -> Vec<Figure> {
    let figure = |bench, limit, of: fn(&Round) -> f64| {
        let each: Vec<f64> = rounds.iter().map(of).collect();
        let in_order: Vec<f64> = each.iter().copied().map(rounded).collect();
        let worst = each.iter().copied().fold(0.0, f64::max);
        Figure::new(bench, worst, "ms")
            .beside(limit, "the most that the worst may be")
            .with(json!({
                "agents": args.agents, "frameworks": args.frameworks, "kills": args.kills,
                "median_ms": rounded(median(&each)), "each_ms": in_order,
                "launched": verdict.launched, "finished": verdict.finished, "refused": verdict.refused,
            }))
    };
    vec![
        figure("failover_commit", COMMIT_MAX, |round| round.commit),
        figure("failover_registered", REGISTERED_MAX, |round| {
            round.agents.max(round.frameworks)
        }),
        figure("failover_launch", REGISTERED_MAX, |round| round.launch),
    ]
}

/// Real agents on a separate thread, except for the start of processes and for files. Dropping
/// this ends them.
struct Agents {
    agents: Vec<Started>,
    starts: Starts,
    _thread: ServiceThread,
}

/// Number of starts of each task on any agent.
type Starts = Arc<Mutex<BTreeMap<String, u32>>>;

impl Agents {
    /// Starts `count` agents for this group.
    async fn start(group: &Group, count: u32) -> Result<Self> {
        let sockets = group.directory.path().join("x");
        std::fs::create_dir_all(&sockets)?;
        let identity = |number| group.issue(Role::Agent, &format!("agent-{number}"));
        let identities = (0..count).map(identity).collect::<Result<Vec<_>>>()?;
        let (masters, starts) = (group.addresses.clone(), Starts::default());
        let record = starts.clone();
        let start = async move || {
            let (mut agents, mut nodes) = (Vec::new(), Vec::new());
            for (number, identity) in identities.iter().enumerate() {
                let (agent, node) = one_agent(&masters, &sockets, identity, number, &record)
                    .map_err(|error| CliError::because(format!("agent {number}"), &*error))?;
                agents.push(agent);
                nodes.push(node);
            }
            let running = RunningService {
                ended: Box::pin(std::future::pending()),
                stop: Box::pin(async move {
                    join_all(nodes.iter().map(|(node, ..)| node.shutdown())).await;
                    join_all(nodes.into_iter().map(|(_, endpoint, _)| endpoint.close())).await;
                }),
                renewal: None,
            };
            Ok((agents, running))
        };
        let (thread, agents) = ServiceThread::begin("agents", start)?.wait().await?;
        Ok(Self {
            agents,
            starts,
            _thread: thread,
        })
    }

    fn starts(&self) -> BTreeMap<String, u32> {
        lock(&self.starts).clone()
    }

    /// Waits until each agent is registered with a master other than `not_at`. Fails with the
    /// number of missing agents.
    ///
    /// Between two polls of all missing agents it polls only one: polling a thousand every few
    /// milliseconds would load the measured thread.
    async fn with_a_master(&self, clock: &Clock, not_at: &str, patience: Duration) -> Result {
        let begun = clock.now();
        let registered = |state: AgentState| state.master.is_some_and(|master| master != not_at);
        let is_back = async |agent: &Started| agent.state().await.is_ok_and(registered);
        let mut missing: Vec<&Started> = self.agents.iter().collect();
        loop {
            let back = join_all(missing.iter().map(|agent| is_back(agent))).await;
            let mut back = back.into_iter();
            missing.retain(|_| !back.next().unwrap_or(false));
            let Some(first) = missing.first() else {
                return Ok(());
            };
            while !is_back(first).await {
                if clock.now() - begun > patience {
                    let (missing, all) = (missing.len(), self.agents.len());
                    let problem = format!("{missing} of {all} agents miss after {patience:?}");
                    return Err(problem.into());
                }
                clock.sleep(POLL_INTERVAL).await;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn one_agent(
    masters: &[String],
    sockets: &Path,
    identity: &Identity,
    number: usize,
    starts: &Starts,
) -> Result<(Started, (Node, Endpoint, unix::Listener))> {
    let node = agent_node(identity);
    let endpoint = agent_socket(&node, identity)?;
    let work_dir = sockets.join(number.to_string());
    let mut settings = Settings::new(masters.to_vec(), &work_dir);
    settings.hostname = Some("127.0.0.1".to_owned());
    settings.port = endpoint.address()?.port();
    settings.resources = Some("cpus:8;mem:16384;disk:100000;ports:[31000-32000]".to_owned());
    settings.executor_socket = sockets.join(format!("{number}.sock"));
    let host = Host {
        name: "simulated".to_owned(),
        cores: 8,
        memory: 16 << 30,
        disk: 100 << 30,
    };
    let config = settings.check_on(&host)?;
    let executors =
        unix::Listener::bind(node.clone(), config.executor_socket(), &[Role::Executor])?;
    let (registry, noop) = (::modules::registry(), Parameters::none("noop"));
    let advisers = Modules {
        resource_estimator: registry.resource_estimator(&node, "noop", &noop)?,
        qos_controller: registry.qos_controller(&node, "noop", &noop)?,
        isolators: Vec::new(),
        provisioner: None,
    };
    let disk = SimulatedDisk::new();
    let open = Arc::new(move || Ok(Box::new(disk.open()?) as Box<dyn Store>));
    let work_dir = WorkDir::simulated(&work_dir, Arc::new(NoSandboxes), open);
    let launcher = Box::new(Machine {
        starts: starts.clone(),
        events: None,
        launched: 0,
    });
    let sampler = Arc::new(|_: &[i32]| Ok(Default::default())); // No process uses anything.
    let agent = ::agent::start_with(&node, config, work_dir, launcher, advisers, sampler)?;
    Ok((agent, (node, endpoint, executors)))
}

/// A machine without processes: each task only waits for half a second.
struct Machine {
    starts: Starts,
    events: Option<Events>,
    launched: i32,
}

impl Launcher for Machine {
    fn attach(&mut self, events: Events) {
        self.events = Some(events);
    }

    fn launch(&mut self, request: LaunchRequest) -> std::result::Result<(), LaunchError> {
        let Some(events) = self.events.clone() else {
            let reason = "no receiver of events".to_owned();
            return Err(LaunchError { reason });
        };
        self.launched += 1;
        let (pid, starts, container_id) =
            (self.launched, self.starts.clone(), request.container_id);
        let task = request
            .environment
            .get(TASK_ID)
            .cloned()
            .unwrap_or_default();
        tokio::task::spawn_local(async move {
            *lock(&starts).entry(task).or_default() += 1;
            events(LauncherEvent::Started {
                container_id: container_id.clone(),
                pid,
            });
            Clock::real().sleep(Duration::from_millis(500)).await;
            let end = ContainerEnd::Command {
                termination: Termination::Exited(0),
                kill_wanted: false,
            };
            events(LauncherEvent::Exited { container_id, end });
        });
        Ok(())
    }

    // Its tasks end soon.
    fn terminate(&mut self, _: &ContainerId, _: Duration) {}

    fn kill(&mut self, _: &ContainerId) {}
}

/// Sandboxes without files: the tasks write nothing.
struct NoSandboxes;

impl Sandboxes for NoSandboxes {
    fn create(
        &self,
        _: &Path,
        _: &ContainerId,
        _: Option<&str>,
    ) -> std::result::Result<(), String> {
        Ok(())
    }

    fn read(&self, _: &Path, _: &str, _: u64, _: u32) -> std::result::Result<FileChunk, ReadError> {
        Err(ReadError::NotFound)
    }
}

/// Measures when the registry accepts an operation again: subscribes a new framework with the
/// running masters in turn, until one admits it, which is synced on the disks of a majority. The
/// framework wants no offers and ends at once.
struct Probe {
    node: Node,
    _endpoint: Endpoint,
}

/// A scheduler that ignores all messages.
struct IgnoringScheduler;

impl Actor for IgnoringScheduler {
    type Context = Context<Self>;
}

impl Process for IgnoringScheduler {}

impl Probe {
    fn new(group: &Group) -> Result<Self> {
        let identity = group.issue(Role::Framework, "probe")?;
        let node = Node::builder("probe")
            .role(Role::Framework)
            .accepts(&[Role::Master])
            .build();
        let endpoint = Endpoint::bind(node.clone(), &identity, any_port(), Options::default())?;
        Ok(Self {
            node,
            _endpoint: endpoint,
        })
    }

    /// Waits until one of these masters has admitted a framework.
    async fn commit(&self, masters: &[String]) -> Result {
        let begun = self.node.clock().now();
        while self.node.clock().now() - begun < PATIENCE {
            for master in masters {
                let found = self.node.find(master, "master", Duration::from_millis(500));
                if let Ok(master) = found.await
                    && self.admitted(&master).await?
                {
                    return Ok(());
                }
            }
            self.node.clock().sleep(POLL_INTERVAL).await;
        }
        Err(format!("no master admits a framework within {PATIENCE:?}").into())
    }

    async fn admitted(&self, master: &Pid) -> Result<bool> {
        let scheduler = self.node.spawn_unnamed("scheduler", IgnoringScheduler)?;
        let mut framework = FrameworkInfo::new(user(), "probe");
        framework.hostname = "localhost".to_owned();
        let question = Subscribe {
            wants: Wants::suppressing(BTreeSet::from(["*".to_owned()])),
            framework,
            scheduler: scheduler.pid(),
        };
        let answer = self
            .node
            .ask(master, question, Duration::from_secs(5))
            .await;
        self.node.stop(&scheduler.pid());
        Ok(matches!(answer, Ok(Ok(_))))
    }
}

/// Resources of one task.
const NEEDS: &str = "cpus:0.1;mem:16";
/// Tasks of each framework per offer, and at most alive.
const AT_ONCE: usize = 2;
const LIVING_MAX: usize = 32;
/// Unused resources are wanted again after a second.
const LATER: Filters = Filters {
    refuse_seconds: 1.0,
};

/// Frameworks on the real driver that launch short tasks all the time: a few on each offer.
struct Load {
    drivers: Vec<DriverRef>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Load {
    fn start(group: &Group, frameworks: usize) -> Result<Self> {
        let ledger = Arc::new(Mutex::new(Ledger::new(frameworks)));
        let mut drivers = Vec::new();
        for number in 0..frameworks {
            let name = format!("load-{number}");
            let mut info = FrameworkInfo::new(user(), &name);
            info.hostname = machine_name();
            info.failover_timeout = Duration::from_secs(600);
            let launcher = Launching {
                number,
                ledger: ledger.clone(),
                clock: group.clock.clone(),
                needs: NEEDS.parse()?,
                launched: 0,
                living: 0,
            };
            let identity = group.issue(Role::Framework, &name)?;
            let driver = SchedulerDriver::new(group.addresses.clone(), info);
            drivers.push(driver.connect(&identity, launcher)?);
        }
        Ok(Self { drivers, ledger })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// Waits until the ledger has this time.
    async fn until(
        &self,
        clock: &Clock,
        look: impl Fn(&Ledger) -> Option<Instant>,
    ) -> Result<Instant> {
        let begun = clock.now();
        while clock.now() - begun < PATIENCE {
            {
                let ledger = self.ledger();
                if let Some(reason) = &ledger.over {
                    return Err(format!("a framework has failed: {reason}").into());
                }
                if let Some(at) = look(&ledger) {
                    return Ok(at);
                }
            }
            clock.sleep(POLL_INTERVAL).await;
        }
        Err(format!("the frameworks have not recovered within {PATIENCE:?}").into())
    }

    /// Ends the frameworks.
    async fn stop(self) {
        for driver in &self.drivers {
            let _ = driver.tear_down(); // It may have ended already.
        }
        for driver in &self.drivers {
            driver.ended().await;
        }
    }
}

/// The scheduler of one framework.
struct Launching {
    number: usize,
    ledger: Arc<Mutex<Ledger>>,
    clock: Clock,
    needs: Resources,
    launched: u64,
    living: usize,
}

impl Launching {
    /// The next task on this offer; `None` if the offer is too small.
    fn task(&mut self, offer: &Offer) -> Option<TaskInfo> {
        let resources = offer.resources.clone().find(&self.needs)?;
        let name = format!("load-{}.{}", self.number, self.launched);
        self.launched += 1;
        let task = TaskInfo::new(TaskId::new(&name).ok()?, offer.agent_id.clone(), resources);
        Some(task.with_command(CommandInfo::shell("run 500ms")))
    }
}

impl Scheduler for Launching {
    fn subscribed(&mut self, _: &mut Calls, _: &Subscribed) {
        lock(&self.ledger).subscribed[self.number] = Some(self.clock.now());
    }

    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        let mut wanted = match lock(&self.ledger).closed {
            false => AT_ONCE.min(LIVING_MAX.saturating_sub(self.living)),
            true => 0,
        };
        for offer in offers {
            let task = (wanted > 0).then(|| self.task(&offer)).flatten();
            let Some(task) = task else {
                driver.decline(vec![offer.id], LATER);
                continue;
            };
            wanted -= 1;
            self.living += 1;
            lock(&self.ledger).accepted(task.task_id.clone(), self.clock.now());
            let tasks = vec![task];
            driver.accept(vec![offer.id], vec![Operation::Launch { tasks }], LATER);
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        let ended = lock(&self.ledger).status(status, self.clock.now());
        self.living -= usize::from(ended);
    }

    fn undelivered(&mut self, _: &mut Calls, failed: &Undelivered) {
        let (call, error) = (failed.call, &failed.error);
        lock(&self.ledger).over = Some(format!("a call was not delivered: {call}: {error}"));
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        lock(&self.ledger).over = Some(reason.to_owned());
    }
}

/// One task, as its framework saw it.
#[derive(Clone, Debug)]
struct Seen {
    accepted: Instant,
    running: Option<Instant>,
    /// Terminal states from status updates.
    ends: Vec<TaskState>,
    /// The terminal state from reconciliation, which may be repeated.
    answered: Option<TaskState>,
    message: String,
}

/// All events of the frameworks. Reads no clock: the caller passes the time.
#[derive(Clone, Debug, Default)]
struct Ledger {
    /// The last subscription of each framework.
    subscribed: Vec<Option<Instant>>,
    tasks: BTreeMap<TaskId, Seen>,
    /// Number of tasks without a terminal state.
    living: usize,
    /// Whether no more tasks are launched.
    closed: bool,
    /// Why a framework cannot continue.
    over: Option<String>,
}

/// Result over all tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdict {
    launched: usize,
    finished: usize,
    /// Tasks that reached no agent, reported as such to their framework.
    refused: usize,
    /// Descriptions of the first lost or duplicated tasks.
    problems: Vec<String>,
}

impl Ledger {
    fn new(frameworks: usize) -> Self {
        Self {
            subscribed: vec![None; frameworks],
            ..Self::default()
        }
    }

    /// Records that an offer was accepted for this task.
    fn accepted(&mut self, task: TaskId, now: Instant) {
        let seen = Seen {
            accepted: now,
            running: None,
            ends: Vec::new(),
            answered: None,
            message: String::new(),
        };
        self.living += usize::from(self.tasks.insert(task, seen).is_none());
    }

    /// Records a status. Returns whether it is the first terminal state of its task.
    fn status(&mut self, status: &TaskStatus, now: Instant) -> bool {
        let Some(seen) = self.tasks.get_mut(&status.task_id) else {
            return false; // An unknown task.
        };
        if status.state == TaskState::Running {
            seen.running.get_or_insert(now);
        }
        if !status.state.is_terminal() {
            return false;
        }
        let first = seen.ends.is_empty() && seen.answered.is_none();
        match status.reason {
            Some(Reason::Reconciliation) => seen.answered = Some(status.state),
            _ => seen.ends.push(status.state),
        }
        seen.message.clone_from(&status.message);
        self.living -= usize::from(first);
        first
    }

    /// Time of the last subscription, if all frameworks have subscribed after `since`.
    fn all_subscribed(&self, since: Instant) -> Option<Instant> {
        let each = self.subscribed.iter().map(|at| at.filter(|at| *at > since));
        each.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Time of the first running state of the tasks accepted after `since`.
    fn first_running(&self, since: Instant) -> Option<Instant> {
        let later = self.tasks.values().filter(|task| task.accepted > since);
        later.filter_map(|task| task.running).min()
    }

    /// The result over all tasks, given how often each was started on any agent.
    fn verdict(&self, starts: &BTreeMap<String, u32>) -> Verdict {
        let mut verdict = Verdict {
            launched: self.tasks.len(),
            ..Verdict::default()
        };
        for (id, task) in &self.tasks {
            let started = starts.get(id.as_str()).copied().unwrap_or(0);
            let mut ends = task.ends.clone();
            ends.extend(task.answered.filter(|end| !task.ends.contains(end)));
            match (started, ends.as_slice()) {
                (1, [TaskState::Finished]) => verdict.finished += 1,
                (0, [TaskState::Lost | TaskState::Dropped | TaskState::Error]) => {
                    verdict.refused += 1;
                }
                (_, ends) => verdict.problems.push(format!(
                    "{id} was started {started} times, expected once; its ends are {ends:?}: {}",
                    task.message
                )),
            }
        }
        let known = |id: &str| TaskId::new(id).is_ok_and(|id| self.tasks.contains_key(&id));
        let strange = starts.keys().filter(|id| !known(id));
        let strange = strange.map(|id| format!("{id} was started and never launched"));
        verdict.problems.extend(strange);
        verdict.problems.truncate(10);
        verdict
    }
}

/// Rounds within the process; the median counts.
const ROUNDS: usize = 3;
/// Largest number of sockets in one process.
const CROWD_MAX: u32 = 9_000;

/// Within this process: seconds with equal digests, and with a master that does not know the tasks.
async fn in_memory(args: &FailoverArgs) -> Result<Vec<Figure>> {
    let (mut full, mut digest) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let agents = args.crowd;
        args.output.say(format_args!(
            "{agents} agents in memory: round {round} of {ROUNDS}"
        ));
        let took = returning::round(agents, args.tasks_each).await?;
        full.push(took.full);
        digest.push(took.digest);
    }
    let figure = |bench, seconds: &[f64], asked_for| {
        let mut each: Vec<f64> = seconds.iter().copied().map(rounded).collect();
        each.sort_by(f64::total_cmp);
        Figure::new(bench, median(seconds), "s")
            .beside(
                MESOS_SECONDS,
                "Mesos, 20,000 agents with 100,000 tasks, recorded",
            )
            .with(json!({
                "agents": args.crowd, "tasks": args.crowd * args.tasks_each, "each_s": each,
                "ratio_asked_for": asked_for,
            }))
    };
    Ok(vec![
        figure("reregister_digest", &digest, 0.1),
        figure("reregister_full", &full, 1.0),
    ])
}

/// The first agent and the number of agents for each process.
fn shares(agents: u32, each_socket: u32) -> Vec<(u32, u32)> {
    let most = CROWD_MAX.saturating_mul(each_socket);
    let parts = (0..agents).step_by(most as usize);
    parts
        .map(|first| (first, most.min(agents - first)))
        .collect()
}

async fn over_quic(args: &FailoverArgs) -> Result<Vec<Figure>> {
    let mut group = Group::start(args.directory.as_deref())?;
    let clock = group.clock.clone();
    group.leader().await?;
    let (agents, each_socket) = (args.crowd_quic, args.each_socket);
    let shares = shares(agents, each_socket);
    let (parts, sockets) = (shares.len(), agents.div_ceil(each_socket));
    args.output.say(format_args!(
        "{agents} agents with {sockets} sockets register"
    ));
    let certs = group.directory.path().join("certs");
    let starting = shares.into_iter().map(|(first, count)| {
        let arguments = [
            ("--master", group.addresses.join(",")),
            ("--first", first.to_string()),
            ("--agents", count.to_string()),
            ("--each_socket", each_socket.to_string()),
            ("--tasks_each", args.tasks_each.to_string()),
        ];
        let certs = &certs;
        async move { Part::start_behind("crowd-part", &arguments, certs).await }
    });
    let mut crowd = try_join_all(starting).await?;
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let first = crowd.iter().map(|part| number(&part.first["seconds"]));
    let first = first.fold(0.0, f64::max);
    clock.sleep(args.pause).await;

    args.output.say("the leader is killed");
    let leader = group.leader().await?;
    let killed = clock.now();
    group.kill(leader);
    let leading = async { Ok((group.leader().await?, clock.now())) };
    let back = async {
        let answers = try_join_all(crowd.iter_mut().map(Part::ask)).await?;
        Result::Ok((answers, clock.now()))
    };
    let ((next, led), (answers, ended)) = try_join!(leading, back)?;
    let bytes = |of: &str| {
        answers
            .iter()
            .map(|answer| number(&answer[of]))
            .sum::<f64>()
    };
    let each = |bytes: f64| bytes / f64::from(agents);
    let (sent, received) = (bytes("sent"), bytes("received"));
    let parameters = json!({
        "agents": agents, "tasks": agents * args.tasks_each, "sockets": sockets, "processes": parts,
        "seconds_from_the_kill": rounded((ended - killed).as_secs_f64()),
        "seconds_first_time": rounded(first),
        "bytes_sent_each": rounded(each(sent)), "bytes_received_each": rounded(each(received)),
        "bytes_before_each": rounded(each(bytes("before"))),
    });
    let figure = |bench, figure, unit| Figure::new(bench, figure, unit).with(parameters.clone());
    let master = group.masters[next].as_ref().ok_or("the leader is gone")?;
    Ok(vec![
        figure("reregister_quic", (ended - led).as_secs_f64(), "s").beside(
            MESOS_SECONDS,
            "Mesos, 20,000 agents within one process, recorded",
        ),
        figure("reregister_bytes", each(sent + received), "bytes an agent"),
        figure("reregister_memory", master.peak()?, "MiB"),
    ])
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use protocol::Source;
    use runtime::Timestamp;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: FailoverArgs,
    }

    fn args(words: &[&str]) -> std::result::Result<FailoverArgs, clap::Error> {
        let line = Line::try_parse_from(["failover"].iter().chain(words));
        line.map(|line| line.args)
    }

    #[test]
    fn default_arguments_match_the_goals() {
        let all = args(&[]).unwrap();
        assert_eq!(all.measure.len(), 3);
        let counts = (
            all.agents,
            all.frameworks,
            all.kills,
            all.crowd,
            all.crowd_quic,
        );
        assert_eq!(counts, (1000, 20, 5, 20_000, 20_000));
        assert_eq!((all.each_socket, all.tasks_each), (10, 5));
        let some = args(&["--measure", "memory,kills"]).unwrap();
        assert_eq!(some.measure, [Measurement::Memory, Measurement::Kills]);
    }

    #[test]
    fn figure_is_the_worst_kill() {
        let round = |commit, agents, frameworks| Round {
            commit,
            agents,
            frameworks,
            launch: agents,
        };
        let rounds = [
            round(400.0, 900.0, 800.0),
            round(700.0, 600.0, 1500.0),
            round(500.0, 700.0, 600.0),
        ];
        let figures = figures(&args(&[]).unwrap(), &rounds, &Verdict::default());
        assert_eq!(figures[0].figure, 700.0);
        assert_eq!(figures[0].parameters["median_ms"], 500.0);
        assert_eq!(figures[1].figure, 1500.0);
        assert_eq!(figures[2].parameters["each_ms"][1], 600.0);
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    fn id(name: &str) -> TaskId {
        TaskId::new(name).unwrap()
    }

    fn status(name: &str, state: TaskState) -> TaskStatus {
        TaskStatus::new(id(name), state, Source::Executor, Timestamp::default())
    }

    #[test]
    fn next_launch_is_accepted_after_the_kill() {
        let mut ledger = Ledger::new(0);
        ledger.accepted(id("before"), at(9));
        ledger.accepted(id("after"), at(12));
        ledger.status(&status("before", TaskState::Running), at(11));
        assert_eq!(ledger.first_running(at(10)), None);
        ledger.status(&status("after", TaskState::Running), at(13));
        ledger.status(&status("after", TaskState::Running), at(14));
        assert_eq!(ledger.first_running(at(10)), Some(at(13)));
    }

    #[test]
    fn frameworks_are_back_with_the_last_one() {
        let mut ledger = Ledger::new(2);
        ledger.subscribed = vec![Some(at(11)), Some(at(2))];
        assert_eq!(ledger.all_subscribed(at(0)), Some(at(11)));
        assert_eq!(ledger.all_subscribed(at(10)), None);
    }

    /// The verdict over task `t` with this number of starts and these ends; those after `|` are
    /// reconciled.
    fn verdict(started: u32, ends: &[TaskState], reconciled: &[TaskState]) -> Verdict {
        let mut ledger = Ledger::new(0);
        ledger.accepted(id("t"), at(0));
        for end in ends {
            ledger.status(&status("t", *end), at(1));
        }
        for end in reconciled {
            let answer = status("t", *end).with_reason(Reason::Reconciliation, "latest state");
            ledger.status(&answer, at(2));
        }
        assert_eq!(
            ledger.living,
            usize::from(ends.len() + reconciled.len() == 0)
        );
        ledger.verdict(&[("t".to_owned(), started)].into())
    }

    #[test]
    fn lost_and_duplicated_tasks_fail_the_measurement() {
        use TaskState::{Finished, Lost};
        assert_eq!(verdict(1, &[Finished], &[]).finished, 1);
        assert_eq!(verdict(0, &[Lost], &[]).refused, 1);
        assert_eq!(verdict(1, &[Finished], &[Finished, Finished]).finished, 1);
        let cases: [(u32, &[TaskState], &[TaskState]); 7] = [
            (0, &[], &[]),
            (1, &[], &[]),
            (1, &[Lost], &[]),
            (2, &[Finished], &[]),
            (0, &[Finished], &[]),
            (1, &[Finished, Finished], &[]),
            (1, &[Finished], &[Lost]),
        ];
        for (started, ends, reconciled) in cases {
            let verdict = verdict(started, ends, reconciled);
            assert_eq!(verdict.problems.len(), 1, "{started} {ends:?}");
            let failure = judged(&verdict).unwrap_err().to_string();
            assert!(failure.contains("of 1 tasks some"), "{failure}");
            assert!(failure.contains("t was started"), "{failure}");
        }
        let strange = Ledger::new(0).verdict(&[("x".to_owned(), 1)].into());
        assert_eq!(strange.problems, ["x was started and never launched"]);
    }

    #[test]
    fn agents_are_split_by_sockets_per_process() {
        assert_eq!(shares(20_000, 10), [(0, 20_000)]);
        let split = [(0, 9_000), (9_000, 9_000), (18_000, 2_000)];
        assert_eq!(shares(20_000, 1), split);
        assert_eq!(shares(9_000, 1), [(0, 9_000)]);
        assert_eq!(shares(18_001, 2), [(0, 18_000), (18_000, 1)]);
    }
}
