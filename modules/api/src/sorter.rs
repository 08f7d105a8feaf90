//! The sorter's interface: it holds the policy of sharing, who is next.
//!
//! Hears one [`Slate`] for each [`Stage`] of a run from the allocator, walks its rooms in order and answers with [`Advice`]. What it knows of
//! clients, weights, totals and holdings comes in the slates' [`Change`]s, and it presumes that its own advice is followed: the allocator
//! corrects it with the next slate. It keeps no books and can therefore never over-commit an agent: bad advice costs a log line.

mod budget;
mod shape;

pub use budget::{Budget, Budgets, Place, Portion, counts_for};
pub use shape::Shape;

use std::time::Duration;

use protocol::FrameworkId;
use resources::{Quantities, Role};
use runtime::{ActorRef, Pid, remote};
use serde::{Deserialize, Serialize};

use crate::error::{Fault, ModuleError, ModuleKind};

/// Regular and revocable resources are shared, sorted and accounted apart (S46).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pool {
    /// What is not revocable.
    Regular,
    /// What is revocable.
    Revocable,
}

impl Pool {
    /// Both, in the order of their stages.
    pub const ALL: [Self; 2] = [Self::Regular, Self::Revocable];
}

/// The stages of a run (SPEC 4.5, 4.9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Roles get what they are guaranteed and do not have.
    Guarantees,
    /// Whoever has the smallest share is next, as far as limits and guarantees allow.
    Fair,
    /// The same for what is revocable, of which there is no quota.
    Revocable,
}

impl Stage {
    /// All, in their order.
    pub const ALL: [Self; 3] = [Self::Guarantees, Self::Fair, Self::Revocable];

    /// Which resources are shared in it.
    pub fn pool(self) -> Pool {
        match self {
            Self::Guarantees | Self::Fair => Pool::Regular,
            Self::Revocable => Pool::Revocable,
        }
    }
}

/// One framework in one of its roles, as a small number minted by the allocator; a number is used again after its client has left.
pub type Client = u32;

/// Something that the sorter must know before it walks the rooms. Applied in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// This role has this weight from now on (S88); without it, 1, and with 1 it may be forgotten.
    Weighed {
        /// Which role.
        role: Role,
        /// Above zero.
        weight: f64,
    },
    /// These are all budgets from now on, with nothing free in the cluster.
    Budgets {
        /// Each at its [`Place`].
        table: Vec<Budget>,
    },
    /// One budget is this from now on.
    Budget {
        /// Which.
        place: Place,
        /// What may still be given, see [`Budget::left`].
        left: Quantities,
        /// What a guarantee lacks, see [`Budget::unmet`].
        unmet: Quantities,
    },
    /// So much is unreserved and free in the whole cluster; told only if there are budgets.
    Headroom {
        /// The sum over all agents that are offered.
        amount: Quantities,
    },
    /// The cluster has this much, of which shares are taken.
    Total {
        /// In which pool.
        pool: Pool,
        /// The sum over all agents.
        total: Quantities,
    },
    /// There is a new client, inactive and holding nothing.
    Joined {
        /// Its number.
        client: Client,
        /// Its role.
        role: Role,
        /// Its framework.
        framework: FrameworkId,
    },
    /// A client is no more.
    Left {
        /// Its number, free to be given to another.
        client: Client,
    },
    /// A client takes part, or does not for the present; its holdings count either way.
    Activity {
        /// In which pool.
        pool: Pool,
        /// Who.
        client: Client,
        /// Whether it takes part.
        active: bool,
    },
    /// A client's offers have this shape from now on; before it is told, any.
    Shaped {
        /// Who.
        client: Client,
        /// Which.
        shape: Shape,
    },
    /// A client holds more, offered or launched, which the sorter did not advise (S128).
    Held {
        /// In which pool.
        pool: Pool,
        /// Who.
        client: Client,
        /// How much more.
        amount: Quantities,
    },
    /// A client holds less than the sorter thinks: it was freed, or the sorter's advice was not followed.
    Freed {
        /// In which pool.
        pool: Pool,
        /// Who.
        client: Client,
        /// How much less.
        amount: Quantities,
    },
    /// A client that has just joined is nobody: it stands for what is reserved for its role and idle, never takes part, and holds less by what is
    /// given of that, as [`Room::reserved_less`] says (W24). Told only where reservations are charged.
    Idle {
        /// Which.
        client: Client,
    },
}

