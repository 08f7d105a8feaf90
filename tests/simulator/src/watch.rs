//! Watch: everything that is seen of a run goes through here, in order: into the hash, the tally, and before the checkers.
//!
//! Hears the taps of all nodes and the facts of the world. Remembers the last events for whoever reads a failure. It changes
//! nothing in the run, unless a bug was planted: then it meddles as the bug says. After the first violation it sees nothing more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use consensus::member::PacketSent;
use runtime::delivery::{NotTaken, Numbered, Taken};
use runtime::tap::{Fate, Kind, Passing, Tap, Way};
use runtime::{Clock, Exit, Exited, Instant, Node, NodeId, Pid};
use tokio::sync::Notify;

use crate::bug::{Bug, Forged, Meddling};
use crate::checker::{Checker, Violation};
use crate::describe;
use crate::event::{Event, Spoken, What};
use crate::hash::RunHash;
use crate::tally::Tally;

/// So many events are remembered for whoever reads a failure.
const RECENT_MAX: usize = 60;
/// Forged messages that may wait to be said; more are not said.
const FORGED_MAX: usize = 10_000;

/// The watch over one run. Clones are the same watch.
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
    /// For the bytes of one message after the other.
    buffer: BytesMut,
    tally: Tally,
    /// What is counted once: see [`Tally::note`].
    noted: BTreeSet<u64>,
    recent: VecDeque<Recent>,
    checkers: Vec<Box<dyn Checker>>,
    violation: Option<Violation>,
    bug: Option<Bug>,
    forged: VecDeque<(NodeId, Pid, Forged)>,
    /// A forged message is being said just now.
    forging: bool,
    /// Masters that act, the one that began last at the end.
    acting: Vec<String>,
    /// Questions to registries.
    calls: u64,
    /// Nodes of which nothing is heard any more, until they are crashed.
    doomed: BTreeSet<String>,
    /// Those that nobody has crashed yet.
    condemned: VecDeque<String>,
    /// Nodes that are doomed after so many packets.
    numbered: BTreeMap<String, u32>,
}

/// One event, as it is remembered.
struct Recent {
    at: Duration,
    what: Seen,
}

