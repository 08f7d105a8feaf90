//! Maintenance: scheduled agents, their frameworks, and down machines (SPEC 3.6, 4.7).

use protocol::maintenance::Window;
use protocol::message::operator::{
    StartMaintenance, StopMaintenance, UpdateMaintenanceSchedule, UpdateRefused,
};

use crate::agents::Standing;
use crate::master::tests::*;
use crate::registry::RegistryOperation;

const STARTS: u64 = 9;

/// Machines by their host names, or by HOST/ADDRESS.
fn machines(named: &[&str]) -> Vec<MachineId> {
    let machine = |name: &&str| {
        let (hostname, ip) = name.split_once('/').unwrap_or((name, ""));
        MachineId::new(hostname, ip).unwrap()
    };
    named.iter().map(machine).collect()
}

/// Plans that these machines are away.
async fn plan(world: &World, hostnames: &[&str], starts: u64) -> Result<(), UpdateRefused> {
    let window = Window {
        machines: machines(hostnames),
        unavailability: Unavailability {
            start: runtime::Timestamp::from_nanos(starts),
            duration: None,
        },
    };
    let windows = Vec::from_iter((!hostnames.is_empty()).then_some(window));
    let update = UpdateMaintenanceSchedule { windows };
    world.master.ask(update, PATIENCE).await.unwrap()
}

async fn down(world: &World, hostnames: &[&str]) -> Result<(), UpdateRefused> {
    let machines = machines(hostnames);
    let asked = world.master.ask(StartMaintenance { machines }, PATIENCE);
    let answer = asked.await.unwrap();
    world.settle().await;
    answer
}

async fn up(world: &World, hostnames: &[&str]) -> Result<(), UpdateRefused> {
    let machines = machines(hostnames);
    let asked = world.master.ask(StopMaintenance { machines }, PATIENCE);
    asked.await.unwrap()
}

impl World {
    /// As the allocator would that wants this framework to leave this agent.
    async fn ask_to_leave(&self, framework: &FrameworkId, agent: &AgentId) {
        let state = self.state().await;
        let known = state.agents.get(agent).unwrap();
        let grant = InverseGrant {
            framework_id: framework.clone(),
            agent_id: agent.clone(),
            unavailability: known.unavailability.unwrap(),
        };
        let grants = vec![grant];
        let granted = InverseGranted { grants };
        self.node.tell(&self.master.pid(), granted).unwrap();
        self.settle().await;
    }

    async fn inverse_offers(&self) -> Vec<OfferId> {
        let state = self.state().await;
        let ids = state.inverse_offers.iter().map(|offer| offer.id.clone());
        ids.collect()
    }
}

#[test]
fn scheduled_agents_offers_are_made_again_with_the_time() {
    simulate_world(|world| async move {
        let (_one, a) = world.agent("host-1").await;
        let (_two, b) = world.agent("host-2").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let before = world.offer(&scheduler, &f, &a, "cpus:1").await;
        world.offer(&scheduler, &f, &b, "cpus:1").await;
        assert_eq!(before.unavailability, None);
        world.allocator();
        scheduler.received();
        plan(&world, &["Host-1"], STARTS).await.unwrap();
        world.settle().await;
        scheduler.receives("rescind O0");
        world.facts_are("recovered 0000 cpus:1 | agent S0 away Some(9)");
        let anew = world.offer(&scheduler, &f, &a, "cpus:1").await;
        let start = anew.unavailability.map(|away| away.start.as_nanos());
        assert_eq!(start, Some(STARTS));
        assert_eq!(world.faults.state().machines.len(), 1);
        world.allocator();
        scheduler.received();
        plan(&world, &["host-1"], STARTS).await.unwrap();
        // Nothing has changed.
        world.facts_are("");
        plan(&world, &[], STARTS).await.unwrap();
        world.settle().await;
        world.facts_are("recovered 0000 cpus:1 | agent S0 away None");
        let (_three, _) = world.agent("host-3").await;
        world.allocator();
        plan(&world, &["host-4"], STARTS).await.unwrap();
        world.agent("host-4").await;
        let told = world.allocator();
        assert_eq!(told.last().unwrap(), "agent S3 away Some(9)");
    });
}

