//! The sorter: walks the rooms of a slate in order and gives each to the next client of a tree. The
//! tree's order makes it dominant-resource-fair ([`Drf`]) or another policy.
//!
//! The size of each portion, within guarantees and limits, comes from [`Budgets`], as in the
//! allocator.
//!
//! Keeps one [`Tree`] for each pool, because shares of regular and revocable resources are
//! separate. Knows neither agents' names nor filters, and reads no clock.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use module_api::Fault;
use module_api::sorter::{
    Advice, BudgetIndex, Budgets, Change, Client, Exclusion, Pool, Room, Shape, Slate, Stage,
    is_allocatable,
};
use resources::{Name, Quantities, Role};
use rustc_hash::FxHashMap;

use super::order::{Fair, Order};
use super::tree::{Tree, Visit};

/// Index of the room from which on the walk parks exhausted branches. Parking costs more than
/// skipping a branch a few times.
const ROOMS_UNPARKED: usize = 8;

/// The sorter by weighted dominant resource fairness.
pub type Drf = TreeSorter<Fair>;

/// A sorter's state.
#[derive(Clone, Debug)]
pub struct TreeSorter<O: Order> {
    /// Epoch and number of the expected slate.
    next: Option<(u64, u64)>,
    regular: Tree<O>,
    revocable: Tree<O>,
    /// Role and applicable budget of each client.
    roles: FxHashMap<Client, (Role, Option<BudgetIndex>)>,
    /// Shapes of the clients that have one.
    shapes: BTreeMap<Client, Shape>,
    budgets: Budgets,
    /// The placeholders of idle reservations by role, where those count for shares.
    idle: BTreeMap<Role, Client>,
    /// Names that do not count for shares.
    excluded: Vec<Name>,
}

impl Default for Drf {
    fn default() -> Self {
        Self::excluding(Vec::new())
    }
}

impl Drf {
    /// A sorter that ignores these names in shares.
    pub fn excluding(excluded: Vec<Name>) -> Self {
        Self::ordered_by(|| Fair, excluded)
    }
}

impl<O: Order> TreeSorter<O> {
    /// A sorter with one order for each pool, which ignores these names in shares.
    pub fn ordered_by(mut order: impl FnMut() -> O, excluded: Vec<Name>) -> Self {
        Self {
            next: None,
            regular: Tree::ordered_by(order()),
            revocable: Tree::ordered_by(order()),
            roles: FxHashMap::default(),
            shapes: BTreeMap::new(),
            budgets: Budgets::default(),
            idle: BTreeMap::new(),
            excluded,
        }
    }

    /// Applies the slate's changes and walks its rooms. Rejects a slate out of sequence: the
    /// allocator must then begin a new epoch.
    pub fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault> {
        if slate.number == 0 {
            self.forget();
        } else if self.next != Some((slate.epoch, slate.number)) {
            let reason = format!(
                "slate {} of epoch {} is out of sequence: expected {:?}",
                slate.number, slate.epoch, self.next
            );
            return Err(Fault::Failed { reason });
        }
        self.next = Some((slate.epoch, slate.number + 1));
        slate
            .changes
            .into_iter()
            .for_each(|change| self.apply(change));
        let walk = Walk {
            stage: slate.stage,
            sets_min: &slate.sets_min,
            loosest: match self.shapes.is_empty() {
                true => Cow::Borrowed(slate.sets_min.as_slice()),
                false => Cow::Owned(Shape::loosest(&slate.sets_min, self.shapes.values())),
            },
            roles: &self.roles,
            shapes: &self.shapes,
            excluded: Excluded::of(&slate.exclusions),
            owners: owners(&slate.rooms),
        };
        let mut advice = Vec::with_capacity(slate.rooms.len());
        let charged = slate.stage.pool() == Pool::Regular && !self.idle.is_empty();
        let tree = match slate.stage.pool() {
            Pool::Regular => &mut self.regular,
            Pool::Revocable => &mut self.revocable,
        };
        for (n, mut room) in slate.rooms.into_iter().enumerate() {
            let Ok(number) = u32::try_from(n) else { break };
            tree.parks = n >= ROOMS_UNPARKED;
            let mut served = Vec::new();
            while let Some(client) = walk.next(tree, &self.budgets, (n, &room), &served) {
                let Some((role, index)) = self.roles.get(&client) else {
                    break;
                };
                let shape = self.shapes.get(&client);
                let reserved = charged.then(|| room.reserved.clone());
                let given = self
                    .budgets
                    .take(slate.stage, *index, role, shape, &mut room);
                tree.hold(client, &given);
                for (owner, less) in reserved.iter().flat_map(|own| room.reserved_less(own)) {
                    if let Some(idle) = self.idle.get(&owner) {
                        tree.free(*idle, &less);
                    }
                }
                served.extend(shape.map(|_| client));
                advice.push(Advice {
                    room: number,
                    client,
                });
            }
        }
        tree.unpark();
        Ok(advice)
    }

