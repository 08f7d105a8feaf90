//! The sorter: walks the rooms of a slate in order and gives each to whoever is next in a tree (SPEC 4.5, S78, S86). By the tree's order it
//! is dominant-resource-fair ([`Drf`]), or another policy.
//!
//! What it gives of a room, and to whom guarantees and limits allow it, is for the [`Budgets`] to say, as on the allocator's side.
//!
//! Pure: it hears slates and returns advice. Remembers one [`Tree`] for each pool, because revocable resources are worth something else
//! than regular ones (S46). Never sees an agent's name, a filter or a clock.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use module_api::Fault;
use module_api::sorter::{
    Advice, Budgets, Change, Client, Exclusion, Place, Pool, Room, Shape, Slate, Stage,
    is_allocatable,
};
use resources::{Name, Quantities, Role};
use rustc_hash::FxHashMap;

use super::order::{Fair, Order};
use super::tree::{Tree, Visit};

/// Rooms of a slate after which the walk parks what there is nothing to find in. Parking costs more than passing by a few times.
const ROOMS_UNPARKED: usize = 8;

/// The sorter by weighted dominant resource fairness.
pub type Drf = TreeSorter<Fair>;

/// What a sorter knows.
#[derive(Clone, Debug)]
pub struct TreeSorter<O: Order> {
    /// The epoch and the number of the slate it expects.
    next: Option<(u64, u64)>,
    regular: Tree<O>,
    revocable: Tree<O>,
    /// Each client's role, and the budget that counts for it.
    roles: FxHashMap<Client, (Role, Option<Place>)>,
    /// The shapes of those who have one.
    shapes: BTreeMap<Client, Shape>,
    budgets: Budgets,
    /// Who stands for what is reserved for a role and idle, where that is charged.
    idle: BTreeMap<Role, Client>,
    /// Names that count for no share (SPEC 4.1).
    excluded: Vec<Name>,
}

impl Default for Drf {
    fn default() -> Self {
        Self::excluding(Vec::new())
    }
}

impl Drf {
    /// A sorter for which these names count for no share.
    pub fn excluding(excluded: Vec<Name>) -> Self {
        Self::ordered_by(|| Fair, excluded)
    }
}

impl<O: Order> TreeSorter<O> {
    /// A sorter with an order of its own for each pool. These names count for no share.
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

