//! The usage monitor: measures the resource usage of containers on request.
//!
//! Handles [`CurrentUsage`] from modules and from pages. Requests that arrive during a measurement
//! share its result. The sums of the last measurement are kept for metrics ([`RecentUse`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use module_api::isolator::{ContainerResources, IsolatorRef, Limit, Measured};
use module_api::usage::{CurrentUsage, UsageUnavailable};
use protocol::{ContainerId, ResourceStatistics, ResourceUsage};
use resources::Resources;
use runtime::prelude::*;
use runtime::{Instant, Timestamp};

use crate::container::Containerizer;
use crate::container::events::{ListLiveContainers, LiveContainer};
use crate::host::procfs::{self, Process};
use crate::operations::{CurrentTotal, Operations};

/// How long the containerizer may take to list the containers, and the operations for the total.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum age of a measurement for metrics.
const RECENT: Duration = Duration::from_secs(10);
/// Minimum time to average the use of CPUs over: the kernel counts in ticks of about 10 ms.
const AVERAGED_MIN: Duration = Duration::from_secs(1);
/// Maximum requests waiting for one measurement.
const WAITING_MAX: usize = 1024;

/// Finds the processes of these leaders. Tests substitute their own.
pub type Sampler =
    Arc<dyn Fn(&[i32]) -> std::io::Result<BTreeMap<i32, Vec<Process>>> + Send + Sync>;

/// Reads /proc.
pub fn proc_sampler() -> Sampler {
    Arc::new(|leaders| Ok(procfs::by_leader(&procfs::processes()?, leaders)))
}

type Answer = Result<ResourceUsage, UsageUnavailable>;

/// Requests the sums of the last measurement, if it is at most ten seconds old.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Option<MeasuredUse>")]
pub struct RecentUse;

/// The use of all containers together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredUse {
    /// CPUs, averaged between two measurements; `None` before the second.
    pub cpus: Option<f64>,
    /// Memory, page cache included where control groups count it.
    pub mem_bytes: u64,
    /// Disk space of sandboxes; `None` if no isolator measures it.
    pub disk_bytes: Option<u64>,
    /// Number of processes.
    pub processes: u32,
    /// The part of executors without revocable resources.
    pub regular: Used,
    /// The part of executors with revocable resources.
    pub revocable: Used,
}

/// The use of some containers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// CPUs, averaged between two measurements; `None` before the second.
    pub cpus: Option<f64>,
    /// Memory without page cache, where that is counted.
    pub mem_bytes: u64,
}

/// The last measurement.
struct LastUse {
    at: Instant,
    /// Time and CPU seconds of each container at the measurement that CPUs are averaged from.
    base: (Instant, BTreeMap<ContainerId, f64>),
    used: MeasuredUse,
}

impl LastUse {
    fn after(before: Option<Self>, usage: &ResourceUsage, now: Instant) -> Self {
        let mut used = MeasuredUse::default();
        let (mut seconds, mut revocable) = (BTreeMap::new(), BTreeSet::new());
        for executor in &usage.executors {
            let Some(one) = &executor.statistics else {
                // Its next value is not of its whole life.
                let known = before.as_ref().and_then(|before| {
                    let (id, time) = before.base.1.get_key_value(&executor.container_id)?;
                    Some((id.clone(), *time))
                });
                seconds.extend(known);
                continue;
            };
            used.mem_bytes += one.mem_total_bytes.unwrap_or(one.mem_rss_bytes);
            used.processes += one.processes;
            let part = match executor.is_revocable() {
                true => {
                    revocable.insert(executor.container_id.clone());
                    &mut used.revocable
                }
                false => &mut used.regular,
            };
            part.mem_bytes += one.working_set_bytes();
            if let Some(bytes) = one.disk_used_bytes {
                *used.disk_bytes.get_or_insert_default() += bytes;
            }
            let time = one.cpus_user_time_secs + one.cpus_system_time_secs;
            seconds.insert(executor.container_id.clone(), time);
        }
        let Some(before) = before else {
            return Self {
                at: now,
                base: (now, seconds),
                used,
            };
        };
        let elapsed = now - before.base.0;
        if elapsed < AVERAGED_MIN {
            used.cpus = before.used.cpus;
            used.regular.cpus = before.used.regular.cpus;
            used.revocable.cpus = before.used.revocable.cpus;
            return Self {
                at: now,
                base: before.base,
                used,
            };
        }
        // A container without an earlier value has started since.
        let (mut regular, mut lent) = (0.0, 0.0);
        for (id, time) in &seconds {
            let earlier = before.base.1.get(id).copied().unwrap_or_default();
            let sum = match revocable.contains(id) {
                true => &mut lent,
                false => &mut regular,
            };
            *sum += (time - earlier).max(0.0) / elapsed.as_secs_f64();
        }
        used.cpus = Some(regular + lent);
        (used.regular.cpus, used.revocable.cpus) = (Some(regular), Some(lent));
        Self {
            at: now,
            base: (now, seconds),
            used,
        }
    }
}

