//! The decisions of ACLs, and their parser.

use proptest::prelude::*;
use testkit::rows;

use super::*;

fn subject(principal: Option<&str>) -> Subject {
    principal.map_or_else(Subject::default, Subject::named)
}

/// Whether each `principal action object` is allowed; `-` is no principal or no name.
#[track_caller]
fn check(acls: &str, cases: &[(&str, bool)]) {
    let acls = Acls::parse(acls).unwrap();
    for (case, expected) in cases {
        let words: Vec<&str> = case.split(' ').collect();
        let [principal, action, object] = words[..] else {
            panic!("{case}")
        };
        let (principal, object) = (
            Some(principal).filter(|p| *p != "-"),
            Some(object).filter(|o| *o != "-"),
        );
        let action = Action::named(action).unwrap();
        let subject = subject(principal);
        assert_eq!(acls.allows(&subject, action, object), *expected, "{case}");
        assert_eq!(
            acls.approver(&subject, action).allows(object),
            *expected,
            "{case}, compiled"
        );
        assert_eq!(
            acls.check(&subject, action, object).is_ok(),
            *expected,
            "{case}, checked"
        );
    }
}

/// SPEC 3.7: every name, both ways.
#[test]
fn named_principals_are_allowed_and_others_denied() {
    assert_eq!(Action::ALL.len(), 54);
    for action in Action::ALL {
        let (name, key) = (action.name(), action.object());
        assert_eq!(Action::named(name), Some(*action));
        let object = match (key, action.has_names()) {
            (_, false) => None,
            ("paths", _) => Some("/one"),
            _ => Some("one"),
        };
        let (one, none) = match object {
            Some(object) => (
                format!(r#"{{"values":["{object}"]}}"#),
                r#"{"type":"NONE"}"#,
            ),
            None => (r#"{"type":"ANY"}"#.to_owned(), r#"{"type":"ANY"}"#),
        };
        let text = format!(
            r#"{{"{name}":[{{"principals":{{"values":["ops"]}},"{key}":{one}}},
                {{"principals":{{"type":"NONE"}},"{key}":{{"type":"ANY"}}}}]}}"#
        );
        let acls = Acls::parse(&text).unwrap();
        assert!(
            acls.allows(&Subject::named("ops"), *action, object),
            "{name}"
        );
        assert!(
            !acls.allows(&Subject::named("web"), *action, object),
            "{name}"
        );
        assert!(!acls.allows(&Subject::default(), *action, object), "{name}");
        if object.is_some() {
            assert!(
                !acls.allows(&Subject::named("ops"), *action, "other"),
                "{name}"
            );
        }
        // No other action is affected, and with a denying default nothing else is allowed.
        let others = Action::ALL.iter().filter(|other| *other != action);
        for other in others {
            assert!(acls.allows(&Subject::default(), *other, None));
            assert!(
                !acls
                    .clone()
                    .denying()
                    .allows(&Subject::named("ops"), *other, None)
            );
        }
        let denied = format!(
            r#"{{"{name}":[{{"principals":{{"type":"ANY"}},"{key}":{{"type":"NONE"}}}}]}}"#
        );
        assert!(
            !Acls::parse(&denied)
                .unwrap()
                .allows(&Subject::named("ops"), *action, object)
        );
        let wrong = format!(r#"{{"{name}":[{{"principals":{{"type":"ANY"}},"things":{none}}}]}}"#);
        let problem = Acls::parse(&wrong).unwrap_err().to_string();
        assert!(
            problem.contains("things") && problem.contains(key),
            "{problem}"
        );
        if !action.has_names() {
            let named = format!(
                r#"{{"{name}":[{{"principals":{{"type":"ANY"}},"{key}":{{"values":["one"]}}}}]}}"#
            );
            let problem = Acls::parse(&named).unwrap_err().to_string();
            assert!(problem.contains("as a whole"), "{problem}");
        }
    }
}

