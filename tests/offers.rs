//! Offers over the wire: the example of the paper, attributes, weighted shares, and strict
//! priority.

use std::collections::BTreeMap;

use protocol::{Demand, Filters, Offer, Operation, TaskState, Wants};
use resources::{AttributeValue, Name, Scalar};
use testkit::assert_contains;

use crate::scripted_framework::{Callback, ScriptedFramework, framework, task, text};
use crate::support::{Cluster, eventually};

/// Sets no filter: declined resources may be offered again at once.
const NO_FILTER: Filters = Filters {
    refuse_seconds: 0.0,
};

/// The agent reports, framework 1 is offered all of it and launches two tasks, and framework 2 is
/// offered the rest.
// Covers S111.
#[test]
fn second_framework_is_offered_the_remaining_resources() {
    let cluster = Cluster::start(1, "cpus:4;mem:4096;disk:0;ports:[]");
    let go = cluster.directory().join("go");
    let until_told = format!("until [ -e {} ]; do sleep 0.1; done", go.display());

    let mut first = ScriptedFramework::subscribe(&cluster, framework("first", "*"));
    let offer = first.offer();
    assert_eq!(text(&offer), "cpus:4;mem:4096");
    assert_eq!(offer.framework_id, first.id);

    let tasks = vec![
        task("task-1", &offer, "cpus:2;mem:1024", &until_told),
        task("task-2", &offer, "cpus:1;mem:2048", &until_told),
    ];
    first.launch(&offer, tasks);
    for task in ["task-1", "task-2"] {
        let status = first.state(task, TaskState::Running);
        assert_eq!(status.agent_id.as_ref(), Some(&offer.agent_id));
    }

    let mut second = ScriptedFramework::subscribe(&cluster, framework("second", "*"));
    let rest = second.offer();
    assert_eq!(text(&rest), "cpus:1;mem:1024");
    assert_eq!(rest.agent_id, offer.agent_id);

    std::fs::write(&go, "").expect("the tasks are told");
    for task in ["task-1", "task-2"] {
        first.state(task, TaskState::Finished);
        let finished = [TaskState::Running, TaskState::Finished];
        let states = first.states(task);
        assert!(states.ends_with(&finished), "{task}: {states:?}");
    }

    drop((first, second));
    eventually("everything to be free", || {
        let agent = cluster.list("agents").remove(0);
        let zero = |key: &str| agent[key]["cpus"].as_f64() == Some(0.0);
        (zero("used_resources") && zero("offered_resources")).then_some(())
    });
    let mut third = ScriptedFramework::subscribe(&cluster, framework("third", "*"));
    assert_eq!(text(&third.offer()), "cpus:4;mem:4096");
}

/// Frameworks get the attributes of the documented flag unchanged.
// Covers S94; S96.
#[test]
fn offers_have_the_agents_attributes() {
    let cluster = Cluster::master_alone(|_, _| {});
    let given = "rack:rack-2;datacenter:europe;os:ubuntuv14.4";
    let mut command = cluster.agent_command("agent", "cpus:1;mem:64;disk:0;ports:[]");
    let _agent = cluster.agent_of(command.args(["--attributes", given]));
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("web", "*"));
    let offer = scripted.offer();
    let attributes = offer.attributes.iter();
    let attributes_shown: Vec<_> = attributes.map(|own| (own.name(), own.value())).collect();
    let text = |text: &str| AttributeValue::Text(text.to_owned());
    let (rack, datacenter, os) = (text("rack-2"), text("europe"), text("ubuntuv14.4"));
    let expected = [("rack", &rack), ("datacenter", &datacenter), ("os", &os)];
    assert_eq!(attributes_shown, expected);
}

/// Weights dev=2, qa=1, prod=3 share 60 equal slots as 20, 10 and 30 when all frameworks take every
/// offer.
// Covers S77.
#[test]
fn sixty_slots_are_shared_by_weight() {
    let flags = ["--resources", "cpus:60;mem:60;disk:0;ports:[]"];
    let weights = ["--roles", "dev,qa,prod", "--weights", "dev=2,qa=1,prod=3"];
    let interval = ["--allocation_interval", "100ms"];
    let flags = [&flags[..], &weights[..], &interval[..]].concat();
    let cluster = Cluster::with(1, &flags);

    let mut hoarders: BTreeMap<&str, ScriptedFramework> = ["dev", "qa", "prod"]
        .map(|role| {
            (
                role,
                ScriptedFramework::subscribe(&cluster, framework(role, role)),
            )
        })
        .into();
    let mut slots: BTreeMap<&str, usize> = BTreeMap::new();
    for number in 1..=60 {
        let (role, offer) = eventually("somebody to be offered the rest", || {
            let mut hoarders = hoarders.iter_mut();
            hoarders.find_map(|(role, hoarder)| Some((*role, hoarder.offer_if_any()?)))
        });
        assert_eq!(amount(&offer), 61.0 - f64::from(number), "all that is left");
        let slot = task(
            &format!("slot-{number}"),
            &offer,
            "cpus:1;mem:1",
            "sleep 98721",
        );
        let launch = Operation::Launch { tasks: vec![slot] };
        let accepted = hoarders[role]
            .driver
            .accept(vec![offer.id], vec![launch], NO_FILTER);
        accepted.expect("the driver hears");
        *slots.entry(role).or_default() += 1;
    }
    assert_eq!(
        slots,
        [("dev", 20), ("qa", 10), ("prod", 30)].into(),
        "{slots:?}"
    );
}

