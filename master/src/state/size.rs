//! Splits long lists into messages well below the maximum frame size.
//!
//! Pure. Sizes are measured with the wire codec, so that a few large items among many small ones
//! are handled. Offers, the most frequent, are usually recognized as small without that.

use bytes::BytesMut;
use protocol::Offer;
use resources::{AttributeValue, Resource, Value};
use runtime::wire::codec;
use serde::Serialize;

/// Maximum bytes of one piece, unless a single item exceeds it.
const BYTES_MAX: usize = 768 * 1024;

/// Maximum bytes of a number on the wire, and of anything no longer: a length, a tag, a boolean.
const NUMBER: usize = 9;

/// The same as [`in_frames`].
pub fn offers_in_frames(offers: Vec<Offer>) -> Vec<Vec<Offer>> {
    let mut bounds = offers.iter().map(bytes_at_most);
    let bound = bounds.try_fold(0_usize, |sum, bound| sum.checked_add(bound?));
    match bound {
        Some(bound) if bound <= BYTES_MAX && !offers.is_empty() => vec![offers],
        _ => in_frames(offers),
    }
}

/// An upper bound of an offer's bytes on the wire, if it is cheap to compute.
fn bytes_at_most(offer: &Offer) -> Option<usize> {
    let text = |text: &str| text.len() + NUMBER;
    let ids = [
        offer.id.as_str(),
        offer.framework_id.as_str(),
        offer.agent_id.as_str(),
    ];
    let texts = ids
        .into_iter()
        .chain([offer.hostname.as_str(), offer.role.as_str()]);
    let executors = offer.executor_ids.iter().map(|id| text(id.as_str()));
    let fixed = texts.map(text).sum::<usize>() + executors.sum::<usize>();
    // Lengths of three lists; beginning and length of an unavailability, with their tags.
    let fixed = fixed + 9 * NUMBER;
    let attributes = offer.attributes.iter().map(|attribute| {
        let value = match attribute.value() {
            AttributeValue::Scalar(_) => NUMBER,
            AttributeValue::Ranges(ranges) => (2 * ranges.iter().len() + 1) * NUMBER,
            AttributeValue::Set(_) => return None,
            AttributeValue::Text(value) => text(value),
        };
        Some(text(attribute.name()) + NUMBER + value)
    });
    let mut parts = attributes.chain(offer.resources.iter().map(bytes_of_resource));
    parts.try_fold(fixed, |sum, part| sum.checked_add(part?))
}

/// The same for a resource.
fn bytes_of_resource(resource: &Resource) -> Option<usize> {
    let annotations = resource.annotations();
    if !annotations.reservations.is_empty()
        || annotations.disk.is_some()
        || annotations.provider.is_some()
    {
        return None;
    }
    let value = match resource.value() {
        Value::Scalar(_) => NUMBER,
        Value::Ranges(ranges) => (2 * ranges.iter().len() + 1) * NUMBER,
        Value::Set(_) => return None,
    };
    let roles = annotations.allocation.iter().chain(&annotations.lender);
    let roles: usize = roles.map(|role| role.as_str().len()).sum();
    // Lengths and tags: the name's, the value's, the copies, and one for each annotation, of which
    // three have another.
    Some(resource.name_str().len() + value + roles + 14 * NUMBER)
}

/// The bytes of a value on the wire.
pub fn wire_bytes<T: Serialize>(value: &T) -> usize {
    let mut buffer = BytesMut::new();
    // A value that cannot be encoded will be refused when it is sent.
    codec::encode_into(value, &mut buffer).map_or(0, |()| buffer.len())
}

/// The list in pieces of at most 768 KiB on the wire, unless a piece has a single item.
pub fn in_frames<T: Serialize>(items: Vec<T>) -> Vec<Vec<T>> {
    in_pieces(items, BYTES_MAX)
}

