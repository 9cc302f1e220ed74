//! A full synchronization: receives a dump of the master into a file, checks it, and loads it.
//!
//! The old keys are removed after the dump has been received whole and its checksum and its
//! limits have been checked. While it is loaded, clients get `LOADING`. If the load fails all the
//! same, for example because the disk is full, the server is left without keys.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use super::link::{Link, LinkFailure, Linked};
use crate::{
    failure::Fail,
    loading::{Check, Loader},
    rdb::read_file,
    state::Server,
    store::{DatabaseId, Position},
};

/// The file that receives a dump.
const FILE_NAME: &str = "replication.rdb.partial";
/// Bytes of the mark behind a dump of unknown length.
const MARK_BYTES: usize = 40;
/// Time between two signs of life while a dump is loaded.
const SIGN_TIME: Duration = Duration::from_secs(1);

/// A file that is removed when it is no longer needed.
struct Received {
    path: PathBuf,
    file: Option<File>,
}

impl Received {
    fn create(path: PathBuf) -> io::Result<Self> {
        // A new file: what is there may be a link.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file: Some(file) })
    }

    fn write(&mut self, bytes: &[u8]) -> Linked {
        let Some(file) = &mut self.file else { return Ok(()) };
        let path = self.path.display();
        file.write_all(bytes)
            .map_err(|error| LinkFailure::passing(format!("cannot write {path}: {error}")))
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // The next synchronization removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Receives and loads a dump. `position` is behind it.
pub(super) async fn synchronize(
    server: &Arc<Server>,
    link: &mut Link,
    epoch: u64,
    position: &Position,
) -> Linked {
    let path = server.replication.dir.join(FILE_NAME);
    let shown = path.display().to_string();
    let mut received = Received::create(path)
        .map_err(|error| LinkFailure::passing(format!("cannot create {shown}: {error}")))?;
    receive(server, link, &mut received).await?;
    received.file = None;
    let (own, position) = (server.clone(), position.clone());
    let mut loading = tokio::task::spawn_blocking(move || load(&own, &received, epoch, &position));
    loop {
        tokio::select! {
            loaded = &mut loading => {
                return loaded.unwrap_or_else(|_| Err(LinkFailure::passing("the load has ended")));
            }
            // The master ends a link that is silent for a minute.
            () = tokio::time::sleep(SIGN_TIME) => link.write(b"\n").await?,
        }
    }
}

/// Receives a dump: `$` and its length, or `$EOF:` and a mark that follows it.
async fn receive(server: &Server, link: &mut Link, received: &mut Received) -> Linked {
    let head = link.line().await?;
    let unexpected = || LinkFailure::passing(format!("the master sends {head:?} before its dump"));
    let rest = head.strip_prefix('$').ok_or_else(unexpected)?;
    server.replication.note(|status| status.received = 0);
    let mut left = match rest.strip_prefix("EOF:") {
        Some(mark) if mark.len() == MARK_BYTES => {
            return receive_marked(server, link, received, mark.as_bytes()).await;
        }
        Some(_) => return Err(unexpected()),
        None => rest.parse::<u64>().map_err(|_| unexpected())?,
    };
    loop {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(link.buffer.len());
        let part: Vec<u8> = link.buffer.drain(..most).collect();
        received.write(&part)?;
        note_received(server, part.len());
        left -= u64::try_from(most).unwrap_or(left);
        if left == 0 {
            return Ok(());
        }
        link.read().await?;
    }
}

fn note_received(server: &Server, count: usize) {
    server.replication.note(|status| {
        status.received += u64::try_from(count).unwrap_or(0);
        status.heard = Some(Instant::now());
    });
}

/// Receives a dump up to a mark. The master sends nothing behind the mark until it is acknowledged.
async fn receive_marked(
    server: &Server,
    link: &mut Link,
    received: &mut Received,
    mark: &[u8],
) -> Linked {
    loop {
        if link.buffer.ends_with(mark) {
            link.buffer.truncate(link.buffer.len() - MARK_BYTES);
            received.write(&link.buffer)?;
            note_received(server, link.buffer.len());
            link.buffer.clear();
            return Ok(());
        }
        // The last bytes may be a part of the mark.
        let known = link.buffer.len().saturating_sub(MARK_BYTES);
        let part: Vec<u8> = link.buffer.drain(..known).collect();
        received.write(&part)?;
        note_received(server, part.len());
        link.read().await?;
    }
}

/// A source that fails once the synchronization is no longer wanted.
struct Cancellable<'s, R> {
    source: R,
    server: &'s Server,
    epoch: u64,
}

impl<R: Read> Read for Cancellable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.server.replication.is_current(self.epoch) || *self.server.ending.borrow() {
            return Err(io::Error::other("REPLICAOF or the end of the server ended it"));
        }
        self.source.read(buffer)
    }
}

fn load(server: &Server, received: &Received, epoch: u64, position: &Position) -> Linked {
    let _load = server.replication.lock_load();
    let open = || {
        let file = File::open(&received.path)
            .map_err(|error| LinkFailure::passing(format!("cannot read the dump: {error}")))?;
        let source = BufReader::with_capacity(1 << 18, file);
        Ok(Cancellable { source, server, epoch })
    };
    read_file(open()?, &mut Check)
        .map_err(|failure| LinkFailure::passing(format!("the dump of the master: {failure}")))?;
    let source = open()?;
    server.replication.is_loading.store(true, Ordering::Release);
    let loaded = Loader::begin(&server.store, "the synchronization with a master", 0)
        .map_err(crate::rdb::Failure::from)
        .and_then(|loader| loader.load(source, Some(position.encode())));
    let outcome = match loaded {
        Ok(_) => end_load(server, position),
        Err(failure) => {
            server.replication.note(|status| status.position = None);
            let text = format!("cannot load the dump of the master: {failure}");
            // At the end of the server the next start does this.
            let is_ending = *server.ending.borrow();
            match if is_ending { Ok(()) } else { clear(server) } {
                Ok(()) => Err(LinkFailure::passing(text)),
                // Keys of a part of the dump stay hidden.
                Err(fail) => return Err(LinkFailure::lasting(format!("{text}; {}", fail.text()))),
            }
        }
    };
    server.replication.is_loading.store(false, Ordering::Release);
    outcome
}

/// Notes the position behind a dump, unless the server has become a master meanwhile. Then clients
/// may write, and the position must not be used again.
fn end_load(server: &Server, position: &Position) -> Linked {
    let _applying = server.replication.lock_applying();
    let is_replica = server.replication.is_replica();
    if !is_replica {
        let ended = server.store.databases.set_master(None);
        ended.map_err(|fail| LinkFailure::lasting(fail.text()))?;
    }
    server.replication.note(|status| {
        status.position = is_replica.then(|| position.clone());
        status.full_syncs += 1;
    });
    Ok(())
}

/// Removes the keys of a part of a dump.
fn clear(server: &Server) -> Result<(), Fail> {
    let mut unit = crate::store::Unit::new(&server.store, crate::store::now_millis());
    unit.lock_all();
    for database in DatabaseId::all_of(0) {
        server.store.databases.clear(database)?;
    }
    server.store.databases.end_loading(None)
}
