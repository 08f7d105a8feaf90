//! Images of a registry of others: Debian's docker-registry, if `tests/registry/install` has
//! unpacked it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use meros_agent::fetcher::digest::Digest;

use super::builder::*;
use super::*;

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program() -> Option<PathBuf> {
    let target = helper_program()
        .ancestors()
        .nth(3)
        .unwrap()
        .join("registry");
    if target.join("ready").exists() {
        return Some(target.join("usr/bin/docker-registry"));
    }
    eprintln!(
        "skipped: there is no docker-registry in {}; `tests/registry/install {0}` unpacks one",
        target.display()
    );
    None
}

/// Writes an image as the registry keeps it.
fn store(root: &Path, repository: &str, tag: &str, image: &BuiltImage) {
    let mut files = Vec::new();
    let repository = format!("repositories/{repository}");
    let link = |path: String, digest: &Digest| {
        (
            format!("{repository}/{path}/link"),
            digest.to_string().into_bytes(),
        )
    };
    for (digest, blob) in &image.blobs {
        let hex = digest.hex();
        files.push((
            format!("blobs/sha256/{}/{hex}/data", &hex[..2]),
            blob.clone(),
        ));
        files.push(link(format!("_layers/sha256/{hex}"), digest));
    }
    let manifest = &image.manifest;
    files.push(link(
        format!("_manifests/revisions/sha256/{}", manifest.hex()),
        manifest,
    ));
    files.push(link(format!("_manifests/tags/{tag}/current"), manifest));
    write_directory(&root.join("docker/registry/v2"), &files);
}

/// Starts a registry; returns its `HOST:PORT`.
fn start(program: &Path, directory: &Path) -> (Running, String) {
    let config = format!(
        "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
        directory.display()
    );
    let path = directory.join("config.yml");
    fs::write(&path, config).unwrap();
    let mut command = Command::new(program);
    let command = command
        .arg("serve")
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let running = Running(child);
    let listening = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, host) = line.split_once("listening on ")?;
        Some(host.split(['"', ' ']).next().unwrap().to_owned())
    });
    // It must be able to write the rest of its log.
    std::thread::spawn(move || lines.count());
    (running, listening.expect("the registry listens"))
}

#[test]
fn image_is_pulled_from_debians_registry() {
    let Some(program) = program() else { return };
    let files: Vec<(String, String)> = (0..200)
        .map(|number| (format!("d{}/f{number}", number % 7), number.to_string()))
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let large = "x".repeat(3 << 20);
    let image = BuiltImage::new(
        "run",
        &[
            layer(&files),
            layer(&[("d1/.wh.f1", ""), ("large", &large)]),
        ],
    );
    let directory = tempfile::tempdir().unwrap();
    store(directory.path(), "me/app", "1", &image);
    let (_running, host) = start(&program, directory.path());
    let prepare = |_: &Path, settings: &mut ImageSettings| {
        settings.source = ImageSource::Registries(Default::default());
    };
    world(prepare, |world| async move {
        let name = format!("{host}/me/app:1");
        let pulled = world.get(&name).await.unwrap();
        assert_eq!(
            (read(&pulled, "d2/f2"), read(&pulled, "large").len()),
            ("2".to_owned(), 3 << 20)
        );
        assert!(!pulled.root.join("d1/f1").exists());
        let by_digest = format!("{host}/me/app@{}", image.manifest);
        assert_eq!(world.get(&by_digest).await.unwrap(), pulled);
        let missing = world.get(&format!("{host}/me/app:2")).await.unwrap_err();
        assert!(
            missing.ends_with("manifest `2`: status 404 Not Found"),
            "{missing}"
        );
    });
}
