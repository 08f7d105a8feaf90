//! Amounts: fixed point, exact to a thousandth, never negative.
//!
//! Mesos rounds doubles to thousandths before each comparison. Here they are rounded once on input,
//! and are integers from then on.

use std::fmt;
use std::iter::Sum;
use std::ops::AddAssign;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Invalid;

/// An amount of a resource in thousandths of its unit (cpus: millicpus; mem and disk: thousandths
/// of a megabyte). Never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Scalar(i64);

impl Scalar {
    /// Zero.
    pub const ZERO: Scalar = Scalar(0);

    /// Maximum amount from a text or JSON, in units: up to here a double has exact thousandths, and
    /// nine thousand of them add up without overflow.
    pub const INPUT_MAX: f64 = 1e12;

    /// The amount nearest to `units`, in thousandths.
    pub fn new(units: f64) -> Result<Self, Invalid> {
        let sound = units.is_finite() && !units.is_subnormal() && units >= 0.0;
        if !sound || units > Self::INPUT_MAX {
            return Err(Invalid::new(
                "scalar",
                units,
                "a number from 0 to 1000000000000",
            ));
        }
        Ok(Self((units * 1000.0).round() as i64))
    }

    /// The amount of `thousandths`, if it is not negative.
    pub fn from_thousandths(thousandths: i64) -> Result<Self, Invalid> {
        if thousandths < 0 {
            return Err(Invalid::new(
                "scalar",
                thousandths,
                "no negative number of thousandths",
            ));
        }
        Ok(Self(thousandths))
    }

    /// The amount of `units` whole units.
    pub const fn whole(units: u32) -> Self {
        Self(units as i64 * 1000)
    }

    /// The amount in thousandths.
    pub const fn thousandths(self) -> i64 {
        self.0
    }

    /// The amount in units, for JSON and shares.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// Whether it is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether it is a whole number of units.
    pub const fn is_whole(self) -> bool {
        self.0 % 1000 == 0
    }

    /// The sum, unless it overflows.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The sum, at most the maximum.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, if `other` is not larger.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        (self.0 >= other.0).then(|| Self(self.0 - other.0))
    }

    /// The difference, at least zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        if self.0 > other.0 {
            Self(self.0 - other.0)
        } else {
            Self(0)
        }
    }

    /// The product with `times`, at most the maximum.
    pub const fn saturating_mul(self, times: u32) -> Self {
        Self(self.0.saturating_mul(times as i64))
    }
}

impl AddAssign for Scalar {
    fn add_assign(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}

impl Sum for Scalar {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::saturating_add)
    }
}

impl FromStr for Scalar {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let expected = "a number from 0 to 1000000000000";
        let units: f64 = text
            .parse()
            .map_err(|_| Invalid::new("scalar", text, expected))?;
        Self::new(units).map_err(|_| Invalid::new("scalar", text, expected))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (units, rest) = (self.0 / 1000, self.0 % 1000);
        if rest == 0 {
            return write!(f, "{units}");
        }
        let digits = format!("{rest:03}");
        write!(f, "{units}.{}", digits.trim_end_matches('0'))
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_thousandths(i64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPEC 2.8, resource arithmetic.
    // Covers S73 in part: the fractions.
    #[test]
    fn amounts_are_rounded_to_thousandths_once() {
        let thousandths = |units: f64| Scalar::new(units).unwrap().thousandths();
        assert_eq!(thousandths(0.45), 450);
        assert_eq!(thousandths(0.1 + 0.2), 300);
        assert_eq!(thousandths(0.0005), 1);
        assert_eq!(thousandths(0.0004), 0);
        assert_eq!(thousandths(-0.0), 0);
        assert_eq!(thousandths(1e12), 1_000_000_000_000_000);
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for bad in [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1.0,
            -0.001,
            1e-310,
            1.1e12,
        ] {
            assert!(Scalar::new(bad).is_err(), "{bad}");
        }
        for bad in ["", "x", "nan", "inf", "-1", "1e400"] {
            assert!(bad.parse::<Scalar>().is_err(), "{bad}");
        }
        assert!(Scalar::from_thousandths(-1).is_err());
    }

    #[test]
    fn amounts_print_without_needless_digits() {
        for text in ["0", "1", "0.1", "0.45", "2048", "1.005", "0.001"] {
            assert_eq!(text.parse::<Scalar>().unwrap().to_string(), text);
        }
    }
}
