//! Converts messages for frameworks without the capabilities `MULTI_ROLE` and
//! `RESERVATION_REFINEMENT`: they read the older fields. Their calls in the older form are decoded
//! like newer ones.

use protocol::{Capability, FrameworkInfo};

use crate::schema::{Offer, OperationStatus, Resource, ResourceReservationInfoType};

/// Converts an offer to the form that this framework supports.
pub fn offer_for(framework: &FrameworkInfo, offer: &mut Offer) {
    resources_for(framework, &mut offer.resources);
    if !framework.can(Capability::MultiRole) {
        offer.allocation_info = None;
    }
}

/// Converts an operation status to the form that this framework supports.
pub fn operation_status_for(framework: &FrameworkInfo, status: &mut OperationStatus) {
    resources_for(framework, &mut status.converted_resources);
}

/// Converts resources to the form that this framework supports. A refined reservation has no older
/// form and stays unchanged: such frameworks are not offered any.
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

/// Converts resources to both forms at once, as on Mesos' pages: `role` and `reservation` beside
/// the stack. A refined reservation has only the stack.
pub fn in_both_forms(resources: &mut [Resource]) {
    for resource in resources {
        let stack = resource.reservations.clone();
        to_old_form(resource);
        resource.reservations = stack;
    }
}

/// Replaces a stack of at most one reservation by `role` and `reservation`.
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
