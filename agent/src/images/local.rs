//! Images on disk: a directory with an OCI layout, or an archive of one, or an archive as `docker
//! save` writes it.
//!
//! Read by the puller from a file that the agent has opened. Archives are read in place; only
//! regular files and, as in old archives of Docker, links between them are followed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use serde::Deserialize;

use super::blobs::Blobs;
use super::manifest::{DOCUMENT_MAX, Descriptor, Document, Manifest, choose, own_architecture};
use super::puller::{PullOrder, Pulled, check_sizes};
use super::reference::Reference;
use crate::fetcher::digest::Digest;

/// Most entries of an archive.
const ENTRIES_MAX: usize = 100_000;
/// Most indexes within each other, and most links to one file.
const STEPS_MAX: usize = 8;

/// An opened layout or archive.
pub enum LocalImages {
    /// A directory.
    Layout(File),
    /// A tar archive.
    Archive(File, BTreeMap<String, Entry>),
}

/// An entry of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Position and size of its content.
    File(u64, u64),
    /// The name of another entry.
    Link(String),
}

/// An image of an archive of Docker.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl LocalImages {
    /// Reads the names of an archive's entries.
    pub fn open(file: File) -> Result<Self, String> {
        let text = |error: io::Error| error.to_string();
        if file.metadata().map_err(text)?.is_dir() {
            return Ok(Self::Layout(file));
        }
        let mut names = BTreeMap::new();
        let mut archive = tar::Archive::new(&file);
        for entry in archive.entries_with_seek().map_err(text)? {
            let entry = entry.map_err(|error| format!("no tar archive: {error}"))?;
            let name = entry_name(&String::from_utf8_lossy(&entry.path_bytes()));
            let kind = entry.header().entry_type();
            if kind.is_file() {
                names.insert(name, Entry::File(entry.raw_file_position(), entry.size()));
            } else if kind.is_symlink() {
                let target = entry.link_name_bytes().unwrap_or_default();
                let target = beside(&name, &String::from_utf8_lossy(&target));
                names.insert(name, Entry::Link(target));
            }
            if names.len() > ENTRIES_MAX {
                return Err(format!("the archive has more than {ENTRIES_MAX} entries"));
            }
        }
        Ok(Self::Archive(file, names))
    }

    fn open_file(&self, name: &str) -> Result<Option<Section>, String> {
        let failed = |error: io::Error| format!("`{name}`: {error}");
        match self {
            Self::Layout(directory) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let file = match openat2(directory, name, flags, Mode::empty(), within) {
                    Ok(file) => File::from(file),
                    Err(rustix::io::Errno::NOENT) => return Ok(None),
                    Err(error) => return Err(failed(error.into())),
                };
                let about = file.metadata().map_err(failed)?;
                match about.is_file() {
                    true => Ok(Some(Section::new(file, 0, about.len()))),
                    false => Err(format!("`{name}` is no regular file")),
                }
            }
            Self::Archive(file, entries) => {
                let mut name = name.to_owned();
                for _ in 0..STEPS_MAX {
                    match entries.get(&name) {
                        Some(Entry::Link(target)) => name.clone_from(target),
                        Some(Entry::File(position, size)) => {
                            let file = file.try_clone().map_err(failed)?;
                            return Ok(Some(Section::new(file, *position, *size)));
                        }
                        None => return Ok(None),
                    }
                }
                Err(format!("`{name}` is a link to itself"))
            }
        }
    }

    fn document(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(section) = self.open_file(name)? else {
            return Ok(None);
        };
        let mut content = Vec::new();
        let read = section.take(DOCUMENT_MAX + 1).read_to_end(&mut content);
        read.map_err(|error| format!("`{name}`: {error}"))?;
        match content.len() as u64 > DOCUMENT_MAX {
            true => Err(format!("`{name}` is larger than {DOCUMENT_MAX} bytes")),
            false => Ok(Some(content)),
        }
    }

    /// Copies the parts of an image.
    pub fn pull(&self, order: &PullOrder, blobs: &Blobs) -> Result<Pulled, String> {
        if let Some(manifest) = self.document("manifest.json")? {
            return self.pull_docker(&manifest, order, blobs);
        }
        let index = self.document("index.json")?;
        let index = index.ok_or("it has neither `manifest.json` nor `index.json`")?;
        let Document::Index(images) = Document::read(&index)? else {
            return Err("`index.json` is no index".to_owned());
        };
        let (digest, manifest) = self.find(&images, &order.reference)?;
        check_sizes(&manifest, order, blobs)?;
        let config = &manifest.config.digest;
        let mut pulled = Pulled {
            manifest: Some(digest),
            config: config.clone(),
            layers: Vec::new(),
        };
        if order.known.contains(config) {
            return Ok(pulled);
        }
        for part in std::iter::once(&manifest.config).chain(&manifest.layers) {
            let name = blob(&part.digest);
            let section = self
                .open_file(&name)?
                .ok_or_else(|| format!("`{name}` is missing"))?;
            let copied = blobs.copy(section, part.size, Some(&part.digest));
            copied.map_err(|problem| format!("`{name}`: {problem}"))?;
        }
        pulled.layers = manifest
            .layers
            .into_iter()
            .map(|layer| layer.digest)
            .collect();
        Ok(pulled)
    }

    /// The manifest of a name in a layout.
    fn find(
        &self,
        images: &[Descriptor],
        wanted: &Reference,
    ) -> Result<(Digest, Manifest), String> {
        let named: Vec<&Descriptor> = match wanted.digest() {
            Some(digest) => images
                .iter()
                .filter(|image| image.digest == *digest)
                .collect(),
            None => {
                let names = images.iter().map(names_of).collect::<Vec<_>>();
                let chosen = choose_named(&names, wanted)?;
                let name = &names[chosen];
                // All platforms of one name.
                let is_same = |(_, other): &(_, &Vec<String>)| *other == name;
                let all = images.iter().zip(&names).filter(is_same);
                all.map(|(image, _)| image).collect()
            }
        };
        let named: Vec<Descriptor> = named.into_iter().cloned().collect();
        let mut next = match named.as_slice() {
            [] => return Err(format!("there is no image `{wanted}`")),
            [only] => only.clone(),
            several => choose(several, own_architecture())?.clone(),
        };
        for _ in 0..STEPS_MAX {
            let name = blob(&next.digest);
            let json = self
                .document(&name)?
                .ok_or_else(|| format!("`{name}` is missing"))?;
            let found = Digest::of(&json);
            if found != next.digest {
                return Err(format!("`{name}`: its content has the digest {found}"));
            }
            match Document::read(&json)? {
                Document::Manifest(manifest) => return Ok((found, manifest)),
                Document::Index(platforms) => {
                    next = choose(&platforms, own_architecture())?.clone();
                }
            }
        }
        Err("too many indexes within each other".to_owned())
    }

    fn pull_docker(
        &self,
        manifest: &[u8],
        order: &PullOrder,
        blobs: &Blobs,
    ) -> Result<Pulled, String> {
        let images: Result<Vec<DockerImage>, _> = serde_json::from_slice(manifest);
        let images = images.map_err(|error| format!("`manifest.json`: {error}"))?;
        if let Some(digest) = order.reference.digest() {
            return Err(format!(
                "an archive of `docker save` has no manifest {digest}: name a tag instead"
            ));
        }
        let names = images
            .iter()
            .map(|image| image.repo_tags.clone().unwrap_or_default());
        let image = &images[choose_named(&names.collect::<Vec<_>>(), &order.reference)?];
        let missing = |name: &str| format!("`{name}` is missing");
        let config_name = entry_name(&image.config);
        let config = self
            .document(&config_name)?
            .ok_or_else(|| missing(&config_name))?;
        let config = Digest::of(&config);
        let mut layers = Vec::new();
        if !order.known.contains(&config) {
            let mut left = order.size_max;
            for name in std::iter::once(&image.config).chain(&image.layers) {
                let name = entry_name(name);
                let section = self.open_file(&name)?.ok_or_else(|| missing(&name))?;
                left = left
                    .checked_sub(section.left)
                    .ok_or_else(|| format!("the image is larger than {} bytes", order.size_max))?;
                blobs.check_space(section.left)?;
                let copied = blobs.copy(section, u64::MAX, None);
                layers.push(copied.map_err(|problem| format!("`{name}`: {problem}"))?);
            }
            layers.remove(0);
        }
        Ok(Pulled {
            manifest: None,
            config,
            layers,
        })
    }
}

