//! The process that reads the database, from the side that started it.
//!
//! It is this program with the same command line, and an environment variable that names the
//! directory to open.

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use super::{
    interrupt,
    kind::StoreKind,
    stream::{Frame, FrameReader},
};
use crate::failure::{Failure, Outcome};

/// The environment variable with the directory that the reading process opens.
const DIRECTORY: &str = "QUINTET_IMPORT_READS";

/// Returns the directory that this process reads, if it was started to read one.
pub fn directory_to_read() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}

/// A process that reads a database. It is killed when this value is dropped.
#[derive(Debug)]
pub struct ReaderProcess {
    kind: StoreKind,
    child: Child,
    frames: FrameReader<ChildStdout>,
}

impl ReaderProcess {
    /// Starts the process.
    pub fn start(kind: StoreKind, dir: &Path) -> Outcome<Self> {
        let program = env::current_exe().map_err(|error| Failure::io("this program", &error))?;
        let start = |error: io::Error| Failure::io("start the reader", &error);
        let arguments: Vec<OsString> = env::args_os().skip(1).collect();
        let mut child = Command::new(program)
            .args(arguments)
            .env(DIRECTORY, dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(start)?;
        let output = child.stdout.take().ok_or_else(|| start(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { kind, child, frames: FrameReader::new(output) })
    }

    /// Returns the next frame. A failure of the reader is one here.
    pub fn next(&mut self) -> Outcome<Frame> {
        match self.frames.read() {
            Ok(Some(Frame::Failed { is_damage, what })) => {
                Err(if is_damage { Failure::Damage(what) } else { Failure::Failed(what) })
            }
            Ok(Some(frame)) => Ok(frame),
            // Ctrl-C ends the reader too.
            Ok(None) => Err(interrupt::check().err().unwrap_or_else(|| self.ended(None))),
            Err(error) => Err(interrupt::check().err().unwrap_or_else(|| self.ended(Some(&error)))),
        }
    }

    /// Returns the key and the value of the last [`Frame::Entry`].
    pub fn entry(&self) -> (&[u8], &[u8]) {
        (&self.frames.key, &self.frames.value)
    }

    /// Returns the failure of a stream that is cut off, or that has other bytes.
    fn ended(&mut self, error: Option<&io::Error>) -> Failure {
        let kind = self.kind;
        let what = match error.map(io::Error::kind) {
            None | Some(io::ErrorKind::UnexpectedEof) => match self.child.wait() {
                Ok(status) => format!("it ended early: {status}"),
                Err(error) => format!("it ended early: {error}"),
            },
            Some(io::ErrorKind::InvalidData) => "it sent bytes that are no frame".to_owned(),
            Some(other) => other.to_string(),
        };
        Failure::Failed(format!("the process with the library of {kind} failed: {what}"))
    }
}

impl Drop for ReaderProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
