//! Quotas and weights: validated, recorded, published, and known to the next master.

use std::collections::BTreeMap;

use protocol::message::operator::*;
use resources::Quantities;

use super::*;
use crate::registry::{RegistryError, RegistryOperation};

fn quota(guarantees: &str, limits: &str) -> Quota {
    Quota {
        guarantees: guarantees.parse().unwrap(),
        limits: limits.parse().unwrap(),
    }
}

fn quotas(quotas: &[(&str, Quota)], force: bool) -> UpdateQuotas {
    let owned = |(role, quota): &(&str, Quota)| ((*role).to_owned(), quota.clone());
    UpdateQuotas {
        quotas: quotas.iter().map(owned).collect(),
        force,
    }
}

fn weights(weights: &[(&str, f64)]) -> UpdateWeights {
    let owned = |(role, weight): &(&str, f64)| ((*role).to_owned(), *weight);
    UpdateWeights {
        weights: weights.iter().map(owned).collect(),
    }
}

impl Member {
    async fn ask<M: Remote>(&self, question: M) -> M::Result {
        let asked = self.node.ask(&self.master, question, PATIENCE);
        asked.await.unwrap()
    }

    async fn role(&self, name: &str) -> protocol::view::RoleView {
        let mut roles = self.ask(ViewRoles).await.unwrap();
        roles.retain(|role| role.name == name);
        roles.pop().expect("the role is known")
    }
}

/// Two roles at the framework, of which one lies below the other.
fn of_eng(info: &mut FrameworkInfo) {
    info.roles = ["eng", "eng/web"].map(str::to_owned).into();
    info.capabilities.insert(Capability::MultiRole);
}

fn grant_to(role: &str, framework: &FrameworkId, agent: &AgentId, text: &str) -> Grant {
    Grant {
        role: role.to_owned(),
        resources: resources(text).allocate(&ResourceRole::new(role).unwrap()),
        ..grant(framework, agent, text)
    }
}

/// As in Mesos: resources of a role are those of its subtree, its frameworks are its own.
#[test]
fn role_shows_its_descendants_resources() {
    simulate_world(|world| async move {
        let operator = world.member("operator", "operator", Role::Operator).await;
        let (_agent, a) = world.agent("agent-1").await;
        let deep = |info: &mut FrameworkInfo| info.roles = ["eng/web/api".to_owned()].into();
        let (scheduler, f) = world.framework("web", deep).await;
        world
            .grant(vec![grant_to("eng/web/api", &f, &a, "cpus:2;mem:64")])
            .await;
        let offer = scheduler.offers().pop().unwrap();
        let mut task = task("t", &a, "cpus:2");
        task.resources = task.resources.allocate(&"eng/web/api".parse().unwrap());
        scheduler.tell(accept(&f, &[&offer], vec![task]));
        world
            .grant(vec![grant_to("eng/web/api", &f, &a, "cpus:1")])
            .await;
        for name in ["eng", "eng/web", "eng/web/api"] {
            let role = operator.role(name).await;
            assert_eq!(role.allocated.unallocate(), resources("cpus:2"), "{name}");
            assert_eq!(role.offered.unallocate(), resources("cpus:1"), "{name}");
            assert_eq!(role.consumed, "cpus:2".parse().unwrap(), "{name}");
            let own = name == "eng/web/api";
            assert_eq!(role.frameworks.contains(&f), own, "{name}");
        }
        assert!(operator.role("*").await.allocated.is_empty());
    });
}

/// SPEC 3.4.
#[test]
fn new_limit_rescinds_only_the_excess() {
    simulate_world(|world| async move {
        let operator = world.member("operator", "operator", Role::Operator).await;
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", of_eng).await;
        world
            .grant(vec![grant_to("eng/web", &f, &a, "cpus:2")])
            .await;
        let offer = scheduler.offers().pop().unwrap();
        let mut task = task("t", &a, "cpus:2");
        task.resources = task.resources.allocate(&"eng/web".parse().unwrap());
        scheduler.tell(accept(&f, &[&offer], vec![task]));
        for (role, text) in [
            ("eng/web", "cpus:1"),
            ("eng", "mem:64"),
            ("eng", "cpus:2;mem:64"),
            ("eng", "cpus:1"),
        ] {
            world.grant(vec![grant_to(role, &f, &a, text)]).await;
        }
        scheduler.received();
        world.allocator();
        assert_eq!(
            operator.role("eng").await.consumed,
            "cpus:2".parse().unwrap()
        );

        // Two are consumed, and four are offered: there is room for the two offers of one.
        let update = quotas(&[("eng", quota("", "cpus:4"))], false);
        assert_eq!(operator.ask(update).await, Ok(()));
        world.settle().await;
        scheduler.receives("rescind O3");
        let told = ["quotas of [\"eng\"]", "recovered 0000 cpus:2;mem:64"];
        assert_eq!(world.allocator(), told);
        let role = operator.role("eng").await;
        assert_eq!(role.quota, quota("", "cpus:4"));
        // With that of the role below.
        assert_eq!(role.offered.unallocate(), resources("cpus:2;mem:64"));

        let below = quotas(&[("eng", quota("", "cpus:1"))], false);
        let refused = operator.ask(below.clone()).await;
        assert_matches!(refused, Err(UpdateRefused::Invalid { .. }));
        world.facts_are("");
        let forced = UpdateQuotas {
            force: true,
            ..below
        };
        assert_eq!(operator.ask(forced).await, Ok(()));
        world.settle().await;
        scheduler.receives("rescind O1 | rescind O4");

        let reset = quotas(&[("eng", Quota::default())], false);
        assert_eq!(operator.ask(reset).await, Ok(()));
        assert_eq!(operator.role("eng").await.quota, Quota::default());
        assert!(world.faults.state().quotas.is_empty());
        scheduler.receives("");
    });
}

