//! The table of open connections: bounds their number and chooses which one is evicted for a new
//! one.
//!
//! Executors on Mesos' own library may be silent for half an hour, and take the end of their
//! connection for the end of the agent. So idle connections are never closed after a time, only
//! when their place is needed ([`select_victim`]).
//!
//! A few extra places are reserved for health checks: a connection beyond the bound is answered
//! `/health`, and 503 for all else.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runtime::{Clock, Instant};

use super::ConnectionMetrics;
use super::source::{Source, select_victim};
use super::watch::ConnectionTimeouts;
use super::watched_stream::SharedWatch;

/// Maximum connections beyond the bound, which are answered only `/health`. One more evicts the
/// oldest of the source with the most of them.
const CHECKS_MAX: usize = 64;

/// All open connections. Clones share the table.
#[derive(Clone)]
pub(super) struct ConnectionTable {
    connections_max: usize,
    timeouts: ConnectionTimeouts,
    clock: Clock,
    metrics: ConnectionMetrics,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Default)]
struct Connections {
    entered: u64,
    all: BTreeMap<u64, (Source, SharedWatch)>,
    /// Connections per source.
    of: BTreeMap<Source, usize>,
    /// The connections for health checks.
    checks: BTreeMap<u64, (Source, SharedWatch)>,
}

/// An open connection, until this is dropped.
pub(super) struct OpenConnection {
    /// Its number; numbers are never reused.
    pub number: u64,
    table: ConnectionTable,
    /// Its source address.
    pub source: Source,
    /// Its watch.
    pub watch: SharedWatch,
    /// Whether only `/health` is answered.
    pub is_check: bool,
}

impl ConnectionTable {
    /// A table for `connections_max` connections.
    pub fn new(
        connections_max: usize,
        timeouts: ConnectionTimeouts,
        clock: &Clock,
        metrics: &ConnectionMetrics,
    ) -> Self {
        Self {
            connections_max,
            timeouts,
            clock: clock.clone(),
            metrics: metrics.clone(),
            connections: Arc::default(),
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; `None` if the table is full and no connection can be evicted.
    pub fn enter(&self, source: Source) -> Option<OpenConnection> {
        let mut connections = self.connections();
        let is_full = connections.all.len() >= self.connections_max;
        if is_full && !connections.evict_for(source, self.connections_max, self.clock.now()) {
            return None;
        }
        let (number, watch) = self.begin(&mut connections);
        connections.all.insert(number, (source, watch.clone()));
        *connections.of.entry(source).or_default() += 1;
        Some(self.open(number, source, watch, false))
    }

    /// Adds a connection that is answered only `/health`.
    pub fn enter_for_check(&self, source: Source) -> OpenConnection {
        let mut connections = self.connections();
        if connections.checks.len() >= CHECKS_MAX {
            connections.evict_check();
        }
        let (number, watch) = self.begin(&mut connections);
        connections.checks.insert(number, (source, watch.clone()));
        self.open(number, source, watch, true)
    }

    fn begin(&self, connections: &mut Connections) -> (u64, SharedWatch) {
        let metrics = &self.metrics.0;
        metrics.open.fetch_add(1, Ordering::Relaxed);
        metrics.accepted.fetch_add(1, Ordering::Relaxed);
        connections.entered += 1;
        (
            connections.entered,
            SharedWatch::new(self.timeouts, &self.clock),
        )
    }

    fn open(
        &self,
        number: u64,
        source: Source,
        watch: SharedWatch,
        is_check: bool,
    ) -> OpenConnection {
        OpenConnection {
            number,
            table: self.clone(),
            source,
            watch,
            is_check,
        }
    }
}

impl Connections {
    /// Evicts one connection for a new one, if the rule allows it. An idle one closes soon and is
    /// not chosen again; a busy one counts as closed at once.
    fn evict_for(&mut self, newcomer: Source, connections_max: usize, now: Instant) -> bool {
        let all = self.all.iter().filter_map(|(number, (source, watch))| {
            let activity = watch.activity()?;
            Some((*number, *source, activity))
        });
        let Some(number) = select_victim(newcomer, connections_max, &self.of, all, now) else {
            return false;
        };
        let Some((_, watch)) = self.all.get(&number) else {
            return false;
        };
        if !watch.end() {
            watch.evict();
            self.remove_connection(number);
        }
        true
    }

    /// Evicts the oldest health check of the source with the most of them.
    fn evict_check(&mut self) {
        let mut of = BTreeMap::<Source, usize>::new();
        for (source, _) in self.checks.values() {
            *of.entry(*source).or_default() += 1;
        }
        let has = |source: &Source| of.get(source).copied().unwrap_or(0);
        let checks = self.checks.iter();
        let first = checks.max_by_key(|(number, (source, _))| (has(source), Reverse(**number)));
        if let Some(number) = first.map(|(number, _)| *number)
            && let Some((_, watch)) = self.checks.remove(&number)
        {
            watch.evict();
        }
    }

    fn remove_connection(&mut self, number: u64) {
        self.checks.remove(&number);
        let Some((source, _)) = self.all.remove(&number) else {
            return;
        };
        if let Entry::Occupied(mut of) = self.of.entry(source) {
            *of.get_mut() -= 1;
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.table.connections().remove_connection(self.number);
        let open = &self.table.metrics.0.open;
        open.fetch_sub(1, Ordering::Relaxed);
    }
}
