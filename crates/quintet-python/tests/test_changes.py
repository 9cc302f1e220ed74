"""Change feeds: what they return, how they wait, and how they end."""

from __future__ import annotations

import datetime
import gc
import os
import pickle
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import ENGINES, ORDERED, SMALL
from hypothesis import HealthCheck, given, settings, strategies as st
from test_mapping import OPERATIONS, apply
from test_processes import in_child, run

import quintet

Content = dict[str, dict[bytes, bytes]]
# Segments of 64 KiB: the log begins anew after few writes.
SEGMENTS: dict[str, Any] = {**SMALL, "segment_bytes": 64 << 10}


def follow(commits: Iterable[quintet.Commit], content: Content) -> Content:
    """Applies commits to the content of tables."""
    for commit in commits:
        assert commit.lsn < commit.end and len(commit) > 0
        for change in commit:
            table = content.setdefault(change.table, {})
            if change.kind == "begin":
                table.clear()
            elif change.kind == "put":
                assert change.key is not None and change.value is not None
                table[change.key] = change.value
            elif change.kind == "delete":
                assert change.key is not None
                table.pop(change.key, None)
            else:
                start, end = change.start or b"", change.end
                for key in [key for key in table if start <= key and (end is None or key < end)]:
                    del table[key]
    return content


def content_of(db: quintet.Database) -> Content:
    return {info.name: dict(db.table(info.name).items()) for info in db.tables()}


def write_some(db: quintet.Database, turn: int) -> None:
    """Writes to a table of each engine in every way that there is."""
    tables = [db.table(f"app/{engine}", engine=engine, merge="append") for engine in ENGINES]
    for number in range(40):
        key = b"%03d" % ((number * 7 + turn * 13) % 100)
        with db.batch() as batch:
            for table in tables:
                batch.put(table, key, b"%d" % turn * 20)
            batch.delete(tables[number % len(tables)], b"%03d" % number)
    for table in tables:
        table.update(b"000", lambda old: (old or b"") + b"+")
        table.merge(b"000", b"merged")
        table.put(b"ttl", b"1", ttl=3600)
        if table.is_ordered:
            del table[b"020":b"040"]
            del table[b"09%d" % turn :]
    with db.transaction() as transaction:
        transaction.put(tables[0], b"tx", b"%d" % turn)
        transaction.put(tables[3], b"tx", b"%d" % turn)


@pytest.fixture
def feed(db: quintet.Database) -> Iterator[quintet.ChangeFeed]:
    """A feed of everything that is written, durable or not."""
    with db.changes(unsynced=True) as opened:
        yield opened


def test_a_feed_has_every_commit_of_all_engines(tmp_path: Path) -> None:
    with quintet.open(tmp_path / "db", **SEGMENTS) as db:
        feed, content, lsns = db.changes(unsynced=True), {}, []
        for turn in range(6):
            write_some(db, turn)
            db.persist()
            if turn % 3 == 2:
                commits = list(feed)
                assert follow(commits, content) == content_of(db)
                lsns += [commit.lsn for commit in commits]
                assert feed.position == commits[-1].end <= db.log_range()[1]
        assert lsns == sorted(set(lsns)) and len(lsns) > 6 * 40
        assert list(feed) == [] and feed.wait(0) is None
        retained = db.stats()["log_retained_bytes"]
        write_some(db, 7)
        db.persist()
        assert db.stats()["log_retained_bytes"] >= retained
        # A feed that is forgotten gives up the log as a closed one does.
        del feed
        gc.collect()
        assert db.stats()["log_retained_bytes"] == 0


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(OPERATIONS, st.just(("read",))), max_size=40), st.sampled_from(ENGINES))
def test_a_feed_makes_a_dictionary_of_a_table(
    operations: list[tuple[Any, ...]], engine: str
) -> None:
    with tempfile.TemporaryDirectory() as path, quintet.open(path, **SMALL) as db:
        content: Content = {}
        with db.changes(unsynced=True) as feed:
            table = db.table("t", engine=engine)
            for operation in [*operations, ("read",)]:
                if operation[0] != "read":
                    apply(table, operation)
                    continue
                assert follow(feed, content)["t"] == dict(table.items())


