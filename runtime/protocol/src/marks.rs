//! Marks: what a task says of itself in its labels that the cluster heeds, and what an offer says in its attributes (S121, S123).
//!
//! Labels and attributes go through the v1 API as they are, so frameworks of both kinds use them in the same way. All other labels mean
//! nothing here.

use resources::{Attribute, AttributeValue, Attributes, Invalid, Name, Number, Quantities, Scalar};

use crate::task::Labels;

/// The label with a task's priority: a whole number. Where tasks must make room, those with lower ones go first; a task without it has 0.
pub const PRIORITY: &str = "meros.priority";

/// The label that says whether a task will run for long: `long` or `short`; a task without it is short.
pub const DURATION: &str = "meros.duration";

/// The label with how a task or an executor is found by others (Mesos' `discovery`), as the JSON text that the v1 API writes of it. It means nothing here, and travels as notes do:
/// whoever keeps and tells the labels of a task keeps and tells this, whatever his version, and it costs nothing where there is none.
pub const DISCOVERY: &str = "meros.discovery";

/// The label of a status with what an executor says of its container (Mesos' `container_status`), as the JSON text that the v1 API writes of it, but for a plain id: that is
/// [`TaskStatus::container_id`](crate::TaskStatus::container_id). It travels as [`DISCOVERY`] does, and so do the two that follow.
pub const CONTAINER_STATUS: &str = "meros.container_status";

/// The label of a status with the newest result of a check of its task (Mesos' `check_status`), likewise.
pub const CHECK_STATUS: &str = "meros.check_status";

/// The label of a status with what its task wanted more of than it may have (Mesos' `limitation`), likewise.
pub const LIMITATION: &str = "meros.limitation";

/// The label with all other labels of a task, an executor, a status or a framework as the JSON text of Mesos' `Labels`, where a map says less than was said over the v1 API: their
/// order, a key that came more than once, one without a value. The other labels have the last of several values, and an empty one for none.
pub const LABELS: &str = "meros.labels";

/// How the attributes of an offer begin that say how much of each resource long tasks may still use of its agent: `meros.long.cpus` and
/// so on. There are none where long tasks are not bounded.
pub const LONG_LEFT: &str = "meros.long.";

/// Whether it will run for long.
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

/// These attributes, and what is left for long tasks; what said so before says so no more.
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

/// What is left for long tasks on the agent whose offer has these attributes; `None` if long tasks are not bounded.
pub fn long_left(attributes: &Attributes) -> Option<Quantities> {
    let said = attributes.iter().filter_map(|one| {
        let name: Name = one.name().strip_prefix(LONG_LEFT)?.parse().ok()?;
        let AttributeValue::Scalar(number) = one.value() else {
            return None;
        };
        Some((name, Scalar::new(number.get()).ok()?))
    });
    let said: Quantities = said.collect();
    let is_bounded = said.iter().len() > 0;
    is_bounded.then_some(said)
}

/// What its priority is.
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
    fn a_task_is_short_unless_it_says_that_it_is_long() {
        let said = |text: &str| is_long(&Labels::from([(DURATION.to_owned(), text.to_owned())]));
        assert_eq!(is_long(&Labels::new()), Ok(false));
        assert_eq!((said("long"), said("short")), (Ok(true), Ok(false)));
        let refused = said("forever").unwrap_err().to_string();
        assert!(refused.contains("`long` or `short`"), "{refused}");
    }

    #[test]
    fn what_is_left_for_long_tasks_is_read_as_it_was_written_even_if_it_is_nothing() {
        let own = Attributes::parse("rack:r1;meros.long.cpus:99").unwrap();
        let mut left = Quantities::parse("cpus:1.5;mem:512").unwrap();
        left.set(Name::Gpus, Scalar::ZERO);
        let told = with_long_left(&own, &left);
        assert_eq!(long_left(&told), Some(left));
        assert_eq!((told.len(), told.get("rack")), (4, own.get("rack")));
        assert_eq!(long_left(&Attributes::default()), None);
    }

    #[test]
    fn a_priority_is_a_whole_number_and_0_where_none_is_said() {
        let said = |text: &str| priority(&Labels::from([(PRIORITY.to_owned(), text.to_owned())]));
        assert_eq!(priority(&Labels::new()), Ok(0));
        assert_eq!((said("7"), said("-3")), (Ok(7), Ok(-3)));
        for wrong in ["", "high", "1.5", "99999999999"] {
            let refused = said(wrong).unwrap_err().to_string();
            assert!(
                refused.starts_with("task.labels.meros.priority is"),
                "{refused}"
            );
        }
    }
}
