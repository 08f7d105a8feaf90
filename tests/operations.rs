//! Reservations and volumes by frameworks, on real agents and disks (SPEC 3.5).

use std::path::Path;

use protocol::{
    Filters, Offer, Operation, OperationId, OperationState, OperationStatus, Reason, TaskState,
};
use resources::{
    Annotations, Conversion, DiskInfo, Name, Reservation, Resource, Resources, Scalar,
};

use crate::scripted_framework::{Callback, ScriptedFramework, framework, task};
use crate::support::{Cluster, Running, eventually};

/// Sets no filter: declined resources may be offered again at once.
const NO_FILTER: Filters = Filters {
    refuse_seconds: 0.0,
};

fn parse(text: &str) -> Resources {
    text.parse().expect("resources")
}

fn reserved(text: &str) -> Resources {
    let ads = Reservation::dynamic("ads".parse().expect("a role"), None);
    parse(text).push_reservation(&ads).expect("reserved")
}

/// A volume that appears as `data` in a sandbox.
fn volume(id: &str, megabytes: u32) -> Resource {
    let annotations = Annotations {
        reservations: vec![Reservation::dynamic("ads".parse().expect("a role"), None)],
        disk: Some(Box::new(DiskInfo::persistent(id, None, "data"))),
        ..Annotations::default()
    };
    Resource::annotated(Name::Disk, Scalar::whole(megabytes), annotations).expect("a volume")
}

fn step(id: &str, conversion: Conversion) -> Operation {
    Operation::Convert {
        id: Some(OperationId::new(id).expect("an id")),
        conversion,
    }
}

fn reserve(id: &str, text: &str) -> Operation {
    let resources = reserved(text);
    step(id, Conversion::Reserve { resources })
}

impl ScriptedFramework {
    fn operate(&self, offer: &Offer, operations: Vec<Operation>) {
        self.accept(vec![offer.id.clone()], operations, NO_FILTER);
    }

    /// Waits until an operation has that state.
    fn operation(&mut self, id: &str, state: OperationState) -> OperationStatus {
        let wanted = |callback: &Callback| match callback {
            Callback::Operation(status)
                if status.operation_id.as_str() == id && status.state == state =>
            {
                Some((**status).clone())
            }
            _ => None,
        };
        let past = self.past.iter().find_map(|(_, callback)| wanted(callback));
        past.unwrap_or_else(|| self.wait_for(&format!("{id} as {state}"), wanted))
    }
}

fn has(offer: &Offer) -> Resources {
    offer.resources.unallocate()
}

/// The operation changes the next offer of every framework.
// Covers S91; S92.
#[test]
fn reservation_changes_the_next_offer() {
    let cluster = Cluster::start(1, "cpus:32;mem:65536;disk:0;ports:[]");
    let mut ads = ScriptedFramework::subscribe(&cluster, framework("ads", "ads"));
    let offer = ads.offer();
    assert_eq!(has(&offer), parse("cpus:32;mem:65536"));
    ads.operate(&offer, vec![reserve("first", "cpus:8;mem:4096")]);
    let next = ads.offer();
    let expected = parse("cpus:24;mem:61440") + reserved("cpus:8;mem:4096");
    assert_eq!(has(&next), expected);
    let finished = ads.operation("first", OperationState::Finished);
    assert_eq!(finished.converted, reserved("cpus:8;mem:4096"));
    assert_eq!(finished.agent_id.as_ref(), Some(&next.agent_id));

    // Another role is offered only unreserved resources.
    ads.decline(
        vec![next.id],
        Filters {
            refuse_seconds: 3600.0,
        },
    );
    let mut web = ScriptedFramework::subscribe(&cluster, framework("web", "web"));
    assert_eq!(has(&web.offer()), parse("cpus:24;mem:61440"));
}

