//! Turns by rate limits: calls of frameworks, operators' commands, and subscriptions (SPEC 3.3,
//! W29).

use authority::{Acls, RateLimits, Throttle};
use protocol::message::operator::{CancelDrain, UpdateWeights, ViewCluster};
use scheduler_driver::{Calls, DriverRef, Scheduler, SchedulerDriver};

use super::frameworks::standbys;
use super::*;

/// A scheduler that counts its messages.
struct Counts(Log);

impl Scheduler for Counts {
    fn offers(&mut self, _: &mut Calls, _: Vec<Offer>) {}

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        self.0.push(status.task_id.to_string());
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        self.0.push(format!("failed: {reason}"));
    }
}

fn drive(network: &Network, principal: &str) -> (DriverRef, Log) {
    let node = network.node(principal, Role::Framework, &[Role::Master]);
    let (log, mut info) = (Log::default(), FrameworkInfo::new("nobody", principal));
    info.principal = Some(principal.to_owned());
    let driver = SchedulerDriver::new(["master"], info);
    (driver.start(&node, Counts(log.clone())).unwrap(), log)
}

fn limited(limits: &str) -> Config {
    Config {
        throttle: Throttle::new(RateLimits::parse(limits).unwrap()),
        ..Config::default()
    }
}

fn kill(driver: &DriverRef, count: usize) {
    for index in 0..count {
        driver
            .kill(TaskId::new(format!("t{index:04}")).unwrap(), None)
            .unwrap();
    }
}

