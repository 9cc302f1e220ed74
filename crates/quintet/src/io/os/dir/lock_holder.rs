//! The holder of a file lock, for the message of a database that cannot be opened.
//!
//! How: `/proc/locks` lists the locks of the system with the process that took each of them. A lock
//! belongs to an open file, and forked children share it: the list names the parent even after the
//! parent has ended.
//!
//! A line has these fields, separated by spaces; the line of a waiter has `->` after the number:
//!
//! ```text
//! 1: FLOCK  ADVISORY  WRITE 20776 fe:00:7290902 0 EOF
//! ```
//!
//! The fields are number, kind, mode, access, process, device and inode (major and minor number in
//! hexadecimal), first and last byte. A file system whose files have device numbers of their own
//! (`btrfs`, `overlayfs`) is not found in the list; the holder is unknown then.
//!
//! Each read of the list counts lines from its start again. So a lock that another process releases
//! between two reads hides one. The list is read in pieces as large as the system gives, and again
//! if the file is not in it.

use std::{
    fs::{self, File},
    io::Read as _,
};

use crate::util::error::LockHolder;

/// A file as `/proc/locks` names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockedFile {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) inode: u64,
}

/// Maximum number of times that the list is read.
const READS: usize = 8;
/// Size of a read in bytes: at least a page, which is what the system gives at once.
const READ_BYTES: usize = 64 << 10;

/// Returns a holder of a lock of `file`: this process if it is one, else the first in the list.
pub(super) fn holder_of(file: LockedFile) -> LockHolder {
    for _ in 0..READS {
        match holder_in(&list_of_locks(), file, std::process::id()) {
            LockHolder::Unknown => {}
            LockHolder::Process { id, .. } => {
                return LockHolder::Process { id, name: program_name(id) };
            }
            other => return other,
        }
    }
    LockHolder::Unknown
}

/// Returns the text of `/proc/locks`, as far as it can be read.
fn list_of_locks() -> String {
    let mut text = Vec::new();
    let mut piece = vec![0; READ_BYTES];
    if let Ok(mut list) = File::open("/proc/locks") {
        while let Ok(length @ 1..) = list.read(&mut piece) {
            text.extend_from_slice(&piece[..length]);
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the name of the program that a process runs.
fn program_name(id: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{id}/comm")).ok()?;
    let name = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Same as [`holder_of`], without the name, for a text of `/proc/locks` and the id of this process.
fn holder_in(locks: &str, file: LockedFile, this_process: u32) -> LockHolder {
    let LockedFile { major, minor, inode } = file;
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    let owner = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        // A waiter has `->` here.
        let is_held = fields.next() == Some("FLOCK");
        let id = fields.nth(2)?.parse().ok()?;
        // 0: a process of another container.
        (is_held && fields.next() == Some(&wanted) && id != 0).then_some(id)
    };
    let owners: Vec<u32> = locks.lines().filter_map(owner).collect();
    match owners.first() {
        _ if owners.contains(&this_process) => LockHolder::ThisProcess,
        Some(id) => LockHolder::Process { id: *id, name: None },
        None => LockHolder::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: FLOCK  ADVISORY  WRITE 20776 fe:00:7290902 0 EOF
1: -> FLOCK  ADVISORY  WRITE 5 fe:00:7290902 0 EOF
2: POSIX  ADVISORY  READ 18559 fe:00:51 0 EOF
3: FLOCK  ADVISORY  READ 0 103:0a:51 0 EOF
4: FLOCK  ADVISORY  READ 8 103:0a:51 0 EOF
5: FLOCK  ADVISORY  READ 9 103:0a:51 0 EOF
torn";

    fn holder(major: u32, minor: u32, inode: u64) -> LockHolder {
        holder_in(LOCKS, LockedFile { major, minor, inode }, 9)
    }

    #[test]
    fn the_holder_is_read_from_the_list_of_locks() {
        let process = |id| LockHolder::Process { id, name: None };
        assert_eq!(holder(0xfe, 0, 7_290_902), process(20776));
        assert_eq!(holder(0x103, 0xa, 51), LockHolder::ThisProcess);
        assert_eq!(holder(0xfe, 0, 51), LockHolder::Unknown, "another kind of lock");
        assert_eq!(holder(0xfe, 1, 7_290_902), LockHolder::Unknown, "another device");
        assert_eq!(
            holder_in("", LockedFile { major: 0, minor: 0, inode: 0 }, 9),
            LockHolder::Unknown
        );
    }
}
