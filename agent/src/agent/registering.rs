//! Registration: how the agent finds a master and agrees with it on the agent's inventory.
//!
//! An agent without an id sends its full inventory. An agent with an id sends a digest, and then
//! the content of the buckets where the master's digest differs. The inventory is taken anew for
//! each message, so nothing that changes in between is lost: later changes reach the master as
//! updates of their own. Waits for a master are bounded, and the full inventory is sent after a few
//! unsuccessful comparisons.

use std::time::Duration;

use protocol::AgentResources;
use protocol::digest::{self, DigestKey, Fingerprinter};
use protocol::discovery::{find_announced, find_leader};
use protocol::message::registration::{
    AgentInventory, RegisterAgent, RegistrationRefused, ReregisterAgent, Reregistered,
};
use protocol::message::task::RunTasks;
use rand::Rng;
use runtime::prelude::*;

use super::{Agent, AgentEnd, Master, VERSION, log_oversubscribed};
use crate::agent::registration_timing::HeartbeatTimeout;
use crate::container::events::TakeInventory;
use crate::operations::ReportResources;

/// How long a master may take to be found.
const FIND_PATIENCE: Duration = Duration::from_secs(10);
const REGISTER_PATIENCE: Duration = Duration::from_secs(30);
const INVENTORY_PATIENCE: Duration = Duration::from_secs(10);
/// Digest comparisons with one master before the full inventory is sent.
const COMPARISONS_MAX: u32 = 3;

/// Retries at an announced leader that answers "not now", before the other masters are tried.
pub(super) const ANNOUNCED_RETRIES: u32 = 30;
const ANNOUNCED_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How much of the inventory a registration contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportScope {
    /// The full inventory.
    Full,
    /// A digest.
    DigestSummary {
        /// Comparisons so far.
        compared: u32,
    },
    /// A digest, and the content of the buckets that differ from the master's.
    Differing {
        /// Comparisons so far.
        compared: u32,
        /// The master's bucket sums.
        theirs: Vec<u64>,
    },
}

impl ReportScope {
    /// The next message after this answer; `None` once registered.
    pub fn after(&self, answer: &Reregistered) -> Option<Self> {
        let compared = match self {
            Self::Full => COMPARISONS_MAX,
            Self::DigestSummary { compared } | Self::Differing { compared, .. } => compared + 1,
        };
        match answer {
            Reregistered::Registered(_) => None,
            Reregistered::Differs { buckets }
                if compared < COMPARISONS_MAX && digest::is_bucket_count(buckets.len()) =>
            {
                let theirs = buckets.clone();
                Some(Self::Differing { compared, theirs })
            }
            Reregistered::Differs { .. } | Reregistered::Unknown => Some(Self::Full),
        }
    }
}

/// A registration message, in one of its two forms.
enum RegistrationMessage {
    Full(RegisterAgent),
    DigestSummary(ReregisterAgent),
}

impl Agent {
    /// Finds the leading master, starting at `self.next_master`, and registers with it.
    pub(super) fn register(&mut self, ctx: &mut Context<Self>) {
        if self.end.is_some() || self.recovering {
            return;
        }
        self.attempt += 1;
        let announced = self.announced.take();
        let is_announced = announced.is_some();
        let learned = self.learned.take();
        let asked = match announced {
            Some(announced) => vec![announced],
            None => self.masters_in_order(learned),
        };
        let attempt = self.attempt;
        let (node, chance) = (ctx.node().clone(), self.rng.random());
        let masters = asked.clone();
        let finding = async move {
            match masters.first().filter(|_| is_announced) {
                Some(announced) => find_announced(&node, announced, FIND_PATIENCE).await,
                None => find_leader(&node, masters, FIND_PATIENCE, chance).await,
            }
        };
        ctx.then(finding, move |this, found, ctx| {
            if this.attempt != attempt || this.end.is_some() {
                return;
            }
            match found {
                Ok(found) => {
                    if !is_announced {
                        // If this master refuses, the next attempt starts after it, or after the
                        // one that redirected here.
                        this.next_master = this
                            .index_of(&asked[found.place])
                            .map_or(this.next_master, |at| at + 1);
                    }
                    let scope = match this.info.id {
                        Some(_) => ReportScope::DigestSummary { compared: 0 },
                        None => ReportScope::Full,
                    };
                    this.prepare_registration(found.address, found.pid, scope, ctx);
                }
                Err(problem) if is_announced => {
                    tracing::debug!(master = ?asked, %problem, "no leader at the announced address");
                    this.register(ctx);
                }
                Err(problem) => this.retry_later(&asked.join(","), &problem.to_string(), ctx),
            }
        });
    }

