//! Writes a file of sorted entries.

use std::{
    borrow::Cow,
    fs::File,
    io::{BufWriter, Write as _},
    path::PathBuf,
};

use quintet_compat::{
    boundary::{Text, assert_sent},
    comparator::ComparatorCalls,
    files::{failed, sync_directory},
    operations::{Action, Operations, Record},
    status::Status,
    timestamps::{self, TimestampOrder},
};

use crate::environment::Environment;

use super::format::{BLOCK_BYTES, BLOCK_BYTES_MAX, END, magic};

/// `rocksdb_sstfilewriter_t`.
#[derive(Debug)]
pub struct SstWriter {
    comparator: Option<ComparatorCalls>,
    environment: Environment,
    open: Option<OpenFile>,
    /// Size of the file in bytes.
    size: u64,
}

const _: () = assert_sent::<SstWriter>();

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    file: BufWriter<File>,
    block: Operations,
    ranges: Operations,
    last: Option<Vec<u8>>,
    entries: u64,
    /// The byte order of timestamps. `None`: keys have none.
    timestamps: Option<TimestampOrder>,
}

impl OpenFile {
    /// Writes bytes, and returns their number.
    fn write(&mut self, bytes: &[u8]) -> Result<u64, Status> {
        self.file.write_all(bytes).map_err(|error| failed(&self.path, &error))?;
        Ok(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }

    /// Writes a block, and returns its size. Writes none without entries.
    fn write_block(&mut self, block: &Operations) -> Result<u64, Status> {
        block.check()?;
        if block.count() == 0 {
            return Ok(0);
        }
        let content = block.bytes();
        let size = u32::try_from(content.len()).ok().filter(|size| *size <= BLOCK_BYTES_MAX);
        let size = size.ok_or_else(|| Status::invalid("the entry is too large"))?;
        let written = self.write(&size.to_le_bytes())?;
        let written = written + self.write(&crc32c::crc32c(content).to_le_bytes())?;
        Ok(written + self.write(content)?)
    }
}

impl SstWriter {
    /// Makes a writer without a file.
    pub fn new(comparator: Option<ComparatorCalls>, environment: Environment) -> Self {
        Self { comparator, environment, open: None, size: 0 }
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Begins a file. An existing one is replaced.
    pub fn open(&mut self, name: Text) -> Result<(), Status> {
        let timestamps = match &self.comparator {
            Some(comparator) => comparator.check_samples()?,
            None => None,
        };
        let path = self.environment.path(name)?;
        let file = File::create(&path).map_err(|error| failed(&path, &error))?;
        let mut open = OpenFile {
            path,
            file: BufWriter::new(file),
            block: Operations::default(),
            ranges: Operations::default(),
            last: None,
            entries: 0,
            timestamps,
        };
        self.size = open.write(&magic(timestamps))?;
        self.open = Some(open);
        Ok(())
    }

    /// Adds an entry. Keys must ascend, except those of range deletes, and the timestamps of a key
    /// must descend.
    pub fn add(
        &mut self,
        action: Action,
        (key, timestamp): (&[u8], Option<&[u8]>),
        value: &[u8],
    ) -> Result<(), Status> {
        let has_timestamps = self.comparator.is_some_and(|comparator| comparator.has_timestamps());
        if has_timestamps != timestamp.is_some() {
            let what = if has_timestamps { "them, the entry not" } else { "no timestamps" };
            let message = format!("Timestamp sizes mismatch: the comparator has {what}");
            return Err(Status::invalid(message));
        }
        let open = self.open.as_mut().ok_or_else(|| Status::invalid("File is not opened"))?;
        // The key of the record, and what has the order of the entries.
        let (key, order) = match (open.timestamps, timestamp) {
            (Some(order), Some(bytes)) => {
                let timestamp = order.number(bytes)?;
                (Cow::Owned([key, bytes].concat()), timestamps::stored(key, timestamp))
            }
            _ => (Cow::Borrowed(key), key.to_vec()),
        };
        let record = Record { action, family: 0, key: &key, value };
        open.entries += 1;
        if action == Action::DeleteRange {
            open.ranges.add(record);
            return open.ranges.check();
        }
        if open.last.as_ref().is_some_and(|last| *last >= order) {
            open.entries -= 1;
            return Err(Status::invalid("Keys must be added in strict ascending order."));
        }
        open.last = Some(order);
        open.block.add(record);
        if open.block.bytes().len() >= BLOCK_BYTES {
            let block = std::mem::take(&mut open.block);
            self.size += open.write_block(&block)?;
        }
        Ok(())
    }

    /// Ends the file. It is durable then.
    pub fn finish(&mut self) -> Result<(), Status> {
        let mut open = self.open.take().ok_or_else(|| Status::invalid("File is not opened"))?;
        if open.entries == 0 {
            return Err(Status::invalid("Cannot create sst file with no entries"));
        }
        let blocks = [std::mem::take(&mut open.block), std::mem::take(&mut open.ranges)];
        for block in blocks {
            self.size += open.write_block(&block)?;
        }
        let entries = open.entries.to_le_bytes();
        self.size += open.write(&END.to_le_bytes())?;
        self.size += open.write(&entries)?;
        self.size += open.write(&crc32c::crc32c(&entries).to_le_bytes())?;
        let OpenFile { path, file, .. } = open;
        let file = file.into_inner().map_err(|error| failed(&path, error.error()))?;
        file.sync_all().map_err(|error| failed(&path, &error))?;
        path.parent().map_or(Ok(()), sync_directory)
    }
}
