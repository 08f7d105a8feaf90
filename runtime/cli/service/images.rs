//! The flags of an agent's images.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::agent::images::containers::Provisioner;
use ::agent::images::reference::Reference;
use ::agent::images::registry::credentials::DockerConfig;
use ::agent::images::registry::endpoints::RegistrySettings;
use ::agent::images::retention::RetentionPolicy;
use ::agent::images::{ImageSettings, ImageSource, OpenImages};
use clap::Args;
use runtime::Node;
use serde::Deserialize;

use crate::flags::Text;
use crate::output::error::{CliError, Outcome};

/// The hidden verbs of the processes that pull and unpack images.
const HELPERS: [&str; 2] = ["image-puller", "image-unpacker"];

/// The flags of `meros agent`.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct ImageFlags {
    /// `docker`: containers may have images, with the isolator `filesystem/linux` [default: none]
    #[arg(long, env = "MESOS_IMAGE_PROVIDERS", value_name = "NAME")]
    image_providers: Option<String>,
    /// The registry of images whose name has none: a URL, or a directory with archives (`NAME.tar`
    /// by `docker save`) and OCI layouts, which then serves all names [default: Docker's]
    #[arg(long, env = "MESOS_DOCKER_REGISTRY", value_name = "URL|DIR")]
    docker_registry: Option<String>,
    /// Mirrors, which are asked before their registry; a registry may have several
    #[arg(
        long,
        env = "MEROS_DOCKER_MIRRORS",
        value_name = "REGISTRY=URL,...",
        value_delimiter = ','
    )]
    docker_mirrors: Vec<String>,
    /// Registries without TLS, beside those of this machine
    #[arg(
        long,
        env = "MEROS_DOCKER_INSECURE_REGISTRIES",
        value_name = "HOST[:PORT],...",
        value_delimiter = ','
    )]
    docker_insecure_registries: Vec<String>,
    /// Certificates of authorities for each registry, which all users can read:
    /// HOST[:PORT]/NAME.crt [default: this machine's]
    #[arg(long, env = "MEROS_DOCKER_CERTS_DIR", value_name = "DIR")]
    docker_certs_dir: Option<PathBuf>,
    /// Credentials of registries: Docker's config.json with `auths`, as text or `file:///PATH`
    #[arg(long, env = "MESOS_DOCKER_CONFIG", value_name = "JSON")]
    docker_config: Option<Text>,
    /// The directory of unpacked images, which no other agent may use [default: `images` in the
    /// work directory]
    #[arg(long, env = "MESOS_DOCKER_STORE_DIR", value_name = "DIR")]
    docker_store_dir: Option<PathBuf>,
    /// When images that no container uses are removed: JSON with `image_disk_headroom`,
    /// `image_disk_watch_interval` and `excluded_images`, as text or `file:///PATH` [default: after
    /// a week, or when less than a tenth of the disk is free]
    #[arg(long, env = "MESOS_IMAGE_GC_CONFIG", value_name = "JSON")]
    image_gc_config: Option<Text>,
    /// The path of the sandbox in a container with an image
    #[arg(
        long,
        env = "MESOS_SANDBOX_DIRECTORY",
        default_value = "/mnt/mesos/sandbox",
        value_name = "PATH"
    )]
    sandbox_directory: PathBuf,
}

/// `--image_gc_config` in the form of Mesos.
#[derive(Deserialize)]
struct GcConfig {
    #[serde(default = "default_headroom")]
    image_disk_headroom: f64,
    image_disk_watch_interval: Option<DurationInfo>,
    #[serde(default)]
    excluded_images: Vec<ExcludedImage>,
}

fn default_headroom() -> f64 {
    RetentionPolicy::default().disk_headroom
}

#[derive(Deserialize)]
struct DurationInfo {
    nanoseconds: u64,
}

#[derive(Deserialize)]
struct ExcludedImage {
    docker: NamedImage,
}

#[derive(Deserialize)]
struct NamedImage {
    name: String,
}

/// The images of an agent, checked.
#[derive(Clone, Debug, Default)]
pub struct ImagePlan {
    /// `None` if there are no images here.
    settings: Option<ImageSettings>,
    store: Option<PathBuf>,
    sandbox: PathBuf,
    /// The flags and their values, for pages, without secrets.
    pub shown: BTreeMap<String, String>,
}

