//! The master on a node: standalone with its own registry, or a member of a group that sometimes
//! leads.
//!
//! Opens the stored state, and refuses an empty start where state exists.

use std::path::{Path, PathBuf};

use ::master::agents::whitelist::{AdmitHosts, Hosts};
use ::master::leadership::LocalLeader;
use ::master::registry::{OpenError, RegistryMachine};
use ::master::{Config, LocalRegistry};
use authority::{Action, Subject};
use consensus::log::LogStore;
use consensus::member::{AdminRequest, MemberHandle, Permits, Settings};
use consensus::store::StoredLog;
use futures_util::future::LocalBoxFuture;
use module_api::AllocatorRef;
use runtime::prelude::{Handle, Handler, Process};
use runtime::{Node, Pid};
use storage::StoreError;
use storage::sled_store::SledStore;

use super::{GroupPlan, LOG, STANDALONE};
use crate::output::error::{CliError, Outcome};

/// The path by which ACLs name each kind of administrative request.
fn path(request: AdminRequest) -> &'static str {
    match request {
        AdminRequest::ReadContent => "/registry",
        AdminRequest::ViewStatus => "/masters",
        AdminRequest::ChangeMembers => "/masters/change",
    }
}

/// The master on this node.
pub(super) struct MasterRole {
    pub(super) leader: LocalLeader,
    /// The actor whose end is the end of the process.
    pub(super) watched: Pid,
    /// The reason for the end, if more is known than in the log.
    pub(super) end_reason: Box<dyn Fn() -> Option<String>>,
    /// Shuts it down gracefully.
    pub(super) stop: LocalBoxFuture<'static, ()>,
    /// Passes it the whitelist.
    pub(super) set_whitelist: Box<dyn Fn(Hosts)>,
}

/// Passes the whitelist to the master actor. A failed delivery is harmless: the next actor gets the
/// present list at its start.
fn admission<A>(actor: Handle<A>) -> Box<dyn Fn(Hosts)>
where
    A: Process + Handler<AdmitHosts>,
{
    Box::new(move |hosts| {
        if let Err(error) = actor.tell(AdmitHosts(hosts)) {
            tracing::warn!(%error, "passing the whitelist to the master failed");
        }
    })
}

/// The group of this master. A master with a log is a member regardless of the flags: standalone,
/// it would start empty. A standalone master does not silently become a member, because its
/// registry would be lost.
pub(super) fn membership(group: Option<GroupPlan>, work_dir: &Path) -> Outcome<Option<GroupPlan>> {
    match (is_nonempty(&work_dir.join(LOG)), group) {
        (true, group) => Ok(Some(group.unwrap_or_default())),
        (false, None) => Ok(None),
        (false, Some(group)) => match is_nonempty(&work_dir.join(STANDALONE)) {
            false => Ok(Some(group)),
            true => Err(CliError::new(format!(
                "the master in {} was standalone, and its registry would be lost in a group",
                work_dir.display()
            ))
            .next(
                "to keep it: `meros registry dump` with this --work_dir, `meros registry restore --force`, start it without \
                 --initial_masters, then `meros masters add` the others; or choose another --work_dir",
            )),
        },
    }
}

/// Whether this directory exists and is not empty.
pub fn is_nonempty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

/// A standalone master.
pub(super) fn standalone(
    node: &Node,
    config: &Config,
    allocator: AllocatorRef,
    work_dir: &Path,
) -> Outcome<MasterRole> {
    let registry = open_registry(node, work_dir)?;
    let started = ::master::start(node, config.clone(), 0, allocator, Box::new(registry))
        .map_err(|error| CliError::because("cannot start the master", &error))?;
    let (node, watched) = (node.clone(), started.master.pid());
    let master = watched.clone();
    Ok(MasterRole {
        set_whitelist: admission(started.master.clone()),
        leader: LocalLeader::of(&started.master).measured(&started.meter),
        watched,
        end_reason: Box::new(|| None),
        stop: Box::pin(async move {
            node.stop(&master);
            node.ended(&master).await;
        }),
    })
}

/// A member of a group, which acts as master while it leads.
pub(super) fn replicated(
    node: &Node,
    config: &Config,
    allocator: AllocatorRef,
    work_dir: &Path,
    group: &GroupPlan,
) -> Outcome<MasterRole> {
    let directory = ensure_directory(work_dir, LOG)?;
    let unusable = |error: &dyn std::error::Error| {
        CliError::because(
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
    settings.permits = Permits::new(move |name, request| {
        let allowed =
            acls.current()
                .check(&Subject::named(name), Action::GetEndpoints, path(request));
        allowed.map_err(|forbidden| forbidden.to_string())
    });
    let member = member_of_group(node, settings, Box::new(store)).map_err(|error| {
        CliError::because("cannot start a member of the masters' group", &error)
    })?;
    let (office, leader) =
        ::master::leadership::open(node, config.clone(), allocator, member.clone())
            .map_err(|error| CliError::because("cannot start the master", &error))?;
    let (node, watched) = (node.clone(), office.pid());
    let (log, of_log) = (directory.display().to_string(), member.clone());
    Ok(MasterRole {
        set_whitelist: admission(office),
        leader,
        watched: watched.clone(),
        end_reason: Box::new(move || {
            let reason = of_log.ended()?;
            Some(format!("this master's log in {log} is closed: {reason}"))
        }),
        stop: Box::pin(async move {
            // A leader hands over first, so that clients do not wait for an election.
            member.retire().await;
            node.stop(&watched);
            node.ended(&watched).await;
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

/// A subdirectory of the work directory. Both are created if missing, private to the master's user.
fn ensure_directory(work_dir: &Path, name: &str) -> Outcome<PathBuf> {
    let directory = work_dir.join(name);
    let made = storage::make_private(work_dir);
    match made.and_then(|()| storage::make_private(&directory)) {
        Ok(()) => Ok(directory),
        Err(error) => Err(CliError::because(
            format!("cannot make {}", directory.display()),
            &error,
        )),
    }
}

fn open_registry(node: &Node, work_dir: &Path) -> Outcome<LocalRegistry> {
    let directory = ensure_directory(work_dir, STANDALONE)?;
    let unusable = |error: &dyn std::error::Error, damage: Option<&StoreError>| {
        let directory = directory.display();
        let failure =
            CliError::because(format!("the registry in {directory} cannot be used"), error);
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
