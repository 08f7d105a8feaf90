//! Explanations: each reason with its text, and agreement with the grants of runs.

mod agreement;
mod capabilities;
mod moment;
mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{
    AgentActivity, AgentAdded, AgentOversubscribed, Explain, FrameworkActivity, Granted,
    OfferBudgetSpent, QuotasChanged, Recovered, Suppressed, WhitelistChanged,
};
use module_api::sorter::{Advice, Pool, Stage};
use module_api::{AllocatorRef, ModuleError};
use modules::allocator::{AllocatorState, Shares, Survey};
use proptest::prelude::*;
use protocol::offers::wants::{Constraint, Demand, Predicate, Selector};
use protocol::view::explain::{Explanation, NoOfferReason};
use protocol::{Capability, Quota};
use resources::{Quantities, Role};
use runtime::Instant;
use runtime::prelude::{Actor, Context, Handler, Process, RemoteHandlers};
use runtime::testing::simulate;

use crate::cluster::{Cluster, added, agent, framework, lent, simulate_cluster, subscribed};

/// The remaining pause, if there is one.
const PAUSE: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Scene {
    state: AllocatorState,
    now: Instant,
}

impl Scene {
    fn agents(agents: &[(&str, &str)]) -> Self {
        let mut scene = Self::default();
        for (name, total) in agents {
            scene.state.agent_added(added(name, total, vec![]));
        }
        scene
    }

    fn framework(&mut self, name: &str, roles: &str, capabilities: &[Capability]) {
        let added = subscribed(name, roles, capabilities);
        self.state.framework_added(added);
    }

    fn demanding(&mut self, name: &str, role: &str, demand: Demand) {
        let mut added = subscribed(name, role, &[]);
        added.wants.demands.insert(role.to_owned(), demand);
        self.state.framework_added(added);
    }

    fn quota(&mut self, role: &str, guarantees: &str, limits: &str) {
        let quotas = BTreeMap::from([(role.to_owned(), quota(guarantees, limits))]);
        self.state.quotas_changed(&QuotasChanged { quotas });
    }

    fn whitelist(&mut self, hosts: Option<impl Iterator<Item = String>>) {
        let hosts = hosts.map(Iterator::collect);
        self.state.whitelist_changed(&WhitelistChanged { hosts });
    }

    /// Grants as much as possible of an agent.
    fn grant(&mut self, stage: Stage, name: &str, role: &str, on: &str) -> Option<String> {
        let client = self.client(name, role)?;
        let slot = self.state.slot_of(&agent(on))?;
        let barred = BTreeSet::new();
        let (_, asked) = self.state.slate(stage, &[slot], &barred, self.now)?;
        let advice = [Advice { room: 0, client }];
        let booked = self.state.book(asked, &advice, self.now);
        let (_, grant) = booked.grants.into_iter().next()?;
        Some(grant.resources.unallocate().to_string())
    }

    fn fair(&mut self, name: &str, role: &str, on: &str) {
        let granted = self.grant(Stage::Fair, name, role, on);
        assert!(granted.is_some(), "{name} {role} {on}");
    }

    /// Declines a grant.
    fn decline(&mut self, name: &str, role: &str, on: &str, text: &str, seconds: u64) {
        let role = Role::new(role).unwrap();
        let resources: resources::Resources = text.parse().unwrap();
        let recovered = Recovered {
            framework_id: framework(name),
            agent_id: agent(on),
            resources: resources.allocate(&role),
            refuse: Some(Duration::from_secs(seconds)),
            beside_offer: false,
        };
        self.state.recovered(&recovered, self.now);
    }

    fn client(&self, name: &str, role: &str) -> Option<u32> {
        let role = Role::new(role).unwrap();
        self.state.clients.find(&framework(name), &role)
    }

    fn explained(&self, name: &str, role: Option<&str>, on: Option<&str>) -> Explanation {
        let question = Explain {
            framework_id: framework(name),
            role: role.map(str::to_owned),
            agent_id: on.map(agent),
        };
        let mut state = self.state.clone();
        let mut survey = Survey::begin(&state, &question, PAUSE, self.now).unwrap();
        // One agent at a time, to test the boundaries between parts.
        while !survey.advance(&mut state, 1).unwrap() {}
        survey.finish()
    }

