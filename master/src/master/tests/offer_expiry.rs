//! Unanswered offers: hold times, budgets and expiry (W8, S129).

use super::*;
use crate::offers::expiry::OfferBudget;

/// S129: without a filter its holder would get it again before all others.
// Covers S129.
#[test]
fn expired_offers_filter_their_holder_for_a_bounded_time() {
    for (timeout, hidden) in [(30, "30s"), (600, "60s")] {
        simulate_network(|network| async move {
            let config = Config {
                offer_timeout: Some(Duration::from_secs(timeout)),
                ..Config::default()
            };
            let world = World::new(network, config).await;
            let (_agent, a) = world.agent("agent-1").await;
            let (scheduler, f) = world.framework("web", |_| ()).await;
            let first = world.offer(&scheduler, &f, &a, "cpus:1").await;
            world.pass(10).await;
            let second = world.offer(&scheduler, &f, &a, "cpus:2").await;
            world.offer(&scheduler, &f, &a, "cpus:3").await;
            world.tell(&scheduler, decline(&f, &[&second])).await;
            world.allocator();
            scheduler.received();
            world.pass(timeout - 11).await;
            scheduler.receives("");
            world.pass(1).await;
            assert_eq!(
                scheduler.received(),
                [format!("rescind {}", short(&first.id))]
            );
            let recovered = |cpus: u8| format!("recovered 0000 cpus:{cpus} for {hidden}");
            assert_eq!(world.allocator(), [recovered(1)]);
            world.pass(10).await;
            scheduler.receives("rescind O2");
            assert_eq!(world.allocator(), [recovered(3)]);
            let counters = &world.state().await.counters;
            let counted = |name| counters.get(&format!("master/offers_{name}"));
            assert_eq!((counted("expired"), counted("rescinded")), (2, 2));
        });
    }
}

/// W8: ten minutes unless configured.
// Covers W8.
#[test]
fn offers_expire_by_default_unless_disabled() {
    for (offer_timeout, expired) in [(Config::default().offer_timeout, true), (None, false)] {
        simulate_network(|network| async move {
            let config = Config {
                offer_timeout,
                ..Config::default()
            };
            let world = World::new(network, config).await;
            let (_agent, a) = world.agent("agent-1").await;
            let (scheduler, f) = world.framework("web", |_| ()).await;
            world.offer(&scheduler, &f, &a, "cpus:1").await;
            world.pass(599).await;
            assert_eq!(world.state().await.offers.len(), 1);
            world.pass(1).await;
            assert_eq!(world.state().await.offers.is_empty(), expired);
            world.pass(100_000).await;
            assert_eq!(world.state().await.offers.is_empty(), expired);
        });
    }
}

/// S129: offers of before the clock was set back are taken back with the next look, and later ones
/// in time.
// Covers S129.
#[test]
fn clock_set_back_does_not_extend_offers() {
    simulate_pair(|world, (_agent, a), (scheduler, f)| async move {
        world.offer(&scheduler, &f, &a, "cpus:1").await;
        world.pass(100).await;
        world.node.clock().set_wall_offset(-3_600_000_000_000);
        world.offer(&scheduler, &f, &a, "cpus:2").await;
        world.pass(499).await;
        assert_eq!(world.state().await.offers.len(), 2);
        scheduler.received();
        world.pass(1).await;
        scheduler.receives("rescind O0");
        world.pass(100).await;
        scheduler.receives("rescind O1");
    });
}

// Covers W8.
#[test]
fn offer_budget_is_renewed_when_half_is_answered() {
    simulate_network(|network| async move {
        let config = Config {
            offer_budget: Some(OfferBudget::Offers(2)),
            ..Config::default()
        };
        let world = World::new(network, config).await;
        let (_agent, a) = world.agent("agent-1").await;
        let (hoarder, h) = world.framework("hoarder", |_| ()).await;
        let (other, o) = world.framework("other", |_| ()).await;
        world.allocator();
        let grants = |cpus: [u8; 3]| {
            let one = |n: u8| grant(&h, &a, &format!("cpus:{n}"));
            cpus.map(one).to_vec()
        };
        world.grant(grants([1, 2, 3])).await;
        let held = hoarder.offers();
        assert_eq!(held.len(), 2);
        let back = ["budget 0000 Some(2)", "recovered 0000 cpus:3 for 1ms"];
        assert_eq!(world.allocator(), back);
        // Reported once, and frameworks below their budget get it.
        world.grant(vec![grant(&h, &a, "cpus:3")]).await;
        assert_eq!(world.allocator(), [back[1]]);
        world.offer(&other, &o, &a, "cpus:3").await;
        world.facts_are("");

        world.tell(&hoarder, decline(&h, &[&held[0]])).await;
        let again = ["recovered 0000 cpus:1 for 5s", "budget 0000 None"];
        assert_eq!(world.allocator(), again);
        world.offer(&hoarder, &h, &a, "cpus:3").await;
        world.facts_are("");
        let state = world.state().await;
        assert_eq!(state.counters.get("master/offers_over_budget"), 2);
    });
}

/// W8: the opposite.
// Covers W8.
#[test]
fn framework_without_budget_holds_any_number_of_offers() {
    simulate_world(|world| async move {
        let (_agent, a) = world.agent("agent-1").await;
        let (hoarder, h) = world.framework("hoarder", |_| ()).await;
        world.allocator();
        world
            .grant((0..100).map(|_| grant(&h, &a, "cpus:1")).collect())
            .await;
        assert_eq!(hoarder.offers().len(), 100);
        world.facts_are("");
    });
}

// Covers W8.
#[test]
fn metrics_show_hold_times_overall_and_per_framework() {
    simulate_pair(|world, (_agent, a), (scheduler, f)| async move {
        let (quick, q) = world.framework("quick", |_| ()).await;
        let metrics = async || {
            let now = world.node.clock().wall();
            crate::api::metrics(&*world.state().await, now)
        };
        let before = metrics().await;
        assert_eq!(before["master/offer_held_secs/oldest"], 0.0);
        assert!(
            !before.contains_key("master/offer_held_secs/p50"),
            "of none"
        );

        let first = world.offer(&scheduler, &f, &a, "cpus:1").await;
        world.pass(40).await;
        let second = world.offer(&quick, &q, &a, "cpus:1").await;
        world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.tell(decline(&f, &[&first]));
        world.tell(&quick, decline(&q, &[&second])).await;
        world.pass(2).await;
        let after = metrics().await;
        for (name, expected) in [("count", 2.0), ("min", 0.0), ("max", 40.0), ("sum", 40.0)] {
            let name = format!("master/offer_held_secs/{name}");
            assert_eq!(after[&name], expected, "{name}");
        }
        assert_eq!(after["master/offer_held_secs/oldest"], 2.0);
        let of = |name: &str, id: &FrameworkId, what: &str| {
            after[&format!("master/frameworks/{name}/{id}/offers/{what}")]
        };
        assert_eq!(of("web", &f, "held_secs/max"), 40.0);
        assert_eq!(of("web", &f, "held_secs/oldest"), 2.0);
        assert_eq!(of("web", &f, "outstanding"), 1.0);
        assert_eq!(of("quick", &q, "held_secs/count"), 1.0);
        assert_eq!(of("quick", &q, "held_secs/sum"), 0.0);
        assert_eq!(of("quick", &q, "held_secs/oldest"), 0.0);
    });
}
