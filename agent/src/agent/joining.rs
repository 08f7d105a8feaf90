//! Joining: how the agent finds a master and comes to terms with it on what the agent has (SPEC 3.2, 5.2; DESIGN 5).
//!
//! An agent without an id tells all that it has. One with an id tells a summary, and where the master's sums differ from its
//! own, what it has there. What it has is counted anew for each message, so that nothing that happens in between is lost: what
//! happens after the last count goes to the master as an update of its own. It never waits for a master for ever, and tells all
//! after a few rounds in which the two did not come to terms.

use std::time::Duration;

use protocol::AgentResources;
use protocol::digest::{self, DigestKey, Printer};
use protocol::message::registration::{
    Held, RegisterAgent, RegistrationRefused, ReregisterAgent, Reregistered,
};
use protocol::message::task::RunTasks;
use protocol::seek::{find_announced, find_leader};
use rand::Rng;
use runtime::prelude::*;

use super::{Agent, AgentEnd, Master, VERSION, log_told};
use crate::container::events::TakeInventory;
use crate::operations::Report;
use crate::registration::Vigil;

/// How long a master may take to be found and to answer.
const FIND_PATIENCE: Duration = Duration::from_secs(10);
const REGISTER_PATIENCE: Duration = Duration::from_secs(30);
const INVENTORY_PATIENCE: Duration = Duration::from_secs(10);
/// How often an agent compares sums with one master before it tells all.
const COMPARISONS_MAX: u32 = 3;

/// How often a master that was announced is tried before the others while it says not now, and the pause between.
pub(super) const ANNOUNCED_TRIES: u32 = 30;
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// How much the agent tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Telling {
    /// All that it has.
    All,
    /// A summary, after so many comparisons.
    Summary {
        /// How many.
        compared: u32,
    },
    /// A summary, and what it has where its sums are others than these, after so many comparisons.
    Part {
        /// How many.
        compared: u32,
        /// The master's sums.
        theirs: Vec<u64>,
    },
}

impl Telling {
    /// What to tell a master that has answered like this; `None` if it has all it wants.
    pub fn after(&self, answer: &Reregistered) -> Option<Self> {
        let compared = match self {
            Self::All => COMPARISONS_MAX,
            Self::Summary { compared } | Self::Part { compared, .. } => compared + 1,
        };
        match answer {
            Reregistered::Registered(_) => None,
            Reregistered::Differs { buckets }
                if compared < COMPARISONS_MAX && digest::is_bucket_count(buckets.len()) =>
            {
                let theirs = buckets.clone();
                Some(Self::Part { compared, theirs })
            }
            Reregistered::Differs { .. } | Reregistered::Unknown => Some(Self::All),
        }
    }
}

/// The question to the master, in one of its two forms.
enum Question {
    All(RegisterAgent),
    Summary(ReregisterAgent),
}

