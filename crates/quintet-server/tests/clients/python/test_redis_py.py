"""redis-py, unmodified, against the server: each data type, and each way to talk to a server."""

import asyncio
import threading

import pytest
import redis
import redis.asyncio
from conftest import PORT
from redis.backoff import NoBackoff
from redis.retry import Retry


def test_strings(client, connect):
    assert client.set("a", "1") is True
    assert client.get("a") == "1"
    assert client.get("missing") is None
    assert client.set("a", "2", nx=True) is None
    assert client.set("a", "2", xx=True, get=True) == "1"
    assert client.mset({"b": "x", "c": "y"}) is True
    assert client.mget("a", "b", "missing", "c") == ["2", "x", None, "y"]
    assert client.incr("a", 40) == 42
    assert client.incrbyfloat("f", 0.5) == 0.5
    assert client.append("b", "yz") == 3
    assert client.getrange("b", 1, -1) == "yz"
    assert client.setrange("b", 1, "YZ") == 3
    assert client.getdel("b") == "xYZ"
    assert client.getex("c", px=100_000) == "y"
    assert 0 < client.pttl("c") <= 100_000
    assert client.persist("c") is True
    assert client.ttl("c") == -1
    assert client.ttl("missing") == -2
    assert client.msetnx({"c": "1", "n": "1"}) is False
    assert client.exists("a", "c", "n") == 2
    assert client.lcs("a", "c") == ""
    assert client.type("a") == "string"
    binary = connect(decode_responses=False)
    value = bytes(range(256)) * 300
    assert binary.set(b"\x00\r\n", value) is True
    assert binary.get(b"\x00\r\n") == value


def test_bitmaps(client):
    assert client.setbit("bits", 7, 1) == 0
    assert client.setbit("bits", 100, 1) == 0
    assert client.getbit("bits", 100) == 1
    assert client.bitcount("bits") == 2
    assert client.bitcount("bits", 0, 7, "BIT") == 1
    assert client.bitpos("bits", 1) == 7
    assert client.setbit("other", 7, 1) == 0
    assert client.bitop("AND", "both", "bits", "other") == 13
    assert client.bitcount("both") == 1
    field = client.bitfield("counter", default_overflow="SAT")
    assert field.set("u8", 0, 250).incrby("u8", 0, 10).get("u8", 0).execute() == [0, 255, 255]


def test_lists(client):
    assert client.rpush("l", "a", "b", "c") == 3
    assert client.lpush("l", "z") == 4
    assert client.lrange("l", 0, -1) == ["z", "a", "b", "c"]
    assert client.lindex("l", 1) == "a"
    assert client.linsert("l", "before", "b", "x") == 5
    assert client.lpos("l", "x") == 2
    assert client.lset("l", 2, "y") is True
    assert client.lrem("l", 0, "y") == 1
    assert client.lmove("l", "m", "RIGHT", "LEFT") == "c"
    assert client.lpop("l", 2) == ["z", "a"]
    assert client.rpop("l") == "b"
    assert client.rpop("l") is None
    assert client.exists("l") == 0
    assert client.lmpop(2, "l", "m", direction="LEFT") == ["m", ["c"]]
    client.rpush("numbers", 3, 1, 2)
    assert client.sort("numbers", desc=True) == ["3", "2", "1"]
    assert client.ltrim("numbers", 1, 1) is True
    assert client.lrange("numbers", 0, -1) == ["1"]


def test_hashes(client):
    assert client.hset("h", mapping={"a": "1", "b": "2"}) == 2
    assert client.hget("h", "a") == "1"
    assert client.hgetall("h") == {"a": "1", "b": "2"}
    assert client.hgetall("missing") == {}
    assert client.hmget("h", "a", "missing") == ["1", None]
    assert client.hincrby("h", "a", 4) == 5
    assert client.hincrbyfloat("h", "b", 0.5) == 2.5
    assert client.hsetnx("h", "a", "9") == 0
    assert client.hexists("h", "a") is True
    assert sorted(client.hkeys("h")) == ["a", "b"]
    assert sorted(client.hvals("h")) == ["2.5", "5"]
    assert client.hstrlen("h", "b") == 3
    assert client.hrandfield("h") in ("a", "b")
    assert client.hdel("h", "a", "missing") == 1
    assert client.hlen("h") == 1


