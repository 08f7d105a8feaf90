//! Fetcher: files that are fetched into a sandbox before its command runs.
//!
//! `plan` decides the name and the use of each file. For each container the agent starts its own
//! program again ([`main`]), which becomes the task's user and fetches all files (`program`): from
//! the host, or over HTTP (`download`, which `images` uses too). It extracts archives (`archive`).
//! Its log is in the sandbox's `stderr`. A file that may be cached is downloaded once into a
//! directory of its user (`cache`, `cached_files`), and copied from there. A file with a digest is
//! checked while it is written, also when it comes from the cache.

pub mod archive;
mod cache;
mod cached_files;
pub mod digest;
pub(crate) mod download;
pub mod plan;
mod program;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use runtime::Node;
use tokio::sync::{Semaphore, oneshot};

use self::archive::ExtractionBounds;
use self::cache::CacheKey;
use self::cached_files::CachedFiles;
use self::plan::{AfterFetch, FetchItem, FetchSource};
pub use self::program::{FetchOrder, main};
use crate::host::accounts::{OwnUser, RunAs, run_as};
use crate::host::helper::{Helper, Identity, unless_cancelled};
use crate::host::{output, sys};

/// Most fetchers at once; others wait for their turn.
const AT_ONCE: usize = 64;

/// The files of one container.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Where they go.
    pub sandbox: PathBuf,
    /// The user that owns them, if not the agent's.
    pub user: Option<String>,
    /// A download fails if its server sends nothing for this time.
    pub stall_timeout: Duration,
    /// The certificates of authorities; `None` means the host's.
    pub authorities: Option<PathBuf>,
    /// The files.
    pub items: Vec<FetchItem>,
}

/// Starts fetchers.
#[derive(Clone, Debug)]
pub struct Fetcher {
    helper: Helper,
    turns: Arc<Semaphore>,
    cached: Option<Arc<CachedFiles>>,
}

/// A fetcher to start.
struct Start {
    directory: PathBuf,
    log: PathBuf,
    order: FetchOrder,
}

impl Fetcher {
    /// Fetchers are `program` with `arguments`, which must call [`main`].
    pub fn new(program: &Path, arguments: &[&str]) -> Self {
        Self {
            helper: Helper::new(program, arguments),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            cached: None,
        }
    }

    /// Adds a cache of `size` bytes in `directory`, which no other agent may use. Blocking: removes
    /// the cache of an earlier agent process.
    pub fn with_cache(mut self, directory: &Path, size: u64) -> io::Result<Self> {
        if size > 0 {
            self.cached = Some(Arc::new(CachedFiles::open(directory, size)?));
        }
        Ok(self)
    }

    /// The bytes that the cache may have, and those that it has.
    pub fn cache_figures(&self) -> (u64, u64) {
        let cached = self.cached.as_ref();
        cached.map(|cached| cached.figures()).unwrap_or_default()
    }

    /// Fetches all files. Returns when the fetcher has ended, at once after `cancelled`. The error
    /// is its exit status.
    pub async fn fetch(
        self,
        node: Node,
        mut request: FetchRequest,
        mut cancelled: oneshot::Receiver<()>,
    ) -> Result<(), String> {
        let mut in_use = Vec::new();
        let fetching = self.fetch_all(&node, &mut request, &mut cancelled, &mut in_use);
        let result = fetching.await;
        if let (Some(cached), false) = (self.cached, in_use.is_empty()) {
            let is_fetched = result.is_ok();
            let release = move || {
                let all = in_use.iter();
                all.for_each(|key| cached.release(key, is_fetched));
            };
            let _ = node.blocking(release).await;
        }
        result
    }

    async fn fetch_all(
        &self,
        node: &Node,
        request: &mut FetchRequest,
        cancelled: &mut oneshot::Receiver<()>,
        in_use: &mut Vec<CacheKey>,
    ) -> Result<(), String> {
        let user = request.user.clone();
        let credentials = node.blocking(move || credentials(user.as_deref())).await;
        let credentials = credentials.map_err(|error| error.to_string())??;
        let log = request.sandbox.join("stderr");
        let start = |directory: &Path, items: Vec<FetchItem>| Start {
            directory: directory.to_owned(),
            log: log.clone(),
            order: FetchOrder {
                credentials: credentials.clone(),
                stall_timeout: request.stall_timeout,
                authorities: request.authorities.clone(),
                bounds: ExtractionBounds::default(),
                items,
            },
        };
        for item in &mut request.items {
            let (Some(cached), FetchSource::Web(uri), true) =
                (&self.cached, &item.source, item.is_cached)
            else {
                continue;
            };
            let key = CacheKey {
                uid: credentials.as_ref().map(|(uid, ..)| *uid),
                uri: uri.clone(),
                digest: item.digest.clone(),
            };
            let (file, is_missing) = unless_cancelled(cached.ask(&key), cancelled).await?;
            if is_missing {
                let item = FetchItem {
                    file: file.to_string(),
                    then: AfterFetch::Keep,
                    ..item.clone()
                };
                let gid = credentials.as_ref().map(|(_, gid, _)| *gid);
                let (files, of) = (cached.clone(), key.clone());
                let made = node.blocking(move || files.make_directory(&of, gid)).await;
                let made = made.map_err(|error| error.to_string());
                let made = made.and_then(|made| made.map_err(|error| error.to_string()));
                let fetched = match made {
                    Ok(directory) => {
                        self.run(node, start(&directory, vec![item]), cancelled)
                            .await
                    }
                    Err(problem) => Err(format!("the cache cannot be used: {problem}")),
                };
                let (files, of) = (cached.clone(), key.clone());
                let ended = node.blocking(move || match fetched {
                    Ok(()) => files
                        .downloaded(&of, file)
                        .map_err(|error| error.to_string()),
                    Err(problem) => {
                        files.failed(&of, file);
                        Err(problem)
                    }
                });
                ended.await.map_err(|error| error.to_string())??;
            }
            let path = cached.path(&key, file).to_string_lossy().into_owned();
            in_use.push(key);
            item.source = FetchSource::Path(path);
        }
        let all = start(&request.sandbox, request.items.clone());
        self.run(node, all, cancelled).await
    }

    /// Runs a fetcher to its end, when it is its turn.
    async fn run(
        &self,
        node: &Node,
        start: Start,
        cancelled: &mut oneshot::Receiver<()>,
    ) -> Result<(), String> {
        let turn = unless_cancelled(self.turns.acquire(), cancelled).await?;
        let _turn = turn.map_err(|error| error.to_string())?;
        let log = start.log;
        let files = move || Ok((Stdio::null(), output::open_output(&log)?.into()));
        let directory = start.directory;
        let order = (&start.order, 0);
        let helper = &self.helper;
        let ended = helper.run(node, directory, files, order, cancelled).await?;
        ended.success()
    }
}

/// Blocking.
fn credentials(user: Option<&str>) -> Result<Identity, String> {
    match run_as(user, &OwnUser::unnamed(), sys::account)? {
        RunAs::Own => Ok(None),
        RunAs::Other(account) => {
            let of_user = account.credentials;
            Ok(Some((of_user.uid, of_user.gid, of_user.groups)))
        }
    }
}
