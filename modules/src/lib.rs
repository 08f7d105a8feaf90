//! The linked-in modules: an allocator, sorters, resource estimators, QoS controllers and
//! isolators.
//!
//! Each kind is a folder with the policies as plain functions and one actor around them. The
//! services know no module by type; the binary passes them the [`registry`].
//!
//! | module | contents |
//! |---|---|
//! | `allocator` | the allocator |
//! | `foreign` | estimators and controllers that are executables |
//! | `isolator` | control groups, namespaces, privileges |
//! | `kernel_event` | events of a descriptor |
//! | `qos_controller` | `noop`, `load`, `pressure`, `sla`: revocable executors that must give way |
//! | `resource_estimator` | `noop`, `fixed` and others: resources that an agent can lend |
//! | `sorter` | `drf`, `strict_priority` and `random`, each over a tree of shares |
//! | `testing` | shared by the tests of this crate |
//! | `usage_history` | use and pressure of containers over time |

pub mod allocator;
pub mod foreign;
pub mod isolator;
mod kernel_event;
pub mod qos_controller;
pub mod resource_estimator;
pub mod sorter;
#[cfg(test)]
mod testing;
pub mod usage_history;
#[cfg(test)]
#[allow(
    dead_code,
    reason = "a fixture of several crates, which each use a part of it"
)]
#[path = "../tests/it/workload.rs"]
mod workload;

// The fixture names this crate as its other users do.
#[cfg(test)]
extern crate self as modules;

use std::ops::RangeInclusive;
use std::time::Duration;

use module_api::allocator::{LongTasksBounded, RecoveryPause};
use module_api::{
    AllocatorRef, Fault, ModuleError, ModuleKind, Parameters, QosControllerRef, Registry,
    ResourceEstimatorRef, SorterRef, UsageUnavailable,
};
use protocol::ResourceUsage;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use resources::{Name, Quantities};
use runtime::prelude::*;

use allocator::{AgentOrder, Allocator, Revocation};
use qos_controller::{
    LoadPolicy, LoadSource, PressurePolicy, PressureSettings, QosController, SlaPolicy,
    SlaSettings, proc_loadavg,
};
use resource_estimator::{
    AllocationSlack, Fixed, PressureAwarePlan, ResourceEstimator, SlackSettings, UsageSlack,
};
use sorter::{Drf, Lottery, Priority, SortPolicy, Sorter, TreeSorter};
use usage_history::pressure::{PressureSource, proc_pressure};

const MIN_ALLOCATABLE: &str = "min_allocatable_resources";
const AGENT_ORDER: &str = "agent_order";
const REVOKE_AFTER: &str = "revoke_after";
const LONG_TASK_SHARE: &str = "long_task_share";
const SHORT_TASK_MAX: &str = "short_task_max";
const REVOCATION_GRACE_PERIOD: &str = "revocation_grace_period";
/// Default time between the warning of a task and its kill, if the allocator revokes it.
const GRACE_DEFAULT: Duration = Duration::from_secs(30);
const GRACE_MIN: Duration = Duration::from_secs(1);
const CHARGE_RESERVATIONS: &str = "charge_reservations";
const FILTER_GPUS: &str = "filter_gpu_resources";
const RECOVERY_FACTOR: &str = "allocator_agent_recovery_factor";
const RECOVERY_TIMEOUT: &str = "allocator_recovery_timeout";
const EXCLUDED: &str = "fair_sharing_excluded_resource_names";
const SEED: &str = "seed";

/// Timeout of a usage request.
const USAGE_PATIENCE: Duration = Duration::from_secs(5);
/// Restart policy of a crashed module: soon at first, then with a longer and longer delay, without
/// a limit.
const SUPERVISION: Supervision = Supervision::Restart {
    backoff: Duration::from_millis(100),
    backoff_max: Duration::from_secs(10),
    limit: u32::MAX,
};

/// The modules of this crate, by all their names.
pub fn registry() -> Registry {
    registry_on(proc_loadavg, proc_pressure)
}

