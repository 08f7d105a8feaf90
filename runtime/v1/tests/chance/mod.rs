//! Messages filled at random through their tables, so new ones are covered, too.

use meros_v1::message::{Field, Kind, Label, Leaf, Message};

/// A random number generator (SplitMix64).
pub struct Chance(pub u64);

impl Chance {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    /// A number of any size.
    pub fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(4),
            1 => self.below(300),
            2 => u64::MAX >> self.below(64),
            _ => self.next(),
        }
    }

    /// A short text: an id or any characters.
    pub fn text(&mut self) -> String {
        let characters = ['a', 'b', '9', ' ', '"', '\\', '\n', 'ä', '日', '\u{1f600}'];
        // Most are valid ids.
        let (most, shortest) = match self.below(8) {
            0 => (10, 0),
            _ => (3, 1),
        };
        let length = shortest + self.below(5);
        let one = |_| characters[self.below(most) as usize];
        (0..length).map(one).collect()
    }
}

/// Fills a message at random; at the maximum depth only its required fields.
pub fn fill(message: &mut dyn Message, chance: &mut Chance, depth: u32) {
    for entry in message.table() {
        let field = message.field_mut(entry.number).unwrap();
        let times = match field.label() {
            Label::Required => 1,
            _ if depth == 0 => 0,
            Label::Optional => chance.below(2),
            Label::Repeated | Label::Map => chance.below(3),
        };
        for _ in 0..times {
            fill_one(field, chance, depth);
        }
    }
}

fn fill_one(field: &mut dyn Field, chance: &mut Chance, depth: u32) {
    if field.label() == Label::Map {
        let key = chance.text();
        return fill_one(field.entry(&key).unwrap(), chance, depth);
    }
    match field.kind() {
        Kind::Message => fill(field.open().unwrap(), chance, depth.saturating_sub(1)),
        Kind::Enum => {
            // Linux capabilities begin at 1000.
            let mut numbers = (chance.below(40) as i64..40).chain(0..40).chain(1000..1040);
            let taken = numbers.any(|number| field.take(Leaf::Signed(number)).unwrap());
            assert!(taken);
        }
        kind => {
            let (text, number) = (chance.text(), chance.number());
            let leaf = match kind {
                Kind::Bool => Leaf::Bool(number % 2 == 0),
                Kind::I32 => Leaf::Signed((number as i32).into()),
                Kind::I64 => Leaf::Signed(number as i64),
                Kind::U32 => Leaf::Unsigned((number as u32).into()),
                Kind::U64 => Leaf::Unsigned(number),
                // serde_json reads numbers with more digits as a neighbour.
                Kind::F64 => Leaf::F64(
                    [f64::from(number as u32) / 8.0, -0.5, 1e300, f64::INFINITY]
                        [(number % 4) as usize],
                ),
                Kind::Text => Leaf::Text(&text),
                _ => Leaf::Bytes(text.as_bytes()),
            };
            assert!(field.take(leaf).unwrap());
        }
    }
}
