//! Images of registries that are honest, and of hostile ones.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use meros_agent::fetcher::digest::Digest;
use meros_agent::images::registry::credentials::DockerConfig;
use meros_agent::images::registry::endpoints::RegistrySettings;
use serde_json::json;

use super::builder::*;
use super::server::*;
use super::*;

fn image(text: &str) -> BuiltImage {
    // The second layer is the first one again.
    let (one, other) = (layer(&[("a", "1"), ("b", text)]), layer(&[("c", text)]));
    BuiltImage::new("run", &[one.clone(), other, one])
}

/// Runs a test with registries.
fn with<F: Future>(
    change: impl FnOnce(&Path, &mut ImageSettings),
    story: impl FnOnce(World) -> F,
) -> F::Output {
    let prepare = |directory: &Path, settings: &mut ImageSettings| {
        settings.source = ImageSource::Registries(RegistrySettings::default());
        change(directory, settings);
    };
    world(prepare, story)
}

fn again() -> GetOptions {
    GetOptions {
        cached: false,
        ..GetOptions::default()
    }
}

fn config(host: &str, user: &str) -> String {
    json!({"auths": {host: {"auth": BASE64_STANDARD.encode(user)}}}).to_string()
}

#[test]
fn image_is_pulled_once() {
    let registry = Registry::honest();
    let (own, other) = (image("own"), image("other"));
    registry.add("me/app", "own", &own);
    registry.add("me/app", "other", &other);
    let architecture = meros_agent::images::manifest::own_architecture();
    let platforms = [
        other.described("", Some("alien")),
        own.described("", Some(architecture)),
    ];
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": platforms});
    registry.add_file(
        "/v2/me/app/manifests/latest",
        index.to_string().into_bytes(),
    );
    with(
        |_, _| {},
        |world| async move {
            let name = format!("{}/me/app", registry.host);
            let (one, two) =
                futures_util::join!(world.get_for("c1", &name), world.get_for("c2", &name));
            let one = one.unwrap();
            assert_eq!(one, two.unwrap());
            assert_eq!(
                (read(&one, "b"), read(&one, "c")),
                ("own".to_owned(), "own".to_owned())
            );
            assert_eq!(one.config.digest, own.config);
            assert_eq!(
                (registry.count("/manifests/"), registry.count("/blobs/")),
                (2, 3)
            );
            assert!(
                registry.requests()[0]
                    .headers
                    .iter()
                    .any(|header| header.starts_with("accept: application/vnd.oci"))
            );
            // From the store, and then by a question that needs no part.
            world.get(&name).await.unwrap();
            world.get_with("c3", &name, again()).await.unwrap();
            world
                .get_with("c4", &format!("{name}@{}", own.manifest), again())
                .await
                .unwrap();
            assert_eq!(
                (registry.count("/manifests/"), registry.count("/blobs/")),
                (5, 3)
            );
            assert_eq!((world.stored("images"), world.stored("staging")), (1, 0));
        },
    );
}

/// Demands a token of this server for all but the token.
fn demand_token(request: &Request, answer: Answer) -> Answer {
    let host = request
        .headers
        .iter()
        .find_map(|header| header.strip_prefix("host: "))
        .unwrap();
    if request.path.starts_with("/token") {
        let is_known = request.has(&format!(
            "authorization: Basic {}",
            BASE64_STANDARD.encode("me:secret")
        ));
        let is_right = request.path == "/token?scope=repository:me/app:pull&service=the%20service";
        return match (is_known, is_right) {
            (true, true) => Answer {
                body: br#"{"token":"t1","expires_in":60}"#.to_vec(),
                ..Answer::of(200)
            },
            _ => Answer::of(403),
        };
    }
    match request.has("authorization: Bearer t1") {
        true => answer,
        false => Answer::of(401).with(format!(
            r#"WWW-Authenticate: Bearer realm="http://{host}/token",service="the service",scope="repository:me/app:pull""#
        )),
    }
}

