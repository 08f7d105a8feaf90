//! Tests of the leadership supervisor: a master runs only on the leader's node, and callers learn
//! about the next one.

use std::time::Duration;

use consensus::member::Settings;
use consensus::store::StoredLog;
use protocol::AgentInfo;
use protocol::discovery::{SPREAD_MAX, find_leader};
use runtime::testing::memory::Network;
use runtime::testing::{inject_panic, simulate_network};
use testkit::disk::SimulatedDisk;

use super::*;
use crate::master::TakeSnapshot;
use crate::registry::{Registry, RegistryOperation};
use crate::state::MasterState;

const ADDRESSES: [&str; 3] = ["a", "b", "c"];
const PATIENCE: Duration = Duration::from_secs(5);

/// An allocator without effect: these tests need no offers.
struct SilentActor;

impl Actor for SilentActor {
    type Context = Context<Self>;
}

impl Process for SilentActor {}

/// One of three: its member, its office and its pages' view of both.
struct MasterNode {
    address: &'static str,
    node: Node,
    member: MemberHandle<RegistryMachine>,
    local: LocalLeader,
}

impl MasterNode {
    fn open(network: &Network, address: &'static str) -> Self {
        let heard = [Role::Master, Role::Agent, Role::Framework, Role::Operator];
        let node = network.node(address, Role::Master, &heard);
        let log = Box::new(StoredLog::new(SimulatedDisk::new().open().unwrap()));
        let settings = Settings::new(address, &ADDRESSES);
        let member =
            consensus::member::start(&node, settings, log, RegistryMachine::new()).unwrap();
        let allocator = AllocatorRef::new(node.spawn("allocator", SilentActor).unwrap().refer());
        let config = Config {
            hostname: address.to_owned(),
            ..Config::default()
        };
        let (_, local) = open(&node, config, allocator, member.clone()).unwrap();
        Self {
            address,
            node,
            member,
            local,
        }
    }

    /// The local master's state.
    async fn state(&self) -> Arc<MasterState> {
        let master = self.local.master().unwrap();
        master.ask(TakeSnapshot, PATIENCE).await.unwrap()
    }
}

struct Group {
    network: Network,
    places: Vec<MasterNode>,
    clock: Clock,
}

impl Group {
    fn start(network: Network) -> Self {
        let places: Vec<_> = ADDRESSES
            .iter()
            .map(|&address| MasterNode::open(&network, address))
            .collect();
        let clock = places[0].node.clock().clone();
        Self {
            network,
            places,
            clock,
        }
    }

    /// Waits until one master acts in a later term, and all nodes know the leader. Returns its
    /// index.
    async fn acting_after(&self, term: u64, among: &[usize]) -> usize {
        for _ in 0..200 {
            self.clock.advance(Duration::from_millis(20)).await;
            let acts = |&&index: &&usize| {
                let local = &self.places[index].local;
                local.master().is_some() && local.term() > term
            };
            let Some(&acting) = among.iter().find(acts) else {
                continue;
            };
            let now = self.places[acting].local.term();
            let knows = |&index: &usize| {
                let local = &self.places[index].local;
                local.term() == now && local.leader().is_some()
            };
            if among.iter().all(knows) {
                return acting;
            }
        }
        panic!("no master acts");
    }

    fn cut_off(&self, index: usize) {
        self.others(index).iter().for_each(|&other| {
            let (one, other) = (self.places[index].address, self.places[other].address);
            self.network.sever(one, other);
        });
    }

    fn others(&self, index: usize) -> Vec<usize> {
        (0..self.places.len())
            .filter(|other| *other != index)
            .collect()
    }
}

/// Records leader announcements, like an agent.
struct Listener(Arc<Mutex<Vec<LeaderAnnounced>>>);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Process for Listener {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<LeaderAnnounced>(&[Role::Master]);
    }
}

impl Handler<LeaderAnnounced> for Listener {
    type Result = ();
    fn handle(&mut self, leader: LeaderAnnounced, _: &mut Context<Self>) {
        self.0.lock().unwrap().push(leader);
    }
}

#[test]
fn one_master_acts_with_its_groups_term() {
    simulate_network(|network| async move {
        let group = Group::start(network);
        let acting = group.acting_after(0, &[0, 1, 2]).await;
        let place = &group.places[acting];
        assert_eq!(place.state().await.master.term, place.local.term());
        for other in group.others(acting) {
            assert!(group.places[other].local.master().is_none());
            assert_eq!(
                group.places[other].local.leader().as_deref(),
                Some(place.address)
            );
        }
    });
}

