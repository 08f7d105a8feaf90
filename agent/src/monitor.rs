//! The usage monitor: measures what each container uses, when somebody asks (SPEC 5.7, S4).
//!
//! Hears [`CurrentUsage`] from modules and from the agent's pages. Remembers only who is waiting: questions that come while it
//! measures are answered together. It never acts on what it sees.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use module_api::usage::{CurrentUsage, UsageUnavailable};
use protocol::{ResourceStatistics, ResourceUsage};
use resources::Resources;
use runtime::Timestamp;
use runtime::prelude::*;

use crate::container::Containerizer;
use crate::container::events::{Occupant, Occupants};
use crate::procfs::{self, Process};

/// How long the containerizer may take to say who is here.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions that may wait for one measurement.
const WAITING_MAX: usize = 1024;

/// Finds the processes of these leaders. Tests put their own here.
pub type Sampler =
    Arc<dyn Fn(&[i32]) -> std::io::Result<BTreeMap<i32, Vec<Process>>> + Send + Sync>;

/// Reads /proc.
pub fn proc_sampler() -> Sampler {
    Arc::new(|leaders| Ok(procfs::by_leader(&procfs::processes()?, leaders)))
}

type Answer = Result<ResourceUsage, UsageUnavailable>;

/// The actor.
pub struct Monitor {
    total: Resources,
    containerizer: Handle<Containerizer>,
    sampler: Sampler,
    waiting: Vec<Promise<Answer>>,
}

impl Monitor {
    /// Measures the containers of this containerizer, on an agent with these resources.
    pub fn new(total: Resources, containerizer: Handle<Containerizer>, sampler: Sampler) -> Self {
        Self {
            total,
            containerizer,
            sampler,
            waiting: Vec::new(),
        }
    }

    fn measure(&mut self, ctx: &mut Context<Self>) {
        let (node, sampler) = (ctx.node().clone(), self.sampler.clone());
        let (total, asked) = (
            self.total.clone(),
            self.containerizer.ask(Occupants, PATIENCE),
        );
        let measuring = async move {
            let failed = |reason: String| UsageUnavailable { reason };
            let occupants = asked
                .await
                .map_err(|error| failed(format!("the containers are not known: {error}")))?;
            let leaders: Vec<i32> = occupants
                .iter()
                .filter_map(|occupant| occupant.leader)
                .collect();
            let sampled = node.blocking(move || sampler(&leaders)).await;
            let sampled = sampled.map_err(|error| failed(error.to_string()))?;
            let sampled = sampled.map_err(|error| failed(format!("/proc: {error}")))?;
            Ok(usage(
                total,
                occupants,
                &sampled,
                node.clock().wall(),
                Units::of_host(),
            ))
        };
        ctx.then(measuring, |this, answer: Answer, _| {
            if let Ok(usage) = &answer {
                tracing::debug!(executors = usage.executors.len(), "usage is measured");
            }
            for waiting in this.waiting.drain(..) {
                waiting.answer(answer.clone());
            }
        });
    }
}

/// What ticks and pages are on this host.
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
    occupants: Vec<Occupant>,
    sampled: &BTreeMap<i32, Vec<Process>>,
    now: Timestamp,
    units: Units,
) -> ResourceUsage {
    let measured = |occupant: Occupant| {
        let mut usage = occupant.usage;
        let processes = occupant
            .leader
            .and_then(|leader| sampled.get(&leader))
            .filter(|found| !found.is_empty());
        usage.statistics =
            processes.map(|processes| statistics(processes, &usage.allocated, now, units));
        usage
    };
    ResourceUsage {
        total,
        executors: occupants.into_iter().map(measured).collect(),
    }
}

fn statistics(
    processes: &[Process],
    allocated: &Resources,
    now: Timestamp,
    units: Units,
) -> ResourceStatistics {
    let seconds = |ticks: u64| ticks as f64 / units.ticks_per_second;
    ResourceStatistics {
        timestamp: now,
        processes: u32::try_from(processes.len()).unwrap_or(u32::MAX),
        threads: processes.iter().map(|process| process.threads).sum(),
        cpus_user_time_secs: seconds(processes.iter().map(|process| process.user_ticks).sum()),
        cpus_system_time_secs: seconds(processes.iter().map(|process| process.system_ticks).sum()),
        cpus_limit: allocated.cpus().as_f64(),
        mem_rss_bytes: processes
            .iter()
            .map(|process| process.resident_pages * units.page)
            .sum(),
        mem_limit_bytes: (allocated.mem().as_f64() * 1024.0 * 1024.0) as u64,
    }
}

impl Actor for Monitor {
    type Context = Context<Self>;
}

impl runtime::Process for Monitor {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<CurrentUsage>(&[Role::Module]);
    }
}

impl Handler<CurrentUsage> for Monitor {
    type Result = Reply<Answer>;
    fn handle(&mut self, _: CurrentUsage, ctx: &mut Context<Self>) -> Reply<Answer> {
        let (promise, reply) = promise();
        if self.waiting.len() >= WAITING_MAX {
            promise.answer(Err(UsageUnavailable {
                reason: "too many ask at once".into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::usage::ExecutorUsage;
    use protocol::{ContainerId, ExecutorId, FrameworkId};

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

    /// S4.
    #[test]
    fn a_containers_processes_are_summed_and_one_that_is_gone_has_no_statistics() {
        let occupant = |leader| Occupant {
            usage: ExecutorUsage {
                framework_id: FrameworkId::new("f").unwrap(),
                executor_id: ExecutorId::new("e").unwrap(),
                container_id: ContainerId::new("c").unwrap(),
                allocated: Resources::parse("cpus:1.5;mem:32").unwrap(),
                tasks: Vec::new(),
                statistics: None,
            },
            leader: Some(leader),
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
            vec![occupant(10), occupant(20)],
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
            (12 * 4096, 32 << 20)
        );
        assert_eq!(measured.cpus_limit, 1.5);
        assert_eq!(usage.executors[1].statistics, None);
    }
}
