"""Every exception: its class, its fields, and how it comes about."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL

import quintet
from quintet import _errors


def all_classes() -> list[type[quintet.QuintetError]]:
    classes = [kind for kind in vars(_errors).values() if isinstance(kind, type)]
    return [kind for kind in classes if issubclass(kind, quintet.QuintetError)]


@pytest.mark.parametrize("kind", all_classes())
def test_every_class_keeps_message_and_fields(kind: type[quintet.QuintetError]) -> None:
    error = kind("what failed", table="t", key=b"k")
    assert str(error) == "what failed"
    assert (error.table, error.key) == ("t", b"k")  # type: ignore[attr-defined]
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == "what failed" and copy.key == b"k"
    assert getattr(quintet, kind.__name__) is kind and kind.__doc__


def test_a_class_for_each_variant_of_the_library() -> None:
    source = Path(__file__).parents[2] / "quintet/src/util/error.rs"
    if not source.exists():
        pytest.skip("not in a checkout")
    body = source.read_text().split("pub enum Error {")[1].split("\n}\n")[0]
    lines = [line.strip() for line in body.splitlines() if line.startswith("    ")]
    names = {line.rstrip(" {,") for line in lines if line[:1].isupper()}
    expected = {f"{name}Error" for name in names} | {"QuintetError", "TransactionError"}
    assert {kind.__name__ for kind in all_classes()} == expected
    rust = (Path(__file__).parents[1] / "src/errors.rs").read_text()
    assert all(f"Error::{name}" in rust and f'"{name}Error"' in rust for name in names)


def test_locked(tmp_path: Path) -> None:
    with quintet.open(tmp_path / "db"):
        with pytest.raises(quintet.LockedError) as caught:
            quintet.open(tmp_path / "db")
        assert caught.value.pid == os.getpid()
        assert os.fspath(caught.value.path) == os.fspath(tmp_path / "db")
        script = "import quintet, sys\ntry: quintet.open(sys.argv[1])\n"
        script += "except quintet.LockedError as error: print(error.pid)"
        run = [sys.executable, "-c", script, str(tmp_path / "db")]
        assert int(subprocess.check_output(run)) == os.getpid()
    quintet.open(tmp_path / "db").close()


def test_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(quintet.NotADatabaseError) as caught:
        quintet.open(tmp_path / "none", create=False)
    assert os.fspath(caught.value.path) == os.fspath(tmp_path / "none") and caught.value.what
    (tmp_path / "file").write_text("mine")
    with pytest.raises(quintet.NotADatabaseError):
        quintet.open(tmp_path)


def test_io(tmp_path: Path) -> None:
    with pytest.raises(quintet.IoError) as caught:
        quintet.open(tmp_path / ("x" * 300))
    assert caught.value.errno == errno.ENAMETOOLONG and caught.value.doing
    assert isinstance(caught.value, OSError)


def test_disk_full(tmp_path: Path) -> None:
    # Beyond the limit of a file's size, writing fails with `EFBIG`.
    script = """
        import quintet, resource, signal, sys
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        db = quintet.open(sys.argv[1], memory_budget=64 << 20)
        table = db.table("t")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
        try:
            for number in range(100_000):
                table[b"%d" % number] = bytes(10_000)
        except OSError as error:
            assert isinstance(error, quintet.QuintetError), error
            print(type(error).__name__, bool(error.doing))
    """
    run = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "db")]
    kind, doing = subprocess.check_output(run, text=True).split()
    assert kind in ("IoError", "DiskFullError") and doing == "True"
    full = quintet.DiskFullError("full", doing="write")
    assert full.errno == errno.ENOSPC and full.doing == "write"  # type: ignore[attr-defined]


def test_corruption(tmp_path: Path) -> None:
    with quintet.open(tmp_path / "db", **SMALL) as db:
        db.table("t").update({b"%d" % number: bytes(100) for number in range(1000)})
        db.persist()
    damaged = [path for path in (tmp_path / "db").rglob("*") if path.is_file()]
    for path in damaged:
        size = path.stat().st_size
        if path.name != "lock" and size:
            with path.open("r+b") as file:
                file.write(bytes(byte ^ 0xA5 for byte in path.read_bytes()))
    with pytest.raises(quintet.QuintetError) as caught:
        with quintet.open(tmp_path / "db", create=False) as db:
            dict(db.table("t", create=False).items())
    assert isinstance(caught.value, (quintet.CorruptionError, quintet.NotADatabaseError))
    if isinstance(caught.value, quintet.CorruptionError):
        assert caught.value.file and caught.value.offset >= 0 and caught.value.what


def test_out_of_memory(tmp_path: Path) -> None:
    with quintet.open(tmp_path / "db", memory_budget=1 << 20) as db:
        table = db.table("t")
        with pytest.raises(quintet.OutOfMemoryError) as caught:
            with db.transaction() as transaction:
                transaction.put(table, b"a", bytes(64 << 20))
        assert isinstance(caught.value, MemoryError)
        assert caught.value.budget == 1 << 20 < caught.value.needed


def test_limits(db: quintet.Database) -> None:
    table = db.table("t")
    table[b"k" * quintet.KEY_BYTES_MAX] = b""
    for attempt in (
        lambda: table.put(b"", b"1"),
        lambda: table.get(b""),
        lambda: table.put(b"k" * (quintet.KEY_BYTES_MAX + 1), b"1"),
        lambda: db.table("bad name"),
        lambda: db.table("/"),
    ):
        with pytest.raises(quintet.LimitError) as caught:
            attempt()
        assert caught.value.what == str(caught.value) and isinstance(caught.value, ValueError)


def test_loading(db: quintet.Database) -> None:
    table = db.table("t")

    def entries() -> Any:
        yield b"a", b"1"
        with pytest.raises(quintet.LoadingError) as caught:
            table[b"b"] = b"2"
        assert caught.value.table == "t"
        yield b"c", b"3"

    assert table.load_sorted(entries()) == 2
    table[b"b"] = b"2"
    assert list(table) == [b"a", b"b", b"c"]


def test_read_only(tmp_path: Path) -> None:
    with quintet.open(tmp_path / "db", **SMALL) as db:
        db[b"a"] = b"1"
    with quintet.open(tmp_path / "db", read_only=True) as db:
        assert db.is_read_only and db[b"a"] == b"1"
        with pytest.raises(quintet.ReadOnlyError):
            db[b"a"] = b"2"
        with pytest.raises(quintet.QuintetError):
            db.table("new")


def test_closed(tmp_path: Path) -> None:
    db = quintet.open(tmp_path / "db", **SMALL)
    table = db.table("t")
    with db.table("other") as other:
        other[b"a"] = b"1"
    assert other.closed
    for attempt in (lambda: other[b"a"], lambda: other.put(b"a", b""), lambda: list(other)):
        with pytest.raises(quintet.ClosedError, match="the table is closed"):
            attempt()
    batch, iterator, snapshot = table.batch(), iter(table), db.snapshot()
    transaction = db.transaction()
    batch[b"a"] = b"1"
    db.close()
    db.close()
    for attempt in (
        lambda: table[b"a"],
        lambda: table.put(b"a", b"1"),
        lambda: list(table),
        lambda: len(table),
        lambda: batch.commit(),
        lambda: next(iterator),
        lambda: snapshot.get(table, b"a"),
        lambda: transaction.put(table, b"a", b"1"),
        lambda: db.table("t"),
        lambda: db.snapshot(),
        lambda: db.tables(),
        lambda: db.batch(),
        lambda: db.transaction(),
        lambda: db.transact(lambda transaction: None),
        lambda: db.stats(),
        lambda: db.persist(),
        lambda: db.check(),
    ):
        with pytest.raises(quintet.ClosedError):
            attempt()


def test_other_database(db: quintet.Database, tmp_path: Path) -> None:
    with quintet.open(tmp_path / "other", **SMALL) as other:
        foreign = other.table("f")
        with pytest.raises(quintet.OtherDatabaseError) as caught:
            db.snapshot().get(foreign, b"a")
        assert caught.value.table == "f"
        with pytest.raises(quintet.OtherDatabaseError):
            with db.transaction() as transaction:
                transaction.put(foreign, b"a", b"1")


def test_mount(db: quintet.Database, tmp_path: Path) -> None:
    db.mount("m", tmp_path / "none") if (tmp_path / "none").exists() else None
    with pytest.raises((quintet.MountError, quintet.NotADatabaseError)) as caught:
        db.mount("m", tmp_path / "none")
        db.table("m/t", create=False)
    if isinstance(caught.value, quintet.MountError):
        assert caught.value.path and caught.value.what


def test_deadlock(db: quintet.Database) -> None:
    import threading

    table = db.table("t")
    meet, caught = threading.Barrier(2), []

    def run(first: bytes, second: bytes) -> None:
        try:
            with db.transaction(lock_timeout=60) as transaction:
                transaction.get_for_update(table, first)
                meet.wait()
                transaction.get_for_update(table, second)
        except quintet.DeadlockError as error:
            caught.append((error.table, error.key))

    threads = [threading.Thread(target=run, args=keys) for keys in ((b"a", b"b"), (b"b", b"a"))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert caught in ([("t", b"a")], [("t", b"b")])


def test_unknown_arguments(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no option speed"):
        quintet.open(tmp_path / "db", speed=11)
    with pytest.raises(quintet.InvalidOptionError) as caught:
        quintet.open(tmp_path / "db", memory_budget=5)
    assert caught.value.name == "memory_budget"
    with pytest.raises(OverflowError):
        quintet.open(tmp_path / "db", memory_budget=-1)


def test_handles_cannot_be_pickled(db: quintet.Database) -> None:
    for handle in (db, db.table("t"), db.snapshot(), db.transaction(), db.batch()):
        with pytest.raises(TypeError):
            pickle.dumps(handle)


def test_open_files_are_closed(tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    quintet.open(tmp_path / "db", **SMALL).close()
    before = count()
    for _ in range(5):
        with quintet.open(tmp_path / "db", **SMALL) as db:
            db[b"a"] = b"1"
        del db
    assert count() <= before
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0