    /// Applies the slate's changes and walks its rooms. A slate out of step is refused: the allocator must begin a new epoch.
    pub fn advise(&mut self, slate: Slate) -> Result<Vec<Advice>, Fault> {
        if slate.number == 0 {
            self.forget();
        } else if self.next != Some((slate.epoch, slate.number)) {
            let reason = format!(
                "slate {} of epoch {} is out of step with {:?}",
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
                let Some((role, place)) = self.roles.get(&client) else {
                    break;
                };
                let shape = self.shapes.get(&client);
                let reserved = charged.then(|| room.reserved.clone());
                let given = self
                    .budgets
                    .take(slate.stage, *place, role, shape, &mut room);
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
            Change::Weighed { role, weight } => {
                self.regular.weigh(&role, weight);
                self.revocable.weigh(&role, weight);
            }
            Change::Budgets { table } => {
                self.budgets = Budgets::new(table);
                for (client, (role, place)) in &mut self.roles {
                    *place = self.budgets.find(role);
                    self.regular.assign(*client, *place);
                }
            }
            Change::Budget { place, left, unmet } => self.budgets.set(place, left, unmet),
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
                let place = self.budgets.find(&role);
                self.regular.assign(client, place);
                self.roles.insert(client, (role, place));
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
            Change::Held {
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

    /// What it believes of guarantees and limits.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// The order of one pool, for tests and for whoever wants to look.
    pub fn tree(&mut self, pool: Pool) -> &mut Tree<O> {
        match pool {
            Pool::Regular => &mut self.regular,
            Pool::Revocable => &mut self.revocable,
        }
    }
}

/// The roles that anything is reserved for in these rooms.
fn owners(rooms: &[Room]) -> BTreeSet<Role> {
    let reserved = rooms.iter().flat_map(|room| &room.reserved);
    reserved.map(|(owner, _)| owner.clone()).collect()
}

/// What does not change in the walk over a slate.
struct Walk<'a> {
    stage: Stage,
    sets_min: &'a [Quantities],
    /// What is worth an offer to anybody, whatever its shape.
    loosest: Cow<'a, [Quantities]>,
    roles: &'a FxHashMap<Client, (Role, Option<Place>)>,
    shapes: &'a BTreeMap<Client, Shape>,
    excluded: Excluded<'a>,
    owners: BTreeSet<Role>,
}

impl Walk<'_> {
    /// Who is next for what is left of this room, of which those who are served have had a portion of their shape.
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
        // What may be given of the unreserved part, whoever it is.
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
        // Once the unreserved part is gone, only the roles that something is reserved for need be visited.
        let gone = free.is_empty();
        let wanted_branch = |role: &Role| {
            let on_the_way = |owner: &Role| role.is_within(owner) || owner.is_within(role);
            !gone || room.reserved.iter().any(|(owner, _)| on_the_way(owner))
        };
        tree.first(
            wanted_branch,
            |role, place| self.visit(budgets, role, place, room),
            |client| {
                !self.excluded.has(client, n)
                    && (self.shapes.is_empty() || self.fits(budgets, client, room, served))
            },
        )
    }

    /// What to do about the frameworks of a role.
    fn visit(&self, budgets: &Budgets, role: &Role, place: Option<Place>, room: &Room) -> Visit {
        let unlimited = match self.stage {
            Stage::Guarantees if !budgets.is_needy(place) => return Visit::Park,
            Stage::Guarantees => false,
            Stage::Fair => !budgets.is_limited(place),
            Stage::Revocable => true,
        };
        if unlimited && room.reserved.is_empty() {
            return Visit::Enter;
        }
        let amount = budgets.amount(self.stage, place, role, None, room);
        if is_allocatable(&amount, &self.loosest) {
            Visit::Enter
        } else if self.stage == Stage::Fair
            && !unlimited
            && !budgets.may_give(place, &self.loosest)
            && !self.owners.iter().any(|owner| role.is_within(owner))
        {
            Visit::Park
        } else {
            Visit::Pass
        }
    }

    /// Whether what is left of the room is worth an offer to this client, by its shape or as for everybody.
    fn fits(&self, budgets: &Budgets, client: Client, room: &Room, served: &[Client]) -> bool {
        let Some((role, place)) = self.roles.get(&client) else {
            return false;
        };
        let shape = self.shapes.get(&client);
        if shape.is_some() && served.contains(&client) {
            return false;
        }
        let sets = shape.map_or(self.sets_min, |shape| shape.sets(self.sets_min));
        let amount = budgets.amount(self.stage, *place, role, shape, room);
        is_allocatable(&amount, sets)
    }
}

/// The slate's exclusions by client.
struct Excluded<'a>(Vec<Option<&'a Exclusion>>);

impl<'a> Excluded<'a> {
    fn of(all: &'a [Exclusion]) -> Self {
        // Clients are dense numbers, yet nothing a stranger sends may size a table: unheard-of numbers are left out.
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
    fn agents_go_one_by_one_to_the_poorest_role_and_framework() {
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
    fn a_room_that_somebody_refused_goes_to_the_next() {
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
    fn what_is_reserved_goes_to_its_role_and_what_is_too_little_to_nobody() {
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

    /// W24: what was reserved and idle is in use from then on, and counts once, in the same slate as well.
    #[test]
    fn what_is_given_of_an_idle_reservation_counts_once() {
        for (idle, expected) in [(true, [(0, 0), (1, 0)]), (false, [(0, 0), (1, 1)])] {
            let (pool, mut changes) = (Pool::Regular, [joined(0, "a"), joined(1, "b")].concat());
            let stands_for = Change::Joined {
                client: 2,
                role: Role::new("a").unwrap(),
                framework: FrameworkId::new("idle").unwrap(),
            };
            changes.push(stands_for);
            changes.extend(idle.then_some(Change::Idle { client: 2 }));
            changes.extend(
                [(2, "cpus:4"), (1, "cpus:5")].map(|(client, text)| Change::Held {
                    pool,
                    client,
                    amount: quantities(text),
                }),
            );
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
    fn a_slate_out_of_step_is_refused_until_an_epoch_begins() {
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
