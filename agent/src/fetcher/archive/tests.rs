//! Archives, good and hostile, made here.

use std::io::Write;

use super::*;

/// An entry: its name, type, mode, content or target.
type Made<'a> = (&'a str, EntryType, u32, &'a str);

const FILE: EntryType = EntryType::Regular;

fn tar(entries: &[Made]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for &(name, kind, mode, content) in entries {
        let mut header = tar::Header::new_gnu();
        // The crate itself would refuse the names of some tests.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        let mut data = content.as_bytes();
        if [EntryType::Symlink, EntryType::Link].contains(&kind) {
            header.as_gnu_mut().unwrap().linkname[..content.len()].copy_from_slice(data);
            data = b"";
        }
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data).unwrap();
    }
    builder.into_inner().unwrap()
}

struct Sandbox {
    root: tempfile::TempDir,
}

impl Sandbox {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("s")).unwrap();
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("s").join(name)
    }

    fn within(
        &self,
        archive: &[u8],
        kind: ArchiveKind,
        bounds: ExtractionBounds,
    ) -> Result<(), String> {
        let file = self.root.path().join("archive");
        fs::write(&file, archive).unwrap();
        Extractor::new(&self.path(""), bounds).extract(&file, kind)
    }

    fn extract(&self, archive: &[u8], kind: ArchiveKind) -> Result<(), String> {
        self.within(archive, kind, ExtractionBounds::default())
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

#[test]
fn entries_of_all_kinds_are_extracted() {
    let sandbox = Sandbox::new();
    let archive = tar(&[
        ("./", EntryType::Directory, 0o755, ""),
        ("d/", EntryType::Directory, 0o500, ""),
        ("d/run", FILE, 0o755, "run"),
        ("deep/er/f", FILE, 0o640, "f"),
        ("d/up", EntryType::Symlink, 0o777, "../deep/er/f"),
        ("same", EntryType::Link, 0o644, "d/run"),
        ("d/run", FILE, 0o700, "again"),
        ("straße", FILE, 0o644, "ß"),
    ]);
    sandbox.extract(&archive, ArchiveKind::Tar).unwrap();
    assert_eq!(sandbox.read("d/up"), "f");
    assert_eq!(sandbox.read("same"), "run");
    assert_eq!(sandbox.read("d/run"), "again");
    assert_eq!(sandbox.read("straße"), "ß");
    let mode = |name: &str| {
        fs::metadata(sandbox.path(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(
        (mode("same") & 0o777, mode("deep/er/f") & 0o777),
        (0o755, 0o640)
    );
}

#[test]
fn every_format_is_extracted() {
    let plain = tar(&[("f", FILE, 0o644, "content")]);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    let mut bz2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bz2.write_all(&plain).unwrap();
    // `f` with `content`, made by `tar` and `xz`.
    let xz = XZ.to_vec();
    let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("f", options.unix_permissions(0o644))
        .unwrap();
    zip.write_all(b"content").unwrap();
    let zip = zip.finish().unwrap().into_inner();
    for (archive, kind) in [
        (plain, ArchiveKind::Tar),
        (gz.finish().unwrap(), ArchiveKind::TarGz),
        (bz2.finish().unwrap(), ArchiveKind::TarBz2),
        (xz, ArchiveKind::TarXz),
        (zip, ArchiveKind::Zip),
    ] {
        let sandbox = Sandbox::new();
        sandbox.extract(&archive, kind).unwrap();
        assert_eq!(sandbox.read("f"), "content", "{kind:?}");
        let half = &archive[..archive.len() / 2];
        let broken = Sandbox::new().extract(half, kind);
        assert!(broken.is_err() || kind == ArchiveKind::Tar, "{kind:?}");
    }
}

#[test]
fn hostile_entries_are_refused_and_nothing_is_outside() {
    use EntryType::{Link, Symlink};
    let check = |entries: &[Made], problem: &str| {
        let sandbox = Sandbox::new();
        let refused = sandbox
            .extract(&tar(entries), ArchiveKind::Tar)
            .unwrap_err();
        assert!(refused.contains(problem), "{refused}");
        let outside = fs::read_dir(sandbox.root.path()).unwrap().count();
        assert_eq!(outside, 2, "the sandbox and the archive");
    };
    check(&[("../f", FILE, 0o644, "")], "a name outside");
    check(&[("a/../../f", FILE, 0o644, "")], "a name outside");
    check(&[("/tmp/f", FILE, 0o644, "")], "a name outside");
    check(&[("l", Symlink, 0o777, "/etc")], "a link out");
    check(&[("l", Symlink, 0o777, "..")], "a link out");
    check(&[("d/l", Symlink, 0o777, "../../x")], "a link out");
    check(&[("l", Symlink, 0o777, "a/../..")], "a link out");
    check(&[("l", Link, 0o644, "../archive")], "a link out");
    check(&[("l", Link, 0o644, "/etc/passwd")], "a link out");
    check(&[("l", Link, 0o644, "none")], "a link to no file");
    // Each link alone is harmless; together they would lead out.
    let here = ("d", Symlink, 0o777, ".");
    check(&[here, ("l", Symlink, 0o777, "d/d/../..")], "a link out");
    check(&[here, ("d/l", Symlink, 0o777, "..")], "below a link");
    check(&[here, ("d/f", FILE, 0o644, "")], "below a link");
    check(&[here, ("l", Link, 0o644, "d/x")], "a link out");
    for device in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        check(&[("dev", device, 0o666, "")], "neither a file");
    }
    check(&[("su", FILE, 0o4755, "")], "set-user-ID");
    check(&[("sg", FILE, 0o2755, "")], "set-user-ID");
    check(&[("stdout", Symlink, 0o777, "f")], "the task's output");
}

#[test]
fn hostile_zip_is_refused() {
    let zipped = |name: &str, content: &str, mode: u32| {
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().unix_permissions(mode);
        match mode & libc::S_IFMT {
            libc::S_IFLNK => zip.add_symlink(name, content, options).unwrap(),
            _ => {
                zip.start_file(name, options).unwrap();
                zip.write_all(content.as_bytes()).unwrap();
            }
        }
        Sandbox::new().extract(&zip.finish().unwrap().into_inner(), ArchiveKind::Zip)
    };
    let check = |name, content, mode, problem: &str| {
        let refused = zipped(name, content, mode).unwrap_err();
        assert!(refused.contains(problem), "{refused}");
    };
    check("../f", "", 0o644, "a name outside");
    check("/f", "", 0o644, "a name outside");
    check("l", "../x", libc::S_IFLNK | 0o777, "a link out");
    zipped("l", "x", libc::S_IFLNK | 0o777).unwrap();
}

#[test]
fn bombs_are_stopped_at_the_bounds() {
    let bounds = ExtractionBounds {
        bytes: 1000,
        entries: 3,
    };
    let sandbox = Sandbox::new();
    let half = "x".repeat(600);
    let large = tar(&[("a", FILE, 0o644, &half), ("b", FILE, 0o644, &half)]);
    let refused = sandbox
        .within(&large, ArchiveKind::Tar, bounds)
        .unwrap_err();
    assert_eq!(
        refused,
        "entry `b` exceeds the 1000 bytes that may be extracted"
    );
    assert!(sandbox.read("b").len() <= 1001, "no more is written");
    let many = ["a", "b", "c", "d"].map(|name| (name, FILE, 0o644, ""));
    let refused = sandbox
        .within(&tar(&many), ArchiveKind::Tar, bounds)
        .unwrap_err();
    assert_eq!(refused, "entry `d` is one more than 3");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gz.write_all(&vec![0; 1 << 20]).unwrap();
    let file = sandbox.root.path().join("x.gz");
    fs::write(&file, gz.finish().unwrap()).unwrap();
    let bomb = Extractor::new(&sandbox.path(""), bounds).decompress(&file, "x");
    assert!(bomb.unwrap_err().contains("exceeds the 1000 bytes"));
}

/// A tar archive of the file `f` with `content`, compressed with xz.
const XZ: [u8; 128] = [
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x00, 0x21, 0x01,
    0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0xe0, 0x07, 0xff, 0x00, 0x43, 0x5d, 0x00, 0x33,
    0x00, 0x33, 0x50, 0x18, 0x68, 0x89, 0x83, 0x01, 0xdc, 0xe2, 0x6e, 0x21, 0x05, 0x5f, 0xec, 0xbe,
    0x43, 0x5a, 0x6e, 0x60, 0x7c, 0xf8, 0x4c, 0xd3, 0x67, 0xf4, 0x79, 0xcb, 0x36, 0xfd, 0xb6, 0xba,
    0x1f, 0x4b, 0x83, 0x65, 0xa9, 0x7f, 0x61, 0x59, 0xca, 0x90, 0xbb, 0xe4, 0xfa, 0x60, 0x1d, 0x8b,
    0x0a, 0x07, 0xce, 0x58, 0x9f, 0xe6, 0x11, 0x0d, 0x46, 0x35, 0x42, 0xfd, 0xd6, 0x89, 0xda, 0x9b,
    0x1f, 0x00, 0x00, 0x00, 0x56, 0x26, 0x94, 0x45, 0x00, 0x01, 0x5b, 0x80, 0x10, 0x00, 0x00, 0x00,
    0xe4, 0xcb, 0xe3, 0x44, 0x3e, 0x30, 0x0d, 0x8b, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x59, 0x5a,
];
