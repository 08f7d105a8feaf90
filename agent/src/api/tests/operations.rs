//! Authorization of operations.

use super::*;

fn operation(framework: &str, conversion: Option<Conversion>) -> KnownOperation {
    let id = OperationId::new("op").unwrap();
    KnownOperation {
        update: OperationUpdate {
            framework_id: FrameworkId::new(framework).unwrap(),
            status: OperationStatus::new(id, OperationState::Finished, ""),
        },
        conversion,
    }
}

/// SPEC 2.7: GET_OPERATIONS; 3.7.
#[test]
fn operations_are_filtered_by_framework_and_role() {
    let reserve = |role: &str| {
        let entry = Reservation::dynamic(Role::new(role).unwrap(), None);
        let resources = resources("cpus:1").push_reservation(&entry).unwrap();
        Some(Conversion::Reserve { resources })
    };
    let known = || {
        vec![
            operation("f", reserve("ads")),
            operation("f", reserve("dev")),
            operation("f", None),
            operation("its framework is unknown", reserve("ads")),
        ]
    };
    let json = json_of(&answers::operations(&known()));
    let first = &json["operations"][0];
    assert_eq!(first["framework_id"]["value"], "f");
    assert_eq!(first["info"]["type"], "RESERVE");
    assert_eq!(first["info"]["id"]["value"], "op");
    let reserved = &first["info"]["reserve"]["resources"][0];
    assert_eq!(reserved["reservations"][0]["role"], "ads");
    assert_eq!(first["latest_status"]["state"], "OPERATION_FINISHED");
    assert!(json["operations"][2]["info"].get("type").is_none());

    let bob = Subject::named("bob");
    let check = |acls: &str, expected: &[usize]| {
        let acls = Acls::parse(acls).unwrap();
        let seen = visibility::visible_operations(known(), &survey(), &acls, &bob);
        let expected: Vec<_> = expected
            .iter()
            .map(|one| known().swap_remove(*one))
            .collect();
        assert_eq!(seen, expected, "{acls:?}");
    };
    check("{}", &[0, 1, 2, 3]);
    let only = |action: &str, object: &str, value: &str| {
        let (one, others) = (
            format!(r#"{{"principals":{{"values":["bob"]}},"{object}":{{"values":["{value}"]}}}}"#),
            format!(r#"{{"principals":{{"type":"ANY"}},"{object}":{{"type":"NONE"}}}}"#),
        );
        format!(r#"{{"{action}":[{one},{others}]}}"#)
    };
    check(&only("view_roles", "roles", "ads"), &[0, 3]);
    check(&only("view_frameworks", "users", "alice"), &[0, 1, 2]);
    check(&only("view_frameworks", "users", "carol"), &[]);
}
