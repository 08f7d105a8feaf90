//! The tree of shares: roles by path component and the frameworks in each, in the order of a
//! policy.
//!
//! Keeps the allocations of every client and the total of the cluster. A node whose allocation
//! changes is moved among its siblings at the next query, once for any number of changes; a query
//! without changes costs nothing. The [`Order`] decides how siblings are sorted.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use module_api::sorter::{self, Client};
use resources::{Quantities, Role};
use rustc_hash::FxHashMap;

use super::order::{Fair, Order};
use super::siblings::{SiblingKey, Siblings, number, numbers};

const ROOT: usize = 0;
/// With more changed siblings than this, and more than an eighth of all, the siblings are sorted as
/// a whole.
const SHIFTED_MAX: usize = 8;

#[derive(Clone, Debug)]
enum Kind {
    /// A role. Its children are the roles below it and at most one `Members`.
    Role(Role),
    /// The frameworks directly in a role. Named `.`, so that they share as one equal sibling of the
    /// roles below.
    Members(Role),
    /// One framework in its role.
    Client { client: Client, active: bool },
}

#[derive(Clone, Debug)]
struct Node<R> {
    parent: usize,
    kind: Kind,
    name: Arc<str>,
    /// Its key in the parent's list; outdated while `moved`.
    key: SiblingKey<R>,
    weight: f64,
    held: Quantities,
    /// Rank (outdated while the tree is `stale`) and number of times chosen, both for the next
    /// position.
    rank: R,
    chosen: u64,
    /// The allocation has changed since `key` was set.
    moved: bool,
    /// Children that have moved; some may be removed already.
    moved_below: Vec<usize>,
    /// Active clients at or below this node.
    active: usize,
    /// Without parked children.
    children: Siblings<R>,
    by_name: BTreeMap<Arc<str>, usize>,
    /// Only of `Members`: the budget that applies to them.
    budget: Option<sorter::BudgetIndex>,
}

/// How to treat the frameworks of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// Consider each.
    Enter,
    /// Skip them this time.
    Pass,
    /// Skip them until [`Tree::unpark`]: nothing will be available to them before.
    Park,
}

/// All clients of one pool, in order.
#[derive(Clone, Debug)]
pub struct Tree<O: Order = Fair> {
    order: O,
    nodes: Vec<Node<O::Rank>>,
    unused: Vec<usize>,
    clients: FxHashMap<Client, usize>,
    weights: BTreeMap<Role, f64>,
    total: Quantities,
    /// The total or a weight has changed, and with it every share.
    stale: bool,
    /// Nodes with moved children.
    unsettled: Vec<usize>,
    /// Whether exhausted branches are parked, so that a long walk visits each of them once.
    pub parks: bool,
    parked: Vec<usize>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::ordered_by(Fair)
    }
}

impl<R: Copy> Node<R> {
    fn new(parent: usize, kind: Kind, name: Arc<str>, key: SiblingKey<R>, weight: f64) -> Self {
        Self {
            parent,
            kind,
            name,
            key,
            weight,
            held: Quantities::new(),
            rank: key.rank,
            chosen: 0,
            moved: false,
            moved_below: Vec::new(),
            active: 0,
            children: Siblings::default(),
            by_name: BTreeMap::new(),
            budget: None,
        }
    }

    /// Updates the key and returns it.
    fn settle(&mut self) -> SiblingKey<R> {
        let key = SiblingKey {
            rank: self.rank,
            chosen: self.chosen,
            ..self.key
        };
        self.key = key;
        self.moved = false;
        key
    }
}

impl<O: Order> Tree<O> {
    /// An empty tree with this order.
    pub fn ordered_by(order: O) -> Self {
        let mut tree = Self {
            order,
            nodes: Vec::new(),
            unused: Vec::new(),
            clients: FxHashMap::default(),
            weights: BTreeMap::new(),
            total: Quantities::new(),
            stale: false,
            unsettled: Vec::new(),
            parks: false,
            parked: Vec::new(),
        };
        let key = tree.first_key(0, ROOT, 1.0);
        let root = Node::new(ROOT, Kind::Role(Role::STAR), Arc::from(""), key, 1.0);
        tree.nodes.push(root);
        tree
    }

    /// Drops everything except the order.
    pub fn forget(&mut self) {
        *self = Self::ordered_by(self.order.clone());
    }

    /// Key of a node without allocations.
    fn first_key(&self, name: u64, node: usize, weight: f64) -> SiblingKey<O::Rank> {
        SiblingKey {
            rank: self.order.rank(0.0, weight),
            chosen: 0,
            name,
            node,
        }
    }

    /// Sets the cluster's total. Resources with total zero do not count for shares.
    pub fn set_total(&mut self, total: &Quantities) {
        self.total = total.clone();
        self.stale = true;
    }

    /// Sets a role's weight. An invalid weight counts as 1, the default.
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

