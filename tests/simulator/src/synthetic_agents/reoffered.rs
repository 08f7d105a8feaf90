//! Time until a declined or freed agent is offered again, one at a time in a cluster without other
//! free agents.
//!
//! Real drivers over links in memory keep their offers. An offer is declined for longer than the
//! measurement, or used by a task that then ends. The time runs from the decline, or from the
//! agent's receipt of the end, to the next offer. Used by `meros-lab bench offers`.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::{CommandInfo, FrameworkInfo, Offer, TaskId, TaskInfo, TaskStatus};
use runtime::{Clock, Instant};
use scheduler_driver::{Calls, Scheduler, SchedulerDriver};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::BenchError;
use super::declining::DECLINED;
use super::embedded::Embedded;
use super::tasks::Finish;

/// Without an offer for this time the measurement fails.
const STALLED: Duration = Duration::from_secs(30);
/// Pause between two declines: longer than the allocator's pause between two runs, so that it is
/// idle.
const PAUSE: Duration = Duration::from_millis(5);

/// How an agent becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// Its offer is declined: the next offer goes to another framework.
    Declined,
    /// The task that used all of it has ended: the next offer goes to any framework.
    Ended,
}

/// An offer to the framework with this number.
struct Came {
    framework: usize,
    offer: Offer,
    at: Instant,
}

/// Keeps offers and reports them.
struct Keeper {
    number: usize,
    clock: Clock,
    came: UnboundedSender<Came>,
}

impl Scheduler for Keeper {
    fn offers(&mut self, _: &mut Calls, offers: Vec<Offer>) {
        let at = self.clock.now();
        for offer in offers {
            // The receiver is gone after the measurement.
            let _ = self.came.send(Came {
                framework: self.number,
                offer,
                at,
            });
        }
    }

    fn status(&mut self, _: &mut Calls, _: &TaskStatus) {}
}

/// The times from the release of agents to their next offers, among this number of frameworks.
pub async fn reoffered(
    cluster: &Embedded,
    agents: u32,
    frameworks: u32,
    often: u32,
    freed: Freed,
) -> Result<Vec<Duration>, BenchError> {
    let clock = cluster.home.clock();
    let (came, mut coming) = unbounded_channel();
    let mut drivers = Vec::new();
    for number in 0..frameworks as usize {
        let info = FrameworkInfo::new("nobody", format!("keeper-{number}"));
        let keeper = Keeper {
            number,
            clock: clock.clone(),
            came: came.clone(),
        };
        let node = cluster.framework(&info);
        let driver = SchedulerDriver::new(["master"], info).start(&node, keeper)?;
        drivers.push((driver, node));
    }
    let mut held = VecDeque::new();
    for _ in 0..agents {
        held.push_back(next(&mut coming, clock).await?);
    }
    let most = match freed {
        // A framework that has declined an agent is not offered it again.
        Freed::Declined => u64::from(agents) * u64::from(frameworks - 1),
        Freed::Ended => u64::MAX,
    };
    let mut times = Vec::new();
    for number in 0..u64::from(often).min(most) {
        clock.sleep(PAUSE).await;
        let Some(Came {
            framework, offer, ..
        }) = held.pop_front()
        else {
            break;
        };
        let driver = &drivers[framework].0;
        let begun = match freed {
            Freed::Declined => {
                let begun = clock.now();
                driver.decline(vec![offer.id], DECLINED)?;
                begun
            }
            Freed::Ended => {
                let task = task(number, &offer)?;
                driver.launch(vec![offer.id.clone()], vec![task])?;
                ended(cluster, &offer).await?
            }
        };
        let offered = next(&mut coming, clock).await?;
        times.push(offered.at - begun);
        held.push_back(offered);
    }
    for (driver, node) in drivers {
        drop(driver);
        node.shutdown().await;
    }
    Ok(times)
}

/// A task that uses all of the offer.
fn task(number: u64, offer: &Offer) -> Result<TaskInfo, BenchError> {
    let name = format!("task-{number}");
    Ok(TaskInfo::new(
        TaskId::new(&name)?,
        offer.agent_id.clone(),
        offer.resources.clone(),
    )
    .with_command(CommandInfo::program("/bin/true", [])))
}

/// Ends the task on the agent of this offer, once it is there. Returns the time of the request.
async fn ended(cluster: &Embedded, offer: &Offer) -> Result<Instant, BenchError> {
    let clock = cluster.home.clock();
    let mut agents = cluster.reports.iter().zip(&cluster.agents);
    let of_offer = agents.find(|(report, _)| report.agent.id.as_ref() == Some(&offer.agent_id));
    let (_, agent) = of_offer.ok_or("an agent is offered that nobody is")?;
    let late = clock.now() + STALLED;
    while clock.now() < late {
        clock.sleep(PAUSE).await;
        let begun = clock.now();
        if agent.ask(Finish, STALLED).await? > 0 {
            return Ok(begun);
        }
    }
    Err("stalled: a task was not launched".into())
}

async fn next(coming: &mut UnboundedReceiver<Came>, clock: &Clock) -> Result<Came, BenchError> {
    match clock.timeout(STALLED, coming.recv()).await {
        Ok(came) => came.ok_or_else(|| "the drivers have ended".into()),
        Err(_) => Err("stalled: nothing was offered".into()),
    }
}
