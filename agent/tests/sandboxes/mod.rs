//! The file pages of an agent that runs one task: names, answers and rejections.

use protocol::message::operation::ApplyOperation;
use resources::{
    Annotations, Conversion, DiskInfo, Name, Reservation, Resource, Resources, Scalar,
};

use super::*;

/// SPEC 3.9: served paths, and the status of each invalid request, with and without the agent's
/// name as prefix.
// Covers 3.9 `/files/*` of agents.
#[test]
fn sandbox_files_are_served_by_each_name() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, directory) = running(&world).await;
        std::fs::write(format!("{directory}/stdout"), "hello").unwrap();
        let get = async |path: String| fetch(&routes, request("GET", &path, JSON, "")).await;
        let (status, names) = get("/files/debug".to_owned()).await;
        assert_eq!(status, 200, "{names}");
        let names: Value = serde_json::from_str(&names).unwrap();
        let names = names.as_object().unwrap();
        assert_eq!(names.len(), 3, "{names:?}");
        for (name, place) in names {
            assert_eq!(*place, json!(directory), "{name}");
            let (status, listed) = get(format!("/files/browse?path={name}")).await;
            let path = format!("\"path\":\"{name}/stdout\"");
            assert!(status == 200 && listed.contains(&path), "{name}: {listed}");
        }
        for prefix in ["", "/slave(1)"] {
            for (path, status, words) in [
                ("browse", 400, "Expecting 'path=value' in query."),
                ("browse?path=", 400, "Expecting 'path=value' in query."),
                ("browse?path=/etc", 404, "path `/etc`"),
                ("browse?path=DIR/nothing", 404, "nothing"),
                ("browse?path=DIR/stdout", 400, "stdout"),
                ("browse?path=DIR/../..", 403, ".."),
                (
                    "read?path=DIR/stdout&offset=1",
                    200,
                    r#"{"data":"ello","offset":1}"#,
                ),
                (
                    "read?path=DIR/stdout&offset=9",
                    200,
                    r#"{"data":"","offset":9}"#,
                ),
                ("read?path=DIR/stdout", 200, r#"{"data":"","offset":5}"#),
                (
                    "read?path=DIR/stdout&offset=-2",
                    400,
                    "Negative offset provided: -2.",
                ),
                (
                    "read?path=DIR/stdout&offset=0&length=x",
                    400,
                    "Failed to parse length: `x`",
                ),
                ("read?path=DIR", 400, "DIR"),
                ("read?path=DIR/nothing", 404, "nothing"),
                ("read?path=/etc/passwd", 404, "path `/etc/passwd`"),
                ("download", 400, "Expecting 'path=value' in query."),
                ("download?path=DIR/stdout", 200, "hello"),
                ("download?path=DIR", 400, "DIR"),
                ("download?path=DIR/nothing", 404, "nothing"),
            ] {
                let words = words.replace("DIR", "");
                let path = format!("{prefix}/files/{}", path.replace("DIR", &directory));
                let (found, text) = get(path.clone()).await;
                assert!(
                    found == status && text.contains(&words),
                    "{path}: {found} {text}"
                );
            }
        }
    });
}

/// SPEC 2.1, 3.9: an impossible file name is the client's error, on pages and in calls.
// Covers 3.9 `/files/*` of agents.
#[test]
fn malicious_file_requests_are_rejected() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, directory) = running(&world).await;
        // The default socket path would be too long.
        let short = world.work_dir.path().join("s");
        let _socket = std::os::unix::net::UnixListener::bind(&short).unwrap();
        std::fs::rename(short, format!("{directory}/socket")).unwrap();
        let get = async |path: &str| fetch(&routes, request("GET", path, JSON, "")).await;
        let (name, path) = ("n".repeat(256), "n/".repeat(2_049));
        for (inside, status, words) in [
            ("a%00b", 400, "without NUL"),
            ("%00", 400, "without NUL"),
            ("%00/../stdout", 403, "leaves its root directory"),
            (&name, 400, "255 bytes at most"),
            (&path, 400, "4095 bytes in all"),
            // Invalid UTF-8 names no file.
            ("%ff", 404, "no such file"),
            ("%c0%ae%c0%ae/x", 404, "no such file"),
            ("socket", 400, "is not a regular file"),
            ("stdout/x", 404, "no such file"),
            ("%2e%2e/x", 403, "leaves its root directory"),
            ("/../x", 403, "leaves its root directory"),
        ] {
            for page in ["browse", "read", "download"] {
                let path = format!("/files/{page}?path={directory}/{inside}");
                let (found, text) = get(&path).await;
                assert!(
                    found == status && text.contains(words),
                    "{path}: {found} {text}"
                );
            }
        }
        for (inside, status, words) in [
            ("a\0b", 400, "without NUL"),
            (&*name, 400, "255 bytes at most"),
            ("socket", 400, "is not a regular file"),
            ("../x", 403, "leaves its root directory"),
        ] {
            let path = json!({ "path": format!("{directory}/{inside}"), "offset": 0 });
            for (kind, field) in [("LIST_FILES", "list_files"), ("READ_FILE", "read_file")] {
                let call = json!({ "type": kind, field: path }).to_string();
                let (found, text) = fetch(&routes, request("POST", "/api/v1", JSON, call)).await;
                assert!(
                    found == status && text.contains(words),
                    "{kind} {inside}: {found} {text}"
                );
            }
        }
        for (path, status) in [
            ("/files/browse?path=%00", 404),
            (
                "/files/browse?path=/frameworks/%00/executors/e/runs/latest",
                400,
            ),
            (
                "/files/browse?path=/frameworks/f/executors/e/runs/%00/a",
                400,
            ),
            (
                "/files/browse?path=/frameworks/f/executors/e/runs/latest/a",
                404,
            ),
            ("/files/browse?path=%ff", 404),
            ("/files/read?path=%ff&offset=%00", 400),
            ("/files/read?path=DIR/stdout&offset=x&offset=2", 200),
            ("/files/download?%00=%00", 400),
            ("/state?%00", 200),
            ("/state?jsonp=%ff", 200),
            ("/containers?container_id=%00", 200),
            ("/monitor/statistics?%ff=%ff", 200),
            ("/flags?x", 200),
        ] {
            let path = path.replace("DIR", &directory);
            let (found, text) = get(&path).await;
            assert_eq!(found, status, "{path}: {text}");
        }
        let long = format!("/state?{}", "q".repeat(10_000));
        assert_eq!(get(&long).await.0, 200);
    });
}

