//! The JSON and wire forms, by the examples of the seeds and by golden bytes.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use meros_resources as resources;
use resources::json::{self, attributes_object, parse_resources, resources_object};
use resources::{
    Annotations, Attributes, DiskInfo, Label, Labels, Name, Reservation, ReservationKind, Resource,
    Resources, Revocable, Role, Scalar,
};
use serde_json::{Value, json};

fn parse(text: &str) -> Resources {
    Resources::parse(text).unwrap()
}

fn role(text: &str) -> Role {
    Role::new(text).unwrap()
}

fn written(resources: &Resources) -> Value {
    serde_json::to_value(json::Resources(resources.clone())).unwrap()
}

/// A shared volume with this number of users.
fn volume(copies: u32, shared: bool) -> Resources {
    let disk = DiskInfo::persistent("v1", None, "data");
    let notes = Annotations {
        reservations: vec![Reservation::dynamic(role("ads"), Some("ops"))],
        disk: Some(Box::new(disk)),
        shared,
        ..Annotations::default()
    };
    Resource::annotated(Name::Disk, Scalar::whole(100), notes)
        .unwrap()
        .counted(copies)
        .unwrap()
        .into()
}

/// JSON writes each copy, so a peer's number of copies is bounded.
#[test]
fn wire_copies_are_bounded() {
    let config = bincode::config::standard();
    let claim = |copies| {
        let bytes = bincode::serde::encode_to_vec(volume(copies, true), config).unwrap();
        bincode::serde::decode_from_slice::<Resources, _>(&bytes, config)
            .map(|(resources, _)| resources)
            .map_err(|error| error.to_string())
    };
    assert_eq!(claim(100_000), Ok(volume(100_000, true)));
    let refused = claim(100_001).unwrap_err();
    assert!(
        refused.contains("copies is `100001`: expected at most 100000"),
        "{refused}"
    );
}

/// S19: the resources of the golden offer.
// Covers S19 in part: its resources.
#[test]
fn golden_offer_resources_round_trip() {
    let golden = json!([
        { "name": "cpus", "type": "SCALAR", "scalar": { "value": 2.0 }, "role": "*" },
        { "name": "mem", "type": "SCALAR", "scalar": { "value": 512.0 }, "role": "*" },
        { "name": "cpus", "type": "SCALAR", "scalar": { "value": 0.45 }, "role": "*", "revocable": {} }
    ]);
    let offered = json::resources_from(&golden).unwrap();
    assert_eq!((offered.len(), offered.revocable().len()), (3, 1));
    assert_eq!(offered.revocable().cpus(), Scalar::new(0.45).unwrap());
    assert_eq!(written(&offered), golden);
}

/// S45: `throttle_info` makes the difference between the two kinds of revocable.
// Covers S45 in part: the two kinds.
#[test]
fn throttle_info_is_read_and_written() {
    for (revocable, kind) in [
        (json!({}), Revocable::NonThrottleable),
        (json!({ "throttle_info": {} }), Revocable::Throttleable),
    ] {
        let text = json!([{ "name": "cpus", "type": "SCALAR", "scalar": { "value": 1.0 }, "role": "*", "revocable": revocable }]);
        let read = json::resources_from(&text).unwrap();
        assert_eq!(read, parse("cpus:1").to_revocable(kind).unwrap());
        assert_eq!(written(&read), text);
    }
}

/// S92: the seed's resources, trailing commas, `framework_id` and all, inside a proper array.
#[test]
fn old_form_of_a_dynamic_reservation_is_read() {
    let text = r#"[
        { "name": "cpus", "type": "SCALAR", "scalar": { "value": 8 }, "role": "ads",
          "reservation": { "framework_id": "f1", "principal": "ops", }, },
        { "name": "mem", "type": "SCALAR", "scalar": { "value": 4096 }, "role": "ads",
          "reservation": { "framework_id": "f1", "principal": "ops" } },
    ]"#;
    let expected = parse("cpus:8;mem:4096")
        .push_reservation(&Reservation::dynamic(role("ads"), Some("ops")))
        .unwrap();
    assert_eq!(parse_resources(text).unwrap(), expected);
    assert_eq!(json::resources_from(&written(&expected)).unwrap(), expected);
}

