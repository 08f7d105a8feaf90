//! Amounts by name, without annotations, for quotas, limits and shares.
//!
//! One cache line: the amounts of the four well-known names are in place. Each run of the allocator
//! makes thousands of sums and comparisons, which need no pointer and no search by name.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Invalid, ParseError};
use crate::resources::Resources;
use crate::value::name::Name;
use crate::value::scalar::Scalar;

/// The names whose amounts are in place.
static KNOWN: [Name; 4] = [Name::Cpus, Name::Mem, Name::Disk, Name::Gpus];

/// The index of a name among them.
fn known(name: &Name) -> Option<usize> {
    match name {
        Name::Cpus => Some(0),
        Name::Mem => Some(1),
        Name::Disk => Some(2),
        Name::Gpus => Some(3),
        Name::Ports | Name::Other(_) => None,
    }
}

/// Amounts by name, e.g. `cpus:4;mem:2048`. A name may be listed with zero (a limit of zero); it
/// counts as absent otherwise.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Quantities {
    /// Amounts of the well-known names, in their order; zero where not listed.
    known: [Scalar; KNOWN.len()],
    /// A bit for each well-known name that is listed; its amount may be zero.
    listed: u8,
    /// All other amounts, in order.
    others: Vec<(Name, Scalar)>,
}

impl Quantities {
    /// No amounts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a text such as `cpus:4;mem:2048`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        crate::value::text::parse_quantities(text)
    }

    /// The amount called `name`.
    pub fn get(&self, name: &Name) -> Scalar {
        match known(name) {
            Some(at) => self.known[at],
            None => self
                .search(name)
                .map_or(Scalar::ZERO, |at| self.others[at].1),
        }
    }

    /// Whether `name` is listed, also with zero.
    pub fn names(&self, name: &Name) -> bool {
        match known(name) {
            Some(at) => self.listed & 1 << at != 0,
            None => self.search(name).is_ok(),
        }
    }

    /// Sets the amount called `name`, also to zero.
    pub fn set(&mut self, name: Name, amount: Scalar) {
        *self.list(name) = amount;
    }

    /// Adds one amount.
    pub fn add(&mut self, name: Name, amount: Scalar) {
        *self.list(name) += amount;
    }

    /// Subtracts one amount, down to zero.
    pub fn take(&mut self, name: &Name, amount: Scalar) {
        let own = match known(name) {
            Some(at) => &mut self.known[at],
            None => match self.search(name) {
                Ok(at) => &mut self.others[at].1,
                Err(_) => return,
            },
        };
        *own = own.saturating_sub(amount);
    }

    /// The names and amounts in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, Scalar)> {
        Listed {
            all: self,
            left: self.listed,
            others: self.others.iter(),
        }
    }

    /// Whether all amounts are zero.
    pub fn is_empty(&self) -> bool {
        self.known == [Scalar::ZERO; KNOWN.len()]
            && self.others.iter().all(|(_, amount)| amount.is_zero())
    }

    /// Whether each amount of `other` is contained.
    pub fn contains(&self, other: &Self) -> bool {
        let mut known = self.known.iter().zip(&other.known);
        let mut others = other.others.iter();
        known.all(|(own, wanted)| own >= wanted)
            && others.all(|(name, wanted)| self.get(name) >= *wanted)
    }

    /// The difference, if `other` is contained.
    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        self.contains(other).then(|| self.saturating_sub(other))
    }

    /// The difference, each amount down to zero.
    pub fn saturating_sub(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest -= other;
        rest
    }

    /// The smaller amount of each name that both list.
    pub fn lesser(&self, other: &Self) -> Self {
        let others = self.others.iter().filter(|(name, _)| other.names(name));
        Self {
            known: std::array::from_fn(|at| self.known[at].min(other.known[at])),
            listed: self.listed & other.listed,
            others: others
                .map(|(name, amount)| (name.clone(), other.get(name).min(*amount)))
                .collect(),
        }
    }

    /// The dominant share: the largest fraction of these amounts in `whole`. Names with zero in
    /// `whole` are ignored.
    pub fn dominant_share(&self, whole: &Self) -> f64 {
        let part = |own: Scalar, all: Scalar| match all.is_zero() {
            true => 0.0,
            false => own.thousandths() as f64 / all.thousandths() as f64,
        };
        let known = self.known.iter().zip(&whole.known);
        let known = known.map(|(own, all)| part(*own, *all));
        let others = self.others.iter();
        let others = others.map(|(name, own)| part(*own, whole.get(name)));
        known.chain(others).fold(0.0, f64::max)
    }

    /// The amount called `name`, which becomes listed.
    fn list(&mut self, name: Name) -> &mut Scalar {
        if let Some(at) = known(&name) {
            self.listed |= 1 << at;
            return &mut self.known[at];
        }
        let at = self.search(&name).unwrap_or_else(|gap| {
            self.others.insert(gap, (name, Scalar::ZERO));
            gap
        });
        &mut self.others[at].1
    }

    /// The index of one of the others, or its insertion point.
    fn search(&self, name: &Name) -> Result<usize, usize> {
        self.others.binary_search_by(|(own, _)| own.cmp(name))
    }

    fn drop_empty(&mut self) {
        for (at, amount) in self.known.iter().enumerate() {
            self.listed &= !(u8::from(amount.is_zero()) << at);
        }
        self.others.retain(|(_, amount)| !amount.is_zero());
    }
}

