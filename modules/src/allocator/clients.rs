//! Clients: each framework in each of its roles, by a small number (DESIGN 6).
//!
//! Pure. Remembers what each holds in each pool, and what the sorter believes about it; the difference is what the next slate tells the
//! sorter. So the sorter is corrected whatever went wrong, and what waits to be told is bounded by the number of clients.

use std::collections::BTreeMap;

use module_api::sorter::{Change, Client, Pool, Room, Shape};
use protocol::FrameworkId;
use resources::{Allocation, Quantities, Role};
use rustc_hash::{FxHashMap, FxHashSet};

use super::bits::Bits;
use super::books::Away;
use super::charges::Charges;
use super::choice::Choice;

/// One framework in one of its roles.
#[derive(Clone, Debug)]
pub struct Member {
    /// Whose.
    pub framework: FrameworkId,
    /// The role.
    pub role: Role,
    /// What it is granted is allocated so.
    pub allocation: Allocation,
    /// Whether the framework is in the role now. If not, the client stays only until all it holds is recovered.
    pub subscribed: bool,
    /// Whether the framework wants nothing in this role for the present.
    pub suppressed: bool,
    /// Whether it is offered anything, by pool.
    active: [bool; 2],
    /// What it holds, offered or launched, by pool.
    held: [Quantities; 2],
    /// What its framework understands beyond plain resources.
    pub takes: Takes,
    /// Which agents it would take.
    pub choice: Choice,
    /// What its offers have at least and at most.
    shape: Shape,
    /// On how many agents it holds anything, each pool counted apart.
    places: usize,
    /// The agents on which it has filters.
    pub filtered: FxHashSet<u32>,
    told: Option<Told>,
    /// Since when it takes no part, if it takes none.
    pub(super) away: Option<Away>,
}

/// What a framework can make use of (SPEC 4.5, `capable` and `strip`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Agents with graphics processors.
    pub gpus: bool,
    /// Agents of other regions.
    pub remote: bool,
    /// Shared volumes.
    pub shared: bool,
    /// Refined reservations.
    pub refined: bool,
    /// What agents lend, which may be taken back at any time.
    pub revocable: bool,
}

impl Takes {
    /// Whether whoever takes this can make use of something that whoever takes the other cannot.
    pub(super) fn is_more_than(&self, other: &Self) -> bool {
        (self.gpus && !other.gpus)
            || (self.remote && !other.remote)
            || (self.shared && !other.shared)
            || (self.refined && !other.refined)
            || (self.revocable && !other.revocable)
    }
}

/// What counts of a client where its filters are looked at, which is done for very many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// It takes no part.
    Out,
    /// It takes whatever it may be given.
    Open,
    /// Its offers have a shape.
    Shaped,
}

/// The stances of all clients.
pub struct Stances {
    /// By the clients' numbers.
    each: Vec<Stance>,
    /// Who takes whatever it may be given.
    pub open: Bits,
    /// Whose offers have a shape.
    pub shaped: Bits,
}

impl Stances {
    /// That of this client.
    pub fn of(&self, client: Client) -> Stance {
        let stance = self.each.get(client as usize);
        stance.copied().unwrap_or(Stance::Out)
    }

    /// One more than the highest number of a client.
    pub fn clients(&self) -> usize {
        self.each.len()
    }
}

/// What the sorter believes of a client.
#[derive(Clone, Debug, Default)]
struct Told {
    active: [bool; 2],
    held: [Quantities; 2],
    shape: Shape,
}

/// A client that has left without that the sorter knows it yet, as the sorter has it.
#[derive(Clone, Debug)]
pub struct Departed {
    /// The role that it was in.
    pub role: Role,
    shape: Shape,
}

impl Departed {
    /// What the sorter takes for the shape of its offers, if they have one.
    pub fn shape(&self) -> Option<&Shape> {
        (!self.shape.is_open()).then_some(&self.shape)
    }
}

impl Member {
    /// Whether it is offered anything in this pool.
    pub fn is_active(&self, pool: Pool) -> bool {
        self.active[index(pool)]
    }

    /// Whether the sorter believes that it is offered anything in this pool.
    pub fn is_believed_active(&self, pool: Pool) -> bool {
        let told = self.told.as_ref();
        told.is_some_and(|told| told.active[index(pool)])
    }

    /// What its offers have at least and at most; none if they may be anything.
    pub fn shape(&self) -> Option<&Shape> {
        (!self.shape.is_open()).then_some(&self.shape)
    }

    /// The same as the sorter believes it.
    pub fn shape_believed(&self) -> Option<&Shape> {
        let told = self.told.as_ref().map(|told| &told.shape);
        told.filter(|shape| !shape.is_open())
    }

