//! Offers as frameworks get them over the wire: the example of the paper, agents' attributes, weighted shares, and another policy.

use std::collections::BTreeMap;

use protocol::{Demand, Filters, Offer, Operation, TaskState, Wants};
use resources::{AttributeValue, Name, Scalar};

use crate::puppet::{Heard, Puppet, framework, task, text};
use crate::support::{Cluster, eventually};

/// Takes nothing away: what is declined may be offered again at once.
const NO_FILTER: Filters = Filters {
    refuse_seconds: 0.0,
};

/// S111, step by step: the agent reports, framework 1 is offered all of it and launches two tasks, and framework 2 is offered the rest.
// Covers S111.
#[test]
fn two_tasks_of_one_framework_leave_one_cpu_and_one_gigabyte_to_another() {
    let cluster = Cluster::start(1, "cpus:4;mem:4096;disk:0;ports:[]");
    let go = cluster.directory().join("go");
    let until_told = format!("until [ -e {} ]; do sleep 0.1; done", go.display());

    let mut first = Puppet::subscribe(&cluster, framework("first", "*"));
    let offer = first.offer();
    assert_eq!(text(&offer), "cpus:4;mem:4096");
    assert_eq!(offer.framework_id, first.id);

    let tasks = vec![
        task("task-1", &offer, "cpus:2;mem:1024", &until_told),
        task("task-2", &offer, "cpus:1;mem:2048", &until_told),
    ];
    let launched = first.driver.launch(vec![offer.id.clone()], tasks);
    launched.expect("the driver hears");
    for task in ["task-1", "task-2"] {
        let status = first.state(task, TaskState::Running);
        assert_eq!(status.agent_id.as_ref(), Some(&offer.agent_id));
    }

    let mut second = Puppet::subscribe(&cluster, framework("second", "*"));
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
    let mut third = Puppet::subscribe(&cluster, framework("third", "*"));
    assert_eq!(text(&third.offer()), "cpus:4;mem:4096");
}

/// S94, S96: what the documented flag says of an agent comes to frameworks as it was said.
// Covers S94; S96.
#[test]
fn an_offer_has_the_attributes_of_its_agent_as_they_were_given() {
    let cluster = Cluster::master_alone(|_, _| {});
    let given = "rack:rack-2;datacenter:europe;os:ubuntuv14.4";
    let mut command = cluster.agent_command("agent", "cpus:1;mem:64;disk:0;ports:[]");
    let _agent = cluster.agent_of(command.args(["--attributes", given]));
    let mut puppet = Puppet::subscribe(&cluster, framework("web", "*"));
    let offer = puppet.offer();
    let attributes = offer.attributes.iter();
    let said: Vec<_> = attributes.map(|own| (own.name(), own.value())).collect();
    let text = |text: &str| AttributeValue::Text(text.to_owned());
    let (rack, datacenter, os) = (text("rack-2"), text("europe"), text("ubuntuv14.4"));
    let expected = [("rack", &rack), ("datacenter", &datacenter), ("os", &os)];
    assert_eq!(said, expected);
}

