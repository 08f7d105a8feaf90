//! Operators' operations over HTTP: the forms that `curl -d` sends, and the calls of `/api/v1`
//! (SPEC 2.6, 3.9; S93).

use module_api::allocator::{Grant, Granted};
use protocol::message::operation::ApplyOperation;
use protocol::message::operator::OperationRefused;
use protocol::message::scheduler::{AcceptOffers, OffersMade};
use protocol::{AgentId, AgentResources, Operation};
use resources::{Conversion, Reservation, Role};
use testkit::rows;

use super::*;

/// An agent that records its operations, and a scheduler.
#[derive(Default)]
struct Applier(Vec<&'static str>);

/// Asks for the recorded operations.
struct Applied;

impl runtime::prelude::Message for Applied {
    type Result = Vec<&'static str>;
}

impl Actor for Applier {
    type Context = Context<Self>;
}

impl Process for Applier {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<ApplyOperation>();
        handlers.accept_local::<OffersMade>();
    }
}

impl Handler<OffersMade> for Applier {
    type Result = ();
    fn handle(&mut self, _: OffersMade, _: &mut Context<Self>) {}
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
struct Fixture {
    master: Handle<Master>,
    routes: Router,
    applier: Handle<Applier>,
    id: String,
}

/// 64 MB reserved for the role, or a volume of this size.
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

impl Fixture {
    async fn new(node: &Node) -> Self {
        let master = master(node).await;
        let applier = node.spawn("applier", Applier::default()).unwrap();
        let resources: Resources = "cpus:4;disk:100".parse().unwrap();
        let agent = RegisterAgent {
            resources: Some(AgentResources {
                version: protocol::Uuid([1; 16]),
                total: resources.clone(),
                operations: Vec::new(),
                settled: None,
            }),
            digest_key: DigestKey::new([8; 16]),
            ..testkit::values::registration(AgentInfo::new("host-2", resources), applier.pid())
        };
        let registered = master.ask(agent, PATIENCE).await.unwrap().unwrap();
        Self {
            routes: all_routes(node, pages(node, &master)),
            master,
            applier,
            id: registered.agent_id.to_string(),
        }
    }

    /// A form as sent by `curl -d slaveId=ID -d FIELD=JSON`.
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

