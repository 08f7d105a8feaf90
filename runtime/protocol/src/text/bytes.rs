//! Amounts of bytes as text, in the form of Mesos.

/// Bytes in the largest unit that has no fraction.
pub fn format(bytes: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let (mut amount, mut unit) = (bytes, 0);
    while amount > 0 && amount % 1024 == 0 && unit + 1 < units.len() {
        amount /= 1024;
        unit += 1;
    }
    format!("{amount}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn unit_is_the_largest_without_a_fraction() {
        for (bytes, text) in [
            (0, "0B"),
            (1000, "1000B"),
            (3 << 10, "3KB"),
            (96 << 20, "96MB"),
            (1 << 50, "1024TB"),
        ] {
            assert_eq!(format(bytes), text);
        }
    }
}