    /// All masters in the order to ask: an unlisted former master first, then the configured ones
    /// from `self.next_master` on.
    fn masters_in_order(&self, learned: Option<String>) -> Vec<String> {
        let given = &self.config.settings.masters;
        let first = self.next_master.checked_rem(given.len()).unwrap_or(0);
        let in_order = given.iter().cycle().skip(first).take(given.len());
        learned.into_iter().chain(in_order.cloned()).collect()
    }

    /// Index of this address among the configured masters.
    pub(super) fn index_of(&self, address: &str) -> Option<usize> {
        let given = &self.config.settings.masters;
        given.iter().position(|master| master == address)
    }

    /// Takes the inventory, then sends a registration to this master.
    fn prepare_registration(
        &mut self,
        address: String,
        pid: Pid,
        scope: ReportScope,
        ctx: &mut Context<Self>,
    ) {
        let attempt = self.attempt;
        let counting = self.containerizer.ask(TakeInventory, INVENTORY_PATIENCE);
        let agent_id = self.info.id.clone();
        let reporting = self
            .operations
            .ask(ReportResources { agent_id }, INVENTORY_PATIENCE);
        let both = async move { Ok::<_, AskError>((counting.await?, reporting.await?)) };
        ctx.then(both, move |this, both, ctx| {
            if this.attempt != attempt || this.end.is_some() {
                return;
            }
            match both {
                Ok((held, resources)) => {
                    this.total = resources.total.clone();
                    this.send_registration(address, pid, scope, (held, resources), ctx);
                }
                Err(problem) => this.retry_later(&address, &problem.to_string(), ctx),
            }
        });
    }

