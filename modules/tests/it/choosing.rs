//! The agents that a framework may be offered: constraints, regions and the whitelist.

use module_api::allocator::{AgentAdded, AgentRemoved, WhitelistChanged};
use protocol::Capability;
use protocol::agent::Domain;
use protocol::offers::wants::{Constraint, Demand, Predicate, Selector};

use crate::cluster::{added, agent, lines, simulate_cluster};

fn in_rack(name: &str, rack: &str) -> AgentAdded {
    let mut added = added(name, "cpus:1;mem:100", vec![]);
    added.info.attributes = format!("rack:{rack}").parse().unwrap();
    added
}

fn rack_is(expression: &str) -> Demand {
    let constraint = Constraint {
        selector: Selector::Attribute("rack".to_owned()),
        predicate: Predicate::TextMatches(expression.to_owned()),
    };
    Demand {
        agents: vec![vec![constraint]],
        ..Demand::default()
    }
}

/// SPEC 2.4: an agent that fails a framework's constraints goes to others, even if it is the only
/// one.
// Covers 2.4 Offer constraints.
#[test]
fn a_framework_is_offered_only_agents_that_pass_its_constraints() {
    simulate_cluster(|cluster| async move {
        cluster.demanding("choosy", "a", rack_is("r[12]"));
        for (name, rack) in [("a1", "r1"), ("a2", "r2"), ("a3", "r3")] {
            cluster.allocator.tell(in_rack(name, rack)).unwrap();
        }
        let mut given = lines(&cluster.granted().await);
        given.sort();
        assert_eq!(
            given,
            ["choosy a1 cpus:1;mem:100", "choosy a2 cpus:1;mem:100"]
        );
        cluster.framework("other", "b", &[]);
        assert_eq!(lines(&cluster.granted().await), ["other a3 cpus:1;mem:100"]);
    });
}

/// SPEC 2.3: new constraints apply from the next offer on; an agent that returns with other
/// attributes is checked again.
// Covers 2.4 Offer constraints.
#[test]
fn verdicts_follow_demands_and_agents() {
    simulate_cluster(|cluster| async move {
        cluster.demanding("choosy", "a", rack_is("r1"));
        cluster.allocator.tell(in_rack("a1", "r2")).unwrap();
        assert_eq!(cluster.granted().await, []);
        cluster.demanding("choosy", "a", rack_is("r2"));
        assert_eq!(
            lines(&cluster.granted().await),
            ["choosy a1 cpus:1;mem:100"]
        );
        cluster.allocator.tell(in_rack("a1", "r1")).unwrap();
        assert_eq!(cluster.granted().await, []);
        let removed = AgentRemoved {
            agent_id: agent("a1"),
        };
        cluster.allocator.tell(removed).unwrap();
        cluster.allocator.tell(in_rack("a2", "r2")).unwrap();
        assert_eq!(
            lines(&cluster.granted().await),
            ["choosy a2 cpus:1;mem:100"],
            "in the slot of the one that did not pass"
        );
    });
}

/// S126: only nodes of a list.
// Covers S126.
#[test]
fn a_list_of_nodes_is_a_demand() {
    simulate_cluster(|cluster| async move {
        cluster.demanding("choosy", "a", Demand::on_hosts(["a2.example"]));
        for name in ["a1", "a2", "a3"] {
            cluster.agent(name, "cpus:1;mem:100");
        }
        assert_eq!(
            lines(&cluster.granted().await),
            ["choosy a2 cpus:1;mem:100"]
        );
    });
}

/// SPEC 4.1, `domain`: agents of another region go only to frameworks with the capability.
#[test]
fn remote_agents_require_region_aware() {
    simulate_cluster(|cluster| async move {
        cluster.framework("near", "a", &[]);
        for (name, region) in [("a1", "away"), ("a2", "home")] {
            let mut added = added(name, "cpus:1;mem:100", vec![]);
            added.info.domain = Some(Domain {
                region: region.to_owned(),
                zone: "z".to_owned(),
            });
            cluster.allocator.tell(added).unwrap();
        }
        assert_eq!(lines(&cluster.granted().await), ["near a2 cpus:1;mem:100"]);
        cluster.framework("far", "b", &[Capability::RegionAware]);
        assert_eq!(lines(&cluster.granted().await), ["far a1 cpus:1;mem:100"]);
    });
}

/// SPEC 4.5, 4.10 (Whitelist), S99: only listed hosts are offered, an empty list means none; a
/// change applies at once.
// Covers S99.
#[test]
fn only_whitelisted_hosts_are_offered() {
    simulate_cluster(|cluster| async move {
        let whitelist = |hosts: Option<&[&str]>| {
            let hosts = hosts.map(|hosts| hosts.iter().map(|host| (*host).to_owned()).collect());
            let told = cluster.allocator.tell(WhitelistChanged { hosts });
            told.unwrap();
        };
        whitelist(Some(&[]));
        cluster.framework("f", "r", &[]);
        cluster.agent("a1", "cpus:1;mem:64");
        cluster.agent("a2", "cpus:1;mem:64");
        assert_eq!(cluster.granted().await, []);
        whitelist(Some(&["A2.example", "a3.example"]));
        assert_eq!(lines(&cluster.granted().await), ["f a2 cpus:1;mem:64"]);
        cluster.agent("a3", "cpus:1;mem:64");
        assert_eq!(lines(&cluster.granted().await), ["f a3 cpus:1;mem:64"]);
        whitelist(None);
        assert_eq!(lines(&cluster.granted().await), ["f a1 cpus:1;mem:64"]);
        whitelist(Some(&[]));
        cluster.wait(std::time::Duration::from_secs(5)).await;
        assert_eq!(cluster.granted().await, [], "and nothing is wanted back");
    });
}
