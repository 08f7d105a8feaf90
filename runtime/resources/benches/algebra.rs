//! The algebra beside a naive `BTreeMap` from name, role and revocable to thousandths, with a list
//! for ports that is appended, sorted and joined.
//!
//! Each case runs both in criterion, and then in a simple loop whose figures are printed as one
//! line of JSON: `figure` is ours and `limit` the naive map's, in nanoseconds per operation, and
//! `ratio` the first by the second (below 1 is faster). The parameters contain Mesos' time,
//! measured elsewhere, and its ratio to ours.
#![allow(missing_docs)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // a benchmark measures real time

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use meros_resources::{Range, Ranges, Resources, Revocable, Role};

type Key = (String, Option<String>, bool);

/// The naive collection.
#[derive(Clone, PartialEq, Default)]
struct Naive(BTreeMap<Key, i64>);

impl Naive {
    fn of(resources: &Resources) -> Self {
        let key = |own: &meros_resources::Resource| {
            let role = own.reservation().map(|entry| entry.role.to_string());
            (own.name().to_string(), role, own.is_revocable())
        };
        let amount = |own: &meros_resources::Resource| {
            own.amount().map(|amount| (key(own), amount.thousandths()))
        };
        Self(resources.iter().filter_map(amount).collect())
    }

    fn add(&mut self, other: &Self) {
        for (key, amount) in &other.0 {
            match self.0.get_mut(key) {
                Some(own) => *own += amount,
                None => drop(self.0.insert(key.clone(), *amount)),
            }
        }
    }

    fn subtract(&mut self, other: &Self) -> bool {
        if !self.contains(other) {
            return false;
        }
        for (key, amount) in &other.0 {
            if let Some(own) = self.0.get_mut(key) {
                *own -= amount;
                if *own == 0 {
                    self.0.remove(key);
                }
            }
        }
        true
    }

    fn contains(&self, other: &Self) -> bool {
        other
            .0
            .iter()
            .all(|(key, amount)| self.0.get(key).is_some_and(|own| own >= amount))
    }

    fn filter(&self, keep: impl Fn(&Key) -> bool) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(key, _)| keep(key))
                .map(|(key, amount)| (key.clone(), *amount))
                .collect(),
        )
    }

    fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for token in text.split(';') {
            let Some((name, value)) = token.split_once(':') else {
                continue;
            };
            let (name, role) = match name.split_once('(') {
                Some((name, role)) => (name, Some(role.trim_end_matches(')').to_owned())),
                None => (name, None),
            };
            let amount = value
                .parse::<f64>()
                .map_or(0, |units| (units * 1000.0).round() as i64);
            *all.0.entry((name.to_owned(), role, false)).or_default() += amount;
        }
        all
    }
}

fn naive_ports(mut own: Vec<(u64, u64)>, new: &[(u64, u64)]) -> Vec<(u64, u64)> {
    own.extend_from_slice(new);
    own.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (begin, end) in own {
        match joined.last_mut() {
            Some(last) if begin <= last.1 + 1 => last.1 = last.1.max(end),
            _ => joined.push((begin, end)),
        }
    }
    joined
}

/// One operation in both implementations.
struct Case {
    name: &'static str,
    /// Mesos' time in nanoseconds (0: not known).
    mesos: u64,
    ours: Box<dyn FnMut()>,
    naive: Box<dyn FnMut()>,
}

fn case<A, B>(
    name: &'static str,
    mesos: u64,
    mut ours: impl FnMut() -> A + 'static,
    mut naive: impl FnMut() -> B + 'static,
) -> Case {
    let ours = Box::new(move || drop(black_box(ours())));
    Case {
        name,
        mesos,
        ours,
        naive: Box::new(move || drop(black_box(naive()))),
    }
}

fn parse(text: &str) -> Resources {
    match Resources::parse(text) {
        Ok(resources) => resources,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1)
        }
    }
}

fn role(text: &str) -> Role {
    Role::new(text).unwrap_or_default()
}

