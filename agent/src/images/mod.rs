//! Images: root file systems of containers, found, pulled, checked, unpacked once and kept.
//!
//! [`Images::get`] gives a container the directory of an image and its configuration. The image
//! comes from the store if it is there, else from a registry of Docker's distribution API, or from
//! a local registry: a directory with archives (`NAME.tar`, as `docker save` writes them or with an
//! OCI layout) and OCI layouts (`NAME/`). A local registry serves all names.
//!
//! Strangers make images. So a process without rights downloads them and reads manifests and
//! archives (`puller`, `registry`, `local`), and a second one, confined to its target, unpacks the
//! layers (`unpacker`, `layers`). The agent reads only their answers. An image is named by the
//! digest of its configuration, which has the digests of the uncompressed layers; all are checked.
//!
//! The store (`store`), private to the agent's user:
//!
//! ```text
//! lock                      held by the agent
//! index.json                the image of each name, and the last use of each image
//! images/sha256-HEX/        an image, named by the digest of its configuration
//!     image.json            its configuration and size
//!     synced                it is on the disk
//!     rootfs/               its content: the lower directory of containers, never changed
//! staging/N/                a pull or a removal; all are removed when the agent starts
//!     blobs/                the parts, in the puller's hands
//!     image/                becomes images/sha256-HEX by one rename
//! ```
//!
//! A pull leaves some space free (`space`). A container holds its image until it is released;
//! `retention` decides which of the others are removed. `containers` gives containers their root
//! file systems.
//!
//! A cached image is given to every container that names it, whatever the credentials with which it
//! was pulled, as Mesos does. Layers are not kept: two images share none. Devices, pipes and
//! sockets of an image are left out.

mod actor;
mod blobs;
pub mod containers;
pub mod layers;
mod local;
pub mod manifest;
mod pull;
pub mod puller;
pub mod reference;
pub mod registry;
pub mod retention;
mod space;
mod store;
pub mod unpacker;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::ContainerId;
use runtime::prelude::*;
use runtime::{SpawnError, Timestamp};
use tokio::sync::{Semaphore, oneshot};

pub use self::actor::ImageStore;
use self::actor::{AbandonImage, GetImage, HoldImages, ListImages, PruneImages, ReleaseImages};
use self::layers::UnpackBounds;
pub use self::manifest::ImageConfig;
use self::pull::{AT_ONCE, Pulls};
use self::reference::Reference;
use self::registry::credentials::DockerConfig;
use self::registry::endpoints::RegistrySettings;
use self::retention::RetentionPolicy;
use self::store::{Contents, Store};
use crate::fetcher::digest::Digest;
use crate::host::helper::{Helper, unless_cancelled};

/// How long a list of images may take.
const LIST_PATIENCE: Duration = Duration::from_secs(5);

/// How long a pull may take, and how long the unpacking after it: few run at once, and others wait.
const HELPER_LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Where images come from, and how long they stay.
#[derive(Clone, Debug)]
pub struct ImageSettings {
    /// The registries.
    pub source: ImageSource,
    /// Credentials of registries.
    pub credentials: DockerConfig,
    /// A pull fails if a registry sends nothing for this time. Default 1 minute.
    pub stall_timeout: Duration,
    /// A pull fails if the download of one part takes longer. Default 1 hour.
    pub part_timeout: Duration,
    /// The certificates of authorities; `None` means the host's.
    pub authorities: Option<PathBuf>,
    /// A directory with more of them for each registry: `HOST[:PORT]/*.crt`. Readable by all users.
    pub certificates: Option<PathBuf>,
    /// Most bytes of an image as it is pulled. Default 16 GiB.
    pub size_max: u64,
    /// Bounds of an unpacked image.
    pub bounds: UnpackBounds,
    /// When images are removed.
    pub retention: RetentionPolicy,
}

impl ImageSettings {
    /// Settings with the defaults for this source.
    pub fn new(source: ImageSource) -> Self {
        Self {
            source,
            credentials: DockerConfig::default(),
            stall_timeout: Duration::from_secs(60),
            part_timeout: Duration::from_secs(3600),
            authorities: None,
            certificates: None,
            size_max: 16 << 30,
            bounds: UnpackBounds::default(),
            retention: RetentionPolicy::default(),
        }
    }
}

/// Where images come from.
#[derive(Clone, Debug)]
pub enum ImageSource {
    /// Registries on the network.
    Registries(RegistrySettings),
    /// A local registry: a directory with archives and layouts, which serves all names.
    Directory(PathBuf),
}

