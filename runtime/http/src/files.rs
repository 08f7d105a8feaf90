//! Files that a service shows: `/files/browse`, `/files/read` and `/files/download` (SPEC 3.9), and what the v1 API says of files.
//!
//! A service says by a [`Finder`] which place a path of a request is: a directory of its own that must not be left, and a path in it. The kernel
//! itself refuses any way out, be it `..` or a link that somebody has put there. Nothing is written, and a piece, a list and a download each
//! have their bound. Functions that touch the disk block; the pages call them on the blocking pool.

mod page;
mod place;

pub use page::routes;
pub use place::{Entry, FileError, Opened, Piece, Place, browse, open, read};

use std::sync::Arc;

use authority::Subject;
use futures_util::future::BoxFuture;

use crate::api::Refusal;

/// The most bytes of a file that are read at once: 16 pages.
pub const PIECE_MAX: u64 = 16 * 4096;

/// Which place a path of a request is, for whoever asks.
pub type Finder =
    Arc<dyn Fn(String, Subject) -> BoxFuture<'static, Result<Place, Refusal>> + Send + Sync>;
