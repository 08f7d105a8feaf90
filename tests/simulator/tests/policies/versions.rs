//! Two versions of one framework on the same agents, separated by their roles alone (S104).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use protocol::{AgentId, Offer, TaskState, TaskStatus};
use runtime::testing::simulate_network;
use scheduler_driver::{Calls, Scheduler};

use crate::mini_cluster::{MiniCluster, task};

/// The events of a version.
#[derive(Default)]
struct Seen {
    roles: BTreeSet<String>,
    running: BTreeMap<String, AgentId>,
    ended: Vec<String>,
}

/// One version of the framework: the same task names in each, another command.
struct Version {
    command: &'static str,
    tasks: usize,
    launched: usize,
    seen: Arc<Mutex<Seen>>,
}

impl Version {
    fn new(command: &'static str, tasks: usize) -> (Self, Arc<Mutex<Seen>>) {
        let seen = Arc::<Mutex<Seen>>::default();
        let version = Self {
            command,
            tasks,
            launched: 0,
            seen: seen.clone(),
        };
        (version, seen)
    }
}

impl Scheduler for Version {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for mut offer in offers {
            self.seen.lock().unwrap().roles.insert(offer.role.clone());
            let mut tasks = Vec::new();
            while self.launched < self.tasks {
                let name = format!("step-{}", self.launched);
                let Some(task) = task(&name, self.command, "cpus:1;mem:64", &mut offer) else {
                    break;
                };
                tasks.push(task);
                self.launched += 1;
            }
            driver.launch(vec![offer.id], tasks);
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        let mut seen = self.seen.lock().unwrap();
        let name = status.task_id.to_string();
        if status.state == TaskState::Running {
            let agent = status.agent_id.clone().unwrap();
            seen.running.insert(name, agent);
        } else if status.state.is_terminal() {
            seen.ended.push(name);
        }
    }
}

// Covers S104.
#[test]
fn two_framework_versions_share_agents() {
    simulate_network(|network| async move {
        let cluster = MiniCluster::new(network, &[]).await;
        // The old version has a guarantee; the new one has a limit.
        for host in ["a1", "a2"] {
            let total = "cpus:4;mem:1024;cpus(etl/prod):1;mem(etl/prod):64";
            cluster.agent(host, total).await;
        }
        cluster.quota("etl/next", "", "cpus:3").await.unwrap();
        let (old, of_old) = Version::new("forever", 6);
        let (new, of_new) = Version::new("30", 6);
        let _old = cluster.framework_at("node-1", "etl", "etl/prod", old).await;
        let new = cluster.framework_at("node-2", "etl", "etl/next", new).await;
        cluster.pass(20).await;
        let hosts = |seen: &Arc<Mutex<Seen>>| {
            let seen = seen.lock().unwrap();
            let hosts: BTreeSet<AgentId> = seen.running.values().cloned().collect();
            (seen.running.len(), seen.roles.clone(), hosts)
        };
        let (running, roles, on_old) = hosts(&of_old);
        assert_eq!(
            (running, roles),
            (6, BTreeSet::from(["etl/prod".to_owned()]))
        );
        let (running, roles, on_new) = hosts(&of_new);
        assert_eq!(
            (running, roles),
            (3, BTreeSet::from(["etl/next".to_owned()]))
        );
        assert!(!on_old.is_disjoint(&on_new), "they share agents");
        cluster.pass(20).await;
        // Common names are not mixed up, and one version continues what the other ends.
        assert_eq!(of_new.lock().unwrap().ended.len(), 3);
        assert_eq!(of_new.lock().unwrap().running.len(), 6);
        new.tear_down().unwrap();
        cluster.pass(20).await;
        assert_eq!(of_old.lock().unwrap().ended, [""; 0]);
        let left = cluster.role("etl/prod").await.allocated.cpus().as_f64();
        assert_eq!(left, 6.0);
    });
}
