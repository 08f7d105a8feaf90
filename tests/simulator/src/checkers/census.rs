//! Census: who is registered and who is subscribed, by what the master itself answers.
//!
//! Hears the questions `RegisterAgent`, `ReregisterAgent`, `Subscribe` and `StandBy` as the master handles them, and its answers as it gives them. Remembers the
//! questions that are open and the newest answer of each. An answer leaves the master a little after it has changed its books, at the
//! same moment of virtual time: what it says to the asker, or about it, before that may belong to the old state or to the new. It knows nothing of broken links. What a master said ends with it, but not
//! which framework a scheduler's node belongs to.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::AgentInfo;
use protocol::digest::{Digest, DigestKey};
use protocol::message::registration::{
    AgentRegistered, Held, RegisterAgent, RegistrationRefused, ReregisterAgent, Reregistered,
};
use protocol::message::scheduler::{
    FrameworkMessage, Lost, OfferRescinded, OffersMade, StatusChanged, Subscribe, Subscribed,
    SubscriptionRefused,
};
use protocol::message::standby::{StandBy, Standing, YouLead};
use protocol::{AgentId, AgentResources, FrameworkId, FrameworkInfo};
use resources::Resources;
use runtime::{Pid, Role};

use crate::event::{Event, Spoken, What};

/// Questions that are not answered yet, by the node that asks and the master that is asked. A master that is busy with a question refuses
/// further ones of the same asker at once, so a refusal is for the newest and a welcome for the oldest.
struct Open<Q>(BTreeMap<String, BTreeMap<String, VecDeque<Q>>>);

impl<Q> Default for Open<Q> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<Q> Open<Q> {
    fn asked(&mut self, spoken: &Spoken<'_>, question: Q) {
        let masters = self.0.entry(spoken.from.to_owned()).or_default();
        let open = masters.entry(spoken.to.to_owned()).or_default();
        open.push_back(question);
    }

    /// The questions that this answer may be for.
    fn answered(&mut self, answer: &Spoken<'_>) -> Option<&mut VecDeque<Q>> {
        self.0.get_mut(answer.to)?.get_mut(answer.from)
    }

    fn welcomed(&mut self, answer: &Spoken<'_>) -> Option<Q> {
        self.answered(answer)?.pop_front()
    }

    fn of(&self, node: &str) -> impl Iterator<Item = &Q> {
        let masters = self.0.get(node);
        masters.into_iter().flat_map(BTreeMap::values).flatten()
    }

    fn refused(&mut self, answer: &Spoken<'_>) {
        if let Some(open) = self.answered(answer) {
            open.pop_back();
        }
    }

    /// Nobody is answered by this master any more.
    fn lost(&mut self, master: &str) {
        for masters in self.0.values_mut() {
            masters.remove(master);
        }
    }
}

/// The roles of the nodes that were started.
#[derive(Default)]
pub(super) struct Nodes(BTreeMap<String, Role>);

impl Nodes {
    /// Notes a start. Gives the master whose end the event is.
    #[inline]
    pub fn see<'a>(&mut self, event: &Event<'a>) -> Option<&'a str> {
        if let What::Said(_) | What::Heard(_) = event.what {
            return None; // Nearly all are.
        }
        if let What::NodeStarted { node, role } = event.what {
            self.0.insert(node.to_owned(), role);
        }
        self.master_ended(event)
    }

    /// The master whose end the event is: its own, or that of its node.
    pub fn master_ended<'a>(&self, event: &Event<'a>) -> Option<&'a str> {
        match event.what {
            What::MasterEnded { node } => Some(node),
            What::NodeEnded { node, .. } if self.role(node) == Some(Role::Master) => Some(node),
            _ => None,
        }
    }

    pub fn role(&self, node: &str) -> Option<Role> {
        self.0.get(node).copied()
    }

    /// The nodes of that role.
    pub fn of(&self, role: Role) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(_, has)| **has == role);
        named.map(|(node, _)| node.as_str())
    }
}

/// An agent has just been registered.
pub(super) struct Registration {
    /// Its node.
    pub node: String,
    /// Its id.
    pub agent_id: AgentId,
    /// What it said.
    pub arrival: Arrival,
}

