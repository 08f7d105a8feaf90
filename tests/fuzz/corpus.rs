//! The corpus: interesting inputs, one text file per target in `tests/fixtures/corpus`.
//!
//! A line is hexadecimal bytes, a JSON string for its UTF-8 bytes, or a comment after `#`.

use std::fs;
use std::path::PathBuf;

use crate::target::Target;

/// Maximum total size of the inputs in one file.
pub const BYTES_MAX: usize = 32 << 10;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/corpus")
}

/// Names of all files.
pub fn files() -> Vec<String> {
    let entries = fs::read_dir(folder()).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

/// File name of a target.
pub fn file_of(name: &str) -> String {
    format!("{}.txt", name.replace(['/', ' '], "-"))
}

/// Inputs of a file; none if it is missing.
pub fn inputs(file: &str) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(folder().join(file)).unwrap_or_default();
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let problem = "is neither bytes in hexadecimal nor a JSON string";
            input(line).unwrap_or_else(|| panic!("{file}:{}: {line:?} {problem}", number + 1))
        })
        .collect()
}

/// Parses one line.
pub fn input(line: &str) -> Option<Vec<u8>> {
    if line.starts_with('"') {
        let text: String = serde_json::from_str(line).ok()?;
        return Some(text.into_bytes());
    }
    let line = line.strip_prefix("0x").unwrap_or(line);
    let digits = line.len().is_multiple_of(2) && line.is_ascii();
    digits.then_some(())?;
    (0..line.len() / 2)
        .map(|at| u8::from_str_radix(&line[2 * at..2 * at + 2], 16).ok())
        .collect()
}

/// Formats an input as a line.
pub fn line(target: &Target, input: &[u8]) -> String {
    match std::str::from_utf8(input) {
        Ok(text) if target.text => serde_json::Value::from(text).to_string(),
        _ if input.is_empty() => "0x".to_owned(),
        _ => input.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[test]
fn a_line_is_bytes_or_text() {
    assert_eq!(input("00ff"), Some(vec![0, 255]));
    assert_eq!(input("0x"), Some(Vec::new()));
    assert_eq!(input("\"a\\u0000\""), Some(vec![b'a', 0]));
    assert_eq!((input("0"), input("zz"), input("\"")), (None, None, None));
}
