//! An operator who writes to the registry continuously and records acknowledged writes.
//!
//! Each write sets the weight of a new role, so no write hides another, and no framework uses these
//! roles. An acknowledged write must persist; a failed one may or may not.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::in_time::InTime;
use crate::support::{Cluster, eventually, stdout};

/// The written weight.
const WEIGHT: &str = "2";

/// The number of attempts, and the numbers of acknowledged writes.
#[derive(Clone, Default)]
struct WriteLog {
    tried: u32,
    acknowledged: BTreeSet<u32>,
}

/// The operator, on its own thread.
pub struct Writes {
    written: Arc<Mutex<WriteLog>>,
    enough: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    /// Shows all weights.
    show: Command,
}

impl Writes {
    /// Starts writing to the cluster's masters.
    pub fn start(cluster: &Cluster) -> Self {
        let (written, enough) = (
            Arc::<Mutex<WriteLog>>::default(),
            Arc::<AtomicBool>::default(),
        );
        // Each write repeats this command with another last argument.
        let set = cluster.verb(["weights", "set"]);
        let (log, stop) = (Arc::clone(&written), Arc::clone(&enough));
        let writer = std::thread::spawn(move || {
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut write = like(&set);
                write.arg(format!("{}={WEIGHT}", role(number)));
                let done = write
                    .output_in_time()
                    .is_ok_and(|output| output.status.success());
                let mut written = log.lock().unwrap_or_else(PoisonError::into_inner);
                written.tried += 1;
                if done {
                    written.acknowledged.insert(number);
                }
            }
        });
        Self {
            written,
            enough,
            writer: Some(writer),
            show: cluster.verb(["weights", "show"]),
        }
    }

    fn written(&self) -> WriteLog {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.clone()
    }

    /// Waits until a write started after this call is acknowledged.
    pub fn wait_for_write(&self) {
        let next = self.written().tried + 1;
        eventually("a write to be acknowledged", || {
            let written = self.written();
            written.acknowledged.range(next..).next().map(|_| ())
        });
    }

    /// Stops and checks that all acknowledged writes and no untried ones are present.
    pub fn finish(&mut self) {
        self.stop();
        let shown = eventually("the weights to be shown", || {
            let shown = self.show.output_in_time().ok()?;
            shown.status.success().then(|| stdout(&shown))
        });
        let weights: BTreeMap<&str, &str> = shown
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(role, _)| role.starts_with(PREFIX))
            .map(|(role, weight)| (role, weight.trim()))
            .collect();
        let written = self.written();
        for number in &written.acknowledged {
            let shown = weights.get(&*role(*number)).copied();
            assert_eq!(shown, Some(WEIGHT), "write {number} is lost");
        }
        let tried: BTreeSet<String> = (0..written.tried).map(role).collect();
        assert!(weights.keys().all(|role| tried.contains(*role)));
        let (acknowledged, in_doubt) = (
            written.acknowledged.len(),
            weights.len() - written.acknowledged.len(),
        );
        eprintln!(
            "{} writes: {acknowledged} acknowledged, {in_doubt} others done",
            written.tried
        );
        assert!(acknowledged > 0);
    }

    fn stop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join(); // It has no way to fall.
        }
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        self.stop();
    }
}

const PREFIX: &str = "written-";

fn role(number: u32) -> String {
    format!("{PREFIX}{number}")
}

/// The same program with the same arguments and environment.
fn like(command: &Command) -> Command {
    let mut like = Command::new(command.get_program());
    like.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => like.env(name, value),
            None => like.env_remove(name),
        };
    }
    like
}