impl ImageFlags {
    /// Checks the flags.
    pub fn plan(&self) -> Outcome<ImagePlan> {
        let wrong = |flag: &str, problem: &dyn std::fmt::Display| {
            CliError::usage(format!("--{flag}: {problem}"))
        };
        let providers = self.image_providers.as_deref().unwrap_or_default();
        let has_images = match providers.to_lowercase().as_str() {
            "" => false,
            "docker" => true,
            _ => {
                let problem = format!("`{providers}`: expected `docker`, or nothing");
                return Err(wrong("image_providers", &problem));
            }
        };
        if !self.sandbox_directory.is_absolute() {
            let problem = format!(
                "`{}`: expected an absolute path",
                self.sandbox_directory.display()
            );
            return Err(wrong("sandbox_directory", &problem));
        }
        let mut settings = ImageSettings::new(self.source()?);
        if let Some(Text(json)) = &self.docker_config {
            let parsed = DockerConfig::parse(json);
            settings.credentials = parsed.map_err(|problem| wrong("docker_config", &problem))?;
        }
        settings.certificates.clone_from(&self.docker_certs_dir);
        if let Some(Text(json)) = &self.image_gc_config {
            let config = serde_json::from_str(json);
            let config: GcConfig = config.map_err(|error| wrong("image_gc_config", &error))?;
            let headroom = config.image_disk_headroom;
            if !(0.0..=1.0).contains(&headroom) {
                let problem = format!("image_disk_headroom is `{headroom}`: expected 0 to 1");
                return Err(wrong("image_gc_config", &problem));
            }
            let excluded: Vec<String> = config
                .excluded_images
                .into_iter()
                .map(|one| one.docker.name)
                .collect();
            for name in &excluded {
                Reference::parse(name).map_err(|problem| wrong("image_gc_config", &problem))?;
            }
            let default = RetentionPolicy::default();
            let interval = config.image_disk_watch_interval;
            let interval = interval.map(|info| Duration::from_nanos(info.nanoseconds));
            settings.retention = RetentionPolicy {
                interval: interval.or(default.interval),
                disk_headroom: headroom,
                excluded,
                ..default
            };
        }
        Ok(ImagePlan {
            settings: has_images.then_some(settings),
            store: self.docker_store_dir.clone(),
            sandbox: self.sandbox_directory.clone(),
            shown: self.shown(providers),
        })
    }

    fn source(&self) -> Outcome<ImageSource> {
        let registry = self.docker_registry.as_deref();
        if let Some(directory) = registry.map(|one| one.strip_prefix("file://").unwrap_or(one))
            && directory.starts_with('/')
        {
            return Ok(ImageSource::Directory(directory.into()));
        }
        let mut mirrors: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for mirror in &self.docker_mirrors {
            let Some((registry, url)) = mirror.split_once('=') else {
                let problem = format!("--docker_mirrors: `{mirror}`: expected REGISTRY=URL");
                return Err(CliError::usage(problem));
            };
            mirrors
                .entry(registry.to_owned())
                .or_default()
                .push(url.to_owned());
        }
        let with_scheme = |url: &str| match url.contains("://") {
            true => url.to_owned(),
            false => format!("https://{url}"),
        };
        Ok(ImageSource::Registries(RegistrySettings {
            default: registry.map(with_scheme),
            mirrors,
            insecure: self.docker_insecure_registries.iter().cloned().collect(),
        }))
    }

