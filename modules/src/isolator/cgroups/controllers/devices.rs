//! Devices: a container may make device nodes, but use only those of a short list, and those of
//! `--allowed_devices`.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};
use serde::Deserialize;

use super::Setting;

/// A kind of device, its numbers (`None` for all), and the access to it (read, write, make).
type Entry<'a> = (char, Option<i32>, Option<i32>, &'a str);

const ALLOWED: [Entry<'static>; 14] = [
    ('c', None, None, "m"),
    ('b', None, None, "m"),
    ('c', Some(5), Some(1), "rwm"),    // console
    ('c', Some(4), Some(0), "rwm"),    // tty0
    ('c', Some(4), Some(1), "rwm"),    // tty1
    ('c', Some(136), None, "rwm"),     // pts/*
    ('c', Some(5), Some(2), "rwm"),    // ptmx
    ('c', Some(10), Some(200), "rwm"), // net/tun
    ('c', Some(1), Some(3), "rwm"),    // null
    ('c', Some(1), Some(5), "rwm"),    // zero
    ('c', Some(1), Some(7), "rwm"),    // full
    ('c', Some(5), Some(0), "rwm"),    // tty
    ('c', Some(1), Some(9), "rwm"),    // urandom
    ('c', Some(1), Some(8), "rwm"),    // random
];

/// `DeviceWhitelist` of Mesos in JSON: the value of `--allowed_devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceWhitelist {
    #[serde(default)]
    allowed_devices: Vec<DeviceAccess>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceAccess {
    device: Device,
    access: Access,
}

/// As in Mesos, only its path counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Device {
    path: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Access {
    read: bool,
    write: bool,
    mknod: bool,
}

impl Access {
    fn letters(self) -> String {
        let all = [(self.read, 'r'), (self.write, 'w'), (self.mknod, 'm')];
        let allowed = all.iter().filter(|(is_allowed, _)| *is_allowed);
        allowed.map(|(_, letter)| letter).collect()
    }
}

/// A device of `--allowed_devices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedDevice {
    kind: char,
    major: i32,
    minor: i32,
    access: String,
}

impl DeviceWhitelist {
    /// Blocking. The devices at these paths of the host.
    pub fn find(&self) -> Result<Vec<AllowedDevice>, String> {
        let entries = self.allowed_devices.iter();
        let found = entries.map(|entry| AllowedDevice::find(&entry.device.path, entry.access));
        found.collect()
    }
}

impl AllowedDevice {
    fn find(path: &Path, access: Access) -> Result<Self, String> {
        let wrong = |found: &str| {
            let path = path.display();
            format!("--allowed_devices: `{path}` {found}: expected a device and access to it")
        };
        if access == Access::default() {
            return Err(wrong("has neither read, write nor mknod"));
        }
        let metadata = path
            .metadata()
            .map_err(|error| wrong(&format!("({error})")))?;
        let kind = match metadata.file_type() {
            kind if kind.is_char_device() => 'c',
            kind if kind.is_block_device() => 'b',
            _ => return Err(wrong("is no device")),
        };
        // The kernel has 12 bits of major and 20 of minor numbers.
        let number = |number: u64| i32::try_from(number).map_err(|_| wrong("has a large number"));
        Ok(Self {
            kind,
            major: number(major(metadata.rdev()))?,
            minor: number(minor(metadata.rdev()))?,
            access: access.letters(),
        })
    }

    fn entry(&self) -> Entry<'_> {
        (self.kind, Some(self.major), Some(self.minor), &self.access)
    }
}

fn entries(more: &[AllowedDevice]) -> impl Iterator<Item = Entry<'_>> {
    ALLOWED
        .into_iter()
        .chain(more.iter().map(AllowedDevice::entry))
}

/// The control files of v1: denies all devices, and then allows those of the list and these.
pub fn whitelist(more: &[AllowedDevice]) -> Vec<Setting> {
    let number = |number: Option<i32>| number.map_or_else(|| "*".to_owned(), |n| n.to_string());
    let allowed = entries(more).map(|(kind, major, minor, access)| {
        let numbers = format!("{}:{}", number(major), number(minor));
        Setting::new("devices.allow", format!("{kind} {numbers} {access}"))
    });
    [Setting::new("devices.deny", "a")]
        .into_iter()
        .chain(allowed)
        .collect()
}

/// Operations of the program, as in `linux/bpf.h`: a load of 32 bits, a copy, constants, a shift,
/// and two conditional jumps.
const LOAD: u8 = 0x61;
const COPY: u8 = 0xbf;
const SET: u8 = 0xb7;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const IF_NOT: u8 = 0x55;
const IF_ANY_BIT: u8 = 0x45;
const EXIT: u8 = 0x95;

