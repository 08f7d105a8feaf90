//! Root file systems with busybox, and images of them.

use std::path::Path;
use std::process::Command;

use agent::fetcher::digest::Digest;
use serde_json::json;

use crate::bench::{Result, temporary};

/// Makes a root file system of busybox, whose only program is `true`.
pub fn make_root(rootfs: &Path) -> Result {
    std::fs::create_dir_all(rootfs.join("bin"))?;
    // Crun makes devices even where none are asked for.
    for mount in ["proc", "dev"] {
        std::fs::create_dir(rootfs.join(mount))?;
    }
    std::fs::copy("/bin/busybox", rootfs.join("bin/busybox"))?;
    std::os::unix::fs::symlink("busybox", rootfs.join("bin/true"))?;
    Ok(())
}

/// Makes an archive of `docker save` with these directories as layers.
pub fn make_archive(layers: &[&Path], name: &str, archive: &Path) -> Result {
    let directory = temporary()?;
    let image = directory.path();
    let (mut files, mut digests) = (Vec::new(), Vec::new());
    for (number, layer) in layers.iter().enumerate() {
        let file = format!("layer{number}.tar");
        tar(&image.join(&file), layer, &["."])?;
        digests.push(Digest::of(&std::fs::read(image.join(&file))?).to_string());
        files.push(file);
    }
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": { "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": digests },
    });
    std::fs::write(image.join("config.json"), config.to_string())?;
    let manifest = json!([{
        "Config": "config.json", "RepoTags": [format!("{name}:latest")], "Layers": files,
    }]);
    std::fs::write(image.join("manifest.json"), manifest.to_string())?;
    let mut parts = vec!["manifest.json", "config.json"];
    parts.extend(files.iter().map(String::as_str));
    tar(archive, image, &parts)
}

fn tar(archive: &Path, directory: &Path, names: &[&str]) -> Result {
    let mut command = Command::new("tar");
    command.arg("-C").arg(directory).arg("-cf").arg(archive);
    let status = command.args(names).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("tar: {status}").into()),
    }
}