    fn forget(&mut self) {
        self.regular.forget();
        self.revocable.forget();
        self.roles.clear();
        self.shapes.clear();
        self.budgets = Budgets::default();
        self.idle.clear();
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::WeightChanged { role, weight } => {
                self.regular.weigh(&role, weight);
                self.revocable.weigh(&role, weight);
            }
            Change::Budgets { table } => {
                self.budgets = Budgets::new(table);
                for (client, (role, index)) in &mut self.roles {
                    *index = self.budgets.find(role);
                    self.regular.assign(*client, *index);
                }
            }
            Change::Budget { index, left, unmet } => self.budgets.set(index, left, unmet),
            Change::Headroom { amount } => self.budgets.set_headroom(amount),
            Change::Total { pool, total } => {
                let counts = |(name, _): &(&Name, _)| !self.excluded.contains(name);
                let total = total.iter().filter(counts);
                let total = total.map(|(name, amount)| (name.clone(), amount)).collect();
                self.tree(pool).set_total(&total);
            }
            Change::Joined {
                client,
                role,
                framework,
            } => {
                for pool in Pool::ALL {
                    self.tree(pool).join(client, &role, framework.as_str());
                }
                let index = self.budgets.find(&role);
                self.regular.assign(client, index);
                self.roles.insert(client, (role, index));
            }
            Change::Left { client } => {
                for pool in Pool::ALL {
                    self.tree(pool).leave(client);
                }
                self.roles.remove(&client);
                self.shapes.remove(&client);
                self.idle.retain(|_, idle| *idle != client);
            }
            Change::Shaped { client, shape } => {
                if shape.is_open() || !self.roles.contains_key(&client) {
                    self.shapes.remove(&client);
                } else {
                    self.shapes.insert(client, shape);
                }
            }
            Change::Activity {
                pool,
                client,
                active,
            } => self.tree(pool).set_active(client, active),
            Change::Allocated {
                pool,
                client,
                amount,
            } => self.tree(pool).hold(client, &amount),
            Change::Freed {
                pool,
                client,
                amount,
            } => self.tree(pool).free(client, &amount),
            Change::Idle { client } => {
                if let Some((role, _)) = self.roles.get(&client) {
                    self.idle.insert(role.clone(), client);
                }
            }
        }
    }

    /// The sorter's assumed guarantees and limits.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// The tree of one pool, for tests.
    pub fn tree(&mut self, pool: Pool) -> &mut Tree<O> {
        match pool {
            Pool::Regular => &mut self.regular,
            Pool::Revocable => &mut self.revocable,
        }
    }
}

/// The roles with reservations in these rooms.
fn owners(rooms: &[Room]) -> BTreeSet<Role> {
    let reserved = rooms.iter().flat_map(|room| &room.reserved);
    reserved.map(|(owner, _)| owner.clone()).collect()
}

/// Constants of the walk over one slate.
struct Walk<'a> {
    stage: Stage,
    sets_min: &'a [Quantities],
    /// Smallest amounts worth an offer to any client, see [`Shape::loosest`].
    loosest: Cow<'a, [Quantities]>,
    roles: &'a FxHashMap<Client, (Role, Option<BudgetIndex>)>,
    shapes: &'a BTreeMap<Client, Shape>,
    excluded: Excluded<'a>,
    owners: BTreeSet<Role>,
}

