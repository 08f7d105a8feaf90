//! Properties of digests.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use resources::{
    Annotations, DiskInfo, DiskSource, Name, Persistence, Resource, Revocable, Scalar, SourceKind,
};
use runtime::wire::codec;

use super::*;
use crate::framework::FrameworkInfo;
use crate::id::AgentId;
use crate::message::registration::Reregistered;
use crate::task::CommandInfo;

fn key() -> DigestKey {
    DigestKey::new(*b"0123456789abcdef")
}

fn framework(number: u32) -> FrameworkId {
    FrameworkId::new(format!("m-{number:04}")).unwrap()
}

fn task(number: u32) -> RunningTask {
    RunningTask {
        framework_id: framework(number % 3),
        info: TaskInfo {
            name: "a task".to_owned(),
            labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            ..TaskInfo::new(
                TaskId::new(format!("task-{number}")).unwrap(),
                AgentId::new("m-S1").unwrap(),
                "cpus:0.5;mem:64;ports:[31000-31001]".parse().unwrap(),
            )
            .with_command(CommandInfo::shell("sleep 1000"))
        },
        state: TaskState::Running,
    }
}

fn executor(number: u32) -> RunningExecutor {
    RunningExecutor {
        framework_id: framework(number % 3),
        info: ExecutorInfo {
            name: "an executor".to_owned(),
            data: vec![1, 2],
            shutdown_grace_period: Some(Duration::from_secs(5)),
            ..ExecutorInfo::new(
                ExecutorId::new(format!("executor-{number}")).unwrap(),
                CommandInfo::program("/bin/executor", ["--fast".to_owned()]),
                "cpus:0.1;mem:32".parse().unwrap(),
            )
        },
    }
}

fn held(tasks: u32, executors: u32) -> AgentInventory {
    let info = |number| FrameworkInfo {
        id: Some(framework(number)),
        ..FrameworkInfo::new("nobody", "framework")
    };
    AgentInventory {
        tasks: (0..tasks).map(task).collect(),
        executors: (0..executors).map(executor).collect(),
        frameworks: (0..3).map(info).collect(),
    }
}

fn digest(held: &AgentInventory, buckets: usize) -> Digest {
    Digest::of(Fingerprinter::new(key()).fingerprints(held), buckets)
}

/// A change to a set of items.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, u64),
    Take(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<u8>(), any::<u64>()).prop_map(|(item, value)| Step::Put(item, value)),
        1 => any::<u8>().prop_map(Step::Take),
    ]
}

fn print(item: u8, value: u64) -> Fingerprint {
    let name_hash = u64::from(item).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Fingerprint { name_hash, value }
}

proptest! {
    #[test]
    fn updated_digest_equals_rebuilt_digest(
        steps in prop::collection::vec(step(), 0..200),
        power in 0..11_u32,
    ) {
        let mut items = BTreeMap::new();
        let mut along = Digest::of([], 1 << power);
        for step in steps {
            match step {
                Step::Put(item, value) => match items.insert(item, value) {
                    Some(before) => along.change(print(item, before), print(item, value)),
                    None => along.add(print(item, value)),
                },
                Step::Take(item) => {
                    if let Some(value) = items.remove(&item) {
                        along.remove(print(item, value));
                    }
                }
            }
        }
        let prints = items.iter().map(|(item, value)| print(*item, *value));
        prop_assert_eq!(&along, &Digest::of(prints.clone(), 1 << power));
        prop_assert_eq!(&along, &Digest::of(prints.rev(), 1 << power), "in another order");
        let sum = along.buckets().iter().fold(0_u64, |sum, bucket| sum.wrapping_add(*bucket));
        prop_assert_eq!(sum, along.summary(key()).sum);
    }

    #[test]
    fn adding_and_removing_cancel_out(
        there in prop::collection::vec(any::<(u8, u64)>(), 0..50),
        more in prop::collection::vec(any::<(u8, u64)>(), 0..50),
    ) {
        let before = Digest::of(there.iter().map(|(item, value)| print(*item, *value)), 16);
        let mut after = before.clone();
        more.iter().for_each(|(item, value)| after.add(print(*item, *value)));
        more.iter().for_each(|(item, value)| after.remove(print(*item, *value)));
        prop_assert_eq!(after, before);
    }

    #[test]
    fn report_contains_the_differing_task_and_little_else(
        tasks in 1..400_u32, chosen: prop::sample::Index, state in prop::sample::select(TaskState::ALL),
    ) {
        let ours = held(tasks, 3);
        let mut theirs = ours.clone();
        let chosen = chosen.index(tasks as usize);
        theirs.tasks[chosen].state = state;
        let theirs = digest(&theirs, buckets_for(tasks as usize));
        let report = Fingerprinter::new(key()).report(ours.clone(), theirs.buckets());
        let expected = usize::from(state != TaskState::Running);
        prop_assert_eq!(report.differing.len(), expected);
        prop_assert_eq!(report.held.tasks.contains(&ours.tasks[chosen]), expected == 1);
        prop_assert!(report.held.tasks.len() <= 30);
        for info in &report.held.frameworks {
            let owns = |task: &RunningTask| Some(&task.framework_id) == info.id.as_ref();
            let executors = &report.held.executors;
            prop_assert!(report.held.tasks.iter().any(owns)
                || executors.iter().any(|e| Some(&e.framework_id) == info.id.as_ref()));
        }
    }
}

