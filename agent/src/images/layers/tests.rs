//! Layers, good and hostile, made here.

use std::fs as std_fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

use super::*;

const FILE: EntryType = EntryType::Regular;
const DIRECTORY: EntryType = EntryType::Directory;
const SYMLINK: EntryType = EntryType::Symlink;
const LINK: EntryType = EntryType::Link;

/// An entry: its name, type, mode, content or target.
type Made<'a> = (&'a str, EntryType, u32, &'a str);

fn tar(entries: &[Made]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for &(name, kind, mode, content) in entries {
        let mut header = tar::Header::new_gnu();
        // The crate itself would refuse the names of some tests.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(1234);
        header.set_gid(4321);
        header.set_mtime(1_000_000_000);
        let mut data = content.as_bytes();
        if [SYMLINK, LINK].contains(&kind) {
            header.as_gnu_mut().unwrap().linkname[..content.len()].copy_from_slice(data);
            data = b"";
        }
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap()
}

/// A root between other directories, which must not change.
struct Root {
    directory: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std_fs::create_dir(directory.path().join("root")).unwrap();
        std_fs::create_dir(directory.path().join("outside")).unwrap();
        std_fs::write(directory.path().join("outside/f"), "host").unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    fn within(&self, layers: &[Vec<u8>], bounds: UnpackBounds) -> Result<Unpacked, String> {
        let mut unpacker = Unpacker::new(&self.path(""), bounds).unwrap();
        let applied = layers
            .iter()
            .try_for_each(|layer| unpacker.apply(layer.as_slice()).map(drop));
        let done = applied.and_then(|()| unpacker.finish());
        self.check_outside();
        done
    }

    fn check_outside(&self) {
        let outside = std_fs::read_dir(self.directory.path().join("outside")).unwrap();
        assert_eq!(outside.count(), 1);
        let outside = std_fs::read_to_string(self.directory.path().join("outside/f"));
        assert_eq!(outside.unwrap(), "host");
    }

    fn unpack(&self, layers: &[&[Made]]) -> Result<Unpacked, String> {
        let layers: Vec<_> = layers.iter().map(|layer| tar(layer)).collect();
        self.within(&layers, UnpackBounds::default())
    }

    /// All paths, with the content of files.
    fn tree(&self) -> Vec<String> {
        fn walk(root: &Path, path: &Path, found: &mut Vec<String>) {
            for entry in std_fs::read_dir(path).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().display().to_string();
                let kind = std_fs::symlink_metadata(&path).unwrap();
                if kind.is_dir() {
                    found.push(format!("{name}/"));
                    walk(root, &path, found);
                } else if kind.is_symlink() {
                    let target = std_fs::read_link(&path).unwrap();
                    found.push(format!("{name}>{}", target.display()));
                } else {
                    found.push(format!("{name}={}", std_fs::read_to_string(&path).unwrap()));
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.path(""), &self.path(""), &mut found);
        found.sort();
        found
    }
}

fn check(layers: &[&[Made]], tree: &[&str]) {
    let root = Root::new();
    root.unpack(layers).unwrap();
    assert_eq!(root.tree(), tree);
}

#[test]
fn entries_have_their_attributes() {
    let root = Root::new();
    let layer: &[Made] = &[
        ("./", DIRECTORY, 0o755, ""),
        ("d/", DIRECTORY, 0o500, ""),
        ("d/run", FILE, 0o4755, "run"),
        ("/deep/er/f", FILE, 0o640, "f"),
        ("d/up", SYMLINK, 0o777, "../deep/er/f"),
        ("same", LINK, 0o644, "/d/run"),
        ("old/", FILE, 0o700, ""),
        ("straße", FILE, 0o644, "ß"),
    ];
    let unpacked = root.unpack(&[layer]).unwrap();
    assert_eq!((unpacked.entries, unpacked.skipped), (10, 0));
    let about = |name: &str| std_fs::symlink_metadata(root.path(name)).unwrap();
    assert_eq!(about("d/run").mode() & 0o7777, 0o4755);
    assert_eq!(about("d/run").ino(), about("same").ino());
    assert_eq!(about("d").permissions().mode() & 0o7777, 0o500);
    assert_eq!(about("deep/er").permissions().mode() & 0o7777, 0o755);
    assert!(about("old").is_dir());
    for name in ["d", "d/run", "d/up", "deep/er/f"] {
        assert_eq!(about(name).mtime(), 1_000_000_000, "{name}");
    }
    if nix::unistd::geteuid().is_root() {
        for name in ["d", "d/run", "d/up", "deep/er/f"] {
            assert_eq!(
                (about(name).uid(), about(name).gid()),
                (1234, 4321),
                "{name}"
            );
        }
        assert_eq!(about("deep/er").uid(), 0);
    }
    assert_eq!(std_fs::read_to_string(root.path("d/up")).unwrap(), "f");
}

// Covers 5.12 Images in part: whiteouts.
#[test]
fn whiteouts_remove_entries_of_lower_layers() {
    let lower: &[Made] = &[
        ("a/b/x", FILE, 0o644, "1"),
        ("a/y", FILE, 0o644, "1"),
        ("z", FILE, 0o644, "1"),
        ("link", SYMLINK, 0o777, "a"),
    ];
    let hides = |name| (name, FILE, 0o644, "");
    check(
        &[lower, &[hides(".wh.z")]],
        &["a/", "a/b/", "a/b/x=1", "a/y=1", "link>a"],
    );
    check(&[lower, &[hides(".wh.a")]], &["link>a", "z=1"]);
    check(
        &[lower, &[hides(".wh.link")]],
        &["a/", "a/b/", "a/b/x=1", "a/y=1", "z=1"],
    );
    check(
        &[lower, &[hides("a/.wh.b")]],
        &["a/", "a/y=1", "link>a", "z=1"],
    );
    check(
        &[lower, &[hides("link/.wh.b")]],
        &["a/", "a/y=1", "link>a", "z=1"],
    );
    check(
        &[lower, &[hides("none/.wh.b"), hides(".wh.none")]],
        &["a/", "a/b/", "a/b/x=1", "a/y=1", "link>a", "z=1"],
    );
    // Metadata of other file systems.
    check(&[&[hides(".wh..wh.plnk/1.2"), hides(".wh..wh.aufs")]], &[]);
}

#[test]
fn whiteout_keeps_its_own_layer_in_any_order() {
    let lower: &[Made] = &[("a/b/x", FILE, 0o644, "1"), ("a/y", FILE, 0o644, "1")];
    let (opaque, new) = (
        ("a/.wh..wh..opq", FILE, 0o644, ""),
        ("a/b/new", FILE, 0o644, "2"),
    );
    let directories = [("a/", DIRECTORY, 0o755, ""), ("a/b/", DIRECTORY, 0o755, "")];
    for layer in [
        [directories[0], directories[1], opaque, new],
        [directories[0], directories[1], new, opaque],
        [opaque, directories[0], directories[1], new],
    ] {
        check(&[lower, &layer], &["a/", "a/b/", "a/b/new=2"]);
    }
    let whiteout = (".wh.a", FILE, 0o644, "");
    check(&[lower, &[new, whiteout]], &["a/", "a/b/", "a/b/new=2"]);
    check(&[lower, &[whiteout, new]], &["a/", "a/b/", "a/b/new=2"]);
}

#[test]
fn later_entries_replace_earlier_ones_of_any_type() {
    let file = ("x", FILE, 0o644, "1");
    let directory = ("x/f", FILE, 0o644, "2");
    check(
        &[&[file], &[("x/", DIRECTORY, 0o755, ""), directory]],
        &["x/", "x/f=2"],
    );
    check(&[&[directory], &[file]], &["x=1"]);
    check(&[&[directory], &[("x", SYMLINK, 0o777, "y")]], &["x>y"]);
    check(
        &[
            &[("x", SYMLINK, 0o777, "y"), ("y", FILE, 0o644, "1")],
            &[file],
        ],
        &["x=1", "y=1"],
    );
    // A hard link is replaced, not written through.
    check(
        &[&[file, ("y", LINK, 0o644, "x")], &[("y", FILE, 0o644, "2")]],
        &["x=1", "y=2"],
    );
    check(&[&[file, ("x", LINK, 0o644, "x")]], &["x=1"]);
    check(
        &[&[file, ("y", FILE, 0o644, "2")], &[("x", LINK, 0o644, "y")]],
        &["x=2", "y=2"],
    );
}

#[test]
fn nothing_is_written_outside_the_root() {
    let root = Root::new();
    let outside = root.directory.path().join("outside");
    let outside = outside.to_str().unwrap();
    let absolute = ("out", SYMLINK, 0o777, outside);
    let upward = ("up", SYMLINK, 0o777, "../../../outside");
    // Links are resolved below the root: there the path is made or missing.
    for (layers, is_done) in [
        (vec![&[absolute, ("out/f", FILE, 0o644, "evil")][..]], false),
        (
            vec![&[absolute][..], &[("out/new", FILE, 0o644, "evil")]],
            false,
        ),
        (vec![&[upward][..], &[("up/f", FILE, 0o644, "evil")]], false),
        (
            vec![&[absolute][..], &[("out/.wh.f", FILE, 0o644, "")]],
            true,
        ),
        (
            vec![&[upward][..], &[("up/.wh..wh..opq", FILE, 0o644, "")]],
            true,
        ),
        (vec![&[absolute, ("l", LINK, 0o644, "out/f")][..]], false),
        (vec![&[("l", LINK, 0o644, "../outside/f")][..]], false),
        (vec![&[("../outside/f", FILE, 0o644, "evil")][..]], false),
        (
            vec![&[("a/../../outside/f", FILE, 0o644, "evil")][..]],
            false,
        ),
        (
            vec![&[("a/.wh...", FILE, 0o644, ""), ("a/.wh..", FILE, 0o644, "")][..]],
            false,
        ),
        // A directory that becomes a link, and a link that becomes a directory.
        (
            vec![
                &[("d/f", FILE, 0o644, "1")][..],
                &[("d", SYMLINK, 0o777, outside)],
                &[("d/f", FILE, 0o644, "2")],
            ],
            false,
        ),
        (
            vec![
                &[absolute][..],
                &[("out/", DIRECTORY, 0o755, ""), ("out/f", FILE, 0o644, "2")],
            ],
            true,
        ),
        // The last component is never followed.
        (vec![&[absolute][..], &[("out", FILE, 0o644, "2")]], true),
        (
            vec![&[("f", SYMLINK, 0o777, outside), ("f", FILE, 0o644, "2")][..]],
            true,
        ),
    ] {
        let root = Root {
            directory: tempfile::tempdir_in(root.directory.path()).unwrap(),
        };
        std_fs::create_dir(root.path("")).unwrap();
        std_fs::create_dir(root.directory.path().join("outside")).unwrap();
        std_fs::write(root.directory.path().join("outside/f"), "host").unwrap();
        let done = root.unpack(&layers);
        assert_eq!(done.is_ok(), is_done, "{layers:?}: {done:?}");
    }
    let host = std_fs::read_to_string(root.directory.path().join("outside/f"));
    assert_eq!(host.unwrap(), "host");
}

#[test]
fn link_to_a_directory_is_followed_below_the_root() {
    let usr: &[Made] = &[
        ("usr/lib/", DIRECTORY, 0o755, ""),
        ("lib", SYMLINK, 0o777, "/usr/lib"),
    ];
    let upper: &[Made] = &[("lib/f", FILE, 0o644, "1")];
    check(
        &[usr, upper],
        &["lib>/usr/lib", "usr/", "usr/lib/", "usr/lib/f=1"],
    );
}

#[test]
fn devices_and_pipes_are_left_out() {
    let root = Root::new();
    let layer: &[Made] = &[
        ("dev/sda", EntryType::Block, 0o666, ""),
        ("dev/null", EntryType::Char, 0o666, ""),
        ("pipe", EntryType::Fifo, 0o666, ""),
        ("f", FILE, 0o644, ""),
    ];
    assert_eq!(root.unpack(&[layer]).unwrap().skipped, 3);
    assert_eq!(root.tree(), ["f="]);
    assert!(
        !std_fs::metadata(root.path("f"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
}

#[test]
fn bounds_end_a_bomb_with_an_error() {
    let bounds = UnpackBounds {
        bytes: 20_000,
        entries: 300,
    };
    let check = |layer: Vec<u8>, problem: &str| {
        let root = Root::new();
        let failed = root.within(&[layer], bounds).unwrap_err();
        assert!(failed.contains(problem), "{failed}");
    };
    let large = "x".repeat(30_000);
    check(tar(&[("large", FILE, 0o644, &large)]), "exceed");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gz.write_all(&vec![0; 1 << 20]).unwrap();
    check(
        gz.finish().unwrap(),
        "uncompressed layers exceed their bound",
    );
    let many = vec![("d", DIRECTORY, 0o755, ""); 301];
    let root = Root::new();
    let wide = UnpackBounds {
        bytes: 1 << 30,
        ..bounds
    };
    let failed = root.within(&[tar(&many)], wide).unwrap_err();
    assert_eq!(failed, "entry `d`: is one more than 300");
    // Directories through links.
    let deep = "d/".repeat(48) + "d";
    let mut layers: Vec<Vec<Made>> = vec![vec![(&deep, DIRECTORY, 0o755, "")]];
    let links: Vec<String> = (0..8).map(|level| format!("l{level}")).collect();
    let below: Vec<String> = links
        .iter()
        .map(|link| format!("{link}/{}", "e/".repeat(40)))
        .collect();
    let targets: Vec<String> = std::iter::once(deep.clone()).chain(below.clone()).collect();
    for (level, link) in links.iter().enumerate() {
        layers.push(vec![
            (link, SYMLINK, 0o777, &targets[level]),
            (&below[level], DIRECTORY, 0o755, ""),
        ]);
    }
    let layers: Vec<_> = layers.iter().map(|layer| tar(layer)).collect();
    let root = Root::new();
    let failed = root.within(&layers, UnpackBounds::default()).unwrap_err();
    assert!(
        failed.ends_with("is below more than 256 directories"),
        "{failed}"
    );
}

/// A name of a gigabyte would be read into memory.
#[test]
fn header_is_bounded() {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(2 << 20);
    header.set_cksum();
    let mut layer = header.as_bytes().to_vec();
    layer.extend(vec![b'x'; 2 << 20]);
    layer.extend(tar(&[("f", FILE, 0o644, "")]));
    let failed = Root::new()
        .within(&[layer], UnpackBounds::default())
        .unwrap_err();
    assert!(
        failed.contains("header of an entry is too long"),
        "{failed}"
    );
}

#[test]
fn every_compression_is_recognized() {
    let plain = tar(&[("f", FILE, 0o644, "1")]);
    let digest = Digest::of(&plain);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    let fastest = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = |part: &[u8]| ruzstd::encoding::compress_to_vec(part, fastest);
    // Several frames, one of which is to be skipped.
    let mut frames = zstd(&plain[..700]);
    frames.extend([0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    frames.extend(zstd(&plain[700..]));
    for layer in [plain.clone(), gz.finish().unwrap(), zstd(&plain), frames] {
        let root = Root::new();
        let mut unpacker = Unpacker::new(&root.path(""), UnpackBounds::default()).unwrap();
        assert_eq!(unpacker.apply(layer.as_slice()).unwrap(), digest);
        unpacker.finish().unwrap();
        assert_eq!(root.tree(), ["f=1"]);
    }
}

#[test]
fn damaged_layer_is_an_error() {
    let plain = tar(&[("f", FILE, 0o644, "12345")]);
    for length in [100, 512, 514] {
        let cut = plain[..length].to_vec();
        let done = Root::new().within(&[cut], UnpackBounds::default());
        assert!(done.is_err(), "{length} bytes");
    }
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    let mut gz = gz.finish().unwrap();
    gz.truncate(gz.len() - 20);
    assert!(Root::new().within(&[gz], UnpackBounds::default()).is_err());
}

#[test]
fn existing_links_of_the_host_are_not_the_root() {
    let root = Root::new();
    let link = root.directory.path().join("link");
    symlink(root.path(""), &link).unwrap();
    assert!(Unpacker::new(&link, UnpackBounds::default()).is_err());
}

/// Names that meet, links among them that lead out, and all types of entries.
fn any_entry() -> impl proptest::strategy::Strategy<Value = (String, EntryType, String)> {
    use proptest::prelude::*;
    let part = || prop::sample::select(vec!["a", "b", "c", "..", ".", ".wh.a", ".wh..wh..opq"]);
    let name = prop::collection::vec(part(), 1..4).prop_map(|parts| parts.join("/"));
    let kinds = vec![FILE, DIRECTORY, SYMLINK, SYMLINK, LINK, EntryType::Fifo];
    let target = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "a/b",
        "../a",
        "/c",
        "../../outside",
        "/",
        ".",
        "..",
        "../../outside/f",
    ]);
    let target = target.prop_map(str::to_owned);
    (name, prop::sample::select(kinds), target)
}

proptest::proptest! {
    /// `within` compares the files outside.
    #[test]
    fn no_sequence_of_entries_leaves_the_root(
        layers in proptest::collection::vec(proptest::collection::vec(any_entry(), 1..8), 1..4)
    ) {
        let root = Root::new();
        let layers: Vec<Vec<u8>> = layers.iter().map(|layer| {
            let entries: Vec<Made> = layer.iter()
                .map(|(name, kind, target)| (name.as_str(), *kind, 0o755, target.as_str()))
                .collect();
            tar(&entries)
        }).collect();
        // An error ends the first layer, and the others still come.
        for layer in layers {
            let _ = root.within(&[layer], UnpackBounds::default());
        }
        let around = std_fs::read_dir(root.directory.path()).unwrap().count();
        proptest::prop_assert_eq!(around, 2);
    }

    #[test]
    fn damaged_archives_are_errors_and_no_panics(
        position in 0_usize..2048, byte: u8, length in 0_usize..4096
    ) {
        let root = Root::new();
        let mut layer = tar(&[("d/f", FILE, 0o644, "1"), ("l", SYMLINK, 0o777, "d"), ("h", LINK, 0, "d/f")]);
        layer[position] = byte;
        layer.truncate(length.max(1024));
        let _ = root.within(&[layer], UnpackBounds::default());
    }
}
