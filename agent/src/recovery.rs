//! Recovery: what an agent finds when it starts where an earlier process of it has run, and how all of that is cleaned up (SPEC 5.3).
//!
//! Blocking, and done before any actor begins. What follows from what is found is decided in [`crate::ledger::plan`].

use std::collections::BTreeSet;
use std::path::Path;

use protocol::AgentId;

use crate::config::Config;
use crate::launcher::{self, Left, ZygoteError};
use crate::ledger::book::{self, Book};
use crate::ledger::plan::{Plan, plan};
use crate::ledger::record::{Entry, Found};
use crate::start::{StartError, WorkDir};

/// What an agent begins with.
pub(crate) struct Recovered {
    /// Where it keeps what outlives it; `None` if nothing does.
    pub(crate) book: Option<Book>,
    /// What it goes on with.
    pub(crate) plan: Plan,
    /// The machine's boot id.
    pub(crate) boot: String,
    /// How many records cannot be read.
    pub(crate) errors: u64,
}

impl Recovered {
    /// Who the agent is, if it goes on.
    pub(crate) fn agent_id(&self) -> Option<AgentId> {
        self.plan.agent.as_ref()?.id.clone()
    }
}

/// Reads what an earlier process has kept, and brings it together with what still runs.
pub(crate) fn recover(
    work_dir: &WorkDir,
    config: &Config,
    left: Vec<Left>,
) -> Result<Recovered, StartError> {
    let boot = work_dir.boot().map_or_else(boot_id, str::to_owned);
    let Some(mut book) = work_dir.book(config.settings()) else {
        let strangers = left.into_iter().map(|left| left.container_id);
        return Ok(Recovered {
            book: None,
            plan: Plan {
                strangers: strangers.collect(),
                ..Plan::default()
            },
            boot,
            errors: 0,
        });
    };
    let unreadable = |problem: String| StartError::Ledger {
        directory: book::directory(work_dir.path()).display().to_string(),
        problem,
    };
    let strict = config.settings().strict;
    let mut errors = 0;
    let mut found = match book.read() {
        Ok(found) => found,
        Err(error) if strict => return Err(unreadable(error.to_string())),
        Err(error) => {
            tracing::warn!(%error, "what cannot be read is gone on without");
            errors += 1;
            let aside = storage::set_aside(&book::directory(work_dir.path()), "aside");
            aside.map_err(|error| unreadable(error.to_string()))?;
            Found::default()
        }
    };
    if let Some((key, problem)) = found.unreadable.first().filter(|_| strict) {
        return Err(unreadable(format!("`{key}`: {problem}")));
    }
    let unread = std::mem::take(&mut found.unreadable);
    for (key, problem) in &unread {
        tracing::warn!(key, problem, "what cannot be read is gone on without");
        errors += 1;
    }
    let names: BTreeSet<String> = unread.into_iter().map(|(key, _)| key).collect();
    book.discard(&names)
        .map_err(|error| unreadable(error.to_string()))?;
    let policy = config.settings().reconfiguration_policy;
    let plan = plan(found, &left, &boot, config.info(), policy)?;
    if let Some(record) = &plan.rewrite {
        let entry = Entry::agent(record).map_err(|error| unreadable(error.to_string()))?;
        book.write(&[entry])
            .map_err(|error| unreadable(error.to_string()))?;
    }
    if let Some(agent) = &plan.agent {
        let id = agent.id.as_ref().map(ToString::to_string);
        tracing::info!(
            agent = id.unwrap_or_default(),
            containers = plan.containers.len(),
            updates = plan.updates.len(),
            "goes on for an earlier process of this agent"
        );
    }
    Ok(Recovered {
        book: Some(book),
        plan,
        boot,
        errors,
    })
}