/// SPEC 3.7.
#[test]
fn first_matching_rule_decides_else_permissive() {
    let rules = r#""run_tasks":[
        {"principals":{"values":["foo","bar"]},"users":{"values":["alice"]}},
        {"principals":{"values":["foo"]},"users":{"type":"NONE"}},
        {"principals":{"type":"ANY"},"users":{"values":["guest"]}},
        {"principals":{"type":"NONE"},"users":{"values":["root"]}}]"#;
    let both = [
        ("foo run_tasks alice", true),
        ("foo run_tasks guest", false),
        ("bar run_tasks guest", true),
        ("- run_tasks guest", true),
        ("bar run_tasks root", false),
        ("- run_tasks root", false),
        ("foo run_tasks -", false),
    ];
    check(&format!("{{{rules}}}"), &both);
    check(&format!(r#"{{"permissive":false,{rules}}}"#), &both);
    let open = [
        ("bar run_tasks bob", true),
        ("- run_tasks alice", true),
        ("bar run_tasks -", true),
    ];
    check(&format!(r#"{{"permissive":true,{rules}}}"#), &open);
    let closed = open.map(|(case, _)| (case, false));
    check(&format!(r#"{{"permissive":false,{rules}}}"#), &closed);
}

/// SPEC 3.7: `/%` is all descendants.
#[test]
fn percent_sign_matches_child_roles_only() {
    check(
        r#"{"permissive":false,"register_frameworks":[{"principals":{"values":["p"]},"roles":{"values":["eng/%","ads","a/b/%"]}}]}"#,
        &[
            ("p register_frameworks eng", false),
            ("p register_frameworks eng/dev", true),
            ("p register_frameworks eng/dev/x", true),
            ("p register_frameworks english", false),
            ("p register_frameworks ads", true),
            ("p register_frameworks ads/x", false),
            ("p register_frameworks a/b", false),
            ("p register_frameworks a/b/c", true),
            ("p register_frameworks a/c", false),
        ],
    );
}

#[test]
fn ambiguous_acls_are_refused_by_path() {
    for [text, field, words] in rows(
        r#"
        [] | acls | an object
        { | acls | cut off
        {"permissive":1} | acls.permissive | true or false
        {"run_task":[]} | acls | `run_tasks`
        {"shutdown_frameworks":[]} | acls | `teardown_frameworks`
        {"run_tasks":{}} | acls.run_tasks | a list
        {"run_tasks":[],"run_tasks":[]} | acls | comes twice
        {"run_tasks":[{}]} | acls.run_tasks[0].principals | absent
        {"run_tasks":[{"principals":{"type":"ANY"}}]} | acls.run_tasks[0].users | absent
        {"run_tasks":[{"principals":{"type":"ALL"},"users":{"type":"ANY"}}]} | acls.run_tasks[0].principals.type | ALL
        {"run_tasks":[{"principals":{},"users":{"type":"ANY"}}]} | acls.run_tasks[0].principals | without values
        {"run_tasks":[{"principals":{"values":["a",1]},"users":{"type":"ANY"}}]} | acls.run_tasks[0].principals.values[1] | a text
        {"run_tasks":[{"principals":{"type":"ANY","values":["a"]},"users":{"type":"ANY"}}]} | acls.run_tasks[0].principals | both
        {"view_roles":[{"principals":{"type":"ANY"},"roles":{"values":["a/%/b"]}}]} | acls.view_roles[0].roles.values | ROLE/%
        {"view_roles":[{"principals":{"type":"ANY"},"roles":{"values":["%"]}}]} | acls.view_roles[0].roles.values | ROLE/%
        {"get_endpoints":[{"principals":{"type":"ANY"},"paths":{"values":["metrics"]}}]} | acls.get_endpoints[0].paths.values | a path
    "#,
    ) {
        let invalid = Acls::parse(text).unwrap_err();
        let shown = invalid.to_string();
        assert_eq!(invalid.field, field, "{text}: {shown}");
        assert!(shown.contains(words), "{text}: {shown}");
    }
}

#[test]
fn whoever_may_not_is_told_what_and_to_what() {
    let acls = Acls::default().denying();
    let forbidden = acls
        .check(&Subject::named("web"), Action::RunTasks, "root")
        .unwrap_err();
    assert_eq!(
        forbidden.to_string(),
        "principal is `web`: expected one that may run_tasks (users: `root`)"
    );
    let forbidden = acls
        .check(&Subject::default(), Action::ViewFlags, None)
        .unwrap_err();
    assert_eq!(
        forbidden.to_string(),
        "principal is `absent`: expected one that may view_flags"
    );
}

/// Long caller input is quoted as an excerpt.
#[test]
fn what_is_forbidden_is_told_by_an_excerpt() {
    let role = format!("a\n{}", "r".repeat(1 << 20));
    let acls = Acls::default().denying();
    let forbidden = acls.check(&subject(Some("p")), Action::UpdateQuotas, role.as_str());
    let cut = "r".repeat(77); // Escapes count at their printed length.
    assert_eq!(
        forbidden.unwrap_err().to_string(),
        format!(r"principal is `p`: expected one that may update_quotas (roles: `a\n{cut}...`)")
    );
    let short = acls.check(&subject(None), Action::UpdateQuotas, "eng");
    assert_eq!(
        short.unwrap_err().to_string(),
        "principal is `absent`: expected one that may update_quotas (roles: `eng`)"
    );
}

fn some_entity() -> impl Strategy<Value = Entity> {
    let names = prop::sample::subsequence(vec!["a", "a/%", "a/b", "b", "b/%"], 0..4);
    prop_oneof![
        Just(Entity::Any),
        Just(Entity::None),
        names.prop_map(|names| Entity::Some(names.into_iter().map(str::to_owned).collect())),
    ]
}

fn some_acls() -> impl Strategy<Value = Acls> {
    let rule = (some_entity(), some_entity()).prop_map(|(principals, objects)| Rule {
        principals,
        objects: Arc::new(objects),
    });
    (any::<bool>(), prop::collection::vec(rule, 0..5)).prop_map(|(permissive, rules)| Acls {
        permissive,
        rules: [(Action::ViewRoles, rules)].into(),
    })
}

/// Mesos' own definition: a request for ANY matches only ANY and NONE, and only ANY allows it.
fn by_the_book(acls: &Acls, principal: Option<&str>, object: Option<&str>) -> bool {
    let one = |entity: &Entity, name: Option<&str>, roles: bool| match (entity, name) {
        (Entity::Any, _) => (true, true),
        (Entity::None, _) => (true, false),
        (Entity::Some(_), None) => (false, false),
        (Entity::Some(names), Some(name)) => {
            let is = names.iter().any(|known| match known.strip_suffix('%') {
                Some(above) if roles => name.starts_with(above) && name.len() > above.len(),
                _ => known == name,
            });
            (is, is)
        }
    };
    for rule in acls.rules.values().flatten() {
        let (who, allowed) = one(&rule.principals, principal, false);
        let (what, allows) = one(&rule.objects, object, true);
        if who && what {
            return allowed && allows;
        }
    }
    acls.permissive
}

proptest! {
    /// SPEC 3.7.
    #[test]
    fn decided_compiled_and_by_the_book_are_the_same(
        acls in some_acls(),
        principal in prop::option::of(prop::sample::select(vec!["a", "b", "a/%"])),
        object in prop::option::of(prop::sample::select(vec!["a", "a/b", "a/b/c", "b", "b/x", "ab", "c"])),
    ) {
        let subject = subject(principal);
        let decided = acls.allows(&subject, Action::ViewRoles, object);
        prop_assert_eq!(decided, by_the_book(&acls, principal, object));
        let approver = acls.approver(&subject, Action::ViewRoles);
        prop_assert_eq!(decided, approver.allows(object));
        prop_assert!(decided || !approver.allows_all());
    }
}
