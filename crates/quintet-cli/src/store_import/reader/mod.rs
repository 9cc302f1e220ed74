//! The process that reads a database through the library of its store, and sends the entries to
//! the process that imports them.
//!
//! Problem: the library is C++. An exception, a failed assertion or a wrong access to a damaged
//! file ends its process, and with it a Quintet database that is open there.
//! How: the command starts itself a second time. This process loads the library and writes frames
//! ([`stream`](super::stream)) to standard output. A failure is a frame, too. So the importing
//! process sees either the end, a failure, or a stream that is cut off.
//!
//! The process ends with the importing one.

mod candidates;
mod library;

use std::{
    ffi::{CStr, CString},
    io::{self, BufWriter, Write},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use quintet::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use super::{
    directory::wal_directory,
    kind::StoreKind,
    stream::{Frame, write_entry, write_frame},
};
use crate::{
    bytes::quote,
    failure::{Failure, Outcome},
};
use library::{Store, StoreLibrary};

/// Bytes that are written to the pipe at once.
const WRITE_BYTES: usize = 1 << 18;
/// Entries between two frames of progress. In `LevelDB` each costs a lookup in the index.
const PROGRESS_ENTRIES: u64 = 1024;
/// Bytes of a key in a message, at most.
const SHOWN_BYTES: usize = 64;

/// The database to read, and the library that reads it.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    /// The store.
    pub kind: StoreKind,
    /// The directory that the library opens.
    pub dir: &'a Path,
    /// The directory that the user named.
    pub source: &'a Path,
    /// The file of the library, if the user named one.
    pub library: Option<&'a Path>,
    /// The names of the column families, or none for all.
    pub families: &'a [String],
}

/// Reads the database and writes frames to `out`. A failure is written too.
pub fn serve(request: &ReadRequest<'_>, out: &mut dyn Write) -> Outcome {
    // The end of the parent ends this process: the frames would have no reader.
    let kill = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(kill))
        .map_err(|error| Failure::io("this process", &error.into()))?;
    let mut out = BufWriter::with_capacity(WRITE_BYTES, out);
    let last = match read(request, &mut out) {
        Ok(()) => Frame::End,
        Err(Failure::BrokenPipe) => return Ok(()),
        Err(failure) => {
            let is_damage = matches!(failure, Failure::Damage(_));
            Frame::Failed { is_damage, what: failure.to_string() }
        }
    };
    write_frame(&mut out, &last)?;
    Ok(out.flush()?)
}

fn read(request: &ReadRequest<'_>, out: &mut dyn Write) -> Outcome {
    let (library, file) = load(request)?;
    let explain = |what: String| explain(request, &file, &what);
    let wal_dir = match request.kind {
        StoreKind::RocksDb => wal_directory(request.dir)?,
        StoreKind::LevelDb => None,
    };
    let wal_dir = wal_dir.as_deref().map(c_path).transpose()?;
    let store =
        Store::open(library, &c_path(request.dir)?, wal_dir.as_deref()).map_err(&explain)?;
    let all: Vec<String> = store
        .families()
        .into_iter()
        .map(|name| family_name(request, name))
        .collect::<Outcome<_>>()?;
    let chosen = choose(request, &all)?;
    let mut total = 0_u64;
    for index in &chosen {
        total = total.saturating_add(store.estimate(*index).map_err(&explain)?);
    }
    let families = chosen.iter().filter_map(|index| all.get(*index).cloned()).collect();
    write_frame(out, &Frame::Opened { families, total })?;
    for index in chosen {
        let name = all.get(index).map(String::as_str).unwrap_or_default();
        write_frame(out, &Frame::Family(name.to_owned()))?;
        let entries = read_family(&store, index, out).map_err(|problem| match problem {
            Problem::Library(what) => explain(what).within(format!("column family {name}")),
            Problem::Limit(what) => Failure::Failed(format!("column family {name}: {what}")),
            Problem::Output(error) => error.into(),
        })?;
        write_frame(out, &Frame::FamilyEnd(entries))?;
    }
    Ok(())
}

