//! Files that a service serves: `/files/browse`, `/files/read` and `/files/download`, and the file
//! calls of the v1 API.
//!
//! A service provides a [`Finder`], which maps a request's path to a [`RootedPath`]: a root
//! directory and a path below it. The kernel itself refuses to leave the root, be it by `..` or by
//! symbolic links. Nothing is written. Chunks, listings and downloads are bounded. Functions that
//! access the disk block; the pages call them on the blocking pool.

mod page;
mod rooted_path;

pub use page::routes;
pub use rooted_path::{
    DirectoryEntry, FileError, FilePart, OpenFile, RootedPath, browse, open, read,
};

use std::sync::Arc;

use authority::Subject;
use futures_util::future::BoxFuture;

use crate::api::Refusal;

/// Maximum bytes of one read: 16 memory pages.
pub const PART_MAX: u64 = 16 * 4096;

/// Maps a request's path to a file for this subject, or refuses.
pub type Finder =
    Arc<dyn Fn(String, Subject) -> BoxFuture<'static, Result<RootedPath, Refusal>> + Send + Sync>;
