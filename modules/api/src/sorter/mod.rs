//! The sorter's interface: the sorter holds the policy by which clients share resources.
//!
//! The allocator sends one [`Slate`] for each [`Stage`] of a run. The sorter walks its agents in
//! order and replies with [`Advice`]. Clients, weights, totals and allocations reach it as
//! [`Change`]s in the slates. It assumes that its advice is followed; the allocator corrects
//! deviations in the next slate.
//!
//! The allocator checks all advice against its own state, so a faulty sorter can never over-commit
//! an agent: invalid advice is logged and ignored. `budget` has the amounts that quota leaves,
//! `shape` the minimum and maximum of offers.

mod budget;
mod shape;

pub use budget::{Budget, BudgetIndex, Budgets, Portion, counts_for};
pub use shape::Shape;

use std::time::Duration;

use protocol::FrameworkId;
use resources::{Quantities, Role};
use runtime::{ActorRef, Pid, remote};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, ModuleError, ModuleKind};

/// Regular and revocable resources are shared, sorted and accounted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pool {
    /// Not revocable.
    Regular,
    /// Revocable.
    Revocable,
}

impl Pool {
    /// Both, in the order of their stages.
    pub const ALL: [Self; 2] = [Self::Regular, Self::Revocable];
}

/// The stages of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Roles get their unmet guarantees.
    Guarantees,
    /// The client with the smallest share is next, within limits and unmet guarantees.
    Fair,
    /// The same for revocable resources, to which no quota applies.
    Revocable,
}

impl Stage {
    /// All stages in order.
    pub const ALL: [Self; 3] = [Self::Guarantees, Self::Fair, Self::Revocable];

    /// The resources that are shared in this stage.
    pub fn pool(self) -> Pool {
        match self {
            Self::Guarantees | Self::Fair => Pool::Regular,
            Self::Revocable => Pool::Revocable,
        }
    }
}

/// One framework in one of its roles, as a small number assigned by the allocator. A number is
/// reused after its client has left.
pub type Client = u32;

/// An update that the sorter applies, in order, before it walks the agents of a slate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// A role has a new weight. The default is 1, so a role with weight 1 may be forgotten.
    WeightChanged {
        /// The role.
        role: Role,
        /// Above zero.
        weight: f64,
    },
    /// All budgets, with nothing free in the cluster. Replaces earlier ones.
    Budgets {
        /// Each at its [`BudgetIndex`].
        table: Vec<Budget>,
    },
    /// New amounts of one budget.
    Budget {
        /// The budget.
        index: BudgetIndex,
        /// Remaining amounts, see [`Budget::left`].
        left: Quantities,
        /// The unmet guarantee, see [`Budget::unmet`].
        unmet: Quantities,
    },
    /// The unreserved free resources of the whole cluster. Sent only if there are budgets.
    Headroom {
        /// The sum over all agents that may be offered.
        amount: Quantities,
    },
    /// The total from which shares are computed.
    Total {
        /// The pool.
        pool: Pool,
        /// The sum over all agents.
        total: Quantities,
    },
    /// A new client, inactive and without allocations.
    Joined {
        /// Its number.
        client: Client,
        /// Its role.
        role: Role,
        /// Its framework.
        framework: FrameworkId,
    },
    /// A client is removed.
    Left {
        /// Its number, which may be reused.
        client: Client,
    },
    /// Activates or deactivates a client. Its allocations count either way.
    Activity {
        /// The pool.
        pool: Pool,
        /// The client.
        client: Client,
        /// Whether it gets resources.
        active: bool,
    },
    /// A client's offers have this shape. Until then, any shape is allowed.
    Shaped {
        /// The client.
        client: Client,
        /// The shape.
        shape: Shape,
    },
    /// A client holds more, offered or launched, than the sorter advised.
    Allocated {
        /// The pool.
        pool: Pool,
        /// The client.
        client: Client,
        /// The increase.
        amount: Quantities,
    },
    /// A client holds less than the sorter assumes: resources were recovered, or its advice was not
    /// followed.
    Freed {
        /// The pool.
        pool: Pool,
        /// The client.
        client: Client,
        /// The decrease.
        amount: Quantities,
    },
    /// A client that has just joined is a placeholder for the idle reservations of its role. It
    /// never gets resources, and holds less by each reserved amount that is given out, see
    /// [`Room::reserved_less`]. Sent only where idle reservations count for the share.
    Idle {
        /// The client.
        client: Client,
    },
}

