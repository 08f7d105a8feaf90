//! `/tasks`: some of the tasks that are remembered, newest first unless asked otherwise (SPEC 3.9).
//!
//! The query is read by one plain function, which refuses nothing, as Mesos does.

use std::collections::BTreeMap;

use ::http::Given;
use axum::Extension;
use axum::response::Response;

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
    /// Reads the query as Mesos does: what is no number is the default, and any order but `asc` is descending. Names that mean nothing
    /// here are passed over.
    fn read(mut given: BTreeMap<String, String>) -> Self {
        // A number of 32 bits; a negative one is beyond any list, so as a limit it is none.
        let number =
            |name: &str, otherwise: usize| match given.get(name).map(|text| text.parse::<i32>()) {
                None | Some(Err(_)) => otherwise,
                Some(Ok(number)) => usize::try_from(number).unwrap_or(usize::MAX),
            };
        Self {
            limit: number("limit", LIMIT),
            offset: number("offset", 0),
            is_ascending: given.get("order").is_some_and(|order| order == "asc"),
            framework_id: given.remove("framework_id"),
            task_id: given.remove("task_id"),
        }
    }
}

pub(super) async fn page(
    Extension(source): Extension<Source>,
    Given(given): Given<BTreeMap<String, String>>,
) -> Response {
    let asked = Asked::read(given);
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

    fn read(query: &[(&str, &str)]) -> Asked {
        let given = query.iter();
        let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Asked::read(given.collect())
    }

    /// SPEC 3.9: `limit=100`, `offset`, `order`, `framework_id`, `task_id`.
    #[test]
    fn a_query_of_tasks_is_read_as_by_mesos() {
        let none = Asked {
            limit: 100,
            offset: 0,
            is_ascending: false,
            framework_id: None,
            task_id: None,
        };
        assert_eq!(read(&[]), none);
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
        assert_eq!(read(&query), expected);
        for (name, value, limit, offset) in [
            ("limit", "-1", usize::MAX, 0),
            ("limit", "-7", usize::MAX, 0),
            ("limit", "abc", 100, 0),
            ("limit", "", 100, 0),
            ("limit", "99999999999", 100, 0),
            ("offset", "-1", 100, usize::MAX),
            ("offset", "x", 100, 0),
            ("order", "desc", 100, 0),
            ("order", "des", 100, 0),
            ("order", "up", 100, 0),
        ] {
            let asked = read(&[(name, value)]);
            let found = (asked.limit, asked.offset, asked.is_ascending);
            assert_eq!(found, (limit, offset, false), "{name}={value}");
        }
    }
}
