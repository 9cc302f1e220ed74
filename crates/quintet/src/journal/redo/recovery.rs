//! Opening the journal: finds the files, reads their chains of groups, and returns the needed ones.

#![deny(clippy::indexing_slicing)]

use std::{collections::BTreeMap, sync::Arc};

use super::{
    file::{ForwardReader, JournalFile, PREFIX, number_of},
    group::{
        FORMAT_PAGES, GroupHead, HEAD_BYTES, RedoGroup, format_of, verified_group, verified_index,
    },
    journal::RedoJournal,
    owner::Owner,
};
use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, Dir, File, Open, read_up_to},
    util::{
        codec::{Decoder, round_up, to_u64, to_usize},
        report::Report,
    },
};

/// The groups of a file, from its start to the first that is damaged or not there.
#[derive(Debug, Default)]
struct GroupChain {
    groups: Vec<RedoGroup>,
    /// The damage that ends the chain, and the sequence of the group that proves it: a later one,
    /// or the damaged group itself if it is sealed.
    damage: Option<(u64, Error)>,
}

impl RedoJournal {
    /// Opens the journal in the table's directory and calls `apply` with the groups that are
    /// needed, oldest first. Fails with `Corruption` if one of them is damaged or missing.
    ///
    /// `limit` is the size in bytes that the files together should not exceed. Needed groups may
    /// exceed it. Unless `read_only`, the groups are durable before `apply` is called. Page patches
    /// of sealed groups are not read.
    pub(crate) fn open(
        owner: Owner,
        limit: u64,
        read_only: bool,
        apply: impl FnMut(RedoGroup) -> Result<()>,
    ) -> Result<Self> {
        Self::open_as(owner, limit, (read_only, false), apply)
    }

    /// Calls `visit` with all groups of one file of any table, until it returns false. For
    /// `inspect`: recovery does not use it.
    pub(crate) fn read_all(
        dir: &Arc<dyn Dir>,
        file: &dyn File,
        name: &str,
        visit: &mut dyn FnMut(&Owner, &RedoGroup) -> bool,
    ) -> Result<()> {
        let io = |error| Error::io(format!("read {name}"), error);
        let mut head = AlignedBuffer::zeroed(to_usize(BLOCK_BYTES));
        read_up_to(file, head.as_mut_slice(), 0).map_err(io)?;
        let mut rest = Decoder::new(head.as_slice().get(16..HEAD_BYTES).unwrap_or(&[]));
        let owner = rest.id().zip(rest.u64()).map(|(database_id, table_id)| Owner {
            dir: Arc::clone(dir),
            database_id,
            table_id,
        });
        let Some(owner) = owner.filter(|owner| GroupHead::decode(head.as_slice(), owner).is_some())
        else {
            return Err(Error::corruption(name, 0, "the first group is damaged"));
        };
        let size = file.len().map_err(io)?;
        let mut reader = ForwardReader::new(file, name, size);
        let mut offset = 0;
        while let Some(bytes) = reader.get(offset, to_u64(HEAD_BYTES))?
            && let Some(head) = GroupHead::decode(bytes, &owner)
        {
            let size = head.group_bytes().unwrap_or(u64::MAX);
            let bytes = reader.get(offset, size)?;
            let Some(group) = bytes.and_then(|bytes| verified_group(head, bytes)) else {
                let what = format!("the checksum of group {} does not match", head.sequence);
                return Err(Error::corruption(name, offset, what));
            };
            if !visit(&owner, &group) {
                break;
            }
            offset = round_up(offset + size, BLOCK_BYTES);
        }
        Ok(())
    }

