//! The worked examples of dominant resource fairness, with the whole sequence of grants (S78-S86,
//! S117-S119).
//!
//! Tasks are offered one at a time to the user with the smallest dominant share, until the demand
//! of that user does not fit.

use modules::sorter::Tree;
use resources::{Name, Quantities, Role, Scalar};

fn amounts(cpus: u32, mem: u32) -> Quantities {
    Quantities::from_iter([
        (Name::Cpus, Scalar::whole(cpus)),
        (Name::Mem, Scalar::whole(mem)),
    ])
}

/// One framework and the demand of each of its tasks.
#[derive(Clone, Copy)]
struct User {
    name: &'static str,
    task: (u32, u32),
}

/// One line of the trace (S84): the chosen user, both dominant shares in percent, and the totals so
/// far.
type Line = (&'static str, [u32; 2], u32, u32);

struct Trace {
    lines: Vec<Line>,
    /// Tasks, cpus and memory of each user, in the given order.
    held: Vec<(u32, u32, u32)>,
}

/// Fills a cluster. Of two users with equal shares and no task yet, the first in `users` starts.
fn fill(total: (u32, u32), users: [User; 2]) -> Trace {
    let mut tree = Tree::default();
    tree.set_total(&amounts(total.0, total.1));
    for (client, user) in (0..).zip(&users) {
        // Ties are broken by name, so the names follow the order.
        tree.join(client, &Role::STAR, &format!("{client}-{}", user.name));
        tree.set_active(client, true);
    }
    let mut free = amounts(total.0, total.1);
    let mut trace = Trace {
        lines: Vec::new(),
        held: vec![(0, 0, 0); 2],
    };
    loop {
        let next = tree.order()[0];
        let user = users[next as usize];
        let demand = amounts(user.task.0, user.task.1);
        let Some(rest) = free.checked_sub(&demand) else {
            return trace; // S86, S119: the end, as soon as the next task does not fit.
        };
        free = rest;
        tree.hold(next, &demand);
        let (tasks, cpus, mem) = trace.held[next as usize];
        trace.held[next as usize] = (tasks + 1, cpus + user.task.0, mem + user.task.1);
        let percent = |client| (tree.share_of(client) * 100.0).round() as u32;
        let sum = |part: fn(&(u32, u32, u32)) -> u32| trace.held.iter().map(part).sum();
        let (cpus, mem) = (sum(|held| held.1), sum(|held| held.2));
        trace
            .lines
            .push((user.name, [percent(0), percent(1)], cpus, mem));
    }
}

fn chosen(trace: &Trace) -> Vec<&'static str> {
    trace.lines.iter().map(|line| line.0).collect()
}

const F1: User = User {
    name: "F1",
    task: (1, 4),
};

/// S79-S86: 9 CPU and 18 GB, F1 needs <1, 4>, F2 <3, 1>, F1 starting.
// Covers S78; S79; S80; S83; S84 in part: all but the shares of each kind; S85; S86.
#[test]
fn the_example_of_9_cpus_and_18_gb_starting_with_f1() {
    let f2 = User {
        name: "F2",
        task: (3, 1),
    };
    let trace = fill((9, 18), [F1, f2]);
    assert_eq!(
        trace.lines,
        [
            ("F1", [22, 0], 1, 4),
            ("F2", [22, 33], 4, 5),
            ("F1", [44, 33], 5, 9),
            ("F2", [44, 67], 8, 10),
            ("F1", [67, 67], 9, 14),
        ]
    );
    assert_eq!(trace.held, [(3, 3, 12), (2, 6, 2)]);
}

/// S83: the same starting with F2 gives another order and the same end.
// Covers S79; S83.
#[test]
fn the_example_of_9_cpus_and_18_gb_starting_with_f2() {
    let f2 = User {
        name: "F2",
        task: (3, 1),
    };
    let trace = fill((9, 18), [f2, F1]);
    assert_eq!(
        trace.lines,
        [
            ("F2", [33, 0], 3, 1),
            ("F1", [33, 22], 4, 5),
            ("F1", [33, 44], 5, 9),
            ("F2", [67, 44], 8, 10),
            ("F1", [67, 67], 9, 14),
        ]
    );
    assert_eq!(trace.held, [(2, 6, 2), (3, 3, 12)]);
}

