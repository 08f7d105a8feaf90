//! Leader discovery of the driver: a dead master is silent, a follower names the leader.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::discovery::SPREAD_MAX;
use runtime::{ConnectError, Dialer, Peer, testing};

use super::fencing::{OtherMaster, drive, subscriptions};
use super::*;

/// A dialer to which the address `dead` is silent.
struct PartialDialer(Arc<dyn Dialer>);

impl Dialer for PartialDialer {
    fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>> {
        match address.as_str() {
            "dead" => std::future::pending().boxed(),
            _ => self.0.dial(address),
        }
    }
}

fn fixture(network: Network) -> Fixture {
    let fixture = Fixture::new(network);
    let inner = fixture.network.place(&fixture.framework, "framework");
    fixture.framework.set_dialer(Arc::new(PartialDialer(inner)));
    fixture
}

// Covers W6.
#[test]
fn dead_master_costs_half_a_second() {
    simulate_network(|network| async move {
        let fixture = fixture(network);
        let _idle = OtherMaster::at(&fixture, "idle", None);
        let acting = OtherMaster::at(&fixture, "acting", Some(1));
        let _driver = drive(&fixture, &["dead", "idle", "acting"]);
        let clock = fixture.framework.clock().clone();
        clock.advance(Duration::from_millis(450)).await;
        assert_eq!(subscriptions(&acting.requests), 0);
        clock.advance(Duration::from_millis(100)).await;
        assert_eq!(subscriptions(&acting.requests), 1);
    });
}

#[test]
fn new_leader_is_found_within_half_a_second() {
    simulate_network(|network| async move {
        let fixture = fixture(network);
        let next = OtherMaster::at(&fixture, "next", None);
        let _driver = drive(&fixture, &["dead", "next"]);
        let clock = fixture.framework.clock().clone();
        clock.advance(Duration::from_millis(2100)).await;
        next.act(&fixture, 1);
        clock.advance(Duration::from_millis(500)).await;
        assert_eq!(subscriptions(&next.requests), 1);
    });
}

#[test]
fn dead_announced_leader_does_not_block() {
    simulate_network(|network| async move {
        let fixture = fixture(network);
        let _first = OtherMaster::at(&fixture, "first", Some(5));
        let follower = OtherMaster::at(&fixture, "follower", None);
        let _driver = drive(&fixture, &["first", "follower", "dead"]);
        fixture.settle().await;
        follower.office.answer("dead", 6);
        fixture.settle().await;
        fixture.network.leave("first");
        follower.act(&fixture, 7);
        fixture
            .framework
            .clock()
            .advance(Duration::from_millis(1100) + SPREAD_MAX)
            .await;
        assert_eq!(subscriptions(&follower.requests), 1);
    });
}

/// The configured addresses stay; an announced leader's address is only the current one.
// Covers W6.
#[test]
fn one_follower_address_finds_every_leader() {
    simulate_network(|network| async move {
        let fixture = fixture(network);
        let follower = OtherMaster::at(&fixture, "follower", None);
        let first = OtherMaster::at(&fixture, "first", Some(5));
        let next = OtherMaster::at(&fixture, "next", None);
        let _driver = drive(&fixture, &["follower"]);
        fixture.settle().await;
        assert_eq!(follower.office.terms(), [0], "whoever leads");
        follower.office.answer("first", 5);
        fixture.settle().await;
        assert_eq!(subscriptions(&first.requests), 1);
        assert_eq!(follower.office.terms(), [5], "whoever leads next");

        fixture.network.leave("first");
        fixture.pass(1).await;
        assert_eq!(follower.office.terms(), [5, 0], "it is asked again");
        next.act(&fixture, 6);
        follower.office.answer("next", 6);
        follower.office.answer("next", 6);
        fixture.pass(1).await;
        assert_eq!(subscriptions(&next.requests), 1);
        assert_eq!(subscriptions(&first.requests), 1);
    });
}

#[test]
fn leaderless_follower_is_asked_until_one_leads() {
    simulate_network(|network| async move {
        let fixture = fixture(network);
        let follower = OtherMaster::at(&fixture, "follower", None);
        let _driver = drive(&fixture, &["follower"]);
        // It waits five seconds for an answer, then it pauses.
        fixture.pass(12).await;
        let requests = follower.office.terms();
        assert!((2..=3).contains(&requests.len()), "{requests:?}");
        let late = OtherMaster::at(&fixture, "late", Some(9));
        requests
            .iter()
            .for_each(|_| follower.office.answer("late", 9));
        fixture.pass(1).await;
        assert_eq!(subscriptions(&late.requests), 1);
    });
}

/// Arrival times of these drivers, with different seeds, at a master that is announced to all at
/// once.
fn come_to_the_announced_one(seeds: std::ops::Range<u64>) -> Vec<f64> {
    simulate_network(|network| async move {
        let fixture = fixture(network);
        let _first = OtherMaster::at(&fixture, "first", Some(5));
        let follower = OtherMaster::at(&fixture, "follower", None);
        let next = OtherMaster::at(&fixture, "next", Some(6));
        let mut drivers = Vec::new();
        for seed in seeds.clone() {
            let name = format!("framework-{seed}");
            let node = testing::node(&name)
                .role(Role::Framework)
                .accepts(&[Role::Master])
                .seed(seed)
                .build();
            fixture.network.join(&node, &name);
            let info = FrameworkInfo::new("user", "test");
            let driver = SchedulerDriver::new(["first", "follower"], info);
            drivers.push(
                driver
                    .start(&node, RecordingScheduler(Log::default()))
                    .unwrap(),
            );
        }
        fixture.settle().await;
        let clock = fixture.framework.clock().clone();
        let announced = clock.now_secs();
        seeds.for_each(|_| follower.office.answer("next", 6));
        clock.advance(SPREAD_MAX).await;
        let came = take(&next.requests).into_iter().filter_map(|line| {
            let (_, at) = line.rsplit_once(" at ")?;
            Some(at.parse::<f64>().unwrap() - announced)
        });
        came.collect()
    })
}

#[test]
fn new_leader_is_joined_with_bounded_jitter() {
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
