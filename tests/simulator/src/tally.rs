//! Tally: what happened in a run, counted, for summaries.

use std::collections::BTreeMap;
use std::time::Duration;

/// What happened, counted. A summary fails a run in which something is zero that the profile should have caused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Virtual time from the start to the end, with the recovery phase.
    pub virtual_time: Duration,
    /// Events that the hash was taken over.
    pub events: u64,
    /// Messages and replies that nodes gave to the network.
    pub said: u64,
    /// Messages and replies that were handled.
    pub heard: u64,
    /// Agents that registered, again included.
    pub registrations: u64,
    /// Offers that were made to frameworks.
    pub offers: u64,
    /// Tasks that agents were told to run.
    pub launches: u64,
    /// Executor processes that began.
    pub processes: u64,
    /// Tasks whose terminal state a framework heard, by the state's name.
    pub task_ends: BTreeMap<&'static str, u64>,
    /// Starts of the master after its first.
    pub failovers: u64,
    /// Nodes that were gone at once.
    pub crashes: u64,
    /// Nodes that were stopped in good order and started again.
    pub restarts: u64,
    /// Packets (or, over plain memory, batches) that the network lost.
    pub lost: u64,
    /// Packets that came twice.
    pub duplicated: u64,
    /// Packets (or batches) that were held up on purpose.
    pub delayed: u64,
    /// Connections that broke.
    pub broken_links: u64,
    /// Writes of a disk that failed or were forgotten.
    pub disk_failures: u64,
    /// Faults that began, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Judgements, by checker.
    pub judgements: BTreeMap<&'static str, u64>,
}