    /// What it holds in this pool.
    pub fn held(&self, pool: Pool) -> &Quantities {
        &self.held[index(pool)]
    }
}

/// The place of a pool in an array of both.
pub fn index(pool: Pool) -> usize {
    match pool {
        Pool::Regular => 0,
        Pool::Revocable => 1,
    }
}

/// The clients about which the sorter may believe something wrong, each once, in the order in which that came about.
#[derive(Clone, Debug, Default)]
struct Dirty {
    clients: Vec<Client>,
    /// By number. It outlives the client: whoever gets the number next is in the list already.
    marked: Vec<bool>,
}

impl Dirty {
    fn mark(&mut self, client: Client) {
        let at = client as usize;
        if at >= self.marked.len() {
            self.marked.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.marked[at], true) {
            self.clients.push(client);
        }
    }

    fn take(&mut self) -> Vec<Client> {
        for client in &self.clients {
            self.marked[*client as usize] = false;
        }
        std::mem::take(&mut self.clients)
    }
}

/// All clients.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    members: Vec<Option<Member>>,
    unused: Vec<Client>,
    by_key: FxHashMap<FrameworkId, BTreeMap<Role, Client>>,
    dirty: Dirty,
    /// Clients that have left and that the sorter has not been told of; their numbers are not used again before.
    left: BTreeMap<Client, Departed>,
    /// What is reserved and idle where that is charged; the numbers there are nobody's here.
    charges: Charges,
    active: [usize; 2],
    /// Counts how often a client began or ceased to take part.
    activity: u64,
}

impl Clients {
    /// The client of this framework in this role.
    pub fn find(&self, framework: &FrameworkId, role: &Role) -> Option<Client> {
        self.by_key.get(framework)?.get(role).copied()
    }

    /// All clients of this framework.
    pub fn of(&self, framework: &FrameworkId) -> Vec<Client> {
        let roles = self.by_key.get(framework);
        roles.map_or_else(Vec::new, |roles| roles.values().copied().collect())
    }

    /// The client of this number.
    pub fn get(&self, client: Client) -> Option<&Member> {
        self.members.get(client as usize)?.as_ref()
    }

    /// The client of this number, to be changed in what the sorter need not know.
    pub fn get_mut(&mut self, client: Client) -> Option<&mut Member> {
        self.members.get_mut(client as usize)?.as_mut()
    }

    /// The client of this number that has left without that the sorter knows it yet.
    pub fn departed(&self, client: Client) -> Option<&Departed> {
        self.left.get(&client)
    }

