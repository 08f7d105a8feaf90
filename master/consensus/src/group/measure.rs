//! What the core itself costs: three members on one thread, packets through the codec, disks that cost nothing.
//! `cargo test --release -p meros-consensus commits -- --ignored --nocapture`

use bytes::Bytes;

use super::*;
use crate::machine::{CannotRestore, StateMachine};

/// Counts bytes, and no more.
struct Count(u64);

impl StateMachine for Count {
    type Operation = Vec<u8>;
    type Answer = u64;

    fn apply(&mut self, _: u64, operation: Vec<u8>) -> u64 {
        self.0 += operation.len() as u64;
        self.0
    }

    fn snapshot(&self) -> Bytes {
        self.0.to_be_bytes().to_vec().into()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore> {
        self.0 = bytes
            .try_into()
            .map(u64::from_be_bytes)
            .map_err(|_| CannotRestore {
                reason: "it is not a number".into(),
            })?;
        Ok(())
    }
}

fn run(members: &mut [Replica<Count>], answered: &mut usize) {
    let mut flights = Vec::new();
    for (id, member) in (1..).zip(members.iter_mut()) {
        while let Some(step) = member.turn().unwrap() {
            *answered += step.answers.len();
            flights.extend(step.now.into_iter().map(|(to, packet)| (id, to, packet)));
            member.persisted(step.number);
            flights.extend(step.after.into_iter().map(|(to, packet)| (id, to, packet)));
            if let Some(compaction) = step.compaction {
                member.compacted(compaction);
            }
        }
    }
    for (from, to, packet) in flights {
        let bytes = runtime::codec::encode(&packet).unwrap();
        let packet = runtime::codec::decode(&bytes).unwrap();
        members[to as usize - 1].step(from, packet).unwrap();
    }
}

#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, clippy::disallowed_types)] // it measures the machine, and nothing depends on it
fn commits() {
    for at_once in [1usize, 64, 512] {
        let group = Members {
            voters: vec![1, 2, 3],
            ..Members::default()
        };
        let start = |id| {
            let write = bootstrap(group.clone(), &Count(0));
            let loaded = crate::log::Loaded {
                identity: None,
                hard: write.hard.unwrap(),
                snapshot: write.snapshot.unwrap(),
                entries: Vec::new(),
            };
            let identity = Identity { id, group: GROUP };
            Replica::new(
                Settings::default(),
                Policy::default(),
                identity,
                loaded,
                SmallRng::seed_from_u64(id),
                Count(0),
            )
            .unwrap()
        };
        let mut members: Vec<Replica<Count>> = (1..=3).map(start).collect();
        let mut answered = 0;
        let leads = |member: &Replica<Count>| member.status().now.role == Role::Leader;
        while !members.iter().any(leads) {
            members.iter_mut().for_each(Replica::tick);
            (0..6).for_each(|_| run(&mut members, &mut answered));
        }
        let leader = members.iter().position(leads).unwrap();
        let wanted = 2_000 * at_once.min(100);
        let began = std::time::Instant::now();
        while answered < wanted {
            for _ in 0..at_once {
                members[leader].propose(&vec![7; 100]).unwrap();
            }
            let before = answered;
            while answered < before + at_once {
                run(&mut members, &mut answered);
            }
        }
        let took = began.elapsed().as_secs_f64();
        println!(
            "{at_once} at once: {:.0} commits/s, {:.1} us of one core each",
            answered as f64 / took,
            took * 1e6 / answered as f64
        );
    }
}
