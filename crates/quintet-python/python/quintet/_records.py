"""Records that methods of a database return."""

from __future__ import annotations

import datetime
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple, TypedDict, Union

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
