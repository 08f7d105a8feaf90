//! Agents with a planned downtime: inverse offers, and when they are repeated (SPEC 4.7).

use std::collections::BTreeSet;
use std::time::Duration;

use module_api::allocator::{
    AgentRemoved, FrameworkActivity, FrameworkRemoved, InverseAnswered, Revived,
    UnavailabilityChanged,
};
use protocol::Unavailability;
use resources::Resources;
use runtime::Timestamp;
use runtime::testing::simulate;

use crate::cluster::{Cluster, added, agent, framework};

const SECOND: Duration = Duration::from_secs(1);
const NOBODY: [&str; 0] = [];

impl Cluster {
    /// Sets or clears the planned downtime of an agent.
    fn away(&self, name: &str, start: Option<u64>) {
        let away = |start| Unavailability {
            start: Timestamp::from_nanos(start),
            duration: Some(SECOND),
        };
        let changed = UnavailabilityChanged {
            agent_id: agent(name),
            unavailability: start.map(away),
        };
        self.allocator.tell(changed).unwrap();
    }

    fn answer(&self, name: &str, from: &str, refuse: Option<Duration>) {
        let answered = InverseAnswered {
            framework_id: framework(name),
            agent_id: agent(from),
            refuse,
        };
        self.allocator.tell(answered).unwrap();
    }

    fn activate(&self, name: &str, active: bool) {
        let framework_id = framework(name);
        let activity = FrameworkActivity {
            framework_id,
            active,
        };
        self.allocator.tell(activity).unwrap();
    }

    /// Two agents on which both frameworks hold resources, the first one with a planned downtime,
    /// and a third framework without resources.
    async fn departing(node: &runtime::Node) -> Self {
        let cluster = Cluster::new(node, &[]);
        for name in ["f1", "f2", "f3"] {
            cluster.framework(name, name, &[]);
        }
        let half = |name: &str| {
            let role = resources::Role::new(name).unwrap();
            let half = Resources::parse("cpus:1;mem:64").unwrap();
            (framework(name), half.allocate(&role))
        };
        for name in ["a1", "a2"] {
            let used = vec![half("f1"), half("f2")];
            cluster.agent_with(name, "cpus:2;mem:128", used);
        }
        assert_eq!(cluster.asked_to_leave().await, NOBODY);
        cluster.away("a1", Some(5));
        cluster
    }
}

// Covers S57.
#[test]
fn each_holder_gets_one_inverse_offer() {
    simulate(|node| async move {
        let cluster = Cluster::departing(&node).await;
        assert_eq!(cluster.asked_to_leave().await, ["f1 a1", "f2 a1"]);
        cluster.wait(10 * SECOND).await;
        assert_eq!(cluster.asked_to_leave().await, NOBODY);
        // The plan survives a new registration.
        let used = vec![];
        cluster
            .allocator
            .tell(added("a1", "cpus:2;mem:128", used))
            .unwrap();
        cluster.answer("f1", "a1", None);
        cluster.answer("f2", "a1", None);
        assert_eq!(cluster.granted().await.len(), 1);
        let asked = cluster.asked_to_leave().await;
        assert_eq!(asked.len(), 1, "only who has been offered it: {asked:?}");
    });
}

#[test]
fn inverse_offer_filter_lasts_as_requested() {
    simulate(|node| async move {
        let cluster = Cluster::departing(&node).await;
        cluster.asked_to_leave().await;
        cluster.answer("f1", "a1", Some(5 * SECOND));
        cluster.answer("f2", "a1", Some(Duration::ZERO));
        cluster.wait(SECOND).await;
        assert_eq!(cluster.asked_to_leave().await, ["f2 a1"]);
        cluster.wait(3 * SECOND).await;
        assert_eq!(cluster.asked_to_leave().await, NOBODY);
        cluster.wait(2 * SECOND).await;
        assert_eq!(cluster.asked_to_leave().await, ["f1 a1"]);

        // Revive and reactivation cause new inverse offers at once.
        cluster.answer("f1", "a1", Some(100 * SECOND));
        let revived = Revived {
            framework_id: framework("f1"),
            roles: BTreeSet::new(),
        };
        cluster.allocator.tell(revived).unwrap();
        assert_eq!(cluster.asked_to_leave().await, ["f1 a1"]);
        cluster.answer("f1", "a1", Some(100 * SECOND));
        cluster.activate("f1", false);
        cluster.wait(2 * SECOND).await;
        assert_eq!(cluster.asked_to_leave().await, NOBODY, "it cannot answer");
        cluster.activate("f1", true);
        assert_eq!(cluster.asked_to_leave().await, ["f1 a1"]);
    });
}

/// After a scheduler failover, inverse offers to the earlier scheduler are withdrawn.
#[test]
fn resubscription_renews_inverse_offers() {
    simulate(|node| async move {
        let cluster = Cluster::departing(&node).await;
        assert_eq!(cluster.asked_to_leave().await, ["f1 a1", "f2 a1"]);
        cluster.answer("f1", "a1", None);
        cluster.framework("f1", "f1", &[]);
        assert_eq!(cluster.asked_to_leave().await, ["f1 a1"]);
        cluster.framework("f1", "f1", &[]);
        assert_eq!(cluster.asked_to_leave().await, NOBODY, "it is being asked");
        cluster.answer("f1", "a1", Some(100 * SECOND));
        cluster.framework("f1", "f1", &[]);
        assert_eq!(cluster.asked_to_leave().await, NOBODY, "not for a while");
    });
}

#[test]
fn new_plan_renews_inverse_offers() {
    simulate(|node| async move {
        let cluster = Cluster::departing(&node).await;
        cluster.asked_to_leave().await;
        cluster.answer("f1", "a1", Some(100 * SECOND));
        cluster.away("a1", Some(6));
        assert_eq!(cluster.asked_to_leave().await, ["f1 a1", "f2 a1"]);
        cluster.away("a1", None);
        cluster.answer("f1", "a1", None);
        cluster.wait(2 * SECOND).await;
        assert_eq!(cluster.asked_to_leave().await, NOBODY);
        let removed = FrameworkRemoved {
            framework_id: framework("f2"),
        };
        cluster.allocator.tell(removed).unwrap();
        cluster.away("a2", Some(6));
        assert_eq!(cluster.asked_to_leave().await, ["f1 a2"]);
        let agent_id = agent("a2");
        cluster.allocator.tell(AgentRemoved { agent_id }).unwrap();
        cluster.answer("f1", "a2", None);
        // A later agent of the same id does not inherit the plan.
        cluster.agent("a2", "cpus:2;mem:128");
        cluster.wait(2 * SECOND).await;
        assert_eq!(cluster.asked_to_leave().await, NOBODY);
    });
}
