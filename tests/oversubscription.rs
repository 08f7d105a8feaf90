//! Oversubscription end to end, over real processes.
//!
//! The six steps are observed in the logs of agent and master and in the callbacks of the
//! framework, all by the machine's clock.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use protocol::task::check::{CheckKind, CheckTiming};
use protocol::task::{CheckInfo, TaskLimits};
use protocol::text::reserved_labels::{SLA, THROTTLE};
use protocol::{
    Capability, CommandInfo, Filters, FrameworkInfo, Offer, Reason, TaskState, TaskStatus,
};
use runtime::Clock;
use serde_json::Value;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::isolation::{Isolated, container};
use crate::scripted_framework::{Callback, ScriptedFramework, framework, task, text};
use crate::support::{Cluster, Running, eventually, get, sleepers};

/// `--modules` of the `fixed` estimator as documented, with JSON objects in place of lists (S37).
const FIXED: &str = r#"{
  "libraries": {
    "file": "/usr/local/lib64/libfixed_resource_estimator.so",
    "modules": {
      "name": "org_apache_mesos_FixedResourceEstimator",
      "parameters": {
        "key": "resources",
        "value": "cpus:14"
      }
    }
  }
}"#;

/// The same with the `load` controller of S38 beside it, at a threshold that any load is above.
const FIXED_AND_LOAD: &str = r#"{
  "libraries": [
    {
      "file": "/usr/local/lib64/libfixed_resource_estimator.so",
      "modules": {
        "name": "org_apache_mesos_FixedResourceEstimator",
        "parameters": { "key": "resources", "value": "cpus:14" }
      }
    },
    {
      "file": "/usr/local/lib64/libload_qos_controller.so",
      "modules": {
        "name": "org_apache_mesos_LoadQoSController",
        "parameters": [
          { "key": "load_threshold_5min", "value": "0" },
          { "key": "load_threshold_15min", "value": "0" }
        ]
      }
    }
  ]
}"#;

/// Declines without a filter, so the resources may return at once.
const NO_FILTER: Filters = Filters {
    refuse_seconds: 0.0,
};

/// A master and an agent, each a process that logs into a file.
struct Lending {
    cluster: Cluster,
    agent: Running,
    agent_port: u16,
}

impl Lending {
    /// The agent has these flags beside `cpus:2;mem:256`.
    fn start(flags: &[&str]) -> Self {
        let cluster = Cluster::master_alone(|command, directory| {
            command
                .arg("--log=info")
                .stderr(file(&directory.join("master.log")));
        });
        let mut command = cluster.agent_command("agent", "cpus:2;mem:256;disk:0;ports:[]");
        command
            .args(["--log=info,meros_agent=debug"])
            .args([
                "--resource_estimator",
                "org_apache_mesos_FixedResourceEstimator",
            ])
            .args(["--oversubscribed_resources_interval", "100ms"])
            .args(flags)
            .stderr(file(&log(&cluster, "agent")));
        let port = command
            .get_args()
            .skip_while(|flag| *flag != "--port")
            .nth(1);
        let port = port.and_then(|port| port.to_str()?.parse().ok());
        let agent = cluster.agent_of(&mut command);
        Self {
            cluster,
            agent,
            agent_port: port.expect("a port"),
        }
    }

    /// A figure on a page of metrics.
    fn figure(port: u16, name: &str) -> Option<f64> {
        let (_, text) = get(port, "/metrics/snapshot");
        serde_json::from_str::<serde_json::Value>(&text).ok()?[name].as_f64()
    }

    /// When the first line with these words was logged, as the text of a time, which sorts.
    fn logged(&self, who: &str, words: &str) -> String {
        eventually(words, || {
            let text = std::fs::read_to_string(log(&self.cluster, who)).ok()?;
            let line = text.lines().find(|line| line.contains(words))?;
            Some(line.split_whitespace().next()?.to_owned())
        })
    }
}

fn file(path: &Path) -> Stdio {
    File::create(path).expect("a file").into()
}

fn log(cluster: &Cluster, who: &str) -> PathBuf {
    cluster.directory().join(format!("{who}.log"))
}

/// This moment as the log writes it.
fn now() -> String {
    let mut text = String::new();
    let written = SystemTime.format_time(&mut Writer::new(&mut text));
    written.expect("a time is written");
    text
}

fn batch(capabilities: &[Capability]) -> FrameworkInfo {
    let mut info = framework("batch", "*");
    info.capabilities = capabilities.iter().copied().collect();
    info
}

fn is_revocable(offer: &Offer) -> bool {
    offer
        .resources
        .iter()
        .any(|resource| resource.is_revocable())
}

