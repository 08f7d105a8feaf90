//! The state of a node's actors and links, for metrics and `/__processes__`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::actor::mailbox::Meter;
use crate::actor::registry::Holder;
use crate::delivery;
use crate::identity::{Pid, Role};
use crate::link::Dialled;
use crate::node::Node;
use crate::observe::tally::MessageInfo;

/// One actor, living or about to be restarted. Counts continue across its incarnations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessInfo {
    /// Its name.
    pub name: String,
    /// Its current pid, or the last one.
    pub pid: Pid,
    /// The time until its restart, if it waits for one; then it has no mailbox.
    pub returns_in: Option<Duration>,
    /// The placement table's name of its thread; `home` is the node's own.
    pub thread: String,
    /// The age of this incarnation; zero between two.
    pub age: Duration,
    /// Messages waiting, including pings.
    pub depth: u64,
    /// How long the oldest of them has waited; zero if none waits. Exact to 25 ms if it found the
    /// mailbox empty, as after a stall; in a mailbox that is never empty, the age of a message
    /// further back, at least an eighth of the true age.
    pub oldest: Duration,
    /// Messages it has handled, by type.
    pub handled: BTreeMap<String, u64>,
    /// The same types in the order of their first message, with their rates and times.
    pub messages: Vec<MessageInfo>,
    /// Messages handled per second, over all types; see [`MessageInfo::per_second`].
    pub per_second: f64,
    /// Messages refused for lack of room.
    pub refused: u64,
    /// Messages dropped for newer ones.
    pub dropped: u64,
    /// Pending timers and futures.
    pub errands: u64,
    /// How often it was restarted.
    pub restarts: u32,
    /// Median handling time over all types (one message in 64 is timed, and the last 32 of each
    /// type count).
    pub handling_p50: Duration,
    /// 99th percentile of the same.
    pub handling_p99: Duration,
    /// How often one of its handlers blocked its thread for more than 100 ms.
    pub blocked: u32,
    /// The longest such time, in steps of 25 ms.
    pub blocked_longest: Duration,
    /// The cause of the last block: a message type, or a name for other work.
    pub blocked_at: Option<String>,
}

/// One link to another node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkInfo {
    /// The other node.
    pub peer: String,
    /// Its role.
    pub role: Role,
    /// Its address; empty if unknown.
    pub address: String,
    /// Whether this node dialled it.
    pub dialled: bool,
    /// How long the link has been up.
    pub age: Duration,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
    /// Frames written so far, including those that wait to be sent.
    pub frames_sent: u64,
    /// Frames received.
    pub frames_delivered: u64,
    /// Messages sent in an older version, because the peer accepts no newer one or this node
    /// simulates an older Meros.
    pub said_older: u64,
    /// Asks that wait for the peer's reply.
    pub questions: u64,
}

/// Counts of messages that links could not deliver.
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
    /// Every actor, by name, including those that wait to be restarted. Does not interrupt the
    /// actors.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        let now = self.clock().now();
        let all = self.registry().all().into_iter();
        all.map(|holder| match holder {
            Holder::Living(entry) => ProcessInfo {
                age: entry.meter.age(),
                depth: entry.meter.depth(),
                oldest: entry.meter.oldest(),
                errands: entry.meter.pending(),
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

    /// The state of all actors and links as flat metrics: `process/<name>/depth` and so on. Times
    /// are in seconds. Per type there is the counter `process/<name>/message/<type>/handled`,
    /// without a rate. Links are summed by the role of their peers, `link/<role>/queued_bytes` and
    /// so on; [`links`](Self::links) lists each link.
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

/// The counts of an actor over all its incarnations, without the state of the current one.
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
    fn short_name_drops_paths_and_keeps_parameters() {
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
