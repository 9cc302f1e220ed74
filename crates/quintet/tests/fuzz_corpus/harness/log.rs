//! The log: segment files of arbitrary bytes.

use std::{path::Path, sync::Arc};

use quintet::{
    Error, Result,
    testing::{
        codec::{Lsn, to_u64},
        disk::{Dir, Env, sim::SimEnv},
        wal::{Anchor, Log, LogOptions, SegmentReader},
    },
};

use super::{
    explains_itself,
    fix::{self, Input},
    put_file,
};

const DATABASE_ID: [u8; 16] = *b"fuzz-log-segment";
const NAME: &str = "0000000000000001.log";

/// Reads a segment record by record, then recovers a log from it: twice, because recovery mends
/// files, and a second one must find the same records.
pub(super) fn log_segment(bytes: &[u8]) {
    let env = SimEnv::new(1);
    let dir = env.open_dir(Path::new("/log"), true).expect("a folder");
    let segment =
        fix::Segment { database_id: DATABASE_ID, number: 1, base: 0, boot_id: env.boot_id() };
    let input = Input::new(bytes);
    put_file(&*dir, NAME, &fix::log_segment(input, &segment));
    read_all(&*dir);
    let env: Arc<dyn Env> = Arc::new(env);
    let read_only = recover(&env, &dir, true).map(|(_, records)| records);
    let first = recover(&env, &dir, false);
    match (&read_only, &first) {
        (Ok(seen), Ok((_, records))) => assert_eq!(seen, records, "a look and a recovery agree"),
        (Err(error), _) | (_, Err(error)) => explains_itself(error),
    }
    let Ok((log, records)) = first else { return };
    // No process writes a head with "closed cleanly" over a log with holes. Recovery does not
    // search behind the first hole of such a log.
    if input.variant == 0 {
        return;
    }
    let mut ticket = log.begin().expect("a recovered log takes records");
    let appended = ticket.append(&[b"one more"]).expect("room for a record");
    drop(ticket);
    drop(log);
    let (_, again) = recover(&env, &dir, false).expect("what recovery mended is sound");
    let (last, before) = again.split_last().expect("the appended record");
    assert_eq!(before, records, "a second recovery finds the same");
    assert_eq!(*last, (appended.lsn, b"one more".to_vec()));
}

type Records = Vec<(Lsn, Vec<u8>)>;

fn recover(env: &Arc<dyn Env>, dir: &Arc<dyn Dir>, read_only: bool) -> Result<(Log, Records)> {
    let options = LogOptions { segment_bytes: 16 << 10, read_only, retention: 0 };
    let anchor = Anchor {
        database_id: DATABASE_ID,
        start: Lsn(SegmentReader::first_offset()),
        durable: Lsn(SegmentReader::first_offset()),
        created: false,
        catalog: u64::MAX,
    };
    let mut records = Records::new();
    let log = Log::open(env, dir, &options, &anchor, &mut |lsn, body| {
        records.push((lsn, body.to_vec()));
        Ok(())
    })?;
    assert!(records.is_sorted_by(|one, next| one.0 < next.0), "records come in order");
    Ok((log, records))
}

/// Returns every record, and the results of the search after each invalid place.
fn read_all(dir: &dyn Dir) {
    let open = || -> Result<SegmentReader> {
        let file = dir
            .open(NAME, quintet::testing::disk::Open::READ)
            .map_err(|error| Error::io("open the segment", error))?;
        SegmentReader::open(file, NAME)
    };
    let mut reader = match open() {
        Ok(reader) => reader,
        Err(error) => return explains_itself(&error),
    };
    let mut offset = SegmentReader::first_offset();
    while let Some(found) = reader.next_valid(offset).expect("a readable file") {
        assert!(found.offset >= offset && found.size >= 24);
        let body = reader.body(&found).expect("a readable file");
        assert_eq!(to_u64(body.len()), found.body_bytes.min(to_u64(body.len())));
        assert!(found.durable <= found.lsn);
        offset = found.offset + found.size;
    }
}
