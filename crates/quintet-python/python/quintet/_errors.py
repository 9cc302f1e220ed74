"""The exceptions of the package: one class for each kind of failure.

Every class is a `QuintetError`. A class also inherits from the exception of Python that programs
expect for such a failure, where there is one: `KeyError`, `OSError`, `MemoryError`, `ValueError`.
The fields of a failure are attributes.
"""

from __future__ import annotations

from typing import Any


class QuintetError(Exception):
    """The base class of all failures that the store reports."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        Exception.__init__(self, message)
        self._message = message
        self.__dict__.update(fields)

    def __str__(self) -> str:
        return self._message

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(kind: type[QuintetError], fields: dict[str, Any]) -> QuintetError:
    """Returns a pickled exception."""
    error = kind(fields.pop("_message", ""))
    error.__dict__.update(fields)
    return error


class LockedError(QuintetError):
    """The directory is open elsewhere: `path`, `pid` and `program` (or `None`) of the holder."""


class NotADatabaseError(QuintetError):
    """The directory is missing or holds something else: `path`, `what`."""


class IoError(QuintetError, OSError):
    """The operating system refused a file operation: `doing`, `errno`."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        OSError.__init__(self, fields.pop("errno", None), message)
        self._message = message
        self.__dict__.update(fields)


class DiskFullError(QuintetError, OSError):
    """The disk or the quota is full: `doing`. `errno` is `ENOSPC`. Reads go on."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        import errno

        OSError.__init__(self, errno.ENOSPC, message)
        self._message = message
        self.__dict__.update(fields)


class CorruptionError(QuintetError):
    """Bytes on disk differ from what was written: `file`, `offset`, `what`."""


class NewerFormatError(QuintetError):
    """A newer release wrote the file: `file`, `found`, `supported`."""


class LogFailedError(QuintetError):
    """A sync of the log failed earlier: `reason`. Writes fail until the database is reopened."""


class TableFailedError(QuintetError):
    """A table could not apply a logged write: `table`, `reason`. Reopen the database."""


class OutOfMemoryError(QuintetError, MemoryError):
    """A write needs more than the memory budget has: `budget`, `needed`, in bytes."""


class LimitError(QuintetError, ValueError):
    """A key, value, batch, name or expiry is outside its limits: `what`."""


class InvalidOptionError(QuintetError, ValueError):
    """An option does not exist, or its value is not allowed: `name`, `what`."""


class OutOfOrderError(QuintetError, ValueError):
    """A sorted load got a key that is not above the one before: `key`, `after`."""


class LoadingError(QuintetError):
    """A sorted load of the table is in progress: `table`. Retry the write after it."""


class NoSuchTableError(QuintetError, KeyError):
    """No table has this name: `name`."""

    __str__ = QuintetError.__str__


class TableExistsError(QuintetError):
    """A table, a directory or a mount has this name: `name`."""


class SnapshotExpiredError(QuintetError):
    """The snapshot or iterator was kept for too long: `reason`. Take a new one."""


class ChangesLostError(QuintetError):
    """The log does not have the position of a change feed (any more): `position`, and the `start`
    and `end` of the log. Begin again with a snapshot and the feed from its `lsn`.
    """


class StaleTableError(QuintetError):
    """The table was dropped after this handle was opened: `name`."""


class TypeMismatchError(QuintetError, TypeError):
    """A key or value is not of the table's types: `table`, `expected`, `found`."""


class NotEncodableError(QuintetError, ValueError):
    """A value cannot be encoded: `value`, `reason`."""


class OtherDatabaseError(QuintetError, ValueError):
    """A batch, snapshot or transaction got a table of another database: `table`."""


class MountError(QuintetError):
    """A mount cannot be created or used: `path`, `what`."""


class UnorderedError(QuintetError, TypeError):
    """The engine keeps no key order, so the table has no ranges: `table`, `engine`."""


class MergeOperatorMissingError(QuintetError):
    """The merge operator of the table is not registered: `table`, `operator`."""


class MergeRefusedError(QuintetError, ValueError):
    """The merge operator refuses the operand: `table`, `key`, `operator`, `reason`."""


class UnknownEngineError(QuintetError, ValueError):
    """No engine has this name: `name`, `available`."""


class TransactionError(QuintetError):
    """A transaction cannot go on as it is: `table`, `key`. Run it again."""


class ConflictError(TransactionError):
    """Another commit changed what the transaction has read: `table`, `key`."""


class DeadlockError(TransactionError):
    """The transaction and another one wait for each other's locks: `table`, `key`."""


class LockTimeoutError(TransactionError, TimeoutError):
    """A lock was not free within `lock_timeout`: `table`, `key`. The transaction can go on."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        OSError.__init__(self, message)
        self._message = message
        self.__dict__.update(fields)


class ReadOnlyError(QuintetError, TypeError):
    """The database was opened read-only."""


class ClosedError(QuintetError, ValueError):
    """The database, table, snapshot or transaction was closed."""


class ForkedError(QuintetError):
    """The handle belongs to the parent of this forked process. Open the database here."""
