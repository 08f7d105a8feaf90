//! Pieces: what was written of values that have not changed since is written again as it was.
//!
//! A large answer that is asked for again and again is nearly the same each time. [`Kept`] has its bytes as they were written last, and where
//! in them each value stands that has an [`Identity`]; a [`Keeper`] goes along while it is written anew, and copies what it finds. So an
//! answer costs a copy and what has changed. Whoever keeps them holds on to the values too, or another one could come to have the identity
//! of one that is gone.
//!
//! Values that change seldom and then one by one are kept as a [group](Keeper::open), which is copied at once where none of them has changed, without
//! a look at any.
//!
//! An answer is written where an older one was that nobody reads any more. A page of some MiB that is made many times a second would else cost
//! thousands of page faults each time, and whichever thread then asks the allocator for memory gives all of it back to the system: that
//! may be a master's, which stands still for a quarter of a second meanwhile.

use std::sync::Arc;

use bytes::Bytes;

/// What a value is known by: where all that its bytes are made of lies in memory. Values of one answer with the same identity have the same bytes.
pub type Identity = [usize; 3];

/// So many older answers may be read while the next ones are written: the room of more is given back.
const OLDER_MAX: usize = 4;
/// Room that is so many times larger than an answer is given back, too.
const LARGER_MAX: usize = 2;
/// How far ahead a piece is looked for before all are.
const AHEAD: usize = 16;

/// An answer, and where its pieces are.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    bytes: Bytes,
    /// As they stand in it; those within groups are not among them.
    pieces: Vec<Piece>,
    groups: Vec<Group>,
    /// Those before it, oldest first, for their room alone: they may still be read.
    older: Vec<Bytes>,
    /// Room of pieces that are known no more.
    spare: Vec<Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    identity: Identity,
    from: usize,
    to: usize,
}

/// Pieces that follow each other and are the same as long as they all are.
#[derive(Clone, Debug)]
struct Group {
    whole: Piece,
    /// Where each stands in it, from where it begins.
    pieces: Arc<[Piece]>,
}

/// Goes along while an answer is written.
#[derive(Debug, Default)]
pub struct Keeper {
    old: Kept,
    of_pieces: Search,
    of_groups: Search,
    pieces: Vec<Piece>,
    groups: Vec<Group>,
    /// The group that is being written.
    open: Option<Open>,
}

/// A group that was not known.
#[derive(Debug)]
struct Open {
    identity: Identity,
    from: usize,
    /// The group that it has most likely come from.
    old: Option<Group>,
    of_pieces: Search,
    pieces: Vec<Piece>,
}

/// How one of those of an older answer is found.
#[derive(Debug, Default)]
struct Search {
    /// The place of the one that is expected next, since they seldom change their order.
    next: usize,
    /// Places of all, by their identities; once one was not where it was expected.
    by_identity: Option<Vec<u32>>,
}

impl Keeper {
    /// Copies from this.
    pub fn of(mut old: Kept) -> Self {
        let mut pieces = std::mem::take(&mut old.spare);
        pieces.reserve(old.pieces.len() + 16);
        Self {
            groups: Vec::with_capacity(old.groups.len()),
            old,
            pieces,
            ..Self::default()
        }
    }

    /// Room for as many bytes as the answer may have, with nothing in it.
    pub fn room(&mut self) -> Vec<u8> {
        let expected = self.expected();
        let older = &mut self.old.older;
        let unread = older.iter().position(Bytes::is_unique);
        let unread = unread.and_then(|place| older.remove(place).try_into_mut().ok());
        let mut room = match unread {
            Some(mut room) => {
                room.clear();
                Vec::from(room)
            }
            None => Vec::new(),
        };
        if room.capacity() / LARGER_MAX > expected {
            room = Vec::new();
        }
        room.reserve(expected);
        room
    }

    fn expected(&self) -> usize {
        let old = self.old.bytes.len();
        old + old / 16
    }

