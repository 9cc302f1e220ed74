"""Tables as mappings of bytes: the operations of `dict`, on every engine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, MutableMapping
from typing import Any

import pytest
from conftest import ENGINES, ORDERED, SMALL
from hypothesis import HealthCheck, given, settings, strategies as st

import quintet

KEYS = st.binary(min_size=1, max_size=3)
VALUES = st.binary(max_size=200)
OPERATIONS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES),
    st.tuples(st.just("del"), KEYS),
    st.tuples(st.just("pop"), KEYS, VALUES),
    st.tuples(st.just("setdefault"), KEYS, VALUES),
    st.tuples(st.just("update"), st.dictionaries(KEYS, VALUES, max_size=5)),
    st.tuples(st.just("append"), KEYS, VALUES),
    st.tuples(st.just("popitem")),
    st.tuples(st.just("clear")),
)


def apply(target: Any, operation: tuple[Any, ...]) -> Any:
    """Applies an operation to a table or a dictionary. Returns what it returned or raised."""
    name, *arguments = operation
    try:
        if name == "set":
            target[arguments[0]] = arguments[1]
        elif name == "del":
            del target[arguments[0]]
        elif name == "append":
            key, more = arguments
            if isinstance(target, dict):
                target[key] = target.get(key, b"") + more
                return target[key]
            return target.update(key, lambda old: (old or b"") + more)
        elif name == "popitem":
            if isinstance(target, dict):
                last = max(target)
                return last, target.pop(last)
            return target.popitem()
        else:
            return getattr(target, name)(*arguments)
    except (KeyError, ValueError):
        return KeyError
    return None


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(OPERATIONS, max_size=40), st.sampled_from(ENGINES), st.booleans())
def test_a_table_behaves_as_a_dictionary(
    operations: list[tuple[Any, ...]], engine: str, in_transaction: bool
) -> None:
    with tempfile.TemporaryDirectory() as path, quintet.open(path, **SMALL) as db:
        table = db.table("t", engine=engine)
        model: dict[bytes, bytes] = {}
        transaction = db.transaction()
        target: Any = transaction[table] if in_transaction else table
        for operation in operations:
            if operation[0] == "append" and in_transaction:
                continue
            if operation[0] == "popitem" and engine not in ORDERED:
                # An arbitrary entry.
                if model:
                    key, value = target.popitem()
                    assert model.pop(key) == value
                continue
            assert apply(target, operation) == apply(model, operation), operation
            assert dict(target) == model
        for _ in range(2):
            assert dict(target.items()) == model
            assert sorted(target) == sorted(model) == sorted(target.keys())
            assert sorted(target.values()) == sorted(model.values())
            assert len(target) == len(model) and bool(target) is bool(model)
            for key in list(model) + [b"absent"]:
                assert (key in target) is (key in model)
                assert target.get(key) == model.get(key)
            assert target.get_many(list(model) + [b"no"]) == list(model.values()) + [None]
            transaction.commit() if not transaction.closed else None
            target = table
            db.persist()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(KEYS, VALUES, max_size=60),
    st.dictionaries(KEYS, VALUES, max_size=10),
    st.one_of(st.none(), KEYS),
    st.one_of(st.none(), KEYS),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from(ORDERED),
)
def test_ranges_are_slices_of_the_sorted_keys(
    entries: dict[bytes, bytes],
    own: dict[bytes, bytes],
    start: Any,
    stop: Any,
    flags: tuple[bool, bool, bool],
    engine: str,
) -> None:
    reverse, include_start, include_stop = flags

    def expected(model: dict[bytes, bytes], among: Any = None) -> list[tuple[bytes, bytes]]:
        def is_in(key: bytes) -> bool:
            above = start is None or key > start or (include_start and key == start)
            return above and (stop is None or key < stop or (include_stop and key == stop))

        return sorted(((k, v) for k, v in model.items() if is_in(k)), reverse=reverse)

    with tempfile.TemporaryDirectory() as path, quintet.open(path, **SMALL) as db:
        table = db.table("t", engine=engine)
        table.update(entries)
        snapshot, transaction = db.snapshot(), db.transaction()
        transaction[table].update(own)
        views = [(table, entries), (transaction[table], {**entries, **own})]
        table[b"later"] = b""
        views = [(table, {**entries, b"later": b""}), (snapshot[table], entries), views[1]]
        # The transaction took its moment at the first read: it may show the later entry.
        first_read = dict(transaction[table])
        views[2] = (transaction[table], first_read)
        assert {**first_read, b"later": b""} == {**entries, b"later": b"", **own}
        options = {"include_start": include_start, "include_stop": include_stop}
        for view, model in views:
            found = view.range(start, stop, reverse=reverse, **options)
            wanted = expected(model)
            assert list(found) == wanted == list(found.items())
            assert list(reversed(found)) == wanted[::-1]
            assert list(found.keys()) == [key for key, _ in wanted]
            assert list(found.values()) == [value for _, value in wanted]
            assert len(found) == len(wanted) and bool(found) is bool(wanted)
            assert found.first() == (wanted[0] if wanted else None)
            assert found.last() == (wanted[-1] if wanted else None)
            if include_start and not include_stop:
                assert list(view[start : stop : -1 if reverse else 1]) == wanted
            prefix = (start or b"a")[:1]
            begin = sorted(item for item in model.items() if item[0].startswith(prefix))
            assert list(view.prefix(prefix)) == begin
            assert list(view.prefix(prefix, reverse=True)) == begin[::-1]
            assert list(reversed(view)) == sorted(model, reverse=True)
            assert view.first() == (min(model.items()) if model else None)
            assert view.last() == (max(model.items()) if model else None)


@pytest.mark.parametrize("engine", ORDERED)
def test_long_ranges_cross_many_chunks(db: quintet.Database, engine: str) -> None:
    table = db.table("t", engine=engine)
    entries = [(b"%06d" % number, b"%d" % number * 20) for number in range(3000)]
    table.update(entries)
    assert list(table.items()) == entries
    assert list(table[::-1]) == entries[::-1]
    assert list(table[b"000100":b"002900"]) == entries[100:2900]
    assert len(table) == 3000
    table.range(b"000100", b"002900").delete()
    assert list(table.keys()) == [key for key, _ in entries[:100] + entries[2900:]]
    del table[:b"002950"]
    assert len(table) == 50
    # Large values end a chunk early.
    table.update({b"%06d" % number: bytes(100_000) for number in range(20)})
    assert sum(len(value) for value in table.range(stop=b"001000").values()) == 2_000_000


@pytest.mark.parametrize("engine", ENGINES)
def test_iteration_shows_one_moment(db: quintet.Database, engine: str) -> None:
    table = db.table("t", engine=engine)
    table.update({b"%04d" % number: b"old" for number in range(1000)})
    seen = {}
    for key, value in table.items():
        table[key] = b"new"
        table[key + b"x"] = b"new"
        seen[key] = value
    assert seen == {b"%04d" % number: b"old" for number in range(1000)}
    assert len(table) == 2000


@pytest.mark.parametrize("engine", ["naive", "hashlog", "trie"])
def test_a_table_without_order_has_no_ranges(db: quintet.Database, engine: str) -> None:
    table = db.table("t", engine=engine)
    table[b"a"] = b"1"
    assert list(table) == [b"a"] and len(table) == 1
    for attempt in (
        lambda: list(table[b"a":]),
        lambda: list(reversed(table)),
        lambda: list(table.prefix(b"a")),
        lambda: table.first() and table.last(),
        lambda: table.pop_first(),
    ):
        with pytest.raises(quintet.UnorderedError) as caught:
            attempt()
        assert (caught.value.table, caught.value.engine) == ("t", engine)


def test_tables_are_registered_as_mappings(db: quintet.Database) -> None:
    table = db.table("t")
    assert isinstance(table, MutableMapping) and isinstance(db, MutableMapping)
    with db.snapshot() as snapshot, db.transaction() as transaction:
        view = snapshot[table]
        assert isinstance(view, Mapping) and not isinstance(view, MutableMapping)
        assert isinstance(transaction[table], MutableMapping)
        with pytest.raises(TypeError):
            view[b"a"] = b"1"  # type: ignore[index]
        with pytest.raises(TypeError, match="snapshot"):
            view.range().delete()


def test_views_have_the_operations_of_sets(db: quintet.Database) -> None:
    table = db.table("t")
    table.update({b"a": b"1", b"b": b"2"})
    assert table.keys() & {b"b", b"c"} == {b"b"}
    assert table.items() | {(b"c", b"3")} == {(b"a", b"1"), (b"b", b"2"), (b"c", b"3")}
    assert b"2" in table.values() and b"3" not in table.values()
    assert (b"a", b"1") in table.items() and (b"a", b"2") not in table.items()
    assert list(reversed(table.items())) == [(b"b", b"2"), (b"a", b"1")]
    assert list(reversed(table.values())) == [b"2", b"1"]
    assert list(reversed(table.keys())) == [b"b", b"a"]
    assert len(table.keys()) == 2


def test_a_database_is_the_mapping_of_its_default_table(db: quintet.Database) -> None:
    assert not db
    db[b"a"] = b"1"
    db.update({b"b": b"2"}, )
    assert db[b"a"] == b"1" and b"b" in db and len(db) == 2
    assert list(db) == [b"a", b"b"] and list(reversed(db)) == [b"b", b"a"]
    assert list(db[b"b":]) == [(b"b", b"2")]
    assert db.pop(b"a") == b"1" and db.setdefault(b"c", b"3") == b"3"
    assert dict(db.items()) == {b"b": b"2", b"c": b"3"} == dict(db.default.items())
    assert list(db.keys()) == [b"b", b"c"] and list(db.values()) == [b"2", b"3"]
    assert db.popitem() == (b"c", b"3") and db.get(b"zz", b"no") == b"no"
    del db[b"b"]
    db.clear()
    assert [table.name for table in db.tables()] == ["default"]


def test_missing_keys_raise_key_errors(db: quintet.Database) -> None:
    table = db.table("t")
    for attempt in (
        lambda: table[b"a"],
        lambda: table.__delitem__(b"a"),
        lambda: table.pop(b"a"),
        lambda: table.popitem(),
        lambda: table.expires_at(b"a"),
    ):
        with pytest.raises(KeyError) as caught:
            attempt()
        assert not isinstance(caught.value, quintet.QuintetError)
    assert table.pop(b"a", b"default") == b"default"
    assert table.pop_first() is None and table.pop_last() is None


def test_bytes_like_objects_are_accepted_and_text_is_refused(db: quintet.Database) -> None:
    table = db.table("t")
    table[bytearray(b"a")] = memoryview(b"1")  # type: ignore[index, assignment]
    assert table[memoryview(b"a")] == b"1"  # type: ignore[index]
    for attempt in (
        lambda: table.get("a"),  # type: ignore[call-overload]
        lambda: table.put(b"a", "1"),  # type: ignore[arg-type]
        lambda: table.put(1, b"1"),  # type: ignore[arg-type]
        lambda: list(table["a":]),
    ):
        with pytest.raises(TypeError, match="expected bytes, found"):
            attempt()
    with pytest.raises(ValueError, match="step"):
        table[::2]
    with pytest.raises(TypeError, match="not both"):
        table.range(b"a", prefix=b"b")


def test_a_view_of_a_value_outlives_everything(reopened: Any) -> None:
    table = reopened().table("t")
    for size in (0, 1, 141, 142, 143, 5000, 100_000):
        value = bytes(number % 251 for number in range(size))
        table[b"k"] = value
        view = table.get_view(b"k")
        assert view is not None and view.readonly and view.nbytes == size
        del table[b"k"]
        part = view[size // 2 :]
        del view
        assert part == value[size // 2 :]
        assert table.get_view(b"k") is None
    reopened()
    assert part == value[size // 2 :]
