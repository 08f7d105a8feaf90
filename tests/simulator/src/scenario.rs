//! Scenario: what is rehearsed. Plain data, from which everything else follows.

use std::time::Duration;

use crate::load::Manner;
use crate::world::STANDBY;
use crate::world::roles::{ROLES, masters};

/// One rehearsal. The same scenario gives the same run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Where all chance comes from.
    pub seed: u64,
    /// How many masters: one keeps its registry alone, several are a group.
    pub masters: u32,
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

impl Scenario {
    /// Whether a fault may name this: a node that there is, or a word that stands for some.
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

/// What can go wrong. Nodes are named as in the run: `master` (`master-1` and so on in a group), `agent-1`, `framework-1`; or by what they
/// are when the fault begins: `leader`, `follower` (one that does not lead), `masters`, `minority` (the leader and as many others as
/// are no majority), `majority` (the other masters), `everyone`.
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
    /// The agent's process is gone at once, with what its disk had not flushed, and starts again afterwards. Its machine goes on meanwhile,
    /// with the executors that outlive their agent. Nothing happens to a node that is no agent.
    Fall {
        /// Which agent.
        node: String,
    },
    /// The same as a crash, but not before the node has taken so many further steps of this kind; if it never does, nothing happens.
    CrashAt {
        /// Which node.
        node: String,
        /// What is counted.
        step: Step,
        /// How many; the last one is half done: a write is not synced, a packet leaves as the last word.
        count: u32,
    },
    /// The node's process makes no progress, and then goes on as if no time had passed.
    Pause {
        /// Which node.
        node: String,
    },
    /// Nothing passes between the node and the masters for so long, then everything does for as long, and so on.
    Flap {
        /// Which node.
        node: String,
        /// How long.
        every: Duration,
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
    /// The node's disk is copied, and at the end of the fault the node crashes, has that copy on its disk, and starts again. Nothing happens
    /// to a node that is no member of a group of masters. Not dealt by any profile: while nobody else knows what that member had promised,
    /// no group can bear it.
    Rewind {
        /// Which master.
        node: String,
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
    /// The node's clock runs too fast or too slow, with all its timers and its wall time; then its wall time is set right.
    Drift {
        /// Which node.
        node: String,
        /// By how many millionths too fast; too slow if negative.
        ppm: i32,
    },
    /// One executor on the agent's machine dies of a signal while that goes on: one of those that run, or else the first that starts.
    KillExecutor {
        /// Which agent.
        node: String,
    },
    /// The agent's machine is busy with work that is not the cluster's: its load averages are high.
    Busy {
        /// Which agent.
        node: String,
    },
    /// The master's sorter answers nonsense. Not dealt by any profile.
    Lie {
        /// Which master.
        node: String,
    },
    /// The master that acts there panics, again and again; its process and its member of the group go on. Not dealt by any profile.
    Panic {
        /// Which master of a group.
        node: String,
    },
    /// An operator tells whichever master acts other quotas and weights, again and again, and takes the quotas back afterwards.
    Ration {
        /// Any master.
        node: String,
    },
    /// An operator announces that the agent's machine will be away, takes it down, and brings it back. The machine itself goes on.
    Maintain {
        /// Which agent.
        node: String,
    },
}

/// What a node does step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes of its disk.
    Write,
    /// Messages of the masters' group that it sends.
    Packet,
}

impl Step {
    /// All of them.
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
    /// The same on another node. One that has two ends stays as it is.
    #[must_use]
    pub fn on(&self, name: &str) -> Self {
        let mut kind = self.clone();
        match &mut kind {
            Self::Partition { .. } | Self::OneWay { .. } => {}
            Self::Weather { node, .. }
            | Self::SlowReader { node }
            | Self::Crash { node }
            | Self::Fall { node }
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
            | Self::Lie { node }
            | Self::Panic { node }
            | Self::Ration { node }
            | Self::Maintain { node } => *node = name.to_owned(),
        }
        kind
    }

    /// Its name in summaries.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Weather { .. } => "weather",
            Self::Partition { .. } => "partition",
            Self::OneWay { .. } => "one_way",
            Self::SlowReader { .. } => "slow_reader",
            Self::Crash { .. } => "crash",
            Self::Fall { .. } => "fall",
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
            Self::Lie { .. } => "lie",
            Self::Panic { .. } => "panic",
            Self::Ration { .. } => "ration",
            Self::Maintain { .. } => "maintain",
        }
    }
}