/// Iterates over the listed amounts in order.
struct Listed<'a> {
    all: &'a Quantities,
    /// Bits of the well-known names that are still to come.
    left: u8,
    others: std::slice::Iter<'a, (Name, Scalar)>,
}

impl<'a> Iterator for Listed<'a> {
    type Item = (&'a Name, Scalar);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.left.trailing_zeros() as usize;
        let Some(name) = KNOWN.get(at) else {
            return self.others.next().map(|(name, amount)| (name, *amount));
        };
        self.left &= self.left - 1;
        Some((name, self.all.known[at]))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left.count_ones() as usize + self.others.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for Listed<'_> {}

/// Compares the listed names and amounts one by one.
impl Ord for Quantities {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl PartialOrd for Quantities {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::ops::AddAssign<&Quantities> for Quantities {
    fn add_assign(&mut self, other: &Quantities) {
        for (own, more) in self.known.iter_mut().zip(&other.known) {
            *own += *more;
        }
        self.listed |= other.listed;
        for (name, more) in &other.others {
            self.add(name.clone(), *more);
        }
    }
}

impl std::ops::SubAssign<&Quantities> for Quantities {
    /// Subtracts each amount down to zero; a name with zero is no longer listed.
    fn sub_assign(&mut self, other: &Quantities) {
        for (own, less) in self.known.iter_mut().zip(&other.known) {
            *own = own.saturating_sub(*less);
        }
        for (name, less) in &other.others {
            self.take(name, *less);
        }
        self.drop_empty();
    }
}

impl std::ops::Add<&Quantities> for Quantities {
    type Output = Quantities;

    fn add(mut self, other: &Quantities) -> Quantities {
        self += other;
        self
    }
}

impl From<&Resources> for Quantities {
    fn from(resources: &Resources) -> Self {
        resources.quantities()
    }
}

impl FromIterator<(Name, Scalar)> for Quantities {
    fn from_iter<I: IntoIterator<Item = (Name, Scalar)>>(all: I) -> Self {
        let mut sum = Self::new();
        for (name, amount) in all {
            sum.add(name, amount);
        }
        sum
    }
}

impl FromStr for Quantities {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl fmt::Display for Quantities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, amount)) in self.iter().enumerate() {
            let semicolon = if n == 0 { "" } else { ";" };
            write!(f, "{semicolon}{name}:{amount}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Quantities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Quantities {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Quantities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut all = Vec::<(Name, Scalar)>::deserialize(deserializer)?;
        all.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(pair) = all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let bad = Invalid::new("quantities", &pair[0].0, "each name once");
            return Err(serde::de::Error::custom(bad));
        }
        Ok(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Quantities {
        Quantities::parse(text).unwrap()
    }

    #[test]
    fn quantities_add_and_subtract_by_name() {
        let mut sum = parse("mem:10;cpus:1");
        sum += &parse("cpus:0.5;bugs:3");
        assert_eq!(sum.to_string(), "cpus:1.5;mem:10;bugs:3");
        assert!(sum.contains(&parse("cpus:1.5;gpus:0")) && !sum.contains(&parse("gpus:1")));
        assert_eq!(
            sum.checked_sub(&parse("cpus:1.5")),
            Some(parse("mem:10;bugs:3"))
        );
        assert_eq!(sum.checked_sub(&parse("cpus:2")), None);
        assert_eq!(sum.lesser(&parse("cpus:1;bugs:9")), parse("cpus:1;bugs:3"));
    }

    #[test]
    fn quantities_fill_one_cache_line() {
        assert_eq!(size_of::<Quantities>(), 64);
    }

    /// S78.
    #[test]
    fn dominant_share_is_the_largest_fraction() {
        let whole = parse("cpus:10;mem:100;gpus:0;apes:4");
        for (held, share) in [
            ("", 0.0),
            ("cpus:1;mem:50", 0.5),
            ("cpus:9;mem:50;apes:1", 0.9),
            ("apes:3", 0.75),
            ("disk:5;gpus:1", 0.0),
            ("cpus:20", 2.0),
        ] {
            assert_eq!(parse(held).dominant_share(&whole), share, "{held}");
        }
    }

    #[test]
    fn sums_do_not_depend_on_which_names_are_listed() {
        let texts = [
            "",
            "cpus:1",
            "mem:2;zebras:1",
            "cpus:1;disk:4;apes:3",
            "gpus:0;apes:1",
        ];
        for (one, other) in texts
            .iter()
            .flat_map(|one| texts.map(|other| (*one, other)))
        {
            let (first, second) = (parse(one), parse(other));
            let both = first.iter().chain(second.iter());
            let both = both.map(|(name, amount)| (name.clone(), amount));
            let sum = first.clone() + &second;
            assert_eq!(sum, both.collect::<Quantities>(), "{one} and {other}");
            assert!(sum.iter().is_sorted_by(|(one, _), (other, _)| one < other));
            let (mut left, mut rest) = (sum.clone(), first.clone());
            left -= &second;
            rest.drop_empty();
            assert_eq!(left, rest, "{one} and {other}");
        }
    }

    #[test]
    fn only_amounts_are_quantities() {
        assert!(Quantities::parse("ports:[1-2]").is_err());
        assert!(Quantities::parse("cpus(ads):1").is_err());
    }
}