    fn shown(&self, providers: &str) -> BTreeMap<String, String> {
        let path = |path: &Path| path.display().to_string();
        let optional = [
            ("docker_registry", self.docker_registry.clone()),
            (
                "docker_store_dir",
                self.docker_store_dir.as_deref().map(path),
            ),
            (
                "docker_certs_dir",
                self.docker_certs_dir.as_deref().map(path),
            ),
        ];
        let optional = optional.into_iter();
        let optional = optional.filter_map(|(name, value)| Some((name, value?)));
        let always = [
            ("image_providers", providers.to_owned()),
            ("sandbox_directory", path(&self.sandbox_directory)),
        ];
        let all = optional.chain(always);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl ImagePlan {
    /// Opens the store and starts its actor; `None` if there are no images here. Blocking. Helper
    /// processes are `program`.
    pub fn start(
        self,
        node: &Node,
        program: &Path,
        work_dir: &Path,
    ) -> Outcome<Option<Provisioner>> {
        let Some(settings) = self.settings else {
            return Ok(None);
        };
        let store = self.store.unwrap_or_else(|| work_dir.join("images"));
        let open = OpenImages::open(&store, program, HELPERS, settings);
        let open = open.map_err(|error| CliError::because("--docker_store_dir", &error))?;
        let images = open.start(node);
        let images = images.map_err(|error| CliError::because("cannot start the agent", &error))?;
        let directory = work_dir.join("provisioner");
        Ok(Some(Provisioner::new(images, &directory, &self.sandbox)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> ImageFlags {
        ImageFlags {
            sandbox_directory: "/mnt/mesos/sandbox".into(),
            image_providers: Some("DOCKER".into()),
            ..ImageFlags::default()
        }
    }

    fn registries(flags: &ImageFlags) -> RegistrySettings {
        match flags.plan().unwrap().settings.unwrap().source {
            ImageSource::Registries(registries) => registries,
            ImageSource::Directory(path) => panic!("{}", path.display()),
        }
    }

    #[test]
    fn registry_is_a_host_a_url_or_a_directory() {
        assert_eq!(registries(&flags()), RegistrySettings::default());
        for (given, base) in [
            ("registry.example:5000", "https://registry.example:5000"),
            ("http://r", "http://r"),
        ] {
            let flags = ImageFlags {
                docker_registry: Some(given.into()),
                docker_mirrors: vec!["docker.io=http://m".into()],
                ..flags()
            };
            let registries = registries(&flags);
            assert_eq!(registries.default.as_deref(), Some(base));
            assert_eq!(registries.mirrors["docker.io"], ["http://m"]);
        }
        for given in ["/images", "file:///images"] {
            let flags = ImageFlags {
                docker_registry: Some(given.into()),
                ..flags()
            };
            let settings = flags.plan().unwrap().settings.unwrap();
            let is_there = matches!(settings.source, ImageSource::Directory(path) if path == Path::new("/images"));
            assert!(is_there, "{given}");
        }
    }

    #[test]
    fn wrong_flags_are_named() {
        let none = ImageFlags {
            image_providers: None,
            ..flags()
        };
        assert!(none.plan().unwrap().settings.is_none());
        let appc = ImageFlags {
            image_providers: Some("APPC,DOCKER".into()),
            ..flags()
        };
        let config = ImageFlags {
            docker_config: Some(Text("{".into())),
            ..flags()
        };
        let gc = ImageFlags {
            image_gc_config: Some(Text(r#"{"image_disk_headroom": 2}"#.into())),
            ..flags()
        };
        let sandbox = ImageFlags {
            sandbox_directory: "here".into(),
            ..flags()
        };
        let mirror = ImageFlags {
            docker_mirrors: vec!["m".into()],
            ..flags()
        };
        for (flags, expected) in [
            (appc, "--image_providers: `APPC,DOCKER`: expected `docker`"),
            (config, "--docker_config: no JSON with `auths`"),
            (gc, "image_disk_headroom is `2`: expected 0 to 1"),
            (
                sandbox,
                "--sandbox_directory: `here`: expected an absolute path",
            ),
            (mirror, "--docker_mirrors: `m`: expected REGISTRY=URL"),
        ] {
            let error = flags.plan().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn collection_of_images_is_that_of_mesos() {
        let json = r#"{"image_disk_headroom": 0.2, "image_disk_watch_interval": {"nanoseconds": 1000000000},
            "excluded_images": [{"type": "DOCKER", "docker": {"name": "busybox"}}]}"#;
        let flags = ImageFlags {
            image_gc_config: Some(Text(json.into())),
            ..flags()
        };
        let retention = flags.plan().unwrap().settings.unwrap().retention;
        assert_eq!(retention.interval, Some(Duration::from_secs(1)));
        assert_eq!(retention.excluded, ["busybox"]);
        assert_eq!(retention.disk_headroom, 0.2);
    }
}
