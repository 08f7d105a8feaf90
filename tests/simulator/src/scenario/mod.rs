//! Scenario: the complete input of a run, as plain data.
//!
//! [`faults`] makes the plan of faults from a profile, [`shrink`] makes a failing scenario smaller.

pub mod faults;
pub mod shrink;

use std::time::Duration;

use crate::load::Manner;
use crate::world::STANDBY;
use crate::world::roles::{ROLES, masters};

/// The input of one run. The same scenario gives the same run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed of all randomness.
    pub seed: u64,
    /// The number of masters of the group.
    pub masters: u32,
    /// The number of agents.
    pub agents: u32,
    /// The number of frameworks.
    pub frameworks: u32,
    /// Virtual time before the faults end and recovery is required.
    pub duration: Duration,
    /// The kinds of faults.
    pub profile: Profile,
    /// The transport between nodes.
    pub wiring: Wiring,
    /// Explicit faults in order of time; `None` derives them from seed and profile. Shrinking
    /// removes some.
    pub faults: Option<Vec<Fault>>,
}

impl Scenario {
    /// Whether a fault may refer to this: an existing node, or a word for a set of nodes.
    pub fn knows(&self, node: &str) -> bool {
        let number = |prefix: &str, count: u32| {
            let (kind, number) = node.rsplit_once('-')?;
            let number = number.parse().ok().filter(|_| kind == prefix)?;
            (1..=count).contains(&number).then_some(number)
        };
        let numbered = |prefix: &str, count: u32| number(prefix, count).is_some();
        let standby = number(STANDBY, self.frameworks);
        ROLES.contains(&node)
            || masters(self.masters).iter().any(|master| master == node)
            || numbered("agent", self.agents)
            || numbered("framework", self.frameworks)
            || standby.is_some_and(|number| Manner::of(number).has_standby())
    }
}

/// The transport between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// The real QUIC transport over an in-memory socket.
    Quic,
    /// The runtime's frames over a plain in-memory network, for thousands of agents.
    Memory,
}

/// The kinds and frequency of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// No faults, only the load.
    None,
    /// The network: latency, loss, duplication, reordering, partitions one-way and two-way, slow
    /// readers.
    Network,
    /// Machines and processes: crashes and restarts of any node, failing tasks, disks that are
    /// slow, fail or lose writes.
    Machines,
    /// All of them together.
    All,
}

/// One fault: its begin, duration and kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Virtual time since the start.
    pub at: Duration,
    /// Duration; a crashed node restarts after it.
    pub lasts: Duration,
    /// Its kind.
    pub kind: FaultKind,
}