def test_sets(client):
    assert client.sadd("s", "a", "b", "c") == 3
    assert client.sadd("t", "b", "c", "d") == 3
    assert client.smembers("s") == {"a", "b", "c"}
    assert client.sinter("s", "t") == {"b", "c"}
    assert client.sunion("s", "t") == {"a", "b", "c", "d"}
    assert client.sdiff("s", "t") == {"a"}
    assert client.sintercard(2, ["s", "t"]) == 2
    assert client.sinterstore("both", "s", "t") == 2
    assert client.sismember("s", "a") == 1
    assert client.smismember("s", "a", "z") == [1, 0]
    assert client.smove("s", "t", "a") is True
    assert client.srem("s", "b") == 1
    assert client.spop("s") == "c"
    assert client.scard("s") == 0
    assert client.srandmember("t") in {"a", "b", "c", "d"}


def test_sorted_sets(client):
    assert client.zadd("z", {"a": 1, "b": 2.5, "c": 3}) == 3
    assert client.zadd("z", {"a": 0}, gt=True, ch=True) == 0
    assert client.zscore("z", "b") == 2.5
    assert client.zmscore("z", ["a", "missing"]) == [1.0, None]
    assert client.zrank("z", "c") == 2
    assert client.zrevrank("z", "c") == 0
    assert client.zincrby("z", 10, "a") == 11.0
    pairs = client.zrange("z", 0, -1, withscores=True)
    assert [tuple(pair) for pair in pairs] == [("b", 2.5), ("c", 3.0), ("a", 11.0)]
    assert client.zrange("z", 3, "(2", desc=True, byscore=True) == ["c", "b"]
    assert client.zcount("z", "-inf", "+inf") == 3
    assert client.zunionstore("u", {"z": 2}) == 3
    assert client.zscore("u", "c") == 6.0
    assert client.zrangebyscore("z", 2, 3, start=1, num=1) == ["c"]
    client.zadd("names", {name: 0 for name in "abcd"})
    assert client.zrangebylex("names", "(a", "[c") == ["b", "c"]
    assert client.zremrangebylex("names", "-", "(b") == 1
    # With one member the client returns a pair in RESP3, and a list of pairs in RESP2.
    popped = client.zpopmax("z")
    assert popped in ([("a", 11.0)], ["a", 11.0], [["a", 11.0]])
    assert client.zremrangebyrank("z", 0, 0) == 1
    assert client.zcard("z") == 1
    assert client.zrem("z", "c") == 1


