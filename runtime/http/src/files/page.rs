//! The pages `/files/browse`, `/files/read` and `/files/download`, in the form of Mesos.

use std::path::Path;
use std::sync::Arc;

use authority::Subject;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use bytes::Bytes;
use runtime::Node;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    DirectoryEntry, FileError, FilePart, Finder, OpenFile, RootedPath, browse, open, read,
};
use crate::api::Refusal;
use crate::request::query::MesosQuery;

/// Bytes of one read of a download.
const STEP: u64 = 256 << 10;

#[derive(Clone)]
struct Files {
    node: Node,
    find: Finder,
}

/// The three pages, over the files that `find` resolves.
pub fn routes(node: &Node, find: Finder) -> Router {
    let files = Files {
        node: node.clone(),
        find,
    };
    Router::new()
        .route("/files/browse", get(browse_page))
        .route("/files/read", get(read_page))
        .route("/files/download", get(download_page))
        .with_state(files)
}

impl From<FileError> for Refusal {
    fn from(error: FileError) -> Self {
        let status = match &error {
            FileError::Outside { .. } | FileError::Denied { .. } => StatusCode::FORBIDDEN,
            FileError::NotFound { .. } => StatusCode::NOT_FOUND,
            FileError::Unnameable { .. }
            | FileError::NotAFile { .. }
            | FileError::NotADirectory { .. } => StatusCode::BAD_REQUEST,
            FileError::TooMany { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            FileError::System { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error)
    }
}

#[derive(Deserialize)]
struct FileQuery {
    path: Option<String>,
    offset: Option<String>,
    length: Option<String>,
}

type Caller = Option<Extension<Subject>>;

impl Files {
    /// Resolves the requested path and runs `act` on it on the blocking pool.
    async fn at<T: Send + 'static>(
        &self,
        asked: &FileQuery,
        caller: Caller,
        act: impl FnOnce(&RootedPath) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let path = asked.path.clone().filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| Refusal::bad("Expecting 'path=value' in query.\n"))?;
        let subject = caller.map(|Extension(subject)| subject).unwrap_or_default();
        let place = (self.find)(path, subject).await?;
        let done = self.node.blocking(move || act(&place)).await;
        let internal = |error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error);
        Ok(done.map_err(internal)??)
    }
}

async fn browse_page(
    State(files): State<Files>,
    caller: Caller,
    MesosQuery(asked): MesosQuery<FileQuery>,
) -> Result<Response, Refusal> {
    let entries = files.at(&asked, caller, browse).await?;
    let path = asked.path.unwrap_or_default();
    let listed = entries.iter().map(|entry| entry_json(&path, entry));
    Ok(Json(listed.collect::<Vec<_>>()).into_response())
}

fn entry_json(directory: &str, entry: &DirectoryEntry) -> Value {
    json!({
        "path": Path::new(directory).join(&entry.name).to_string_lossy(),
        "nlink": entry.links,
        "size": entry.size,
        "mtime": entry.modified.as_secs_f64(),
        "mode": entry.mode_text(),
        "uid": entry.user,
        "gid": entry.group,
    })
}

async fn read_page(
    State(files): State<Files>,
    caller: Caller,
    MesosQuery(asked): MesosQuery<FileQuery>,
) -> Result<Response, Refusal> {
    let offset = number("offset", asked.offset.as_deref())?;
    let length = number("length", asked.length.as_deref())?;
    let piece = move |place: &RootedPath| match offset {
        Some(offset) => read(place, offset, length),
        // Without an offset, or with -1, only the size is requested.
        None => read(place, 0, Some(0)).map(|piece| FilePart {
            offset: piece.size,
            ..piece
        }),
    };
    let piece = files.at(&asked, caller, piece).await?;
    Ok(Json(json!({ "offset": piece.offset, "data": text(&piece) })).into_response())
}

/// A number of bytes; -1 means none.
fn number(name: &str, given: Option<&str>) -> Result<Option<u64>, Refusal> {
    match given {
        None | Some("-1") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            let text: String = text.chars().take(80).collect();
            // The messages of Mesos, or their beginning.
            Refusal::bad(match text.parse::<i64>() {
                Ok(negative) => format!("Negative {name} provided: {negative}.\n"),
                Err(_) => {
                    format!("Failed to parse {name}: `{text}` is neither a number of bytes nor -1")
                }
            })
        }),
    }
}

/// A chunk's bytes as text. A character that is cut at the end is left to the next chunk.
fn text(piece: &FilePart) -> String {
    let end = piece.offset.saturating_add(piece.data.len() as u64);
    let whole = match std::str::from_utf8(&piece.data) {
        Err(error)
            if error.error_len().is_none() && end < piece.size && error.valid_up_to() > 0 =>
        {
            &piece.data[..error.valid_up_to()]
        }
        _ => &piece.data[..],
    };
    String::from_utf8_lossy(whole).into_owned()
}