/// S77, over the wire: weights dev=2, qa=1, prod=3 share 60 equal slots as 20, 10 and 30, when everybody takes all it can, slot by slot.
// Covers S77.
#[test]
fn sixty_slots_go_by_weight_to_frameworks_that_take_all_they_can() {
    let flags = ["--resources", "cpus:60;mem:60;disk:0;ports:[]"];
    let weights = ["--roles", "dev,qa,prod", "--weights", "dev=2,qa=1,prod=3"];
    let interval = ["--allocation_interval", "100ms"];
    let flags = [&flags[..], &weights[..], &interval[..]].concat();
    let cluster = Cluster::with(1, &flags);

    let mut hoarders: BTreeMap<&str, Puppet> = ["dev", "qa", "prod"]
        .map(|role| (role, Puppet::subscribe(&cluster, framework(role, role))))
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

/// S113, over the wire: what one role leaves is offered to it again and again, and to a lower one only when the higher wants no more. Fair
/// sharing would offer it to the lower one at once, which holds nothing.
// Covers S113.
#[test]
fn by_strict_priority_the_higher_role_is_offered_even_what_it_has_just_left() {
    let flags = ["--resources", "cpus:4;mem:256;disk:0;ports:[]"];
    let sorter = ["--sorter", "strict_priority", "--weights", "high=2,low=1"];
    let interval = ["--allocation_interval", "100ms"];
    let cluster = Cluster::with(1, &[&flags[..], &sorter[..], &interval[..]].concat());

    let mut low = Puppet::subscribe(&cluster, framework("low", "low"));
    let first = low.offer();
    let mut high = Puppet::subscribe(&cluster, framework("high", "high"));
    let declined = low.driver.decline(vec![first.id], NO_FILTER);
    declined.expect("the driver hears");

    for n in 1..=2 {
        let offer = high.offer();
        let slot = task(&format!("slot-{n}"), &offer, "cpus:1;mem:16", "sleep 98722");
        let launch = Operation::Launch { tasks: vec![slot] };
        let accepted = high.driver.accept(vec![offer.id], vec![launch], NO_FILTER);
        accepted.expect("the driver hears");
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

/// W9, over the wire: who says how much it can use is offered no more of an agent, and others get the rest at the same time; what it says
/// counts from its next offer on.
// Covers W9 in part: without moving what runs.
#[test]
fn who_says_what_it_needs_is_offered_that_and_others_the_rest() {
    let flags = ["--resources", "cpus:4;mem:256;disk:0;ports:[31000-31009]"];
    let sorter = ["--sorter", "strict_priority", "--weights", "modest=2"];
    let cluster = Cluster::with(1, &[&flags[..], &sorter[..]].concat());
    let mut modest = Puppet::subscribe(&cluster, framework("modest", "modest"));
    let whole = modest.offer();
    assert_eq!(text(&whole), "cpus:4;mem:256;ports:[31000-31009]");
    let mut greedy = Puppet::subscribe(&cluster, framework("greedy", "greedy"));

    let amounts = |text| resources::Quantities::parse(text).expect("amounts");
    let say = |modest: &mut Puppet, demand: Demand| {
        let wants = Wants {
            demands: BTreeMap::from([("modest".to_owned(), demand)]),
            ..Wants::default()
        };
        let info = framework("modest", "modest");
        modest.driver.update(info, wants).expect("the driver hears");
        modest.hear("the update", |heard| match heard {
            Heard::Updated(outcome) => Some(outcome.clone()),
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
    let declined = modest.driver.decline(vec![whole.id], NO_FILTER);
    declined.expect("the driver hears");
    let piece = modest.offer();
    assert_eq!(text(&piece), "cpus:1;mem:64;ports:[31000-31001]");
    assert_eq!(text(&greedy.offer()), "cpus:3;mem:192;ports:[31002-31009]");

    let needy = Demand::shaped(amounts("cpus:2"), amounts("cpus:2"));
    assert_eq!(say(&mut modest, needy), Ok(()));
    let running = task("task", &piece, "cpus:1;mem:64", "sleep 98723");
    let launched = modest.driver.launch(vec![piece.id], vec![running]);
    launched.expect("the driver hears");
    modest.state("task", TaskState::Running);
    drop(greedy);
    assert_eq!(text(&modest.offer()), "cpus:2;mem:192;ports:[31000-31009]");
}

/// SPEC 3.8, 4.5: `--whitelist`, read again at SIGHUP.
// Covers S99.
#[test]
fn only_hosts_of_the_whitelists_file_are_offered_and_it_is_read_again_when_told() {
    let mut file = std::path::PathBuf::new();
    let cluster = Cluster::master_alone(|command, directory| {
        file = directory.join("whitelist");
        std::fs::write(&file, "# none yet\nelsewhere.example\n").expect("a file");
        command.arg("--whitelist").arg(&file);
    });
    let resources = "cpus:1;mem:64;disk:0;ports:[]";
    let _agent = cluster.agent("agent", resources);
    let mut puppet = Puppet::subscribe(&cluster, framework("web", "a"));
    let explained = || {
        let output = cluster.output(["explain", "web"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let told = explained();
    assert!(
        told.contains("1 agent: its host is not on the masters' whitelist"),
        "{told}"
    );
    assert_eq!(puppet.offer_if_any().map(|offer| text(&offer)), None);
    std::fs::write(&file, "127.0.0.1\n").expect("a file");
    cluster.process.signal("HUP");
    assert_eq!(text(&puppet.offer()), "cpus:1;mem:64");
    let told = explained();
    assert!(
        told.contains("1 agent: already offered to the framework"),
        "{told}"
    );
}

fn amount(offer: &Offer) -> f64 {
    offer.resources.cpus().as_f64()
}