#[test]
fn leader_without_majority_is_replaced_in_a_later_term() {
    simulate_network(|network| async move {
        let group = Group::start(network);
        let old = group.acting_after(0, &[0, 1, 2]).await;
        let place = &group.places[old];
        let (term, master) = (place.local.term(), place.local.master().unwrap());
        let ended = place.node.ended(&master.pid());
        group.cut_off(old);
        let next = group.acting_after(term, &group.others(old)).await;
        let state = group.places[next].state().await;
        assert!(state.master.term > term);
        assert_eq!(state.master.term, group.places[next].local.term());
        // By the time the others can have elected one, its own group's silence has shown it: twice
        // an election at most.
        group.clock.advance(Duration::from_millis(600)).await;
        assert!(
            place.local.master().is_none(),
            "no page is served in its name"
        );
        assert_eq!(place.local.deposed(), 1);
        assert_eq!(ended.await, Exit::Stopped);
    });
}

#[test]
fn ended_master_is_replaced_while_its_member_leads() {
    simulate_network(|network| async move {
        let group = Group::start(network);
        let acting = group.acting_after(0, &[0, 1, 2]).await;
        let place = &group.places[acting];
        let first = place.local.master().unwrap().pid();
        place.node.stop_now(&first);
        group.clock.settle().await;
        assert!(place.local.master().is_none());
        group.clock.advance(RESTART_PAUSE).await;
        let second = place.local.master().unwrap().pid();
        assert_ne!(first, second);
        assert_eq!(place.state().await.master.term, place.local.term());
    });
}

/// W3: only the master panics. Its member still leads, so there is no election, and the known
/// leader stays the same.
// Covers W3 in part: panics in the runtime and bad input at the master.
#[test]
fn panicked_master_is_replaced_in_the_same_term() {
    simulate_network(|network| async move {
        let group = Group::start(network);
        let acting = group.acting_after(0, &[0, 1, 2]).await;
        let place = &group.places[acting];
        let term = place.local.term();
        let mut registry = ReplicatedRegistry::over(place.member.clone());
        for nth in 0..3 {
            let admit = RegistryOperation::AdmitAgent { info: info_of(nth) };
            registry.apply(admit).await.unwrap();
            let first = place.local.master().unwrap().pid();
            let ended = place.node.ended(&first);
            // Applied by the group during the master's crash, and read by the next one.
            let admit = RegistryOperation::AdmitAgent {
                info: info_of(nth + 10),
            };
            let under_way = registry.apply(admit);
            assert!(inject_panic(&place.node, "master", "it has to"));
            group.clock.settle().await;
            assert!(matches!(ended.await, Exit::Panicked(_)));
            assert!(place.local.master().is_none());
            under_way.await.unwrap();
            group.clock.advance(RESTART_PAUSE).await;
            assert_ne!(place.local.master().unwrap().pid(), first);

            group.clock.advance(Duration::from_secs(1)).await; // It reads its registry.
            let state = place.state().await;
            assert_eq!(state.master.term, term);
            let known = state.agents.known();
            assert_eq!(known, 2 * (usize::from(nth) + 1));
            assert_eq!(place.local.deposed(), 0);
            for other in group.others(acting) {
                let local = &group.places[other].local;
                let known = (local.leader(), local.term());
                assert_eq!(known, (Some(place.address.to_owned()), term));
            }
        }
    });
}

#[test]
fn outdated_caller_is_answered_at_once() {
    simulate_network(|network| async move {
        let group = Group::start(network.clone());
        let old = group.acting_after(0, &[0, 1, 2]).await;
        let term = group.places[old].local.term();
        let caller = network.node("driver", Role::Framework, &[Role::Master]);
        let others = group.others(old);
        let asked = group.places[others[0]].address;
        let office = caller.find(asked, "office", PATIENCE).await.unwrap();
        let behind = caller.ask(&office, AwaitLeader { term: 0 }, PATIENCE).await;
        let address = group.places[old].address.to_owned();
        assert_eq!(behind.unwrap(), LeaderAnnounced { address, term });
        let waiting = caller.ask(&office, AwaitLeader { term }, Patience::WhileLinked);
        group.clock.settle().await;
        group.cut_off(old);
        let next = group.acting_after(term, &others).await;
        let told = waiting.await.unwrap();
        assert!(told.term > term);
        assert_eq!(told.address, group.places[next].address);
    });
}

