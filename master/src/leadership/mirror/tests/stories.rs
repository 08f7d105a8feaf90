//! Tests of mirrors: three masters with their members, supervisors and mirrors, on a network in
//! memory and in paused time.

use std::collections::BTreeMap;

use authority::{Acls, Subject};
use axum::http::{HeaderMap, HeaderValue, header::CACHE_CONTROL};
use consensus::member::{self, Settings};
use consensus::store::StoredLog;
use module_api::AllocatorRef;
use module_api::allocator::{AgentAdded, Begin, FrameworkAdded};
use protocol::message::registration::{
    AgentInventory, LeaderAnnounced, PingAgent, Pong, RegisterAgent, Reregistered, RunningTask,
};
use protocol::message::scheduler::Subscribe;
use protocol::{
    AgentId, AgentInfo, CommandInfo, FrameworkId, FrameworkInfo, TaskId, TaskInfo, TaskState,
};
use resources::Resources;
use runtime::testing::memory::Network;
use runtime::testing::simulate_network;
use testkit::assert_matches;
use testkit::disk::SimulatedStore;

use super::super::*;
use crate::api::pages::source::{self, Found, LEADER, STALENESS};
use crate::api::v0::registrar;
use crate::leadership;
use crate::permission::Caller;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// An allocator that grants nothing, or an agent that answers pings.
struct Idle;

impl Actor for Idle {
    type Context = Context<Self>;
}

impl Process for Idle {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<Begin>();
        handlers.accept_local::<AgentAdded>();
        handlers.accept_local::<FrameworkAdded>();
        handlers.accept::<LeaderAnnounced>(&[Role::Master]);
        handlers.accept::<PingAgent>(&[Role::Master]);
    }
}

macro_rules! ignores {
    ($($message:ty),*) => {$(
        impl Handler<$message> for Idle {
            type Result = ();
            fn handle(&mut self, _: $message, _: &mut Context<Self>) {}
        }
    )*};
}
ignores!(Begin, AgentAdded, FrameworkAdded, LeaderAnnounced);

impl Handler<PingAgent> for Idle {
    type Result = MessageResult<PingAgent>;
    fn handle(&mut self, _: PingAgent, _: &mut Context<Self>) -> Self::Result {
        MessageResult(Pong)
    }
}

/// One of the masters.
struct Seat {
    node: Node,
    member: MemberHandle<RegistryMachine>,
    local: LocalLeader,
}

struct Group {
    network: Network,
    seats: BTreeMap<&'static str, Seat>,
    agent: Node,
    id: Option<AgentId>,
    framework: FrameworkId,
}

impl Group {
    fn of(network: Network) -> Self {
        let seats = NAMES.map(|name| {
            let hears = [Role::Master, Role::Agent, Role::Framework, Role::Operator];
            let node = network.node(name, Role::Master, &hears);
            let idle = node.spawn("allocator", Idle).unwrap();
            let log = Box::new(StoredLog::new(SimulatedStore::default()));
            let settings = Settings::new(name, &NAMES);
            let member = member::start(&node, settings, log, RegistryMachine::new()).unwrap();
            let config = Config {
                hostname: name.to_owned(),
                ..Config::default()
            };
            let allocator = AllocatorRef::new(idle.refer());
            let (_, local) = leadership::open(&node, config, allocator, member.clone()).unwrap();
            let seat = Seat {
                node,
                member,
                local,
            };
            (name, seat)
        });
        let agent = network.node("agent", Role::Agent, &[Role::Master]);
        agent.spawn("agent", Idle).unwrap();
        Self {
            network,
            seats: BTreeMap::from(seats),
            agent,
            id: None,
            framework: FrameworkId::new("framework").unwrap(),
        }
    }

    async fn pass(&self, millis: u64) {
        let clock = self.agent.clock();
        clock.advance(Duration::from_millis(millis)).await;
    }