/// Creates a persistent volume, mounted at `deep/data`.
async fn volume(world: &World) -> Resources {
    let reservation = Reservation::dynamic("ads".parse().unwrap(), None);
    let reserved = Resources::parse("disk:8").unwrap();
    let reserved = reserved.push_reservation(&reservation).unwrap();
    let annotations = Annotations {
        reservations: vec![reservation],
        disk: Some(Box::new(DiskInfo::persistent("v", None, "deep/data"))),
        ..Annotations::default()
    };
    let volume = Resource::annotated(Name::Disk, Scalar::whole(8), annotations).unwrap();
    let volumes = Resources::from(volume);
    let registered = world.master.received.lock().unwrap().registrations[0]
        .1
        .clone();
    let version = registered.resources.unwrap().version;
    for conversion in [
        Conversion::Reserve {
            resources: reserved,
        },
        Conversion::Create {
            volumes: volumes.clone(),
        },
    ] {
        world.master.tell(ApplyOperation {
            feedback: None,
            conversion,
            version,
            serial: None,
        });
    }
    world.settle().await;
    volumes
}

/// SPEC 3.9: links from a sandbox to its volumes are served; no other links are followed.
// Covers 3.9 `/files/*` of agents.
#[test]
fn volume_files_are_served_below_their_container_path() {
    world(FixtureOptions::default(), |world| async move {
        let mut task = shell("the-task");
        task.resources += &volume(&world).await;
        world.master.run(vec![task]);
        world.settle().await;
        let routes = routes(&world);
        let get = async |path: &str| fetch(&routes, request("GET", path, JSON, "")).await;
        let (_, state) = get("/state").await;
        let state: Value = serde_json::from_str(&state).unwrap();
        let executor = &state["frameworks"][0]["executors"][0];
        let directory = executor["directory"].as_str().unwrap();
        std::fs::write(format!("{directory}/deep/data/file"), "kept").unwrap();
        std::os::unix::fs::symlink("/etc", format!("{directory}/deep/data/out")).unwrap();
        let (framework, run) = (framework_id(), executor["container"].as_str().unwrap());
        let runs = format!("/frameworks/{framework}/executors/the-task/runs");
        let names = [
            directory.to_owned(),
            format!("{runs}/{run}"),
            format!("{runs}/latest"),
        ];
        for name in &names {
            for (path, status, words) in [
                ("browse?path=DIR/deep/data", 200, "DIR/deep/data/file"),
                ("read?path=DIR/deep/data/file&offset=0", 200, "kept"),
                ("download?path=DIR/./deep/data/file", 200, "kept"),
                ("browse?path=DIR/deep", 200, "DIR/deep/data"),
                (
                    "browse?path=DIR/deep/data/out",
                    403,
                    "leaves its root directory",
                ),
                (
                    "browse?path=DIR/deep/data/../../..",
                    403,
                    "leaves its root directory",
                ),
                ("read?path=DIR/deep/data/nothing", 404, "nothing"),
            ] {
                let path = format!("/files/{}", path.replace("DIR", name));
                let (found, text) = get(&path).await;
                let words = words.replace("DIR", name);
                assert!(
                    found == status && text.contains(&words),
                    "{path}: {found} {text}"
                );
            }
        }
        let files = json!({ "path": format!("{directory}/deep/data") });
        let list = json!({ "type": "LIST_FILES", "list_files": files }).to_string();
        let (status, text) = fetch(&routes, request("POST", "/api/v1", JSON, list)).await;
        assert!(
            status == 200 && text.contains("/deep/data/file"),
            "{status} {text}"
        );
        let nobody = lists(true, &[Action::AccessSandboxes], "NONE");
        world.acls.replace(nobody);
        let path = format!("/files/browse?path={directory}/deep/data");
        assert_eq!(get(&path).await.0, 403);
    });
}
