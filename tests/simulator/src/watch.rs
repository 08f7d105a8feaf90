//! Watch: all events of a run pass through here in order: to the hash, the tally and the checkers.
//!
//! It receives the taps of all nodes and the facts of the world, and keeps the last events for a
//! failure report. It changes nothing in a run unless a bug is planted. After the first violation
//! it ignores further events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use consensus::member::PacketSent;
use runtime::delivery::{NotAcknowledged, SequenceAck, Sequenced};
use runtime::observe::tap::{Fate, Kind, Passing, Tap, Way};
use runtime::{Clock, Exit, Exited, Instant, Node, NodeId, Pid};
use tokio::sync::Notify;

use crate::bug::{Bug, ContainerBug, Forged, Tampering};
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind, SeenMessage};
use crate::report::describe;
use crate::report::hash::RunHash;
use crate::report::tally::Tally;

/// Maximum events kept for a failure report.
const RECENT_MAX: usize = 60;
/// Maximum queued forged messages; further ones are dropped.
const FORGED_MAX: usize = 10_000;

/// The watch of one run. Clones share it.
#[derive(Clone)]
pub struct Watch(Arc<Shared>);

struct Shared {
    clock: Clock,
    state: Mutex<State>,
    violated: Notify,
    forged: Notify,
    doomed: Notify,
}

struct State {
    hash: RunHash,
    /// Reused buffer for encoded messages.
    buffer: BytesMut,
    tally: Tally,
    /// Items that are counted once: see [`Tally::note`].
    noted: BTreeSet<u64>,
    recent: VecDeque<Recent>,
    checkers: Vec<Box<dyn Checker>>,
    violation: Option<Violation>,
    bug: Option<Bug>,
    forged: VecDeque<(NodeId, Pid, Forged)>,
    /// A forged message is being sent.
    forging: bool,
    /// Leading masters, the latest one last.
    acting: Vec<String>,
    /// Number of registry requests.
    calls: u64,
    /// Nodes about to crash, whose events are dropped.
    doomed: BTreeSet<String>,
    /// Those of them that are not crashed yet.
    to_crash: VecDeque<String>,
    /// Nodes that crash after a number of packets.
    numbered: BTreeMap<String, u32>,
}

/// A kept event.
struct Recent {
    at: Duration,
    what: Seen,
}

enum Seen {
    Message {
        heard: bool,
        from: NodeId,
        to: NodeId,
        name: &'static str,
        reply: bool,
        details: String,
    },
    Fact(String),
}

impl Recent {
    /// Its cleared text, for reuse.
    fn into_room(self) -> String {
        let (Seen::Message {
            details: mut text, ..
        }
        | Seen::Fact(mut text)) = self.what;
        text.clear();
        text
    }

    fn line(&self) -> String {
        let at = self.at.as_secs_f64();
        match &self.what {
            Seen::Message {
                heard,
                from,
                to,
                name,
                reply,
                details,
            } => {
                let verb = if *heard { "received" } else { "sent" };
                let reply = if *reply { " (reply)" } else { "" };
                let (from, to) = (from.name(), to.name());
                format!("{at:.3} {from} -> {to} {verb}: {name}{reply} {details}")
                    .trim_end()
                    .to_owned()
            }
            Seen::Fact(fact) => format!("{at:.3} {fact}"),
        }
    }
}

/// The results at the end.
pub struct RunResults {
    /// Hash over all events.
    pub hash: u64,
    /// Counts of events.
    pub tally: Tally,
    /// The first violation.
    pub violation: Option<Violation>,
    /// The last events.
    pub recent: Vec<String>,
}

