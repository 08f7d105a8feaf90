//! The puller: a short-lived process that gets the parts of one image.
//!
//! Started by the agent in an empty directory. It becomes a user without rights before it opens a
//! connection or reads an archive: strangers have made both. It writes each part to a file named by
//! its digest, which it has checked, and answers with the list. Standard output is the layout or
//! archive, if the image is on disk.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::blobs::Blobs;
use super::local::LocalImages;
use super::manifest::Manifest;
use super::reference::Reference;
use super::registry::{self, RegistryOrder};
use crate::fetcher::digest::Digest;
use crate::host::helper::{self, Identity};

/// The image to pull. One line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PullOrder {
    /// The user to become.
    pub identity: Identity,
    /// Its name.
    pub reference: Reference,
    /// Where it is; `None` means the file at standard output.
    pub registry: Option<RegistryOrder>,
    /// Images that are there: their parts are not pulled.
    pub known: BTreeSet<Digest>,
    /// Most bytes of all parts.
    pub size_max: u64,
}

/// The parts of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulled {
    /// The digest of its manifest; an archive of Docker has none.
    pub manifest: Option<Digest>,
    /// The digest of its configuration.
    pub config: Digest,
    /// The digests of its layers, the lowest first. None of an image that is known.
    pub layers: Vec<Digest>,
}

/// Runs the puller. Its answer is the result.
pub fn main() -> ExitCode {
    let answer = run();
    let is_sent = helper::send_answer(&answer).is_ok();
    match answer.is_ok() && is_sent {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn run() -> Result<Pulled, String> {
    let order: PullOrder = helper::take_order()?;
    helper::limit_itself(order.size_max).map_err(|error| error.to_string())?;
    let user = helper::become_user(&order.identity);
    user.map_err(|error| format!("cannot become a user without rights: {error}"))?;
    helper::end_with_agent(|| {});
    pull(&order, Path::new("."))
}

/// Pulls an image into a directory.
fn pull(order: &PullOrder, directory: &Path) -> Result<Pulled, String> {
    let text = |error: io::Error| error.to_string();
    let blobs = Blobs::new(directory);
    if let Some(registry) = &order.registry {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(text)?;
        return runtime.block_on(registry::pull(order, registry, &blobs));
    }
    let source = io::stdout().as_fd().try_clone_to_owned();
    LocalImages::open(File::from(source.map_err(text)?))?.pull(order, &blobs)
}

/// Checks the stated sizes of all parts, if they are pulled: reads are bounded by them, and they
/// must fit on the disk.
pub fn check_sizes(manifest: &Manifest, order: &PullOrder, blobs: &Blobs) -> Result<(), String> {
    let parts = std::iter::once(&manifest.config).chain(&manifest.layers);
    let size = parts.fold(0_u64, |size, part| size.saturating_add(part.size));
    if size > order.size_max {
        let size_max = order.size_max;
        return Err(format!(
            "the image has {size} bytes, more than the {size_max} that are allowed"
        ));
    }
    match order.known.contains(&manifest.config.digest) {
        true => Ok(()),
        false => blobs.check_space(size),
    }
}
