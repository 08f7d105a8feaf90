//! Criterion benchmark of tells, asks and connections between two nodes, each beside bare quinn.
//!
//! Samples of both sides alternate. At the end one line of JSON each has the ratio of the two
//! medians and the nanoseconds per message or connection. The benches `messages` and `connections`
//! measure more.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use transport::connections::{Host, PeerFleet, bare};
use transport::measure::LinkBenchmark;
use transport::{Authority, Options};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Messages in one burst.
const BURST: u64 = 10_000;
/// Connections made at once.
const CROWD: u64 = 32;

/// Nanoseconds per operation of each case, sample by sample.
#[derive(Default)]
struct Samples(RefCell<BTreeMap<String, Vec<f64>>>);

impl Samples {
    /// Measures a case with `things` operations in one iteration.
    fn measure(
        &self,
        group: &mut BenchmarkGroup<'_, WallTime>,
        name: &str,
        things: u64,
        mut work: impl FnMut() -> Result<Duration, Failure>,
    ) -> Result<(), Failure> {
        group.throughput(Throughput::Elements(things));
        let mut failed = None;
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                for _ in 0..iterations {
                    match work() {
                        Ok(took) => spent += took,
                        Err(failure) => failed = Some(failure),
                    }
                }
                let each = spent.as_nanos() as f64 / (iterations * things) as f64;
                let mut all = self.0.borrow_mut();
                all.entry(name.to_owned()).or_default().push(each);
                spent
            });
        });
        failed.map_or(Ok(()), Err)
    }

    fn median(&self, name: &str) -> f64 {
        let mut all = self.0.borrow_mut();
        let samples = all.entry(name.to_owned()).or_default();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Prints the ratio of the bare median to the measured one.
    fn print(&self, name: &str, bare: &str) {
        let (ours, limit) = (self.median(name), self.median(bare));
        println!(
            "{{\"bench\":\"remote/{name}\",\"figure\":{ours:.0},\"unit\":\"ns\",\"limit\":{limit:.0},\"ratio\":{:.3}}}",
            limit / ours
        );
    }
}

fn main() -> Result<(), Failure> {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    let samples = Samples::default();
    let mut group = criterion.benchmark_group("remote");

    let link = LinkBenchmark::on_two_threads()?;
    samples.measure(&mut group, "tell", BURST, || link.tell(BURST))?;
    samples.measure(&mut group, "quinn tell", BURST, || link.tell_bare(BURST))?;
    drop(link);

    let link = LinkBenchmark::on_one_thread()?;
    samples.measure(&mut group, "ask", 100, || link.ask(100))?;
    samples.measure(&mut group, "quinn ask", 100, || link.ask_bare(100))?;
    drop(link);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    let authority = Authority::create()?;
    let (host, bare_host) = local.block_on(&runtime, async {
        let host = Host::start(&authority, Options::default().handshakes_max)?;
        Ok::<_, Failure>((host, bare::Host::start(&authority)?))
    })?;
    let count = CROWD as usize;
    let (mut fleet, mut bare_fleet) = local.block_on(&runtime, async {
        let fleet = PeerFleet::new(&authority, host.address()?, count)?;
        let bare_fleet = bare::PeerFleet::new(&authority, bare_host.address()?, count)?;
        Ok::<_, Failure>((fleet, bare_fleet))
    })?;
    samples.measure(&mut group, "connect", CROWD, || {
        Ok(local.block_on(&runtime, fleet.reconnect_all())?.took)
    })?;
    samples.measure(&mut group, "quinn connect", CROWD, || {
        Ok(local.block_on(&runtime, bare_fleet.reconnect_all())?.took)
    })?;
    group.finish();
    local.block_on(&runtime, async { drop((fleet, bare_fleet)) });

    for name in ["tell", "ask", "connect"] {
        samples.print(name, &format!("quinn {name}"));
    }
    Ok(())
}