    fn send_registration(
        &mut self,
        address: String,
        pid: Pid,
        scope: ReportScope,
        has: (AgentInventory, AgentResources),
        ctx: &mut Context<Self>,
    ) {
        let (attempt, oversubscribed_sent) = (self.attempt, self.oversubscribed.clone());
        if !oversubscribed_sent.is_empty() {
            log_oversubscribed(&oversubscribed_sent);
        }
        // The master may send messages before its answer arrives; they are obeyed.
        self.registering_with = Some(pid.clone());
        let asked_with = self.fence.newest_term();
        let (node, to) = (ctx.node().clone(), pid.clone());
        let message = self.message(&scope, has, ctx);
        let asked = async move {
            match message {
                RegistrationMessage::Full(message) => {
                    let answer = node.ask(&to, message, REGISTER_PATIENCE).await;
                    answer.map(|answer| answer.map(Reregistered::Registered))
                }
                RegistrationMessage::DigestSummary(message) => {
                    node.ask(&to, message, REGISTER_PATIENCE).await
                }
            }
        };
        ctx.then(asked, move |this, answer, ctx| {
            if this.attempt != attempt || this.end.is_some() {
                return;
            }
            let answer = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(RegistrationRefused::Never { reason })) => {
                    this.registering_with = None;
                    return this.finish(AgentEnd::Refused { reason }, ctx);
                }
                Ok(Err(refused)) => {
                    return this.retry_announced(address, &refused.to_string(), ctx);
                }
                Err(problem) => return this.retry_later(&address, &problem.to_string(), ctx),
            };
            if let Some(scope) = scope.after(&answer) {
                return this.prepare_registration(address, pid, scope, ctx);
            }
            let Reregistered::Registered(registered) = answer else {
                return;
            };
            this.registering_with = None;
            if !this.fence.try_bind(registered.master.term, asked_with) {
                // A newer leader was seen while the answer was under way.
                return this.retry_later(&address, "another master leads", ctx);
            }
            this.terms_unknown = false;
            let total = registered.total_ping_timeout.max(Duration::from_secs(1));
            let heartbeat = HeartbeatTimeout::start(ctx.clock().now(), total);
            let master = Master {
                pid,
                address,
                heartbeat,
                oversubscribed_sent,
            };
            this.on_registered(master, registered, ctx);
        });
    }

    fn message(
        &mut self,
        scope: &ReportScope,
        has: (AgentInventory, AgentResources),
        ctx: &Context<Self>,
    ) -> RegistrationMessage {
        let (held, resources) = (has.0, Some(has.1));
        let new_key = || DigestKey::new(ctx.node().fresh_uuid());
        let key = *self.digest_key.get_or_insert_with(new_key);
        let (agent, pid) = (self.info.clone(), ctx.pid().clone());
        let (version, oversubscribed) = (VERSION.to_owned(), self.oversubscribed.clone());
        // After a restart any term may have been seen. `u64::MAX` makes the master confirm its lead
        // with a majority before it admits the agent.
        let term_seen = match self.terms_unknown {
            true => u64::MAX,
            false => self.fence.newest_term(),
        };
        let theirs = match scope {
            ReportScope::Full => {
                return RegistrationMessage::Full(RegisterAgent {
                    agent,
                    pid,
                    version,
                    held,
                    digest_key: key,
                    oversubscribed,
                    resources,
                    term_seen,
                });
            }
            ReportScope::DigestSummary { .. } => None,
            ReportScope::Differing { theirs, .. } => Some(theirs),
        };
        RegistrationMessage::DigestSummary(ReregisterAgent {
            agent,
            pid,
            version,
            summary: Fingerprinter::new(key).summary(&held),
            report: theirs.map(|theirs| Fingerprinter::new(key).report(held, theirs)),
            oversubscribed,
            resources,
            term_seen,
        })
    }

    /// Learns the agent's id from a launch that arrives before the answer to the registration,
    /// which may be lost. The task is checkpointed under this id, so the next process must use it
    /// too.
    pub(super) fn learn_id(&mut self, run: &RunTasks) {
        if let (None, Some(task)) = (&self.info.id, run.tasks.first()) {
            tracing::info!(agent = %task.agent_id, "agent id learned from a launch");
            self.info.id = Some(task.agent_id.clone());
            self.update_helpers();
        }
    }

    /// Retries at a leader that was announced and is not ready yet: no other master leads, so none
    /// is tried before it.
    fn retry_announced(&mut self, address: String, problem: &str, ctx: &mut Context<Self>) {
        let Some(left) = self.announced_retries.checked_sub(1) else {
            return self.retry_later(&address, problem, ctx);
        };
        tracing::debug!(
            master = address,
            problem,
            "retrying registration at the new leader"
        );
        self.registering_with = None;
        self.announced_retries = left;
        self.announced = Some(address);
        let chance: f64 = self.rng.random();
        self.register_after(ANNOUNCED_RETRY_PAUSE.mul_f64(0.5 + 0.5 * chance), ctx);
    }

    /// Reregisters after a message of the master was lost, so that both compare their state.
    pub(super) fn reregister(&mut self, ctx: &mut Context<Self>) {
        let why = "one of its messages was lost";
        if self.master.is_some() {
            self.lose_master(why, ctx);
        } else if let Some(registering_with) = self.registering_with.take() {
            // Its answer is ignored from now on.
            self.retry_later(registering_with.node().name(), why, ctx);
        }
    }

    fn retry_later(&mut self, address: &str, problem: &str, ctx: &mut Context<Self>) {
        self.registering_with = None;
        let pause = self.backoff.failed(self.rng.random());
        tracing::info!(
            master = address,
            problem,
            ?pause,
            "not registered; trying again after a pause"
        );
        self.register_after(pause, ctx);
    }

    pub(super) fn register_after(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        self.attempt += 1;
        let attempt = self.attempt;
        ctx.after(pause, move |this, ctx| {
            if this.attempt == attempt {
                this.register(ctx);
            }
        });
    }
}
