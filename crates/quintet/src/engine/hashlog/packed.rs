//! Packed extents of a table: written, read whole, and found by position. [`super::pack`] has the
//! layout.
//!
//! With `compression`, an extent has its own file range, of its compressed size. Without, an extent
//! is in its chunk's range, at the same offset as in memory.

use super::{
    arena::EXTENT_HEAD_UNITS,
    chunk::Chunk,
    files::{CHUNK_MAGIC, EXTENT_HEAD_BYTES, ExtentHead, FileRange},
    maintenance::Maintenance,
    manifest::Extent,
    pack::{BlockDirectory, PackedExtent, pack, pack_value},
    table::HashLog,
};
use crate::{
    Result,
    io::AlignedBuffer,
    util::{
        codec::{crc32c, low_u32, to_u64, to_usize},
        mutant::mutant,
    },
};

impl HashLog {
    /// Compresses and writes an extent's `image`, without a sync. Returns its file range and its
    /// directory.
    pub(super) fn write_packed(
        &self,
        maintenance: &mut Maintenance,
        chunk: &Chunk,
        image: &[u8],
        head: &mut ExtentHead,
    ) -> Result<(FileRange, Vec<u8>)> {
        let packed = pack(image);
        let stored = EXTENT_HEAD_BYTES + packed.body.len();
        head.body_crc = crc32c(&packed.body);
        head.packing = low_u32(to_u64(packed.directory.len()));
        let mut buffer = AlignedBuffer::zeroed(stored);
        let (front, back) = buffer.as_mut_slice().split_at_mut(EXTENT_HEAD_BYTES);
        front.copy_from_slice(&head.encode(CHUNK_MAGIC, &self.owner));
        back[..packed.body.len()].copy_from_slice(&packed.body);
        let file_range = maintenance.files.allocate(to_u64(stored), head.updated)?;
        if let Err(error) = maintenance.files.write(&file_range, 0, buffer.as_slice()) {
            // A later flush writes the extent to another range.
            maintenance.files.free(file_range);
            return Err(error);
        }
        let (start, end) = (u64::from(head.start), u64::from(head.end));
        let blocks = BlockDirectory::decode(&packed.directory, start, end, file_range.bytes);
        debug_assert!(blocks.is_some());
        let blocks = blocks.unwrap_or_default();
        chunk.add_packed_extent(PackedExtent {
            start,
            end,
            file_range: file_range.clone(),
            blocks,
        });
        Ok((file_range, packed.directory))
    }

    /// Reads, verifies and decompresses an extent. Returns its image, with a zero head, and its
    /// directory. Fails with `Corruption` if it is damaged.
    pub(super) fn read_packed(
        &self,
        file_range: &FileRange,
        extent: &Extent,
    ) -> Result<(AlignedBuffer, Vec<u8>)> {
        let (buffer, skip) = file_range.read(0, to_usize(file_range.bytes))?;
        let stored = buffer.as_slice().get(skip..).unwrap_or(&[]);
        let head = ExtentHead::decode(stored, CHUNK_MAGIC, &self.owner)
            .map_err(|what| file_range.damage(0, what))?;
        let named = (head.serial, head.order, u64::from(head.start), u64::from(head.end));
        let named = (named, u64::from(head.packing));
        let wanted = (extent.serial, extent.order, extent.start, extent.end);
        if named != (wanted, extent.packing_bytes()) {
            return Err(file_range.damage(0, "the file range holds another extent"));
        }
        let body = stored.get(EXTENT_HEAD_BYTES..).unwrap_or(&[]);
        let no_directory = || file_range.damage(0, "the directory of the extent is not valid");
        let directory = body.get(..to_usize(extent.packing_bytes())).ok_or_else(no_directory)?;
        let blocks = BlockDirectory::decode(directory, extent.start, extent.end, file_range.bytes)
            .ok_or_else(no_directory)?;
        let body = stored.get(EXTENT_HEAD_BYTES..to_usize(blocks.stored_bytes())).unwrap_or(&[]);
        let body_crc = crc32c(body);
        let matches = u64::from(body_crc) == extent.body_crc && body_crc == head.body_crc;
        let valid = mutant!(HashlogSkipsExtentChecksum: true, else matches);
        if !valid {
            return Err(file_range.damage(0, "the checksum of the extent does not match"));
        }
        let mut image = AlignedBuffer::zeroed(to_usize((extent.end - extent.start) * 8));
        for block in blocks.iter() {
            let at = to_usize((block.start - extent.start) * 8);
            let out = image.as_mut_slice().get_mut(at..at + block.unpacked_bytes());
            let from = stored.get(to_usize(block.from)..).unwrap_or(&[]);
            out.and_then(|out| block.unpack(from, out))
                .ok_or_else(|| file_range.damage(block.from, "the block does not decompress"))?;
        }
        Ok((image, directory.to_vec()))
    }

    /// Reads a packed chunk. Returns its entries at their positions, with zero heads of extents.
    pub(super) fn read_packed_chunk(
        &self,
        chunk: &Chunk,
        extents: &[Extent],
        end: u64,
    ) -> Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(to_usize(end * 8));
        for extent in extents {
            let Some(packed_extent) = chunk.packed_extent(extent.start + EXTENT_HEAD_UNITS) else {
                return Err(chunk.damage(extent.start, "an extent of the chunk has no file range"));
            };
            let (image, _) = self.read_packed(&packed_extent.file_range, extent)?;
            let (from, to) = (to_usize(extent.start * 8), to_usize(extent.end * 8));
            if let Some(out) = buffer.as_mut_slice().get_mut(from..to) {
                out.copy_from_slice(image.as_slice().get(..to - from).unwrap_or(&[]));
            }
        }
        Ok(buffer)
    }

    /// Returns the compressed bytes of a large value; `None` if it is to be stored as it is.
    pub(super) fn large_body(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.settings.compresses.then(|| pack_value(bytes)).flatten()
    }
}
