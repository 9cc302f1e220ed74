"""The wrappers for asyncio."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL

import quintet
from quintet import aio


def test_every_call_of_the_wrappers(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "db", **SMALL) as db:
            table = await db.table("t", keys=str, values="json")
            assert table.name == "t"
            assert await table.put("a", 1) and not await table.put("a", 2, if_absent=True)
            assert await table.get("a") == 1 and await table.get("z", 5) == 5
            assert await table.contains("a") and await table.delete("a", if_present=True)
            assert await table.setdefault("a", 7) == 7 and await table.pop("a") == 7
            assert await table.pop("a", None) is None
            await table.update({f"{number:04}": number for number in range(1000)})
            assert await table.update("0000", lambda old: old + 10) == 10
            assert await table.get_many(["0000", "x"]) == [10, None]
            assert await table.count() == 1000
            assert [key async for key in table] == [f"{number:04}" for number in range(1000)]
            assert [key async for key in table.keys()][:1] == ["0000"]
            assert [value async for value in table.values()][:2] == [10, 1]
            assert [item async for item in table.items()][-1] == ("0999", 999)
            assert [item async for item in table.range("0001", "0003")] == [("0001", 1), ("0002", 2)]
            assert len([item async for item in table.prefix("00", reverse=True)]) == 100
            assert await table.compare_and_swap("0001", 1, 2)
            with pytest.raises(KeyError):
                await table.pop("none")
            numbers = await db.typed("n", "string", "i64", merge="add_i64")
            await numbers.merge("n", 5)
            assert await numbers.fetch_and_add("n", 2) == 5 and await numbers.get("n") == 7
            async with db.batch() as batch:
                batch.put(numbers, "m", 1)
                batch.merge(numbers, "n", 1)
                batch.delete(table, "0000")
            assert await numbers.get("n") == 8 and not await table.contains("0000")
            plain = db.batch()
            plain.put(numbers, "o", 2)
            await plain.commit(sync=True)
            async with await db.snapshot() as snapshot:
                await numbers.put("n", 0)
                assert await snapshot.get(numbers, "n") == 8
                assert [key async for key, _ in snapshot.range(numbers)] == ["m", "n", "o"]
            async with db.transaction() as transaction:
                assert await transaction.get_for_update(numbers, "n") == 0
                assert await transaction.put(numbers, "n", 3)
                await transaction.merge(numbers, "n", 1)
                await transaction.delete(numbers, "o")
                assert [item async for item in transaction.range(numbers)] == [("m", 1), ("n", 4)]
                assert await transaction.get(numbers, "m") == 1
            with pytest.raises(RuntimeError):
                async with db.transaction() as transaction:
                    await transaction.put(numbers, "n", -1)
                    raise RuntimeError
            async with db.transaction() as transaction:
                await transaction.put(numbers, "n", -1)
                await transaction.rollback()
            transaction = await db.transaction().__aenter__()
            await transaction.put(numbers, "p", 1)
            await transaction.commit()
            assert await db.transact(lambda tx, key: tx[numbers.sync].pop(key), "p") == 1
            assert await numbers.get("n") == 4
            await table.persist()
            await table.compact()
            await table.clear()
            await db.persist()
            await db.drop_table("t")
            assert [info.name for info in await db.tables()] == ["n"]
        with pytest.raises((quintet.ClosedError, RuntimeError)):
            await numbers.get("n")

    asyncio.run(main())


def test_calls_run_beside_one_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "db", threads=4, **SMALL) as db:
            table = await db.table("t")
            await table.put(b"a", b"1")
            holder = await db.transaction().__aenter__()
            await holder.get_for_update(table, b"a")

            async def wait() -> Any:
                async with db.transaction(lock_timeout=60) as transaction:
                    return await transaction.get_for_update(table, b"a")

            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0.05)
            # The event loop and the other threads go on while one waits for the lock.
            assert not waiting.done() and await table.get(b"a") == b"1"
            await holder.rollback()
            assert await asyncio.wait_for(waiting, 60) == b"1"
            await asyncio.gather(*(table.put(b"%d" % n, b"x") for n in range(200)))
            assert await table.count() == 201

    asyncio.run(main())


def test_an_open_that_fails_leaves_no_thread(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(quintet.NotADatabaseError):
            await aio.open(tmp_path / "none", create=False)

    asyncio.run(main())