    /// Adds a client to its role, inactive and without allocations. `name` breaks ties within the
    /// role.
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
        // The number distinguishes clients of the same name.
        let name = format!("{name}\u{0}{client}");
        let kind = Kind::Client {
            client,
            active: false,
        };
        let node = self.child(at, &name, || kind.clone(), 1.0);
        self.clients.insert(client, node);
    }

    /// Removes a client with its allocations.
    pub fn leave(&mut self, client: Client) {
        self.set_active(client, false);
        let Some(node) = self.clients.remove(&client) else {
            return;
        };
        let held = std::mem::take(&mut self.nodes[node].held);
        let mut at = self.nodes[node].parent;
        while at != ROOT {
            self.nodes[at].held -= &held;
            self.has_moved(at);
            at = self.nodes[at].parent;
        }
        self.prune(node);
    }

    /// Activates or deactivates a client. Its allocations count either way.
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

    /// Adds to a client's allocation. Counts as chosen once more, as do the roles above it.
    pub fn hold(&mut self, client: Client, amount: &Quantities) {
        self.change(client, |node| {
            node.held += amount;
            node.chosen += 1;
        });
    }

    /// Reduces a client's allocation.
    pub fn free(&mut self, client: Client, amount: &Quantities) {
        let Some(&node) = self.clients.get(&client) else {
            return;
        };
        // At most its allocation, so that the sums above stay correct.
        let amount = self.nodes[node].held.lesser(amount);
        self.change(client, |node| node.held -= &amount);
    }

    /// Sets the budget that applies to this client's role.
    pub fn assign(&mut self, client: Client, budget: Option<sorter::BudgetIndex>) {
        if let Some(node) = self.clients.get(&client) {
            let members = self.nodes[*node].parent;
            self.nodes[members].budget = budget;
        }
    }

    /// The first active client, in the tree's order, that `wanted` accepts. `wanted_role` decides
    /// about all frameworks directly in a role, given its budget; `wanted_branch` may skip a role
    /// and everything below it.
    pub fn first(
        &mut self,
        mut wanted_branch: impl FnMut(&Role) -> bool,
        mut wanted_role: impl FnMut(&Role, Option<sorter::BudgetIndex>) -> Visit,
        mut wanted: impl FnMut(Client) -> bool,
    ) -> Option<Client> {
        self.refresh();
        let mut idle = Vec::new();
        let found = self.seek(
            ROOT,
            &mut wanted_branch,
            &mut wanted_role,
            &mut wanted,
            &mut idle,
        );
        if self.parks {
            for at in idle {
                let (parent, key) = (self.nodes[at].parent, self.nodes[at].key);
                self.nodes[parent].children.take(&key);
                self.parked.push(at);
            }
        }
        found
    }

    /// Ends the walk: parked branches return to their positions.
    pub fn unpark(&mut self) {
        self.parks = false;
        for at in std::mem::take(&mut self.parked) {
            let (parent, key) = (self.nodes[at].parent, self.nodes[at].key);
            self.nodes[parent].children.insert(key);
        }
    }

    /// All active clients in order.
    pub fn order(&mut self) -> Vec<Client> {
        let mut all = Vec::with_capacity(self.clients.len());
        self.first(
            |_| true,
            |_, _| Visit::Enter,
            |client| {
                all.push(client);
                false
            },
        );
        all
    }

    /// Whether any client is active.
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
        node.map_or(0.0, |node| node.held.dominant_share(&self.total))
    }

    /// A client's allocation.
    pub fn held_by(&self, client: Client) -> Quantities {
        let node = self.clients.get(&client).map(|node| &self.nodes[*node]);
        node.map_or_else(Quantities::new, |node| node.held.clone())
    }

    fn seek(
        &self,
        at: usize,
        wanted_branch: &mut impl FnMut(&Role) -> bool,
        wanted_role: &mut impl FnMut(&Role, Option<sorter::BudgetIndex>) -> Visit,
        wanted: &mut impl FnMut(Client) -> bool,
        idle: &mut Vec<usize>,
    ) -> Option<Client> {
        let children = self.nodes[at].children.iter();
        let children = children.map(|key| (&key.rank, key.node));
        for child in self.order.turns(children) {
            let child = &self.nodes[child];
            let visit = match &child.kind {
                Kind::Client { client, active } => {
                    if *active && wanted(*client) {
                        return Some(*client);
                    }
                    continue;
                }
                _ if child.active == 0 || child.children.is_empty() => Visit::Park,
                Kind::Members(role) => wanted_role(role, child.budget),
                Kind::Role(role) if !wanted_branch(role) => Visit::Pass,
                Kind::Role(_) => Visit::Enter,
            };
            match visit {
                Visit::Enter => {
                    let at = child.key.node;
                    let found = self.seek(at, wanted_branch, wanted_role, wanted, idle);
                    if found.is_some() {
                        return found;
                    }
                }
                Visit::Pass => {}
                Visit::Park if self.parks => idle.push(child.key.node),
                Visit::Park => {}
            }
        }
        None
    }

    fn change(&mut self, client: Client, act: impl Fn(&mut Node<O::Rank>)) {
        let Some(&node) = self.clients.get(&client) else {
            return;
        };
        let mut at = node;
        while at != ROOT {
            act(&mut self.nodes[at]);
            self.has_moved(at);
            at = self.nodes[at].parent;
        }
    }

    /// Marks a node as moved. The move itself waits for the next query, since many changes often
    /// come together.
    fn has_moved(&mut self, at: usize) {
        let parent = self.nodes[at].parent;
        // An only child needs no rank; it is computed when a second child joins.
        if self.stale || self.nodes[parent].by_name.len() == 1 {
            return;
        }
        self.rank(at);
        if !std::mem::replace(&mut self.nodes[at].moved, true) {
            let above = &mut self.nodes[parent].moved_below;
            if above.is_empty() {
                self.unsettled.push(parent);
            }
            above.push(at);
        }
    }

    /// Moves all nodes with a share that has changed.
    fn refresh(&mut self) {
        if std::mem::take(&mut self.stale) {
            return self.refresh_all();
        }
        while let Some(parent) = self.unsettled.pop() {
            let mut moved = std::mem::take(&mut self.nodes[parent].moved_below);
            // The index of a removed node may be in use again.
            moved.retain(|at| self.nodes[*at].moved && self.nodes[*at].parent == parent);
            if moved.len() > SHIFTED_MAX.max(self.nodes[parent].by_name.len() / 8) {
                for at in &moved {
                    self.nodes[*at].settle();
                }
                self.reorder(parent, |tree, at| tree.nodes[at].key);
            } else {
                moved.iter().for_each(|at| self.shift(*at));
            }
            // Keeps the allocation of the vector.
            moved.clear();
            self.nodes[parent].moved_below = moved;
        }
    }

    /// Recomputes every rank after a change of the total or a weight.
    fn refresh_all(&mut self) {
        for parent in self.unsettled.drain(..) {
            self.nodes[parent].moved_below.clear();
        }
        for at in 0..self.nodes.len() {
            // Most nodes have no children.
            if !self.nodes[at].by_name.is_empty() {
                self.reorder(at, |tree, at| {
                    tree.rank(at);
                    tree.nodes[at].settle()
                });
            }
        }
        for parked in 0..self.parked.len() {
            let at = self.parked[parked];
            self.rank(at);
            self.nodes[at].settle();
        }
    }

    /// Sorts the children of a node after their keys have changed.
    fn reorder(&mut self, parent: usize, key: impl Fn(&mut Self, usize) -> SiblingKey<O::Rank>) {
        let mut own = std::mem::take(&mut self.nodes[parent].children);
        own.reorder(|at| key(self, at));
        self.nodes[parent].children = own;
    }

    /// Moves a node to its new position among its siblings.
    fn shift(&mut self, at: usize) {
        let (parent, before) = (self.nodes[at].parent, self.nodes[at].key);
        let key = self.nodes[at].settle();
        self.nodes[parent].children.shift(&before, key);
    }

    /// Recomputes one rank.
    fn rank(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let share = node.held.dominant_share(&self.total);
        node.rank = self.order.rank(share, node.weight);
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
        let number = self.number(parent, &name);
        let key = self.first_key(number, at, weight);
        let node = Node::new(parent, kind(), name.clone(), key, weight);
        if at == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[at] = node;
        }
        let siblings = &mut self.nodes[parent].by_name;
        let alone = siblings.values().next().copied();
        let alone = alone.filter(|_| siblings.len() == 1);
        siblings.insert(name, at);
        if let Some(alone) = alone {
            self.rank(alone);
            self.shift(alone);
        }
        self.nodes[parent].children.insert(key);
        at
    }

    /// A number for the name of a new child.
    fn number(&mut self, parent: usize, name: &str) -> u64 {
        let siblings = &self.nodes[parent].by_name;
        let of = |(_, node): (_, &usize)| self.nodes[*node].key.name;
        let before = siblings
            .range::<str, _>((Unbounded, Excluded(name)))
            .next_back()
            .map(of);
        let after = siblings
            .range::<str, _>((Excluded(name), Unbounded))
            .next()
            .map(of);
        number(before, after).unwrap_or_else(|| {
            self.renumber(parent);
            self.number(parent, name)
        })
    }

    /// Renumbers the names of all children.
    fn renumber(&mut self, parent: usize) {
        let children: Vec<usize> = self.nodes[parent].by_name.values().copied().collect();
        for (child, name) in children.into_iter().zip(numbers()) {
            self.nodes[child].key.name = name;
        }
        let mut own = std::mem::take(&mut self.nodes[parent].children);
        own.renumber(|child| self.nodes[child].key.name);
        self.nodes[parent].children = own;
    }

    /// Removes a node, and its ancestors that have become empty.
    fn prune(&mut self, mut at: usize) {
        while at != ROOT && self.nodes[at].by_name.is_empty() {
            let (parent, key) = (self.nodes[at].parent, self.nodes[at].key);
            let name = self.nodes[at].name.clone();
            let above = &mut self.nodes[parent];
            above.children.take(&key);
            above.by_name.remove(&name);
            if above.by_name.len() == 1 {
                // An only child is stored without a list.
                above.children = above.children.iter().copied().collect();
            }
            self.nodes[at].held = Quantities::new();
            self.nodes[at].moved = false;
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
mod tests;