enum Seen {
    Spoken {
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
    /// Its text, with nothing in it, for the next one.
    fn into_room(self) -> String {
        let (Seen::Spoken {
            details: mut text, ..
        }
        | Seen::Fact(mut text)) = self.what;
        text.clear();
        text
    }

    fn line(&self) -> String {
        let at = self.at.as_secs_f64();
        match &self.what {
            Seen::Spoken {
                heard,
                from,
                to,
                name,
                reply,
                details,
            } => {
                let verb = if *heard { "heard" } else { "said" };
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

/// What is known at the end.
pub struct Seal {
    /// Over all events.
    pub hash: u64,
    /// What happened, counted.
    pub tally: Tally,
    /// The first violation.
    pub violation: Option<Violation>,
    /// The last events.
    pub recent: Vec<String>,
}

impl Watch {
    /// A watch with these checkers; time is counted from the clock's beginning.
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
            condemned: VecDeque::new(),
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

    /// Something happened in the world.
    pub fn fact(&self, what: What<'_>) {
        let at = self.now();
        self.state().see(&self.0, Event { at, what }, |_| {
            Seen::Fact(describe::fact(&what))
        });
    }

    /// Something happened on a node, of which nobody learns if the node is doomed.
    pub fn fact_of(&self, node: &str, what: What<'_>) {
        if !self.state().doomed.contains(node) {
            self.fact(what);
        }
    }

    /// The number of a question to a registry.
    pub fn next_call(&self) -> u64 {
        let mut state = self.state();
        state.calls += 1;
        state.calls
    }

    /// The master that acts, the latest if there are several.
    pub fn acting(&self) -> Option<String> {
        self.state().acting.last().cloned()
    }

    /// From this moment on nothing leaves the node and nothing reaches it: it is about to be crashed.
    pub fn doom(&self, node: &str) {
        self.state().doom(&self.0, node);
    }

    /// The same, after so many more packets of the group; the last of them still leaves.
    pub fn doom_after(&self, node: &str, packets: u32) {
        self.state().numbered.insert(node.to_owned(), packets);
    }

    /// The node is not to be doomed.
    pub fn spare(&self, node: &str) {
        self.state().numbered.remove(node);
    }

    /// The node has been crashed.
    pub fn crashed(&self, node: &str) {
        let mut state = self.state();
        state.doomed.remove(node);
        state.numbered.remove(node);
    }

    /// The next node that is doomed.
    pub async fn next_doomed(&self) -> String {
        loop {
            let more = self.0.doomed.notified();
            if let Some(node) = self.state().condemned.pop_front() {
                return node;
            }
            more.await;
        }
    }

    /// Changes the tally.
    pub fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.state().tally);
    }

    /// Puts a tap on a node.
    pub fn tap(&self, node: &Node) {
        node.set_tap(self.clone());
    }

    fn passing(&self, passing: &Passing<'_>) -> Fate {
        let (Some(peer), reply) = (passing.peer, passing.kind == Kind::Reply) else {
            return Fate::Pass;
        };
        let heard = match passing.way {
            // The end of a link is nothing that anybody said.
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
        let spoken = Spoken {
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
            Some(bug) if may_meddle => bug.meddle(&spoken),
            _ => Meddling::Pass,
        };
        let fate = match meddling {
            Meddling::Pass => Fate::Pass,
            Meddling::Twice => Fate::Duplicate,
            Meddling::Also(forged) => {
                state.forge(&self.0, passing, forged);
                Fate::Pass
            }
            Meddling::Instead(forged) => {
                state.forge(&self.0, passing, forged);
                return Fate::Drop;
            }
            Meddling::Drop => return Fate::Drop,
        };
        // What a courier has taken passes once more, inside of what it sends.
        if !heard && passing.kind != Kind::Numbered {
            state.take_bytes(passing);
        }
        let what = match heard {
            true => What::Heard(spoken),
            false => What::Said(spoken),
        };
        state.see(&self.0, Event { at, what }, |mut details| {
            describe::message(&mut details, &spoken);
            Seen::Spoken {
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

    /// Says what the bug has forged, until the run ends. `node` finds a living node by its id.
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

    /// Ready once an invariant is broken.
    pub async fn violated(&self) {
        loop {
            let violated = self.0.violated.notified();
            if self.state().violation.is_some() {
                return;
            }
            violated.await;
        }
    }

    /// Whether a checker waits for something that the recovery may bring still.
    pub fn is_waiting(&self) -> bool {
        let at = self.now();
        let mut state = self.state();
        let mut checkers = state.checkers.iter_mut();
        checkers.any(|checker| checker.is_waiting(at))
    }

    /// The run is over: the checkers judge for the last time, unless one has already fired.
    pub fn seal(&self) -> Seal {
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
        Seal {
            hash: state.hash.value(),
            tally: state.tally.clone(),
            violation: state.violation.clone(),
            recent: state.recent.iter().map(Recent::line).collect(),
        }
    }
}

/// There are many of these, they hide the rest, and no checker judges them: what a member writes and holds is told apart, and so is what
/// a courier's envelope holds.
fn is_wrapping(spoken: &Spoken<'_>) -> bool {
    match spoken.reply {
        true => spoken.is::<Result<Taken, NotTaken>>().is_some(),
        false => spoken.is::<PacketSent>().is_some() || spoken.is::<Numbered>().is_some(),
    }
}

impl Tap for Watch {
    fn fate(&self, passing: &Passing<'_>) -> Fate {
        self.passing(passing)
    }

    /// What stays on a node is no event of a run.
    fn sees_local(&self) -> bool {
        false
    }

    fn fell(&self, pid: &Pid, words: &str) {
        let (node, actor) = (pid.node().name(), pid.name());
        self.fact_of(node, What::ActorFell { node, actor, words });
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
            self.condemned.push_back(node.to_owned());
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

    /// `remember` may write into the empty text that it is given.
    fn see(&mut self, shared: &Shared, event: Event<'_>, remember: impl FnOnce(String) -> Seen) {
        if let What::MasterBegan { node } | What::MasterEnded { node } = event.what {
            self.acting.retain(|acting| acting != node);
        }
        if let What::MasterBegan { node } = event.what {
            self.acting.push(node.to_owned());
        }
        if self.violation.is_some() {
            return;
        }
        self.hash
            .number(u64::try_from(event.at.as_nanos()).unwrap_or(u64::MAX));
        match &event.what {
            What::Said(spoken) | What::Heard(spoken) => {
                let kind = u64::from(matches!(event.what, What::Heard(_)));
                self.hash.number(kind << 1 | u64::from(spoken.reply));
                self.hash.text(spoken.from);
                self.hash.text(spoken.to);
                self.hash.text(spoken.name);
            }
            fact => self.hash.text(&describe::fact(fact)),
        }
        self.tally.note(&event, &mut self.noted);
        if let What::Said(spoken) | What::Heard(spoken) = &event.what
            && is_wrapping(spoken)
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
