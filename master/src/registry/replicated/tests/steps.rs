//! The leader crashes at every step of every kind of operation: answered operations exist on the
//! next leader, unanswered ones wholly or not at all, and a repeated request gets the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consensus::member::PacketSent;
use protocol::{AgentId, Drain};
use runtime::Timestamp;
use runtime::observe::tap::{Fate, Passing, Way};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::*;

/// All members know the answered operations after this time: a round of heartbeats.
const KNOWN_AFTER: Duration = Duration::from_millis(70);
/// A returned master has caught up after this time.
const CAUGHT_UP_AFTER: Duration = Duration::from_millis(200);
/// No operation has as many steps of one kind.
const STEPS_MAX: u32 = 30;

/// The step at which the leader crashes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// A write that is not synced.
    Write,
    /// A synced write of which no other member learns.
    Synced,
    /// A packet that does not leave.
    Packet,
}

/// Crashes a master at a step. Its later work is neither synced nor sent. Clones share the state.
#[derive(Clone, Default)]
struct Fuse {
    disk: SimulatedDisk,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The packets that still leave.
    packets_left: Option<u32>,
    fell: bool,
}

impl Fuse {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Crashes at this step, the `count`th of its kind from now on, or never; resets the crash.
    fn set(&self, left: Option<(Step, u32)>) {
        *self.state() = State::default();
        self.disk.clear_crash_points();
        let Some((step, count)) = left else { return };
        if step == Step::Packet {
            self.state().packets_left = Some(count);
            return;
        }
        let state = self.state.clone();
        let fall = move || state.lock().unwrap_or_else(PoisonError::into_inner).fell = true;
        self.disk.set_crash_point(count, step == Step::Synced, fall);
    }

    fn has_fallen(&self) -> bool {
        self.state().fell
    }

    /// A packet is leaving.
    fn count_packet(&self) {
        let mut state = self.state();
        state.packets_left = state.packets_left.map(|left| left.saturating_sub(1));
        if state.packets_left == Some(0) {
            state.fell = true;
            self.disk.fake_syncs(true);
        }
    }

    fn start(&self, network: &Network, address: &'static str) -> Master {
        self.set(None);
        let master = Master::start(network, address, self.disk.clone());
        let fuse = self.clone();
        master.node.set_tap(move |passing: &Passing<'_>| {
            if passing.way == Way::Outgoing && passing.is::<PacketSent>().is_some() {
                fuse.count_packet();
            }
            match fuse.has_fallen() && passing.way != Way::Local {
                true => Fate::Drop,
                false => Fate::Pass,
            }
        });
        master
    }
}

/// The kinds of operations that there are, as they are called in the source.
fn all_kinds() -> BTreeSet<String> {
    let nobody = IntoDeserializer::<Error>::into_deserializer("Nonsense");
    let refused = RegistryOperation::deserialize(nobody).unwrap_err();
    let refused = refused.to_string();
    let names = refused.split('`').skip(3).step_by(2);
    names.map(str::to_owned).collect()
}