/// The monitor actor.
pub struct Monitor {
    containerizer: Handle<Containerizer>,
    operations: Handle<Operations>,
    sampler: Sampler,
    isolators: Vec<IsolatorRef>,
    waiting: Vec<Promise<Answer>>,
    last: Option<LastUse>,
}

impl Monitor {
    /// Measures the containers of this containerizer, on an agent with the resources of these
    /// operations. The sampler measures the containers that no isolator does.
    pub fn new(
        containerizer: Handle<Containerizer>,
        operations: Handle<Operations>,
        sampler: Sampler,
        isolators: Vec<IsolatorRef>,
    ) -> Self {
        Self {
            containerizer,
            operations,
            sampler,
            isolators,
            waiting: Vec::new(),
            last: None,
        }
    }

    fn measure(&mut self, ctx: &mut Context<Self>) {
        let (node, sampler) = (ctx.node().clone(), self.sampler.clone());
        let isolators = self.isolators.clone();
        let asked = self.containerizer.ask(ListLiveContainers, PATIENCE);
        let total = self.operations.ask(CurrentTotal, PATIENCE);
        let measuring = async move {
            let failed = |reason: String| UsageUnavailable { reason };
            let live = asked
                .await
                .map_err(|error| failed(format!("cannot list the containers: {error}")))?;
            let total = total
                .await
                .map_err(|error| failed(format!("cannot get the agent's resources: {error}")))?;
            let (mut measured, mut is_whole) = (Measured::new(), true);
            for isolator in isolators {
                let ids = live.iter().flat_map(ids_of).cloned().collect();
                match isolator.measure(ids).await {
                    Ok(more) => merge(&mut measured, more),
                    Err(error) => {
                        let isolator = isolator.pid();
                        tracing::warn!(%isolator, %error, "cannot measure the containers");
                        is_whole = false;
                    }
                }
            }
            let is_measured = |id| measured.get(id).is_some_and(is_complete);
            let lacking = live.iter().filter(|one| !ids_of(one).all(is_measured));
            // All of an executor, so that no process counts for both it and a nested container.
            let leaders: Vec<i32> = lacking.flat_map(leaders_of).collect();
            let mut sampled = BTreeMap::new();
            if !leaders.is_empty() {
                let found = node.blocking(move || sampler(&leaders)).await;
                let found = found.map_err(|error| failed(error.to_string()))?;
                sampled = found.map_err(|error| failed(format!("/proc: {error}")))?;
            }
            let now = node.clock().wall();
            let mut usage = usage(total, &live, &measured, &sampled, now, Units::of_host());
            if !is_whole {
                // Counters of two sources would seem to run backwards.
                let all = usage.executors.iter_mut();
                all.for_each(|one| one.statistics = None);
            }
            Ok(usage)
        };
        ctx.then(measuring, |this, answer: Answer, ctx| {
            let is_measured = |usage: &&ResourceUsage| {
                let all = &usage.executors;
                all.is_empty() || all.iter().any(|one| one.statistics.is_some())
            };
            if let Some(usage) = answer.as_ref().ok().filter(is_measured) {
                let now = ctx.clock().now();
                this.last = Some(LastUse::after(this.last.take(), usage, now));
                tracing::debug!(executors = usage.executors.len(), "usage measured");
            }
            // Mostly there is one, which needs no copy.
            let first = this.waiting.pop();
            for waiting in this.waiting.drain(..) {
                waiting.answer(answer.clone());
            }
            if let Some(first) = first {
                first.answer(answer);
            }
        });
    }
}