/// SPEC 3.4.
#[test]
fn raised_guarantee_rescinds_only_the_missing_resources() {
    simulate_world(|world| async move {
        let operator = world.member("operator", "operator", Role::Operator).await;
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", of_eng).await;
        let (others, g) = world
            .framework("batch", |info| info.roles = ["ops".to_owned()].into())
            .await;
        world
            .grant(vec![grant_to("eng/web", &f, &a, "cpus:1")])
            .await;
        for text in ["cpus:2;mem:64", "cpus:3", "mem:64"] {
            world.grant(vec![grant_to("ops", &g, &a, text)]).await;
        }
        scheduler.received();
        others.received();
        world.allocator();

        // Of eight cpus two are free, and one is offered to the role itself.
        let update = quotas(&[("eng", quota("cpus:3", ""))], false);
        assert_eq!(operator.ask(update).await, Ok(()));
        world.settle().await;
        others.receives("");
        assert_eq!(world.allocator(), ["quotas of [\"eng\"]"]);

        let update = quotas(&[("eng", quota("cpus:5", ""))], false);
        assert_eq!(operator.ask(update).await, Ok(()));
        world.settle().await;
        others.receives("rescind O2");
        scheduler.receives("");
        let told = ["quotas of [\"eng\"]", "recovered 0001 cpus:3"];
        assert_eq!(world.allocator(), told);
        let ops = operator.role("ops").await.offered.unallocate();
        assert_eq!(ops, resources("cpus:2;mem:128"));

        // A lowered quota takes nothing from others.
        let update = quotas(&[("eng", quota("cpus:4", ""))], false);
        assert_eq!(operator.ask(update).await, Ok(()));
        world.settle().await;
        others.receives("");
    });
}

/// SPEC 3.4: persisted, and the registry's weight wins over the flag's.
#[test]
fn next_master_starts_with_recorded_quotas_and_weights() {
    simulate_network(|network| async move {
        let config = Config {
            weights: [("dev", 2.0), ("qa", 3.0)]
                .map(|(role, weight)| (role.to_owned(), weight))
                .into(),
            ..Config::default()
        };
        let first = World::new(network.clone(), config.clone()).await;
        let operator = first.member("operator", "operator", Role::Operator).await;
        let (_agent, _) = first.agent("agent-1").await;
        first.allocator();
        let (update, held) = (weights(&[("dev", 1.0), ("ops", 4.0)]), quota("cpus:2", ""));
        assert_eq!(operator.ask(update).await, Ok(()));
        let update = quotas(&[("eng", held.clone())], false);
        assert_eq!(operator.ask(update).await, Ok(()));
        assert_eq!(
            first.allocator(),
            [
                "weights {\"dev\": 1.0, \"ops\": 4.0}",
                "quotas of [\"eng\"]"
            ]
        );
        assert_eq!(operator.role("ops").await.weight, 4.0);

        network.leave("master");
        let heard = [Role::Agent, Role::Framework, Role::Operator];
        let node = network.node("master", Role::Master, &heard);
        let world = World::on(network, node, config, first.faults.clone()).await;
        assert_eq!(
            world.allocator(),
            ["begin with quotas of [\"eng\"], weights {\"ops\": 4.0, \"qa\": 3.0} and 1 agents"]
        );
        let operator = world.member("operator-2", "operator", Role::Operator).await;
        assert_eq!(operator.role("eng").await.quota, held);
        let weight_of = |roles: &[protocol::view::RoleView], name: &str| {
            roles
                .iter()
                .find(|role| role.name == name)
                .map(|role| role.weight)
        };
        let roles = operator.ask(ViewRoles).await.unwrap();
        assert_eq!(weight_of(&roles, "ops"), Some(4.0));
        assert_eq!(weight_of(&roles, "qa"), Some(3.0));
        assert_eq!(weight_of(&roles, "dev"), None, "1 is what every role has");
    });
}

