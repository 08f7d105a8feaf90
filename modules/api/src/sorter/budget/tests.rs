//! Tests of budgets, with tables of a few roles.

use super::*;

fn quantities(text: &str) -> Quantities {
    Quantities::parse(text).unwrap()
}

fn role(text: &str) -> Role {
    Role::new(text).unwrap()
}

/// Budgets as `role limits unmet`, and the free resources of the cluster.
fn budgets(headroom: &str, table: &[(&str, &str, &str)]) -> Budgets {
    let table = table.iter().map(|(name, left, unmet)| Budget {
        role: role(name),
        left: quantities(left),
        unmet: quantities(unmet),
    });
    let mut budgets = Budgets::new(table.collect());
    budgets.set_headroom(quantities(headroom));
    budgets
}

fn free(text: &str) -> Room {
    Room {
        free: quantities(text),
        reserved: Vec::new(),
    }
}

fn given(budgets: &mut Budgets, stage: Stage, name: &str, room: &mut Room) -> String {
    let role = role(name);
    let index = budgets.find(&role);
    let amount = budgets.amount(stage, index, &role, None, room);
    let taken = budgets.take(stage, index, &role, None, room);
    assert_eq!(amount, taken);
    let some = taken.iter().filter(|(_, amount)| !amount.is_zero());
    let some = some.map(|(name, amount)| (name.clone(), amount));
    some.collect::<Quantities>().to_string()
}

/// SPEC 4.5, 4.10 (NestedRoleQuota).
#[test]
fn a_limit_holds_for_the_role_and_all_below_it() {
    let mut all = budgets(
        "cpus:9",
        &[("a", "cpus:4", ""), ("a/b", "cpus:3;mem:0", "")],
    );
    let mut room = free("cpus:9;mem:9;disk:9");
    assert_eq!(
        given(&mut all, Stage::Fair, "a/b/c", &mut room),
        "cpus:3;disk:9"
    );
    assert_eq!(
        given(&mut all, Stage::Fair, "a/x", &mut room),
        "cpus:1;mem:9"
    );
    assert_eq!(given(&mut all, Stage::Fair, "a", &mut room), "");
    assert_eq!(given(&mut all, Stage::Fair, "ab", &mut room), "cpus:5");
    let sets = [quantities("cpus:0.01")];
    assert!(!all.may_give(all.find(&role("a/y")), &sets));
    assert!(all.may_give(all.find(&role("b")), &sets));
}

/// SPEC 4.5: unmet guarantees stay free.
#[test]
fn guarantee_is_met_first_and_its_rest_stays_free() {
    let mut all = budgets(
        "cpus:10;mem:10",
        &[("a", "", "cpus:4"), ("b", "cpus:3", "cpus:2")],
    );
    let mut room = free("cpus:3;mem:5");
    // Of ten cpus, six are required: others may have four, whatever room they come from.
    assert_eq!(given(&mut all, Stage::Guarantees, "c", &mut room), "");
    assert_eq!(
        given(&mut all, Stage::Guarantees, "b", &mut room),
        "cpus:3;mem:5"
    );
    assert_eq!(all.required(), &quantities("cpus:4"));
    let mut room = free("cpus:7");
    assert_eq!(given(&mut all, Stage::Fair, "c", &mut room), "cpus:3");
    assert_eq!(given(&mut all, Stage::Fair, "c", &mut room), "");
    assert_eq!(given(&mut all, Stage::Guarantees, "a", &mut room), "cpus:4");
    assert!(all.required().is_empty() && all.headroom().get(&Name::Cpus).is_zero());
}

#[test]
fn parent_guarantee_leaves_child_guarantees() {
    let table = [
        ("a", "", "cpus:10"),
        ("a/b", "", "cpus:4"),
        ("a/c", "", "cpus:4"),
    ];
    let mut all = budgets("cpus:10", &table);
    assert_eq!(all.required(), &quantities("cpus:10"));
    let lacking = |name: &str| {
        let chain = all.chain(all.find(&role(name)));
        let levels = chain.map(|(index, _)| all.levels[index as usize].lacking(&Name::Cpus));
        levels.sum::<Scalar>()
    };
    assert_eq!(lacking("a/b"), Scalar::whole(6));
    assert_eq!(lacking("a/x"), Scalar::whole(2));
    assert!(all.lacks(all.find(&role("a/x")), &Name::Cpus));
    assert!(!all.lacks(all.find(&role("a/x")), &Name::Mem));
    let mut room = free("cpus:10");
    assert_eq!(
        given(&mut all, Stage::Guarantees, "a/b", &mut room),
        "cpus:6"
    );
    assert_eq!(all.required(), &quantities("cpus:4"));
    assert!(!all.is_needy(all.find(&role("a"))) && all.is_needy(all.find(&role("a/c"))));
    assert_eq!(
        given(&mut all, Stage::Guarantees, "a/c", &mut room),
        "cpus:4"
    );
}

