//! Clients: each framework in each of its roles, by a small number.
//!
//! Keeps each client's allocations by pool, and the sorter's view of them; the next slate carries
//! the difference. The sorter is thus corrected after any failure, and pending changes are bounded
//! by the number of clients.

use std::collections::BTreeMap;

use module_api::sorter::{Change, Client, Pool, Room, Shape};
use protocol::FrameworkId;
use resources::{Allocation, Quantities, Role};
use rustc_hash::{FxHashMap, FxHashSet};

use super::bits::Bits;
use super::charges::IdleReservationCharges;
use super::state::AbsentClient;
use crate::allocator::agent_verdicts::Choice;

/// One framework in one of its roles.
#[derive(Clone, Debug)]
pub struct ClientRecord {
    /// The framework.
    pub framework: FrameworkId,
    /// The role.
    pub role: Role,
    /// The allocation of its grants.
    pub allocation: Allocation,
    /// Whether the framework is in the role now. If not, the client stays until all its resources
    /// are recovered.
    pub subscribed: bool,
    /// Whether the framework has suppressed this role.
    pub suppressed: bool,
    /// Whether it gets offers, by pool.
    active: [bool; 2],
    /// Its allocations, offered or launched, by pool.
    held: [Quantities; 2],
    /// Its framework's capabilities.
    pub capabilities: ClientCapabilities,
    /// The agents that it accepts.
    pub choice: Choice,
    /// Minimum and maximum of its offers.
    shape: Shape,
    /// Number of agents with allocations, counted for each pool.
    agents: usize,
    /// The agents on which it has filters.
    pub filtered: FxHashSet<u32>,
    sorter_view: Option<SorterView>,
    /// Set while it is inactive.
    pub(super) absent: Option<AbsentClient>,
}

/// The kinds of resources that a framework can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    /// Agents with GPUs.
    pub gpus: bool,
    /// Agents of other regions.
    pub remote: bool,
    /// Shared volumes.
    pub shared: bool,
    /// Refined reservations.
    pub refined: bool,
    /// Revocable resources.
    pub revocable: bool,
}

impl ClientCapabilities {
    /// Whether this includes anything that `other` does not.
    pub(super) fn is_more_than(&self, other: &Self) -> bool {
        (self.gpus && !other.gpus)
            || (self.remote && !other.remote)
            || (self.shared && !other.shared)
            || (self.refined && !other.refined)
            || (self.revocable && !other.revocable)
    }
}

/// Properties of a client for the filter check, which covers very many clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferMode {
    /// Inactive.
    Inactive,
    /// Any shape is allowed.
    AnyShape,
    /// Its offers have a shape.
    Shaped,
}

/// The modes of all clients, also as bit sets.
pub struct ClientFlags {
    /// By client number.
    each: Vec<OfferMode>,
    /// Active clients without a shape.
    pub open: Bits,
    /// Active clients with a shape.
    pub shaped: Bits,
}

impl ClientFlags {
    /// The mode of this client.
    pub fn of(&self, client: Client) -> OfferMode {
        let mode = self.each.get(client as usize);
        mode.copied().unwrap_or(OfferMode::Inactive)
    }

    /// The highest client number plus one.
    pub fn clients(&self) -> usize {
        self.each.len()
    }
}

/// The sorter's view of a client.
#[derive(Clone, Debug, Default)]
struct SorterView {
    active: [bool; 2],
    held: [Quantities; 2],
    shape: Shape,
}

/// A client that has left, while the sorter still has it.
#[derive(Clone, Debug)]
pub struct DepartedClient {
    /// Its role.
    pub role: Role,
    shape: Shape,
}

impl DepartedClient {
    /// The shape in the sorter's view, if there is one.
    pub fn shape(&self) -> Option<&Shape> {
        (!self.shape.is_open()).then_some(&self.shape)
    }
}

impl ClientRecord {
    /// Whether it gets offers in this pool.
    pub fn is_active(&self, pool: Pool) -> bool {
        self.active[pool_index(pool)]
    }

    /// Whether the sorter considers it active in this pool.
    pub fn is_assumed_active(&self, pool: Pool) -> bool {
        let sorter_view = self.sorter_view.as_ref();
        sorter_view.is_some_and(|sorter_view| sorter_view.active[pool_index(pool)])
    }

    /// Minimum and maximum of its offers; `None` if any shape is allowed.
    pub fn shape(&self) -> Option<&Shape> {
        (!self.shape.is_open()).then_some(&self.shape)
    }

