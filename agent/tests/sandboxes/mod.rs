//! The pages of files of an agent that runs one task: names, answers and refusals.

use protocol::message::operation::ApplyOperation;
use resources::{
    Annotations, Conversion, DiskInfo, Name, Reservation, Resource, Resources, Scalar,
};

use super::*;

/// SPEC 3.9: what is shown, and with which status each wrong question is refused, with the agent's name in front and without.
#[test]
fn files_of_sandboxes_are_shown_by_each_of_their_names_and_nothing_else_is() {
    world(Cast::default(), |world| async move {
        let (routes, directory, _executor) = running(&world).await;
        std::fs::write(format!("{directory}/stdout"), "hello").unwrap();
        let get = async |path: String| said(&routes, request("GET", &path, JSON, "")).await;
        let (status, names) = get("/files/debug".to_owned()).await;
        assert_eq!(status, 200, "{names}");
        let names: Value = serde_json::from_str(&names).unwrap();
        let names = names.as_object().unwrap();
        assert_eq!(names.len(), 2, "{names:?}");
        for (name, place) in names {
            assert_eq!(*place, json!(directory), "{name}");
            let (status, listed) = get(format!("/files/browse?path={name}")).await;
            let path = format!("\"path\":\"{name}/stdout\"");
            assert!(status == 200 && listed.contains(&path), "{name}: {listed}");
        }
        for prefix in ["", "/slave(1)"] {
            for (path, status, words) in [
                ("browse", 400, "path is absent"),
                ("browse?path=", 400, "path is absent"),
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
                ("read?path=DIR/stdout&offset=-2", 400, "offset is `-2`"),
                (
                    "read?path=DIR/stdout&offset=0&length=x",
                    400,
                    "length is `x`",
                ),
                ("read?path=DIR", 400, "DIR"),
                ("read?path=DIR/nothing", 404, "nothing"),
                ("read?path=/etc/passwd", 404, "path `/etc/passwd`"),
                ("download", 400, "path is absent"),
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

/// Has the agent make a persistent volume, which containers have at `deep/data`.
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
    let registered = world.master.heard.lock().unwrap().registrations[0].1.clone();
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

/// SPEC 3.9: a sandbox leads to its volumes by links out of it, of which no other is followed.
#[test]
fn what_is_in_a_volume_is_shown_below_its_path_in_the_sandbox_and_to_no_more_people() {
    world(Cast::default(), |world| async move {
        let mut task = shell("the-task");
        task.resources += &volume(&world).await;
        world.master.run(vec![task]);
        world.settle().await;
        let (_executor, _) = world.executor(0).await;
        let routes = routes(&world);
        let get = async |path: &str| said(&routes, request("GET", path, JSON, "")).await;
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
                ("browse?path=DIR/deep/data/out", 403, "leads out"),
                ("browse?path=DIR/deep/data/../../..", 403, "leads out"),
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
        let (status, text) = said(&routes, request("POST", "/api/v1", JSON, list)).await;
        assert!(
            status == 200 && text.contains("/deep/data/file"),
            "{status} {text}"
        );
        let nobody = lists(true, &[Action::AccessSandboxes], "NONE");
        world.acls.renew(nobody);
        let path = format!("/files/browse?path={directory}/deep/data");
        assert_eq!(get(&path).await.0, 403);
    });
}
