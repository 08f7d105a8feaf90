//! The network's faults, and their effect on a packet between two machines. Pure, with given
//! randomness.
//!
//! Both networks use it; it knows neither sockets nor links.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;

/// Losses, duplicates and delays of one machine's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFaults {
    /// Lost packets in thousandths.
    pub loss: u16,
    /// Duplicated packets in thousandths.
    pub duplication: u16,
    /// Maximum of the random delay of each packet.
    pub latency_max: Duration,
}

/// The fate of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// It does not arrive.
    pub lost: bool,
    /// It arrives twice, the second time after this delay.
    pub again: Option<Duration>,
    /// Its delay.
    pub wait: Duration,
}

/// The present faults of the network.
#[derive(Debug, Default)]
pub struct NetworkFaults {
    packet_faults: BTreeMap<String, Vec<PacketFaults>>,
    /// Blocked paths, with the number of faults that block each, and when the first of them began.
    blocked: BTreeMap<(String, String), Partition>,
    /// Machines that read nothing, with the end times.
    not_reading: BTreeMap<String, Vec<Duration>>,
    blockades: u64,
}

#[derive(Clone, Copy, Debug)]
struct Partition {
    faults: u32,
    number: u64,
}

impl NetworkFaults {
    /// Whether every packet passes at once.
    pub fn is_calm(&self) -> bool {
        self.packet_faults.is_empty() && self.blocked.is_empty() && self.not_reading.is_empty()
    }

    /// Adds these faults for this machine's packets, until
    /// [`remove_packet_faults`](Self::remove_packet_faults) with the same ones.
    pub fn add_packet_faults(&mut self, machine: &str, packet_faults: PacketFaults) {
        self.packet_faults
            .entry(machine.to_owned())
            .or_default()
            .push(packet_faults);
    }

    /// Undoes one [`add_packet_faults`](Self::add_packet_faults).
    pub fn remove_packet_faults(&mut self, machine: &str, packet_faults: PacketFaults) {
        if let Some(active) = self.packet_faults.get_mut(machine) {
            if let Some(at) = active.iter().position(|known| *known == packet_faults) {
                active.remove(at);
            }
            if active.is_empty() {
                self.packet_faults.remove(machine);
            }
        }
    }

    /// Blocks the path in one direction.
    pub fn block(&mut self, from: &str, to: &str) {
        self.blockades += 1;
        let number = self.blockades;
        let way = (from.to_owned(), to.to_owned());
        let blockade = self
            .blocked
            .entry(way)
            .or_insert(Partition { faults: 0, number });
        blockade.faults += 1;
    }

    /// Undoes one [`block`](Self::block).
    pub fn open(&mut self, from: &str, to: &str) {
        let way = (from.to_owned(), to.to_owned());
        if let Some(blockade) = self.blocked.get_mut(&way) {
            blockade.faults -= 1;
            if blockade.faults == 0 {
                self.blocked.remove(&way);
            }
        }
    }

    /// The number of the blockade, if the path is blocked; another number after the path was open.
    pub fn blocked(&self, from: &str, to: &str) -> Option<u64> {
        if self.blocked.is_empty() {
            return None;
        }
        let way = (from.to_owned(), to.to_owned());
        self.blocked.get(&way).map(|blockade| blockade.number)
    }

    /// The machine reads nothing until this time since the start of the run.
    pub fn stop_reading(&mut self, machine: &str, until: Duration) {
        self.not_reading
            .entry(machine.to_owned())
            .or_default()
            .push(until);
    }

    /// Undoes one [`stop_reading`](Self::stop_reading) at its end.
    pub fn resume_reading(&mut self, machine: &str, until: Duration) {
        if let Some(times) = self.not_reading.get_mut(machine) {
            if let Some(at) = times.iter().position(|known| *known == until) {
                times.remove(at);
            }
            if times.is_empty() {
                self.not_reading.remove(machine);
            }
        }
    }

    /// Until when the machine reads nothing, if so.
    pub fn not_reading_until(&self, machine: &str) -> Option<Duration> {
        self.not_reading.get(machine)?.iter().max().copied()
    }

    /// Whether the machine reads nothing.
    pub fn reads_nothing(&self, machine: &str) -> bool {
        !self.not_reading.is_empty() && self.not_reading.contains_key(machine)
    }

    /// The fate of a packet on an open path.
    pub fn passage(&self, from: &str, to: &str, rng: &mut SmallRng) -> Passage {
        let mut passage = Passage {
            lost: false,
            again: None,
            wait: Duration::ZERO,
        };
        let ends = [self.packet_faults.get(from), self.packet_faults.get(to)];
        for packet_faults in ends.into_iter().flatten().flatten() {
            let wait = |rng: &mut SmallRng| packet_faults.latency_max.mul_f64(rng.random::<f64>());
            passage.lost |= rng.random_range(0..1000) < packet_faults.loss;
            if rng.random_range(0..1000) < packet_faults.duplication {
                passage.again = Some(wait(rng));
            }
            passage.wait += wait(rng);
        }
        passage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn path_is_blocked_until_all_its_faults_end() {
        let mut faults = NetworkFaults::default();
        faults.block("a", "b");
        faults.block("a", "b");
        let number = faults.blocked("a", "b");
        assert!(number.is_some() && faults.blocked("b", "a").is_none());
        faults.open("a", "b");
        assert_eq!(faults.blocked("a", "b"), number);
        faults.open("a", "b");
        assert!(faults.is_calm());
        faults.block("a", "b");
        assert_ne!(
            faults.blocked("a", "b"),
            number,
            "another blockade than before"
        );
    }

    #[test]
    fn packet_meets_faults_of_both_ends() {
        let mut faults = NetworkFaults::default();
        let mut rng = SmallRng::seed_from_u64(7);
        let calm = faults.passage("a", "b", &mut rng);
        assert_eq!(
            calm,
            Passage {
                lost: false,
                again: None,
                wait: Duration::ZERO
            }
        );
        let all_lost = PacketFaults {
            loss: 1000,
            ..PacketFaults::default()
        };
        let all_twice = PacketFaults {
            duplication: 1000,
            latency_max: Duration::from_secs(1),
            ..PacketFaults::default()
        };
        faults.add_packet_faults("a", all_lost);
        faults.add_packet_faults("b", all_twice);
        let passage = faults.passage("a", "b", &mut rng);
        assert!(passage.lost && passage.again.is_some() && !passage.wait.is_zero());
        faults.remove_packet_faults("a", all_lost);
        assert!(!faults.passage("a", "b", &mut rng).lost);
        assert!(!faults.passage("c", "a", &mut rng).lost);
    }
}
