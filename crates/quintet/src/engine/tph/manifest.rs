//! The manifest: which SSTs make which tables of which level.
//!
//! What: a file of edits, `manifest-<number>`. Each edit makes a version of the table set out of
//! the one before; the first one starts from nothing.
//! Why: an edit names the tables that a flush or a merge changed, and takes effect with one sync.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QTPHMANI` |
//! | 8 | 4 | format | 1 |
//! | 12 | 4 | crc | CRC32C of bytes 0 to 47 with this field zero |
//! | 16 | 32 | identity | database id (16), table id (8), number (8) |
//! | 48 | | | zeros |
//! | 512 | | edits | each at a multiple of 512, zeros between them |
//!
//! An edit:
//!
//! | part | meaning |
//! |---|---|
//! | size | 4 bytes: of the body |
//! | crc | 4 bytes: CRC32C of the identity, the edit's offset (8 bytes), size and body |
//! | complete | 8 bytes: LSN below which the files have everything |
//! | next SST | varint: number of the next SST |
//! | fan-out | varint: tables of level 1 in hash ranges, 0 in key ranges |
//! | levels | varint count; each: varint steps, and the steps in order |
//! | a step | varint kind: 0 `keep`, 1 `skip` (varint: how many of the tables of the version before), 2 `add` (a table) |
//! | a table | lowest place (varint length, bytes), varint tombstones, varint SSTs, and these from the newest on: varints number, file bytes, live entries, live bytes |
//!
//! Level 0 is listed from the newest table to the oldest; the others from the lowest place on,
//! the first of which is empty.
//!
//! Invariants: whatever an edit names is durable before the edit is written, names of files
//! included. The manifest of the highest number counts. What follows the last edit that is whole
//! never happened, unless an edit stands behind it: then the bytes between are damaged. Files are
//! removed only once an edit without them is durable, so the version before an edit in doubt is
//! always whole, and a last edit that is damaged is found out by how far the files are complete,
//! or costs nothing. No sector is written twice. Where an edit fails, what the disk holds is in
//! doubt: that file gets nothing more, and another manifest, with its content synced before it has
//! its name, takes its place; so does one when there is much more in a file than its version needs.
//!
//! Thread rules: belongs to whoever publishes.

#![deny(clippy::indexing_slicing)]

use std::{collections::BTreeMap, io, sync::Arc};

use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, File, Open, SECTOR_BYTES, write_all_at},
    lsm::sst::SstOwner,
    util::{
        codec::{
            Decoder, crc32c, crc32c_append, low_u32, put_bytes, put_u32, put_u64, put_varint,
            round_up, to_u64, to_usize,
        },
        mutant::{self, Bug},
    },
};

const MAGIC: &[u8; 8] = b"QTPHMANI";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 48;
/// Levels at most; each is several times the one above.
pub(super) const LEVELS_MAX: u64 = 16;
pub(super) const UNFINISHED: &str = "manifest-new";
/// More than any real one: no length is believed beyond it.
const BYTES_MAX: u64 = 1 << 30;
/// A manifest is written anew when it has so many times the bytes that its version takes.
const REWRITE_TIMES: u64 = if cfg!(test) { 2 } else { 8 };
/// But not one that is smaller than this.
const REWRITE_BYTES: u64 = if cfg!(test) { 2 << 10 } else { 16 << 10 };

const KEEP: u64 = 0;
const SKIP: u64 = 1;
const ADD: u64 = 2;

/// An SST as the manifest names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SstRecord {
    pub(super) number: u64,
    pub(super) file_bytes: u64,
    pub(super) live: u64,
    pub(super) live_bytes: u64,
}

/// A table as the manifest names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableRecord {
    pub(super) low: Vec<u8>,
    pub(super) tombstones: u64,
    pub(super) ssts: Vec<SstRecord>,
}

