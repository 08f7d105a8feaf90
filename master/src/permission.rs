//! Permission: what somebody may do in this cluster, and which rules of the ACLs that is about (SPEC 3.7).
//!
//! Pure. Who somebody is was proved before: operators over HTTP by their credentials, those with a native command and agents by the names
//! in their certificates. A framework is its principal, which is proved where the operator has asked for it. What somebody may see is in
//! [`crate::sight`].

use std::collections::BTreeSet;
use std::sync::Arc;

use authority::{Acls, Action, Forbidden, Shared, Subject};
use protocol::message::operator::{UpdateQuotas, UpdateWeights};
use protocol::{FrameworkInfo, TaskInfo};
use resources::{Conversion, Persistence, ReservationKind, Resource};
use runtime::Sender;

use crate::sight::Sight;

/// Somebody, and what the operator has chosen for all.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// Who.
    pub subject: Subject,
    /// Who may do what.
    pub acls: Arc<Acls>,
}

impl Asker {
    /// This subject.
    pub fn new(acls: &Arc<Acls>, subject: Subject) -> Self {
        let acls = acls.clone();
        Self { subject, acls }
    }

    /// The framework that describes itself so.
    pub fn framework(acls: &Shared<Acls>, info: &FrameworkInfo) -> Self {
        let subject = info.principal.as_ref().map(Subject::named);
        Self::new(&acls.now(), subject.unwrap_or_default())
    }

    /// Who sent a message from another node: the name in its certificate.
    pub fn sender(acls: &Shared<Acls>, sender: &Sender) -> Self {
        Self::new(&acls.now(), Subject::named(sender.peer.node.name()))
    }

    /// Whether it may do this.
    pub fn may<'a>(
        &self,
        action: Action,
        object: impl Into<Option<&'a str>>,
    ) -> Result<(), Forbidden> {
        self.acls.check(&self.subject, action, object)
    }

    /// What it sees.
    pub fn sight(&self) -> Sight {
        Sight::of(&self.acls, &self.subject)
    }

    /// Whether it may be a framework of these roles.
    pub fn register(&self, roles: &BTreeSet<String>) -> Result<(), Forbidden> {
        let mut roles = roles.iter();
        roles.try_for_each(|role| self.may(Action::RegisterFrameworks, role.as_str()))
    }

    /// Whether it may run this task of a framework. Without a user it would run as its agent's, which may be root.
    pub fn run(&self, task: &TaskInfo, framework: &FrameworkInfo) -> Result<(), Forbidden> {
        let user = Some(task.user_in(framework)).filter(|user| !user.is_empty());
        self.may(Action::RunTasks, user.unwrap_or("root"))
    }

    /// Whether it may end this framework, or tasks of it.
    pub fn tear_down(&self, framework: &FrameworkInfo) -> Result<(), Forbidden> {
        self.may(Action::TeardownFrameworks, framework.principal.as_deref())
    }

    /// Whether it may set these quotas.
    pub fn update_quotas(&self, update: &UpdateQuotas) -> Result<(), Forbidden> {
        let mut roles = update.quotas.keys();
        roles.try_for_each(|role| self.may(Action::UpdateQuotas, role.as_str()))
    }

    /// Whether it may set these weights.
    pub fn update_weights(&self, update: &UpdateWeights) -> Result<(), Forbidden> {
        let mut roles = update.weights.keys();
        roles.try_for_each(|role| self.may(Action::UpdateWeights, role.as_str()))
    }

    /// Whether it may have this become that, of each resource, and does so in its own name.
    pub fn convert(&self, conversion: &Conversion) -> Result<(), Forbidden> {
        self.signs(conversion)?;
        self.allowed(conversion)
    }

    /// Whether what is reserved or created is so in its own name, if that is proved. Otherwise anybody would sign as anybody, or as nobody,
    /// whose reservations no rule about makers protects. Where no name had to be proved any will do, as in Mesos; an operator who is called by
    /// the number of its process has none to sign with.
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

    /// Whether who signs so signs with its own name.
    fn is_own(&self, maker: Option<&str>) -> bool {
        match maker {
            None => self.subject.is_unnamed_operator(),
            maker => maker == self.subject.principal.as_deref(),
        }
    }

    /// Whether the ACLs let it have this become that, of each resource, in whosever name.
    fn allowed(&self, conversion: &Conversion) -> Result<(), Forbidden> {
        let role = |resource: &Resource| resource.role().as_str().to_owned();
        let each =
            |parts: &resources::Resources, action, object: fn(&Resource) -> Option<String>| {
                let mut parts = parts.iter();
                parts.try_for_each(|part| self.may(action, object(part).as_deref()))
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
                self.may(Action::ResizeVolumes, role(volume).as_str())
            }
        }
    }
}

/// Who reserved this last, if that is known.
fn reserver(resource: &Resource) -> Option<String> {
    resource.reservation()?.principal.clone()
}

/// Who created this volume, if that is known.
fn creator(volume: &Resource) -> Option<String> {
    persistence(volume)?.principal.clone()
}

fn persistence(volume: &Resource) -> Option<&Persistence> {
    let disk = volume.annotations().disk.as_ref()?;
    disk.persistence.as_ref()
}

#[cfg(test)]
mod tests;
