//! What one run of the allocator costs: books and sorter without mailboxes, on the clusters of Mesos' own benchmarks.
//!
//! For work on the allocator itself. `meros bench allocator` prints the same beside Mesos' figures.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use modules::workload::{Shape, Workload};
use std::hint::black_box;

const SEED: u64 = 7;

/// Clusters, each with what is special about it.
const SHAPES: [(&str, Shape); 4] = [
    ("plain", Shape::of(1_000, 50)),
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
    for (name, shape) in SHAPES {
        let ready = Workload::of(&shape, SEED);
        criterion.bench_function(&format!("full_run/{name}"), |bencher| {
            bencher.iter_batched(
                || ready.clone(),
                |mut all| black_box((all.run(true), all)),
                BatchSize::LargeInput,
            );
        });
    }
}

/// Every agent is held but one, which has just come free.
fn incremental_run(criterion: &mut Criterion) {
    for (name, shape) in SHAPES {
        let mut all = Workload::of(&shape, SEED);
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

/// Everything that was offered is declined: what that costs, and what the refusals cost the next run.
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

criterion_group! {
    name = allocator;
    config = Criterion::default().sample_size(20);
    targets = full_run, incremental_run, refusals
}
criterion_main!(allocator);