/// The documented flags lend exactly 14 revocable cpus, only to frameworks with the capability.
// Covers S7; S11; S17; S37 in part: read and estimated, not offered.
#[test]
fn documented_flags_lend_cpus_only_to_revocable_frameworks() {
    let lending = Lending::start(&["--modules", FIXED]);
    lending.logged("master", "an agent lends");

    let mut plain = ScriptedFramework::subscribe(&lending.cluster, framework("plain", "*"));
    for _ in 0..5 {
        let offer = plain.offer();
        assert_eq!(text(&offer), "cpus:2;mem:256", "regular resources only");
        plain.decline(vec![offer.id], NO_FILTER);
    }
    let offer = plain.offer();
    assert!(!is_revocable(&offer), "and this one is kept");

    let mut batch =
        ScriptedFramework::subscribe(&lending.cluster, batch(&[Capability::RevocableResources]));
    let lent = batch.offer();
    assert!(
        lent.resources
            .iter()
            .all(|resource| resource.is_revocable())
    );
    assert_eq!(lent.resources.len(), 1);
    assert_eq!(lent.resources.cpus().as_f64(), 14.0);
    let told = std::fs::read_to_string(log(&lending.cluster, "agent")).expect("a log");
    let told = |words| told.lines().filter(|line| line.contains(words)).count();
    assert!(told("oversubscribed resources estimated") > 1);
    let reports = told("oversubscribed resources sent to the master");
    assert_eq!(reports, 1, "estimates that do not differ are not told");
    drop((plain, batch));
    drop(lending.agent);
}

/// Measure, estimate, report, mark, launch, correct, in this order.
// Covers S1; S3; S4 in part: what is measured; S6; S8; S10.
// Covers S16 in part: killing for the machine's load, in two halves; S29 in part: what it advises.
// Covers S33; S35; S36; 3.13 Oversubscribe in part: not with these amounts in one run.
#[test]
fn oversubscription_steps_happen_in_order() {
    let load = "org_apache_mesos_LoadQoSController";
    let qos = [
        "--qos_controller",
        load,
        "--qos_correction_interval_min",
        "20secs",
    ];
    let lending = Lending::start(&[&["--modules", FIXED_AND_LOAD], &qos[..]].concat());
    let cluster = &lending.cluster;

    // The agent is fully allocated, to a task that sleeps.
    let mut regular = ScriptedFramework::subscribe(cluster, framework("regular", "*"));
    let offer = regular.offer();
    let steady = task("steady", &offer, "cpus:2;mem:256", "sleep 98731");
    regular.launch(&offer, vec![steady]);
    regular.state("steady", TaskState::Running);

    let mut batch = ScriptedFramework::subscribe(cluster, batch(&[Capability::RevocableResources]));
    let (name, offered, launched, lost) = preempted_while_running(&mut batch);
    let running = batch.states(&name);
    assert!(
        running.ends_with(&[TaskState::Running, TaskState::Lost]),
        "{running:?}"
    );
    assert_eq!(lost.reason, Some(Reason::ContainerPreempted), "{lost:?}");
    eventually("the evicted task's processes to be gone", || {
        sleepers(98732).is_empty().then_some(())
    });

    let evicted = eventually("the correction in the log", || {
        let log = std::fs::read_to_string(log(cluster, "agent")).ok()?;
        let mut lines = log.lines().filter(|line| line.contains("preempted"));
        let line = lines.find(|line| line.contains(&format!("executor_id={name} ")))?;
        Some(line.split_whitespace().next()?.to_owned())
    });
    let mut seen = [
        (lending.logged("agent", "usage measured"), "1 measured"),
        (
            lending.logged("agent", "oversubscribed resources estimated"),
            "2 estimated",
        ),
        (
            lending.logged("agent", "oversubscribed resources sent to the master"),
            "3 reported",
        ),
        (lending.logged("master", "an agent lends"), "4 marked"),
        (offered, "5 offered"),
        (launched, "5 launched"),
        (evicted, "6 corrected"),
        (now(), "7 all is told"),
    ];
    let expected = seen.clone().map(|(_, step)| step);
    seen.sort();
    assert_eq!(seen.clone().map(|(_, step)| step), expected, "{seen:#?}");

    assert_eq!(regular.states("steady").last(), Some(&TaskState::Running));
    assert_eq!(sleepers(98731).len(), 1, "the regular task is untouched");
    let preempted = Lending::figure(lending.agent_port, "slave/executors_preempted");
    assert!(preempted >= Some(1.0), "{preempted:?}");
}

