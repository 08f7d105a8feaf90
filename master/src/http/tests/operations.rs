//! What operators make of an agent's resources over HTTP: the forms that `curl -d` sends, and the calls of `/api/v1` (SPEC 2.6, 3.9; S93).

use protocol::AgentResources;
use protocol::message::operation::ApplyOperation;

use super::*;

/// An agent that writes down what it is to do.
#[derive(Default)]
struct Applier(Vec<&'static str>);

/// What was it to do?
struct Applied;

impl runtime::prelude::Message for Applied {
    type Result = Vec<&'static str>;
}

impl Actor for Applier {
    type Context = Context<Self>;
}

impl Process for Applier {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear_local::<ApplyOperation>();
    }
}

impl Handler<ApplyOperation> for Applier {
    type Result = ();
    fn handle(&mut self, apply: ApplyOperation, _: &mut Context<Self>) {
        self.0.push(apply.conversion.name());
    }
}

impl Handler<Applied> for Applier {
    type Result = Vec<&'static str>;
    fn handle(&mut self, _: Applied, _: &mut Context<Self>) -> Self::Result {
        std::mem::take(&mut self.0)
    }
}

/// A master's routes and an agent that keeps operations.
struct Stage {
    routes: Router,
    applier: Handle<Applier>,
    id: String,
}

/// 64 MB that the role has reserved, or a volume of so many.
fn disk(size: u32, is_volume: bool) -> Value {
    let mut disk = json!({
        "name": "disk", "type": "SCALAR", "scalar": { "value": size }, "role": "role1",
        "reservation": { "principal": "ops" },
    });
    if is_volume {
        disk["disk"] = json!({
            "persistence": { "id": "data", "principal": "ops" },
            "volume": { "mode": "RW", "container_path": "data" },
        });
    }
    disk
}

impl Stage {
    async fn new(node: &Node) -> Self {
        let master = master(node).await;
        let applier = node.spawn("applier", Applier::default()).unwrap();
        let resources: Resources = "cpus:4;disk:100".parse().unwrap();
        let agent = RegisterAgent {
            agent: AgentInfo {
                hostname: "host-2".into(),
                port: 5051,
                resources: resources.clone(),
                attributes: Attributes::default(),
                domain: None,
                id: None,
            },
            pid: applier.pid(),
            version: "1".into(),
            held: Default::default(),
            digest_key: DigestKey::new([8; 16]),
            oversubscribed: Resources::default(),
            resources: Some(AgentResources {
                version: protocol::Uuid([1; 16]),
                total: resources,
                operations: Vec::new(),
            }),
            term_seen: 0,
        };
        let registered = master.ask(agent, PATIENCE).await.unwrap().unwrap();
        Self {
            routes: all_routes(node, pages(node, &master)),
            applier,
            id: registered.agent_id.to_string(),
        }
    }

    /// As `curl -d slaveId=ID -d FIELD=JSON` says it.
    async fn form(&self, path: &str, field: &str, value: &Value) -> (StatusCode, String) {
        let body = format!("slaveId={}&{field}={value}", self.id);
        answered(&self.routes, Method::POST, path, &body).await
    }

    /// A call of `/api/v1` with these fields and the agent's id.
    async fn call(&self, name: &str, mut said: Value) -> (StatusCode, String) {
        said["agent_id"] = json!({ "value": self.id });
        let call = json!({ "type": name, name.to_lowercase(): said }).to_string();
        answered(&self.routes, Method::POST, "/api/v1", &call).await
    }

    async fn applied(&self) -> Vec<&'static str> {
        self.applier.ask(Applied, PATIENCE).await.unwrap()
    }

    /// What the page shows as reserved for the role: of each the amount, and the id if it is a volume.
    async fn reserved(&self) -> Vec<(f64, Option<String>)> {
        let (_, text) = answered(&self.routes, Method::GET, "/master/slaves", "").await;
        let page: Value = serde_json::from_str(&text).unwrap();
        let mut agents = page["slaves"].as_array().unwrap().iter();
        let agent = agents.find(|agent| agent["id"] == *self.id).unwrap();
        let of_role = agent["reserved_resources_full"]["role1"].as_array();
        let mut shown: Vec<_> = of_role
            .into_iter()
            .flatten()
            .map(|one| {
                let id = one["disk"]["persistence"]["id"].as_str();
                let amount = one["scalar"]["value"].as_f64().unwrap();
                (amount, id.map(str::to_owned))
            })
            .collect();
        shown.sort_by(|one, other| one.partial_cmp(other).unwrap());
        shown
    }
}

fn volume(size: f64) -> (f64, Option<String>) {
    (size, Some("data".to_owned()))
}

