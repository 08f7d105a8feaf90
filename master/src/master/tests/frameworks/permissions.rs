//! Refusals by ACLs and by certificates' names (SPEC 3.7).

use authority::Acls;
use protocol::message::operator::{
    KillByOperator, OperatorError, UpdateQuotas, UpdateRefused, UpdateWeights, ViewCluster,
    ViewRoles,
};
use resources::{Conversion, Reservation, Revocable};
use testkit::{assert_contains, assert_matches};

use crate::master::tests::frameworks::standbys;
use crate::master::tests::*;

fn config(acls: &str) -> Config {
    Config {
        acls: Acls::parse(acls).unwrap().into(),
        ..Config::default()
    }
}

fn named(principal: &str) -> impl FnOnce(&mut FrameworkInfo) {
    let principal = principal.to_owned();
    move |info| info.principal = Some(principal)
}

/// SPEC 3.7.
#[test]
fn framework_roles_must_be_authorized() {
    simulate_network(|network| async move {
        let acls = r#"{"permissive":false,"register_frameworks":[
            {"principals":{"values":["web"]},"roles":{"values":["eng/%"]}}]}"#;
        let world = World::new(network, config(acls)).await;
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        let info = |principal: Option<&str>, role: &str| {
            let mut info = FrameworkInfo::new("nobody", "web");
            info.principal = principal.map(str::to_owned);
            info.roles = [role.to_owned()].into();
            info
        };
        for (principal, role) in [
            (Some("web"), "eng"),
            (Some("ops"), "eng/a"),
            (None, "eng/a"),
        ] {
            let refused = subscribe(&scheduler, info(principal, role))
                .await
                .unwrap_err();
            let SubscriptionRefused::Never { reason } = refused else {
                panic!("{refused:?}");
            };
            let expected = format!("Not authorized to register framework  with roles {{ {role} }}");
            assert_eq!(reason, expected);
        }
        let id = subscribe(&scheduler, info(Some("web"), "eng/a"))
            .await
            .unwrap()
            .framework_id;
        let update = UpdateFramework {
            framework_id: id,
            framework: info(Some("web"), "ads"),
            wants: Default::default(),
        };
        let asked = scheduler.node.ask(&scheduler.master, update, PATIENCE);
        let refused = asked.await.unwrap().unwrap_err();
        assert_matches!(refused, SubscriptionRefused::Never { .. });
    });
}

/// SPEC 3.7: the other tasks of the call run.
#[test]
fn task_of_a_forbidden_user_is_an_error_alone() {
    simulate_network(|network| async move {
        let acls = r#"{"run_tasks":[
            {"principals":{"values":["web"]},"users":{"values":["nobody"]}},
            {"principals":{"type":"NONE"},"users":{"type":"ANY"}}]}"#;
        let world = World::new(network, config(acls)).await;
        let (agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", named("web")).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:4;mem:512").await;
        let mut alien = task("alien", &a, "cpus:1");
        alien.command.as_mut().unwrap().user = Some("alice".to_owned());
        let own = task("own", &a, "cpus:1");
        scheduler.received();
        agent.received();
        scheduler.tell(accept(&f, &[&offer], vec![alien, own]));
        world.settle().await;
        scheduler.receives("alien TASK_ERROR REASON_TASK_UNAUTHORIZED");
        let ran = agent.received();
        assert!(ran.len() == 1 && ran[0].starts_with("run own="), "{ran:?}");
        let message = scheduler.statuses().remove(0).message;
        let expected = format!(
            "Principal 'web' no authorized to launch task alien of framework {f} under user 'alice'"
        );
        assert_eq!(message, expected);
    });
}

/// SPEC 3.7.
#[test]
fn forbidden_operation_fails_and_frees_its_resources() {
    simulate_network(|network| async move {
        let acls =
            r#"{"reserve_resources":[{"principals":{"type":"NONE"},"roles":{"values":["ads"]}}]}"#;
        let world = World::new(network, config(acls)).await;
        let agent = world.member("agent-1", "agent", Role::Agent).await;
        let mut registers = registration(&agent, None, vec![]);
        registers.resources = Some(AgentResources {
            total: registers.agent.resources.clone(),
            version: Uuid([1; 16]),
            operations: Default::default(),
            settled: Some(0),
        });
        let asked = agent.node.ask(&agent.master, registers, PATIENCE);
        let a = asked.await.unwrap().unwrap().agent_id;
        let roles =
            |info: &mut FrameworkInfo| info.roles = ["ads".to_owned(), "eng".to_owned()].into();
        let (scheduler, f) = world
            .framework("web", |info| {
                info.capabilities.insert(Capability::MultiRole);
                roles(info);
            })
            .await;
        for (role, told) in [("ads", "op OPERATION_ERROR"), ("eng", "")] {
            let part = resources("cpus:1");
            let offered = ResourceRole::new(role).unwrap();
            let mut one = grant(&f, &a, "cpus:1");
            (one.role, one.resources) = (role.to_owned(), part.allocate(&offered));
            world.grant(vec![one]).await;
            let offer = scheduler.offers().pop().expect("an offer");
            scheduler.received();
            let entry = Reservation::dynamic(offered, None::<&str>);
            let conversion = Conversion::Reserve {
                resources: part.push_reservation(&entry).unwrap(),
            };
            let mut call = accept(&f, &[&offer], vec![]);
            call.operations = vec![Operation::Convert {
                id: Some(OperationId::new("op").unwrap()),
                conversion,
            }];
            agent.received();
            world.tell(&scheduler, call).await;
            assert_eq!(scheduler.received().join(""), told, "{role}");
            assert_eq!(
                agent.received().len(),
                usize::from(told.is_empty()),
                "{role}"
            );
        }
    });
}

