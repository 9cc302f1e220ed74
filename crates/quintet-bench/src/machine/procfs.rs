//! Readers of single values in `/proc` and `/sys`.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

/// Reads a file without the white space around it.
pub(super) fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Returns the value of the first line `name: value` of a file.
pub(super) fn field(path: &str, name: &str) -> Option<String> {
    field_of(&fs::read_to_string(path).ok()?, name)
}

/// Returns the value of the first line `name: value` of a text.
pub(super) fn field_of(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// Parses a size such as `1234 kB` into bytes.
pub(super) fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the major and minor number of the device that holds `dir`.
pub(super) fn device(dir: &Path) -> Option<(u32, u32)> {
    let device = fs::metadata(dir).ok()?.dev();
    Some((rustix::fs::major(device), rustix::fs::minor(device)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "VmPeak:\t  5 kB\nVmRSS:\t    1234 kB\n";
        assert_eq!(field_of(text, "VmRSS").as_deref(), Some("1234 kB"));
        assert_eq!(field_of(text, "Vm"), None);
        assert_eq!(kibibytes("1234 kB"), Some(1_263_616));
        assert_eq!(kibibytes("lots"), None);
    }
}
