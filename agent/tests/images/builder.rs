//! Images made by the tests: layers, layouts, archives.

use std::fs;
use std::io::Write;
use std::path::Path;

use meros_agent::fetcher::digest::Digest;
use serde_json::{Value, json};

/// Media types of the OCI.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An uncompressed layer of files with this content.
pub fn layer(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        builder
            .append_data(&mut header, name, content.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(content).unwrap();
    gz.finish().unwrap()
}

/// An image: its blobs by digest, and the digest of its manifest.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    pub blobs: Vec<(Digest, Vec<u8>)>,
    pub manifest: Digest,
    pub config: Digest,
    /// Uncompressed.
    pub layers: Vec<Vec<u8>>,
}

impl BuiltImage {
    /// An image of these layers, compressed, whose command is `cmd`.
    pub fn new(cmd: &str, layers: &[Vec<u8>]) -> Self {
        let packed: Vec<Vec<u8>> = layers.iter().map(|layer| gzip(layer)).collect();
        Self::with_packed(cmd, layers, &packed)
    }

    /// Likewise, with the compressed layers.
    pub fn with_packed(cmd: &str, layers: &[Vec<u8>], packed: &[Vec<u8>]) -> Self {
        let digests: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
        let config = json!({
            "architecture": "any", "os": "linux",
            "config": {"Cmd": [cmd], "Env": ["PATH=/bin", "A=b=c"], "Entrypoint": ["/entry"], "User": "1000:100", "WorkingDir": "/work"},
            "rootfs": {"type": "layers", "diff_ids": digests},
        });
        let config = serde_json::to_vec(&config).unwrap();
        let part = |kind: &str, content: &[u8]| json!({"mediaType": kind, "digest": Digest::of(content), "size": content.len()});
        let described: Vec<Value> = packed.iter().map(|layer| part(LAYER, layer)).collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": part(CONFIG, &config), "layers": described});
        let manifest = serde_json::to_vec(&manifest).unwrap();
        let all = [vec![config.clone(), manifest.clone()], packed.to_vec()].concat();
        Self {
            blobs: all
                .into_iter()
                .map(|blob| (Digest::of(&blob), blob))
                .collect(),
            manifest: Digest::of(&manifest),
            config: Digest::of(&config),
            layers: layers.to_vec(),
        }
    }

    pub fn blob(&self, digest: &Digest) -> &[u8] {
        let (_, blob) = self.blobs.iter().find(|(of, _)| of == digest).unwrap();
        blob
    }

    /// Its entry in an index.
    pub fn described(&self, name: &str, platform: Option<&str>) -> Value {
        let mut entry = json!({
            "mediaType": MANIFEST, "digest": self.manifest, "size": self.blob(&self.manifest).len(),
            "annotations": {"org.opencontainers.image.ref.name": name},
        });
        if let Some(architecture) = platform {
            entry["platform"] = json!({"os": "linux", "architecture": architecture});
        }
        entry
    }

    /// The files of an OCI layout with this index.
    pub fn layout(&self, index: Vec<Value>) -> Vec<(String, Vec<u8>)> {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": index});
        let mut files = vec![
            (
                "oci-layout".to_owned(),
                br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
            ),
            ("index.json".to_owned(), serde_json::to_vec(&index).unwrap()),
        ];
        for (digest, blob) in &self.blobs {
            files.push((format!("blobs/sha256/{}", digest.hex()), blob.clone()));
        }
        files
    }

    /// The files of an archive of `docker save`.
    pub fn docker(&self, tags: &[&str]) -> Vec<(String, Vec<u8>)> {
        let config = format!("{}.json", self.config.hex());
        let names: Vec<String> = (0..self.layers.len())
            .map(|number| format!("{number}/layer.tar"))
            .collect();
        let manifest = json!([{"Config": config, "RepoTags": tags, "Layers": names}]);
        let mut files = vec![
            (
                "manifest.json".to_owned(),
                serde_json::to_vec(&manifest).unwrap(),
            ),
            (config, self.blob(&self.config).to_vec()),
        ];
        files.extend(names.into_iter().zip(self.layers.clone()));
        files
    }
}

/// Writes files as a directory.
pub fn write_directory(path: &Path, files: &[(String, Vec<u8>)]) {
    for (name, content) in files {
        let path = path.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Writes files as an archive.
pub fn write_archive(path: &Path, files: &[(String, Vec<u8>)]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut builder = tar::Builder::new(fs::File::create(path).unwrap());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        builder
            .append_data(&mut header, name, content.as_slice())
            .unwrap();
    }
    builder.finish().unwrap();
}
