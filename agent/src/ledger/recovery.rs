//! Recovery: reads the checkpoints of an earlier agent process, and `--recover=cleanup`.
//!
//! Blocking; done before any actor starts. Decisions are in [`crate::ledger::plan`].

use std::collections::BTreeSet;
use std::path::Path;

use protocol::AgentId;

use crate::config::Config;
use crate::host::procfs;
use crate::launcher::{self, LeftContainer, ZygoteError};
use crate::ledger::plan::{Plan, plan};
use crate::ledger::record::{Entry, StoredRecords};
use crate::ledger::store::{self, CheckpointStore};
use crate::start::{StartError, WorkDir};

/// The result of recovery.
pub(crate) struct Recovered {
    /// The checkpoint store; `None` if checkpointing is off.
    pub(crate) store: Option<CheckpointStore>,
    /// The plan.
    pub(crate) plan: Plan,
    /// The machine's boot id.
    pub(crate) boot: String,
    /// Number of unreadable records.
    pub(crate) errors: u64,
}

impl Recovered {
    /// The agent's id, if it recovers.
    pub(crate) fn agent_id(&self) -> Option<AgentId> {
        self.plan.agent.as_ref()?.id.clone()
    }
}

/// Reads the checkpoints and matches them with the running containers.
pub(crate) fn recover(
    work_dir: &WorkDir,
    config: &Config,
    left: Vec<LeftContainer>,
) -> Result<Recovered, StartError> {
    let boot = work_dir.boot().map_or_else(procfs::boot_id, str::to_owned);
    let Some(mut store) = work_dir.checkpoint_store(config.settings()) else {
        let unknown = left.into_iter().map(|left| left.container_id);
        return Ok(Recovered {
            store: None,
            plan: Plan {
                unknown: unknown.collect(),
                ..Plan::default()
            },
            boot,
            errors: 0,
        });
    };
    let unreadable = |problem: String| StartError::Ledger {
        directory: store::directory(work_dir.path()).display().to_string(),
        problem,
    };
    let strict = config.settings().strict;
    let mut errors = 0;
    let mut found = match store.read() {
        Ok(found) => found,
        Err(error) if strict => return Err(unreadable(error.to_string())),
        Err(error) => {
            tracing::warn!(%error, "skipping unreadable checkpoint record");
            errors += 1;
            let aside = storage::set_aside(&store::directory(work_dir.path()), "aside");
            aside.map_err(|error| unreadable(error.to_string()))?;
            StoredRecords::default()
        }
    };
    if let Some((key, problem)) = found.unreadable.first().filter(|_| strict) {
        return Err(unreadable(format!("`{key}`: {problem}")));
    }
    let unread = std::mem::take(&mut found.unreadable);
    for (key, problem) in &unread {
        tracing::warn!(key, problem, "skipping unreadable checkpoint record");
        errors += 1;
    }
    let names: BTreeSet<String> = unread.into_iter().map(|(key, _)| key).collect();
    store
        .discard(&names)
        .map_err(|error| unreadable(error.to_string()))?;
    let policy = config.settings().reconfiguration_policy;
    let plan = plan(found, &left, &boot, config.info(), policy)?;
    if let Some(record) = &plan.rewrite {
        let entry = Entry::agent(record).map_err(|error| unreadable(error.to_string()))?;
        store
            .write(&[entry])
            .map_err(|error| unreadable(error.to_string()))?;
    }
    if let Some(agent) = &plan.agent {
        let id = agent.id.as_ref().map(ToString::to_string);
        tracing::info!(
            agent = id.unwrap_or_default(),
            containers = plan.containers.len(),
            updates = plan.updates.len(),
            "recovering from an earlier agent process"
        );
    }
    Ok(Recovered {
        store: Some(store),
        plan,
        boot,
        errors,
    })
}

