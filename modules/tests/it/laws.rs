//! Laws of the books: whatever is told in whatever order, and whatever a sorter says, no agent is over-committed.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{
    AgentActivity, AgentOversubscribed, AgentRemoved, FrameworkActivity, FrameworkRemoved, Grant,
    Recovered, Revived, Suppressed,
};
use module_api::sorter::{Advice, Client, Pool, Slate, Stage};
use modules::allocator::Books;
use modules::sorter::Drf;
use proptest::prelude::*;
use protocol::Capability;
use resources::{Quantities, Resources};
use runtime::Instant;

use crate::cluster::{added, agent, framework, lent, subscribed};

const AGENTS: u32 = 4;
const FRAMEWORKS: u32 = 4;
const ROLES: [&str; 4] = ["a", "a/b", "c", "a,c"];

#[derive(Clone, Debug)]
enum Step {
    AgentAdded(u32, u32),
    AgentRemoved(u32),
    AgentActivity(u32, bool),
    Lent(u32, u32),
    FrameworkAdded(u32, u32, bool),
    FrameworkRemoved(u32),
    FrameworkActivity(u32, bool),
    Suppressed(u32),
    Revived(u32),
    /// Gives back the nth grant that is still held, in part or whole, and perhaps refuses it for some tenths of a second.
    Recovered(usize, bool, Option<u64>),
    /// Gives back what was never held.
    Invented(u32, u32, u32),
    /// A run in which the sorter is wise.
    Honest,
    /// A run in which it says this.
    Hostile(Vec<(u32, Client)>),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let a = 0..AGENTS;
    let f = 0..FRAMEWORKS;
    prop_oneof![
        3 => (a.clone(), 1_u32..6).prop_map(|(a, n)| Step::AgentAdded(a, n)),
        1 => a.clone().prop_map(Step::AgentRemoved),
        1 => (a.clone(), any::<bool>()).prop_map(|(a, on)| Step::AgentActivity(a, on)),
        2 => (a.clone(), 0_u32..5).prop_map(|(a, n)| Step::Lent(a, n)),
        3 => (f.clone(), 0_u32..4, any::<bool>()).prop_map(|(f, r, on)| Step::FrameworkAdded(f, r, on)),
        1 => f.clone().prop_map(Step::FrameworkRemoved),
        1 => (f.clone(), any::<bool>()).prop_map(|(f, on)| Step::FrameworkActivity(f, on)),
        1 => f.clone().prop_map(Step::Suppressed),
        1 => f.clone().prop_map(Step::Revived),
        4 => (any::<usize>(), any::<bool>(), proptest::option::of(0_u64..40))
            .prop_map(|(n, part, refuse)| Step::Recovered(n, part, refuse)),
        1 => (a, f, 1_u32..9).prop_map(|(a, f, n)| Step::Invented(a, f, n)),
        4 => Just(Step::Honest),
        4 => proptest::collection::vec((0_u32..6, 0_u32..12), 0..10).prop_map(Step::Hostile),
        2 => (0_u64..30).prop_map(Step::Wait),
    ]
}

struct World {
    books: Books,
    sorter: Drf,
    held: Vec<Grant>,
    now: Instant,
}

impl World {
    fn take(&mut self, step: Step) {
        let books = &mut self.books;
        let (a, f) = (
            |n: u32| agent(&format!("a{n}")),
            |n: u32| framework(&format!("f{n}")),
        );
        match step {
            Step::AgentAdded(n, size) => {
                let id = a(n);
                self.held.retain(|grant| grant.agent_id != id);
                let total = format!(
                    "cpus:{size};mem:{};cpus(a):{};ports:[1-{}]",
                    size * 40,
                    size % 3,
                    size
                );
                books.agent_added(added(
                    &format!("a{n}"),
                    &total.replace("cpus(a):0;", ""),
                    vec![],
                ));
            }
            Step::AgentRemoved(n) => {
                let agent_id = a(n);
                self.held.retain(|grant| grant.agent_id != agent_id);
                books.agent_removed(&AgentRemoved { agent_id });
            }
            Step::AgentActivity(n, active) => books.agent_activity(&AgentActivity {
                agent_id: a(n),
                active,
            }),
            Step::Lent(n, size) => {
                let total = if size == 0 {
                    Resources::new()
                } else {
                    lent(&format!("cpus:{size}"))
                };
                books.agent_oversubscribed(AgentOversubscribed {
                    agent_id: a(n),
                    total,
                });
            }
            Step::FrameworkAdded(n, role, brave) => {
                let wishes: &[Capability] = if brave {
                    &[Capability::RevocableResources]
                } else {
                    &[]
                };
                books.framework_added(subscribed(&format!("f{n}"), ROLES[role as usize], wishes));
            }
            Step::FrameworkRemoved(n) => {
                books.framework_removed(&FrameworkRemoved { framework_id: f(n) })
            }
            Step::FrameworkActivity(n, active) => {
                books.framework_activity(&FrameworkActivity {
                    framework_id: f(n),
                    active,
                });
            }
            Step::Suppressed(n) => {
                books.suppressed(&Suppressed {
                    framework_id: f(n),
                    roles: Default::default(),
                });
            }
            Step::Revived(n) => books.revived(&Revived {
                framework_id: f(n),
                roles: Default::default(),
            }),
            Step::Recovered(n, part, refuse) => self.give_back(n, part, refuse),
            Step::Invented(n, m, size) => {
                let resources = Resources::parse(&format!("cpus:{size};mem:7")).unwrap();
                let resources = resources.allocate(&resources::Role::new("a").unwrap());
                let recovered = Recovered {
                    framework_id: f(m),
                    agent_id: a(n),
                    resources: resources.clone(),
                    refuse: None,
                };
                books.recovered(&recovered, self.now);
                // The books may take some of it for what was granted; what is left of a grant is then less, and this test forgets it.
                self.held
                    .retain(|grant| grant.agent_id != a(n) || grant.framework_id != f(m));
            }
            Step::Honest => self.run(None),
            Step::Hostile(advice) => self.run(Some(advice)),
            Step::Wait(tenths) => self.now = self.now + Duration::from_millis(tenths * 100),
        }
    }