#[test]
fn token_is_requested_with_credentials() {
    let registry = Registry::with_fault(|request, _, answer| demand_token(request, answer));
    registry.add("me/app", "1", &image("1"));
    let host = registry.host.clone();
    let change = move |_: &Path, settings: &mut ImageSettings| {
        settings.credentials = DockerConfig::parse(&config(&host, "me:secret")).unwrap();
    };
    with(change, |world| async move {
        let name = format!("{}/me/app:1", registry.host);
        let wrong = GetOptions {
            credentials: Some(config(&registry.host, "me:wrong")),
            ..GetOptions::default()
        };
        let refused = world.get_with("c", &name, wrong).await.unwrap_err();
        assert!(
            refused.ends_with("token server: status 403 Forbidden"),
            "{refused}"
        );
        assert!(
            !refused.contains("wrong") && !refused.contains("secret"),
            "{refused}"
        );
        world.get(&name).await.unwrap();
        assert_eq!(registry.count("/token"), 2);
    });
}

#[test]
fn password_is_sent_only_on_demand() {
    let registry = Registry::with_fault(|request, _, answer| {
        let basic = format!(
            "authorization: Basic {}",
            BASE64_STANDARD.encode("me:secret")
        );
        match request.has(&basic) {
            true => answer,
            false => Answer::of(401).with("WWW-Authenticate: Basic realm=x"),
        }
    });
    registry.add("a", "1", &image("1"));
    with(
        |_, _| {},
        |world| async move {
            let name = format!("{}/a:1", registry.host);
            let refused = world.get(&name).await.unwrap_err();
            assert!(
                refused.ends_with("it wants a user and a password"),
                "{refused}"
            );
            let known = GetOptions {
                credentials: Some(config(&registry.host, "me:secret")),
                ..GetOptions::default()
            };
            world.get_with("c", &name, known).await.unwrap();
            let first = registry.requests().remove(0);
            assert!(
                !first
                    .headers
                    .iter()
                    .any(|header| header.starts_with("authorization"))
            );
        },
    );
}

#[test]
fn broken_download_is_resumed() {
    let registry =
        Registry::with_fault(
            |request, earlier, answer| match request.path.contains("/blobs/") {
                true if earlier < 2 => Answer {
                    then: Then::Break(10),
                    ..answer
                },
                _ => answer,
            },
        );
    registry.add("a", "1", &image("1"));
    with(
        |_, _| {},
        |world| async move {
            let image = world.get(&format!("{}/a:1", registry.host)).await.unwrap();
            assert_eq!(read(&image, "c"), "1");
            let ranges: Vec<_> = registry
                .requests()
                .iter()
                .filter_map(Request::range)
                .collect();
            assert_eq!(
                ranges.iter().filter(|start| **start == 20).count(),
                3,
                "{ranges:?}"
            );
        },
    );
}

/// The reason with which the pull of an image fails.
fn fails(
    change: impl FnOnce(&Path, &mut ImageSettings),
    fault: impl Fn(&Request, usize, Answer) -> Answer + Send + Sync + 'static,
    reason: &str,
) {
    let registry = Registry::with_fault(fault);
    registry.add("a", "latest", &image("1"));
    with(change, |world| async move {
        let failed = world
            .get(&format!("{}/a", registry.host))
            .await
            .unwrap_err();
        assert!(failed.contains(reason), "{failed}");
        assert_eq!((world.stored("images"), world.stored("staging")), (0, 0));
    });
}

/// Changes the answers with blobs.
fn blobs(
    change: impl Fn(Answer) -> Answer + Send + Sync + 'static,
) -> impl Fn(&Request, usize, Answer) -> Answer + Send + Sync + 'static {
    move |request, _, answer| match request.path.contains("/blobs/") {
        true => change(answer),
        false => answer,
    }
}

/// Changes the answer with the manifest.
fn manifest(
    change: impl Fn(Answer) -> Answer + Send + Sync + 'static,
) -> impl Fn(&Request, usize, Answer) -> Answer + Send + Sync + 'static {
    move |request, _, answer| match request.path.contains("/manifests/") {
        true => change(answer),
        false => answer,
    }
}

fn body(body: impl Into<Vec<u8>>) -> Answer {
    Answer {
        body: body.into(),
        ..Answer::of(200)
    }
}

