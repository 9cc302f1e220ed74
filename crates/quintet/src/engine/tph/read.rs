//! Reading: gets and batches of them.
//!
//! A get asks memtables, then the index of each table that may have the key, from the newest to the
//! oldest; an index that names a block costs one direct read. A batch asks for all its keys'
//! blocks at once, and once more for those that were named by chance or hide nothing.

use std::sync::Arc;

use super::{
    Inner, View, block,
    memtable::Answer,
    piece::{Piece, Span},
    table::Table,
};
use crate::{
    Result,
    codec::{to_u64, to_usize},
    disk::{AlignedBuffer, Queue, Request},
    engine::Value,
    sync::Ordering,
};

/// A key that is looked for: where the search goes on.
struct Search<'a> {
    key: &'a [u8],
    /// Where its value goes.
    place: usize,
    hash: u64,
    /// The next table: those of level 0, then one for each level.
    next: usize,
}

impl Search<'_> {
    /// The next block that may have the key.
    fn next<'v>(&mut self, inner: &Inner, view: &'v View) -> Option<(&'v Arc<Piece>, u32)> {
        let version = &view.version;
        loop {
            let number = self.next;
            self.next += 1;
            let table = if let Some(place) = number.checked_sub(version.level0.len()) {
                inner.table_of(version.levels.get(place)?, self.key)
            } else {
                version.level0.get(number)
            };
            if let Some(found) = table.and_then(|table| table.find(self.hash, self.key)) {
                return Some(found);
            }
        }
    }
}

impl Inner {
    /// The table of a level that a key belongs to.
    #[inline]
    fn table_of<'v>(&self, level: &'v [Arc<Table>], key: &[u8]) -> Option<&'v Arc<Table>> {
        let after = self
            .route
            .with(key, |place| level.partition_point(|table| table.low.as_slice() <= place));
        level.get(after.checked_sub(1)?)
    }

    #[inline]
    fn in_memory(view: &View, key: &[u8]) -> Answer {
        let older = view.frozen.iter();
        std::iter::once(&view.active)
            .chain(older)
            .map(|memtable| memtable.get(key))
            .find(|answer| !matches!(answer, Answer::Nothing))
            .unwrap_or(Answer::Nothing)
    }

    /// The value of a key.
    #[inline]
    pub(super) fn read_value(&self, key: &[u8]) -> Result<Option<Value>> {
        let view = self.view.load();
        match Self::in_memory(&view, key) {
            Answer::Nothing => {}
            Answer::Deleted => return Ok(None),
            Answer::Value(value) => return Ok(Some(value)),
        }
        let mut search = Search { key, place: 0, hash: self.hash(key), next: 0 };
        while let Some((piece, number)) = search.next(self, &view) {
            let span = piece.span(number..number + 1);
            self.note_read(span);
            let buffer = piece.read(span)?;
            match self.answer(piece, number, span, &buffer, key)? {
                Answer::Nothing => {}
                Answer::Deleted => return Ok(None),
                Answer::Value(value) => return Ok(Some(value)),
            }
        }
        Ok(None)
    }

    fn note_read(&self, span: Span) {
        self.counters.reads_total.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes_total.fetch_add(to_u64(span.whole()), Ordering::Relaxed);
    }

    fn answer(
        &self,
        piece: &Piece,
        number: u32,
        span: Span,
        buffer: &AlignedBuffer,
        key: &[u8],
    ) -> Result<Answer> {
        let open = piece.open_block(buffer, span, (number, number))?;
        let entries = open.entries();
        let Some(entry) = block::find(entries, key) else {
            self.counters.false_reads_total.fetch_add(1, Ordering::Relaxed);
            return Ok(Answer::Nothing);
        };
        if entry.tombstone {
            return Ok(Answer::Deleted);
        }
        let bytes = entries.get(entry.value).unwrap_or(&[]);
        Ok(Answer::Value(Value::fill_with(bytes.len(), |out| out.copy_from_slice(bytes))))
    }

    /// The values of many keys.
    pub(super) fn read_many(&self, keys: &[&[u8]], out: &mut Vec<Option<Value>>) -> Result<()> {
        let view = self.view.load_full();
        let base = out.len();
        let mut open = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            out.push(match Self::in_memory(&view, key) {
                Answer::Value(value) => Some(value),
                Answer::Deleted => None,
                Answer::Nothing => {
                    let hash = self.hash(key);
                    open.push(Search { key, place: base + index, hash, next: 0 });
                    None
                }
            });
        }
        if open.is_empty() {
            return Ok(());
        }
        self.queues.with(&*self.context.env, |queue| self.read_open(&view, &mut open, queue, out))
    }

    /// Round after round, one read for each key that is not found yet.
    fn read_open(
        &self,
        view: &View,
        open: &mut Vec<Search<'_>>,
        queue: &mut dyn Queue,
        out: &mut [Option<Value>],
    ) -> Result<()> {
        while !open.is_empty() {
            let mut asked = Vec::new();
            for mut search in open.drain(..) {
                let Some((piece, number)) = search.next(self, view) else { continue };
                let span = piece.span(number..number + 1);
                self.note_read(span);
                let buffer = AlignedBuffer::zeroed(span.whole());
                let length = buffer.len();
                let (file, offset) = (Arc::clone(piece.file()), span.offset);
                let request = Request::Read { file, offset, buffer, length };
                queue.submit(to_u64(asked.len()), request);
                asked.push((search, Arc::clone(piece), number, span));
            }
            let mut done = Vec::new();
            queue.wait(queue.pending(), &mut done);
            let mut answers: Vec<Option<Result<Answer>>> = asked.iter().map(|_| None).collect();
            for completion in done {
                let token = to_usize(completion.token);
                let Some((search, piece, number, span)) = asked.get(token) else { continue };
                let answer = match completion.result {
                    Ok(count) if count == completion.buffer.len() => {
                        self.answer(piece, *number, *span, &completion.buffer, search.key)
                    }
                    Ok(_) => Err(piece.damage(span.offset, "the file ends before its data")),
                    Err(error) => Err(piece.read_error(span.offset, error)),
                };
                if let Some(slot) = answers.get_mut(token) {
                    *slot = Some(answer);
                }
            }
            for ((search, ..), answer) in asked.into_iter().zip(answers) {
                match answer.transpose()? {
                    None | Some(Answer::Deleted) => {}
                    Some(Answer::Nothing) => open.push(search),
                    Some(Answer::Value(value)) => {
                        if let Some(slot) = out.get_mut(search.place) {
                            *slot = Some(value);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
