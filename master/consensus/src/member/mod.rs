//! A member of a Raft group: the actor around a [`Replica`], with a clock, a disk and a network.
//!
//! Handles messages of its own node through a [`MemberHandle`]; [`PacketSent`] (Raft traffic),
//! [`Arrived`], [`Dismissed`] and [`Introduce`] (see [`bootstrap`]) from other masters; and
//! operators' requests (see [`operator`] and [`dumping`]).
//!
//! - At most one write is in progress, on the node's blocking pool. Proposals and packets that
//!   arrive meanwhile form the next write (group commit). No reply or packet that depends on a
//!   write leaves before that write is synced.
//! - Packets to an unreachable peer are dropped, not queued: Raft retransmits.
//! - Member addresses and the operation format are replicated beside the machine ([`metadata`]), so
//!   a member that is added later finds its peers. Each packet also carries its sender's address,
//!   for receivers without a log.
//! - A disk error ends the member, because the result of a failed write is unknown. Callers and
//!   watchers get the reason.
//!
//! Never blocks its thread, makes no Raft decision itself, and never continues after a log error.
//!
//! | module | contents |
//! |---|---|
//! | `address_book` | the addresses of the group's members, replicated |
//! | `bootstrap` | how a member with an empty directory joins |
//! | `disk` | the member's disk: one operation at a time, off the actor's thread |
//! | `dumping` | dumps of a group's state, for `meros registry dump | restore` |
//! | `handle` | the handle by which a member's own node uses it |
//! | `handlers` | message handlers of a member |
//! | `joining` | startup: reads the directory, or asks the peers for admission |
//! | `metadata` | the address book and the operation format, in the machine's log |
//! | `operator` | operators' requests: `meros masters list | add | remove | promote | transfer` |
//! | `peers` | addresses and links of the other members |
//! | `settings` | settings of a member, read and checked once at its start |
//! | `turns` | carries out the replica's steps on disk and network |

pub mod address_book;
pub mod bootstrap;
mod disk;
pub mod dumping;
mod handle;
mod handlers;
mod joining;
pub mod metadata;
pub mod operator;
mod peers;
pub mod settings;
mod turns;

use std::sync::{Arc, OnceLock};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::prelude::*;
use runtime::wire::message::id_of;
use runtime::{SpawnError, remote};
use serde::{Deserialize, Serialize};

use self::address_book::AddressBook;
use self::bootstrap::Introduce;
use self::dumping::{ReadDump, RetainedDump, TakeDump};
use self::handle::Watcher;
use self::joining::Joining;
use self::metadata::GroupMachine;
use self::operator::{ChangeMasters, ViewMaster};
use self::peers::Peers;
use self::turns::Running;
use crate::core::Role as RaftRole;
use crate::log::LogStore;
use crate::machine::StateMachine;
use crate::replica::Replica;
use crate::wire::Packet;

pub use self::handle::{Counts, Leader, Leadership, MemberHandle, MemberStatus, ProposeError};
pub use self::settings::{AdminRequest, Permits, Settings, SettingsError};

/// The name of a member's actor, under which peers find it.
pub const NAME: &str = "consensus";

/// A Raft packet from one member to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSent {
    /// The group of both members.
    pub group: u64,
    /// The sender's raft id.
    pub from: u64,
    /// The sender's address.
    pub address: String,
    /// The newest operation format that the sender reads.
    pub reads: u16,
    /// The content.
    pub packet: Packet,
}

/// Announces a peer of this group that has just linked to the receiver. The receiver connects back
/// at once, so that a link exists before the first vote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// The group of both members.
    pub group: u64,
    /// The peer's raft id.
    pub id: u64,
    /// The peer's address.
    pub address: String,
}

/// The receiver's number was removed from the group, permanently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dismissed {
    /// The group.
    pub group: u64,
    /// The removed number.
    pub id: u64,
}

remote! {
    PacketSent = "consensus/packet" v1;
    Arrived = "consensus/arrived" v1;
    Dismissed = "consensus/dismissed" v1
}

