"""What the tests share: a fresh database, and one for each engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import quintet

ENGINES = ["naive", "hashlog", "trie", "btree", "slm", "tph"]
ORDERED = ["btree", "slm", "tph"]
SMALL = {"memory_budget": 64 << 20, "segment_bytes": 1 << 20}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[quintet.Database]:
    """A fresh database with a small budget."""
    with quintet.open(tmp_path / "db", **SMALL) as opened:
        yield opened


@pytest.fixture
def reopened(tmp_path: Path) -> Iterator[Callable[..., quintet.Database]]:
    """A function that closes the database and opens it again with other options."""
    current: list[quintet.Database] = []

    def reopen(**options: Any) -> quintet.Database:
        while current:
            current.pop().close()
        current.append(quintet.open(tmp_path / "db", **{**SMALL, **options}))
        return current[0]

    yield reopen
    while current:
        current.pop().close()
