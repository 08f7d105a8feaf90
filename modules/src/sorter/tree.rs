//! The tree of shares: roles by path component, and the frameworks in each, poorest first (SPEC 4.8, S78, S87, S88).
//!
//! Remembers what every client holds and what the cluster has. One change moves one node among its siblings on each level, so asking
//! who is next costs nothing that has not changed. Decides nothing but the order, and knows no agent.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use module_api::sorter::Client;
use resources::{Quantities, Role, Scalar};
use rustc_hash::FxHashMap;

const ROOT: usize = 0;

/// Where a node stands among its siblings: by share, then by how often it was chosen, then by name.
#[derive(Clone, Debug)]
struct Place {
    share: f64,
    chosen: u64,
    name: Arc<str>,
    node: usize,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        self.share
            .total_cmp(&other.share)
            .then_with(|| self.chosen.cmp(&other.chosen))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.node.cmp(&other.node))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Place {}

#[derive(Clone, Debug)]
enum Kind {
    /// A role: its children are roles below it, and at most one `Members`.
    Role(Role),
    /// The frameworks in a role itself; its name is `.`, so that a role and the roles below it share as equals.
    Members(Role),
    /// One framework in its role.
    Client { client: Client, active: bool },
}

#[derive(Clone, Debug)]
struct Node {
    parent: usize,
    kind: Kind,
    place: Place,
    weight: f64,
    held: Quantities,
    /// Active clients below, or this one.
    active: usize,
    children: BTreeSet<Place>,
    by_name: BTreeMap<Arc<str>, usize>,
}

/// The order of all clients of one pool.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    unused: Vec<usize>,
    clients: FxHashMap<Client, usize>,
    weights: BTreeMap<Role, f64>,
    total: Vec<(resources::Name, Scalar)>,
    /// The total or a weight has changed, and with it every share.
    stale: bool,
}

impl Default for Tree {
    fn default() -> Self {
        let root = Node::new(ROOT, Kind::Role(Role::STAR), Arc::from(""), ROOT, 1.0);
        Self {
            nodes: vec![root],
            unused: Vec::new(),
            clients: FxHashMap::default(),
            weights: BTreeMap::new(),
            total: Vec::new(),
            stale: false,
        }
    }
}

impl Node {
    fn new(parent: usize, kind: Kind, name: Arc<str>, node: usize, weight: f64) -> Self {
        let place = Place {
            share: 0.0,
            chosen: 0,
            name,
            node,
        };
        Self {
            parent,
            kind,
            place,
            weight,
            held: Quantities::new(),
            active: 0,
            children: BTreeSet::new(),
            by_name: BTreeMap::new(),
        }
    }
}

/// The dominant share: the largest part of any resource (S78), divided by the weight (S88).
fn share(held: &Quantities, total: &[(resources::Name, Scalar)], weight: f64) -> f64 {
    let parts = total
        .iter()
        .map(|(name, all)| held.get(name).as_f64() / all.as_f64());
    parts.fold(0.0, f64::max) / weight
}

impl Tree {
    /// The cluster has this much now. What there is none of counts for no share.
    pub fn set_total(&mut self, total: &Quantities) {
        let some = total.iter().filter(|(_, amount)| !amount.is_zero());
        self.total = some.map(|(name, amount)| (name.clone(), amount)).collect();
        self.stale = true;
    }

    /// This role weighs so much now. What is not above zero counts as 1, which is what every role weighs of itself.
    pub fn weigh(&mut self, role: &Role, weight: f64) {
        let weight = if weight.is_finite() && weight > 0.0 {
            weight
        } else {
            1.0
        };
        if weight == 1.0 {
            self.weights.remove(role);
        } else {
            self.weights.insert(role.clone(), weight);
        }
        if let Some(node) = self.role_node(role) {
            self.nodes[node].weight = weight;
            self.stale = true;
        }
    }