async fn download_page(
    State(files): State<Files>,
    caller: Caller,
    MesosQuery(asked): MesosQuery<FileQuery>,
) -> Result<Response, Refusal> {
    let opened = files.at(&asked, caller, open).await?;
    let quoted = |c: char| !c.is_ascii_graphic() && c != ' ' || matches!(c, '"' | '\\');
    let name = opened.name.replace(quoted, "_");
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
    let mut response = (
        [
            (
                CONTENT_TYPE,
                HeaderValue::from_static("application/octet-stream"),
            ),
            (CONTENT_LENGTH, HeaderValue::from(opened.size)),
        ],
        body(files.node, opened),
    )
        .into_response();
    if let Ok(disposition) = disposition {
        response
            .headers_mut()
            .insert(CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

/// Streams the file at its size when opened. If it was truncated since, the body ends in an error,
/// since its length has been sent.
fn body(node: Node, opened: OpenFile) -> Body {
    let size = opened.size;
    let opened = Arc::new(opened);
    let steps = futures_util::stream::try_unfold(0_u64, move |offset| {
        let (opened, node) = (opened.clone(), node.clone());
        async move {
            if offset >= size {
                return Ok(None);
            }
            let step = node.blocking(move || opened.read_at(offset, STEP));
            let bytes = Bytes::from(step.await.map_err(std::io::Error::other)??);
            if bytes.is_empty() {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
            }
            let next = offset + bytes.len() as u64;
            Ok(Some((bytes, next)))
        }
    });
    Body::from_stream(steps)
}

#[cfg(test)]
mod tests {
    use runtime::testing::run_simulated;

    use super::*;

    fn files(root: &Path) -> State<Files> {
        let root = root.to_owned();
        let find = move |path: String, _: Subject| {
            let root = root.clone();
            let found = path.strip_prefix("/shown").map(|inside| RootedPath {
                root,
                inside: inside.trim_start_matches('/').into(),
            });
            let found = found.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "not here"));
            Box::pin(std::future::ready(found)) as futures_util::future::BoxFuture<'static, _>
        };
        let node = runtime::testing::node("node").build();
        State(Files {
            node,
            find: Arc::new(find),
        })
    }

    fn asked(path: &str, offset: Option<&str>, length: Option<&str>) -> MesosQuery<FileQuery> {
        MesosQuery(FileQuery {
            path: Some(path.to_owned()),
            offset: offset.map(str::to_owned),
            length: length.map(str::to_owned),
        })
    }

    async fn body_of(response: Result<Response, Refusal>) -> (u16, String) {
        let response = response.into_response();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let text = String::from_utf8(bytes.unwrap().to_vec());
        (status, text.unwrap())
    }

    #[test]
    fn file_pages_have_the_forms_of_mesos() {
        let directory = tempfile::tempdir().unwrap();
        let large = "x".repeat(STEP as usize + 7);
        std::fs::write(directory.path().join("stdout"), "hällo").unwrap();
        std::fs::write(directory.path().join("large"), &large).unwrap();
        run_simulated(async {
            let files = || files(directory.path());
            let (status, text) =
                body_of(browse_page(files(), None, asked("/shown", None, None)).await).await;
            let listed: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((status, &listed[1]["path"]), (200, &json!("/shown/stdout")));
            assert_eq!(listed[1]["size"], 6);
            for key in ["nlink", "mtime", "mode", "uid", "gid"] {
                assert!(listed[1].get(key).is_some(), "{key} in {text}");
            }
            let read = async |offset, length| {
                let asked = asked("/shown/stdout", offset, length);
                body_of(read_page(files(), None, asked).await).await
            };
            let piece = |offset: u64, data: &str| {
                let piece = json!({ "offset": offset, "data": data });
                (200, piece.to_string())
            };
            assert_eq!(read(None, None).await, piece(6, ""));
            assert_eq!(read(Some("-1"), Some("3")).await, piece(6, ""));
            assert_eq!(read(Some("0"), None).await, piece(0, "hällo"));
            assert_eq!(read(Some("0"), Some("2")).await, piece(0, "h"));
            assert_eq!(read(Some("3"), Some("-1")).await, piece(3, "llo"));
            for wrong in ["x", "-2", "1e9", "99999999999999999999"] {
                let (status, words) = read(Some(wrong), None).await;
                assert!(status == 400 && words.contains(wrong), "{words}");
            }
            let whole = asked("/shown/large", None, None);
            let response = download_page(files(), None, whole).await.unwrap();
            let headers = response.headers().clone();
            assert_eq!(headers[CONTENT_LENGTH], large.len().to_string());
            assert_eq!(
                headers[CONTENT_DISPOSITION],
                "attachment; filename=\"large\""
            );
            assert!(body_of(Ok(response)).await == (200, large.clone()));
        });
    }

    /// SPEC 2.1, 3.9.
    // Covers 3.9 `/files/*` of agents.
    #[test]
    fn unavailable_files_are_refused_with_status_and_reason() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("stdout"), "hello").unwrap();
        run_simulated(async {
            for (path, status, said) in [
                ("", 400, "Expecting 'path=value' in query.\n"),
                ("/elsewhere", 404, "not here"),
                ("/shown/missing", 404, "`missing`: no such file"),
                ("/shown/../secret", 403, "`../secret` leaves"),
                ("/shown", 400, "is not a regular file"),
                ("/shown/a\0b", 400, "expected names without NUL"),
            ] {
                let page = read_page(files(directory.path()), None, asked(path, Some("0"), None));
                let (found, words) = body_of(page.await).await;
                assert_eq!(found, status, "{path}: {words}");
                assert!(words.contains(said), "{path}: {words}");
            }
            let path = "x".to_owned();
            let denied = Refusal::from(FileError::Denied { path });
            assert_eq!(denied.status, 403, "{denied}");
            let page = browse_page(
                files(directory.path()),
                None,
                asked("/shown/stdout", None, None),
            );
            let (found, words) = body_of(page.await).await;
            assert_eq!(found, 400, "{words}");
            assert!(words.contains("`stdout` is not a directory"), "{words}");
        });
    }
}
