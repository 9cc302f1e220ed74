"""The interface of plyvel 1.5 on Quintet: replace `import plyvel` by
`from quintet.compat import plyvel`.

A database of plyvel is a Quintet database with one ordered table, `default`. Files of LevelDB are not
read: copy their entries once. `docs/python.md` lists the differences.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Callable, Iterator as _Iterator, Optional, Tuple, Union

import quintet as _quintet

__version__ = "1.5.1"
__leveldb_version__ = "1.23"

__all__ = [
    "DB",
    "CorruptionError",
    "Error",
    "IOError",
    "Iterator",
    "IteratorInvalidError",
    "PrefixedDB",
    "RawIterator",
    "Snapshot",
    "WriteBatch",
    "destroy_db",
    "repair_db",
]

_TABLE = "default"
_OSError = OSError


class Error(Exception):
    """The base class of the exceptions of this module."""


class IOError(Error, _OSError):
    """A file operation failed, or the database is missing, in the way, or open elsewhere."""


class CorruptionError(Error):
    """Bytes on disk are damaged."""


class IteratorInvalidError(Error):
    """A raw iterator is at no entry."""


class _Translated:
    """A context that turns exceptions of Quintet into those of this module."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, _quintet.QuintetError):
            raise _translated(error) from error


_translate = _Translated()


def _translated(error: _quintet.QuintetError) -> Exception:
    if isinstance(error, (_quintet.CorruptionError, _quintet.NewerFormatError)):
        return CorruptionError(str(error))
    io_errors = (
        _quintet.IoError,
        _quintet.DiskFullError,
        _quintet.LockedError,
        _quintet.LogFailedError,
        _quintet.TableFailedError,
    )
    if isinstance(error, io_errors):
        return IOError(str(error))
    if isinstance(error, _quintet.ClosedError):
        return RuntimeError("Database or iterator is closed")
    return Error(str(error))


def _bytes(value: Any) -> bytes:
    """Returns the bytes of an argument; plyvel accepts no text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a bytes-like object is required, not {type(value).__name__!r}")


def _name(name: Union[str, bytes, os.PathLike[Any]]) -> str:
    return os.fsdecode(os.fspath(name))


def _after(prefix: bytes) -> Optional[bytes]:
    """Returns the first key after all keys that begin with `prefix`; `None`: there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


