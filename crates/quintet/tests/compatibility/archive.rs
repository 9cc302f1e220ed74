//! A folder as one archive in the ustar format, and back. `tar --zstd -tvf FILE` lists a fixture.
//!
//! Only what the fixtures need: regular files and folders, with paths below 100 bytes. `ruzstd`
//! decompresses; the library depends on it already.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

const BLOCK: usize = 512;
/// Offsets and lengths of the fields of a header that are read or written.
const NAME: std::ops::Range<usize> = 0..100;
const MODE: std::ops::Range<usize> = 100..108;
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const KIND: usize = 156;
const MAGIC: std::ops::Range<usize> = 257..265;

/// The kinds of entries.
const FILE: u8 = b'0';
const FOLDER: u8 = b'5';

/// Returns all files and folders below `folder`, as paths relative to `root`, parents first.
fn entries_below(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut entries = Vec::new();
    for path in paths {
        entries.push(path.strip_prefix(root).unwrap().to_owned());
        if path.is_dir() {
            entries.extend(entries_below(root, &path));
        }
    }
    entries
}

fn header(name: &str, kind: u8, size: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[NAME][..name.len()].copy_from_slice(name.as_bytes());
    let mode = if kind == FOLDER { b"0000755\0" } else { b"0000644\0" };
    block[MODE].copy_from_slice(mode);
    block[SIZE].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[CHECKSUM].copy_from_slice(b"        ");
    block[KIND] = kind;
    block[MAGIC].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Returns what is below `folder` as an archive.
pub(crate) fn pack(folder: &Path) -> Vec<u8> {
    let mut archive = Vec::new();
    for entry in entries_below(folder, folder) {
        let (path, name) = (folder.join(&entry), entry.to_str().unwrap());
        if path.is_dir() {
            archive.extend(header(name, FOLDER, 0));
            continue;
        }
        let content = fs::read(path).unwrap();
        archive.extend(header(name, FILE, content.len()));
        archive.extend(&content);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.extend([0; 2 * BLOCK]);
    archive
}

/// Decompresses an archive.
pub(crate) fn decompress(compressed: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(compressed).unwrap();
    decoder.read_to_end(&mut archive).unwrap();
    archive
}

/// Writes the files and folders of an archive below `folder`.
pub(crate) fn unpack(archive: &[u8], folder: &Path) {
    let text = |bytes: &[u8]| {
        let text = bytes.split(|byte| *byte == 0).next().unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    };
    fs::create_dir_all(folder).unwrap();
    let mut rest = archive;
    while let Some((block, after)) = rest.split_at_checked(BLOCK).filter(|(b, _)| b[0] != 0) {
        let path = folder.join(text(&block[NAME]));
        let size = usize::from_str_radix(&text(&block[SIZE]), 8).unwrap();
        match block[KIND] {
            FOLDER => fs::create_dir(path).unwrap(),
            FILE => fs::write(path, &after[..size]).unwrap(),
            kind => panic!("{}: the kind of entry {kind} is unknown", path.display()),
        }
        rest = &after[size.next_multiple_of(BLOCK)..];
    }
}
