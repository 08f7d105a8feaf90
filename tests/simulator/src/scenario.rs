//! Scenario: what is rehearsed. Plain data, from which everything else follows.

use std::time::Duration;

/// One rehearsal. The same scenario gives the same run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Where all chance comes from.
    pub seed: u64,
    /// How many agents.
    pub agents: u32,
    /// How many frameworks.
    pub frameworks: u32,
    /// How much virtual time passes before the faults end and recovery is demanded.
    pub duration: Duration,
    /// Which faults happen.
    pub profile: Profile,
    /// What carries messages between nodes.
    pub wiring: Wiring,
    /// The very faults, in order of time; `None` lets seed and profile decide. Shrinking takes some away.
    pub faults: Option<Vec<Fault>>,
}

/// What carries messages between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// The real QUIC transport over an in-memory socket.
    Quic,
    /// The runtime's frames over a plain in-memory network, for thousands of agents.
    Memory,
}

/// Which kinds of faults a scenario has, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// None: only the load.
    None,
    /// The network: latency, loss, duplication, reordering, partitions one-way and two-way, slow readers.
    Network,
    /// Machines and processes: crashes and restarts of any node, tasks that fail, disks that are slow, fail or forget.
    Machines,
    /// All of them together.
    All,
}

/// One fault: when it begins, how long it lasts, and what it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Virtual time since the start.
    pub at: Duration,
    /// How long; a crashed node is restarted after so long.
    pub lasts: Duration,
    /// What happens.
    pub kind: FaultKind,
}

/// What can go wrong. Nodes are named as in the run: `master`, `agent-1`, `framework-1`.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// Every packet of this node loses, repeats or waits: shares in thousandths, the wait at most so long (which reorders).
    Weather {
        /// Whose packets.
        node: String,
        /// Lost, in thousandths.
        loss: u16,
        /// Sent twice, in thousandths.
        duplication: u16,
        /// Each packet waits a random time up to this.
        latency_max: Duration,
    },
    /// No packet goes either way between the two.
    Partition {
        /// The one.
        one: String,
        /// The other.
        other: String,
    },
    /// No packet goes from the one to the other; the way back is open.
    OneWay {
        /// From whom nothing comes through.
        from: String,
        /// To whom.
        to: String,
    },
    /// The node reads nothing from its links.
    SlowReader {
        /// Which node.
        node: String,
    },
    /// The node's process is gone at once, with what its disk had not flushed, and starts again afterwards.
    Crash {
        /// Which node.
        node: String,
    },
    /// The node is told to stop in good order, and starts again afterwards.
    Restart {
        /// Which node.
        node: String,
    },
    /// Each write of the node's disk takes so long.
    SlowDisk {
        /// Which node.
        node: String,
        /// How long.
        by: Duration,
    },
    /// Writes of the node's disk fail.
    FailingDisk {
        /// Which node.
        node: String,
    },
    /// The node's wall clock is off by so many seconds.
    WallJump {
        /// Which node.
        node: String,
        /// By how much.
        seconds: i64,
    },
}
