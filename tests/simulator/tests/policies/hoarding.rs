//! Hoarding: a framework that keeps its offers without an answer delays others for a bounded time
//! only (W8, S129).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use master::Config;
use master::offers::expiry::OfferBudget;
use protocol::message::scheduler::Subscribed;
use protocol::{Filters, Offer, TaskStatus};
use runtime::testing::simulate_network;
use scheduler_driver::{Calls, Scheduler};

use crate::mini_cluster::{MiniCluster, task};

const AGENTS: usize = 8;

/// Keeps its offers without an answer.
struct Hoarder {
    held: Arc<AtomicUsize>,
}

impl Scheduler for Hoarder {
    fn offers(&mut self, _: &mut Calls, offers: Vec<Offer>) {
        self.held.fetch_add(offers.len(), Ordering::Relaxed);
    }

    fn status(&mut self, _: &mut Calls, _: &TaskStatus) {}
}

/// Runs an endless task in each offer.
struct Worker {
    came: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
}

impl Scheduler for Worker {
    fn subscribed(&mut self, _: &mut Calls, _: &Subscribed) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for mut offer in offers {
            let name = format!("t{}", self.begun.fetch_add(1, Ordering::Relaxed));
            let tasks = vec![task(&name, "wait", "cpus:1;mem:64", &mut offer).unwrap()];
            let launch = protocol::Operation::Launch { tasks };
            driver.accept(vec![offer.id], vec![launch], Filters::default());
        }
    }

    fn status(&mut self, _: &mut Calls, _: &TaskStatus) {}
}

/// Seconds until the worker, which starts when the hoarder has all offers, has a task on each of
/// the agents; none if it has not within half an hour.
fn waited(offer_timeout: Option<u64>, budget: Option<&str>, agents: usize) -> Option<u64> {
    let config = Config {
        offer_timeout: offer_timeout.map(Duration::from_secs),
        offer_budget: budget.map(|text| text.parse::<OfferBudget>().unwrap()),
        ..Config::default()
    };
    simulate_network(|network| async move {
        let cluster = MiniCluster::with(network, &[], config).await;
        let (held, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let hoarder = Hoarder { held: held.clone() };
        let _hoarder = cluster.framework("hoarder", "hoarder", hoarder).await;
        for n in 0..AGENTS {
            cluster.agent(&format!("host-{n}"), "cpus:1;mem:64").await;
        }
        cluster.pass(2).await;
        assert!(held.load(Ordering::Relaxed) > 0);
        let came = Arc::new(AtomicUsize::new(0));
        let worker = Worker {
            came: came.clone(),
            begun: begun.clone(),
        };
        let _worker = cluster.framework("worker", "worker", worker).await;
        while came.load(Ordering::Relaxed) == 0 {
            cluster.pass(1).await;
        }
        for seconds in 0..1800 {
            if begun.load(Ordering::Relaxed) >= agents {
                return Some(seconds);
            }
            cluster.pass(1).await;
        }
        None
    })
}

/// W8, S129: the hoarder comes first in each tie, and has no offers right after their timeout.
// Covers S129; W8.
#[test]
fn hoarder_starves_others_until_the_timeout_only() {
    let default = Config::default().offer_timeout.unwrap().as_secs();
    for timeout in [30, 120, default] {
        let waited = waited(Some(timeout), None, AGENTS).unwrap();
        assert!(
            (timeout - 6..=timeout).contains(&waited),
            "{waited} s of {timeout}"
        );
    }
    assert_eq!(waited(None, None, 1), None, "without one for ever");
}

/// W8: the worker has a budget too, so that it is offered the rest in two or three parts, a second
/// apart.
// Covers W8.
#[test]
fn offer_budget_limits_a_hoarder() {
    for (budget, left, parts) in [("3", 5, 2), ("25%", 6, 3)] {
        let waited = waited(None, Some(budget), left);
        assert!(waited.is_some_and(|waited| waited <= parts), "{waited:?} s");
    }
    assert_eq!(waited(None, Some("3"), 6), None, "the rest is held");
    assert_eq!(waited(None, Some("100%"), 1), None);
    let both = waited(Some(60), Some("3"), AGENTS);
    assert!(both.is_some_and(|waited| waited <= 60), "{both:?} s");
}
