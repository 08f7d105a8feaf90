//! Tests of the state pages: keys, values and sums as Mesos' tools read them.
//!
//! | module | contents |
//! |---|---|
//! | `acls` | the ACL that decides each request |
//! | `elsewhere` | answers of a master that does not lead |
//! | `entries` | present and absent keys of agents and frameworks |
//! | `hostile` | malformed bodies at every endpoint that reads one |
//! | `limits` | rate limits of frameworks' HTTP calls |
//! | `operations` | operators' operations over HTTP |

pub(crate) mod acls;
mod elsewhere;
mod entries;
mod hostile;
mod limits;
mod operations;

use std::collections::BTreeMap;

use ::http::system::metrics::collect;
use authority::Throttle;
use axum::http::HeaderMap;
use futures_util::FutureExt;
use module_api::AllocatorRef;
use module_api::allocator::{
    AgentAdded, Begin, FrameworkActivity, FrameworkAdded, FrameworkRemoved,
};
use protocol::digest::DigestKey;
use protocol::message::registration::RegisterAgent;
use protocol::message::scheduler::Subscribe;
use protocol::{AgentInfo, FrameworkInfo};
use resources::{Attributes, Resources};
use runtime::prelude::*;
use runtime::testing::simulate;
use serde_json::Value;
use testkit::assert_matches;

use super::*;
use crate::api::pages::page::page;
use crate::api::pages::{pieces, source};
use crate::api::v0::state;
use crate::master::{Master, TakeSnapshot, Unfollow};
use crate::registry::MemoryRegistry;
use crate::state::MasterState;

/// An allocator that grants nothing.
pub(super) struct Idle;

impl Actor for Idle {
    type Context = Context<Self>;
}

impl Process for Idle {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<Begin>();
        handlers.accept_local::<AgentAdded>();
        handlers.accept_local::<FrameworkAdded>();
        handlers.accept_local::<FrameworkRemoved>();
        handlers.accept_local::<FrameworkActivity>();
    }
}

macro_rules! ignores {
    ($($message:ty),*) => {$(
        impl Handler<$message> for Idle {
            type Result = ();
            fn handle(&mut self, _: $message, _: &mut Context<Self>) {}
        }
    )*};
}
ignores!(
    Begin,
    AgentAdded,
    FrameworkAdded,
    FrameworkRemoved,
    FrameworkActivity
);

fn allocator(node: &Node) -> AllocatorRef {
    AllocatorRef::new(node.refer(Pid::new("allocator", node.id().clone(), 0)))
}

fn event_stream(node: &Node, local: &LocalLeader) -> EventStream {
    let streams = ::http::api::EventStreams::new(node);
    stream::open(node, local, &config(), &streams).unwrap()
}

