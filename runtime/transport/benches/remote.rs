//! What crosses between two nodes in criterion, each beside bare quinn: tells, asks, and whole connections.
//!
//! Ours and the bare one are measured in turns of criterion's samples; what is printed at the end is the ratio of the two medians, as one
//! line of JSON each, with the time per message or connection in nanoseconds. `messages` and `connections` beside this file measure more of both.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use transport::connections::{Crowd, Host, bare};
use transport::measure::Course;
use transport::{Authority, Options};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Messages told in one go.
const BURST: u64 = 10_000;
/// Connections made at once.
const CROWD: u64 = 32;

/// Nanoseconds of one of the things that a case does, sample by sample.
#[derive(Default)]
struct Samples(RefCell<BTreeMap<String, Vec<f64>>>);

impl Samples {
    /// Measures a case whose one iteration does so many things.
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

    /// How many times as fast as the bare one it is.
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

    let course = Course::on_two_threads()?;
    samples.measure(&mut group, "tell", BURST, || course.tell(BURST))?;
    samples.measure(&mut group, "quinn tell", BURST, || course.tell_bare(BURST))?;
    drop(course);

    let course = Course::on_one_thread()?;
    samples.measure(&mut group, "ask", 100, || course.ask(100))?;
    samples.measure(&mut group, "quinn ask", 100, || course.ask_bare(100))?;
    drop(course);

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
    let (mut crowd, mut bare_crowd) = local.block_on(&runtime, async {
        let crowd = Crowd::gather(&authority, host.address()?, count)?;
        let bare_crowd = bare::Crowd::gather(&authority, bare_host.address()?, count)?;
        Ok::<_, Failure>((crowd, bare_crowd))
    })?;
    samples.measure(&mut group, "connect", CROWD, || {
        Ok(local.block_on(&runtime, crowd.storm())?.took)
    })?;
    samples.measure(&mut group, "quinn connect", CROWD, || {
        Ok(local.block_on(&runtime, bare_crowd.storm())?.took)
    })?;
    group.finish();
    local.block_on(&runtime, async { drop((crowd, bare_crowd)) });

    for name in ["tell", "ask", "connect"] {
        samples.print(name, &format!("quinn {name}"));
    }
    Ok(())
}