fn kind_of(operation: &RegistryOperation) -> String {
    let text = format!("{operation:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

/// Operations of every kind, each of which is taken when it is asked for the first time; not all
/// are when they are asked again.
fn operations() -> Vec<RegistryOperation> {
    let agent_id = || AgentId::new("a2").unwrap();
    let mut operations = story();
    operations.push(RegistryOperation::ChangeFrameworkState {
        framework_id: FrameworkId::new("f3").unwrap(),
        key: "leader".to_owned(),
        expected: Some(0),
        value: Some(b"me".to_vec()),
    });
    operations.push(RegistryOperation::DrainAgent {
        agent_id: agent_id(),
        drain: Drain {
            max_grace_period: None,
            mark_gone: false,
            since: Timestamp::from_nanos(8),
            drained: false,
        },
    });
    operations.push(RegistryOperation::CancelDrain {
        agent_id: agent_id(),
    });
    operations
}

/// The outcome of an operation whose leader crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// It was answered before, and it is there.
    Answered,
    /// It was not answered, and it is there.
    There,
    /// It was not answered, and it is not there.
    Lost,
}

/// Outcomes by kind of operation.
type Ends = BTreeMap<String, BTreeSet<End>>;

/// The answer to an operation, unless the master crashes first.
async fn asked(
    master: &Master,
    fuse: &Fuse,
    operation: RegistryOperation,
) -> Option<Result<Applied, RegistryError>> {
    let mut asked = master.registry().apply(operation);
    loop {
        let answer = (&mut asked).now_or_never();
        if fuse.has_fallen() {
            return None;
        }
        if answer.is_some() {
            return answer;
        }
        master.node.clock().advance(Duration::from_millis(1)).await;
    }
}

/// A group applies all operations in order, and the leader crashes at that step of each. It returns
/// at once, or when another leads.
async fn fall_at(network: Network, (step, count): (Step, u32), at_once: bool) -> Ends {
    let fuses: BTreeMap<&str, Fuse> = (ADDRESSES.iter())
        .map(|&address| (address, Fuse::default()))
        .collect();
    let start = |&address: &&'static str| fuses[address].start(&network, address);
    let mut masters: Vec<Master> = ADDRESSES.iter().map(start).collect();
    let mut content = RegistryState::default();
    let mut ends = Ends::new();
    for operation in operations() {
        let leading = leader(&masters).await;
        let clock = masters[leading].node.clock().clone();
        clock.advance(CAUGHT_UP_AFTER).await;
        let fuse = &fuses[masters[leading].address];
        let what = format!("{operation:?}, {step:?} {count}, back at once: {at_once}");
        let mut after = content.clone();
        let expected = after.change(&operation);
        fuse.set(Some((step, count)));
        let answer = asked(&masters[leading], fuse, operation.clone()).await;
        if let Some(answer) = &answer {
            assert_eq!(*answer, expected, "{what}");
            clock.advance(KNOWN_AFTER).await;
        }
        if !fuse.has_fallen() {
            fuse.set(None);
            content = after;
            continue;
        }
        let fallen = masters.remove(leading);
        fallen.fall(&network).await;
        let address = fallen.address;
        if at_once {
            masters.push(fuse.start(&network, address));
        }
        let next = leader(&masters).await;
        let mut registry = masters[next].registry();
        let found = registry.read().await.unwrap();
        let end = match answer {
            Some(_) => End::Answered,
            None if found == after => End::There,
            None => End::Lost,
        };
        match end {
            End::Answered | End::There => assert_eq!(found, after, "{what}"),
            End::Lost => assert_eq!(found, content, "{what}"),
        }
        content = found;
        let expected = content.change(&operation);
        let again = registry.apply(operation.clone()).await;
        assert_eq!(again, expected, "again: {what}");
        assert_eq!(registry.read().await, Ok(content.clone()), "{what}");
        if !at_once {
            masters.push(fuse.start(&network, address));
        }
        ends.entry(kind_of(&operation)).or_default().insert(end);
    }
    masters[0]
        .node
        .clock()
        .advance(Duration::from_secs(1))
        .await;
    for master in &masters {
        let held = master
            .member
            .read_local(|machine| machine.state().clone())
            .await;
        assert_eq!(
            held.ok().map(|(_, held)| held),
            Some(content.clone()),
            "{step:?} {count}: {}",
            master.address
        );
    }
    ends
}

#[test]
fn leader_crash_at_any_step_loses_nothing() {
    let kinds: BTreeSet<String> = operations().iter().map(kind_of).collect();
    assert_eq!(kinds, all_kinds(), "a kind of operation is missing here");
    let mut ends = Ends::new();
    for step in [Step::Write, Step::Synced, Step::Packet] {
        for count in 1.. {
            assert!(count < STEPS_MAX, "an operation never ends");
            let at_once = count % 2 == 0;
            let more = simulate_network(|network| fall_at(network, (step, count), at_once));
            if more.is_empty() {
                break;
            }
            for (kind, more) in more {
                ends.entry(kind).or_default().extend(more);
            }
        }
    }
    let every = BTreeSet::from([End::Answered, End::There, End::Lost]);
    for kind in kinds {
        assert_eq!(ends.get(&kind), Some(&every), "{kind}");
    }
}