/// Each role is offered its own static reservations and unreserved resources.
// Covers S90.
#[test]
fn static_reservations_are_offered_only_to_their_role() {
    let seed = "cpus:4;mem:2048;cpus(ads):8;mem(ads):4096";
    let cluster = Cluster::start(1, seed);
    // Disk and ports are found by the agent, as in Mesos.
    let given = |offer: &Offer| {
        let is_given = |one: &Resource| matches!(one.name(), Name::Cpus | Name::Mem);
        let found = has(offer).filter(|one| !is_given(one));
        assert_eq!(found, found.unreserved());
        has(offer).filter(is_given)
    };
    let mut ads = ScriptedFramework::subscribe(&cluster, framework("ads", "ads"));
    let offer = ads.offer();
    assert_eq!(given(&offer), parse(seed));
    let long = Filters {
        refuse_seconds: 3600.0,
    };
    ads.decline(vec![offer.id], long);
    let mut web = ScriptedFramework::subscribe(&cluster, framework("web", "web"));
    assert_eq!(given(&web.offer()), parse("cpus:4;mem:2048"));
}

/// RESERVE, CREATE and LAUNCH in one accept; the volume outlives its task and its agent, until
/// DESTROY.
#[test]
fn volume_outlives_its_task_and_agent_until_destroyed() {
    let cluster = Cluster::master_alone(|_, _| {});
    let resources = "cpus:4;mem:1024;disk:1024;ports:[]";
    let mut command = cluster.agent_command("agent", resources);
    let mut agent = cluster.agent_of(&mut command);
    let mut ads = ScriptedFramework::subscribe(&cluster, framework("ads", "ads"));
    let offer = ads.offer();
    let volumes: Resources = volume("v", 64).into();
    let mut writer = task(
        "writer",
        &offer,
        "cpus:1;mem:32",
        "echo content > data/file",
    );
    writer.resources += volumes.allocate(&"ads".parse().expect("a role"));
    let create = Conversion::Create {
        volumes: volumes.clone(),
    };
    let launch = Operation::Launch {
        tasks: vec![writer],
    };
    let steps = vec![reserve("r", "disk:100"), step("c", create), launch];
    ads.operate(&offer, steps);
    ads.operation("c", OperationState::Finished);
    ads.state("writer", TaskState::Finished);
    let directory = cluster.directory().join("agent/volumes/roles/ads/v");
    let content = || std::fs::read_to_string(directory.join("file"));
    assert_eq!(content().expect("the volume's file"), "content\n");

    agent.signal("KILL");
    agent.wait();
    let _agent = Running::start(&mut command);
    let expected = parse("cpus:4;mem:1024;disk:924") + reserved("disk:36") + volumes.clone();
    read_back(&mut ads, &volumes, |offer| has(offer) == expected);

    let offer = offered(&mut ads, |offer| has(offer) == expected);
    let destroy = step("d", Conversion::Destroy { volumes });
    let resources = reserved("disk:100");
    let unreserve = step("u", Conversion::Unreserve { resources });
    ads.operate(&offer, vec![destroy, unreserve]);
    ads.operation("u", OperationState::Finished);
    assert!(!directory.exists());
    let before = parse("cpus:4;mem:1024;disk:1024");
    offered(&mut ads, |offer| has(offer) == before);
}

/// Declines offers until `wanted` accepts one.
fn offered(scripted: &mut ScriptedFramework, wanted: impl Fn(&Offer) -> bool) -> Offer {
    // Also declines offers skipped by earlier waits, so that all free resources arrive in one
    // offer.
    let passed_over = scripted
        .past
        .iter()
        .flat_map(|(_, callback)| match callback {
            Callback::Offers(offers) => offers.iter().map(|offer| offer.id.clone()).collect(),
            _ => Vec::new(),
        });
    scripted.decline(passed_over.collect(), NO_FILTER);
    loop {
        let offer = scripted.offer();
        if wanted(&offer) {
            return offer;
        }
        scripted.decline(vec![offer.id], NO_FILTER);
    }
}

/// Reads the file of a volume by a task on a restarted agent.
fn read_back(ads: &mut ScriptedFramework, volume: &Resources, wanted: impl Fn(&Offer) -> bool) {
    for attempt in 0..5 {
        let offer = offered(ads, &wanted);
        let name = format!("reader{attempt}");
        let line = "grep -q content data/file";
        let mut reader = task(&name, &offer, "cpus:1;mem:32", line);
        reader.resources += volume.allocate(&"ads".parse().expect("a role"));
        let tasks = vec![reader];
        ads.operate(&offer, vec![Operation::Launch { tasks }]);
        let ended = ads.wait_for("the reader's end", |callback| match callback {
            Callback::Status(status) if status.task_id.as_str() == name => {
                status.state.is_terminal().then_some(status.state)
            }
            _ => None,
        });
        match ended {
            TaskState::Finished => return,
            // The offer may be from before the agent's restart.
            TaskState::Lost | TaskState::Dropped => {}
            other => panic!("{other}"),
        }
    }
    panic!("no reader has run");
}

