//! Images of a local registry: layouts, archives, and the store.

use std::io::Write;
use std::process::Command;

use super::builder::*;
use super::*;

/// Two layers; the second hides a file of the first.
fn two_layers(text: &str) -> BuiltImage {
    let lower = layer(&[("etc/a", "1"), ("etc/b", "1"), ("bin/sh", "shell")]);
    let upper = layer(&[("etc/.wh.a", ""), ("etc/b", text)]);
    BuiltImage::new("run", &[lower, upper])
}

fn only_tag(image: &BuiltImage) -> Vec<serde_json::Value> {
    vec![image.described("1", None)]
}

fn check(image: &Image, built: &BuiltImage, text: &str) {
    assert_eq!(read(image, "etc/b"), text);
    assert!(!image.root.join("etc/a").exists() && !image.root.join("etc/.wh.a").exists());
    let config = &image.config;
    assert_eq!(config.digest, built.config);
    assert_eq!(
        (config.entrypoint.as_slice(), config.cmd.as_slice()),
        (&["/entry".to_owned()][..], &["run".to_owned()][..])
    );
    assert_eq!(config.environment[1], ("A".to_owned(), "b=c".to_owned()));
    assert_eq!(
        (config.user.as_deref(), config.working_dir.as_deref()),
        (Some("1000:100"), Some("/work"))
    );
}

// Covers 5.12 Images in part: a local registry of archives.
#[test]
fn every_form_of_a_local_image_is_unpacked() {
    let images: Vec<BuiltImage> = ["0", "1", "2", "3"].map(two_layers).into();
    let built = images.clone();
    let prepare = move |registry: &Path, _: &mut ImageSettings| {
        write_directory(
            &registry.join("layout"),
            &built[0].layout(only_tag(&built[0])),
        );
        write_archive(
            &registry.join("oci.tar"),
            &built[1].layout(only_tag(&built[1])),
        );
        write_archive(&registry.join("saved.tar"), &built[2].docker(&["saved:1"]));
        write_archive(
            &registry.join("h:5000/me/x:y.tar"),
            &built[3].docker(&["h:5000/me/x:y"]),
        );
    };
    world(prepare, |world| async move {
        let names = ["layout:1", "oci:1", "saved:1", "h:5000/me/x:y"];
        for (number, (name, built)) in names.iter().zip(&images).enumerate() {
            check(&world.get(name).await.unwrap(), built, &number.to_string());
        }
        // By the digest of the manifest.
        let by_digest = format!("layout@{}", images[0].manifest);
        check(&world.get(&by_digest).await.unwrap(), &images[0], "0");
        assert_eq!((world.stored("images"), world.stored("staging")), (4, 0));
    });
}

#[test]
fn platform_and_tag_choose_the_image_of_a_layout() {
    let (own, other, tagged) = (two_layers("own"), two_layers("other"), two_layers("tagged"));
    let architecture = meros_agent::images::manifest::own_architecture();
    let index = vec![
        other.described("1", Some("alien")),
        own.described("1", Some(architecture)),
        tagged.described("2", None),
    ];
    let files = [
        own.layout(index),
        other.layout(vec![]),
        tagged.layout(vec![]),
    ];
    let prepare = move |registry: &Path, _: &mut ImageSettings| {
        for files in files.iter().rev() {
            write_directory(&registry.join("a"), files);
        }
    };
    world(prepare, |world| async move {
        check(&world.get("a:1").await.unwrap(), &own, "own");
        check(&world.get("a:2").await.unwrap(), &tagged, "tagged");
        let wrong = world.get("a:3").await.unwrap_err();
        assert_eq!(
            wrong,
            "image `a:3`: there is no image `a:3`; there are: 1, 1, 2"
        );
    });
}

