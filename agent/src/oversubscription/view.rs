//! An agent's oversubscription for operators: usage, slack, estimate and corrections.
//!
//! Pure: the snapshot of a measurement, and its JSON for `/oversubscription`.

use protocol::view::oversubscription::{
    CorrectionKind, CorrectionView, EstimateView, OversubscriptionView, UsedResources,
};
use protocol::{AgentId, ExecutorUsage, ResourceUsage};
use resources::{Name, Quantities, Resources, Scalar};
use serde_json::{Map, Value, json};

use super::corrections::CorrectionLog;
use super::maximum::LendingMax;
use super::monitor::{MeasuredUse, Used};

const MEGABYTE: f64 = 1024.0 * 1024.0;

/// The state of the oversubscription loop that the agent's main actor knows.
#[derive(Clone, Debug)]
pub struct LoopState {
    /// The agent's id, once registered.
    pub agent_id: Option<AgentId>,
    /// The newest estimate.
    pub estimate: Option<EstimateView>,
    /// The upper bound.
    pub max: LendingMax,
}

/// The snapshot. Without `measured`, nothing could be measured.
pub fn view(
    state: LoopState,
    usage: &ResourceUsage,
    measured: Option<MeasuredUse>,
    corrections: &CorrectionLog,
) -> OversubscriptionView {
    let allocated = |part: fn(&Resources) -> Resources| {
        let each = usage.executors.iter();
        let each = each.map(|one: &ExecutorUsage| part(&one.allocated));
        each.fold(Resources::new(), |sum, one| &sum + &one)
            .quantities()
    };
    OversubscriptionView {
        agent_id: state.agent_id,
        regular: UsedResources {
            allocated: allocated(Resources::non_revocable),
            used: measured.map_or_else(Quantities::new, |all| used(all.regular)),
        },
        revocable: UsedResources {
            allocated: allocated(Resources::revocable),
            used: measured.map_or_else(Quantities::new, |all| used(all.revocable)),
        },
        estimate: state.estimate,
        maximum: state.max.amounts(&usage.total),
        counts: corrections.counts,
        corrections: corrections.newest().cloned().collect(),
    }
}

fn used(used: Used) -> Quantities {
    let scalar = |amount: f64| Scalar::new(amount).unwrap_or_default();
    let cpus = used.cpus.map(|cpus| (Name::Cpus, scalar(cpus)));
    let mem = (Name::Mem, scalar(used.mem_bytes as f64 / MEGABYTE));
    cpus.into_iter().chain([mem]).collect()
}

/// The snapshot as JSON; unknown values are omitted.
pub fn json(view: &OversubscriptionView) -> Value {
    let mut value = json!({
        "regular": used_json(&view.regular),
        "revocable": used_json(&view.revocable),
        "maximum": amounts(&view.maximum),
        "corrections_total": {
            "KILL": view.counts.kill,
            "THROTTLE": view.counts.throttle,
            "RESTORE": view.counts.restore,
        },
        "corrections": view.corrections.iter().map(correction).collect::<Vec<_>>(),
    });
    if let Some(id) = &view.agent_id {
        value["id"] = json!(id.as_str());
    }
    if let Some(estimate) = &view.estimate {
        value["estimate"] = json!({
            "timestamp": estimate.at.as_secs_f64(),
            "available": amounts(&estimate.available),
            "total": amounts(&estimate.total),
        });
    }
    value
}

fn used_json(part: &UsedResources) -> Value {
    json!({
        "allocated": amounts(&part.allocated),
        "used": amounts(&part.used),
        "slack": amounts(&part.slack()),
    })
}

fn amounts(quantities: &Quantities) -> Value {
    let each = quantities.iter();
    let each = each.map(|(name, amount)| (name.to_string(), json!(amount.as_f64())));
    Value::Object(each.collect::<Map<_, _>>())
}

fn correction(one: &CorrectionView) -> Value {
    let tasks: Vec<&str> = one.tasks.iter().map(|task| task.as_str()).collect();
    let mut value = json!({
        "timestamp": one.at.as_secs_f64(),
        "type": one.kind.name(),
        "framework_id": one.framework_id.as_str(),
        "executor_id": one.executor_id.as_str(),
        "container_id": one.container_id.as_str(),
        "tasks": tasks,
        "reason": one.reason,
    });
    if let CorrectionKind::Throttle(degree) = one.kind {
        value["degree"] = json!(degree.to_string());
    }
    if let Some(problem) = &one.problem {
        value["problem"] = json!(problem);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::usage::Throttle;
    use protocol::{ContainerId, ExecutorId, FrameworkId};
    use resources::Revocable;
    use runtime::Timestamp;

    #[test]
    fn slack_is_allocated_minus_used() {
        let lent = Resources::parse("cpus:2").unwrap();
        let lent = lent.to_revocable(Revocable::Throttleable).unwrap();
        let usage = ResourceUsage {
            total: Resources::parse("cpus:8;mem:1024").unwrap(),
            executors: vec![ExecutorUsage {
                framework_id: FrameworkId::new("f").unwrap(),
                executor_id: ExecutorId::new("e").unwrap(),
                executor_name: String::new(),
                is_command: false,
                container_id: ContainerId::new("c").unwrap(),
                allocated: Resources::parse("cpus:4;mem:512;disk:10").unwrap() + &lent,
                tasks: Vec::new(),
                statistics: None,
                throttle: Throttle::default(),
                objectives: Vec::new(),
            }],
        };
        let measured = MeasuredUse {
            regular: Used {
                cpus: Some(1.5),
                mem_bytes: 64 << 20,
            },
            ..MeasuredUse::default()
        };
        let mut log = CorrectionLog::default();
        log.note(CorrectionView {
            at: Timestamp::from_nanos(2_000_000_000),
            framework_id: FrameworkId::new("f").unwrap(),
            executor_id: ExecutorId::new("e").unwrap(),
            container_id: ContainerId::new("c").unwrap(),
            tasks: Vec::new(),
            kind: CorrectionKind::Throttle(Throttle {
                cpu: Some(500),
                ..Throttle::default()
            }),
            reason: "load".to_owned(),
            problem: None,
        });
        let state = LoopState {
            agent_id: None,
            estimate: None,
            max: LendingMax::parse("cpus:25%").unwrap(),
        };
        let json = json(&view(state, &usage, Some(measured), &log));
        assert_eq!(json["regular"]["slack"], json!({"cpus": 2.5, "mem": 448.0}));
        assert_eq!(
            json["revocable"],
            json!({"allocated": {"cpus": 2.0}, "used": {"mem": 0.0}, "slack": {"mem": 0.0}}),
            "no CPU time is known yet"
        );
        assert_eq!(json["maximum"], json!({"cpus": 2.0}));
        let correction = &json["corrections"][0];
        assert_eq!(
            (&correction["type"], &correction["degree"]),
            (&json!("THROTTLE"), &json!("cpu 50%"))
        );
        assert_eq!(json["corrections_total"]["THROTTLE"], 1);
    }
}
