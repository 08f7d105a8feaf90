//! Subscriptions and updates that ACLs forbid (SPEC 2.2, 3.7).

use authority::Acls;

use super::*;

/// Frameworks of this name may have roles below `eng`, and no others.
const ACLS: &str = r#"{"permissive":false,"register_frameworks":[
    {"principals":{"values":["web"]},"roles":{"values":["eng/%"]}}]}"#;

fn framework(role: &str) -> Value {
    json!({
        "user": "nobody", "name": "web", "principal": "web", "failover_timeout": 60.0,
        "roles": [role], "capabilities": [{ "type": "MULTI_ROLE" }],
    })
}

/// The master and its framework's first words.
async fn fixture(node: &Node) -> Fixture {
    let acls = Acls::parse(ACLS).unwrap().into();
    let config = Config {
        acls,
        ..Config::default()
    };
    Fixture::with(node, config).await
}

/// SPEC 2.3: it is for ever, so a client must not try again.
#[test]
fn denied_subscription_ends_in_an_error_event() {
    simulate(|node| async move {
        let fixture = fixture(&node).await;
        let mut stream = fixture.subscribe(framework("ads")).await;
        let (events, ended) = stream.events();
        let [event] = &events[..] else {
            panic!("{events:?}")
        };
        let message = &event.error.as_ref().unwrap().message;
        let expected = "Not authorized to register framework  with roles { ads }";
        assert_eq!(message, expected);
        assert!(ended);
    });
}

#[test]
fn denied_update_is_forbidden_and_changes_nothing() {
    simulate(|node| async move {
        let fixture = fixture(&node).await;
        let mut stream = fixture.subscribe(framework("eng/a")).await;
        let id = stream.framework();
        let update = |role: &str| {
            let mut info = framework(role);
            info["id"] = json!({ "value": id });
            json!({
                "type": "UPDATE_FRAMEWORK", "framework_id": { "value": id },
                "update_framework": { "framework_info": info },
            })
        };
        let nobody = Subject::default();
        let refused = fixture
            .post(&update("ads"), Some(&stream.id), &nobody)
            .await;
        let refusal = refused.unwrap_err();
        assert_eq!(refusal.status.as_u16(), 403, "{refusal}");
        let expected = format!("Not authorized to register framework {id} with roles {{ ads }}");
        assert_eq!(refusal.problem, expected);
        let roles = async || {
            let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
            let known = state.frameworks.get(&FrameworkId::new(&id).unwrap());
            known.unwrap().info.roles.clone()
        };
        assert_eq!(roles().await, ["eng/a".to_owned()].into());
        assert_eq!(stream.read(), [""; 0], "it hears nothing of it");
        assert_eq!(fixture.call(&id, &stream.id, update("eng/b")).await, 200);
        assert_eq!(roles().await, ["eng/b".to_owned()].into());
    });
}