def test_hyperloglogs_and_places(client):
    assert client.pfadd("visitors", *range(1000)) == 1
    assert 950 < client.pfcount("visitors") < 1050
    assert client.pfadd("others", *range(1000, 2000)) == 1
    assert client.pfmerge("all", "visitors", "others") is True
    assert 1900 < client.pfcount("all") < 2100
    places = (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")
    assert client.geoadd("Sicily", places) == 2
    assert client.geodist("Sicily", "Palermo", "Catania", unit="km") == pytest.approx(166.2742)
    found = client.geosearch("Sicily", longitude=15, latitude=37, radius=100, unit="km")
    assert found == ["Catania"]
    (longitude, latitude), missing = client.geopos("Sicily", "Palermo", "Rome")
    assert (longitude, latitude) == pytest.approx((13.361389, 38.115556), abs=1e-5)
    assert missing is None


def test_streams_with_groups(client):
    first = client.xadd("events", {"n": "1"}, id="1-1")
    assert first == "1-1"
    assert client.xadd("events", {"n": "2", "m": "x"}, id="1-*") == "1-2"
    assert client.xlen("events") == 2
    assert client.xrange("events") == [("1-1", {"n": "1"}), ("1-2", {"n": "2", "m": "x"})]
    assert client.xrevrange("events", count=1) == [("1-2", {"n": "2", "m": "x"})]
    assert client.xgroup_create("events", "workers", id="0") is True
    with pytest.raises(redis.ResponseError, match="BUSYGROUP"):
        client.xgroup_create("events", "workers", id="0")

    def read(start, **options):
        reply = client.xreadgroup("workers", "ann", {"events": start}, **options)
        pairs = reply.items() if isinstance(reply, dict) else reply
        # In RESP3 the client puts the entries of a stream into a further list.
        entries = [entry for _, entries in pairs for entry in entries]
        return entries[0] if entries and isinstance(entries[0], list) else entries

    assert read(">", count=1) == [("1-1", {"n": "1"})]
    assert read(">") == [("1-2", {"n": "2", "m": "x"})]
    assert not read(">")
    assert read("0") == [("1-1", {"n": "1"}), ("1-2", {"n": "2", "m": "x"})]
    assert client.xack("events", "workers", "1-1") == 1
    pending = client.xpending("events", "workers")
    assert (pending["pending"], pending["min"], pending["max"]) == (1, "1-2", "1-2")
    assert pending["consumers"] == [{"name": "ann", "pending": 1}]
    (entry,) = client.xpending_range("events", "workers", "-", "+", 10)
    assert (entry["message_id"], entry["consumer"], entry["times_delivered"])[:2] == ("1-2", "ann")
    claimed = client.xclaim("events", "workers", "bob", 0, ["1-2"])
    assert claimed == [("1-2", {"n": "2", "m": "x"})]
    automatic = client.xautoclaim("events", "workers", "ann", 0)
    assert automatic[:2] == ["0-0", [("1-2", {"n": "2", "m": "x"})]]
    (group,) = client.xinfo_groups("events")
    assert (group["name"], group["consumers"], group["pending"]) == ("workers", 2, 1)
    assert {consumer["name"] for consumer in client.xinfo_consumers("events", "workers")} == {
        "ann",
        "bob",
    }
    assert client.xinfo_stream("events")["length"] == 2
    assert client.xtrim("events", maxlen=1, approximate=False) == 1
    assert client.xdel("events", "1-2") == 1
    assert client.xgroup_destroy("events", "workers") == 1
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        client.xreadgroup("workers", "ann", {"events": ">"})


def test_keys_databases_and_dumps(client, connect):
    client.set("a", "1", ex=100)
    assert client.rename("a", "b") is True
    assert client.copy("b", "c") is True
    dump = connect(decode_responses=False).dump("b")
    assert client.restore("d", 0, dump) in ("OK", True, b"OK")
    assert client.get("d") == "1"
    assert client.expireat("d", 1) is True
    assert client.exists("d") == 0
    assert client.move("c", 3) is True
    assert connect(db=3).get("c") == "1"
    assert client.randomkey() == "b"
    assert client.object("encoding", "b") == "int"
    assert client.dbsize() == 1
    assert client.unlink("b", "c") == 1
    info = client.info("server")
    assert info["redis_mode"] == "standalone"
    assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
    assert client.command_count() > 200
    assert client.ping() is True
    assert client.echo("hello") == "hello"
    assert client.time()[0] > 1_700_000_000


def test_pipelines(client):
    pipeline = client.pipeline(transaction=False)
    for number in range(2000):
        pipeline.set(f"k{number}", number).get(f"k{number}")
    assert pipeline.execute() == [
        reply for number in range(2000) for reply in (True, str(number))
    ]
    # An error within a pipeline ends no other command.
    pipeline = client.pipeline(transaction=False)
    replies = pipeline.set("s", "x").lpush("s", "y").get("s").execute(raise_on_error=False)
    assert isinstance(replies[1], redis.ResponseError)
    assert (replies[0], replies[2]) == (True, "x")


def test_transactions(client, connect):
    with client.pipeline() as pipeline:
        assert pipeline.set("a", 1).incr("a").get("a").execute() == [True, 2, "2"]
        pipeline.watch("a")
        value = int(pipeline.get("a"))
        pipeline.multi()
        pipeline.set("a", value + 1)
        assert pipeline.execute() == [True]
        pipeline.watch("a")
        connect().set("a", "changed")
        pipeline.multi()
        pipeline.set("a", "lost")
        with pytest.raises(redis.WatchError):
            pipeline.execute()
    assert client.get("a") == "changed"
    with client.pipeline() as pipeline:
        pipeline.set("t", "x").lpush("t", "y").set("u", "z")
        replies = pipeline.execute(raise_on_error=False)
    assert isinstance(replies[1], redis.ResponseError)
    assert client.get("u") == "z"
    with client.pipeline() as pipeline:
        pipeline.set("v", 1).execute_command("NOSUCH")
        with pytest.raises(redis.ResponseError, match="unknown command"):
            pipeline.execute()
    assert client.exists("v") == 0

    def increment(pipeline):
        number = int(pipeline.get("n") or 0)
        pipeline.multi()
        pipeline.set("n", number + 1)

    def many():
        other = connect()
        for _ in range(20):
            other.transaction(increment, "n")

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("n") == "80"


def test_publish_and_subscribe(client, connect, protocol):
    reader = connect().pubsub()
    reader.subscribe("news")
    reader.psubscribe("n*")
    kinds = [reader.get_message(timeout=20)["type"] for _ in range(2)]
    assert kinds == ["subscribe", "psubscribe"]
    assert client.publish("news", "hello") == 2
    messages = [reader.get_message(timeout=20) for _ in range(2)]
    assert [(m["type"], m["pattern"], m["channel"], m["data"]) for m in messages] == [
        ("message", None, "news", "hello"),
        ("pmessage", "n*", "news", "hello"),
    ]
    assert client.pubsub_channels() == ["news"]
    assert client.pubsub_numpat() == 1
    if protocol == 2:
        # In RESP3 the reply is no message, and this release reads its first letter as a type.
        reader.ping()
        assert reader.get_message(timeout=20)["type"] == "pong"
    reader.unsubscribe()
    reader.punsubscribe()
    kinds = [reader.get_message(timeout=20)["type"] for _ in range(2)]
    assert sorted(kinds) == ["punsubscribe", "unsubscribe"]
    reader.close()
    # Changes of keys are messages too.
    client.config_set("notify-keyspace-events", "KEA")
    reader = connect().pubsub(ignore_subscribe_messages=True)
    reader.psubscribe("__keyevent@0__:*")
    assert reader.get_message(timeout=20) is None
    client.set("k", "v")
    message = reader.get_message(timeout=20)
    assert (message["channel"], message["data"]) == ("__keyevent@0__:set", "k")
    reader.close()
    client.config_set("notify-keyspace-events", "")


def blocked(client, count):
    """Waits until this many clients wait for keys. The read timeout of pytest ends it."""
    while client.info("clients")["blocked_clients"] < count:
        pass


@pytest.mark.parametrize(
    ("wait", "push", "expected"),
    [
        (lambda c: c.blpop(["l", "m"], 0), lambda c: c.rpush("m", "x"), ("m", "x")),
        (lambda c: c.brpop("l", 0), lambda c: c.rpush("l", "x", "y"), ("l", "y")),
        (lambda c: c.blmove("l", "m", 0), lambda c: c.rpush("l", "x"), "x"),
        (lambda c: c.brpoplpush("l", "m", 0), lambda c: c.rpush("l", "x"), "x"),
        (lambda c: c.bzpopmin("z", 0), lambda c: c.zadd("z", {"a": 2}), ("z", "a", 2.0)),
        (lambda c: c.blmpop(0, 1, "l", direction="LEFT"), lambda c: c.lpush("l", "x"), ("l", ["x"])),
    ],
    ids=["blpop", "brpop", "blmove", "brpoplpush", "bzpopmin", "blmpop"],
)
def test_blocking_commands(client, connect, wait, push, expected):
    results = []
    other = connect()
    thread = threading.Thread(target=lambda: results.append(wait(other)))
    thread.start()
    blocked(client, 1)
    push(client)
    thread.join()
    (result,) = results
    assert (tuple(result) if isinstance(result, (list, tuple)) else result) == expected


def test_blocking_reads_of_streams_and_timeouts(client, connect):
    results = []
    other = connect()
    thread = threading.Thread(target=lambda: results.append(other.xread({"s": "$"}, block=0)))
    thread.start()
    blocked(client, 1)
    client.xadd("s", {"n": "1"}, id="5-1")
    thread.join()
    assert "5-1" in str(results) and "'n': '1'" in str(results)
    assert client.blpop("nothing", timeout=0.05) is None
    assert not client.xread({"s": "$"}, block=20)


def test_scan_iterators(client):
    client.mset({f"key:{number}": number for number in range(700)})
    client.set("other", "x")
    assert sorted(client.scan_iter("key:*", count=50)) == sorted(
        f"key:{number}" for number in range(700)
    )
    assert list(client.scan_iter(_type="list")) == []
    client.hset("h", mapping={f"f{number}": number for number in range(900)})
    assert dict(client.hscan_iter("h")) == {f"f{number}": str(number) for number in range(900)}
    client.sadd("s", *range(900))
    assert {int(member) for member in client.sscan_iter("s", count=20)} == set(range(900))
    client.zadd("z", {f"m{number}": number for number in range(900)})
    assert dict(client.zscan_iter("z", match="m1*")) == {
        f"m{number}": number for number in range(900) if str(number)[0] == "1"
    }


def test_reply_types_of_resp3(client, protocol):
    """What the server sends, before the client brings both protocols into one form."""
    client.zadd("z", {"a": 1.5})
    client.hset("h", "f", "v")
    client.sadd("s", "m")
    raw = redis.Redis(host="127.0.0.1", port=PORT, protocol=protocol, decode_responses=True)
    raw.response_callbacks.clear()
    replies = [
        raw.execute_command(*command.split())
        for command in ("HGETALL h", "SMEMBERS s", "ZSCORE z a", "GET missing", "CONFIG GET timeout")
    ]
    if protocol == 3:
        assert replies[0] == {"f": "v"}
        assert list(replies[1]) == ["m"]
        assert replies[2] == 1.5 and isinstance(replies[2], float)
        assert replies[4] == {"timeout": "300"}
    else:
        assert replies == [["f", "v"], ["m"], "1.5", None, ["timeout", "300"]]
    assert replies[3] is None
    hello = raw.execute_command("HELLO", protocol)
    if protocol == 2:
        hello = dict(zip(hello[::2], hello[1::2]))
    assert (hello["proto"], hello["mode"], hello["role"]) == (protocol, "standalone", "master")
    raw.close()


def test_users(client, connect):
    client.acl_setuser(
        "app",
        enabled=True,
        reset=True,
        passwords=["+secret"],
        keys=["app:*"],
        channels=["news"],
        commands=["+get", "+set", "+ping", "+publish", "+multi", "+exec"],
    )
    assert "app" in client.acl_users()
    assert client.acl_getuser("app")["flags"][0] == "on"
    user = connect(username="app", password="secret")
    assert user.set("app:k", "v") is True
    assert user.get("app:k") == "v"
    for forbidden in (
        lambda: user.get("other"),
        lambda: user.flushall(),
        lambda: user.publish("secrets", "x"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            forbidden()
    with user.pipeline() as pipeline:
        pipeline.set("app:k", "w").set("other", "x")
        with pytest.raises(redis.ResponseError):
            pipeline.execute()
    assert user.get("app:k") == "v"
    # The library repeats failed logins by default, and the server delays an address with five.
    once = Retry(NoBackoff(), 0)
    with pytest.raises(redis.AuthenticationError):
        connect(username="app", password="wrong", retry=once).ping()
    assert client.acl_whoami() == "default"
    assert client.acl_deluser("app") == 1
    with pytest.raises(redis.AuthenticationError):
        connect(username="app", password="secret", retry=once).ping()


def test_errors_are_those_that_clients_know(client):
    client.set("string", "x")
    for call, message in (
        (lambda: client.lpush("string", "x"), "WRONGTYPE|Operation against a key"),
        (lambda: client.incr("string"), "not an integer"),
        (lambda: client.execute_command("NOSUCH", "x"), "unknown command"),
        (lambda: client.execute_command("GET"), "wrong number of arguments"),
        (lambda: client.execute_command("SET", "k", "v", "EX", "0"), "invalid expire time"),
        (lambda: client.execute_command("SET", "k", "v", "NONSENSE"), "syntax error"),
        (lambda: client.lset("missing", 0, "x"), "no such key"),
        (lambda: client.rename("missing", "x"), "no such key"),
        (lambda: client.execute_command("SELECT", 16), "out of range"),
        (lambda: client.xadd("s", {"a": "1"}, id="0-0"), "must be greater than 0-0"),
        (lambda: client.restore("r", 0, b"junk"), "checksum"),
        (lambda: client.execute_command("EXEC"), "EXEC without MULTI"),
        (lambda: client.eval("return 1", 0), "runs no scripts"),
        (lambda: client.execute_command("CLUSTER", "INFO"), "cluster support disabled"),
    ):
        with pytest.raises(redis.ResponseError, match=message):
            call()
    assert client.ping() is True


def test_locks_of_the_library_need_scripts(client):
    """The library releases its locks with a script, and the server has none: a clear error."""
    lock = client.lock("lock", timeout=10)
    assert lock.acquire(blocking=False) is True
    assert client.lock("lock").acquire(blocking=False) is False
    with pytest.raises(redis.ResponseError, match="runs no scripts"):
        lock.release()


def test_clients_and_monitor(client, connect):
    other = connect(client_name="reader")
    assert other.client_getname() == "reader"
    assert "reader" in [row["name"] for row in client.client_list()]
    identifier = other.client_id()
    assert client.client_kill_filter(_id=identifier) == 1
    # The library connects anew.
    assert other.ping() is True
    assert other.client_id() != identifier
    with connect().monitor() as monitor:
        client.set("seen", "x")
        command = monitor.next_command()
    assert command["command"] == "SET seen x"
    client.slowlog_reset()
    assert client.slowlog_len() == 0


@pytest.mark.parametrize("transaction", [False, True])
def test_asyncio(client, protocol, transaction):
    async def run():
        client = redis.asyncio.Redis(
            host="127.0.0.1", port=PORT, protocol=protocol, decode_responses=True
        )
        async with client:

            async def one(number):
                async with client.pipeline(transaction=transaction) as pipeline:
                    pipeline.incr("n").set(f"k{number}", number).get(f"k{number}")
                    replies = await pipeline.execute()
                    assert replies[1:] == [True, str(number)]

            await asyncio.gather(*(one(number) for number in range(50)))
            assert await client.get("n") == "50"
            waiting = asyncio.create_task(client.blpop("queue", 0))
            await client.rpush("queue", "x")
            assert list(await waiting) == ["queue", "x"]
            async with client.pubsub() as reader:
                await reader.subscribe("c")
                assert (await reader.get_message(timeout=20))["type"] == "subscribe"
                await client.publish("c", "hello")
                assert (await reader.get_message(timeout=20))["data"] == "hello"
            found = {key async for key in client.scan_iter("k*", count=7)}
            assert found == {f"k{number}" for number in range(50)}

    asyncio.run(run())
