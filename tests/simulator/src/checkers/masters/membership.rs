//! Membership: the registered agents and subscribed frameworks by the master's own answers.
//!
//! Follows `RegisterAgent`, `ReregisterAgent`, `Subscribe` and `StandBy` as the master handles
//! them, and its answers as they are sent. An answer leaves a little after the master has changed
//! its state, at the same moment of virtual time: messages to or about the asking party before it
//! may belong to the old state or to the new. Broken links are unknown here. A master's answers end
//! with it, except the framework of a scheduler's node.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::AgentInfo;
use protocol::digest::{Digest, DigestKey};
use protocol::message::registration::{
    AgentInventory, AgentRegistered, RegisterAgent, RegistrationRefused, ReregisterAgent,
    Reregistered,
};
use protocol::message::scheduler::{
    FrameworkMessage, Lost, OfferRescinded, OffersMade, StatusChanged, Subscribe, Subscribed,
    SubscriptionRefused,
};
use protocol::message::standby::{SchedulerElected, StandBy, StandbyReply};
use protocol::{AgentId, AgentResources, FrameworkId, FrameworkInfo};
use resources::Resources;
use runtime::{Pid, Role};

use crate::event::{Event, EventKind, SeenMessage};

/// Unanswered requests by the asking node and the asked master. A master that is busy with a
/// request refuses further ones of the same node at once, so a refusal belongs to the newest and an
/// acceptance to the oldest.
struct Open<Q>(BTreeMap<String, BTreeMap<String, VecDeque<Q>>>);

impl<Q> Default for Open<Q> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<Q> Open<Q> {
    fn asked(&mut self, observed: &SeenMessage<'_>, question: Q) {
        let masters = self.0.entry(observed.from.to_owned()).or_default();
        let open = masters.entry(observed.to.to_owned()).or_default();
        open.push_back(question);
    }

    /// The requests to which this answer may belong.
    fn answered(&mut self, answer: &SeenMessage<'_>) -> Option<&mut VecDeque<Q>> {
        self.0.get_mut(answer.to)?.get_mut(answer.from)
    }

    fn welcomed(&mut self, answer: &SeenMessage<'_>) -> Option<Q> {
        self.answered(answer)?.pop_front()
    }

    fn of(&self, node: &str) -> impl Iterator<Item = &Q> {
        let masters = self.0.get(node);
        masters.into_iter().flat_map(BTreeMap::values).flatten()
    }

    fn refused(&mut self, answer: &SeenMessage<'_>) {
        if let Some(open) = self.answered(answer) {
            open.pop_back();
        }
    }

    /// This master answers no more requests.
    fn lost(&mut self, master: &str) {
        for masters in self.0.values_mut() {
            masters.remove(master);
        }
    }
}

/// The roles of the started nodes.
#[derive(Default)]
pub(in crate::checkers) struct Nodes(BTreeMap<String, Role>);