/// What an agent says when it comes.
pub(super) struct Arrival {
    /// Who it is.
    pub agent: AgentInfo,
    /// What it lends.
    pub oversubscribed: Resources,
    /// What operations have made of its resources.
    pub made: Resources,
    /// What it told of what it has.
    pub held: Held,
    /// Which part that is; `None` is all.
    pub part: Option<Part>,
}

/// All that an agent has in some of its buckets.
pub(super) struct Part {
    /// Places are found by it.
    pub key: DigestKey,
    /// How many buckets there are.
    pub of: usize,
    /// Which of them.
    pub which: Vec<u32>,
    /// Whether it has nothing at all.
    pub nothing: bool,
}

impl Part {
    /// Whether the agent may have more than it told.
    pub fn leaves_out(&self) -> bool {
        !self.nothing && self.which.len() < self.of
    }
}

fn made(told: &Option<AgentResources>) -> Resources {
    let total = told.as_ref().map(|told| told.total.checkpointed());
    total.unwrap_or_default()
}

impl From<&RegisterAgent> for Arrival {
    fn from(message: &RegisterAgent) -> Self {
        Self {
            agent: message.agent.clone(),
            oversubscribed: message.oversubscribed.clone(),
            made: made(&message.resources),
            held: message.held.clone(),
            part: None,
        }
    }
}

impl From<&ReregisterAgent> for Arrival {
    fn from(message: &ReregisterAgent) -> Self {
        let report = message.report.clone();
        let (of, which, held) = report.map_or_else(
            || (1, Vec::new(), Held::default()),
            |report| (report.buckets as usize, report.differing, report.held),
        );
        let key = message.summary.key;
        let nothing = message.summary == Digest::default().summary(key);
        Self {
            agent: message.agent.clone(),
            oversubscribed: message.oversubscribed.clone(),
            made: made(&message.resources),
            held,
            part: Some(Part {
                key,
                of,
                which,
                nothing,
            }),
        }
    }
}

/// The agents.
#[derive(Default)]
pub(super) struct Registrations {
    nodes: Nodes,
    open: Open<Arrival>,
}

impl Registrations {
    /// Whether an agent on that node has asked and has no answer yet.
    pub fn is_asking(&self, node: &str) -> bool {
        self.open.of(node).next().is_some()
    }

    pub fn see(&mut self, event: &Event<'_>) -> Option<Registration> {
        if let Some(master) = self.nodes.see(event) {
            self.open.lost(master);
        }
        match event.what {
            // A master that thinks about an agent's question takes it in also if that has ended meanwhile; nobody hears the answer.
            What::NodeStarted { node, .. } => {
                self.open.0.remove(node);
            }
            What::Heard(spoken) => {
                if let Some(question) = spoken.is::<RegisterAgent>() {
                    self.open.asked(&spoken, question.into());
                } else if let Some(question) = spoken.is::<ReregisterAgent>() {
                    self.open.asked(&spoken, question.into());
                }
            }
            What::Said(spoken) if spoken.reply => {
                let registered = match registered(&spoken)? {
                    Ok(registered) => registered,
                    Err(_) => {
                        self.open.refused(&spoken);
                        return None;
                    }
                };
                let arrival = self.open.welcomed(&spoken)?;
                return registered.map(|registered| Registration {
                    node: spoken.to.to_owned(),
                    agent_id: registered.agent_id.clone(),
                    arrival,
                });
            }
            _ => {}
        }
        None
    }
}

/// The answer to an agent that comes, in either form: nobody, if it is to come again with more.
fn registered<'a>(
    spoken: &Spoken<'a>,
) -> Option<Result<Option<&'a AgentRegistered>, &'a RegistrationRefused>> {
    if let Some(answer) = spoken.is::<Result<AgentRegistered, RegistrationRefused>>() {
        return Some(answer.as_ref().map(Some));
    }
    let answer = spoken.is::<Result<Reregistered, RegistrationRefused>>()?;
    Some(answer.as_ref().map(|answer| match answer {
        Reregistered::Registered(registered) => Some(registered),
        Reregistered::Differs { .. } | Reregistered::Unknown => None,
    }))
}

