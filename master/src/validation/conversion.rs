//! Validation of a framework's conversion, and of an agent's reported resources.
//!
//! Pure. [`Conversion::apply`] decides the possible conversions; here is the authorization by role
//! and capability.

use protocol::{AgentResources, Capability, FrameworkInfo};
use resources::{Conversion, Invalid, Resource, Resources, Role};

/// The conversion of resources offered and allocated to `role`, if this framework may request it.
pub fn conversion(
    framework: &FrameworkInfo,
    role: &Role,
    conversion: &Conversion,
) -> Result<Conversion, Invalid> {
    let name = conversion.name();
    let named = conversion.named();
    let astray = |resource: &&Resource| {
        let allocated = resource.allocation_role();
        allocated.is_some_and(|allocated| allocated != role)
    };
    if let Some(wrong) = named.iter().find(astray) {
        let given = wrong.allocation_role().map_or("", Role::as_str);
        let expected = format!("the role of the offers, `{role}`");
        return Err(Invalid::new(
            format!("{name}.allocation_info.role"),
            given,
            expected,
        ));
    }
    match conversion {
        Conversion::Reserve { resources } => reserve(framework, role, resources)?,
        Conversion::Create { volumes } => create(framework, volumes)?,
        _ => {}
    }
    Ok(conversion.allocated(Some(role)))
}

fn reserve(framework: &FrameworkInfo, role: &Role, resources: &Resources) -> Result<(), Invalid> {
    for resource in resources {
        let Some(entry) = resource.reservation() else {
            continue; // The rules of conversions report the error.
        };
        if entry.role != *role {
            let expected = format!("the role of the offers, `{role}`");
            return Err(Invalid::new(
                "reserve.reservations.role",
                &entry.role,
                expected,
            ));
        }
        if resource.reservations().len() > 1 && !framework.can(Capability::ReservationRefinement) {
            let expected = "unreserved resources, or the capability RESERVATION_REFINEMENT";
            return Err(Invalid::new("reserve.resources", resource, expected));
        }
        let field = "reserve.reservations.principal";
        principal(field, framework, entry.principal.as_deref())?;
    }
    Ok(())
}

fn create(framework: &FrameworkInfo, volumes: &Resources) -> Result<(), Invalid> {
    for volume in volumes {
        if volume.is_shared() && !framework.can(Capability::SharedResources) {
            let expected = "a volume that is not shared, or the capability SHARED_RESOURCES";
            return Err(Invalid::new("create.volumes", volume, expected));
        }
        let disk = volume.annotations().disk.as_ref();
        if let Some(persistence) = disk.and_then(|disk| disk.persistence.as_ref()) {
            let field = "create.volumes.disk.persistence.principal";
            principal(field, framework, persistence.principal.as_deref())?;
        }
    }
    Ok(())
}

/// A framework with a principal must use it, and no other.
fn principal(field: &str, framework: &FrameworkInfo, given: Option<&str>) -> Result<(), Invalid> {
    if framework.principal.as_deref() == given {
        return Ok(());
    }
    let expected = match &framework.principal {
        Some(principal) => format!("the framework's principal, `{principal}`"),
        None => "none, as the framework has no principal".to_owned(),
    };
    Err(Invalid::new(field, given.unwrap_or("not set"), expected))
}

/// No agent ever reaches this many operations.
const SERIAL_MAX: u64 = u64::MAX >> 1;

/// Checks that an agent with the description `described` can have these resources.
pub fn held(described: &Resources, reported: &AgentResources) -> Result<(), Invalid> {
    let wrong =
        |resource: &&Resource| resource.is_revocable() || resource.allocation_role().is_some();
    if let Some(resource) = reported.total.iter().find(wrong) {
        let expected = "resources that are neither revocable nor allocated";
        return Err(Invalid::new("resources.total", resource, expected));
    }
    if let Some(settled) = reported.settled.filter(|serial| *serial > SERIAL_MAX) {
        let expected = format!("the serial of an operation, {SERIAL_MAX} at most");
        return Err(Invalid::new("resources.settled", settled, expected));
    }
    let before = reported.total.without_operations();
    if before != *described {
        let expected = format!("a result of operations on {}", described.brief());
        return Err(Invalid::new(
            "resources.total",
            reported.total.brief(),
            expected,
        ));
    }
    Ok(())
}
