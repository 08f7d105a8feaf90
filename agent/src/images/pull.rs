//! A pull as the agent sees it: a puller, then an unpacker, then a place in the store.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use runtime::Node;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, oneshot};

use super::puller::{PullOrder, Pulled};
use super::reference::Reference;
use super::registry::RegistryOrder;
use super::registry::credentials::DockerConfig;
use super::registry::endpoints::{RegistrySettings, endpoints};
use super::store::{Staging, Store};
use super::unpacker::{UnpackOrder, UnpackedImage};
use super::{ImageSettings, ImageSource};
use crate::fetcher::digest::Digest;
use crate::host::helper::{Helper, Identity, unless_cancelled};
use crate::host::sys;

/// Most pulls at once; others wait for their turn.
pub const AT_ONCE: usize = 8;
/// Most bytes of a helper's answer.
const ANSWER_MAX: u64 = 16 << 20;
/// Most characters of a helper's error.
const PROBLEM_MAX: usize = 500;
/// The user and group of the puller and the unpacker, if the host has no user `nobody`.
const NOBODY: u32 = 65_534;

/// The programs and settings of pulls.
#[derive(Clone, Debug)]
pub struct Pulls {
    /// The puller.
    pub puller: Helper,
    /// The unpacker.
    pub unpacker: Helper,
    /// Where images come from.
    pub settings: Arc<ImageSettings>,
    /// Where they go.
    pub store: Arc<Store>,
    /// Of [`AT_ONCE`] permits.
    pub turns: Arc<Semaphore>,
}

/// The result of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullResult {
    /// A new image.
    New(UnpackedImage),
    /// An image that was known.
    Known(Digest),
}

impl Pulls {
    /// Pulls an image, at most until `cancelled`.
    pub async fn pull(
        self,
        node: Node,
        (reference, credentials): (Reference, Option<String>),
        known: BTreeSet<Digest>,
        mut cancelled: oneshot::Receiver<()>,
    ) -> Result<PullResult, String> {
        let turn = unless_cancelled(self.turns.acquire(), &mut cancelled).await?;
        let _turn = turn.map_err(|error| error.to_string())?;
        let (this, wanted) = (self.clone(), reference.clone());
        let prepare = move || {
            let identity = identity().map_err(|error| format!("user `nobody`: {error}"))?;
            let source = match &this.settings.source {
                ImageSource::Directory(directory) => Source::File(open_source(directory, &wanted)?),
                ImageSource::Registries(registries) => {
                    let order = registry_order(&this.settings, registries, &wanted, credentials)?;
                    Source::Registry(order)
                }
            };
            let staged = this.store.stage(&identity);
            let staging = staged.map_err(|error| format!("the store of images: {error}"))?;
            Ok::<_, String>((identity, source, staging))
        };
        let prepared = node.blocking(prepare).await;
        let (identity, source, staging) = prepared.map_err(|error| error.to_string())??;
        let done = self
            .run(
                &node,
                &staging,
                (identity, source),
                (reference, known),
                &mut cancelled,
            )
            .await;
        let (store, staged) = (self.store.clone(), staging);
        let finish = move || {
            let done = done?;
            if let PullResult::New(image) = &done {
                let committed = store.commit(&staged, image);
                committed.map_err(|error| format!("the store of images: {error}"))?;
            }
            Ok(done)
        };
        node.blocking(finish)
            .await
            .map_err(|error| error.to_string())?
    }