fn config() -> Config {
    Config {
        flags: [("port", "5050"), ("cluster", "test"), ("domain", "eu/1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        weights: BTreeMap::from([("dev".to_owned(), 2.0)]),
        ..Config::default()
    }
}

/// A master without agents and frameworks, and its allocator.
pub(super) async fn bare_master(node: &Node) -> (Handle<Master>, Handle<Idle>) {
    let idle = node.spawn("allocator", Idle).unwrap();
    let registry = Box::new(MemoryRegistry::new());
    let allocator = AllocatorRef::new(idle.refer());
    let started = crate::start(node, config(), 0, allocator, registry).unwrap();
    node.clock().settle().await;
    (started.master, idle)
}

/// A master with one agent and one framework.
pub(crate) async fn master(node: &Node) -> Handle<Master> {
    let (master, idle) = bare_master(node).await;
    let agent = testkit::values::registration(
        AgentInfo {
            attributes: Attributes::parse("rack:r1").unwrap(),
            ..AgentInfo::new(
                "host-1",
                "cpus:4;mem(ads):512;ports:[31000-32000]".parse().unwrap(),
            )
        },
        idle.pid(),
    );
    master.ask(agent, PATIENCE).await.unwrap().unwrap();
    let subscribe = Subscribe {
        framework: FrameworkInfo::new("nobody", "web"),
        scheduler: idle.pid(),
        wants: Default::default(),
    };
    master.ask(subscribe, PATIENCE).await.unwrap().unwrap();
    master
}

async fn body(
    node: &Node,
    master: &Handle<Master>,
    make: fn(VisibleState<'_>, &PublishedFlags) -> Vec<u8>,
) -> Value {
    let (local, published) = (
        LocalLeader::of(master),
        Arc::new(PublishedFlags::of(&config())),
    );
    let found = source::find(
        &local,
        node,
        &published,
        Caller::default(),
        &HeaderMap::new(),
    )
    .await;
    let Found::Here(source) = found else {
        panic!("the master answers");
    };
    let response = source.page(make).await;
    assert_eq!(response.status(), StatusCode::OK);
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20)
        .await
        .unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// All routes of this master.
pub(super) fn all_routes(node: &Node, pages: Pages) -> Router {
    let Pages {
        local,
        counters,
        events,
        ..
    } = pages;
    let streams = EventStreams::new(node);
    routes(&local, node, &config(), counters, &events, &streams)
}

/// The status and the text of the answer of these routes to a request with this method, at this
/// path, with this body.
async fn answered(routes: &Router, method: Method, path: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method.clone()).uri(path);
    let is_form = method == Method::POST && !body.starts_with(['{', '[']);
    let content_type = match is_form {
        true => "application/x-www-form-urlencoded", // As `curl -d` always sends.
        false => JSON,
    };
    let request = request.header("content-type", content_type);
    let request = request.body(body.to_owned().into()).unwrap();
    let routes = axum::routing::any_service(routes.clone());
    let response = axum::handler::Handler::call(routes, request, ()).await;
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20);
    let text = String::from_utf8(bytes.await.unwrap().to_vec()).unwrap();
    (status, text)
}

/// The pages' shared state with this master.
pub(super) fn pages(node: &Node, master: &Handle<Master>) -> Pages {
    let local = LocalLeader::of(master);
    let events = event_stream(node, &local);
    Pages {
        counters: counters(
            &local,
            node,
            &allocator(node),
            &events,
            &Throttle::default(),
        ),
        published: Arc::new(PublishedFlags::of(&config())),
        acls: authority::Reloadable::default(),
        batches: Batches::new(node.clock(), local.hits()),
        cache: PageCache::new(node),
        node: node.clone(),
        address: "master:5050".to_owned(),
        local,
        events,
    }
}

/// All pages of this state.
pub(crate) fn everything(state: &MasterState, published: &PublishedFlags) -> Value {
    let visible = VisibleState::of(state);
    let whole = page(&state::Whole { visible, published }, None);
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    json!([
        whole,
        state::Summary { visible, published },
        state::Roles(visible),
        state::Tasks(state::all_tasks(visible).collect()),
    ])
}

/// SPEC 3.12, keys verbatim. Keys that exist only with a flag (`domain`, `cluster`) or never
/// (`log_dir`, `drain_info`) are left out, as in Mesos.
// Covers S94; 3.12 Pages of masters.
#[test]
fn the_pages_have_the_keys_that_tools_read() {
    simulate(|node| async move {
        let master = master(&node).await;
        let state = body(&node, &master, |visible, published| {
            page(&state::Whole { visible, published }, None)
        })
        .await;
        has_keys(
            &state,
            "version meros_version git_sha git_branch git_tag build_date build_time build_user start_time elected_time id pid hostname capabilities \
             activated_slaves deactivated_slaves unreachable_slaves domain leader leader_info cluster flags slaves recovered_slaves \
             frameworks completed_frameworks orphan_tasks unregistered_frameworks",
        );
        has_keys(&state["leader_info"], "id pid port hostname domain");
        let region = &state["domain"]["fault_domain"]["region"]["name"];
        assert_eq!((region, &state["cluster"]), (&json!("eu"), &json!("test")));
        let agent = &state["slaves"][0];
        let of_agent = "id hostname port attributes pid registered_time resources used_resources offered_resources \
             reserved_resources unreserved_resources active deactivated version meros_version capabilities";
        has_keys(agent, of_agent);
        has_keys(&agent["resources"], "cpus gpus mem disk");
        assert_eq!(agent["hostname"], "host-1");
        for (page, own) in [(&state, env!("CARGO_PKG_VERSION")), (agent, "1")] {
            assert_eq!(
                (&page["version"], &page["meros_version"]),
                (&json!("1.11.0"), &json!(own))
            );
        }
        assert_eq!(agent["resources"]["cpus"], 4.0);
        assert_eq!(agent["resources"]["gpus"], 0.0);
        assert_eq!(agent["resources"]["ports"], "[31000-32000]");
        assert_eq!(agent["reserved_resources"]["ads"]["mem"], 512.0);
        assert_eq!(agent["attributes"]["rack"], "r1");
        let framework = &state["frameworks"][0];
        let in_short = "id name used_resources offered_resources capabilities hostname webui_url active connected recovered";
        has_keys(framework, in_short);
        has_keys(
            framework,
            "user failover_timeout checkpoint registered_time unregistered_time resources role roles \
             tasks unreachable_tasks completed_tasks offers executors labels offer_constraints",
        );
        assert_eq!(
            (&framework["name"], &framework["active"]),
            (&json!("web"), &json!(true))
        );
        assert_eq!(framework["role"], "*");

        let page = |visible: VisibleState<'_>, _: &PublishedFlags| {
            crate::api::pages::page::page(&state::Slaves(visible), None)
        };
        let slaves = body(&node, &master, page).await;
        has_keys(&slaves, "slaves recovered_slaves");
        let agent = &slaves["slaves"][0];
        has_keys(agent, of_agent);
        has_keys(
            agent,
            "reserved_resources_full unreserved_resources_full used_resources_full offered_resources_full",
        );
        let reserved = &agent["reserved_resources_full"]["ads"][0];
        assert_eq!(reserved["scalar"]["value"], 512.0);
        // In both forms: tools for older masters read these.
        assert_eq!(reserved["reservations"][0]["role"], "ads");
        assert_eq!(
            (&reserved["role"], reserved.get("reservation")),
            (&json!("ads"), None),
            "it is static"
        );
        assert_eq!(agent["unreserved_resources_full"][0]["role"], "*");
        let page = |visible: VisibleState<'_>, _: &PublishedFlags| {
            crate::api::pages::page::page(&state::Frameworks(visible), None)
        };
        let frameworks = body(&node, &master, page).await;
        has_keys(
            &frameworks,
            "frameworks completed_frameworks unregistered_frameworks",
        );

        let page = |visible: VisibleState<'_>, _: &PublishedFlags| text(&state::Roles(visible));
        let roles = body(&node, &master, page).await;
        let dev = roles["roles"].as_array().unwrap();
        let dev = dev.iter().find(|role| role["name"] == "dev").unwrap();
        has_keys(
            dev,
            "name weight quota resources allocated offered reserved frameworks",
        );
        has_keys(&dev["quota"], "role guarantee limit consumed");
        assert_eq!(dev["weight"], 2.0);
        let summary = body(&node, &master, |visible, published| {
            text(&state::Summary { visible, published })
        })
        .await;
        has_keys(&summary, "hostname cluster slaves frameworks");
        let counts = "TASK_STAGING TASK_STARTING TASK_RUNNING TASK_KILLING TASK_FINISHED TASK_KILLED TASK_FAILED TASK_LOST TASK_ERROR \
             TASK_UNREACHABLE";
        has_keys(&summary["slaves"][0], counts);
        has_keys(&summary["slaves"][0], "framework_ids");
        has_keys(&summary["frameworks"][0], counts);
        has_keys(&summary["frameworks"][0], in_short);
        has_keys(&summary["frameworks"][0], "slave_ids");
        assert_eq!(summary["slaves"][0]["TASK_RUNNING"], 0);
    });
}