/// The host's clock tick and page size.
#[derive(Clone, Copy, Debug)]
struct Units {
    ticks_per_second: f64,
    page: u64,
}

impl Units {
    fn of_host() -> Self {
        Self {
            ticks_per_second: procfs::ticks_per_second(),
            page: procfs::page_size(),
        }
    }
}

fn usage(
    total: Resources,
    live: &[LiveContainer],
    measured: &Measured,
    sampled: &BTreeMap<i32, Vec<Process>>,
    now: Timestamp,
    units: Units,
) -> ResourceUsage {
    let measure = |id: &ContainerId, leader: Option<i32>, allowed: &ContainerResources| {
        let own = measured.get(id);
        let processes = match leader.and_then(|leader| sampled.get(&leader)) {
            Some(found) if !found.is_empty() => Some(found.as_slice()),
            _ => own.filter(|own| is_complete(own)).map(|_| [].as_slice()),
        };
        processes.map(|processes| {
            let mut all = statistics(processes, allowed, now, units);
            own.into_iter().for_each(|own| all.overlay(own));
            all
        })
    };
    let usage_of = |container: &LiveContainer| {
        let mut usage = container.usage.clone();
        usage.statistics = measure(&usage.container_id, container.leader, &container.resources);
        if let Some(sum) = &mut usage.statistics {
            // One that has just started, or has just ended, has none.
            let apart = container.apart.iter();
            apart
                .filter_map(|one| measure(&one.id, one.leader, &one.resources))
                .for_each(|one| add(sum, one));
        }
        usage
    };
    ResourceUsage {
        total,
        executors: live.iter().map(usage_of).collect(),
    }
}

/// The containers of an executor that are measured.
fn ids_of(container: &LiveContainer) -> impl Iterator<Item = &ContainerId> {
    let nested = container.apart.iter().map(|one| &one.id);
    std::iter::once(&container.usage.container_id).chain(nested)
}

fn leaders_of(container: &LiveContainer) -> impl Iterator<Item = i32> {
    let nested = container.apart.iter().filter_map(|one| one.leader);
    container.leader.into_iter().chain(nested)
}

