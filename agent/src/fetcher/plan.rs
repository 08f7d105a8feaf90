//! The plan of a fetch: the file of each URI and its use. Pure.
//!
//! Names and rules are Mesos': an archive is extracted into the sandbox and stays beside its files,
//! `x.gz` becomes `x`, and an executable file is never extracted.

use std::path::Path;

use protocol::Uri;
use protocol::task::uri::UriSource;
use serde::{Deserialize, Serialize};

use super::digest::Digest;

/// A file to fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchItem {
    /// Where it comes from.
    pub source: FetchSource,
    /// Its path in the sandbox.
    pub file: String,
    /// The next step.
    pub then: AfterFetch,
    /// Whether it may come from the cache. Only files of the web do.
    pub is_cached: bool,
    /// The digest of its content, if it is checked.
    pub digest: Option<Digest>,
}

/// The source of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchSource {
    /// A URI of the scheme `http` or `https`.
    Web(String),
    /// A path of this host.
    Path(String),
}

/// The use of a fetched file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterFetch {
    /// It stays as it is.
    Keep,
    /// It is made executable.
    MakeExecutable,
    /// Its entries are extracted into the sandbox.
    Extract(ArchiveKind),
    /// Its decompressed content becomes this file in the sandbox.
    Decompress(String),
}

/// The format of an archive, known by the name of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArchiveKind {
    /// `.tar`
    Tar,
    /// `.tar.gz`, `.tgz`
    TarGz,
    /// `.tar.bz2`, `.tbz2`
    TarBz2,
    /// `.tar.xz`, `.txz`
    TarXz,
    /// `.zip`
    Zip,
}

const ARCHIVES: [(&str, ArchiveKind); 8] = [
    (".tar", ArchiveKind::Tar),
    (".tar.gz", ArchiveKind::TarGz),
    (".tgz", ArchiveKind::TarGz),
    (".tar.bz2", ArchiveKind::TarBz2),
    (".tbz2", ArchiveKind::TarBz2),
    (".tar.xz", ArchiveKind::TarXz),
    (".txz", ArchiveKind::TarXz),
    (".zip", ArchiveKind::Zip),
];

/// The files to fetch for these URIs. An error names the URI.
pub fn plan(uris: &[Uri]) -> Result<Vec<FetchItem>, String> {
    let items = uris
        .iter()
        .enumerate()
        .map(|(index, uri)| item(uri).map_err(|invalid| format!("uris[{index}].{invalid}")));
    items.collect()
}

fn item(uri: &Uri) -> Result<FetchItem, resources::Invalid> {
    let source = match uri.source()? {
        UriSource::Web(uri) => FetchSource::Web(uri.to_owned()),
        UriSource::Path(path) => FetchSource::Path(path.to_owned()),
    };
    let file = uri.file()?.to_owned();
    let then = match (uri.executable, uri.extract) {
        (true, _) => AfterFetch::MakeExecutable,
        (false, true) => after_extraction(&file),
        (false, false) => AfterFetch::Keep,
    };
    let digest = uri.digest.as_deref().map(Digest::parse).transpose()?;
    let is_cached = uri.cache && matches!(source, FetchSource::Web(_));
    Ok(FetchItem {
        source,
        file,
        then,
        is_cached,
        digest,
    })
}

fn after_extraction(file: &str) -> AfterFetch {
    let kind = ARCHIVES.iter().find(|(ending, _)| file.ends_with(ending));
    if let Some((_, kind)) = kind {
        return AfterFetch::Extract(*kind);
    }
    let plain = file.strip_suffix(".gz").map(Path::new);
    match plain.and_then(|plain| plain.file_name()?.to_str()) {
        Some(plain) => AfterFetch::Decompress(plain.to_owned()),
        None => AfterFetch::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(uri: Uri) -> FetchItem {
        plan(&[uri]).unwrap().remove(0)
    }

    /// SPEC 5.12.
    #[test]
    fn file_name_decides_what_is_extracted() {
        use AfterFetch::{Decompress, Extract, Keep};
        for (name, then) in [
            ("a.tar", Extract(ArchiveKind::Tar)),
            ("a.tar.gz", Extract(ArchiveKind::TarGz)),
            ("a.tgz", Extract(ArchiveKind::TarGz)),
            ("a.tar.bz2", Extract(ArchiveKind::TarBz2)),
            ("a.tbz2", Extract(ArchiveKind::TarBz2)),
            ("a.tar.xz", Extract(ArchiveKind::TarXz)),
            ("a.txz", Extract(ArchiveKind::TarXz)),
            ("a.zip", Extract(ArchiveKind::Zip)),
            ("x.txt.gz", Decompress("x.txt".into())),
            ("ü.gz", Decompress("ü".into())),
            (".gz", Keep),
            ("a.tgz?version=1", Keep),
            ("a.txt", Keep),
        ] {
            let item = only(Uri::new(format!("http://h/d/{name}")));
            assert_eq!((item.file.as_str(), item.then), (name, then));
        }
    }

    #[test]
    fn output_file_names_the_archive_too() {
        let named = |file: &str| Uri {
            output_file: Some(file.into()),
            ..Uri::new("/data/a.zip")
        };
        assert_eq!(only(named("d/b")).then, AfterFetch::Keep);
        let gz = only(named("d/b.gz"));
        assert_eq!(gz.then, AfterFetch::Decompress("b".into()));
        assert_eq!(gz.file, "d/b.gz");
        assert_eq!(gz.source, FetchSource::Path("/data/a.zip".into()));
    }

    #[test]
    fn executable_file_is_not_extracted() {
        let executable = Uri {
            executable: true,
            ..Uri::new("http://h/a.tgz")
        };
        assert_eq!(only(executable).then, AfterFetch::MakeExecutable);
        let kept = Uri {
            extract: false,
            ..Uri::new("http://h/a.tgz")
        };
        assert_eq!(only(kept).then, AfterFetch::Keep);
    }

    #[test]
    fn first_invalid_uri_is_named() {
        let refused = plan(&[Uri::new("/a"), Uri::new("relative")]).unwrap_err();
        let expected = "an absolute path, or a URI with a scheme";
        assert_eq!(
            refused,
            format!("uris[1].value is `relative`: expected {expected}")
        );
    }
}