#[test]
fn wrong_image_is_refused_with_a_reason() {
    let good = two_layers("1");
    let mut damaged = good.clone();
    let layer = damaged.blobs.len() - 1;
    damaged.blobs[layer].1[20] ^= 1;
    // Its configuration states other layers than its manifest has.
    let (one, other) = (layer_of("1"), layer_of("2"));
    let exchanged = BuiltImage::with_packed("run", &[one], &[gzip(&other)]);
    let mut bomb = good.docker(&["bomb:1"]);
    bomb[2].1 = gzip(&vec![0; 8 << 20]);
    let short = good.layout(only_tag(&good));
    let prepare = move |registry: &Path, settings: &mut ImageSettings| {
        settings.bounds.bytes = 4 << 20;
        write_directory(
            &registry.join("damaged"),
            &damaged.layout(only_tag(&damaged)),
        );
        write_directory(
            &registry.join("exchanged"),
            &exchanged.layout(only_tag(&exchanged)),
        );
        write_archive(&registry.join("bomb.tar"), &bomb);
        write_directory(&registry.join("short"), &short[..short.len() - 1]);
        fs::write(registry.join("text.tar"), "x".repeat(1024)).unwrap();
        fs::create_dir(registry.join("empty")).unwrap();
    };
    world(prepare, |world| async move {
        for (name, reason) in [
            ("damaged:1", "its content has the digest"),
            ("exchanged:1", "but the configuration states"),
            (
                "bomb:1",
                "layer 1: the uncompressed layers exceed their bound",
            ),
            ("short:1", "is missing"),
            ("text", "no tar archive"),
            ("empty", "there is no `empty.tar` in the registry"),
            ("missing", "there is no `missing.tar` in the registry"),
            ("Wrong", "repository"),
        ] {
            let wrong = world.get(name).await.unwrap_err();
            assert!(wrong.contains(reason), "{name}: {wrong}");
        }
        assert_eq!((world.stored("images"), world.stored("staging")), (0, 0));
    });
}