impl TableRecord {
    /// What tells a table from others of its level.
    fn name(&self) -> (&[u8], u64) {
        (&self.low, self.ssts.first().map_or(0, |sst| sst.number))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.low);
        put_varint(out, self.tombstones);
        put_varint(out, to_u64(self.ssts.len()));
        for sst in &self.ssts {
            for word in [sst.number, sst.file_bytes, sst.live, sst.live_bytes] {
                put_varint(out, word);
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>, next_sst: u64) -> Option<Self> {
        let (low, tombstones) = (decoder.bytes()?.to_vec(), decoder.varint()?);
        let mut table = Self { low, tombstones, ssts: Vec::new() };
        for _ in 0..decoder.varint()? {
            table.ssts.push(SstRecord {
                number: decoder.varint().filter(|number| *number < next_sst)?,
                file_bytes: decoder.varint()?,
                live: decoder.varint()?,
                live_bytes: decoder.varint()?,
            });
        }
        Some(table)
    }
}

/// A version of the table set, as a manifest says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) complete: u64,
    pub(super) next_sst: u64,
    pub(super) fanout: u64,
    pub(super) levels: Vec<Vec<TableRecord>>,
}

/// The name of a manifest.
pub(super) fn name_of(number: u64) -> String {
    format!("manifest-{number:08x}")
}

/// The number in a manifest's name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-").filter(|digits| digits.len() >= 8)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name_of(*number) == name)
}

fn identity(database_id: &[u8; 16], table_id: u64, number: u64) -> Vec<u8> {
    let mut out = database_id.to_vec();
    put_u64(&mut out, table_id);
    put_u64(&mut out, number);
    out
}

fn head(identity: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put_u32(&mut out, FORMAT);
    put_u32(&mut out, 0);
    out.extend_from_slice(identity);
    let crc = crc32c(&out).to_le_bytes();
    if let Some(field) = out.get_mut(12..16) {
        field.copy_from_slice(&crc);
    }
    out.resize(to_usize(SECTOR_BYTES), 0);
    out
}

/// The steps from the tables of one level to those of the next version.
#[derive(Debug, Default)]
struct Steps {
    bytes: Vec<u8>,
    count: u64,
    /// Tables kept since the last step.
    kept: u64,
}

impl Steps {
    fn between(before: &[TableRecord], after: &[TableRecord]) -> Self {
        let places: BTreeMap<_, _> =
            before.iter().zip(0_usize..).map(|(table, place)| (table.name(), place)).collect();
        let (mut steps, mut at) = (Self::default(), 0);
        for table in after {
            let place = places.get(&table.name()).copied().filter(|place| *place >= at);
            match place.filter(|place| before.get(*place) == Some(table)) {
                Some(place) => {
                    steps.skip(to_u64(place - at));
                    steps.kept += 1;
                    at = place + 1;
                }
                None => steps.add(table),
            }
        }
        steps.end_kept();
        steps
    }

    fn put(&mut self, kind: u64, many: u64) {
        put_varint(&mut self.bytes, kind);
        put_varint(&mut self.bytes, many);
        self.count += 1;
    }

    fn end_kept(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        if kept > 0 {
            self.put(KEEP, kept);
        }
    }

    fn skip(&mut self, many: u64) {
        if many > 0 {
            self.end_kept();
            self.put(SKIP, many);
        }
    }

    fn add(&mut self, table: &TableRecord) {
        self.end_kept();
        put_varint(&mut self.bytes, ADD);
        table.encode(&mut self.bytes);
        self.count += 1;
    }
}

/// Makes the tables of a level out of those of the version before.
fn take_steps(
    decoder: &mut Decoder<'_>,
    before: &[TableRecord],
    next_sst: u64,
) -> Option<Vec<TableRecord>> {
    let mut rest = before.iter();
    let mut tables = Vec::new();
    for _ in 0..decoder.varint()? {
        let kind = decoder.varint()?;
        if kind == ADD {
            tables.push(TableRecord::decode(decoder, next_sst)?);
            continue;
        }
        let many = decoder.varint().filter(|many| *many <= to_u64(rest.len()))?;
        let these = rest.by_ref().take(to_usize(many));
        match kind {
            KEEP => tables.extend(these.cloned()),
            SKIP => these.for_each(drop),
            _ => return None,
        }
    }
    Some(tables)
}

