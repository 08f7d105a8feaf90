//! Visibility of the state for limited viewers.

use protocol::message::operator::{ExplainOffers, KillByOperator, OperatorError};
use protocol::view::explain::{
    Example, Explanation, NoOfferReason, ReasonCount, ResourceHolder, RoleExplanation,
};
use protocol::{CommandInfo, TaskInfo, TaskState};
use runtime::Timestamp;
use testkit::assert_matches;

use super::*;
use crate::api::view;
use crate::config::Config;
use crate::frameworks::Framework;
use crate::permission::Caller;
use crate::state::effects::Effects;

fn framework(state: &mut MasterState, id: &str, user: &str) {
    let id: FrameworkId = id.parse().unwrap();
    let mut info = FrameworkInfo::new(user, id.as_str());
    info.id = Some(id.clone());
    info.roles = [format!("role-of-{user}")].into();
    state.frameworks.insert(Framework {
        id,
        info,
        scheduler: None,
        session: 0,
        registered: Timestamp::from_nanos(1),
        reregistered: None,
        unregistered: None,
        wants: Default::default(),
        recovered: false,
    });
}

fn task(state: &mut MasterState, framework: &str, id: &str, user: Option<&str>) {
    let command = CommandInfo {
        user: user.map(str::to_owned),
        ..CommandInfo::shell("true")
    };
    let info = TaskInfo {
        name: String::new(),
        ..TaskInfo::new(
            id.parse().unwrap(),
            "agent".parse().unwrap(),
            "cpus:1".parse().unwrap(),
        )
        .with_command(command)
    };
    let resources = info.resources.clone();
    let task = Task::placed(
        framework.parse().unwrap(),
        &info,
        resources,
        TaskState::Running,
    );
    state.tasks.insert(task, None);
}

/// Frameworks of alice and bob, of which alice's has a task of hers and one of carol's; carol's own
/// has ended.
fn state() -> Arc<MasterState> {
    let master = testkit::values::master();
    let config = Config {
        weights: [("role-of-alice".to_owned(), 2.0), ("x".to_owned(), 3.0)].into(),
        ..Config::default()
    };
    let mut state = MasterState::new(master, &config, Timestamp::from_nanos(1));
    state.quotas = Arc::new([("role-of-bob".to_owned(), Default::default())].into());
    for user in ["alice", "bob", "carol"] {
        framework(&mut state, &format!("of-{user}"), user);
    }
    task(&mut state, "of-alice", "a1", None);
    task(&mut state, "of-alice", "a2", Some("carol"));
    task(&mut state, "of-bob", "b1", None);
    task(&mut state, "of-carol", "c1", None);
    let carol: FrameworkId = "of-carol".parse().unwrap();
    let (tasks, ..) = state.tasks.remove_framework(&carol, |_| {});
    state
        .frameworks
        .complete(&carol, tasks, Timestamp::from_nanos(2));
    Arc::new(state)
}

/// Visible frameworks, ended ones, and their tasks.
fn seen(acls: &str, principal: &str) -> String {
    let acls = Acls::parse(acls).unwrap();
    let seen = Visibility::of(&acls, &Subject::named(principal)).filter(&state());
    let view = view::cluster(&seen);
    let all = view.frameworks.iter().chain(&view.completed_frameworks);
    let words = all.map(|framework| {
        let tasks = framework.tasks.iter().chain(&framework.completed_tasks);
        let tasks: Vec<&str> = tasks.map(|task| task.id.as_str()).collect();
        format!("{} {}", framework.info.user, tasks.join(" "))
    });
    words.collect::<Vec<_>>().join("; ").replace(" ;", ";")
}

