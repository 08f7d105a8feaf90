//! A member of a group: the actor around a [`Replica`], on a node, with a clock, a disk and a network.
//!
//! Hears its own node through a [`MemberHandle`], and other masters: [`PacketSent`], which is raft's talk, [`Arrived`], [`Dismissed`], and [`Acquaint`], by
//! which an empty directory finds its seat (see [`founding`]); and operators (see [`operator`] and [`dumping`]). Remembers who waits for which answer, and how its peers are reached.
//!
//! * One write is under way at a time, on the node's blocking seam. What is proposed and heard meanwhile gathers, and is the next write
//!   (group commit). Nothing is answered, and nothing sent that says so, before the disk has it.
//! * Packets are dropped rather than kept for a peer that is not reached: raft says it again.
//! * Where a member sits, and which form of operations all members read, is replicated beside the machine ([`charter`]): addresses come with the log and its snapshots, so that a
//!   member that is added later finds its peers, and with each packet, so that one without any log yet can answer.
//! * A disk that fails ends it, for nobody knows what of a failed write will be found again: whoever waits is told, and so is whoever watches.
//!
//! It never blocks its thread, never decides anything about raft itself, and never goes on after an error of its log.

pub mod charter;
mod disk;
pub mod dumping;
pub mod founding;
mod handle;
mod hearing;
mod joining;
pub mod operator;
mod peers;
pub mod roster;
pub mod settings;
mod turning;

use std::sync::{Arc, OnceLock};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::message::id_of;
use runtime::prelude::*;
use runtime::{SpawnError, remote};
use serde::{Deserialize, Serialize};

use self::charter::Chartered;
use self::dumping::{Kept, ReadDump, TakeDump};
use self::founding::Acquaint;
use self::handle::Watcher;
use self::joining::Joining;
use self::operator::{ChangeMasters, ViewMaster};
use self::peers::Peers;
use self::roster::Roster;
use self::turning::Running;
use crate::log::LogStore;
use crate::machine::{FIRST_FORM, StateMachine};
use crate::replica::Replica;
use crate::wire::Packet;

pub use self::handle::{Counts, Leader, Leadership, MemberHandle, MemberStatus, ProposeError};
pub use self::settings::{Permits, Settings, Unusable, Wish};

/// The name of a member's actor: where peers find it.
pub const NAME: &str = "consensus";

/// A peer says this to the member it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSent {
    /// The group that both belong to.
    pub group: u64,
    /// Who says it, by raft id.
    pub from: u64,
    /// Where that member is reached.
    pub address: String,
    /// The newest form of operations that it reads.
    pub reads: u16,
    /// What it says.
    pub packet: Packet,
}

/// As it was said before operations had forms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSentV1 {
    /// The group that both belong to.
    pub group: u64,
    /// Who says it, by raft id.
    pub from: u64,
    /// Where that member is reached.
    pub address: String,
    /// What it says.
    pub packet: Packet,
}

impl From<PacketSentV1> for PacketSent {
    fn from(older: PacketSentV1) -> Self {
        let PacketSentV1 {
            group,
            from,
            address,
            packet,
        } = older;
        Self {
            group,
            from,
            address,
            reads: FIRST_FORM,
            packet,
        }
    }
}

impl From<&PacketSent> for PacketSentV1 {
    fn from(newer: &PacketSent) -> Self {
        Self {
            group: newer.group,
            from: newer.from,
            address: newer.address.clone(),
            packet: newer.packet.clone(),
        }
    }
}

/// A member of this group has found you, and is there: look for it too, without waiting for anything to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// The group that both belong to.
    pub group: u64,
    /// Who it is.
    pub id: u64,
    /// Where it is reached.
    pub address: String,
}

/// This number belongs to the group no more, and never will again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dismissed {
    /// Which group.
    pub group: u64,
    /// Which number.
    pub id: u64,
}

remote! {
    PacketSentV1 = "consensus/packet" v1;
    PacketSent = "consensus/packet" v2 older PacketSentV1;
    Arrived = "consensus/arrived" v1;
    Dismissed = "consensus/dismissed" v1
}

