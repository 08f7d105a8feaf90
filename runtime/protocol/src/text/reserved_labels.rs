//! Reserved labels of tasks and reserved attributes of offers, which Meros interprets.
//!
//! The v1 API passes labels and attributes unchanged, so HTTP and native frameworks use them alike.
//! All other labels are opaque.

use resources::{Attribute, AttributeValue, Attributes, Invalid, Name, Number, Quantities, Scalar};

use crate::task::Labels;
use crate::usage::Objective;

/// Label with a task's priority, an integer; default 0. Revocation starts with the lowest
/// priorities.
pub const PRIORITY: &str = "meros.priority";

/// Label with a task's expected duration, `long` or `short`; default short.
pub const DURATION: &str = "meros.duration";

/// Label with a task's service level objective: `latency:MILLISECONDS` or `progress:PER_SECOND`.
/// Its check measures it.
pub const SLA: &str = "meros.sla";

/// Label with the `discovery` of a task or executor (Mesos), as v1 JSON. Opaque here. As a label it
/// needs no field of its own: every version stores and forwards labels, and it costs nothing where
/// it is absent.
pub const DISCOVERY: &str = "meros.discovery";

/// Label of a status with the `container_status` of Mesos, as v1 JSON, unless it is only an id,
/// which is [`TaskStatus::container_id`](crate::TaskStatus::container_id). Forwarded like
/// [`DISCOVERY`], as are the next three.
pub const CONTAINER_STATUS: &str = "meros.container_status";

/// Label of a status with the newest `check_status` of its task (Mesos).
pub const CHECK_STATUS: &str = "meros.check_status";

/// Label of a status with the newest `check_statuses` of its task, as the v1 JSON of Meros.
pub const CHECK_STATUSES: &str = "meros.check_statuses";

/// Label of a status with the `limitation` of its task (Mesos): the resources that exceeded their
/// limit.
pub const LIMITATION: &str = "meros.limitation";

/// Label of a status of a task that runs in a throttled container: what it may use, for people.
pub const THROTTLE: &str = "meros.throttle";

/// Label with all other labels of a task, executor, status or framework as the JSON of Mesos'
/// `Labels`. Present if a map would lose information: order, duplicate keys, or keys without a
/// value. The map itself keeps the last of several values, and an empty text for no value.
pub const LABELS: &str = "meros.labels";

/// Prefix of an offer's attributes with the resources of the agent that long tasks may still use:
/// `meros.long.cpus` and so on. Absent if long tasks are not limited.
pub const LONG_LEFT: &str = "meros.long.";

/// Whether the task is marked as long.
pub fn is_long(labels: &Labels) -> Result<bool, Invalid> {
    match labels.get(DURATION).map(String::as_str) {
        None | Some("short") => Ok(false),
        Some("long") => Ok(true),
        Some(other) => {
            let field = format!("task.labels.{DURATION}");
            Err(Invalid::new(field, other, "`long` or `short`"))
        }
    }
}

/// The task's objective, if it has one.
pub fn objective(labels: &Labels) -> Result<Option<Objective>, Invalid> {
    let Some(text) = labels.get(SLA) else {
        return Ok(None);
    };
    let objective = Objective::parse(text);
    let expected = "`latency:MILLISECONDS` or `progress:PER_SECOND`, with a number above 0";
    let invalid = || Invalid::new(format!("task.labels.{SLA}"), text, expected);
    objective.map(Some).ok_or_else(invalid)
}

/// Replaces the attributes for long tasks by these amounts.
pub fn with_long_left(attributes: &Attributes, left: &Quantities) -> Attributes {
    let others = attributes.iter();
    let others = others.filter(|one| !one.name().starts_with(LONG_LEFT));
    let left = left.iter().filter_map(|(name, amount)| {
        let number = Number::new(amount.as_f64()).ok()?;
        Attribute::new(
            &format!("{LONG_LEFT}{name}"),
            AttributeValue::Scalar(number),
        )
        .ok()
    });
    Attributes::new(others.cloned().chain(left).collect())
}

/// Remaining resources for long tasks on the agent of an offer with these attributes; `None` if not
/// limited.
pub fn long_left(attributes: &Attributes) -> Option<Quantities> {
    let left = attributes.iter().filter_map(|one| {
        let name: Name = one.name().strip_prefix(LONG_LEFT)?.parse().ok()?;
        let AttributeValue::Scalar(number) = one.value() else {
            return None;
        };
        Some((name, Scalar::new(number.get()).ok()?))
    });
    let left: Quantities = left.collect();
    let is_bounded = left.iter().len() > 0;
    is_bounded.then_some(left)
}

/// The priority of a task.
pub fn priority(labels: &Labels) -> Result<i32, Invalid> {
    let Some(text) = labels.get(PRIORITY) else {
        return Ok(0);
    };
    text.parse().map_err(|_| {
        let expected = "a whole number such as -5 or 100";
        Invalid::new(format!("task.labels.{PRIORITY}"), text, expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_short_by_default() {
        let parsed = |text: &str| is_long(&Labels::from([(DURATION.to_owned(), text.to_owned())]));
        assert_eq!(is_long(&Labels::new()), Ok(false));
        assert_eq!((parsed("long"), parsed("short")), (Ok(true), Ok(false)));
        let refused = parsed("forever").unwrap_err().to_string();
        assert!(refused.contains("`long` or `short`"), "{refused}");
    }

    #[test]
    fn objectives_have_a_kind_and_a_number() {
        let parsed = |text: &str| objective(&Labels::from([(SLA.to_owned(), text.to_owned())]));
        assert_eq!(objective(&Labels::new()), Ok(None));
        let latency = Objective::LatencyMillis(2.5);
        assert_eq!(parsed("latency:2.5"), Ok(Some(latency)));
        let progress = Objective::ProgressPerSecond(100.0);
        assert_eq!(parsed(&progress.to_string()), Ok(Some(progress)));
        for wrong in [
            "",
            "latency",
            "latency:0",
            "latency:-1",
            "latency:NaN",
            "speed:1",
        ] {
            let refused = parsed(wrong).unwrap_err().to_string();
            assert!(refused.starts_with("task.labels.meros.sla is"), "{refused}");
        }
    }

    #[test]
    fn attributes_for_long_tasks_round_trip() {
        let own = Attributes::parse("rack:r1;meros.long.cpus:99").unwrap();
        let mut left = Quantities::parse("cpus:1.5;mem:512").unwrap();
        left.set(Name::Gpus, Scalar::ZERO);
        let attributes = with_long_left(&own, &left);
        assert_eq!(long_left(&attributes), Some(left));
        assert_eq!(
            (attributes.len(), attributes.get("rack")),
            (4, own.get("rack"))
        );
        assert_eq!(long_left(&Attributes::default()), None);
    }

    #[test]
    fn priorities_are_integers_with_default_0() {
        let parsed = |text: &str| priority(&Labels::from([(PRIORITY.to_owned(), text.to_owned())]));
        assert_eq!(priority(&Labels::new()), Ok(0));
        assert_eq!((parsed("7"), parsed("-3")), (Ok(7), Ok(-3)));
        for wrong in ["", "high", "1.5", "99999999999"] {
            let refused = parsed(wrong).unwrap_err().to_string();
            assert!(
                refused.starts_with("task.labels.meros.priority is"),
                "{refused}"
            );
        }
    }
}
