//! Facts about the machine: boot id, memory, randomness.

use std::{
    fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    path::Path,
};

use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};

/// Mount point of control groups version 2, alone or beside version 1.
const UNIFIED_MOUNTS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
/// Mount point of the memory controller of version 1.
const MEMORY_MOUNT: &str = "sys/fs/cgroup/memory";

/// Returns the kernel's boot id, or a random one if it cannot be read. A random id compares as
/// "another boot", which is the safe result.
pub(super) fn boot_id() -> [u8; 16] {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .and_then(|text| parse_uuid(&text))
        .unwrap_or_else(|| {
            let mut id = [0; 16];
            random(&mut id);
            id
        })
}

/// Parses 32 hexadecimal digits into sixteen bytes. Ignores hyphens.
pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    let digits_only = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits.len() != 32 || !digits_only {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

/// Fills `out` from the kernel's generator. Blocks only shortly after a boot.
pub(super) fn random(out: &mut [u8]) {
    let mut filled = 0;
    while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(_) => {
                // A kernel or a sandbox without the call: the keys of the standard library's
                // hashers are random too.
                for chunk in rest.chunks_mut(8) {
                    let word = RandomState::new().build_hasher().finish().to_le_bytes();
                    for (byte, random) in chunk.iter_mut().zip(word) {
                        *byte = random;
                    }
                }
                return;
            }
        }
    }
}

/// Returns the number of files that this process may open.
pub(super) fn files_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the bytes of memory that this process may use.
pub(super) fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    // The kernel counts in units if the memory does not fit a word.
    let machine = info.totalram.saturating_mul(u64::from(info.mem_unit).max(1));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limit(Path::new("/"), &groups).map_or(machine, |limit| limit.min(machine))
}

/// Returns the smallest memory limit from this process's control group up to the root.
///
/// `groups` is the text of `/proc/self/cgroup`: lines of `hierarchy:controllers:path`, where
/// hierarchy 0 is version 2. In a container the path may be the host's and not be visible; then a
/// parent, at the latest the mount point, is the container's own group.
pub(super) fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(hierarchy), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (mounts, file) = if hierarchy == "0" && controllers.is_empty() {
            (UNIFIED_MOUNTS.as_slice(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ([MEMORY_MOUNT].as_slice(), "memory.limit_in_bytes")
        } else {
            continue;
        };
        for mount in mounts {
            for group in Path::new(path.trim_start_matches('/')).ancestors() {
                // "max" (no limit) does not parse and counts as no limit.
                let limit = fs::read_to_string(root.join(mount).join(group).join(file))
                    .ok()
                    .and_then(|text| text.trim().parse::<u64>().ok());
                least = match (least, limit) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }
    least
}