    /// The leader known to a majority, once its master has read the registry.
    async fn leader(&self) -> &'static str {
        for _ in 0..200 {
            let acts = |name: &&str| self.seats[*name].local.master().is_some();
            let acting: Vec<_> = NAMES.into_iter().filter(acts).collect();
            for name in acting {
                let known = |seat: &&Seat| seat.local.leader().as_deref() == Some(name);
                if self.seats.values().filter(known).count() >= 2 && self.own(name).await.is_some()
                {
                    return name;
                }
            }
            self.pass(100).await;
        }
        panic!("nobody leads");
    }

    /// The local master's state, once it has read the registry.
    async fn own(&self, name: &str) -> Option<Arc<MasterState>> {
        let master = self.seats[name].local.master()?;
        let state = master.ask(TakeSnapshot, PATIENCE).await.ok()?;
        state
            .is_settled(Duration::ZERO, state.elected)
            .then_some(state)
    }

    /// The agent comes to the master at `name`, with these tasks.
    async fn register(&mut self, name: &str, tasks: &[&str]) {
        let registration = self.registration(tasks);
        let master = self.agent.find(name, "master", PATIENCE).await.unwrap();
        let answer = self.agent.ask(&master, registration, PATIENCE).await;
        self.id = Some(answer.unwrap().unwrap().agent_id);
    }

    /// Returns to that master with these tasks, in a summary.
    async fn come_back(&mut self, name: &str, tasks: &[&str]) -> Reregistered {
        let whole = self.registration(tasks);
        let summary = testkit::values::summary_of(whole);
        let master = self.agent.find(name, "master", PATIENCE).await.unwrap();
        let answer = self.agent.ask(&master, summary, PATIENCE).await;
        answer.unwrap().unwrap()
    }

    /// A framework that the masters know has an id of theirs.
    async fn subscribe(&mut self, name: &str) {
        let scheduler = self.network.node("web", Role::Framework, &[Role::Master]);
        let scheduler_pid = scheduler.spawn("scheduler", Idle).unwrap().pid();
        let master = scheduler.find(name, "master", PATIENCE).await.unwrap();
        let mut framework = FrameworkInfo::new("nobody", "web");
        framework.failover_timeout = Duration::from_secs(3600);
        let question = Subscribe {
            framework,
            scheduler: scheduler_pid,
            wants: Default::default(),
        };
        let answer = scheduler.ask(&master, question, PATIENCE).await;
        self.framework = answer.unwrap().unwrap().framework_id;
    }

    fn registration(&self, tasks: &[&str]) -> RegisterAgent {
        let framework = self.framework.clone();
        let star = resources::Role::new("*").unwrap();
        let cpu: Resources = "cpus:1".parse().unwrap();
        let running = |task: &&str| RunningTask {
            framework_id: framework.clone(),
            info: TaskInfo::new(
                TaskId::new(task).unwrap(),
                self.id.clone().unwrap(),
                cpu.allocate(&star),
            )
            .with_command(CommandInfo::shell("true")),
            state: TaskState::Running,
        };
        let info = FrameworkInfo {
            id: Some(framework.clone()),
            ..FrameworkInfo::new("nobody", "web")
        };
        RegisterAgent {
            held: AgentInventory {
                tasks: tasks.iter().map(running).collect(),
                frameworks: tasks.first().map(|_| info).into_iter().collect(),
                ..AgentInventory::default()
            },
            ..testkit::values::registration(
                AgentInfo {
                    id: self.id.clone(),
                    ..AgentInfo::new("agent", "cpus:8".parse().unwrap())
                },
                self.agent.whereis("agent").unwrap(),
            )
        }
    }

    /// The source of this master's page: its tasks, and the mirror's leader and age, if it is one.
    async fn page(&self, name: &str, cache_control: &'static str) -> Page {
        self.page_for(Caller::default(), name, cache_control).await
    }

    /// The same for this one.
    async fn page_for(&self, caller: Caller, name: &str, cache_control: &'static str) -> Page {
        let (seat, published) = (&self.seats[name], Arc::default());
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
        match source::find(&seat.local, &seat.node, &published, caller, &headers).await {
            Found::Here(source) => {
                let mark = |name| Some(source.marks.get(name)?.to_str().unwrap());
                let age = mark(STALENESS).map(|age| age.parse().unwrap());
                Page::VisibleState {
                    tasks: tasks(&source.state()),
                    mirror: mark(LEADER).map(|leader| leader.to_owned()).zip(age),
                }
            }
            Found::Elsewhere => Page::Elsewhere,
            Found::Late => Page::Late,
        }
    }

    fn isolate(&self, name: &str) {
        for other in NAMES.iter().filter(|other| **other != name) {
            self.network.sever(name, other);
        }
    }

    fn reunite(&self, name: &str) {
        for other in NAMES.iter().filter(|other| **other != name) {
            self.network.heal(name, other);
        }
    }

    fn others(&self, name: &str) -> Vec<&'static str> {
        NAMES.into_iter().filter(|other| *other != name).collect()
    }

    /// A group whose leader has the agent with two tasks and has updated the mirrors.
    async fn warm(network: Network) -> (Self, &'static str) {
        let mut group = Self::of(network);
        let leader = group.leader().await;
        group.register(leader, &[]).await;
        group.register(leader, &["t1", "t2"]).await;
        group.pass(3000).await;
        (group, leader)
    }

    /// The same, with a framework that the registry knows.
    async fn known(network: Network) -> (Self, &'static str) {
        let mut group = Self::of(network);
        let leader = group.leader().await;
        group.subscribe(leader).await;
        group.register(leader, &[]).await;
        group.register(leader, &["t1", "t2"]).await;
        group.pass(3000).await;
        (group, leader)
    }
}

