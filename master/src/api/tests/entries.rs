//! Entries of agents and frameworks: present and absent keys (SPEC 3.12).

use protocol::agent::Drain;
use protocol::{AgentOrders, Demand};
use resources::Revocable;

use super::*;
use crate::agents::Agent;
use crate::api::pages::entries::{AgentEntry, FrameworkEntry};
use crate::frameworks::Framework;
use crate::leadership::mirror::tests::properties::{happen, state};

/// The state page of this state.
fn state_page(state: &MasterState) -> Value {
    everything(state, &PublishedFlags::default())[0].take()
}

/// Each value of these keys that is a text, wherever it is.
fn texts(value: &Value, keys: &[&str], found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let text = value.as_str().filter(|_| keys.contains(&key.as_str()));
                found.extend(text.map(str::to_owned));
                texts(value, keys, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|one| texts(one, keys, found)),
        _ => {}
    }
}

/// Whether tools of Mesos can read that: `NAME@HOST:PORT`, and nothing else.
fn is_pid(text: &str) -> bool {
    let parts = text.split_once('@').and_then(|(name, place)| {
        let (host, port) = place.rsplit_once(':')?;
        Some((name, host, port))
    });
    parts.is_some_and(|(name, host, port)| {
        let is_plain = |text: &str| !text.is_empty() && !text.contains(['@', '#', '\u{2026}', ' ']);
        is_plain(name) && is_plain(host) && port.parse::<u16>().is_ok()
    })
}

/// SPEC 3.12; Mesos-DNS reads every `pid` of `/state`, and fails at all of it where one is none.
// Covers 3.12 `pid`, `leader`.
#[test]
fn pids_in_pages_are_name_address_and_port() {
    let mut state = state();
    for event in [(0, 0, 0, 1), (0, 1, 0, 1), (0, 2, 0, 1), (6, 0, 0, 1)] {
        happen(&mut state, event, 5);
    }
    assert!(state.frameworks.iter().all(|one| one.is_connected()));
    let pids = |state: &MasterState| {
        let mut pids = Vec::new();
        let pages = everything(state, &PublishedFlags::default());
        texts(&pages, &["pid", "leader"], &mut pids);
        for pid in &pids {
            assert!(is_pid(pid), "{pid}");
        }
        pids.sort();
        pids.dedup();
        pids
    };
    let named = ["master@leader:5050", "slave(1)@host-0:5051"];
    assert_eq!(pids(&state)[..2], named, "what is not known is the name");
    state.master.address = Some([10, 0, 0, 1].into());
    for (id, ip) in [("a0", "10.0.0.7"), ("a1", "fd00::7")] {
        let ip = Some(ip.to_owned());
        let id = id.parse().unwrap();
        state.agents.update(&id, |agent| agent.ip = ip);
    }
    let known = [
        "master@10.0.0.1:5050",
        "slave(1)@10.0.0.7:5051",
        "slave(1)@[fd00::7]:5051",
        "slave(1)@host-2:5051",
    ];
    assert_eq!(pids(&state), known);
    let visible = VisibleState::of(&state);
    let said = visible.agents().map(|agent| {
        let seen = operator::objects::DescribeAgent(visible, agent);
        v1::describe::build::<v1::schema::master::ResponseGetAgentsAgent>(&seen).pid
    });
    let said: Vec<String> = said.flatten().collect();
    assert_eq!(said, known[1..], "GET_AGENTS says the same");
    let framework = &state_page(&state)["frameworks"][0];
    assert_eq!(framework.get("pid"), None, "nobody listens at an address");
}

/// SPEC 3.12: `resources` without the reserved ones.
// Covers 3.12 `unreserved_resources`.
#[test]
fn revocable_resources_are_part_of_unreserved_ones() {
    let mut state = state();
    happen(&mut state, (0, 0, 0, 1), 5);
    let lent: Resources = "cpus:2".parse().unwrap();
    let lent = lent.to_revocable(Revocable::Throttleable).unwrap();
    let id = "a0".parse().unwrap();
    state
        .agents
        .update(&id, |agent| agent.oversubscribed = lent);
    let slaves = page(
        &crate::api::v0::state::Slaves(VisibleState::of(&state)),
        None,
    );
    let slaves: Value = serde_json::from_slice(&slaves).unwrap();
    let agent = &slaves["slaves"][0];
    for key in ["resources", "unreserved_resources"] {
        assert_eq!(agent[key]["cpus"], 9.0, "{key}");
        assert_eq!(agent[key]["cpus_revocable"], 2.0, "{key}");
    }
    assert_eq!(agent["reserved_resources"]["ads"]["mem"], 100.0);
    let full = agent["unreserved_resources_full"].as_array().unwrap();
    let revocable = full.iter().filter(|one| one.get("revocable").is_some());
    let amounts: Vec<_> = revocable.map(|one| &one["scalar"]["value"]).collect();
    assert_eq!(amounts, [&json!(2.0)]);
}