/// A part of a file.
struct Section {
    file: File,
    position: u64,
    left: u64,
}

impl Section {
    fn new(file: File, position: u64, left: u64) -> Self {
        Self {
            file,
            position,
            left,
        }
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.position)?;
        self.position += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// The index of the image that a name means. An image whose names are unknown or others is meant
/// only if it is alone and the name has no tag: the archive's own name has chosen it.
fn choose_named(images: &[Vec<String>], wanted: &Reference) -> Result<usize, String> {
    let complete = wanted.complete();
    let find = |is_meant: &dyn Fn(&str) -> bool| {
        let names = images.iter().enumerate();
        let mut meant = names.filter(|(_, names)| names.iter().any(|name| is_meant(name)));
        meant.next().map(|(index, _)| index)
    };
    let is_same = |name: &str| Reference::parse(name).is_ok_and(|name| name.complete() == complete);
    let has_tag = |name: &str| {
        let tag = Reference::parse(name)
            .ok()
            .and_then(|name| name.tag().map(str::to_owned));
        name == wanted.tag().unwrap_or_default() || tag.as_deref() == wanted.tag()
    };
    let only = (images.len() == 1 && !wanted.has_tag()).then_some(0);
    let found = find(&is_same).or_else(|| find(&has_tag)).or(only);
    found.ok_or_else(|| {
        let all: Vec<&str> = images
            .iter()
            .flatten()
            .map(String::as_str)
            .take(16)
            .collect();
        format!(
            "there is no image `{wanted}`; there are: {}",
            all.join(", ")
        )
    })
}

fn names_of(image: &Descriptor) -> Vec<String> {
    let annotations = image.annotations.clone().unwrap_or_default();
    [annotations.image_name, annotations.ref_name]
        .into_iter()
        .flatten()
        .collect()
}

/// The path of a blob in a layout.
fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A name without `.`, empty parts and leading slashes.
fn entry_name(name: &str) -> String {
    let parts = name.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.collect::<Vec<_>>().join("/")
}

/// The target of a link, resolved in the text.
fn beside(link: &str, target: &str) -> String {
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_decides_the_image_of_an_archive() {
        let check = |images: &[&[&str]], wanted: &str, expected: Option<usize>| {
            let images: Vec<Vec<String>> = { images.iter() }
                .map(|names| names.iter().map(|&name| name.to_owned()).collect())
                .collect();
            let wanted = Reference::parse(wanted).unwrap();
            assert_eq!(
                choose_named(&images, &wanted).ok(),
                expected,
                "{wanted} of {images:?}"
            );
        };
        let tags: &[&[&str]] = &[&["a:1", "b:2"], &["a:2"], &["latest"]];
        check(tags, "a:1", Some(0));
        check(tags, "docker.io/library/a:2", Some(1));
        check(tags, "a", Some(2));
        check(tags, "a:3", None);
        check(&[&["other:1"]], "a:1", Some(0));
        check(&[&["other:1"]], "a", Some(0));
        check(&[&["other:1"]], "a:2", None);
        check(&[&[]], "a", Some(0));
        check(&[&[]], "a:1", None);
        check(&[&[], &[]], "a", None);
    }

    #[test]
    fn links_of_old_archives_are_resolved() {
        assert_eq!(beside("1/layer.tar", "../2/layer.tar"), "2/layer.tar");
        assert_eq!(beside("1/layer.tar", "../../../etc/passwd"), "etc/passwd");
        assert_eq!(entry_name("./a//b"), "a/b");
    }
}