    fn give_back(&mut self, n: usize, part: bool, refuse: Option<u64>) {
        if self.held.is_empty() {
            return;
        }
        let grant = self.held.remove(n % self.held.len());
        let mut resources = grant.resources.clone();
        if part {
            resources = resources.filter(|resource| resource.name() == resources::Name::Cpus);
            let rest = grant.resources.saturating_sub(&resources);
            self.held.push(Grant {
                resources: rest,
                ..grant.clone()
            });
        }
        let refuse = refuse.map(|tenths| Duration::from_millis(tenths * 100));
        let (framework_id, agent_id) = (grant.framework_id, grant.agent_id);
        self.books.recovered(
            &Recovered {
                framework_id,
                agent_id,
                resources,
                refuse,
            },
            self.now,
        );
    }

    fn run(&mut self, hostile: Option<Vec<(u32, Client)>>) {
        let slots = self.books.candidates(self.now, true);
        let mut honest = hostile.is_none();
        let mut told = false;
        for stage in Stage::ALL {
            let Some((slate, asked)) =
                self.books
                    .slate(stage, &slots, &Default::default(), self.now)
            else {
                continue;
            };
            told = true;
            let advice = match &hostile {
                None => self.sorter.advise(slate),
                Some(pairs) => Ok(self.lie(slate, pairs)),
            };
            let Ok(advice) = advice else {
                self.books.begin_epoch();
                self.books.postpone(&slots);
                honest = false;
                continue;
            };
            let booked = self.books.book(asked, &advice, self.now);
            honest &= booked.refusals.is_empty();
            if hostile.is_some() {
                self.books.begin_epoch(); // What the sorter believes is not what it said.
            }
            for (_, grant) in booked.grants {
                let revocable = grant.resources.revocable();
                assert!(
                    revocable.is_empty() || revocable == grant.resources,
                    "one grant has both: {grant:?}"
                );
                self.held.push(grant);
            }
        }
        if honest && told {
            self.agree();
        }
    }

    /// A hostile sorter hears the slate too, so that it knows what changed; what it says has nothing to do with it.
    fn lie(&mut self, slate: Slate, pairs: &[(u32, Client)]) -> Vec<Advice> {
        let _ = self.sorter.advise(slate);
        pairs
            .iter()
            .map(|(room, client)| Advice {
                room: *room,
                client: *client,
            })
            .collect()
    }

    /// After a run without refusals the sorter believes what the books say.
    fn agree(&mut self) {
        for pool in Pool::ALL {
            let tree = self.sorter.tree(pool);
            for (client, member) in self.books.clients.iter() {
                if tree.knows(client) {
                    assert_eq!(&tree.held_by(client), member.held(pool), "client {client}");
                }
            }
        }
    }

    fn check(&mut self) {
        let mut sums: BTreeMap<(Client, usize), Quantities> = BTreeMap::new();
        for agent in self.books.agents() {
            let mut held = [Resources::new(), Resources::new()];
            for (client, parts) in agent.holders.iter() {
                for (pool, part) in parts.iter().enumerate() {
                    held[pool] += part;
                    *sums.entry((client, pool)).or_default() += &part.quantities();
                }
            }
            for (side, held) in agent.sides.iter().zip(&held) {
                let available = side.total.saturating_sub(&side.held);
                assert_eq!(side.clone().available(), &available, "{}", agent.id);
                assert_eq!(&side.held, held, "{}: the sum of what is held", agent.id);
            }
            assert!(
                agent.sides[0].total.contains(&held[0]),
                "{} is over-committed",
                agent.id
            );
            assert!(held[0].revocable().is_empty() && held[1].non_revocable().is_empty());
        }
        for (client, member) in self.books.clients.iter() {
            for (n, pool) in Pool::ALL.into_iter().enumerate() {
                let sum = sums.get(&(client, n)).cloned().unwrap_or_default();
                assert!(
                    sum.contains(member.held(pool)) && member.held(pool).contains(&sum),
                    "client {client}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// S47, S50: regular and revocable resources have books of their own.
    #[test]
    fn no_history_and_no_sorter_over_commits_an_agent(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World {
            books: Books::default(),
            sorter: Drf::default(),
            held: Vec::new(),
            now: Instant::default(),
        };
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
