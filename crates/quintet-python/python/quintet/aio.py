"""Quintet for `asyncio`: every call that can wait runs in a thread.

>>> import asyncio, tempfile
>>> from quintet import aio
>>> async def main():
...     async with await aio.open(tempfile.mkdtemp()) as db:
...         users = await db.table("users", keys=str, values=str)
...         await users.put("ann", "1")
...         async with db.transaction() as tx:
...             await tx.put(users, "bob", await tx.get(users, "ann"))
...         return [entry async for entry in users.range()]
>>> asyncio.run(main())
[('ann', '1'), ('bob', '1')]

The threads are those of one pool for each database, so a slow disk never takes the threads of the
event loop's default pool. A call that is cancelled goes on in its thread: whether a cancelled write
took place must be read. A call costs some 50 us more than a direct one, for the way to the thread
and back: use batches, `get_many` and ranges, or call the synchronous objects (`table.sync`) for gets
from memory.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

from ._database import Database
from ._errors import ClosedError, QuintetError
from ._quintet import TableView

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._quintet import ChangeFeed
    from ._records import Commit, Options

__all__ = [
    "AsyncBatch",
    "AsyncChangeFeed",
    "AsyncDatabase",
    "AsyncSnapshot",
    "AsyncTable",
    "AsyncTransaction",
    "open",
]

T = TypeVar("T")

THREADS = 8
"""Threads of a database, if the caller does not choose. Calls mostly wait for the disk."""

_CHUNK_ENTRIES = 256

_CHUNK_BYTES = 256 << 10
"""A feed reads no further ahead than this many bytes of the log."""

_SLICE_SECONDS = 0.1
"""Longest wait of the thread of a feed. A cancelled wait ends its thread's work after it."""