/// Whether an agent is told that it will never be admitted as it is.
pub(super) fn is_refused_for_ever(spoken: &Spoken<'_>) -> bool {
    let answer = registered(spoken).filter(|_| spoken.reply);
    matches!(answer, Some(Err(RegistrationRefused::Never { .. })))
}

/// A framework's newest subscription.
pub(super) struct Subscription {
    /// The node of its scheduler.
    pub node: String,
    /// The node of the master.
    pub master: String,
    /// Its scheduler.
    pub scheduler: Pid,
    /// What it said of itself.
    pub info: FrameworkInfo,
    /// Since when it is known to its scheduler.
    pub since: Duration,
    /// When the master began it: before that, if it was told to lead before it had heard that it stands by.
    pub begun: Duration,
    /// Whether that master had welcomed another scheduler of the framework before, or none: what it told this one came after it began this.
    pub is_first: bool,
}

/// The frameworks.
#[derive(Default)]
pub(super) struct Frameworks {
    nodes: Nodes,
    open: Open<Subscribe>,
    newest: BTreeMap<FrameworkId, Subscription>,
    /// Whom each follows.
    followed: BTreeMap<FrameworkId, Followed>,
    /// Whose scheduler a node is, whichever master said so.
    speaks: BTreeMap<String, FrameworkId>,
    /// Nodes whose schedulers stand by, with what they asked, and the master that knows of it.
    waiting: BTreeMap<String, (Subscribe, String)>,
    /// Nodes whose schedulers that master has told to lead, at that time, before its answer that they stand by: they heed it when that has come.
    early: BTreeMap<String, (Subscribed, String, Duration)>,
}

/// The master of the highest term that has welcomed a framework, and the last one of those, whether or not it acts still.
struct Followed {
    term: u64,
    /// Its node.
    master: String,
    /// The node of the scheduler that it has welcomed.
    scheduler: String,
}

/// One that stands by will be subscribed as it is now.
fn asked_by(question: &StandBy) -> Subscribe {
    let StandBy {
        framework,
        scheduler,
        wants,
    } = question.clone();
    Subscribe {
        framework,
        scheduler,
        wants,
    }
}

impl Frameworks {
    /// Gives the framework that has just been subscribed.
    pub fn see(&mut self, event: &Event<'_>) -> Option<FrameworkId> {
        if let Some(master) = self.nodes.see(event) {
            self.open.lost(master);
            self.newest.retain(|_, newest| newest.master != master);
            self.waiting.retain(|_, (_, of)| of != master);
            self.early.retain(|_, (_, of, _)| of != master);
        }
        match event.what {
            What::NodeEnded { node, .. } => {
                self.open.0.remove(node);
                self.waiting.remove(node);
                self.early.remove(node);
            }
            What::Heard(spoken) => {
                if let Some(question) = spoken.is::<Subscribe>() {
                    self.open.asked(&spoken, question.clone());
                } else if let Some(question) = spoken.is::<StandBy>() {
                    self.open.asked(&spoken, asked_by(question));
                }
            }
            What::Said(spoken) if spoken.reply => return self.answered(&spoken, event.at),
            What::Said(spoken) => {
                let YouLead { subscribed } = spoken.is::<YouLead>()?;
                let Some((question, _)) = self.waiting.remove(spoken.to) else {
                    self.asking(spoken.to).next()?;
                    let told = (subscribed.clone(), spoken.from.to_owned(), event.at);
                    self.early.insert(spoken.to.to_owned(), told);
                    return None;
                };
                let at = [event.at; 2];
                return self.subscribed(subscribed, question, &spoken, at);
            }
            _ => {}
        }
        None
    }