#[derive(Debug, PartialEq)]
enum Page {
    VisibleState {
        tasks: Vec<String>,
        mirror: Option<(String, f64)>,
    },
    Elsewhere,
    Late,
}

impl Page {
    /// How old the mirror is that these tasks come from, and whose.
    fn mirrored(self, expected: &[&str]) -> (String, f64) {
        match self {
            Self::VisibleState {
                tasks,
                mirror: Some(mirror),
            } if tasks == expected => mirror,
            other => panic!("{other:?} where {expected:?} were expected from a mirror"),
        }
    }

    /// The leader's own word.
    fn own(self, expected: &[&str]) {
        let shown = Self::VisibleState {
            tasks: expected.iter().map(|task| (*task).to_owned()).collect(),
            mirror: None,
        };
        assert_eq!(self, shown);
    }
}

fn tasks(state: &MasterState) -> Vec<String> {
    let of = state.tasks.frameworks().flat_map(|(_, of)| of.active());
    of.map(|task| task.id.to_string()).collect()
}

/// SPEC 3.7.
#[test]
fn follower_hides_the_same_content_as_the_leader() {
    simulate_network(|network| async move {
        let (group, leader) = Group::known(network).await;
        let acls = r#"{"view_tasks":[{"principals":{"values":["ops"]},"users":{"type":"ANY"}},
            {"principals":{"type":"ANY"},"users":{"type":"NONE"}}]}"#;
        let acls = Arc::new(Acls::parse(acls).unwrap());
        for (name, sees) in [("ops", &["t1", "t2"][..]), ("guest", &[])] {
            let caller = || Caller::new(&acls, Subject::named(name));
            group.page_for(caller(), leader, "").await.own(sees);
            for follower in group.others(leader) {
                let page = group.page_for(caller(), follower, "").await;
                page.mirrored(sees);
            }
        }
    });
}

// Covers S131.
#[test]
fn follower_shows_recent_state_with_its_age() {
    simulate_network(|network| async move {
        let (mut group, leader) = Group::warm(network).await;
        for follower in group.others(leader) {
            let (whose, age) = group.page(follower, "").await.mirrored(&["t1", "t2"]);
            assert_eq!(whose, format!("{leader}:5050"));
            assert!(age <= 1.0, "{age}");
            // A reader that wants the leader itself is redirected.
            assert_eq!(group.page(follower, "no-cache").await, Page::Elsewhere);
        }
        group.page(leader, "").await.own(&["t1", "t2"]);
        // Changes arrive with the next batch.
        group.register(leader, &["t2", "t3", "t4"]).await;
        group.pass(2000).await;
        for follower in group.others(leader) {
            let page = group.page(follower, "max-age=5").await;
            page.mirrored(&["t2", "t3", "t4"]);
        }
    });
}