/// A guarantee beyond the limit of a role above keeps nothing free: the role could never get it.
#[test]
fn guarantee_beyond_a_parent_limit_keeps_nothing_free() {
    let table = [("a", "cpus:1", ""), ("a/b", "", "cpus:4;mem:8")];
    let mut all = budgets("cpus:10;mem:10", &table);
    assert_eq!(all.required(), &quantities("cpus:1;mem:8"));
    let mut room = free("cpus:10;mem:10");
    assert_eq!(given(&mut all, Stage::Fair, "c", &mut room), "cpus:9;mem:2");
    assert_eq!(
        given(&mut all, Stage::Guarantees, "a/b", &mut room),
        "cpus:1;mem:8"
    );
    assert!(all.required().is_empty());
    // The limit is raised, so the guarantee is kept free again.
    all.set(0, quantities("cpus:3"), quantities(""));
    assert_eq!(all.required(), &quantities("cpus:3"));
}

/// Under a common limit, a role leaves its siblings' unmet guarantees free.
#[test]
fn limit_keeps_room_for_child_guarantees() {
    let table = [
        ("a", "cpus:6", ""),
        ("a/b", "", "cpus:4"),
        ("a/c", "cpus:5", ""),
    ];
    let mut all = budgets("cpus:20", &table);
    let mut room = free("cpus:20");
    assert_eq!(given(&mut all, Stage::Fair, "a/c", &mut room), "cpus:2");
    assert_eq!(given(&mut all, Stage::Fair, "a", &mut room), "");
    assert_eq!(
        given(&mut all, Stage::Guarantees, "a/b", &mut room),
        "cpus:4"
    );
    assert_eq!(all.loose(0), quantities("cpus:0"));
    // The guarantee of a parent does not use up the one of a child.
    let table = [
        ("a", "", "cpus:2"),
        ("a/b", "cpus:1", ""),
        ("a/b/c", "", "cpus:1"),
    ];
    let mut all = budgets("cpus:20", &table);
    let mut room = free("cpus:20");
    let stage = Stage::Guarantees;
    assert_eq!(given(&mut all, stage, "a/b", &mut room), "");
    assert_eq!(given(&mut all, stage, "a/b/c", &mut room), "cpus:1");
    assert_eq!(given(&mut all, stage, "a", &mut room), "cpus:19");
    // Two guarantees that together exceed the limit: the first role gets its own.
    let table = [
        ("a", "cpus:2", ""),
        ("a/b", "", "cpus:2"),
        ("a/c", "", "cpus:2"),
    ];
    let mut all = budgets("cpus:9", &table);
    let mut room = free("cpus:9");
    assert_eq!(given(&mut all, Stage::Fair, "a/x", &mut room), "");
    assert_eq!(
        given(&mut all, Stage::Guarantees, "a/c", &mut room),
        "cpus:2"
    );
    assert!(all.required().is_empty());
}

/// A reservation is charged to its own role at once, and to a role below it when it is allocated
/// there.
#[test]
fn a_reservation_is_charged_only_below_its_owner() {
    let mut all = budgets("", &[("a", "cpus:0", ""), ("a/b", "cpus:1", "cpus:1")]);
    let mut room = Room {
        free: quantities("cpus:1"),
        reserved: vec![
            (role("a"), quantities("cpus:8")),
            (role("a/b"), quantities("cpus:2")),
        ],
    };
    assert_eq!(given(&mut all, Stage::Guarantees, "a/b", &mut room), "");
    assert_eq!(given(&mut all, Stage::Fair, "a/b", &mut room), "cpus:3");
    assert!(all.required().is_empty());
    assert_eq!(given(&mut all, Stage::Fair, "a", &mut room), "cpus:7");
    assert_eq!(room, free("cpus:1"));
}

#[test]
fn graphics_processors_are_cut_to_whole_ones() {
    let mut all = budgets("", &[("a", "gpus:2.5", "")]);
    let mut room = free("gpus:4");
    assert_eq!(given(&mut all, Stage::Fair, "a", &mut room), "gpus:2");
    assert_eq!(given(&mut all, Stage::Fair, "a", &mut room), "");
}