/// The same on a simulated machine: each module that monitors the machine's load or pressure gets a
/// source from `load` or `pressure`.
pub fn registry_on(
    load: impl Fn() -> LoadSource + Clone + Send + Sync + 'static,
    pressure: impl Fn() -> PressureSource + Clone + Send + Sync + 'static,
) -> Registry {
    let mut registry = Registry::new();
    registry.add_allocator(&["hierarchical", "HierarchicalDRF"], start_allocator);
    isolator::register(&mut registry);
    registry.add_sorter(&["drf"], |node, given| {
        given.only(&[EXCLUDED])?;
        let excluded = excluded(given)?;
        start_sorter(node, move || Drf::excluding(excluded.clone()))
    });
    registry.add_sorter(&["strict_priority"], |node, given| {
        given.only(&[EXCLUDED])?;
        let excluded = excluded(given)?;
        let make = move || TreeSorter::ordered_by(|| Priority, excluded.clone());
        start_sorter(node, make)
    });
    registry.add_sorter(&["random", "lottery"], |node, given| {
        given.only(&[SEED])?;
        let expected = "a whole number from 0 on";
        let seed = given.optional(SEED, expected, |text| text.parse().ok())?;
        let home = node.clone();
        start_sorter(node, move || {
            let mut dice = seed.map_or_else(|| home.rng(), SmallRng::seed_from_u64);
            TreeSorter::ordered_by(|| Lottery::new(SmallRng::from_rng(&mut dice)), Vec::new())
        })
    });
    registry.add_resource_estimator(&["noop"], |node, given| {
        given.only(&[])?;
        start_estimator(node, given, || resource_estimator::Noop)
    });
    let fixed = ["fixed", "org_apache_mesos_FixedResourceEstimator"];
    registry.add_resource_estimator(&fixed, |node, given| {
        let fixed = Fixed::from_parameters(given)?;
        start_estimator(node, given, move || fixed.clone())
    });
    registry.add_resource_estimator(&["usage_slack"], |node, given| {
        let settings = SlackSettings::from_parameters(given)?;
        start_estimator(node, given, move || UsageSlack::new(settings))
    });
    registry.add_resource_estimator(&["allocation_slack"], |node, given| {
        let slack = AllocationSlack::from_parameters(given)?;
        start_estimator(node, given, move || slack)
    });
    let source = pressure.clone();
    registry.add_resource_estimator(&["pressure_aware"], move |node, given| {
        let plan = PressureAwarePlan::from_parameters(given)?;
        let source = source.clone();
        start_estimator(node, given, move || plan.estimator(source()))
    });
    registry.add_qos_controller(&["noop"], |node, given| {
        given.only(&[])?;
        start_controller(node, given, || qos_controller::Noop)
    });
    let names = ["load", "org_apache_mesos_LoadQoSController"];
    registry.add_qos_controller(&names, move |node, given| {
        let policy = LoadPolicy::from_parameters(given, load())?;
        let load = load.clone();
        start_controller(node, given, move || policy.with_source(load()))
    });
    registry.add_qos_controller(&["pressure"], move |node, given| {
        let settings = PressureSettings::from_parameters(given)?;
        let source = pressure.clone();
        start_controller(node, given, move || PressurePolicy::new(settings, source()))
    });
    registry.add_qos_controller(&["sla"], |node, given| {
        let settings = SlaSettings::from_parameters(given)?;
        start_controller(node, given, move || SlaPolicy::new(settings))
    });
    registry
}

