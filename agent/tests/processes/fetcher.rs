//! Files that are fetched before a command runs, by real fetchers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::mpsc;

use meros_agent::fetcher::digest::Digest;
use protocol::Uri;

use super::*;

fn fetching(id: &str, line: &str, uris: Vec<Uri>) -> TaskInfo {
    let command = CommandInfo {
        uris,
        ..CommandInfo::shell(line)
    };
    task(id, command)
}

fn cached(web: &str) -> Vec<Uri> {
    vec![Uri {
        cache: true,
        ..Uri::new(format!("{web}/f"))
    }]
}

/// SPEC 5.6.
// Covers 5.6 Fetcher in part: the cache.
#[test]
fn cached_file_is_downloaded_once_for_waiting_tasks() {
    world(|world| async move {
        // The server accepts one connection.
        let (web, _connections) = server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        let of = |id: &str| fetching(id, "cat f", cached(&web));
        let ids = ["a", "b", "c"];
        world.master.run(ids.map(of).to_vec());
        for id in ids {
            let status = world.ends(id).await;
            assert_eq!(status.state, TaskState::Finished, "{status:?}");
            assert_eq!(world.file(id, "stdout").await, b"hello");
        }
        let metrics = world.agent.counters().await.unwrap();
        assert_eq!(metrics["containerizer/fetcher/cache_size_used_bytes"], 5.0);
        assert_eq!(
            metrics["containerizer/fetcher/cache_size_total_bytes"],
            20.0
        );
    });
}

#[test]
fn content_with_another_digest_is_not_used() {
    world(|world| async move {
        let hello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let of = |id: &str, web: &str, content: &[u8]| {
            let uri = Uri {
                cache: true,
                digest: Some(Digest::of(content).to_string()),
                ..Uri::new(format!("{web}/f"))
            };
            fetching(id, "cat f", vec![uri])
        };
        let (web, _connections) = server(hello);
        world.master.run(vec![of("wrong", &web, b"other")]);
        assert_eq!(world.ends("wrong").await.state, TaskState::Failed);
        let log = String::from_utf8(world.file("wrong", "stderr").await).unwrap();
        let expected = format!("its digest is `{}`: expected", Digest::of(b"hello"));
        assert!(log.contains(&expected), "{log}");
        let (web, _connections) = server(hello);
        let run = |id| world.master.run(vec![of(id, &web, b"hello")]);
        run("right");
        assert_eq!(world.ends("right").await.state, TaskState::Finished);
        // Someone has changed it: a task of the same user could.
        let files = world.work_dir.path().join("fetch/files/agent");
        let mut files = std::fs::read_dir(files).unwrap();
        let cached = files.next().unwrap().unwrap().path();
        assert!(files.next().is_none(), "the wrong one is not kept");
        std::fs::write(&cached, "evil!").unwrap();
        run("changed");
        assert_eq!(world.ends("changed").await.state, TaskState::Failed);
        assert!(!cached.exists(), "the next task downloads it again");
    });
}

#[test]
fn failed_download_leaves_the_next_task_to_try() {
    world(|world| async move {
        let (web, _connections) = server("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        let of = |id: &str| fetching(id, "true", cached(&web));
        world.master.run(vec![of("a"), of("b")]);
        for id in ["a", "b"] {
            let status = world.ends(id).await;
            assert_eq!(status.state, TaskState::Failed);
            assert!(
                status.message.ends_with("exited with status 1"),
                "{status:?}"
            );
        }
        let files = world.work_dir.path().join("fetch/files/agent");
        assert_eq!(std::fs::read_dir(files).unwrap().count(), 0);
    });
}

#[test]
fn file_larger_than_the_cache_is_not_kept() {
    world(|world| async move {
        let large = "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n123456789012345678901";
        let (web, _connections) = server(large);
        world
            .master
            .run(vec![fetching("t", "wc -c < f", cached(&web))]);
        assert_eq!(world.ends("t").await.state, TaskState::Finished);
        assert_eq!(world.file("t", "stdout").await, b"21\n");
        let files = world.work_dir.path().join("fetch/files/agent");
        assert_eq!(std::fs::read_dir(files).unwrap().count(), 0);
    });
}

/// Serves `answer` to one connection. Returns its URI, without a path, and the connection.
fn server(answer: &'static str) -> (String, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let (served, connections) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let lines = BufReader::new(connection.try_clone().unwrap()).lines();
        let _ = lines
            .map_while(Result::ok)
            .take_while(|line| !line.is_empty())
            .count();
        connection.write_all(answer.as_bytes()).unwrap();
        let _ = served.send(connection);
    });
    (uri, connections)
}