/// The six steps on real usage, as `/oversubscription` shows them: an idle task's CPUs are lent,
/// and its load takes them back, first by throttling the best-effort task, then by its end.
// Covers S1; S3; S4; S16.
#[test]
fn load_of_a_regular_task_takes_its_lent_cpus_back() {
    let modules = r#"{"libraries": {"modules": [
        {"name": "usage_slack", "parameters": [
            {"key": "warm_up", "value": "1secs"},
            {"key": "sampling_interval", "value": "1secs"}
        ]},
        {"name": "pressure", "parameters": {"key": "kill_after", "value": "5secs"}}
    ]}}"#;
    let lends = ["--resource_estimator", "usage_slack", "--modules", modules];
    let bounded = ["--oversubscription_max", "cpus:50%"];
    let corrects = ["--qos_controller", "pressure"];
    let soon = ["--oversubscribed_resources_interval", "100ms"];
    let flags = [&lends[..], &bounded, &corrects, &soon].concat();
    let Some(mut isolated) = Isolated::begin("pressure", "", &flags) else {
        return;
    };
    let start = isolated.cluster.directory().join("start");
    // It has more processes than this machine has CPUs, so that some always wait.
    let busy = format!(
        "mkfifo {0} && read go < {0}; \
         n=$(nproc); while [ $n -ge 0 ]; do (while :; do :; done) & n=$((n - 1)); done; wait",
        start.display()
    );
    isolated.run("web", "cpus:4;mem:64", TaskLimits::default(), &busy);
    let amount = |value: &Value| value.as_f64().unwrap_or_default();
    let mut times = Vec::new();
    let mut step = |words: &str, time: f64| times.push((time, words.to_owned()));

    let measured = eventually("1 usage", || {
        let page = isolated.page("/oversubscription")?;
        let regular = &page["regular"];
        let is_idle = amount(&regular["slack"]["cpus"]) > 3.0;
        (amount(&regular["allocated"]["cpus"]) >= 4.0 && is_idle).then(seconds_now)
    });
    step("1 measured", measured);
    let estimate = eventually("2 an estimate", || {
        let page = isolated.page("/oversubscription")?;
        let estimate = page["estimate"].clone();
        (amount(&estimate["available"]["cpus"]) > 2.0).then_some(estimate)
    });
    step("2 estimated", amount(&estimate["timestamp"]).max(measured));
    eventually("3 and 4 the total at the master", || {
        let agents: Value = serde_json::from_str(&get(isolated.cluster.port, "/slaves").1).ok()?;
        (agents["slaves"][0]["resources"]["cpus_revocable"] == 2.0).then_some(())
    });
    step("4 marked", seconds_now());

    let capabilities = [Capability::RevocableResources];
    let mut batch = ScriptedFramework::subscribe(&isolated.cluster, batch(&capabilities));
    let offer = loop {
        let offer = batch.offer();
        if is_revocable(&offer) && offer.resources.revocable().cpus().as_f64() == 2.0 {
            break offer;
        }
        batch.decline(vec![offer.id], NO_FILTER);
    };
    let mut spare = task("spare", &offer, "cpus:0", "while :; do :; done");
    spare.resources = offer.resources.revocable();
    batch.launch(&offer, vec![spare]);
    batch.state("spare", TaskState::Running);
    let page = eventually("5 the use of lent resources", || {
        let page = isolated.page("/oversubscription")?;
        (amount(&page["revocable"]["used"]["cpus"]) > 0.1).then_some(page)
    });
    assert_eq!(page["revocable"]["allocated"]["cpus"], 2.0, "{page}");
    assert_eq!(page["maximum"]["cpus"], 2.0, "{page}");
    assert_eq!(page["corrections"], serde_json::json!([]), "{page}");
    step("5 launched", seconds_now());

    std::fs::write(&start, "go\n").expect("a reader");
    let throttled = batch.wait_for("a throttled task", |callback| match callback {
        Callback::Status(status) if status.labels.contains_key(THROTTLE) => {
            Some((**status).clone())
        }
        _ => None,
    });
    assert_eq!(
        (throttled.state, throttled.reason),
        (TaskState::Running, Some(Reason::ContainerLimitation))
    );
    let id = container(&throttled);
    let quota = isolated.setting(&id, "cpu.cfs_quota_us");
    let quota = quota.or_else(|| isolated.setting(&id, "cpu.max"));
    let quota = quota.expect("a quota");
    assert!(
        !quota.starts_with("-1") && !quota.starts_with("max"),
        "{quota}"
    );
    let figures = isolated.page("/metrics/snapshot").expect("figures");
    assert_eq!(figures["slave/executors_throttled"], 1.0);
    let shown = isolated.cluster.done(&["oversubscription"]);
    assert!(shown.contains("THROTTLE to cpu 50%"), "{shown}");

    let lost = batch.state("spare", TaskState::Lost);
    assert_eq!(lost.reason, Some(Reason::ContainerPreempted), "{lost:?}");
    let page = isolated.page("/oversubscription").expect("a page");
    let corrections = page["corrections"].as_array().expect("a list");
    let (first, last) = (&corrections[0], &corrections[corrections.len() - 1]);
    assert_eq!(
        (&first["type"], &last["type"]),
        (&"THROTTLE".into(), &"KILL".into()),
        "{page}"
    );
    assert_eq!(
        (&first["degree"], &first["tasks"][0]),
        (&"cpu 50%".into(), &"spare".into())
    );
    let reason = first["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("waiting regular executors: cpu "),
        "{reason}"
    );
    step("6 throttled", amount(&first["timestamp"]));
    step("6 killed", amount(&last["timestamp"]));
    assert!(
        times.is_sorted_by(|one, other| one.0 <= other.0),
        "{times:#?}"
    );
    let figures = isolated.page("/metrics/snapshot").expect("figures");
    for (name, expected) in [("executors_preempted", 1.0), ("qos_corrections/kill", 1.0)] {
        assert_eq!(figures[format!("slave/{name}")], expected, "{name}");
    }
    assert!(amount(&figures["slave/qos_corrections/throttle"]) >= 1.0);
    assert_eq!(
        isolated.framework.states("web").last(),
        Some(&TaskState::Running)
    );
    isolated.kill("web");
    isolated.leaves_nothing();
}

