//! Build information, in the form of Mesos.
//!
//! Builds are reproducible: they contain no time, place or user of their own. `SOURCE_DATE_EPOCH`
//! in the compiler's environment, as in other reproducible builds, sets the build time. Without it
//! there is none. The build user is always empty.

use v1::MESOS_VERSION;
use v1::schema::VersionInfo;

/// Build time in seconds since 1970-01-01 UTC; 0 if unknown.
pub fn time() -> u64 {
    option_env!("SOURCE_DATE_EPOCH")
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or_default()
}

/// Build time in UTC, as `2026-11-24 13:30:00`; empty if unknown.
pub fn date() -> String {
    text(time())
}

/// Version and build of a service. Every key is present, since some clients index them; the git
/// keys are empty.
pub fn version_info() -> VersionInfo {
    VersionInfo {
        version: MESOS_VERSION.to_owned(),
        build_date: Some(date()),
        build_time: Some(time() as f64),
        build_user: Some(String::new()),
        git_sha: Some(String::new()),
        git_branch: Some(String::new()),
        git_tag: Some(String::new()),
    }
}

fn text(seconds: u64) -> String {
    // Later than any build, and far from overflow.
    const SECONDS_MAX: u64 = 1 << 40;
    if seconds == 0 || seconds > SECONDS_MAX {
        return String::new();
    }
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is the last day; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month < 3);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_dates_are_readable_or_empty() {
        for (seconds, expected) in [
            (0, ""),
            (1, "1970-01-01 00:00:01"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_799, "2000-02-29 23:59:59"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (1_795_527_000, "2026-11-24 13:30:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (u64::MAX, ""),
        ] {
            assert_eq!(text(seconds), expected);
        }
    }

    /// SPEC 2.6, GET_VERSION: the keys that tools read exist also if the build time is unknown.
    #[test]
    fn build_date_and_build_time_agree() {
        let info = version_info();
        assert_eq!(info.build_time, Some(time() as f64));
        assert_eq!(
            info.build_date.is_some_and(|date| date.is_empty()),
            time() == 0
        );
        assert_eq!(
            (info.version.as_str(), info.build_user.as_deref()),
            ("1.11.0", Some(""))
        );
    }
}
