//! Sandboxes: the seam between the agent's actors and the disk that its tasks' directories are on.
//!
//! [`Directories`] is the real one, over [`crate::sandbox`]. A rehearsal of thousands of agents puts its own here, which touches no
//! file. Every function may block, and is called beside the mailbox. Nothing is remembered.

use std::path::Path;

use protocol::ContainerId;
use protocol::message::operator::FilePiece;

use crate::accounts::{Own, RunAs, run_as};
use crate::operations::volumes::{self, Mount};
use crate::sandbox::{self, ReadError};
use crate::sys;

/// Makes sandboxes and reads files in them.
pub trait Sandboxes: Send + Sync {
    /// Makes the sandbox of a container below `runs`, for `user` if it is to be somebody else's than ours. An error says what
    /// failed, for the task's framework.
    fn create(
        &self,
        runs: &Path,
        container: &ContainerId,
        user: Option<&str>,
    ) -> Result<(), String>;

    /// Lets the sandbox of a container below `runs` lead to these volumes, which are `user`'s from now on unless they are shared. An error
    /// says what failed, for the task's framework. Where there are no directories, there is nothing to do.
    fn link(
        &self,
        _runs: &Path,
        _container: &ContainerId,
        _mounts: &[Mount],
        _user: Option<&str>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// The newest run below `runs`, if there has been one. Where there are no directories, there is none.
    fn newest(&self, _runs: &Path) -> Option<ContainerId> {
        None
    }

    /// Reads a piece of a file in this sandbox.
    fn read(
        &self,
        sandbox: &Path,
        path: &str,
        offset: u64,
        length: u32,
    ) -> Result<FilePiece, ReadError>;
}

/// Sandboxes that are directories.
#[derive(Clone, Copy, Debug, Default)]
pub struct Directories;

impl Sandboxes for Directories {
    fn create(
        &self,
        runs: &Path,
        container: &ContainerId,
        user: Option<&str>,
    ) -> Result<(), String> {
        let made = sandbox::create(runs, container, owner(user)?);
        made.map(|_| ()).map_err(|error| {
            format!(
                "the sandbox cannot be made in `{}`: {error}",
                runs.display()
            )
        })
    }

    fn link(
        &self,
        runs: &Path,
        container: &ContainerId,
        mounts: &[Mount],
        user: Option<&str>,
    ) -> Result<(), String> {
        let (owner, sandbox) = (owner(user)?, runs.join(container.as_str()));
        for mount in mounts {
            volumes::link(&sandbox, mount, owner).map_err(|error| {
                format!(
                    "volume `{}` cannot be put at `{}` of the sandbox: {error}",
                    mount.volume.display(),
                    mount.container_path
                )
            })?;
        }
        Ok(())
    }

    fn newest(&self, runs: &Path) -> Option<ContainerId> {
        sandbox::newest(runs)
    }

    fn read(
        &self,
        sandbox: &Path,
        path: &str,
        offset: u64,
        length: u32,
    ) -> Result<FilePiece, ReadError> {
        sandbox::read(sandbox, path, offset, length)
    }
}

/// The user that the sandbox belongs to, if it is another than ours.
fn owner(user: Option<&str>) -> Result<Option<(u32, u32)>, String> {
    match run_as(user, &Own::unnamed(), sys::account)? {
        RunAs::Own => Ok(None),
        RunAs::Other(account) => {
            let credentials = account.credentials;
            Ok(Some((credentials.uid, credentials.gid)))
        }
    }
}
