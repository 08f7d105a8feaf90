//! Root file systems of containers: an image, and a directory for what each container writes.
//!
//! ```text
//! DIR/CONTAINER/provisioned.json   what the container has got, for the next agent process
//! DIR/CONTAINER/upper, work, root  made by the container init
//! ```

mod command;
mod user;

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use module_api::isolator::RootFilesystem;
use protocol::task::container::ContainerInfo;
use protocol::{CommandInfo, ContainerId};
use runtime::Node;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::store::{read_json, write_json};
use super::{GetOptions, ImageConfig, Images};
use crate::host::beneath::Beneath;
use crate::host::removal::remove_tree;
use crate::host::sys::Account;

/// The record of a container in its directory.
const RECORD: &str = "provisioned.json";
/// Most bytes that are read of an image's list of users or groups.
const LIST_MAX: u64 = 1 << 20;

/// What a container with an image has got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisioned {
    /// Its root file system.
    pub root: RootFilesystem,
    /// The configuration of its image.
    pub image: ImageConfig,
    /// The command to execute in it.
    pub command: CommandInfo,
    /// The user of the image, for type DOCKER only.
    pub user: Option<Account>,
}

/// Provides containers with root file systems. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Provisioner {
    images: Images,
    directory: Arc<Path>,
    /// The path of the sandbox in each container.
    sandbox: Arc<Path>,
}

impl Provisioner {
    /// A provisioner that makes its directories below `directory`.
    pub fn new(images: Images, directory: &Path, sandbox: &Path) -> Self {
        Self {
            images,
            directory: directory.into(),
            sandbox: sandbox.into(),
        }
    }

    /// Holds the images of the live containers of an earlier agent process, and removes what is
    /// left of others. Returns what the live ones have got; `None` if a record is damaged. Called
    /// once, before all other functions. Blocking.
    pub fn recover(&self, live: &BTreeSet<ContainerId>) -> Vec<(ContainerId, Option<Provisioned>)> {
        let mut found = Vec::new();
        // Strangers' files with rights lie below: no user of the host may reach them.
        let closed = std::fs::create_dir_all(&self.directory).and_then(|()| {
            std::fs::set_permissions(&self.directory, Permissions::from_mode(0o700))
        });
        if let Err(error) = closed {
            tracing::error!(%error, "cannot make the directory of root file systems");
        }
        for entry in std::fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let id = entry.file_name().into_string().ok();
            let id = id.and_then(|name| ContainerId::new(&name).ok());
            match id.filter(|id| live.contains(id)) {
                Some(id) => match read_record(&entry.path()) {
                    Ok(provisioned) => found.push((id, Some(provisioned))),
                    // It was not launched.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        remove(&entry.path());
                    }
                    Err(error) => {
                        tracing::error!(container = %id, %error, "damaged record of its image: \
                            keeping all images until it ends");
                        found.push((id, None));
                    }
                },
                None => {
                    remove(&entry.path());
                }
            }
        }
        let held = found.iter();
        let digest = |one: &Provisioned| one.image.digest.clone();
        let held = held.map(|(id, one)| (id.clone(), one.as_ref().map(digest)));
        if let Err(error) = self.images.hold(held.collect()) {
            tracing::error!(%error, "images of running containers are not held");
        }
        found
    }

    /// Gets the image of a container and makes its directory. The error is for the framework. The
    /// container must be [released](Self::release) in any case.
    pub async fn provision(
        &self,
        node: Node,
        container: ContainerId,
        (command, info): (CommandInfo, ContainerInfo),
        cancelled: oneshot::Receiver<()>,
    ) -> Result<Provisioned, String> {
        let Some(image) = &info.image else {
            return Err("the container has no image".to_owned());
        };
        let options = GetOptions {
            cached: image.is_cached,
            credentials: None,
        };
        let got = self.images.get(&container, &image.name, options, cancelled);
        let got = got.await;
        let got =
            got.map_err(|problem| format!("Failed to pull image '{}': {problem}", image.name))?;
        let root = RootFilesystem {
            image: got.root,
            scratch: self.directory.join(container.as_str()),
            sandbox: self.sandbox.to_path_buf(),
        };
        let (is_docker, config) = (info.docker.is_some(), got.config);
        let make = move || -> Result<Provisioned, String> {
            let user = match is_docker {
                true => Some(image_user(&root.image, &config)?),
                false => None,
            };
            let provisioned = Provisioned {
                root,
                command: command::command(&command, &config, is_docker)?,
                image: config,
                user,
            };
            let recorded = write_record(&provisioned);
            let scratch = provisioned.root.scratch.display();
            recorded.map_err(|error| format!("cannot make `{scratch}`: {error}"))?;
            Ok(provisioned)
        };
        let made = node.blocking(make).await;
        made.map_err(|error| error.to_string())?
    }

    /// Removes all images that no container uses, except those with these names. The error is for
    /// the caller.
    pub async fn prune(&self, excluded: Vec<String>) -> Result<(), String> {
        let pruned = self.images.prune(excluded).await?;
        tracing::info!(count = pruned.len(), "images removed on request");
        Ok(())
    }

    /// The processes of a container have ended: removes what it has written, in the background.
    /// Returns whether it is removed.
    pub fn release(
        &self,
        node: &Node,
        container: &ContainerId,
    ) -> impl Future<Output = bool> + use<> {
        if let Err(error) = self.images.release(container) {
            tracing::error!(%container, %error, "its image is not released");
        }
        let path = self.directory.join(container.as_str());
        let removing = node.blocking_low_priority(move || remove(&path));
        async move { removing.await.unwrap_or(false) }
    }
}

/// Returns whether it is removed. Logs the error otherwise.
fn remove(path: &Path) -> bool {
    match remove_tree(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::error!(path = %path.display(), %error, "cannot remove a root file system");
            false
        }
        _ => true,
    }
}

fn write_record(provisioned: &Provisioned) -> io::Result<()> {
    let scratch = &provisioned.root.scratch;
    std::fs::create_dir_all(scratch)?;
    write_json(&scratch.join(RECORD), RECORD, provisioned)
}

fn read_record(scratch: &Path) -> io::Result<Provisioned> {
    read_json(&scratch.join(RECORD), RECORD)
}

fn image_user(image: &Path, config: &ImageConfig) -> Result<Account, String> {
    let list = |path: &str| match read_list(image, Path::new(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|error| format!("`{path}` of the image: {error}")),
    };
    let (passwd, group) = (list("/etc/passwd")?, list("/etc/group")?);
    user::account(config.user.as_deref(), &passwd, &group)
}

/// A file of an image, through links in it only.
fn read_list(image: &Path, path: &Path) -> io::Result<String> {
    let file = Beneath::open(image)?.read(path)?;
    let mut bytes = Vec::new();
    file.take(LIST_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