    async fn run(
        &self,
        node: &Node,
        staging: &Staging,
        (identity, source): (Identity, Source),
        (reference, known): (Reference, BTreeSet<Digest>),
        cancelled: &mut oneshot::Receiver<()>,
    ) -> Result<PullResult, String> {
        let (registry, output) = match source {
            Source::File(file) => (None, Stdio::from(file)),
            Source::Registry(order) => (Some(order), Stdio::null()),
        };
        let order = PullOrder {
            identity: identity.clone(),
            reference,
            registry,
            known,
            size_max: self.settings.size_max,
        };
        let start = (&self.puller, staging.blobs(), output);
        let pulled: Pulled = run(node, start, &order, cancelled).await?;
        if order.known.contains(&pulled.config) {
            return Ok(PullResult::Known(pulled.config));
        }
        let order = UnpackOrder {
            identity,
            config: pulled.config,
            layers: pulled.layers,
            bounds: self.settings.bounds,
        };
        let start = (&self.unpacker, staging.path().to_owned(), Stdio::null());
        let image: UnpackedImage = run(node, start, &order, cancelled).await?;
        match image.config.digest == order.config {
            true => Ok(PullResult::New(image)),
            false => Err("the unpacker has unpacked another image".to_owned()),
        }
    }
}

/// Runs a helper whose answer is its result.
async fn run<T: DeserializeOwned>(
    node: &Node,
    (helper, directory, output): (&Helper, PathBuf, Stdio),
    order: &impl Serialize,
    cancelled: &mut oneshot::Receiver<()>,
) -> Result<T, String> {
    let files = move || Ok((output, Stdio::null()));
    let ended = helper
        .run(node, directory, files, (order, ANSWER_MAX), cancelled)
        .await?;
    match serde_json::from_slice::<Result<T, String>>(&ended.answer) {
        Ok(answer) => answer.map_err(|problem| shown(&problem)),
        Err(error) => {
            let reason = ended.success().err().unwrap_or_else(|| error.to_string());
            Err(format!("the image's helper gave no answer: {reason}"))
        }
    }
}

/// A problem in one line: it may contain names from archives and text of servers.
fn shown(problem: &str) -> String {
    let printable = |character: char| match character.is_control() {
        true => ' ',
        false => character,
    };
    problem.chars().take(PROBLEM_MAX).map(printable).collect()
}

/// The user of both helpers; `None` if the agent is not root. Blocking.
fn identity() -> io::Result<Identity> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    let account = sys::account("nobody")?.map(|account| account.credentials);
    let ids = account.map_or((NOBODY, NOBODY), |known| (known.uid, known.gid));
    Ok(Some((ids.0, ids.1, Vec::new())))
}

/// The opened source of a pull.
enum Source {
    File(File),
    Registry(RegistryOrder),
}

/// The registries of an image. Blocking. `credentials` replace the agent's.
fn registry_order(
    settings: &ImageSettings,
    registries: &RegistrySettings,
    reference: &Reference,
    credentials: Option<String>,
) -> Result<RegistryOrder, String> {
    let own = credentials.as_deref().map(DockerConfig::parse).transpose();
    let own = own.map_err(|problem| format!("credentials of the image: {problem}"))?;
    let config = own.as_ref().unwrap_or(&settings.credentials);
    let has_certificates = |host: &str| {
        let directory = settings.certificates.as_ref();
        directory.is_some_and(|directory| directory.join(host).is_dir())
    };
    Ok(RegistryOrder {
        endpoints: endpoints(reference, registries, config, has_certificates)?,
        stall_timeout: settings.stall_timeout,
        part_timeout: settings.part_timeout,
        authorities: settings.authorities.clone(),
        certificates: settings.certificates.clone(),
    })
}

/// The file or directory of an image on disk. Blocking.
fn open_source(directory: &Path, reference: &Reference) -> Result<File, String> {
    for name in reference.file_names() {
        for path in [directory.join(format!("{name}.tar")), directory.join(&name)] {
            match open_image(&path) {
                Ok(file) => return Ok(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("`{}`: {error}", path.display())),
            }
        }
    }
    let directory = directory.display();
    let names = reference.file_names().join(".tar` or `");
    Err(format!(
        "there is no `{names}.tar` in the registry `{directory}`"
    ))
}

/// Opens an archive, or a directory that is a layout.
fn open_image(path: &Path) -> io::Result<File> {
    let about = std::fs::metadata(path)?;
    if about.is_dir() {
        std::fs::metadata(path.join("index.json"))?;
    } else if !about.is_file() {
        return Err(io::Error::other("it is neither a file nor a directory"));
    }
    File::open(path)
}
