//! Block devices: input and output, counted, and limited only for throttled containers.

use std::collections::BTreeMap;

use module_api::isolator::ContainerResources;
use protocol::ResourceStatistics;
use protocol::usage::{BlockOperations, BlockStatistics, Throttle};

use super::{Setting, Version};

type Device = (u32, u32);

/// The weight of a container that is not throttled, which is the kernel's default.
const WEIGHT: u64 = 100;

/// The control files of a container that was throttled once. A weight needs the scheduler BFQ, or
/// in v2 the controller of costs; without them there is no file.
pub fn settings(version: Version, resources: &ContainerResources) -> Vec<Setting> {
    let Some(throttle) = resources.throttle else {
        return Vec::new();
    };
    let part = |degree| WEIGHT * u64::from(degree) / u64::from(Throttle::WHOLE);
    let weight = throttle.io.map_or(WEIGHT, part).max(1);
    let files: &[_] = match version {
        Version::V1 => &["blkio.bfq.weight"],
        Version::V2 => &["io.weight", "io.bfq.weight"],
    };
    let files = files.iter();
    files
        .map(|file| Setting::new(file, weight).optional())
        .collect()
}

/// The amount of one kind of operation.
fn amount<'a>(of: &'a mut BlockOperations, operation: &str) -> Option<&'a mut u64> {
    match operation {
        "Read" => Some(&mut of.read),
        "Write" => Some(&mut of.write),
        "Discard" => Some(&mut of.discard),
        _ => None,
    }
}

fn device(text: &str) -> Option<Device> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn of(found: &mut BTreeMap<Device, BlockStatistics>, device: Device) -> &mut BlockStatistics {
    found.entry(device).or_insert_with(|| BlockStatistics {
        device,
        ..BlockStatistics::default()
    })
}

/// Statistics from `blkio.throttle.io_service_bytes` and `blkio.throttle.io_serviced` of v1, with
/// lines `major:minor operation number`.
pub fn measure_v1(bytes: &str, requests: &str, into: &mut ResourceStatistics) {
    let mut found = BTreeMap::new();
    let both = bytes.lines().map(|line| (line, true));
    for (line, is_bytes) in both.chain(requests.lines().map(|line| (line, false))) {
        let mut words = line.split_whitespace();
        let (Some(device), Some(operation)) = (words.next().and_then(device), words.next()) else {
            continue; // The sum of all devices.
        };
        let own = of(&mut found, device);
        let own = if is_bytes {
            &mut own.bytes
        } else {
            &mut own.requests
        };
        let number = words.next().and_then(|number| number.parse().ok());
        if let (Some(own), Some(number)) = (amount(own, operation), number) {
            *own = number;
        }
    }
    into.blkio = found.into_values().collect();
}

/// Statistics from `io.stat` of v2, with lines `major:minor rbytes=number ...`.
pub fn measure_v2(text: &str, into: &mut ResourceStatistics) {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(device) = words.next().and_then(device) else {
            continue;
        };
        for word in words {
            let Some((key, Ok(number))) = word.split_once('=').map(|(k, n)| (k, n.parse())) else {
                continue;
            };
            let own = of(&mut found, device);
            match key {
                "rbytes" => own.bytes.read = number,
                "wbytes" => own.bytes.write = number,
                "dbytes" => own.bytes.discard = number,
                "rios" => own.requests.read = number,
                "wios" => own.requests.write = number,
                "dios" => own.requests.discard = number,
                _ => {}
            }
        }
    }
    into.blkio = found.into_values().collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttled_container_has_less_weight() {
        let written = |throttle| {
            let resources = ContainerResources {
                throttle,
                ..ContainerResources::default()
            };
            let settings = settings(Version::V2, &resources);
            settings
                .into_iter()
                .map(|one| one.value)
                .collect::<Vec<_>>()
        };
        let io = |degree| {
            Some(Throttle {
                io: degree,
                ..Throttle::default()
            })
        };
        assert!(written(None).is_empty(), "never throttled");
        assert_eq!(written(io(Some(250))), ["25", "25"]);
        assert_eq!(written(io(Some(1))), ["1", "1"]);
        assert_eq!(written(io(None)), ["100", "100"], "restored");
    }

    #[test]
    fn devices_are_read_in_both_versions() {
        let mut v1 = ResourceStatistics::default();
        let bytes = "254:0 Read 4096\n254:0 Write 512\n254:0 Sync 4608\n254:0 Async 0\n\
                     254:0 Discard 7\n254:0 Total 4615\nTotal 4615\n";
        measure_v1(bytes, "254:0 Read 2\n254:0 Write 1\nTotal 3\n", &mut v1);
        let expected = BlockStatistics {
            device: (254, 0),
            bytes: BlockOperations {
                read: 4096,
                write: 512,
                discard: 7,
            },
            requests: BlockOperations {
                read: 2,
                write: 1,
                discard: 0,
            },
        };
        assert_eq!(v1.blkio, [expected]);
        let mut v2 = ResourceStatistics::default();
        let text =
            "7:0 \n254:0 rbytes=4096 wbytes=512 rios=2 wios=1 dbytes=7 dios=0 cost.usage=3\n";
        measure_v2(text, &mut v2);
        assert_eq!(v2.blkio, [expected]);
        measure_v1("", "nonsense\n", &mut v1);
        assert_eq!(v1.blkio, []);
    }
}
