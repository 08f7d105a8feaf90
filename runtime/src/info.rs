//! Seen from outside: what a node's actors and links are doing, for metrics and `/__processes__`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::delivery;
use crate::identity::{Pid, Role};
use crate::link::Dialled;
use crate::mailbox::Meter;
use crate::node::Node;
use crate::registry::Holder;
use crate::tally::MessageInfo;

/// One actor, which lives or is about to be made anew. What is counted goes on over its lives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessInfo {
    /// Its name.
    pub name: String,
    /// Its present pid, or the last one.
    pub pid: Pid,
    /// In how long it is made anew, if it waits for that; nothing lives then, and nothing waits for it.
    pub returns_in: Option<Duration>,
    /// The thread it runs on, as the placement table calls it; `home` is the node's own.
    pub thread: String,
    /// How long this incarnation has lived; zero between two.
    pub age: Duration,
    /// Messages waiting, pings included.
    pub depth: u64,
    /// How long the oldest of them has waited. Exact to 25 ms if it found the mailbox empty, as it does when an actor stalls; in a
    /// mailbox that is never empty it is the age of one further behind, at least an eighth of the true age. Zero if none waits.
    pub oldest: Duration,
    /// Messages it has handled, by type.
    pub handled: BTreeMap<String, u64>,
    /// The same types in the order in which they first came, with their rates and times.
    pub messages: Vec<MessageInfo>,
    /// Messages handled a second, over all types; see [`MessageInfo::per_second`].
    pub per_second: f64,
    /// Messages that found no room.
    pub refused: u64,
    /// Messages thrown away for newer ones.
    pub dropped: u64,
    /// Timers and futures under way.
    pub errands: u64,
    /// How often it was restarted.
    pub restarts: u32,
    /// Median handling time over all types (one message in 64 is timed, and the last 32 of each type count).
    pub handling_p50: Duration,
    /// 99th percentile of the same.
    pub handling_p99: Duration,
    /// How often a handler of its blocked its thread for more than 100 ms.
    pub blocked: u32,
    /// The longest such time, to 25 ms.
    pub blocked_longest: Duration,
    /// At what it blocked the last time: the type of a message, or what else it did.
    pub blocked_at: Option<String>,
}

/// One link to another node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkInfo {
    /// The other node.
    pub peer: String,
    /// What it is.
    pub role: Role,
    /// Where it is; empty if nobody said.
    pub address: String,
    /// Whether this node dialled it.
    pub dialled: bool,
    /// How long the link has been up.
    pub age: Duration,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
    /// Frames written so far, those that wait included.
    pub frames_sent: u64,
    /// Frames that have come.
    pub frames_delivered: u64,
    /// Messages that were said in a shape before the newest, because the peer hears no newer one, or this node is to say none.
    pub said_older: u64,
    /// Questions that wait for the peer's reply.
    pub questions: u64,
}

/// What links met that was not taken.
#[derive(Default)]
pub(crate) struct Counts {
    unknown_process: AtomicU64,
    unknown_message: AtomicU64,
    wrong_role: AtomicU64,
    mailbox_full: AtomicU64,
    garbled: AtomicU64,
    pub(crate) delivery: delivery::Counts,
}