impl Contents {
    /// The body of the edit that makes `self` out of `before`.
    fn encode(&self, before: &Self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.complete);
        put_varint(&mut out, self.next_sst);
        put_varint(&mut out, self.fanout);
        put_varint(&mut out, to_u64(self.levels.len()));
        for (place, level) in self.levels.iter().enumerate() {
            let before = before.levels.get(place).map_or(&[][..], Vec::as_slice);
            let steps = Steps::between(before, level);
            put_varint(&mut out, steps.count);
            out.extend_from_slice(&steps.bytes);
        }
        out
    }

    /// What an edit's body makes of `self`.
    fn edited(&self, body: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(body);
        let complete = decoder.u64()?;
        let (next_sst, fanout) = (decoder.varint()?, decoder.varint()?);
        let mut levels = Vec::new();
        for place in 0..to_usize(decoder.varint().filter(|count| *count <= LEVELS_MAX)?) {
            let before = self.levels.get(place).map_or(&[][..], Vec::as_slice);
            levels.push(take_steps(&mut decoder, before, next_sst)?);
        }
        // Below level 0, every place belongs to a table, or the level has none.
        let covers = |level: &Vec<TableRecord>| {
            level.first().is_none_or(|table| table.low.is_empty())
                && level.is_sorted_by(|one, next| one.low < next.low)
        };
        let sound = decoder.is_empty() && levels.iter().skip(1).all(covers);
        sound.then_some(Self { complete, next_sst, fanout, levels })
    }
}

fn checksum(identity: &[u8], offset: u64, size_and_body: (&[u8], &[u8])) -> u32 {
    let sum = crc32c_append(crc32c(identity), &offset.to_le_bytes());
    crc32c_append(crc32c_append(sum, size_and_body.0), size_and_body.1)
}

/// An edit as it stands in the file at `offset`, filled up to whole sectors.
fn edit(identity: &[u8], offset: u64, body: &[u8]) -> Vec<u8> {
    let size = low_u32(to_u64(body.len())).to_le_bytes();
    let mut out = size.to_vec();
    put_u32(&mut out, checksum(identity, offset, (&size, body)));
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(to_usize(SECTOR_BYTES)), 0);
    out
}

/// The body of the edit at `offset`, and where the next one would begin; `None` where there is no
/// whole edit.
fn body_at<'a>(bytes: &'a [u8], identity: &[u8], offset: u64) -> Option<(&'a [u8], u64)> {
    let mut decoder = Decoder::new(bytes.get(to_usize(offset)..)?);
    let size = decoder.u32().filter(|size| *size > 0)?;
    let sum = decoder.u32()?;
    let body = decoder.take(to_usize(u64::from(size)))?;
    let found = checksum(identity, offset, (&size.to_le_bytes(), body));
    let sound = found == sum || mutant::active(Bug::TphSkipsEditChecksum);
    sound.then_some((body, round_up(offset + 8 + u64::from(size), SECTOR_BYTES)))
}

/// What a manifest's bytes say.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) identity: ([u8; 16], u64, u64),
    pub(super) contents: Contents,
    pub(super) edits: u64,
    /// Where the last whole edit ends.
    pub(super) end: u64,
    /// Something stands behind it that is none.
    pub(super) is_torn: bool,
}

/// Decodes a manifest; says where it is damaged and how.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, (u64, String)> {
    let mut decoder = Decoder::new(bytes);
    let magic = decoder.take(8).unwrap_or(&[]);
    let (format, crc) = (decoder.u32().unwrap_or(0), decoder.u32().unwrap_or(0));
    let mut copy = bytes.get(..HEAD_BYTES).unwrap_or(&[]).to_vec();
    if let Some(field) = copy.get_mut(12..16) {
        field.fill(0);
    }
    if magic != MAGIC || crc32c(&copy) != crc {
        return Err((0, "no manifest, or its checksum does not match".to_owned()));
    }
    if format != FORMAT {
        return Err((8, format!("format {format}, this release reads {FORMAT}")));
    }
    let named = decoder.id().zip(decoder.u64()).zip(decoder.u64());
    let ((database, table), number) = named.ok_or((0, "the head is cut off".to_owned()))?;
    let identity = identity(&database, table, number);
    let (mut contents, mut edits, mut end) = (Contents::default(), 0, SECTOR_BYTES);
    while let Some((body, next)) = body_at(bytes, &identity, end) {
        let edited = contents.edited(body);
        contents = edited.ok_or_else(|| (end, "an edit does not parse".to_owned()))?;
        (edits, end) = (edits + 1, next);
    }
    let rest = bytes.get(to_usize(end)..).unwrap_or(&[]);
    let is_torn = rest.iter().any(|byte| *byte != 0);
    let behind = (1..to_u64(rest.len()).div_ceil(SECTOR_BYTES)).map(|n| end + n * SECTOR_BYTES);
    if behind.into_iter().any(|offset| body_at(bytes, &identity, offset).is_some()) {
        return Err((end, "an edit is damaged; others follow it".to_owned()));
    }
    if edits == 0 {
        // The first one was durable before the manifest had its name.
        return Err((end, "the first edit is damaged".to_owned()));
    }
    Ok(Decoded { identity: (database, table, number), contents, edits, end, is_torn })
}

