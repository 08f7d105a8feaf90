//! Explanations for missing capabilities.

use module_api::allocator::Begin;
use resources::{Reservation, Resources};
use runtime::{NodeId, Pid};

use super::*;

impl Scene {
    /// No agents or frameworks, and a master in this region.
    pub(super) fn in_region(region: &str) -> Self {
        let mut scene = Self::default();
        scene.state.begin(&Begin {
            master: Pid::new("master", NodeId::new("master", 1), 0),
            allocation_interval: Duration::from_secs(1),
            weights: BTreeMap::new(),
            quotas: BTreeMap::new(),
            region: Some(region.to_owned()),
            agents_expected: 0,
        });
        scene
    }
}

/// A shared volume of that role.
pub(super) fn shared(role: &str) -> Resources {
    let volume = format!(
        r#"[{{"name":"disk","type":"SCALAR","scalar":{{"value":16}},"role":"{role}","shared":{{}},
            "disk":{{"persistence":{{"id":"data"}},"volume":{{"mode":"RW","container_path":"data"}}}}}}]"#
    );
    resources::json::parse_resources(&volume).unwrap()
}

/// Resources reserved for the role's parent and then for the role.
pub(super) fn refined(role: &str, text: &str) -> Resources {
    let role = Role::new(role).unwrap();
    let for_role = |role| Reservation::dynamic(role, Some("ops"));
    let plain: Resources = text.parse().unwrap();
    let above = plain.push_reservation(&for_role(role.parent().unwrap()));
    above.unwrap().push_reservation(&for_role(role)).unwrap()
}

/// An agent that has nothing else is not offered to a framework without the capability, but to one
/// with it.
fn needs(capability: Capability, expected: &str, make: impl FnOnce(&mut AgentAdded)) {
    let mut scene = Scene::in_region("home");
    let mut agent = added("a1", "", vec![]);
    make(&mut agent);
    scene.state.agent_added(agent);
    for can in [&[][..], &[capability]] {
        scene.framework("f", "a/b", can);
        let granted = scene.clone().grant(Stage::Fair, "f", "a/b", "a1");
        assert_eq!(granted.is_some(), !can.is_empty(), "{capability:?}");
        let expected = if can.is_empty() { expected } else { OPEN };
        scene.says("f", "a/b", &[expected]);
    }
}

#[test]
fn the_capability_for_another_region_is_named() {
    let remote =
        "1 the agent is in another region than the masters; the framework lacks REGION_AWARE";
    needs(Capability::RegionAware, remote, |agent| {
        agent.info.resources = "cpus:1;mem:64".parse().unwrap();
        agent.info.domain = "far/away".parse().ok();
    });
}

#[test]
fn the_capability_for_refined_reservations_is_named() {
    let finer = "1 only refined reservations are left; the framework lacks RESERVATION_REFINEMENT";
    needs(Capability::ReservationRefinement, finer, |agent| {
        agent.info.resources = refined("a/b", "cpus:1;mem:64");
    });
}

/// A volume alone is below the common minimum of cpus or memory, so a demand accepts disk.
#[test]
fn the_capability_for_shared_volumes_is_named() {
    let mut scene = Scene::default();
    let mut agent = added("a1", "", vec![]);
    agent.info.resources = shared("a/b");
    scene.state.agent_added(agent);
    let demand = Demand::shaped("disk:1".parse().unwrap(), Quantities::new());
    let lacking = "1 only shared volumes are left; the framework lacks SHARED_RESOURCES";
    for (can, expected) in [
        (&[][..], lacking),
        (&[Capability::SharedResources][..], OPEN),
    ] {
        let mut added = subscribed("f", "a/b", can);
        let demands = &mut added.wants.demands;
        demands.insert("a/b".to_owned(), demand.clone());
        scene.state.framework_added(added);
        scene.says("f", "a/b", &[expected]);
    }
}

/// Two missing capabilities are both named for a single agent.
#[test]
fn all_that_are_missing_are_named_for_one_agent() {
    let mut scene = Scene::in_region("home");
    let mut agent = added("a1", "cpus:1;mem:64;gpus:1", vec![]);
    agent.info.domain = "far/away".parse().ok();
    scene.state.agent_added(agent);
    scene.framework("f", "r", &[]);
    let lines = scene.lines("f", "r", Some("a1"));
    let named = |name: &str| lines.iter().any(|line| line.ends_with(name));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(named("GPU_RESOURCES") && named("REGION_AWARE"), "{lines:?}");
}
