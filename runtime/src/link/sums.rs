//! Sums over links: what metrics say of a node's links, by what the nodes at their other ends are.
//!
//! A master has ten thousand agents, and metrics are kept by whoever reads them: so they name roles, of which there are six, and
//! `/__processes__` names links. What was counted on links that have ended stays in the sums, which never fall.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::Connection;
use crate::identity::Role;

/// What links to nodes of one role have carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    frames_sent: u64,
    frames_delivered: u64,
    said_older: u64,
}

/// What was carried by links that have ended, by the role at the other end.
#[derive(Default)]
pub(crate) struct Ended(BTreeMap<Role, Carried>);

impl Carried {
    fn add(&mut self, connection: &Connection) {
        self.frames_sent += connection.outbox.written();
        self.frames_delivered += connection.delivered.load(Ordering::Relaxed);
        self.said_older += connection.said_older.load(Ordering::Relaxed);
    }
}

impl Ended {
    /// This one has ended.
    pub(crate) fn add(&mut self, connection: &Connection) {
        self.0
            .entry(connection.peer.role)
            .or_default()
            .add(connection);
    }
}

/// All links to nodes of one role, those there are and those that have ended.
#[derive(Clone, Copy, Default)]
struct Sum {
    carried: Carried,
    linked: u64,
    queued_bytes: u64,
    queued_bytes_max: u64,
    questions: u64,
}

/// Puts these sums in, as `link/<role>/<what>`.
pub(crate) fn put<'a>(
    flat: &mut BTreeMap<String, f64>,
    ended: &Ended,
    living: impl Iterator<Item = &'a Connection>,
) {
    let ended = ended.0.iter().map(|(role, carried)| {
        let carried = *carried;
        let sum = Sum {
            carried,
            ..Sum::default()
        };
        (*role, sum)
    });
    let mut sums: BTreeMap<Role, Sum> = ended.collect();
    for connection in living {
        let sum = sums.entry(connection.peer.role).or_default();
        let queued = connection.outbox.queued() as u64;
        sum.carried.add(connection);
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
            ("frames_sent", sum.carried.frames_sent),
            ("frames_delivered", sum.carried.frames_delivered),
            ("said_older", sum.carried.said_older),
            ("questions", sum.questions),
        ] {
            flat.insert(format!("link/{role}/{what}"), value as f64);
        }
    }
}