/// Adds the statistics of a nested container with control groups of its own. Pressures cannot be
/// added; they stay those of the executor's group, and so does its network.
fn add(sum: &mut ResourceStatistics, one: ResourceStatistics) {
    fn plus<T: std::ops::AddAssign>(sum: &mut Option<T>, one: Option<T>) {
        match (sum.as_mut(), one) {
            (Some(sum), Some(one)) => *sum += one,
            (None, Some(one)) => *sum = Some(one),
            (_, None) => {}
        }
    }
    // Soft limits are set only where they differ from the limits.
    if sum.cpus_soft_limit.is_some() || one.cpus_soft_limit.is_some() {
        let soft = |of: &ResourceStatistics| of.cpus_soft_limit.unwrap_or(of.cpus_limit);
        sum.cpus_soft_limit = Some(soft(sum) + soft(&one));
    }
    if sum.mem_soft_limit_bytes.is_some() || one.mem_soft_limit_bytes.is_some() {
        let soft = |of: &ResourceStatistics| of.mem_soft_limit_bytes.unwrap_or(of.mem_limit_bytes);
        sum.mem_soft_limit_bytes = Some(soft(sum).saturating_add(soft(&one)));
    }
    sum.cpus_limit += one.cpus_limit;
    // Infinite limits are the maximum.
    sum.mem_limit_bytes = sum.mem_limit_bytes.saturating_add(one.mem_limit_bytes);
    sum.processes += one.processes;
    sum.threads += one.threads;
    sum.cpus_user_time_secs += one.cpus_user_time_secs;
    sum.cpus_system_time_secs += one.cpus_system_time_secs;
    sum.mem_rss_bytes += one.mem_rss_bytes;
    plus(&mut sum.cpus_nr_periods, one.cpus_nr_periods);
    plus(&mut sum.cpus_nr_throttled, one.cpus_nr_throttled);
    let throttled = one.cpus_throttled_time_secs;
    plus(&mut sum.cpus_throttled_time_secs, throttled);
    plus(&mut sum.mem_total_bytes, one.mem_total_bytes);
    plus(&mut sum.mem_total_memsw_bytes, one.mem_total_memsw_bytes);
    plus(&mut sum.mem_cache_bytes, one.mem_cache_bytes);
    plus(&mut sum.mem_anon_bytes, one.mem_anon_bytes);
    plus(&mut sum.mem_mapped_file_bytes, one.mem_mapped_file_bytes);
    plus(&mut sum.mem_swap_bytes, one.mem_swap_bytes);
    plus(&mut sum.mem_unevictable_bytes, one.mem_unevictable_bytes);
    plus(&mut sum.mem_kmem_usage_bytes, one.mem_kmem_usage_bytes);
    let buffers = one.mem_kmem_tcp_usage_bytes;
    plus(&mut sum.mem_kmem_tcp_usage_bytes, buffers);
    plus(&mut sum.disk_limit_bytes, one.disk_limit_bytes);
    plus(&mut sum.disk_used_bytes, one.disk_used_bytes);
    for more in one.blkio {
        match sum.blkio.iter_mut().find(|own| own.device == more.device) {
            Some(own) => {
                own.bytes += more.bytes;
                own.requests += more.requests;
            }
            None => sum.blkio.push(more),
        }
    }
}

/// Adds the measurements of one more isolator.
fn merge(measured: &mut Measured, more: Measured) {
    if measured.is_empty() {
        *measured = more;
        return;
    }
    for (container, statistics) in more {
        let known = measured.entry(container).or_default();
        known.overlay(&statistics);
    }
}

/// Whether isolators have measured all that the sampler would.
fn is_complete(measured: &ResourceStatistics) -> bool {
    let cpus = measured.cpus_user_time_secs + measured.cpus_system_time_secs;
    measured.processes > 0 && measured.threads > 0 && cpus > 0.0 && measured.mem_rss_bytes > 0
}

fn statistics(
    processes: &[Process],
    allowed: &ContainerResources,
    now: Timestamp,
    units: Units,
) -> ResourceStatistics {
    let seconds = |ticks: u64| ticks as f64 / units.ticks_per_second;
    let requests = &allowed.requests;
    let (cpus, mem) = (requests.cpus().as_f64(), requests.mem().as_f64());
    let bytes = |mebibytes: f64| (mebibytes * 1024.0 * 1024.0) as u64;
    ResourceStatistics {
        timestamp: now,
        processes: u32::try_from(processes.len()).unwrap_or(u32::MAX),
        threads: processes.iter().map(|process| process.threads).sum(),
        cpus_user_time_secs: seconds(processes.iter().map(|process| process.user_ticks).sum()),
        cpus_system_time_secs: seconds(processes.iter().map(|process| process.system_ticks).sum()),
        cpus_limit: allowed.cpus_limit.map_or(cpus, Limit::value),
        cpus_soft_limit: allowed.cpus_limit.map(|_| cpus),
        mem_rss_bytes: processes
            .iter()
            .map(|process| process.resident_pages * units.page)
            .sum(),
        // The conversion saturates.
        mem_limit_bytes: bytes(allowed.mem_limit.map_or(mem, Limit::value)),
        mem_soft_limit_bytes: allowed.mem_limit.map(|_| bytes(mem)),
        ..ResourceStatistics::default()
    }
}

