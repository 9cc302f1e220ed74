"""Records that methods of a database return."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple


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