/// Free resources of one agent in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// For any client.
    pub free: Quantities,
    /// Only for clients of this role or below it.
    pub reserved: Vec<(Role, Quantities)>,
}

impl Room {
    /// All free resources that a client of this role may get. If there are budgets,
    /// [`Budgets::portion`] applies instead.
    pub fn portion(&self, role: &Role) -> Quantities {
        let mut portion = self.free.clone();
        for (owner, amount) in &self.reserved {
            if role.is_within(owner) {
                portion += amount;
            }
        }
        portion
    }

    /// Removes and returns that portion.
    pub fn take(&mut self, role: &Role) -> Quantities {
        if self.reserved.is_empty() {
            return std::mem::take(&mut self.free);
        }
        let portion = self.portion(role);
        self.free = Quantities::new();
        self.reserved.retain(|(owner, _)| !role.is_within(owner));
        portion
    }

    /// The reserved amounts of `before` that are gone, by role of the reservation.
    pub fn reserved_less(&self, before: &[(Role, Quantities)]) -> Vec<(Role, Quantities)> {
        let less = before.iter().map(|(owner, amount)| {
            let left = self.reserved.iter().find(|(own, _)| own == owner);
            let less = match left {
                Some((_, left)) => amount.saturating_sub(left),
                None => amount.clone(),
            };
            (owner.clone(), less)
        });
        less.filter(|(_, less)| !less.is_empty()).collect()
    }

    /// Whether nothing is free.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty() && self.reserved.iter().all(|(_, amount)| amount.is_empty())
    }
}

/// Whether a portion is worth an offer: it contains any of the sets. Without sets, any non-empty
/// portion is.
pub fn is_allocatable(portion: &Quantities, sets_min: &[Quantities]) -> bool {
    if sets_min.is_empty() {
        return !portion.is_empty();
    }
    sets_min.iter().any(|set| portion.contains(set))
}

/// The agents of a slate that one client must not get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusion {
    /// The client.
    pub client: Client,
    /// Bit `n % 64` of word `n / 64` is set if room `n` is excluded. Missing words are zero.
    pub rooms: Vec<u64>,
}

impl Exclusion {
    /// Excludes room `n`.
    pub fn add(&mut self, n: usize) {
        if self.rooms.len() <= n / 64 {
            self.rooms.resize(n / 64 + 1, 0);
        }
        self.rooms[n / 64] |= 1 << (n % 64);
    }

    /// Whether room `n` is excluded.
    pub fn has(&self, n: usize) -> bool {
        self.rooms
            .get(n / 64)
            .is_some_and(|word| word & (1 << (n % 64)) != 0)
    }
}

/// Requests advice: a client for each room, as far as [`Budgets::take`] allows. A client with a
/// [`Shape`] gets at most one portion of each room; otherwise a small shape would produce a
/// multitude of offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slate {
    /// Increases whenever the allocator restarts from an empty state.
    pub epoch: u64,
    /// Number of the slate within its epoch. At 0 the sorter drops all its state.
    pub number: u64,
    /// The stage of the run.
    pub stage: Stage,
    /// Changes since the slate before.
    pub changes: Vec<Change>,
    /// Smallest amounts worth an offer, see [`is_allocatable`], for clients without a shape of
    /// their own.
    pub sets_min: Vec<Quantities>,
    /// In the order of the walk.
    pub rooms: Vec<Room>,
    /// At most one for each client. A client without one is not excluded from any room.
    pub exclusions: Vec<Exclusion>,
}

