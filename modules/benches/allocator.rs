//! The cost of one allocator run: state and sorter without mailboxes, on the clusters of Mesos' own
//! benchmarks.
//!
//! For work on the allocator. `meros-lab bench allocator` prints the same together with Mesos'
//! figures.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use modules::workload::{Shape, Workload};
use std::hint::black_box;

const SEED: u64 = 7;

/// The clusters of Mesos' benchmark: few samples, and only if selected by name or by `large`.
const LARGE: [(&str, Shape); 7] = [
    ("large/1000x1000", Shape::of(1_000, 1_000)),
    ("large/5000x50", Shape::of(5_000, 50)),
    ("large/5000x200", Shape::of(5_000, 200)),
    ("large/5000x1000", Shape::of(5_000, 1_000)),
    ("large/10000x50", Shape::of(10_000, 50)),
    ("large/10000x200", Shape::of(10_000, 200)),
    ("large/10000x1000", Shape::of(10_000, 1_000)),
];

/// Clusters with a description.
const SHAPES: [(&str, Shape); 5] = [
    ("plain", Shape::of(1_000, 50)),
    (
        "volumes",
        Shape {
            roles: 50,
            reservations: 4,
            volumes: true,
            ..Shape::of(1_000, 50)
        },
    ),
    (
        "hundred_roles",
        Shape {
            roles: 100,
            ..Shape::of(1_000, 1_000)
        },
    ),
    (
        "quotas",
        Shape {
            roles: 300,
            quotas: true,
            ..Shape::of(300, 300)
        },
    ),
    (
        "labelled_reservations",
        Shape {
            roles: 50,
            reservations: 4,
            labels: 10,
            ..Shape::of(1_000, 50)
        },
    ),
];

fn full_run(criterion: &mut Criterion) {
    full_runs(criterion, &SHAPES);
}

fn full_runs(criterion: &mut Criterion, shapes: &[(&str, Shape)]) {
    for (name, shape) in shapes {
        let ready = Workload::of(shape, SEED);
        criterion.bench_function(&format!("full_run/{name}"), |bencher| {
            bencher.iter_batched(
                || ready.clone(),
                |mut all| black_box((all.run(true), all)),
                BatchSize::LargeInput,
            );
        });
    }
}

/// All agents are allocated except for one that has just been freed.
fn incremental_run(criterion: &mut Criterion) {
    incremental_runs(criterion, &SHAPES);
}

fn incremental_runs(criterion: &mut Criterion, shapes: &[(&str, Shape)]) {
    for (name, shape) in shapes {
        let mut all = Workload::of(shape, SEED);
        let mut held = all.run(true);
        criterion.bench_function(&format!("incremental_run/{name}"), |bencher| {
            bencher.iter(|| {
                let middle = held.len() / 2;
                all.end(held.swap_remove(middle));
                held.extend(all.run(false));
            });
        });
    }
}

/// All offers are declined: the cost of that, and the cost of the filters in the next run.
fn refusals(criterion: &mut Criterion) {
    let (_, shape) = SHAPES[0];
    let mut all = Workload::of(&shape, SEED);
    let first = all.run(true);
    criterion.bench_function("decline_all", |bencher| {
        bencher.iter_batched(
            || (all.clone(), first.clone()),
            |(mut all, grants)| {
                all.decline(grants);
                all
            },
            BatchSize::LargeInput,
        );
    });
    for _ in 0..shape.frameworks / 2 {
        let grants = all.run(true);
        all.decline(grants);
    }
    criterion.bench_function("full_run/refused_by_half", |bencher| {
        bencher.iter_batched(
            || all.clone(),
            |mut all| black_box((all.run(true), all)),
            BatchSize::LargeInput,
        );
    });
}

/// The same for large clusters, which takes minutes: only if selected.
fn large_runs(criterion: &mut Criterion) {
    let mut asked = std::env::args().skip(1);
    if asked.any(|name| !name.starts_with('-') && name.contains("large")) {
        full_runs(criterion, &LARGE);
        incremental_runs(criterion, &LARGE);
    }
}

/// One framework suppresses and revives in a cluster in which all frameworks refuse everything.
fn revive(criterion: &mut Criterion) {
    let (_, shape) = SHAPES[0];
    let mut all = Workload::of(&shape, SEED);
    for _ in 0..shape.frameworks {
        let grants = all.run(true);
        all.decline(grants);
    }
    let Some(added) = shape.frameworks().next() else {
        return;
    };
    let id = added.framework_id;
    criterion.bench_function("suppress_revive", |bencher| {
        bencher.iter(|| {
            all.suppress(&id);
            all.revive(&id);
            let grants = all.run(false);
            all.decline(grants);
        });
    });
}

criterion_group! {
    name = allocator;
    config = Criterion::default().sample_size(20);
    targets = full_run, incremental_run, refusals, revive
}

criterion_group! {
    name = large;
    config = Criterion::default().sample_size(10);
    targets = large_runs
}
criterion_main!(allocator, large);
