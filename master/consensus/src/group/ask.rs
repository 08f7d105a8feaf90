//! Requests of the tests to a group.

use super::*;

/// Three members after so many commits: the group, its leader and a follower.
pub(super) fn led(seed: u64, commits: usize) -> (Group, u64, u64) {
    let mut group = Group::new(seed, 3);
    group.commit(commits);
    group.ticks(5);
    let leader = group.leader().unwrap();
    (group, leader, if leader == 1 { 2 } else { 1 })
}

impl Group {
    /// The members according to the leader.
    pub(super) fn belonging(&self) -> Vec<u64> {
        let Some(leader) = self.leader() else {
            return Vec::new();
        };
        let members = self.status(leader).members;
        members
            .voters
            .into_iter()
            .chain(members.learners)
            .chain(members.voters_outgoing)
            .filter(|id| self.members.contains_key(id))
            .collect()
    }

    /// Ends the hanging write; later ones are immediate.
    pub(super) fn until_disk_answers(&mut self, id: u64) {
        self.slow.remove(&id);
        if let Some((at, ..)) = &mut self.members.get_mut(&id).unwrap().writing {
            *at = self.now;
        }
        self.pump(id);
    }

    pub(super) fn elect(&mut self) -> u64 {
        self.until("a leader", 200, |group| group.leader().is_some());
        self.leader().unwrap()
    }

    /// Proposes a new value at this member, which may not be the leader.
    pub(super) fn propose(&mut self, id: u64) -> Result<(Ticket, u64), Rejected> {
        self.propose_large(id, 0)
    }

    pub(super) fn propose_large(
        &mut self,
        id: u64,
        bytes: usize,
    ) -> Result<(Ticket, u64), Rejected> {
        let value = self.next_value;
        self.next_value += 1;
        let ticket = self.replica(id).propose(&(value, vec![3; bytes]))?;
        self.proposed.insert(ticket, value);
        Ok((ticket, value))
    }

    pub(super) fn read(&mut self, id: u64) {
        let acknowledged = self.acknowledged.clone();
        let run = self.members[&id].incarnations;
        if let Ok(read) = self.replica(id).read() {
            self.asked.push(Asked {
                member: id,
                run,
                id: read,
                acknowledged,
            });
        }
    }

    /// Commits this many new values.
    pub(super) fn commit(&mut self, count: usize) {
        for _ in 0..count {
            self.commit_one();
        }
    }

    fn commit_one(&mut self) -> u64 {
        for _ in 0..50 {
            let leader = self.elect();
            let Ok((ticket, value)) = self.propose(leader) else {
                self.tick();
                continue;
            };
            self.pump(leader);
            for _ in 0..400 {
                match self.ends.get(&ticket) {
                    Some(Ok(_)) => return value,
                    Some(Err(_)) => break,
                    None if !self.is_up(leader) => break,
                    None => self.tick(),
                }
            }
        }
        panic!("seed {}: nothing can be committed", self.seed);
    }

    pub(super) fn change(&mut self, change: MembershipChange) {
        for _ in 0..100 {
            let leader = self.elect();
            match self.replica(leader).change(&change) {
                Ok(ticket) => {
                    self.pump(leader);
                    self.until("the change of members", 400, |group| {
                        group.ends.contains_key(&ticket)
                    });
                    assert_matches!(self.ends[&ticket], Ok(Done::Members { .. }));
                    return;
                }
                Err(_) => self.ticks(3),
            }
        }
        panic!("seed {}: {change:?} is never allowed", self.seed);
    }
}
