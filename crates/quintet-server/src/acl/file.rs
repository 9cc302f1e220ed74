//! The file of users.
//!
//! ```toml
//! [users]
//! default = ["off"]
//! app = ["on", "#$argon2id$...", "~app:*", "+@read"]
//! ```
//!
//! A write makes a new file beside the old one with mode 0600, syncs it, renames it and syncs the
//! directory. So a crash leaves the old or the new file. A file that other users of the machine can
//! read or write is refused.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use serde::Deserialize;
use zeroize::Zeroizing;

use super::{rules::Rule, user::User};

/// Longest file in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserFile {
    #[serde(default)]
    users: BTreeMap<String, Vec<Rule>>,
}

/// Reads the users of a file. Fails with the file and what is wrong.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Vec<Rule>>, String> {
    let explain = |what: &dyn std::fmt::Display| format!("ACL file {}: {what}", path.display());
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(|error| explain(&error))?;
    let metadata = file.metadata().map_err(|error| explain(&error))?;
    if !metadata.is_file() {
        return Err(explain(&"it is not a regular file"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(explain(&"other users can read or write it; run `chmod 600` on it"));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| explain(&error))?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(explain(&format_args!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    let parsed: UserFile = toml::from_str(&text).map_err(|error| {
        // The message of the parser may have a password.
        let line = error
            .span()
            .map_or(0, |span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1);
        explain(&format_args!(
            "line {line} is no TOML, or not of the form [users] name = [\"rule\", ...]"
        ))
    })?;
    Ok(parsed.users)
}

/// A text in quotes. Names and rules have no control characters.
fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Replaces the file. Fails with the file and the step; the old file stays then.
pub(super) fn write<'u>(path: &Path, users: impl Iterator<Item = &'u User>) -> Result<(), String> {
    let mut text = "# Written by ACL SAVE. Hashes are argon2id strings.\n\n[users]\n".to_owned();
    for user in users {
        let rules: Vec<String> = user.rules().iter().map(|rule| quote(rule)).collect();
        // A write to a string cannot fail.
        let _ = writeln!(text, "{} = [{}]", quote(&user.name), rules.join(", "));
    }
    let explain = |step: &str, error: std::io::Error| {
        format!("ACL file {}: cannot {step}: {error}", path.display())
    };
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = Path::new(&name);
    // One that a crash has left.
    let _ = fs::remove_file(new);
    let written = write_new(new, text.as_bytes());
    let renamed = written
        .map_err(|error| explain("write the new file", error))
        .and_then(|()| fs::rename(new, path).map_err(|error| explain("rename it", error)));
    if let Err(why) = renamed {
        // The first failure is the one that matters.
        let _ = fs::remove_file(new);
        return Err(why);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))
        .and_then(|directory| directory.sync_all())
        .map_err(|error| explain("sync its directory", error))
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_users_that_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.toml");
        let mut user = User::new("a\"b\\c");
        user.root.command_rules = vec!["-@all".to_owned(), "+get".to_owned()];
        for _ in 0..2 {
            write(&path, [&user, &User::new("default")].into_iter()).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            let read = read(&path).unwrap();
            assert_eq!(read.len(), 2);
            let rules: Vec<&str> = read[&user.name].iter().map(|rule| rule.as_str()).collect();
            assert_eq!(rules, user.rules());
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a file was left behind");
    }

    #[test]
    fn bad_files_are_refused_without_their_passwords() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.toml");
        assert!(read(&path).unwrap_err().contains("users.toml"));
        assert!(read(dir.path()).unwrap_err().contains("regular file"));
        for (text, why) in [
            ("[users]\n\na = [\">secret\", 7]\n", "line 3"),
            ("[user]\n", "line 1"),
            ("[users]\na = \">secret\"\n", "line 2"),
            ("[users]\na = [\">secret\n", "line 2"),
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let failure = read(&path).unwrap_err();
            assert!(failure.contains(why), "{failure}");
            assert!(!failure.contains("secret"), "{failure}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap_err().contains("chmod 600"));
    }
}
