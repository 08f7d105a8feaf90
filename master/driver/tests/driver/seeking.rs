//! What it costs to look for the master that leads: one that is dead says nothing at all, and one that does not lead knows who does.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::seek::SPREAD_MAX;
use runtime::{ConnectError, Dialer, Peer, rehearsal};

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
            .advance(Duration::from_millis(1100) + SPREAD_MAX)
            .await;
        assert_eq!(subscriptions(&tells.asked), 1);
    });
}

/// Those that the user has named stay: where one of them has led is only where the driver is now.
#[test]
fn who_is_given_only_a_master_that_does_not_lead_is_led_to_the_one_that_does_and_again_to_the_next()
{
    rehearse_network(|network| async move {
        let stage = stage(network);
        let follower = Other::at(&stage, "follower", None);
        let first = Other::at(&stage, "first", Some(5));
        let next = Other::at(&stage, "next", None);
        let _driver = drive(&stage, &["follower"]);
        stage.settle().await;
        assert_eq!(follower.office.terms(), [0], "whoever leads");
        follower.office.answer("first", 5);
        stage.settle().await;
        assert_eq!(subscriptions(&first.asked), 1);
        assert_eq!(follower.office.terms(), [5], "whoever leads next");

        stage.network.leave("first");
        stage.pass(1).await;
        assert_eq!(follower.office.terms(), [5, 0], "it is asked again");
        next.act(&stage, 6);
        follower.office.answer("next", 6);
        follower.office.answer("next", 6);
        stage.pass(1).await;
        assert_eq!(subscriptions(&next.asked), 1);
        assert_eq!(subscriptions(&first.asked), 1);
    });
}

#[test]
fn a_driver_that_finds_nobody_through_a_follower_asks_it_again_and_subscribes_when_one_leads() {
    rehearse_network(|network| async move {
        let stage = stage(network);
        let follower = Other::at(&stage, "follower", None);
        let _driver = drive(&stage, &["follower"]);
        // Five seconds it waits to be told, then it pauses.
        stage.pass(12).await;
        let asked = follower.office.terms();
        assert!((2..=3).contains(&asked.len()), "{asked:?}");
        let late = Other::at(&stage, "late", Some(9));
        asked.iter().for_each(|_| follower.office.answer("late", 9));
        stage.pass(1).await;
        assert_eq!(subscriptions(&late.asked), 1);
    });
}

/// When each of these drivers, whose nodes differ in their seeds, is at the master that was announced to all of them in one moment.
fn come_to_the_announced_one(seeds: std::ops::Range<u64>) -> Vec<f64> {
    rehearse_network(|network| async move {
        let stage = stage(network);
        let _first = Other::at(&stage, "first", Some(5));
        let tells = Other::at(&stage, "tells", None);
        let next = Other::at(&stage, "next", Some(6));
        let mut drivers = Vec::new();
        for seed in seeds.clone() {
            let name = format!("framework-{seed}");
            let node = rehearsal::node(&name)
                .role(Role::Framework)
                .accepts(&[Role::Master])
                .seed(seed)
                .build();
            stage.network.join(&node, &name);
            let info = FrameworkInfo::new("user", "test");
            let driver = SchedulerDriver::new(["first", "tells"], info);
            drivers.push(driver.start(&node, Notes(Log::default())).unwrap());
        }
        stage.settle().await;
        let clock = stage.framework.clock().clone();
        let announced = clock.now_secs();
        seeds.for_each(|_| tells.office.answer("next", 6));
        clock.advance(SPREAD_MAX).await;
        let came = take(&next.asked).into_iter().filter_map(|line| {
            let (_, at) = line.rsplit_once(" at ")?;
            Some(at.parse::<f64>().unwrap() - announced)
        });
        came.collect()
    })
}

#[test]
fn drivers_that_hear_of_a_new_leader_in_one_moment_come_at_times_of_their_own_within_the_bound() {
    let came = come_to_the_announced_one(1..51);
    assert_eq!(came.len(), 50, "all are there within the bound");
    let mut millis: Vec<u64> = came.iter().map(|at| (at * 1000.0) as u64).collect();
    millis.sort_unstable();
    millis.dedup();
    assert!(millis.len() > 35, "in as many milliseconds: {millis:?}");
    assert!(
        millis.first() < Some(&40) && millis.last() > Some(&160),
        "{millis:?}"
    );
    assert_eq!(came, come_to_the_announced_one(1..51), "by their seeds");
}
