//! The documents of an image: index, manifest and configuration, of the OCI and of Docker. Pure.
//!
//! Only the fields in use are read. Both forms have the same ones, so that the media type does not
//! matter; Docker's older schema 1 is refused.

use serde::{Deserialize, Serialize};

use crate::fetcher::digest::Digest;

/// Most bytes of an index, a manifest or a configuration.
pub const DOCUMENT_MAX: u64 = 4 << 20;
/// Most layers of an image.
const LAYERS_MAX: usize = 512;

/// A part of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its format.
    #[serde(default)]
    pub media_type: String,
    /// The digest of its content.
    pub digest: Digest,
    /// Bytes of its content.
    pub size: u64,
    /// The platform of a manifest.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// In an OCI layout they have its name.
    #[serde(default)]
    pub annotations: Option<Annotations>,
}

/// The platform of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// For example `amd64`.
    pub architecture: String,
    /// For example `linux`.
    pub os: String,
}

/// The annotations in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotations {
    /// A tag, or a whole name.
    #[serde(rename = "org.opencontainers.image.ref.name")]
    pub ref_name: Option<String>,
    /// A whole name.
    #[serde(rename = "io.containerd.image.name")]
    pub image_name: Option<String>,
}

/// An index or a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// The manifests of several platforms or images.
    Index(Vec<Descriptor>),
    /// One image.
    Manifest(Manifest),
}

/// The parts of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyDocument {
    schema_version: u64,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

impl Document {
    /// Reads an index or a manifest.
    pub fn read(json: &[u8]) -> Result<Self, String> {
        let read: Result<AnyDocument, _> = serde_json::from_slice(json);
        let any = read.map_err(|error| format!("neither an index nor a manifest: {error}"))?;
        if any.schema_version != 2 {
            let version = any.schema_version;
            return Err(format!(
                "a manifest of schema version {version}: expected version 2"
            ));
        }
        let (config, layers) = match (any.manifests, any.config, any.layers) {
            (Some(manifests), ..) => return Ok(Self::Index(manifests)),
            (None, Some(config), Some(layers)) => (config, layers),
            _ => return Err("a manifest without `config` or `layers`".to_owned()),
        };
        if layers.len() > LAYERS_MAX {
            let count = layers.len();
            return Err(format!("{count} layers: expected at most {LAYERS_MAX}"));
        }
        let is_foreign = |layer: &&Descriptor| {
            let kind = layer.media_type.as_str();
            kind.contains("foreign") || kind.contains("nondistributable")
        };
        if let Some(layer) = layers.iter().find(is_foreign) {
            let (digest, kind) = (&layer.digest, &layer.media_type);
            return Err(format!(
                "layer {digest} of type `{kind}` is kept outside registries"
            ));
        }
        Ok(Self::Manifest(Manifest { config, layers }))
    }
}

/// The architecture of this program, as images name it.
pub fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// The manifest for Linux on this architecture.
pub fn choose<'a>(
    manifests: &'a [Descriptor],
    architecture: &str,
) -> Result<&'a Descriptor, String> {
    let fits = |descriptor: &&Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.is_some_and(|own| own.os == "linux" && own.architecture == architecture)
    };
    if let Some(found) = manifests.iter().find(fits) {
        return Ok(found);
    }
    match manifests {
        [only] if only.platform.is_none() => Ok(only),
        _ => {
            let described = |descriptor: &Descriptor| {
                let platform = descriptor.platform.as_ref();
                platform.map(|own| format!("{}/{}", own.os, own.architecture))
            };
            let found: Vec<String> = manifests.iter().filter_map(described).take(16).collect();
            let found = found.join(", ");
            Err(format!(
                "no image for linux/{architecture}; there are: {found}"
            ))
        }
    }
}

/// The part of an image's configuration that concerns its containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// The digest of the configuration: the id of the image.
    pub digest: Digest,
    /// The first words of the command.
    pub entrypoint: Vec<String>,
    /// The default words after them.
    pub cmd: Vec<String>,
    /// Names and values.
    pub environment: Vec<(String, String)>,
    /// `USER[:GROUP]`, names or numbers.
    pub user: Option<String>,
    /// The working directory.
    pub working_dir: Option<String>,
}