impl Watch {
    /// A watch with these checkers; time is relative to the clock's beginning.
    pub fn new(clock: Clock, checkers: Vec<Box<dyn Checker>>, bug: Option<Bug>) -> Self {
        let state = State {
            hash: RunHash::new(),
            buffer: BytesMut::new(),
            tally: Tally::default(),
            noted: BTreeSet::new(),
            recent: VecDeque::with_capacity(RECENT_MAX),
            checkers,
            violation: None,
            bug,
            forged: VecDeque::new(),
            forging: false,
            acting: Vec::new(),
            calls: 0,
            doomed: BTreeSet::new(),
            to_crash: VecDeque::new(),
            numbered: BTreeMap::new(),
        };
        Self(Arc::new(Shared {
            clock,
            state: Mutex::new(state),
            violated: Notify::new(),
            forged: Notify::new(),
            doomed: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        self.0.clock.now() - Instant::default()
    }

    /// Handles a fact of the world.
    pub fn fact(&self, what: EventKind<'_>) {
        let at = self.now();
        self.state().see(&self.0, Event { at, kind: what }, |_| {
            Seen::Fact(describe::fact(&what))
        });
    }

    /// Handles a fact of a node, which is dropped if the node is about to crash.
    pub fn fact_of(&self, node: &str, what: EventKind<'_>) {
        if !self.state().doomed.contains(node) {
            self.fact(what);
        }
    }

    /// Whether this bug of agents is planted.
    pub fn has_bug(&self, bug: ContainerBug) -> bool {
        let state = self.state();
        state.bug.as_ref().is_some_and(|planted| planted.is(bug))
    }

    /// The number of the next registry request.
    pub fn next_call(&self) -> u64 {
        let mut state = self.state();
        state.calls += 1;
        state.calls
    }

    /// The leading master, the latest if there are several.
    pub fn acting(&self) -> Option<String> {
        self.state().acting.last().cloned()
    }

    /// From now on nothing leaves or reaches the node: it is about to crash.
    pub fn doom(&self, node: &str) {
        self.state().doom(&self.0, node);
    }

    /// The same, after this number of packets to the group; the last one still leaves.
    pub fn doom_after(&self, node: &str, packets: u32) {
        self.state().numbered.insert(node.to_owned(), packets);
    }

    /// Cancels a planned crash.
    pub fn spare(&self, node: &str) {
        self.state().numbered.remove(node);
    }

    /// The node has crashed.
    pub fn crashed(&self, node: &str) {
        let mut state = self.state();
        state.doomed.remove(node);
        state.numbered.remove(node);
    }

    /// The next node to crash.
    pub async fn next_doomed(&self) -> String {
        loop {
            let more = self.0.doomed.notified();
            if let Some(node) = self.state().to_crash.pop_front() {
                return node;
            }
            more.await;
        }
    }

    /// Changes the tally.
    pub fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.state().tally);
    }

    /// Installs a tap on a node.
    pub fn tap(&self, node: &Node) {
        node.set_tap(self.clone());
    }

    fn passing(&self, passing: &Passing<'_>) -> Fate {
        let (Some(peer), reply) = (passing.peer, passing.kind == Kind::Reply) else {
            return Fate::Pass;
        };
        let heard = match passing.way {
            // The end of a link is not a message.
            _ if passing.kind == Kind::Exited => {
                self.exited(passing);
                return Fate::Pass;
            }
            Way::Local => return Fate::Pass,
            Way::Outgoing => false,
            Way::Incoming => true,
        };
        let (from, to) = match heard {
            true => (peer, passing.node),
            false => (passing.node, peer),
        };
        let observed = SeenMessage {
            from: from.name(),
            to: to.name(),
            actor: passing.to.filter(|_| !reply),
            name: passing.name,
            reply,
            body: passing.body,
            body_type: passing.body.type_id(),
        };
        let at = self.now();
        let mut state = self.state();
        if state.doomed.contains(passing.node.name()) {
            return Fate::Drop;
        }
        if state.violation.is_some() {
            return Fate::Pass;
        }
        if !heard && passing.is::<PacketSent>().is_some() {
            state.note_packet(&self.0, passing.node.name());
        }
        let may_meddle = !heard && !state.forging;
        let meddling = match &mut state.bug {
            Some(bug) if may_meddle => bug.tamper(&observed),
            _ => Tampering::Pass,
        };
        let fate = match meddling {
            Tampering::Pass => Fate::Pass,
            Tampering::Twice => Fate::Duplicate,
            Tampering::Also(forged) => {
                state.forge(&self.0, passing, forged);
                Fate::Pass
            }
            Tampering::Instead(forged) => {
                state.forge(&self.0, passing, forged);
                return Fate::Drop;
            }
            Tampering::Drop => return Fate::Drop,
        };
        // A message taken by a reliable sender passes a second time inside its envelope.
        if !heard && passing.kind != Kind::Sequenced {
            state.take_bytes(passing);
        }
        let what = match heard {
            true => EventKind::Received(observed),
            false => EventKind::Sent(observed),
        };
        state.see(&self.0, Event { at, kind: what }, |mut details| {
            describe::message(&mut details, &observed);
            Seen::Message {
                heard,
                from: from.clone(),
                to: to.clone(),
                name: passing.name,
                reply,
                details,
            }
        });
        fate
    }

    fn exited(&self, passing: &Passing<'_>) {
        let exited = passing.is::<Exited>();
        if exited.is_some_and(|exited| matches!(exited.reason, Exit::NodeLost(_))) {
            self.state().tally.broken_links += 1;
        }
    }

    /// Sends forged messages until the run ends. `node` finds a living node by its id.
    pub async fn say_forged(&self, node: impl Fn(&NodeId) -> Option<Node>) {
        loop {
            let more = self.0.forged.notified();
            loop {
                let next = {
                    let mut state = self.state();
                    let next = state.forged.pop_front();
                    state.forging = next.is_some();
                    next
                };
                let Some((from, to, forged)) = next else {
                    break;
                };
                if let Some(node) = node(&from) {
                    forged.say(&node, &to);
                }
            }
            more.await;
        }
    }

    /// Completes after a violation.
    pub async fn violated(&self) {
        loop {
            let violated = self.0.violated.notified();
            if self.state().violation.is_some() {
                return;
            }
            violated.await;
        }
    }

    /// Whether a checker waits for an event that the recovery may bring.
    pub fn is_waiting(&self) -> bool {
        let at = self.now();
        let mut state = self.state();
        let mut checkers = state.checkers.iter_mut();
        checkers.any(|checker| checker.is_waiting(at))
    }

    /// Ends the run: the checkers judge for the last time, unless there is a violation.
    pub fn finish(&self) -> RunResults {
        let at = self.now();
        let mut state = self.state();
        let state = &mut *state;
        if state.violation.is_none() {
            let judged = state.checkers.iter_mut().map(|checker| checker.finish(at));
            state.violation = judged.filter_map(Result::err).next();
        }
        let judgements = state
            .checkers
            .iter()
            .map(|checker| (checker.name(), checker.judgements()));
        state.tally.judgements = judgements.collect();
        state.tally.virtual_time = at;
        RunResults {
            hash: state.hash.value(),
            tally: state.tally.clone(),
            violation: state.violation.clone(),
            recent: state.recent.iter().map(Recent::line).collect(),
        }
    }
}

/// These messages are frequent and no checker judges them: writes and states of members are
/// separate events, and so is the content of a reliable sender's envelope.
fn is_wrapping(observed: &SeenMessage<'_>) -> bool {
    match observed.reply {
        true => observed
            .is::<Result<SequenceAck, NotAcknowledged>>()
            .is_some(),
        false => observed.is::<PacketSent>().is_some() || observed.is::<Sequenced>().is_some(),
    }
}

impl Tap for Watch {
    fn fate(&self, passing: &Passing<'_>) -> Fate {
        self.passing(passing)
    }

