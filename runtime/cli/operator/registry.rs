//! The verbs `meros registry dump | restore`: the masters' registry in one file.
//!
//! A dump is taken from a running group, or from the directory of a stopped master, also without a
//! majority. A restore makes a new group of one in the directory of a stopped master. Neither
//! deletes anything: existing files are an error, or are moved aside on request.

use std::path::{Path, PathBuf};

use ::master::registry::RegistryMachine;
use bytes::Bytes;
use clap::{Args, Subcommand};
use consensus::dump::{self, Dump, Reach};
use consensus::log::{Entry, Identity, Snapshot};
use consensus::machine::StateMachine;
use consensus::member::dumping::{self, DumpTaken, ReadDump, TakeDump};
use consensus::store::StoredLog;
use runtime::Node;

use super::ClusterFlags;
use super::masters::in_order;
use super::members::Members;
use crate::out;
use crate::output::error::{CliError, Outcome};
use crate::service::master::LOG;

/// The number of a restored master.
const RESTORED_ID: u64 = 1;

/// Save the masters' registry to a file, and restore it
#[derive(Subcommand, Debug)]
pub enum RegistryArgs {
    /// Write the registry to a file
    Dump(DumpArgs),
    /// Restore the registry of a stopped master from a file; it becomes a new group of one
    Restore(RestoreArgs),
}