class _Wrapper:
    """An object whose methods run in the threads of a database."""

    def __init__(self, pool: ThreadPoolExecutor, wrapped: Any) -> None:
        self._pool = pool
        self.sync: Any = wrapped
        """The synchronous object."""

    async def _call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        call = functools.partial(function, *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def _iterate(self, make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        entries = await self._call(make)
        while chunk := await self._call(lambda: list(islice(entries, _CHUNK_ENTRIES))):
            for entry in chunk:
                yield entry


def _sync(argument: Any) -> Any:
    """Returns the synchronous object of a wrapper."""
    return argument.sync if isinstance(argument, _Wrapper) else argument


class AsyncTable(_Wrapper):
    """A `Table` whose calls run in threads. `sync` is the table itself."""

    @property
    def name(self) -> str:
        """The path of the table."""
        return str(self.sync.name)

    async def get(self, key: Any, default: Any = None) -> Any:
        """Returns the value of `key`, or `default`."""
        return await self._call(self.sync.get, key, default)

    async def get_many(self, keys: Iterable[Any]) -> list[Any]:
        """Returns the values of `keys`, `None` for each that has none."""
        found: list[Any] = await self._call(self.sync.get_many, list(keys))
        return found

    async def contains(self, key: Any) -> bool:
        """Returns whether `key` has a value."""
        return bool(await self._call(self.sync.__contains__, key))

    async def put(self, key: Any, value: Any, **options: Any) -> bool:
        """Sets the value of `key`; see `Table.put`."""
        return bool(await self._call(self.sync.put, key, value, **options))

    async def delete(self, key: Any, **options: Any) -> bool:
        """Deletes `key`; see `Table.delete`."""
        return bool(await self._call(self.sync.delete, key, **options))

    async def pop(self, key: Any, *default: Any) -> Any:
        """Deletes `key` and returns its value; see `Table.pop`."""
        return await self._call(self.sync.pop, key, *default)

    async def setdefault(self, key: Any, default: Any) -> Any:
        """Returns the value of `key`, after setting it to `default` if it has none."""
        return await self._call(self.sync.setdefault, key, default)

    async def update(self, *arguments: Any, **entries: Any) -> Any:
        """Writes entries as one batch, or replaces a value; see `Table.update`. The function of an
        update runs in a thread of the pool.
        """
        return await self._call(self.sync.update, *arguments, **entries)

    async def merge(self, key: Any, operand: Any, **options: Any) -> None:
        """Merges `operand` into the value of `key`; see `Table.merge`."""
        await self._call(self.sync.merge, key, operand, **options)

    async def compare_and_swap(self, key: Any, expected: Any, new: Any, **options: Any) -> bool:
        """Sets the value of `key` if it is `expected`; see `Table.compare_and_swap`."""
        return bool(await self._call(self.sync.compare_and_swap, key, expected, new, **options))

    async def fetch_and_add(self, key: Any, delta: int = 1) -> int:
        """Adds to the integer of `key` and returns the one before."""
        return int(await self._call(self.sync.fetch_and_add, key, delta))

    async def count(self) -> int:
        """Returns the number of entries. Reads the whole table."""
        return int(await self._call(len, self.sync))

    async def clear(self) -> None:
        """Deletes all entries."""
        await self._call(self.sync.clear)

    async def persist(self) -> None:
        """Checkpoints the table."""
        await self._call(self.sync.persist)

    async def compact(self) -> None:
        """Releases the space of deleted and replaced entries."""
        await self._call(self.sync.compact)

    def range(self, *bounds: Any, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Iterates over the pairs of a range; see `Table.range`."""
        return self._iterate(lambda: iter(self.sync.range(*bounds, **options)))

    def prefix(self, prefix: Any, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Iterates over the pairs whose keys begin with `prefix`."""
        return self._iterate(lambda: iter(self.sync.prefix(prefix, **options)))

    def keys(self) -> AsyncIterator[Any]:
        """Iterates over the keys."""
        return self._iterate(lambda: iter(self.sync))

    def values(self) -> AsyncIterator[Any]:
        """Iterates over the values."""
        return self._iterate(lambda: self.sync.range().values())

    def items(self) -> AsyncIterator[tuple[Any, Any]]:
        """Iterates over the pairs of key and value."""
        return self._iterate(lambda: iter(self.sync.range()))

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.keys()


class AsyncBatch(_Wrapper):
    """A `Batch` that commits in a thread. Its other calls do not wait."""

    def put(self, table: AsyncTable, key: Any, value: Any, **options: Any) -> None:
        """Adds a put."""
        self.sync.put(_sync(table), key, value, **options)

    def delete(self, table: AsyncTable, key: Any) -> None:
        """Adds a delete."""
        self.sync.delete(_sync(table), key)

    def merge(self, table: AsyncTable, key: Any, operand: Any) -> None:
        """Adds a merge."""
        self.sync.merge(_sync(table), key, operand)

    async def commit(self, **options: Any) -> None:
        """Commits all operations, or none."""
        await self._call(self.sync.commit, **options)

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._call(self.sync.__exit__, *exception)


class AsyncSnapshot(_Wrapper):
    """A `Snapshot` whose reads run in threads."""

    @property
    def lsn(self) -> int:
        """The position in the log: the snapshot shows the commits below it."""
        return int(self.sync.lsn)

    async def get(self, table: AsyncTable, key: Any, default: Any = None) -> Any:
        """Returns the value of `key` in `table`, or `default`."""
        return await self._call(self.sync.get, _sync(table), key, default)

    def range(
        self, table: AsyncTable, *bounds: Any, **options: Any
    ) -> AsyncIterator[tuple[Any, Any]]:
        """Iterates over the pairs of a range of `table`."""
        return self._iterate(lambda: iter(self.sync[_sync(table)].range(*bounds, **options)))

    async def close(self) -> None:
        """Ends the snapshot."""
        await self._call(self.sync.close)

    async def __aenter__(self) -> AsyncSnapshot:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()


class AsyncTransaction(_Wrapper):
    """A `Transaction` whose calls run in threads. It begins with its `async with` block."""

    def __init__(self, pool: ThreadPoolExecutor, begin: Callable[[], Any]) -> None:
        super().__init__(pool, None)
        self._begin = begin

    async def get(self, table: AsyncTable, key: Any, default: Any = None) -> Any:
        """Returns the value of `key` in `table`, or `default`."""
        return await self._call(self.sync.get, _sync(table), key, default)

    async def get_for_update(self, table: AsyncTable, key: Any, default: Any = None) -> Any:
        """Returns the value of `key` after locking the key."""
        return await self._call(self.sync.get_for_update, _sync(table), key, default)

    async def put(self, table: AsyncTable, key: Any, value: Any, **options: Any) -> bool:
        """Sets the value of `key` in `table`, at commit."""
        return bool(await self._call(self.sync.put, _sync(table), key, value, **options))

    async def delete(self, table: AsyncTable, key: Any, **options: Any) -> bool:
        """Deletes `key` of `table`, at commit."""
        return bool(await self._call(self.sync.delete, _sync(table), key, **options))

    async def merge(self, table: AsyncTable, key: Any, operand: Any) -> None:
        """Merges `operand` into the value of `key`, at commit."""
        await self._call(self.sync.merge, _sync(table), key, operand)

    def range(
        self, table: AsyncTable, *bounds: Any, **options: Any
    ) -> AsyncIterator[tuple[Any, Any]]:
        """Iterates over the pairs of a range of `table`, with the transaction's own writes."""
        return self._iterate(lambda: iter(self.sync[_sync(table)].range(*bounds, **options)))

    async def commit(self) -> None:
        """Commits."""
        await self._call(self.sync.commit)

    async def rollback(self) -> None:
        """Discards all writes."""
        await self._call(self.sync.rollback)

    async def __aenter__(self) -> AsyncTransaction:
        self.sync = await self._call(self._begin)
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._call(self.sync.__exit__, *exception)


def _seconds(time: Union[float, timedelta]) -> float:
    return time.total_seconds() if isinstance(time, timedelta) else time


class AsyncChangeFeed(_Wrapper):
    """A `ChangeFeed` that reads in a thread of its own, because it may wait for long.

    `async for commit in feed` ends at the present end and can be repeated; `follow` waits for new
    commits. A call that is cancelled loses no commit: the next call returns it. Tasks that share a
    feed get each commit once.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        super().__init__(ThreadPoolExecutor(1, thread_name_prefix="quintet-feed"), feed)
        # Commits that were read and not returned.
        self._ready: deque[Commit] = deque()

    def _fill(self, timeout: float) -> None:
        """Waits for commits and reads them ahead. Runs in the thread of the feed."""
        if self._ready:
            return
        nbytes = 0
        try:
            commit = self.sync.wait(timeout)
            while commit is not None:
                self._ready.append(commit)
                nbytes += commit.end - commit.lsn
                is_full = nbytes >= _CHUNK_BYTES or len(self._ready) >= _CHUNK_ENTRIES
                commit = None if is_full else next(self.sync, None)
        except QuintetError:
            # What was read before comes first. The next read fails again.
            if not self._ready:
                raise

    async def wait(self, timeout: Union[float, timedelta, None] = None) -> Optional[Commit]:
        """Returns the next commit, and waits for it up to `timeout`; see `ChangeFeed.wait`."""
        clock = asyncio.get_running_loop().time
        end = None if timeout is None else clock() + _seconds(timeout)
        while True:
            left = _SLICE_SECONDS if end is None else min(_SLICE_SECONDS, max(0.0, end - clock()))
            if self.sync.closed:
                raise ClosedError("the change feed is closed")
            if not self._ready:
                await self._call(self._fill, left)
            if self._ready:
                return self._ready.popleft()
            if left == 0:
                return None

    async def follow(self) -> AsyncIterator[Commit]:
        """Iterates over the commits without end, and waits for new ones."""
        while True:
            commit = await self.wait()
            if commit is not None:
                yield commit

    async def __aiter__(self) -> AsyncIterator[Commit]:
        while (commit := await self.wait(0)) is not None:
            yield commit

    async def position(self) -> int:
        """Returns the position behind the commits that were returned or left out."""
        # After a close there is no thread, and nothing to wait for.
        is_closed = self.sync.closed
        position = self.sync.position if is_closed else await self._call(self._position)
        # Commits that were read ahead come again from there.
        return self._ready[0].lsn if self._ready else int(position)

    def _position(self) -> int:
        return int(self.sync.position)

    async def close(self) -> None:
        """Ends the feed and its thread. Later reads raise `ClosedError`."""
        if not self.sync.closed:
            await self._call(self.sync.close)
            self._pool.shutdown(wait=False)

    async def __aenter__(self) -> AsyncChangeFeed:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()


class AsyncDatabase(_Wrapper):
    """A `Database` whose calls run in threads. `sync` is the database itself."""

    async def table(self, path: str, **options: Any) -> AsyncTable:
        """Opens or creates a table; see `Database.table`."""
        return AsyncTable(self._pool, await self._call(self.sync.table, path, **options))

    async def typed(self, path: str, key: Any, value: str, **options: Any) -> AsyncTable:
        """Opens or creates a typed table; see `Database.typed`."""
        table = await self._call(self.sync.typed, path, key, value, **options)
        return AsyncTable(self._pool, table)

    def batch(self, **options: Any) -> AsyncBatch:
        """Returns an empty batch."""
        return AsyncBatch(self._pool, self.sync.batch(**options))

    def transaction(self, **options: Any) -> AsyncTransaction:
        """Returns a transaction for an `async with` block."""
        return AsyncTransaction(self._pool, lambda: self.sync.transaction(**options))

    async def transact(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Runs a synchronous function in a transaction, in a thread; see `Database.transact`."""
        call = functools.partial(self.sync.transact, function, *arguments, **options)
        result: T = await self._call(call)
        return result

    async def snapshot(self) -> AsyncSnapshot:
        """Takes a snapshot."""
        return AsyncSnapshot(self._pool, await self._call(self.sync.snapshot))

    async def changes(
        self, start: Optional[int] = None, *, tables: Any = None, unsynced: bool = False
    ) -> AsyncChangeFeed:
        """Opens a feed of the commits from `start` on; see `Database.changes`."""
        if tables is not None:
            is_one = isinstance(tables, (str, TableView, AsyncTable))
            tables = [_sync(table) for table in ([tables] if is_one else tables)]
        feed = await self._call(self.sync.changes, start, tables=tables, unsynced=unsynced)
        return AsyncChangeFeed(feed)

    async def log_range(self) -> tuple[int, int]:
        """Returns the first position that a feed can begin at, and the present end."""
        start, end = await self._call(self.sync.log_range)
        return start, end

    async def tables(self) -> list[Any]:
        """Returns the tables by path."""
        tables: list[Any] = await self._call(self.sync.tables)
        return tables

    async def drop_table(self, path: str) -> None:
        """Drops a table."""
        await self._call(self.sync.drop_table, path)

    async def persist(self) -> None:
        """Checkpoints every table."""
        await self._call(self.sync.persist)

    async def close(self) -> None:
        """Closes the database and ends its threads."""
        await self._call(self.sync.close)
        self._pool.shutdown(wait=False)

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self.close()


async def open(
    path: Union[str, bytes, os.PathLike[Any]],
    *,
    threads: int = THREADS,
    engine: str = "btree",
    keys: Any = None,
    values: Any = None,
    **options: Unpack[Options],
) -> AsyncDatabase:
    """Opens a database for `asyncio`; see `quintet.open`. Calls run in `threads` threads."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="quintet")
    call = functools.partial(
        Database, path, engine=engine, keys=keys, values=values, **options
    )
    try:
        database = await asyncio.get_running_loop().run_in_executor(pool, call)
    except BaseException:
        pool.shutdown(wait=False)
        raise
    return AsyncDatabase(pool, database)
