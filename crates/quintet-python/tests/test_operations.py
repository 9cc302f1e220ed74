"""Conditions, expiry, updates, merges, batches, snapshots, transactions, typed tables."""

from __future__ import annotations

import datetime
import gc
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ENGINES, ORDERED, SMALL

import quintet


@pytest.mark.parametrize("engine", ENGINES)
def test_conditions_decide_whether_a_put_writes(db: quintet.Database, engine: str) -> None:
    table = db.table("t", engine=engine)
    assert not table.put(b"a", b"1", if_present=True) and b"a" not in table
    assert table.put(b"a", b"1", if_absent=True) and not table.put(b"a", b"2", if_absent=True)
    assert table.put(b"a", b"3", if_present=True, sync=True) and table[b"a"] == b"3"
    assert table.delete(b"a", if_present=True) and not table.delete(b"a", if_present=True)
    assert table.delete(b"a") and table.delete(b"a", sync=False)
    with pytest.raises(TypeError, match="not both"):
        table.put(b"a", b"1", if_absent=True, if_present=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_values_expire(db: quintet.Database, engine: str) -> None:
    table = db.table("t", engine=engine)
    table.put(b"soon", b"1", ttl=0.05)
    table.put(b"later", b"1", ttl=datetime.timedelta(hours=1))
    moment = datetime.datetime.now() + datetime.timedelta(days=1)
    table.put(b"then", b"1", expires_at=moment)
    table.put(b"number", b"1", expires_at=time.time() + 100)
    table[b"never"] = b"1"
    assert table.expires_at(b"never") is None
    assert table.expires_at(b"then") == pytest.approx(moment.timestamp(), abs=0.01)
    assert table.expires_at(b"later") == pytest.approx(time.time() + 3600, abs=60)
    deadline = time.monotonic() + 30
    while b"soon" in table and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(table) == [b"later", b"never", b"number", b"then"]
    # An update keeps the expiry, a put removes it.
    table.update(b"later", lambda old: b"2")
    assert table.expires_at(b"later") is not None
    table.update(b"never", lambda old: b"2", ttl=100)
    assert table.expires_at(b"never") is not None
    table[b"never"] = b"3"
    assert table.expires_at(b"never") is None
    with pytest.raises(quintet.LimitError):
        table.put(b"a", b"1", ttl=0)
    with pytest.raises(ValueError):
        table.put(b"a", b"1", ttl=-1)
    with pytest.raises(TypeError):
        table.put(b"a", b"1", ttl="long")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not both"):
        table.put(b"a", b"1", ttl=1, expires_at=1)


def test_an_update_replaces_deletes_or_raises(db: quintet.Database) -> None:
    table = db.table("t", keys=str, values="json")
    assert table.update("n", lambda old: (old or 0) + 1) == 1
    assert table.update("n", lambda old: (old or 0) + 1) == 2
    assert table.update("n", lambda old: None) is None and "n" not in table
    assert table.update("n", lambda old: None) is None

    def fails(old: Any) -> Any:
        raise RuntimeError("no")

    table["n"] = 7
    with pytest.raises(RuntimeError, match="no"):
        table.update("n", fails)
    assert table["n"] == 7
    with pytest.raises(TypeError, match="no argument"):
        table.update("n", lambda old: old, sometime=1)
    # The function runs again with what another write has put between.
    olds = []

    def writes(old: Any) -> Any:
        olds.append(old)
        if old == 7:
            table["n"] = 8
        return old + 1

    assert table.update("n", writes) == 9 and olds == [7, 8]
    table.update(other=1, function=2)
    table.update([("pair", 3)])
    table.update()
    assert dict(table.items()) == {"function": 2, "n": 9, "other": 1, "pair": 3}
    with pytest.raises(TypeError):
        table.update(5)
    with pytest.raises((TypeError, ValueError)):
        table.update({"good": 1, "bad": object()})
    assert "good" not in table, "the batch is atomic"


def test_swaps_counters_and_replacements(db: quintet.Database) -> None:
    table = db.table("t")
    assert table.compare_and_swap(b"a", None, b"1")
    assert not table.compare_and_swap(b"a", None, b"2")
    assert not table.compare_and_swap(b"a", b"2", b"3")
    assert table.compare_and_swap(b"a", b"1", b"2", ttl=1000) and table.expires_at(b"a")
    assert table.compare_and_swap(b"a", b"2", None) and b"a" not in table
    assert table.fetch_and_add(b"n") == 0 and table.fetch_and_add(b"n", -5) == 1
    assert table[b"n"] == struct.pack("<q", -4)
    assert table.replace(b"r", b"1") is None and table.replace(b"r", b"2") == b"1"
    assert table.pop_first() == (b"n", struct.pack("<q", -4))
    assert table.pop_last() == (b"r", b"2") and not table


@pytest.mark.parametrize("engine", ENGINES)
def test_built_in_merge_operators(db: quintet.Database, engine: str) -> None:
    sums = db.table("sums", engine=engine, merge="add_u64")
    for number in (1, 2, 3):
        sums.merge(b"n", struct.pack("<Q", number))
    assert sums[b"n"] == struct.pack("<Q", 6)
    with pytest.raises(quintet.MergeRefusedError) as refused:
        sums.merge(b"n", b"short")
    assert (refused.value.table, refused.value.key) == ("sums", b"n")
    assert refused.value.operator == "add_u64" and refused.value.reason
    text = db.table("text", engine=engine, keys=str, values=str, merge="append")
    text.merge("log", "a")
    with db.batch() as batch:
        batch.merge(text, "log", "b")
        batch[text].merge("log", "c")
    with db.transaction() as transaction:
        transaction.merge(text, "log", "d")
        transaction[text].merge("log", "e")
        assert transaction[text]["log"] == "abcde"
    assert text["log"] == "abcde"
    with pytest.raises(quintet.InvalidOptionError):
        db.table("plain", engine=engine).merge(b"a", b"b")


def test_merge_operators_in_python(reopened: Any) -> None:
    calls = []

    def longest(key: bytes, old: Any, operand: bytes) -> bytes:
        calls.append((key, old, operand))
        if operand == b"!":
            raise ValueError("no exclamations")
        if operand == b"stop":
            raise KeyboardInterrupt
        if operand == b"text":
            return "no bytes"  # type: ignore[return-value]
        return max(old or b"", operand, key=len)

    db = reopened(merge_operators={"longest": longest})
    table = db.table("t", merge="longest")
    for operand in (b"aa", b"b", b"cccc"):
        table.merge(b"k", operand)
    assert table[b"k"] == b"cccc" and calls[0] == (b"k", None, b"aa")
    with pytest.raises(quintet.MergeRefusedError, match="no exclamations") as refused:
        table.merge(b"k", b"!")
    assert isinstance(refused.value.__cause__, ValueError)
    with pytest.raises(quintet.MergeRefusedError) as refused:
        with table.batch() as batch:
            batch.merge(b"k", b"text")
    assert isinstance(refused.value.__cause__, TypeError)
    with pytest.raises(KeyboardInterrupt):
        table.merge(b"k", b"stop")
    assert table[b"k"] == b"cccc"
    with db.transaction() as transaction:
        transaction.merge(table, b"k", b"ddddd")
    with pytest.raises(quintet.MergeOperatorMissingError) as missing:
        reopened().table("t")
    assert (missing.value.table, missing.value.operator) == ("t", "longest")
    table = reopened(allow_missing_merge_operators=True).table("t")
    assert table[b"k"] == b"ddddd"
    with pytest.raises(quintet.InvalidOptionError):
        reopened(merge_operators={"append": longest})


@pytest.mark.parametrize("engine", ENGINES)
def test_batches_are_atomic(db: quintet.Database, engine: str) -> None:
    one, two = db.table("one", engine=engine), db.table("two", keys=str, values=str)
    with db.batch(sync=True) as batch:
        batch.put(one, b"a", b"1")
        batch.put(one, b"e", b"1", ttl=1000)
        batch[two]["b"] = "2"
        batch[two].put("c", "3", ttl=1000)
        del batch[two]["absent"]
        batch.delete(one, b"absent")
        assert len(batch) == 6 and batch.nbytes > 0 and not one
    assert one[b"a"] == b"1" and two["b"] == "2" and one.expires_at(b"e")
    with pytest.raises(RuntimeError):
        with db.batch() as batch:
            batch.put(one, b"x", b"1")
            raise RuntimeError
    with pytest.raises(RuntimeError):
        with one.batch() as own:
            own[b"x"] = b"1"
            raise RuntimeError
    assert b"x" not in one
    own = one.batch()
    own[b"y"] = b"1"
    own.clear()
    own[b"z"] = b"1"
    assert len(own) == 1
    own.commit(sync=True)
    assert b"y" not in one and one[b"z"] == b"1" and len(own) == 0
    batch = db.batch()
    batch.put(one, b"late", b"1")
    batch.put(one, b"", b"1")
    with pytest.raises(quintet.LimitError):
        batch.commit()
    assert b"late" not in one
    batch.clear()
    batch.commit()


@pytest.mark.parametrize("engine", ENGINES)
def test_snapshots_show_one_moment(db: quintet.Database, engine: str) -> None:
    table = db.table("t", engine=engine)
    table.update({b"%03d" % number: b"old" for number in range(100)})
    snapshot = db.snapshot()
    table.update({b"%03d" % number: b"new" for number in range(50, 150)})
    del table[b"000"]
    view = snapshot[table]
    assert dict(view.items()) == {b"%03d" % number: b"old" for number in range(100)}
    assert view[b"000"] == b"old" and view.get(b"120") is None and b"120" not in view
    assert snapshot.get(table, b"060") == b"old" and snapshot.get(table, b"x", b"d") == b"d"
    assert view.get_many([b"000", b"120"]) == [b"old", None] and len(view) == 100
    assert snapshot.lsn > 0 and not snapshot.closed
    begun = iter(view.items())
    first = next(begun)
    snapshot.close()
    snapshot.close()
    assert snapshot.closed
    assert len([first, *begun]) == 100, "an iterator that has begun goes on"
    for attempt in (lambda: view[b"000"], lambda: snapshot[table], lambda: list(view)):
        with pytest.raises(quintet.ClosedError, match="the snapshot is closed"):
            attempt()
    with db.snapshot() as snapshot:
        pass
    assert snapshot.closed


def test_an_old_snapshot_expires(reopened: Any) -> None:
    db = reopened(snapshot_max_age=0.001)
    table = db.table("t")
    table[b"a"] = b"1"
    snapshot = db.snapshot()
    deadline = time.monotonic() + 30
    with pytest.raises(quintet.SnapshotExpiredError) as expired:
        while time.monotonic() < deadline:
            time.sleep(0.01)
            table[b"a"] = b"2"
            db.snapshot().close()
            snapshot.get(table, b"a")
    assert expired.value.reason


@pytest.mark.parametrize("engine", ENGINES)
def test_transactions_commit_or_roll_back(db: quintet.Database, engine: str) -> None:
    one, two = db.table("one", engine=engine), db.table("two", keys=str, values="json")
    with db.transaction() as transaction:
        transaction.put(one, b"a", b"1")
        transaction[two]["b"] = [2]
        assert transaction.get(one, b"a") == b"1" and transaction.get(one, b"x", 5) == 5
        assert b"a" not in one
    assert one[b"a"] == b"1" and two["b"] == [2] and transaction.closed
    with pytest.raises(RuntimeError):
        with db.transaction(isolation="snapshot", sync=True) as transaction:
            transaction.put(one, b"x", b"1")
            raise RuntimeError
    assert b"x" not in one
    transaction = db.transaction()
    transaction.put(one, b"s", b"1")
    savepoint = transaction.savepoint()
    transaction.put(one, b"t", b"2")
    transaction.delete(one, b"a")
    transaction.rollback_to(savepoint)
    assert transaction[one].get(b"t") is None
    with pytest.raises(quintet.InvalidOptionError):
        db.transaction().rollback_to(savepoint)
    transaction.commit()
    assert one[b"s"] == b"1" and b"t" not in one and b"a" in one
    for attempt in (
        lambda: transaction.get(one, b"a"),
        lambda: transaction.commit(),
        lambda: list(transaction[one]),
    ):
        with pytest.raises(quintet.ClosedError, match="the transaction is closed"):
            attempt()
    transaction.rollback()
    with pytest.raises(ValueError):
        db.transaction(isolation="none")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_conflict_is_raised_and_retried(db: quintet.Database, engine: str) -> None:
    table = db.table("t", engine=engine, values="json")
    table[b"n"] = 0
    with pytest.raises(quintet.ConflictError) as conflict:
        with db.transaction() as transaction:
            transaction.put(table, b"n", transaction.get(table, b"n") + 1)
            table[b"n"] = 10
    assert (conflict.value.table, conflict.value.key) == ("t", b"n")
    assert isinstance(conflict.value, quintet.TransactionError)
    attempts = []

    def add(transaction: Any, delta: int) -> int:
        attempts.append(transaction)
        number: int = transaction[table][b"n"]
        if len(attempts) < 3:
            table[b"n"] = number + 100
        transaction[table][b"n"] = number + delta
        return number

    assert db.transact(add, 5) == 210 and table[b"n"] == 215 and len(attempts) == 3
    assert all(attempt.closed for attempt in attempts)
    attempts.clear()
    with pytest.raises(quintet.ConflictError):
        db.transact(add, 5, retries=0)

    def fails(transaction: Any) -> None:
        transaction[table][b"n"] = -1
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        db.transact(fails)
    assert table[b"n"] == 315
    with pytest.raises(quintet.ClosedError):
        db.transact(lambda transaction: transaction.commit())


def test_locks_time_out(db: quintet.Database) -> None:
    table = db.table("t")
    table[b"a"] = b"1"
    with db.transaction() as holder, db.transaction(lock_timeout=0.01) as waiter:
        assert holder.get_for_update(table, b"a") == b"1"
        assert holder.get_for_update(table, b"b", b"none") == b"none"
        with pytest.raises(quintet.LockTimeoutError) as caught:
            waiter.get_for_update(table, b"a")
        assert (caught.value.table, caught.value.key) == ("t", b"a")
        assert isinstance(caught.value, TimeoutError)


def test_a_lost_transaction_releases_its_locks(db: quintet.Database) -> None:
    table = db.table("t")
    transaction = db.transaction()
    transaction.get_for_update(table, b"a")
    del transaction
    gc.collect()
    with db.transaction(lock_timeout=0.01) as other:
        assert other.get_for_update(table, b"a") is None


def test_typed_tables_keep_and_check_their_types(reopened: Any) -> None:
    db = reopened()
    table = db.typed("t", ("string", "i64"), "f64")
    entries = {("b", -1): 0.5, ("a", 5): 1.5, ("a", -7): 2.5, ("", 0): 3.5, ("a\0", 1): -1.0}
    table.update(entries)
    assert dict(table.items()) == entries and list(table) == sorted(entries)
    assert list(table.prefix(("a",)).keys()) == [("a", -7), ("a", 5)]
    assert list(table[("a",) : ("b",)].keys()) == [("a", -7), ("a", 5), ("a\0", 1)]
    assert list(table[("a", 0) :].keys()) == [("a", 5), ("a\0", 1), ("b", -1)]
    for key in ("a", ("a",), ("a", 1, 2), (1, 1), ("a", "b"), ("a", 1 << 63)):
        with pytest.raises((TypeError, OverflowError, quintet.TypeMismatchError)):
            table[key] = 1.0
    with pytest.raises(TypeError):
        table["a", 1] = "text"
    # Opened without codecs, it has those of its types.
    again = reopened().table("t")
    assert again.types == "string,i64 -> f64" and again["a", 5] == 1.5
    with pytest.raises(quintet.TypeMismatchError) as mismatch:
        reopened().typed("t", "u64", "blob")
    assert mismatch.value.expected == "string,i64 -> f64"
    assert mismatch.value.found == "u64 -> blob"
    db = reopened()
    raw = db.table("t", keys=bytes, values=bytes)
    with pytest.raises(quintet.TypeMismatchError):
        raw[b"any"] = b"bytes"
    db.table("untyped")
    with pytest.raises(quintet.TypeMismatchError):
        db.typed("untyped", "u64", "u64")
    with pytest.raises(quintet.InvalidOptionError):
        db.typed("u", "u16", "u64")


TYPED = {
    "u32": [0, 1, 255, 256, (1 << 32) - 1],
    "u64": [0, 1, 1 << 40, (1 << 64) - 1],
    "i64": [-(1 << 63), -1, 0, 1, (1 << 63) - 1],
    "f32": [float("-inf"), -1.5, 0.0, 0.25, float("inf")],
    "f64": [float("-inf"), -1e300, -0.1, 0.0, 1e-300, 0.1, float("inf")],
    "string": ["", "a", "a\0b", "b", "é", "\U0001f600"],
    "blob": [b"", b"\0", b"\0\1", b"a", b"\xff"],
}


@pytest.mark.parametrize("name", TYPED)
def test_every_type_keeps_order_and_value(db: quintet.Database, name: str) -> None:
    values = TYPED[name]
    single = db.typed("single", name, name)
    for value in values:
        if value not in ("", b""):
            single[value] = value
    assert list(single.items()) == [(value, value) for value in values if value not in ("", b"")]
    parts = db.typed("parts", f"{name}, u32, {name}", "u32")
    keys = [(first, number, last) for first in values for number in (0, 9) for last in values]
    for index, key in enumerate(reversed(keys)):
        parts[key] = index
    assert list(parts) == keys
    for first in values:
        assert list(parts.prefix((first,)).keys()) == [key for key in keys if key[0] == first]


def test_numbers_have_no_prefixes(db: quintet.Database) -> None:
    with pytest.raises(TypeError, match="no prefixes"):
        db.typed("t", "u64", "u64").prefix(1)
    table = db.typed("s", "string", "i64", merge="add_i64")
    table["word"] = 1
    table["wort"] = 2
    table.merge("word", 5)
    assert list(table.prefix("word").items()) == [("word", 6)]
    assert table.fetch_and_add("word", 4) == 6 and table["word"] == 10


@pytest.mark.parametrize("engine", ORDERED)
def test_sorted_loads(db: quintet.Database, engine: str) -> None:
    table = db.table("t", engine=engine)
    entries = [(b"%06d" % number, b"x") for number in range(2000)]
    assert table.load_sorted(iter(entries)) == 2000 and list(table.items()) == entries
    with pytest.raises(quintet.OutOfOrderError) as caught:
        table.load_sorted([(b"b", b"1"), (b"a", b"1")])
    assert (caught.value.key, caught.value.after) == (b"a", b"b")
    assert table.load_sorted([(b"x", b"1")], logged=True) == 1
    with pytest.raises(ValueError):
        table.load_sorted([(b"y",)])
    assert table.load_sorted([]) == 0


def test_estimates_persist_compact_and_statistics(db: quintet.Database) -> None:
    table = db.table("t")
    table.update({b"%06d" % number: bytes(100) for number in range(5000)})
    assert 500 < table.range(b"001000", b"003000").estimate_count() < 8000
    table.persist()
    db.sync()
    db.persist()
    table.clear()
    table.compact()
    stats = db.stats()
    assert stats["commits_total"] >= 1 and stats["tables"][0]["name"] == "t"
    assert table.stats()["keys"] == 0 and table.stats()["engine"] == "btree"
    report = db.check()
    assert report.is_sound and report.findings == [] and report.checked_bytes > 0
    assert db.check(deep=False).is_sound


def test_tables_are_listed_renamed_and_dropped(db: quintet.Database) -> None:
    table = db.table("a/b/one", engine="hashlog")
    db.create_table("a/two", keys=str)
    assert [tuple(info) for info in db.tables()] == [
        ("a/b/one", "hashlog", None),
        ("a/two", "btree", None),
    ]
    assert db.children() == [("a", "directory")]
    assert sorted(db.children("a")) == [("b", "directory"), ("two", "btree")]
    assert [info.name for info in db.walk("a/b")] == ["a/b/one"]
    db.rename("a/b", "c")
    assert table.name == "c/one" and repr(table) == '<Table "c/one" (hashlog)>'
    with pytest.raises(quintet.TableExistsError) as exists:
        db.create_table("c/one")
    assert exists.value.name == "c/one"
    with pytest.raises(quintet.NoSuchTableError) as missing:
        db.table("none", create=False)
    assert missing.value.name == "none" and isinstance(missing.value, KeyError)
    db.drop_table("c/one")
    with pytest.raises(quintet.StaleTableError):
        table[b"a"]
    db.drop_tree("a")
    assert [info.name for info in db.tables()] == []


def test_mounted_tables_work(db: quintet.Database, tmp_path: Path) -> None:
    with quintet.open(tmp_path / "other", **SMALL) as other:
        other.table("t").update({b"a": b"1"})
    db.mount("m", tmp_path / "other")
    assert [mount[0] for mount in db.mounts()] == ["m"]
    table = db.table("m/t")
    assert dict(table.items()) == {b"a": b"1"}
    table.update({b"b": b"2"})
    assert len(table) == 2
    with pytest.raises(quintet.OtherDatabaseError):
        with db.batch() as batch:
            batch.put(table, b"c", b"3")
    db.unmount("m")


def test_engine_options_reach_the_engine(db: quintet.Database) -> None:
    db.table("t", engine="btree", options={"page_bytes": 8192})
    with pytest.raises(quintet.InvalidOptionError) as caught:
        db.create_table("u", options={"page_bytes": 5})
    assert caught.value.name == "page_bytes" and caught.value.what
    with pytest.raises(quintet.UnknownEngineError) as unknown:
        db.table("v", engine="none")
    assert unknown.value.name == "none" and "btree" in unknown.value.available