impl Counts {
    pub(crate) fn unknown_process(&self) {
        self.unknown_process.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unknown_message(&self) {
        self.unknown_message.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wrong_role(&self) {
        self.wrong_role.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn mailbox_full(&self) {
        self.mailbox_full.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn garbled(&self) {
        self.garbled.fetch_add(1, Ordering::Relaxed);
    }
}

impl Node {
    /// Every actor, by name, those that wait to be made anew included. Looking costs the actors nothing.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        let now = self.clock().now();
        let all = self.registry().all().into_iter();
        all.map(|holder| match holder {
            Holder::Living(entry) => ProcessInfo {
                age: entry.meter.age(),
                depth: entry.meter.depth(),
                oldest: entry.meter.oldest(),
                errands: entry.meter.errands(),
                ..counted(&entry.pid, &entry.meter, &entry.thread, entry.restarts)
            },
            Holder::Restarting(last) => ProcessInfo {
                returns_in: Some(last.until - now),
                ..counted(&last.pid, &last.meter, &last.thread, last.restarts)
            },
        })
        .collect()
    }

    /// Every link, by peer.
    pub fn links(&self) -> Vec<LinkInfo> {
        let now = self.clock().now();
        let infos = self.connections().into_iter().map(|connection| LinkInfo {
            peer: connection.peer.node.to_string(),
            role: connection.peer.role,
            address: connection.peer.address.clone(),
            dialled: connection.dialled == Dialled::ByUs,
            age: now - connection.born,
            queued_bytes: connection.outbox.queued() as u64,
            frames_sent: connection.outbox.written(),
            frames_delivered: connection.delivered.load(Ordering::Relaxed),
            said_older: connection.said_older.load(Ordering::Relaxed),
            questions: connection.questions() as u64,
        });
        let mut infos: Vec<_> = infos.collect();
        infos.sort_by(|one, other| one.peer.cmp(&other.peer));
        infos
    }

    /// The same and the links' counts, flat: `process/<name>/depth` and so on. Times are in seconds; by type there is
    /// `process/<name>/message/<type>/handled`, whose rate is for the reader to take. Of links there are sums by the role of the nodes at their
    /// other ends, `link/<role>/queued_bytes` and so on: what each link does is asked of [`links`](Self::links).
    pub fn counters(&self) -> BTreeMap<String, f64> {
        let mut flat = BTreeMap::new();
        for info in self.processes() {
            let mut put = |what: &str, value: f64| {
                *flat
                    .entry(format!("process/{}/{what}", info.name))
                    .or_default() += value;
            };
            put("depth", info.depth as f64);
            put("oldest_secs", info.oldest.as_secs_f64());
            put("handled", info.handled.values().sum::<u64>() as f64);
            put("per_sec", info.per_second);
            put("refused", info.refused as f64);
            put("dropped", info.dropped as f64);
            put("errands", info.errands as f64);
            put("restarts", f64::from(info.restarts));
            put("handling_p50_secs", info.handling_p50.as_secs_f64());
            put("handling_p99_secs", info.handling_p99.as_secs_f64());
            put("blocked", f64::from(info.blocked));
            put("blocked_longest_secs", info.blocked_longest.as_secs_f64());
            for message in &info.messages {
                let name = short_name(&message.message);
                put(&format!("message/{name}/handled"), message.handled as f64);
            }
        }
        self.put_link_sums(&mut flat);
        let counts = self.counts();
        for (name, count) in [
            ("refused/unknown_process", &counts.unknown_process),
            ("refused/unknown_message", &counts.unknown_message),
            ("refused/wrong_role", &counts.wrong_role),
            ("refused/mailbox_full", &counts.mailbox_full),
            ("links/garbled", &counts.garbled),
        ] {
            flat.insert(name.to_owned(), count.load(Ordering::Relaxed) as f64);
        }
        counts.delivery.put(&mut flat);
        flat
    }
}

/// What is counted of an actor over all its lives, and nothing of its present one.
fn counted(pid: &Pid, meter: &Meter, thread: &str, restarts: u32) -> ProcessInfo {
    let messages = meter.messages();
    let mut handled = BTreeMap::new();
    for message in &messages {
        *handled.entry(message.message.clone()).or_default() += message.handled;
    }
    let (handling_p50, handling_p99) = meter.tallies.timings();
    let (refused, dropped) = meter.refused_and_dropped();
    let (blocked, blocked_longest, blocked_at) = meter.blocked();
    ProcessInfo {
        name: pid.name().to_owned(),
        pid: pid.clone(),
        returns_in: None,
        thread: thread.to_owned(),
        age: Duration::ZERO,
        depth: 0,
        oldest: Duration::ZERO,
        handled,
        per_second: messages
            .iter()
            .fold(0.0, |sum, message| sum + message.per_second),
        messages,
        refused,
        dropped,
        errands: 0,
        restarts,
        handling_p50,
        handling_p99,
        blocked,
        blocked_longest,
        blocked_at: blocked_at.map(str::to_owned),
    }
}

/// A type's name without the paths in it: `a::b::Do<c::It>` is `Do<It>`.
pub fn short_name(name: &str) -> String {
    let in_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut short = String::new();
    let mut rest = name;
    while !rest.is_empty() {
        let path = rest.find(|c| !in_path(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(path);
        short.push_str(word.rsplit("::").next().unwrap_or(word));
        let next = after.find(in_path).unwrap_or(after.len());
        short.push_str(&after[..next]);
        rest = &after[next..];
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_name_has_no_paths_and_keeps_its_parameters() {
        let names = [
            "u32",
            "a::b::Ping",
            "a::Do<b::c::It, d::Other<e::F>>",
            "(a::B, [c::D; 3])",
            "",
        ];
        let short = ["u32", "Ping", "Do<It, Other<F>>", "(B, [D; 3])", ""];
        assert_eq!(names.map(short_name), short);
    }
}
