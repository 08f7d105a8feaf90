//! Sums over links by the role of the peer, for metrics.
//!
//! A master has ten thousand agents, and monitoring systems store every metric: so metrics are per
//! role, of which there are six, and only `/__processes__` lists links. The counts of closed links
//! stay in the sums, which never decrease.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::Connection;
use crate::identity::Role;

/// The traffic of links to nodes of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkTraffic {
    frames_sent: u64,
    frames_delivered: u64,
    said_older: u64,
}

/// The traffic of closed links, by the role of the peer.
#[derive(Default)]
pub(crate) struct ClosedLinks(BTreeMap<Role, LinkTraffic>);

impl LinkTraffic {
    fn add(&mut self, connection: &Connection) {
        self.frames_sent += connection.outbox.written();
        self.frames_delivered += connection.delivered.load(Ordering::Relaxed);
        self.said_older += connection.said_older.load(Ordering::Relaxed);
    }
}

impl ClosedLinks {
    /// Adds a closed link.
    pub(crate) fn add(&mut self, connection: &Connection) {
        self.0
            .entry(connection.peer.role)
            .or_default()
            .add(connection);
    }
}

/// All links to nodes of one role, open and closed.
#[derive(Clone, Copy, Default)]
struct Sum {
    traffic: LinkTraffic,
    linked: u64,
    queued_bytes: u64,
    queued_bytes_max: u64,
    questions: u64,
}

/// Adds these sums as `link/<role>/<metric>`.
pub(crate) fn put<'a>(
    flat: &mut BTreeMap<String, f64>,
    ended: &ClosedLinks,
    living: impl Iterator<Item = &'a Connection>,
) {
    let ended = ended.0.iter().map(|(role, traffic)| {
        let traffic = *traffic;
        let sum = Sum {
            traffic,
            ..Sum::default()
        };
        (*role, sum)
    });
    let mut sums: BTreeMap<Role, Sum> = ended.collect();
    for connection in living {
        let sum = sums.entry(connection.peer.role).or_default();
        let queued = connection.outbox.queued() as u64;
        sum.traffic.add(connection);
        sum.linked += 1;
        sum.queued_bytes += queued;
        sum.queued_bytes_max = sum.queued_bytes_max.max(queued);
        sum.questions += connection.questions() as u64;
    }
    for (role, sum) in sums {
        for (what, value) in [
            ("linked", sum.linked),
            ("queued_bytes", sum.queued_bytes),
            ("queued_bytes_max", sum.queued_bytes_max),
            ("frames_sent", sum.traffic.frames_sent),
            ("frames_delivered", sum.traffic.frames_delivered),
            ("said_older", sum.traffic.said_older),
            ("questions", sum.questions),
        ] {
            flat.insert(format!("link/{role}/{what}"), value as f64);
        }
    }
}
