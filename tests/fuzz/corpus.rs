//! The corpus: interesting inputs, one text file per target in `tests/fixtures/corpus`.
//!
//! A line is hexadecimal bytes, a JSON string for its UTF-8 bytes, or a comment after `#`. Lines
//! are only appended.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use crate::target::Target;

/// Maximum total size of the inputs in one file.
pub const BYTES_MAX: usize = 32 << 10;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/corpus")
}

/// File name of a target.
pub fn file_of(name: &str) -> String {
    format!("{}.txt", name.replace(['/', ' '], "-"))
}

/// All files with their inputs.
pub fn all() -> Vec<(String, Vec<Vec<u8>>)> {
    let entries = fs::read_dir(folder()).map(|entries| entries.flatten().collect());
    let mut files: Vec<String> = entries
        .unwrap_or_else(|_| Vec::new())
        .iter()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(folder().join(&file)).unwrap_or_default();
            (file.clone(), read(&file, &text))
        })
        .collect()
}

/// Inputs of a target.
pub fn of(name: &str) -> Vec<Vec<u8>> {
    let file = file_of(name);
    let text = fs::read_to_string(folder().join(&file)).unwrap_or_default();
    read(&file, &text)
}

fn read(file: &str, text: &str) -> Vec<Vec<u8>> {
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            input(line).unwrap_or_else(|| {
                panic!(
                    "{file}:{}: {line:?} is neither bytes in hexadecimal nor a JSON string",
                    number + 1
                )
            })
        })
        .collect()
}

/// Parses one line.
pub fn input(line: &str) -> Option<Vec<u8>> {
    if line.starts_with('"') {
        return serde_json::from_str::<String>(line)
            .ok()
            .map(String::into_bytes);
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

/// Appends an input to its target's file, below a comment. Returns the path.
pub fn add(target: &Target, input: &[u8], remark: &str) -> std::io::Result<String> {
    fs::create_dir_all(folder())?;
    let file = file_of(&target.name);
    let mut opened = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder().join(&file))?;
    if !remark.is_empty() {
        writeln!(opened, "# {remark}")?;
    }
    writeln!(opened, "{}", line(target, input))?;
    Ok(format!("tests/fixtures/corpus/{file}"))
}

#[test]
fn a_line_is_bytes_or_text() {
    assert_eq!(input("00ff"), Some(vec![0, 255]));
    assert_eq!(input("0x"), Some(Vec::new()));
    assert_eq!(input("\"a\\u0000\""), Some(vec![b'a', 0]));
    assert_eq!((input("0"), input("zz"), input("\"")), (None, None, None));
}
