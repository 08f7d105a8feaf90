//! Assertions that show the value when they fail.

use std::fmt::Debug;

/// Asserts that a text contains each of these parts.
#[macro_export]
macro_rules! assert_contains {
    ($text:expr, $($part:expr),+ $(,)?) => {
        $crate::asserts::contains(&*$text, &[$(&*$part),+])
    };
}

/// Asserts that a text starts with this one.
#[macro_export]
macro_rules! assert_starts {
    ($text:expr, $start:expr $(,)?) => {
        $crate::asserts::starts(&*$text, &*$start)
    };
}

/// Asserts that a value matches a pattern.
#[macro_export]
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        match $value {
            $pattern $(if $guard)? => {}
            ref other => $crate::asserts::differs(other, stringify!($pattern $(if $guard)?)),
        }
    };
}

/// Panics unless the text contains all parts.
#[track_caller]
pub fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

/// Panics unless the text starts with this one.
#[track_caller]
pub fn starts(text: &str, start: &str) {
    assert!(text.starts_with(start), "expected {start:?} before: {text}");
}

/// Panics with the value that does not match.
#[track_caller]
pub fn differs(value: &dyn Debug, pattern: &str) -> ! {
    panic!("expected {pattern}: {value:?}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_assertion_holds_or_panics() {
        let fails = |check: fn()| assert!(std::panic::catch_unwind(check).is_err());
        assert_contains!("one two", "one", "two");
        assert_starts!(String::from("one two"), "one");
        assert_matches!(Some(3), Some(number) if number > 2);
        fails(|| assert_contains!("one two", "one", "three"));
        fails(|| assert_starts!("one two", "two"));
        fails(|| assert_matches!(Some(1), Some(number) if number > 2));
        fails(|| assert_matches!(None::<u8>, Some(_)));
    }
}