fn start_allocator(
    node: &Node,
    sorter: SorterRef,
    given: &Parameters,
) -> Result<AllocatorRef, ModuleError> {
    given.only(&[
        MIN_ALLOCATABLE,
        AGENT_ORDER,
        REVOKE_AFTER,
        LONG_TASK_SHARE,
        SHORT_TASK_MAX,
        REVOCATION_GRACE_PERIOD,
        CHARGE_RESERVATIONS,
        FILTER_GPUS,
        RECOVERY_FACTOR,
        RECOVERY_TIMEOUT,
    ])?;
    let expected = "sets of resources such as `cpus:0.01|mem:32`";
    let sets_min = given.optional(MIN_ALLOCATABLE, expected, read_sets)?;
    let order = given.optional(AGENT_ORDER, "random or tightest_first", |text| match text {
        "random" => Some(AgentOrder::Random),
        "tightest_first" => Some(AgentOrder::TightestFirst),
        _ => None,
    })?;
    let order = order.unwrap_or_default();
    let (revocation, long_tasks) = (revocation(given)?, long_tasks(given)?);
    let or_not = |name| given.optional(name, "true or false", |text| text.parse().ok());
    let (filter_gpus, charges) = (or_not(FILTER_GPUS)?, or_not(CHARGE_RESERVATIONS)?);
    let pause = pause(given)?;
    let home = node.clone();
    let allocator = supervise(node, ModuleKind::Allocator, "allocator", move || {
        let allocator = Allocator::new(sorter.clone(), sets_min.clone(), home.rng());
        let mut allocator = allocator.with_order(order).with_pause(pause);
        if filter_gpus == Some(false) {
            allocator = allocator.with_gpus_for_all();
        }
        if charges == Some(true) {
            allocator = allocator.with_charged_reservations();
        }
        if let Some(revocation) = revocation {
            allocator = allocator.with_revocation(revocation);
        }
        match long_tasks {
            Some(bound) => allocator.with_long_task_bound(bound),
            None => allocator,
        }
    })?;
    Ok(AllocatorRef::new(allocator))
}

/// The end of the pause in allocation after a failover.
fn pause(given: &Parameters) -> Result<RecoveryPause, ModuleError> {
    let default = RecoveryPause::default();
    let expected = "a part of the agents such as `0.8`, from 0 to 1";
    let factor = given.optional(RECOVERY_FACTOR, expected, |text| {
        let factor: f64 = text.parse().ok()?;
        (0.0..=1.0).contains(&factor).then_some(factor)
    })?;
    let timeout = given.optional(RECOVERY_TIMEOUT, "a duration such as `10mins`", duration)?;
    Ok(RecoveryPause {
        factor: factor.unwrap_or(default.factor),
        timeout: timeout.unwrap_or(default.timeout),
    })
}

/// Whether and how tasks are revoked for unmet guarantees.
fn revocation(given: &Parameters) -> Result<Option<Revocation>, ModuleError> {
    let after = given.optional(REVOKE_AFTER, "a duration such as `30secs`", duration)?;
    let grace = grace(given)?;
    Ok(after.map(|after| Revocation { after, grace }))
}

/// Time between the warning of a task and its kill.
fn grace(given: &Parameters) -> Result<Duration, ModuleError> {
    let revokes = given.get(REVOKE_AFTER).is_some() || given.get(SHORT_TASK_MAX).is_some();
    let expected = "a duration of `1secs` or more, beside `revoke_after` or `short_task_max`";
    let grace = given.optional(REVOCATION_GRACE_PERIOD, expected, |text| {
        duration(text).filter(|grace| revokes && *grace >= GRACE_MIN)
    })?;
    Ok(grace.unwrap_or(GRACE_DEFAULT))
}

/// The share of each agent that long tasks may use, and the longest run time of other tasks.
fn long_tasks(given: &Parameters) -> Result<Option<LongTasksBounded>, ModuleError> {
    let expected = "a part of each agent such as `0.5`, from 0 to 1";
    let share = given.optional(LONG_TASK_SHARE, expected, |text| {
        let share: f64 = text.parse().ok()?;
        let is_part = (0.0..=1.0).contains(&share);
        is_part.then_some((share * 1000.0).round() as u16)
    })?;
    let expected = "a duration above zero such as `1hrs`, beside `long_task_share`";
    let short_max = given.optional(SHORT_TASK_MAX, expected, |text| {
        duration(text).filter(|most| share.is_some() && !most.is_zero())
    })?;
    let grace = grace(given)?;
    Ok(share.map(|share| LongTasksBounded {
        share,
        short_max,
        grace,
    }))
}

