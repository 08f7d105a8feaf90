//! Frameworks that decline whatever they are offered, and how fast they are offered it.
//!
//! Real drivers over links in memory. Each declines for so long that every agent is offered once to every framework, and then it is over.
//! Used by `meros bench offers`, `meros bench http` and `cargo bench -p meros-simulator --bench offers`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::{Filters, FrameworkInfo, Offer, OfferId, TaskStatus};
use runtime::{Instant, Node};
use scheduler_driver::{Scheduler, SchedulerDriver, Verbs};

use super::Trouble;
use super::embedded::Embedded;

/// How long nothing may come before it is given up.
const STALLED: Duration = Duration::from_secs(30);
/// How often it is looked whether all have come.
const LOOK: Duration = Duration::from_millis(5);
/// Longer than any measurement.
pub const DECLINED: Filters = Filters {
    refuse_seconds: 3600.0,
};

/// Declines, and counts.
struct Decliner {
    heard: Arc<AtomicU64>,
}

impl Scheduler for Decliner {
    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
        self.heard.fetch_add(offers.len() as u64, Ordering::Relaxed);
        let ids: Vec<OfferId> = offers.into_iter().map(|offer| offer.id).collect();
        driver.decline(ids, DECLINED);
    }

    fn status(&mut self, _: &mut Verbs, _: &TaskStatus) {}
}

/// Seconds in which so many frameworks are offered each of the agents, and decline.
pub async fn declined(cluster: &Embedded, agents: u32, frameworks: u32) -> Result<f64, Trouble> {
    let heard = Arc::new(AtomicU64::new(0));
    let mut drivers = Vec::new();
    for number in 0..frameworks {
        let info = FrameworkInfo::new("nobody", format!("framework-{number}"));
        let decliner = Decliner {
            heard: heard.clone(),
        };
        let node = cluster.framework(&info);
        let driver = SchedulerDriver::new(["master"], info).start(&node, decliner)?;
        drivers.push((driver, node));
    }
    let wanted = u64::from(agents) * u64::from(frameworks);
    let seconds = all_heard(&heard, wanted, &cluster.home).await?;
    for (driver, node) in drivers {
        drop(driver);
        node.shutdown().await;
    }
    Ok(seconds)
}

/// Seconds from the first offer to the last of so many.
pub async fn all_heard(heard: &AtomicU64, wanted: u64, node: &Node) -> Result<f64, Trouble> {
    let clock = node.clock();
    let mut begun: Option<Instant> = None;
    let mut last = (clock.now(), 0);
    loop {
        let (now, count) = (clock.now(), heard.load(Ordering::Relaxed));
        if count > 0 {
            begun.get_or_insert(now);
        }
        if count >= wanted {
            return Ok((now - begun.unwrap_or(now)).as_secs_f64());
        }
        if count > last.1 {
            last = (now, count);
        } else if now - last.0 > STALLED {
            return Err(format!("stalled: {count} of {wanted} offers were made").into());
        }
        clock.sleep(LOOK).await;
    }
}
