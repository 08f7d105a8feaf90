//! Roles as operators see them.

use protocol::view::RoleView;

use super::resource::write_resources;
use super::write;
use crate::schema::Role;

impl From<&RoleView> for Role {
    fn from(role: &RoleView) -> Self {
        let held = role.allocated.clone() + role.offered.clone();
        Self {
            name: role.name.clone(),
            weight: role.weight,
            frameworks: write(&role.frameworks),
            resources: write_resources(&held),
        }
    }
}
