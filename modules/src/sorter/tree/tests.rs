//! Tests of the tree: orders by share, weight and level, parking, and properties under random
//! changes.

use super::*;
use crate::sorter::order::{Lottery, Priority};
use rand::SeedableRng;
use rand::rngs::SmallRng;

fn quantities(text: &str) -> Quantities {
    Quantities::parse(text).unwrap()
}

/// A tree over `total` with clients `0..` in these roles, all active.
fn tree(total: &str, roles: &[&str]) -> Tree {
    let mut tree = Tree::default();
    tree.set_total(&quantities(total));
    for (client, role) in (0..).zip(roles) {
        tree.join(client, &Role::new(role).unwrap(), &format!("f{client}"));
        tree.set_active(client, true);
    }
    tree
}

/// Branches parked during a walk are back in their positions after it.
#[test]
fn parked_branch_is_visited_once_per_walk() {
    let mut tree = tree("cpus:10", &["a/b", "a/c", "d", "e"]);
    tree.set_active(3, false);
    tree.parks = true;
    let mut visits = Vec::new();
    for _ in 0..3 {
        let found = tree.first(
            |_| true,
            |role, _| {
                visits.push(role.to_string());
                match role.as_str() {
                    "d" => Visit::Enter,
                    _ => Visit::Park,
                }
            },
            |_| true,
        );
        assert_eq!(found, Some(2));
        tree.hold(2, &quantities("cpus:1"));
    }
    assert_eq!(visits, ["a/b", "a/c", "d", "d", "d"]);
    assert!(tree.nodes[ROOT].children.iter().count() < 3);
    tree.unpark();
    tree.set_active(3, true);
    assert_eq!(tree.order(), [0, 1, 3, 2]);
}

/// S113: higher priorities come first whatever their shares, level by level; equal ones share.
#[test]
fn strict_priority_orders_by_weight_then_share() {
    let mut tree = Tree::ordered_by(Priority);
    tree.set_total(&quantities("cpus:10"));
    for (client, role) in (0..).zip(["low", "high/b", "high", "high/a", "even"]) {
        tree.join(client, &Role::new(role).unwrap(), &format!("f{client}"));
        tree.set_active(client, true);
    }
    for (role, priority) in [("high", 3.0), ("even", 3.0), ("low", 0.5), ("high/a", 2.0)] {
        tree.weigh(&Role::new(role).unwrap(), priority);
    }
    assert_eq!(tree.order(), [4, 3, 2, 1, 0], "even before high by name");
    tree.hold(3, &quantities("cpus:8"));
    assert_eq!(tree.order(), [4, 3, 2, 1, 0]);
    tree.hold(4, &quantities("cpus:9"));
    assert_eq!(tree.order(), [3, 2, 1, 4, 0], "even has more than high now");
    tree.hold(2, &quantities("cpus:1"));
    tree.weigh(&Role::new("low").unwrap(), 4.0);
    assert_eq!(tree.order(), [0, 4, 3, 1, 2], "high was chosen twice");
}

/// SPEC 4.8, the random sorter: draws level by level and skips inactive clients.
#[test]
fn lottery_uses_the_weights_of_all_ancestors() {
    let mut tree = Tree::ordered_by(Lottery::new(SmallRng::seed_from_u64(11)));
    tree.set_total(&quantities("cpus:10"));
    for (client, role) in (0..).zip(["a/b", "a/c", "d", "d", "e"]) {
        tree.join(client, &Role::new(role).unwrap(), &format!("f{client}"));
        tree.set_active(client, client < 4);
    }
    tree.weigh(&Role::new("a").unwrap(), 3.0);
    tree.weigh(&Role::new("a/c").unwrap(), 4.0);
    tree.weigh(&Role::new("e").unwrap(), 100.0);
    let mut firsts = [0.0; 5];
    for _ in 0..10_000 {
        let first = tree.order()[0];
        firsts[first as usize] += 1.0;
        tree.hold(first, &quantities("cpus:0.001")); // Negligible.
    }
    // a: 3 of 4, within it b: 1 of 5; d: 1 of 4, each half of that. e has no active client.
    for (firsts, chance) in firsts.iter().zip([0.15, 0.6, 0.125, 0.125, 0.0]) {
        let deviation = (10_000.0_f64 * chance * (1.0 - chance)).sqrt();
        assert!(
            (firsts - 10_000.0 * chance).abs() <= 4.0 * deviation,
            "{firsts} for {chance}"
        );
    }
}

