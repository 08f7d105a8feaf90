//! Parsing and formatting of durations in the form of Mesos: a number and a unit, as in `15secs`,
//! `0ns`, `1.5mins`.

use std::time::Duration;

/// Units with their nanoseconds, longest first.
const UNITS: [(&str, f64); 8] = [
    ("weeks", 604_800e9),
    ("days", 86_400e9),
    ("hrs", 3_600e9),
    ("mins", 60e9),
    ("secs", 1e9),
    ("ms", 1e6),
    ("us", 1e3),
    ("ns", 1.0),
];

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a duration: expected a number of at least 0 and one of ns, us, ms, secs, mins, hrs, days, weeks, as in `15secs`"
)]
pub struct InvalidDuration {
    /// The text, cut to 80 characters.
    pub text: String,
}

/// Parses texts such as `15secs`, `0ns` and `2.5mins`.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration {
        text: text.chars().take(80).collect(),
    };
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(invalid)?;
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number.trim().parse().map_err(|_| invalid())?;
    let (_, nanoseconds) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(invalid)?;
    let total = number * nanoseconds;
    if !total.is_finite() || total < 0.0 || total > u64::MAX as f64 {
        return Err(invalid());
    }
    Ok(Duration::from_nanos(total.round() as u64))
}

/// Formats in the longest unit that divides the duration evenly.
pub fn format(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    let even = |length: &f64| nanoseconds.is_multiple_of(*length as u128);
    match UNITS
        .iter()
        .find(|(_, length)| nanoseconds > 0 && even(length))
    {
        Some((unit, length)) => format!("{}{unit}", nanoseconds / *length as u128),
        None => "0ns".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Covers S39 in part: the durations.
    #[test]
    fn durations_of_mesos_parse() {
        for (text, nanoseconds) in [
            ("15secs", 15_000_000_000),
            ("0ns", 0),
            ("20secs", 20_000_000_000),
            ("1.5mins", 90_000_000_000),
        ] {
            assert_eq!(
                parse(text).unwrap(),
                Duration::from_nanos(nanoseconds),
                "{text}"
            );
        }
        assert_eq!(format(Duration::from_secs(90)), "90secs");
        assert_eq!(format(Duration::ZERO), "0ns");
        assert_eq!(format(Duration::from_secs(120)), "2mins");
    }

    #[test]
    fn invalid_durations_are_quoted_in_the_error() {
        for text in [
            "",
            "15",
            "secs",
            "-1secs",
            "1fortnights",
            "NaNsecs",
            "infsecs",
            "1e300weeks",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }
}