    /// A message within a node is no event of a run.
    fn sees_local(&self) -> bool {
        false
    }

    fn panicked(&self, pid: &Pid, words: &str) {
        let (node, actor) = (pid.node().name(), pid.name());
        self.fact_of(node, EventKind::ActorPanicked { node, actor, words });
    }
}

impl State {
    fn forge(&mut self, shared: &Shared, passing: &Passing<'_>, forged: Forged) {
        if let Some(to) = passing.to
            && self.forged.len() < FORGED_MAX
        {
            let from = passing.node.clone();
            self.forged.push_back((from, to.clone(), forged));
            shared.forged.notify_one();
        }
    }

    fn doom(&mut self, shared: &Shared, node: &str) {
        if self.doomed.insert(node.to_owned()) {
            self.to_crash.push_back(node.to_owned());
            shared.doomed.notify_one();
        }
    }

    fn note_packet(&mut self, shared: &Shared, node: &str) {
        if let Some(left) = self.numbered.get_mut(node) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.numbered.remove(node);
                self.doom(shared, node);
            }
        }
    }

    fn take_bytes(&mut self, passing: &Passing<'_>) {
        self.buffer.clear();
        if passing.encode_into(&mut self.buffer) {
            self.hash.bytes(&self.buffer);
        }
    }

    /// `remember` may write into the given empty text.
    fn see(&mut self, shared: &Shared, event: Event<'_>, remember: impl FnOnce(String) -> Seen) {
        if let EventKind::MasterBegan { node } | EventKind::MasterEnded { node } = event.kind {
            self.acting.retain(|acting| acting != node);
        }
        if let EventKind::MasterBegan { node } = event.kind {
            self.acting.push(node.to_owned());
        }
        if self.violation.is_some() {
            return;
        }
        self.hash
            .number(u64::try_from(event.at.as_nanos()).unwrap_or(u64::MAX));
        match &event.kind {
            EventKind::Sent(observed) | EventKind::Received(observed) => {
                let kind = u64::from(matches!(event.kind, EventKind::Received(_)));
                self.hash.number(kind << 1 | u64::from(observed.reply));
                self.hash.text(observed.from);
                self.hash.text(observed.to);
                self.hash.text(observed.name);
            }
            fact => self.hash.text(&describe::fact(fact)),
        }
        self.tally.note(&event, &mut self.noted);
        if let EventKind::Sent(observed) | EventKind::Received(observed) = &event.kind
            && is_wrapping(observed)
        {
            return;
        }
        let oldest = match self.recent.len() < RECENT_MAX {
            true => None,
            false => self.recent.pop_front(),
        };
        let room = oldest.map(Recent::into_room);
        let seen = Recent {
            at: event.at,
            what: remember(room.unwrap_or_default()),
        };
        tracing::trace!("{}", seen.line());
        self.recent.push_back(seen);
        for checker in &mut self.checkers {
            if let Err(violation) = checker.see(&event) {
                self.violation = Some(violation);
                shared.violated.notify_waiters();
                return;
            }
        }
    }
}