class DB:
    """A database. Arguments that tune LevelDB are accepted, and have no effect except
    `write_buffer_size` and `lru_cache_size`: their sum is the memory budget, at least 64 MiB.
    """

    def __init__(
        self,
        name: Union[str, bytes, os.PathLike[Any]],
        *,
        create_if_missing: bool = False,
        error_if_exists: bool = False,
        paranoid_checks: Optional[bool] = None,
        write_buffer_size: Optional[int] = None,
        max_open_files: Optional[int] = None,
        lru_cache_size: Optional[int] = None,
        block_size: Optional[int] = None,
        block_restart_interval: Optional[int] = None,
        max_file_size: Optional[int] = None,
        compression: Optional[str] = "snappy",
        bloom_filter_bits: int = 0,
        comparator: Optional[Callable[[bytes, bytes], int]] = None,
        comparator_name: Optional[bytes] = None,
    ) -> None:
        if comparator is not None or comparator_name is not None:
            raise ValueError("Quintet orders keys by their bytes and takes no comparator")
        if compression not in (None, "snappy"):
            raise ValueError("'compression' must be None or 'snappy'")
        self.name = _name(name)
        path = self.name
        exists = os.path.isdir(path) and bool(os.listdir(path))
        if exists and error_if_exists:
            raise Error(f"Invalid argument: {path}: exists (error_if_exists is true)")
        if not exists and not create_if_missing:
            raise Error(f"Invalid argument: {path}: does not exist (create_if_missing is false)")
        if os.path.exists(os.path.join(path, "CURRENT")):
            raise Error(f"{path} holds a LevelDB database; copy its entries with plyvel itself")
        tuned = (write_buffer_size or 0) + (lru_cache_size or 0)
        budget = max(tuned, 64 << 20) if tuned else None
        with _translate:
            self._db: Any = _quintet.Database(path, memory_budget=budget)
            try:
                self._table: Any = self._db.table(_TABLE)
            except BaseException:
                self._db.close()
                raise

    @property
    def closed(self) -> bool:
        """Whether the database was closed."""
        return self._db is None

    def close(self) -> None:
        """Closes the database. Later calls raise `RuntimeError`."""
        db, self._db, self._table = self._db, None, None
        if db is not None:
            with _translate:
                db.close()

    def __enter__(self) -> DB:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> Any:
        """Returns the table, if the database is open."""
        if self._table is None:
            raise RuntimeError("Database is closed")
        return self._table

    def get(
        self,
        key: bytes,
        default: Any = None,
        *,
        verify_checksums: bool = False,
        fill_cache: bool = True,
    ) -> Any:
        """Returns the value of `key`, or `default`."""
        try:
            return self._table.get(key, default)
        except (AttributeError, _quintet.QuintetError):
            return _get(self._open(), key, default)

    def put(self, key: bytes, value: bytes, *, sync: bool = False) -> None:
        """Sets the value of `key`."""
        try:
            if sync:
                self._table.put(key, value, sync=True)
            else:
                self._table[key] = value
        except (AttributeError, TypeError, _quintet.QuintetError):
            table = self._open()
            with _translate:
                table.put(_key(key), value, sync=sync or None)

    def delete(self, key: bytes, *, sync: bool = False) -> None:
        """Deletes `key`, whether or not it has a value."""
        table = self._open()
        with _translate:
            table.delete(_key(key), sync=sync or None)

    def write_batch(self, *, transaction: bool = False, sync: bool = False) -> WriteBatch:
        """Returns a batch. With `transaction`, a block that raises discards it."""
        self._open()
        return WriteBatch(self, b"", transaction, sync)

    def iterator(self, **arguments: Any) -> Iterator:
        """Returns an iterator over entries; `_Arguments` has the arguments of plyvel."""
        self._open()
        with _translate:
            return Iterator(self._db.snapshot()[self._table], b"", _Arguments(**arguments), self)

    def __iter__(self) -> _Iterator[tuple[bytes, bytes]]:
        return iter(self.iterator())

    def raw_iterator(
        self, *, verify_checksums: bool = False, fill_cache: bool = True
    ) -> RawIterator:
        """Returns a raw iterator, which is at no entry."""
        self._open()
        with _translate:
            return RawIterator(self._db.snapshot()[self._table], b"", self)

    def snapshot(self) -> Snapshot:
        """Takes a snapshot."""
        self._open()
        with _translate:
            return Snapshot(self, b"", self._db.snapshot())

    def get_property(self, name: bytes) -> Optional[bytes]:
        """Returns `leveldb.stats` and `leveldb.approximate-memory-usage`; `None` for others."""
        self._open()
        if name == b"leveldb.stats":
            lines = [f"{key}: {value}" for key, value in self._db.stats().items()]
            return "\n".join(lines).encode()
        if name == b"leveldb.approximate-memory-usage":
            used: int = self._db.stats()["memory_bytes"]
            return str(used).encode()
        return None

    def compact_range(
        self, *, start: Optional[bytes] = None, stop: Optional[bytes] = None
    ) -> None:
        """Compacts the whole table: Quintet compacts no parts."""
        table = self._open()
        with _translate:
            table.compact()

    def approximate_size(self, start: bytes, stop: bytes) -> int:
        """Returns an estimate of the bytes of a range: entries times the mean size of an entry."""
        table = self._open()
        with _translate:
            stats = table.stats()
            entries: int = table.range(_bytes(start), _bytes(stop)).estimate_count()
            return entries * int(stats["live_bytes"]) // max(1, int(stats["keys"]))

    def approximate_sizes(self, *ranges: tuple[bytes, bytes]) -> list[int]:
        """Returns `approximate_size` of each pair of start and stop."""
        return [self.approximate_size(start, stop) for start, stop in ranges]

    def prefixed_db(self, prefix: bytes) -> PrefixedDB:
        """Returns the part of the database whose keys begin with `prefix`."""
        self._open()
        return PrefixedDB(self, _bytes(prefix))

    def __repr__(self) -> str:
        return f"<quintet.compat.plyvel.DB with name {self.name!r} at {id(self):#x}>"


def _key(key: Any) -> bytes:
    """Returns a key that Quintet accepts. LevelDB has an empty key, Quintet has none."""
    encoded = _bytes(key)
    if not encoded:
        raise Error("Quintet has no empty key")
    return encoded


def _get(table: Any, key: Any, default: Any) -> Any:
    """Returns the value of `key`. The empty key has none."""
    if not _bytes(key):
        return default
    with _translate:
        return table.get(bytes(key), default)


