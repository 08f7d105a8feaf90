//! Health: whether an agent that is pinged still answers (SPEC 3.2: every 15 s, five misses).
//!
//! One plain value for each agent; the actor sends the pings and turns the clock. A ping left unanswered until the next
//! one is due is a miss, and any answer forgives all earlier misses. It never decides what unreachable means.

/// What is known of one agent's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Misses in a row.
    missed: u32,
    /// Whether a ping is out.
    waiting: bool,
}

/// What is to be done when a ping is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Ping it.
    Ping,
    /// It left too many pings unanswered.
    Unreachable,
}

impl Health {
    /// The time of a ping has come; `misses_max` misses in a row are too many.
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

    /// It has answered.
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
