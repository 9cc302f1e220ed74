"""Records that methods of a database return."""

from __future__ import annotations

import datetime
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Literal,
    NamedTuple,
    Optional,
    Tuple,
    TypedDict,
    Union,
)

_Seconds = Union[float, datetime.timedelta]
MergeOperator = Callable[[bytes, Optional[bytes], bytes], bytes]
"""Gets a key, its value or `None`, and an operand, and returns the new value."""


class Options(TypedDict, total=False):
    """The options to open a database; `quintet.open` describes them."""

    sync: Optional[bool]
    memory_budget: Optional[int]
    sync_interval: Optional[_Seconds]
    recovery_budget: Optional[int]
    space_reserve: Optional[int]
    checkpoint_interval: Optional[_Seconds]
    read_only: Optional[bool]
    create: Optional[bool]
    segment_bytes: Optional[int]
    log_retention: Optional[int]
    snapshot_limit: Optional[int]
    snapshot_max_age: Optional[_Seconds]
    merge_operators: Optional[Dict[str, MergeOperator]]
    allow_missing_merge_operators: Optional[bool]


class TableInfo(NamedTuple):
    """The path, the engine and the types of a table. `types` is `None` if they are not fixed."""

    name: str
    engine: str
    types: Optional[str]


class Report(NamedTuple):
    """The result of a check.

    `findings` has a triple of file, offset and description for each problem. `checked_bytes` and
    `checked_entries` count what was verified. `notes` are facts that are no problems.
    """

    findings: List[Tuple[str, int, str]]
    checked_bytes: int
    checked_entries: int
    notes: List[str]

    @property
    def is_sound(self) -> bool:
        """Whether the check found no problem."""
        return not self.findings


class Change(NamedTuple):
    """What a commit changed in a table. Keys and values are bytes, whatever the codecs are.

    - "begin": the table was created or cleared. What was known of a table of this path is void. May
      come more than once before the first entry.
    - "put": `key` got `value`, by a put, an update or a merge. `expires_at` is in seconds since
      1970, or `None`. `type_tag` names the type that a program in another language stored with
      the value, or is `None`. The types of a typed table are not repeated there.
    - "delete": `key` was deleted, or its expired value removed. It may have had no value.
    - "delete_range": the keys from `start` up to `end` were deleted. `end` is `None` if the range
      has no end.

    Fields that a kind does not have are `None`.
    """

    table: str
    """The path of the table when the commit was read."""
    table_number: int
    """The number of the table. A rename keeps it; a table that is cleared, or dropped and created
    again, gets another one.
    """
    kind: Literal["begin", "put", "delete", "delete_range"]
    key: Optional[bytes]
    value: Optional[bytes]
    start: Optional[bytes]
    end: Optional[bytes]
    expires_at: Optional[float]
    type_tag: Optional[str]


class Commit(Tuple[Change, ...]):
    """The changes of one write, batch or transaction, in their order: a tuple of `Change`."""

    lsn: int
    """The position of the commit in the log."""
    end: int
    """The position behind the commit: a feed that begins there returns the next one."""

    def __new__(cls, changes: Iterable[Change], lsn: int, end: int) -> Commit:
        self = super().__new__(cls, changes)
        self.lsn = lsn
        self.end = end
        return self

    def __getnewargs__(self) -> Any:
        return tuple(self), self.lsn, self.end

    def __repr__(self) -> str:
        return f"Commit({super().__repr__()}, lsn={self.lsn}, end={self.end})"
