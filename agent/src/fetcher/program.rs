//! The fetcher: a short-lived process that fetches the files of one container.
//!
//! Started in the sandbox by the agent. Takes its order from standard input, becomes the task's
//! user, and only then opens files and connections, so it reads and writes with the user's rights.
//! Ends when its standard input does: then its agent has ended, or the container is being killed.

use std::cell::OnceCell;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nix::libc;
use nix::sys::stat::{Mode, umask};
use runtime::Clock;
use serde::{Deserialize, Serialize};

use super::archive::{ExtractionBounds, Extractor};
use super::digest::{Digest, Hasher};
use super::download::uri::WebUri;
use super::download::{Downloader, Sink, WebFile};
use super::plan::{AfterFetch, FetchItem, FetchSource};
use crate::host::helper::{self, Identity};

/// The files to fetch and the user to fetch as. One line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FetchOrder {
    /// The user, group and groups; `None` means those of the agent.
    pub credentials: Identity,
    /// A download fails if its server sends nothing for this time.
    pub stall_timeout: Duration,
    /// The certificates of authorities; `None` means the host's.
    pub authorities: Option<PathBuf>,
    /// Bounds on extracted files.
    pub bounds: ExtractionBounds,
    /// The files.
    pub items: Vec<FetchItem>,
}

/// Runs the fetcher until all files are fetched, or one cannot be. Writes its log to standard
/// error.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            log(format_args!("{problem}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    let order: FetchOrder = helper::take_order()?;
    helper::limit_itself(order.bounds.bytes).map_err(failed)?;
    let user = helper::become_user(&order.credentials);
    user.map_err(|error| format!("cannot become the task's user: {error}"))?;
    // The usual mask: the sandbox itself is private.
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    helper::end_with_agent(|| log(format_args!("ended by its agent")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(fetch_all(&order, Path::new(".")))
}

/// Writes a line to the log, if there is room for it.
pub(super) fn log(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "fetcher: {line}");
}

/// A URI without its user and password.
fn without_password(uri: &str) -> String {
    let parts = uri.split_once("://").and_then(|(scheme, rest)| {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (_, host) = authority.rsplit_once('@')?;
        Some(format!("{scheme}://{host}{path}"))
    });
    parts.unwrap_or_else(|| uri.to_owned())
}

/// Fetches all files into `sandbox`, in order. The error is that of the first one that fails.
pub(super) async fn fetch_all(order: &FetchOrder, sandbox: &Path) -> Result<(), String> {
    let downloader = Downloader {
        stall_timeout: order.stall_timeout,
        authorities: order.authorities.clone(),
        more_authorities: Vec::new(),
        clock: Clock::real(),
        log,
        tls: OnceCell::new(),
    };
    let mut extractor = Extractor::new(sandbox, order.bounds);
    for item in &order.items {
        let (FetchSource::Web(source) | FetchSource::Path(source)) = &item.source;
        let source = without_password(source);
        log(format_args!("fetching `{source}` to `{}`", item.file));
        let fetched = fetch(item, sandbox, &downloader, &mut extractor).await;
        fetched.map_err(|problem| format!("cannot fetch `{source}`: {problem}"))?;
    }
    Ok(())
}

async fn fetch(
    item: &FetchItem,
    sandbox: &Path,
    downloader: &Downloader,
    extractor: &mut Extractor,
) -> Result<(), String> {
    let path = sandbox.join(&item.file);
    let in_sandbox = |error: io::Error| format!("`{}`: {error}", item.file);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(in_sandbox)?;
    }
    let created = File::create(&path);
    let mut file = Checked::new(created.map_err(in_sandbox)?, item.digest.clone());
    match &item.source {
        FetchSource::Web(uri) => {
            let wanted = WebFile {
                uri: WebUri::read(uri)?,
                accept: None,
                is_immutable: item.digest.is_some(),
            };
            let downloaded = downloader.download(&wanted, &mut file).await;
            downloaded.map_err(|error| error.to_string())?;
        }
        FetchSource::Path(source) => copy(source, &mut file).map_err(|error| error.to_string())?,
    }
    let file = file.finish().inspect_err(|_| {
        // Nothing may take it for the right one.
        let _ = fs::remove_file(&path);
    })?;
    match &item.then {
        AfterFetch::Keep => Ok(()),
        AfterFetch::MakeExecutable => {
            let mode = file.metadata().map_err(in_sandbox)?.permissions().mode();
            let mode = Permissions::from_mode(mode & 0o777 | 0o111);
            file.set_permissions(mode).map_err(in_sandbox)
        }
        AfterFetch::Extract(kind) => {
            let extracted = extractor.extract(&path, *kind);
            extracted.map_err(|problem| format!("cannot extract it: {problem}"))
        }
        AfterFetch::Decompress(name) => {
            let extracted = extractor.decompress(&path, name);
            extracted.map_err(|problem| format!("cannot decompress it: {problem}"))
        }
    }
}

/// A file being written. Its content is hashed meanwhile if a digest is expected.
struct Checked {
    file: File,
    expected: Option<(Digest, Hasher)>,
}

impl Checked {
    fn new(file: File, expected: Option<Digest>) -> Self {
        let expected = expected.map(|digest| (digest, Hasher::default()));
        Self { file, expected }
    }

    /// The file, if it has the digest.
    fn finish(self) -> Result<File, String> {
        if let Some((expected, hasher)) = self.expected {
            let found = hasher.finish();
            if found != expected {
                return Err(format!("its digest is `{found}`: expected `{expected}`"));
            }
        }
        Ok(self.file)
    }
}

impl Write for Checked {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        let written = self.file.write(content)?;
        if let Some((_, hasher)) = &mut self.expected {
            hasher.update(&content[..written]);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sink for Checked {
    fn add(&mut self, content: &[u8]) -> io::Result<()> {
        self.write_all(content)
    }

    fn restart(&mut self) -> io::Result<()> {
        if let Some((_, hasher)) = &mut self.expected {
            *hasher = Hasher::default();
        }
        self.file.restart()
    }
}

/// Copies a file of this host with its mode, but without set-id bits.
fn copy(source: &str, file: &mut Checked) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // Opening a pipe must not wait for a writer.
    let source = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(source);
    let mut source = source?;
    let metadata = source.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    io::copy(&mut source, file)?;
    let mode = metadata.permissions().mode() & 0o777;
    file.file.set_permissions(Permissions::from_mode(mode))
}