    /// Opens as [`RedoJournal::open`] does. With `reads_all`, reads and verifies sealed groups
    /// completely.
    fn open_as(
        owner: Owner,
        limit: u64,
        (read_only, reads_all): (bool, bool),
        mut apply: impl FnMut(RedoGroup) -> Result<()>,
    ) -> Result<Self> {
        let mut journal = Self {
            owner,
            files: Vec::new(),
            next_number: 1,
            next_sequence: 1,
            newest: 0,
            needed: 1,
            file_bytes_max: limit / 2,
            lacks_space: false,
        };
        let mut groups = BTreeMap::new();
        let mut newest_file = None;
        let mut damage = None;
        for (number, name) in journal.list_files()? {
            let chain = journal.read_chain(number, name, (read_only, reads_all))?;
            journal.next_number = number + 1;
            let last = chain.groups.last().map_or(0, RedoGroup::sequence);
            if last > journal.newest {
                (journal.newest, newest_file) = (last, Some(number));
            }
            damage = chain.damage.or(damage);
            groups.extend(chain.groups.into_iter().map(|group| (group.sequence(), group)));
        }
        // If all needed groups are there, damage before them does not matter.
        if let Some((successor, damage)) = damage
            && successor > journal.newest
        {
            return Err(damage);
        }
        journal.files.sort_by_key(|file| (Some(file.number) == newest_file, file.number));
        let Some(head) = groups.get(&journal.newest).map(|group| group.head) else {
            return Ok(journal);
        };
        journal.needed = head.needed;
        journal.next_sequence = head.sequence + 1;
        for group in journal.needed_groups(head, groups)? {
            apply(group)?;
        }
        Ok(journal)
    }

    /// Returns the needed groups up to `newest`, oldest first. Each follows the one before.
    fn needed_groups(
        &self,
        newest: GroupHead,
        mut groups: BTreeMap<u64, RedoGroup>,
    ) -> Result<Vec<RedoGroup>> {
        let (mut needed, mut sequence) = (Vec::new(), newest.sequence);
        while sequence >= newest.needed {
            let Some(group) = groups.remove(&sequence) else {
                let label = self.owner.label(PREFIX);
                let what = format!("group {sequence} is missing before {}", newest.sequence);
                return Err(Error::corruption(label, 0, what));
            };
            sequence = group.head.follows;
            needed.push(group);
        }
        needed.reverse();
        Ok(needed)
    }

    /// Lists the numbers and names of the files, in order.
    fn list_files(&self) -> Result<Vec<(u64, String)>> {
        let io = |error| Error::io(format!("list {}", self.owner.label("")), error);
        let names = self.owner.dir.list().map_err(io)?.into_iter().map(|entry| entry.name);
        let mut files: Vec<_> = names.filter_map(|name| Some((number_of(&name)?, name))).collect();
        files.sort_unstable();
        Ok(files)
    }

    /// Reads the groups of one file and adds the file to the journal.
    fn read_chain(
        &mut self,
        number: u64,
        name: String,
        (read_only, reads_all): (bool, bool),
    ) -> Result<GroupChain> {
        let label = self.owner.label(&name);
        let io = |doing: &str, error| Error::io(format!("{doing} {label}"), error);
        let how = if read_only { Open::READ } else { Open::WRITE };
        let file = self.owner.dir.open(&name, how.direct()).map_err(|error| io("open", error))?;
        if !read_only {
            // A process that died may have left a group that was never synced. The log will be
            // pruned because of it, so it must be durable.
            file.sync_all().map_err(|error| io("sync", error))?;
        }
        let size = file.len().map_err(|error| io("get the size of", error))?;
        // Groups are whole blocks, and direct I/O reads only whole blocks. Bytes behind the last
        // block of a truncated file belong to no group.
        let size = size - size % BLOCK_BYTES;
        let mut reader = ForwardReader::new(&*file, &label, size);
        let (mut chain, mut offset) = (GroupChain::default(), 0);
        while let Some(mut group) = self.read_group(&mut reader, offset, reads_all, &mut chain)? {
            if group.head.is_sealed() && !reads_all {
                group.in_file = Some((Arc::clone(&file), offset + BLOCK_BYTES));
            }
            offset += round_up(group.head.group_bytes().unwrap_or(0), BLOCK_BYTES);
            // The last one is durable, because another follows it. Groups that it does not need are
            // not needed at all.
            if let Some(needed) = chain.groups.last().map(RedoGroup::needed) {
                chain.groups.retain(|group| group.sequence() >= needed);
            }
            chain.groups.push(group);
        }
        let last = chain.groups.last().map_or(0, RedoGroup::sequence);
        // The process that created a file without a group may have died, or met an error, before
        // the file's name was durable. So the file takes no groups.
        let is_closed = chain.groups.is_empty();
        self.files.push(JournalFile { name, number, file, end: offset, size, last, is_closed });
        Ok(chain)
    }