    /// `everywhere: text`, and for each reason `agents title: detail of the first example`.
    fn lines(&self, name: &str, role: &str, on: Option<&str>) -> Vec<String> {
        let explanation = self.explained(name, Some(role), on);
        let [told] = explanation.roles.as_slice() else {
            panic!("{explanation:?}");
        };
        let standing = told.standing.iter();
        let standing = standing.map(|standing| format!("everywhere: {standing}"));
        let reasons = told.reasons.iter().map(|tally| {
            let reason = &tally.examples[0].reason;
            let lent = if tally.revocable { " lent" } else { "" };
            let line = format!("{}{lent} {}: {reason}", tally.agents, reason.title());
            line.trim_end_matches(": ").to_owned()
        });
        standing.chain(reasons).collect()
    }

    #[track_caller]
    fn says(&self, name: &str, role: &str, expected: &[&str]) {
        assert_eq!(self.lines(name, role, None), expected);
    }
}

fn quota(guarantees: &str, limits: &str) -> Quota {
    Quota {
        guarantees: Quantities::parse(guarantees).unwrap(),
        limits: Quantities::parse(limits).unwrap(),
    }
}

fn rack_is(text: &str) -> Vec<Constraint> {
    vec![Constraint {
        selector: Selector::Attribute("rack".to_owned()),
        predicate: Predicate::TextEquals(text.to_owned()),
    }]
}

const OPEN: &str = "1 no obstacle: the next allocation run offers it";

#[test]
fn explanation_names_the_frameworks_own_state() {
    let mut scene = Scene::agents(&[("a1", "cpus:1;mem:64"), ("a2", "cpus:1;mem:64")]);
    scene.framework("f", "r", &[]);
    let open = OPEN.replacen('1', "2", 1);
    scene.says("f", "r", &[&open]);
    scene.state.suppressed(&Suppressed {
        framework_id: framework("f"),
        roles: BTreeSet::new(),
    });
    scene.state.framework_activity(&FrameworkActivity {
        framework_id: framework("f"),
        active: false,
    });
    scene.state.agent_activity(&AgentActivity {
        agent_id: agent("a1"),
        active: false,
    });
    scene.says(
        "f",
        "r",
        &[
            "everywhere: the framework is not connected",
            "everywhere: the framework suppressed offers in this role",
            "1 the agent is not connected",
            OPEN,
        ],
    );
}

/// W8, W26: filters stay, and resources that were not refused are offered again.
// Covers W8.
#[test]
fn explanation_names_the_offer_limit() {
    let mut scene = Scene::agents(&[("a1", "cpus:1;mem:64"), ("a2", "cpus:1;mem:64")]);
    scene.framework("f", "r,q", &[]);
    scene.framework("g", "r", &[]);
    scene.fair("f", "r", "a1");
    scene.decline("f", "r", "a1", "cpus:1;mem:64", 100);
    let filtered =
        "1 the framework declined it recently: cpus:1;mem:64 is filtered for another 100.0 s";
    scene.says("f", "r", &[filtered, OPEN]);
    let spent = |most| OfferBudgetSpent {
        framework_id: framework("f"),
        most,
    };
    scene.state.offer_budget_spent(&spent(Some(7)));
    let everywhere = "everywhere: limit of 7 unanswered offers reached; new offers once half of them are answered";
    scene.says("f", "r", &[everywhere, filtered, OPEN]);
    // An update of the framework is not an answer to its offers.
    scene.framework("f", "r,q", &[]);
    scene.says("f", "q", &[everywhere, &OPEN.replacen('1', "2", 1)]);
    assert_eq!(scene.grant(Stage::Fair, "f", "r", "a2"), None);
    scene.fair("g", "r", "a2");
    scene.decline("g", "r", "a2", "cpus:1;mem:64", 100);
    scene.state.offer_budget_spent(&spent(None));
    scene.says("f", "r", &[filtered, OPEN]);
    assert_eq!(scene.grant(Stage::Fair, "f", "r", "a1"), None, "its filter");
    scene.fair("f", "r", "a2");
}