/// Resources that the higher role declines are offered to it again, and to the lower role only
/// after it suppresses. Fair sharing would offer them to the lower role at once.
// Covers S113.
#[test]
fn strict_priority_offers_to_the_higher_role_first() {
    let flags = ["--resources", "cpus:4;mem:256;disk:0;ports:[]"];
    let sorter = ["--sorter", "strict_priority", "--weights", "high=2,low=1"];
    let interval = ["--allocation_interval", "100ms"];
    let cluster = Cluster::with(1, &[&flags[..], &sorter[..], &interval[..]].concat());

    let mut low = ScriptedFramework::subscribe(&cluster, framework("low", "low"));
    let first = low.offer();
    let mut high = ScriptedFramework::subscribe(&cluster, framework("high", "high"));
    low.decline(vec![first.id], NO_FILTER);

    for n in 1..=2 {
        let offer = high.offer();
        let slot = task(&format!("slot-{n}"), &offer, "cpus:1;mem:16", "sleep 98722");
        let launch = Operation::Launch { tasks: vec![slot] };
        high.accept(vec![offer.id], vec![launch], NO_FILTER);
    }
    let rest = high.offer();
    assert_eq!(text(&rest), "cpus:2;mem:224");
    high.driver
        .suppress(Default::default())
        .expect("the driver hears");
    high.driver
        .decline(vec![rest.id], NO_FILTER)
        .expect("the driver hears");
    assert_eq!(text(&low.offer()), "cpus:2;mem:224");
}

/// A framework with a demand is offered no more than that of an agent, and others get the rest at
/// the same time; a new demand applies from the next offer.
// Covers W9 in part: without moving what runs.
#[test]
fn demand_limits_the_offer_and_others_get_the_rest() {
    let flags = ["--resources", "cpus:4;mem:256;disk:0;ports:[31000-31009]"];
    let sorter = ["--sorter", "strict_priority", "--weights", "modest=2"];
    let cluster = Cluster::with(1, &[&flags[..], &sorter[..]].concat());
    let mut modest = ScriptedFramework::subscribe(&cluster, framework("modest", "modest"));
    let whole = modest.offer();
    assert_eq!(text(&whole), "cpus:4;mem:256;ports:[31000-31009]");
    let mut greedy = ScriptedFramework::subscribe(&cluster, framework("greedy", "greedy"));

    let amounts = |text| resources::Quantities::parse(text).expect("amounts");
    let say = |modest: &mut ScriptedFramework, demand: Demand| {
        let wants = Wants {
            demands: BTreeMap::from([("modest".to_owned(), demand)]),
            ..Wants::default()
        };
        let info = framework("modest", "modest");
        modest.driver.update(info, wants).expect("the driver hears");
        modest.wait_for("the update", |callback| match callback {
            Callback::Updated(outcome) => Some(outcome.clone()),
            _ => None,
        })
    };
    let refused = say(
        &mut modest,
        Demand::shaped(amounts("cpus:2"), amounts("cpus:1")),
    );
    let reason = refused.expect_err("two of one is not to be had");
    assert!(reason.contains("demands[modest].least"), "{reason}");
    let mut demand = Demand::shaped(amounts("cpus:1;mem:64"), amounts("cpus:1;mem:64"));
    demand.most.set(Name::Ports, Scalar::whole(2));
    assert_eq!(say(&mut modest, demand), Ok(()));
    modest.decline(vec![whole.id], NO_FILTER);
    let piece = modest.offer();
    assert_eq!(text(&piece), "cpus:1;mem:64;ports:[31000-31001]");
    assert_eq!(text(&greedy.offer()), "cpus:3;mem:192;ports:[31002-31009]");

    let needy = Demand::shaped(amounts("cpus:2"), amounts("cpus:2"));
    assert_eq!(say(&mut modest, needy), Ok(()));
    let running = task("task", &piece, "cpus:1;mem:64", "sleep 98723");
    modest.launch(&piece, vec![running]);
    modest.state("task", TaskState::Running);
    drop(greedy);
    assert_eq!(text(&modest.offer()), "cpus:2;mem:192;ports:[31000-31009]");
}

/// SPEC 3.8, 4.5: `--whitelist`, read again at SIGHUP.
// Covers S99.
#[test]
fn only_whitelisted_hosts_are_offered_and_sighup_rereads() {
    let mut file = std::path::PathBuf::new();
    let cluster = Cluster::master_alone(|command, directory| {
        file = directory.join("whitelist");
        std::fs::write(&file, "# none yet\nelsewhere.example\n").expect("a file");
        command.arg("--whitelist").arg(&file);
    });
    let resources = "cpus:1;mem:64;disk:0;ports:[]";
    let _agent = cluster.agent("agent", resources);
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("web", "a"));
    let explained = || {
        let output = cluster.output(["explain", "web"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let explanation = explained();
    assert_contains!(
        explanation,
        "1 agent: its host is not on the masters' whitelist"
    );
    assert_eq!(scripted.offer_if_any().map(|offer| text(&offer)), None);
    std::fs::write(&file, "127.0.0.1\n").expect("a file");
    cluster.process.signal("HUP");
    assert_eq!(text(&scripted.offer()), "cpus:1;mem:64");
    let explanation = explained();
    assert_contains!(explanation, "1 agent: already offered to the framework");
}

fn amount(offer: &Offer) -> f64 {
    offer.resources.cpus().as_f64()
}