    /// All clients with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Client, &Member)> {
        (0..)
            .zip(&self.members)
            .filter_map(|(client, member)| Some((client, member.as_ref()?)))
    }

    /// The agent in that slot is gone: the next one there is judged anew.
    pub fn forget_verdicts(&mut self, slot: u32) {
        let members = self.members.iter_mut().flatten();
        members.for_each(|member| member.choice.forget(slot));
    }

    /// How a look at filters goes for each client in this pool.
    pub fn stances(&self, pool: Pool) -> Stances {
        let stance = |member: &Option<Member>| match member {
            Some(member) if !member.is_active(pool) => Stance::Out,
            Some(member) if member.shape.is_open() => Stance::Open,
            Some(_) => Stance::Shaped,
            None => Stance::Out,
        };
        let each: Vec<Stance> = self.members.iter().map(stance).collect();
        let those = |wanted: Stance| {
            let all = (0..).zip(&each);
            all.filter_map(move |(client, stance)| (*stance == wanted).then_some(client))
                .collect()
        };
        Stances {
            open: those(Stance::Open),
            shaped: those(Stance::Shaped),
            each,
        }
    }

    /// How many take part in this pool.
    pub fn active(&self, pool: Pool) -> usize {
        self.active[index(pool)]
    }

    /// Counts how often a client began or ceased to take part in either pool.
    pub fn activity(&self) -> u64 {
        self.activity
    }

    /// The client of this framework in this role, made if there is none yet.
    pub fn admit(&mut self, framework: &FrameworkId, role: &Role) -> Client {
        if let Some(client) = self.find(framework, role) {
            return client;
        }
        let client = number(&mut self.members, &mut self.unused);
        self.members[client as usize] = Some(Member {
            framework: framework.clone(),
            role: role.clone(),
            allocation: Allocation::to(role.clone()),
            subscribed: false,
            suppressed: false,
            active: [false; 2],
            held: Default::default(),
            takes: Takes::default(),
            choice: Choice::default(),
            shape: Shape::default(),
            places: 0,
            filtered: FxHashSet::default(),
            told: None,
            away: Some(Away::default()),
        });
        let roles = self.by_key.entry(framework.clone()).or_default();
        roles.insert(role.clone(), client);
        self.touch(client);
        client
    }

    /// Lets go of a client that is in its role no more and holds nothing.
    pub fn release(&mut self, client: Client) {
        let idle = |member: &Member| !member.subscribed && member.places == 0;
        if !self.get(client).is_some_and(idle) {
            return;
        }
        self.set_active(client, [false; 2]);
        let Some(member) = self.members[client as usize].take() else {
            return;
        };
        if let Some(roles) = self.by_key.get_mut(&member.framework) {
            roles.remove(&member.role);
            if roles.is_empty() {
                self.by_key.remove(&member.framework);
            }
        }
        match member.told {
            Some(told) => {
                let (role, shape) = (member.role, told.shape);
                self.left.insert(client, Departed { role, shape });
            }
            None => self.unused.push(client),
        }
    }

    /// Whether a client is offered anything, by pool.
    pub fn set_active(&mut self, client: Client, active: [bool; 2]) {
        let Some(member) = self.get_mut(client) else {
            return;
        };
        let before = std::mem::replace(&mut member.active, active);
        self.activity += u64::from(before != active);
        for pool in 0..2 {
            self.active[pool] += usize::from(active[pool]);
            self.active[pool] -= usize::from(before[pool]);
        }
        self.touch(client);
    }

    /// A client's offers have this shape from now on. Says whether it is another one.
    pub fn set_shape(&mut self, client: Client, shape: Shape) -> bool {
        let Some(member) = self.get_mut(client).filter(|one| one.shape != shape) else {
            return false;
        };
        member.shape = shape;
        self.touch(client);
        true
    }

    /// A client holds more on an agent; it is the first that it holds there in that pool, or not.
    pub fn hold(&mut self, pool: Pool, client: Client, amount: &Quantities, first: bool) {
        if let Some(member) = self.get_mut(client) {
            member.held[index(pool)] += amount;
            member.places += usize::from(first);
            self.touch(client);
        }
    }

    /// A client holds less.
    pub fn free(&mut self, pool: Pool, client: Client, amount: &Quantities) {
        if let Some(member) = self.get_mut(client) {
            member.held[index(pool)] -= amount;
            self.touch(client);
        }
    }

    /// A client holds nothing any more on an agent in some pool.
    pub fn leave(&mut self, client: Client) {
        if let Some(member) = self.get_mut(client) {
            member.places = member.places.saturating_sub(1);
        }
    }

    /// The sorter has advised to give this to the client, and believes that it was done.
    pub fn presume(&mut self, pool: Pool, client: Client, amount: &Quantities) {
        let told = self.get_mut(client).and_then(|member| member.told.as_mut());
        if let Some(told) = told {
            told.held[index(pool)] += amount;
            self.touch(client);
        }
    }

    /// Of what is reserved for a role so much more is idle, and so much less; it counts towards its share (W24).
    pub fn charge(&mut self, role: &Role, more: &Quantities, less: &Quantities) {
        let (members, unused) = (&mut self.members, &mut self.unused);
        self.charges
            .change(role, more, less, || number(members, unused));
    }

    /// The sorter has advised to give what less is reserved in this room than was before, and believes that it is idle no more.
    pub fn presume_given(&mut self, pool: Pool, before: &[(Role, Quantities)], room: &Room) {
        if pool == Pool::Regular {
            for (role, less) in room.reserved_less(before) {
                self.charges.presume(&role, &less);
            }
        }
    }

    /// What is charged to roles for what is reserved and idle, each with its number among the clients.
    pub fn charges(&self) -> impl Iterator<Item = (Client, &Role, &Quantities)> {
        self.charges.iter()
    }

    /// The sorter knows nothing any more.
    pub fn forget_told(&mut self) {
        self.charges.forget_told();
        self.unused
            .extend(std::mem::take(&mut self.left).into_keys());
        for client in 0..self.members.len() {
            let client = u32::try_from(client).unwrap_or(u32::MAX);
            if let Some(member) = self.get_mut(client) {
                member.told = None;
                self.touch(client);
            }
        }
    }

    /// What the sorter must be told so that it believes what is true; from then on it does.
    pub fn tell(&mut self, changes: &mut Vec<Change>) {
        for client in std::mem::take(&mut self.left).into_keys() {
            changes.push(Change::Left { client });
            self.unused.push(client);
        }
        self.unused.extend(self.charges.tell(changes));
        for client in self.dirty.take() {
            if let Some(Some(member)) = self.members.get_mut(client as usize) {
                member.tell(client, changes);
            }
        }
    }

    fn touch(&mut self, client: Client) {
        if self.get(client).is_some() {
            self.dirty.mark(client);
        }
    }
}

