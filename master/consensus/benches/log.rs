//! The turns of the log on a disk, compared with the maximum for any log on this disk: the same bytes
//! written and synced.
//!
//! A turn is one write of 1 or 64 entries of 256 bytes, with the current promises. The limits are a
//! bare file that is overwritten, and one that grows, with `fdatasync` after each write. All three
//! alternate in short rounds, so that other load on the disk affects them equally. Each result is
//! one line of JSON: `figure` is the log's turns per second, `limit` those of the overwritten file,
//! `ratio` the first divided by the second; then the medians and 99th percentiles in microseconds,
//! and the bytes written per turn, including the log's compaction.
//!
//! Criterion runs the same turns first, to compare one build with another.
#![allow(missing_docs, clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // a benchmark measures real time

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use meros_consensus::log::{Entry, EntryKind, HardState, LogStore, Members, Snapshot, Write};
use meros_consensus::store::StoredLog;
use storage::sled_store::SledStore;

const ENTRY_BYTES: usize = 256;
/// Turns in one round, and rounds.
const ROUND: usize = 100;
const ROUNDS: usize = 30;
/// Entries before a compaction, which keeps half of them and a snapshot.
const COMPACT: u64 = 20_000;
const SNAPSHOT_BYTES: usize = 1 << 20;

/// The log under test.
struct Turns {
    log: StoredLog<SledStore>,
    entries: usize,
    next: u64,
    compacted: u64,
}

impl Turns {
    fn new(dir: &Path, entries: usize) -> Self {
        Turns {
            log: StoredLog::open(dir).unwrap(),
            entries,
            next: 1,
            compacted: 0,
        }
    }

    fn turn(&mut self) {
        let entry = |index| Entry {
            term: 1,
            index,
            kind: EntryKind::Operation,
            data: vec![index as u8; ENTRY_BYTES],
            context: Vec::new(),
        };
        let end = self.next + self.entries as u64;
        let write = Write {
            snapshot: None,
            entries: (self.next..end).map(entry).collect(),
            hard: Some(HardState {
                term: 1,
                vote: 1,
                commit: self.next - 1,
            }),
        };
        self.log.write(&write).unwrap();
        self.next = end;
        if end - self.compacted > COMPACT {
            self.compact(end - 1);
        }
    }

    fn compact(&mut self, index: u64) {
        self.compacted = index - COMPACT / 2;
        let snapshot = Snapshot {
            index,
            term: 1,
            members: Members::default(),
            data: Bytes::from(vec![7; SNAPSHOT_BYTES]),
        };
        self.log.compact(&snapshot, self.compacted).unwrap();
    }
}

/// A bare file: one write and one sync per turn.
struct Bare {
    file: File,
    bytes: Vec<u8>,
    at: u64,
    /// The length at which it starts over; `None` if it grows.
    end: Option<u64>,
}

impl Bare {
    fn new(path: &Path, bytes: usize, grows: bool) -> Self {
        let file = File::options()
            .create_new(true)
            .write(true)
            .open(path)
            .unwrap();
        let length = 16 << 20;
        if !grows {
            file.write_all_at(&vec![1; length], 0).unwrap();
        }
        file.sync_all().unwrap();
        Bare {
            file,
            bytes: vec![2; bytes],
            at: 0,
            end: (!grows).then_some(length as u64),
        }
    }

    fn turn(&mut self) {
        if self
            .end
            .is_some_and(|end| self.at + self.bytes.len() as u64 > end)
        {
            self.at = 0;
        }
        self.file.write_all_at(&self.bytes, self.at).unwrap();
        self.file.sync_data().unwrap();
        self.at += self.bytes.len() as u64;
    }
}

/// The durations of the turns of one kind.
#[derive(Default)]
struct Taken {
    each: Vec<Duration>,
    bytes: u64,
}

impl Taken {
    fn round(&mut self, mut turn: impl FnMut()) {
        let before = bytes_written();
        for _ in 0..ROUND {
            let begun = Instant::now();
            turn();
            self.each.push(begun.elapsed());
        }
        self.bytes += bytes_written() - before;
    }

    fn rate(&self) -> f64 {
        self.each.len() as f64 / self.each.iter().sum::<Duration>().as_secs_f64()
    }

    fn percentile(&self, percent: usize) -> u128 {
        let mut each = self.each.clone();
        each.sort();
        each[(each.len() - 1) * percent / 100].as_micros()
    }
}

/// Bytes written by this process; 0 if the system has no such counter.
fn bytes_written() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

fn measure(root: &Path, entries: usize) {
    let dir = root.join(format!("measure_{entries}"));
    fs::create_dir_all(&dir).unwrap();
    let bytes = entries * ENTRY_BYTES;
    let mut turns = Turns::new(&dir.join("log"), entries);
    let mut over = Bare::new(&dir.join("over"), bytes, false);
    let mut grows = Bare::new(&dir.join("grows"), bytes, true);
    let [mut ours, mut limit, mut growing] = <[Taken; 3]>::default();
    (0..ROUND).for_each(|_| turns.turn());
    for _ in 0..ROUNDS {
        limit.round(|| over.turn());
        ours.round(|| turns.turn());
        growing.round(|| grows.turn());
    }
    let each = ours.each.len() as u64;
    println!(
        "{{\"bench\":\"log_turn_{entries}\",\"figure\":{:.0},\"limit\":{:.0},\"ratio\":{:.2},\"unit\":\"turns/s\",\
         \"p50_us\":{},\"p99_us\":{},\"limit_p50_us\":{},\"limit_p99_us\":{},\"growing\":{:.0},\"growing_p50_us\":{},\
         \"entries_per_s\":{:.0},\"payload\":{bytes},\"bytes_per_turn\":{},\"disk_mib\":{}}}",
        ours.rate(),
        limit.rate(),
        ours.rate() / limit.rate(),
        ours.percentile(50),
        ours.percentile(99),
        limit.percentile(50),
        limit.percentile(99),
        growing.rate(),
        growing.percentile(50),
        ours.rate() * entries as f64,
        ours.bytes / each,
        turns.log.disk_bytes() >> 20,
    );
}

fn main() {
    // On the disk of the build: the system's temporary folder may be in memory.
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .without_plots()
        .configure_from_args();
    let mut group = criterion.benchmark_group("log");
    for entries in [1, 64] {
        let mut turns = Turns::new(&root.path().join(format!("criterion_{entries}")), entries);
        group.throughput(Throughput::Elements(entries as u64));
        group.bench_function(format!("turn_{entries}"), |bencher| {
            bencher.iter(|| turns.turn());
        });
    }
    group.finish();
    criterion.final_summary();
    if std::env::args().any(|flag| flag == "--test" || flag == "--list") {
        return;
    }
    for entries in [1, 64] {
        measure(root.path(), entries);
    }
}
