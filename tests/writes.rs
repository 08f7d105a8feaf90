//! An operator who writes to the registry all the time, and remembers what was acknowledged.
//!
//! Each write gives a role of its own a weight, so none hides another. What a verb says that it has done stands for good;
//! of one that failed nobody knows. It disturbs nobody: no framework has such a role.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::in_time::InTime;
use crate::support::{Cluster, eventually, stdout};

/// The weight that is written.
const WEIGHT: &str = "2";

/// How many writes were tried, and the numbers of those that were acknowledged.
#[derive(Clone, Default)]
struct Said {
    tried: u32,
    acknowledged: BTreeSet<u32>,
}

/// The operator, on a thread of its own.
pub struct Writes {
    said: Arc<Mutex<Said>>,
    enough: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    /// Shows all weights.
    show: Command,
}

impl Writes {
    /// Begins to write to the cluster's masters.
    pub fn start(cluster: &Cluster) -> Self {
        let (said, enough) = (Arc::<Mutex<Said>>::default(), Arc::<AtomicBool>::default());
        // A verb is a command that can be run again; only its last argument differs.
        let set = cluster.verb(["weights", "set"]);
        let (log, stop) = (Arc::clone(&said), Arc::clone(&enough));
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
                let mut said = log.lock().unwrap_or_else(PoisonError::into_inner);
                said.tried += 1;
                if done {
                    said.acknowledged.insert(number);
                }
            }
        });
        Self {
            said,
            enough,
            writer: Some(writer),
            show: cluster.verb(["weights", "show"]),
        }
    }

    fn said(&self) -> Said {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.clone()
    }

    /// Waits until a write was acknowledged that was begun from now on.
    pub fn go_on(&self) {
        let next = self.said().tried + 1;
        eventually("a write to be acknowledged", || {
            let said = self.said();
            said.acknowledged.range(next..).next().map(|_| ())
        });
    }

    /// Ends, and looks: all that was acknowledged is there, and nothing that was never tried.
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
        let said = self.said();
        for number in &said.acknowledged {
            let shown = weights.get(&*role(*number)).copied();
            assert_eq!(shown, Some(WEIGHT), "write {number} is lost");
        }
        let tried: BTreeSet<String> = (0..said.tried).map(role).collect();
        assert!(weights.keys().all(|role| tried.contains(*role)));
        let (acknowledged, in_doubt) = (
            said.acknowledged.len(),
            weights.len() - said.acknowledged.len(),
        );
        eprintln!(
            "{} writes: {acknowledged} acknowledged, {in_doubt} others done",
            said.tried
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
