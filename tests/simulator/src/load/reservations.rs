//! Operations of a framework of the load: it reserves a little, creates volumes on it, and gives
//! both up again.
//!
//! Pure, from an offer and randomness. Only on agents of even racks, so that there are always
//! agents without operations.

use protocol::Offer;
use rand::Rng;
use rand::rngs::SmallRng;
use resources::{
    Annotations, AttributeValue, Conversion, DiskInfo, Name, Reservation, ReservationKind,
    Resource, Resources, Role,
};

/// Resources reserved at once.
const PARCEL: &str = "cpus:0.5;mem:128;disk:64";

/// The operations for an offer, each on the result of the previous one; the offer is changed
/// accordingly. A created volume has this name.
pub fn steps(offer: &mut Offer, name: &str, rng: &mut SmallRng) -> Vec<Conversion> {
    let mut steps = Vec::new();
    let may = is_on_even_rack(offer) && offer.resources.revocable().is_empty();
    let (true, Ok(role)) = (may, Role::new(&offer.role)) else {
        return steps;
    };
    let pool = &mut offer.resources;
    let mut step = |pool: &mut Resources, conversion: Option<Conversion>| {
        let total = pool.clone();
        let done = conversion.filter(|conversion| conversion.apply(pool, &total).is_ok());
        steps.extend(done);
    };
    let idle = !parcels(pool).is_empty() || !pool.persistent_volumes().is_empty();
    match rng.random_range(0..3) {
        0 if idle => {
            step(pool, destroy(pool));
            step(pool, unreserve(pool));
        }
        1 if idle => step(pool, create(pool, name)),
        1 => step(pool, reserve(pool, &role)),
        _ => {
            step(pool, reserve(pool, &role));
            step(pool, create(pool, name));
        }
    }
    steps
}

fn is_on_even_rack(offer: &Offer) -> bool {
    match offer.attributes.get("rack") {
        Some(AttributeValue::Text(rack)) => rack.ends_with(['0', '2', '4', '6', '8']),
        _ => false,
    }
}

fn reserve(pool: &Resources, role: &Role) -> Option<Conversion> {
    let parcel = pool.unreserved().find(&Resources::parse(PARCEL).ok()?)?;
    let reservation = Reservation::dynamic(role.clone(), None);
    let resources = parcel.push_reservation(&reservation).ok()?;
    Some(Conversion::Reserve { resources })
}

/// The role's reserved resources that are not volumes.
fn parcels(pool: &Resources) -> Resources {
    pool.filter(|one| {
        let dynamic = |own: &Reservation| own.kind == ReservationKind::Dynamic;
        one.reservation().is_some_and(dynamic) && !one.is_persistent_volume()
    })
}

fn unreserve(pool: &Resources) -> Option<Conversion> {
    let resources = parcels(pool);
    (!resources.is_empty()).then_some(Conversion::Unreserve { resources })
}

fn create(pool: &Resources, name: &str) -> Option<Conversion> {
    let parcels = parcels(pool);
    let disk = parcels.iter().find(|one| one.name() == Name::Disk)?;
    let annotations = Annotations {
        disk: Some(Box::new(DiskInfo::persistent(name, None, "data"))),
        ..disk.annotations().clone()
    };
    let volume = Resource::annotated(Name::Disk, parcels.disk(), annotations).ok()?;
    let volumes = volume.into();
    Some(Conversion::Create { volumes })
}

fn destroy(pool: &Resources) -> Option<Conversion> {
    let volumes = pool.persistent_volumes();
    (!volumes.is_empty()).then_some(Conversion::Destroy { volumes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{AgentId, FrameworkId, OfferId};
    use rand::SeedableRng;
    use resources::Attributes;

    fn offer(rack: &str) -> Offer {
        let web = Role::new("web").unwrap();
        Offer {
            id: OfferId::new("o").unwrap(),
            framework_id: FrameworkId::new("f").unwrap(),
            agent_id: AgentId::new("a").unwrap(),
            hostname: String::new(),
            role: web.to_string(),
            resources: Resources::parse("cpus:4;mem:1024;disk:1024")
                .unwrap()
                .allocate(&web),
            attributes: Attributes::parse(&format!("rack:{rack}")).unwrap(),
            executor_ids: Vec::new(),
            unavailability: None,
            domain: None,
            endpoint: None,
        }
    }

    #[test]
    fn every_operation_occurs_and_preserves_quantities() {
        let (mut offer, mut rng) = (offer("r2"), SmallRng::seed_from_u64(1));
        let before = offer.resources.without_operations();
        let mut kinds = std::collections::BTreeSet::new();
        for number in 0..200 {
            let steps = steps(&mut offer, &format!("v{number}"), &mut rng);
            kinds.extend(steps.iter().map(Conversion::name));
            assert_eq!(offer.resources.without_operations(), before);
        }
        let all = ["create", "destroy", "reserve", "unreserve"];
        assert_eq!(kinds, all.into());
    }

    #[test]
    fn odd_racks_get_no_operations() {
        let (mut offer, mut rng) = (offer("r1"), SmallRng::seed_from_u64(1));
        for _ in 0..100 {
            assert_eq!(steps(&mut offer, "v", &mut rng), []);
        }
    }
}