// Covers W29.
#[test]
fn noisy_framework_is_limited_without_delaying_others() {
    simulate_network(|network| async move {
        let config = limited(r#"{"limits":[{"principal":"noisy","qps":50}]}"#);
        let throttle = config.throttle.clone();
        let world = World::new(network.clone(), config).await;
        let ((noisy, told), (quiet, heard)) = (drive(&network, "noisy"), drive(&network, "quiet"));
        world.pass(5).await;
        told.take();
        heard.take();
        kill(&noisy, 1000);
        kill(&quiet, 500);
        world.settle().await;
        assert_eq!(heard.take().len(), 500, "at once");
        let at_once = told.take().len();
        assert!((1..=51).contains(&at_once), "{at_once}");
        world.pass(10).await;
        let later = told.take().len();
        assert!((400..=551).contains(&later), "{later}");
        world.pass(30).await;
        let rest = told.take();
        assert_eq!(at_once + later + rest.len(), 1000, "each once");
        assert!(
            rest.is_sorted() && rest.last().unwrap() == "t0999",
            "in order"
        );
        let traffic = throttle.traffic();
        // Besides the kills there may be the driver's own messages.
        assert!((1000..1010).contains(&traffic["noisy"].processed));
        assert_eq!(traffic["noisy"].dropped, 0);
        assert!((500..510).contains(&traffic["quiet"].processed));
    });
}

/// W29: a capacity is for calls without another place to wait. A driver's backlog arrives at once,
/// and ends no framework.
#[test]
fn drivers_backlog_is_handled_at_its_rate() {
    simulate_network(|network| async move {
        let config = limited(r#"{"limits":[{"principal":"noisy","qps":1,"capacity":10}]}"#);
        let throttle = config.throttle.clone();
        let world = World::new(network.clone(), config).await;
        let (noisy, told) = drive(&network, "noisy");
        world.pass(5).await;
        told.take();
        kill(&noisy, 100);
        world.pass(30).await;
        let at_its_rate = told.take().len();
        assert!((20..=32).contains(&at_its_rate), "{at_its_rate}");
        world.pass(100).await;
        let rest = told.take();
        assert_eq!(at_its_rate + rest.len(), 100, "{rest:?}");
        assert_eq!(throttle.traffic()["noisy"].dropped, 0);
    });
}

/// W29: calls over HTTP of the same principal, more than it may have, leave a driver its share.
#[test]
fn driver_gets_its_turn_among_http_calls() {
    simulate_network(|network| async move {
        let config = limited(r#"{"limits":[{"principal":"noisy","qps":2}]}"#);
        let throttle = config.throttle.clone();
        let world = World::new(network.clone(), config).await;
        let (noisy, told) = drive(&network, "noisy");
        world.pass(5).await;
        told.take();
        kill(&noisy, 5);
        for _ in 0..120 {
            for _ in 0..4 {
                let now = world.node.clock().now() - runtime::Instant::default();
                throttle.admit(Some("noisy"), 64, Duration::from_secs(10), now);
            }
            world.pass(1).await;
        }
        assert_eq!(told.take().len(), 5);
    });
}

/// Unnumbered calls, which no driver sends, are limited to the rate.
#[test]
fn unnumbered_calls_beyond_the_rate_are_ignored() {
    simulate_network(|network| async move {
        let config = limited(r#"{"aggregate_default_qps":3}"#);
        let world = World::new(network, config).await;
        let (scheduler, f) = world.framework("web", |_| {}).await;
        world.pass(5).await;
        for _ in 0..50 {
            let framework_id = f.clone();
            let roles = Default::default();
            scheduler.tell(ReviveOffers {
                framework_id,
                roles,
            });
        }
        world.settle().await;
        let revived = world.allocator();
        let revived = revived
            .iter()
            .filter(|line| line.starts_with("revived"))
            .count();
        assert_eq!(revived, 3);
    });
}

/// W29: also for operators' commands over a link; a caller keeps its identity while it waits.
// Covers W29.
#[test]
fn commands_wait_for_turns_and_are_bounded() {
    simulate_network(|network| async move {
        let nobody = r#"{"update_weights":[{"principals":{"type":"NONE"},"roles":{"type":"ANY"}}],
            "reactivate_agents":[{"principals":{"type":"NONE"},"agents":{"type":"ANY"}}]}"#;
        let limits = r#"{"limits":[{"principal":"ops","qps":1,"capacity":3}]}"#;
        let config = Config {
            acls: Acls::parse(nobody).unwrap().into(),
            ..limited(limits)
        };
        let throttle = config.throttle.clone();
        let world = World::new(network, config).await;
        let patience = Duration::from_secs(30);
        let weights = || UpdateWeights {
            weights: [("eng".to_owned(), 2.0)].into(),
        };
        let node = world.network.node("ops", Role::Operator, &[Role::Master]);
        let master = node.find("master", "master", PATIENCE).await.unwrap();
        let clock = world.node.clock();
        let begun = clock.now();
        let asked = (0..5).map(async |_| {
            let answer = node.ask(&master, weights(), patience).await.unwrap();
            ((clock.now() - begun).as_secs(), answer.unwrap_err())
        });
        let answers = futures_util::future::join_all(asked).await;
        for (number, (waited, refused)) in answers.into_iter().enumerate() {
            let (seconds, words) = match number {
                4 => (0, "too many commands"),
                waits => (waits as u64, "may update_weights"),
            };
            assert_eq!(waited, seconds);
            assert!(refused.to_string().contains(words), "{refused}");
        }
        let traffic = throttle.traffic()["ops"];
        assert_eq!((traffic.processed, traffic.dropped), (4, 1));

        // Read-only commands are refused as well.
        world.pass(10).await;
        let views = (0..5).map(async |_| {
            let view = node.ask(&master, ViewCluster, patience).await.unwrap();
            view.err().map(|refused| refused.to_string())
        });
        let mut refused = futures_util::future::join_all(views).await;
        let last = refused.pop().unwrap().unwrap();
        let words = "over its rate limit: too many commands of this principal";
        assert!(last.starts_with(words), "{last}");
        assert_eq!(refused, [None, None, None, None]);

        // Others have another limit or none, and a page has had its turn.
        let other = world.network.node("other", Role::Operator, &[Role::Master]);
        let master = other.find("master", "master", PATIENCE).await.unwrap();
        let agent_id = AgentId::new("any").unwrap();
        let cancel = CancelDrain { agent_id };
        let refused = other.ask(&master, cancel, patience).await.unwrap();
        let words = refused.unwrap_err().to_string();
        assert!(words.contains("reactivate_agents"), "{words}");
        let (before, mut views) = (clock.now(), 0);
        for _ in 0..9 {
            let view = other.ask(&master, ViewCluster, patience).await;
            views += usize::from(view.unwrap().is_ok());
            let page = world.master.ask(weights(), patience).await;
            assert_eq!(page, Ok(Ok(())));
        }
        assert_eq!((views, clock.now()), (9, before));
    });
}

/// Answers to schedulers that subscribe, or stand by, at once as frameworks of these principals:
/// after how many seconds, and whether they are had.
async fn come(world: &World, stands_by: bool, principals: &[&str]) -> Vec<(u64, bool)> {
    let clock = world.node.clock();
    let mut members = Vec::new();
    for (number, principal) in principals.iter().enumerate() {
        let name = format!("{principal}-{number}-{stands_by}");
        let mut info = FrameworkInfo::new("nobody", &name);
        info.principal = Some((*principal).to_owned());
        let member = world.member(&name, "scheduler", Role::Framework).await;
        members.push((member, info));
    }
    let begun = clock.now();
    let asked = members.iter().map(async |(member, info)| {
        let had = match stands_by {
            true => standbys::stand_by(member, info.clone()).await.map(drop),
            false => subscribe(member, info.clone()).await.map(drop),
        };
        if let Err(refused) = &had {
            let words = format!("{refused:?}");
            assert_contains!(words, "NotNow", "--rate_limits");
        }
        ((clock.now() - begun).as_secs(), had.is_ok())
    });
    futures_util::future::join_all(asked).await
}

/// W29: every call of a native driver has its turn, also the first.
#[test]
fn native_subscription_waits_for_its_turn_and_is_bounded() {
    simulate_network(|network| async move {
        let config = limited(r#"{"limits":[{"principal":"web","qps":1,"capacity":2}]}"#);
        let throttle = config.throttle.clone();
        let world = World::new(network, config).await;
        for stands_by in [false, true] {
            let all = ["web", "web", "web", "web", "other", "other"];
            let came = come(&world, stands_by, &all).await;
            let others = [(0, true); 2];
            assert_eq!(came[..4], [(0, true), (1, true), (2, true), (0, false)]);
            assert_eq!(came[4..], others, "nobody else is delayed");
            let rounds = 1 + u64::from(stands_by);
            let web = throttle.traffic()["web"];
            let counted = (web.received, web.processed, web.dropped);
            assert_eq!(counted, (4 * rounds, 3 * rounds, rounds));
            world.pass(5).await;
        }
    });
}

/// W29: a refused driver repeats its subscription until its turn.
#[test]
fn rate_limited_driver_gets_subscribed_eventually() {
    simulate_network(|network| async move {
        let config = limited(r#"{"limits":[{"principal":"noisy","qps":0.2,"capacity":0}]}"#);
        let throttle = config.throttle.clone();
        let world = World::new(network.clone(), config).await;
        let now = world.node.clock().now() - runtime::Instant::default();
        throttle.take(Some("noisy"), 1, now);
        let (_noisy, _) = drive(&network, "noisy");
        world.pass(2).await;
        let subscribed = async || world.state().await.frameworks.iter().count();
        assert_eq!(subscribed().await, 0);
        world.pass(8).await;
        assert_eq!(subscribed().await, 1);
        assert!(throttle.traffic()["noisy"].dropped >= 1);
    });
}