// Covers S78.
#[test]
fn smallest_share_comes_first_by_role_then_framework() {
    let mut tree = tree("cpus:10;mem:10", &["a", "a", "b", "c"]);
    tree.hold(0, &quantities("cpus:1"));
    tree.hold(1, &quantities("mem:2"));
    tree.hold(2, &quantities("cpus:2;mem:1"));
    assert_eq!(tree.order(), [3, 2, 0, 1]); // a: 0.2 like b, but chosen twice.
    tree.free(2, &quantities("cpus:2;mem:1"));
    tree.hold(3, &quantities("cpus:9"));
    assert_eq!(tree.order(), [2, 0, 1, 3]);
}

/// SPEC 4.8, SameShareFairness.
#[test]
fn equal_shares_are_ordered_by_times_chosen() {
    let mut tree = tree("cpus:10", &["*", "*"]);
    let mut chosen = Vec::new();
    for _ in 0..6 {
        let next = tree.order()[0];
        chosen.push(next);
        tree.hold(next, &quantities("cpus:1"));
        tree.free(next, &quantities("cpus:1"));
    }
    assert_eq!(chosen, [0, 1, 0, 1, 0, 1]);
}

/// SPEC 4.8: weights divide shares; 4.10, NestedRoleDRF.
#[test]
fn a_role_shares_with_its_subroles_siblings_as_one() {
    let mut tree = tree("cpus:10", &["a/b", "a/c", "d/e", "d/f"]);
    tree.hold(0, &quantities("cpus:2"));
    assert_eq!(tree.order()[0], 2);
    tree.hold(2, &quantities("cpus:1"));
    assert_eq!(
        tree.order()[0],
        3,
        "d has 1 and a has 2, so d/f comes before a/c"
    );
    tree.weigh(&Role::new("a").unwrap(), 4.0);
    assert_eq!(
        tree.order()[0],
        1,
        "a weighs 4, so it has the smaller share"
    );
}

/// SPEC 4.8: a client that is also a parent lives in a leaf of its own.
#[test]
fn own_frameworks_count_as_one_subrole() {
    let mut tree = tree("cpus:10", &["a", "a", "a/b"]);
    tree.hold(0, &quantities("cpus:1"));
    assert_eq!(tree.order()[0], 2);
    tree.hold(2, &quantities("cpus:2"));
    assert_eq!(tree.order(), [1, 0, 2]);
}

/// SPEC 4.8: inactive clients are not listed, but their allocations count.
#[test]
fn inactive_clients_count_but_are_not_listed() {
    let mut tree = tree("cpus:10", &["a", "a", "b"]);
    tree.hold(0, &quantities("cpus:5"));
    tree.set_active(0, false);
    assert_eq!(tree.order(), [2, 1]);
    tree.set_active(0, false);
    tree.set_active(0, true);
    assert_eq!(tree.order(), [2, 1, 0]);
    tree.leave(0);
    tree.hold(2, &quantities("cpus:1"));
    assert_eq!(tree.order(), [1, 2]);
    tree.leave(1);
    tree.leave(2);
    assert!(!tree.is_active() && tree.order().is_empty());
    assert_eq!(
        tree.nodes.len() - tree.unused.len(),
        1,
        "only the root is left"
    );
}

/// Checks that names are numbered in order and each unparked child stands at its position; an only
/// child may stand anywhere.
fn check_keys(tree: &Tree) {
    for node in &tree.nodes {
        let own: Vec<usize> = node.by_name.values().copied().collect();
        let numbers = own.iter().map(|child| tree.nodes[*child].key.name);
        assert!(numbers.is_sorted_by(|one, other| one < other));
        let mut standing: Vec<usize> = node.children.iter().map(|key| key.node).collect();
        standing.sort_unstable();
        let mut unparked: Vec<usize> = own.clone();
        unparked.retain(|child| !tree.parked.contains(child));
        unparked.sort_unstable();
        assert_eq!(standing, unparked);
        if own.len() > 1 {
            let mut keys = node.children.iter();
            assert!(keys.all(|key| *key == tree.nodes[key.node].key));
            assert!(node.children.iter().is_sorted());
        }
    }
}

