//! How soon what one framework declines is offered to another: one decline at a time, in a cluster where all else is held.
//!
//! Real drivers over links in memory that keep what they are offered. An offer is declined, for longer than the measurement takes, and the
//! clock runs until the agent is offered again. Used by `meros bench offers`.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::{FrameworkInfo, Offer, OfferId, TaskStatus};
use runtime::{Clock, Instant};
use scheduler_driver::{Scheduler, SchedulerDriver, Verbs};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Trouble;
use super::declining::DECLINED;
use super::embedded::Embedded;

/// How long nothing may come before it is given up.
const STALLED: Duration = Duration::from_secs(30);
/// Between two declines: longer than the allocator rests between two runs, so that each finds it idle.
const PAUSE: Duration = Duration::from_millis(5);

/// An offer that came to the framework of this number.
struct Came {
    framework: usize,
    offer: OfferId,
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
                offer: offer.id,
                at,
            });
        }
    }

    fn status(&mut self, _: &mut Verbs, _: &TaskStatus) {}
}

/// The times from a decline until that agent is offered to another of so many frameworks.
pub async fn reoffered(
    cluster: &Embedded,
    agents: u32,
    frameworks: u32,
    declines: u32,
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
    // Whoever has declined an agent is not offered it again.
    let declines = u64::from(declines).min(u64::from(agents) * u64::from(frameworks - 1));
    let mut times = Vec::new();
    for _ in 0..declines {
        clock.sleep(PAUSE).await;
        let Some(Came {
            framework, offer, ..
        }) = held.pop_front()
        else {
            break;
        };
        let begun = clock.now();
        drivers[framework].0.decline(vec![offer], DECLINED)?;
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

async fn next(coming: &mut UnboundedReceiver<Came>, clock: &Clock) -> Result<Came, Trouble> {
    match clock.timeout(STALLED, coming.recv()).await {
        Ok(came) => came.ok_or_else(|| "the drivers have ended".into()),
        Err(_) => Err("stalled: nothing was offered".into()),
    }
}