    /// The same in the sorter's view.
    pub fn assumed_shape(&self) -> Option<&Shape> {
        let sorter_view = self
            .sorter_view
            .as_ref()
            .map(|sorter_view| &sorter_view.shape);
        sorter_view.filter(|shape| !shape.is_open())
    }

    /// Its allocations in this pool.
    pub fn held(&self, pool: Pool) -> &Quantities {
        &self.held[pool_index(pool)]
    }
}

/// Index of a pool in an array of both.
pub fn pool_index(pool: Pool) -> usize {
    match pool {
        Pool::Regular => 0,
        Pool::Revocable => 1,
    }
}

/// Clients for which the sorter's view may be outdated, each once, oldest first.
#[derive(Clone, Debug, Default)]
struct Dirty {
    clients: Vec<Client>,
    /// By number. The flag outlives the client: the next client of that number is in the list
    /// already.
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
    records: Vec<Option<ClientRecord>>,
    unused: Vec<Client>,
    by_key: FxHashMap<FrameworkId, BTreeMap<Role, Client>>,
    dirty: Dirty,
    /// Clients that have left but are still known to the sorter. Their numbers are not reused
    /// before the next slate.
    left: BTreeMap<Client, DepartedClient>,
    /// Idle reservations, if they count for shares; their numbers belong to no client here.
    charges: IdleReservationCharges,
    active: [usize; 2],
    /// Number of times that a client became active or inactive.
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
    pub fn get(&self, client: Client) -> Option<&ClientRecord> {
        self.records.get(client as usize)?.as_ref()
    }

    /// The client of this number, for changes that the sorter need not know.
    pub fn get_mut(&mut self, client: Client) -> Option<&mut ClientRecord> {
        self.records.get_mut(client as usize)?.as_mut()
    }

    /// The client of this number that has left but is still known to the sorter.
    pub fn departed(&self, client: Client) -> Option<&DepartedClient> {
        self.left.get(&client)
    }