/// A machine that an actor can hold.
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
    /// A setting would do harm.
    #[error(transparent)]
    Settings(#[from] Unusable),
    /// Its actor cannot run.
    #[error("the actor {NAME:?} cannot be started")]
    Spawn(#[from] SpawnError),
}

/// Starts a member on this node, as the actor [`NAME`]. The log is the member's alone; the machine is as it begins. What is wrong with
/// the log is found later: [`MemberHandle::ended`] and its watchers tell.
pub fn start<M: Replicated>(
    node: &Node,
    settings: Settings,
    store: Box<dyn LogStore>,
    machine: M,
) -> Result<MemberHandle<M>, StartError> {
    settings.check()?;
    // Members of one rehearsal have one seed; their elections must differ all the same.
    let own = u64::from(id_of(&settings.address)) << 32;
    let rng = SmallRng::seed_from_u64(node.rng().random::<u64>() ^ own);
    let ended = Arc::new(OnceLock::new());
    let member = Member {
        settings,
        ended: ended.clone(),
        rng,
        ticks: 0,
        phase: Phase::Opening(Chartered::new(Roster::default(), machine)),
        store: Some(store),
        disk_bytes: 0,
        disk_hangs: false,
        disk_measured: u64::MAX,
        peers: Peers::default(),
        watchers: Vec::new(),
        told: None,
        counts: Counts::default(),
        dump: None,
    };
    let member = node.spawn(NAME, member)?;
    Ok(MemberHandle { member, ended })
}

/// The actor. It is reached through a [`MemberHandle`].
pub struct Member<M: Replicated> {
    settings: Settings,
    ended: Arc<OnceLock<String>>,
    rng: SmallRng,
    ticks: u64,
    phase: Phase<M>,
    /// None while the disk works on it.
    store: Option<Box<dyn LogStore>>,
    disk_bytes: u64,
    /// It was said that the disk hangs.
    disk_hangs: bool,
    /// The tick in which the disk's bytes were asked for.
    disk_measured: u64,
    peers: Peers,
    watchers: Vec<Watcher>,
    told: Option<Leadership>,
    counts: Counts,
    /// What an operator reads.
    dump: Option<Kept>,
}

/// How far it has come.
enum Phase<M: Replicated> {
    /// It reads its directory.
    Opening(Chartered<M>),
    /// Its directory is empty, and it asks for a seat.
    Joining(Joining<M>),
    /// It takes part.
    Running(Box<Running<M>>),
    /// It has ended.
    Over,
}

/// The replica of a member: the machine and the seats.
type Part<M> = Replica<Chartered<M>>;

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
    /// After a panic nobody else would tell those who wait and watch.
    fn drop(&mut self) {
        self.finish("it has fallen");
    }
}

impl<M: Replicated> Process for Member<M> {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<PacketSent>(&[Role::Master]);
        ears.hear_older::<PacketSentV1, PacketSent>(&[Role::Master]);
        ears.hear::<Arrived>(&[Role::Master]);
        ears.hear::<Dismissed>(&[Role::Master]);
        ears.hear::<Acquaint>(&[Role::Master]);
        ears.hear::<ViewMaster>(&[Role::Operator]);
        ears.hear::<ChangeMasters>(&[Role::Operator]);
        ears.hear::<TakeDump>(&[Role::Operator]);
        ears.hear::<ReadDump>(&[Role::Operator]);
    }
}

impl<M: Replicated> Member<M> {
    fn tick(&mut self, ctx: &mut Context<Self>) {
        self.ticks += 1;
        self.dump.take_if(|dump| dump.is_stale(self.ticks));
        match &mut self.phase {
            Phase::Opening(_) | Phase::Over => {}
            Phase::Joining(_) => self.ask_around(ctx),
            Phase::Running(running) => {
                running.replica.tick();
                self.watch_disk();
                self.do_chores();
                self.look_for_peers(ctx);
                self.wake(ctx);
            }
        }
    }

    /// Says once that the disk hangs, and once that it does not any more.
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
            None => tracing::info!("this master's disk answers again"),
        }
    }

    /// What is said of a disk that has been silent for so many ticks.
    fn hangs(&self, ticks: u64) -> String {
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        let silent = self.settings.tick.saturating_mul(ticks);
        format!("this master's disk has not answered for {silent:?}")
    }

    /// Something is wrong with the log: nothing may be trusted from here on.
    fn fail(&mut self, reason: &str, ctx: &mut Context<Self>) {
        tracing::error!(%reason, "this member of the group ends");
        self.finish(reason);
        ctx.stop();
    }

    /// Everybody who waits is told the end. The first reason counts.
    fn finish(&mut self, reason: &str) {
        let _ = self.ended.set(reason.to_owned());
        if let Phase::Running(running) = std::mem::replace(&mut self.phase, Phase::Over) {
            running.finish(reason);
        }
        let last = handle::over(reason.to_owned());
        for mut watcher in std::mem::take(&mut self.watchers) {
            watcher(&last);
        }
    }

    /// Where a member is, as far as it is known.
    fn address_of(&self, id: u64) -> Option<String> {
        let Phase::Running(running) = &self.phase else {
            return None;
        };
        if id == running.identity.id {
            return Some(self.settings.address.clone());
        }
        let seat = running.replica.machine().roster.address(id);
        self.peers.heard_at(id).or(seat).map(str::to_owned)
    }

    fn leader(&self, id: u64) -> Leader {
        Leader {
            id,
            address: self.address_of(id),
            node: self.peers.pid(id).map(|pid| pid.node().clone()),
        }
    }

    /// Tells all watchers if who leads is not as they know it.
    fn tell_leadership(&mut self, ctx: &Context<Self>) {
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let now = running.replica.role_now();
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
        if self.told.as_ref() != Some(&leadership) {
            self.watchers.retain_mut(|watcher| watcher(&leadership));
            self.told = Some(leadership);
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
                let seat = running.replica.status();
                status.identity = Some(running.identity);
                status.waiting = seat.disk_hangs.map(|ticks| self.hangs(ticks));
                status.seat = Some(seat);
                let charter = running.replica.machine();
                (status.roster, status.form) = (charter.roster.clone(), charter.form);
            }
            Phase::Over => status.waiting = self.ended.get().cloned(),
        }
        status
    }
}

#[cfg(test)]
mod tests;