/// Which run of the machine this is; empty where the kernel does not say.
fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Why a work directory is not cleaned up.
#[derive(Debug, thiserror::Error)]
pub enum CleanUpError {
    /// What runs cannot be ended.
    #[error(transparent)]
    Launcher(#[from] ZygoteError),
    /// What is kept cannot be set aside.
    #[error(transparent)]
    Store(#[from] storage::StoreError),
}

/// Ends all that an earlier agent has left running in this work directory and sets aside what it has kept of it, so that the next one begins
/// anew. `program` and `arguments` are those of [`launcher::ZygoteLauncher::start`]. Says in a sentence what it has done.
pub fn clean_up(
    work_dir: &WorkDir,
    program: &Path,
    arguments: &[&str],
) -> Result<String, CleanUpError> {
    let ended = launcher::clean_up(program, arguments, work_dir.path())?;
    let directory = book::directory(work_dir.path());
    let aside = match directory.exists() {
        true => storage::set_aside(&directory, "aside")?
            .display()
            .to_string(),
        false => "nothing".to_owned(),
    };
    Ok(format!(
        "cleaned up: {ended} executors have ended, and what was kept of them is set aside ({aside}); the agent begins anew with --recover=reconnect"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::detect::Host;
    use crate::ledger::reconfiguration::ReconfigurationPolicy;
    use crate::ledger::record::AgentRecord;
    use crate::ledger::record::tests::{agent, container, id, task};
    use storage::sled_store::SledStore;
    use storage::{Changes, Store};

    fn recovered(path: &Path, strict: bool, left: Vec<Left>) -> Result<Recovered, StartError> {
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
        let mut store = SledStore::open(book::directory(dir.path())).unwrap();
        let mut changes = Changes::new();
        changes.put(*b"update/7#000000", *b"\xffnothing");
        store.commit(changes).unwrap();
        dir
    }

    #[test]
    fn a_machine_says_which_of_its_runs_this_is() {
        assert_eq!(boot_id(), boot_id());
        assert!(boot_id().len() < 100);
    }

    /// SPEC 5.3, `--strict`.
    #[test]
    fn what_cannot_be_read_ends_the_start_or_is_gone_on_without() {
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
    fn a_store_that_cannot_be_opened_is_set_aside_if_that_is_wanted() {
        let dir = with_a_damaged_record();
        let directory = book::directory(dir.path());
        std::fs::write(directory.join("conf"), "not sled's").unwrap();
        assert!(recovered(dir.path(), true, Vec::new()).is_err());
        assert_eq!(recovered(dir.path(), false, Vec::new()).unwrap().errors, 1);
        assert!(directory.with_file_name("executors.aside.1").exists());
    }

    /// Nobody knows any more whose they are.
    #[test]
    fn executors_without_an_agent_that_is_known_are_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let entries = [
            Entry::container(&id("c"), &container()).unwrap(),
            Entry::task(&id("c"), &task("t")).unwrap(),
        ];
        Book::on_disk(dir.path()).write(&entries).unwrap();
        let left = vec![Left {
            container_id: id("c"),
            pid: Some(1),
        }];
        let refused = recovered(dir.path(), true, left).err().unwrap();
        assert!(matches!(refused, StartError::Incompatible(_)));
        let anew = recovered(dir.path(), true, Vec::new()).unwrap();
        assert_eq!((anew.agent_id(), anew.plan.containers.len()), (None, 0));
        assert_eq!(anew.plan.forget.len(), 3);
    }

    /// SPEC 5.3, `--reconfiguration_policy=additive`: what it has grown to counts from then on, also if it starts nothing.
    #[test]
    fn an_agent_that_has_grown_is_the_same_with_that_when_it_comes_again() {
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
            let left = vec![Left {
                container_id: id("c"),
                pid: Some(1),
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
        Book::on_disk(dir.path()).write(&entries).unwrap();
        assert!(started(8, equal).1.is_err(), "it was never so large");
        assert_eq!(started(8, additive).1.unwrap().agent_id(), record.info.id);
        let Recovered { plan, .. } = started(8, equal).1.unwrap();
        assert_eq!(plan.agent.unwrap().id, record.info.id);
        assert_eq!(plan.rewrite, None, "it is there by now");
        assert!(started(4, additive).1.is_err(), "that is less by now");
        let kept = Book::on_disk(dir.path()).read().unwrap().agent.unwrap();
        assert_eq!(kept.boot, "boot");
    }
}