    /// Appends the bytes of this value, if they are known.
    #[inline]
    pub fn copy(&mut self, identity: Identity, to: &mut Vec<u8>) -> bool {
        let Some(old) = self.find(identity) else {
            return false;
        };
        let from = to.len();
        to.extend_from_slice(&self.old.bytes[old.from..old.to]);
        self.note(identity, from, to.len());
        true
    }

    /// The bytes of this value are those.
    #[inline]
    pub fn note(&mut self, identity: Identity, from: usize, to: usize) {
        match &mut self.open {
            Some(open) => open.pieces.push(Piece {
                identity,
                from: from - open.from,
                to: to - open.from,
            }),
            None => self.pieces.push(Piece { identity, from, to }),
        }
    }

    /// Appends the bytes of this group of values, if they are known. If they are not, what is written until it is [closed](Self::close) is
    /// they. Groups have no groups in them.
    ///
    /// Those whose identities have the same second number take each other's place.
    pub fn open(&mut self, identity: Identity, to: &mut Vec<u8>) -> bool {
        let groups = &self.old.groups;
        if let Some(place) = self.of_groups.find(groups, identity) {
            let Group { whole, pieces } = groups[place].clone();
            let from = to.len();
            to.extend_from_slice(&self.old.bytes[whole.from..whole.to]);
            let whole = Piece {
                from,
                to: to.len(),
                ..whole
            };
            self.groups.push(Group { whole, pieces });
            return true;
        }
        let expected = groups.get(self.of_groups.next);
        let old = expected.filter(|group| group.whole.identity[1] == identity[1]);
        self.of_groups.next += usize::from(old.is_some());
        self.open = Some(Open {
            identity,
            from: to.len(),
            old: old.cloned(),
            of_pieces: Search::default(),
            pieces: Vec::new(),
        });
        false
    }

    /// The group that was not known ends here.
    pub fn close(&mut self, to: usize) {
        if let Some(open) = self.open.take() {
            let (identity, from) = (open.identity, open.from);
            let whole = Piece { identity, from, to };
            let pieces = open.pieces.into();
            self.groups.push(Group { whole, pieces });
        }
    }

    /// What begins at `at` or later, and is in no group, begins so many bytes further on, or further back.
    pub fn moved(&mut self, at: usize, by: isize) {
        let moved = self.pieces.iter_mut().rev();
        for piece in moved.take_while(|piece| piece.from >= at) {
            piece.from = piece.from.saturating_add_signed(by);
            piece.to = piece.to.saturating_add_signed(by);
        }
    }

    /// What is to be kept of the answer that was written.
    pub fn kept(self, bytes: &Bytes) -> Kept {
        let Kept {
            bytes: before,
            pieces: mut spare,
            mut older,
            ..
        } = self.old;
        spare.clear();
        if !before.is_empty() {
            older.push(before);
        }
        if older.len() > OLDER_MAX {
            older.remove(0);
        }
        Kept {
            bytes: bytes.clone(),
            pieces: self.pieces,
            groups: self.groups,
            older,
            spare,
        }
    }

    /// Where the bytes of this value are in the older answer. What is in a group is looked for only where that has most likely come from.
    #[inline]
    fn find(&mut self, identity: Identity) -> Option<Piece> {
        let Some(open) = &mut self.open else {
            let old = &self.old.pieces;
            return self.of_pieces.find(old, identity).map(|place| old[place]);
        };
        let old = open.old.as_ref()?;
        let place = open.of_pieces.find(&old.pieces, identity)?;
        let (begin, piece) = (old.whole.from, old.pieces[place]);
        Some(Piece {
            from: begin + piece.from,
            to: begin + piece.to,
            ..piece
        })
    }
}

/// What has an identity.
trait Identified {
    fn identity(&self) -> Identity;
}

impl Identified for Piece {
    fn identity(&self) -> Identity {
        self.identity
    }
}

impl Identified for Group {
    fn identity(&self) -> Identity {
        self.whole.identity
    }
}