impl Actor for Monitor {
    type Context = Context<Self>;
}

impl runtime::Process for Monitor {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<CurrentUsage>(&[Role::Module]);
    }
}

impl Handler<CurrentUsage> for Monitor {
    type Result = Reply<Answer>;
    fn handle(&mut self, _: CurrentUsage, ctx: &mut Context<Self>) -> Reply<Answer> {
        let (promise, reply) = promise();
        if self.waiting.len() >= WAITING_MAX {
            promise.answer(Err(UsageUnavailable {
                reason: "too many concurrent requests".into(),
            }));
            return reply;
        }
        self.waiting.push(promise);
        if self.waiting.len() == 1 {
            self.measure(ctx);
        }
        reply
    }
}

impl Handler<RecentUse> for Monitor {
    type Result = MessageResult<RecentUse>;
    fn handle(&mut self, _: RecentUse, ctx: &mut Context<Self>) -> Self::Result {
        let now = ctx.clock().now();
        let recent = self.last.as_ref().filter(|last| now - last.at <= RECENT);
        MessageResult(recent.map(|last| last.used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::events::LiveNested;
    use protocol::usage::{ExecutorUsage, Throttle};
    use protocol::{ExecutorId, FrameworkId};

    #[test]
    fn cpus_are_averaged_between_measurements() {
        let usage = |all: &[(&str, f64, Option<u64>)]| ResourceUsage {
            total: Resources::new(),
            executors: all
                .iter()
                .map(|&(name, seconds, disk)| ExecutorUsage {
                    framework_id: FrameworkId::new("f").unwrap(),
                    executor_id: ExecutorId::new("e").unwrap(),
                    executor_name: String::new(),
                    is_command: false,
                    container_id: ContainerId::new(name).unwrap(),
                    allocated: Resources::new(),
                    tasks: Vec::new(),
                    statistics: Some(ResourceStatistics {
                        processes: 2,
                        cpus_user_time_secs: seconds / 2.0,
                        cpus_system_time_secs: seconds / 2.0,
                        mem_rss_bytes: 10,
                        mem_total_bytes: disk.map(|_| 100),
                        disk_used_bytes: disk,
                        ..ResourceStatistics::default()
                    }),
                    throttle: Throttle::default(),
                    objectives: Vec::new(),
                })
                .collect(),
        };
        let start = Instant::default();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let first = LastUse::after(
            None,
            &usage(&[("a", 50.0, None), ("b", 7.0, Some(5))]),
            start,
        );
        let expected = MeasuredUse {
            cpus: None,
            mem_bytes: 110,
            disk_bytes: Some(5),
            processes: 4,
            regular: Used {
                cpus: None,
                mem_bytes: 20,
            },
            revocable: Used::default(),
        };
        assert_eq!(first.used, expected);
        let soon = LastUse::after(Some(first), &usage(&[("a", 50.5, None)]), at(0.5));
        assert_eq!(
            (soon.used.cpus, soon.used.disk_bytes),
            (None, None),
            "too soon"
        );
        // One has ended, and one has started.
        let second = LastUse::after(
            Some(soon),
            &usage(&[("a", 53.0, None), ("c", 1.0, None)]),
            at(2.0),
        );
        assert_eq!(second.used.cpus, Some(2.0));
        assert_eq!(second.used.regular.cpus, Some(2.0));
        let third = LastUse::after(Some(second), &usage(&[("a", 53.0, None)]), at(2.1));
        assert_eq!(third.used.cpus, Some(2.0));
    }

    fn process(pid: i32, ticks: u64, pages: u64) -> Process {
        Process {
            pid,
            parent: 1,
            group: pid,
            session: 10,
            zombie: false,
            user_ticks: ticks,
            system_ticks: ticks * 2,
            threads: 3,
            resident_pages: pages,
        }
    }

    // Covers S4 in part: what is measured.
    #[test]
    fn usage_sums_processes_and_skips_ended_containers() {
        let live_container = |leader| LiveContainer {
            usage: ExecutorUsage {
                framework_id: FrameworkId::new("f").unwrap(),
                executor_id: ExecutorId::new("e").unwrap(),
                executor_name: String::new(),
                is_command: false,
                container_id: ContainerId::new("c").unwrap(),
                allocated: Resources::parse("cpus:1.5;mem:32").unwrap(),
                tasks: Vec::new(),
                statistics: None,
                throttle: Throttle::default(),
                objectives: Vec::new(),
            },
            leader: Some(leader),
            resources: ContainerResources {
                requests: Resources::parse("cpus:1.5;mem:32").unwrap(),
                mem_limit: Some(Limit::Infinite),
                ..ContainerResources::default()
            },
            apart: Vec::new(),
        };
        let sampled = BTreeMap::from([
            (10, vec![process(10, 100, 5), process(11, 50, 7)]),
            (20, Vec::new()),
        ]);
        let units = Units {
            ticks_per_second: 100.0,
            page: 4096,
        };
        let now = Timestamp::from_nanos(5);
        let usage = usage(
            Resources::new(),
            &[live_container(10), live_container(20)],
            &Measured::new(),
            &sampled,
            now,
            units,
        );
        let measured = usage.executors[0].statistics.clone().unwrap();
        assert_eq!((measured.processes, measured.threads), (2, 6));
        assert_eq!(
            (measured.cpus_user_time_secs, measured.cpus_system_time_secs),
            (1.5, 3.0)
        );
        assert_eq!(
            (measured.mem_rss_bytes, measured.mem_limit_bytes),
            (12 * 4096, u64::MAX)
        );
        assert_eq!(measured.mem_soft_limit_bytes, Some(32 << 20));
        assert_eq!((measured.cpus_limit, measured.cpus_soft_limit), (1.5, None));
        assert_eq!(usage.executors[1].statistics, None);
        let by_isolators = ResourceStatistics {
            processes: 1,
            threads: 2,
            cpus_user_time_secs: 0.5,
            mem_rss_bytes: 8,
            ..ResourceStatistics::default()
        };
        let incomplete = ResourceStatistics {
            mem_rss_bytes: 0,
            ..by_isolators.clone()
        };
        for (statistics, expected) in [(by_isolators, Some((2, 0.5, 1.5))), (incomplete, None)] {
            let measured = Measured::from([(ContainerId::new("c").unwrap(), statistics)]);
            let alone = [live_container(10)];
            let none = BTreeMap::new();
            let usage = super::usage(Resources::new(), &alone, &measured, &none, now, units);
            let found = usage.executors[0].statistics.clone();
            let found = found.map(|one| (one.threads, one.cpus_user_time_secs, one.cpus_limit));
            assert_eq!(found, expected, "measured by isolators, and not in /proc");
        }
        let nested = |name, leader| LiveNested {
            id: ContainerId::new(name).unwrap(),
            leader,
            resources: ContainerResources {
                requests: Resources::parse("cpus:2;mem:64").unwrap(),
                ..ContainerResources::default()
            },
        };
        let executor = LiveContainer {
            apart: vec![nested("n", Some(30)), nested("new", None)],
            ..live_container(10)
        };
        assert_eq!(ids_of(&executor).count(), 3);
        assert_eq!(leaders_of(&executor).collect::<Vec<i32>>(), [10, 30]);
        let sampled = BTreeMap::from([
            (10, vec![process(10, 100, 5)]),
            (30, vec![process(30, 200, 7)]),
        ]);
        let none = Measured::new();
        let usage = super::usage(Resources::new(), &[executor], &none, &sampled, now, units);
        let sum = usage.executors[0].statistics.clone().unwrap();
        assert_eq!((sum.processes, sum.cpus_user_time_secs), (2, 3.0));
        assert_eq!((sum.mem_rss_bytes, sum.cpus_limit), (12 * 4096, 3.5));
        assert_eq!(sum.mem_soft_limit_bytes, Some(96 << 20));
    }
}