/// A change and its name.
type Change<T> = (&'static str, fn(&mut T));

/// One change for each field that a master stores.
const TASK_CHANGES: &[Change<RunningTask>] = &[
    ("state", |task| task.state = TaskState::Killing),
    ("name", |task| task.info.name.push('x')),
    ("labels, a value", |task| {
        task.info.labels.insert("team".to_owned(), "red".to_owned());
    }),
    ("labels, one more", |task| {
        task.info.labels.insert(String::new(), String::new());
    }),
    ("user", |task| {
        task.info.command.as_mut().unwrap().user = Some(String::new());
    }),
    ("executor", |task| {
        task.info.command = None;
        task.info.executor = Some(executor(1).info);
    }),
    ("resources, an amount", |task| {
        task.info.resources = "cpus:0.501;mem:64;ports:[31000-31001]".parse().unwrap();
    }),
    ("resources, a range", |task| {
        task.info.resources = "cpus:0.5;mem:64;ports:[31000-31002]".parse().unwrap();
    }),
    ("resources, a set", |task| {
        task.info.resources += &"bugs:{a,b}".parse::<Resources>().unwrap();
    }),
    ("resources, allocated", |task| {
        task.info.resources = task.info.resources.allocate(&"ads".parse().unwrap());
    }),
    ("resources, reserved", |task| {
        task.info.resources = "cpus(ads):0.5;mem:64;ports:[31000-31001]".parse().unwrap();
    }),
    ("resources, revocable", |task| {
        let revocable = Revocable::NonThrottleable;
        task.info.resources = task.info.resources.to_revocable(revocable).unwrap();
    }),
    ("resources, a volume", |task| {
        let persistence = Persistence {
            id: "data".to_owned(),
            principal: None,
        };
        task.info.resources.push(disk(Some(persistence), None));
    }),
    ("resources, a disk", |task| {
        let source = DiskSource::new(SourceKind::Mount);
        task.info.resources.push(disk(None, Some(source)));
    }),
];

fn disk(persistence: Option<Persistence>, source: Option<DiskSource>) -> Resource {
    let annotations = Annotations {
        disk: Some(Box::new(DiskInfo {
            persistence,
            source,
            ..DiskInfo::default()
        })),
        ..Annotations::default()
    };
    Resource::annotated(Name::Disk, Scalar::new(5.0).unwrap(), annotations).unwrap()
}

const EXECUTOR_CHANGES: &[Change<RunningExecutor>] = &[
    ("name", |executor| executor.info.name.clear()),
    ("value", |executor| executor.info.command.value.push('x')),
    ("shell", |executor| executor.info.command.shell = true),
    ("arguments", |executor| {
        executor.info.command.arguments.push(String::new());
    }),
    ("environment", |executor| {
        let environment = &mut executor.info.command.environment;
        environment.insert("A".to_owned(), "1".to_owned());
    }),
    ("user", |executor| {
        executor.info.command.user = Some("nobody".to_owned());
    }),
    ("resources", |executor| {
        executor.info.resources = Resources::new();
    }),
    ("data", |executor| executor.info.data[0] ^= 1),
    ("grace period", |executor| {
        executor.info.shutdown_grace_period = None;
    }),
    ("labels", |executor| {
        executor.info.labels.insert("a".to_owned(), "b".to_owned());
    }),
];

#[test]
fn every_changed_field_changes_its_bucket() {
    let before = held(100, 20);
    let (of, seen) = (64, digest(&before, 64));
    let mut printer = Fingerprinter::new(key());
    for (what, change) in TASK_CHANGES {
        let mut after = before.clone();
        change(&mut after.tasks[17]);
        let name_hash = printer.running_task(&before.tasks[17]).name_hash;
        let differing = digest(&after, of).differing(seen.buckets());
        assert_eq!(differing, [bucket(name_hash, of)], "{what} of a task");
    }
    for (what, change) in EXECUTOR_CHANGES {
        let mut after = before.clone();
        change(&mut after.executors[7]);
        let name_hash = printer.running_executor(&before.executors[7]).name_hash;
        let differing = digest(&after, of).differing(seen.buckets());
        assert_eq!(differing, [bucket(name_hash, of)], "{what} of an executor");
    }
    let mut fewer = before.clone();
    fewer.executors.pop();
    assert_eq!(digest(&fewer, of).differing(seen.buckets()).len(), 1);
}

#[test]
fn encoding_is_unambiguous() {
    let mut printer = Fingerprinter::new(key());
    let mut name_hash = |framework: &str, task: &str| {
        let framework = FrameworkId::new(framework).unwrap();
        let info = task_info(task);
        let sketch = TaskContent::of(&info, TaskState::Running);
        printer.task(&framework, &info.task_id, sketch).name_hash
    };
    assert_ne!(name_hash("ab", "c"), name_hash("a", "bc"));
    let task = name_hash("f", "same");
    let executor = ExecutorInfo {
        executor_id: ExecutorId::new("same").unwrap(),
        ..executor(0).info
    };
    let framework = FrameworkId::new("f").unwrap();
    assert_ne!(printer.executor(&framework, &executor).name_hash, task);
}

fn task_info(id: &str) -> TaskInfo {
    TaskInfo {
        task_id: TaskId::new(id).unwrap(),
        ..task(0).info
    }
}

/// These values are the same on every machine and in every version. Whoever changes the encoding
/// must raise `FORM`.
#[test]
fn fingerprints_are_stable() {
    let mut printer = Fingerprinter::new(key());
    let task = printer.running_task(&task(1));
    let executor = printer.running_executor(&executor(1));
    let seen = [
        task.name_hash,
        task.value,
        executor.name_hash,
        executor.value,
    ];
    assert_eq!(seen.map(|number| format!("{number:016x}")), GOLDEN);
    assert_eq!(FORM, 2);
}

const GOLDEN: [&str; 4] = [
    "09da5f8aeb3aca1b",
    "8db79a3677fd1367",
    "4ef7c663beece539",
    "f31d73a37c8303aa",
];

#[test]
fn fingerprints_depend_on_the_key() {
    let other = Digest::of(
        Fingerprinter::new(DigestKey::new([1; 16])).fingerprints(&held(5, 0)),
        1,
    );
    assert_ne!(other.buckets(), digest(&held(5, 0), 1).buckets());
}

#[test]
fn bucket_count_is_a_bounded_quarter_of_items() {
    let table = [
        (0, 1),
        (4, 1),
        (5, 2),
        (1000, 256),
        (4096, 1024),
        (1 << 20, 1024),
    ];
    for (items, buckets) in table {
        assert_eq!(buckets_for(items), buckets, "{items} items");
        assert!(is_bucket_count(buckets));
    }
    assert!(![0, 3, 2048].into_iter().any(is_bucket_count));
    let mut digest = Digest::default();
    let outgrown_at: Vec<u8> = (1..=200)
        .filter(|item| {
            digest.add(print(*item, 1));
            let outgrown = digest.is_outgrown();
            if outgrown {
                digest = Digest::of(
                    (1..=*item).map(|item| print(item, 1)),
                    buckets_for((*item).into()),
                );
            }
            outgrown
        })
        .collect();
    assert_eq!(
        outgrown_at,
        [9, 33, 129],
        "seldom, so that growing costs little an item"
    );
}

/// The number of bytes sent grows with the difference.
#[test]
fn report_size_grows_with_the_difference() {
    for tasks in [5, 1000, 20_000] {
        let summary = Fingerprinter::new(key()).summary(&held(tasks, 0));
        assert!(bytes(&summary) < 40, "{tasks} tasks");
    }
    let ours = held(1000, 0);
    let all = bytes(&ours);
    let cost = |changed: usize| {
        let mut theirs = ours.clone();
        let step = 1000 / changed.max(1);
        for task in theirs.tasks.iter_mut().step_by(step).take(changed) {
            task.state = TaskState::Staging;
        }
        let buckets = digest(&theirs, buckets_for(1000)).buckets().to_vec();
        let report = Fingerprinter::new(key()).report(ours.clone(), &buckets);
        bytes(&Reregistered::Differs { buckets }) + bytes(&report)
    };
    let costs = [1, 10, 100].map(cost);
    let share = costs.map(|cost| 1000 * cost / all);
    println!("1, 10 and 100 changed tasks of 1000 cost {costs:?} bytes, all of them {all}");
    assert!(costs.is_sorted(), "{costs:?} of {all}");
    assert!(
        share[0] < 40 && share[1] < 100 && share[2] < 500,
        "{costs:?} of {all}"
    );
    assert!(costs[1] - costs[0] < all / 10, "{costs:?} of {all}");
}

fn bytes(value: &impl Serialize) -> usize {
    codec::encode(value).unwrap().len()
}
