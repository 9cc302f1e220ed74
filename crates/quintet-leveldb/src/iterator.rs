//! Iterators over a snapshot.

use quintet::Snapshot;
use quintet_compat::{
    boundary::{Bytes, Out, View, give},
    export, export_fallible,
    iterator::{Bounds, Source, StoreIterator},
    status::Status,
};

use crate::{database::Db, options::ReadOptions};

/// `leveldb_iterator_t`. An iterator that could not be made has only a failure.
#[derive(Debug)]
pub struct IteratorObject(Result<StoreIterator, Status>);

impl IteratorObject {
    fn get(&self) -> Option<&StoreIterator> {
        self.0.as_ref().ok()
    }
}

fn move_to(iterator: Option<&mut IteratorObject>, movement: impl FnOnce(&mut StoreIterator)) {
    if let Some(Ok(iterator)) = iterator.map(|iterator| &mut iterator.0) {
        movement(iterator);
    }
}

fn new_iterator(db: Option<&Db>, options: Option<&ReadOptions>) -> Result<StoreIterator, Status> {
    let db = db.ok_or_else(|| Status::invalid("the database is null"))?;
    let snapshot: Snapshot =
        match options.map(|options| options.snapshot.get()).transpose()?.flatten() {
            Some(snapshot) => (*snapshot).clone(),
            None => db.store.database.snapshot()?,
        };
    Ok(StoreIterator::new(
        db.table.clone(),
        Source::Snapshot(snapshot),
        Bounds::default(),
        db.comparator,
    ))
}

/// Returns the address of bytes of the current entry, and stores their size.
fn view(bytes: Option<&[u8]>, size: Out<'_, usize>) -> View {
    give(size, bytes.map_or(0, <[u8]>::len));
    bytes.map_or(View::NULL, View::of)
}

export! {
    /// Makes an iterator at no entry. It shows the state of this moment, or the snapshot of the
    /// options.
    pub fn leveldb_create_iterator(
        db: Option<&Db>, options: Option<&ReadOptions>,
    ) -> Option<Box<IteratorObject>>, None, {
        Some(Box::new(IteratorObject(new_iterator(db, options))))
    }

    /// Frees an iterator.
    pub fn leveldb_iter_destroy(iterator: Option<Box<IteratorObject>>) {
        drop(iterator);
    }

    /// Returns 1 if the iterator is at an entry.
    pub fn leveldb_iter_valid(iterator: Option<&IteratorObject>) -> u8, 0, {
        iterator.and_then(IteratorObject::get).is_some_and(StoreIterator::is_valid).into()
    }

    /// Moves to the first entry.
    pub fn leveldb_iter_seek_to_first(iterator: Option<&mut IteratorObject>) {
        move_to(iterator, StoreIterator::seek_to_first);
    }

    /// Moves to the last entry.
    pub fn leveldb_iter_seek_to_last(iterator: Option<&mut IteratorObject>) {
        move_to(iterator, StoreIterator::seek_to_last);
    }

    /// Moves to the first entry whose key is `key` or greater.
    pub fn leveldb_iter_seek(iterator: Option<&mut IteratorObject>, key: Bytes, size: usize) {
        move_to(iterator, |iterator| match key.items(size) {
            Ok(key) => iterator.seek(key),
            Err(status) => iterator.fail(status),
        });
    }

    /// Moves to the next entry.
    pub fn leveldb_iter_next(iterator: Option<&mut IteratorObject>) {
        move_to(iterator, StoreIterator::next);
    }

    /// Moves to the entry before.
    pub fn leveldb_iter_prev(iterator: Option<&mut IteratorObject>) {
        move_to(iterator, StoreIterator::prev);
    }

    /// Returns the key, which is valid until the iterator moves. Null at no entry.
    pub fn leveldb_iter_key(
        iterator: Option<&IteratorObject>, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        view(iterator.and_then(IteratorObject::get).and_then(StoreIterator::key), size)
    }

    /// Returns the value, which is valid until the iterator moves. Null at no entry.
    pub fn leveldb_iter_value(
        iterator: Option<&IteratorObject>, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        view(iterator.and_then(IteratorObject::get).and_then(StoreIterator::value), size)
    }
}

export_fallible! {
    /// Stores why the last movement failed, if it did.
    pub fn leveldb_iter_get_error(iterator: Option<&IteratorObject>) {
        match iterator.map(|iterator| &iterator.0) {
            Some(Ok(iterator)) => iterator.failure().map_or(Ok(()), |status| Err(status.clone())),
            Some(Err(status)) => Err(status.clone()),
            None => Err(Status::invalid("the iterator is null")),
        }
    }
}
