//! The unpacker: a short-lived process that unpacks the parts of one image into one directory.
//!
//! Started by the agent in the directory of one pull. It opens all parts, and then confines itself
//! before it reads them: the target becomes its root directory, it has no network, and of root's
//! rights it keeps only those to set owners, modes and file capabilities. Without root it keeps the
//! agent's user, sets no owners, and relies on the resolution of paths alone (`layers`).
//!
//! It trusts no other process: the configuration must have its digest, and each layer the digest
//! that the configuration states for its uncompressed content.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities};
use serde::{Deserialize, Serialize};

use super::layers::{UnpackBounds, Unpacked, Unpacker};
use super::manifest::{DOCUMENT_MAX, ImageConfig};
use crate::fetcher::digest::Digest;
use crate::host::helper::{self, Identity};

/// The parts of an image, below the unpacker's directory.
pub const BLOBS: &str = "blobs";
/// The target, below the unpacker's directory.
pub const TARGET: &str = "image/rootfs";

/// Bytes read at once.
const PIECE: usize = 128 << 10;

/// The image to unpack. One line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnpackOrder {
    /// The user to become with some of root's rights; `None` if the agent is not root.
    pub identity: Identity,
    /// The digest of its configuration.
    pub config: Digest,
    /// The digests of its layers, as they were pulled.
    pub layers: Vec<Digest>,
    /// Bounds on its content.
    pub bounds: UnpackBounds,
}

/// An unpacked image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpackedImage {
    /// Its configuration.
    pub config: ImageConfig,
    /// Its size.
    pub size: Unpacked,
}

/// Runs the unpacker. Its answer is the result.
pub fn main() -> ExitCode {
    let answer = run();
    let is_sent = helper::send_answer(&answer).is_ok();
    match answer.is_ok() && is_sent {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn run() -> Result<UnpackedImage, String> {
    let order: UnpackOrder = helper::take_order()?;
    let text = |error: io::Error| error.to_string();
    helper::limit_itself(order.bounds.bytes).map_err(text)?;
    // Directories that no layer names have the usual mode.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let parts = open_parts(&order, Path::new(BLOBS))?;
    let target = match &order.identity {
        Some((uid, gid, _)) => {
            confine(Path::new(TARGET), *uid, *gid).map_err(|error| {
                format!("the unpacker cannot confine itself to its target: {error}")
            })?;
            Path::new("/")
        }
        None => Path::new(TARGET),
    };
    helper::become_user(&None).map_err(|error| error.to_string())?;
    helper::end_with_agent(|| {});
    unpack(&order, parts, target)
}

/// The opened parts of an image: its configuration and its layers.
type Parts = (File, Vec<File>);

fn open_parts(order: &UnpackOrder, blobs: &Path) -> Result<Parts, String> {
    let open = |digest: &Digest| {
        let mut options = File::options();
        // The puller, which has written them, may be in a stranger's hands.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let options = options.read(true).custom_flags(flags);
        let file = options.open(blobs.join(digest.file_name()));
        file.map_err(|error| format!("part {digest}: {error}"))
    };
    let layers: Result<Vec<File>, String> = order.layers.iter().map(open).collect();
    Ok((open(&order.config)?, layers?))
}

/// Makes the target the root directory, and gives up all rights but those over its files.
fn confine(target: &Path, uid: u32, gid: u32) -> io::Result<()> {
    nix::unistd::chroot(target)?;
    nix::unistd::chdir("/")?;
    // In a container the agent may lack the right for it; no socket is opened all the same.
    let _ = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC);
    nix::unistd::setgroups(&[])?;
    set_keep_capabilities(true)?;
    nix::unistd::setgid(Gid::from_raw(gid))?;
    nix::unistd::setuid(Uid::from_raw(uid))?;
    let kept = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::SETFCAP;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

fn unpack(order: &UnpackOrder, parts: Parts, target: &Path) -> Result<UnpackedImage, String> {
    let (config, layers) = parts;
    let mut json = Vec::new();
    let read = config.take(DOCUMENT_MAX).read_to_end(&mut json);
    read.map_err(|error| format!("the image's configuration: {error}"))?;
    let (config, digests) = ImageConfig::read(&json)?;
    if config.digest != order.config {
        let digest = &config.digest;
        return Err(format!("the image's configuration has the digest {digest}"));
    }
    if digests.len() != layers.len() {
        let (stated, found) = (digests.len(), layers.len());
        return Err(format!(
            "the image has {found} layers, but its configuration states {stated}"
        ));
    }
    let unpacker = Unpacker::new(target, order.bounds).map_err(|error| error.to_string())?;
    let mut unpacker = unpacker.with_owners(order.identity.is_some());
    for (number, (layer, stated)) in layers.into_iter().zip(digests).enumerate() {
        let of_layer = |problem: String| format!("layer {}: {problem}", number + 1);
        if !layer.metadata().is_ok_and(|about| about.is_file()) {
            return Err(of_layer("it is no regular file".to_owned()));
        }
        let digest = unpacker.apply(BufReader::with_capacity(PIECE, layer));
        let digest = digest.map_err(of_layer)?;
        if digest != stated {
            return Err(of_layer(format!(
                "its content has the digest {digest}, but the configuration states {stated}"
            )));
        }
    }
    let size = unpacker.finish()?;
    Ok(UnpackedImage { config, size })
}
