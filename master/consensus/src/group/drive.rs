//! Carries out the steps of the members, and compares their applied state.

use super::*;

impl Group {
    pub(super) fn send(&mut self, from: u64, packets: Vec<(u64, Packet)>) {
        for (to, packet) in packets {
            if self.fell(from) {
                return;
            }
            // Round trip through the codec: an unencodable packet would not survive a real wire.
            let bytes = runtime::wire::codec::encode(&packet).unwrap();
            let packet: Packet = runtime::wire::codec::decode(&bytes).unwrap();
            let copies = 1 + u32::from(self.rng.random_range(0..100) < self.faults.twice);
            for _ in 0..copies {
                if self.cut.contains(&(from, to))
                    || self.rng.random_range(0..100) < self.faults.loss
                {
                    continue;
                }
                let at = self.now + self.rng.random_range(0..=self.faults.delay);
                self.order += 1;
                self.flights.push(Flight {
                    at,
                    order: self.order,
                    from,
                    to,
                    packet: packet.clone(),
                });
            }
        }
    }

    /// Counts one small action of a member. Returns whether it crashed.
    pub(super) fn fell(&mut self, id: u64) -> bool {
        if let Some((who, left)) = &mut self.crash_countdown
            && *who == id
        {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.crash_countdown = None;
                self.power_off(id);
                return true;
            }
        }
        false
    }

    /// Everything that this member can do now.
    pub(super) fn pump(&mut self, id: u64) {
        loop {
            if !self.is_up(id) {
                return;
            }
            let now = self.now;
            let member = self.members.get_mut(&id).unwrap();
            if let Some((_, number, write)) = member.writing.take_if(|(at, _, _)| *at <= now) {
                if self.fell(id) {
                    return;
                }
                let member = self.members.get_mut(&id).unwrap();
                member.memory_log.write(&write).unwrap();
                if self.fell(id) {
                    return;
                }
                self.replica(id).persisted(number);
            }
            let Some(step) = self.replica(id).turn().unwrap() else {
                return;
            };
            if self.fell(id) {
                return;
            }
            self.carry_out(id, step);
        }
    }

    fn carry_out(&mut self, id: u64, step: Step<usize>) {
        self.send(id, step.packets);
        if !self.is_up(id) {
            return;
        }
        if let Some(write) = step.write {
            let ticks = match self.slow.get(&id) {
                Some(ticks) => *ticks,
                None => self.rng.random_range(0..=self.faults.disk),
            };
            let at = self.now + ticks;
            let member = self.members.get_mut(&id).unwrap();
            let before = member.writing.replace((at, step.number, write));
            assert!(before.is_none(), "one write at a time");
        }
        for (ticket, end) in step.answers {
            if let (Ok(Done::Applied { .. } | Done::Before { .. }), Some(value)) =
                (&end, self.proposed.get(&ticket))
            {
                self.acknowledged.insert(*value);
            }
            let before = self.ends.insert(ticket, end);
            let may_change = matches!(before, None | Some(Err(_)));
            assert!(may_change, "{ticket:?} is answered twice");
        }
        for (read, answer) in step.reads {
            let at = self
                .asked
                .iter()
                .position(|asked| (asked.member, asked.id) == (id, read));
            let asked = self.asked.swap_remove(at.unwrap());
            if answer.is_ok() {
                let seen: BTreeSet<u64> =
                    self.replica(id).machine().values.iter().copied().collect();
                assert!(
                    asked.acknowledged.is_subset(&seen),
                    "a read at {id} misses what was acknowledged before it"
                );
            }
            self.reads.push(answer);
        }
        if let Some(role) = step.role.filter(|role| role.role == Role::Leader) {
            let leader = *self.leaders.entry(role.term).or_insert(id);
            assert_eq!(leader, id, "two leaders in term {}", role.term);
        }
        if let Some(compaction) = step.compaction {
            let member = self.members.get_mut(&id).unwrap();
            // Before a write in progress, as in a disk's queue.
            member
                .memory_log
                .compact(&compaction.snapshot, compaction.keep_from)
                .unwrap();
            self.replica(id).compacted(compaction);
        }
        self.compare(id);
    }

    /// A member's applied values are a prefix of everyone's.
    fn compare(&mut self, id: u64) {
        let values = &self.members[&id].replica.as_ref().unwrap().machine().values;
        let common = values.len().min(self.truth.len());
        assert_eq!(
            values[..common],
            self.truth[..common],
            "member {id} differs"
        );
        if values.len() > common {
            let more: Vec<u64> = values[common..].to_vec();
            for value in more {
                assert!(!self.truth.contains(&value), "{value} is applied twice");
                self.truth.push(value);
            }
        }
    }

    pub(super) fn deliver(&mut self) {
        loop {
            let due = self
                .flights
                .iter()
                .enumerate()
                .filter(|(_, flight)| flight.at <= self.now);
            let Some((at, _)) = due.min_by_key(|(_, flight)| (flight.at, flight.order)) else {
                return;
            };
            let flight = self.flights.remove(at);
            if !self.members.contains_key(&flight.to)
                || !self.is_up(flight.to)
                || self.cut.contains(&(flight.from, flight.to))
            {
                continue;
            }
            self.delivered += 1;
            // Useless packets are normal; a contradiction would be a bug.
            let refused = self.replica(flight.to).step(flight.from, flight.packet);
            if let Err(error) = refused {
                assert!(
                    matches!(error, crate::wire::Refused::Useless { .. }),
                    "seed {}: {error}",
                    self.seed
                );
            }
            self.pump(flight.to);
        }
    }
}