// Covers 2.2 ACCEPT_INVERSE_OFFERS, DECLINE_INVERSE_OFFERS.
// Covers 2.3 INVERSE_OFFERS, RESCIND_INVERSE_OFFER.
#[test]
fn inverse_offer_answers_last_until_the_plan_changes() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("host-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        plan(&world, &["host-1"], STARTS).await.unwrap();
        world.allocator();
        scheduler.received();
        world.ask_to_leave(&f, &a).await;
        scheduler.receives("inverse O0 of S0");
        let ids = world.inverse_offers().await;
        let stranger = OfferId::new("stranger").unwrap();
        scheduler.tell(DeclineInverseOffers {
            framework_id: f.clone(),
            inverse_offer_ids: vec![stranger, ids[0].clone()],
            filters: protocol::Filters {
                refuse_seconds: 7.0,
            },
        });
        world.settle().await;
        world.facts_are("answered 0000 S0 for 7s");
        let answers = |state: &MasterState| state.maintenance_status().draining.remove(0).answers;
        let said = answers(&*world.state().await);
        assert_eq!((said.len(), said[0].accepted), (1, false));

        world.ask_to_leave(&f, &a).await;
        let ids = world.inverse_offers().await;
        scheduler.tell(AcceptInverseOffers {
            framework_id: f.clone(),
            inverse_offer_ids: ids,
            filters: Default::default(),
        });
        world.settle().await;
        world.facts_are("answered 0000 S0 for 5s");
        let said = answers(&*world.state().await);
        assert_eq!((said.len(), said[0].accepted), (1, true));

        world.ask_to_leave(&f, &a).await;
        scheduler.received();
        plan(&world, &["host-1"], STARTS + 1).await.unwrap();
        world.settle().await;
        scheduler.receives("rescind inverse O2");
        world.facts_are("answered 0000 S0 | agent S0 away Some(10)");
        assert_eq!(answers(&*world.state().await), []);

        world.ask_to_leave(&f, &a).await;
        world.allocator();
        scheduler.received();
        register(&agent, Some(a), vec![]).await.unwrap();
        world.settle().await;
        scheduler.receives("rescind inverse O3");
        let told = world.allocator();
        assert_eq!(told, ["answered 0000 S0", "agent S0 used []"]);
    });
}

#[test]
fn unreachable_frameworks_and_unknown_plans_are_skipped() {
    simulate_network(|network| async move {
        let config = Config {
            offer_timeout: Some(Duration::from_secs(30)),
            ..Config::default()
        };
        let world = World::new(network, config).await;
        let (_agent, a) = world.agent("host-1").await;
        let stay = |info: &mut FrameworkInfo| info.failover_timeout = Duration::from_secs(1000);
        let (scheduler, f) = world.framework("web", stay).await;
        plan(&world, &["host-1"], STARTS).await.unwrap();
        world.ask_to_leave(&f, &a).await;
        scheduler.received();
        world.allocator();
        world.pass(30).await;
        // It was too slow.
        scheduler.receives("rescind inverse O0");
        world.facts_are("answered 0000 S0");

        let late = InverseGrant {
            framework_id: f.clone(),
            agent_id: a.clone(),
            unavailability: Unavailability {
                start: runtime::Timestamp::from_nanos(1),
                duration: None,
            },
        };
        let granted = InverseGranted { grants: vec![late] };
        world.node.tell(&world.master.pid(), granted).unwrap();
        world.settle().await;
        assert_eq!((scheduler.received(), world.allocator()), (vec![], vec![]));

        world.ask_to_leave(&f, &a).await;
        world.allocator();
        scheduler.node.shutdown().await;
        world.settle().await;
        let told = world.allocator();
        assert!(told.contains(&"answered 0000 S0".to_owned()), "{told:?}");
        world.ask_to_leave(&f, &a).await;
        world.facts_are("answered 0000 S0");
        assert_eq!(world.inverse_offers().await, []);
    });
}

