//! Cuts an agent's resources to the maximum of a client's offers.
//!
//! Uses the same rules as `module_api::sorter::Shape` does for amounts. Also handles resources that
//! a sorter does not see: ports, which are counted, and volumes, which are given whole or not at
//! all.

use std::cmp::Reverse;

use resources::{Annotations, Quantities, Ranges, Resource, Resources, Scalar};

use super::state::chop;

/// The part of `pool` that contains at most `most` of each name in `most`. Keeps reserved resources
/// first; of indivisible ones, the largest that fit.
pub fn cut(pool: &Resources, most: &Quantities) -> Resources {
    let mut most = most.clone();
    let mut entries: Vec<&Resource> = pool.iter().collect();
    entries.sort_by_key(|own| Reverse((own.is_reserved(), own.is_indivisible(), own.amount())));
    let cut = entries.into_iter().filter_map(|own| {
        let name = own.name();
        if !most.names(&name) {
            return Some(own.clone());
        }
        match own.value().as_ranges() {
            Some(ranges) => count(own, ranges, &mut most),
            None if own.amount().is_none() => Some(own.clone()), // A set has no amount.
            None => chop(own, &mut most),
        }
    });
    cut.collect()
}

/// The lowest numbers of a range, at most as many as `most` has; deducts their count from `most`.
fn count(own: &Resource, ranges: &Ranges, most: &mut Quantities) -> Option<Resource> {
    let name = own.name();
    let wanted = most.get(&name).thousandths() / 1000;
    let wanted = u64::try_from(wanted).unwrap_or_default();
    let kept = ranges.lowest(wanted).unwrap_or_else(|| ranges.clone());
    let number = i64::try_from(kept.count()).ok()?.checked_mul(1000)?;
    most.take(&name, Scalar::from_thousandths(number).ok()?);
    let annotations: Annotations = own.annotations().clone();
    Resource::annotated(name, kept, annotations)
        .ok()
        .filter(|kept| !kept.value().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use resources::Name;

    fn parse(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    #[test]
    fn only_listed_names_are_cut() {
        let pool = parse("cpus:8;mem:64;cpus(a):1;gpus:2;ports:[5-9,20-29];bugs:{x,y}");
        let mut most = Quantities::parse("cpus:3;gpus:1.5").unwrap();
        most.set(Name::Ports, Scalar::whole(7));
        let expected = "cpus:2;mem:64;cpus(a):1;gpus:1;ports:[5-9,20-21];bugs:{x,y}";
        assert_eq!(cut(&pool, &most), parse(expected));
        most.set(Name::Ports, Scalar::ZERO);
        most.set(Name::Mem, Scalar::ZERO);
        let expected = "cpus:2;cpus(a):1;gpus:1;bugs:{x,y}";
        assert_eq!(cut(&pool, &most), parse(expected));
        assert_eq!(cut(&pool, &Quantities::new()), pool);
        most.set(Name::Ports, Scalar::whole(99));
        assert_eq!(cut(&pool, &most).ports(), pool.ports());
    }

    #[test]
    fn indivisible_resources_are_kept_whole_or_not_at_all() {
        let mount = |id: &str, size: u32| {
            format!(
                r#"{{"name":"disk","type":"SCALAR","scalar":{{"value":{size}}},
                    "disk":{{"source":{{"type":"MOUNT","mount":{{"root":"/{id}"}}}}}}}}"#
            )
        };
        let plain = r#"{"name":"disk","type":"SCALAR","scalar":{"value":50}}"#;
        let pool = parse(&format!("[{},{plain},{}]", mount("a", 40), mount("b", 30)));
        let most = Quantities::parse("disk:60").unwrap();
        let kept = cut(&pool, &most);
        assert!(pool.contains(&kept));
        let sizes: Vec<String> = kept
            .iter()
            .map(|own| own.amount().unwrap().to_string())
            .collect();
        assert_eq!(kept.disk(), Scalar::whole(60), "{kept}");
        assert_eq!(
            sizes.len(),
            2,
            "the bigger mount, and a part of what can be cut: {kept}"
        );
    }
}