    /// Reads the group at `offset`. Returns `None` at the end of the chain, and records damage in
    /// `chain`.
    fn read_group(
        &self,
        reader: &mut ForwardReader<'_>,
        offset: u64,
        reads_all: bool,
        chain: &mut GroupChain,
    ) -> Result<Option<RedoGroup>> {
        let Some(bytes) = reader.get(offset, to_u64(HEAD_BYTES))? else { return Ok(None) };
        let Some(head) = GroupHead::decode(bytes, &self.owner) else {
            return match format_of(bytes) {
                Some(found) if found > FORMAT_PAGES && offset == 0 => Err(Error::NewerFormat {
                    file: reader.label.to_owned(),
                    found,
                    supported: FORMAT_PAGES,
                }),
                _ => Ok(None),
            };
        };
        if chain.groups.last().is_some_and(|last| head.follows != last.sequence()) {
            return Ok(None);
        }
        let Some(size) = head.group_bytes() else { return Ok(None) };
        if head.is_sealed() && !reads_all {
            let group = read_sealed(reader, offset, head)?;
            if group.is_none() {
                let what = format!("the index of group {} is damaged", head.sequence);
                let damage = Error::corruption(reader.label, offset, what);
                chain.damage = Some((head.sequence, damage));
            }
            return Ok(group);
        }
        let Some(bytes) = reader.get(offset, size)? else { return Ok(None) };
        if let Some(group) = verified_group(head, bytes) {
            return Ok(Some(group));
        }
        // A torn group has no group behind it.
        let next = round_up(offset + size, BLOCK_BYTES);
        if let Some(bytes) = reader.get(next, to_u64(HEAD_BYTES))?
            && let Some(behind) = GroupHead::decode(bytes, &self.owner)
            && behind.sequence > head.sequence
        {
            let what = format!("the checksum of group {} does not match", head.sequence);
            let damage = Error::corruption(reader.label, offset, what);
            chain.damage = Some((behind.sequence, damage));
        }
        Ok(None)
    }

    /// Reads all needed groups and adds those that are damaged or missing to `report`.
    pub(crate) fn check(&self, report: &mut Report) {
        let mut newest = 0;
        let (read_only, reads_all) = (true, true);
        let outcome = Self::open_as(
            self.owner.clone(),
            self.file_bytes_max * 2,
            (read_only, reads_all),
            |group| {
                report.checked_bytes += group.head.group_bytes().unwrap_or(0);
                newest = group.sequence();
                Ok(())
            },
        );
        let label = self.owner.label(PREFIX);
        match outcome {
            Err(Error::Corruption { file, offset, what }) => report.add(file, offset, what),
            Err(error) => report.add(label, 0, error.to_string()),
            Ok(_) if newest < self.newest => {
                report.add(label, 0, format!("group {} is damaged or missing", self.newest));
            }
            Ok(_) => {}
        }
    }
}

/// Reads the head and the index of a sealed group. `None` if the index is damaged.
fn read_sealed(
    reader: &mut ForwardReader<'_>,
    offset: u64,
    head: GroupHead,
) -> Result<Option<RedoGroup>> {
    let Some((start, length)) = head.index_range() else { return Ok(None) };
    let Some(from) = offset.checked_add(start) else { return Ok(None) };
    // Reads start with a block.
    let skip = from % BLOCK_BYTES;
    let Some(blocks) = reader.get(from - skip, length + skip)? else { return Ok(None) };
    let index = verified_index(&head, blocks.get(to_usize(skip)..).unwrap_or(&[]));
    Ok(index.map(|index| RedoGroup { head, bytes: Vec::new(), index, in_file: None }))
}