class PrefixedDB:
    """The entries of a database whose keys begin with a prefix, without the prefix."""

    def __init__(self, db: DB, prefix: bytes) -> None:
        self.db = db
        self.prefix = prefix

    def get(
        self,
        key: bytes,
        default: Any = None,
        *,
        verify_checksums: bool = False,
        fill_cache: bool = True,
    ) -> Any:
        """Returns the value of `key`, or `default`."""
        return self.db.get(self.prefix + _bytes(key), default)

    def put(self, key: bytes, value: bytes, *, sync: bool = False) -> None:
        """Sets the value of `key`."""
        self.db.put(self.prefix + _bytes(key), value, sync=sync)

    def delete(self, key: bytes, *, sync: bool = False) -> None:
        """Deletes `key`."""
        self.db.delete(self.prefix + _bytes(key), sync=sync)

    def write_batch(self, *, transaction: bool = False, sync: bool = False) -> WriteBatch:
        """Returns a batch that adds the prefix to its keys."""
        self.db._open()
        return WriteBatch(self.db, self.prefix, transaction, sync)

    def iterator(self, **arguments: Any) -> Iterator:
        """Returns an iterator over the entries."""
        db, table = self.db, self.db._open()
        with _translate:
            view = db._db.snapshot()[table]
            return Iterator(view, self.prefix, _Arguments(**arguments), db)

    def __iter__(self) -> _Iterator[tuple[bytes, bytes]]:
        return iter(self.iterator())

    def raw_iterator(
        self, *, verify_checksums: bool = False, fill_cache: bool = True
    ) -> RawIterator:
        """Returns a raw iterator over the entries."""
        db, table = self.db, self.db._open()
        with _translate:
            return RawIterator(db._db.snapshot()[table], self.prefix, db)

    def snapshot(self) -> Snapshot:
        """Takes a snapshot."""
        self.db._open()
        with _translate:
            return Snapshot(self.db, self.prefix, self.db._db.snapshot())

    def prefixed_db(self, prefix: bytes) -> PrefixedDB:
        """Returns the part whose keys begin with both prefixes."""
        return PrefixedDB(self.db, self.prefix + _bytes(prefix))

    def __repr__(self) -> str:
        return f"<quintet.compat.plyvel.PrefixedDB with prefix {self.prefix!r} for {self.db!r}>"