/// Kinds of faults. A node is given by its name (`master`, in a group `master-1` and so on,
/// `agent-1`, `framework-1`), or by its role at the begin of the fault: `leader`, `follower` (one
/// of them), `masters`, `minority` (the leader and the largest number of others that is no
/// majority), `majority` (the other masters), `everyone`.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// Packets of this node are lost, duplicated and delayed (and thereby reordered).
    PacketFaults {
        /// The node.
        node: String,
        /// Lost packets in thousandths.
        loss: u16,
        /// Duplicated packets in thousandths.
        duplication: u16,
        /// Maximum of the random delay of each packet.
        latency_max: Duration,
    },
    /// No packet passes between the two nodes.
    Partition {
        /// One node.
        one: String,
        /// The other node.
        other: String,
    },
    /// No packet passes in one direction; the other one is open.
    OneWay {
        /// The node whose packets are lost.
        from: String,
        /// The receiver.
        to: String,
    },
    /// The node reads nothing from its links.
    SlowReader {
        /// The node.
        node: String,
    },
    /// The node's process ends at once, loses unsynced writes, and restarts after the fault.
    Crash {
        /// The node.
        node: String,
    },
    /// The agent's process ends at once, loses unsynced writes, and restarts after the fault. Its
    /// machine continues with the executors that outlive their agent. No effect on a node that is
    /// not an agent.
    CrashProcess {
        /// The agent.
        node: String,
    },
    /// A crash at a certain step of the node; no effect if the step never comes.
    CrashAt {
        /// The node.
        node: String,
        /// The kind of step.
        step: Step,
        /// The number of steps. The last one is half done: a write is not synced, a packet is the
        /// node's last.
        count: u32,
    },
    /// The node's process makes no progress, and then continues as if no time had passed.
    Pause {
        /// The node.
        node: String,
    },
    /// Nothing passes between the node and the masters for this time, then everything does for the
    /// same time, and so on.
    Flap {
        /// The node.
        node: String,
        /// The time.
        every: Duration,
    },
    /// The node shuts down in order, and restarts after the fault.
    Restart {
        /// The node.
        node: String,
    },
    /// Each write of the node's disk takes this time.
    SlowDisk {
        /// The node.
        node: String,
        /// The time.
        by: Duration,
    },
    /// The node's disk is copied; at the end of the fault the node crashes and restarts with that
    /// copy. No effect on a node that is not a group member. No profile contains it: without other
    /// members that know its promises, no group can tolerate it.
    Rewind {
        /// The master.
        node: String,
    },
    /// Writes of the node's disk fail.
    FailingDisk {
        /// The node.
        node: String,
    },
    /// The node's wall clock is wrong by some seconds.
    WallJump {
        /// The node.
        node: String,
        /// The offset.
        seconds: i64,
    },
    /// The node's clock is too fast or too slow, with all of its timers and its wall time; after
    /// the fault its wall time is corrected.
    Drift {
        /// The node.
        node: String,
        /// Millionths by which it is too fast; negative if too slow.
        ppm: i32,
    },
    /// One executor on the agent's machine dies of a signal: a running one, or else the first one
    /// started during the fault.
    KillExecutor {
        /// The agent.
        node: String,
    },
    /// The agent's machine is busy with other work: its load averages are high.
    Busy {
        /// The agent.
        node: String,
    },
    /// The isolators on the agent's machine answer late, refuse containers, prepare them in a way
    /// that the launcher cannot carry out, and find limits exceeded.
    Isolation {
        /// The agent.
        node: String,
    },
    /// The master's sorter gives invalid answers. No profile contains it.
    Lie {
        /// The master.
        node: String,
    },
    /// The leading master panics repeatedly; its process and its group member continue. No profile
    /// contains it.
    Panic {
        /// A master of a group.
        node: String,
    },
    /// An operator changes quotas and weights repeatedly at the leading master, and removes the
    /// quotas afterwards.
    ChangeQuotas {
        /// Any master.
        node: String,
    },
    /// An operator schedules maintenance of the agent's machine, takes it down, and brings it up
    /// again. The machine itself continues.
    Maintain {
        /// The agent.
        node: String,
    },
}

/// Steps of a node that can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes of its disk.
    Write,
    /// Messages to its group that it sends.
    Packet,
}

impl Step {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Write, Self::Packet];

    /// Its name in a fault's text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Packet => "packet",
        }
    }
}

impl FaultKind {
    /// The same fault on another node. A fault between two nodes is unchanged.
    #[must_use]
    pub fn on(&self, name: &str) -> Self {
        let mut kind = self.clone();
        match &mut kind {
            Self::Partition { .. } | Self::OneWay { .. } => {}
            Self::PacketFaults { node, .. }
            | Self::SlowReader { node }
            | Self::Crash { node }
            | Self::CrashProcess { node }
            | Self::CrashAt { node, .. }
            | Self::Pause { node }
            | Self::Flap { node, .. }
            | Self::Restart { node }
            | Self::SlowDisk { node, .. }
            | Self::Rewind { node }
            | Self::FailingDisk { node }
            | Self::WallJump { node, .. }
            | Self::Drift { node, .. }
            | Self::KillExecutor { node }
            | Self::Busy { node }
            | Self::Isolation { node }
            | Self::Lie { node }
            | Self::Panic { node }
            | Self::ChangeQuotas { node }
            | Self::Maintain { node } => *node = name.to_owned(),
        }
        kind
    }

    /// Its name in summaries.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PacketFaults { .. } => "packet_faults",
            Self::Partition { .. } => "partition",
            Self::OneWay { .. } => "one_way",
            Self::SlowReader { .. } => "slow_reader",
            Self::Crash { .. } => "crash",
            Self::CrashProcess { .. } => "crash_process",
            Self::CrashAt { .. } => "crash_at",
            Self::Pause { .. } => "pause",
            Self::Flap { .. } => "flap",
            Self::Restart { .. } => "restart",
            Self::SlowDisk { .. } => "slow_disk",
            Self::Rewind { .. } => "rewind",
            Self::FailingDisk { .. } => "failing_disk",
            Self::WallJump { .. } => "wall_jump",
            Self::Drift { .. } => "drift",
            Self::KillExecutor { .. } => "kill_executor",
            Self::Busy { .. } => "busy",
            Self::Isolation { .. } => "isolation",
            Self::Lie { .. } => "lie",
            Self::Panic { .. } => "panic",
            Self::ChangeQuotas { .. } => "change_quotas",
            Self::Maintain { .. } => "maintain",
        }
    }
}
