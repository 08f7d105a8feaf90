//! A task that fills its sandbox with devices, pipes, set-id files and links out, on a real agent.
//! Needs root to make devices; skipped elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::TaskState;
use serde_json::{Value, json};
use testkit::http::Endpoint;

use crate::in_time::InTime;
use crate::isolation::container;
use crate::machine::skip;
use crate::scripted_framework::{ScriptedFramework, framework, task};
use crate::support::{Cluster, eventually, get};

/// Replaces the directories and files that only the agent makes, too.
const FILL: &str = "mkdir deep; cd deep; mknod zero c 1 5; mknod disk b 7 99; mkfifo pipe; \
    cp /bin/sleep set; chmod 6755 set; ln -s OUTSIDE link; ln -s OUTSIDE/secret file; \
    ln -s /dev/zero linked; ln -s self self; truncate -s 1T sparse; cd ..; ln -s OUTSIDE containers; \
    rm stderr; mknod stderr c 1 5; rm stdout; mkfifo stdout; touch filled; \
    while [ ! -e go ]; do sleep 0.05; done";

/// The names in `deep` that are no files or directories of the sandbox, with their mode.
const STRANGE: [(&str, &str); 7] = [
    ("disk", "brw-r--r--"),
    ("file", "lrwxrwxrwx"),
    ("link", "lrwxrwxrwx"),
    ("linked", "lrwxrwxrwx"),
    ("pipe", "prw-r--r--"),
    ("self", "lrwxrwxrwx"),
    ("zero", "crw-r--r--"),
];

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("UTF-8"));
    names.collect()
}

// Covers 3.9 `/files/*` of agents.
#[test]
fn agent_is_not_fooled_by_the_content_of_a_sandbox() {
    let outside = tempfile::tempdir().expect("a directory");
    let device = outside.path().join("zero");
    let mut make = Command::new("mknod");
    let made = make.arg(&device).args(["c", "1", "5"]).status_in_time();
    if !made.is_ok_and(|status| status.success()) {
        return skip("devices need root");
    }
    std::fs::remove_file(device).expect("a device");
    std::fs::write(outside.path().join("secret"), "secret").expect("a file");

    let cluster = Cluster::master_alone(|_, _| ());
    let mut command = cluster.agent_command("agent", "cpus:2;mem:256;disk:256");
    command.args(["--isolation", "disk/du", "--enforce_container_disk_quota"]);
    command.args([
        "--container_disk_watch_interval=50ms",
        "--max_output_size=1KB",
    ]);
    command.args(["--gc_delay=100ms", "--disk_watch_interval=50ms"]);
    let mut agent = cluster.agent_of(&mut command);
    let mut arguments = command
        .get_args()
        .skip_while(|argument| *argument != "--port");
    let port = arguments
        .nth(1)
        .and_then(|port| port.to_str()?.parse::<u16>().ok());
    let port = port.expect("a port");
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("hostile", "ads"));
    let offer = scripted.standing_offer();
    let fill = FILL.replace("OUTSIDE", &outside.path().display().to_string());
    let info = task("t", &offer, "cpus:0.1;mem:32;disk:16", &fill);
    scripted.launch(&offer, vec![info]);
    let status = scripted.state("t", TaskState::Running);
    let page = |path: &str| -> Value {
        let (status, text) = get(port, path);
        assert!(status.contains("200"), "{path}: {status} {text}");
        serde_json::from_str(&text).expect("JSON")
    };
    let state = page("/state");
    let sandbox = &state["frameworks"][0]["executors"][0]["directory"];
    let sandbox = sandbox.as_str().expect("its sandbox").to_owned();
    eventually("the sandbox to be filled", || {
        Path::new(&sandbox).join("filled").exists().then_some(())
    });

    let listed = page(&format!("/files/browse?path={sandbox}/deep"));
    let listed = listed.as_array().expect("a list").iter();
    let mode_of = |name: &str| {
        let mut listed = listed.clone();
        let entry = listed.find(|entry| entry["path"] == format!("{sandbox}/deep/{name}"));
        entry.map(|entry| entry["mode"].clone())
    };
    for (name, mode) in STRANGE {
        assert_eq!(mode_of(name), Some(json!(mode)), "{name}");
    }
    let operator = Endpoint::new(port, "/api/v1");
    let strange = STRANGE.map(|(name, _)| format!("{sandbox}/deep/{name}"));
    let more = ["deep/link/secret", "containers/secret", "stdout", "stderr"];
    let more = more.map(|name| format!("{sandbox}/{name}"));
    for path in strange.into_iter().chain(more) {
        for page in ["browse", "read", "download"] {
            let (status, text) = get(port, &format!("/files/{page}?path={path}&offset=0"));
            assert!(status.contains(" 40"), "{page} {path}: {status} {text}");
            assert!(!text.contains("\"secret\""), "{page} {path}: {text}");
        }
        for (kind, field) in [("LIST_FILES", "list_files"), ("READ_FILE", "read_file")] {
            let call = json!({ "type": kind, field: { "path": path, "offset": 0 } });
            let answer = operator.post("application/json", call.to_string().as_bytes());
            assert!(
                (400..500).contains(&answer.status),
                "{kind} {path}: {}",
                answer.text()
            );
        }
    }
    let logs = cluster.output(["logs", "t"]);
    assert!(!logs.status.success(), "{logs:?}");

    // A nested container would write into the directory that it is led to.
    let parent = json!({ "value": container(&status).to_string() });
    let launch = json!({ "type": "LAUNCH_NESTED_CONTAINER", "launch_nested_container": {
        "container_id": { "value": "inner", "parent": parent }, "command": { "value": "true" } } });
    let answer = operator.post("application/json", launch.to_string().as_bytes());
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(names(outside.path()), ["secret"]);

    // Neither what it is led to nor a hole of a file counts.
    let used = eventually("the space of the sandbox", || {
        let all = page("/monitor/statistics");
        all[0]["statistics"]["disk_used_bytes"].as_u64()
    });
    assert!(used < 1 << 20, "{used}");
    std::fs::write(Path::new(&sandbox).join("go"), "").expect("a file");
    scripted.state("t", TaskState::Finished);
    eventually("the sandbox to be removed", || {
        (!PathBuf::from(&sandbox).exists()).then_some(())
    });
    let secret = std::fs::read_to_string(outside.path().join("secret"));
    assert_eq!(secret.expect("it is there"), "secret");
    assert!(agent.is_running());
}