fn plain_cases(cases: &mut Vec<Case>) {
    let total = parse("cpus:1000000000;gpus:1000000000;mem:1000000000;disk:1000000000");
    let part = parse("cpus:1;gpus:1;mem:128;disk:256");
    let (wide, narrow) = (Naive::of(&total), Naive::of(&part));
    {
        let (mut a, b, mut x, y) = (part.clone(), part.clone(), narrow.clone(), narrow.clone());
        cases.push(case(
            "add",
            89,
            move || a += black_box(&b),
            move || x.add(black_box(&y)),
        ));
    }
    {
        // A part so small that the total never runs out.
        let less = parse("cpus:0.001;gpus:1;mem:0.001;disk:0.001");
        let (mut a, mut x, y) = (total.clone(), wide.clone(), Naive::of(&less));
        cases.push(case(
            "subtract",
            121,
            move || a.subtract(black_box(&less)),
            move || x.subtract(black_box(&y)),
        ));
    }
    {
        let (a, b, x, y) = (total.clone(), part.clone(), wide.clone(), narrow.clone());
        cases.push(case(
            "contains",
            62,
            move || black_box(&a).contains(black_box(&b)),
            move || black_box(&x).contains(black_box(&y)),
        ));
    }
    {
        let (a, x) = (total.clone(), wide.clone());
        cases.push(case(
            "clone",
            0,
            move || black_box(&a).clone(),
            move || black_box(&x).clone(),
        ));
    }
    {
        let (a, b, x, y) = (total.clone(), total.clone(), wide.clone(), wide.clone());
        cases.push(case(
            "eq",
            0,
            move || black_box(&a) == black_box(&b),
            move || black_box(&x) == black_box(&y),
        ));
    }
    let slack = part
        .to_revocable(Revocable::Throttleable)
        .unwrap_or_default();
    {
        let (a, x) = (total.clone(), wide.clone());
        cases.push(case(
            "non_revocable",
            48,
            move || black_box(&a).non_revocable(),
            move || black_box(&x).filter(|key| !key.2),
        ));
    }
    let mixed = total + parse("cpus(ads):8;mem(ads):4096") + slack;
    let (a, x) = (mixed.clone(), Naive::of(&mixed));
    cases.push(case(
        "non_revocable_6_of_10",
        0,
        move || black_box(&a).non_revocable(),
        move || black_box(&x).filter(|key| !key.2),
    ));
    let (a, x, ads) = (mixed.clone(), Naive::of(&mixed), role("ads"));
    cases.push(case(
        "reserved_2_of_10",
        66,
        move || black_box(&a).reserved(&ads),
        move || black_box(&x).filter(|key| key.1.as_deref() == Some("ads")),
    ));
}

/// A thousand roles with four reserved amounts each.
fn reserved_cases(cases: &mut Vec<Case>) {
    let text = |n: usize| format!("cpus(r{n}):1;gpus(r{n}):1;mem(r{n}):128;disk(r{n}):256;");
    let total = parse(&(0..1000).map(text).collect::<String>());
    let naive = Naive::of(&total);
    {
        let (mut a, b, mut x, y) = (total.clone(), total.clone(), naive.clone(), naive.clone());
        cases.push(case(
            "add_4000_to_4000_reserved",
            35_000_000,
            move || a += black_box(&b),
            move || {
                x.add(black_box(&y));
            },
        ));
    }
    {
        let part = parse("cpus(r500):1;mem(r500):1;cpus(r77):1;mem(r999):1");
        let (mut a, mut x, y) = (total.clone(), naive.clone(), Naive::of(&part));
        cases.push(case(
            "add_4_to_4000_reserved",
            0,
            move || a += black_box(&part),
            move || x.add(black_box(&y)),
        ));
    }
    {
        let part = parse("cpus(new):1;mem(new):1");
        let (mut a, mut x, y) = (total.clone(), naive.clone(), Naive::of(&part));
        cases.push(case(
            "reserve_and_unreserve_among_4000",
            0,
            move || {
                a += black_box(&part);
                a.subtract(black_box(&part)).is_ok()
            },
            move || {
                x.add(black_box(&y));
                x.subtract(black_box(&y))
            },
        ));
    }
    cases.push(case(
        "clone_4000_reserved",
        0,
        move || black_box(&total).clone(),
        move || black_box(&naive).clone(),
    ));
}

fn ranges(pairs: &[(u64, u64)]) -> Ranges {
    pairs
        .iter()
        .filter_map(|(begin, end)| Range::new(*begin, *end).ok())
        .collect()
}

