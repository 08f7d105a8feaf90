//! `/tasks`: a page of the remembered tasks, newest first by default.
//!
//! The query is parsed by one plain function that accepts everything, as Mesos does.

use std::collections::BTreeMap;

use ::http::MesosQuery;
use axum::Extension;
use axum::response::Response;

use super::state::{self, text};
use crate::api::pages::source::Source;

/// Default number of tasks.
const LIMIT: usize = 100;

/// The parsed query.
#[derive(Debug, PartialEq, Eq)]
struct TaskQuery {
    limit: usize,
    offset: usize,
    is_ascending: bool,
    framework_id: Option<String>,
    task_id: Option<String>,
}

impl TaskQuery {
    /// Parses the query like Mesos: an invalid number gives the default, and any order but `asc` is
    /// descending. Unknown parameters are ignored.
    fn read(mut given: BTreeMap<String, String>) -> Self {
        // A 32-bit number; a negative one exceeds any list, so as a limit it means none.
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

pub(in crate::api) async fn page(
    Extension(source): Extension<Source>,
    MesosQuery(given): MesosQuery<BTreeMap<String, String>>,
) -> Response {
    let asked = TaskQuery::read(given);
    let page = source.page(move |visible, _| {
        let wanted = |mine: &Option<String>, id: &str| mine.as_deref().is_none_or(|m| m == id);
        let mut tasks: Vec<_> = state::all_tasks(visible)
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

    fn read(query: &[(&str, &str)]) -> TaskQuery {
        let given = query.iter();
        let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        TaskQuery::read(given.collect())
    }

    /// SPEC 3.9: `limit=100`, `offset`, `order`, `framework_id`, `task_id`.
    // Covers 3.9 `/tasks`.
    #[test]
    fn task_query_is_parsed_as_in_mesos() {
        let none = TaskQuery {
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
        let expected = TaskQuery {
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
