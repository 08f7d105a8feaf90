//! `/__processes__`: a node's actors and links, as JSON for programs and as an HTML page for
//! browsers.
//!
//! Requests that accept `text/html` get the page, which needs no script; all others get the JSON.
//! Asks no actor: it shows counters that the runtime keeps anyway. All times are in seconds, as
//! numbers, and all rates in messages per second.
//!
//! ```json
//! {
//!   "node": "master.00000000000003fa",
//!   "processes": [{
//!     "id": "allocator", "pid": "allocator@master.00000000000003fa#3", "thread": "allocator",
//!     "state": "running", "returns_in_secs": null, "age_secs": 60.5,
//!     "depth": 0, "oldest_secs": 0.0, "errands": 1, "restarts": 0, "refused": 0, "dropped": 0,
//!     "handled": 1200, "per_sec": 20.0, "handling_p50_secs": 0.00001, "handling_p99_secs": 0.002,
//!     "blocked": 0, "blocked_longest_secs": 0.0, "blocked_at": null,
//!     "messages": [{ "type": "module_api::allocator::Recovered", "handled": 1200, "per_sec": 20.0,
//!                    "handling_p50_secs": 0.00001, "handling_p99_secs": 0.002 }]
//!   }],
//!   "links": [{
//!     "peer": "agent.00000000000000a1", "role": "agent", "address": "127.0.0.1:5051",
//!     "dialled": false, "age_secs": 60.0, "queued_bytes": 0, "frames_sent": 10,
//!     "frames_delivered": 12, "said_older": 0, "questions": 0
//!   }]
//! }
//! ```
//!
//! - `state` is `running`, or `restarting` between a panic and the restart in `returns_in_secs`.
//!   Counters continue across restarts.
//! - `depth` is the number of waiting messages, `oldest_secs` how long the first of them has
//!   waited.
//! - `errands` are timers and futures in progress.
//! - `refused` are messages that found the mailbox full (those of links wait for room), `dropped`
//!   those that were replaced by newer ones.
//! - `blocked` counts handlers that kept their thread for more than 100 ms.
//! - `said_older` counts messages in an older version: during an upgrade it shows which peers are
//!   still old.

use std::fmt::{Display, Write};
use std::time::Duration;

use axum::Json;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::{Html, IntoResponse, Response};
use runtime::{LinkInfo, MessageInfo, Node, ProcessInfo, short_name};
use serde_json::{Value, json};

/// Answers in the form that these headers accept.
pub fn processes(node: &Node, service: &str, headers: &HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("text/html")) {
        let (processes, links) = (node.processes(), node.links());
        return Html(page(service, &node.id().to_string(), &processes, &links)).into_response();
    }
    Json(as_json(node)).into_response()
}

/// The JSON; the module's documentation explains the fields.
pub fn as_json(node: &Node) -> Value {
    json!({
        "node": node.id().to_string(),
        "processes": node.processes().iter().map(process_json).collect::<Vec<_>>(),
        "links": node.links().iter().map(link_json).collect::<Vec<_>>(),
    })
}

fn process_json(process: &ProcessInfo) -> Value {
    json!({
        "id": process.name,
        "pid": process.pid.to_string(),
        "thread": process.thread,
        "state": state(process),
        "returns_in_secs": process.returns_in.map(|left| left.as_secs_f64()),
        "age_secs": process.age.as_secs_f64(),
        "depth": process.depth,
        "oldest_secs": process.oldest.as_secs_f64(),
        "errands": process.errands,
        "restarts": process.restarts,
        "refused": process.refused,
        "dropped": process.dropped,
        "handled": handled(process),
        "per_sec": process.per_second,
        "handling_p50_secs": process.handling_p50.as_secs_f64(),
        "handling_p99_secs": process.handling_p99.as_secs_f64(),
        "blocked": process.blocked,
        "blocked_longest_secs": process.blocked_longest.as_secs_f64(),
        "blocked_at": process.blocked_at,
        "messages": process.messages.iter().map(message_json).collect::<Vec<_>>(),
    })
}

fn message_json(message: &MessageInfo) -> Value {
    json!({
        "type": message.message,
        "handled": message.handled,
        "per_sec": message.per_second,
        "handling_p50_secs": message.handling_p50.as_secs_f64(),
        "handling_p99_secs": message.handling_p99.as_secs_f64(),
    })
}

fn link_json(link: &LinkInfo) -> Value {
    json!({
        "peer": link.peer,
        "role": link.role.to_string(),
        "address": link.address,
        "dialled": link.dialled,
        "age_secs": link.age.as_secs_f64(),
        "queued_bytes": link.queued_bytes,
        "frames_sent": link.frames_sent,
        "frames_delivered": link.frames_delivered,
        "said_older": link.said_older,
        "questions": link.questions,
    })
}

