//! What the tests of the command share.
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

/// The binary under test.
pub(crate) const QUINTET: &str = env!("CARGO_BIN_EXE_quintet");

/// A directory for one test, with a database in it that has the table `t`.
pub(crate) struct Place {
    dir: TempDir,
}

/// What a command printed, and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) error: String,
}

impl Answer {
    /// Standard output as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }
}

impl Place {
    /// No database yet.
    pub(crate) fn empty() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    /// With a table `t`.
    pub(crate) fn with_table() -> Self {
        let place = Self::empty();
        place.ok(&["create", "DB", "t", "--engine", "naive"]);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file and returns its path.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// A command; the word `DB` stands for the database, `DIR/x` for a file x beside it.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(QUINTET);
        command.args(self.words(words)).env("XDG_STATE_HOME", self.dir.path());
        command
    }

    pub(crate) fn words(&self, words: &[&str]) -> Vec<PathBuf> {
        words
            .iter()
            .map(|word| match (*word, word.strip_prefix("DIR/")) {
                ("DB", _) => self.path("db"),
                (_, Some(name)) => self.path(name),
                (word, None) => Path::new(word).to_owned(),
            })
            .collect()
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Answer {
        answer(&mut self.command(words))
    }

    /// Runs a command with this input.
    pub(crate) fn feed(&self, words: &[&str], input: impl Into<Vec<u8>>) -> Answer {
        answer(self.command(words).write_stdin(input))
    }

    /// Runs a command that must succeed, silently on standard error; returns what it printed.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let found = self.run(words);
        assert_eq!((found.code, found.error.as_str()), (0, ""), "{words:?}: {found:?}");
        String::from_utf8(found.out).unwrap()
    }

    /// Runs the command with so many MiB of address space.
    pub(crate) fn limited(&self, mib: u64, words: &[&str]) -> Answer {
        let script = format!("ulimit -v {}; exec \"$@\"", mib << 10);
        let output = std::process::Command::new("sh")
            .args(["-c", &script, "sh", QUINTET])
            .args(self.words(words))
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        Answer { code: output.status.code().unwrap_or(-1), out: output.stdout, error }
    }

    /// Runs a command that must fail with this code and one clear line that has `expected` in it.
    pub(crate) fn fails(&self, code: i32, words: &[&str], expected: &str) {
        let found = self.run(words);
        check_failure(&found, code, expected);
    }
}

/// One line on standard error, with the program's name, without a trace.
pub(crate) fn check_failure(found: &Answer, code: i32, expected: &str) {
    assert_eq!(found.code, code, "{found:?}");
    assert!(found.error.starts_with("quintet: "), "{found:?}");
    assert_eq!(found.error.lines().count(), 1, "{found:?}");
    assert!(found.error.contains(expected), "{expected:?} not in {found:?}");
    assert!(!found.error.contains("panicked") && !found.error.contains("backtrace"), "{found:?}");
}

fn answer(command: &mut Command) -> Answer {
    let output = command.output().unwrap();
    Answer {
        code: output.status.code().unwrap_or(-1),
        out: output.stdout,
        error: String::from_utf8(output.stderr).unwrap(),
    }
}
