//! Repeated allocation to one role: the annotations of plain resources are built once and shared.

use crate::resource::Resource;
use crate::resource::annotation::Annotations;
use crate::resources::Resources;
use crate::role::Role;
use crate::value::name::Name;
use crate::value::scalar::Scalar;

/// A role to which resources are allocated.
#[derive(Clone, Debug)]
pub struct Allocation {
    role: Role,
    /// A plain resource with this allocation, whose annotations are shared.
    like: Resource,
}

impl Allocation {
    /// The allocation to this role.
    pub fn to(role: Role) -> Self {
        let annotations = Annotations {
            allocation: Some(role.clone()),
            ..Annotations::NONE
        };
        Self {
            role,
            like: Resource::raw(Name::Cpus, Scalar::ZERO.into(), annotations),
        }
    }

    /// Like [`Resources::allocate`].
    pub fn of(&self, resources: &Resources) -> Resources {
        if resources.iter().any(Resource::has_note) {
            return resources.allocate(&self.role);
        }
        let all = resources.iter().map(|own| own.with_note_of(&self.like));
        Resources::ordered(all.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_allocation_equals_plain_allocation() {
        for role in ["*", "a", "a/b"] {
            let role = Role::new(role).unwrap();
            let allocation = Allocation::to(role.clone());
            for text in [
                "",
                "cpus:1;ports:[1-2]",
                "cpus:1;apes:2",
                "cpus(a):1;cpus:2;mem(a):3",
            ] {
                let plain = Resources::parse(text).unwrap();
                let revocable = plain.to_revocable(crate::Revocable::Throttleable).unwrap();
                for all in [plain.allocate(&role), plain, revocable] {
                    assert_eq!(allocation.of(&all), all.allocate(&role), "{all}");
                }
            }
        }
    }
}