impl Walk<'_> {
    /// The next client for the rest of this room. Served clients already have a portion of their
    /// shape.
    fn next<O: Order>(
        &self,
        tree: &mut Tree<O>,
        budgets: &Budgets,
        (n, room): (usize, &Room),
        served: &[Client],
    ) -> Option<Client> {
        if room.is_empty() {
            return None;
        }
        // The part of the unreserved resources that any client could get.
        let free = match self.stage {
            Stage::Guarantees => Cow::Owned(room.free.lesser(budgets.required())),
            Stage::Fair => budgets.spare(&room.free),
            Stage::Revocable => Cow::Borrowed(&room.free),
        };
        let plain = room.reserved.is_empty();
        match self.stage {
            Stage::Guarantees if free.is_empty() => return None,
            Stage::Fair | Stage::Revocable if plain && !is_allocatable(&free, &self.loosest) => {
                return None;
            }
            _ => {}
        }
        // Without unreserved resources, only roles with a reservation in this room can get
        // something.
        let gone = free.is_empty();
        let wanted_branch = |role: &Role| {
            let on_the_way = |owner: &Role| role.is_within(owner) || owner.is_within(role);
            !gone || room.reserved.iter().any(|(owner, _)| on_the_way(owner))
        };
        tree.first(
            wanted_branch,
            |role, index| self.visit(budgets, role, index, room),
            |client| {
                !self.excluded.has(client, n)
                    && (self.shapes.is_empty() || self.fits(budgets, client, room, served))
            },
        )
    }

    /// Whether to consider the frameworks of a role.
    fn visit(
        &self,
        budgets: &Budgets,
        role: &Role,
        index: Option<BudgetIndex>,
        room: &Room,
    ) -> Visit {
        let unlimited = match self.stage {
            Stage::Guarantees if !budgets.is_needy(index) => return Visit::Park,
            Stage::Guarantees => false,
            Stage::Fair => !budgets.is_limited(index),
            Stage::Revocable => true,
        };
        if unlimited && room.reserved.is_empty() {
            return Visit::Enter;
        }
        let amount = budgets.amount(self.stage, index, role, None, room);
        if is_allocatable(&amount, &self.loosest) {
            Visit::Enter
        } else if self.stage == Stage::Fair
            && !unlimited
            && !budgets.may_give(index, &self.loosest)
            && !self.owners.iter().any(|owner| role.is_within(owner))
        {
            Visit::Park
        } else {
            Visit::Pass
        }
    }

    /// Whether the rest of the room is worth an offer to this client, by its own shape or the
    /// common sets.
    fn fits(&self, budgets: &Budgets, client: Client, room: &Room, served: &[Client]) -> bool {
        let Some((role, index)) = self.roles.get(&client) else {
            return false;
        };
        let shape = self.shapes.get(&client);
        if shape.is_some() && served.contains(&client) {
            return false;
        }
        let sets = shape.map_or(self.sets_min, |shape| shape.sets(self.sets_min));
        let amount = budgets.amount(self.stage, *index, role, shape, room);
        is_allocatable(&amount, sets)
    }
}

/// The slate's exclusions by client.
struct Excluded<'a>(Vec<Option<&'a Exclusion>>);

impl<'a> Excluded<'a> {
    fn of(all: &'a [Exclusion]) -> Self {
        // Clients are dense numbers, but a message must not size a table: larger numbers are
        // ignored.
        const CLIENTS_MAX: usize = 1 << 22;
        let known = all.iter().filter(|one| (one.client as usize) < CLIENTS_MAX);
        let length = known.clone().map(|one| one.client as usize + 1).max();
        let mut table = vec![None; length.unwrap_or(0)];
        known.for_each(|one| table[one.client as usize] = Some(one));
        Self(table)
    }

