//! Shared by the tests of this crate: a scripted monitor, and usage written in one line.

use module_api::{CurrentUsage, UsageUnavailable};
use protocol::usage::Throttle;
use protocol::{
    ContainerId, ExecutorId, ExecutorUsage, FrameworkId, QosCorrection, ResourceStatistics,
    ResourceUsage,
};
use resources::{Resources, Revocable};
use runtime::Timestamp;
use runtime::prelude::*;

/// Replies with the last given usage, or with an error if there is none.
pub struct Monitor(Option<ResourceUsage>);

/// Sets the usage.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SetUsage(pub ResourceUsage);

impl Monitor {
    pub fn of(usage: ResourceUsage) -> Self {
        Self(Some(usage))
    }

    pub fn broken() -> Self {
        Self(None)
    }
}

impl Actor for Monitor {
    type Context = Context<Self>;
}

impl Process for Monitor {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<CurrentUsage>();
    }
}

impl Handler<CurrentUsage> for Monitor {
    type Result = Result<ResourceUsage, UsageUnavailable>;

    fn handle(&mut self, _: CurrentUsage, _: &mut Context<Self>) -> Self::Result {
        self.0.clone().ok_or_else(|| UsageUnavailable {
            reason: "the meter is broken".to_owned(),
        })
    }
}

impl Handler<SetUsage> for Monitor {
    type Result = ();

    fn handle(&mut self, SetUsage(usage): SetUsage, _: &mut Context<Self>) {
        self.0 = Some(usage);
    }
}

/// Executors as `name:resources`, separated by blanks; a `*` after a resource's name makes it
/// revocable.
pub fn usage(line: &str) -> ResourceUsage {
    let mut usage = ResourceUsage::default();
    for word in line.split_whitespace() {
        let (name, text) = word.split_once(':').unwrap();
        usage.executors.push(ExecutorUsage {
            framework_id: FrameworkId::new("framework").unwrap(),
            executor_id: ExecutorId::new(name).unwrap(),
            executor_name: name.to_owned(),
            is_command: false,
            container_id: ContainerId::new(format!("container-{name}")).unwrap(),
            allocated: parse_marked(text),
            tasks: Vec::new(),
            statistics: None,
            throttle: Throttle::default(),
            objectives: Vec::new(),
        });
    }
    usage
}

/// Resources; a `*` after a resource's name makes it revocable.
pub fn parse_marked(text: &str) -> Resources {
    let (lent, regular): (Vec<_>, Vec<_>) = text.split(';').partition(|one| one.contains("*:"));
    let lent = Resources::parse(&lent.join(";").replace("*:", ":")).unwrap();
    let regular = Resources::parse(&regular.join(";")).unwrap();
    regular + lent.to_revocable(Revocable::Throttleable).unwrap()
}

pub fn executor<'a>(usage: &'a ResourceUsage, name: &str) -> &'a ExecutorUsage {
    let mut executors = usage.executors.iter();
    executors
        .find(|executor| executor.executor_id.as_str() == name)
        .unwrap()
}

/// Sets the statistics of an executor: the time of the measurement and its CPU time, in seconds.
pub fn measure(usage: &mut ResourceUsage, name: &str, at: f64, cpu_secs: f64) {
    let mut executors = usage.executors.iter_mut();
    let executor = executors.find(|one| one.executor_id.as_str() == name);
    executor.unwrap().statistics = Some(ResourceStatistics {
        timestamp: Timestamp::from_nanos((at * 1e9) as u64),
        processes: 1,
        threads: 1,
        cpus_user_time_secs: cpu_secs,
        mem_rss_bytes: 1 << 20,
        ..ResourceStatistics::default()
    });
}

/// Names of the executors to kill.
pub fn killed(corrections: &[QosCorrection]) -> Vec<&str> {
    let names = corrections.iter().filter_map(|one| match one {
        QosCorrection::Kill { executor_id, .. } => Some(executor_id.as_str()),
        _ => None,
    });
    names.collect()
}
