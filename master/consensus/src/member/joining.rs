//! A member on its way to a seat: it reads its directory, asks the others if that is empty, and begins.
//!
//! What the answers mean is decided in [`founding`](super::founding); here the questions are asked, again and again, and the verdict
//! is carried out. What is written first is written before the directory is claimed, so that one whose writing was cut short still
//! counts as empty.

use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::Timestamp;
use runtime::prelude::*;

use super::charter::Chartered;
use super::founding::{Acquaint, Acquaintance, Acquainted, First, Verdict};
use super::turning::Running;
use super::{Member, NAME, Part, Phase, Replicated};
use crate::log::{Identity, Loaded, LogError, LogStore, Write};
use crate::replica::{Replica, bootstrap};

/// The others are asked again after so many ticks.
const AGAIN_TICKS: u64 = 10;

/// A member without a seat.
pub(super) struct Joining<M> {
    machine: Chartered<M>,
    pub acquaintance: Acquaintance,
    /// Drawn for this directory, as long as it is empty.
    mark: u64,
    asking: BTreeSet<String>,
    next: u64,
    /// What is written now is the beginning.
    begun: bool,
    pub waits_for: String,
}

impl<M: Replicated> Member<M> {
    pub(super) fn opened(&mut self, loaded: Loaded, ctx: &mut Context<Self>) {
        let machine = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Opening(machine) => machine,
            Phase::Joining(joining) => joining.machine,
            other => {
                self.phase = other;
                return;
            }
        };
        let Some(identity) = loaded.identity else {
            if self.settings.initial.is_empty() {
                let reason = "the directory is empty and --initial_masters names nobody: expected the first masters, or masters \
                              of the group that this one was added to";
                return self.fail(reason, ctx);
            }
            let acquaintance = Acquaintance::new(&self.settings.address, &self.settings.initial);
            self.phase = Phase::Joining(Joining {
                machine,
                acquaintance,
                mark: self.rng.random_range(2..=u64::MAX),
                asking: BTreeSet::new(),
                next: 0,
                begun: false,
                waits_for: "nobody has answered yet".to_owned(),
            });
            self.ask_around(ctx);
            return self.judge(ctx);
        };
        let life = ctx.clock().wall();
        match self.replica(identity, loaded, machine, life) {
            Ok(replica) => {
                tracing::info!(id = identity.id, group = %format!("{:016x}", identity.group), "a member of the group");
                self.phase = Phase::Running(Box::new(Running::new(identity, replica)));
                self.tell_leadership(ctx);
                self.wake(ctx);
            }
            Err(reason) => self.fail(&reason, ctx),
        }
    }

    fn replica(
        &mut self,
        identity: Identity,
        loaded: Loaded,
        machine: Chartered<M>,
        life: Timestamp,
    ) -> Result<Part<M>, String> {
        // Tickets of two lives must differ, also of two nodes with one seed, as rehearsals build them.
        let last = loaded.entries.last().map_or(0, |entry| entry.index);
        let own = life.as_nanos() ^ loaded.hard.term.rotate_left(48) ^ last.rotate_left(32);
        let rng = SmallRng::seed_from_u64(self.rng.random::<u64>() ^ own);
        let (raft, policy) = (self.settings.raft.clone(), self.settings.policy.clone());
        Replica::new(raft, policy, identity, loaded, rng, machine)
            .map_err(|error| error.to_string())
    }

    /// Asks everybody who may know, unless they were asked lately.
    pub(super) fn ask_around(&mut self, ctx: &mut Context<Self>) {
        let Phase::Joining(joining) = &mut self.phase else {
            return;
        };
        if joining.begun || self.ticks < joining.next {
            return;
        }
        joining.next = self.ticks + AGAIN_TICKS;
        let patience = self.settings.find_patience;
        let asked = joining.acquaintance.to_ask();
        for address in asked {
            if !joining.asking.insert(address.clone()) {
                continue;
            }
            let question = Acquaint {
                address: self.settings.address.clone(),
                mark: joining.mark,
            };
            let (node, at) = (ctx.node().clone(), address.clone());
            let answer = async move {
                let pid = node.find(&at, NAME, patience).await?;
                node.ask(&pid, question, patience).await
            };
            ctx.then(answer, move |member, answer, ctx| {
                member.answered(address, answer, ctx);
            });
        }
    }

    fn answered(
        &mut self,
        address: String,
        answer: Result<Acquainted, AskError>,
        ctx: &mut Context<Self>,
    ) {
        let Phase::Joining(joining) = &mut self.phase else {
            return;
        };
        joining.asking.remove(&address);
        if let Ok(answer) = answer {
            joining.acquaintance.heard(address, answer);
            self.judge(ctx);
        }
    }

    fn judge(&mut self, ctx: &mut Context<Self>) {
        let Phase::Joining(joining) = &mut self.phase else {
            return;
        };
        if joining.begun {
            return;
        }
        match joining.acquaintance.verdict() {
            Verdict::Wait { reason } => {
                if joining.waits_for != reason {
                    tracing::info!(%reason, "this master has no seat in a group yet");
                    joining.waits_for = reason;
                }
            }
            Verdict::Refuse { reason } => self.fail(&reason, ctx),
            Verdict::Begin { identity, first } => {
                joining.begun = true;
                let write = match first {
                    First::Vote(write) => Ok(write),
                    First::Founding(members, roster) => {
                        joining.machine.roster = roster;
                        bootstrap(members, &joining.machine)
                    }
                };
                match write {
                    Ok(write) => self.begin(identity, write, ctx),
                    Err(garbled) => self.fail(&garbled.to_string(), ctx),
                }
            }
        }
    }

    fn begin(&mut self, identity: Identity, write: Write, ctx: &mut Context<Self>) {
        let work = move |store: &mut dyn LogStore| -> Result<Loaded, LogError> {
            store.write(&write)?;
            store.claim(identity)?;
            store.load()
        };
        self.on_disk(ctx, work, |member, loaded, ctx| member.opened(loaded, ctx));
    }
}