/// W6: a caller that knows one master needs no other.
// Covers W6.
#[test]
fn caller_is_led_to_the_leader_or_waits_for_one() {
    simulate_network(|network| async move {
        let group = Group::start(network.clone());
        let seeker = |name: &str, role| {
            let node = network.node(name, role, &[Role::Master]);
            move |place: &MasterNode| {
                let masters = vec![place.address.to_owned()];
                find_leader(&node, masters, 2 * PATIENCE, 0.5)
            }
        };
        let first = seeker("early", Role::Agent)(&group.places[1]);
        let early = tokio::task::spawn_local(first);
        let old = group.acting_after(0, &[0, 1, 2]).await;
        group.clock.advance(SPREAD_MAX).await;
        let early = early.await.unwrap().unwrap();
        assert_eq!(early.address, group.places[old].address);

        let roles = [Role::Agent, Role::Framework, Role::Operator];
        let seekers = roles.map(|role| seeker(&role.to_string(), role));
        let follower = group.others(old)[0];
        let leads = |place: &MasterNode| (place.address, place.local.master().unwrap().pid());
        for seek in &seekers {
            let found = seek(&group.places[follower]).await.unwrap();
            let found = (found.address.as_str(), found.pid);
            assert_eq!(found, leads(&group.places[old]));
        }

        let term = group.places[old].local.term();
        group.cut_off(old);
        network.leave(group.places[old].address);
        let seeking = seekers.map(|seek| tokio::task::spawn_local(seek(&group.places[follower])));
        let next = group.acting_after(term, &group.others(old)).await;
        group.clock.advance(Duration::from_secs(1)).await;
        for found in seeking {
            let found = found.await.unwrap().unwrap();
            let found = (found.address.as_str(), found.pid);
            assert_eq!(found, leads(&group.places[next]));
        }
    });
}

/// The agent `agent-NTH`.
fn info_of(nth: u16) -> AgentInfo {
    AgentInfo {
        id: Some(protocol::AgentId::new(format!("m-S{nth}")).unwrap()),
        ..AgentInfo::new(format!("agent-{nth}"), "cpus:1".parse().unwrap())
    }
}

/// Announces a new leader to an agent that is disconnected for this time; returns its
/// announcements.
fn announced_to_one_that_is_away_for(away: Duration) -> (Vec<LeaderAnnounced>, LeaderAnnounced) {
    simulate_network(|network| async move {
        let group = Group::start(network.clone());
        let old = group.acting_after(0, &[0, 1, 2]).await;
        let place = &group.places[old];
        let agent = network.node("agent-1", Role::Agent, &[Role::Master]);
        if away.is_zero() {
            network.join(&agent, "agent@agent-1:5051");
        }
        let told = Arc::<Mutex<Vec<LeaderAnnounced>>>::default();
        agent.spawn("agent", Listener(told.clone())).unwrap();
        let info = info_of(1);
        let mut registry = ReplicatedRegistry::over(place.member.clone());
        let admitted = registry.apply(RegistryOperation::AdmitAgent { info }).await;
        admitted.unwrap();
        let term = place.local.term();
        group.cut_off(old);
        let next = group.acting_after(term, &group.others(old)).await;
        if !away.is_zero() {
            group.clock.advance(away).await;
            network.join(&agent, "agent@agent-1:5051");
        }
        group.clock.advance(Duration::from_secs(60)).await;
        let (address, port) = (group.places[next].address, Config::default().port);
        let leads = LeaderAnnounced {
            address: format!("{address}:{port}"),
            term: group.places[next].local.term(),
        };
        let told = told.lock().unwrap().clone();
        (told, leads)
    })
}

#[test]
fn registered_agents_are_notified_of_each_leader() {
    let (told, leads) = announced_to_one_that_is_away_for(Duration::ZERO);
    assert_eq!(told, [leads]);
}

// Covers P7.
#[test]
fn unreached_agent_is_notified_again_a_bounded_number_of_times() {
    for seconds in [1, 4] {
        let (told, leads) = announced_to_one_that_is_away_for(Duration::from_secs(seconds));
        assert_eq!(told, [leads], "away for {seconds} s");
    }
    let (told, _) = announced_to_one_that_is_away_for(Duration::from_secs(30));
    assert_eq!(told, [], "it finds its master itself");
}
