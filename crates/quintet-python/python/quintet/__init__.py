"""Quintet: a persistent key-value store in which every table picks its index structure.

>>> import quintet, tempfile
>>> db = quintet.open(tempfile.mkdtemp(), keys=str, values="json")
>>> db["alice"] = {"age": 7}
>>> db["alice"]
{'age': 7}
>>> users = db.table("app/users", engine="btree", keys=str, values=str)
>>> users.update({"ann": "1", "bob": "2", "eve": "3"})
>>> list(users["b":])
[('bob', '2'), ('eve', '3')]
>>> db.close()

Start at `open`, `Database` and `Table`. `docs/python.md` of the repository has every topic.
"""

from __future__ import annotations

from collections.abc import Mapping as _Mapping, MutableMapping as _MutableMapping

from . import codecs
from ._database import Database, open
from ._errors import (
    ChangesLostError,
    ClosedError,
    ConflictError,
    CorruptionError,
    DeadlockError,
    DiskFullError,
    ForkedError,
    InvalidOptionError,
    IoError,
    LimitError,
    LoadingError,
    LockedError,
    LockTimeoutError,
    LogFailedError,
    MergeOperatorMissingError,
    MergeRefusedError,
    MountError,
    NewerFormatError,
    NoSuchTableError,
    NotADatabaseError,
    NotEncodableError,
    OtherDatabaseError,
    OutOfMemoryError,
    OutOfOrderError,
    QuintetError,
    ReadOnlyError,
    SnapshotExpiredError,
    StaleTableError,
    TableExistsError,
    TableFailedError,
    TransactionError,
    TypeMismatchError,
    UnknownEngineError,
    UnorderedError,
)
from ._quintet import (
    BATCH_BYTES_MAX,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    Batch,
    ChangeFeed,
    Range,
    Savepoint,
    Snapshot,
    Table,
    TableBatch,
    TableView,
    Transaction,
    TransactionTable,
    __version__,
)
from ._records import Change, Commit, Report, TableInfo

_Mapping.register(TableView)
_MutableMapping.register(Table)
_MutableMapping.register(TransactionTable)

__all__ = [
    "BATCH_BYTES_MAX",
    "KEY_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "Batch",
    "Change",
    "ChangeFeed",
    "ChangesLostError",
    "ClosedError",
    "Commit",
    "ConflictError",
    "CorruptionError",
    "Database",
    "DeadlockError",
    "DiskFullError",
    "ForkedError",
    "InvalidOptionError",
    "IoError",
    "LimitError",
    "LoadingError",
    "LockTimeoutError",
    "LockedError",
    "LogFailedError",
    "MergeOperatorMissingError",
    "MergeRefusedError",
    "MountError",
    "NewerFormatError",
    "NoSuchTableError",
    "NotADatabaseError",
    "NotEncodableError",
    "OtherDatabaseError",
    "OutOfMemoryError",
    "OutOfOrderError",
    "QuintetError",
    "Range",
    "ReadOnlyError",
    "Report",
    "Savepoint",
    "Snapshot",
    "SnapshotExpiredError",
    "StaleTableError",
    "Table",
    "TableBatch",
    "TableExistsError",
    "TableFailedError",
    "TableInfo",
    "TableView",
    "Transaction",
    "TransactionError",
    "TransactionTable",
    "TypeMismatchError",
    "UnknownEngineError",
    "UnorderedError",
    "__version__",
    "codecs",
    "open",
]