/// S82: F2 restated as <3, 2>: the same counts and orders, 16 of 18 GB given.
// Covers S82.
#[test]
fn the_second_demand_vector_gives_the_same_order_from_either_start() {
    let f2 = User {
        name: "F2",
        task: (3, 2),
    };
    let first = fill((9, 18), [F1, f2]);
    assert_eq!(chosen(&first), ["F1", "F2", "F1", "F2", "F1"]);
    assert_eq!(first.held, [(3, 3, 12), (2, 6, 4)]);
    assert_eq!(first.lines.last(), Some(&("F1", [67, 67], 9, 16)));
    let second = fill((9, 18), [f2, F1]);
    assert_eq!(chosen(&second), ["F2", "F1", "F1", "F2", "F1"]);
    assert_eq!(second.held, [(2, 6, 4), (3, 3, 12)]);
    assert_eq!(second.lines.last(), Some(&("F1", [67, 67], 9, 16)));
}

/// S80, S81: nothing more fits; if F1 wants only two tasks, the rest fits no further task of F2 but
/// is available to others.
// Covers S81 in part: that the rest stays free for them.
#[test]
fn unwanted_resources_go_to_others() {
    let mut tree = Tree::default();
    tree.set_total(&amounts(9, 18));
    for client in 0..2 {
        tree.join(client, &Role::STAR, &format!("F{}", client + 1));
        tree.set_active(client, true);
    }
    let (tasks, mut free) = ([amounts(1, 4), amounts(3, 1)], amounts(9, 18));
    let mut count = [0, 0];
    while let Some(next) = tree.order().first().copied() {
        let demand = &tasks[next as usize];
        if !free.contains(demand) || (next == 0 && count[0] == 2) {
            tree.set_active(next, false); // It wants no more, or no more fits.
            continue;
        }
        free = free.saturating_sub(demand);
        tree.hold(next, demand);
        count[next as usize] += 1;
    }
    assert_eq!((count, free), ([2, 2], amounts(1, 8)));
}

/// S117: 100 CPU and 100 GB, <4, 1> and <1, 8>: 20 and 10 tasks, both shares 80 %, all memory used,
/// from either start.
// Covers S117.
#[test]
fn the_example_of_100_cpus_and_100_gb_from_either_start() {
    let (f1, f2) = (
        User {
            name: "F1",
            task: (4, 1),
        },
        User {
            name: "F2",
            task: (1, 8),
        },
    );
    let first = fill((100, 100), [f1, f2]);
    assert_eq!(first.held, [(20, 80, 20), (10, 10, 80)]);
    assert_eq!(
        first.lines.last().map(|line| (line.1, line.2, line.3)),
        Some(([80, 80], 90, 100))
    );
    let second = fill((100, 100), [f2, f1]);
    assert_eq!(second.held, [(10, 10, 80), (20, 80, 20)]);
    // Two tasks of F1 have the share of one of F2, so each round of three adds 8 % to both. It
    // begins with a tie, which goes to F2, chosen less often, except in the first round.
    let rounds: [&[&str]; 10] = [&["F2", "F1", "F1"]; 10];
    assert_eq!(chosen(&second), rounds.concat());
    assert_eq!(
        chosen(&first),
        [&["F1", "F2", "F1"], &rounds.concat()[3..]].concat()
    );
}

/// S118, S119: the lines and totals that the Go program prints.
// Covers S118; S119.
#[test]
fn the_go_programs_lines_and_totals() {
    let users = [
        User {
            name: "a",
            task: (1, 4),
        },
        User {
            name: "b",
            task: (3, 1),
        },
    ];
    let trace = fill((9, 18), users);
    let mut printed = String::new();
    for (name, ..) in &trace.lines {
        let task = users.iter().find(|user| user.name == *name).unwrap().task;
        printed += &format!(
            "system will allocate task <{} cpu ,{} mem> for {name}\n",
            task.0, task.1
        );
    }
    let (_, _, cpus, mem) = trace.lines.last().unwrap();
    printed += &format!("system full\ntotal consumed cpu {cpus} mem {mem}\n");
    for (user, (_, cpus, mem)) in users.iter().zip(&trace.held) {
        printed += &format!("user {} cpu {cpus} mem {mem}\n", user.name);
    }
    assert_eq!(
        printed,
        "system will allocate task <1 cpu ,4 mem> for a\n\
         system will allocate task <3 cpu ,1 mem> for b\n\
         system will allocate task <1 cpu ,4 mem> for a\n\
         system will allocate task <3 cpu ,1 mem> for b\n\
         system will allocate task <1 cpu ,4 mem> for a\n\
         system full\n\
         total consumed cpu 9 mem 14\n\
         user a cpu 3 mem 12\n\
         user b cpu 6 mem 2\n"
    );
}