    /// A client joins its role, inactive and holding nothing. `name` settles ties within the role.
    pub fn join(&mut self, client: Client, role: &Role, name: &str) {
        self.leave(client);
        let mut at = ROOT;
        let mut above: Option<Role> = None;
        for component in role.components() {
            let path = match &above {
                None => component.to_owned(),
                Some(above) => format!("{above}/{component}"),
            };
            let path = Role::new(&path).unwrap_or_default();
            let weight = self.weights.get(&path).copied().unwrap_or(1.0);
            at = self.child(at, component, || Kind::Role(path.clone()), weight);
            above = Some(path);
        }
        at = self.child(at, ".", || Kind::Members(role.clone()), 1.0);
        // The number keeps two clients of one name apart.
        let name = format!("{name}\u{0}{client}");
        let kind = Kind::Client {
            client,
            active: false,
        };
        let node = self.child(at, &name, || kind.clone(), 1.0);
        self.clients.insert(client, node);
    }

    /// A client leaves, and whatever it held is counted no more.
    pub fn leave(&mut self, client: Client) {
        self.set_active(client, false);
        let Some(node) = self.clients.remove(&client) else {
            return;
        };
        let held = std::mem::take(&mut self.nodes[node].held);
        let mut at = self.nodes[node].parent;
        while at != ROOT {
            self.replace(at, |node| node.held -= &held);
            at = self.nodes[at].parent;
        }
        self.prune(node);
    }