    fn answered(&mut self, spoken: &Spoken<'_>, at: Duration) -> Option<FrameworkId> {
        let subscribed = match spoken.is::<Result<Standing, SubscriptionRefused>>() {
            Some(Ok(Standing::Leads(subscribed))) => Ok(subscribed),
            Some(Ok(Standing::StandsBy(standing))) => {
                let mut question = self.open.welcomed(spoken)?;
                question.framework.id = Some(standing.framework_id.clone());
                if let Some((subscribed, _, told)) = self.early.remove(spoken.to) {
                    return self.subscribed(&subscribed, question, spoken, [told, at]);
                }
                let waits = (question, spoken.from.to_owned());
                self.waiting.insert(spoken.to.to_owned(), waits);
                return None;
            }
            Some(Err(refused)) => Err(refused),
            None => spoken
                .is::<Result<Subscribed, SubscriptionRefused>>()?
                .as_ref(),
        };
        match subscribed {
            Ok(subscribed) => {
                let question = self.open.welcomed(spoken)?;
                self.waiting.remove(spoken.to);
                self.subscribed(subscribed, question, spoken, [at; 2])
            }
            Err(_) => {
                self.open.refused(spoken);
                None
            }
        }
    }

    fn subscribed(
        &mut self,
        subscribed: &Subscribed,
        question: Subscribe,
        spoken: &Spoken<'_>,
        [begun, since]: [Duration; 2],
    ) -> Option<FrameworkId> {
        let id = subscribed.framework_id.clone();
        let term = subscribed.master.term;
        // One that was deposed, and has been paused or waited for its disk: drivers drop its answers.
        let follows = self.followed.get(&id);
        if follows.is_some_and(|followed| followed.term > term) {
            return None;
        }
        let before = self.newest.get(&id).map(|before| &before.scheduler);
        let subscription = Subscription {
            is_first: before != Some(&question.scheduler),
            node: spoken.to.to_owned(),
            master: spoken.from.to_owned(),
            scheduler: question.scheduler,
            info: question.framework,
            since,
            begun,
        };
        self.newest.insert(id.clone(), subscription);
        let followed = Followed {
            term,
            master: spoken.from.to_owned(),
            scheduler: spoken.to.to_owned(),
        };
        self.followed.insert(id.clone(), followed);
        self.speaks.insert(spoken.to.to_owned(), id.clone());
        Some(id)
    }

    /// What the scheduler on that node stands by for, as that master knows.
    pub fn stands_by(&self, node: &str, master: &str) -> Option<&FrameworkId> {
        let (question, with) = self.waiting.get(node)?;
        question.framework.id.as_ref().filter(|_| with == master)
    }

    /// What a scheduler on that node says of itself in subscriptions that are not answered yet.
    pub fn asking(&self, node: &str) -> impl Iterator<Item = &FrameworkInfo> {
        self.open.of(node).map(|question| &question.framework)
    }

    /// Whether the event is the end of a master.
    pub fn lost_master(&self, event: &Event<'_>) -> bool {
        self.nodes.master_ended(event).is_some()
    }

    /// The newest subscription of that framework at a master that acts.
    pub fn get(&self, id: &FrameworkId) -> Option<&Subscription> {
        self.newest.get(id)
    }

    /// The framework whose scheduler hears this; `None` if another master was the last to welcome it (its driver drops the words of one that was
    /// deposed, also while it looks for the next), or if another scheduler was welcomed last: what was under way to this one is no news of its framework's.
    pub fn hearing(&self, spoken: &Spoken<'_>) -> Option<&FrameworkId> {
        let framework = self.of_node(spoken.to)?;
        let followed = self.followed.get(framework);
        let follows = followed.is_none_or(|followed| {
            followed.master == spoken.from && followed.scheduler == spoken.to
        });
        follows.then_some(framework)
    }

    /// The framework that the scheduler on that node has subscribed.
    pub fn of_node(&self, node: &str) -> Option<&FrameworkId> {
        self.speaks.get(node)
    }
}

/// Whether it is something that a master says only to a scheduler that it holds for connected. (Bytes for executors too, but those
/// go to agents.)
pub(super) fn is_for_scheduler(spoken: &Spoken<'_>) -> bool {
    !spoken.reply
        && (spoken.is::<OffersMade>().is_some()
            || spoken.is::<OfferRescinded>().is_some()
            || spoken.is::<StatusChanged>().is_some()
            || spoken.is::<Lost>().is_some()
            || spoken.is::<FrameworkMessage>().is_some())
}