/// S93; SPEC 3.9: 202, 400, 409.
#[test]
fn volumes_are_created_and_destroyed_by_the_forms_that_curl_sends() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let (whole, data) = (json!([disk(64, false)]), json!([disk(40, true)]));
        for (path, field, value, shown) in [
            ("/master/reserve", "resources", &whole, vec![(64.0, None)]),
            (
                "/master/create-volumes",
                "volumes",
                &data,
                vec![(24.0, None), volume(40.0)],
            ),
            ("/destroy-volumes", "volumes", &data, vec![(64.0, None)]),
            (
                "/create-volumes",
                "volumes",
                &data,
                vec![(24.0, None), volume(40.0)],
            ),
            (
                "/master/destroy-volumes",
                "volumes",
                &data,
                vec![(64.0, None)],
            ),
            ("/unreserve", "resources", &whole, vec![]),
        ] {
            let (status, text) = stage.form(path, field, value).await;
            assert_eq!(
                (status, text.as_str()),
                (StatusCode::ACCEPTED, ""),
                "{path}"
            );
            assert_eq!(stage.reserved().await, shown, "{path}");
        }
        let all = [
            "reserve",
            "create",
            "destroy",
            "create",
            "destroy",
            "unreserve",
        ];
        assert_eq!(stage.applied().await, all);

        for (path, value, status, words) in [
            ("/create-volumes", &data, StatusCode::CONFLICT, "disk"),
            ("/destroy-volumes", &data, StatusCode::CONFLICT, "disk"),
            (
                "/create-volumes",
                &whole,
                StatusCode::BAD_REQUEST,
                "persistent volumes only",
            ),
            (
                "/destroy-volumes",
                &json!("data"),
                StatusCode::BAD_REQUEST,
                "A right one: curl -d slaveId=ID -d volumes=",
            ),
        ] {
            let (found, text) = stage.form(path, "volumes", value).await;
            assert_eq!(found, status, "{path} {value}: {text}");
            assert!(text.contains(words), "{path} {value}: {text}");
        }
        assert!(stage.applied().await.is_empty());
    });
}

/// SPEC 2.6: CREATE_VOLUMES, GROW_VOLUME, SHRINK_VOLUME, DESTROY_VOLUMES.
#[test]
fn volumes_are_created_resized_and_destroyed_by_calls() {
    rehearse(|node| async move {
        let stage = Stage::new(&node).await;
        let reserve = json!({ "resources": [disk(64, false)] });
        let (status, text) = stage.call("RESERVE_RESOURCES", reserve).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{text}");
        let grow =
            |from: u32, by: u32| json!({ "volume": disk(from, true), "addition": disk(by, false) });
        let shrink =
            |from: u32, by: u32| json!({ "volume": disk(from, true), "subtract": { "value": by } });
        for (name, said, shown) in [
            (
                "CREATE_VOLUMES",
                json!({ "volumes": [disk(20, true)] }),
                vec![volume(20.0), (44.0, None)],
            ),
            (
                "GROW_VOLUME",
                grow(20, 30),
                vec![(14.0, None), volume(50.0)],
            ),
            (
                "SHRINK_VOLUME",
                shrink(50, 10),
                vec![(24.0, None), volume(40.0)],
            ),
            (
                "DESTROY_VOLUMES",
                json!({ "volumes": [disk(40, true)] }),
                vec![(64.0, None)],
            ),
        ] {
            let (status, text) = stage.call(name, said).await;
            assert_eq!(status, StatusCode::ACCEPTED, "{name}: {text}");
            assert_eq!(stage.reserved().await, shown, "{name}");
        }
        let all = [
            "reserve",
            "create",
            "grow_volume",
            "shrink_volume",
            "destroy",
        ];
        assert_eq!(stage.applied().await, all);

        let create = json!({ "volumes": [disk(40, true)] });
        stage.call("CREATE_VOLUMES", create).await;
        stage.applied().await;
        for (name, said, status, words) in [
            ("GROW_VOLUME", grow(40, 25), StatusCode::CONFLICT, "disk"),
            ("GROW_VOLUME", grow(41, 5), StatusCode::CONFLICT, "disk"),
            (
                "SHRINK_VOLUME",
                shrink(40, 40),
                StatusCode::BAD_REQUEST,
                "less than the volume, 40",
            ),
            (
                "SHRINK_VOLUME",
                json!({ "volume": disk(40, true) }),
                StatusCode::BAD_REQUEST,
                "subtract",
            ),
            (
                "GROW_VOLUME",
                json!({ "volume": disk(40, true) }),
                StatusCode::BAD_REQUEST,
                "addition",
            ),
        ] {
            let (found, text) = stage.call(name, said).await;
            assert_eq!(found, status, "{name}: {text}");
            assert!(text.contains(words), "{name}: {text}");
        }
        assert!(stage.applied().await.is_empty());
        assert_eq!(stage.reserved().await, [(24.0, None), volume(40.0)]);
    });
}
