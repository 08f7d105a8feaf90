//! Acting: who is the master on a node, one that keeps its registry alone or a member of a group that leads at times.
//!
//! Opens what either keeps on disk, and refuses to begin with nothing where something was kept. Decides nothing else.

use std::path::{Path, PathBuf};

use ::master::office::Front;
use ::master::registry::{OpenError, RegistryMachine};
use ::master::whitelist::{AdmitHosts, Hosts};
use ::master::{Config, LocalRegistry};
use authority::{Action, Subject};
use consensus::log::LogStore;
use consensus::member::{MemberHandle, Permits, Settings, Wish};
use consensus::store::StoredLog;
use futures_util::future::LocalBoxFuture;
use module_api::AllocatorRef;
use runtime::prelude::{Handle, Handler, Process};
use runtime::{Node, Pid};
use storage::StoreError;
use storage::sled_store::SledStore;

use super::{ALONE, GroupPlan, LOG};
use crate::failure::{Failure, Outcome};

/// What ACLs call each wish that operators have of a member of a group, as if it were a page.
fn path(wish: Wish) -> &'static str {
    match wish {
        Wish::Read => "/registry",
        Wish::Look => "/masters",
        Wish::Change => "/masters/change",
    }
}

/// Whoever acts as master on this node.
pub(super) struct Acting {
    pub(super) front: Front,
    /// The actor whose end is the process'.
    pub(super) ends: Pid,
    /// Why it has ended, where more is known than its log says.
    pub(super) why: Box<dyn Fn() -> Option<String>>,
    /// Ends it in good order.
    pub(super) leave: LocalBoxFuture<'static, ()>,
    /// Tells it whose agents are offered.
    pub(super) admit: Box<dyn Fn(Hosts)>,
}

/// How whoever acts as master is told whose agents are offered. One that is gone needs no telling: the office tells the next.
fn admission<A>(actor: Handle<A>) -> Box<dyn Fn(Hosts)>
where
    A: Process + Handler<AdmitHosts>,
{
    Box::new(move |hosts| {
        if let Err(error) = actor.tell(AdmitHosts(hosts)) {
            tracing::warn!(%error, "the master cannot be told the whitelist");
        }
    })
}

/// The group that this master belongs to. One that has a log is a member, whatever was said: alone, it would begin with nothing. One
/// that was alone does not become a member just like that: its registry would be forgotten.
pub(super) fn membership(group: Option<GroupPlan>, work_dir: &Path) -> Outcome<Option<GroupPlan>> {
    match (holds_anything(&work_dir.join(LOG)), group) {
        (true, group) => Ok(Some(group.unwrap_or_default())),
        (false, None) => Ok(None),
        (false, Some(group)) => match holds_anything(&work_dir.join(ALONE)) {
            false => Ok(Some(group)),
            true => Err(Failure::new(format!(
                "the master in {} was alone, and its registry would be forgotten in a group",
                work_dir.display()
            ))
            .next(
                "take it along: `meros registry dump` with this --work_dir, `meros registry restore --force`, start it without \
                 --initial_masters, then `meros masters add` the others; or choose another --work_dir",
            )),
        },
    }
}

/// Whether there is such a directory, and it is not empty.
pub fn holds_anything(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

/// A master that keeps its registry alone.
pub(super) fn alone(
    node: &Node,
    config: &Config,
    allocator: AllocatorRef,
    work_dir: &Path,
) -> Outcome<Acting> {
    let registry = open_registry(node, work_dir)?;
    let started = ::master::start(node, config.clone(), 0, allocator, Box::new(registry))
        .map_err(|error| Failure::because("cannot start the master", &error))?;
    let (node, ends) = (node.clone(), started.master.pid());
    let master = ends.clone();
    Ok(Acting {
        admit: admission(started.master.clone()),
        front: Front::of(&started.master).measured(&started.meter),
        ends,
        why: Box::new(|| None),
        leave: Box::pin(async move {
            node.stop(&master);
            node.ended(&master).await;
        }),
    })
}

/// A member of a group, which acts as master while it leads.
pub(super) fn grouped(
    node: &Node,
    config: &Config,
    allocator: AllocatorRef,
    work_dir: &Path,
    group: &GroupPlan,
) -> Outcome<Acting> {
    let directory = made(work_dir, LOG)?;
    let unusable = |error: &dyn std::error::Error| {
        Failure::because(
            format!("the log in {} cannot be used", directory.display()),
            error,
        )
    };
    let address = match &group.address {
        Some(address) => address.clone(),
        None => format!("{}:{}", config.hostname, config.port),
    };
    let store = StoredLog::open(&directory).map_err(|error| unusable(&error))?;
    let mut settings = group.settings(address);
    let acls = config.acls.clone();
    settings.permits = Permits::asking(move |name, wish| {
        let may = acls
            .now()
            .check(&Subject::named(name), Action::GetEndpoints, path(wish));
        may.map_err(|forbidden| forbidden.to_string())
    });
    let member = member_of_group(node, settings, Box::new(store))
        .map_err(|error| Failure::because("cannot start a member of the masters' group", &error))?;
    let (office, front) = ::master::office::open(node, config.clone(), allocator, member.clone())
        .map_err(|error| Failure::because("cannot start the master", &error))?;
    let (node, ends) = (node.clone(), office.pid());
    let (log, of_log) = (directory.display().to_string(), member.clone());
    Ok(Acting {
        admit: admission(office),
        front,
        ends: ends.clone(),
        why: Box::new(move || {
            let reason = of_log.ended()?;
            Some(format!("this master's log in {log} is closed: {reason}"))
        }),
        leave: Box::pin(async move {
            // Whoever leads hands over first, so that nobody waits for an election.
            member.retire().await;
            node.stop(&ends);
            node.ended(&ends).await;
        }),
    })
}

fn member_of_group(
    node: &Node,
    settings: Settings,
    store: Box<dyn LogStore>,
) -> Result<MemberHandle<RegistryMachine>, consensus::member::StartError> {
    consensus::member::start(node, settings, store, RegistryMachine::new())
}

/// This directory of the work directory. Both are made if missing, for the master's user alone.
fn made(work_dir: &Path, name: &str) -> Outcome<PathBuf> {
    let directory = work_dir.join(name);
    let made = storage::make_private(work_dir);
    match made.and_then(|()| storage::make_private(&directory)) {
        Ok(()) => Ok(directory),
        Err(error) => Err(Failure::because(
            format!("cannot make {}", directory.display()),
            &error,
        )),
    }
}

fn open_registry(node: &Node, work_dir: &Path) -> Outcome<LocalRegistry> {
    let directory = made(work_dir, ALONE)?;
    let unusable = |error: &dyn std::error::Error, damage: Option<&StoreError>| {
        let directory = directory.display();
        let failure =
            Failure::because(format!("the registry in {directory} cannot be used"), error);
        match damage {
            Some(
                StoreError::Lost { .. }
                | StoreError::Damaged { .. }
                | StoreError::Unreadable { .. },
            ) => failure.next("restore a dump of it: `meros registry restore` with --force"),
            _ => failure,
        }
    };
    let store = SledStore::open(&directory).map_err(|error| unusable(&error, Some(&error)))?;
    LocalRegistry::open(node, Box::new(store)).map_err(|error| match &error {
        OpenError::Store(damage) => unusable(&error, Some(damage)),
        _ => unusable(&error, None),
    })
}
