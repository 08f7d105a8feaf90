//! Health of an agent: whether it still answers pings (every 15 s, five misses).
//!
//! One plain value per agent; the actor sends the pings and owns the timers. A ping without an
//! answer until the next one is due is a miss; any answer resets the count.

/// The state of one agent's pings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Misses in a row.
    missed: u32,
    /// Whether a ping is unanswered.
    waiting: bool,
}

/// The action when a ping is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send a ping.
    Ping,
    /// Too many pings are unanswered.
    Unreachable,
}

impl Health {
    /// A ping is due; `misses_max` misses in a row are too many.
    pub fn due(&mut self, misses_max: u32) -> Due {
        if self.waiting {
            self.missed = self.missed.saturating_add(1);
        }
        if self.missed >= misses_max {
            return Due::Unreachable;
        }
        self.waiting = true;
        Due::Ping
    }

    /// Handles an answer.
    pub fn answered(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 3.2: five unanswered pings of 15 s are 75 s.
    #[test]
    fn the_fifth_unanswered_ping_makes_an_agent_unreachable() {
        let mut health = Health::default();
        let dues: Vec<_> = (0..6).map(|_| health.due(5)).collect();
        assert_eq!(
            dues,
            [
                Due::Ping,
                Due::Ping,
                Due::Ping,
                Due::Ping,
                Due::Ping,
                Due::Unreachable
            ]
        );
    }

    #[test]
    fn one_answer_forgives_all_misses() {
        let mut health = Health::default();
        for _ in 0..5 {
            health.due(5);
        }
        health.answered();
        assert!((0..5).all(|_| health.due(5) == Due::Ping));
        assert_eq!(health.due(5), Due::Unreachable);
    }
}
