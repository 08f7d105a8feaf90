//! Of which build a process is, in Mesos' words.
//!
//! A build bears nothing of its own, neither the hour nor the place nor who made it, so that the same source is the same program. When its source was made may be told it as to other
//! reproducible builds, by `SOURCE_DATE_EPOCH` in the environment of the compiler: that is its time. Without it there is none, and who built it is never said.

use v1::MESOS_VERSION;
use v1::schema::VersionInfo;

/// In seconds since 1970-01-01 UTC; 0 where it is not known.
pub fn time() -> u64 {
    option_env!("SOURCE_DATE_EPOCH")
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or_default()
}

/// The same in UTC, as `2026-11-24 13:30:00`; empty where it is not known.
pub fn date() -> String {
    text(time())
}

/// The version and the build of a service, as Mesos' clients read them. Every key is there, since some clients index
/// them; a build knows no commit.
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
    // Later than any build, and far from where numbers end.
    const SECONDS_MAX: u64 = 1 << 40;
    if seconds == 0 || seconds > SECONDS_MAX {
        return String::new();
    }
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the odd day is their last; there are 146,097 days in 400 years.
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
    fn a_moment_is_told_as_people_write_it_and_none_as_nothing() {
        for (seconds, told) in [
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
            assert_eq!(text(seconds), told);
        }
    }

    /// SPEC 2.6, GET_VERSION: the keys that tools read are there also where nobody has said when it was built.
    #[test]
    fn a_build_tells_its_time_in_one_word_everywhere() {
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
