//! Exclusions: collected room by room, and reported client by client.
//!
//! Hundreds of clients may be excluded from each room, so they are stored as bits: 64 rooms form
//! the rows of a table, which is then transposed.

use module_api::sorter::{Client, Exclusion};

use crate::allocator::bits::transpose;

/// The exclusions of one slate under construction.
pub(in crate::allocator::state) struct Exclusions {
    /// By client; `None` without exclusions so far.
    all: Vec<Option<Exclusion>>,
    /// For 64 clients each: one row per recent room, one bit per client.
    tables: Vec<[u64; 64]>,
    /// Number of completed rooms.
    room: usize,
    /// Whether the tables contain any bit.
    has_bits: bool,
}

impl Exclusions {
    /// No exclusions yet, for clients with numbers below this.
    pub(in crate::allocator::state) fn of(clients: usize) -> Self {
        Self {
            all: vec![None; clients],
            tables: vec![[0; 64]; clients.div_ceil(64)],
            room: 0,
            has_bits: false,
        }
    }

    /// Excludes this client from the current room.
    pub(in crate::allocator::state) fn add(&mut self, client: Client) {
        let n = client as usize;
        if let Some(table) = self.tables.get_mut(n / 64) {
            table[self.room % 64] |= 1 << (n % 64);
            self.has_bits = true;
        }
    }

    /// Excludes from the current room the clients of the set bits, 64 clients per word, from 0 on.
    pub(in crate::allocator::state) fn add_all(&mut self, clients: impl Iterator<Item = u64>) {
        for (table, bits) in self.tables.iter_mut().zip(clients) {
            table[self.room % 64] |= bits;
        }
        self.has_bits = true;
    }

    /// Completes the current room.
    pub(in crate::allocator::state) fn next_room(&mut self) {
        self.room += 1;
        if self.room.is_multiple_of(64) {
            self.transpose_tables(self.room / 64 - 1);
        }
    }

    /// All exclusions, in the order of clients.
    pub(in crate::allocator::state) fn end(mut self) -> Vec<Exclusion> {
        self.transpose_tables(self.room / 64);
        self.all.into_iter().flatten().collect()
    }

    fn transpose_tables(&mut self, word: usize) {
        if !std::mem::take(&mut self.has_bits) {
            return;
        }
        let tables = self.tables.iter_mut().zip(self.all.chunks_mut(64));
        for (first, (table, all)) in (0..).step_by(64).zip(tables) {
            if table.iter().all(|row| *row == 0) {
                continue;
            }
            transpose(table);
            for (client, (rooms, own)) in (first..).zip(table.iter().zip(all)) {
                if *rooms != 0 {
                    let exclusion = own.get_or_insert_default();
                    exclusion.client = client;
                    exclusion.rooms.resize(word + 1, 0);
                    exclusion.rooms[word] = *rooms;
                }
            }
            *table = [0; 64];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusions_match_the_added_rooms() {
        let excluded =
            |client: usize, room: usize| client != 70 && (client * 7 + room * 3).is_multiple_of(5);
        for rooms in [1, 63, 64, 65, 200] {
            let mut exclusions = Exclusions::of(150);
            for room in 0..rooms {
                let those = (0..100).filter(|client| excluded(*client, room));
                those.for_each(|client| exclusions.add(client as Client));
                let mut words = [0_u64; 3];
                let those = (100..150).filter(|client| excluded(*client, room));
                those.for_each(|client| words[client / 64] |= 1 << (client % 64));
                exclusions.add_all(words.into_iter());
                exclusions.add(9_999); // No such client.
                exclusions.next_room();
            }
            let all = exclusions.end();
            for client in 0..150 {
                let own = all.iter().find(|one| one.client as usize == client);
                for room in 0..rooms + 70 {
                    let has = own.is_some_and(|own| own.has(room));
                    let expected = room < rooms && excluded(client, room);
                    assert_eq!(has, expected, "client {client}, room {room} of {rooms}");
                }
            }
            assert!(all.is_sorted_by_key(|one| one.client));
        }
    }

    #[test]
    fn a_slate_without_exclusions_has_none() {
        let mut exclusions = Exclusions::of(3);
        (0..130).for_each(|_| exclusions.next_room());
        assert_eq!(exclusions.end(), []);
        assert_eq!(Exclusions::of(0).end(), []);
    }
}
