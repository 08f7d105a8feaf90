//! The tree of shares: roles by path component, and the frameworks in each, in the order of a policy (SPEC 4.8, S78, S87, S88).
//!
//! Remembers what every client holds and what the cluster has. Whoever holds something else is put in another place among its siblings when
//! somebody asks who is next: once, however often that has changed since. Asking costs nothing for what has not changed. Knows no agent; how
//! siblings stand to each other is for its [`Order`] to say.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use module_api::sorter::{self, Client};
use resources::{Quantities, Role};
use rustc_hash::FxHashMap;

use super::order::{Fair, Order};
use super::siblings::{Place, Siblings, number, numbers};

const ROOT: usize = 0;
/// When so many siblings hold something else, and more than an eighth of all of them, all are put in order at once.
const SHIFTED_MAX: usize = 8;

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
struct Node<R> {
    parent: usize,
    kind: Kind,
    name: Arc<str>,
    /// Where it stands, which is where it belongs unless it has moved.
    place: Place<R>,
    weight: f64,
    held: Quantities,
    /// What its place will say: its rank, unless shares are stale, and how often it was chosen.
    rank: R,
    chosen: u64,
    /// Whether it holds something else than when it was put in its place.
    moved: bool,
    /// The nodes right below that have moved, some of which may be gone.
    moved_below: Vec<usize>,
    /// Active clients below, or this one.
    active: usize,
    /// All but those that are parked.
    children: Siblings<R>,
    by_name: BTreeMap<Arc<str>, usize>,
    /// Of members: the budget that counts for them.
    budget: Option<sorter::Place>,
}

/// What to do about the frameworks of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// Look at each.
    Enter,
    /// Pass them over this time.
    Pass,
    /// Pass them over until [`Tree::unpark`]: nothing can be for them before.
    Park,
}

/// The order of all clients of one pool.
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
    /// The nodes below which somebody has moved.
    unsettled: Vec<usize>,
    /// Whether branches in which there is nothing to find are parked, so that a long walk meets each of them once.
    pub parks: bool,
    parked: Vec<usize>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::ordered_by(Fair)
    }
}

impl<R: Copy> Node<R> {
    fn new(parent: usize, kind: Kind, name: Arc<str>, place: Place<R>, weight: f64) -> Self {
        Self {
            parent,
            kind,
            name,
            place,
            weight,
            held: Quantities::new(),
            rank: place.rank,
            chosen: 0,
            moved: false,
            moved_below: Vec::new(),
            active: 0,
            children: Siblings::default(),
            by_name: BTreeMap::new(),
            budget: None,
        }
    }

    /// Its place says where it belongs from now on.
    fn settle(&mut self) -> Place<R> {
        let place = Place {
            rank: self.rank,
            chosen: self.chosen,
            ..self.place
        };
        self.place = place;
        self.moved = false;
        place
    }
}