/// A task that misses its objective has its neighbour throttled on trial.
#[test]
fn missed_objective_throttles_the_neighbour_on_trial() {
    let modules = r#"{"libraries": {"modules": [
        {"name": "fixed", "parameters": {"key": "resources", "value": "cpus:1"}},
        {"name": "sla", "parameters": {"key": "settle", "value": "1secs"}}
    ]}}"#;
    let lends = ["--resource_estimator", "fixed", "--modules", modules];
    let corrects = ["--qos_controller", "sla"];
    let soon = ["--oversubscribed_resources_interval", "100ms"];
    let flags = [&lends[..], &corrects, &soon].concat();
    let Some(mut isolated) = Isolated::begin("sla", "", &flags) else {
        return;
    };
    let offer = isolated.framework.standing_offer();
    let mut web = task("web", &offer, "cpus:1;mem:64", "exec sleep 1000");
    // Its check takes many times as long.
    web.labels.insert(SLA.to_owned(), "latency:1".to_owned());
    web.check = Some(Box::new(CheckInfo {
        kind: CheckKind::Command(CommandInfo::shell("sleep 0.05")),
        timing: CheckTiming {
            delay: Duration::ZERO,
            interval: Duration::from_millis(100),
            timeout: Duration::from_secs(60),
        },
    }));
    isolated.framework.launch(&offer, vec![web]);
    isolated.framework.state("web", TaskState::Running);

    let capabilities = [Capability::RevocableResources];
    let mut batch = ScriptedFramework::subscribe(&isolated.cluster, batch(&capabilities));
    let offer = loop {
        let offer = batch.offer();
        if is_revocable(&offer) {
            break offer;
        }
    };
    let mut spare = task("spare", &offer, "cpus:0", "exec sleep 1000");
    spare.resources = offer.resources.revocable();
    batch.launch(&offer, vec![spare]);
    let correction = eventually("a correction", || {
        let page = isolated.page("/oversubscription")?;
        page["corrections"].get(0).cloned()
    });
    assert_eq!(correction["degree"], "cpu 50%, io 50%", "{correction}");
    let reason = correction["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("trial: "), "{reason}");
    isolated.kill("web");
    drop(batch);
}

/// This moment, in seconds since 1970.
fn seconds_now() -> f64 {
    Clock::real().wall().as_secs_f64()
}

/// Launches on lent resources until a running task is evicted; returns its name, the times of offer
/// and launch, and its end.
///
/// The controller checks once a second and may evict a task before it runs; then the launch is
/// repeated.
fn preempted_while_running(batch: &mut ScriptedFramework) -> (String, String, String, TaskStatus) {
    for attempt in 1..=5 {
        let offer = batch.offer();
        let offered = now();
        assert!(
            offer
                .resources
                .iter()
                .all(|resource| resource.is_revocable())
        );
        let name = format!("spare-{attempt}");
        // It keeps a core busy, so that there is a load even on a machine that had none.
        let line = "setsid sleep 98732 & while :; do :; done";
        let mut spare = task(&name, &offer, "cpus:0", line);
        spare.resources = offer.resources.clone();
        let launched = now();
        batch.launch(&offer, vec![spare]);
        let lost = batch.wait_for(
            "the end of a task on lent resources",
            |callback| match callback {
                Callback::Status(status) if status.state.is_terminal() => Some((**status).clone()),
                _ => None,
            },
        );
        assert_eq!(lost.state, TaskState::Lost, "{lost:?}");
        assert_eq!(lost.reason, Some(Reason::ContainerPreempted), "{lost:?}");
        if batch.states(&name).contains(&TaskState::Running) {
            return (name, offered, launched, lost);
        }
    }
    panic!(
        "no task on lent resources got as far as running: {:#?}",
        batch.past
    );
}