    /// Reservations of the role on the page: amounts, and ids of volumes.
    async fn reserved(&self) -> Vec<(f64, Option<String>)> {
        let (_, text) = answered(&self.routes, Method::GET, "/master/slaves", "").await;
        let page: Value = serde_json::from_str(&text).unwrap();
        let mut agents = page["slaves"].as_array().unwrap().iter();
        let agent = agents.find(|agent| agent["id"] == *self.id).unwrap();
        let of_role = agent["reserved_resources_full"]["role1"].as_array();
        let mut visible: Vec<_> = of_role
            .into_iter()
            .flatten()
            .map(|one| {
                let id = one["disk"]["persistence"]["id"].as_str();
                let amount = one["scalar"]["value"].as_f64().unwrap();
                (amount, id.map(str::to_owned))
            })
            .collect();
        visible.sort_by(|one, other| one.partial_cmp(other).unwrap());
        visible
    }
}

/// Amounts, of which `*` marks those of volume `data`.
fn amounts(text: &str) -> Vec<(f64, Option<String>)> {
    let amount = |text: &str| {
        let id = text.ends_with('*').then(|| "data".to_owned());
        (text.trim_end_matches('*').parse().unwrap(), id)
    };
    text.split_whitespace().map(amount).collect()
}

/// S93; SPEC 3.9: 202, 400, 409.
// Covers S93.
#[test]
fn volumes_are_created_and_destroyed_by_curl_forms() {
    simulate(|node| async move {
        let fixture = Fixture::new(&node).await;
        let (whole, data) = (json!([disk(64, false)]), json!([disk(40, true)]));
        // The reserved amounts afterwards; `*` marks a volume.
        for [path, visible] in rows(
            "
            /master/reserve | 64
            /master/create-volumes | 24 40*
            /destroy-volumes | 64
            /create-volumes | 24 40*
            /master/destroy-volumes | 64
            /unreserve |
        ",
        ) {
            let (field, value) = match path.ends_with("reserve") {
                true => ("resources", &whole),
                false => ("volumes", &data),
            };
            let (status, text) = fixture.form(path, field, value).await;
            assert_eq!((status.as_u16(), text.as_str()), (202, ""), "{path}");
            assert_eq!(fixture.reserved().await, amounts(visible), "{path}");
        }
        let all = [
            "reserve",
            "create",
            "destroy",
            "create",
            "destroy",
            "unreserve",
        ];
        assert_eq!(fixture.applied().await, all);

        for [path, value, status, words] in rows(
            "
            /create-volumes | data | 409 | disk
            /destroy-volumes | data | 400 | Invalid DESTROY operation: Persistent volumes not found
            /create-volumes | whole | 400 | Invalid CREATE operation on agent
            /destroy-volumes | text | 400 | valid example: curl -d slaveId=ID -d volumes=
        ",
        ) {
            let sent = match value {
                "data" => &data,
                "whole" => &whole,
                _ => &json!("data"),
            };
            let (found, text) = fixture.form(path, "volumes", sent).await;
            assert_eq!(found.as_str(), status, "{path} {value}: {text}");
            assert!(text.contains(words), "{path} {value}: {text}");
        }
        assert!(fixture.applied().await.is_empty());
    });
}

/// SPEC 2.6: CREATE_VOLUMES, GROW_VOLUME, SHRINK_VOLUME, DESTROY_VOLUMES.
#[test]
fn volumes_are_created_resized_and_destroyed_by_calls() {
    simulate(|node| async move {
        let fixture = Fixture::new(&node).await;
        let reserve = json!({ "resources": [disk(64, false)] });
        let (status, text) = fixture.call("RESERVE_RESOURCES", reserve).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{text}");
        // `disk N` and `volume N` stand for the resources.
        let said = |text: &str| -> Value {
            let sizes = [5, 10, 20, 25, 30, 40, 41, 50];
            let text = sizes.iter().fold(text.to_owned(), |text, size| {
                let text = text.replace(&format!("<disk {size}>"), &disk(*size, false).to_string());
                text.replace(&format!("<volume {size}>"), &disk(*size, true).to_string())
            });
            serde_json::from_str(&text).unwrap()
        };
        for [name, content, visible] in rows(
            r#"
            CREATE_VOLUMES | {"volumes":[<volume 20>]} | 20* 44
            GROW_VOLUME | {"volume":<volume 20>,"addition":<disk 30>} | 14 50*
            SHRINK_VOLUME | {"volume":<volume 50>,"subtract":{"value":10}} | 24 40*
            DESTROY_VOLUMES | {"volumes":[<volume 40>]} | 64
        "#,
        ) {
            let (status, text) = fixture.call(name, said(content)).await;
            assert_eq!(status, StatusCode::ACCEPTED, "{name}: {text}");
            assert_eq!(fixture.reserved().await, amounts(visible), "{name}");
        }
        let all = [
            "reserve",
            "create",
            "grow_volume",
            "shrink_volume",
            "destroy",
        ];
        assert_eq!(fixture.applied().await, all);

        let create = json!({ "volumes": [disk(40, true)] });
        fixture.call("CREATE_VOLUMES", create).await;
        fixture.applied().await;
        for [name, content, status, words] in rows(
            r#"
            GROW_VOLUME | {"volume":<volume 40>,"addition":<disk 25>} | 409 | disk
            GROW_VOLUME | {"volume":<volume 41>,"addition":<disk 5>} | 409 | disk
            SHRINK_VOLUME | {"volume":<volume 40>,"subtract":{"value":40}} | 400 | must be smaller than the size of 'ShrinkVolume.volume'
            SHRINK_VOLUME | {"volume":<volume 40>} | 400 | subtract
            GROW_VOLUME | {"volume":<volume 40>} | 400 | addition
        "#,
        ) {
            let (found, text) = fixture.call(name, said(content)).await;
            assert_eq!(found.as_str(), status, "{name} {content}: {text}");
            assert!(text.contains(words), "{name}: {text}");
        }
        assert!(fixture.applied().await.is_empty());
        assert_eq!(fixture.reserved().await, amounts("24 40*"));
    });
}

/// SPEC 2.6: RESERVE_RESOURCES with a source pops, then pushes, and does all of it or nothing.
#[test]
fn reservation_is_changed_in_one_call() {
    simulate(|node| async move {
        let fixture = Fixture::new(&node).await;
        let reserved = |size: u32, stack: &[&str]| {
            let entry = |role: &&str| json!({ "type": "DYNAMIC", "role": role });
            json!([{
                "name": "disk", "type": "SCALAR", "scalar": { "value": size },
                "reservations": stack.iter().map(entry).collect::<Vec<_>>(),
            }])
        };
        let reserve = async |source: &Value, resources: &Value| {
            let said = json!({ "source": source, "resources": resources });
            fixture.call("RESERVE_RESOURCES", said).await
        };
        let (plain, eng) = (reserved(64, &[]), reserved(64, &["eng", "eng/web"]));
        let (status, text) = reserve(&plain, &eng).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{text}");
        assert_eq!(fixture.applied().await, ["reserve", "reserve"]);
        let role1 = reserved(64, &["role1"]);
        let (status, text) = reserve(&eng, &role1).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{text}");
        let steps = ["unreserve", "unreserve", "reserve"];
        assert_eq!(fixture.applied().await, steps);
        assert_eq!(fixture.reserved().await, [(64.0, None)]);

        // A partial operation is not applied.
        for [source, wanted, status, words] in rows(
            "
            64 role1 | 65 eng | 400 | but for their reservations
            65 role1 | 65 eng | 409 | disk
            64 role1 | 64 eng role1 | 400 | eng
            64 role1 | 64 role1 | 400 | reservations
        ",
        ) {
            let [source, resources] = [source, wanted].map(|text| {
                let (size, roles) = text.split_once(' ').unwrap();
                reserved(size.parse().unwrap(), &roles.split(' ').collect::<Vec<_>>())
            });
            let (found, text) = reserve(&source, &resources).await;
            assert_eq!(found.as_str(), status, "{resources}: {text}");
            assert!(text.contains(words), "{resources}: {text}");
            assert_eq!(fixture.reserved().await, [(64.0, None)]);
        }
        assert!(fixture.applied().await.is_empty());
    });
}

/// SPEC 2.6: a volume in the way is found before anything is changed.
#[test]
fn unreserving_is_refused_if_reserving_again_fails() {
    simulate(|node| async move {
        let fixture = Fixture::new(&node).await;
        let whole = json!({ "resources": [disk(64, false)] });
        fixture.call("RESERVE_RESOURCES", whole).await;
        fixture.applied().await;
        let state = fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let agent_id: AgentId = fixture.id.parse().unwrap();
        let of_role = |resources: &str, role: &str| {
            let plain: Resources = resources.parse().unwrap();
            let entry = Reservation::dynamic(Role::new(role).unwrap(), Some("ops"));
            plain.push_reservation(&entry).unwrap()
        };
        let conversions = vec![
            Conversion::Unreserve {
                resources: of_role("disk:64", "role1"),
            },
            Conversion::Reserve {
                resources: of_role("disk:101", "eng"),
            },
        ];
        let mut changed = MasterState::clone(&state);
        let mut out = Vec::new();
        let refused = changed.operate_all(agent_id, conversions, &mut out);
        assert_matches!(refused, Err(OperationRefused::NotFree { .. }));
        assert_eq!(out, []);
        let total = |state: &MasterState| {
            let mut agents = state.agents.iter();
            let agent = agents.find(|agent| agent.id.as_str() == fixture.id);
            agent.unwrap().info.resources.clone()
        };
        assert_eq!(total(&changed), total(&state));
    });
}

/// SPEC 2.6, GET_OPERATIONS; 3.7.
#[test]
fn operation_content_is_visible_with_framework_and_roles() {
    simulate(|node| async move {
        let fixture = Fixture::new(&node).await;
        let mut framework = FrameworkInfo::new("alice", "ads");
        framework.roles = ["ads".to_owned()].into();
        let subscribe = Subscribe {
            framework,
            scheduler: fixture.applier.pid(),
            wants: Default::default(),
        };
        let subscribed = fixture.master.ask(subscribe, PATIENCE).await.unwrap();
        let framework_id = subscribed.unwrap().framework_id;
        let agent_id: AgentId = fixture.id.parse().unwrap();
        let state = async || fixture.master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let ads = Role::new("ads").unwrap();
        let grant = Grant {
            framework_id: framework_id.clone(),
            role: "ads".to_owned(),
            agent_id: agent_id.clone(),
            session: state().await.agents.get(&agent_id).unwrap().session,
            resources: "cpus:4".parse::<Resources>().unwrap().allocate(&ads),
        };
        let grants = vec![grant];
        fixture
            .master
            .ask(Granted { grants }, PATIENCE)
            .await
            .unwrap();
        let entry = Reservation::dynamic(ads, None);
        let cpu: Resources = "cpus:1".parse().unwrap();
        let conversion = Conversion::Reserve {
            resources: cpu.push_reservation(&entry).unwrap(),
        };
        let accept = AcceptOffers {
            framework_id: framework_id.clone(),
            offer_ids: state()
                .await
                .offers
                .iter()
                .map(|one| one.id.clone())
                .collect(),
            operations: vec![Operation::Convert {
                id: Some("op".parse().unwrap()),
                conversion,
            }],
            filters: Default::default(),
        };
        fixture.master.ask(accept, PATIENCE).await.unwrap();

        let (status, text) = fixture.call("GET_OPERATIONS", json!({})).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let operation = &answer["get_operations"]["operations"][0];
        assert_eq!(operation["framework_id"]["value"], framework_id.as_str());
        assert_eq!(operation["agent_id"]["value"], *fixture.id);
        assert_eq!(operation["latest_status"]["state"], "OPERATION_PENDING");
        let info = &operation["info"];
        assert_eq!(
            (&info["type"], &info["id"]["value"]),
            (&json!("RESERVE"), &json!("op"))
        );
        let reserved = &info["reserve"]["resources"][0];
        assert_eq!(reserved["reservations"][0]["role"], "ads");
        assert!(reserved.get("allocation_info").is_none(), "{reserved}");

        let state = state().await;
        let visible = |acls: &str| {
            let acls = authority::Acls::parse(acls).unwrap();
            let visibility = crate::api::visibility::Visibility::of(&acls, &Subject::named("bob"));
            VisibleState::of(&visibility.filter(&state))
                .operations()
                .count()
        };
        assert_eq!(visible("{}"), 1);
        for (action, object, value, count) in [
            ("view_roles", "roles", "ads", 1),
            ("view_roles", "roles", "dev", 0),
            ("view_frameworks", "users", "alice", 1),
            ("view_frameworks", "users", "carol", 0),
        ] {
            let one = format!(
                r#"{{"principals":{{"values":["bob"]}},"{object}":{{"values":["{value}"]}}}}"#
            );
            let others =
                format!(r#"{{"principals":{{"type":"ANY"}},"{object}":{{"type":"NONE"}}}}"#);
            let acls = format!(r#"{{"{action}":[{one},{others}]}}"#);
            assert_eq!(visible(&acls), count, "{action} {value}");
        }
    });
}
