//! How soon what one framework declines is offered to another, and what a task gave back to anybody: one at a time, in a cluster where all else
//! is held.
//!
//! Real drivers over links in memory that keep what they are offered. An offer is declined, for longer than the measurement takes, or all of it
//! is used by a task that then ends, and the clock runs from the decline, or from when the agent hears of the end, until the agent is offered again. Used
//! by `meros bench offers`.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::{CommandInfo, FrameworkInfo, Labels, Offer, TaskId, TaskInfo, TaskStatus};
use runtime::{Clock, Instant};
use scheduler_driver::{Scheduler, SchedulerDriver, Verbs};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Trouble;
use super::declining::DECLINED;
use super::embedded::Embedded;
use super::tasks::Finish;

/// How long nothing may come before it is given up.
const STALLED: Duration = Duration::from_secs(30);
/// Between two declines: longer than the allocator rests between two runs, so that each finds it idle.
const PAUSE: Duration = Duration::from_millis(5);

/// How an agent comes to be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// Its offer is declined: it is offered to another framework.
    Declined,
    /// The task that used all of it has ended: it is offered to whoever is next.
    Ended,
}

/// An offer that came to the framework of this number.
struct Came {
    framework: usize,
    offer: Offer,
    at: Instant,
}

/// Keeps what it is offered, and says so.
struct Keeper {
    number: usize,
    clock: Clock,
    came: UnboundedSender<Came>,
}

impl Scheduler for Keeper {
    fn offers(&mut self, _: &mut Verbs, offers: Vec<Offer>) {
        let at = self.clock.now();
        for offer in offers {
            // Nobody hears it once the measurement is over.
            let _ = self.came.send(Came {
                framework: self.number,
                offer,
                at,
            });
        }
    }

    fn status(&mut self, _: &mut Verbs, _: &TaskStatus) {}
}

/// The times from when agents are free until they are offered to another of so many frameworks, or again.
pub async fn reoffered(
    cluster: &Embedded,
    agents: u32,
    frameworks: u32,
    often: u32,
    freed: Freed,
) -> Result<Vec<Duration>, Trouble> {
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
        // Whoever has declined an agent is not offered it again.
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
fn task(number: u64, offer: &Offer) -> Result<TaskInfo, Trouble> {
    let name = format!("task-{number}");
    Ok(TaskInfo {
        task_id: TaskId::new(&name)?,
        name,
        agent_id: offer.agent_id.clone(),
        resources: offer.resources.clone(),
        command: Some(CommandInfo::program("/bin/true", [])),
        executor: None,
        data: Vec::new(),
        kill_policy: None,
        labels: Labels::default(),
    })
}

/// Ends the task on the agent of this offer, once it is there. Says when that was asked for.
async fn ended(cluster: &Embedded, offer: &Offer) -> Result<Instant, Trouble> {
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

async fn next(coming: &mut UnboundedReceiver<Came>, clock: &Clock) -> Result<Came, Trouble> {
    match clock.timeout(STALLED, coming.recv()).await {
        Ok(came) => came.ok_or_else(|| "the drivers have ended".into()),
        Err(_) => Err("stalled: nothing was offered".into()),
    }
}
