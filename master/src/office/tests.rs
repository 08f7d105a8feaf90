//! The stories of the office: a master acts where the leader is and nowhere else, and whoever waits is told of the next one.

use std::time::Duration;

use consensus::member::Settings;
use consensus::store::StoredLog;
use protocol::AgentInfo;
use protocol::seek::{SPREAD_MAX, find_leader};
use runtime::memory::Network;
use runtime::rehearsal::{let_fall, rehearse_network};
use storage::forgetful::ForgetfulDisk;

use super::*;
use crate::books::Books;
use crate::master::TakeSnapshot;
use crate::registry::{Registry, RegistryOperation};

const ADDRESSES: [&str; 3] = ["a", "b", "c"];
const PATIENCE: Duration = Duration::from_secs(5);

/// An allocator that hears nothing: no story here needs an offer.
struct Deaf;

impl Actor for Deaf {
    type Context = Context<Self>;
}

impl Process for Deaf {}

/// One of three: its member, its office and its pages' view of both.
struct Place {
    address: &'static str,
    node: Node,
    member: MemberHandle<RegistryMachine>,
    front: Front,
}

impl Place {
    fn open(network: &Network, address: &'static str) -> Self {
        let heard = [Role::Master, Role::Agent, Role::Framework, Role::Operator];
        let node = network.node(address, Role::Master, &heard);
        let log = Box::new(StoredLog::over(ForgetfulDisk::new().open().unwrap()));
        let settings = Settings::new(address, &ADDRESSES);
        let member =
            consensus::member::start(&node, settings, log, RegistryMachine::new()).unwrap();
        let allocator = AllocatorRef::new(node.spawn("allocator", Deaf).unwrap().refer());
        let config = Config {
            hostname: address.to_owned(),
            ..Config::default()
        };
        let (_, front) = open(&node, config, allocator, member.clone()).unwrap();
        Self {
            address,
            node,
            member,
            front,
        }
    }

    /// What the master here knows.
    async fn books(&self) -> Arc<Books> {
        let master = self.front.master().unwrap();
        master.ask(TakeSnapshot, PATIENCE).await.unwrap()
    }
}

struct Group {
    network: Network,
    places: Vec<Place>,
    clock: Clock,
}

impl Group {
    fn start(network: Network) -> Self {
        let places: Vec<_> = ADDRESSES
            .iter()
            .map(|&address| Place::open(&network, address))
            .collect();
        let clock = places[0].node.clock().clone();
        Self {
            network,
            places,
            clock,
        }
    }

