//! Authorization of containers.

use super::*;

/// SPEC 3.7: `view_containers`.
#[test]
fn containers_are_filtered_by_view_containers_alone() {
    let bob = Subject::named("bob");
    let rule =
        |principals: Value, users: Value| json!([{"principals": principals, "users": users}]);
    let none = |action: &str| {
        let nobody = rule(json!({"type": "ANY"}), json!({"type": "NONE"}));
        json!({ "permissive": true, action: nobody }).to_string()
    };
    let only = |user: &str| {
        let own = rule(json!({"values": ["bob"]}), json!({"values": [user]}));
        json!({ "permissive": false, "view_containers": own }).to_string()
    };
    let seen = |acls: &str| {
        let acls = Acls::parse(acls).unwrap();
        let survey = visibility::visible_containers(history::survey_with_history(), &acls, &bob);
        (survey.containers.len(), survey.completed.len())
    };
    assert_eq!(seen("{}"), (3, 2));
    assert_eq!(seen(&none("view_containers")), (0, 0));
    assert_eq!(seen(&only("alice")), (3, 1));
    assert_eq!(seen(&only("carol")), (0, 1));
    for other in ["view_frameworks", "view_executors", "view_tasks"] {
        assert_eq!(seen(&none(other)), (3, 2), "{other}");
    }
}