/// Why a clean-up failed.
#[derive(Debug, thiserror::Error)]
pub enum CleanUpError {
    /// The executors cannot be killed.
    #[error(transparent)]
    Launcher(#[from] ZygoteError),
    /// The checkpoints cannot be set aside.
    #[error(transparent)]
    Store(#[from] storage::StoreError),
}

/// Kills all executors of an earlier agent in this work directory and sets its checkpoints aside,
/// so that the next agent starts anew. `program` and `arguments` as for
/// [`launcher::ZygoteLauncher::start`]. Returns a summary for the operator.
pub fn clean_up(
    work_dir: &WorkDir,
    program: &Path,
    arguments: &[&str],
) -> Result<String, CleanUpError> {
    let ended = launcher::clean_up(program, arguments, work_dir.path())?;
    let directory = store::directory(work_dir.path());
    let aside = match directory.exists() {
        true => storage::set_aside(&directory, "aside")?
            .display()
            .to_string(),
        false => "nothing".to_owned(),
    };
    Ok(format!(
        "cleaned up: killed {ended} executors, set their checkpoints aside ({aside}); start the agent with --recover=reconnect"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::host::detect::Host;
    use crate::ledger::reconfiguration::ReconfigurationPolicy;
    use crate::ledger::record::AgentRecord;
    use crate::ledger::record::tests::{agent, container, id, task};
    use storage::sled_store::SledStore;
    use storage::{Changes, Store};

    fn recovered(
        path: &Path,
        strict: bool,
        left: Vec<LeftContainer>,
    ) -> Result<Recovered, StartError> {
        let host = Host {
            name: "h".into(),
            cores: 4,
            memory: 1 << 30,
            disk: 1 << 30,
        };
        let mut settings = Settings::new(vec!["m:5050".into()], path);
        settings.strict = strict;
        let config = settings.check_on(&host).unwrap();
        recover(&WorkDir::lock(path).unwrap(), &config, left)
    }

    fn with_a_damaged_record() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let mut store = SledStore::open(store::directory(dir.path())).unwrap();
        let mut changes = Changes::new();
        changes.put(*b"update/7#000000", *b"\xffnothing");
        store.commit(changes).unwrap();
        dir
    }

    /// SPEC 5.3, `--strict`.
    #[test]
    fn unreadable_record_is_fatal_only_if_strict() {
        let dir = with_a_damaged_record();
        let problem = recovered(dir.path(), true, Vec::new()).err().unwrap();
        let words = problem.to_string();
        for word in [
            "update/7",
            "--strict=false",
            "--recover=cleanup",
            "meta/executors",
        ] {
            assert!(words.contains(word), "{words}");
        }
        assert_eq!(recovered(dir.path(), false, Vec::new()).unwrap().errors, 1);
        assert_eq!(recovered(dir.path(), true, Vec::new()).unwrap().errors, 0);
    }

    #[test]
    fn unopenable_store_is_set_aside_unless_strict() {
        let dir = with_a_damaged_record();
        let directory = store::directory(dir.path());
        std::fs::write(directory.join("conf"), "not sled's").unwrap();
        assert!(recovered(dir.path(), true, Vec::new()).is_err());
        assert_eq!(recovered(dir.path(), false, Vec::new()).unwrap().errors, 1);
        assert!(directory.with_file_name("executors.aside.1").exists());
    }

    /// Their agent is unknown.
    #[test]
    fn executors_of_an_unknown_agent_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let entries = [
            Entry::container(&id("c"), &container()).unwrap(),
            Entry::task(&id("c"), &task("t")).unwrap(),
        ];
        CheckpointStore::on_disk(dir.path())
            .write(&entries)
            .unwrap();
        let left = vec![LeftContainer {
            container_id: id("c"),
            pid: Some(1),
            age: std::time::Duration::ZERO,
        }];
        let refused = recovered(dir.path(), true, left).err().unwrap();
        assert!(matches!(refused, StartError::Incompatible(_)));
        let anew = recovered(dir.path(), true, Vec::new()).unwrap();
        assert_eq!((anew.agent_id(), anew.plan.containers.len()), (None, 0));
        assert_eq!(anew.plan.forget.len(), 3);
    }

    /// SPEC 5.3, `--reconfiguration_policy=additive`: the enlarged description counts from then on,
    /// even if nothing is launched.
    #[test]
    fn enlarged_description_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let started = |memory: u64, policy| {
            let host = Host {
                name: "h".into(),
                cores: 4,
                memory: memory << 30,
                disk: 1 << 30,
            };
            let mut settings = Settings::new(vec!["m:5050".into()], dir.path());
            settings.reconfiguration_policy = policy;
            let config = settings.check_on(&host).unwrap();
            let left = vec![LeftContainer {
                container_id: id("c"),
                pid: Some(1),
                age: std::time::Duration::ZERO,
            }];
            let recovered = recover(&WorkDir::lock(dir.path()).unwrap(), &config, left);
            (config.info().clone(), recovered)
        };
        let (equal, additive) = (
            ReconfigurationPolicy::Equal,
            ReconfigurationPolicy::Additive,
        );
        let (described, _) = started(4, equal);
        let record = AgentRecord {
            info: protocol::AgentInfo {
                id: agent("").info.id,
                ..described
            },
            boot: "boot".to_owned(),
        };
        let entries = [
            Entry::agent(&record).unwrap(),
            Entry::container(&id("c"), &container()).unwrap(),
        ];
        CheckpointStore::on_disk(dir.path())
            .write(&entries)
            .unwrap();
        assert!(started(8, equal).1.is_err(), "it was never so large");
        assert_eq!(started(8, additive).1.unwrap().agent_id(), record.info.id);
        let Recovered { plan, .. } = started(8, equal).1.unwrap();
        assert_eq!(plan.agent.unwrap().id, record.info.id);
        assert_eq!(plan.rewrite, None, "it is there by now");
        assert!(started(4, additive).1.is_err(), "that is less by now");
        let kept = CheckpointStore::on_disk(dir.path())
            .read()
            .unwrap()
            .agent
            .unwrap();
        assert_eq!(kept.boot, "boot");
    }
}