fn state(process: &ProcessInfo) -> &'static str {
    match process.returns_in {
        None => "running",
        Some(_) => "restarting",
    }
}

fn handled(process: &ProcessInfo) -> u64 {
    process.handled.values().sum()
}

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em;color:#222}\
    table{border-collapse:collapse;margin:0 0 2em}\
    th,td{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap;font-variant-numeric:tabular-nums}\
    th{border-bottom:2px solid #999}\
    td:first-child,.text{text-align:left}\
    .bad{color:#b00020;font-weight:600}\
    p{color:#666;max-width:60em}";

/// The HTML page.
fn page(service: &str, node: &str, processes: &[ProcessInfo], links: &[LinkInfo]) -> String {
    let title = format!("Actors of {}", escape(node));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{} {title}</title><style>{STYLE}</style></head>\n\
         <body>\n<h1>{title}</h1>\n",
        escape(service)
    );
    let actors = [
        "actor",
        "thread",
        "state",
        "waiting",
        "oldest",
        "per second",
        "handled",
        "p50",
        "p99",
        "blocked",
        "longest",
        "refused",
        "dropped",
        "errands",
        "restarts",
        "age",
    ];
    page += &table("Actors", &actors, processes.iter().map(process_row));
    page += "<p>Waiting: messages in the mailbox, and since when the first of them waits. p50 and p99: time in the handler, of one message \
             in 64. Blocked: handlers that kept their thread for more than 100 ms, and the longest. Refused: messages that found the mailbox \
             full. Dropped: those thrown away for newer ones. Errands: timers and futures in progress.</p>\n";
    let messages = ["actor", "message", "per second", "handled", "p50", "p99"];
    let rows = processes.iter().flat_map(|process| {
        let rows = process.messages.iter();
        rows.map(|message| message_row(&process.name, message))
    });
    page += &table("Messages", &messages, rows);
    let peers = [
        "peer",
        "role",
        "address",
        "dialled by",
        "queued",
        "frames sent",
        "frames received",
        "said in older shapes",
        "open questions",
        "age",
    ];
    page += &table("Links", &peers, links.iter().map(link_row));
    page + "</body>\n</html>\n"
}

/// Columns of text, aligned left; all others are numbers.
const WORDS: [&str; 8] = [
    "actor",
    "thread",
    "state",
    "message",
    "peer",
    "role",
    "address",
    "dialled by",
];

/// A table under a heading; an empty one is shown as `none`.
fn table(heading: &str, columns: &[&str], rows: impl Iterator<Item = String>) -> String {
    let rows: String = rows.collect();
    if rows.is_empty() {
        return format!("<h2>{heading}</h2>\n<p>none</p>\n");
    }
    let columns: String = columns
        .iter()
        .map(|column| match WORDS.contains(column) {
            true => format!("<th class=\"text\">{column}</th>"),
            false => format!("<th>{column}</th>"),
        })
        .collect();
    format!(
        "<h2>{heading}</h2>\n<table>\n<thead><tr>{columns}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"
    )
}

/// One table row.
#[derive(Default)]
struct Row(String);

impl Row {
    fn cell(mut self, value: impl Display) -> Self {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "<td>{}</td>", escape(&value.to_string()));
        self
    }

    fn text(mut self, value: impl Display) -> Self {
        let _ = write!(
            self.0,
            "<td class=\"text\">{}</td>",
            escape(&value.to_string())
        ); // As above.
        self
    }

    /// The actor's state, and when it restarts.
    fn state(mut self, process: &ProcessInfo) -> Self {
        let Some(left) = process.returns_in else {
            return self.text(state(process));
        };
        let (state, left) = (state(process), span(left));
        let _ = write!(self.0, "<td class=\"text bad\">{state}, in {left}</td>"); // As above.
        self
    }

    /// A count that is marked unless it is zero.
    fn count(mut self, count: u64) -> Self {
        if count == 0 {
            return self.cell(0);
        }
        let _ = write!(self.0, "<td class=\"bad\">{count}</td>"); // As above.
        self
    }

    fn end(self) -> String {
        format!("<tr>{}</tr>\n", self.0)
    }
}

fn process_row(process: &ProcessInfo) -> String {
    Row::default()
        .cell(&process.name)
        .text(&process.thread)
        .state(process)
        .cell(process.depth)
        .cell(span(process.oldest))
        .cell(rate(process.per_second))
        .cell(handled(process))
        .cell(span(process.handling_p50))
        .cell(span(process.handling_p99))
        .count(process.blocked.into())
        .cell(span(process.blocked_longest))
        .count(process.refused)
        .count(process.dropped)
        .cell(process.errands)
        .count(process.restarts.into())
        .cell(span(process.age))
        .end()
}

fn message_row(actor: &str, message: &MessageInfo) -> String {
    Row::default()
        .cell(actor)
        .text(short_name(&message.message))
        .cell(rate(message.per_second))
        .cell(message.handled)
        .cell(span(message.handling_p50))
        .cell(span(message.handling_p99))
        .end()
}

fn link_row(link: &LinkInfo) -> String {
    Row::default()
        .cell(&link.peer)
        .text(link.role)
        .text(&link.address)
        .text(if link.dialled { "us" } else { "them" })
        .cell(bytes(link.queued_bytes))
        .cell(link.frames_sent)
        .cell(link.frames_delivered)
        .cell(link.said_older)
        .cell(link.questions)
        .cell(span(link.age))
        .end()
}

/// A readable duration: `0`, `340 ns`, `2.5 ms`, `12 s`, `3 h 20 min`.
fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match duration.as_nanos() {
        0 => "0".to_owned(),
        nanos @ ..1_000 => format!("{nanos} ns"),
        nanos @ ..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        nanos @ ..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ if seconds < 60 => format!("{:.1} s", duration.as_secs_f64()),
        _ if seconds < 3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ if seconds < 48 * 3600 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} days {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{per_second:.2}"),
        _ => format!("{per_second:.0}"),
    }
}