def test_a_change_has_what_was_written(db: quintet.Database, feed: quintet.ChangeFeed) -> None:
    table = db.table("app/t", keys=str, values="json")
    [commit] = feed
    assert {change.kind for change in commit} == {"begin"}
    number = commit[0].table_number
    with db.batch() as batch:
        batch.put(table, "k", [1], ttl=datetime.timedelta(hours=1))
        batch.delete(table, "d")
    del table["a":"c"]
    del table["x":]
    db.rename("app/t", "app/renamed")
    two, closed, open_ended = feed
    expires = table.expires_at("k")
    name = "app/renamed"
    put = quintet.Change(name, number, "put", b"k", b"[1]", None, None, expires, None)
    delete = quintet.Change(name, number, "delete", b"d", None, None, None, None, None)
    assert expires is not None and tuple(two) == (put, delete)
    assert (closed[0].kind, closed[0].start, closed[0].end) == ("delete_range", b"a", b"c")
    assert (open_ended[0].start, open_ended[0].end, open_ended[0].key) == (b"x", None, None)
    assert isinstance(two, Sequence) and two[-1] == delete and two[:1] == (put,)
    copy = pickle.loads(pickle.dumps(two))
    assert type(copy) is quintet.Commit and copy == two
    assert (copy.lsn, copy.end) == (two.lsn, two.end)
    assert repr(two).endswith(f"lsn={two.lsn}, end={two.end})")
    assert two.lsn < two.end <= closed.lsn


