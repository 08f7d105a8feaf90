//! A master that is dead says nothing at all: what it costs to look for the one that acts.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use runtime::{ConnectError, Dialer, Peer};

use super::fencing::{Other, drive, subscriptions};
use super::*;

/// Hears nothing of the address `dead`; of all others as in the network.
struct Waits(Arc<dyn Dialer>);

impl Dialer for Waits {
    fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>> {
        match address.as_str() {
            "dead" => std::future::pending().boxed(),
            _ => self.0.dial(address),
        }
    }
}

fn stage(network: Network) -> Stage {
    let stage = Stage::new(network);
    let inner = stage.network.place(&stage.framework, "framework");
    stage.framework.set_dialer(Arc::new(Waits(inner)));
    stage
}

#[test]
fn a_dead_master_in_the_list_costs_half_a_second() {
    rehearse_network(|network| async move {
        let stage = stage(network);
        let _idle = Other::at(&stage, "idle", None);
        let acting = Other::at(&stage, "acting", Some(1));
        let _driver = drive(&stage, &["dead", "idle", "acting"]);
        let clock = stage.framework.clock().clone();
        clock.advance(Duration::from_millis(450)).await;
        assert_eq!(subscriptions(&acting.asked), 0);
        clock.advance(Duration::from_millis(100)).await;
        assert_eq!(subscriptions(&acting.asked), 1);
    });
}

#[test]
fn one_that_begins_to_act_while_a_dead_one_is_awaited_is_found_within_half_a_second() {
    rehearse_network(|network| async move {
        let stage = stage(network);
        let next = Other::at(&stage, "next", None);
        let _driver = drive(&stage, &["dead", "next"]);
        let clock = stage.framework.clock().clone();
        clock.advance(Duration::from_millis(2100)).await;
        next.act(&stage, 1);
        clock.advance(Duration::from_millis(500)).await;
        assert_eq!(subscriptions(&next.asked), 1);
    });
}

#[test]
fn one_that_was_announced_and_is_dead_does_not_keep_the_driver_from_the_one_that_acts() {
    rehearse_network(|network| async move {
        let stage = stage(network);
        let _first = Other::at(&stage, "first", Some(5));
        let tells = Other::at(&stage, "tells", None);
        let _driver = drive(&stage, &["first", "tells", "dead"]);
        stage.settle().await;
        tells.office.answer("dead", 6);
        stage.settle().await;
        stage.network.leave("first");
        tells.act(&stage, 7);
        stage
            .framework
            .clock()
            .advance(Duration::from_millis(1100))
            .await;
        assert_eq!(subscriptions(&tells.asked), 1);
    });
}