#[derive(Deserialize)]
struct ConfigDocument {
    config: Option<ConfigFields>,
    rootfs: Option<RootFs>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ConfigFields {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<Digest>,
}

impl ImageConfig {
    /// Reads a configuration; returns also the digests of the uncompressed layers.
    pub fn read(json: &[u8]) -> Result<(Self, Vec<Digest>), String> {
        let read: Result<ConfigDocument, _> = serde_json::from_slice(json);
        let document = read.map_err(|error| format!("the image's configuration: {error}"))?;
        let rootfs = document
            .rootfs
            .ok_or("no image of a root file system: its configuration has no `rootfs`")?;
        let fields = document.config.unwrap_or_default();
        let variable = |text: String| match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (text, String::new()),
        };
        let not_empty = |text: &String| !text.is_empty();
        let environment = fields.env.unwrap_or_default().into_iter().map(variable);
        let config = Self {
            digest: Digest::of(json),
            entrypoint: fields.entrypoint.unwrap_or_default(),
            cmd: fields.cmd.unwrap_or_default(),
            environment: environment.filter(|(name, _)| not_empty(name)).collect(),
            user: fields.user.filter(not_empty),
            working_dir: fields.working_dir.filter(not_empty),
        };
        Ok((config, rootfs.diff_ids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(platform: &str) -> String {
        let digest = Digest::of(platform.as_bytes());
        let platform = match platform.split_once('/') {
            Some((os, architecture)) => {
                format!(r#","platform":{{"os":"{os}","architecture":"{architecture}"}}"#)
            }
            None => String::new(),
        };
        format!(r#"{{"digest":"{digest}","size":1{platform}}}"#)
    }

    fn index(platforms: &[&str]) -> Vec<Descriptor> {
        let all: Vec<String> = platforms.iter().map(|one| descriptor(one)).collect();
        let json = format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, all.join(","));
        match Document::read(json.as_bytes()).unwrap() {
            Document::Index(manifests) => manifests,
            Document::Manifest(_) => panic!("a manifest"),
        }
    }

    #[test]
    fn platform_decides_the_manifest() {
        let several = index(&["windows/amd64", "linux/arm64", "linux/amd64"]);
        assert_eq!(choose(&several, "amd64").unwrap(), &several[2]);
        let none = choose(&several, "riscv64").unwrap_err();
        assert_eq!(
            none,
            "no image for linux/riscv64; there are: windows/amd64, linux/arm64, linux/amd64"
        );
        let unnamed = index(&["x"]);
        assert_eq!(choose(&unnamed, "amd64").unwrap(), &unnamed[0]);
        assert!(choose(&index(&["x", "y"]), "amd64").is_err());
    }

    #[test]
    fn wrong_manifest_is_refused() {
        let check = |json: &str, part: &str| {
            let wrong = Document::read(json.as_bytes()).unwrap_err();
            assert!(wrong.contains(part), "{wrong}");
        };
        check("[]", "neither");
        check(r#"{"schemaVersion":1,"fsLayers":[]}"#, "schema version 1");
        check(r#"{"schemaVersion":2}"#, "without `config`");
        check(
            r#"{"schemaVersion":2,"manifests":[{"digest":"sha256:0","size":1}]}"#,
            "digest",
        );
        check(
            &format!(
                r#"{{"schemaVersion":2,"manifests":[{{"digest":"{}","size":-1}}]}}"#,
                Digest::of(b"")
            ),
            "u64",
        );
    }

    #[test]
    fn configuration_is_read_with_absent_and_null_fields() {
        let json = br#"{"config":{"Env":["A=b=c","D"],"Entrypoint":null,"Cmd":["sh"],"User":""},
            "rootfs":{"type":"layers","diff_ids":[]}}"#;
        let (config, layers) = ImageConfig::read(json).unwrap();
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            config.environment,
            [variable("A", "b=c"), variable("D", "")]
        );
        assert_eq!(
            (config.entrypoint, config.cmd),
            (Vec::new(), vec!["sh".to_owned()])
        );
        assert_eq!(
            (config.user, config.working_dir, layers),
            (None, None, Vec::new())
        );
        assert_eq!(config.digest, Digest::of(json));
        assert!(ImageConfig::read(b"{}").unwrap_err().contains("rootfs"));
    }
}