#[test]
fn hostile_content_is_refused_with_a_reason() {
    let none = |_: &Path, _: &mut ImageSettings| {};
    let flipped = blobs(|mut answer| {
        answer.body[5] ^= 1;
        answer
    });
    fails(none, flipped, "its content has the digest");
    let endless = blobs(|answer| Answer {
        then: Then::Repeat,
        ..answer
    });
    fails(none, endless, "it is larger than");
    let endless = manifest(|answer| Answer {
        then: Then::Repeat,
        ..answer
    });
    fails(none, endless, "it is larger than 4194304 bytes");
    fails(
        none,
        manifest(|_| body("<html>")),
        "neither an index nor a manifest",
    );
    fails(
        none,
        manifest(|_| body(r#"{"schemaVersion":1}"#)),
        "schema version 1",
    );
    fails(none, manifest(|_| Answer::of(500)), "status 500");
    fails(
        none,
        |_, _, _| Answer::of(404),
        "manifest `latest`: status 404 Not Found",
    );
    let small = |_: &Path, settings: &mut ImageSettings| settings.size_max = 100;
    fails(
        small,
        |_, _, answer| answer,
        "more than the 100 that are allowed",
    );
    let small = |_: &Path, settings: &mut ImageSettings| settings.bounds.bytes = 1000;
    fails(
        small,
        |_, _, answer| answer,
        "layer 1: the uncompressed layers exceed their bound",
    );
    let small = |_: &Path, settings: &mut ImageSettings| settings.bounds.entries = 2;
    fails(small, |_, _, answer| answer, "is one more than 2");
}

#[test]
fn hostile_server_ends_the_pull() {
    let none = |_: &Path, _: &mut ImageSettings| {};
    let away =
        |target: &'static str| blobs(move |_| Answer::of(307).with(format!("Location: {target}")));
    fails(
        none,
        away("http://169.254.169.254/latest/"),
        "link-local address",
    );
    fails(none, away("file:///etc/passwd"), "neither http nor https");
    fails(
        none,
        blobs(|answer| Answer {
            then: Then::Break(5),
            ..answer
        }),
        "the connection broke 6 times",
    );
    let moment = Duration::from_millis(200);
    let stalls = move |_: &Path, settings: &mut ImageSettings| settings.stall_timeout = moment;
    fails(
        stalls,
        blobs(|answer| Answer {
            then: Then::Stall(5),
            ..answer
        }),
        "the server sent nothing for 200ms",
    );
    fails(
        stalls,
        manifest(|answer| Answer {
            then: Then::Stall(0),
            ..answer
        }),
        "the server sent nothing for 200ms",
    );
    let slow = move |_: &Path, settings: &mut ImageSettings| settings.part_timeout = moment;
    fails(
        slow,
        blobs(|answer| Answer {
            then: Then::Stall(5),
            ..answer
        }),
        "took longer than 200ms",
    );
    let demands = |realm: &'static str| {
        move |_: &Request, _: usize, _: Answer| {
            Answer::of(401).with(format!(r#"WWW-Authenticate: Bearer realm="{realm}""#))
        }
    };
    fails(
        none,
        demands("http://169.254.169.254/token"),
        "token server: a redirect to a link-local address",
    );
    fails(none, demands("gopher://x"), "token server: its scheme");
    with(none, |world| async move {
        let refused = world.get("169.254.169.254/a").await.unwrap_err();
        assert!(refused.contains("link-local"), "{refused}");
    });
}

#[test]
fn digest_of_the_name_is_checked() {
    let registry = Registry::honest();
    let own = image("own");
    registry.add("a", "1", &own);
    let wanted = Digest::of(b"other");
    registry.add_file(
        &format!("/v2/a/manifests/{wanted}"),
        own.blob(&own.manifest).to_vec(),
    );
    with(
        |_, _| {},
        |world| async move {
            let refused = world
                .get(&format!("{}/a@{wanted}", registry.host))
                .await
                .unwrap_err();
            assert!(refused.contains("its content has the digest"), "{refused}");
        },
    );
}

#[test]
fn mirrors_are_asked_first() {
    let (origin, mirror) = (Registry::honest(), Registry::honest());
    let both = image("1");
    origin.add("library/a", "1", &both);
    origin.add("library/b", "1", &image("2"));
    mirror.add("library/a", "1", &both);
    let (mirrors, default) = (
        vec![format!("http://{}", mirror.host)],
        format!("http://{}", origin.host),
    );
    let host = origin.host.clone();
    let change = move |_: &Path, settings: &mut ImageSettings| {
        settings.source = ImageSource::Registries(RegistrySettings {
            default: Some(default),
            mirrors: [(host, mirrors)].into(),
            ..RegistrySettings::default()
        });
    };
    with(change, |world| async move {
        world.get("library/a:1").await.unwrap();
        assert_eq!(origin.paths().len(), 0);
        world.get("library/b:1").await.unwrap();
        assert_eq!(origin.count("/blobs/"), 3);
        let missing = world.get("library/c:1").await.unwrap_err();
        assert_eq!(missing.matches("status 404").count(), 2, "{missing}");
    });
}

#[test]
fn registry_has_its_own_authority() {
    let (registry, pem) = Registry::secure();
    registry.add("a", "1", &image("1"));
    let host = registry.host.clone();
    let change = move |directory: &Path, settings: &mut ImageSettings| {
        let of_registry = directory.join("certs").join(host);
        fs::create_dir_all(&of_registry).unwrap();
        fs::write(of_registry.join("ca.crt"), pem).unwrap();
        settings.certificates = Some(directory.join("certs"));
    };
    with(change, |world| async move {
        world.get(&format!("{}/a:1", registry.host)).await.unwrap();
    });
    let (registry, _) = Registry::secure();
    let (_, pem) = Registry::secure();
    let change = move |directory: &Path, settings: &mut ImageSettings| {
        fs::write(directory.join("ca.crt"), pem).unwrap();
        settings.authorities = Some(directory.join("ca.crt"));
        let secure = format!("https://{}", registry.host);
        let default = Some(secure);
        settings.source = ImageSource::Registries(RegistrySettings {
            default,
            ..RegistrySettings::default()
        });
    };
    with(change, |world| async move {
        let refused = world.get("a:1").await.unwrap_err();
        assert!(refused.contains("TLS"), "{refused}");
    });
}

#[test]
fn killed_puller_is_an_error_and_leaves_nothing() {
    let registry =
        Registry::with_fault(
            |request, earlier, answer| match request.path.contains("/blobs/") {
                true if earlier == 0 => Answer {
                    then: Then::Stall(5),
                    ..answer
                },
                _ => answer,
            },
        );
    registry.add("a", "1", &image("1"));
    with(
        |_, _| {},
        |world| async move {
            let name = format!("{}/a:1", registry.host);
            let killing = async {
                world
                    .eventually("a stalled download", || registry.count("/blobs/") == 3)
                    .await;
                let puller = helper_below(world.directory.path()).unwrap();
                let rights = Rights::of(puller);
                assert!(rights.no_new_privileges);
                if nix::unistd::geteuid().is_root() {
                    assert!(rights.uid != 0);
                    assert_eq!(rights.capabilities, 0);
                }
                let pid = nix::unistd::Pid::from_raw(puller);
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
            };
            let (failed, ()) = futures_util::join!(world.get(&name), killing);
            let failed = failed.unwrap_err();
            assert!(failed.ends_with("terminated by signal 9"), "{failed}");
            assert_eq!((world.stored("images"), world.stored("staging")), (0, 0));
            world.get(&name).await.unwrap();
        },
    );
}

/// As after SIGKILL, the agent's end of the socket is closed.
#[test]
fn puller_ends_with_its_agent() {
    let registry = Registry::with_fault(|_, _, answer| Answer {
        then: Then::Stall(0),
        ..answer
    });
    registry.add("a", "1", &image("1"));
    let directory = with(
        |_, _| {},
        |world| async move {
            let name = format!("{}/a:1", registry.host);
            let stalled = world.eventually("a stalled download", || registry.count("/v2/") == 1);
            let getting = world.get(&name);
            let first = futures_util::future::select(Box::pin(getting), Box::pin(stalled)).await;
            assert!(matches!(first, futures_util::future::Either::Right(_)));
            drop(first);
            assert!(helper_below(world.directory.path()).is_some());
            world.directory
        },
    );
    world_in(
        directory,
        |_, _| {},
        |world| async move {
            let directory = world.directory.path();
            let ended = || helper_below(directory).is_none();
            world.eventually("the puller ends", ended).await;
            assert_eq!(world.stored("staging"), 0);
        },
    );
}