impl Agent {
    /// Finds the master that leads, beginning with the one whose turn it is, and registers there.
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
            None => self.masters_by_turn(learned),
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
                        // Should it refuse, the next attempt begins after it, or after the one that has led there.
                        this.turn = this.place_of(&asked[found.place]).map_or(this.turn, |at| at + 1);
                    }
                    let telling = match this.info.id {
                        Some(_) => Telling::Summary { compared: 0 },
                        None => Telling::All,
                    };
                    this.court(found.address, found.pid, telling, ctx);
                }
                Err(problem) if is_announced => {
                    tracing::debug!(master = ?asked, %problem, "no master acts there; looking for it");
                    this.register(ctx);
                }
                Err(problem) => this.try_later(&asked.join(","), &problem.to_string(), ctx),
            }
        });
    }

    /// All masters, in the order in which they are to be asked: first the one that had us, if it is not among those that were given.
    fn masters_by_turn(&self, learned: Option<String>) -> Vec<String> {
        let given = &self.config.settings.masters;
        let turn = self.turn.checked_rem(given.len()).unwrap_or(0);
        let by_turn = given.iter().cycle().skip(turn).take(given.len());
        learned.into_iter().chain(by_turn.cloned()).collect()
    }

    /// The place of this address among the masters that were given.
    pub(super) fn place_of(&self, address: &str) -> Option<usize> {
        let given = &self.config.settings.masters;
        given.iter().position(|master| master == address)
    }

    /// Counts what there is, then asks a master that was found to have us.
    fn court(&mut self, address: String, pid: Pid, telling: Telling, ctx: &mut Context<Self>) {
        let attempt = self.attempt;
        let counting = self.containerizer.ask(TakeInventory, INVENTORY_PATIENCE);
        let agent_id = self.info.id.clone();
        let reporting = self.operations.ask(Report { agent_id }, INVENTORY_PATIENCE);
        let both = async move { Ok::<_, AskError>((counting.await?, reporting.await?)) };
        ctx.then(both, move |this, both, ctx| {
            if this.attempt != attempt || this.end.is_some() {
                return;
            }
            match both {
                Ok((held, resources)) => {
                    this.total = resources.total.clone();
                    this.ask(address, pid, telling, (held, resources), ctx);
                }
                Err(problem) => this.try_later(&address, &problem.to_string(), ctx),
            }
        });
    }

    fn ask(
        &mut self,
        address: String,
        pid: Pid,
        telling: Telling,
        has: (Held, AgentResources),
        ctx: &mut Context<Self>,
    ) {
        let (attempt, told) = (self.attempt, self.oversubscribed.clone());
        if !told.is_empty() {
            log_told(&told);
        }
        // What a master says that has been told something may come before its answer, and is obeyed.
        self.courted = Some(pid.clone());
        let asked_with = self.fence.seen();
        let (node, to) = (ctx.node().clone(), pid.clone());
        let question = self.question(&telling, has, ctx);
        let asked = async move {
            match question {
                Question::All(question) => {
                    let answer = node.ask(&to, question, REGISTER_PATIENCE).await;
                    answer.map(|answer| answer.map(Reregistered::Registered))
                }
                Question::Summary(question) => node.ask(&to, question, REGISTER_PATIENCE).await,
            }
        };
        ctx.then(asked, move |this, answer, ctx| {
            if this.attempt != attempt || this.end.is_some() {
                return;
            }
            let answer = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(RegistrationRefused::Never { reason })) => {
                    this.courted = None;
                    return this.finish(AgentEnd::Refused { reason }, ctx);
                }
                Ok(Err(refused)) => return this.try_again(address, &refused.to_string(), ctx),
                Err(problem) => return this.try_later(&address, &problem.to_string(), ctx),
            };
            if let Some(telling) = telling.after(&answer) {
                return this.court(address, pid, telling, ctx);
            }
            let Reregistered::Registered(registered) = answer else {
                return;
            };
            this.courted = None;
            if !this.fence.binds(registered.master.term, asked_with) {
                // It was deposed while it thought about it.
                return this.try_later(&address, "another master leads", ctx);
            }
            this.forgot_terms = false;
            let total = registered.total_ping_timeout.max(Duration::from_secs(1));
            let vigil = Vigil::begin(ctx.clock().now(), total);
            let master = Master {
                pid,
                address,
                vigil,
                told,
            };
            this.on_registered(master, registered, ctx);
        });
    }

    fn question(
        &mut self,
        telling: &Telling,
        has: (Held, AgentResources),
        ctx: &Context<Self>,
    ) -> Question {
        let (held, resources) = (has.0, Some(has.1));
        let new_key = || DigestKey::new(ctx.node().fresh_uuid());
        let key = *self.digest_key.get_or_insert_with(new_key);
        let (agent, pid) = (self.info.clone(), ctx.pid().clone());
        let (version, oversubscribed) = (VERSION.to_owned(), self.oversubscribed.clone());
        // One that has forgotten may have seen any: whoever takes it in has asked a majority.
        let term_seen = match self.forgot_terms {
            true => u64::MAX,
            false => self.fence.seen(),
        };
        let theirs = match telling {
            Telling::All => {
                return Question::All(RegisterAgent {
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
            Telling::Summary { .. } => None,
            Telling::Part { theirs, .. } => Some(theirs),
        };
        Question::Summary(ReregisterAgent {
            agent,
            pid,
            version,
            summary: Printer::new(key).summary(&held),
            report: theirs.map(|theirs| Printer::new(key).report(held, theirs)),
            oversubscribed,
            resources,
            term_seen,
        })
    }

    /// A launch may be heard before the answer that takes the agent in, and that may be lost: one without an id knows from the launch who it is.
    /// What it runs is on its disk under this id, so the next process of it must come back as the same.
    pub(super) fn learn_id(&mut self, run: &RunTasks) {
        if let (None, Some(task)) = (&self.info.id, run.tasks.first()) {
            tracing::info!(agent = %task.agent_id, "a launch says who this agent is, before the answer to its registration");
            self.info.id = Some(task.agent_id.clone());
            self.tell_helpers();
        }
    }

    /// A master says not now. The one that was announced has just begun to lead: the others, which do not, are not tried before it.
    fn try_again(&mut self, address: String, problem: &str, ctx: &mut Context<Self>) {
        let Some(left) = self.tries.checked_sub(1) else {
            return self.try_later(&address, problem, ctx);
        };
        tracing::debug!(master = address, problem, "the new leader is asked again");
        self.courted = None;
        self.tries = left;
        self.announced = Some(address);
        let chance: f64 = self.rng.random();
        self.register_after(TRY_AGAIN.mul_f64(0.5 + 0.5 * chance), ctx);
    }

    /// Something that a master says once was not heard. As without their link, the two compare what they have.
    pub(super) fn begin_anew(&mut self, ctx: &mut Context<Self>) {
        let why = "something that it said was not heard here";
        if self.master.is_some() {
            self.lose_master(why, ctx);
        } else if let Some(courted) = self.courted.take() {
            self.try_later(courted.node().name(), why, ctx); // Its answer comes too late.
        }
    }

    fn try_later(&mut self, address: &str, problem: &str, ctx: &mut Context<Self>) {
        self.courted = None;
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