#[test]
fn unrecorded_quotas_are_unpublished_and_updates_are_serial() {
    simulate_world(|world| async move {
        let operator = world.member("operator", "operator", Role::Operator).await;
        let (_agent, _) = world.agent("agent-1").await;
        world.allocator();
        let half = |role| quotas(&[(role, quota("cpus:5", ""))], false);
        world.faults.refuse(RegistryError::NotNow {
            reason: "busy".to_owned(),
        });
        let refused = operator.ask(half("eng")).await;
        assert_matches!(refused, Err(UpdateRefused::NotNow { .. }));
        world.facts_are("");

        // Eight cpus are there: two quotas of five are not both granted, however close they come.
        world.faults.delay(Duration::from_secs(2));
        let first = operator.node.ask(&operator.master, half("eng"), PATIENCE);
        world.settle().await;
        let second = operator.ask(half("ops")).await;
        assert_matches!(second, Err(UpdateRefused::NotNow { .. }));
        world.facts_are("");
        assert_eq!(first.await.unwrap(), Ok(()));
        let second = operator.ask(half("ops")).await;
        assert_matches!(second, Err(UpdateRefused::Invalid { .. }));
        let asked = world.faults.asked();
        let quotas = asked
            .iter()
            .filter(|one| matches!(one, RegistryOperation::UpdateQuotas { .. }));
        assert_eq!(quotas.count(), 2);

        let none = UpdateWeights {
            weights: BTreeMap::new(),
        };
        let refused = operator.ask(none).await;
        assert_matches!(refused, Err(UpdateRefused::Invalid { .. }));
        assert_eq!(
            operator.role("eng").await.quota.guarantees,
            Quantities::parse("cpus:5").unwrap()
        );
    });
}

/// A client's own check may be outdated: the master checks when it validates.
#[test]
fn concurrent_new_quotas_of_a_role_conflict() {
    simulate_world(|world| async move {
        let operator = world.member("operator", "operator", Role::Operator).await;
        let set = |cpus: &str| {
            let update = quotas(&[("eng", quota("", cpus))], false);
            world.master.ask(SetQuotas(update), PATIENCE)
        };
        let (first, second) = (set("cpus:1"), set("cpus:2"));
        assert_eq!(first.await.unwrap(), Ok(()));
        // While the first is recorded it is refused for that moment.
        let refused = second.await.unwrap();
        assert_matches!(refused, Err(UpdateRefused::NotNow { .. }));
        let refused = set("cpus:2").await.unwrap();
        assert!(
            matches!(&refused, Err(UpdateRefused::Invalid { reason }) if reason.contains("already has quota")),
            "{refused:?}"
        );
        assert_eq!(operator.role("eng").await.quota, quota("", "cpus:1"));

        let replaced = quotas(&[("eng", quota("", "cpus:3"))], false);
        assert_eq!(operator.ask(replaced).await, Ok(()));
        let reset = quotas(&[("eng", Quota::default())], false);
        assert_eq!(operator.ask(reset).await, Ok(()));
        assert_eq!(set("cpus:2").await.unwrap(), Ok(()));
    });
}

/// The same for a removal: existence is checked with it.
#[test]
fn concurrent_resets_of_a_quota_conflict() {
    simulate_world(|world| async move {
        let operator = world.member("operator", "operator", Role::Operator).await;
        let reset = |role: &str| {
            let role = role.to_owned();
            world.master.ask(ResetQuota { role }, PATIENCE)
        };
        let no_quota = |answer: Result<(), UpdateRefused>| {
            assert!(
                matches!(&answer, Err(UpdateRefused::Invalid { reason }) if reason.contains("has no quota set")),
                "{answer:?}"
            );
        };
        no_quota(reset("eng").await.unwrap());
        let set = quotas(&[("eng", quota("", "cpus:1"))], false);
        assert_eq!(operator.ask(set).await, Ok(()));

        let (first, second) = (reset("eng"), reset("eng"));
        assert_eq!(first.await.unwrap(), Ok(()));
        let refused = second.await.unwrap();
        assert_matches!(refused, Err(UpdateRefused::NotNow { .. }));
        no_quota(reset("eng").await.unwrap());

        // A quota set meanwhile is either removed as a whole, or not at all.
        let set = world.master.ask(
            SetQuotas(quotas(&[("eng", quota("", "cpus:2"))], false)),
            PATIENCE,
        );
        let reset_beside = reset("eng");
        assert_eq!(set.await.unwrap(), Ok(()));
        let refused = reset_beside.await.unwrap();
        assert_matches!(refused, Err(UpdateRefused::NotNow { .. }));
        assert_eq!(operator.role("eng").await.quota, quota("", "cpus:2"));
    });
}
