//! Devices: a container may make device nodes, but use only those of a short list.

use super::Setting;

/// Kind, numbers and access (read, write, make).
const ALLOWED: [&str; 14] = [
    "c *:* m",
    "b *:* m",
    "c 5:1 rwm",    // console
    "c 4:0 rwm",    // tty0
    "c 4:1 rwm",    // tty1
    "c 136:* rwm",  // pts/*
    "c 5:2 rwm",    // ptmx
    "c 10:200 rwm", // net/tun
    "c 1:3 rwm",    // null
    "c 1:5 rwm",    // zero
    "c 1:7 rwm",    // full
    "c 5:0 rwm",    // tty
    "c 1:9 rwm",    // urandom
    "c 1:8 rwm",    // random
];

/// Denies all devices, and then allows those of the list.
pub fn whitelist() -> Vec<Setting> {
    let allowed = ALLOWED.map(|entry| Setting::new("devices.allow", entry));
    [Setting::new("devices.deny", "a")]
        .into_iter()
        .chain(allowed)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_denied_before_some_are_allowed() {
        let settings = whitelist();
        assert_eq!(settings[0], Setting::new("devices.deny", "a"));
        assert_eq!(settings.len(), 1 + ALLOWED.len());
        assert!(
            settings[1..]
                .iter()
                .all(|setting| setting.file == "devices.allow")
        );
    }
}
