//! Offers over HTTP, all declined, compared with as many to frameworks on the native driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::FrameworkInfo;
use serde_json::json;
use simulator::synthetic_agents::declining::{DECLINED, all_offered, declined};
use simulator::synthetic_agents::embedded::Embedded;
use v1::Form;

use super::super::{Figure, of_crowd};
use super::HttpArgs;
use super::scheduler::HttpScheduler;
use super::state::serve;
use meros::output::error::Outcome;

/// Every agent is offered once to every framework, first over HTTP and then by the driver.
pub async fn beside_native(args: &HttpArgs) -> Outcome<Figure> {
    let (agents, frameworks) = (args.agents, args.frameworks);
    args.say(&format!(
        "{frameworks} frameworks decline {agents} agents over HTTP, and as many by the native driver"
    ));
    let cluster = Embedded::start(agents, 0).await.map_err(of_crowd)?;
    let (pages, address) = serve(&cluster).await?;
    let heard = Arc::new(AtomicU64::new(0));
    let decline = (0..frameworks)
        .map(|number| tokio::task::spawn_local(decline(address.clone(), number, heard.clone())));
    let declining: Vec<_> = decline.collect();
    let wanted = u64::from(agents) * u64::from(frameworks);
    let http = all_offered(&heard, wanted, &cluster.home).await;
    declining.iter().for_each(tokio::task::JoinHandle::abort);
    let http = http.map_err(of_crowd)?;
    pages.stop(cluster.node.clock()).await;
    let native = declined(&cluster, agents, frameworks).await;
    let native = native.map_err(of_crowd)?;
    cluster.stop().await;
    Ok(Figure {
        bench: "offers_http",
        figure: wanted as f64 / http.max(f64::EPSILON),
        unit: "offers/s",
        limit: wanted as f64 / native.max(f64::EPSILON),
        limit_is: "the native driver",
        parameters: json!({
            "agents": agents, "frameworks": frameworks, "form": "protobuf",
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
        }),
    })
}

/// A framework that declines all offers, until it is dropped.
async fn decline(address: String, number: u32, heard: Arc<AtomicU64>) -> Outcome {
    let info = FrameworkInfo::new("nobody", format!("http-{number}"));
    let mut scheduler = HttpScheduler::subscribe(&address, Form::Protobuf, &info).await?;
    loop {
        let event = scheduler.next().await?;
        let offers = event.offers.map(|offers| offers.offers).unwrap_or_default();
        heard.fetch_add(offers.len() as u64, Ordering::Relaxed);
        let ids: Vec<_> = offers.into_iter().map(|offer| offer.id).collect();
        if !ids.is_empty() {
            scheduler.decline(ids, &DECLINED).await?;
        }
    }
}