/// A state machine that an actor can own.
pub trait Replicated:
    StateMachine<Operation: Send + 'static, Answer: Send + 'static> + Send + Unpin + 'static
{
}

impl<M> Replicated for M where
    M: StateMachine<Operation: Send + 'static, Answer: Send + 'static> + Send + Unpin + 'static
{
}

/// Why a member could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The actor could not be spawned.
    #[error("the actor {NAME:?} cannot be started")]
    Spawn(#[from] SpawnError),
}

/// Starts a member on this node, as the actor [`NAME`]. The log belongs to the member alone; the
/// machine is in its initial state. Errors of the log are found later, and reported by
/// [`MemberHandle::ended`] and to the watchers.
pub fn start<M: Replicated>(
    node: &Node,
    settings: Settings,
    store: Box<dyn LogStore>,
    machine: M,
) -> Result<MemberHandle<M>, StartError> {
    settings.check()?;
    // Members of one simulation share a seed; their election timeouts must differ.
    let own = u64::from(id_of(&settings.address)) << 32;
    let rng = SmallRng::seed_from_u64(node.rng().random::<u64>() ^ own);
    let ended = Arc::new(OnceLock::new());
    let member = Member {
        settings,
        ended: ended.clone(),
        rng,
        ticks: 0,
        phase: Phase::Opening(GroupMachine::new(AddressBook::default(), machine)),
        store: Some(store),
        disk_bytes: 0,
        disk_hangs: false,
        disk_measured: u64::MAX,
        peers: Peers::default(),
        watchers: Vec::new(),
        published: None,
        counts: Counts::default(),
        dump: None,
    };
    let member = node.spawn(NAME, member)?;
    Ok(MemberHandle { member, ended })
}

/// The actor, reached through a [`MemberHandle`].
pub struct Member<M: Replicated> {
    settings: Settings,
    ended: Arc<OnceLock<String>>,
    rng: SmallRng,
    ticks: u64,
    phase: Phase<M>,
    /// None while the disk works on it.
    store: Option<Box<dyn LogStore>>,
    disk_bytes: u64,
    /// Whether the hanging disk was logged.
    disk_hangs: bool,
    /// The tick of the newest measurement of the disk usage.
    disk_measured: u64,
    peers: Peers,
    watchers: Vec<Watcher>,
    published: Option<Leadership>,
    counts: Counts,
    /// The dump that an operator reads.
    dump: Option<RetainedDump>,
}

/// The stage of a member's life.
enum Phase<M: Replicated> {
    /// The directory is being read.
    Opening(GroupMachine<M>),
    /// The directory is empty; the member asks its peers for admission.
    Joining(Joining<M>),
    /// The member takes part in the group.
    Running(Box<Running<M>>),
    /// The member has ended.
    Ended,
}

/// The replica of a member: the machine and the group metadata.
type Part<M> = Replica<GroupMachine<M>>;

impl<M: Replicated> Actor for Member<M> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.every(self.settings.tick, |member, ctx| member.tick(ctx));
        self.on_disk(
            ctx,
            |store| store.load(),
            |member, loaded, ctx| member.opened(loaded, ctx),
        );
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.finish("it was stopped");
    }
}

impl<M: Replicated> Drop for Member<M> {
    /// After a panic no other code notifies waiting callers and watchers.
    fn drop(&mut self) {
        self.finish("its actor panicked");
    }
}

impl<M: Replicated> Process for Member<M> {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<PacketSent>(&[Role::Master]);
        handlers.accept::<Arrived>(&[Role::Master]);
        handlers.accept::<Dismissed>(&[Role::Master]);
        handlers.accept::<Introduce>(&[Role::Master]);
        handlers.accept::<ViewMaster>(&[Role::Operator]);
        handlers.accept::<ChangeMasters>(&[Role::Operator]);
        handlers.accept::<TakeDump>(&[Role::Operator]);
        handlers.accept::<ReadDump>(&[Role::Operator]);
    }
}

