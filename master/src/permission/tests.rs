//! The rules that apply to each action.

use protocol::{CommandInfo, ExecutorInfo};
use resources::Resources;

use super::*;

fn acls(action: Action, names: &str) -> Arc<Acls> {
    let (name, key) = (action.name(), action.object());
    let text = format!(
        r#"{{"permissive":false,"{name}":[{{"principals":{{"values":["p"]}},"{key}":{names}}}]}}"#
    );
    Arc::new(Acls::parse(&text).unwrap())
}

/// `p` may do it where a rule names the object, others may not, and a rule of another object does
/// not help.
#[track_caller]
fn check(action: Action, object: &str, act: impl Fn(&Caller) -> Result<(), Forbidden>) {
    let caller =
        |names: &str, principal: &str| Caller::new(&acls(action, names), Subject::named(principal));
    let (this, other) = (
        format!(r#"{{"values":["{object}"]}}"#),
        r#"{"values":["x"]}"#,
    );
    assert_eq!(act(&caller(&this, "p")), Ok(()), "{action:?}");
    assert!(act(&caller(&this, "q")).is_err(), "{action:?}");
    let forbidden = act(&caller(other, "p")).unwrap_err();
    assert_eq!(
        (forbidden.action, forbidden.object.as_deref()),
        (action, Some(object))
    );
    assert_eq!(
        act(&Caller::default()),
        Ok(()),
        "nothing is chosen: {action:?}"
    );
}

fn parsed(json: &str) -> Resources {
    resources::json::parse_resources(json).unwrap()
}

/// SPEC 3.7.
#[test]
fn conversions_are_authorized_by_roles_or_creators() {
    let reserved = parsed(
        r#"[{"name":"cpus","type":"SCALAR","scalar":{"value":1},
            "reservations":[{"type":"STATIC","role":"eng"},{"type":"DYNAMIC","role":"eng/dev","principal":"maker"}]}]"#,
    );
    let volume = parsed(
        r#"[{"name":"disk","type":"SCALAR","scalar":{"value":9},
            "reservations":[{"type":"DYNAMIC","role":"eng/dev","principal":"maker"}],
            "disk":{"persistence":{"id":"v","principal":"creator"},"volume":{"container_path":"a","mode":"RW"}}}]"#,
    );
    let resources = || reserved.clone();
    let volumes = || volume.clone();
    let one = || volume.iter().next().unwrap().clone();
    let subtract = one().amount().unwrap();
    for (action, object, conversion) in [
        (
            Action::ReserveResources,
            "eng/dev",
            Conversion::Reserve {
                resources: resources(),
            },
        ),
        (
            Action::UnreserveResources,
            "maker",
            Conversion::Unreserve {
                resources: resources(),
            },
        ),
        (
            Action::CreateVolumes,
            "eng/dev",
            Conversion::Create { volumes: volumes() },
        ),
        (
            Action::DestroyVolumes,
            "creator",
            Conversion::Destroy { volumes: volumes() },
        ),
        (
            Action::ResizeVolumes,
            "eng/dev",
            Conversion::GrowVolume {
                volume: one(),
                addition: one(),
            },
        ),
        (
            Action::ResizeVolumes,
            "eng/dev",
            Conversion::ShrinkVolume {
                volume: one(),
                subtract,
            },
        ),
    ] {
        check(action, object, |caller| caller.allowed(&conversion));
    }
    // Its creator is unknown: only a rule about any creator applies.
    let resources = parsed(
        r#"[{"name":"cpus","type":"SCALAR","scalar":{"value":1},"reservations":[{"type":"DYNAMIC","role":"eng"}]}]"#,
    );
    let unreserve = Conversion::Unreserve { resources };
    let may = |names: &str| {
        let acls = acls(Action::UnreserveResources, names);
        Caller::new(&acls, Subject::named("p"))
            .convert(&unreserve)
            .is_ok()
    };
    assert!(may(r#"{"type":"ANY"}"#) && !may(r#"{"values":["maker"]}"#));
}

/// SPEC 3.5.
#[test]
fn proved_principal_reserves_only_under_its_name() {
    let signed = |principal: &str| {
        parsed(&format!(
            r#"[{{"name":"disk","type":"SCALAR","scalar":{{"value":9}},
                "reservations":[{{"type":"DYNAMIC","role":"eng","principal":"x"}},{{"type":"DYNAMIC","role":"eng/dev"{principal}}}],
                "disk":{{"persistence":{{"id":"v"{principal}}},"volume":{{"container_path":"a","mode":"RW"}}}}}}]"#
        ))
    };
    let (own, other, none) = (r#","principal":"p""#, r#","principal":"q""#, "");
    let named = Caller::new(&Arc::default(), Subject::named("p"));
    let unnamed = Caller::new(&Arc::default(), Subject::named("operator-77"));
    for (principal, may) in [(own, true), (other, false), (none, false)] {
        let resources = signed(principal);
        let volumes = resources.clone();
        for conversion in [
            Conversion::Reserve { resources },
            Conversion::Create { volumes },
        ] {
            let done = named.convert(&conversion);
            assert_eq!(done.is_ok(), may, "{done:?}");
            // Nothing is proved, so any name will do, as in Mesos.
            assert_eq!(Caller::default().convert(&conversion), Ok(()));
            assert_eq!(unnamed.convert(&conversion).is_ok(), principal == none);
            assert_eq!(named.allowed(&conversion), Ok(()));
        }
        let volumes = signed(principal);
        assert_eq!(named.convert(&Conversion::Destroy { volumes }), Ok(()));
    }
    let resources = signed(other);
    let refused = named.convert(&Conversion::Reserve { resources });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "principal is `p`: expected one that may reserve_resources (roles: `eng/dev in the name of q`)"
    );
    let volumes = signed(none);
    let refused = named.convert(&Conversion::Create { volumes });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "principal is `p`: expected one that may create_volumes (roles: `eng/dev in the name of nobody`)"
    );
}

/// SPEC 3.7.
#[test]
fn actions_are_authorized_by_roles_users_and_principals() {
    let mut framework = FrameworkInfo::new("web", "name");
    framework.principal = Some("shop".to_owned());
    framework.roles = ["eng".to_owned()].into();
    check(Action::RegisterFrameworks, "eng", |caller| {
        caller.register(&framework.roles)
    });
    check(Action::TeardownFrameworks, "shop", |caller| {
        caller.tear_down(&framework)
    });
    check(Action::UpdateQuotas, "eng", |caller| {
        caller.update_quotas(&UpdateQuotas {
            quotas: [("eng".to_owned(), Default::default())].into(),
            force: false,
        })
    });
    check(Action::UpdateWeights, "eng", |caller| {
        caller.update_weights(&UpdateWeights {
            weights: [("eng".to_owned(), 2.0)].into(),
        })
    });
    let mut task = TaskInfo {
        name: String::new(),
        ..TaskInfo::new(
            "t".parse().unwrap(),
            "a".parse().unwrap(),
            Resources::default(),
        )
        .with_command(CommandInfo::shell("true"))
    };
    check(Action::RunTasks, "web", |caller| {
        caller.run(&task, &framework)
    });
    let command = CommandInfo {
        user: Some("alice".to_owned()),
        ..CommandInfo::shell("true")
    };
    task.command = None;
    task.executor = Some(ExecutorInfo::new(
        "e".parse().unwrap(),
        command,
        Resources::default(),
    ));
    check(Action::RunTasks, "alice", |caller| {
        caller.run(&task, &framework)
    });
}