/// How an image is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetOptions {
    /// Whether the image that the name meant before will do. If not, the registry is asked again;
    /// parts that are there are not pulled again.
    pub cached: bool,
    /// Credentials of this request: a configuration of Docker, JSON with `auths`. Instead of the
    /// agent's.
    pub credentials: Option<String>,
}

impl Default for GetOptions {
    fn default() -> Self {
        Self {
            cached: true,
            credentials: None,
        }
    }
}

/// An image that a container holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its root directory. Must not be changed.
    pub root: PathBuf,
    /// Its configuration.
    pub config: ImageConfig,
}

/// An image of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSummary {
    /// Its id.
    pub digest: Digest,
    /// The names that mean it.
    pub names: Vec<String>,
    /// Its bytes on disk.
    pub bytes: u64,
    /// Its last use.
    pub last_used: Timestamp,
    /// The containers that use it.
    pub users: Vec<ContainerId>,
}

/// A handle to the images of an agent.
#[derive(Clone, Debug)]
pub struct Images {
    actor: Handle<ImageStore>,
    next_request: Arc<AtomicU64>,
}

/// An opened store, whose actor is not started yet.
pub struct OpenImages {
    pulls: Pulls,
    contents: Contents,
}

impl OpenImages {
    /// Opens the store in `directory`, which no other agent may use. Blocking. Helpers are
    /// `program` with the argument `puller`, which calls [`puller::main`], or `unpacker`, which
    /// calls [`unpacker::main`].
    pub fn open(
        directory: &Path,
        program: &Path,
        [puller, unpacker]: [&str; 2],
        settings: ImageSettings,
    ) -> io::Result<Self> {
        let (store, contents) = Store::open(directory)?;
        let pulls = Pulls {
            puller: Helper::new(program, &[puller]).with_limit(HELPER_LIMIT),
            unpacker: Helper::new(program, &[unpacker]).with_limit(HELPER_LIMIT),
            settings: Arc::new(settings),
            store: Arc::new(store),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        };
        Ok(Self { pulls, contents })
    }

    /// Starts the actor.
    pub fn start(self, node: &Node) -> Result<Images, SpawnError> {
        let now = node.clock().wall();
        let actor = ImageStore::new(self.pulls, self.contents, now);
        Ok(Images {
            actor: node.spawn("images", actor)?,
            next_request: Arc::default(),
        })
    }
}

impl Images {
    /// Gets an image for a container, which holds it until [`release`](Self::release): that must be
    /// called at the container's end, also if this was cancelled. The error is for the framework.
    pub async fn get(
        &self,
        container: &ContainerId,
        name: &str,
        options: GetOptions,
        mut cancelled: oneshot::Receiver<()>,
    ) -> Result<Image, String> {
        let (reply, answer) = oneshot::channel();
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let message = GetImage {
            container: container.clone(),
            reference: Reference::parse(name)?,
            options,
            request,
            reply,
        };
        self.actor
            .tell(message)
            .map_err(|error| error.to_string())?;
        match unless_cancelled(answer, &mut cancelled).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the agent ends".to_owned()),
            Err(cancelled) => {
                // A full mailbox lets the pull go on; nothing else is lost.
                let _ = self.actor.tell(AbandonImage { request });
                Err(cancelled)
            }
        }
    }

    /// Holds the images of containers of an earlier agent process. Must be called once, with all of
    /// them: no image is removed before. `None` holds all images.
    pub fn hold(&self, held: Vec<(ContainerId, Option<Digest>)>) -> Result<(), TellError> {
        self.actor.tell(HoldImages(held))
    }

    /// A container has ended.
    pub fn release(&self, container: &ContainerId) -> Result<(), TellError> {
        self.actor.tell(ReleaseImages(container.clone()))
    }

    /// The images of the store.
    pub async fn list(&self) -> Result<Vec<ImageSummary>, AskError> {
        self.actor.ask(ListImages, LIST_PATIENCE).await
    }

    /// Removes all images that no container uses, except those with these names or with those of
    /// the settings. Returns the removed ones when they are gone.
    pub async fn prune(&self, excluded: Vec<String>) -> Result<Vec<Digest>, String> {
        let pruned = self
            .actor
            .ask(PruneImages { excluded }, Patience::WhileLinked);
        pruned.await.map_err(|error| error.to_string())?
    }
}
