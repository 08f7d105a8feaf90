//! `/tasks`: some of the tasks that are remembered, newest first unless asked otherwise (SPEC 3.9).
//!
//! What is asked is read by one plain function; a number that is none is refused with its name.

use std::collections::BTreeMap;

use ::http::Given;
use axum::Extension;
use axum::response::Response;
use resources::Invalid;

use super::changes::bad;
use super::source::Source;
use super::state::{self, text};

/// How many tasks are shown unless asked for more.
const LIMIT: usize = 100;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    limit: usize,
    offset: usize,
    is_ascending: bool,
    framework_id: Option<String>,
    task_id: Option<String>,
}

impl Asked {
    /// Reads what stands behind the path. Names that mean nothing here are passed over, as by Mesos.
    fn read(mut given: BTreeMap<String, String>) -> Result<Self, Invalid> {
        let number = |name: &str, otherwise: usize| match given.get(name) {
            None => Ok(otherwise),
            Some(text) => text
                .parse()
                .map_err(|_| Invalid::new(name, text, "a number, 0 or above")),
        };
        Ok(Self {
            limit: number("limit", LIMIT)?,
            offset: number("offset", 0)?,
            is_ascending: match given.get("order").map(String::as_str) {
                Some("asc") => true,
                None | Some("des") => false,
                Some(other) => return Err(Invalid::new("order", other, "`asc` or `des`")),
            },
            framework_id: given.remove("framework_id"),
            task_id: given.remove("task_id"),
        })
    }
}

pub(super) async fn page(
    Extension(source): Extension<Source>,
    Given(given): Given<BTreeMap<String, String>>,
) -> Response {
    let asked = match Asked::read(given) {
        Ok(asked) => asked,
        Err(problem) => return bad(problem),
    };
    let page = source.page(move |shown, _| {
        let wanted = |mine: &Option<String>, id: &str| mine.as_deref().is_none_or(|m| m == id);
        let mut tasks: Vec<_> = state::all_tasks(shown)
            .filter(|task| wanted(&asked.framework_id, task.framework_id.as_str()))
            .filter(|task| wanted(&asked.task_id, task.id.as_str()))
            .collect();
        tasks.sort_by_key(|task| task.statuses.first().map(|status| status.timestamp));
        if !asked.is_ascending {
            tasks.reverse();
        }
        tasks.drain(..asked.offset.min(tasks.len()));
        tasks.truncate(asked.limit);
        text(&state::Tasks(tasks))
    });
    page.await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &[(&str, &str)]) -> Result<Asked, String> {
        let given = query.iter();
        let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Asked::read(given.collect()).map_err(|invalid| invalid.to_string())
    }

    /// SPEC 3.9: `limit=100`, `offset`, `order`, `framework_id`, `task_id`.
    #[test]
    fn what_is_asked_of_tasks_is_read_and_what_is_wrong_is_named() {
        let asked = read(&[]).unwrap();
        assert_eq!(
            (asked.limit, asked.offset, asked.is_ascending),
            (100, 0, false)
        );
        let query = [
            ("limit", "0"),
            ("offset", "7"),
            ("order", "asc"),
            ("framework_id", "f"),
            ("task_id", "t"),
            ("jsonp", "f"),
        ];
        let expected = Asked {
            limit: 0,
            offset: 7,
            is_ascending: true,
            framework_id: Some("f".to_owned()),
            task_id: Some("t".to_owned()),
        };
        assert_eq!(read(&query), Ok(expected));
        for (name, value, expected) in [
            ("limit", "x", "limit is `x`: expected a number, 0 or above"),
            (
                "limit",
                "-1",
                "limit is `-1`: expected a number, 0 or above",
            ),
            ("offset", "", "offset is ``: expected a number, 0 or above"),
            ("order", "up", "order is `up`: expected `asc` or `des`"),
        ] {
            assert_eq!(read(&[(name, value)]), Err(expected.to_owned()));
        }
    }
}