/// The list in pieces of at most `bytes_max` on the wire, unless a piece has a single item.
pub fn in_pieces<T: Serialize>(items: Vec<T>, bytes_max: usize) -> Vec<Vec<T>> {
    if items.len() == 1 {
        return vec![items]; // A single item is never split.
    }
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    let (mut bytes, mut buffer) = (0, BytesMut::new());
    for item in items {
        buffer.clear();
        // A value that cannot be encoded will be refused when it is sent.
        let length = match codec::encode_into(&item, &mut buffer) {
            Ok(()) => buffer.len(),
            Err(_) => 0,
        };
        if bytes + length > bytes_max && !piece.is_empty() {
            pieces.push(std::mem::take(&mut piece));
            bytes = 0;
        }
        bytes += length;
        piece.push(item);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{AgentId, ExecutorId, FrameworkId, OfferId, Unavailability};
    use resources::{Attributes, Resources, Revocable, Role};
    use runtime::Timestamp;

    fn offer(attributes: &str, resources: &str) -> Offer {
        Offer {
            id: OfferId::new("m-O123456").unwrap(),
            framework_id: FrameworkId::new("m-0007").unwrap(),
            agent_id: AgentId::new("m-S12").unwrap(),
            hostname: "host.example".to_owned(),
            role: "eng/web".to_owned(),
            resources: Resources::parse(resources).unwrap(),
            attributes: Attributes::parse(attributes).unwrap(),
            executor_ids: vec![ExecutorId::new("e").unwrap(); 3],
            unavailability: Some(Unavailability {
                start: Timestamp::from_nanos(u64::MAX),
                duration: Some(std::time::Duration::MAX),
            }),
            domain: None,
            endpoint: None,
        }
    }

    #[test]
    fn offer_size_bound_is_never_exceeded() {
        let role = Role::new("eng/web").unwrap();
        let ports: Vec<String> = (0..500)
            .map(|n| format!("{}-{}", n * 3, n * 3 + 1))
            .collect();
        let many = format!("cpus:1000000;mem:1e9;ports:[{}];bees:7", ports.join(","));
        let ranges = format!("rack:r-2;weight:4.5;ids:[{}]", ports.join(","));
        for (attributes, resources) in [("", ""), ("", "cpus:1"), (ranges.as_str(), many.as_str())]
        {
            let plain = offer(attributes, resources);
            let throttleable = Revocable::Throttleable;
            let revocable = plain.resources.to_revocable(throttleable).unwrap();
            for resources in [plain.resources.clone(), revocable] {
                let resources = resources.allocate(&role);
                let offer = Offer {
                    resources,
                    ..plain.clone()
                };
                let mut bytes = BytesMut::new();
                codec::encode_into(&offer, &mut bytes).unwrap();
                let bound = bytes_at_most(&offer).unwrap();
                assert!(bytes.len() <= bound, "{} above {bound}", bytes.len());
            }
        }
        let told = [
            bytes_at_most(&offer("", "cpus(eng):1")),
            bytes_at_most(&offer("", "bugs:{a,b}")),
            bytes_at_most(&offer("bugs:{a,b}", "cpus:1")),
        ];
        assert_eq!(told, [None; 3], "those are measured");
    }

    #[test]
    fn offers_are_split_like_any_list() {
        let text = |length: usize| format!("what:{}", "x".repeat(length));
        for (attributes, resources) in [(text(300_000), "cpus:1"), (text(300_000), "cpus(eng):1")] {
            let offers = vec![offer(&attributes, resources); 5];
            let pieces = offers_in_frames(offers.clone());
            assert_eq!(pieces, in_frames(offers));
            assert_eq!(pieces.len(), 3);
        }
        assert_eq!(offers_in_frames(vec![offer("", "cpus:1"); 9]).len(), 1);
        assert!(offers_in_frames(Vec::new()).is_empty());
    }

    #[test]
    fn pieces_respect_the_bound_and_keep_order() {
        let items: Vec<Vec<u8>> = (0..20_u8).map(|n| vec![n; 200_000]).collect();
        let pieces = in_frames(items.clone());
        assert!(pieces.iter().all(|piece| piece.len() <= 3));
        assert_eq!(pieces.concat(), items);
        assert!(in_frames(Vec::<u8>::new()).is_empty());
        assert_eq!(in_frames(vec![vec![0_u8; 2_000_000]]).len(), 1);
    }
}