#[test]
fn isolated_follower_serves_its_mirror_until_too_old() {
    simulate_network(|network| async move {
        let (group, leader) = Group::warm(network).await;
        let follower = group.others(leader)[0];
        group.isolate(follower);
        group.pass(5000).await;
        let (_, age) = group.page(follower, "").await.mirrored(&["t1", "t2"]);
        assert!((5.0..=6.5).contains(&age), "{age}");
        assert_eq!(group.page(follower, "max-age=5").await, Page::Elsewhere);
        group.pass(30_000).await;
        assert_eq!(group.page(follower, "").await, Page::Elsewhere);
        // It has missed batches, and the link was lost: it gets the whole.
        group.reunite(follower);
        group.pass(20_000).await;
        let leader = group.leader().await;
        if leader != follower {
            let (_, age) = group.page(follower, "").await.mirrored(&["t1", "t2"]);
            assert!(age <= 1.0, "{age}");
        }
    });
}

// Covers S131.
#[test]
fn new_leader_shows_its_mirror_until_settled() {
    simulate_network(|network| async move {
        let (mut group, first) = Group::warm(network).await;
        group.isolate(first);
        group.network.sever("agent", first);
        group.pass(1000).await;
        let second = group.leader().await;
        assert_ne!(first, second);
        assert_eq!(tasks(&group.own(second).await.unwrap()), [""; 0]);
        let (whose, age) = group.page(second, "").await.mirrored(&["t1", "t2"]);
        assert_eq!(whose, format!("{first}:5050"));
        assert!(age > 0.0, "{age}");
        // A reader that accepts no mirror gets the new leader's own state.
        group.page(second, "no-cache").await.own(&[]);
        // It does not publish that little to the others.
        let third = group.others(first).into_iter().find(|one| *one != second);
        let third = third.unwrap();
        let (whose, _) = group.page(third, "").await.mirrored(&["t1", "t2"]);
        assert_eq!(whose, format!("{first}:5050"));
        // The agent returns, and no other is awaited.
        group.register(second, &["t1", "t2", "t5"]).await;
        group.page(second, "").await.own(&["t1", "t2", "t5"]);
        group.pass(2500).await;
        let (whose, _) = group.page(third, "").await.mirrored(&["t1", "t2", "t5"]);
        assert_eq!(whose, format!("{second}:5050"));
    });
}

/// DESIGN 5: equal digests cost one small message, unequal ones bytes in proportion to the
/// difference.
#[test]
fn new_leader_compares_agents_with_its_mirror() {
    simulate_network(|network| async move {
        let (mut group, first) = Group::known(network).await;
        group.isolate(first);
        group.network.sever("agent", first);
        group.pass(1000).await;
        let second = group.leader().await;
        assert_ne!(first, second);
        let differs = group.come_back(second, &["t1"]).await;
        assert_matches!(differs, Reregistered::Differs { .. });
        assert_eq!(tasks(&group.own(second).await.unwrap()), [""; 0]);
        let equal = group.come_back(second, &["t1", "t2"]).await;
        assert!(matches!(equal, Reregistered::Registered(_)), "{equal:?}");
        group.page(second, "").await.own(&["t1", "t2"]);
    });
}

/// An outdated mirror is not compared with agents.
#[test]
fn outdated_mirror_is_not_used_for_agents() {
    simulate_network(|network| async move {
        let (mut group, first) = Group::known(network).await;
        for name in NAMES {
            group.isolate(name);
        }
        group.network.sever("agent", first);
        group.pass(STALENESS_MAX.as_millis() as u64 + 1000).await;
        let others = group.others(first);
        group.network.heal(others[0], others[1]);
        let second = group.leader().await;
        assert_ne!(first, second);
        let answer = group.come_back(second, &["t1", "t2"]).await;
        assert_eq!(answer, Reregistered::Unknown);
    });
}

