//! Frameworks that decline every offer, and the rate of offers.
//!
//! Real drivers over links in memory. Each declines for so long that every agent is offered once to
//! every framework. Used by `meros-lab bench offers` and `meros-lab bench http`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::{Filters, FrameworkInfo, Offer, OfferId, TaskStatus};
use runtime::{Instant, Node};
use scheduler_driver::{Calls, Scheduler, SchedulerDriver};

use super::BenchError;
use super::embedded::Embedded;

/// Without an offer for this time the measurement fails.
const STALLED: Duration = Duration::from_secs(30);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(5);
/// Longer than any measurement.
pub const DECLINED: Filters = Filters {
    refuse_seconds: 3600.0,
};

/// Declines and counts offers.
struct Decliner {
    heard: Arc<AtomicU64>,
}

impl Scheduler for Decliner {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        self.heard.fetch_add(offers.len() as u64, Ordering::Relaxed);
        let ids: Vec<OfferId> = offers.into_iter().map(|offer| offer.id).collect();
        driver.decline(ids, DECLINED);
    }

    fn status(&mut self, _: &mut Calls, _: &TaskStatus) {}
}

/// Seconds until each of the agents was offered to each of the frameworks, which decline.
pub async fn declined(cluster: &Embedded, agents: u32, frameworks: u32) -> Result<f64, BenchError> {
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
    let seconds = all_offered(&heard, wanted, &cluster.home).await?;
    for (driver, node) in drivers {
        drop(driver);
        node.shutdown().await;
    }
    Ok(seconds)
}

/// Seconds from the first to the last of `wanted` offers.
pub async fn all_offered(heard: &AtomicU64, wanted: u64, node: &Node) -> Result<f64, BenchError> {
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