    /// Waits until one master acts under a later term than that, and everybody knows who leads. Gives its place.
    async fn acting_after(&self, term: u64, among: &[usize]) -> usize {
        for _ in 0..200 {
            self.clock.advance(Duration::from_millis(20)).await;
            let acts = |&&index: &&usize| {
                let front = &self.places[index].front;
                front.master().is_some() && front.term() > term
            };
            let Some(&acting) = among.iter().find(acts) else {
                continue;
            };
            let now = self.places[acting].front.term();
            let knows = |&index: &usize| {
                let front = &self.places[index].front;
                front.term() == now && front.leader().is_some()
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

/// Keeps what it is told of leaders, as an agent does.
struct Listener(Arc<Mutex<Vec<LeaderAnnounced>>>);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Process for Listener {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<LeaderAnnounced>(&[Role::Master]);
    }
}

impl Handler<LeaderAnnounced> for Listener {
    type Result = ();
    fn handle(&mut self, leader: LeaderAnnounced, _: &mut Context<Self>) {
        self.0.lock().unwrap().push(leader);
    }
}

#[test]
fn one_master_acts_and_it_says_the_term_that_its_group_has_given_it() {
    rehearse_network(|network| async move {
        let group = Group::start(network);
        let acting = group.acting_after(0, &[0, 1, 2]).await;
        let place = &group.places[acting];
        assert_eq!(place.books().await.master.term, place.front.term());
        for other in group.others(acting) {
            assert!(group.places[other].front.master().is_none());
            assert_eq!(
                group.places[other].front.leader().as_deref(),
                Some(place.address)
            );
        }
    });
}

#[test]
fn a_leader_that_cannot_reach_the_majority_is_dismissed_and_the_next_acts_under_a_later_term() {
    rehearse_network(|network| async move {
        let group = Group::start(network);
        let old = group.acting_after(0, &[0, 1, 2]).await;
        let place = &group.places[old];
        let (term, master) = (place.front.term(), place.front.master().unwrap());
        let ended = place.node.ended(&master.pid());
        group.cut_off(old);
        let next = group.acting_after(term, &group.others(old)).await;
        let books = group.places[next].books().await;
        assert!(books.master.term > term);
        assert_eq!(books.master.term, group.places[next].front.term());
        // By the time the others can have elected one, its own group's silence has told it: twice an election at most.
        group.clock.advance(Duration::from_millis(600)).await;
        assert!(
            place.front.master().is_none(),
            "no page is served in its name"
        );
        assert_eq!(place.front.deposed(), 1);
        assert_eq!(ended.await, Exit::Stopped);
    });
}

#[test]
fn a_master_that_ended_while_its_member_leads_is_followed_by_another() {
    rehearse_network(|network| async move {
        let group = Group::start(network);
        let acting = group.acting_after(0, &[0, 1, 2]).await;
        let place = &group.places[acting];
        let first = place.front.master().unwrap().pid();
        place.node.stop_now(&first);
        group.clock.settle().await;
        assert!(place.front.master().is_none());
        group.clock.advance(AGAIN).await;
        let second = place.front.master().unwrap().pid();
        assert_ne!(first, second);
        assert_eq!(place.books().await.master.term, place.front.term());
    });
}

/// W3: the panic is the master's alone. Its member leads on, so nobody elects, and the others' word of who leads stays true.
#[test]
fn a_master_that_panics_is_followed_in_the_same_term_by_one_that_knows_all_that_was_acknowledged() {
    rehearse_network(|network| async move {
        let group = Group::start(network);
        let acting = group.acting_after(0, &[0, 1, 2]).await;
        let place = &group.places[acting];
        let term = place.front.term();
        let mut registry = ReplicatedRegistry::over(place.member.clone());
        for nth in 0..3 {
            let admit = RegistryOperation::AdmitAgent { info: info_of(nth) };
            registry.apply(admit).await.unwrap();
            let first = place.front.master().unwrap().pid();
            let ended = place.node.ended(&first);
            // Taken by the group while the master falls, and heard by the next.
            let admit = RegistryOperation::AdmitAgent {
                info: info_of(nth + 10),
            };
            let under_way = registry.apply(admit);
            assert!(let_fall(&place.node, "master", "it has to"));
            group.clock.settle().await;
            assert!(matches!(ended.await, Exit::Panicked(_)));
            assert!(place.front.master().is_none());
            under_way.await.unwrap();
            group.clock.advance(AGAIN).await;
            assert_ne!(place.front.master().unwrap().pid(), first);

            group.clock.advance(Duration::from_secs(1)).await; // It reads its registry.
            let books = place.books().await;
            assert_eq!(books.master.term, term);
            let known = books.agents.known();
            assert_eq!(known, 2 * (usize::from(nth) + 1));
            assert_eq!(place.front.deposed(), 0);
            for other in group.others(acting) {
                let front = &group.places[other].front;
                let known = (front.leader(), front.term());
                assert_eq!(known, (Some(place.address.to_owned()), term));
            }
        }
    });
}

#[test]
fn who_is_behind_is_told_at_once_and_who_is_not_when_another_leads() {
    rehearse_network(|network| async move {
        let group = Group::start(network.clone());
        let old = group.acting_after(0, &[0, 1, 2]).await;
        let term = group.places[old].front.term();
        let asker = network.node("driver", Role::Framework, &[Role::Master]);
        let others = group.others(old);
        let asked = group.places[others[0]].address;
        let office = asker.find(asked, "office", PATIENCE).await.unwrap();
        let behind = asker.ask(&office, AwaitLeader { term: 0 }, PATIENCE).await;
        let address = group.places[old].address.to_owned();
        assert_eq!(behind.unwrap(), LeaderAnnounced { address, term });
        let waiting = asker.ask(&office, AwaitLeader { term }, Patience::WhileLinked);
        group.clock.settle().await;
        group.cut_off(old);
        let next = group.acting_after(term, &others).await;
        let told = waiting.await.unwrap();
        assert!(told.term > term);
        assert_eq!(told.address, group.places[next].address);
    });
}

/// W6: who knows one of them needs to know no other.
#[test]
fn whoever_asks_a_master_that_does_not_lead_is_led_to_the_one_that_does_and_waits_while_nobody_does()
 {
    rehearse_network(|network| async move {
        let group = Group::start(network.clone());
        let seeker = |name: &str, role| {
            let node = network.node(name, role, &[Role::Master]);
            move |place: &Place| {
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
        let leads = |place: &Place| (place.address, place.front.master().unwrap().pid());
        for seek in &seekers {
            let found = seek(&group.places[follower]).await.unwrap();
            let found = (found.address.as_str(), found.pid);
            assert_eq!(found, leads(&group.places[old]));
        }

        let term = group.places[old].front.term();
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
        hostname: format!("agent-{nth}"),
        port: 5051,
        resources: "cpus:1".parse().unwrap(),
        attributes: Default::default(),
        domain: None,
        id: Some(protocol::AgentId::new(format!("m-S{nth}")).unwrap()),
    }
}

/// A new leader is announced to an agent that is away just then, for so long; what it has heard in the end.
fn announced_to_one_that_is_away_for(away: Duration) -> (Vec<LeaderAnnounced>, LeaderAnnounced) {
    rehearse_network(|network| async move {
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
        let term = place.front.term();
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
            term: group.places[next].front.term(),
        };
        let told = told.lock().unwrap().clone();
        (told, leads)
    })
}

#[test]
fn the_agents_of_the_registry_are_told_of_each_new_leader_and_its_term() {
    let (told, leads) = announced_to_one_that_is_away_for(Duration::ZERO);
    assert_eq!(told, [leads]);
}

#[test]
fn an_agent_that_is_not_reached_is_told_who_leads_a_moment_later_and_not_for_ever() {
    for seconds in [1, 4] {
        let (told, leads) = announced_to_one_that_is_away_for(Duration::from_secs(seconds));
        assert_eq!(told, [leads], "away for {seconds} s");
    }
    let (told, _) = announced_to_one_that_is_away_for(Duration::from_secs(30));
    assert_eq!(told, [], "it finds its master itself");
}