/// SPEC 3.7: the certificate identifies agents and operators.
#[test]
fn agents_and_operators_are_named_by_certificates() {
    simulate_network(|network| async move {
        let acls = r#"{"permissive":false,
            "register_agents":[{"principals":{"values":["agent-1"]},"agents":{"type":"ANY"}}],
            "register_frameworks":[{"principals":{"type":"ANY"},"roles":{"type":"ANY"}}],
            "run_tasks":[{"principals":{"type":"ANY"},"users":{"type":"ANY"}}],
            "view_frameworks":[{"principals":{"values":["ops"]},"users":{"type":"ANY"}}],
            "view_roles":[{"principals":{"values":["ops"]},"roles":{"values":["eng"]}}],
            "update_quotas":[{"principals":{"values":["ops"]},"roles":{"values":["eng"]}}],
            "update_weights":[{"principals":{"values":["ops"]},"roles":{"values":["eng"]}}],
            "teardown_frameworks":[{"principals":{"values":["ops"]},"framework_principals":{"values":["web"]}}]}"#;
        let world = World::new(network, config(acls)).await;
        let (agent, a) = world.agent("agent-1").await;
        let other = world.member("agent-2", "agent", Role::Agent).await;
        let refused = register(&other, None, vec![]).await.unwrap_err();
        assert_contains!(format!("{refused:?}"), "may register_agents");
        let (scheduler, f) = world.framework("web", named("web")).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1;mem:32").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        world.settle().await;
        agent.received();

        for (name, may) in [("guest", false), ("ops", true)] {
            let node = world.network.node(name, Role::Operator, &[Role::Master]);
            let master = node.find("master", "master", PATIENCE).await.unwrap();
            let view = node.ask(&master, ViewCluster, PATIENCE).await;
            let view = view.unwrap().unwrap();
            assert_eq!(view.frameworks.len(), usize::from(may));
            assert!(
                view.frameworks
                    .iter()
                    .all(|framework| framework.tasks.is_empty())
            );
            assert_eq!(view.agents.len(), 1);
            let weights = UpdateWeights {
                weights: [("eng".to_owned(), 2.0)].into(),
            };
            let updated = node.ask(&master, weights, PATIENCE).await.unwrap();
            assert_eq!(updated.is_ok(), may, "{updated:?}");
            let quotas = |role: &str| UpdateQuotas {
                quotas: [(role.to_owned(), Quota::default())].into(),
                force: false,
            };
            let updated = node.ask(&master, quotas("eng"), PATIENCE).await.unwrap();
            assert_eq!(updated.is_ok(), may, "{updated:?}");
            let updated = node.ask(&master, quotas("ads"), PATIENCE).await.unwrap();
            let Err(UpdateRefused::Invalid { reason }) = updated else {
                panic!("{updated:?}");
            };
            assert_contains!(reason, "may update_quotas (roles: `ads`)");
            let roles = node.ask(&master, ViewRoles, PATIENCE).await;
            let roles = roles.unwrap().unwrap();
            let roles: Vec<String> = roles.into_iter().map(|role| role.name).collect();
            assert_eq!(roles, if may { vec!["eng"] } else { vec![] });
            let kill = KillByOperator {
                task_id: TaskId::new("t").unwrap(),
                framework_id: None,
            };
            match node.ask(&master, kill, PATIENCE).await.unwrap() {
                Ok(_) => assert!(may),
                // It does not see whose task it is.
                Err(OperatorError::NotFound { .. }) => assert!(!may),
                Err(other) => panic!("{other:?}"),
            }
        }
        world.settle().await;
        agent.receives("kill t");
    });
}