/// S93: the seed's body is no JSON; the answer shows what one looks like.
// Covers S93.
#[test]
fn malformed_body_error_shows_an_example() {
    let text = "{\n  { \"name\": \"cpus\" },\n  { \"name\": \"mem\" },\n}";
    let error = parse_resources(text).unwrap_err();
    assert_eq!(error.position, Some(5));
    assert!(
        error
            .to_string()
            .contains(r#"expected JSON like [{"name":"cpus","type":"SCALAR""#),
        "{error}"
    );
}

/// S37: an object where a list is meant, a bare value where an object is meant.
#[test]
fn sloppy_forms_are_understood() {
    let expected = parse("cpus(ads):4.5;ports:[1-2];bugs:{a}");
    let sloppy = r#"[
        {"name":"cpus","scalar":"4.5","reservations":{"type":"static","role":"ads"}},
        {"name":"ports","type":"ranges","ranges":{"begin":"1","end":2}},
        {"name":{"value":"bugs"},"type":"SET","set":["a"],"role":null}
    ]"#;
    assert_eq!(parse(sloppy), expected);
    assert_eq!(
        parse(r#"{"name":"ports","ranges":"[1-2]"}"#),
        expected.filter(|own| own.is(&Name::Ports))
    );
    assert_eq!(parse("[]"), Resources::new());
}

#[test]
fn json_errors_contain_the_path() {
    let table = r#"
        [{}] | [0] is `{}`: expected an object with the field `name`
        [7] | [0] is `7`: expected an object
        [{"name":"cpus"}] | [0] is `{"name":"cpus"}`: expected just one of the fields `scalar`, `ranges` and `set`
        [{"name":"cpus","type":"TEXT"}] | [0].type is `"TEXT"`: expected SCALAR, RANGES or SET
        [{"name":"a"}, {"name":"cpus","type":"SCALAR","scalar":{"value":-1}}] | [0] is `{"name":"a"}`
        [{"name":"cpus","type":"SCALAR","scalar":{"value":-1}}] | [0].scalar.value is `-1`: expected a number from 0
        [{"name":"gpus","type":"SCALAR","scalar":{"value":0.5}}] | [0].gpus is `0.5`: expected a whole number
        [{"name":"ports","ranges":{"range":[{"begin":2,"end":1}]}}] | [0].ranges.range[0] is `{"begin":2,"end":1}`: expected a begin
        [{"name":"cpus","scalar":1,"role":"a//b"}] | [0].role is `"a//b"`: expected `*`, or components
        [{"name":"cpus","scalar":1,"role":"*","reservation":{}}] | [0].reservation is `{}`: expected no reservation for the role `*`
        [{"name":"cpus","scalar":1,"reservations":[{"role":"a"}]}] | [0].reservations[0] is `{"role":"a"}`: expected an object with the field `type`
        [{"name":"cpus","scalar":1,"reservations":[{"type":"STATIC","role":"a"},{"type":"DYNAMIC","role":"b"}]}] | [0].reservations[1].role is `b`: expected a role strictly below `a`, which it refines
        [{"name":"cpus","scalar":1,"reservations":[{"type":"DYNAMIC","role":"a"},{"type":"STATIC","role":"a/b"}]}] | [0].reservations[1].type is `STATIC`: expected DYNAMIC: only the bottom may be static
        [{"name":"mem","scalar":1,"disk":{}}] | [0].disk is `mem`: expected disk information on `disk` resources only
        [{"name":"disk","scalar":1,"shared":{}}] | [0].shared is `set`: expected a persistent volume
        [{"name":"disk","scalar":1,"disk":{"persistence":{"id":"a/b"}}}] | [0].disk.persistence.id is `a/b`: expected 1 to 255
        [{"name":"disk","scalar":1,"disk":{"source":{"type":"NFS"}}}] | [0].disk.source.type is `"NFS"`: expected PATH, MOUNT, BLOCK or RAW
    "#;
    for row in table.trim().lines() {
        let (text, said) = row.trim().split_once(" | ").unwrap();
        let error = parse_resources(text).unwrap_err();
        assert_eq!(error.position, None);
        assert!(
            error.to_string().starts_with(said),
            "{text}\n  {error}\n  {said}"
        );
    }
}

#[test]
fn refined_reservation_has_the_new_form_only() {
    let refined = parse("cpus(eng):1")
        .push_reservation(&Reservation::dynamic(role("eng/web"), None))
        .unwrap();
    let expected = json!([{ "name": "cpus", "type": "SCALAR", "scalar": { "value": 1.0 }, "reservations": [
        { "type": "STATIC", "role": "eng" }, { "type": "DYNAMIC", "role": "eng/web" }] }]);
    assert_eq!(written(&refined), expected);
}

/// SPEC 3.5: shared ones are counted copies; a volume neither merges nor splits.
#[test]
fn volumes_are_counted_and_indivisible() {
    let two = volume(1, true) + volume(1, true);
    assert_eq!(two, volume(2, true));
    assert_eq!((two.len(), two.disk()), (1, Scalar::whole(100)));
    assert!(two.contains(&volume(2, true)) && !two.contains(&volume(3, true)));
    assert_eq!(two.checked_sub(&volume(1, true)).unwrap(), volume(1, true));
    assert_eq!(json::resources_from(&written(&two)).unwrap(), two);
    let whole = volume(1, false);
    assert!(
        !whole.contains(
            &whole
                .iter()
                .map(|own| {
                    let mut own = own.clone();
                    assert!(!own.shrink(Scalar::whole(50)));
                    Resource::annotated(Name::Disk, Scalar::whole(50), own.annotations().clone())
                        .unwrap()
                })
                .collect()
        )
    );
    assert_eq!(whole.persistent_volumes(), whole);
    assert!(whole.to_revocable(Revocable::Throttleable).is_err());
}

/// SPEC 3.12: the flat form of the v0 endpoints.
#[test]
fn v0_object_has_all_amounts_and_revocable_suffixes() {
    let slack = parse("cpus:14")
        .to_revocable(Revocable::NonThrottleable)
        .unwrap();
    let pool = parse("cpus:4;cpus(ads):8;mem:2048;ports:[31000-32000];ports(ads):[1-2];bugs:{a,b}")
        + slack;
    assert_eq!(
        Value::Object(resources_object(&pool)),
        json!({
            "cpus": 12.0, "gpus": 0.0, "mem": 2048.0, "disk": 0.0, "ports": "[1-2,31000-32000]",
            "bugs": "{a,b}", "cpus_revocable": 14.0,
        })
    );
    let attributes = Attributes::parse("rack:rack-2;level:3").unwrap();
    assert_eq!(
        Value::Object(attributes_object(&attributes)),
        json!({ "rack": "rack-2", "level": 3.0 })
    );
}

#[test]
fn attributes_and_quantities_have_json_forms() {
    let attributes = Attributes::parse("rack:rack-2;level:3;ports:[1-2];bugs:{a}").unwrap();
    let text = serde_json::to_value(json::Attributes(attributes.clone())).unwrap();
    assert_eq!(
        text[0],
        json!({ "name": "rack", "type": "TEXT", "text": { "value": "rack-2" } })
    );
    assert_eq!(json::attributes_from(&text).unwrap(), attributes);
    let quota: json::Quantities =
        serde_json::from_value(json!({ "mem": 5, "cpus": { "value": 1.5 } })).unwrap();
    assert_eq!(quota.0.to_string(), "cpus:1.5;mem:5");
    assert_eq!(
        serde_json::to_string(&quota).unwrap(),
        r#"{"cpus":{"value":1.5},"mem":{"value":5.0}}"#
    );
    let odd = Attributes::parse(r#"[{"name":"a","type":"TEXT","text":{"value":"x;y"}}]"#).unwrap();
    assert_eq!(Attributes::parse(&odd.to_string()).unwrap(), odd);
}

/// A released wire form never changes: these bytes are what peers and stores hold.
#[test]
fn the_wire_form_has_not_changed() {
    let encode =
        |all: &Resources| bincode::serde::encode_to_vec(all, bincode::config::standard()).unwrap();
    let mut golden = vec![2, 4];
    golden.extend(b"cpus");
    // 2000 thousandths, zigzag; one copy; no annotations
    golden.extend([0, 251, 0xa0, 0x0f, 1, 0, 5]);
    golden.extend(b"ports");
    golden.extend([1, 1, 10, 20, 1, 0]); // one range
    assert_eq!(encode(&parse("cpus:2;ports:[10-20]")), golden);
    let reserved = encode(&parse("mem(ads):1"));
    let mut golden = vec![1, 3];
    golden.extend(b"mem");
    // annotated; one static reservation
    golden.extend([0, 251, 0xd0, 0x07, 1, 1, 0, 0, 0, 1, 0, 3]);
    golden.extend(b"ads");
    golden.extend([0, 0, 0, 0, 0]);
    assert_eq!(reserved, golden);
    let label = |key: &str, value: Option<&str>| Label {
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    let mut entry = Reservation::dynamic(Role::new("ads").unwrap(), Some("ops"));
    entry.labels = Labels::new(vec![label("b", None), label("a", Some("x"))]);
    let labelled = encode(&parse("mem:1").push_reservation(&entry).unwrap());
    let mut golden = vec![1, 3];
    golden.extend(b"mem");
    golden.extend([0, 251, 0xd0, 0x07, 1, 1, 0, 0, 0, 1, 1, 3]); // a dynamic one
    golden.extend(b"ads");
    golden.extend([1, 3]);
    golden.extend(b"ops");
    golden.extend([2, 1, b'a', 1, 1, b'x', 1, b'b', 0, 0, 0, 0]); // its labels, in order
    assert_eq!(labelled, golden);
}

/// Invalid resources are rejected on the wire too.
#[test]
fn the_wire_refuses_what_is_invalid() {
    #[derive(serde::Serialize)]
    struct Raw<'a>(&'a str, Kind, u32, Option<Annotations>);
    #[derive(serde::Serialize)]
    enum Kind {
        Scalar(i64),
    }
    let read = |raw: Raw| {
        let bytes =
            bincode::serde::encode_to_vec([raw].as_slice(), bincode::config::standard()).unwrap();
        bincode::serde::decode_from_slice::<Resources, _>(&bytes, bincode::config::standard())
            .map(|read| read.0)
    };
    assert_eq!(
        read(Raw("cpus", Kind::Scalar(1000), 1, None)).unwrap(),
        parse("cpus:1")
    );
    let star = Reservation {
        kind: ReservationKind::Static,
        ..Reservation::fixed(Role::STAR)
    };
    let notes = Annotations {
        reservations: vec![star],
        ..Annotations::default()
    };
    for bad in [
        Raw("cpus", Kind::Scalar(-1), 1, None),
        Raw("ports", Kind::Scalar(1), 1, None),
        Raw("gpus", Kind::Scalar(500), 1, None),
        Raw("cpus", Kind::Scalar(1), 2, None),
        Raw("cpus", Kind::Scalar(1), 0, None),
        Raw("a b", Kind::Scalar(1), 1, None),
        Raw("cpus", Kind::Scalar(1), 1, Some(notes)),
    ] {
        assert!(read(bad).is_err());
    }
}