#[track_caller]
fn has_keys(object: &Value, keys: &str) {
    for key in keys.split_whitespace() {
        assert!(object.get(key).is_some(), "{key} is missing in {object}");
    }
}

/// SPEC 3.12: a task, an offer and an executor, with all that they can have.
// Covers 3.12 Pages of masters.
#[test]
fn task_offer_and_executor_entries_have_all_keys() {
    let crowd = testkit::agents::SyntheticAgents::new(1, 1).unwrap();
    let running = &crowd.reports[0].held.tasks[0];
    let resources = running.info.resources.clone();
    let state = protocol::TaskState::Running;
    let mut task = crate::tasks::Task::placed(
        running.framework_id.clone(),
        &running.info,
        resources,
        state,
    );
    let at = runtime::Timestamp::from_nanos(5);
    let mut status = protocol::TaskStatus::new(task.id.clone(), state, protocol::Source::Agent, at);
    status.container_id = Some("c".parse().unwrap());
    status.healthy = Some(true);
    status.address = Some([10, 0, 0, 7].into());
    task.observe(&status, state);
    task.kill_policy = Some(protocol::KillPolicy {
        grace_period: Duration::from_nanos(5),
    });
    task.health_check = Some(Box::new(protocol::HealthCheck {
        kind: protocol::task::check::CheckKind::Tcp(Default::default()),
        timing: Default::default(),
        grace_period: Duration::ZERO,
        consecutive_failures: 3,
    }));
    task.labels.extend([
        ("tier".to_owned(), "web".to_owned()),
        (
            protocol::text::reserved_labels::DISCOVERY.to_owned(),
            r#"{"visibility":"EXTERNAL","name":"shop"}"#.to_owned(),
        ),
    ]);
    task.user = None;
    let entry = serde_json::to_value(pieces::TaskEntry(&task)).unwrap();
    assert_eq!(entry.get("user"), None, "that of its framework");
    task.user = Some("alice".to_owned());
    let entry = serde_json::to_value(pieces::TaskEntry(&task)).unwrap();
    assert_eq!(entry["user"], "alice");
    has_keys(
        &entry,
        "id name framework_id executor_id slave_id state resources limits role statuses user labels discovery health_check",
    );
    let found = serde_json::json!({ "visibility": "EXTERNAL", "name": "shop" });
    assert_eq!(entry["discovery"], found);
    let labels = serde_json::json!([{ "key": "tier", "value": "web" }]);
    assert_eq!(entry["labels"], labels, "and it is no label");
    let status = &entry["statuses"][0];
    has_keys(status, "state timestamp labels container_status healthy");
    let container = serde_json::json!({
        "container_id": { "value": "c" },
        "network_infos": [{ "ip_addresses": [{ "protocol": "IPv4", "ip_address": "10.0.0.7" }] }],
    });
    assert_eq!(status["container_status"], container);
    let said: v1::schema::Task = v1::describe::build(&task);
    let said: Value = serde_json::from_slice(&v1::json::write(&said)).unwrap();
    assert_eq!(said["discovery"], found);
    assert_eq!(said["labels"]["labels"], labels);
    assert_eq!(said["kill_policy"]["grace_period"]["nanoseconds"], 5);
    assert_eq!(said["health_check"], entry["health_check"]);
    assert_eq!(entry["health_check"]["delay_seconds"], 15.0);
    assert_eq!(said["statuses"][0]["container_status"], container);
    let offer = protocol::Offer {
        id: "o".parse().unwrap(),
        framework_id: task.framework_id.clone(),
        role: "*".to_owned(),
        agent_id: task.agent_id.clone(),
        hostname: "h".to_owned(),
        resources: task.resources.clone(),
        attributes: Default::default(),
        executor_ids: Default::default(),
        unavailability: None,
        domain: None,
        endpoint: None,
    };
    let entry = serde_json::to_value(pieces::OfferEntry(&offer)).unwrap();
    has_keys(&entry, "id framework_id allocation_info slave_id resources");
}