#[test]
fn explanation_names_a_filter_with_its_end() {
    let mut scene = Scene::agents(&[("a1", "cpus:2;mem:64")]);
    scene.framework("f", "r", &[]);
    scene.fair("f", "r", "a1");
    scene.decline("f", "r", "a1", "cpus:2;mem:64", 5);
    scene.now = scene.now + Duration::from_millis(800);
    let filtered =
        "1 the framework declined it recently: cpus:2;mem:64 is filtered for another 4.2 s";
    scene.says("f", "r", &[filtered]);
    scene.now = scene.now + Duration::from_secs(5);
    scene.says("f", "r", &[OPEN]);
}

#[test]
fn explanation_names_holders_with_shares() {
    let mut scene = Scene::agents(&[("a1", "cpus:2;mem:64"), ("a2", "cpus:6;mem:192")]);
    scene.framework("rich", "eng/web", &[]);
    scene.framework("poor", "ops", &[]);
    scene.fair("rich", "eng/web", "a2");
    scene.fair("poor", "ops", "a1");
    let first = "the resources went to other clients: free: nothing; poor in role ops holds cpus:2;mem:64 (share 0.250 against 0.750)";
    scene.says(
        "rich",
        "eng/web",
        &[
            &format!("1 {first}"),
            "1 already offered to the framework or in use by it: holds cpus:6;mem:192",
        ],
    );
    let explained = scene.explained("rich", None, None);
    let role = &explained.roles[0];
    assert_eq!((role.share, role.role_share), (0.75, 0.75));
}

#[test]
fn frameworks_of_one_role_are_compared_directly() {
    let mut scene = Scene::agents(&[("a1", "cpus:3;mem:64"), ("a2", "cpus:1;mem:64")]);
    scene.framework("one", "r", &[]);
    scene.framework("other", "r", &[]);
    scene.fair("one", "r", "a1");
    scene.fair("other", "r", "a2");
    let lines = scene.lines("one", "r", Some("a2"));
    assert_eq!(
        lines,
        [
            "1 the resources went to other clients: free: nothing; other in role r holds cpus:1;mem:64 (share 0.500 against 0.750)"
        ]
    );
}

#[test]
fn explanation_names_missing_capabilities() {
    let mut scene = Scene::default();
    let mut begin = added("gpus", "cpus:1;mem:64;gpus:1", vec![]);
    begin.info.hostname = "g".to_owned();
    scene.state.agent_added(begin);
    scene.framework("f", "r", &[]);
    let gpus = "1 the agent has GPUs; the framework lacks GPU_RESOURCES";
    scene.says("f", "r", &[gpus]);
    scene.state.agent_oversubscribed(AgentOversubscribed {
        agent_id: agent("gpus"),
        total: lent("cpus:1"),
    });
    let revocable =
        "1 lent its lent resources are revocable; the framework lacks REVOCABLE_RESOURCES";
    let lent_gpus = gpus.replacen("1 ", "1 lent ", 1);
    scene.says("f", "r", &[gpus, &lent_gpus]);
    assert_eq!(
        scene.lines("f", "r", Some("gpus")),
        [gpus, &lent_gpus, revocable],
        "of one agent all of them"
    );
    let can = [Capability::GpuResources, Capability::RevocableResources];
    scene.framework("f", "r", &can);
    scene.says("f", "r", &[OPEN, &OPEN.replacen("1 ", "1 lent ", 1)]);
}

#[test]
fn explanation_names_the_whitelist() {
    let mut scene = Scene::agents(&[("a1", "cpus:1;mem:64"), ("a2", "cpus:1;mem:64")]);
    scene.framework("f", "r", &[]);
    scene.whitelist(Some(["A1.example".to_owned()].into_iter()));
    scene.says(
        "f",
        "r",
        &[OPEN, "1 its host is not on the masters' whitelist"],
    );
}

#[test]
fn explanation_names_failed_constraints() {
    let mut scene = Scene::default();
    for (name, rack) in [("a1", "r1"), ("a2", "r2"), ("a3", "r3")] {
        let mut added = added(name, "cpus:1;mem:64", vec![]);
        added.info.attributes = format!("rack:{rack}").parse().unwrap();
        scene.state.agent_added(added);
    }
    let demand = Demand {
        agents: vec![rack_is("r1")],
        ..Demand::default()
    };
    scene.demanding("f", "r", demand);
    let unmet = "the framework's constraint does not hold: attribute rack is `r1`";
    let detail = "attribute rack is `r1`; the agent has `r2`";
    scene.says("f", "r", &[&format!("2 {unmet}: {detail}"), OPEN]);
}