/// SPEC 3.6: agents of a machine that is down stop, are removed, and cannot register.
#[test]
fn agents_on_down_machines_stop_and_are_refused() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("host-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        world.launch(&scheduler, &f, task("t", &a, "cpus:1")).await;
        plan(&world, &["host-1"], STARTS).await.unwrap();
        world.allocator();
        agent.received();
        scheduler.received();
        down(&world, &["host-1"]).await.unwrap();
        let reason = "the agent's machine is down for maintenance";
        assert_eq!(agent.received(), [format!("shut down: {reason}")]);
        scheduler.receives("t TASK_LOST REASON_SLAVE_REMOVED | lost S0");
        let message = scheduler.statuses().pop().unwrap().message;
        let words = "Agent host-1 removed: Operator initiated 'Machine DOWN'";
        assert_eq!(message, words);
        let told = world.allocator();
        assert_eq!(told, ["agent S0 active false", "no agent S0"]);
        assert!(world.faults.state().agents.is_empty());
        let refused = register(&agent, None, vec![]).await.unwrap_err();
        let words = "machine host-1 is down for maintenance";
        assert!(refused.to_string().contains(words), "{refused}");
        up(&world, &["host-1"]).await.unwrap();
        let back = register(&agent, None, vec![]).await.unwrap();
        let state = world.state().await;
        assert_eq!(
            state.agents.get(&back.agent_id).unwrap().unavailability,
            None
        );
        assert!(state.machines.is_empty() && world.faults.state().machines.is_empty());
    });
}

/// Found by a rehearsal: the registry took its time to write that the agent was gone, and tasks
/// went there meanwhile.
#[test]
fn no_work_is_sent_while_a_machine_goes_down() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("host-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        plan(&world, &["host-1"], STARTS).await.unwrap();
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        let _before = (world.allocator(), agent.received(), scheduler.received());
        world.faults.delay(Duration::from_secs(1));
        let machines = machines(&["host-1"]);
        let going = world.master.ask(StartMaintenance { machines }, PATIENCE);
        going.await.unwrap().unwrap();
        world.settle().await;
        scheduler.receives("rescind O0");
        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        world.grant(vec![grant(&f, &a, "cpus:1")]).await;
        agent.receives("");
        assert_eq!(scheduler.offers(), []);
        world.pass(1).await;
        let reason = "the agent's machine is down for maintenance";
        assert_eq!(agent.received(), [format!("shut down: {reason}")]);
    });
}

#[test]
fn agent_of_a_machine_going_down_is_removed_after_admission() {
    simulate_world(|world| async move {
        plan(&world, &["host-1"], STARTS).await.unwrap();
        let agent = world.member("host-1", "agent", Role::Agent).await;
        let machines = machines(&["host-1"]);
        let message = registration(&agent, None, vec![]);
        let registering = agent.node.ask(&agent.master, message, PATIENCE);
        let going = world.master.ask(StartMaintenance { machines }, PATIENCE);
        let (registered, gone) = futures_util::join!(registering, going);
        gone.unwrap().unwrap();
        world.settle().await;
        // Whichever came first: there is no such agent in the end.
        drop(registered);
        assert_eq!(world.state().await.agents.iter().count(), 0);
        assert!(world.faults.state().agents.is_empty());
    });
}

impl World {
    /// Another master takes over the registry.
    pub(in crate::master::tests) async fn succeeded(self) -> World {
        self.network.leave("master");
        self.pass(1).await;
        let heard = [Role::Agent, Role::Framework, Role::Operator];
        let node = self.network.node("master", Role::Master, &heard);
        World::on(self.network, node, Config::default(), self.faults).await
    }

    /// The agent comes to this master, which does not take it in.
    async fn refuses(&self, agent: &mut Member, id: &AgentId) {
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        let refused = register(agent, Some(id.clone()), vec![]).await.unwrap_err();
        let words = "is down for maintenance";
        assert!(refused.to_string().contains(words), "{refused}");
        self.settle().await;
    }
}

/// A framework that waits an hour for its next scheduler.
fn stays(info: &mut FrameworkInfo) {
    info.failover_timeout = Duration::from_secs(3600);
}