    fn has(&self, client: Client, room: usize) -> bool {
        let own = self.0.get(client as usize).copied().flatten();
        own.is_some_and(|exclusion| exclusion.has(room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::FrameworkId;

    fn quantities(text: &str) -> Quantities {
        Quantities::parse(text).unwrap()
    }

    fn room(free: &str) -> Room {
        Room {
            free: quantities(free),
            reserved: Vec::new(),
        }
    }

    fn slate(number: u64, changes: Vec<Change>, rooms: Vec<Room>) -> Slate {
        Slate {
            epoch: 3,
            number,
            stage: Stage::Fair,
            changes,
            sets_min: vec![quantities("cpus:0.01"), quantities("mem:32")],
            rooms,
            exclusions: Vec::new(),
        }
    }

    fn joined(client: Client, role: &str) -> Vec<Change> {
        let role = Role::new(role).unwrap();
        let framework = FrameworkId::new(format!("f{client}")).unwrap();
        vec![
            Change::Joined {
                client,
                role,
                framework,
            },
            Change::Activity {
                pool: Pool::Regular,
                client,
                active: true,
            },
        ]
    }

    fn clients(advice: &[Advice]) -> Vec<(u32, Client)> {
        advice.iter().map(|one| (one.room, one.client)).collect()
    }

    /// SPEC 4.10, UnreservedDRF, in its whole sequence.
    #[test]
    fn agents_go_to_the_smallest_share_one_by_one() {
        let mut sorter = Drf::default();
        let pool = Pool::Regular;
        let sizes = [(2, 1024), (1, 512), (3, 2048), (4, 4096), (1, 512)];
        let (mut cpus, mut mem) = (0, 0);
        let mut given = Vec::new();
        let joins = [
            Some((0, "role1")),
            Some((1, "role2")),
            None,
            Some((2, "role1")),
            None,
        ];
        for ((number, (c, m)), join) in (0..).zip(sizes).zip(joins) {
            (cpus, mem) = (cpus + c, mem + m);
            let mut changes = join.map_or(vec![], |(client, role)| joined(client, role));
            let total = quantities(&format!("cpus:{cpus};mem:{mem}"));
            changes.push(Change::Total { pool, total });
            let rooms = vec![room(&format!("cpus:{c};mem:{m}"))];
            let advice = sorter.advise(slate(number, changes, rooms)).unwrap();
            given.push(clients(&advice)[0].1);
        }
        assert_eq!(given, [0, 1, 1, 2, 1]);
    }

    #[test]
    fn excluded_room_goes_to_the_next_client() {
        let mut sorter = Drf::default();
        let changes = [joined(0, "a"), joined(1, "b")].concat();
        let mut asked = slate(0, changes, vec![room("cpus:1"), room("cpus:1")]);
        let mut exclusion = Exclusion {
            client: 0,
            rooms: Vec::new(),
        };
        exclusion.add(0);
        exclusion.add(1);
        asked.exclusions = vec![exclusion];
        assert_eq!(clients(&sorter.advise(asked).unwrap()), [(0, 1), (1, 1)]);
    }

    /// SPEC 4.10, ReservedDRF and MinAllocatable.
    #[test]
    fn reserved_rooms_go_to_their_role_and_small_ones_to_none() {
        let mut sorter = Drf::default();
        let changes = [joined(0, "a"), joined(1, "b/c")].concat();
        let reserved = |role: &str, free: &str, text: &str| Room {
            free: quantities(free),
            reserved: vec![(Role::new(role).unwrap(), quantities(text))],
        };
        let rooms = vec![
            reserved("b", "cpus:1", "cpus:4"),
            reserved("nobody", "mem:31", "cpus:4"),
            reserved("a", "", "mem:31"),
            room("disk:100"),
        ];
        assert_eq!(
            clients(&sorter.advise(slate(0, changes, rooms)).unwrap()),
            [(0, 0), (0, 1)]
        );
    }

    /// W24: a granted reservation counts once, within the same slate as well.
    // Covers W24.
    #[test]
    fn granted_idle_reservation_counts_once() {
        for (idle, expected) in [(true, [(0, 0), (1, 0)]), (false, [(0, 0), (1, 1)])] {
            let (pool, mut changes) = (Pool::Regular, [joined(0, "a"), joined(1, "b")].concat());
            let stands_for = Change::Joined {
                client: 2,
                role: Role::new("a").unwrap(),
                framework: FrameworkId::new("idle").unwrap(),
            };
            changes.push(stands_for);
            changes.extend(idle.then_some(Change::Idle { client: 2 }));
            changes.extend([(2, "cpus:4"), (1, "cpus:5")].map(|(client, text)| {
                Change::Allocated {
                    pool,
                    client,
                    amount: quantities(text),
                }
            }));
            let total = quantities("cpus:20");
            changes.push(Change::Total { pool, total });
            let reserved = Room {
                free: Quantities::new(),
                reserved: vec![(Role::new("a").unwrap(), quantities("cpus:4"))],
            };
            let mut sorter = Drf::default();
            let rooms = vec![reserved, room("cpus:2")];
            let advice = sorter.advise(slate(0, changes, rooms)).unwrap();
            assert_eq!(clients(&advice), expected, "is {idle}");
            let left = sorter.tree(pool).held_by(2);
            assert_eq!(left.is_empty(), idle, "{left}");
        }
    }

    #[test]
    fn slate_out_of_sequence_is_rejected_until_a_new_epoch() {
        let mut sorter = Drf::default();
        assert!(sorter.advise(slate(1, vec![], vec![])).is_err());
        assert!(sorter.advise(slate(0, joined(0, "a"), vec![])).is_ok());
        assert!(sorter.advise(slate(2, vec![], vec![])).is_err());
        let mut other = slate(1, vec![], vec![]);
        other.epoch = 4;
        assert!(sorter.advise(other).is_err());
        let advice = sorter
            .advise(slate(1, vec![], vec![room("cpus:1")]))
            .unwrap();
        assert_eq!(clients(&advice), [(0, 0)]);
        let advice = sorter
            .advise(slate(0, vec![], vec![room("cpus:1")]))
            .unwrap();
        assert!(advice.is_empty(), "a new epoch knows no client");
    }
}