class WriteBatch:
    """A batch of writes, committed by `write` or at the end of its `with` block."""

    def __init__(self, db: DB, prefix: bytes, transaction: bool, sync: bool) -> None:
        self._db = db
        self._prefix = prefix
        self._transaction = transaction
        self._sync = sync
        self._operations: list[tuple[bytes, Optional[bytes]]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Adds a put."""
        self._operations.append((_key(self._prefix + _bytes(key)), _bytes(value)))

    def delete(self, key: bytes) -> None:
        """Adds a delete."""
        self._operations.append((_key(self._prefix + _bytes(key)), None))

    def clear(self) -> None:
        """Removes all operations."""
        self._operations.clear()

    def write(self) -> None:
        """Commits all operations, or none. They stay in the batch."""
        table = self._db._open()
        with _translate:
            batch = table.batch()
            for key, value in self._operations:
                if value is None:
                    batch.delete(key)
                else:
                    batch[key] = value
            batch.commit(sync=self._sync or None)

    def append(self, source: WriteBatch) -> None:
        """Adds the operations of another batch."""
        self._operations.extend(source._operations)

    def approximate_size(self) -> int:
        """Returns about the number of bytes of the operations."""
        return sum(len(key) + len(value or b"") + 8 for key, value in self._operations) + 12

    def __enter__(self) -> WriteBatch:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None or not self._transaction:
            self.write()
        self.clear()


class Snapshot:
    """The database at one moment."""

    def __init__(self, db: DB, prefix: bytes, snapshot: Any) -> None:
        self._db = db
        self._prefix = prefix
        self._snapshot = snapshot
        self._view = snapshot[db._open()]

    def _open(self) -> Any:
        if self._view is None:
            raise RuntimeError("Snapshot is closed")
        self._db._open()
        return self._view

    def get(
        self,
        key: bytes,
        default: Any = None,
        *,
        verify_checksums: bool = False,
        fill_cache: bool = True,
    ) -> Any:
        """Returns the value of `key`, or `default`."""
        return _get(self._open(), self._prefix + _bytes(key), default)

    def iterator(self, **arguments: Any) -> Iterator:
        """Returns an iterator over the entries of the snapshot."""
        return Iterator(self._open(), self._prefix, _Arguments(**arguments), self._db)

    def __iter__(self) -> _Iterator[tuple[bytes, bytes]]:
        return iter(self.iterator())

    def raw_iterator(
        self, *, verify_checksums: bool = False, fill_cache: bool = True
    ) -> RawIterator:
        """Returns a raw iterator over the entries of the snapshot."""
        return RawIterator(self._open(), self._prefix, self._db)

    def close(self) -> None:
        """Ends the snapshot."""
        if self._view is not None:
            self._view = None
            self._snapshot.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Arguments:
    """The arguments of an iterator, as plyvel has them."""

    def __init__(
        self,
        *,
        reverse: bool = False,
        start: Optional[bytes] = None,
        stop: Optional[bytes] = None,
        include_start: bool = True,
        include_stop: bool = False,
        prefix: Optional[bytes] = None,
        include_key: bool = True,
        include_value: bool = True,
        verify_checksums: bool = False,
        fill_cache: bool = True,
    ) -> None:
        if prefix is not None and (start is not None or stop is not None):
            raise TypeError("'prefix' cannot be used together with 'start' or 'stop'")
        self.reverse = reverse
        self.start = start if prefix is None else prefix
        self.stop = stop if prefix is None else _after(_bytes(prefix))
        self.include_start = include_start
        self.include_stop = include_stop if prefix is None else False
        self.include_key = include_key
        self.include_value = include_value


_Gap = Tuple[Optional[bytes], bool]
_BEFORE_ALL: _Gap = (None, False)
_AFTER_ALL: _Gap = (None, True)


class Iterator:
    """An iterator over a range of entries, which moves both ways.

    It is between two entries, as plyvel's: `next` returns the entry behind the position and moves
    over it, `prev` the one before.
    """

    def __init__(self, view: Any, prefix: bytes, arguments: _Arguments, db: DB) -> None:
        self._view = view
        self._db = db
        self._strip = len(prefix)
        self._prefix = prefix
        self._reverse = arguments.reverse
        self._include = (arguments.include_key, arguments.include_value)
        start, stop = arguments.start, arguments.stop
        self._start = prefix + _bytes(start) if start is not None else prefix
        self._stop = prefix + _bytes(stop) if stop is not None else _after(prefix)
        self._include_start = arguments.include_start or start is None
        self._include_stop = arguments.include_stop and stop is not None
        self._ahead: Any = None
        self._is_ahead_ascending = True
        # The gap between two entries: its side of a key, or one of the two ends.
        self._gap: _Gap = _AFTER_ALL if self._reverse else _BEFORE_ALL

    def _entries(self, ascending: bool) -> Any:
        """Returns the entries above the position in ascending order, or those below in descending
        order.
        """
        start, stop = self._start, self._stop
        include_start, include_stop = self._include_start, self._include_stop
        if self._gap is (_AFTER_ALL if ascending else _BEFORE_ALL) or stop == b"":
            return iter(())
        key, is_after = self._gap
        if key is not None and ascending and key >= start:
            include_start = not is_after and (include_start or key > start)
            start = key
        elif key is not None and not ascending and (stop is None or key <= stop):
            include_stop = is_after and (include_stop or stop is None or key < stop)
            stop = key
            if not stop:
                return iter(())
        entries = self._view.range(
            start or None,
            stop,
            reverse=not ascending,
            include_start=include_start or not start,
            include_stop=include_stop,
        )
        return iter(entries)

    def _move(self, ascending: bool) -> Any:
        if self._view is None or self._db.closed:
            raise RuntimeError("Database or iterator is closed")
        with _translate:
            if self._ahead is None or self._is_ahead_ascending is not ascending:
                self._ahead = self._entries(ascending)
                self._is_ahead_ascending = ascending
            entry = next(self._ahead, None)
        if entry is None:
            self._ahead, self._gap = None, _AFTER_ALL if ascending else _BEFORE_ALL
            raise StopIteration
        key, value = entry
        self._gap = (key, ascending)
        if self._strip:
            key = key[self._strip :]
        keys, values = self._include
        if keys:
            return (key, value) if values else key
        return value if values else None

    def _go(self, gap: _Gap) -> None:
        if self._view is None or self._db.closed:
            raise RuntimeError("Database or iterator is closed")
        self._ahead, self._gap = None, gap

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self._move(not self._reverse)

    def next(self) -> Any:
        """Returns the next entry, or raises `StopIteration`."""
        return self._move(not self._reverse)

    def prev(self) -> Any:
        """Returns the entry before, or raises `StopIteration`."""
        return self._move(self._reverse)

    def seek(self, target: bytes) -> None:
        """Moves in front of the first entry whose key is `target` or greater, in key order."""
        self._go((self._prefix + _bytes(target), False))

    def seek_to_start(self) -> None:
        """Moves below the entry with the least key, also if the iterator is reverse."""
        self._go(_BEFORE_ALL)

    def seek_to_stop(self) -> None:
        """Moves above the entry with the greatest key, also if the iterator is reverse."""
        self._go(_AFTER_ALL)

    def close(self) -> None:
        """Ends the iterator."""
        self._view = self._ahead = None

    def __enter__(self) -> Iterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class RawIterator:
    """An iterator with the interface of LevelDB's own: it is at an entry, or at none."""

    def __init__(self, view: Any, prefix: bytes, db: DB) -> None:
        self._view = view
        self._db = db
        self._prefix = prefix
        self._stop = _after(prefix)
        self._entry: Optional[tuple[bytes, bytes]] = None
        self._ahead: Any = None
        self._ascending = True

    def _open(self) -> Any:
        if self._view is None or self._db.closed:
            raise RuntimeError("Database or iterator is closed")
        return self._view

    def _read(self, start: Optional[bytes], stop: Optional[bytes], **order: bool) -> None:
        """Moves to the first entry of a range."""
        view = self._open()
        self._ascending = not order.get("reverse", False)
        with _translate:
            self._ahead = iter(view.range(start or None, stop, **order))
            self._entry = next(self._ahead, None)

    def valid(self) -> bool:
        """Whether the iterator is at an entry."""
        self._open()
        return self._entry is not None

    def seek_to_first(self) -> None:
        """Moves to the first entry."""
        self._read(self._prefix, self._stop)

    def seek_to_last(self) -> None:
        """Moves to the last entry."""
        self._read(self._prefix, self._stop, reverse=True)

    def seek(self, target: bytes) -> None:
        """Moves to the first entry whose key is `target` or greater."""
        self._read(self._prefix + _bytes(target), self._stop)

    def _step(self, ascending: bool) -> None:
        self._open()
        if self._entry is None:
            raise IteratorInvalidError()
        if ascending is self._ascending:
            with _translate:
                self._entry = next(self._ahead, None)
        elif ascending:
            self._read(self._entry[0], self._stop, include_start=False)
        else:
            self._read(self._prefix, self._entry[0], reverse=True)

    def next(self) -> None:
        """Moves to the next entry."""
        self._step(True)

    def prev(self) -> None:
        """Moves to the entry before."""
        self._step(False)

    def item(self) -> tuple[bytes, bytes]:
        """Returns the key and the value."""
        self._open()
        if self._entry is None:
            raise IteratorInvalidError()
        key, value = self._entry
        return key[len(self._prefix) :], value

    def key(self) -> bytes:
        """Returns the key."""
        return self.item()[0]

    def value(self) -> bytes:
        """Returns the value."""
        return self.item()[1]

    def close(self) -> None:
        """Ends the iterator."""
        self._view = self._ahead = self._entry = None

    def __enter__(self) -> RawIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def destroy_db(name: Union[str, bytes, os.PathLike[Any]]) -> None:
    """Removes a database with all its files. Does nothing if it is missing. A directory that holds
    no Quintet database raises `Error` and stays.
    """
    path = _name(name)
    if not os.path.isdir(path) or not os.listdir(path):
        return
    with _translate:
        _quintet.Database(path, create=False, allow_missing_merge_operators=True).close()
    shutil.rmtree(path)


def repair_db(
    name: Union[str, bytes, os.PathLike[Any]],
    *,
    paranoid_checks: Optional[bool] = None,
    write_buffer_size: Optional[int] = None,
    max_open_files: Optional[int] = None,
    lru_cache_size: Optional[int] = None,
    block_size: Optional[int] = None,
    block_restart_interval: Optional[int] = None,
    max_file_size: Optional[int] = None,
    compression: Optional[str] = "snappy",
    bloom_filter_bits: int = 0,
    comparator: Optional[Callable[[bytes, bytes], int]] = None,
    comparator_name: Optional[bytes] = None,
) -> None:
    """Opens the database, which recovers it, and checks it. Raises `CorruptionError` for damage:
    Quintet never drops data to repair a file.
    """
    path = _name(name)
    with _translate:
        with _quintet.Database(path, create=False) as db:
            report = db.check()
    if not report.is_sound:
        raise CorruptionError("; ".join(f"{file}: {what}" for file, _, what in report.findings))