/// Advice to give this room's portion to this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// Index of the room in the slate.
    pub room: u32,
    /// The client.
    pub client: Client,
}

remote! { Slate = "sorter/slate" v1 -> Result<Vec<Advice>, Fault> }

/// The allocator's handle of its sorter.
#[derive(Clone, Debug)]
pub struct SorterRef {
    actor: ActorRef,
    patience: Duration,
}

impl SorterRef {
    /// Timeout of [`advice`](Self::advice). After it the allocator begins a new epoch.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// A handle of the sorter behind `actor`.
    pub fn new(actor: ActorRef) -> Self {
        Self {
            actor,
            patience: Self::PATIENCE,
        }
    }

    /// The sorter's address.
    pub fn pid(&self) -> &Pid {
        self.actor.pid()
    }

    /// Requests advice on this slate. After an error the sorter's state is unknown: the next slate
    /// must begin a new epoch.
    pub async fn advice(&self, slate: Slate) -> Result<Vec<Advice>, ModuleError> {
        let kind = ModuleKind::Sorter;
        let answer = self.actor.ask(slate, self.patience).await;
        answer
            .map_err(|error| ModuleError::of_ask(kind, error))?
            .map_err(|fault| ModuleError::Fault { kind, fault })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantities(text: &str) -> Quantities {
        Quantities::parse(text).unwrap()
    }

    fn role(text: &str) -> Role {
        Role::new(text).unwrap()
    }

    /// SPEC 4.5, 4.10 (OfferAncestorReservationsToDescendantChild).
    #[test]
    fn portion_includes_reservations_of_ancestors() {
        let mut room = Room {
            free: quantities("cpus:1"),
            reserved: vec![
                (role("a"), quantities("cpus:2;mem:8")),
                (role("a/b"), quantities("mem:4")),
                (role("c"), quantities("cpus:4")),
            ],
        };
        assert_eq!(room.portion(&role("a/b/x")), quantities("cpus:3;mem:12"));
        assert_eq!(room.portion(&role("a")), quantities("cpus:3;mem:8"));
        assert_eq!(room.portion(&Role::STAR), quantities("cpus:1"));
        assert_eq!(room.take(&role("a")), quantities("cpus:3;mem:8"));
        assert_eq!(room.portion(&role("a/b")), quantities("mem:4"));
        let before = room.reserved.clone();
        assert_eq!(room.take(&role("c")), quantities("cpus:4"));
        let less = [(role("c"), quantities("cpus:4"))];
        assert_eq!(room.reserved_less(&before), less);
        assert_eq!(room.reserved_less(&room.reserved), []);
        let mut more = room.reserved.clone();
        more[0].1 += &quantities("cpus:1;mem:2");
        let less = [(role("a/b"), quantities("cpus:1;mem:2"))];
        assert_eq!(room.reserved_less(&more), less);
        assert!(!room.is_empty());
        room.take(&role("a/b"));
        assert!(room.is_empty());
    }

    /// SPEC 4.10 (MinAllocatable).
    #[test]
    fn portion_must_contain_any_of_the_sets() {
        let sets = [quantities("cpus:0.01"), quantities("mem:32")];
        for (portion, expected) in [
            ("cpus:0.01", true),
            ("mem:32", true),
            ("cpus:0.009;mem:31", false),
            ("disk:100", false),
        ] {
            assert_eq!(
                is_allocatable(&quantities(portion), &sets),
                expected,
                "{portion}"
            );
        }
        assert!(is_allocatable(&quantities("disk:1"), &[]));
        assert!(!is_allocatable(&Quantities::new(), &[]));
    }

    #[test]
    fn an_exclusion_has_exactly_the_rooms_added() {
        let mut exclusion = Exclusion::default();
        for n in [0, 63, 64, 200] {
            exclusion.add(n);
        }
        let all: Vec<usize> = (0..300).filter(|n| exclusion.has(*n)).collect();
        assert_eq!(all, [0, 63, 64, 200]);
    }
}