impl<M: Replicated> Member<M> {
    fn tick(&mut self, ctx: &mut Context<Self>) {
        self.ticks += 1;
        self.dump.take_if(|dump| dump.is_stale(self.ticks));
        match &mut self.phase {
            Phase::Opening(_) | Phase::Ended => {}
            Phase::Joining(_) => self.ask_peers(ctx),
            Phase::Running(running) => {
                running.replica.tick();
                self.watch_disk();
                self.run_housekeeping();
                self.look_for_peers(ctx);
                self.wake(ctx);
            }
        }
    }

    /// Logs once when the disk hangs, and once when it responds again.
    fn watch_disk(&mut self) {
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let hangs = running.replica.disk_hangs();
        if hangs.is_some() == self.disk_hangs {
            return;
        }
        self.disk_hangs = hangs.is_some();
        match hangs {
            Some(ticks) => tracing::error!("{}", self.hangs(ticks)),
            None => tracing::info!("the disk responds again"),
        }
    }

    /// The text for a disk that has not responded for this number of ticks.
    fn hangs(&self, ticks: u64) -> String {
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        let silent = self.settings.tick.saturating_mul(ticks);
        format!("this master's disk has not answered for {silent:?}")
    }

    /// Ends the member after a log error: its state cannot be trusted any more.
    fn fail(&mut self, reason: &str, ctx: &mut Context<Self>) {
        tracing::error!(%reason, "stopping this member of the group");
        self.finish(reason);
        ctx.stop();
    }

    /// Ends all waiting calls and notifies the watchers. The first reason is kept.
    fn finish(&mut self, reason: &str) {
        let _ = self.ended.set(reason.to_owned());
        if let Phase::Running(running) = std::mem::replace(&mut self.phase, Phase::Ended) {
            running.finish(reason);
        }
        let last = handle::end_of_leadership(reason.to_owned());
        for mut watcher in std::mem::take(&mut self.watchers) {
            watcher(&last);
        }
    }

    /// The address of a member, if known.
    fn address_of(&self, id: u64) -> Option<String> {
        let Phase::Running(running) = &self.phase else {
            return None;
        };
        if id == running.identity.id {
            return Some(self.settings.address.clone());
        }
        let listed = running.replica.machine().address_book.address(id);
        self.peers.sent_from(id).or(listed).map(str::to_owned)
    }

    fn leader(&self, id: u64) -> Leader {
        Leader {
            id,
            address: self.address_of(id),
            node: self.peers.pid(id).map(|pid| pid.node().clone()),
        }
    }

    /// Notifies all watchers if the leadership differs from the last one published. The only voter
    /// leads before its term is synced, and after a crash it would lead in that term again.
    fn publish_leadership(&mut self, ctx: &Context<Self>) {
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let now = running.replica.role_now();
        if now.role == RaftRole::Leader && !running.replica.term_is_synced() {
            return;
        }
        let leader = now.leader.map(|id| {
            let mut leader = self.leader(id);
            if id == running.identity.id {
                leader.node = Some(ctx.node().id().clone());
            }
            leader
        });
        let leadership = Leadership {
            role: now.role,
            term: now.term,
            leader,
            ended: None,
        };
        if self.published.as_ref() != Some(&leadership) {
            self.watchers.retain_mut(|watcher| watcher(&leadership));
            self.published = Some(leadership);
        }
    }

    fn status(&self) -> MemberStatus {
        let mut status = MemberStatus {
            disk_bytes: self.disk_bytes,
            counts: self.counts,
            ..MemberStatus::default()
        };
        match &self.phase {
            Phase::Opening(_) => status.waiting = Some("its directory is being read".to_owned()),
            Phase::Joining(joining) => status.waiting = Some(joining.waits_for.clone()),
            Phase::Running(running) => {
                let raft = running.replica.status();
                status.identity = Some(running.identity);
                status.waiting = raft.disk_hangs.map(|ticks| self.hangs(ticks));
                status.log = Some(raft);
                let group = running.replica.machine();
                (status.address_book, status.format) = (group.address_book.clone(), group.format);
            }
            Phase::Ended => status.waiting = self.ended.get().cloned(),
        }
        status
    }
}

#[cfg(test)]
mod tests;