    /// All clients with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Client, &ClientRecord)> {
        (0..)
            .zip(&self.records)
            .filter_map(|(client, record)| Some((client, record.as_ref()?)))
    }

    /// Drops the verdicts on the agent in that slot.
    pub fn forget_verdicts(&mut self, slot: u32) {
        let records = self.records.iter_mut().flatten();
        records.for_each(|record| record.choice.forget(slot));
    }

    /// The modes of all clients in this pool.
    pub fn flags(&self, pool: Pool) -> ClientFlags {
        let mode = |record: &Option<ClientRecord>| match record {
            Some(record) if !record.is_active(pool) => OfferMode::Inactive,
            Some(record) if record.shape.is_open() => OfferMode::AnyShape,
            Some(_) => OfferMode::Shaped,
            None => OfferMode::Inactive,
        };
        let each: Vec<OfferMode> = self.records.iter().map(mode).collect();
        let those = |wanted: OfferMode| {
            let all = (0..).zip(&each);
            all.filter_map(move |(client, mode)| (*mode == wanted).then_some(client))
                .collect()
        };
        ClientFlags {
            open: those(OfferMode::AnyShape),
            shaped: those(OfferMode::Shaped),
            each,
        }
    }

    /// Number of active clients in this pool.
    pub fn active(&self, pool: Pool) -> usize {
        self.active[pool_index(pool)]
    }

    /// Number of times that a client became active or inactive in either pool.
    pub fn activity(&self) -> u64 {
        self.activity
    }

    /// The client of this framework in this role, created if necessary.
    pub fn admit(&mut self, framework: &FrameworkId, role: &Role) -> Client {
        if let Some(client) = self.find(framework, role) {
            return client;
        }
        let client = number(&mut self.records, &mut self.unused);
        self.records[client as usize] = Some(ClientRecord {
            framework: framework.clone(),
            role: role.clone(),
            allocation: Allocation::to(role.clone()),
            subscribed: false,
            suppressed: false,
            active: [false; 2],
            held: Default::default(),
            capabilities: ClientCapabilities::default(),
            choice: Choice::default(),
            shape: Shape::default(),
            agents: 0,
            filtered: FxHashSet::default(),
            sorter_view: None,
            absent: Some(AbsentClient::default()),
        });
        let roles = self.by_key.entry(framework.clone()).or_default();
        roles.insert(role.clone(), client);
        self.touch(client);
        client
    }

    /// Removes a client that is no longer in its role and holds nothing.
    pub fn release(&mut self, client: Client) {
        let idle = |record: &ClientRecord| !record.subscribed && record.agents == 0;
        if !self.get(client).is_some_and(idle) {
            return;
        }
        self.set_active(client, [false; 2]);
        let Some(record) = self.records[client as usize].take() else {
            return;
        };
        if let Some(roles) = self.by_key.get_mut(&record.framework) {
            roles.remove(&record.role);
            if roles.is_empty() {
                self.by_key.remove(&record.framework);
            }
        }
        match record.sorter_view {
            Some(sorter_view) => {
                let (role, shape) = (record.role, sorter_view.shape);
                self.left.insert(client, DepartedClient { role, shape });
            }
            None => self.unused.push(client),
        }
    }

    /// Sets whether a client gets offers, by pool.
    pub fn set_active(&mut self, client: Client, active: [bool; 2]) {
        let Some(record) = self.get_mut(client) else {
            return;
        };
        let before = std::mem::replace(&mut record.active, active);
        self.activity += u64::from(before != active);
        for pool in 0..2 {
            self.active[pool] += usize::from(active[pool]);
            self.active[pool] -= usize::from(before[pool]);
        }
        self.touch(client);
    }

    /// Sets the shape of a client's offers. Returns whether it has changed.
    pub fn set_shape(&mut self, client: Client, shape: Shape) -> bool {
        let Some(record) = self.get_mut(client).filter(|one| one.shape != shape) else {
            return false;
        };
        record.shape = shape;
        self.touch(client);
        true
    }

    /// Adds to a client's allocation; `first` if it is the first on its agent in that pool.
    pub fn hold(&mut self, pool: Pool, client: Client, amount: &Quantities, first: bool) {
        if let Some(record) = self.get_mut(client) {
            record.held[pool_index(pool)] += amount;
            record.agents += usize::from(first);
            self.touch(client);
        }
    }

    /// Reduces a client's allocation.
    pub fn free(&mut self, pool: Pool, client: Client, amount: &Quantities) {
        if let Some(record) = self.get_mut(client) {
            record.held[pool_index(pool)] -= amount;
            self.touch(client);
        }
    }

    /// Records that a client holds nothing any more on some agent in some pool.
    pub fn leave(&mut self, client: Client) {
        if let Some(record) = self.get_mut(client) {
            record.agents = record.agents.saturating_sub(1);
        }
    }

    /// Records that the sorter advised to give this to the client and assumes that it was granted.
    pub fn assume(&mut self, pool: Pool, client: Client, amount: &Quantities) {
        let sorter_view = self
            .get_mut(client)
            .and_then(|record| record.sorter_view.as_mut());
        if let Some(sorter_view) = sorter_view {
            sorter_view.held[pool_index(pool)] += amount;
            self.touch(client);
        }
    }

    /// Adjusts the idle reservations of a role, which count towards its share.
    pub fn charge(&mut self, role: &Role, more: &Quantities, less: &Quantities) {
        let (records, unused) = (&mut self.records, &mut self.unused);
        self.charges
            .change(role, more, less, || number(records, unused));
    }

    /// Records that the sorter advised to give the reserved resources that this room lacks compared
    /// to `before`.
    pub fn assume_given(&mut self, pool: Pool, before: &[(Role, Quantities)], room: &Room) {
        if pool == Pool::Regular {
            for (role, less) in room.reserved_less(before) {
                self.charges.assume(&role, &less);
            }
        }
    }

    /// Idle reservations by role, with the number of their placeholder.
    pub fn charges(&self) -> impl Iterator<Item = (Client, &Role, &Quantities)> {
        self.charges.iter()
    }

    /// The sorter has lost its state.
    pub fn forget_sorter_view(&mut self) {
        self.charges.forget_sorter_view();
        self.unused
            .extend(std::mem::take(&mut self.left).into_keys());
        for client in 0..self.records.len() {
            let client = u32::try_from(client).unwrap_or(u32::MAX);
            if let Some(record) = self.get_mut(client) {
                record.sorter_view = None;
                self.touch(client);
            }
        }
    }

    /// Appends the changes that the sorter needs, and records them as known.
    pub fn push_changes(&mut self, changes: &mut Vec<Change>) {
        for client in std::mem::take(&mut self.left).into_keys() {
            changes.push(Change::Left { client });
            self.unused.push(client);
        }
        self.unused.extend(self.charges.push_changes(changes));
        for client in self.dirty.take() {
            if let Some(Some(record)) = self.records.get_mut(client as usize) {
                record.push_changes(client, changes);
            }
        }
    }

    fn touch(&mut self, client: Client) {
        if self.get(client).is_some() {
            self.dirty.mark(client);
        }
    }
}