impl Search {
    /// The place of this one among all.
    #[inline]
    fn find<T: Identified>(&mut self, all: &[T], identity: Identity) -> Option<usize> {
        let place = match all.get(self.next) {
            Some(one) if one.identity() == identity => self.next,
            _ => self.elsewhere(all, identity)?,
        };
        self.next = place + 1;
        Some(place)
    }

    fn elsewhere<T: Identified>(&mut self, all: &[T], identity: Identity) -> Option<usize> {
        let mut ahead = all.iter().skip(self.next).take(AHEAD);
        if let Some(further) = ahead.position(|one| one.identity() == identity) {
            return Some(self.next + further);
        }
        let of = |place: &u32| all[*place as usize].identity();
        let sorted = self.by_identity.get_or_insert_with(|| {
            let mut places: Vec<u32> = (0..all.len() as u32).collect();
            places.sort_unstable_by_key(of);
            places
        });
        let found = sorted.binary_search_by_key(&identity, of).ok()?;
        Some(sorted[found] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes these values, each as its own digits, with a comma behind each; says how many were not known.
    fn write_on(keeper: &mut Keeper, bytes: &mut Vec<u8>, values: &[usize]) -> usize {
        let mut unknown = 0;
        for value in values {
            if !keeper.copy([*value, 0, 0], bytes) {
                let from = bytes.len();
                bytes.extend(value.to_string().bytes());
                keeper.note([*value, 0, 0], from, bytes.len());
                unknown += 1;
            }
            bytes.push(b',');
        }
        unknown
    }

    /// An answer of these values alone.
    fn write(old: Kept, values: &[usize]) -> (Kept, usize) {
        let (mut keeper, mut bytes) = (Keeper::of(old), Vec::new());
        let unknown = write_on(&mut keeper, &mut bytes, values);
        let text: Vec<String> = values.iter().map(|value| format!("{value},")).collect();
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), text.concat());
        (keeper.kept(&bytes.into()), unknown)
    }

    #[test]
    fn whatever_comes_and_goes_only_what_is_new_is_written() {
        let all: Vec<usize> = (100..200).collect();
        let (kept, unknown) = write(Kept::default(), &all);
        assert_eq!(unknown, 100);
        for (change, new) in [
            (vec![], 0),
            (all.clone(), 0),
            (all.iter().rev().copied().collect(), 0),
            (
                all.iter().copied().filter(|value| value % 3 > 0).collect(),
                0,
            ),
            (
                all.iter().copied().filter(|value| *value > 170).collect(),
                0,
            ),
            (all.iter().copied().chain([7, 8]).collect(), 2),
            ([7].into_iter().chain(all.iter().copied()).collect(), 1),
            (
                all.iter()
                    .flat_map(|value| [*value, value + 1000])
                    .collect(),
                100,
            ),
        ] {
            assert_eq!(write(kept.clone(), &change).1, new, "{change:?}");
        }
        assert_eq!(write(write(kept, &[150, 3]).0, &all).1, 99);
    }

    #[test]
    fn an_answer_is_written_where_an_older_one_was_that_nobody_reads() {
        /// The next one, where it lies, and how much room it has.
        fn answer(kept: &mut Kept, length: usize) -> (Bytes, usize, usize) {
            let mut keeper = Keeper::of(std::mem::take(kept));
            let mut room = keeper.room();
            assert!(room.is_empty());
            room.resize(length, b'x');
            let (at, capacity) = (room.as_ptr() as usize, room.capacity());
            let bytes = Bytes::from(room);
            *kept = keeper.kept(&bytes);
            (bytes, at, capacity)
        }
        let kept = &mut Kept::default();
        let first = answer(kept, 100_000);
        let places: Vec<_> = (0..6).map(|_| answer(kept, 100_000).1).collect();
        // One that is read stays as it was.
        assert!(!places.contains(&first.1));
        // The newest is copied from while the next is written, so the one before it is where that stands; new room would be less.
        answer(kept, 70_000);
        let (_, _, capacity) = answer(kept, 70_000);
        assert!(capacity >= 100_000, "{capacity}");
        assert!(first.0.iter().all(|byte| *byte == b'x'));
        // However many are read, few are held on to.
        let read: Vec<_> = (0..20).map(|_| answer(kept, 100_000).0).collect();
        assert!(kept.older.len() <= OLDER_MAX);
        drop(read);
        // What is small since does not keep the room of what was large.
        for _ in 0..20 {
            answer(kept, 10);
        }
        assert!(answer(kept, 10).2 < 100);
    }