/// A number that is nobody's.
fn number(members: &mut Vec<Option<Member>>, unused: &mut Vec<Client>) -> Client {
    unused.pop().unwrap_or_else(|| {
        members.push(None);
        u32::try_from(members.len() - 1).unwrap_or(u32::MAX)
    })
}

impl Member {
    fn tell(&mut self, client: Client, changes: &mut Vec<Change>) {
        if self.told.is_none() {
            let (role, framework) = (self.role.clone(), self.framework.clone());
            changes.push(Change::Joined {
                client,
                role,
                framework,
            });
        }
        let told = self.told.get_or_insert_default();
        if told.shape != self.shape {
            told.shape = self.shape.clone();
            let shape = self.shape.clone();
            changes.push(Change::Shaped { client, shape });
        }
        for pool in Pool::ALL {
            let n = index(pool);
            let (before, now) = (&told.held[n], &self.held[n]);
            if before != now {
                let (more, less) = (now.saturating_sub(before), before.saturating_sub(now));
                if !less.is_empty() {
                    changes.push(Change::Freed {
                        pool,
                        client,
                        amount: less,
                    });
                }
                if !more.is_empty() {
                    changes.push(Change::Held {
                        pool,
                        client,
                        amount: more,
                    });
                }
                told.held[n] = now.clone();
            }
            if told.active[n] != self.active[n] {
                let active = self.active[n];
                changes.push(Change::Activity {
                    pool,
                    client,
                    active,
                });
                told.active[n] = active;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framework(text: &str) -> FrameworkId {
        FrameworkId::new(text).unwrap()
    }

    fn cpus(amount: u32) -> Quantities {
        Quantities::parse(&format!("cpus:{amount}")).unwrap()
    }

    fn told(clients: &mut Clients) -> Vec<Change> {
        let mut changes = Vec::new();
        clients.tell(&mut changes);
        changes
    }

    #[test]
    fn the_sorter_is_told_only_what_it_does_not_believe_already() {
        let pool = Pool::Regular;
        let mut clients = Clients::default();
        let client = clients.admit(&framework("f"), &Role::STAR);
        clients.set_active(client, [true, false]);
        assert_eq!(
            told(&mut clients).len(),
            2,
            "joined, and active in one pool"
        );
        clients.presume(pool, client, &cpus(4));
        clients.hold(pool, client, &cpus(4), true);
        assert_eq!(told(&mut clients), [], "its advice was followed");
        clients.presume(pool, client, &cpus(2));
        let amount = cpus(2);
        assert_eq!(
            told(&mut clients),
            [Change::Freed {
                pool,
                client,
                amount
            }],
            "its advice was refused"
        );
        clients.hold(pool, client, &cpus(1), false);
        clients.free(pool, client, &cpus(1));
        assert_eq!(told(&mut clients), []);
        clients.forget_told();
        assert_eq!(told(&mut clients).len(), 3, "joined, holding 4, active");
    }

    #[test]
    fn a_number_is_used_again_only_after_the_sorter_heard_that_its_client_left() {
        let mut clients = Clients::default();
        let first = clients.admit(&framework("f"), &Role::STAR);
        told(&mut clients);
        clients.release(first);
        let second = clients.admit(&framework("g"), &Role::STAR);
        assert_ne!(first, second);
        let changes = told(&mut clients);
        assert_eq!(changes[0], Change::Left { client: first });
        assert_eq!(clients.admit(&framework("h"), &Role::STAR), first);
        assert_eq!(clients.find(&framework("f"), &Role::STAR), None);
    }

    /// While nobody asks for a slate, say because every agent is away.
    #[test]
    fn frameworks_that_come_and_go_untold_take_the_place_of_one() {
        let mut clients = Clients::default();
        for n in 0..100_000 {
            let client = clients.admit(&framework(&format!("f{n}")), &Role::STAR);
            clients.set_active(client, [true; 2]);
            clients.release(client);
        }
        assert_eq!((clients.members.len(), clients.unused.len()), (1, 1));
        assert_eq!(clients.dirty.clients.len(), 1);
        assert_eq!(told(&mut clients), [], "nobody is there");

        let client = clients.admit(&framework("last"), &Role::STAR);
        let joined = Change::Joined {
            client,
            role: Role::STAR,
            framework: framework("last"),
        };
        assert_eq!(told(&mut clients), [joined]);
    }
}
