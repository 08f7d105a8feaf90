//! File modes of state, sandboxes and output, and the rights of an agent's user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use crate::in_time::InTime;
use crate::support::{Cluster, Running, free_ports, meros, stderr};

/// The user `nobody`, which every Linux has.
const NOBODY: u32 = 65_534;
/// Group and others.
const STRANGERS: u32 = 0o077;

/// Checks each directory and file below, without following links.
fn walk(directory: &Path, check: &mut impl FnMut(&Path, u32)) {
    for entry in std::fs::read_dir(directory)
        .expect("it is listed")
        .flatten()
    {
        let (path, found) = (entry.path(), entry.metadata());
        // A file that is gone meanwhile needs no mode.
        let Ok(metadata) = found else { continue };
        if metadata.is_symlink() {
            continue;
        }
        check(&path, metadata.permissions().mode() & 0o777);
        if metadata.is_dir() {
            walk(&path, check);
        }
    }
}

#[test]
fn cluster_files_are_closed_to_other_users() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = cluster.run_shell(&[], "echo word; echo note > note");
    assert!(output.status.success(), "{}", stderr(&output));
    let (mut in_registry, mut in_sandbox) = (0, 0);
    walk(cluster.directory(), &mut |path, mode| {
        let text = path.display().to_string();
        let name = path.file_name().unwrap_or_default();
        if text.contains("/runs/") {
            // The sandbox itself, its output, and what the task has made there.
            let expected = match (path.is_dir(), name.to_str()) {
                (true, _) => 0o750,
                (_, Some("stdout" | "stderr")) => 0o640,
                _ => 0o644,
            };
            assert_eq!(mode, expected, "{text}: {mode:o}");
            in_sandbox += 1;
        } else if text.contains("/agent-1") && path.is_dir() && !text.contains("/meta") {
            assert_eq!(mode, 0o711, "{text}: {mode:o}");
        } else if !text.contains("/certs/") {
            // Directories inside a store's closed directory have the rights of the umask.
            let closed = match path.is_dir() && text.contains("/log/") {
                true => STRANGERS & !0o011,
                false => STRANGERS,
            };
            assert_eq!(mode & closed, 0, "{text}: {mode:o}");
            in_registry += u32::from(text.contains("/master/"));
        }
    });
    assert!(
        in_registry >= 3 && in_sandbox >= 4,
        "{in_registry}, {in_sandbox}"
    );
}

/// Needs root to become another user; skipped otherwise.
#[test]
fn agent_without_root_refuses_tasks_of_root() {
    if !nix::unistd::geteuid().is_root() {
        return crate::machine::skip("only root can become another user");
    }
    let directory = tempfile::tempdir().expect("a directory");
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("it is root's");
    let port = free_ports(1);
    let mut command = meros(["local", "--agents=1", "--resources=cpus:2;mem:256"]);
    command
        .args(["--port", &port.to_string()])
        .arg("--work_dir")
        .arg(directory.path().join("cluster"))
        .stdout(Stdio::piped())
        .uid(NOBODY)
        .gid(NOBODY);
    let mut cluster = Running::start(&mut command);
    cluster.line("ready", |line| line.starts_with("ready "));
    let run = |user: u32| {
        let mut command = meros(["run", "--master", &format!("127.0.0.1:{port}")]);
        command
            .args(["--", "true"])
            .env("MEROS_CERTS", directory.path().join("cluster/certs"))
            .uid(user);
        command.output_in_time().expect("it starts")
    };
    let own = run(NOBODY);
    assert!(own.status.success(), "{}", stderr(&own));
    let refused = run(0);
    assert!(!refused.status.success());
    let words = stderr(&refused);
    assert!(words.contains("user `root`"), "{words}");
    assert!(words.contains("only an agent of root"), "{words}");
}
