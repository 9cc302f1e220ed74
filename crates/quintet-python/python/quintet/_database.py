"""`Database`: an open database, and the mapping of its default table."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any, Optional, Union, cast

from ._quintet import Database as _Database

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._quintet import Table
    from ._records import Options

_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()


@atexit.register
def _close_databases() -> None:
    """Closes what is still open, so that the next open replays no log. Nothing is lost without."""
    for database in list(_open_databases):
        if database._pid != os.getpid():
            continue
        try:
            database.close()
        except Exception:
            # Acknowledged writes are in the log; the interpreter ends.
            pass


class Database(_Database):
    """An open database: a directory of tables that share a log, batches and a memory budget.

    As a context manager it closes itself. It also is a `MutableMapping` of the entries of its table
    `default`, which is created at the first use.
    """

    default_table = "default"
    """The path of the table that the mapping shows."""

    _choice: tuple[str, Any, Any]
    _default: Optional[Table[Any, Any]]
    _pid: int

    def __new__(
        cls,
        path: Union[str, bytes, os.PathLike[Any]],
        *,
        engine: str = "btree",
        keys: Any = None,
        values: Any = None,
        **options: Unpack[Options],
    ) -> Database:
        """Opens the database in the directory `path`; see `quintet.open`."""
        self = cast(Database, super().__new__(cls, path, **options))
        self._choice = (engine, keys, values)
        self._default = None
        self._pid = os.getpid()
        _open_databases.add(self)
        return self

    @property
    def default(self) -> Table[Any, Any]:
        """The table that the mapping shows."""
        table = self._default
        if table is None:
            engine, keys, values = self._choice
            create = not self.is_read_only
            table = self.table(
                self.default_table, engine=engine, keys=keys, values=values, create=create
            )
            # Of two threads that come first, both get the same table of the store.
            self._default = table
        return table

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getitem__(self, key: Any) -> Any:
        """Returns the value of `key`, or the range of a slice."""
        return self.default[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.default[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.default[key]

    def __contains__(self, key: object) -> bool:
        return key in self.default

    def __iter__(self) -> Iterator[Any]:
        return iter(self.default)

    def __reversed__(self) -> Iterator[Any]:
        keys: Iterator[Any] = reversed(self.default)
        return keys

    def __len__(self) -> int:
        return len(self.default)

    def __bool__(self) -> bool:
        return bool(self.default)

    def get(self, key: Any, default: Any = None, /) -> Any:
        """Returns the value of `key`, or `default`."""
        return self.default.get(key, default)

    def keys(self) -> KeysView[Any]:
        """Returns a view of the keys."""
        return self.default.keys()

    def values(self) -> ValuesView[Any]:
        """Returns a view of the values."""
        return self.default.values()

    def items(self) -> ItemsView[Any, Any]:
        """Returns a view of the pairs of key and value."""
        return self.default.items()

    def pop(self, key: Any, /, *default: Any) -> Any:
        """Deletes `key` and returns its value; see `Table.pop`."""
        return self.default.pop(key, *default)

    def popitem(self) -> tuple[Any, Any]:
        """Deletes an entry and returns it; see `Table.popitem`."""
        return self.default.popitem()

    def setdefault(self, key: Any, default: Any, /) -> Any:
        """Returns the value of `key`, after setting it to `default` if it has none."""
        return self.default.setdefault(key, default)

    def update(self, *arguments: Any, **entries: Any) -> Any:
        """Writes entries, or replaces a value by a function of it; see `Table.update`."""
        return self.default.update(*arguments, **entries)

    def clear(self) -> None:
        """Deletes all entries of the default table."""
        self.default.clear()


MutableMapping.register(Database)


def open(
    path: Union[str, bytes, os.PathLike[Any]],
    *,
    engine: str = "btree",
    keys: Any = None,
    values: Any = None,
    **options: Unpack[Options],
) -> Database:
    """Opens the database in the directory `path`, and creates it if it is missing.

    `keys`, `values` and `engine` are those of the default table. The other options are keyword
    arguments: `sync` (every write survives a power loss when it returns; default `False`),
    `memory_budget`, `recovery_budget`, `space_reserve`, `segment_bytes`, `log_retention` and
    `snapshot_limit` in bytes, `sync_interval`, `checkpoint_interval` and `snapshot_max_age` in
    seconds or as `timedelta`, `read_only`, `create`, `merge_operators` (a dictionary of functions
    by name) and `allow_missing_merge_operators`.

    Raises `LockedError`, `NotADatabaseError`, `CorruptionError`, `NewerFormatError`,
    `InvalidOptionError` and `IoError`.
    """
    return Database(path, engine=engine, keys=keys, values=values, **options)