fn bytes(count: u64) -> String {
    match count {
        ..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}

/// Escapes text for HTML, also inside of quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use runtime::prelude::*;
    use runtime::testing::{run_simulated, simulate_network};

    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Greet(u32);
    remote! { Greet = "http-test/greet" v1 -> u32 }

    struct Greeter;
    impl Actor for Greeter {
        type Context = Context<Self>;
    }
    impl Process for Greeter {
        const MAILBOX: u32 = 2;
        fn accepts(handlers: &mut RemoteHandlers<Self>) {
            handlers.accept::<Greet>(&[Role::Agent]);
        }
    }
    impl Handler<Greet> for Greeter {
        type Result = u32;
        fn handle(&mut self, Greet(number): Greet, ctx: &mut Context<Self>) -> u32 {
            ctx.wait(fut::wrap_future::<_, Self>(
                ctx.clock().sleep(Duration::from_secs(10)),
            ));
            number
        }
    }

    /// A master with two actors, one of which stalls, and a linked agent.
    fn with_a_master(story: impl FnOnce(Node)) {
        simulate_network(|network| async move {
            let master = network.node("master", Role::Master, &[Role::Agent]);
            let agent = network.node("agent", Role::Agent, &[Role::Master]);
            master.spawn("<greeter>", Greeter).unwrap();
            master.spawn("idle", Greeter).unwrap();
            let second = Duration::from_secs(1);
            let pid = agent.find("master", "<greeter>", second).await.unwrap();
            (0..4).for_each(|number| agent.tell(&pid, Greet(number)).unwrap());
            master.clock().advance(5 * second).await;
            story(master);
        });
    }

    fn keys(value: &Value) -> BTreeSet<&str> {
        value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect()
    }

    // Covers 6.3 introspection.
    // Covers 3.9 `/__processes__`, `/system/stats.json`, `/help`, `/logging/toggle`.
    #[test]
    fn the_json_has_the_documented_fields() {
        let documented = {
            let source = include_str!("processes.rs");
            let lines = source
                .lines()
                .skip_while(|line| *line != "//! ```json")
                .skip(1);
            let lines = lines.take_while(|line| *line != "//! ```");
            let text: String = lines.map(|line| &line[4..]).collect();
            serde_json::from_str::<Value>(&text).unwrap()
        };
        with_a_master(|master| {
            let shown = as_json(&master);
            assert_eq!(keys(&shown), keys(&documented));
            for path in ["/processes/0", "/processes/0/messages/0", "/links/0"] {
                let at = |value: &Value| value.pointer(path).cloned().unwrap();
                let (shown, documented) = (at(&shown), at(&documented));
                assert_eq!(keys(&shown), keys(&documented), "{path}");
                for (key, value) in documented.as_object().unwrap() {
                    let same = std::mem::discriminant(value) == std::mem::discriminant(&shown[key]);
                    assert!(
                        same,
                        "{path}/{key}: {value} is documented, {} shown",
                        shown[key]
                    );
                }
            }
            let greeter = &shown["processes"][0];
            assert_eq!(greeter["id"], "<greeter>");
            assert_eq!(greeter["thread"], "home");
            // One is being handled and two fill the mailbox; the fourth waits at its link.
            assert_eq!(
                (&greeter["depth"], &greeter["refused"]),
                (&json!(2), &json!(2))
            );
            assert_eq!(
                (&greeter["oldest_secs"], &greeter["age_secs"]),
                (&json!(5.0), &json!(5.0))
            );
            assert_eq!(
                (&greeter["handled"], &greeter["per_sec"]),
                (&json!(1), &json!(0.2))
            );
            let message = &greeter["messages"][0];
            assert!(message["type"].as_str().unwrap().ends_with("::Greet"));
            assert_eq!(
                (&message["handled"], &message["per_sec"]),
                (&json!(1), &json!(0.2))
            );
            let link = &shown["links"][0];
            assert!(link["peer"].as_str().unwrap().starts_with("agent."));
            assert_eq!(
                (&link["role"], &link["age_secs"]),
                (&json!("agent"), &json!(5.0))
            );
            assert_eq!(
                (&link["frames_delivered"], &link["dialled"]),
                (&json!(5), &json!(false))
            );
        });
    }

    #[test]
    fn names_are_escaped_in_the_page() {
        with_a_master(|master| {
            let (processes, links) = (master.processes(), master.links());
            let page = page("master", "<i>\"node\"", &processes, &links);
            for tag in "html head body style h1 table thead tbody tr th td p".split(' ') {
                let count = |text: &str| page.matches(text).count();
                let opened = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
                assert!(opened > 0 && opened == count(&format!("</{tag}>")), "{tag}");
            }
            assert!(page.contains("&lt;greeter&gt;") && !page.contains("<greeter>"));
            assert!(page.contains("Actors of &lt;i&gt;&quot;node&quot;") && !page.contains("<i>"));
            assert!(
                page.contains("<td class=\"text\">Greet</td>"),
                "types stand without their paths"
            );
            assert!(
                page.contains("<td class=\"bad\">2</td>"),
                "what is refused stands out"
            );
            for line in page.lines().filter(|line| line.starts_with("<tr>")) {
                let cells = line.matches("<td").count();
                assert!([16, 6, 10].contains(&cells), "{line}");
            }
        });
    }

    struct Faller;
    impl Actor for Faller {
        type Context = Context<Self>;
        fn started(&mut self, _: &mut Context<Self>) {
            panic!("as it does");
        }
    }
    impl Process for Faller {}

    #[test]
    fn a_restarting_actor_shows_its_return_time() {
        run_simulated(async {
            let node = runtime::testing::node("node").build();
            let policy = Supervision::Restart {
                backoff: Duration::from_secs(5),
                backoff_max: Duration::from_secs(5),
                limit: 3,
            };
            node.supervise("faller", policy, || Faller).unwrap();
            node.clock().advance(Duration::from_secs(2)).await;
            let shown = as_json(&node);
            let faller = &shown["processes"][0];
            assert_eq!(
                (&faller["state"], &faller["returns_in_secs"]),
                (&json!("restarting"), &json!(3.0))
            );
            let page = page("x", "y", &node.processes(), &[]);
            assert!(page.contains(">restarting, in 3.0 s</td>"), "{page}");
        });
    }

    // Covers 6.3 introspection.
    #[test]
    fn browsers_get_html_and_programs_json() {
        run_simulated(async {
            let node = runtime::testing::node("node").build();
            let kind = |accept: Option<&str>| {
                let mut headers = HeaderMap::new();
                if let Some(accept) = accept {
                    headers.insert(ACCEPT, accept.parse().unwrap());
                }
                let response = processes(&node, "master", &headers);
                response.headers()["content-type"]
                    .to_str()
                    .unwrap()
                    .to_owned()
            };
            assert!(
                kind(Some("text/html,application/xml;q=0.9,*/*;q=0.8")).starts_with("text/html")
            );
            for accept in [None, Some("*/*"), Some("application/json")] {
                assert_eq!(kind(accept), "application/json");
            }
            assert!(page("x", "y", &[], &[]).contains("<p>none</p>"));
        });
    }

    #[test]
    fn numbers_are_readable() {
        let nanos = [0, 340, 2_500, 2_500_000, 12_300_000_000, 72_000_000_000];
        let spans = nanos.map(|nanos| span(Duration::from_nanos(nanos)));
        assert_eq!(
            spans,
            ["0", "340 ns", "2.5 µs", "2.5 ms", "12.3 s", "1 min 12 s"]
        );
        let hours = [3, 49].map(|hours| span(Duration::from_secs(hours * 3600 + 60)));
        assert_eq!(hours, ["3 h 1 min", "2 days 1 h"]);
        assert_eq!([0.0, 0.2, 1234.5].map(rate), ["0", "0.20", "1234"]);
        assert_eq!([5, 1536, 3 << 20].map(bytes), ["5 B", "1.5 KiB", "3.0 MiB"]);
    }
}