@pytest.mark.skipif("QUINTET" not in os.environ, reason="QUINTET does not name the program")
def test_a_type_tag_is_the_name_of_the_type(tmp_path: Path) -> None:
    # Only programs in other languages store tags.
    with quintet.open(tmp_path / "db", **SMALL) as db:
        db.typed("n", "string", "i64")["typed"] = 5
        db.table("t")[b"plain"] = b"5"
    put = [os.environ["QUINTET"], "put", str(tmp_path / "db"), "t", "tagged", "5", "--type", "u64"]
    subprocess.run(put, check=True)
    with quintet.open(tmp_path / "db", **SMALL) as db:
        with db.changes(db.log_range()[0]) as feed:
            puts = [change for commit in feed for change in commit if change.kind == "put"]
        tags = {put.key: put.type_tag for put in puts}
        assert tags == {b"typed": None, b"plain": None, b"tagged": "u64"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_begins_empty(
    db: quintet.Database, feed: quintet.ChangeFeed, engine: str
) -> None:
    table, content = db.table("t", engine=engine), {}
    table[b"old"] = b"1"
    assert follow(feed, content) == {"t": {b"old": b"1"}}
    table.clear()
    kinds = [change.kind for commit in feed for change in commit]
    assert kinds and set(kinds) == {"begin"}
    db.drop_table("t")
    db.table("t", engine=engine)[b"new"] = b"2"
    assert follow(feed, content) == {"t": {b"new": b"2"}}


def test_tables_choose_what_a_feed_returns(db: quintet.Database) -> None:
    one, two = db.table("app/one"), db.table("app/two", engine="hashlog")
    other = db.table("apple", engine="trie")
    start = db.log_range()[1]

    def shown(tables: Any) -> list[str]:
        with db.changes(start, tables=tables, unsynced=True) as feed:
            return [change.table for commit in feed for change in commit]

    with db.batch() as batch:
        for table in (one, two, other):
            batch.put(table, b"a", b"1")
    other[b"b"] = b"1"
    two[b"b"] = b"1"
    assert shown(None) == ["app/one", "app/two", "apple", "apple", "app/two"]
    assert shown("app") == ["app/one", "app/two", "app/two"]
    assert shown(two) == shown("app/two") == shown([two]) == ["app/two", "app/two"]
    assert shown(iter(["app/one", other])) == ["app/one", "apple", "apple"]
    assert shown(db.snapshot()[one]) == ["app/one"]
    with pytest.raises(quintet.NoSuchTableError):
        shown("ap")
    with pytest.raises(ValueError, match="at least one table"):
        shown([])
    for wrong in (5, [5], [b"app"]):
        with pytest.raises(TypeError):
            shown(wrong)
    one.close()
    with pytest.raises(quintet.ClosedError, match="the table is closed"):
        shown(one)


def test_a_table_of_another_database_is_refused(db: quintet.Database, tmp_path: Path) -> None:
    db.table("m")
    with quintet.open(tmp_path / "other", **SMALL) as other:
        foreign = other.table("m")
        with pytest.raises(quintet.OtherDatabaseError):
            db.changes(tables=foreign)


def test_a_feed_continues_a_snapshot(db: quintet.Database) -> None:
    write_some(db, 0)
    with db.snapshot() as snapshot:
        write_some(db, 1)
        infos = db.tables()
        content = {info.name: dict(snapshot[db.table(info.name)].items()) for info in infos}
        assert content != content_of(db)
        with db.changes(snapshot.lsn, unsynced=True) as feed:
            assert follow(feed, content) == content_of(db)


def test_a_commit_is_returned_when_it_is_durable(tmp_path: Path) -> None:
    with quintet.open(tmp_path / "db", sync_interval=3600, **SMALL) as db:
        table = db.table("t")
        durable, early = db.changes(), db.changes(unsynced=True)
        table[b"a"] = b"1"
        visible = next(early)
        assert visible[0].key == b"a"
        # Perhaps it is there already: the background syncs before a checkpoint.
        shown = list(durable)
        db.sync()
        # A position of one feed is one of the other.
        assert shown + list(durable) == [visible] and durable.position == early.position
        table.put(b"b", b"2", sync=True)
        assert [commit[0].key for commit in durable] == [b"b"]


def test_a_wait_ends_after_its_timeout(db: quintet.Database, feed: quintet.ChangeFeed) -> None:
    for timeout in (0.25, datetime.timedelta(milliseconds=250)):
        begun = time.monotonic()
        assert feed.wait(timeout) is None
        assert time.monotonic() - begun >= 0.25
    assert feed.wait(0) is None
    db.table("t")[b"a"] = b"1"
    assert feed.wait(0) is not None and feed.wait(timeout=1e18) is not None
    for wrong, kind in ((-1, ValueError), (float("nan"), ValueError), ("long", TypeError)):
        with pytest.raises(kind):
            feed.wait(wrong)  # type: ignore[arg-type]


def in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Runs a function in a thread. The list gets what it returned or raised."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, outcome


def test_a_waiting_feed_gets_what_other_threads_write(tmp_path: Path) -> None:
    with quintet.open(tmp_path / "db", sync_interval=0.01, **SMALL) as db:
        tables = [db.table(engine, engine=engine) for engine in ("hashlog", "btree", "slm")]
        feed, taken = db.changes(), []

        def take() -> None:
            for commit in feed.follow():
                taken.append(commit)
                if len(taken) == 300:
                    return

        def write(table: Any) -> None:
            for number in range(100):
                table[b"%03d" % number] = b""

        # Held by the reader, the lock of the interpreter would keep out the writers.
        reader, ended = in_thread(take)
        writers = [in_thread(lambda table=table: write(table)) for table in tables]
        for thread, _ in [*writers, (reader, ended)]:
            thread.join(60)
        assert ended == [None]
        keys = [commit[0].key for commit in taken if commit[0].table == "slm"]
        assert keys == [b"%03d" % number for number in range(100)]
        assert [commit.lsn for commit in taken] == sorted(commit.lsn for commit in taken)
        assert feed.position == taken[-1].end


def test_threads_share_a_feed(db: quintet.Database, feed: quintet.ChangeFeed) -> None:
    table = db.table("t")
    list(feed)
    for number in range(400):
        table[b"%d" % number] = b""
    lists = [in_thread(lambda: [commit.lsn for commit in feed]) for _ in range(4)]
    [thread.join(60) for thread, _ in lists]
    lsns = [lsn for _, [part] in lists for lsn in part]
    assert len(lsns) == len(set(lsns)) == 400
    assert all(part == sorted(part) for _, [part] in lists)


@pytest.mark.parametrize("what", ["feed", "database"])
def test_a_close_ends_a_wait(db: quintet.Database, what: str) -> None:
    feed = db.changes()
    waits = [in_thread(lambda: next(feed.follow())), in_thread(feed.wait)]
    time.sleep(0.05)
    assert all(outcome == [] for _, outcome in waits)
    feed.close() if what == "feed" else db.close()
    for thread, outcome in waits:
        thread.join(60)
        assert [type(error) for error in outcome] == [quintet.ClosedError]
    assert feed.closed is (what == "feed")


def test_a_closed_feed_has_its_position(db: quintet.Database) -> None:
    table = db.table("t")
    with db.changes(unsynced=True) as feed:
        table[b"a"] = b"1"
        [commit] = feed
        assert not feed.closed
    feed.close()
    assert feed.closed and feed.position == commit.end
    for attempt in (lambda: next(feed), feed.wait, lambda: next(feed.follow())):
        with pytest.raises(quintet.ClosedError, match="the change feed is closed"):
            attempt()
    with pytest.raises(TypeError, match="send its position"):
        pickle.dumps(feed)
    feed = db.changes()
    db.close()
    for attempt in (lambda: next(feed), feed.wait, db.changes, db.log_range):
        with pytest.raises(quintet.ClosedError):
            attempt()


@pytest.mark.parametrize("work", ["for commit in feed.follow(): pass", "feed.wait()"])
def test_an_interrupt_ends_a_wait(tmp_path: Path, work: str) -> None:
    script = f"""
        import quintet, signal, sys
        db = quintet.open(sys.argv[1], memory_budget=64 << 20)
        table, feed = db.table("t"), db.changes()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            {work}
        except KeyboardInterrupt:
            # The feed is usable afterwards.
            table.put(b"after", b"1", sync=True)
            print([change.key for commit in feed for change in commit])
    """
    ended = run(script, tmp_path / "db")
    assert ended.stdout == "[b'after']\n", (ended.stdout, ended.stderr)


def test_a_feed_continues_after_the_database_was_opened_again(
    reopened: Callable[..., quintet.Database],
) -> None:
    options = {"segment_bytes": 64 << 10, "log_retention": 8 << 20}
    content: Content = {}
    position = 0
    for turn in range(6):
        db = reopened(**options)
        write_some(db, turn)
        # More than a segment, so that without the retention the log would begin later.
        db.table("large", engine="hashlog")[b"%d" % turn] = bytes(100_000)
        db.persist()
        if turn % 2:
            with db.changes(position, unsynced=True) as feed:
                assert follow(feed, content) == content_of(db)
                position = feed.position
    assert reopened(**options).log_range()[0] == 0
    db = reopened(segment_bytes=64 << 10)
    start, end = db.log_range()
    with pytest.raises(quintet.ChangesLostError) as caught:
        db.changes(0)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.position == 0 < error.start == start <= error.end == end
    assert "log_retention" in str(error) and isinstance(error, quintet.QuintetError)


def test_a_position_that_the_log_does_not_have_is_refused(db: quintet.Database) -> None:
    start, end = db.log_range()
    with pytest.raises(quintet.ChangesLostError) as caught:
        db.changes(end + 8)
    assert caught.value.position == end + 8 and caught.value.end == end
    with pytest.raises(OverflowError):
        db.changes(-1)
    with pytest.raises(TypeError):
        db.changes("0")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_feed_raises_in_a_forked_child(db: quintet.Database) -> None:
    feed, table = db.changes(unsynced=True), db.table("t")
    endless = feed.follow()
    waiting, outcome = in_thread(db.changes().wait)
    calls: list[Callable[[], Any]] = [
        lambda: next(feed),
        lambda: feed.wait(0),
        lambda: next(endless),
        lambda: feed.position,
        lambda: feed.close(),
        lambda: feed.closed,
        lambda: db.changes(),
        lambda: db.changes(tables=table),
        lambda: db.log_range(),
    ]
    for number, call in enumerate(calls):
        assert in_child(call).startswith("ForkedError: "), number
    table.put(b"a", b"1", sync=True)
    assert [change.key for commit in feed for change in commit][-1] == b"a", "the parent goes on"
    waiting.join(60)
    assert isinstance(outcome[0], quintet.Commit)


def test_a_snapshot_and_a_range_of_positions(db: quintet.Database) -> None:
    start, end = db.log_range()
    assert 0 <= start <= end
    db.table("t").put(b"a", b"1", sync=True)
    with db.snapshot() as snapshot:
        assert end < snapshot.lsn <= db.log_range()[1]
    assert ORDERED and db.changes().position == db.log_range()[1]