/// An unused number.
fn number(records: &mut Vec<Option<ClientRecord>>, unused: &mut Vec<Client>) -> Client {
    unused.pop().unwrap_or_else(|| {
        records.push(None);
        u32::try_from(records.len() - 1).unwrap_or(u32::MAX)
    })
}

impl ClientRecord {
    fn push_changes(&mut self, client: Client, changes: &mut Vec<Change>) {
        if self.sorter_view.is_none() {
            let (role, framework) = (self.role.clone(), self.framework.clone());
            changes.push(Change::Joined {
                client,
                role,
                framework,
            });
        }
        let sorter_view = self.sorter_view.get_or_insert_default();
        if sorter_view.shape != self.shape {
            sorter_view.shape = self.shape.clone();
            let shape = self.shape.clone();
            changes.push(Change::Shaped { client, shape });
        }
        for pool in Pool::ALL {
            let n = pool_index(pool);
            let (before, now) = (&sorter_view.held[n], &self.held[n]);
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
                    changes.push(Change::Allocated {
                        pool,
                        client,
                        amount: more,
                    });
                }
                sorter_view.held[n] = now.clone();
            }
            if sorter_view.active[n] != self.active[n] {
                let active = self.active[n];
                changes.push(Change::Activity {
                    pool,
                    client,
                    active,
                });
                sorter_view.active[n] = active;
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

    fn changes_of(clients: &mut Clients) -> Vec<Change> {
        let mut changes = Vec::new();
        clients.push_changes(&mut changes);
        changes
    }

    #[test]
    fn slate_carries_only_differences_to_the_sorter_view() {
        let pool = Pool::Regular;
        let mut clients = Clients::default();
        let client = clients.admit(&framework("f"), &Role::STAR);
        clients.set_active(client, [true, false]);
        assert_eq!(
            changes_of(&mut clients).len(),
            2,
            "joined, and active in one pool"
        );
        clients.assume(pool, client, &cpus(4));
        clients.hold(pool, client, &cpus(4), true);
        assert_eq!(changes_of(&mut clients), [], "its advice was followed");
        clients.assume(pool, client, &cpus(2));
        let amount = cpus(2);
        assert_eq!(
            changes_of(&mut clients),
            [Change::Freed {
                pool,
                client,
                amount
            }],
            "its advice was refused"
        );
        clients.hold(pool, client, &cpus(1), false);
        clients.free(pool, client, &cpus(1));
        assert_eq!(changes_of(&mut clients), []);
        clients.forget_sorter_view();
        assert_eq!(
            changes_of(&mut clients).len(),
            3,
            "joined, holding 4, active"
        );
    }

    #[test]
    fn number_is_reused_only_after_the_sorter_knows() {
        let mut clients = Clients::default();
        let first = clients.admit(&framework("f"), &Role::STAR);
        changes_of(&mut clients);
        clients.release(first);
        let second = clients.admit(&framework("g"), &Role::STAR);
        assert_ne!(first, second);
        let changes = changes_of(&mut clients);
        assert_eq!(changes[0], Change::Left { client: first });
        assert_eq!(clients.admit(&framework("h"), &Role::STAR), first);
        assert_eq!(clients.find(&framework("f"), &Role::STAR), None);
    }

    /// Without slates, for example because every agent is unreachable.
    #[test]
    fn unreported_frameworks_reuse_one_number() {
        let mut clients = Clients::default();
        for n in 0..100_000 {
            let client = clients.admit(&framework(&format!("f{n}")), &Role::STAR);
            clients.set_active(client, [true; 2]);
            clients.release(client);
        }
        assert_eq!((clients.records.len(), clients.unused.len()), (1, 1));
        assert_eq!(clients.dirty.clients.len(), 1);
        assert_eq!(changes_of(&mut clients), [], "nobody is there");

        let client = clients.admit(&framework("last"), &Role::STAR);
        let joined = Change::Joined {
            client,
            role: Role::STAR,
            framework: framework("last"),
        };
        assert_eq!(changes_of(&mut clients), [joined]);
    }
}
