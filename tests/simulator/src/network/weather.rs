//! Weather: what becomes of a packet between two machines. Pure, but for the chance it is given.
//!
//! Remembers the faults of the network that are under way. It knows neither sockets nor links: both networks ask it.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;

/// Losses, repetitions and waits of one machine's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sky {
    /// Lost, in thousandths.
    pub loss: u16,
    /// Sent twice, in thousandths.
    pub duplication: u16,
    /// Each packet waits a random time up to this.
    pub latency_max: Duration,
}

/// What becomes of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// It does not arrive.
    pub lost: bool,
    /// It arrives twice, the second time so much later than the first.
    pub again: Option<Duration>,
    /// It arrives so much later than it was sent.
    pub wait: Duration,
}

/// What the network is like just now.
#[derive(Debug, Default)]
pub struct Weather {
    skies: BTreeMap<String, Vec<Sky>>,
    /// Ways on which nothing passes, with how many faults block each, and when the first of them began.
    blocked: BTreeMap<(String, String), Blockade>,
    /// Machines that read nothing, with the times until which they do not.
    deaf: BTreeMap<String, Vec<Duration>>,
    blockades: u64,
}

#[derive(Clone, Copy, Debug)]
struct Blockade {
    faults: u32,
    number: u64,
}

impl Weather {
    /// Whether every packet passes at once.
    pub fn is_calm(&self) -> bool {
        self.skies.is_empty() && self.blocked.is_empty() && self.deaf.is_empty()
    }

    /// This machine's packets fare so, until [`clear`](Self::clear) is called with the same.
    pub fn cloud(&mut self, machine: &str, sky: Sky) {
        self.skies.entry(machine.to_owned()).or_default().push(sky);
    }

    /// Undoes one [`cloud`](Self::cloud).
    pub fn clear(&mut self, machine: &str, sky: Sky) {
        if let Some(skies) = self.skies.get_mut(machine) {
            if let Some(at) = skies.iter().position(|known| *known == sky) {
                skies.remove(at);
            }
            if skies.is_empty() {
                self.skies.remove(machine);
            }
        }
    }

    /// Nothing passes from the one to the other.
    pub fn block(&mut self, from: &str, to: &str) {
        self.blockades += 1;
        let number = self.blockades;
        let way = (from.to_owned(), to.to_owned());
        let blockade = self
            .blocked
            .entry(way)
            .or_insert(Blockade { faults: 0, number });
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

    /// Whether nothing passes that way; a number that is another after the way was open.
    pub fn blocked(&self, from: &str, to: &str) -> Option<u64> {
        if self.blocked.is_empty() {
            return None;
        }
        let way = (from.to_owned(), to.to_owned());
        self.blocked.get(&way).map(|blockade| blockade.number)
    }

    /// The machine reads nothing until this time, counted from the start of the run.
    pub fn deafen(&mut self, machine: &str, until: Duration) {
        self.deaf.entry(machine.to_owned()).or_default().push(until);
    }

    /// Undoes one [`deafen`](Self::deafen), whose time has come.
    pub fn hear_again(&mut self, machine: &str, until: Duration) {
        if let Some(times) = self.deaf.get_mut(machine) {
            if let Some(at) = times.iter().position(|known| *known == until) {
                times.remove(at);
            }
            if times.is_empty() {
                self.deaf.remove(machine);
            }
        }
    }

    /// Until when the machine reads nothing, if it is so.
    pub fn deaf_until(&self, machine: &str) -> Option<Duration> {
        self.deaf.get(machine)?.iter().max().copied()
    }

    /// Whether the machine reads nothing.
    pub fn is_deaf(&self, machine: &str) -> bool {
        !self.deaf.is_empty() && self.deaf.contains_key(machine)
    }

    /// What becomes of a packet on a way that is not blocked.
    pub fn passage(&self, from: &str, to: &str, rng: &mut SmallRng) -> Passage {
        let mut passage = Passage {
            lost: false,
            again: None,
            wait: Duration::ZERO,
        };
        let ends = [self.skies.get(from), self.skies.get(to)];
        for sky in ends.into_iter().flatten().flatten() {
            let wait = |rng: &mut SmallRng| sky.latency_max.mul_f64(rng.random::<f64>());
            passage.lost |= rng.random_range(0..1000) < sky.loss;
            if rng.random_range(0..1000) < sky.duplication {
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
    fn a_way_is_blocked_until_every_fault_that_blocks_it_is_over() {
        let mut weather = Weather::default();
        weather.block("a", "b");
        weather.block("a", "b");
        let number = weather.blocked("a", "b");
        assert!(number.is_some() && weather.blocked("b", "a").is_none());
        weather.open("a", "b");
        assert_eq!(weather.blocked("a", "b"), number);
        weather.open("a", "b");
        assert!(weather.is_calm());
        weather.block("a", "b");
        assert_ne!(
            weather.blocked("a", "b"),
            number,
            "another blockade than before"
        );
    }

    #[test]
    fn a_packet_fares_as_both_of_its_ends_say() {
        let mut weather = Weather::default();
        let mut rng = SmallRng::seed_from_u64(7);
        let calm = weather.passage("a", "b", &mut rng);
        assert_eq!(
            calm,
            Passage {
                lost: false,
                again: None,
                wait: Duration::ZERO
            }
        );
        let all_lost = Sky {
            loss: 1000,
            ..Sky::default()
        };
        let all_twice = Sky {
            duplication: 1000,
            latency_max: Duration::from_secs(1),
            ..Sky::default()
        };
        weather.cloud("a", all_lost);
        weather.cloud("b", all_twice);
        let passage = weather.passage("a", "b", &mut rng);
        assert!(passage.lost && passage.again.is_some() && !passage.wait.is_zero());
        weather.clear("a", all_lost);
        assert!(!weather.passage("a", "b", &mut rng).lost);
        assert!(!weather.passage("c", "a", &mut rng).lost);
    }
}
