"""Change feeds for asyncio."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL

import quintet
from quintet import aio


async def keys(feed: aio.AsyncChangeFeed) -> list[bytes]:
    """Returns the keys of the commits up to the present end."""
    return [change.key async for commit in feed for change in commit if change.key is not None]


def test_every_call_of_a_feed(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "db", **SMALL) as db:
            table, other = await db.table("app/t"), await db.table("other")
            start, end = await db.log_range()
            async with await db.snapshot() as snapshot:
                assert start < end <= snapshot.lsn
                feed = await db.changes(snapshot.lsn, unsynced=True)
            choices: list[Any] = ["app", table, table.sync, [table], ["app/t", table]]
            feeds = [await db.changes(tables=choice, unsynced=True) for choice in choices]
            await other.put(b"o", b"1")
            await table.update({b"%d" % number: b"" for number in range(3)})
            await table.put(b"last", b"")
            for chosen in feeds:
                assert await keys(chosen) == [b"0", b"1", b"2", b"last"]
                await chosen.close()
            first = await feed.wait()
            assert first is not None and first[0].key == b"o"
            # What was read ahead and not returned comes again from the position.
            assert await feed.position() == first.end < feed.sync.position
            async with await db.changes(await feed.position(), unsynced=True) as again:
                assert await keys(again) == await keys(feed) == [b"0", b"1", b"2", b"last"]
            assert await feed.position() == feed.sync.position
            assert await feed.wait(0) is None and await feed.wait(0.01) is None
            assert await feed.wait(datetime.timedelta(milliseconds=1)) is None
            await feed.close()
            await feed.close()
            assert await feed.position() == feed.sync.position
            with pytest.raises(quintet.ClosedError):
                await feed.wait(0)
            with pytest.raises(quintet.ChangesLostError):
                await db.changes(1 << 40)
            with pytest.raises(ValueError, match="at least one"):
                await db.changes(tables=[])

    asyncio.run(main())


def test_follow_waits_for_writers(tmp_path: Path) -> None:
    async def main() -> None:
        # One thread for the calls: a feed that waits does not take it.
        async with await aio.open(tmp_path / "db", threads=1, sync_interval=0.01, **SMALL) as db:
            table = await db.table("t")
            feeds = [await db.changes() for _ in range(3)]

            async def take(feed: aio.AsyncChangeFeed) -> list[Any]:
                taken: list[Any] = []
                async for commit in feed.follow():
                    taken += [change.key for change in commit]
                    if len(taken) == 100:
                        break
                return taken

            tasks = [asyncio.create_task(take(feed)) for feed in feeds]
            for number in range(100):
                await table.put(b"%03d" % number, b"")
            expected = [b"%03d" % number for number in range(100)]
            assert await asyncio.wait_for(asyncio.gather(*tasks), 60) == [expected] * 3

    asyncio.run(main())


def test_a_cancelled_wait_loses_no_commit(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "db", **SMALL) as db:
            table = await db.table("t")
            feed = await db.changes(unsynced=True)
            taken: list[Any] = []

            async def take() -> None:
                async for commit in feed.follow():
                    taken.extend(change.key for change in commit)

            for number in range(100):
                task = asyncio.create_task(take())
                # The task waits in its thread when it is cancelled, and the write comes meanwhile.
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await table.put(b"%03d" % number, b"")
                assert len(taken) <= number
            position = await feed.position()
            rest = await keys(feed)
            assert taken + rest == [b"%03d" % number for number in range(100)]
            async with await db.changes(position, unsynced=True) as again:
                assert await keys(again) == rest

    asyncio.run(main())


def test_tasks_share_a_feed(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "db", **SMALL) as db:
            table = await db.table("t")
            feed = await db.changes(unsynced=True)
            waits = [asyncio.create_task(feed.wait()) for _ in range(5)]
            for number in range(10):
                await table.put(b"%d" % number, b"")
            commits = await asyncio.wait_for(asyncio.gather(*waits), 60)
            found = {commit[0].key for commit in commits if commit is not None}
            found |= set(rest := await keys(feed))
            assert len(rest) == 5 and len(found) == 10

    asyncio.run(main())


@pytest.mark.parametrize("what", ["feed", "database"])
def test_a_close_ends_a_wait(tmp_path: Path, what: str) -> None:
    async def main() -> None:
        db = await aio.open(tmp_path / "db", **SMALL)
        feed = await db.changes()

        async def take() -> None:
            async for _ in feed.follow():
                raise AssertionError("nothing is written")

        task = asyncio.create_task(take())
        await asyncio.sleep(0.01)
        assert not task.done()
        await (feed.close() if what == "feed" else db.close())
        with pytest.raises(quintet.ClosedError):
            await asyncio.wait_for(task, 60)
        db.sync.close()

    asyncio.run(main())


def test_a_program_ends_although_a_feed_waits(tmp_path: Path) -> None:
    async def main() -> None:
        db = await aio.open(tmp_path / "db", **SMALL)
        feed = await db.changes()
        await asyncio.wait_for(feed.wait(), 0.05)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(main())