/// Operations applied only at the master are rolled back, with those that depend on them.
#[test]
fn operations_after_a_failed_one_are_dropped() {
    let cluster = Cluster::master_alone(|_, _| {});
    let work_dir = cluster.directory().join("agent");
    let block = |path: &Path| std::fs::write(path, "in the way").expect("a file");
    std::fs::create_dir(&work_dir).expect("a directory");
    block(&work_dir.join("volumes"));
    let _agent = cluster.agent("agent", "cpus:4;mem:1024;disk:1024;ports:[]");
    let mut ads = ScriptedFramework::subscribe(&cluster, framework("ads", "ads"));
    let offer = ads.offer();
    let volumes: Resources = volume("v", 64).into();
    let mut doomed = task("doomed", &offer, "cpus:1;mem:32", "true");
    doomed.resources += volumes.allocate(&"ads".parse().expect("a role"));
    let launch = Operation::Launch {
        tasks: vec![doomed],
    };
    let steps = vec![
        reserve("kept", "disk:100"),
        step("failed", Conversion::Create { volumes }),
        reserve("stale", "cpus:1"),
        launch,
    ];
    ads.operate(&offer, steps);
    let failed = ads.operation("failed", OperationState::Failed);
    assert!(failed.message.contains("cannot be made"), "{failed:?}");
    ads.operation("kept", OperationState::Finished);
    ads.operation("stale", OperationState::Dropped);
    let lost = ads.state("doomed", TaskState::Lost);
    assert_eq!(lost.reason, Some(Reason::ResourcesUnknown));
    let expected = parse("cpus:4;mem:1024;disk:924") + reserved("disk:100");
    offered(&mut ads, |offer| has(offer) == expected);
    eventually("the operator's list to show it", || {
        let agent = cluster.list("agents").remove(0);
        let offered = agent["offered_resources"]["disk"].as_f64();
        (offered == Some(1024.0)).then_some(())
    });
}

/// GROW_VOLUME and SHRINK_VOLUME keep the content, and the agent persists the size.
#[test]
fn volume_keeps_its_content_when_resized() {
    let cluster = Cluster::master_alone(|_, _| {});
    let mut command = cluster.agent_command("agent", "cpus:4;mem:1024;disk:1024;ports:[]");
    let mut agent = cluster.agent_of(&mut command);
    let mut ads = ScriptedFramework::subscribe(&cluster, framework("ads", "ads"));
    let offer = ads.offer();
    let volumes: Resources = volume("v", 64).into();
    let mut writer = task(
        "writer",
        &offer,
        "cpus:1;mem:32",
        "echo content > data/file",
    );
    writer.resources += volumes.allocate(&"ads".parse().expect("a role"));
    let launch = Operation::Launch {
        tasks: vec![writer],
    };
    let create = step("c", Conversion::Create { volumes });
    ads.operate(&offer, vec![reserve("r", "disk:100"), create, launch]);
    ads.state("writer", TaskState::Finished);

    // The task's resources and the unused rest arrive in one offer.
    let all = |rest: &str, size: u32| {
        parse("cpus:4;mem:1024;disk:924") + reserved(rest) + Resources::from(volume("v", size))
    };
    let offer = offered(&mut ads, |offer| has(offer) == all("disk:36", 64));
    let addition = reserved("disk:36").into_iter().next().expect("disk");
    let grow = Conversion::GrowVolume {
        volume: volume("v", 64),
        addition,
    };
    let shrink = Conversion::ShrinkVolume {
        volume: volume("v", 100),
        subtract: Scalar::whole(10),
    };
    ads.operate(&offer, vec![step("g", grow), step("s", shrink)]);
    let grown = ads.operation("g", OperationState::Finished);
    assert_eq!(grown.converted, volume("v", 100).into());
    ads.operation("s", OperationState::Finished);

    agent.signal("KILL");
    agent.wait();
    let _agent = Running::start(&mut command);
    let resized = Resources::from(volume("v", 90));
    read_back(&mut ads, &resized, |offer| has(offer) == all("disk:10", 90));
}