/// SPEC 3.7.
#[test]
fn frameworks_and_tasks_are_visible_by_user() {
    assert_eq!(seen("{}", "p"), "alice a1 a2; bob b1; carol c1");
    let only = |action: &str, users: &str| {
        let rest = r#"{"principals":{"type":"NONE"},"users":{"type":"ANY"}}"#;
        format!(
            r#"{{"{action}":[{{"principals":{{"values":["p"]}},"users":{{"values":[{users}]}}}},{rest}]}}"#
        )
    };
    let of_alice = only("view_frameworks", r#""alice""#);
    assert_eq!(seen(&of_alice, "p"), "alice a1 a2");
    assert_eq!(seen(&of_alice, "q"), "");
    let of_carol = only("view_tasks", r#""carol""#);
    assert_eq!(seen(&of_carol, "p"), "alice a2; bob; carol c1");
    assert_eq!(seen(&of_carol, "q"), "alice; bob; carol ");
    assert_eq!(seen(r#"{"permissive":false}"#, "p"), "");
}

/// SPEC 3.7.
#[test]
fn roles_and_quotas_have_separate_visibility() {
    let of = |acls: &str| {
        let visibility = Visibility::of(&Acls::parse(acls).unwrap(), &Subject::named("p"));
        let seen = visibility.filter(&state());
        let roles: Vec<String> = view::roles(&seen)
            .into_iter()
            .map(|role| role.name)
            .collect();
        let weights: Vec<String> = seen.weights.keys().cloned().collect();
        (roles.join(" "), weights.join(" "), seen.quotas.len())
    };
    let all = "* role-of-alice role-of-bob x".to_owned();
    assert_eq!(of("{}"), (all.clone(), "role-of-alice x".to_owned(), 1));
    let one = r#"{"view_roles":[{"principals":{"type":"ANY"},"roles":{"values":["x"]}},
        {"principals":{"type":"ANY"},"roles":{"type":"NONE"}}]}"#;
    assert_eq!(of(one), ("x".to_owned(), "x".to_owned(), 1));
    let none = r#"{"get_quotas":[{"principals":{"type":"ANY"},"roles":{"type":"NONE"}}]}"#;
    assert_eq!(of(none), (all, "role-of-alice x".to_owned(), 0));
}

/// The amount used on an agent is public, and a wholly visible state is not copied.
#[test]
fn sums_of_agents_stay_whole() {
    let state = state();
    let nobody = Visibility::of(&Acls::default().denying(), &Subject::default());
    let agent = "agent".parse().unwrap();
    let held = |state: &MasterState| state.tasks.on_agent(&agent).unwrap().held().clone();
    assert_eq!(held(&nobody.filter(&state)), held(&state));
    let all = Visibility::of(&Acls::default(), &Subject::default());
    assert!(Arc::ptr_eq(&all.filter(&state), &state));
}

/// The visibility with only this rule.
fn only(action: &str, object: &str, name: &str) -> Visibility {
    let acls = format!(
        r#"{{"{action}":[{{"principals":{{"type":"ANY"}},"{object}":{{"values":["{name}"]}}}},
            {{"principals":{{"type":"ANY"}},"{object}":{{"type":"NONE"}}}}]}}"#
    );
    Visibility::of(&Acls::parse(&acls).unwrap(), &Subject::named("p"))
}

