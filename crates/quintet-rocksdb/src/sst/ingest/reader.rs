//! Reads a file of sorted entries, block by block.

use std::{
    fs::File,
    io::{self, BufReader, Read as _},
    path::{Path, PathBuf},
};

use quintet_compat::{
    files::failed, operations::Operations, status::Status, timestamps::TimestampOrder,
};

use super::super::format::{BLOCK_BYTES_MAX, END, KINDS, magic};

/// The blocks of a file. Ends after a failure.
pub struct SstBlocks {
    path: PathBuf,
    file: Option<BufReader<File>>,
    /// Bytes of the file that were not read.
    rest: u64,
    entries: u64,
    timestamps: Option<TimestampOrder>,
}

impl SstBlocks {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, Status> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (rest, file) = opened.map_err(|error| failed(path, &error))?;
        let file = Some(BufReader::new(file));
        let mut blocks =
            Self { path: path.to_path_buf(), file, rest, entries: 0, timestamps: None };
        let first = blocks.bytes::<8>()?;
        let kind = KINDS.into_iter().find(|kind| magic(*kind) == first);
        blocks.timestamps = kind.ok_or_else(|| {
            let name = path.display();
            Status::corruption(format!("{name}: is no file of Quintet's writer"))
        })?;
        Ok(blocks)
    }

    /// Returns the byte order of the timestamps that keys end in. `None`: they have none.
    pub fn timestamps(&self) -> Option<TimestampOrder> {
        self.timestamps
    }

    fn damaged(&self) -> Status {
        Status::corruption(format!("{}: the file is damaged", self.path.display()))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Status> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.rest = self.rest.checked_sub(size).ok_or_else(|| self.damaged())?;
        let file = self.file.as_mut();
        let read = file.map_or(Err(io::ErrorKind::UnexpectedEof.into()), |f| f.read_exact(bytes));
        read.map_err(|error| failed(&self.path, &error))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Status> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    fn block(&mut self) -> Result<Option<Operations>, Status> {
        let size = u32::from_le_bytes(self.bytes()?);
        if size == END {
            let entries = self.bytes::<8>()?;
            let checksum = u32::from_le_bytes(self.bytes()?);
            let is_whole = self.rest == 0 && u64::from_le_bytes(entries) == self.entries;
            if !is_whole || crc32c::crc32c(&entries) != checksum {
                return Err(self.damaged());
            }
            return Ok(None);
        }
        let checksum = u32::from_le_bytes(self.bytes()?);
        if size > BLOCK_BYTES_MAX || u64::from(size) > self.rest {
            return Err(self.damaged());
        }
        let size = usize::try_from(size).map_err(|_| self.damaged())?;
        let mut content = vec![0; size];
        self.read(&mut content)?;
        if crc32c::crc32c(&content) != checksum {
            return Err(self.damaged());
        }
        let block = Operations::from_bytes(&content);
        block.check()?;
        self.entries += u64::from(block.count());
        Ok(Some(block))
    }
}

impl Iterator for SstBlocks {
    type Item = Result<Operations, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        self.file.as_ref()?;
        let block = self.block().transpose();
        if !matches!(block, Some(Ok(_))) {
            self.file = None;
        }
        block
    }
}