/// Why a family cannot be read.
enum Problem {
    Library(String),
    Limit(String),
    Output(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Writes all entries of a family. Returns their number.
fn read_family(store: &Store, index: usize, out: &mut dyn Write) -> Result<u64, Problem> {
    let mut cursor = store.cursor(index).map_err(Problem::Library)?;
    cursor.seek_to_first();
    let (mut entries, mut file_bytes) = (0_u64, 0);
    while let Some((key, value)) = cursor.entry().map_err(Problem::Library)? {
        check_limits(key, value).map_err(Problem::Limit)?;
        write_entry(out, key, value)?;
        entries += 1;
        if entries.is_multiple_of(PROGRESS_ENTRIES) {
            let now = store.file_bytes(&[], key);
            let growth = if now == 0 { PROGRESS_ENTRIES } else { now.saturating_sub(file_bytes) };
            file_bytes = now;
            write_frame(out, &Frame::Progress(growth))?;
        }
        cursor.advance();
    }
    cursor.check().map_err(Problem::Library)?;
    Ok(entries)
}

/// Checks the limits of Quintet, so that the importing process gets no longer strings.
fn check_limits(key: &[u8], value: &[u8]) -> Result<(), String> {
    let (what, size, size_max) = if key.len() > KEY_BYTES_MAX {
        ("a key", key.len(), KEY_BYTES_MAX)
    } else if value.len() > VALUE_BYTES_MAX {
        ("a value", value.len(), VALUE_BYTES_MAX)
    } else {
        return Ok(());
    };
    let shown = quote(key.get(..SHOWN_BYTES).unwrap_or(key));
    let part = if key.len() > SHOWN_BYTES { "the key that begins with" } else { "the key" };
    Err(format!("{part} {shown}: {what} of {size} bytes; {what} has at most {size_max}"))
}

/// Returns the positions of the families that are read.
fn choose(request: &ReadRequest<'_>, all: &[String]) -> Outcome<Vec<usize>> {
    if request.families.is_empty() {
        return Ok((0..all.len()).collect());
    }
    let find = |name: &String| {
        all.iter().position(|family| family == name).ok_or_else(|| {
            let (source, all) = (request.source.display(), all.join(", "));
            Failure::Failed(format!("{source} has no column family {name:?}; it has {all}"))
        })
    };
    let mut chosen = request.families.iter().map(find).collect::<Outcome<Vec<_>>>()?;
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

fn family_name(request: &ReadRequest<'_>, name: &CStr) -> Outcome<String> {
    name.to_str().map(str::to_owned).map_err(|_| {
        let (source, name) = (request.source.display(), quote(name.to_bytes()));
        Failure::Failed(format!("{source}: the name of column family {name} is not UTF-8"))
    })
}

fn c_path(path: &Path) -> Outcome<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Failure::Failed(format!("{}: a path has no zero bytes", path.display())))
}

/// Loads the library that the user named, or the first that is found.
fn load(request: &ReadRequest<'_>) -> Outcome<(StoreLibrary, PathBuf)> {
    let kind = request.kind;
    if let Some(file) = request.library {
        // A name without a directory would be looked for in the system's directories.
        let path =
            std::path::absolute(file).map_err(|error| Failure::io(file.display(), &error))?;
        return match StoreLibrary::load(kind, &path) {
            Ok(library) => Ok((library, path)),
            Err(what) => Err(Failure::Failed(format!(
                "{} is not usable as the library of {kind}: {what}",
                file.display()
            ))),
        };
    }
    let mut problems = Vec::new();
    for file in candidates::candidates(kind) {
        match StoreLibrary::load(kind, &file) {
            Ok(library) => return Ok((library, file)),
            // The system's loader names the file itself.
            Err(what) if problems.is_empty() => problems.push(what),
            Err(what) => problems.push(format!("{}: {what}", file.display())),
        }
    }
    let plain = kind.library_file();
    let directories: Vec<_> =
        candidates::directories().iter().map(|directory| directory.display().to_string()).collect();
    Err(Failure::Failed(format!(
        "the library of {kind} is missing: install it (Debian 12: `apt-get install {}`), or name \
         its file by --library. Tried: {plain}, and {plain}.* in {} ({})",
        kind.package(),
        directories.join(", "),
        problems.join("; ")
    )))
}

/// Converts a message of the library, and says what to do where that is known.
fn explain(request: &ReadRequest<'_>, file: &Path, what: &str) -> Failure {
    let kind = request.kind;
    // LevelDB opens another directory, of which the user knows nothing.
    let (dir, source) = (request.dir.display().to_string(), request.source.display().to_string());
    let what = what.replace(&dir, &source);
    let at = |advice: &str| Failure::Failed(format!("{source}: {what}; {advice}"));
    let is_own =
        what.contains("which Quintet does not read") || what.contains("there is no database");
    if is_own {
        let file = file.display();
        return Failure::Failed(format!(
            "{file} is Quintet's library with the interface of {kind}, which does not read \
             databases of {kind}; name that of {kind} by --library"
        ));
    }
    if what.contains("existing comparator") || what.contains("does not match existing") {
        return at("Quintet orders keys by their bytes, so a database with another comparator \
                   cannot be imported");
    }
    if what.contains("merge_operator") || what.contains("merge operator") {
        return at("merges wait for the program's merge operator; compact the database with the \
                   program, then import it");
    }
    if what.starts_with("Corruption") {
        let advice = format!("open the database with {kind}, or repair it, before the import");
        return Failure::Damage(format!("{source}: {what}; {advice}"));
    }
    Failure::Failed(format!("{source}: {what}"))
}