/// Its registers: the result and the context of the kernel, and its own.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const ACCESS: u8 = 2;
const KIND: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// The same as a program of v2: returns 1 to allow the access, else 0. The kernel's context is
/// `bpf_cgroup_dev_ctx`: kind (16 bits), access (16 bits), major and minor number.
pub fn program(more: &[AllowedDevice]) -> Vec<u64> {
    let copy = |to, from| instruction(COPY, to, from, 0, 0);
    let load = |to, offset| instruction(LOAD, to, CONTEXT, offset, 0);
    let constant = |operation, register, value| instruction(operation, register, 0, 0, value);
    let exit = instruction(EXIT, 0, 0, 0, 0);
    let mut program = vec![
        load(ACCESS, 0),
        copy(KIND, ACCESS),
        constant(AND, KIND, 0xffff),
        constant(SHIFT_RIGHT, ACCESS, 16),
        load(MAJOR, 4),
        load(MINOR, 8),
    ];
    for (kind, major, minor, access) in entries(more) {
        let kind = if kind == 'b' { 1 } else { 2 };
        let bits = [('m', 1), ('r', 2), ('w', 4)];
        let denied = bits.iter().filter(|(letter, _)| !access.contains(*letter));
        let denied = denied.map(|(_, bit)| bit).sum();
        let mut tests = vec![(IF_NOT, KIND, kind)];
        if denied != 0 {
            tests.push((IF_ANY_BIT, ACCESS, denied));
        }
        tests.extend(major.map(|number| (IF_NOT, MAJOR, number)));
        tests.extend(minor.map(|number| (IF_NOT, MINOR, number)));
        for (at, (operation, register, value)) in tests.iter().enumerate() {
            // Over the further tests and the two instructions of a match.
            let over = (tests.len() + 1 - at) as i16;
            program.push(instruction(*operation, *register, 0, over, *value));
        }
        program.extend([constant(SET, RESULT, 1), exit]);
    }
    program.extend([constant(SET, RESULT, 0), exit]);
    program
}

/// `struct bpf_insn` of a little-endian machine.
fn instruction(operation: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = value.to_le_bytes();
    u64::from_le_bytes([operation, to | from << 4, low, high, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_denied_before_some_are_allowed() {
        let settings = whitelist(&[]);
        assert_eq!(settings[0], Setting::new("devices.deny", "a"));
        assert_eq!(settings.len(), 1 + ALLOWED.len());
        assert_eq!(settings[1], Setting::new("devices.allow", "c *:* m"));
        assert_eq!(settings[6], Setting::new("devices.allow", "c 136:* rwm"));
    }

    fn parse(text: &str) -> Result<Vec<AllowedDevice>, String> {
        let whitelist: DeviceWhitelist =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        whitelist.find()
    }

    #[test]
    fn devices_of_the_operator_are_added() {
        let entry = |path: &str, access: &str| {
            format!(r#"{{"device":{{"path":"{path}"}},"access":{{{access}}}}}"#)
        };
        let list = |entries: &[String]| format!(r#"{{"allowed_devices":[{}]}}"#, entries.join(","));
        let text = list(&[
            entry("/dev/null", r#""read":true,"write":false"#),
            entry("/dev/zero", r#""read":true,"write":true,"mknod":true"#),
        ]);
        let found = parse(&text).unwrap();
        let settings = whitelist(&found);
        let added = [
            Setting::new("devices.allow", "c 1:3 r"),
            Setting::new("devices.allow", "c 1:5 rwm"),
        ];
        assert_eq!(settings[1 + ALLOWED.len()..], added);
        assert_eq!(parse("{}"), Ok(Vec::new()));
        for (path, access, problem) in [
            ("/dev/missing", r#""read":true"#, "No such file"),
            ("/", r#""read":true"#, "is no device"),
            ("/dev/null", r#""read":false"#, "has neither"),
        ] {
            let error = parse(&list(&[entry(path, access)])).unwrap_err();
            assert!(error.contains(problem) && error.contains(path), "{error}");
        }
        assert!(parse(r#"{"allowed_devices":[{"device":{}}]}"#).is_err());

        let more = [AllowedDevice {
            kind: 'b',
            major: 7,
            minor: 3,
            access: "r".to_owned(),
        }];
        let program = program(&more);
        let opens = |access: u32, minor| run(&program, [access << 16 | 1, 7, minor]);
        assert_eq!((opens(2, 3), opens(4, 3), opens(2, 4)), (1, 0, 0));
    }

    /// Runs the program as the kernel does.
    fn run(program: &[u64], context: [u32; 3]) -> u64 {
        let (mut registers, mut at) = ([0_u64; 6], 0);
        loop {
            let [operation, both, low, high, a, b, c, d] = program[at].to_le_bytes();
            let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
            let offset = usize::from(u16::from_le_bytes([low, high]));
            let value = u64::from(u32::from_le_bytes([a, b, c, d]));
            at += 1;
            match operation {
                LOAD => registers[to] = u64::from(context[offset / 4]),
                COPY => registers[to] = registers[from],
                SET => registers[to] = value,
                AND => registers[to] &= value,
                SHIFT_RIGHT => registers[to] >>= value,
                IF_NOT if registers[to] != value => at += offset,
                IF_ANY_BIT if registers[to] & value != 0 => at += offset,
                IF_NOT | IF_ANY_BIT => {}
                EXIT => return registers[usize::from(RESULT)],
                _ => panic!("{operation:#x}"),
            }
        }
    }

    #[test]
    fn program_allows_the_same_as_the_list() {
        let program = program(&[]);
        let numbers = [0, 1, 3, 4, 5, 7, 8, 9, 10, 11, 136, 200, 1 << 20];
        for (kind, code) in [('b', 1), ('c', 2)] {
            for access in 1..8 {
                let letters = "mrw".chars().zip([1, 2, 4]);
                let letters = letters.filter(|(_, bit)| access & bit != 0);
                let letters: Vec<char> = letters.map(|(letter, _)| letter).collect();
                for (major, minor) in numbers.iter().flat_map(|a| numbers.map(|b| (*a, b))) {
                    let is_allowed = ALLOWED.iter().any(|entry| {
                        entry.0 == kind
                            && entry.1.is_none_or(|number| number == major)
                            && entry.2.is_none_or(|number| number == minor)
                            && letters.iter().all(|letter| entry.3.contains(*letter))
                    });
                    let context = [access << 16 | code, major as u32, minor as u32];
                    let result = run(&program, context);
                    assert_eq!(result, u64::from(is_allowed), "{kind} {context:x?}");
                }
            }
        }
    }
}