/// SPEC 3.12: `framework_ids` name frameworks of the same page.
// Covers 3.12 `/state-summary`.
#[test]
fn summary_omits_tasks_of_ended_frameworks() {
    let mut state = state();
    for event in [(0, 0, 0, 1), (6, 0, 0, 1), (10, 0, 0, 2)] {
        happen(&mut state, event, 5);
    }
    let pages = |state: &MasterState| everything(state, &PublishedFlags::default());
    let counted = |pages: &Value| {
        let agent = pages[1]["slaves"][0].as_object().unwrap();
        let counts = agent.iter().filter(|(key, _)| key.starts_with("TASK_"));
        counts.filter_map(|(_, count)| count.as_u64()).sum::<u64>()
    };
    let before = pages(&state);
    assert_eq!(before[1]["slaves"][0]["framework_ids"], json!(["f0"]));
    assert_eq!(counted(&before), 1);
    happen(&mut state, (9, 0, 0, 0), 6);
    let after = pages(&state);
    assert_eq!(after[1]["frameworks"], json!([]));
    assert_eq!(after[1]["slaves"][0]["framework_ids"], json!([]));
    assert_eq!(counted(&after), 0);
    assert_eq!(after[3]["tasks"].as_array().unwrap().len(), 1);
}

/// SPEC 3.12, keys verbatim: optional keys of agents, frameworks and executors.
// Covers 3.12 Pages of masters.
#[test]
fn optional_entries_have_all_keys() {
    let mut state = state();
    for event in [(5, 0, 0, 1), (0, 0, 0, 4), (6, 0, 0, 1), (21, 0, 0, 4)] {
        happen(&mut state, event, 1_500_000_000);
    }
    let drain = Drain {
        max_grace_period: Some(Duration::from_secs(9)),
        mark_gone: true,
        since: runtime::Timestamp::from_nanos(1_500_000_000),
        drained: false,
    };
    let orders = AgentOrders {
        deactivated: true,
        drain: Some(drain),
    };
    let id = "a0".parse().unwrap();
    state.agents.order(&id, Some(orders));
    let framework = Framework::clone(state.frameworks.iter().next().unwrap());
    let mut wants = framework.wants;
    wants.demands = BTreeMap::from([("*".to_owned(), Demand::on_hosts(["host-0"]))]);
    state
        .frameworks
        .update(&framework.id, &framework.info, &wants);

    let page = state_page(&state);
    let agent = &page["slaves"][0];
    has_keys(
        agent,
        "domain drain_info estimated_drain_start_time_seconds reregistered_time",
    );
    let domain = json!({ "fault_domain": { "region": { "name": "r" }, "zone": { "name": "z" } } });
    assert_eq!(agent["domain"], domain);
    has_keys(&agent["drain_info"], "state config");
    has_keys(&agent["drain_info"]["config"], "max_grace_period mark_gone");
    assert_eq!(agent["drain_info"]["state"], "DRAINING");
    assert_eq!(agent["estimated_drain_start_time_seconds"], 1.5);
    let recovered = &page["recovered_slaves"][0];
    has_keys(recovered, "id hostname port attributes resources");
    assert_eq!(recovered["id"], "a2");
    let framework = &page["frameworks"][0];
    let constraints = &framework["offer_constraints"]["role_constraints"]["*"];
    has_keys(constraints, "groups");
    let executor = &framework["executors"][0];
    has_keys(
        executor,
        "executor_id name framework_id slave_id resources command labels",
    );
    assert_eq!(executor["executor_id"], "e4");
}

/// SPEC 3.12: unknown values have no key, as in Mesos; known ones have.
// Covers 3.12 Pages of masters.
#[test]
fn unknown_values_are_absent_and_never_null() {
    simulate(|node| async move {
        let master = master(&node).await;
        let state = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let visible = VisibleState::of(&state);
        let of_agent = |agent: &Agent| {
            let in_full = true;
            let entry = AgentEntry {
                visible,
                agent,
                in_full,
            };
            serde_json::to_value(entry).unwrap()
        };
        let of_framework = |framework: &Framework| {
            let (tasks, executors) = (visible.tasks(&framework.id), &[][..]);
            let entry = FrameworkEntry {
                visible,
                framework,
                tasks,
                executors,
            };
            serde_json::from_slice::<Value>(&page(&entry, None)).unwrap()
        };
        let mut agent = Agent::clone(visible.agents().next().unwrap());
        let mut framework = Framework::clone(visible.frameworks().next().unwrap());
        for value in [
            everything(&state, &PublishedFlags::default()),
            of_agent(&agent),
            of_framework(&framework),
        ] {
            assert!(!value.to_string().contains("null"), "{value}");
        }
        assert_eq!(of_agent(&agent).get("reregistered_time"), None);
        for key in ["principal", "reregistered_time"] {
            assert_eq!(of_framework(&framework).get(key), None, "{key}");
        }
        let later = Some(runtime::Timestamp::from_nanos(1_500_000_000));
        agent.reregistered = later;
        framework.reregistered = later;
        framework.info.principal = Some("alice".to_owned());
        assert_eq!(of_agent(&agent)["reregistered_time"], 1.5);
        let framework = of_framework(&framework);
        assert_eq!(framework["reregistered_time"], 1.5);
        assert_eq!(framework["principal"], "alice");
    });
}
