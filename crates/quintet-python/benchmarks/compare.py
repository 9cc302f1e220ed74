"""Measures Quintet beside other stores for Python, and prints medians and ratios as Markdown.

    pip install plyvel rocksdict lmdb diskcache
    python benchmarks/compare.py --count 1000000 --rounds 5

One process, one thread, keys of 23 bytes in random order, values of 100 random bytes. The runs of
the stores are interleaved: each round runs each operation on each store, one after the other, so
that a slow minute of the machine meets all of them. Every store has the settings that are fastest
for it, without a sync for each write:

- Quintet: `Buffered`, the default. A returned write survives the death of the process.
- lmdb: `writemap`, `map_async`, no sync, no metasync, no readahead, no meminit. Gets and ranges run
  in one read transaction. A put is a write transaction.
- plyvel and rocksdict: a cache for all data, filters of 10 bits a key, no compression, large write
  buffers, log without sync, compacted before gets and ranges.
- sqlite3: write-ahead log, `synchronous=OFF`, a table without row ids.
- diskcache: as it is, without evictions; in fewer entries, because a write takes 0.1 ms.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from typing import Any, Callable, Iterable

Entries = list[tuple[bytes, bytes]]
BATCH = 1000
GIB = 1 << 30
OPERATIONS = ("put", "batch put", "get", "range")


class Store:
    """A store under test. `count` limits what it is asked for."""

    name = ""
    share = 1.0
    """The part of the entries that the store gets."""
    single = 1.0
    """The part of them that it puts one by one."""

    def __init__(self, path: str) -> None:
        self.path = path

    def put(self, entries: Entries) -> None:
        raise NotImplementedError

    def load(self, entries: Entries) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """Ends background work before reads."""

    def get(self, keys: Iterable[bytes]) -> None:
        raise NotImplementedError

    def range(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Quintet(Store):
    name = "quintet btree"
    engine = "btree"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        import quintet

        self.db = quintet.open(path, memory_budget=4 * GIB)
        self.table = self.db.table("t", engine=self.engine)

    def put(self, entries: Entries) -> None:
        table = self.table
        for key, value in entries:
            table[key] = value

    def load(self, entries: Entries) -> None:
        for start in range(0, len(entries), BATCH):
            self.table.update(entries[start : start + BATCH])

    def settle(self) -> None:
        self.db.persist()

    def get(self, keys: Iterable[bytes]) -> None:
        table = self.table
        for key in keys:
            table[key]

    def range(self) -> int:
        count = 0
        for _key, _value in self.table.range():
            count += 1
        return count

    def close(self) -> None:
        self.db.close()


class QuintetHashLog(Quintet):
    name = "quintet hashlog"
    engine = "hashlog"

    def range(self) -> int:
        return 0


class Lmdb(Store):
    name = "lmdb"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        lmdb = importlib.import_module("lmdb")
        self.env = lmdb.open(
            path,
            map_size=16 * GIB,
            writemap=True,
            map_async=True,
            sync=False,
            metasync=False,
            readahead=False,
            meminit=False,
        )

    def put(self, entries: Entries) -> None:
        begin = self.env.begin
        for key, value in entries:
            with begin(write=True) as transaction:
                transaction.put(key, value)

    def load(self, entries: Entries) -> None:
        for start in range(0, len(entries), BATCH):
            with self.env.begin(write=True) as transaction:
                transaction.cursor().putmulti(entries[start : start + BATCH])

    def get(self, keys: Iterable[bytes]) -> None:
        with self.env.begin() as transaction:
            get = transaction.get
            for key in keys:
                get(key)

    def range(self) -> int:
        count = 0
        with self.env.begin() as transaction:
            for _key, _value in transaction.cursor():
                count += 1
        return count

    def close(self) -> None:
        self.env.close()


class Plyvel(Store):
    name = "plyvel"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        plyvel = importlib.import_module("plyvel")
        self.db = plyvel.DB(
            path,
            create_if_missing=True,
            write_buffer_size=64 << 20,
            lru_cache_size=2 * GIB,
            bloom_filter_bits=10,
            compression=None,
        )

    def put(self, entries: Entries) -> None:
        put = self.db.put
        for key, value in entries:
            put(key, value)

    def load(self, entries: Entries) -> None:
        for start in range(0, len(entries), BATCH):
            with self.db.write_batch() as batch:
                put = batch.put
                for key, value in entries[start : start + BATCH]:
                    put(key, value)

    def settle(self) -> None:
        self.db.compact_range()

    def get(self, keys: Iterable[bytes]) -> None:
        get = self.db.get
        for key in keys:
            get(key)

    def range(self) -> int:
        count = 0
        for _key, _value in self.db.iterator():
            count += 1
        return count

    def close(self) -> None:
        self.db.close()


class Rocksdict(Store):
    name = "rocksdict"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.module = module = importlib.import_module("rocksdict")
        options = module.Options(raw_mode=True)
        options.create_if_missing(True)
        options.increase_parallelism(os.cpu_count() or 2)
        options.set_write_buffer_size(256 << 20)
        options.set_max_write_buffer_number(4)
        options.set_compression_type(module.DBCompressionType.none())
        table = module.BlockBasedOptions()
        table.set_block_cache(module.Cache(2 * GIB))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.db = module.Rdict(path, options)

    def put(self, entries: Entries) -> None:
        db = self.db
        for key, value in entries:
            db[key] = value

    def load(self, entries: Entries) -> None:
        for start in range(0, len(entries), BATCH):
            batch = self.module.WriteBatch(raw_mode=True)
            for key, value in entries[start : start + BATCH]:
                batch[key] = value
            self.db.write(batch)

    def settle(self) -> None:
        self.db.flush()
        self.db.compact_range(None, None)

    def get(self, keys: Iterable[bytes]) -> None:
        db = self.db
        for key in keys:
            db[key]

    def range(self) -> int:
        count = 0
        for _key, _value in self.db.items():
            count += 1
        return count

    def close(self) -> None:
        self.db.close()


class Sqlite(Store):
    name = "sqlite3"
    single = 0.1

    def __init__(self, path: str) -> None:
        super().__init__(path)
        import sqlite3

        os.makedirs(path)
        self.db = sqlite3.connect(path + "/db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=OFF")
        self.db.execute("PRAGMA cache_size=-2000000")
        self.db.execute("PRAGMA mmap_size=8000000000")
        self.db.execute("CREATE TABLE t (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID")

    def put(self, entries: Entries) -> None:
        execute = self.db.execute
        for entry in entries:
            execute("INSERT OR REPLACE INTO t VALUES (?, ?)", entry)

    def load(self, entries: Entries) -> None:
        for start in range(0, len(entries), BATCH):
            self.db.execute("BEGIN")
            many = entries[start : start + BATCH]
            self.db.executemany("INSERT OR REPLACE INTO t VALUES (?, ?)", many)
            self.db.execute("COMMIT")

    def settle(self) -> None:
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def get(self, keys: Iterable[bytes]) -> None:
        execute = self.db.execute
        for key in keys:
            execute("SELECT v FROM t WHERE k = ?", (key,)).fetchone()

    def range(self) -> int:
        count = 0
        for _key, _value in self.db.execute("SELECT k, v FROM t ORDER BY k"):
            count += 1
        return count

    def close(self) -> None:
        self.db.close()


class Diskcache(Store):
    name = "diskcache"
    share = 0.02
    single = 0.25

    def __init__(self, path: str) -> None:
        super().__init__(path)
        module = importlib.import_module("diskcache")
        self.db = module.Cache(path, eviction_policy="none", size_limit=1 << 40, statistics=0)

    def put(self, entries: Entries) -> None:
        db = self.db
        for key, value in entries:
            db[key] = value

    def load(self, entries: Entries) -> None:
        for start in range(0, len(entries), BATCH):
            with self.db.transact():
                self.put(entries[start : start + BATCH])

    def get(self, keys: Iterable[bytes]) -> None:
        db = self.db
        for key in keys:
            db[key]

    def range(self) -> int:
        count = 0
        for key in self.db.iterkeys():
            self.db[key]
            count += 1
        return count

    def close(self) -> None:
        self.db.close()


STORES: list[type[Store]] = [Quintet, QuintetHashLog, Lmdb, Plyvel, Rocksdict, Sqlite, Diskcache]
Times = dict[tuple[str, str], list[float]]


def available() -> list[type[Store]]:
    """Returns the stores whose packages are installed."""
    modules = {"lmdb": "lmdb", "plyvel": "plyvel", "rocksdict": "rocksdict"}
    modules["diskcache"] = "diskcache"
    found = []
    for kind in STORES:
        try:
            if kind.name in modules:
                importlib.import_module(modules[kind.name])
            found.append(kind)
        except ImportError:
            print(f"{kind.name} is not installed", file=sys.stderr)
    return found


CLOCKS: dict[str, Callable[[], float]] = {
    "wall": time.perf_counter,
    # On a machine with other work: the processor time of the calling thread alone. Waits for the
    # disk and background threads do not count, for any store.
    "thread": time.thread_time,
}
clock = CLOCKS["wall"]


def timed(times: Times, name: str, operation: str, count: int, run: Callable[[], Any]) -> None:
    """Runs an operation and adds its nanoseconds for each entry."""
    gc.collect()
    begin = clock()
    run()
    nanoseconds = (clock() - begin) / max(1, count) * 1e9
    times.setdefault((name, operation), []).append(nanoseconds)


def run_round(kinds: list[type[Store]], entries: Entries, times: Times) -> None:
    """Runs each operation on each store."""
    with tempfile.TemporaryDirectory(prefix="quintet-compare-") as root:
        for kind in kinds:
            path = os.path.join(root, "put")
            part = entries[: int(len(entries) * kind.share * kind.single)]
            store = kind(path)
            timed(times, kind.name, "put", len(part), lambda: store.put(part))
            store.close()
            shutil.rmtree(path)
        opened = [(kind, kind(os.path.join(root, kind.name))) for kind in kinds]
        for kind, store in opened:
            part = entries[: int(len(entries) * kind.share)]
            timed(times, kind.name, "batch put", len(part), lambda: store.load(part))
            store.settle()
        for kind, store in opened:
            keys = [key for key, _ in entries[: int(len(entries) * kind.share)]]
            random.Random(len(times)).shuffle(keys)
            store.get(keys[: len(keys) // 10])
            timed(times, kind.name, "get", len(keys), lambda: store.get(keys))
        for kind, store in opened:
            count = int(len(entries) * kind.share)
            if store.range() == count:
                timed(times, kind.name, "range", count, store.range)
        for _, store in opened:
            store.close()


def report(kinds: list[type[Store]], times: Times, count: int, rounds: int) -> None:
    """Prints the medians, and each peer's time divided by ours."""
    print(f"Medians of {rounds} rounds, {count:,} entries of 23 + 100 bytes, ns for each entry:\n")
    print("| store | " + " | ".join(OPERATIONS) + " |")
    print("|---|" + "---|" * len(OPERATIONS))
    medians = {key: statistics.median(values) for key, values in times.items()}
    for kind in kinds:
        cells = [medians.get((kind.name, operation)) for operation in OPERATIONS]
        shown = " | ".join("" if cell is None else f"{cell:,.0f}" for cell in cells)
        print(f"| {kind.name} | {shown} |")
    for ours in (Quintet, QuintetHashLog):
        print(f"\nTime of the peer divided by that of {ours.name}:\n")
        print("| store | " + " | ".join(OPERATIONS) + " |")
        print("|---|" + "---|" * len(OPERATIONS))
        for kind in kinds:
            if issubclass(kind, Quintet):
                continue
            ratios = []
            for operation in OPERATIONS:
                own = medians.get((ours.name, operation))
                peer = medians.get((kind.name, operation))
                ratios.append(f"{peer / own:.2f}" if own and peer else "")
            print(f"| {kind.name} | " + " | ".join(ratios) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=1_000_000, help="entries of a store")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--only", help="names of stores, separated by commas")
    arguments = parser.parse_args()
    global clock
    clock = CLOCKS[arguments.clock]
    kinds = available()
    if arguments.only:
        wanted = [name.strip() for name in arguments.only.split(",")]
        kinds = [kind for kind in kinds if kind.name in wanted]
    source = random.Random(1)
    values = [source.randbytes(100) for _ in range(1000)]
    numbers = list(range(arguments.count))
    source.shuffle(numbers)
    entries = [(b"key%020d" % number, values[number % 1000]) for number in numbers]
    times: Times = {}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        run_round(kinds, entries, times)
    print(f"Clock: {arguments.clock}. ", end="")
    report(kinds, times, arguments.count, arguments.rounds)


if __name__ == "__main__":
    main()