    /// Writes these groups, each known by its first number, and each value as above; says how many values were not known.
    fn write_groups(old: Kept, groups: &[(usize, &[usize])]) -> (Kept, usize) {
        let (mut keeper, mut bytes, mut unknown) = (Keeper::of(old), Vec::new(), 0);
        for (name, values) in groups {
            bytes.push(b'[');
            if keeper.open([*name, 1, 0], &mut bytes) {
                continue;
            }
            unknown += write_on(&mut keeper, &mut bytes, values);
            keeper.close(bytes.len());
        }
        let text = groups.iter().map(|(_, values)| {
            let values: Vec<String> = values.iter().map(|value| format!("{value},")).collect();
            format!("[{}", values.concat())
        });
        let text: Vec<String> = text.collect();
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), text.concat());
        (keeper.kept(&bytes.into()), unknown)
    }

    #[test]
    fn a_group_is_copied_whole_and_one_that_has_changed_value_by_value() {
        let first: &[(usize, &[usize])] = &[(1, &[10, 11, 12]), (2, &[]), (3, &[30, 31])];
        let (kept, unknown) = write_groups(Kept::default(), first);
        assert_eq!(unknown, 5);
        for (groups, new) in [
            (first, 0),
            // One value came, and one went.
            (&[(4, &[11, 12, 13]), (2, &[]), (3, &[30, 31])], 1),
            // Groups come, go and change their places.
            (&[(3, &[30, 31]), (2, &[]), (1, &[10, 11, 12])], 0),
            (&[(9, &[90]), (1, &[10, 11, 12]), (3, &[30, 31])], 1),
            (&[(3, &[30, 31])], 0),
            (&[], 0),
        ] as [(&[(usize, &[usize])], usize); 6]
        {
            let (next, unknown) = write_groups(kept.clone(), groups);
            assert_eq!(unknown, new, "{groups:?}");
            // What was copied can be copied again, and in part.
            assert_eq!(write_groups(next.clone(), groups).1, 0, "{groups:?}");
            let other = groups.iter().map(|(name, values)| (name + 100, *values));
            assert_eq!(write_groups(next, &other.collect::<Vec<_>>()).1, 0);
        }
    }

    #[test]
    fn pieces_beside_groups_are_found_too() {
        let mut keeper = Keeper::default();
        let mut bytes = b"a".to_vec();
        keeper.note([1, 0, 0], 0, 1);
        assert!(!keeper.open([5, 1, 0], &mut bytes));
        bytes.push(b'b');
        keeper.note([2, 0, 0], 1, 2);
        keeper.close(2);
        bytes.push(b'c');
        keeper.note([3, 0, 0], 2, 3);
        let mut again = Keeper::of(keeper.kept(&bytes.into()));
        let mut copied = Vec::new();
        assert!(again.copy([3, 0, 0], &mut copied) && again.copy([1, 0, 0], &mut copied));
        assert!(again.open([5, 1, 0], &mut copied));
        assert_eq!(copied, b"cab");
    }

    #[test]
    fn pieces_that_were_moved_are_found_where_they_are() {
        let mut keeper = Keeper::default();
        keeper.note([1, 0, 0], 2, 4);
        keeper.note([2, 0, 0], 5, 7);
        keeper.moved(5, 3);
        keeper.moved(20, 3);
        let mut again = Keeper::of(keeper.kept(&Bytes::from_static(b"..ab....cd")));
        let mut copied = Vec::new();
        assert!(again.copy([2, 0, 0], &mut copied) && again.copy([1, 0, 0], &mut copied));
        assert_eq!(copied, b"cdab");
    }
}