/// `meros registry dump`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct DumpArgs {
    /// The file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Read the work directory of a stopped master instead of asking a running group: works without
    /// a majority
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// Omit entries that this master did not know to be committed: operations that may never have
    /// been acknowledged
    #[arg(long, requires = "work_dir")]
    committed_only: bool,
    /// Take the state of any member without asking a majority: newer operations may be missing
    #[arg(long, conflicts_with = "work_dir")]
    stale: bool,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros registry restore`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct RestoreArgs {
    /// A file written by `meros registry dump`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The work directory of a stopped master; created if missing
    #[arg(long, value_name = "DIR")]
    work_dir: PathBuf,
    /// Move an existing registry aside; it is not deleted
    #[arg(long)]
    force: bool,
}

/// `meros registry`.
pub async fn run(args: RegistryArgs) -> Outcome {
    match args {
        RegistryArgs::Dump(args) => write_dump(&args).await,
        RegistryArgs::Restore(args) => restore(&args, new_group()),
    }
}

/// A dump, and a note for the operator.
struct Found {
    dump: Dump,
    note: String,
}

async fn write_dump(args: &DumpArgs) -> Outcome {
    // Checked before the work; `write_file` checks it again.
    if !args.force && args.file.symlink_metadata().is_ok() {
        return Err(
            CliError::new(format!("{} already exists", args.file.display()))
                .next("choose another name, or replace it with --force"),
        );
    }
    let found = match &args.work_dir {
        Some(work_dir) => offline(work_dir, args.committed_only)?,
        None => online(args).await?,
    };
    let held = content(&found.dump.content)?;
    let written = match args.force {
        true => dump::replace_file(&args.file, &found.dump),
        false => dump::write_file(&args.file, &found.dump),
    };
    written.map_err(|error| CliError::because("not dumped", &error))?;
    let (path, held) = (args.file.display(), counted(&held));
    out!("{path}: {held}; {}{}", place(&found.dump), found.note);
    Ok(())
}

/// Asks the leader first, then the other reachable members.
async fn online(args: &DumpArgs) -> Outcome<Found> {
    let mut members = Members::open(&args.cluster)?;
    let outcome = ask(&mut members, args.stale).await;
    members.close().await;
    outcome
}

async fn ask(members: &mut Members, stale: bool) -> Outcome<Found> {
    let mut failure = CliError::new("no master answers");
    for address in in_order(members).await? {
        match read(members, &address, stale).await {
            Ok(found) => return Ok(found),
            Err(reason) => failure = reason,
        }
    }
    Err(failure.next(
        "--stale dumps the state of one member; --work_dir reads a stopped master's directory",
    ))
}

async fn read(members: &Members, address: &str, stale: bool) -> Outcome<Found> {
    let refused = |error| CliError::because(format_args!("no dump from {address}"), &error);
    let taken: DumpTaken = members
        .ask(address, TakeDump { stale })
        .await?
        .map_err(refused)?;
    let mut content: Vec<u8> = Vec::new();
    while (content.len() as u64) < taken.bytes {
        let (number, offset) = (taken.number, content.len() as u64);
        let asked = members.ask(address, ReadDump { number, offset }).await?;
        let piece = asked.map_err(refused)?;
        if piece.data.is_empty() {
            return Err(CliError::new(format!(
                "{address} sent {offset} of {} bytes",
                taken.bytes
            )));
        }
        content.extend(piece.data);
    }
    let dump = Dump {
        group: taken.group,
        index: taken.index,
        term: taken.term,
        names: taken.names.into(),
        content: content.into(),
    };
    let note = match stale {
        true => format!("; the state of {address}, newer operations may be missing"),
        false => String::new(),
    };
    Ok(Found { dump, note })
}

/// Reads the directory of a stopped master.
fn offline(work_dir: &Path, committed_only: bool) -> Outcome<Found> {
    let log = &work_dir.join(LOG);
    if !is_nonempty(log) {
        return Err(CliError::new(format!(
            "{} holds no registry: expected a master's --work_dir, with a directory {LOG} in it",
            work_dir.display()
        )));
    }
    check_unused(log)?;
    let failed = |error: &dyn std::error::Error| {
        CliError::because(format_args!("no dump of {}", log.display()), error)
    };
    let mut store = StoredLog::open(log).map_err(|error| failed(&error))?;
    let reach = match committed_only {
        true => Reach::Committed,
        false => Reach::Whole,
    };
    let replay = |snapshot: &Snapshot, entries: &[Entry]| {
        dumping::replayed(RegistryMachine::new(), snapshot, entries)
    };
    let mut taken = dump::take(&mut store, reach, replay).map_err(|error| failed(&error))?;
    if taken.dump.content.is_empty() {
        taken.dump.content = written(&RegistryMachine::new())?;
    }
    let note = match (taken.uncertain, committed_only) {
        (0, _) => String::new(),
        (count, true) => {
            format!("; {count} later entries that may not be committed are omitted")
        }
        (count, false) => {
            format!("; the last {count} entries may not be committed")
        }
    };
    Ok(Found {
        dump: taken.dump,
        note,
    })
}

fn restore(args: &RestoreArgs, group: u64) -> Outcome {
    let unusable = |error: &dyn std::error::Error| CliError::because("not restored", error);
    let dump = dump::read_file(&args.file).map_err(|error| unusable(&error))?;
    let held = content(&dump.content)?;
    let log = args.work_dir.join(LOG);
    let is_taken = is_nonempty(&log);
    if is_taken {
        check_unused(&log)?;
        if !args.force {
            return Err(
                CliError::new(format!("{} holds a registry already", log.display()))
                    .next("choose another --work_dir, or move it aside with --force"),
            );
        }
    }
    let identity = Identity {
        id: RESTORED_ID,
        group,
    };
    let content = dumping::beginning(RegistryMachine::new(), &dump.content, RESTORED_ID)
        .map_err(|error| unusable(&error))?;
    storage::make_private(&args.work_dir).map_err(|error| {
        CliError::because(
            format_args!("cannot make {}", args.work_dir.display()),
            &error,
        )
    })?;
    let dump = Dump { content, ..dump };
    // A master that finds no log founds an empty group, so the new one is whole before it has its
    // name.
    let restoring = args.work_dir.join("log.restoring");
    if restoring.symlink_metadata().is_ok() {
        std::fs::remove_dir_all(&restoring).map_err(|error| unusable(&error))?;
    }
    dump::restore(&restoring, &dump, identity).map_err(|error| unusable(&error))?;
    if is_taken {
        let aside = storage::set_aside(&log, "aside").map_err(|error| unusable(&error))?;
        out!("{} is now {}", log.display(), aside.display());
    }
    std::fs::rename(&restoring, &log).map_err(|error| unusable(&error))?;
    out!("{}: {}; {}", log.display(), counted(&held), place(&dump));
    out!(
        "it is master {RESTORED_ID}, the only member of the new group {:016x}: start it with this --work_dir, then `meros masters add` the others, \
         with empty directories",
        identity.group
    );
    Ok(())
}

/// Whether this directory exists and is not empty.
fn is_nonempty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

/// Refuses a directory that a running master uses.
fn check_unused(directory: &Path) -> Outcome {
    match storage::in_use(directory) {
        true => Err(CliError::new(format!(
            "{} is in use: a master runs there",
            directory.display()
        ))
        .next("stop it first, or omit --work_dir to ask the running group")),
        false => Ok(()),
    }
}

/// A random id for the new group.
fn new_group() -> u64 {
    let uuid = Node::builder("restore").build().fresh_uuid();
    let half: [u8; 8] = std::array::from_fn(|nth| uuid[nth + 8]);
    u64::from_be_bytes(half)
}

/// The registry's encoding in a dump.
fn written(machine: &RegistryMachine) -> Outcome<Bytes> {
    let written = machine.snapshot();
    written.map_err(|garbled| CliError::because("the registry cannot be written", &garbled))
}

fn content(bytes: &[u8]) -> Outcome<RegistryMachine> {
    let mut machine = RegistryMachine::new();
    machine
        .restore(bytes)
        .map_err(|error| CliError::because("the dump holds no registry of this version", &error))?;
    Ok(machine)
}

fn counted(registry: &RegistryMachine) -> String {
    let state = registry.state();
    format!(
        "{} agents, {} unreachable ones, {} frameworks",
        state.agents.len(),
        state.unreachable.len(),
        state.frameworks.len()
    )
}

/// The position of a dump in its group's history.
fn place(dump: &Dump) -> String {
    let masters = String::from_utf8_lossy(&dump.names);
    let of = match masters.is_empty() {
        true => String::new(),
        false => format!(" ({masters})"),
    };
    let (index, term, group) = (dump.index, dump.term, dump.group);
    format!("up to index {index} of term {term} of group {group:016x}{of}")
}

#[cfg(test)]
mod tests {
    use testkit::assert_contains;

    use ::master::registry::RegistryOperation;
    use protocol::FrameworkId;

    use super::*;

    /// A dump of a registry that has removed one framework.
    fn dumped(directory: &Path) -> PathBuf {
        let mut registry = RegistryMachine::new();
        let framework_id = FrameworkId::new("f").unwrap();
        let removed = RegistryOperation::RemoveFramework { framework_id };
        registry.apply(1, removed).unwrap();
        let file = directory.join("dump");
        let dump = Dump {
            group: 7,
            index: 90,
            term: 3,
            names: Bytes::from_static(b"1=m1:5050"),
            content: registry.snapshot().unwrap(),
        };
        dump::write_file(&file, &dump).unwrap();
        file
    }

    fn restore_again(file: &Path, work_dir: &Path, group: u64, force: bool) -> Outcome {
        let args = RestoreArgs {
            file: file.to_owned(),
            work_dir: work_dir.to_owned(),
            force,
        };
        restore(&args, group)
    }

    #[test]
    fn restored_registry_is_a_new_group() {
        let home = tempfile::tempdir().unwrap();
        let (file, work_dir) = (dumped(home.path()), home.path().join("master"));
        let old = restore_again(&file, &work_dir, 7, false)
            .unwrap_err()
            .to_string();
        assert!(old.contains("it is the old group's"), "{old}");
        restore_again(&file, &work_dir, 8, false).unwrap();
        let found = offline(&work_dir, false).unwrap().dump;
        assert_eq!((found.index, found.term), (90, 3));
        let registry = content(&found.content).unwrap();
        assert_eq!(registry.state().removed_frameworks.len(), 1);
        assert_eq!(found.group, 8);
        let refused = restore_again(&file, &work_dir, 9, false)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("holds a registry already") && refused.contains("--force"));
        restore_again(&file, &work_dir, 9, true).unwrap();
        assert_eq!(offline(&work_dir, false).unwrap().dump.group, 9);
        let aside = work_dir.join("log.aside.1");
        assert!(is_nonempty(&aside), "nothing was deleted");
    }

    #[test]
    fn directory_in_use_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (file, work_dir) = (dumped(home.path()), home.path().join("master"));
        restore_again(&file, &work_dir, 8, false).unwrap();
        let running = StoredLog::open(work_dir.join(LOG)).unwrap();
        for failure in [
            restore_again(&file, &work_dir, 9, true).unwrap_err(),
            offline(&work_dir, false).err().unwrap(),
        ] {
            assert_contains!(failure.to_string(), "a master runs there");
        }
        drop(running);
        assert!(offline(&work_dir, false).is_ok());
    }

    #[test]
    fn missing_registry_or_damaged_dump_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let failure = offline(home.path(), false).err().unwrap().to_string();
        assert!(failure.contains("holds no registry"), "{failure}");
        let file = dumped(home.path());
        let mut bytes = std::fs::read(&file).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let work_dir = home.path().join("master");
        let failure = restore_again(&file, &work_dir, 8, false)
            .unwrap_err()
            .to_string();
        assert!(failure.contains("its checksum is"), "{failure}");
        assert!(!work_dir.exists());
    }
}
