"""Threads, forks, signals, and the end of the interpreter."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import ENGINES, SMALL

import quintet

# A fork of a process with threads is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def run(script: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a script in another interpreter."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def in_child(function: Callable[[], None]) -> str:
    """Forks, runs the function in the child, and returns what it raised."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # A child that waits for ever ends as killed.
        signal.alarm(60)
        try:
            function()
            text = "nothing"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


@pytest.mark.parametrize("engine", ENGINES)
def test_handles_raise_in_a_forked_child(db: quintet.Database, engine: str) -> None:
    table = db.table("t", engine=engine)
    table.update({b"%03d" % number: b"1" for number in range(500)})
    snapshot, transaction, batch = db.snapshot(), db.transaction(), table.batch()
    transaction.put(table, b"x", b"1")
    batch[b"x"] = b"1"
    iterator = iter(table.items())
    next(iterator)
    calls: list[Callable[[], Any]] = [
        lambda: table[b"001"],
        lambda: table.put(b"001", b"2"),
        lambda: list(table),
        lambda: len(table),
        lambda: list(iterator),
        lambda: table.name,
        lambda: table.update(b"001", lambda old: b"2"),
        lambda: snapshot.get(table, b"001"),
        lambda: transaction.get(table, b"001"),
        lambda: transaction.commit(),
        lambda: batch.commit(),
        lambda: db.table("t"),
        lambda: db.tables(),
        lambda: db.snapshot(),
        lambda: db.persist(),
        lambda: db.stats(),
        lambda: db.close(),
    ]
    for number, call in enumerate(calls):
        raised = in_child(call)
        # The iterator has some entries that were read before the fork.
        assert raised.startswith("ForkedError: "), (number, raised)
        assert "forked" in raised or "fork" in raised
    assert table[b"001"] == b"1" and len(table) == 500, "the parent is not affected"


def test_a_child_never_waits_for_a_lock_of_a_thread_of_its_parent(db: quintet.Database) -> None:
    table = db.table("t")
    holder, waiter = db.transaction(), db.transaction(lock_timeout=60)
    holder.get_for_update(table, b"a")
    batch, snapshot, iterator = db.batch(), db.snapshot(), iter(table)
    # This thread holds the lock of `waiter` while it waits for the key.
    thread = threading.Thread(target=lambda: waiter.get_for_update(table, b"a"))
    thread.start()
    time.sleep(0.1)
    for call in (
        lambda: waiter.get(table, b"a"),
        lambda: waiter.rollback(),
        lambda: holder.put(table, b"a", b"1"),
        lambda: batch.put(table, b"a", b"1"),
        lambda: batch.clear(),
        lambda: snapshot.get(table, b"a"),
        lambda: snapshot.close(),
        lambda: next(iterator),
    ):
        assert in_child(call).startswith("ForkedError: ")
    holder.rollback()
    thread.join(60)
    assert not thread.is_alive()


def worker(table: Any, path: str) -> str:
    """Runs in a process of multiprocessing."""
    try:
        table[b"a"]
    except quintet.ForkedError:
        # The child opens its own database.
        with quintet.open(path + "-child", **SMALL) as own:
            own[b"a"] = b"child"
            return f"forked, then {own[b'a'].decode()}"
    return "no error"


def test_multiprocessing_by_fork(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with quintet.open(tmp_path / "db", **SMALL) as db:
        table = db.table("t")
        table[b"a"] = b"1"
        results = context.Queue()
        child = context.Process(target=lambda: results.put(worker(table, str(tmp_path / "db"))))
        child.start()
        assert results.get(timeout=60) == "forked, then child"
        child.join()
        assert child.exitcode == 0 and table[b"a"] == b"1"


def test_multiprocessing_by_spawn_cannot_send_a_table(tmp_path: Path) -> None:
    with quintet.open(tmp_path / "db", **SMALL) as db:
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=worker, args=(db.table("t"), ""))
        with pytest.raises(TypeError, match="open the database there"):
            child.start()


def test_the_interpreter_ends_with_open_handles(tmp_path: Path) -> None:
    script = """
        import quintet, sys, threading, time
        db = quintet.open(sys.argv[1], memory_budget=64 << 20)
        table = db.table("t")
        table.update({b"%d" % number: bytes(100) for number in range(1000)})
        iterator, snapshot = iter(table.items()), db.snapshot()
        transaction, batch, view = db.transaction(), table.batch(), table.get_view(b"1")
        next(iterator)
        transaction.put(table, b"lost", b"1")
        batch[b"lost"] = b"1"
        cycle = [table, iterator]; cycle.append(cycle)
        def reads():
            # The end of the interpreter closes the database under a daemon thread.
            try:
                while True:
                    table.get(b"1")
                    list(table[b"1":b"2"])
            except quintet.QuintetError:
                pass
        feed = db.changes()
        def follows():
            try:
                for commit in feed.follow():
                    pass
            except quintet.QuintetError:
                pass
        threading.Thread(target=reads, daemon=True).start()
        threading.Thread(target=follows, daemon=True).start()
        table[b"last"] = b"1"
    """
    ended = run(script, tmp_path / "db")
    assert ended.returncode == 0 and "Traceback" not in ended.stderr, ended.stderr
    with quintet.open(tmp_path / "db", create=False) as db:
        table = db.table("t", create=False)
        assert len(table) == 1001 and b"lost" not in table and table[b"last"] == b"1"


