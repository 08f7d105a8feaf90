//! The validity of certificates, read from their bytes (RFC 5280, 4.1.2.5).

use std::time::Duration;

use runtime::Timestamp;
use rustls_pki_types::CertificateDer;

use super::subject::{element, expect, tag};

/// DER tags of the two forms of a time.
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The period in which a certificate is valid, since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    /// Its first moment.
    pub not_before: Duration,
    /// Its last moment.
    pub not_after: Duration,
}

impl Validity {
    /// An error if the certificate is not valid at this time.
    pub fn check(&self, now: Timestamp) -> Result<(), String> {
        let now = Duration::from_nanos(now.as_nanos());
        if now > self.not_after {
            return Err(format!("expired at {}", date(self.not_after)));
        }
        if now < self.not_before {
            return Err(format!("is valid only from {}", date(self.not_before)));
        }
        Ok(())
    }
}

/// The period in which all certificates of a chain are valid; `None` if one of them cannot be read.
pub(crate) fn validity_of(chain: &[CertificateDer<'_>]) -> Option<Validity> {
    let mut all = chain.iter().map(|certificate| validity(certificate));
    let first = all.next()??;
    all.try_fold(first, |one, other| {
        let other = other?;
        Some(Validity {
            not_before: one.not_before.max(other.not_before),
            not_after: one.not_after.min(other.not_after),
        })
    })
}

fn validity(mut certificate: &[u8]) -> Option<Validity> {
    let mut certificate = expect(&mut certificate, tag::SEQUENCE)?;
    let mut body = expect(&mut certificate, tag::SEQUENCE)?;
    // The optional version and the serial number; then algorithm and issuer.
    if element(&mut body)?.0 == tag::VERSION {
        element(&mut body)?;
    }
    for _ in 0..2 {
        element(&mut body)?;
    }
    let mut validity = expect(&mut body, tag::SEQUENCE)?;
    let mut time = || {
        let (kind, text) = element(&mut validity)?;
        since_epoch(kind, text)
    };
    Some(Validity {
        not_before: time()?,
        not_after: time()?,
    })
}

/// Parses `YYMMDDhhmmssZ` (1950 to 2049) or `YYYYMMDDhhmmssZ`. A time before 1970 counts as 1970.
fn since_epoch(kind: u8, text: &[u8]) -> Option<Duration> {
    let year_digits = match kind {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    let text = text.strip_suffix(b"Z")?;
    if text.len() != year_digits + 10 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits
            .iter()
            .fold(0_i64, |number, digit| 10 * number + i64::from(digit - b'0'))
    };
    let (year, rest) = text.split_at(year_digits);
    let year = match (kind, number(year)) {
        (UTC_TIME, year) if year < 50 => 2000 + year,
        (UTC_TIME, year) => 1900 + year,
        (_, year) => year,
    };
    let mut pairs = rest.chunks(2).map(number);
    let mut next = || pairs.next();
    let (month, day, hour, minute, second) = (next()?, next()?, next()?, next()?, next()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = days_since_epoch(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Days from 1970-01-01 to this day of the Gregorian calendar. Years begin in March, so that a leap
/// day is a year's last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

/// A time since the Unix epoch as `YYYY-MM-DDThh:mm:ssZ`.
fn date(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = day_of(i64::try_from(days).unwrap_or(i64::MAX));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The day of the Gregorian calendar that is `days` after 1970-01-01: the inverse of
/// [`days_since_epoch`].
fn day_of(days: i64) -> (i64, i64, i64) {
    // Never later than the right year, and at most six years off until 4096.
    let year = 1970 + days / 366;
    let begun = |year: &i64| days_since_epoch(*year, 1, 1) <= days;
    let year = (year..).take_while(begun).last().unwrap_or(year);
    let begun = |month: &i64| days_since_epoch(year, *month, 1) <= days;
    let month = (1..=12).take_while(begun).last().unwrap_or(1);
    (year, month, days - days_since_epoch(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_inverse_of_times() {
        for (kind, text, shown) in [
            (UTC_TIME, "700101000000Z", "1970-01-01T00:00:00Z"),
            (UTC_TIME, "240229123456Z", "2024-02-29T12:34:56Z"),
            (UTC_TIME, "491231235959Z", "2049-12-31T23:59:59Z"),
            (GENERALIZED_TIME, "40960101000000Z", "4096-01-01T00:00:00Z"),
        ] {
            assert_eq!(date(since_epoch(kind, text.as_bytes()).unwrap()), shown);
        }
    }

    #[test]
    fn times_of_both_forms_are_read() {
        for (kind, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "750101000000Z", Some(157_766_400)),
            (UTC_TIME, "240229123456Z", Some(1_709_210_096)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "40960101000000Z", Some(67_090_118_400)),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700101000000", None),
            (UTC_TIME, "701301000000Z", None),
            (GENERALIZED_TIME, "700101000000Z", None),
            (tag::UTF8, "700101000000Z", None),
        ] {
            let found = since_epoch(kind, text.as_bytes());
            assert_eq!(found, expected.map(Duration::from_secs), "{text}");
        }
    }
}