/// SPEC 3.10.
// Covers 3.10 `http_cache_hits`.
#[test]
fn metrics_have_the_names_used_by_alerts() {
    simulate(|node| async move {
        let master = master(&node).await;
        node.clock().advance(Duration::from_secs(30)).await;
        // A wall clock that was set an hour back changes no duration.
        node.clock().set_wall_offset(-3_600_000_000_000);
        let local = LocalLeader::of(&master);
        let events = event_stream(&node, &local);
        let counters = counters(
            &local,
            &node,
            &allocator(&node),
            &events,
            &Throttle::default(),
        );
        let metrics = collect(&node, &counters, PATIENCE).await;
        for (name, value) in [
            ("master/uptime_secs", 30.0),
            ("master/elected", 1.0),
            ("master/slaves_active", 1.0),
            ("master/slaves_unreachable", 0.0),
            ("master/frameworks_connected", 1.0),
            ("master/tasks_running", 0.0),
            ("master/tasks_lost", 0.0),
            ("master/outstanding_offers", 0.0),
            ("master/operator_event_stream_subscribers", 0.0),
            ("master/http_cache_hits", 0.0),
            ("master/cpus_total", 4.0),
            ("master/cpus_percent", 0.0),
            ("master/cpus_revocable_total", 0.0),
            ("master/slave_registrations", 1.0),
            ("master/messages_register_slave", 1.0),
            ("master/dropped_messages", 0.0),
            ("allocator/mesos/event_queue_dispatches", 0.0),
            ("allocator/event_queue_dispatches", 0.0),
            ("master/operations/create_disk/total", 0.0),
            ("master/operations/destroy_disk/gone_by_operator", 0.0),
            ("master/event_queue_messages", 0.0),
            ("master/event_queue_dispatches", 0.0),
            ("master/event_queue_http_requests", 0.0),
            ("master/recovery_slave_removals", 0.0),
            ("master/valid_operation_status_updates", 0.0),
        ] {
            assert_eq!(metrics.get(name), Some(&value), "{name}");
        }
        let of = |what: &str| {
            let found = metrics.iter().find(|(name, _)| {
                name.starts_with("master/frameworks/web/") && name.ends_with(what)
            });
            found.map(|(_, value)| *value)
        };
        assert_eq!(of("-0000/subscribed"), Some(1.0));
        assert_eq!(of("-0000/tasks/active/task_running"), Some(0.0));
        assert_eq!(of("-0000/roles/*/suppressed"), Some(0.0));
    });
}

