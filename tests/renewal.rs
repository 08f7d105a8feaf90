//! Certificates are replaced while a service runs: SIGHUP reloads them, and links stay.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use runtime::Role;
use serde_json::Value;
use transport::Authority;

use crate::in_time::InTime;
use crate::support::{Cluster, eventually, meros};

/// Keeps the identity of a master `m1` of this authority in `directory`, in place of any other.
fn keep_master(authority: &Path, directory: &Path) {
    let _ = std::fs::remove_file(directory.join("ca.pem")); // none yet, or another authority's
    let authority = Authority::load(authority).expect("an authority");
    let identity = authority.issue(Role::Master, "m1").expect("a certificate");
    identity.save(directory).expect("it can be kept");
}

/// The number of active agents, requested with these certificates; `None` if the master refuses
/// them.
fn active_agents(cluster: &Cluster, certs: &Path) -> Option<usize> {
    let mut command = meros(["agents", "--json", "--master", &cluster.master]);
    let output = command.env("MEROS_CERTS", certs).output_in_time();
    let output = output.expect("meros runs");
    let agents: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
    Some(
        agents
            .iter()
            .filter(|agent| agent["active"] == true)
            .count(),
    )
}

#[test]
fn sighup_renews_the_certificate_and_keeps_agents() {
    let mut served = None;
    let cluster = Cluster::master_alone(|command, directory| {
        let own = directory.join("served");
        keep_master(&directory.join("certs"), &own);
        let log = File::create(directory.join("log")).expect("a log file");
        command.env("MEROS_CERTS", &own).stderr(log);
        served = Some(own);
    });
    let served = served.expect("the master's directory");
    let (log, second) = (
        cluster.directory().join("log"),
        cluster.directory().join("second"),
    );
    let made = meros(["certs", "--dir"])
        .arg(&second)
        .stdout(Stdio::null())
        .status_in_time();
    assert!(made.expect("meros runs").success());
    let _agent = cluster.agent("agent", "cpus:1;mem:64;disk:0;ports:[]");
    let said = |words: &str| {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.contains(words).then_some(())
    };

    std::fs::write(served.join("master.pem"), "no certificate").expect("it can be written");
    cluster.process.signal("HUP");
    eventually("the log to say that the new file is unusable", || {
        said("keeping the old one").and_then(|()| said("master.pem is not a PEM certificate"))
    });
    assert_eq!(active_agents(&cluster, &cluster.certs()), Some(1));
    assert_eq!(active_agents(&cluster, &second), None);

    keep_master(&second, &served);
    cluster.process.signal("HUP");
    eventually("the new authority's operator to be let in", || {
        active_agents(&cluster, &second)
    });
    said("the certificate of links: reloaded").expect("the log says so");
    assert_eq!(active_agents(&cluster, &cluster.certs()), None);
    assert_eq!(
        active_agents(&cluster, &second),
        Some(1),
        "the agent is linked still"
    );
    assert!(cluster.stop().success());
}
