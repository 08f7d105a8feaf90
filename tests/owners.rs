//! Reservations and volumes by operators: through the pages of Mesos and through verbs.

use serde_json::{Value, json};
use testkit::assert_contains;

use crate::support::{Cluster, get, send, stderr, stdout};

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn agent(port: u16) -> Value {
    let (status, text) = get(port, "/master/slaves");
    assert!(status.contains("200"), "{status} {text}");
    let page: Value = serde_json::from_str(&text).expect("JSON");
    page["slaves"][0].clone()
}

#[track_caller]
fn posted(port: u16, path: &str, body: &str, code: &str) -> String {
    let (status, text) = send(port, "POST", path, body);
    assert!(status.contains(code), "{path}: {status} {text}");
    text
}

/// The amounts of a flat resource object that are not zero.
fn amounts(flat: &Value) -> Value {
    let mut flat = flat.clone();
    if let Some(object) = flat.as_object_mut() {
        object.retain(|_, value| *value != json!(0.0));
    }
    flat
}

/// S92 by an operator's hand, and S93: 8 cpus and 4096 MB of 32 and 65536.
// Covers S40 in part: statically and over HTTP; S93.
#[test]
fn operator_reserves_and_unreserves_over_http() {
    let cluster = Cluster::start(1, "cpus:32;mem:65536;disk:0;ports:[]");
    let port = cluster.port;
    let id = agent(port)["id"].as_str().expect("an id").to_owned();
    let resources = |cpus: u32, mem: u32| {
        let one = |name: &str, amount: u32| json!({ "name": name, "type": "SCALAR", "scalar": { "value": amount }, "role": "role1", "reservation": { "principal": "ops" } });
        json!([one("cpus", cpus), one("mem", mem)]).to_string()
    };
    // As curl sends it, without encoding.
    let plain = format!("slaveId={id}&resources={}", resources(8, 4096));
    posted(port, "/master/reserve", &plain, "202");
    let owned = agent(port);
    let reserved = json!({ "cpus": 8.0, "mem": 4096.0 });
    assert_eq!(amounts(&owned["reserved_resources"]["role1"]), reserved);
    let rest = json!({ "cpus": 24.0, "mem": 61440.0 });
    assert_eq!(amounts(&owned["unreserved_resources"]), rest);
    let roles: Value = serde_json::from_str(&get(port, "/roles").1).expect("JSON");
    let role = roles["roles"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["name"] == "role1"));
    let role = role.expect("it has a reservation");
    assert_eq!(amounts(&role["reserved"]), reserved);
    assert_eq!(
        role["quota"]["consumed"], reserved,
        "idle reservations are charged"
    );

    let too_much = format!("slaveId={id}&resources={}", encoded(&resources(25, 1)));
    let problem = posted(port, "/reserve", &too_much, "409");
    assert_contains!(problem, "cpus", "24");
    let seed = "{\n{ name : cpus, type : SCALAR, scalar : { value : 4 }, role : role1 },\n}";
    let body = format!("slaveId={id}&resources={seed}");
    let problem = posted(port, "/master/reserve", &body, "400");
    assert_contains!(
        problem,
        r#"curl -d slaveId=ID -d resources='[{"name":"cpus""#
    );
    let problem = posted(port, "/master/reserve", "resources=[]", "400");
    assert_eq!(
        problem,
        "Missing 'slaveId' query parameter in the request body"
    );
    let unknown = format!("slaveId=nobody&resources={}", resources(1, 1));
    let problem = posted(port, "/reserve", &unknown, "400");
    assert_eq!(problem.trim(), "No agent found with specified ID");

    posted(port, "/unreserve", &plain, "202");
    assert_eq!(amounts(&agent(port)["reserved_resources"]), json!({}));
    posted(port, "/unreserve", &plain, "409");
}

/// S91: an operator's reservation and volume, made and ended by verbs.
// Covers S91.
#[test]
fn verbs_manage_reservations_and_volumes() {
    let cluster = Cluster::start(1, "cpus:4;mem:512;disk:2048;ports:[]");
    let id = agent(cluster.port)["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let done = |arguments: &[&str]| {
        let output = cluster.output(arguments.iter().copied());
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            stderr(&output)
        );
        stdout(&output)
    };
    let refused = |arguments: &[&str]| {
        let output = cluster.output(arguments.iter().copied());
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        stderr(&output)
    };
    done(&[
        "reserve",
        &id,
        "cpus:1;disk:1024",
        "--role",
        "ads",
        "--principal",
        "ops",
    ]);
    done(&["volume", "create", &id, "data", "600", "--role", "ads"]);
    let reserved = |page: Value| amounts(&page["reserved_resources"]["ads"]);
    assert_eq!(
        reserved(agent(cluster.port)),
        json!({ "cpus": 1.0, "disk": 1024.0 })
    );
    // As the page has it.
    let size = || {
        let page = agent(cluster.port);
        let all = page["reserved_resources_full"]["ads"].as_array();
        let volume = all
            .into_iter()
            .flatten()
            .find(|one| one["disk"]["persistence"].is_object());
        volume.map(|volume| volume["scalar"]["value"].clone())
    };
    for (verb, by, then) in [("grow", "300", 900), ("shrink", "200", 700)] {
        let printed = done(&["volume", verb, &id, "data", by]);
        assert_eq!(printed, format!("volume data of {then} MB on {id}\n"));
        assert_eq!(size(), Some(json!(f64::from(then))));
    }
    let problem = refused(&["volume", "grow", &id, "data", "400"]);
    assert_contains!(problem, "nothing was changed", "disk");
    let problem = refused(&["volume", "shrink", &id, "data", "700"]);
    let words = "'ShrinkVolume.subtract' must be smaller than the size of 'ShrinkVolume.volume'";
    assert!(problem.contains(words), "{problem}");
    let problem = refused(&["volume", "create", &id, "more", "600", "--role", "ads"]);
    assert_contains!(problem, "no disk of 600 MB reserved for ads");
    let disk = [
        "unreserve",
        &id,
        "disk:1024",
        "--role",
        "ads",
        "--principal",
        "ops",
    ];
    let problem = refused(&disk);
    assert!(problem.contains("nothing was changed"), "{problem}");
    done(&["volume", "destroy", &id, "data"]);
    done(&disk);
    assert_eq!(reserved(agent(cluster.port)), json!({ "cpus": 1.0 }));
}

/// S95, as the seed writes it on a command line.
// Covers S95.
#[test]
fn documented_resources_are_parsed_and_shown() {
    let resources = "cpus:30;mem:122880;disk:921600;ports:[21000-29000];bugs:{a,b,c}";
    let cluster = Cluster::start(1, resources);
    let shown = agent(cluster.port)["resources"].clone();
    let expected = json!({
        "cpus": 30.0, "mem": 122_880.0, "disk": 921_600.0, "gpus": 0.0,
        "ports": "[21000-29000]", "bugs": "{a,b,c}",
    });
    assert_eq!(shown, expected);
}