/// SPEC 5.6, 5.12.
// Covers 5.6 Fetcher in part: http and files, extraction, `executable`, `output_file`.
#[test]
fn files_are_fetched_before_the_command_runs() {
    world(|world| async move {
        let script = world.work_dir.path().join("run.sh");
        std::fs::write(&script, "#!/bin/sh\ncat data note\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o640)).unwrap();
        let note = world.work_dir.path().join("note.gz");
        let zipped = std::process::Command::new("gzip")
            .arg("-c")
            .arg(&script)
            .output();
        std::fs::write(&note, zipped.unwrap().stdout).unwrap();
        let (web, _connections) = server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndata\n");
        let uris = vec![
            Uri {
                executable: true,
                ..Uri::new(script.to_str().unwrap())
            },
            Uri {
                output_file: Some("data".to_owned()),
                ..Uri::new(format!("{web}/a/b"))
            },
            Uri::new(format!("file://{}", note.display())),
        ];
        let line = "./run.sh && stat -c %a run.sh && test -f note.gz";
        world.master.run(vec![fetching("t", line, uris)]);
        let status = world.ends("t").await;
        assert_eq!(status.state, TaskState::Finished, "{status:?}");
        let output = world.file("t", "stdout").await;
        let output = String::from_utf8(output).unwrap();
        assert_eq!(output, "data\n#!/bin/sh\ncat data note\n751\n");
        let log = world.file("t", "stderr").await;
        let log = String::from_utf8(log).unwrap();
        assert!(
            log.contains(&format!("fetching `{web}/a/b` to `data`")),
            "{log}"
        );
        let metrics = world.agent.counters().await.unwrap();
        assert_eq!(metrics["containerizer/fetcher/task_fetches_succeeded"], 1.0);
    });
}

/// SPEC 5.12.
#[test]
fn failed_fetch_is_the_only_update() {
    world(|world| async move {
        let missing = vec![Uri::new("/does/not/exist")];
        world.master.run(vec![fetching("t", "true", missing)]);
        let status = world.ends("t").await;
        assert_eq!(world.master.states("t"), [TaskState::Failed]);
        assert_eq!(status.reason, Some(Reason::ContainerLaunchFailed));
        let container = status.container_id.unwrap();
        let expected = format!(
            "Failed to launch container: Failed to fetch all URIs for container '{container}': exited with status 1"
        );
        assert_eq!(status.message, expected);
        let log = world.file("t", "stderr").await;
        let log = String::from_utf8(log).unwrap();
        let expected = "fetcher: cannot fetch `/does/not/exist`: No such file or directory";
        assert!(log.contains(expected), "{log}");
        let metrics = world.agent.counters().await.unwrap();
        assert_eq!(metrics["containerizer/fetcher/task_fetches_failed"], 1.0);
    });
}

#[test]
fn kill_during_the_fetch_kills_the_fetcher() {
    world(|world| async move {
        let (web, connections) = server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nda");
        let uris = vec![Uri::new(format!("{web}/f"))];
        world.master.run(vec![fetching("t", "true", uris)]);
        let mut connection = None;
        let is_fetching = || {
            connection = connections.try_recv().ok();
            connection.is_some()
        };
        eventually(&world.node, 20, "it fetches", is_fetching).await;
        world.master.kill("t");
        let status = world.ends("t").await;
        assert_eq!(status.state, TaskState::Killed, "{status:?}");
        assert_eq!(world.master.states("t"), [TaskState::Killed]);
        // The connection ends with the fetcher.
        let mut rest = [0];
        let ended = connection.unwrap().read(&mut rest);
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        let counts = world.agent.survey().await.unwrap().counts;
        assert_eq!(
            (counts.task_fetches_failed, counts.task_fetches_succeeded),
            (0, 0)
        );
    });
}

#[test]
fn fetcher_has_the_rights_of_the_tasks_user() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can run tasks of another user");
        return;
    }
    let work_dir = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(work_dir.path(), open).unwrap();
    world_in(work_dir, |world| async move {
        let of_nobody = |id: &str, path: &Path| {
            let mut task = fetching(id, "true", vec![Uri::new(path.to_str().unwrap())]);
            let command = task.command.as_mut().unwrap();
            command.user = Some("nobody".to_owned());
            command.uris[0].cache = true;
            task
        };
        let file = |name: &str, mode| {
            let path = world.work_dir.path().join(name);
            std::fs::write(&path, "x").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let (secret, public) = (file("secret", 0o600), file("public", 0o644));
        let tasks = vec![of_nobody("no", &secret), of_nobody("yes", &public)];
        world.master.run(tasks);
        assert_eq!(world.ends("no").await.state, TaskState::Failed);
        let log = String::from_utf8(world.file("no", "stderr").await).unwrap();
        assert!(log.contains("Permission denied"), "{log}");
        assert_eq!(world.ends("yes").await.state, TaskState::Finished);
        let (web, _connections) = server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        let task = of_nobody("web", Path::new(&format!("{web}/f")));
        world.master.run(vec![task]);
        assert_eq!(world.ends("web").await.state, TaskState::Finished);
        let cached = find(&world.work_dir.path().join("fetch"), "0");
        assert_eq!(cached.len(), 1);
        assert_ne!(cached[0].metadata().unwrap().uid(), 0);
        let found = find(world.work_dir.path(), "public");
        let owner = found.iter().map(|path| path.metadata().unwrap().uid());
        let of_root = owner.filter(|&uid| uid == 0).count();
        assert_eq!((found.len(), of_root), (2, 1), "{found:?}");
    });
}

/// The files of this name below a directory, without links.
fn find(directory: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(find(&entry.path(), name));
        } else if kind.is_file() && entry.file_name() == name {
            found.push(entry.path());
        }
    }
    found
}
