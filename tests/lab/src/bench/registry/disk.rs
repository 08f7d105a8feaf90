//! The disk of this machine: small writes, each followed by fdatasync, one after the other.
//!
//! Appending, like a log that grows, and overwriting, like a preallocated log. Removes its files.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use runtime::{Clock, Statistics};

use meros::output::error::{CliError, Outcome};

/// Writes before any counts.
const WARM_UP: u64 = 100;
/// Writes that count.
const WRITES: u64 = 2000;

/// Times of one small write with fdatasync.
#[derive(Clone, Copy, Debug)]
pub struct Synced {
    /// Sequential writes per second.
    pub per_second: f64,
    /// The median in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile in milliseconds.
    pub p99_ms: f64,
}

/// The disk of one directory.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Each write extends the file.
    pub appending: Synced,
    /// Each write replaces existing bytes.
    pub overwriting: Synced,
}

impl Disk {
    /// The better half of each of two measurements, since other work on the machine can only slow
    /// them.
    pub fn better(self, other: Self) -> Self {
        let best = |one: Synced, other: Synced| match one.per_second >= other.per_second {
            true => one,
            false => other,
        };
        Self {
            appending: best(self.appending, other.appending),
            overwriting: best(self.overwriting, other.overwriting),
        }
    }

    /// Measures the disk of `directory` with writes of `bytes` bytes.
    pub async fn measure(directory: &Path, bytes: usize) -> Outcome<Self> {
        let cannot = |error: std::io::Error| {
            CliError::because(format!("cannot write in {}", directory.display()), &error)
        };
        let data = vec![0x5a; bytes];
        let path = directory.join("fsync");
        let mut file = File::create(&path).map_err(cannot)?;
        let appending = timed(|_| file.write_all(&data).and_then(|()| file.sync_data()));
        let appending = appending.await.map_err(cannot)??;
        let overwriting = timed(|number| {
            file.write_all_at(&data, number * bytes as u64)
                .and_then(|()| file.sync_data())
        });
        let overwriting = overwriting.await.map_err(cannot)??;
        std::fs::remove_file(&path).map_err(cannot)?;
        Ok(Self {
            appending,
            overwriting,
        })
    }
}

async fn timed(
    mut write: impl FnMut(u64) -> std::io::Result<()>,
) -> std::io::Result<Outcome<Synced>> {
    let clock = Clock::real();
    let mut times = Vec::new();
    for number in 0..WARM_UP + WRITES {
        let begun = clock.now();
        write(number)?;
        if number >= WARM_UP {
            times.push((clock.now() - begun).as_secs_f64() * 1000.0);
        }
        tokio::task::yield_now().await; // So that a signal can end it.
    }
    let sum: f64 = times.iter().sum();
    Ok(Statistics::of(times)
        .map(|statistics| Synced {
            per_second: WRITES as f64 * 1000.0 / sum.max(f64::EPSILON),
            p50_ms: statistics.p50,
            p99_ms: statistics.p99,
        })
        .ok_or_else(|| CliError::new("no write was timed")))
}

/// Whether `directory` is in memory, so that fdatasync costs nothing.
pub fn in_memory(directory: &Path) -> bool {
    nix::sys::statfs::statfs(directory)
        .is_ok_and(|found| found.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let disk = meros::on_this_thread(Disk::measure(directory.path(), 256)).unwrap();
        let disk = disk.unwrap();
        for synced in [disk.appending, disk.overwriting] {
            assert!(synced.per_second > 0.0 && synced.p50_ms <= synced.p99_ms);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn of_two_measurements_the_better_halves_count() {
        let synced = |per_second: f64| Synced {
            per_second,
            p50_ms: 500.0 / per_second,
            p99_ms: 1000.0 / per_second,
        };
        let disk = |appending, overwriting| Disk {
            appending: synced(appending),
            overwriting: synced(overwriting),
        };
        let better = disk(10.0, 200.0).better(disk(20.0, 100.0));
        let rates = (better.appending.per_second, better.overwriting.per_second);
        assert_eq!(rates, (20.0, 200.0));
        assert_eq!(better.appending.p50_ms, 25.0);
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let missing = Path::new("/proc/none");
        let failure = meros::on_this_thread(Disk::measure(missing, 256)).unwrap();
        let text = failure.unwrap_err().to_string();
        assert!(text.contains("cannot write in /proc/none"), "{text}");
    }
}