/// SPEC 3.6. Its old master may have ended between recording that the machine is down and removing
/// it.
#[test]
fn awaited_agent_on_a_down_machine_is_removed() {
    simulate_world(|first| async move {
        let (mut one, a) = first.agent("host-1").await;
        let (_two, _) = first.agent("host-2").await;
        let (_three, _) = first.agent("host-3").await;
        let (_, f) = first.framework("web", stays).await;
        let one_of_two = "host-3/10.0.0.1";
        let planned = ["host-1", "host-2", one_of_two];
        plan(&first, &planned, STARTS).await.unwrap();
        let clock = first.node.clock().clone();
        let mut registry = FaultyRegistry::new(first.faults.clone(), clock);
        let machines = machines(&["host-1", one_of_two]);
        let recorded = RegistryOperation::StartMaintenance { machines };
        registry.apply(recorded).await.unwrap();

        let world = first.succeeded().await;
        world.settle().await;
        let awaited = |state: &MasterState| state.agents.recovered().count();
        // S2 may be on another machine of that host name.
        assert_eq!(awaited(&*world.state().await), 2, "nobody waits for S0");
        assert!(!world.faults.state().agents.contains_key(&a));
        let scheduler = world.member("web-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f);
        subscribe(&scheduler, info).await.unwrap();
        world.refuses(&mut one, &a).await;
        down(&world, &["host-2"]).await.unwrap();
        // Nor for S1.
        scheduler.receives("lost S1");
        assert_eq!(awaited(&*world.state().await), 1);
        let stored = world.faults.state();
        assert_eq!((stored.agents.len(), stored.unreachable.len()), (1, 0));
    });
}

/// SPEC 4.7: Mesos' allocator alone remembers answers, and so forgets them with its master.
#[test]
fn next_master_sends_inverse_offers_again() {
    simulate_world(|first| async move {
        let (mut agent, a) = first.agent("host-1").await;
        let (scheduler, f) = first.framework("web", stays).await;
        plan(&first, &["host-1"], STARTS).await.unwrap();
        first.ask_to_leave(&f, &a).await;
        scheduler.tell(AcceptInverseOffers {
            framework_id: f.clone(),
            inverse_offer_ids: first.inverse_offers().await,
            filters: Default::default(),
        });
        first.settle().await;
        let answers = |state: &MasterState| state.maintenance_status().draining.remove(0).answers;
        assert_eq!(answers(&*first.state().await).len(), 1);

        let world = first.succeeded().await;
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        register(&agent, Some(a.clone()), vec![]).await.unwrap();
        let scheduler = world.member("web-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        subscribe(&scheduler, info).await.unwrap();
        world.settle().await;
        assert_eq!(answers(&*world.state().await), []);
        let told = world.allocator();
        let away = told.iter().filter(|line| **line == "agent S0 away Some(9)");
        assert_eq!(away.count(), 1, "so that it asks who is there: {told:?}");
        world.ask_to_leave(&f, &a).await;
        scheduler.receives("inverse O0 of S0");
    });
}

/// SPEC 3.6.
#[test]
fn unreachable_agent_of_a_down_machine_is_removed_on_return() {
    simulate_world(|world| async move {
        let (mut agent, a) = world.agent("host-1").await;
        let (scheduler, f) = world.framework("web", aware).await;
        world.launch(&scheduler, &f, task("t", &a, "cpus:1")).await;
        scheduler.received();
        plan(&world, &["host-1"], STARTS).await.unwrap();
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        down(&world, &["host-1"]).await.unwrap();
        let unreachable = "t TASK_UNREACHABLE REASON_SLAVE_REMOVED";
        assert!(scheduler.received().contains(&unreachable.to_owned()));
        assert!(world.faults.state().unreachable.contains_key(&a));

        // Another agent with its id does not end it.
        let (other, b) = world.agent("host-2").await;
        let taken = register(&agent, Some(b.clone()), vec![]).await;
        assert!(taken.is_err());
        world.settle().await;
        assert!(world.state().await.agents.get(&b).is_some());
        other.receives("");

        world.refuses(&mut agent, &a).await;
        let over = "t TASK_LOST REASON_SLAVE_REMOVED";
        assert_eq!(
            scheduler.received(),
            [over],
            "that it is lost all have heard"
        );
        assert!(world.faults.state().unreachable.is_empty());
        // Else it would come back with a task that was called gone.
        up(&world, &["host-1"]).await.unwrap();
        let refused = register(&agent, Some(a.clone()), vec![]).await.unwrap_err();
        assert!(refused.to_string().contains("gone"), "{refused}");
        assert_eq!(world.state().await.agents.standing(&a), Standing::Gone);
        assert!(
            world.faults.state().gone.contains_key(&a),
            "nor may a later master"
        );
    });
}