impl<O: Order> Tree<O> {
    /// A tree of nobody, whose siblings stand in this order.
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
        let place = tree.first_place(0, ROOT, 1.0);
        let root = Node::new(ROOT, Kind::Role(Role::STAR), Arc::from(""), place, 1.0);
        tree.nodes.push(root);
        tree
    }

    /// Forgets everybody and everything but the order.
    pub fn forget(&mut self) {
        *self = Self::ordered_by(self.order.clone());
    }

    /// Where a node stands that holds nothing yet.
    fn first_place(&self, name: u64, node: usize, weight: f64) -> Place<O::Rank> {
        Place {
            rank: self.order.rank(0.0, weight),
            chosen: 0,
            name,
            node,
        }
    }

    /// The cluster has this much now. What there is none of counts for no share.
    pub fn set_total(&mut self, total: &Quantities) {
        self.total = total.clone();
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
            self.nodes[at].held -= &held;
            self.has_moved(at);
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
            node.chosen += 1;
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

    /// Which budget counts for this client, and for all of its role.
    pub fn assign(&mut self, client: Client, budget: Option<sorter::Place>) {
        if let Some(node) = self.clients.get(&client) {
            let members = self.nodes[*node].parent;
            self.nodes[members].budget = budget;
        }
    }

    /// The first active client for which `wanted` holds, in the tree's order. `wanted_role` says what to do about all the frameworks right in
    /// a role, of which it is told the budget too, and `wanted_branch` may pass over all that lies at or below a role.
    pub fn first(
        &mut self,
        mut wanted_branch: impl FnMut(&Role) -> bool,
        mut wanted_role: impl FnMut(&Role, Option<sorter::Place>) -> Visit,
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
                let (parent, place) = (self.nodes[at].parent, self.nodes[at].place);
                self.nodes[parent].children.take(&place);
                self.parked.push(at);
            }
        }
        found
    }

    /// The walk is over: what was parked takes its place again.
    pub fn unpark(&mut self) {
        self.parks = false;
        for at in std::mem::take(&mut self.parked) {
            let (parent, place) = (self.nodes[at].parent, self.nodes[at].place);
            self.nodes[parent].children.insert(place);
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
        node.map_or(0.0, |node| node.held.dominant_share(&self.total))
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
        wanted_role: &mut impl FnMut(&Role, Option<sorter::Place>) -> Visit,
        wanted: &mut impl FnMut(Client) -> bool,
        idle: &mut Vec<usize>,
    ) -> Option<Client> {
        let children = self.nodes[at].children.iter();
        let children = children.map(|place| (&place.rank, place.node));
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
                    let at = child.place.node;
                    let found = self.seek(at, wanted_branch, wanted_role, wanted, idle);
                    if found.is_some() {
                        return found;
                    }
                }
                Visit::Pass => {}
                Visit::Park if self.parks => idle.push(child.place.node),
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

    /// A node holds something else. It is put in its new place when somebody asks who is next: many changes are often told at once.
    fn has_moved(&mut self, at: usize) {
        let parent = self.nodes[at].parent;
        // Alone it is the first, whatever its rank, which is found when another comes.
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

    /// Puts everybody in the right place whose share has changed.
    fn refresh(&mut self) {
        if std::mem::take(&mut self.stale) {
            return self.refresh_all();
        }
        while let Some(parent) = self.unsettled.pop() {
            let mut moved = std::mem::take(&mut self.nodes[parent].moved_below);
            // Another may have the number of one that is gone.
            moved.retain(|at| self.nodes[*at].moved && self.nodes[*at].parent == parent);
            if moved.len() > SHIFTED_MAX.max(self.nodes[parent].by_name.len() / 8) {
                for at in &moved {
                    self.nodes[*at].settle();
                }
                self.reorder(parent, |tree, at| tree.nodes[at].place);
            } else {
                moved.iter().for_each(|at| self.shift(*at));
            }
            // Its room is used again.
            moved.clear();
            self.nodes[parent].moved_below = moved;
        }
    }

    /// Computes every rank anew, after the total or a weight has changed.
    fn refresh_all(&mut self) {
        for parent in self.unsettled.drain(..) {
            self.nodes[parent].moved_below.clear();
        }
        for at in 0..self.nodes.len() {
            // Who has no name below has nobody to put in order, and that is nearly everybody.
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

    /// Puts all right below a node in order, whose places have changed.
    fn reorder(&mut self, parent: usize, place: impl Fn(&mut Self, usize) -> Place<O::Rank>) {
        let mut own = std::mem::take(&mut self.nodes[parent].children);
        own.reorder(|at| place(self, at));
        self.nodes[parent].children = own;
    }

    /// Moves a node to its new place among its siblings.
    fn shift(&mut self, at: usize) {
        let (parent, before) = (self.nodes[at].parent, self.nodes[at].place);
        let place = self.nodes[at].settle();
        self.nodes[parent].children.shift(&before, place);
    }

    /// Computes one rank anew.
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
        let place = self.first_place(number, at, weight);
        let node = Node::new(parent, kind(), name.clone(), place, weight);
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
        self.nodes[parent].children.insert(place);
        at
    }

    /// A number for the name of another child.
    fn number(&mut self, parent: usize, name: &str) -> u64 {
        let siblings = &self.nodes[parent].by_name;
        let of = |(_, node): (_, &usize)| self.nodes[*node].place.name;
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

    /// Numbers the names of all children anew.
    fn renumber(&mut self, parent: usize) {
        let children: Vec<usize> = self.nodes[parent].by_name.values().copied().collect();
        for (child, name) in children.into_iter().zip(numbers()) {
            self.nodes[child].place.name = name;
        }
        let mut own = std::mem::take(&mut self.nodes[parent].children);
        own.renumber(|child| self.nodes[child].place.name);
        self.nodes[parent].children = own;
    }

    /// Lets go of a node, and of those above that have become empty.
    fn prune(&mut self, mut at: usize) {
        while at != ROOT && self.nodes[at].by_name.is_empty() {
            let (parent, place) = (self.nodes[at].parent, self.nodes[at].place);
            let name = self.nodes[at].name.clone();
            let above = &mut self.nodes[parent];
            above.children.take(&place);
            above.by_name.remove(&name);
            if above.by_name.len() == 1 {
                // Who is alone is found whatever its place says.
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
