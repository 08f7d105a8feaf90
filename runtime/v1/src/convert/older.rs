//! What is told to frameworks that know less than the newest form of an offer (SPEC 2.8, the capabilities `MULTI_ROLE` and
//! `RESERVATION_REFINEMENT`): they find everything where they look for it. What they answer in the old form is read like the new.

use protocol::{Capability, FrameworkInfo};

use crate::schema::{Offer, OperationStatus, Resource, ResourceReservationInfoType};

/// Puts an offer into the form that this framework knows.
pub fn offer_for(framework: &FrameworkInfo, offer: &mut Offer) {
    resources_for(framework, &mut offer.resources);
    if !framework.can(Capability::MultiRole) {
        offer.allocation_info = None;
    }
}

/// Puts the status of an operation into the form that this framework knows.
pub fn operation_status_for(framework: &FrameworkInfo, status: &mut OperationStatus) {
    resources_for(framework, &mut status.converted_resources);
}

/// Puts resources into the form that this framework knows. A refined reservation has no older form and stays as it is: such a framework
/// is not offered any.
pub fn resources_for(framework: &FrameworkInfo, resources: &mut [Resource]) {
    let (multi_role, refinement) = (
        framework.can(Capability::MultiRole),
        framework.can(Capability::ReservationRefinement),
    );
    for resource in resources {
        if !multi_role {
            resource.allocation_info = None;
        }
        if !refinement {
            to_old_form(resource);
        }
    }
}

/// Puts resources into both forms at once, as Mesos' pages have them: who reads `role` and `reservation` finds them beside the stack. A refined
/// reservation has no older form, and only the stack.
pub fn in_both_forms(resources: &mut [Resource]) {
    for resource in resources {
        let stack = resource.reservations.clone();
        to_old_form(resource);
        resource.reservations = stack;
    }
}

/// `role` and `reservation` in place of a stack of one or none.
fn to_old_form(resource: &mut Resource) {
    let mut only = match resource.reservations.len() {
        0 => {
            resource.role = Some("*".to_owned());
            return;
        }
        1 => resource.reservations.remove(0),
        _ => return,
    };
    resource.role = only.role.take();
    if only.r#type.take() == Some(ResourceReservationInfoType::Dynamic) {
        resource.reservation = Some(Box::new(only));
    }
}