fn duration(text: &str) -> Option<Duration> {
    protocol::text::duration::parse(text).ok()
}

/// A parameter that is a duration within these bounds.
fn duration_within(
    given: &Parameters,
    key: &str,
    bounds: RangeInclusive<Duration>,
    default: Duration,
) -> Result<Duration, ModuleError> {
    let text = protocol::text::duration::format;
    let (min, max) = (text(*bounds.start()), text(*bounds.end()));
    let expected = format!("a duration from `{min}` to `{max}`");
    let read = |text: &str| duration(text).filter(|found| bounds.contains(found));
    Ok(given.optional(key, &expected, read)?.unwrap_or(default))
}

/// Parses sets of quantities, separated by `|`. An empty text has no set.
fn read_sets(text: &str) -> Option<Vec<Quantities>> {
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    text.split('|')
        .map(|set| {
            Quantities::parse(set.trim())
                .ok()
                .filter(|set| !set.is_empty())
        })
        .collect()
}

/// Parses the comma-separated names that do not count for shares.
fn excluded(given: &Parameters) -> Result<Vec<Name>, ModuleError> {
    let read = |text: &str| {
        let names = text.split(',').map(str::trim);
        let names = names.filter(|name| !name.is_empty());
        names.map(|name| Name::new(name).ok()).collect()
    };
    let expected = "names of resources such as `gpus,disk`";
    Ok(given
        .optional(EXCLUDED, expected, read)?
        .unwrap_or_default())
}

fn start_sorter<P: SortPolicy>(
    node: &Node,
    policy: impl Fn() -> P + Send + 'static,
) -> Result<SorterRef, ModuleError> {
    let make = move || Sorter::new(policy());
    let actor = supervise(node, ModuleKind::Sorter, "sorter", make)?;
    Ok(SorterRef::new(actor))
}

fn start_estimator<P: resource_estimator::EstimatorPolicy>(
    node: &Node,
    given: &Parameters,
    policy: impl Fn() -> P + Send + 'static,
) -> Result<ResourceEstimatorRef, ModuleError> {
    tracing::debug!(module = given.module(), "starting the resource estimator");
    let make = move || ResourceEstimator::new(policy());
    let actor = supervise(
        node,
        ModuleKind::ResourceEstimator,
        "resource_estimator",
        make,
    )?;
    Ok(ResourceEstimatorRef::new(actor))
}

fn start_controller<P: qos_controller::QosPolicy>(
    node: &Node,
    given: &Parameters,
    policy: impl Fn() -> P + Send + 'static,
) -> Result<QosControllerRef, ModuleError> {
    tracing::debug!(module = given.module(), "starting the QoS controller");
    let make = move || QosController::new(policy());
    let actor = supervise(node, ModuleKind::QosController, "qos_controller", make)?;
    Ok(QosControllerRef::new(actor))
}

/// Starts a module under its name. The reference resolves the name on each use, so it outlives
/// restarts.
fn supervise<A: Process>(
    node: &Node,
    kind: ModuleKind,
    name: &str,
    make: impl Fn() -> A + Send + 'static,
) -> Result<ActorRef, ModuleError> {
    let not_started = |error: runtime::SpawnError| ModuleError::NotStarted {
        kind,
        name: name.to_owned(),
        reason: error.to_string(),
    };
    node.supervise(name, SUPERVISION, make)
        .map_err(not_started)?;
    Ok(node.refer(Pid::new(name, node.id().clone(), 0)))
}

/// Converts the monitor's reply for a module's own reply.
fn usage_or_fault(
    answer: Result<Result<ResourceUsage, UsageUnavailable>, AskError>,
) -> Result<ResourceUsage, Fault> {
    match answer {
        Ok(Ok(usage)) => Ok(usage),
        Ok(Err(unavailable)) => Err(Fault::NoUsage {
            reason: unavailable.reason,
        }),
        Err(error) => Err(Fault::NoUsage {
            reason: error.to_string(),
        }),
    }
}