    /// A client takes part or not. Its holdings count either way.
    pub fn set_active(&mut self, client: Client, active: bool) {
        let Some(&node) = self.clients.get(&client) else {
            return;
        };
        let Kind::Client { active: was, .. } = &mut self.nodes[node].kind else {
            return;
        };
        if std::mem::replace(was, active) == active {
            return;
        }
        let mut at = node;
        loop {
            let count = &mut self.nodes[at].active;
            *count = if active {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
            if at == ROOT {
                return;
            }
            at = self.nodes[at].parent;
        }
    }

    /// A client holds so much more: it was chosen once more, and so were the roles above it.
    pub fn hold(&mut self, client: Client, amount: &Quantities) {
        self.change(client, |node| {
            node.held += amount;
            node.place.chosen += 1;
        });
    }

    /// A client holds so much less.
    pub fn free(&mut self, client: Client, amount: &Quantities) {
        let Some(&node) = self.clients.get(&client) else {
            return;
        };
        // No more than it holds, so that the sums above it stay true.
        let amount = self.nodes[node].held.lesser(amount);
        self.change(client, |node| node.held -= &amount);
    }

    /// The first active client for which `wanted` holds, poorest first. `wanted_role` may pass over all the frameworks of a role, and
    /// `wanted_branch` all that lies at or below a role.
    pub fn first(
        &mut self,
        mut wanted_branch: impl FnMut(&Role) -> bool,
        mut wanted_role: impl FnMut(&Role) -> bool,
        mut wanted: impl FnMut(Client) -> bool,
    ) -> Option<Client> {
        self.refresh();
        self.seek(ROOT, &mut wanted_branch, &mut wanted_role, &mut wanted)
    }

    /// All active clients, poorest first.
    pub fn order(&mut self) -> Vec<Client> {
        let mut all = Vec::new();
        self.first(
            |_| true,
            |_| true,
            |client| {
                all.push(client);
                false
            },
        );
        all
    }

    /// Whether any client takes part.
    pub fn is_active(&self) -> bool {
        self.nodes[ROOT].active > 0
    }

    /// Whether this client has joined and not left.
    pub fn knows(&self, client: Client) -> bool {
        self.clients.contains_key(&client)
    }

    /// A client's dominant share, from 0 to 1.
    pub fn share_of(&self, client: Client) -> f64 {
        let node = self.clients.get(&client).map(|node| &self.nodes[*node]);
        node.map_or(0.0, |node| share(&node.held, &self.total, node.weight))
    }

    /// What a client holds.
    pub fn held_by(&self, client: Client) -> Quantities {
        let node = self.clients.get(&client).map(|node| &self.nodes[*node]);
        node.map_or_else(Quantities::new, |node| node.held.clone())
    }

    fn seek(
        &self,
        at: usize,
        wanted_branch: &mut impl FnMut(&Role) -> bool,
        wanted_role: &mut impl FnMut(&Role) -> bool,
        wanted: &mut impl FnMut(Client) -> bool,
    ) -> Option<Client> {
        let children = self.nodes[at].children.iter();
        for child in children.map(|place| &self.nodes[place.node]) {
            if child.active == 0 {
                continue;
            }
            let found = match &child.kind {
                Kind::Client { client, .. } => wanted(*client).then_some(*client),
                Kind::Members(role) if !wanted_role(role) => None,
                Kind::Role(role) if !wanted_branch(role) => None,
                _ => self.seek(child.place.node, wanted_branch, wanted_role, wanted),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn change(&mut self, client: Client, act: impl Fn(&mut Node)) {
        let Some(&node) = self.clients.get(&client) else {
            return;
        };
        let mut at = node;
        while at != ROOT {
            self.replace(at, &act);
            at = self.nodes[at].parent;
        }
    }

    /// Changes one node and moves it to its new place among its siblings.
    fn replace(&mut self, at: usize, act: impl FnOnce(&mut Node)) {
        let parent = self.nodes[at].parent;
        if self.nodes[parent].children.len() > 1 {
            let old = self.nodes[at].place.clone();
            self.nodes[parent].children.remove(&old);
        } else {
            self.nodes[parent].children.clear();
        }
        let node = &mut self.nodes[at];
        act(node);
        if !self.stale {
            node.place.share = share(&node.held, &self.total, node.weight);
        }
        let place = node.place.clone();
        self.nodes[parent].children.insert(place);
    }

    /// Computes every share anew, after the total or a weight has changed.
    fn refresh(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        for node in &mut self.nodes {
            node.place.share = share(&node.held, &self.total, node.weight);
        }
        for at in 0..self.nodes.len() {
            let own: Vec<usize> = self.nodes[at].by_name.values().copied().collect();
            let places = own.into_iter().map(|child| self.nodes[child].place.clone());
            let places = places.collect();
            self.nodes[at].children = places;
        }
    }

    fn child(
        &mut self,
        parent: usize,
        name: &str,
        kind: impl FnOnce() -> Kind,
        weight: f64,
    ) -> usize {
        if let Some(node) = self.nodes[parent].by_name.get(name) {
            return *node;
        }
        let name: Arc<str> = Arc::from(name);
        let at = self.unused.pop().unwrap_or(self.nodes.len());
        let node = Node::new(parent, kind(), name.clone(), at, weight);
        let place = node.place.clone();
        if at == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[at] = node;
        }
        self.nodes[parent].by_name.insert(name, at);
        self.nodes[parent].children.insert(place);
        at
    }

    /// Lets go of a node, and of those above that have become empty.
    fn prune(&mut self, mut at: usize) {
        while at != ROOT && self.nodes[at].by_name.is_empty() {
            let (parent, place) = (self.nodes[at].parent, self.nodes[at].place.clone());
            self.nodes[parent].children.remove(&place);
            self.nodes[parent].by_name.remove(&place.name);
            self.nodes[at].held = Quantities::new();
            self.unused.push(at);
            at = parent;
        }
    }

    fn role_node(&self, role: &Role) -> Option<usize> {
        let mut at = ROOT;
        for component in role.components() {
            at = *self.nodes[at].by_name.get(component)?;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// S78.
    #[test]
    fn the_poorest_role_comes_first_and_then_its_poorest_framework() {
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
    fn of_two_with_equal_shares_the_less_often_chosen_comes_first() {
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
    fn a_role_with_subroles_counts_its_own_frameworks_as_one_of_them() {
        let mut tree = tree("cpus:10", &["a", "a", "a/b"]);
        tree.hold(0, &quantities("cpus:1"));
        assert_eq!(tree.order()[0], 2);
        tree.hold(2, &quantities("cpus:2"));
        assert_eq!(tree.order(), [1, 0, 2]);
    }

    /// SPEC 4.8: inactive clients are not listed, but what they hold counts.
    #[test]
    fn who_takes_no_part_is_not_listed_but_still_counts() {
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
        /// The order kept change by change is the order computed anew, and sums are the sums of their parts.
        #[test]
        fn the_kept_order_is_the_order_computed_anew(
            steps in proptest::collection::vec((0_u8..7, 0_u32..6, 1_u32..40), 1..120),
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
                    _ => kept.set_total(&quantities(&format!("cpus:{};mem:50", size * 10))),
                }
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
    }
}
