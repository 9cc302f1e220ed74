// ioredis, unmodified, against the server. `run` starts the server and sets its port.
import assert from "node:assert/strict";
import { after, beforeEach, describe, test } from "node:test";
import { Redis } from "ioredis";

const port = Number(process.env.QUINTET_PORT);

for (const protocol of [2, 3]) {
  describe(`RESP${protocol}`, { timeout: 60_000 }, () => {
    const clients = [];
    const connect = (options = {}) => {
      const client = new Redis({ port, host: "127.0.0.1", protocol, ...options });
      clients.push(client);
      return client;
    };
    const client = connect();

    beforeEach(() => client.flushall());
    after(() => clients.forEach((client) => client.disconnect()));

    test("strings and bitmaps", async () => {
      assert.equal(await client.set("a", "1"), "OK");
      assert.equal(await client.get("a"), "1");
      assert.equal(await client.get("missing"), null);
      assert.equal(await client.set("a", "2", "NX"), null);
      assert.equal(await client.set("a", "2", "PX", 60_000, "GET"), "1");
      assert.equal(await client.mset({ b: "x", c: "y" }), "OK");
      assert.deepEqual(await client.mget("b", "missing", "c"), ["x", null, "y"]);
      assert.equal(await client.incrby("a", 40), 42);
      assert.equal(Number(await client.incrbyfloat("f", 0.5)), 0.5);
      assert.equal(await client.append("b", "yz"), 3);
      assert.equal(await client.getrange("b", 1, -1), "yz");
      assert.equal(await client.persist("a"), 1);
      assert.equal(await client.ttl("a"), -1);
      assert.equal(await client.setbit("bits", 100, 1), 0);
      assert.equal(await client.bitcount("bits"), 1);
      assert.equal(await client.exists("a", "b", "c", "d"), 3);
      const value = Buffer.alloc(300_000, "\u0000\r\n\u00ff");
      await client.set("binary", value);
      assert.ok(value.equals(await client.getBuffer("binary")));
    });

    test("lists", async () => {
      assert.equal(await client.rpush("l", "a", "b", "c"), 3);
      assert.equal(await client.lpush("l", "z"), 4);
      assert.deepEqual(await client.lrange("l", 0, -1), ["z", "a", "b", "c"]);
      assert.equal(await client.linsert("l", "BEFORE", "b", "x"), 5);
      assert.equal(await client.lpos("l", "x"), 2);
      assert.equal(await client.lrem("l", 0, "x"), 1);
      assert.equal(await client.lmove("l", "m", "RIGHT", "LEFT"), "c");
      assert.deepEqual(await client.lpop("l", 2), ["z", "a"]);
      assert.equal(await client.rpop("l"), "b");
      assert.equal(await client.rpop("l"), null);
      assert.deepEqual(await client.lmpop(2, "l", "m", "LEFT"), ["m", ["c"]]);
    });

    test("hashes and sets", async () => {
      assert.equal(await client.hset("h", { a: 1, b: 2 }), 2);
      assert.deepEqual({ ...(await client.hgetall("h")) }, { a: "1", b: "2" });
      assert.deepEqual({ ...(await client.hgetall("missing")) }, {});
      assert.deepEqual(await client.hmget("h", "a", "missing"), ["1", null]);
      assert.equal(await client.hincrby("h", "a", 4), 5);
      assert.equal(await client.hdel("h", "a", "missing"), 1);
      assert.deepEqual(await client.hkeys("h"), ["b"]);
      assert.equal(await client.sadd("s", "a", "b", "c"), 3);
      assert.equal(await client.sadd("t", "b", "c", "d"), 3);
      assert.deepEqual((await client.smembers("s")).sort(), ["a", "b", "c"]);
      assert.deepEqual((await client.sinter("s", "t")).sort(), ["b", "c"]);
      assert.deepEqual(await client.sdiff("s", "t"), ["a"]);
      assert.deepEqual(await client.smismember("s", "a", "z"), [1, 0]);
      assert.equal(await client.smove("s", "t", "a"), 1);
      assert.equal(await client.scard("t"), 4);
    });

    test("sorted sets, HyperLogLogs and places", async () => {
      assert.equal(await client.zadd("z", 1, "a", 2.5, "b"), 2);
      assert.equal(await client.zadd("z", "GT", "CH", 1, "b"), 0);
      assert.equal(Number(await client.zscore("z", "b")), 2.5);
      assert.equal(await client.zrank("z", "b"), 1);
      const flat = (await client.zrange("z", 0, -1, "WITHSCORES")).flat();
      assert.deepEqual(flat.map(String), ["a", "1", "b", "2.5"]);
      assert.deepEqual(await client.zrange("z", "+inf", "(1", "BYSCORE", "REV"), ["b"]);
      assert.equal(Number(await client.zincrby("z", 1.5, "a")), 2.5);
      assert.deepEqual(await client.zrangebylex("z", "-", "[a"), ["a"]);
      assert.equal(await client.zunionstore("u", 1, "z", "WEIGHTS", 2), 2);
      assert.deepEqual((await client.zpopmax("u")).flat().map(String), ["b", "5"]);
      assert.equal(await client.zremrangebyrank("u", 0, -1), 1);
      assert.equal(await client.pfadd("visitors", 1, 2, 3), 1);
      assert.equal(await client.pfcount("visitors"), 3);
      await client.geoadd("Sicily", 13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania");
      assert.equal(await client.geodist("Sicily", "Palermo", "Catania", "KM"), "166.2742");
      const near = ["FROMLONLAT", 15, 37, "BYRADIUS", 100, "KM"];
      assert.deepEqual(await client.geosearch("Sicily", ...near), ["Catania"]);
    });

    test("streams with groups", async () => {
      const [first, second] = [["1-1", ["n", "1"]], ["1-2", ["n", "2", "m", "x"]]];
      assert.equal(await client.xadd("s", "1-1", "n", "1"), "1-1");
      assert.equal(await client.xadd("s", "1-*", "n", "2", "m", "x"), "1-2");
      assert.deepEqual(await client.xrange("s", "-", "+"), [first, second]);
      assert.equal(await client.xgroup("CREATE", "s", "g", "0"), "OK");
      await assert.rejects(client.xgroup("CREATE", "s", "g", "0"), /BUSYGROUP/);
      const read = () => client.xreadgroup("GROUP", "g", "ann", "STREAMS", "s", ">");
      assert.deepEqual((await read()).flat(), ["s", [first, second]]);
      assert.equal(await read(), null);
      assert.equal(await client.xack("s", "g", "1-1"), 1);
      assert.deepEqual(await client.xpending("s", "g"), [1, "1-2", "1-2", [["ann", "1"]]]);
      assert.deepEqual(await client.xclaim("s", "g", "bob", 0, "1-2"), [second]);
      const [start, claimed, deleted] = await client.xautoclaim("s", "g", "ann", 0, "0");
      assert.deepEqual([start, claimed, deleted], ["0-0", [second], []]);
      assert.equal(await client.xtrim("s", "MAXLEN", 1), 1);
      assert.equal(await client.xgroup("DESTROY", "s", "g"), 1);
      await assert.rejects(read(), /NOGROUP/);
    });

    test("pipelines", async () => {
      const pipeline = client.pipeline();
      for (let number = 0; number < 2000; number++) {
        pipeline.set(`k${number}`, number).get(`k${number}`);
      }
      const replies = await pipeline.exec();
      replies.forEach(([error, reply], at) => {
        assert.equal(error, null);
        assert.equal(reply, at % 2 === 0 ? "OK" : String((at - 1) / 2));
      });
      const mixed = await client.pipeline().set("s", "x").lpush("s", "y").get("s").exec();
      assert.match(mixed[1][0].message, /^WRONGTYPE/);
      assert.deepEqual(mixed[2], [null, "x"]);
      // Commands of one turn of the event loop are one pipeline.
      const automatic = connect({ enableAutoPipelining: true });
      const all = Array.from({ length: 500 }, () => automatic.incr("n"));
      assert.deepEqual(await Promise.all(all), Array.from({ length: 500 }, (_, at) => at + 1));
    });

    test("transactions", async () => {
      const replies = await client.multi().set("a", 1).incr("a").get("a").exec();
      assert.deepEqual(replies, [[null, "OK"], [null, 2], [null, "2"]]);
      const other = connect();
      await client.watch("a");
      await other.set("a", "changed");
      assert.equal(await client.multi().set("a", "lost").exec(), null);
      assert.equal(await client.get("a"), "changed");
      await assert.rejects(client.multi().set("v", 1).call("NOSUCH").exec(), /EXECABORT/);
      assert.equal(await client.exists("v"), 0);
    });

    test("publish and subscribe", async () => {
      const reader = connect();
      const messages = [];
      const two = new Promise((resolve) => {
        const add = (...message) => messages.push(message) === 2 && resolve();
        reader.on("message", add);
        reader.on("pmessage", add);
      });
      assert.equal(await reader.subscribe("news", "other"), 2);
      assert.equal(await reader.psubscribe("n*"), 3);
      assert.equal(await client.publish("news", "hello"), 2);
      await two;
      assert.deepEqual(messages, [["news", "hello"], ["n*", "news", "hello"]]);
      assert.match(String(await reader.ping()), /^pong/i);
      assert.equal(await reader.unsubscribe("news", "other"), 1);
      assert.equal(await reader.punsubscribe("n*"), 0);
      assert.equal(await reader.get("k"), null);
    });

    test("blocking commands", async () => {
      const other = connect();
      for (const [wait, push, expected] of [
        [() => other.blpop("l", "m", 0), () => client.rpush("m", "x"), ["m", "x"]],
        [() => other.blmove("l", "o", "LEFT", "LEFT", 0), () => client.rpush("l", "x"), "x"],
        [() => other.bzpopmin("z", 0), () => client.zadd("z", 2, "a"), ["z", "a", "2"]],
        [
          () => other.xread("BLOCK", 0, "STREAMS", "s", "$"),
          () => client.xadd("s", "7-1", "n", "1"),
          [["s", [["7-1", ["n", "1"]]]]],
        ],
      ]) {
        const waiting = wait();
        while (!(await client.info("clients")).includes("blocked_clients:1\r\n"));
        await push();
        const flat = (value) => [value].flat(9).map(String);
        assert.deepEqual(flat(await waiting), flat(expected));
      }
      assert.equal(await client.blpop("nothing", 0.05), null);
    });

    test("scan streams", async () => {
      const pipeline = client.pipeline();
      for (let number = 0; number < 700; number++) {
        pipeline.set(`key:${number}`, number).hset("h", `f${number}`, number);
        pipeline.sadd("s", number).zadd("z", number, `m${number}`);
      }
      await pipeline.exec();
      const read = async (stream) => {
        const found = [];
        for await (const page of stream) found.push(...page.flat());
        return found;
      };
      const keys = await read(client.scanStream({ match: "key:*", count: 50 }));
      assert.equal(keys.length, 700);
      assert.equal(new Set(keys).size, 700);
      assert.equal((await read(client.hscanStream("h"))).length, 1400);
      assert.equal((await read(client.sscanStream("s"))).length, 700);
      assert.equal((await read(client.zscanStream("z"))).length, 1400);
    });

    test("users and errors", async () => {
      const rules = ["reset", "on", ">secret", "~app:*", "+get", "+set", "+info"];
      assert.equal(await client.acl("SETUSER", "app", ...rules), "OK");
      const user = connect({ username: "app", password: "secret" });
      assert.equal(await user.set("app:k", "v"), "OK");
      await assert.rejects(user.get("other"), /NOPERM/);
      await assert.rejects(user.flushall(), /NOPERM/);
      const wrong = connect({ username: "app", password: "wrong", retryStrategy: () => null });
      const failure = new Promise((resolve) => wrong.on("error", resolve));
      await assert.rejects(wrong.get("app:k"));
      assert.match((await failure).message, /WRONGPASS/);
      assert.equal(await client.acl("DELUSER", "app"), 1);
      await client.set("string", "x");
      for (const [command, message] of [
        [() => client.lpush("string", "x"), /WRONGTYPE/],
        [() => client.incr("string"), /not an integer/],
        [() => client.call("NOSUCH"), /unknown command/],
        [() => client.call("GET"), /wrong number of arguments/],
        [() => client.rename("missing", "x"), /no such key/],
        [() => client.eval("return 1", 0), /runs no scripts/],
        [() => client.cluster("INFO"), /unknown command/],
      ]) {
        await assert.rejects(command(), message);
      }
      assert.equal(await client.ping(), "PONG");
    });

    test("databases, dumps and monitor", async () => {
      await client.set("a", "1");
      const dump = await client.dumpBuffer("a");
      assert.equal(await client.restore("b", 0, dump), "OK");
      assert.equal(await client.move("b", 3), 1);
      assert.equal(await connect({ db: 3 }).get("b"), "1");
      const monitor = await connect().monitor();
      const seen = new Promise((resolve) => monitor.on("monitor", (_, args) => resolve(args)));
      await client.set("seen", "x");
      assert.deepEqual(await seen, ["set", "seen", "x"]);
      monitor.disconnect();
    });
  });
}