#[test]
fn reservations_and_small_agents_are_distinct_reasons() {
    let mut scene = Scene::agents(&[
        ("a1", "cpus(ads):4;mem(ads):64"),
        ("a2", "mem:16"),
        ("a3", "cpus(ads):4;mem(b):64;mem:8"),
    ]);
    scene.framework("f", "r", &[]);
    let small = "below the minimum of an offer: there is mem:16, expected cpus:0.01 or mem:32";
    scene.says(
        "f",
        "r",
        &[
            "1 it is reserved for role ads",
            &format!("1 {small}"),
            "1 it is reserved for roles ads, b",
        ],
    );
    assert_eq!(
        scene.lines("f", "r", Some("a3")),
        [
            "1 it is reserved for roles ads, b",
            &format!("1 {}", small.replace("mem:16", "mem:8"))
        ]
    );
    scene.framework("child", "ads/x", &[]);
    assert_eq!(scene.lines("child", "ads/x", Some("a1")), [OPEN]);
}

/// W9: a framework's own minimum replaces the common one.
#[test]
fn explanation_names_the_frameworks_minimum() {
    let mut scene = Scene::agents(&[("a1", "cpus:2;mem:64"), ("a2", "cpus:4;mem:64")]);
    let needs = |text: &str| Quantities::parse(text).unwrap();
    let shape = Demand::shaped(needs("cpus:3;mem:32"), needs("cpus:3;mem:32"));
    scene.demanding("f", "r", shape);
    let small = "below the minimum of an offer: there is cpus:2;mem:32, expected cpus:3;mem:32";
    scene.says("f", "r", &[&format!("1 {small}"), OPEN]);
    scene.fair("f", "r", "a2");
    let own = "1 already offered to the framework or in use by it: holds cpus:3;mem:32";
    assert_eq!(scene.lines("f", "r", Some("a2")), [own]);
}

#[test]
fn explanation_names_the_limit_of_an_ancestor() {
    let mut scene = Scene::agents(&[("a1", "cpus:2;mem:64"), ("a2", "cpus:4;mem:64")]);
    scene.framework("f", "eng/web", &[]);
    scene.quota("eng", "", "cpus:2;mem:64");
    scene.quota("eng/web", "", "disk:5");
    scene.fair("f", "eng/web", "a1");
    assert_eq!(
        scene.lines("f", "eng/web", Some("a2")),
        ["1 the quota limit of role eng leaves too little: left: cpus:0;mem:0"]
    );
    scene.quota("eng", "", "cpus:3");
    assert_eq!(scene.lines("f", "eng/web", Some("a2")), [OPEN]);
}

#[test]
fn explanation_names_the_guarantee() {
    let mut scene = Scene::agents(&[("a1", "cpus:2;mem:64")]);
    scene.framework("f", "ops", &[]);
    scene.quota("eng", "cpus:2;mem:64", "");
    scene.says(
        "f",
        "ops",
        &[
            "1 kept free for the guarantee of eng: free in the cluster: cpus:2;mem:64; needed: cpus:2;mem:64",
        ],
    );
    scene.framework("sure", "eng", &[]);
    scene.says("sure", "eng", &[OPEN]);
}

/// Neither quota alone keeps everything back, but both together do.
#[test]
fn explanation_names_combined_quotas() {
    let mut scene = Scene::agents(&[("a1", "cpus:2;mem:64")]);
    scene.framework("f", "ops", &[]);
    scene.quota("eng", "cpus:2", "");
    scene.quota("ops", "", "mem:0");
    assert_eq!(
        scene.lines("f", "ops", Some("a1")),
        [
            "1 the quota limit of role ops leaves too little: left: mem:0",
            "1 kept free for the guarantee of eng: free in the cluster: cpus:2;mem:64; needed: cpus:2",
        ]
    );
}

