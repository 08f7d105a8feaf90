//! Marks: what a task says of itself in its labels that the cluster heeds (S121, S123).
//!
//! Labels go through the v1 API as they are, so frameworks of both kinds mark their tasks in the same way. All other labels mean nothing here.

use resources::Invalid;

use crate::task::Labels;

/// The label with a task's priority: a whole number. Where tasks must make room, those with lower ones go first; a task without it has 0.
pub const PRIORITY: &str = "meros.priority";

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
