//! A framework that is over, and the real driver of a scheduler that keeps its id: with a real
//! master over a real registry.

use scheduler_driver::{Calls, DriverRef, Ended, Scheduler, SchedulerDriver};

use super::*;

/// A scheduler that records its ids, and launches one task on its first offer.
struct Keeper {
    log: Log,
    task: Option<TaskInfo>,
}

impl Scheduler for Keeper {
    fn subscribed(&mut self, _: &mut Calls, subscribed: &Subscribed) {
        let id = short(&subscribed.framework_id);
        self.log.push(format!("subscribed {id}"));
    }

    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        let ids = offers.into_iter().map(|offer| offer.id).collect();
        driver.launch(ids, self.task.take().into_iter().collect());
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        self.log
            .push(format!("{} {}", status.task_id, status.state));
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        self.log.push(format!("failed: {reason}"));
    }
}

/// A driver of the framework `f` on a node of its own.
fn drive(
    network: &Network,
    name: &str,
    f: &FrameworkId,
    task: Option<TaskInfo>,
    as_it_likes: impl FnOnce(SchedulerDriver) -> SchedulerDriver,
) -> (DriverRef, Log) {
    let node = network.node(name, Role::Framework, &[Role::Master]);
    let (log, mut info) = (Log::default(), FrameworkInfo::new("nobody", "web"));
    info.id = Some(f.clone());
    let keeper = Keeper {
        log: log.clone(),
        task,
    };
    let driver = as_it_likes(SchedulerDriver::new(["master"], info));
    (driver.start(&node, keeper).unwrap(), log)
}

/// W14: also by a master that has it from the registry alone.
// Covers W14.
#[test]
fn driver_of_an_expired_framework_recovers() {
    simulate_network(|network| async move {
        let first = World::new(network.clone(), Config::default()).await;
        let (_old, f) = first
            .framework("web", |info| {
                info.failover_timeout = Duration::from_secs(60)
            })
            .await;
        network.leave("web");
        first.pass(59).await;
        assert!(first.faults.state().frameworks.contains_key(&f), "59 s");
        first.pass(2).await;
        assert!(!first.faults.state().frameworks.contains_key(&f), "61 s");

        for (master, names) in [(None, ["web-1", "web-2"]), (Some(()), ["web-3", "web-4"])] {
            let next = match master {
                None => None,
                Some(()) => Some(first.next().await),
            };
            let world = next.as_ref().unwrap_or(&first);
            let (agent, a) = world.agent(&format!("agent-of-{}", names[0])).await;

            let (locked_out, log) = drive(&network, names[0], &f, None, |driver| driver);
            world.pass(5).await;
            let Ended::Failed { reason } = locked_out.ended().await else {
                panic!("it goes on");
            };
            assert_eq!(reason, "Framework has been removed");
            assert_eq!(log.take(), [format!("failed: {reason}")]);

            let own = task("t", &a, "cpus:1");
            let (anew, log) = drive(
                &network,
                names[1],
                &f,
                Some(own),
                SchedulerDriver::resubscribe_as_new,
            );
            world.pass(5).await;
            let state = world.state().await;
            let ids: Vec<_> = state.frameworks.iter().map(|one| one.id.clone()).collect();
            assert_eq!(ids.len(), 1, "the old one is over: {ids:?}");
            assert_ne!(ids[0], f);
            assert_eq!(log.take(), [format!("subscribed {}", short(&ids[0]))]);
            world.grant(vec![grant(&ids[0], &a, "cpus:1")]).await;
            let heard = agent.received();
            assert!(heard[0].starts_with("run t="), "{heard:?}");

            anew.tear_down().unwrap();
            world.pass(5).await;
            assert!(!world.faults.state().frameworks.contains_key(&ids[0]));
        }
    });
}