/// Many names before all others, so that numbers between them run out again and again.
#[test]
fn ties_follow_names_not_join_order() {
    let mut tree = Tree::default();
    let join = |tree: &mut Tree, client: u32, name: &str| {
        tree.join(client, &Role::STAR, name);
        tree.set_active(client, true);
        check_keys(tree);
    };
    let mut names = Vec::new();
    for client in (1..=150).rev() {
        join(&mut tree, client, &format!("f{client:03}"));
        names.insert(0, client);
        if client % 7 == 0 {
            tree.leave(client + 1);
            names.retain(|other| *other != client + 1);
            check_keys(&tree);
        }
    }
    join(&mut tree, 0, "f050-between");
    names.insert(names.iter().position(|name| *name > 50).unwrap(), 0);
    assert_eq!(tree.order(), names);
    for client in &names {
        tree.hold(*client, &quantities("cpus:1"));
    }
    check_keys(&tree);
    assert_eq!(tree.order(), names);
}

#[test]
fn shares_follow_the_total() {
    let mut tree = tree("cpus:10;mem:100", &["a", "b"]);
    tree.hold(0, &quantities("cpus:1"));
    tree.hold(1, &quantities("mem:20"));
    assert_eq!(tree.order(), [0, 1]);
    tree.set_total(&quantities("cpus:2;mem:100"));
    assert_eq!(tree.order(), [1, 0]);
    assert_eq!(tree.share_of(0), 0.5);
}

proptest::proptest! {
    /// The incremental order equals the recomputed order, and sums equal the sums of their parts.
    #[test]
    fn incremental_order_equals_recomputed_order(
        steps in proptest::collection::vec((0_u8..8, 0_u32..6, 1_u32..40), 1..120),
    ) {
        const ROLES: [&str; 6] = ["a", "a", "a/b", "b/c", "b/d", "*"];
        let mut kept = tree("cpus:100;mem:50", &ROLES);
        for (what, client, size) in steps {
            let role = Role::new(ROLES[client as usize]).unwrap();
            let amount = quantities(&format!("cpus:{size};mem:{}", size % 7));
            match what {
                0 | 1 => kept.hold(client, &amount),
                2 => kept.free(client, &amount),
                3 => kept.set_active(client, size % 2 == 0),
                4 => kept.join(client, &role, &format!("f{client}")),
                5 => kept.weigh(&role, f64::from(size)),
                6 => kept.leave(client),
                _ => kept.set_total(&quantities(&format!("cpus:{};mem:50", size * 10))),
            }
            check_keys(&kept);
            let mut anew = kept.clone();
            anew.stale = true;
            proptest::prop_assert_eq!(kept.order(), anew.order());
            let sum: i64 = kept.clients.keys()
                .map(|client| kept.held_by(*client).get(&resources::Name::Cpus).thousandths()).sum();
            let tops = kept.nodes[ROOT].by_name.values();
            let top: i64 = tops.map(|node| kept.nodes[*node].held.get(&resources::Name::Cpus).thousandths()).sum();
            proptest::prop_assert_eq!(sum, top);
        }
    }

    /// No queries for a while, so that several nodes move, join and leave between two of them.
    #[test]
    fn moved_nodes_are_sorted_at_the_next_query(
        steps in proptest::collection::vec((0_u8..64, 0_u32..40, 1_u32..40), 1..500),
    ) {
        const ROLES: [&str; 5] = ["a/b", "a/b", "c", "c", "a"];
        let mut kept = tree("cpus:100;mem:50", &[]);
        for (what, client, size) in steps {
            let amount = quantities(&format!("cpus:{size};mem:{}", size % 7));
            match what {
                0..24 => kept.hold(client, &amount),
                24..32 => kept.free(client, &amount),
                32..60 => {
                    let role = Role::new(ROLES[ROLES.len().min(client as usize + 1) - 1]).unwrap();
                    kept.join(client, &role, &format!("f{client}"));
                    kept.set_active(client, true);
                }
                60 => kept.leave(client),
                61 => kept.set_total(&quantities(&format!("cpus:{};mem:50", size * 10))),
                _ => {
                    let mut anew = kept.clone();
                    anew.stale = true;
                    proptest::prop_assert_eq!(kept.order(), anew.order());
                }
            }
            check_keys(&kept);
        }
    }
}