/// SPEC 3.7.
#[test]
fn explanation_names_only_visible_frameworks_and_roles() {
    let state = state();
    let ask = |framework: &str, visibility: Option<&Visibility>| {
        let question = ExplainOffers {
            framework: framework.to_owned(),
            role: None,
            agent: None,
        };
        state.explainable(&question, visibility).is_ok()
    };
    let of_alice = only("view_frameworks", "users", "alice");
    assert!(ask("of-alice", Some(&of_alice)) && !ask("of-bob", Some(&of_alice)));
    assert!(ask("of-bob", None));

    let holder = |user: &str| ResourceHolder {
        framework_id: format!("of-{user}").parse().unwrap(),
        role: format!("role-of-{user}"),
        held: Default::default(),
        share: 0.0,
        against: 0.0,
    };
    let roles = || vec!["role-of-alice".to_owned(), "role-of-bob".to_owned()];
    let reasons = [
        NoOfferReason::WentFirst {
            free: Default::default(),
            holders: vec![holder("alice"), holder("bob")],
            more: 1,
        },
        NoOfferReason::Reserved { roles: roles() },
        NoOfferReason::QuotaLimit {
            role: "role-of-bob".to_owned(),
            left: "cpus:77".parse().unwrap(),
        },
        NoOfferReason::Headroom {
            roles: roles(),
            required: "cpus:88".parse().unwrap(),
            free: "cpus:99".parse().unwrap(),
        },
        NoOfferReason::RoomMade {
            role: "role-of-bob".to_owned(),
        },
    ];
    let tally = |reason| ReasonCount {
        revocable: false,
        agents: 1,
        examples: vec![Example {
            agent_id: "agent".parse().unwrap(),
            hostname: "host".to_owned(),
            reason,
        }],
    };
    let role = |role: String| RoleExplanation {
        role,
        share: 0.0,
        role_share: 0.0,
        standing: Vec::new(),
        agents: 1,
        reasons: reasons.clone().map(tally).into(),
        untold: 0,
    };
    let explanation = Explanation {
        framework_id: "of-alice".parse().unwrap(),
        roles: roles().into_iter().map(role).collect(),
    };
    let told = |visibility: Option<&Visibility>| {
        let explained = state.explained(explanation.clone(), visibility);
        serde_json::to_string(&crate::api::v0::explain::value(&explained)).unwrap()
    };
    assert!(told(None).contains("\"of-bob"));
    let by_users = told(Some(&of_alice));
    assert!(!by_users.contains("\"of-bob"), "{by_users}");
    assert!(by_users.contains("\"more\":2"), "{by_users}");
    let by_roles = told(Some(&only("view_roles", "roles", "role-of-alice")));
    assert!(!by_roles.contains("of-bob"), "{by_roles}");
    assert!(by_roles.contains("role (not shown)"), "{by_roles}");

    // Figures of quotas are for viewers who may see the quotas of all their roles.
    let figures = ["77", "88", "99", "quota_limit", "headroom"];
    let tells = |text: &str| figures.map(|figure| text.contains(figure));
    assert_eq!(tells(&told(None)), [true; 5]);
    for (who, tells_left, tells_kept) in [("alice", false, false), ("bob", true, false)] {
        let by_quotas = told(Some(&only(
            "get_quotas",
            "roles",
            &format!("role-of-{who}"),
        )));
        let expected = [tells_left, tells_kept, tells_kept, tells_left, tells_kept];
        assert_eq!(tells(&by_quotas), expected, "{by_quotas}");
        let untold = u64::from(!tells_left) + u64::from(!tells_kept);
        let untold = format!("\"untold_agents\":{untold}");
        assert!(by_quotas.contains(&untold), "{by_quotas}");
    }
}

/// SPEC 3.7: a task that is not seen is none.
#[test]
fn kill_error_names_only_visible_frameworks() {
    let mut state = MasterState::clone(&state());
    task(&mut state, "of-bob", "a1", None);
    let kill = |state: &mut MasterState, acls: &str| {
        let call = KillByOperator {
            framework_id: None,
            task_id: "a1".parse().unwrap(),
        };
        let caller = Caller::new(&Arc::new(Acls::parse(acls).unwrap()), Subject::named("p"));
        let mut out = Effects::default();
        state.kill_by_operator(call, Some(&caller), Timestamp::from_nanos(3), &mut out)
    };
    let all = kill(&mut state, "{}");
    assert_matches!(all, Err(OperatorError::Ambiguous { .. }));
    let only = |users: &str| {
        let none = r#"{"principals":{"type":"ANY"},"users":{"type":"NONE"}}"#;
        format!(
            r#"{{"view_frameworks":[{{"principals":{{"type":"ANY"}},"users":{users}}},{none}]}}"#
        )
    };
    let of_alice = kill(&mut state, &only(r#"{"values":["alice"]}"#));
    assert_eq!(of_alice.unwrap().as_str(), "of-alice");
    let none = kill(&mut state, &only(r#"{"values":["x"]}"#));
    assert_matches!(none, Err(OperatorError::NotFound { .. }));
}