/// The manifest that counts, and what it says. See the module head.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) contents: Contents,
    /// Its number, and the highest that was tried.
    number: u64,
    tried: u64,
    file: Option<Arc<dyn File>>,
    /// Where the next edit goes.
    end: u64,
    /// Bytes of its first edit, which makes a whole version.
    first_bytes: u64,
    in_doubt: bool,
}

/// What was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) bytes: u64,
    /// The manifest that another one has replaced.
    pub(super) replaced: Option<String>,
}

impl Manifest {
    /// Reads the manifest of this number. `complete`: how far the files must be complete.
    pub(super) fn open(owner: &SstOwner, number: u64, write: bool, complete: u64) -> Result<Self> {
        let name = name_of(number);
        let label = owner.label(&name);
        let how = if write { Open::WRITE } else { Open::READ };
        let file = owner.dir.open(&name, how);
        let file = file.map_err(|error| Error::io(format!("read {label}"), error))?;
        if write {
            // A process that died may have left it, or its name, in the cache alone. The log is
            // pruned on the strength of it.
            file.sync_all().map_err(|error| Error::io(format!("sync {label}"), error))?;
            sync_dir(owner)?;
        }
        let bytes = read_past_cache(owner, &name, &label)?;
        refuse_newer(&bytes, &label)?;
        let damage = |(at, what): (u64, String)| Error::corruption(&*label, at, what);
        let found = decode(&bytes).map_err(damage)?;
        if found.identity != (owner.database_id, owner.table_id, number) {
            return Err(damage((16, "it is another manifest, or another table's".to_owned())));
        }
        if found.contents.complete < complete && found.is_torn {
            return Err(damage((found.end, "its last edit is damaged".to_owned())));
        }
        Ok(Self {
            contents: found.contents,
            number,
            tried: number,
            file: Some(file),
            end: found.end,
            first_bytes: SECTOR_BYTES,
            // Nothing is written behind what is no edit.
            in_doubt: to_u64(bytes.len()) > found.end,
        })
    }

    /// Bytes of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// Makes a version count, durably. After a failure it may count or not; the next one decides.
    pub(super) fn publish(&mut self, owner: &SstOwner, contents: Contents) -> Result<Written> {
        // The names of SSTs first: none that an edit names may be missing.
        if !mutant::active(Bug::TphNamesPiecesLate) {
            sync_dir(owner)?;
        }
        let is_long = self.end > REWRITE_BYTES.max(self.first_bytes * REWRITE_TIMES);
        let written = match self.file.clone().filter(|_| !self.in_doubt && !is_long) {
            Some(file) => self.append(owner, &*file, &contents)?,
            None => self.replace(owner, &contents)?,
        };
        self.contents = contents;
        Ok(written)
    }

    fn append(
        &mut self,
        owner: &SstOwner,
        file: &dyn File,
        contents: &Contents,
    ) -> Result<Written> {
        let label = owner.label(&name_of(self.number));
        let identity = identity(&owner.database_id, owner.table_id, self.number);
        let bytes = edit(&identity, self.end, &contents.encode(&self.contents));
        self.in_doubt = !mutant::active(Bug::TphTrustsFailedEdit);
        let at = self.end;
        if mutant::active(Bug::TphTrustsFailedEdit) {
            self.end += to_u64(bytes.len());
        }
        write_all_at(file, &bytes, at)
            .map_err(|error| Error::io(format!("write {label}"), error))?;
        if !mutant::active(Bug::TphSkipsEditSync) {
            file.sync_data().map_err(|error| Error::io(format!("sync {label}"), error))?;
        }
        self.in_doubt = false;
        self.end = at + to_u64(bytes.len());
        Ok(Written { bytes: to_u64(bytes.len()), replaced: None })
    }

