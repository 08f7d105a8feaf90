//! `meros-lab bench images`: the pull of a large image until its container has run, compared with
//! `skopeo copy` and `umoci unpack`.
//!
//! All pull from the same `docker-registry` of Debian. Each round has a new agent with an empty
//! store. The image has four layers of files; half of their bytes can be compressed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Args;
use runtime::Clock;
use serde_json::json;

use super::bundle;
use super::cluster::Cluster;
use crate::bench::launch::Launches;
use crate::bench::{Figure, OutputFlags, Result, cores, median, ms_since, temporary};

const LAYERS: usize = 4;
/// The size of each of a layer's files.
const FILE_SIZE: usize = 256 << 10;
const MIB: usize = 1 << 20;

/// Time of a pull
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ImagesArgs {
    /// Size of the unpacked image in MiB
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(4..=4096))]
    size: u32,
    /// How often each side pulls
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The folder that `tests/registry/install` has made
    #[arg(long, default_value = "target/registry")]
    registry: PathBuf,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench images`. Needs root, skopeo, umoci, and `/bin/busybox` without libraries.
pub async fn run(args: &ImagesArgs) -> Result {
    let (directory, clock) = (temporary()?, Clock::real());
    let directory = directory.path();
    let registry = Registry::start(&args.registry, directory)?;
    let image = format!("{}/large:latest", registry.address);
    args.output.say("makes the image");
    push(directory, args.size as usize, &image)?;
    let (mut own, mut peer) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds {
        let output = args.output;
        output.say(format_args!("round {round} of {}", args.rounds));
        let place = directory.join(format!("peer{round}"));
        let begun = clock.now();
        copy_and_unpack(&image, &place)?;
        peer.push(ms_since(&clock, begun));
        std::fs::remove_dir_all(&place)?;
        own.push(pull(&image, &clock).await?);
    }
    args.output
        .report(&[Figure::new("image_pull", median(&own), "ms")
            .beside(median(&peer), "skopeo copy and umoci unpack")
            .with(json!({
                "mib": args.size, "layers": LAYERS, "each": own, "peer": peer, "cores": cores(),
            }))]);
    Ok(())
}

/// Milliseconds from the accept to the end of a container of `true` in this image.
async fn pull(image: &str, clock: &Clock) -> Result<f64> {
    let directory = temporary()?;
    let store = directory.path().join("store").display().to_string();
    let flags = [
        ("isolation", "filesystem/linux".to_owned()),
        ("image_providers", "docker".to_owned()),
        ("docker_store_dir", store),
        ("resources", "cpus:1;mem:64;disk:1000".to_owned()),
    ];
    let cluster = Cluster::start(directory.path(), &flags).await?;
    let launches = Launches::new("pull", 1, 1, false)?.in_image(image);
    let (driver, following) = cluster.begin(launches)?;
    let times = following.end(clock).await;
    let _ = driver.tear_down(); // It may have ended already.
    driver.ended().await;
    let times = times?;
    let ended = times
        .first()
        .and_then(|one| Some(one.ended? - one.accepted()));
    Ok(ended.ok_or("no container has ended")?.as_secs_f64() * 1e3)
}

fn copy_and_unpack(image: &str, place: &Path) -> Result {
    let layout = format!("{}:latest", place.join("layout").display());
    std::fs::create_dir(place)?;
    let copy = ["copy", "--quiet", "--src-tls-verify=false"];
    let source = format!("docker://{image}");
    run_to_end(
        "skopeo",
        &[&copy[..], &[&source, &format!("oci:{layout}")]].concat(),
    )?;
    let unpacked = place.join("unpacked").display().to_string();
    run_to_end("umoci", &["unpack", "--image", &layout, &unpacked])
}

/// Makes the image and puts it into the registry.
fn push(directory: &Path, mib: usize, image: &str) -> Result {
    let mut random = 1u64;
    let mut layers = Vec::new();
    for number in 0..LAYERS {
        let layer = directory.join(format!("layer{number}"));
        match number {
            0 => bundle::make_root(&layer)?,
            _ => std::fs::create_dir(&layer)?,
        }
        for file in 0..mib * MIB / LAYERS / FILE_SIZE {
            let name = layer.join(format!("file{number}.{file}"));
            std::fs::write(name, content(&mut random))?;
        }
        layers.push(layer);
    }
    let layers: Vec<&Path> = layers.iter().map(PathBuf::as_path).collect();
    let archive = directory.join("large.tar");
    bundle::make_archive(&layers, "large", &archive)?;
    let source = format!("docker-archive:{}", archive.display());
    let target = format!("docker://{image}");
    let copy = ["copy", "--quiet", "--dest-tls-verify=false"];
    run_to_end("skopeo", &[&copy[..], &[&source, &target]].concat())
}

/// Bytes of a file: every second one is random, by xorshift.
fn content(random: &mut u64) -> Vec<u8> {
    let mut bytes = vec![0; FILE_SIZE];
    for byte in bytes.iter_mut().step_by(2) {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *byte = *random as u8;
    }
    bytes
}

fn run_to_end(program: &str, arguments: &[&str]) -> Result {
    let ran = Command::new(program).args(arguments).output();
    let ran = ran.map_err(|error| format!("{program}: {error}"))?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&ran.stderr)).into()),
    }
}

/// A registry on a free port. Ends when dropped.
struct Registry {
    address: String,
    process: Child,
}

impl Registry {
    fn start(installed: &Path, directory: &Path) -> Result<Self> {
        let program = installed.join("usr/bin/docker-registry");
        let storage = directory.join("storage");
        let config = json!({
            "version": 0.1, "storage": { "filesystem": { "rootdirectory": storage } },
            "http": { "addr": "127.0.0.1:0" },
        });
        let path = directory.join("registry.yml");
        std::fs::write(&path, config.to_string())?;
        let mut command = Command::new(&program);
        command.arg("serve").arg(path);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let process = command.spawn();
        let process = process.map_err(|error| {
            let program = program.display();
            format!("{program}: {error}: `tests/registry/install target/registry` fetches it")
        })?;
        let address = String::new();
        let mut registry = Self { address, process };
        let log = registry.process.stderr.take().ok_or("no log")?;
        let mut lines = BufReader::new(log).lines();
        let address = lines.find_map(|line| {
            let line = line.ok()?;
            let (_, address) = line.split_once("listening on ")?;
            Some(address.split(['"', ' ']).next()?.to_owned())
        });
        // It must be able to write the rest of its log.
        std::thread::spawn(move || lines.count());
        registry.address = address.ok_or("the registry does not listen")?;
        Ok(registry)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill(); // It may have ended before.
        let _ = self.process.wait();
    }
}
