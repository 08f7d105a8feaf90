//! Images: real pullers and unpackers, with images that the tests make.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod builder;
mod debian;
mod local;
mod registry;
mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use meros_agent::images::{GetOptions, Image, ImageSettings, ImageSource, Images, OpenImages};
use protocol::ContainerId;
use runtime::Node;
use runtime::prelude::*;
use tokio::sync::oneshot;

/// The program of the helpers, which cargo builds with the tests.
fn helper_program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let profile = own.ancestors().nth(2).unwrap();
    let program = profile.join("examples").join("zygote");
    assert!(
        program.exists(),
        "{} is built by cargo with the tests",
        program.display()
    );
    program
}

/// An agent's images, and directories for a store and a local registry.
struct World {
    node: Node,
    images: Images,
    directory: tempfile::TempDir,
}

fn settings(directory: &Path) -> ImageSettings {
    let mut settings = ImageSettings::new(ImageSource::Directory(directory.join("registry")));
    settings.retention.interval = None;
    settings
}

/// Runs a test. `prepare` fills the local registry, or changes the settings.
fn world<F: Future>(
    prepare: impl FnOnce(&Path, &mut ImageSettings),
    story: impl FnOnce(World) -> F,
) -> F::Output {
    world_in(directory(), prepare, story)
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    // The puller is `nobody`.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), readable).unwrap();
    directory
}

fn world_in<F: Future>(
    directory: tempfile::TempDir,
    prepare: impl FnOnce(&Path, &mut ImageSettings),
    story: impl FnOnce(World) -> F,
) -> F::Output {
    let mut settings = settings(directory.path());
    let registry = directory.path().join("registry");
    fs::create_dir_all(&registry).unwrap();
    prepare(&registry, &mut settings);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        let node = Node::builder("agent").role(Role::Agent).build();
        let store = directory.path().join("store");
        let verbs = ["puller", "unpacker"];
        let opened = OpenImages::open(&store, &helper_program(), verbs, settings).unwrap();
        let images = opened.start(&node).unwrap();
        images.hold(Vec::new()).unwrap();
        let world = World {
            node: node.clone(),
            images,
            directory,
        };
        let output = story(world).await;
        node.shutdown().await;
        output
    })
}

fn container(id: &str) -> ContainerId {
    ContainerId::new(id).unwrap()
}

impl World {
    async fn get_for(&self, id: &str, name: &str) -> Result<Image, String> {
        self.get_with(id, name, GetOptions::default()).await
    }

    async fn get_with(&self, id: &str, name: &str, options: GetOptions) -> Result<Image, String> {
        let (_keep, cancelled) = oneshot::channel();
        let id = container(id);
        let getting = self.images.get(&id, name, options, cancelled);
        let minute = Duration::from_secs(60);
        self.node
            .clock()
            .timeout(minute, getting)
            .await
            .expect("an answer within a minute")
    }

    async fn get(&self, name: &str) -> Result<Image, String> {
        self.get_for("c", name).await
    }

    /// Waits for a condition.
    async fn eventually(&self, what: &str, mut is_met: impl FnMut() -> bool) {
        let waiting = async {
            while !is_met() {
                self.node.clock().sleep(Duration::from_millis(5)).await;
            }
        };
        let minute = Duration::from_secs(60);
        let met = self.node.clock().timeout(minute, waiting).await;
        met.unwrap_or_else(|_| panic!("{what} within a minute"));
    }

    /// Entries of a directory of the store.
    fn stored(&self, directory: &str) -> usize {
        let path = self.directory.path().join("store").join(directory);
        fs::read_dir(path).unwrap().count()
    }
}

/// A file of an image.
fn read(image: &Image, name: &str) -> String {
    fs::read_to_string(image.root.join(name)).unwrap()
}

/// The helper that works below this directory.
fn helper_below(directory: &Path) -> Option<i32> {
    let processes = fs::read_dir("/proc").unwrap();
    let mut pids = processes.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_below = |pid: &i32| {
        let at = fs::read_link(format!("/proc/{pid}/cwd"));
        at.is_ok_and(|at| at.starts_with(directory))
    };
    pids.find(is_below)
}

/// The rights of a process.
struct Rights {
    uid: u32,
    capabilities: u64,
    no_new_privileges: bool,
}

impl Rights {
    fn of(pid: i32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)).unwrap();
            value.split_whitespace().next().unwrap().to_owned()
        };
        Self {
            uid: field("Uid:").parse().unwrap(),
            capabilities: u64::from_str_radix(&field("CapEff:"), 16).unwrap(),
            no_new_privileges: field("NoNewPrivs:") == "1",
        }
    }
}