/// A disk of 12 MiB, mounted.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and a line with the reason, where it cannot be had.
    fn mount(path: &Path) -> Option<Self> {
        fs::create_dir(path).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=12m", "images"]);
        let mounted = mounted.arg(path).output().unwrap();
        if !mounted.status.success() {
            let problem = String::from_utf8_lossy(&mounted.stderr);
            _ = writeln!(std::io::stderr(), "skipped: {}", problem.trim());
            return None;
        }
        Some(Self(path.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the store is still open.
        _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn full_disk_ends_a_pull_and_leaves_nothing() {
    let directory = directory();
    let Some(disk) = SmallDisk::mount(&directory.path().join("store")) else {
        return;
    };
    let big = [layer_of(&"x".repeat(20 << 20))];
    let download = BuiltImage::with_packed("run", &big, &big);
    let unpacked = BuiltImage::with_packed("run", &big, &[gzip(&big[0])]);
    let small = two_layers("1");
    let built = small.clone();
    let prepare = move |registry: &Path, _: &mut ImageSettings| {
        for (name, image) in [("big", download), ("packed", unpacked), ("small", small)] {
            write_directory(&registry.join(name), &image.layout(only_tag(&image)));
        }
    };
    world_in(directory, prepare, |world| async move {
        for (name, reason) in [
            ("big:1", "the disk of the image store is full: needs"),
            ("packed:1", "layer 1: entry `etc/b`: the disk of the image"),
        ] {
            let wrong = world.get(name).await.unwrap_err();
            assert!(wrong.contains(reason), "{name}: {wrong}");
            assert_eq!((world.stored("images"), world.stored("staging")), (0, 0));
        }
        check(&world.get("small:1").await.unwrap(), &built, "1");
        drop(disk);
    });
}

fn layer_of(text: &str) -> Vec<u8> {
    layer(&[("etc/b", text)])
}

#[test]
fn waiters_share_a_pull_and_later_ones_the_image() {
    let built = two_layers("1");
    let changed = two_layers("2");
    let files = built.docker(&["a:1"]);
    let prepare = move |registry: &Path, _: &mut ImageSettings| {
        write_archive(&registry.join("a.tar"), &files);
    };
    world(prepare, |world| async move {
        let (one, other) =
            futures_util::join!(world.get_for("c1", "a:1"), world.get_for("c2", "a:1"));
        assert_eq!(one.unwrap(), other.unwrap());
        let archive = world.directory.path().join("registry/a.tar");
        write_archive(&archive, &changed.docker(&["a:1"]));
        check(
            &world.get_for("c3", "docker.io/library/a:1").await.unwrap(),
            &built,
            "1",
        );
        let again = GetOptions {
            cached: false,
            ..GetOptions::default()
        };
        check(
            &world.get_with("c4", "a:1", again.clone()).await.unwrap(),
            &changed,
            "2",
        );
        // The image of running containers stays. The same image is not unpacked again.
        let image = world.get_with("c5", "a:1", again).await.unwrap();
        let mut listed = world.images.list().await.unwrap();
        listed.sort_by_key(|image| image.users.len());
        let users: Vec<Vec<&str>> = { listed.iter() }
            .map(|image| image.users.iter().map(ContainerId::as_str).collect())
            .collect();
        assert_eq!(users, [vec!["c4", "c5"], vec!["c1", "c2", "c3"]]);
        assert_eq!(listed[0].names, ["registry-1.docker.io/library/a:1"]);
        check(&image, &changed, "2");
    });
}

#[test]
fn unused_images_are_pruned_and_held_ones_are_not() {
    let images: Vec<BuiltImage> = ["0", "1", "2"].map(two_layers).into();
    let built = images.clone();
    let prepare = move |registry: &Path, _: &mut ImageSettings| {
        for (number, image) in built.iter().enumerate() {
            write_archive(
                &registry.join(format!("i{number}.tar")),
                &image.docker(&["x:1"]),
            );
        }
    };
    world(prepare, |world| async move {
        for number in 0..3 {
            world
                .get_for(&format!("c{number}"), &format!("i{number}"))
                .await
                .unwrap();
        }
        assert_eq!(world.images.prune(Vec::new()).await, Ok(Vec::new()));
        for number in 0..2 {
            world
                .images
                .release(&container(&format!("c{number}")))
                .unwrap();
        }
        let wrong = world.images.prune(vec!["I".to_owned()]).await.unwrap_err();
        assert!(wrong.contains("repository"), "{wrong}");
        let removed = world
            .images
            .prune(vec!["i0:latest".to_owned()])
            .await
            .unwrap();
        assert_eq!(removed, [images[1].config.clone()]);
        assert_eq!((world.stored("images"), world.stored("staging")), (2, 0));
        check(&world.get("i1").await.unwrap(), &images[1], "1");
    });
}

#[test]
fn store_outlives_the_agent() {
    let built = two_layers("1");
    let files = built.docker(&["a:1"]);
    let prepare = move |registry: &Path, _: &mut ImageSettings| {
        write_archive(&registry.join("a.tar"), &files);
    };
    let directory = world(prepare, |world| async move {
        world.get("a:1").await.unwrap();
        // The index is written after the answer.
        let index = world.directory.path().join("store/index.json");
        world.eventually("an index", || index.exists()).await;
        fs::remove_dir_all(world.directory.path().join("registry")).unwrap();
        world.directory
    });
    world_in(
        directory,
        |_, _| {},
        |world| async move {
            check(&world.get("a:1").await.unwrap(), &built, "1");
            let held = vec![(container("old"), Some(built.config.clone()))];
            world.images.hold(held).unwrap();
            world.images.release(&container("c")).unwrap();
            assert_eq!(world.images.prune(Vec::new()).await, Ok(Vec::new()));
        },
    );
}

#[test]
fn abandoned_pull_leaves_nothing() {
    let built = two_layers("1");
    let files = built.docker(&["a:1"]);
    let prepare = move |registry: &Path, _: &mut ImageSettings| {
        write_archive(&registry.join("a.tar"), &files);
    };
    world(prepare, |world| async move {
        let (cancel, cancelled) = oneshot::channel();
        let container = container("c");
        let getting = world
            .images
            .get(&container, "a:1", GetOptions::default(), cancelled);
        drop(cancel);
        assert_eq!(getting.await, Err("cancelled".to_owned()));
        // The next one waits for a pull of its own.
        check(&world.get("a:1").await.unwrap(), &built, "1");
        assert_eq!(world.stored("staging"), 0);
    });
}

/// The clock of the node decides; the store is that of an agent before.
#[test]
fn unused_image_is_removed_when_it_is_old() {
    let (old, held) = (two_layers("1"), two_layers("2"));
    let files = [old.docker(&["a:1"]), held.docker(&["b:1"])];
    let prepare = move |registry: &Path, _: &mut ImageSettings| {
        write_archive(&registry.join("a.tar"), &files[0]);
        write_archive(&registry.join("b.tar"), &files[1]);
    };
    let directory = world(prepare, |world| async move {
        world.get("a:1").await.unwrap();
        world.get("b:1").await.unwrap();
        world.directory
    });
    // Without an index the images count as used at the start.
    let _ = fs::remove_file(directory.path().join("store/index.json"));
    let mut settings = settings(directory.path());
    settings.retention.interval = Some(Duration::from_secs(3600));
    settings.retention.age_max = Some(Duration::from_secs(86_400));
    settings.retention.disk_headroom = 0.0;
    runtime::testing::simulate(|node| async move {
        let store = directory.path().join("store");
        let verbs = ["puller", "unpacker"];
        let opened = OpenImages::open(&store, &helper_program(), verbs, settings).unwrap();
        let images = opened.start(&node).unwrap();
        let left = || fs::read_dir(store.join("images")).unwrap().count();
        node.clock().advance(Duration::from_secs(2 * 86_400)).await;
        assert_eq!(left(), 2, "the images of running containers are unknown");
        images
            .hold(vec![(container("c"), Some(held.config.clone()))])
            .unwrap();
        node.clock().advance(Duration::from_secs(3600)).await;
        assert_eq!(left(), 1);
        let listed = images.list().await.unwrap();
        assert_eq!(
            listed.iter().map(|image| &image.digest).collect::<Vec<_>>(),
            [&held.config]
        );
        // The clock is ahead by a year while the image is used.
        node.clock().set_wall_offset(365 * 86_400 * 1_000_000_000);
        images.release(&container("c")).unwrap();
        node.clock().settle().await;
        node.clock().set_wall_offset(0);
        node.clock()
            .advance(Duration::from_secs(86_400 - 3600))
            .await;
        assert_eq!(left(), 1);
        // The next check has taken the time of the use back to its own.
        node.clock().advance(Duration::from_secs(2 * 3600)).await;
        assert_eq!(left(), 0);
    });
}

/// A layer with so many zeros behind its entries that its unpacker is seen at work.
#[test]
fn unpacker_is_confined_and_ends_when_cancelled() {
    let zeros = gzip(&vec![0; 16 << 20]);
    let mut packed = gzip(&layer(&[("etc/b", "1")]));
    for _ in 0..1024 {
        packed.extend_from_slice(&zeros);
    }
    let long = BuiltImage::with_packed("run", &[Vec::new()], &[packed]);
    let prepare = move |registry: &Path, _: &mut ImageSettings| {
        write_directory(&registry.join("a"), &long.layout(only_tag(&long)));
    };
    world(prepare, |world| async move {
        let (cancel, cancelled) = oneshot::channel();
        let (id, options) = (container("c"), GetOptions::default());
        let getting = world.images.get(&id, "a:1", options, cancelled);
        let watching = async {
            let directory = world.directory.path();
            let confined = || {
                let pid = helper_below(directory)?;
                let at = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
                let is_confined = at.ends_with("image/rootfs");
                (is_confined && Rights::of(pid).no_new_privileges).then_some(pid)
            };
            if nix::unistd::geteuid().is_root() {
                world
                    .eventually("a confined unpacker", || confined().is_some())
                    .await;
                let pid = confined().unwrap();
                let rights = Rights::of(pid);
                // CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETFCAP.
                let kept = [0, 1, 3, 4, 31]
                    .iter()
                    .fold(0, |all, bit| all | 1_u64 << bit);
                assert!(rights.uid != 0);
                assert_eq!(rights.capabilities, kept);
                let root = fs::read_link(format!("/proc/{pid}/root")).unwrap();
                assert!(root.ends_with("image/rootfs"), "{}", root.display());
            } else {
                let is_started = || helper_below(directory).is_some();
                world.eventually("an unpacker", is_started).await;
            }
            drop(cancel);
        };
        let (got, ()) = futures_util::join!(getting, watching);
        assert_eq!(got, Err("cancelled".to_owned()));
        world
            .eventually("no helper", || {
                helper_below(world.directory.path()).is_none()
            })
            .await;
        world
            .eventually("an empty staging", || world.stored("staging") == 0)
            .await;
        assert_eq!(world.stored("images"), 0);
    });
}
