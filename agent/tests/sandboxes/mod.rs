//! The pages of files of an agent that runs one task: names, answers and refusals.

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