/// What is free on one agent, in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// For whoever is next.
    pub free: Quantities,
    /// For clients of this role or below it only.
    pub reserved: Vec<(Role, Quantities)>,
}

impl Room {
    /// All that may be given to a client of this role. Where there are budgets, [`Budgets::portion`] says how much of it is given.
    pub fn portion(&self, role: &Role) -> Quantities {
        let mut portion = self.free.clone();
        for (owner, amount) in &self.reserved {
            if role.is_within(owner) {
                portion += amount;
            }
        }
        portion
    }

    /// Takes that portion out.
    pub fn take(&mut self, role: &Role) -> Quantities {
        if self.reserved.is_empty() {
            return std::mem::take(&mut self.free);
        }
        let portion = self.portion(role);
        self.free = Quantities::new();
        self.reserved.retain(|(owner, _)| !role.is_within(owner));
        portion
    }

    /// What less is reserved here than was before, by the role that it is reserved for.
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

    /// Whether nothing is left for anybody.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty() && self.reserved.iter().all(|(_, amount)| amount.is_empty())
    }
}

/// Whether a portion is worth an offer: it contains any of the sets. No sets: whatever is not nothing (SPEC 4.1).
pub fn is_allocatable(portion: &Quantities, sets_min: &[Quantities]) -> bool {
    if sets_min.is_empty() {
        return !portion.is_empty();
    }
    sets_min.iter().any(|set| portion.contains(set))
}

/// The rooms of a slate that one client is not to be given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusion {
    /// Who.
    pub client: Client,
    /// Bit `n % 64` of word `n / 64` is set if it is not to be given room `n`. Missing words are zero.
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

/// Who should be given these rooms, each as far as [`Budgets::take`] goes? A client that has a [`Shape`] is given no more than one portion of
/// a room, so that a small shape makes no crowd of offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slate {
    /// Rises whenever the allocator begins again from nothing.
    pub epoch: u64,
    /// Counts the slates of an epoch, from 0: the slate in which the sorter forgets all that it knew.
    pub number: u64,
    /// Which stage of a run this is.
    pub stage: Stage,
    /// What has changed since the slate before.
    pub changes: Vec<Change>,
    /// What is worth an offer, see [`is_allocatable`], for a client whose shape does not say otherwise.
    pub sets_min: Vec<Quantities>,
    /// In the order in which they are to be walked.
    pub rooms: Vec<Room>,
    /// At most one for each client; a client without one is excluded from no room.
    pub exclusions: Vec<Exclusion>,
}

/// Give this room's portion to this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// The place of the room in the slate.
    pub room: u32,
    /// To whom.
    pub client: Client,
}

remote! { Slate = "sorter/slate" v4 -> Result<Vec<Advice>, Fault> }

/// The allocator's hold on its sorter.
#[derive(Clone, Debug)]
pub struct SorterRef {
    actor: ActorRef,
    patience: Duration,
}

impl SorterRef {
    /// How long the allocator waits for advice before it begins a new epoch.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// Speaks to the sorter behind `actor`.
    pub fn new(actor: ActorRef) -> Self {
        Self {
            actor,
            patience: Self::PATIENCE,
        }
    }

    /// Whom it speaks to.
    pub fn pid(&self) -> &Pid {
        self.actor.pid()
    }

    /// Asks for advice on this slate. After an error the sorter is out of step: the next slate must begin an epoch.
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
    fn a_client_is_given_what_is_free_and_what_is_reserved_for_its_role_or_one_above() {
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
    fn a_portion_is_worth_an_offer_if_it_contains_any_of_the_sets() {
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
