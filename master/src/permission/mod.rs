//! Authorization: maps actions in the cluster to the rules of the ACLs.
//!
//! Pure. Identities are proved elsewhere: operators over HTTP by credentials, native commands and
//! agents by the names in their certificates. A framework is its principal, proved if the operator
//! requires it. Visibility is in [`crate::api::visibility`].

use std::collections::BTreeSet;
use std::sync::Arc;

use authority::{Acls, Action, Forbidden, Reloadable, Subject};
use protocol::message::operator::{UpdateQuotas, UpdateWeights};
use protocol::{FrameworkInfo, TaskInfo};
use resources::{Conversion, Persistence, ReservationKind, Resource};
use runtime::Sender;

/// A caller with the ACLs that apply.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The identity.
    pub subject: Subject,
    /// The access control lists.
    pub acls: Arc<Acls>,
}

impl Caller {
    /// The caller with this identity.
    pub fn new(acls: &Arc<Acls>, subject: Subject) -> Self {
        let acls = acls.clone();
        Self { subject, acls }
    }

    /// The framework with this description.
    pub fn framework(acls: &Reloadable<Acls>, info: &FrameworkInfo) -> Self {
        let subject = info.principal.as_ref().map(Subject::named);
        Self::new(&acls.current(), subject.unwrap_or_default())
    }

    /// The sender of a remote message: the name in its certificate.
    pub fn sender(acls: &Reloadable<Acls>, sender: &Sender) -> Self {
        Self::new(&acls.current(), Subject::named(sender.peer.node.name()))
    }

    /// Whether it may do this.
    pub fn authorize<'a>(
        &self,
        action: Action,
        object: impl Into<Option<&'a str>>,
    ) -> Result<(), Forbidden> {
        self.acls.check(&self.subject, action, object)
    }

    /// Whether it may be a framework with these roles.
    pub fn register(&self, roles: &BTreeSet<String>) -> Result<(), Forbidden> {
        let mut roles = roles.iter();
        roles.try_for_each(|role| self.authorize(Action::RegisterFrameworks, role.as_str()))
    }

    /// Whether it may run this task of a framework. Without a user the task would run as its
    /// agent's, which may be root.
    pub fn run(&self, task: &TaskInfo, framework: &FrameworkInfo) -> Result<(), Forbidden> {
        let user = Some(task.user_in(framework)).filter(|user| !user.is_empty());
        self.authorize(Action::RunTasks, user.unwrap_or("root"))
    }

    /// Whether it may end this framework, or tasks of it.
    pub fn tear_down(&self, framework: &FrameworkInfo) -> Result<(), Forbidden> {
        self.authorize(Action::TeardownFrameworks, framework.principal.as_deref())
    }

    /// Whether it may set these quotas.
    pub fn update_quotas(&self, update: &UpdateQuotas) -> Result<(), Forbidden> {
        let mut roles = update.quotas.keys();
        roles.try_for_each(|role| self.authorize(Action::UpdateQuotas, role.as_str()))
    }

    /// Whether it may set these weights.
    pub fn update_weights(&self, update: &UpdateWeights) -> Result<(), Forbidden> {
        let mut roles = update.weights.keys();
        roles.try_for_each(|role| self.authorize(Action::UpdateWeights, role.as_str()))
    }

    /// Whether it may convert each of these resources, and does so under its own name.
    pub fn convert(&self, conversion: &Conversion) -> Result<(), Forbidden> {
        self.signs(conversion)?;
        self.allowed(conversion)
    }

    /// Checks that reservations and volumes are made under the caller's own name, if that is
    /// proved. Otherwise anyone could use another's name, or none, whose reservations no rule about
    /// creators protects. Without a proved name any name is accepted, as in Mesos; a local operator
    /// identified by a process number has no name to use.
    fn signs(&self, conversion: &Conversion) -> Result<(), Forbidden> {
        let Some(proved) = &self.subject.principal else {
            return Ok(());
        };
        let (action, made) = match conversion {
            Conversion::Reserve { resources } => (Action::ReserveResources, resources),
            Conversion::Create { volumes } => (Action::CreateVolumes, volumes),
            _ => return Ok(()),
        };
        let signed = |resource: &Resource| match action {
            Action::ReserveResources => resource.reservation().is_none_or(|entry| {
                entry.kind == ReservationKind::Static || self.is_own(entry.principal.as_deref())
            }),
            _ => persistence(resource).is_none_or(|one| self.is_own(one.principal.as_deref())),
        };
        let Some(resource) = made.iter().find(|resource| !signed(resource)) else {
            return Ok(());
        };
        let maker = match action {
            Action::ReserveResources => reserver(resource),
            _ => creator(resource),
        };
        let maker = maker.as_deref().unwrap_or("nobody");
        Err(Forbidden {
            principal: Some(proved.clone()),
            action,
            object: Some(format!("{} in the name of {maker}", resource.role())),
        })
    }

    /// Whether this is the caller's own name.
    fn is_own(&self, maker: Option<&str>) -> bool {
        match maker {
            None => self.subject.is_unnamed_operator(),
            maker => maker == self.subject.principal.as_deref(),
        }
    }

    /// Whether the ACLs allow the conversion of each resource, under any name.
    fn allowed(&self, conversion: &Conversion) -> Result<(), Forbidden> {
        let role = |resource: &Resource| resource.role().as_str().to_owned();
        let each =
            |parts: &resources::Resources, action, object: fn(&Resource) -> Option<String>| {
                let mut parts = parts.iter();
                parts.try_for_each(|part| self.authorize(action, object(part).as_deref()))
            };
        let of_role = |resource: &Resource| Some(resource.role().as_str().to_owned());
        match conversion {
            Conversion::Reserve { resources } => each(resources, Action::ReserveResources, of_role),
            Conversion::Unreserve { resources } => {
                each(resources, Action::UnreserveResources, reserver)
            }
            Conversion::Create { volumes } => each(volumes, Action::CreateVolumes, of_role),
            Conversion::Destroy { volumes } => each(volumes, Action::DestroyVolumes, creator),
            Conversion::GrowVolume { volume, .. } | Conversion::ShrinkVolume { volume, .. } => {
                self.authorize(Action::ResizeVolumes, role(volume).as_str())
            }
        }
    }
}

/// The principal of the newest reservation, if known.
fn reserver(resource: &Resource) -> Option<String> {
    resource.reservation()?.principal.clone()
}

/// The principal that created this volume, if known.
fn creator(volume: &Resource) -> Option<String> {
    persistence(volume)?.principal.clone()
}

fn persistence(volume: &Resource) -> Option<&Persistence> {
    let disk = volume.annotations().disk.as_ref()?;
    disk.persistence.as_ref()
}

#[cfg(test)]
mod tests;