fn ports_cases(cases: &mut Vec<Case>) {
    for (name, count, mesos) in [
        ("ports_add_10", 10u64, 1_300),
        ("ports_add_100", 100, 5_500),
        ("ports_add_1000", 1000, 85_000),
    ] {
        let every = |from: u64| {
            (0..count)
                .map(|n| (n * 10 + from, n * 10 + from + 1))
                .collect::<Vec<_>>()
        };
        let (x, y) = (every(0), every(5));
        let (a, b) = (ranges(&x), ranges(&y));
        cases.push(case(
            name,
            mesos,
            move || {
                let mut sum = a.clone();
                sum.add(black_box(&b));
                black_box(sum);
            },
            move || naive_ports(x.clone(), black_box(&y)),
        ));
    }
    let pairs: Vec<(u64, u64)> = (0..8000).map(|n| (n * 4, n * 4 + 1)).collect();
    let text = |pairs: &[(u64, u64)]| {
        let each = pairs.iter().map(|(begin, end)| format!("{begin}-{end}"));
        parse(&format!("ports:[{}]", each.collect::<Vec<_>>().join(",")))
    };
    for (name, wanted, mesos) in [
        ("ports_contains_1_of_8000", &pairs[4_000..4_001], 600_000),
        ("ports_contains_8000_of_8000", &pairs[..], 16_000_000),
    ] {
        let (own, part) = (text(&pairs), text(wanted));
        let (held, wanted) = (pairs.clone(), wanted.to_vec());
        cases.push(case(
            name,
            mesos,
            move || black_box(&own).contains(black_box(&part)),
            move || {
                let within = |range: &(u64, u64)| {
                    let mut held = held.iter();
                    held.any(|(begin, end)| *begin <= range.0 && range.1 <= *end)
                };
                black_box(&wanted).iter().all(within)
            },
        ));
    }
}

fn text_cases(cases: &mut Vec<Case>) {
    let text: String = (0..25)
        .map(|n| format!("cpus(r{n}):1;gpus(r{n}):1;mem(r{n}):128;disk(r{n}):256;"))
        .collect();
    let same = text.clone();
    cases.push(case(
        "parse_100",
        106_000,
        move || Resources::parse(black_box(&text)),
        move || Naive::parse(black_box(&same)),
    ));
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    plain_cases(&mut cases);
    reserved_cases(&mut cases);
    ports_cases(&mut cases);
    text_cases(&mut cases);
    cases
}

/// Nanoseconds per call: the best of eleven stretches of about ten milliseconds.
fn nanoseconds(run: &mut dyn FnMut()) -> f64 {
    let started = Instant::now();
    let mut calls = 0u64;
    while started.elapsed() < Duration::from_millis(10) {
        run();
        calls += 1;
    }
    let stretch = |_| {
        let started = Instant::now();
        (0..calls).for_each(|_| run());
        started.elapsed().as_nanos() as f64 / calls as f64
    };
    (0..11).map(stretch).fold(f64::INFINITY, f64::min)
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .without_plots()
        .configure_from_args();
    for mut case in cases() {
        let mut group = criterion.benchmark_group(case.name);
        group.bench_function("resources", |bencher| bencher.iter(|| (case.ours)()));
        group.bench_function("naive", |bencher| bencher.iter(|| (case.naive)()));
        group.finish();
    }
    criterion.final_summary();
    if std::env::args().any(|flag| flag == "--test" || flag == "--list") {
        return;
    }
    for mut case in cases() {
        let (ours, naive) = (nanoseconds(&mut *case.ours), nanoseconds(&mut *case.naive));
        let mesos = (case.mesos > 0).then_some(case.mesos);
        let times = mesos.map(|mesos| (mesos as f64 / ours * 10.0).round() / 10.0);
        println!(
            "{}",
            serde_json::json!({
                "bench": "resources",
                "figure": (ours * 10.0).round() / 10.0,
                "unit": "ns",
                "limit": (naive * 10.0).round() / 10.0,
                "ratio": (ours / naive * 1000.0).round() / 1000.0,
                "parameters": { "operation": case.name, "peer": "naive map", "mesos_ns": mesos, "mesos_times_ours": times },
            })
        );
    }
}