/// An agent that died with the leader is not awaited for ever.
#[test]
fn new_leaders_state_is_used_after_bounded_time() {
    simulate_network(|network| async move {
        let (group, first) = Group::warm(network).await;
        group.isolate(first);
        group.network.leave("agent");
        group.pass(1000).await;
        let second = group.leader().await;
        group.page(second, "").await.mirrored(&["t1", "t2"]);
        group
            .pass(u64::try_from(SETTLING_MAX.as_millis()).unwrap())
            .await;
        group.page(second, "").await.own(&[]);
    });
}

#[test]
fn updates_from_deposed_leaders_and_strangers_are_refused() {
    simulate_network(|network| async move {
        let (group, leader) = Group::warm(network).await;
        let follower = group.others(leader)[0];
        let term = group.seats[follower].member.status().await.unwrap();
        let term = term.role_now().unwrap().term;
        let state = group.own(leader).await.unwrap();
        let said = |term| MirrorUpdate {
            term,
            sequence: 1_000_000,
            base: Base::Nothing(Box::new(LeaderInfo {
                master: state.master.clone(),
                elected: state.elected,
                started: state.started,
                published: PublishedFlags::default(),
            })),
            piece: 0,
            pieces: 1,
            age: Duration::ZERO,
            changes: Vec::new(),
        };
        let stranger = group.network.node("d", Role::Master, &[Role::Master]);
        let mirror = stranger.find(follower, NAME, PATIENCE).await.unwrap();
        for other in [term - 1, term + 1] {
            let heard = stranger.ask(&mirror, said(other), PATIENCE).await.unwrap();
            assert_eq!(heard, UpdateReply::Refused { term });
        }
        let mirror = stranger.find(leader, NAME, PATIENCE).await.unwrap();
        let heard = stranger.ask(&mirror, said(term), PATIENCE).await.unwrap();
        assert_eq!(
            heard,
            UpdateReply::Refused { term },
            "who leads follows nobody"
        );
        for role in [Role::Agent, Role::Framework, Role::Operator] {
            let name = format!("no-{role}");
            let intruder = group.network.node(&name, role, &[Role::Master]);
            let mirror = intruder.find(follower, NAME, PATIENCE).await.unwrap();
            let heard = intruder.ask(&mirror, said(term), PATIENCE).await;
            assert!(matches!(heard, Err(AskError::Refused { .. })), "{heard:?}");
        }
        group.page(follower, "").await.mirrored(&["t1", "t2"]);
    });
}

/// SPEC 3.1: each member reports its status, and the leader its registry's times.
#[test]
fn masters_report_their_group_status() {
    simulate_network(|network| async move {
        let (group, leader) = Group::warm(network).await;
        let look = async |name: &str| {
            let Seat { node, local, .. } = &group.seats[name];
            let status = local.member().expect("a member").status();
            registrar::look(&local.meter(), node, status).await
        };
        let leads = look(leader).await;
        let committed = leads["raft/committed"];
        assert!(committed > 0.0 && leads["raft/term"] >= 1.0, "{leads:?}");
        for (name, value) in [
            ("registrar/log/recovered", 1.0),
            ("registrar/log/ensemble_size", 3.0),
            ("registrar/queued_operations", 0.0),
            ("raft/role", 2.0),
            ("raft/voter", 1.0),
            ("raft/lag", 0.0),
        ] {
            assert_eq!(leads.get(name), Some(&value), "{name}");
        }
        assert!(leads.contains_key("registrar/state_store_ms"));
        assert!(leads.contains_key("registrar/state_fetch_ms"));
        for follower in group.others(leader) {
            assert_eq!(leads[&format!("raft/peers/{follower}/lag")], 0.0);
            let follows = look(follower).await;
            assert_eq!(follows["raft/role"], 0.0);
            assert_eq!(follows["registrar/log/recovered"], 1.0);
            assert!(!follows.contains_key("registrar/state_fetch_ms"));
            assert!(!follows.keys().any(|name| name.starts_with("raft/peers")));
        }
        group.isolate(leader);
        group.pass(5000).await;
        let alone = look(leader).await;
        assert_eq!(
            alone["registrar/log/recovered"], 0.0,
            "nobody tells it anything"
        );
    });
}
