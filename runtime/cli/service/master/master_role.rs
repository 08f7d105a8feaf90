//! The master on a node: a member of a group, which acts as master while it leads.
//!
//! Opens the stored state, and refuses an empty start where state exists.

use std::path::{Path, PathBuf};

use ::master::Config;
use ::master::agents::whitelist::{AdmitHosts, Hosts};
use ::master::leadership::LocalLeader;
use ::master::registry::RegistryMachine;
use authority::{Action, Subject};
use consensus::member::{AdminRequest, Permits};
use consensus::store::StoredLog;
use futures_util::future::LocalBoxFuture;
use module_api::AllocatorRef;
use runtime::{Node, Pid};

use super::{GroupPlan, LOG};
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

/// Starts a member of a group, which acts as master while it leads.
pub(super) fn start(
    node: &Node,
    config: &Config,
    allocator: AllocatorRef,
    work_dir: &Path,
    group: &GroupPlan,
) -> Outcome<MasterRole> {
    refuse_old_registry(work_dir)?;
    let directory = log_directory(work_dir)?;
    let unusable = |error: &dyn std::error::Error| {
        CliError::because(
            format!("the log in {} cannot be used", directory.display()),
            error,
        )
    };
    let address = format!("{}:{}", config.hostname, config.port);
    let store = StoredLog::open(&directory).map_err(|error| unusable(&error))?;
    let mut settings = group.settings(address);
    let acls = config.acls.clone();
    settings.permits = Permits::new(move |name, request| {
        let allowed =
            acls.current()
                .check(&Subject::named(name), Action::GetEndpoints, path(request));
        allowed.map_err(|forbidden| forbidden.to_string())
    });
    let member = consensus::member::start(node, settings, Box::new(store), RegistryMachine::new())
        .map_err(|error| {
            CliError::because("cannot start a member of the masters' group", &error)
        })?;
    let (office, leader) =
        ::master::leadership::open(node, config.clone(), allocator, member.clone())
            .map_err(|error| CliError::because("cannot start the master", &error))?;
    let (node, watched) = (node.clone(), office.pid());
    let (log, of_log) = (directory.display().to_string(), member.clone());
    Ok(MasterRole {
        // A failed delivery is harmless: the next actor gets the present list at its start.
        set_whitelist: Box::new(move |hosts| {
            if let Err(error) = office.tell(AdmitHosts(hosts)) {
                tracing::warn!(%error, "passing the whitelist to the master failed");
            }
        }),
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

/// Refuses the work directory of a master that kept its registry without a log: it would start
/// empty.
fn refuse_old_registry(work_dir: &Path) -> Outcome {
    let registry = work_dir.join("registry");
    match registry.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(_) => Err(CliError::new(format!(
            "{} has a form that this version does not read",
            registry.display()
        ))
        .next("choose another --work_dir, or move it away to start with an empty registry")),
    }
}

/// The directory of the log. It and the work directory are created if missing, private to the
/// master's user.
fn log_directory(work_dir: &Path) -> Outcome<PathBuf> {
    let directory = work_dir.join(LOG);
    let made = storage::make_private(work_dir);
    match made.and_then(|()| storage::make_private(&directory)) {
        Ok(()) => Ok(directory),
        Err(error) => Err(CliError::because(
            format!("cannot make {}", directory.display()),
            &error,
        )),
    }
}
