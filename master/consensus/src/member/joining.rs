//! Startup of a member: reads its directory. If it is empty, founds a group of one or asks peers
//! for admission; then starts.
//!
//! [`bootstrap`](super::bootstrap) interprets the answers; this module repeats the questions and
//! carries out the decision. The initial state of a founder is written together with its identity,
//! so that an interrupted write leaves the directory empty.

use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::Timestamp;
use runtime::prelude::*;

use super::bootstrap::{BootstrapDecision, InitialState, Introduce, Introduced, Introductions};
use super::metadata::GroupMachine;
use super::turns::Running;
use super::{Member, NAME, Part, Phase, Replicated};
use crate::log::{Identity, Loaded, LogError, LogStore, Write};
use crate::replica::{Replica, bootstrap};

/// The pause between two rounds of questions, in ticks.
const RETRY_TICKS: u64 = 10;

/// A member that is not admitted yet.
pub(super) struct Joining<M> {
    machine: GroupMachine<M>,
    pub introductions: Introductions,
    /// Random; identifies this directory while it is empty.
    mark: u64,
    asking: BTreeSet<String>,
    next: u64,
    /// The initial state is being written.
    begun: bool,
    pub waits_for: String,
}

impl<M: Replicated> Member<M> {
    pub(super) fn opened(&mut self, loaded: Loaded, ctx: &mut Context<Self>) {
        let machine = match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Opening(machine) => machine,
            Phase::Joining(joining) => joining.machine,
            other => {
                self.phase = other;
                return;
            }
        };
        let Some(identity) = loaded.identity else {
            let mark = self.rng.random_range(2..=u64::MAX);
            let (me, initial) = (&self.settings.address, &self.settings.initial);
            let introductions = Introductions::new(me, initial, mark);
            self.phase = Phase::Joining(Joining {
                machine,
                introductions,
                mark,
                asking: BTreeSet::new(),
                next: 0,
                begun: false,
                waits_for: "no master has answered yet".to_owned(),
            });
            self.ask_peers(ctx);
            return self.decide(ctx);
        };
        let started = ctx.clock().wall();
        match self.replica(identity, loaded, machine, started) {
            Ok(replica) => {
                tracing::info!(id = identity.id, group = %format!("{:016x}", identity.group), "starting as a member of the group");
                self.phase = Phase::Running(Box::new(Running::new(identity, replica)));
                self.publish_leadership(ctx);
                self.wake(ctx);
            }
            Err(reason) => self.fail(&reason, ctx),
        }
    }

    fn replica(
        &mut self,
        identity: Identity,
        loaded: Loaded,
        machine: GroupMachine<M>,
        started: Timestamp,
    ) -> Result<Part<M>, String> {
        // Tickets of two runs must differ, also on two nodes with one seed, as in simulations.
        let last = loaded.entries.last().map_or(0, |entry| entry.index);
        let own = started.as_nanos() ^ loaded.hard.term.rotate_left(48) ^ last.rotate_left(32);
        let rng = SmallRng::seed_from_u64(self.rng.random::<u64>() ^ own);
        let (raft, policy) = (self.settings.raft.clone(), self.settings.policy.clone());
        Replica::new(raft, policy, identity, loaded, rng, machine)
            .map_err(|error| error.to_string())
    }

    /// Asks all candidate addresses, unless they were asked recently.
    pub(super) fn ask_peers(&mut self, ctx: &mut Context<Self>) {
        let Phase::Joining(joining) = &mut self.phase else {
            return;
        };
        if joining.begun || self.ticks < joining.next {
            return;
        }
        joining.next = self.ticks + RETRY_TICKS;
        let timeout = self.settings.find_timeout;
        let asked = joining.introductions.addresses_to_ask();
        for address in asked {
            if !joining.asking.insert(address.clone()) {
                continue;
            }
            let question = Introduce {
                address: self.settings.address.clone(),
                mark: joining.mark,
            };
            let (node, at) = (ctx.node().clone(), address.clone());
            let answer = async move {
                let pid = node.find(&at, NAME, timeout).await?;
                node.ask(&pid, question, timeout).await
            };
            ctx.then(answer, move |member, answer, ctx| {
                member.answered(address, answer, ctx);
            });
        }
    }

    fn answered(
        &mut self,
        address: String,
        answer: Result<Introduced, AskError>,
        ctx: &mut Context<Self>,
    ) {
        let Phase::Joining(joining) = &mut self.phase else {
            return;
        };
        joining.asking.remove(&address);
        if let Ok(answer) = answer {
            joining.introductions.answered(address, answer);
            self.decide(ctx);
        }
    }

    fn decide(&mut self, ctx: &mut Context<Self>) {
        let Phase::Joining(joining) = &mut self.phase else {
            return;
        };
        if joining.begun {
            return;
        }
        match joining.introductions.decision() {
            BootstrapDecision::Wait { reason } => {
                if joining.waits_for != reason {
                    tracing::info!(%reason, "waiting for admission to a group");
                    joining.waits_for = reason;
                }
            }
            BootstrapDecision::Refuse { reason } => self.fail(&reason, ctx),
            BootstrapDecision::Begin { identity, first } => {
                joining.begun = true;
                let group = format!("{:016x}", identity.group);
                match &first {
                    InitialState::Vote(_) => {
                        tracing::info!(id = identity.id, group, "joining the group")
                    }
                    InitialState::Founding(..) => tracing::info!(
                        id = identity.id,
                        group,
                        "founding a new group with an empty registry"
                    ),
                }
                let write = match first {
                    InitialState::Vote(write) => Ok(write),
                    InitialState::Founding(members, address_book) => {
                        joining.machine.address_book = address_book;
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
            store.begin(identity, &write)?;
            store.load()
        };
        self.on_disk(ctx, work, |member, loaded, ctx| member.opened(loaded, ctx));
    }
}