def test_a_killed_process_loses_no_returned_write(tmp_path: Path) -> None:
    script = """
        import os, quintet, signal, sys
        table = quintet.open(sys.argv[1], memory_budget=64 << 20).table("t")
        for number in range(2000):
            table[b"%d" % number] = b"1"
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert run(script, tmp_path / "db").returncode == -signal.SIGKILL
    with quintet.open(tmp_path / "db", create=False) as db:
        assert len(db.table("t")) == 2000


ENDLESS = "collections.deque(itertools.chain.from_iterable(itertools.repeat({})), maxlen=0)"


# Each is endless and calls no code of Python, in which the interpreter would look at signals.
@pytest.mark.parametrize(
    "work",
    [
        ENDLESS.format("table.range()"),
        ENDLESS.format("table[::-1]"),
        ENDLESS.format("table"),
        "sum(map(len, itertools.repeat(table)))",
        "table.load_sorted(zip(map(b'z%012d'.__mod__, itertools.count()), itertools.repeat(b'')))",
        "db.transact(lambda tx: sum(map(len, itertools.repeat(tx[table]))))",
    ],
)
def test_an_interrupt_ends_long_work(tmp_path: Path, work: str) -> None:
    script = f"""
        import collections, itertools, quintet, signal, sys
        db = quintet.open(sys.argv[1], memory_budget=256 << 20)
        table = db.table("t")
        table.load_sorted((b"%09d" % number, b"") for number in range(50_000))
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        print("ready", flush=True)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            {work}
        except KeyboardInterrupt:
            # The objects are usable afterwards.
            table[b"after"] = b"1"
            print(table.get(b"after"), len(list(table.range(stop=b"000000100"))))
    """
    ended = run(script, tmp_path / "db")
    assert ended.stdout.split("\n")[1] == "b'1' 100", (ended.stdout, ended.stderr)


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_share_a_table(db: quintet.Database, engine: str) -> None:
    table, counter = db.table("t", engine=engine), db.table("n", engine=engine, values="json")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(150):
                key = b"%d-%d" % (number, step)
                table[key] = key
                assert table[key] == key
                counter.update(b"all", lambda old: (old or 0) + 1)

                def add(transaction: Any) -> None:
                    transaction[counter][b"tx"] = transaction[counter].get(b"tx", 0) + 1

                db.transact(add, retries=10_000)
                if step % 50 == 0:
                    assert len(list(table)) >= step
                    with table.batch() as batch:
                        batch[key + b"b"] = key
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures
    assert len(table) == 4 * 153 and counter[b"all"] == 600 and counter[b"tx"] == 600


def test_threads_share_one_iterator_batch_and_transaction(db: quintet.Database) -> None:
    table = db.table("t")
    table.update({b"%05d" % number: b"" for number in range(5000)})
    from quintet._quintet import Chunks

    assert Chunks.__module__ == "quintet._quintet"
    batch, transaction, taken = db.batch(), db.transaction(), []
    keys = iter(table.range(stop=b"9").keys())

    def work(number: int) -> None:
        for step in range(200):
            batch.put(table, b"b%d-%d" % (number, step), b"1")
            transaction.put(table, b"t%d-%d" % (number, step), b"1")
            taken.append(next(keys))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    batch.commit()
    transaction.commit()
    assert len(set(taken)) == 800
    assert len(table.prefix(b"b")) == 800 == len(table.prefix(b"t"))


def test_other_threads_run_while_one_waits(db: quintet.Database) -> None:
    table = db.table("t")
    table[b"a"] = b"1"
    holder = db.transaction()
    holder.get_for_update(table, b"a")
    waiting, outcome = threading.Event(), []

    def wait() -> None:
        with db.transaction(lock_timeout=60) as transaction:
            waiting.set()
            outcome.append(transaction.get_for_update(table, b"a"))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    time.sleep(0.05)
    # With the interpreter locked by the waiting thread, this would not run.
    assert outcome == [] and table[b"a"] == b"1"
    holder.rollback()
    thread.join(60)
    assert outcome == [b"1"]
