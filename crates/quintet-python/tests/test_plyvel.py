"""The interface of plyvel: what its documentation promises, and its own behaviour where it is
installed (`PLYVEL=1`), so that each test is known to hold for the original.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

import quintet

plyvel: Any = importlib.import_module(
    "plyvel" if os.environ.get("PLYVEL") else "quintet.compat.plyvel"
)
IS_OURS = plyvel.__name__ != "plyvel"


@pytest.fixture
def ldb(tmp_path: Path) -> Iterator[Any]:
    opened = plyvel.DB(str(tmp_path / "ldb"), create_if_missing=True)
    yield opened
    opened.close()


def fill(target: Any, count: int = 10) -> list[tuple[bytes, bytes]]:
    entries = [(b"k%02d" % number, b"v%02d" % number) for number in range(count)]
    for key, value in entries:
        target.put(key, value)
    return entries


def test_open_and_close(tmp_path: Path) -> None:
    name = str(tmp_path / "ldb")
    with pytest.raises(plyvel.Error):
        plyvel.DB(name)
    assert not os.path.exists(os.path.join(name, "db"))
    db = plyvel.DB(name, create_if_missing=True, error_if_exists=True)
    assert db.name == name and not db.closed
    with pytest.raises(plyvel.IOError):
        plyvel.DB(name)
    db.put(b"a", b"1")
    db.close()
    db.close()
    assert db.closed
    for attempt in (
        lambda: db.get(b"a"),
        lambda: db.put(b"a", b"1"),
        lambda: db.delete(b"a"),
        lambda: db.iterator(),
        lambda: db.raw_iterator(),
        lambda: db.snapshot(),
        lambda: db.write_batch(),
        lambda: db.get_property(b"leveldb.stats"),
        lambda: list(db),
    ):
        with pytest.raises(RuntimeError):
            attempt()
    with pytest.raises(plyvel.Error):
        plyvel.DB(name, error_if_exists=True)
    with plyvel.DB(name.encode()) as db:
        assert db.get(b"a") == b"1"
    assert db.closed and issubclass(plyvel.IOError, (plyvel.Error, IOError))
    assert issubclass(plyvel.CorruptionError, plyvel.Error)
    assert issubclass(plyvel.IteratorInvalidError, plyvel.Error)


def test_options_of_leveldb_are_accepted(tmp_path: Path) -> None:
    options = {
        "paranoid_checks": True,
        "write_buffer_size": 1 << 20,
        "max_open_files": 100,
        "lru_cache_size": 1 << 20,
        "block_size": 4096,
        "block_restart_interval": 8,
        "max_file_size": 1 << 20,
        "bloom_filter_bits": 10,
        "compression": None,
    }
    plyvel.DB(str(tmp_path / "a"), create_if_missing=True, **options).close()
    with pytest.raises(ValueError):
        plyvel.DB(str(tmp_path / "b"), create_if_missing=True, compression="no")
    if IS_OURS:
        order = {"comparator": lambda a, b: 0, "comparator_name": b"mine"}
        with pytest.raises(ValueError, match="comparator"):
            plyvel.DB(str(tmp_path / "b"), create_if_missing=True, **order)


def test_get_put_delete(ldb: Any) -> None:
    assert ldb.get(b"a") is None and ldb.get(b"a", b"default") == b"default"
    ldb.put(b"a", b"")
    ldb.put(b"b", b"2", sync=True)
    assert ldb.get(b"a") == b"" and ldb.get(b"b", verify_checksums=True, fill_cache=False) == b"2"
    ldb.delete(b"a")
    ldb.delete(b"absent", sync=True)
    assert ldb.get(b"a") is None
    for attempt in (
        lambda: ldb.get("text"),
        lambda: ldb.put("text", b"1"),
        lambda: ldb.put(b"a", "text"),
        lambda: ldb.put(1, b"1"),
        lambda: ldb.delete("text"),
    ):
        with pytest.raises(TypeError):
            attempt()
    if IS_OURS:
        ldb.put(bytearray(b"c"), bytearray(b"3"))
        assert ldb.get(bytearray(b"c")) == b"3" and ldb.get(b"") is None
        for attempt in (lambda: ldb.put(b"", b"1"), lambda: ldb.delete(b"")):
            with pytest.raises(plyvel.Error, match="empty key"):
                attempt()


def test_write_batches(ldb: Any) -> None:
    batch = ldb.write_batch()
    batch.put(b"a", b"1")
    batch.put(b"b", b"2")
    batch.delete(b"a")
    assert ldb.get(b"b") is None and batch.approximate_size() > 0
    batch.write()
    assert ldb.get(b"a") is None and ldb.get(b"b") == b"2"
    batch.clear()
    batch.put(b"c", b"3")
    batch.write()
    assert ldb.get(b"c") == b"3"
    with ldb.write_batch(sync=True) as batch:
        batch.put(b"d", b"4")
    assert ldb.get(b"d") == b"4"
    # Without a transaction, what the block added before it raised is written.
    with pytest.raises(ValueError):
        with ldb.write_batch() as batch:
            batch.put(b"e", b"5")
            raise ValueError
    assert ldb.get(b"e") == b"5"
    with pytest.raises(ValueError):
        with ldb.write_batch(transaction=True) as batch:
            batch.put(b"f", b"6")
            raise ValueError
    assert ldb.get(b"f") is None
    one, two = ldb.write_batch(), ldb.write_batch()
    one.put(b"g", b"7")
    two.delete(b"b")
    one.append(two)
    one.write()
    assert ldb.get(b"g") == b"7" and ldb.get(b"b") is None
    with pytest.raises(TypeError):
        one.put("text", b"1")


def test_iterators_over_ranges(ldb: Any) -> None:
    entries = fill(ldb)
    keys = [key for key, _ in entries]
    assert list(ldb) == entries == list(ldb.iterator())
    assert list(ldb.iterator(reverse=True)) == entries[::-1]
    assert list(ldb.iterator(include_value=False)) == keys
    assert list(ldb.iterator(include_key=False)) == [value for _, value in entries]
    assert list(ldb.iterator(include_key=False, include_value=False)) == [None] * 10
    assert list(ldb.iterator(start=b"k03", stop=b"k06", include_value=False)) == keys[3:6]
    options = {"start": b"k03", "stop": b"k06", "include_value": False}
    assert list(ldb.iterator(include_start=False, include_stop=True, **options)) == keys[4:7]
    assert list(ldb.iterator(reverse=True, **options)) == keys[5:2:-1]
    assert list(ldb.iterator(prefix=b"k0", include_value=False)) == keys
    assert list(ldb.iterator(prefix=b"k01")) == entries[1:2]
    assert list(ldb.iterator(prefix=b"x")) == []
    assert list(ldb.iterator(start=b"k06", stop=b"k03")) == []
    with pytest.raises(TypeError):
        ldb.iterator(prefix=b"k", start=b"k")
    ldb.put(b"\xff\xff", b"last")
    assert list(ldb.iterator(prefix=b"\xff")) == [(b"\xff\xff", b"last")]


def test_iterators_move_both_ways(ldb: Any) -> None:
    fill(ldb, 3)
    iterator = ldb.iterator(include_value=False)
    with pytest.raises(StopIteration):
        iterator.prev()
    assert next(iterator) == b"k00" and iterator.prev() == b"k00" and next(iterator) == b"k00"
    assert next(iterator) == b"k01" and next(iterator) == b"k02"
    with pytest.raises(StopIteration):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    assert iterator.prev() == b"k02" and iterator.prev() == b"k01"
    iterator.seek_to_stop()
    assert iterator.prev() == b"k02"
    iterator.seek_to_start()
    assert next(iterator) == b"k00"
    iterator.seek(b"k01")
    assert next(iterator) == b"k01"
    iterator.seek(b"k01x")
    assert iterator.prev() == b"k01"
    iterator.seek(b"z")
    assert iterator.prev() == b"k02"
    iterator.close()
    for attempt in (lambda: next(iterator), lambda: iterator.prev(), lambda: iterator.seek(b"a")):
        with pytest.raises(RuntimeError):
            attempt()
    with ldb.iterator(reverse=True, include_value=False) as iterator:
        assert next(iterator) == b"k02" and iterator.prev() == b"k02"
        iterator.seek_to_start()
        assert iterator.prev() == b"k00"
        iterator.seek_to_stop()
        assert next(iterator) == b"k02"
    ldb_iterator = ldb.iterator()
    ldb.close()
    with pytest.raises(RuntimeError):
        next(ldb_iterator)


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["next", "prev", "start", "stop"]),
        st.tuples(st.just("seek"), st.sampled_from([b"b", b"c", b"cc", b"d", b"g", b"i"])),
    ),
    max_size=12,
)
BOUND = st.one_of(st.none(), st.sampled_from([b"b", b"c", b"cc", b"f", b"h"]))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS, BOUND, BOUND, st.booleans(), st.booleans(), st.booleans())
def test_iterator_positions(
    ldb: Any, steps: Any, start: Any, stop: Any, above: bool, upto: bool, reverse: bool
) -> None:
    """An iterator is a position between the entries of its range."""
    # plyvel returns nothing for a range of one key in reverse.
    assume(IS_OURS or start is None or stop is None or start < stop)
    keys = [b"b", b"c", b"d", b"e", b"f", b"g", b"h"]
    for key in keys:
        ldb.put(key, key)

    def is_in(key: bytes) -> bool:
        low = start is None or key > start or (above and key == start)
        return low and (stop is None or key < stop or (upto and key == stop))

    order = [key for key in keys if is_in(key)]
    bounds = {"start": start, "stop": stop, "include_start": above, "include_stop": upto}
    iterator = ldb.iterator(reverse=reverse, include_value=False, **bounds)
    place = len(order) if reverse else 0
    for step in steps:
        if step in ("next", "prev"):
            upwards = (step == "next") is not reverse
            call = iterator.__next__ if step == "next" else iterator.prev
            if place == (len(order) if upwards else 0):
                with pytest.raises(StopIteration):
                    call()
            else:
                assert call() == order[place if upwards else place - 1]
                place += 1 if upwards else -1
        elif step == "start":
            iterator.seek_to_start()
            place = 0
        elif step == "stop":
            iterator.seek_to_stop()
            place = len(order)
        elif IS_OURS or ((start or b"") < step[1] < (stop or b"z")):
            # Seeks beyond the range leave plyvel's iterators outside of it.
            iterator.seek(step[1])
            place = sum(key < step[1] for key in order)


def test_raw_iterators(ldb: Any) -> None:
    entries = fill(ldb, 3)
    iterator = ldb.raw_iterator()
    assert not iterator.valid()
    for attempt in (
        lambda: iterator.key(),
        lambda: iterator.value(),
        lambda: iterator.item(),
        lambda: iterator.next(),
        lambda: iterator.prev(),
    ):
        with pytest.raises(plyvel.IteratorInvalidError):
            attempt()
    iterator.seek_to_first()
    seen = []
    while iterator.valid():
        seen.append((iterator.key(), iterator.value()))
        assert iterator.item() == seen[-1]
        iterator.next()
    assert seen == entries
    iterator.seek_to_last()
    assert iterator.key() == b"k02"
    iterator.prev()
    iterator.prev()
    iterator.next()
    assert iterator.key() == b"k01"
    iterator.seek(b"k00x")
    assert iterator.key() == b"k01"
    iterator.prev()
    assert iterator.key() == b"k00"
    iterator.prev()
    assert not iterator.valid()
    iterator.seek(b"z")
    assert not iterator.valid()
    iterator.close()
    with pytest.raises(RuntimeError):
        iterator.valid()
    with ldb.raw_iterator() as iterator:
        iterator.seek_to_first()
    ldb.put(b"later", b"1")


def test_snapshots(ldb: Any) -> None:
    entries = fill(ldb)
    snapshot = ldb.snapshot()
    iterator = ldb.iterator()
    ldb.put(b"k00", b"changed")
    ldb.put(b"new", b"1")
    ldb.delete(b"k05")
    assert snapshot.get(b"k00") == b"v00" and snapshot.get(b"new", 5) == 5
    assert list(snapshot) == entries == list(snapshot.iterator()) == list(iterator)
    assert list(snapshot.iterator(prefix=b"k03")) == entries[3:4]
    with snapshot.raw_iterator() as raw:
        raw.seek_to_last()
        assert raw.key() == b"k09"
    snapshot.close()
    with pytest.raises(RuntimeError):
        snapshot.get(b"k00")
    with ldb.snapshot() as snapshot:
        assert snapshot.get(b"new") == b"1"


def test_prefixed_databases(ldb: Any) -> None:
    ldb.put(b"a", b"outside")
    ldb.put(b"z", b"outside")
    part = ldb.prefixed_db(b"p-")
    assert part.prefix == b"p-" and part.db is ldb
    entries = fill(part, 5)
    assert ldb.get(b"p-k00") == b"v00" and part.get(b"k00") == b"v00" and part.get(b"a", 1) == 1
    assert list(part) == entries == list(part.iterator())
    assert list(part.iterator(reverse=True)) == entries[::-1]
    assert list(part.iterator(start=b"k02", stop=b"k04")) == entries[2:4]
    assert list(part.iterator(prefix=b"k03", include_value=False)) == [b"k03"]
    iterator = part.iterator(include_value=False)
    iterator.seek(b"k03")
    assert next(iterator) == b"k03"
    iterator.seek_to_stop()
    assert iterator.prev() == b"k04"
    with part.write_batch() as batch:
        batch.put(b"k09", b"9")
        batch.delete(b"k00")
    assert part.get(b"k09") == b"9" and ldb.get(b"p-k00") is None
    snapshot = part.snapshot()
    part.delete(b"k01")
    assert snapshot.get(b"k01") == b"v01" and next(iter(snapshot)) == (b"k01", b"v01")
    if IS_OURS:
        raw = part.raw_iterator()
        raw.seek_to_first()
        assert raw.item() == (b"k02", b"v02")
        raw.seek_to_last()
        assert raw.key() == b"k09"
        raw.next()
        assert not raw.valid()
    nested = part.prefixed_db(b"q-")
    nested.put(b"x", b"1")
    assert nested.prefix == b"p-q-" and ldb.get(b"p-q-x") == b"1" and list(nested) == [(b"x", b"1")]


def test_properties_and_sizes(ldb: Any) -> None:
    for number in range(1000):
        ldb.put(b"%04d" % number, bytes(100))
    ldb.compact_range()
    ldb.compact_range(start=b"0001", stop=b"0100")
    assert isinstance(ldb.get_property(b"leveldb.stats"), bytes)
    assert ldb.get_property(b"does-not-exist") is None
    sizes = ldb.approximate_sizes((b"0000", b"1"), (b"x", b"y"))
    assert sizes[0] == ldb.approximate_size(b"0000", b"1") and sizes[1] == 0
    if IS_OURS:
        assert 20_000 < sizes[0] < 1_000_000
        assert int(ldb.get_property(b"leveldb.approximate-memory-usage")) > 0


def test_destroy_and_repair(tmp_path: Path) -> None:
    name = str(tmp_path / "ldb")
    with plyvel.DB(name, create_if_missing=True) as db:
        db.put(b"a", b"1")
    plyvel.repair_db(name)
    with plyvel.DB(name) as db:
        assert db.get(b"a") == b"1"
    plyvel.destroy_db(name)
    with pytest.raises(plyvel.Error):
        plyvel.DB(name)
    plyvel.destroy_db(name)
    if IS_OURS:
        assert not os.path.exists(name)
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "file").write_text("x")
        with pytest.raises(plyvel.Error):
            plyvel.destroy_db(str(tmp_path / "mine"))
        assert (tmp_path / "mine" / "file").exists()
        with pytest.raises(plyvel.Error):
            plyvel.repair_db(str(tmp_path / "none"))
        (tmp_path / "level").mkdir()
        (tmp_path / "level" / "CURRENT").write_text("MANIFEST-000002\n")
        with pytest.raises(plyvel.Error, match="LevelDB"):
            plyvel.DB(str(tmp_path / "level"), create_if_missing=True)


@pytest.mark.skipif(not IS_OURS, reason="about the translation of our exceptions")
def test_exceptions_are_those_of_plyvel() -> None:
    translated: dict[type[quintet.QuintetError], type[Exception]] = {
        quintet.CorruptionError: plyvel.CorruptionError,
        quintet.LockedError: plyvel.IOError,
        quintet.DiskFullError: plyvel.IOError,
        quintet.ClosedError: RuntimeError,
        quintet.LimitError: plyvel.Error,
    }
    for kind, expected in translated.items():
        with pytest.raises(expected, match="message|closed") as caught:
            with plyvel._translate:
                raise kind("message")
        assert isinstance(caught.value.__cause__, kind)


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    db = plyvel.DB(str(tmp_path / "testdb"), create_if_missing=True)
    my_db: Callable[[bytes], Any] = db.get
    with db.write_batch() as wb:
        for i in range(1000):
            wb.put(bytes(i % 256 for _ in range(1)), str(i).encode())
    assert my_db(b"\x01") == b"769"
    db.close()