impl Nodes {
    /// Handles a start. Returns the master that ends by this event.
    #[inline]
    pub fn see<'a>(&mut self, event: &Event<'a>) -> Option<&'a str> {
        if let EventKind::Sent(_) | EventKind::Received(_) = event.kind {
            return None; // nearly all are
        }
        if let EventKind::NodeStarted { node, role } = event.kind {
            self.0.insert(node.to_owned(), role);
        }
        self.master_ended(event)
    }

    /// The master that ends by this event: alone, or with its node.
    pub fn master_ended<'a>(&self, event: &Event<'a>) -> Option<&'a str> {
        match event.kind {
            EventKind::MasterEnded { node } => Some(node),
            EventKind::NodeEnded { node, .. } if self.role(node) == Some(Role::Master) => {
                Some(node)
            }
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

/// A new registration of an agent.
pub(in crate::checkers) struct Registration {
    /// Its node.
    pub node: String,
    /// Its id.
    pub agent_id: AgentId,
    /// Its report.
    pub arrival: Arrival,
}

/// An agent's report when it registers.
pub(in crate::checkers) struct Arrival {
    /// Its description.
    pub agent: AgentInfo,
    /// Its lent resources.
    pub oversubscribed: Resources,
    /// The results of operations on its resources.
    pub made: Resources,
    /// Its reported tasks and executors.
    pub held: AgentInventory,
    /// The part that the report covers; `None` is all.
    pub part: Option<Part>,
}

/// A complete report of some buckets.
pub(in crate::checkers) struct Part {
    /// The key by which items are assigned to buckets.
    pub key: DigestKey,
    /// The number of buckets.
    pub of: usize,
    /// The reported ones.
    pub which: Vec<u32>,
    /// Whether it has nothing at all.
    pub nothing: bool,
}

impl Part {
    /// Whether the agent may have more than it reported.
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
            || (1, Vec::new(), AgentInventory::default()),
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
pub(in crate::checkers) struct Registrations {
    nodes: Nodes,
    open: Open<Arrival>,
}

impl Registrations {
    /// Whether an agent on that node has an unanswered request.
    pub fn is_asking(&self, node: &str) -> bool {
        self.open.of(node).next().is_some()
    }

    pub fn see(&mut self, event: &Event<'_>) -> Option<Registration> {
        if let Some(master) = self.nodes.see(event) {
            self.open.lost(master);
        }
        match event.kind {
            // A master completes the registration of an agent that has ended meanwhile; the answer
            // is lost.
            EventKind::NodeStarted { node, .. } => {
                self.open.0.remove(node);
            }
            EventKind::Received(observed) => {
                if let Some(question) = observed.is::<RegisterAgent>() {
                    self.open.asked(&observed, question.into());
                } else if let Some(question) = observed.is::<ReregisterAgent>() {
                    self.open.asked(&observed, question.into());
                }
            }
            EventKind::Sent(observed) if observed.reply => {
                let registered = match registered(&observed)? {
                    Ok(registered) => registered,
                    Err(_) => {
                        self.open.refused(&observed);
                        return None;
                    }
                };
                let arrival = self.open.welcomed(&observed)?;
                return registered.map(|registered| Registration {
                    node: observed.to.to_owned(),
                    agent_id: registered.agent_id.clone(),
                    arrival,
                });
            }
            _ => {}
        }
        None
    }
}

/// The positive answer to an agent; none if it must report more.
fn registered<'a>(
    observed: &SeenMessage<'a>,
) -> Option<Result<Option<&'a AgentRegistered>, &'a RegistrationRefused>> {
    if let Some(answer) = observed.is::<Result<AgentRegistered, RegistrationRefused>>() {
        return Some(answer.as_ref().map(Some));
    }
    let answer = observed.is::<Result<Reregistered, RegistrationRefused>>()?;
    Some(answer.as_ref().map(|answer| match answer {
        Reregistered::Registered(registered) => Some(registered),
        Reregistered::Differs { .. } | Reregistered::Unknown => None,
    }))
}

/// Whether an agent is told that it will never be admitted.
pub(in crate::checkers) fn is_refused_for_ever(observed: &SeenMessage<'_>) -> bool {
    let answer = registered(observed).filter(|_| observed.reply);
    matches!(answer, Some(Err(RegistrationRefused::Never { .. })))
}

/// A framework's newest subscription.
pub(in crate::checkers) struct Subscription {
    /// The node of its scheduler.
    pub node: String,
    /// The master's node.
    pub master: String,
    /// Its scheduler.
    pub scheduler: Pid,
    /// Its description.
    pub info: FrameworkInfo,
    /// When its scheduler received the answer.
    pub since: Duration,
    /// When the master began it: earlier than `since` if the order to lead came before the answer
    /// to stand by.
    pub begun: Duration,
    /// Whether the previous subscription was another scheduler's: then all messages to this one are
    /// later than this subscription.
    pub is_first: bool,
}

/// The frameworks.
#[derive(Default)]
pub(in crate::checkers) struct Frameworks {
    nodes: Nodes,
    open: Open<Subscribe>,
    newest: BTreeMap<FrameworkId, Subscription>,
    /// The master that each framework follows.
    followed: BTreeMap<FrameworkId, Followed>,
    /// The framework of each scheduler's node, at any master.
    speaks: BTreeMap<String, FrameworkId>,
    /// Nodes whose schedulers stand by, with their requests and the master that knows them.
    waiting: BTreeMap<String, (Subscribe, String)>,
    /// Nodes whose schedulers were told to lead before the answer that they stand by, with the
    /// master and the time. They obey after that answer.
    early: BTreeMap<String, (Subscribed, String, Duration)>,
}

/// The subscribing master of the highest term, and the latest of those, leading or not.
struct Followed {
    term: u64,
    /// Its node.
    master: String,
    /// The node of the subscribed scheduler.
    scheduler: String,
}

/// A standby will be subscribed with its present description.
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
    /// Returns the framework that has just been subscribed.
    pub fn see(&mut self, event: &Event<'_>) -> Option<FrameworkId> {
        if let Some(master) = self.nodes.see(event) {
            self.open.lost(master);
            self.newest.retain(|_, newest| newest.master != master);
            self.waiting.retain(|_, (_, of)| of != master);
            self.early.retain(|_, (_, of, _)| of != master);
        }
        match event.kind {
            EventKind::NodeEnded { node, .. } => {
                self.open.0.remove(node);
                self.waiting.remove(node);
                self.early.remove(node);
            }
            EventKind::Received(observed) => {
                if let Some(question) = observed.is::<Subscribe>() {
                    self.open.asked(&observed, question.clone());
                } else if let Some(question) = observed.is::<StandBy>() {
                    self.open.asked(&observed, asked_by(question));
                }
            }
            EventKind::Sent(observed) if observed.reply => {
                return self.answered(&observed, event.at);
            }
            EventKind::Sent(observed) => {
                let SchedulerElected { subscribed } = observed.is::<SchedulerElected>()?;
                let Some((question, _)) = self.waiting.remove(observed.to) else {
                    self.asking(observed.to).next()?;
                    let told = (subscribed.clone(), observed.from.to_owned(), event.at);
                    self.early.insert(observed.to.to_owned(), told);
                    return None;
                };
                let at = [event.at; 2];
                return self.subscribed(subscribed, question, &observed, at);
            }
            _ => {}
        }
        None
    }

    fn answered(&mut self, observed: &SeenMessage<'_>, at: Duration) -> Option<FrameworkId> {
        let subscribed = match observed.is::<Result<StandbyReply, SubscriptionRefused>>() {
            Some(Ok(StandbyReply::Leads(subscribed))) => Ok(subscribed),
            Some(Ok(StandbyReply::StandsBy(standing))) => {
                let mut question = self.open.welcomed(observed)?;
                question.framework.id = Some(standing.framework_id.clone());
                if let Some((subscribed, _, told)) = self.early.remove(observed.to) {
                    return self.subscribed(&subscribed, question, observed, [told, at]);
                }
                let waits = (question, observed.from.to_owned());
                self.waiting.insert(observed.to.to_owned(), waits);
                return None;
            }
            Some(Err(refused)) => Err(refused),
            None => observed
                .is::<Result<Subscribed, SubscriptionRefused>>()?
                .as_ref(),
        };
        match subscribed {
            Ok(subscribed) => {
                let question = self.open.welcomed(observed)?;
                self.waiting.remove(observed.to);
                self.subscribed(subscribed, question, observed, [at; 2])
            }
            Err(_) => {
                self.open.refused(observed);
                None
            }
        }
    }

    fn subscribed(
        &mut self,
        subscribed: &Subscribed,
        question: Subscribe,
        observed: &SeenMessage<'_>,
        [begun, since]: [Duration; 2],
    ) -> Option<FrameworkId> {
        let id = subscribed.framework_id.clone();
        let term = subscribed.master.term;
        // A deposed master that was paused or waited for its disk: drivers drop its answers.
        let follows = self.followed.get(&id);
        if follows.is_some_and(|followed| followed.term > term) {
            return None;
        }
        let before = self.newest.get(&id).map(|before| &before.scheduler);
        let subscription = Subscription {
            is_first: before != Some(&question.scheduler),
            node: observed.to.to_owned(),
            master: observed.from.to_owned(),
            scheduler: question.scheduler,
            info: question.framework,
            since,
            begun,
        };
        self.newest.insert(id.clone(), subscription);
        let followed = Followed {
            term,
            master: observed.from.to_owned(),
            scheduler: observed.to.to_owned(),
        };
        self.followed.insert(id.clone(), followed);
        self.speaks.insert(observed.to.to_owned(), id.clone());
        Some(id)
    }

    /// The framework for which the scheduler on that node stands by at that master.
    pub fn stands_by(&self, node: &str, master: &str) -> Option<&FrameworkId> {
        let (question, with) = self.waiting.get(node)?;
        question.framework.id.as_ref().filter(|_| with == master)
    }

    /// The descriptions in unanswered subscriptions of a scheduler on that node.
    pub fn asking(&self, node: &str) -> impl Iterator<Item = &FrameworkInfo> {
        self.open.of(node).map(|question| &question.framework)
    }

    /// Whether the event is the end of a master.
    pub fn lost_master(&self, event: &Event<'_>) -> bool {
        self.nodes.master_ended(event).is_some()
    }

    /// The newest subscription of that framework at a leading master.
    pub fn get(&self, id: &FrameworkId) -> Option<&Subscription> {
        self.newest.get(id)
    }

    /// The framework whose scheduler receives this message. `None` if another master was the last
    /// to subscribe it (its driver drops messages of a deposed one, also while it looks for the
    /// next), or if another scheduler was subscribed last: then messages to this one do not reach
    /// the framework.
    pub fn hearing(&self, observed: &SeenMessage<'_>) -> Option<&FrameworkId> {
        let framework = self.of_node(observed.to)?;
        let followed = self.followed.get(framework);
        let follows = followed.is_none_or(|followed| {
            followed.master == observed.from && followed.scheduler == observed.to
        });
        follows.then_some(framework)
    }

    /// The framework that the scheduler on that node has subscribed.
    pub fn of_node(&self, node: &str) -> Option<&FrameworkId> {
        self.speaks.get(node)
    }
}

/// Whether a master sends this message only to a connected scheduler. (Bytes may also be for
/// executors, but those go to agents.)
pub(in crate::checkers) fn is_for_scheduler(observed: &SeenMessage<'_>) -> bool {
    !observed.reply
        && (observed.is::<OffersMade>().is_some()
            || observed.is::<OfferRescinded>().is_some()
            || observed.is::<StatusChanged>().is_some()
            || observed.is::<Lost>().is_some()
            || observed.is::<FrameworkMessage>().is_some())
}