/// SPEC 3.9.
// Covers 3.9 Pages of masters.
#[test]
fn endpoints_in_the_help_exist() {
    simulate(|node| async move {
        let master = master(&node).await;
        let pages = pages(&node, &master);
        let routes = all_routes(&node, pages);
        for (path, sentence) in HELP {
            let (status, text) = answered(&routes, Method::GET, path, "").await;
            assert_ne!(status, StatusCode::NOT_FOUND, "{path}: {text}");
            assert!(sentence.ends_with('.'), "{path}");
        }
    });
}

#[test]
fn ended_master_gives_a_page_error() {
    simulate(|node| async move {
        let master = master(&node).await;
        master.stop();
        node.clock().settle().await;
        let (local, published) = (
            LocalLeader::of(&master),
            Arc::new(PublishedFlags::default()),
        );
        let found = source::find(
            &local,
            &node,
            &published,
            Caller::default(),
            &HeaderMap::new(),
        )
        .await;
        assert!(matches!(found, Found::Late));
        let events = event_stream(&node, &local);
        let counters = counters(
            &local,
            &node,
            &allocator(&node),
            &events,
            &Throttle::default(),
        );
        // Counters of the state are left out, and the others are complete.
        let told = collect(&node, &counters, PATIENCE).await;
        assert!(!told.contains_key("master/elected"), "{told:?}");
        for name in [
            "master/http_cache_hits",
            "master/deposed",
            "system/cpus_total",
        ] {
            assert!(told.contains_key(name), "{name} in {told:?}");
        }
        let _ = routes(
            &local,
            &node,
            &config(),
            counters,
            &events,
            &EventStreams::new(&node),
        );
    });
}

/// W15: pages have their own queue, and do not wait for the master's mailbox. They include
/// everything answered before.
// Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and what is
// kept.
#[test]
fn pages_are_answered_while_the_mailbox_is_full() {
    simulate(|node| async move {
        let master = master(&node).await;
        let pages = pages(&node, &master);
        let counters = pages.counters.clone();
        let routes = all_routes(&node, pages);
        let heavier = r#"[{"role":"dev","weight":3.0}]"#;
        let (status, text) = answered(&routes, Method::PUT, "/weights", heavier).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        for _ in 1..Master::MAILBOX {
            master.tell(Unfollow).unwrap();
        }
        let last = master.ask(TakeSnapshot, PATIENCE);
        assert!(master.tell(Unfollow).is_err(), "it is full");
        let framework = "/explain?framework=web";
        for path in [
            "/state",
            "/master/state-summary",
            "/slaves",
            "/frameworks",
            "/tasks",
            "/roles",
            "/weights",
            "/quota",
            "/maintenance/schedule",
            "/maintenance/status",
        ] {
            let (status, text) = answered(&routes, Method::GET, path, "").await;
            assert_eq!(status, StatusCode::OK, "{path}: {text}");
            if path == "/weights" {
                assert_eq!(text, heavier);
            }
        }
        // The allocator of this test explains nothing, which the master reports.
        let (status, text) = answered(&routes, Method::GET, framework, "").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("allocator"), "{text}");
        for call in [
            "GET_STATE",
            "GET_AGENTS",
            "GET_OPERATIONS",
            "GET_MAINTENANCE_STATUS",
            "GET_METRICS",
        ] {
            let call = json!({ "type": call }).to_string();
            let (status, text) = answered(&routes, Method::POST, "/api/v1", &call).await;
            assert_eq!(status, StatusCode::OK, "{call}: {text}");
        }
        let figures = collect(&node, &counters, PATIENCE).await;
        assert_eq!(figures["master/slaves_active"], 1.0);
        assert!(last.now_or_never().is_none(), "all of it waits still");
    });
}