/// SPEC 3.7: a command sees the same part of an agent as the pages.
#[test]
fn invisible_roles_reservations_are_hidden_from_commands() {
    simulate_network(|network| async move {
        let acls = r#"{"view_roles":[{"principals":{"values":["guest"]},"roles":{"values":["eng","*"]}},
            {"principals":{"values":["guest"]},"roles":{"type":"NONE"}}]}"#;
        let world = World::new(network, config(acls)).await;
        let agent = world.member("agent-1", "agent", Role::Agent).await;
        let mut registers = registration(&agent, None, vec![]);
        registers.agent.resources = resources("cpus:8;mem:512;mem(ads):64;mem(eng):32");
        registers.oversubscribed = resources("cpus:2")
            .to_revocable(Revocable::Throttleable)
            .unwrap();
        let asked = agent.node.ask(&agent.master, registers, PATIENCE);
        let a = asked.await.unwrap().unwrap().agent_id;
        let ads = |info: &mut FrameworkInfo| info.roles = ["ads".to_owned()].into();
        let (scheduler, f) = world.framework("web", ads).await;
        let of_ads = |text: &str| resources(text).allocate(&ResourceRole::new("ads").unwrap());
        for part in ["cpus:1;mem(ads):16", "cpus:2"] {
            let mut one = grant(&f, &a, "cpus:1");
            (one.role, one.resources) = ("ads".to_owned(), of_ads(part));
            world.grant(vec![one]).await;
        }
        let (used, _offered) = scheduler
            .offers()
            .into_iter()
            .partition::<Vec<_>, _>(|offer| offer.resources.iter().any(|one| one.is_reserved()));
        scheduler.tell(accept(&f, &[&used[0]], vec![task("t", &a, "cpus:1")]));
        world.settle().await;
        for (name, sees) in [("ops", true), ("guest", false)] {
            let node = world.network.node(name, Role::Operator, &[Role::Master]);
            let master = node.find("master", "master", PATIENCE).await.unwrap();
            let view = node.ask(&master, ViewCluster, PATIENCE).await;
            let agent = view.unwrap().unwrap().agents.remove(0);
            let total = match sees {
                true => "cpus:8;mem:512;mem(ads):64;mem(eng):32",
                false => "cpus:8;mem:512;mem(eng):32",
            };
            assert_eq!(agent.info.resources, resources(total), "{name}");
            assert_eq!(agent.used.is_empty(), !sees, "{name}: {}", agent.used);
            assert_eq!(agent.offered.is_empty(), !sees, "{name}: {}", agent.offered);
            assert!(!agent.oversubscribed.is_empty(), "{name}");
        }
    });
}

/// SPEC 3.7.
#[test]
fn framework_principal_is_its_certificates_name_if_required() {
    simulate_network(|network| async move {
        let asks = Config {
            authenticate_frameworks: true,
            ..Config::default()
        };
        let world = World::new(network, asks).await;
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        for principal in [None, Some("ops"), Some("web")] {
            let mut info = FrameworkInfo::new("nobody", "web");
            info.principal = principal.map(str::to_owned);
            match subscribe(&scheduler, info).await {
                Ok(_) => assert_eq!(principal, Some("web")),
                Err(refused) => {
                    let words = format!("{refused:?}");
                    assert_contains!(words, "the name in its certificate, `web`");
                    assert_ne!(principal, Some("web"));
                }
            }
        }
    });
}

/// SPEC 3.7: also for standbys and updates.
#[test]
fn standby_and_update_use_the_certificates_name() {
    simulate_network(|network| async move {
        let asks = Config {
            authenticate_frameworks: true,
            ..Config::default()
        };
        let world = World::new(network, asks).await;
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        let info = |principal: Option<&str>| {
            let mut info = FrameworkInfo::new("nobody", "web");
            info.principal = principal.map(str::to_owned);
            info
        };
        for principal in [None, Some("ops")] {
            let standing = standbys::stand_by(&scheduler, info(principal)).await;
            let words = format!("{:?}", standing.unwrap_err());
            assert_contains!(words, "the name in its certificate, `web`");
        }
        let standing = standbys::stand_by(&scheduler, info(Some("web"))).await;
        let Ok(StandbyReply::Leads(Subscribed { framework_id, .. })) = standing else {
            panic!("{standing:?}");
        };
        for principal in [Some("ops"), None, Some("web")] {
            let update = UpdateFramework {
                framework_id: framework_id.clone(),
                framework: info(principal),
                wants: Default::default(),
            };
            let asked = scheduler.node.ask(&scheduler.master, update, PATIENCE);
            let updated = asked.await.unwrap();
            assert_eq!(updated.is_ok(), principal == Some("web"), "{updated:?}");
            let state = world.state().await;
            let known = state.frameworks.get(&framework_id).unwrap();
            assert_eq!(known.info.principal.as_deref(), Some("web"));
        }
    });
}