/// Resources that a limit keeps for a child's guarantee appear in no single budget.
#[test]
fn explanation_names_room_kept_for_a_child() {
    let mut scene = Scene::agents(&[("a1", "cpus:2;mem:64"), ("a2", "cpus:20;mem:640")]);
    scene.framework("f", "eng", &[]);
    scene.quota("eng", "", "cpus:2;mem:64");
    scene.quota("eng/web", "cpus:2;mem:64", "cpus:2;mem:64");
    let lines = scene.lines("f", "eng", Some("a1"));
    assert!(
        lines
            .iter()
            .any(|line| line.contains("the quota limit of role eng")),
        "{lines:?}"
    );
}

// Covers W26.
#[test]
fn explanation_is_bounded_and_counts_the_rest() {
    let mut scene = Scene::default();
    let zone = |n: usize| added(&format!("a{n}"), &format!("cpus(r{n}):1"), vec![]);
    (0..100).for_each(|n| scene.state.agent_added(zone(n)));
    scene.framework("f", "none", &[]);
    let explained = scene.explained("f", None, None);
    let role = &explained.roles[0];
    let counted: u64 = role.reasons.iter().map(|tally| tally.agents).sum();
    assert_eq!((role.agents, counted, role.untold), (100, 40, 60));
    let agents = ["cpus:1;mem:1"; 9];
    let names: Vec<String> = (0..9).map(|n| format!("a{n}")).collect();
    let mut scene = Scene::default();
    for (name, total) in names.iter().zip(agents) {
        scene.state.agent_added(added(name, total, vec![]));
    }
    scene.framework("f", "r", &[]);
    let explained = scene.explained("f", None, None);
    let tally = &explained.roles[0].reasons[0];
    assert_eq!((tally.agents, tally.examples.len()), (9, 3));
}

#[test]
fn unknown_names_are_errors() {
    let mut scene = Scene::agents(&[("a1", "cpus:1")]);
    scene.framework("f", "b,a", &[]);
    let refused = |name: &str, role: Option<&str>, on: Option<&str>| {
        let question = Explain {
            framework_id: framework(name),
            role: role.map(str::to_owned),
            agent_id: on.map(agent),
        };
        let refused = Survey::begin(&scene.state, &question, PAUSE, scene.now);
        refused.err().unwrap().to_string()
    };
    let framework = refused("g", None, None);
    assert_eq!(
        framework,
        "the allocator knows no framework `g` that has a role"
    );
    let role = refused("f", Some("c"), None);
    assert_eq!(role, "role is `c`: expected one of the framework's, a, b");
    assert_eq!(
        refused("f", None, Some("a2")),
        "the allocator knows no agent `a2`"
    );
}

/// Through the interface, during the pause after a failover.
#[test]
fn paused_allocator_explains() {
    simulate(|node| async move {
        let cluster = Cluster::new(&node, &[]);
        let quotas = BTreeMap::from([("a".to_owned(), quota("", "cpus:1"))]);
        cluster.begin_with(quotas, 10);
        cluster.framework("f", "r", &[]);
        for n in 0..3 {
            cluster.agent(&format!("a{n}"), "cpus:1;mem:64");
        }
        cluster.wait(Duration::from_secs(60)).await;
        let question = Explain {
            framework_id: framework("f"),
            role: None,
            agent_id: None,
        };
        let answer = cluster.allocator.explain(question.clone()).await.unwrap();
        let standing = &answer.roles[0].standing;
        assert_eq!(
            standing[0].to_string(),
            "after a failover, no offers until 8 agents have reregistered (3 have) or for another 540.0 s"
        );
        assert_eq!(
            answer.roles[0].reasons[0].examples[0].reason,
            NoOfferReason::Open
        );

        let mute = node.spawn("mute", Mute).unwrap().refer();
        let refused = AllocatorRef::new(mute).explain(question).await.unwrap_err();
        assert!(matches!(refused, ModuleError::Fault { .. }), "{refused:?}");
        assert!(
            refused
                .to_string()
                .contains("does not support explanations")
        );
    });
}

/// An allocator without support for explanations.
struct Mute;

impl Actor for Mute {
    type Context = Context<Self>;
}

impl Process for Mute {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<Granted>();
    }
}

impl Handler<Granted> for Mute {
    type Result = ();
    fn handle(&mut self, _: Granted, _: &mut Context<Self>) {}
}