    /// Writes a manifest of its own for a version.
    fn replace(&mut self, owner: &SstOwner, contents: &Contents) -> Result<Written> {
        self.tried += 1;
        let number = self.tried;
        let label = owner.label(&name_of(number));
        let identity = identity(&owner.database_id, owner.table_id, number);
        let mut bytes = head(&identity);
        bytes.extend(edit(&identity, SECTOR_BYTES, &contents.encode(&Contents::default())));
        let io = |error: io::Error| Error::io(format!("write {label}"), error);
        match owner.dir.remove(UNFINISHED) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let file = owner.dir.open(UNFINISHED, Open::CREATE).map_err(io)?;
        write_all_at(&*file, &bytes, 0).map_err(io)?;
        if !mutant::active(Bug::TphSkipsManifestSync) {
            file.sync_all().map_err(|error| Error::io(format!("sync {label}"), error))?;
        }
        // From here on a crash may find either.
        self.in_doubt = true;
        owner.dir.rename(UNFINISHED, &name_of(number)).map_err(io)?;
        if !mutant::active(Bug::TphSkipsDirSync) {
            sync_dir(owner)?;
        }
        let replaced = self.file.replace(file).map(|_| name_of(self.number));
        self.end = to_u64(bytes.len());
        (self.number, self.first_bytes, self.in_doubt) = (number, self.end, false);
        Ok(Written { bytes: self.end, replaced })
    }

    /// The name of a manifest that was tried last and does not count, if there is one.
    pub(super) fn doubtful(&self) -> Option<String> {
        (self.tried > self.number).then(|| name_of(self.tried))
    }
}

fn sync_dir(owner: &SstOwner) -> Result<()> {
    owner.dir.sync().map_err(|error| Error::io(format!("sync {}", owner.label("")), error))
}

/// Reads a file from the disk: what a failed sync left in the cache alone does not count.
fn read_past_cache(owner: &SstOwner, name: &str, label: &str) -> Result<Vec<u8>> {
    let io = |error: io::Error| Error::io(format!("read {label}"), error);
    let file = owner.dir.open(name, Open::READ.direct()).map_err(io)?;
    let length = file.len().map_err(io)?;
    if length > BYTES_MAX {
        return Err(Error::corruption(label, 0, format!("{length} bytes are no manifest")));
    }
    let mut buffer = AlignedBuffer::zeroed(to_usize(round_up(length, BLOCK_BYTES)));
    let mut done = 0;
    // Behind an end within a block there is nothing.
    while done < to_usize(length) && to_u64(done).is_multiple_of(BLOCK_BYTES) {
        let rest = buffer.as_mut_slice().get_mut(done..).unwrap_or(&mut []);
        match file.read_at(rest, to_u64(done)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io(error)),
        }
    }
    Ok(buffer.as_slice().get(..done.min(to_usize(length))).unwrap_or(&[]).to_vec())
}

