//! Retention: the decision which images are removed. Pure.

use std::time::Duration;

use runtime::Timestamp;

use crate::fetcher::digest::Digest;

/// When images are removed. Images in use never are.
#[derive(Clone, Debug, PartialEq)]
pub struct RetentionPolicy {
    /// The time between two checks; `None` means that only [`prune`](super::Images::prune) removes
    /// images.
    pub interval: Option<Duration>,
    /// An image that was not used for so long is removed; `None` means never.
    pub age_max: Option<Duration>,
    /// While all images have more bytes, those that were not used for the longest time are removed.
    pub bytes_max: Option<u64>,
    /// The share of the disk that shall be free, 0 to 1. As above while less is.
    pub disk_headroom: f64,
    /// Names of images that are kept.
    pub excluded: Vec<String>,
}

impl Default for RetentionPolicy {
    /// The values of Mesos, where it has them.
    fn default() -> Self {
        Self {
            interval: Some(Duration::from_secs(3600)),
            age_max: Some(Duration::from_secs(7 * 24 * 3600)),
            bytes_max: None,
            disk_headroom: 0.1,
            excluded: Vec::new(),
        }
    }
}

/// The bytes of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// All.
    pub total: u64,
    /// Those that are free.
    pub free: u64,
}

/// An image as the decision sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptImage {
    /// Its id.
    pub digest: Digest,
    /// Its bytes on disk.
    pub bytes: u64,
    /// Its last use.
    pub last_used: Timestamp,
    /// Whether it must stay: a container uses it, or it is excluded.
    pub must_stay: bool,
}

/// The images to remove now, those first that were not used for the longest time.
pub fn removable(
    mut images: Vec<KeptImage>,
    policy: &RetentionPolicy,
    disk: DiskSpace,
    now: Timestamp,
) -> Vec<Digest> {
    let mut bytes: u64 = images.iter().map(|image| image.bytes).sum();
    let mut free = disk.free;
    let headroom = (disk.total as f64 * policy.disk_headroom) as u64;
    images.retain(|image| !image.must_stay);
    images
        .sort_by(|one, other| (one.last_used, &one.digest).cmp(&(other.last_used, &other.digest)));
    let mut removed = Vec::new();
    for image in images {
        let age = now.saturating_since(image.last_used);
        let is_old = policy.age_max.is_some_and(|age_max| age >= age_max);
        let is_full = policy.bytes_max.is_some_and(|bytes_max| bytes > bytes_max);
        if is_old || is_full || free < headroom {
            bytes -= image.bytes;
            free += image.bytes;
            removed.push(image.digest);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images as `name:bytes@last_use`, with `*` if it must stay, at second 100.
    fn check(images: &str, policy: RetentionPolicy, free: u64, expected: &str) {
        let name = |name: &str| Digest::of(name.as_bytes());
        let image = |text: &str| {
            let (text, must_stay) = match text.strip_suffix('*') {
                Some(text) => (text, true),
                None => (text, false),
            };
            let (of, rest) = text.split_once(':').unwrap();
            let (bytes, used) = rest.split_once('@').unwrap();
            KeptImage {
                digest: name(of),
                bytes: bytes.parse().unwrap(),
                last_used: Timestamp::from_nanos(used.parse::<u64>().unwrap() * 1_000_000_000),
                must_stay,
            }
        };
        let all: Vec<KeptImage> = images.split_whitespace().map(image).collect();
        let disk = DiskSpace { total: 1000, free };
        let now = Timestamp::from_nanos(100_000_000_000);
        let expected: Vec<Digest> = expected.split_whitespace().map(name).collect();
        assert_eq!(removable(all, &policy, disk, now), expected, "{images}");
    }

    #[test]
    fn age_space_and_size_decide() {
        let none = || RetentionPolicy {
            age_max: None,
            ..RetentionPolicy::default()
        };
        let old = || RetentionPolicy {
            age_max: Some(Duration::from_secs(50)),
            ..none()
        };
        let small = || RetentionPolicy {
            bytes_max: Some(100),
            ..none()
        };
        let images = "a:60@10 b:60@30 c:60@90";
        check(images, none(), 500, "");
        check(images, old(), 500, "a b");
        check("a:60@10* b:60@50 c:60@51", old(), 500, "b");
        // The clock of the host has jumped back.
        check("a:60@200", old(), 500, "");
        check(images, small(), 500, "a b");
        check("a:60@10 b:30@30 c:60@90", small(), 500, "a");
        check("a:60@10* b:60@30 c:60@90", small(), 500, "b c");
        // A tenth of 1000 bytes shall be free.
        check(images, none(), 100, "");
        check(images, none(), 99, "a");
        check(images, none(), 20, "a b");
        check("a:60@10* b:60@30* c:60@90*", old(), 0, "");
        check("", small(), 0, "");
    }
}
