//! Amounts by name, with nothing said about reservation, disk or revocability.
//!
//! What quota, limits and shares are counted in. Sorted by name, nothing empty.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use smallvec::SmallVec;

use crate::error::{Invalid, ParseError};
use crate::name::Name;
use crate::resources::Resources;
use crate::scalar::Scalar;

/// Amounts by name, e.g. `cpus:4;mem:2048`. A name with nothing of it may be listed on purpose
/// (a limit of none); it is kept, and counts as nothing everywhere else.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Quantities(SmallVec<[(Name, Scalar); 4]>);

impl Quantities {
    /// No amounts.
    pub fn new() -> Self {
        Self::default()
    }

    /// The amounts in a text such as `cpus:4;mem:2048`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        crate::text::parse_quantities(text)
    }

    /// The amount called `name`.
    pub fn get(&self, name: &Name) -> Scalar {
        self.seek(name).map_or(Scalar::ZERO, |at| self.0[at].1)
    }

    /// Is `name` listed, be it with nothing?
    pub fn names(&self, name: &Name) -> bool {
        self.seek(name).is_ok()
    }

    /// Sets the amount called `name`, also to nothing.
    pub fn set(&mut self, name: Name, amount: Scalar) {
        match self.seek(&name) {
            Ok(at) => self.0[at].1 = amount,
            Err(gap) => self.0.insert(gap, (name, amount)),
        }
    }

    /// Adds one amount.
    pub fn add(&mut self, name: Name, amount: Scalar) {
        match self.seek(&name) {
            Ok(at) => self.0[at].1 += amount,
            Err(gap) => self.0.insert(gap, (name, amount)),
        }
    }

    /// Takes one amount away, as far as it is there.
    pub fn take(&mut self, name: &Name, amount: Scalar) {
        if let Ok(at) = self.seek(name) {
            self.0[at].1 = self.0[at].1.saturating_sub(amount);
        }
    }

    /// The names and amounts in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, Scalar)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Is there nothing of anything?
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, amount)| amount.is_zero())
    }

    /// Is each amount of `other` here?
    pub fn contains(&self, other: &Self) -> bool {
        other
            .iter()
            .all(|(name, amount)| amount.is_zero() || self.get(name) >= amount)
    }

    /// What is left when `other` is taken away, if it is all here.
    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        self.contains(other).then(|| self.saturating_sub(other))
    }

    /// What is left of each amount when as much of `other` as is here is taken away.
    pub fn saturating_sub(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest -= other;
        rest
    }

    /// The smaller amount of each name that both list.
    pub fn lesser(&self, other: &Self) -> Self {
        let both = self.iter().filter(|(name, _)| other.names(name));
        both.map(|(name, amount)| (name.clone(), amount.min(other.get(name))))
            .collect()
    }

    /// The largest part that any of these is of the amount of its name in `whole`: the dominant share (S78). What `whole` has nothing of
    /// counts for none.
    pub fn dominant_share(&self, whole: &Self) -> f64 {
        let mut share: f64 = 0.0;
        let mut whole = whole.0.iter().peekable();
        for (name, amount) in &self.0 {
            while whole.next_if(|(other, _)| other < name).is_some() {}
            let all = whole.next_if(|(other, _)| other == name);
            if let Some((_, all)) = all.filter(|(_, all)| !all.is_zero()) {
                let part = amount.thousandths() as f64 / all.thousandths() as f64;
                share = share.max(part);
            }
        }
        share
    }

    fn seek(&self, name: &Name) -> Result<usize, usize> {
        // A handful of names: looking at each in turn beats a binary search.
        for (at, (own, _)) in self.0.iter().enumerate() {
            match own.cmp(name) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(at),
                std::cmp::Ordering::Greater => return Err(at),
            }
        }
        Err(self.0.len())
    }

    fn drop_empty(&mut self) {
        self.0.retain(|(_, amount)| !amount.is_zero());
    }
}

impl std::ops::AddAssign<&Quantities> for Quantities {
    fn add_assign(&mut self, other: &Quantities) {
        // Both are in order, and mostly list the same names.
        let mut new = other.0.iter();
        for (own, amount) in &mut self.0 {
            match new.as_slice().first() {
                Some((name, more)) if name == own => {
                    *amount += *more;
                    new.next();
                }
                Some((name, _)) if name < own => break,
                Some(_) => {}
                None => return,
            }
        }
        new.for_each(|(name, amount)| self.add(name.clone(), *amount));
    }
}

impl std::ops::SubAssign<&Quantities> for Quantities {
    /// Takes away as much as is here; what comes to nothing is no longer listed.
    fn sub_assign(&mut self, other: &Quantities) {
        let mut less = other.0.iter().peekable();
        for (own, amount) in &mut self.0 {
            while less.next_if(|(name, _)| name < own).is_some() {}
            if let Some((_, less)) = less.next_if(|(name, _)| name == own) {
                *amount = amount.saturating_sub(*less);
            }
        }
        if self.0.iter().any(|(_, amount)| amount.is_zero()) {
            self.drop_empty();
        }
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
            match sum.0.last() {
                Some((last, _)) if *last >= name => sum.add(name, amount),
                _ => sum.0.push((name, amount)),
            }
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
        serializer.collect_seq(&self.0)
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
        Ok(Self(all.into()))
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

    /// S78.
    #[test]
    fn a_dominant_share_is_the_largest_part_of_what_there_is() {
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