/// An error for the manifest of a newer release.
fn refuse_newer(bytes: &[u8], label: &str) -> Result<()> {
    let mut copy = bytes.get(..HEAD_BYTES).unwrap_or(&[]).to_vec();
    let mut decoder = Decoder::new(bytes.get(8..).unwrap_or(&[]));
    let (format, crc) = (decoder.u32().unwrap_or(0), decoder.u32());
    if let Some(field) = copy.get_mut(12..16) {
        field.fill(0);
    }
    if bytes.starts_with(MAGIC) && format > FORMAT && crc == Some(crc32c(&copy)) {
        let file = label.to_owned();
        return Err(Error::NewerFormat { file, found: format, supported: FORMAT });
    }
    Ok(())
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    fn sst(number: u64) -> SstRecord {
        SstRecord { number, file_bytes: 8192, live: 3, live_bytes: 300 }
    }

    fn table(low: &[u8], numbers: &[u64]) -> TableRecord {
        let ssts = numbers.iter().map(|number| sst(*number)).collect();
        TableRecord { low: low.to_vec(), tombstones: 1, ssts }
    }

    fn sample() -> Contents {
        Contents {
            complete: 4096,
            next_sst: 50,
            fanout: 0,
            levels: vec![vec![table(b"", &[4, 2])], vec![table(b"", &[6]), table(b"m", &[8, 7])]],
        }
    }

    fn file(versions: &[Contents]) -> Vec<u8> {
        let identity = identity(&[9; 16], 3, 7);
        let mut bytes = head(&identity);
        let mut before = Contents::default();
        for version in versions {
            let offset = to_u64(bytes.len());
            bytes.extend(edit(&identity, offset, &version.encode(&before)));
            before = version.clone();
        }
        bytes
    }

    fn versions() -> [Contents; 3] {
        let first = sample();
        let mut second = first.clone();
        second.complete = 5000;
        second.levels[0].insert(0, table(b"", &[9]));
        let mut third = second.clone();
        third.levels[0].clear();
        third.levels[1] = vec![
            table(b"", &[6]),
            table(b"c", &[12]),
            table(b"m", &[13, 8, 7]),
            table(b"x", &[14]),
        ];
        third.levels.push(vec![table(b"", &[])]);
        [first, second, third]
    }

    #[test]
    fn each_edit_makes_its_version() {
        let all = versions();
        for count in 1..=3 {
            let found = decode(&file(&all[..count])).unwrap();
            assert_eq!(found.contents, all[count - 1]);
            assert_eq!((found.edits, found.is_torn), (to_u64(count), false));
            assert_eq!(found.identity, ([9; 16], 3, 7));
        }
        // From any version to any other.
        for one in &all {
            for other in &all {
                assert_eq!(one.edited(&other.encode(one)).as_ref(), Some(other));
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_damage_or_takes_the_last_edit_away() {
        flipped_bits();
    }

    #[test]
    fn skipping_the_checksum_of_edits_is_found() {
        mutant::finds(Bug::TphSkipsEditChecksum, flipped_bits);
    }

    fn flipped_bits() {
        let all = versions();
        let bytes = file(&all);
        let last = to_u64(file(&all[..2]).len());
        for byte in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1 << (byte % 8);
            match decode(&damaged) {
                Err(_) => assert!(to_u64(byte) < last, "byte {byte}"),
                Ok(found) if found.contents == all[2] => {
                    assert_eq!(bytes[byte], 0, "byte {byte} is checked");
                }
                Ok(found) => {
                    assert!(to_u64(byte) >= last && found.is_torn, "byte {byte}");
                    assert_eq!(found.contents, all[1]);
                }
            }
        }
        for cut in 0..bytes.len() {
            match decode(&bytes[..cut]) {
                Ok(found) => assert!(all.contains(&found.contents)),
                Err(_) => assert!(cut < file(&all[..1]).len()),
            }
        }
    }

    #[test]
    fn what_no_writer_makes_does_not_parse() {
        let first = sample();
        let body = first.encode(&Contents::default());
        for cut in 0..body.len() {
            assert_eq!(Contents::default().edited(&body[..cut]), None);
        }
        // It keeps a table of a version that has none.
        let keeps = first.encode(&first);
        assert_eq!(Contents::default().edited(&keeps), None);
        let mut unsorted = first.clone();
        unsorted.levels[1].reverse();
        assert_eq!(first.edited(&unsorted.encode(&first)), None);
    }

    #[test]
    fn the_layout_is_pinned() {
        let bytes = file(&versions()[..2]);
        assert_eq!(bytes.len(), 3 * 512);
        assert_eq!(bytes[..12], *b"QTPHMANI\x01\0\0\0");
        assert_eq!(bytes[40..48], [7, 0, 0, 0, 0, 0, 0, 0]);
        let body = &bytes[520..];
        assert_eq!(body[..11], [0, 16, 0, 0, 0, 0, 0, 0, 50, 0, 2]);
        assert_eq!(body[11..17], [1, 2, 0, 1, 2, 4]);
        let second = &bytes[1032..];
        assert_eq!(second[..11], [136, 19, 0, 0, 0, 0, 0, 0, 50, 0, 2]);
        assert_eq!(second[11..24], [2, 2, 0, 1, 1, 9, 128, 64, 3, 172, 2, 0, 1]);
        assert_eq!(second[24..28], [1, 0, 2, 0]);
    }

    #[test]
    fn names_are_exact() {
        assert_eq!(number_of("manifest-0000000a"), Some(10));
        assert_eq!(number_of("manifest-a"), None);
        assert_eq!(number_of("manifest-0000000A"), None);
        assert_eq!(number_of(UNFINISHED), None);
    }
}
