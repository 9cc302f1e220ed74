//! Random commands, each with its seed.

/// A generator of random numbers (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[usize::try_from(self.below(items.len() as u64)).unwrap()]
    }
}

/// Shapes of commands. `K` is a key, `L S Z H T` a key that usually has a list, set, sorted set,
/// hash or string. `V` is a value, `N` a small number, `F` a score, `B` an end of scores. `E` is an
/// end of members, `D` a direction, `U` a bit.
const SHAPES: &[&str] = &[
    "set T V",
    "set T V nx",
    "set T V xx get",
    "set T V keepttl",
    "set T V ex 900",
    "get T",
    "getset T V",
    "getdel T",
    "getex T persist",
    "getex T ex 800",
    "append T V",
    "strlen T",
    "setrange T N V",
    "getrange T N N",
    "substr T N N",
    "setnx T V",
    "mset T V T V",
    "msetnx T V K V",
    "mget T T K",
    "incr T",
    "decr T",
    "incrby T N",
    "decrby T N",
    "setex T 900 V",
    "psetex T 900000 V",
    "set T N",
    "incrbyfloat T N",
    "lcs T T",
    "lcs T T len",
    "lcs T T idx withmatchlen",
    "set T",
    "setbit T N U",
    "getbit T N",
    "bitcount T",
    "bitcount T N N",
    "bitcount T N N bit",
    "bitpos T U",
    "bitpos T U N",
    "bitpos T U N N",
    "bitpos T U N N bit",
    "bitop and T T T",
    "bitop or T T K",
    "bitop xor T T T",
    "bitop not T T",
    "bitfield T set u8 N N get i8 N",
    "bitfield T incrby i5 #N N overflow sat incrby u4 N N overflow fail incrby i7 N N",
    "bitfield_ro T get u13 N",
    "del K",
    "del K K",
    "unlink K",
    "exists K K T",
    "type K",
    "touch K T",
    "expire K 100",
    "expire K 100 nx",
    "expireat K 33177117421 gt",
    "expireat K 33177117419 lt",
    "expire K 70 xx",
    "expire K 10 nx gt",
    "expire K -1",
    "persist K",
    "ttl K",
    "pttl Q",
    "expireat K 33177117420",
    "pexpireat K 33177117420000",
    "expiretime K",
    "pexpiretime K",
    "rename K K",
    "renamenx K K",
    "copy K K",
    "copy K K replace",
    "move K 1",
    "dbsize",
    "randomkey Q",
    "lpush L V",
    "lpush L V V V",
    "rpush L V V",
    "lpushx L V",
    "rpushx L V",
    "lpop L",
    "rpop L",
    "lpop L N",
    "rpop L N",
    "llen L",
    "lindex L N",
    "lset L N V",
    "lrange L N N",
    "lrange L 0 -1",
    "ltrim L N N",
    "lrem L N V",
    "linsert L before V V",
    "linsert L after V V",
    "lpos L V",
    "lpos L V rank N",
    "lpos L V count N",
    "lpos L V rank -1 count 0 maxlen N",
    "lmove L L D D",
    "rpoplpush L L",
    "lmpop 2 L L D",
    "lmpop 1 L D count N",
    "blpop L L 0.01",
    "blmove L L D D 0.01",
    "sadd S V",
    "sadd S V V V N N",
    "srem S V",
    "srem S V V",
    "scard S",
    "sismember S V",
    "smismember S V V V",
    "smembers S",
    "smove S S V",
    "sinter S S",
    "sunion S S S",
    "sdiff S S",
    "sinterstore S S S",
    "sunionstore S S S",
    "sdiffstore S S S",
    "sintercard 2 S S",
    "sintercard 2 S S limit N",
    "spop Q",
    "srandmember Q",
    "hset H V V",
    "hset H V V V V",
    "hsetnx H V V",
    "hget H V",
    "hmget H V V V",
    "hgetall H",
    "hkeys H",
    "hvals H",
    "hlen H",
    "hexists H V",
    "hdel H V",
    "hdel H V V",
    "hstrlen H V",
    "hincrby H V N",
    "hincrbyfloat H V N",
    "hmset H V V",
    "hset H V",
    "zadd Z F V",
    "zadd Z F V F V F V",
    "zadd Z nx F V",
    "zadd Z xx ch F V",
    "zadd Z gt F V",
    "zadd Z lt ch F V F V",
    "zadd Z incr F V",
    "zadd Z nx gt F V",
    "zincrby Z F V",
    "zrem Z V V",
    "zscore Z V",
    "zmscore Z V V",
    "zcard Z",
    "zcount Z B B",
    "zrank Z V",
    "zrevrank Z V",
    "zrange Z N N",
    "zrange Z 0 -1 withscores",
    "zrange Z N N rev withscores",
    "zrange Z B B byscore",
    "zrange Z B B byscore rev limit 1 N",
    "zrevrange Z N N",
    "zrangebyscore Z B B",
    "zrangebyscore Z B B withscores limit N N",
    "zrevrangebyscore Z B B",
    "zpopmin Z",
    "zpopmax Z N",
    "zmpop 2 Z Z min",
    "zmpop 1 Z max count N",
    "zrangestore Z Z N N",
    "zremrangebyrank Z N N",
    "zremrangebyscore Z B B",
    "zunionstore Z 2 Z Z",
    "zunionstore Z 2 Z S weights F N aggregate max",
    "zinterstore Z 2 Z Z aggregate min",
    "zunion 2 Z Z withscores",
    "zinter 2 Z Z withscores",
    "zdiff 2 Z Z withscores",
    "zdiffstore Z 2 Z Z",
    "zintercard 2 Z Z",
    "bzpopmin Z Z 0.01",
    "zadd Y 0 V 0 V",
    "zrangebylex Y E E",
    "zrevrangebylex Y E E limit 0 N",
    "zlexcount Y E E",
    "zremrangebylex Y E E",
    "zrange Y E E bylex",
    "pfadd P V V V",
    "pfadd P V",
    "pfcount P P",
    "pfcount P",
    "pfmerge P P P",
    "pfcount T",
    "geoadd G 13.361389 38.115556 V",
    "geoadd G 15.087269 37.502669 V",
    "geoadd G nx ch 2.35 48.85 V -0.12 51.5 V",
    "geodist G V V km",
    "geopos G V V",
    "geohash G V V",
    "geosearch G fromlonlat 15 37 byradius 200 km asc withdist withhash",
    "geosearch G fromlonlat 5 45 bybox 3000 2000 km desc withcoord",
    "geosearch G frommember V byradius 900 km asc",
    "geosearchstore G G fromlonlat 15 37 byradius 2000 km asc",
    "georadius G 15 37 2000 km asc withdist",
    "georadiusbymember G V 1500 km desc",
    "geoadd G 200 90 V",
    "sort L alpha",
    "sort L",
    "sort S alpha desc limit 1 N",
    "sort Z alpha store l1",
    "xadd X 0-* V V",
    "xadd X 5-* V V V V",
    "xadd X 1-1 V V",
    "xadd X maxlen 10 7-* V V",
    "xadd X nomkstream 8-* V V",
    "xadd X 9-*",
    "xlen X",
    "xrange X - +",
    "xrange X 5 + count N",
    "xrange X (5-1 7-2",
    "xrevrange X + - count 3",
    "xdel X 5-1 5-N",
    "xtrim X maxlen 5",
    "xtrim X minid 5-3",
    "xread count 2 streams X X 0 5-1",
    "xread streams X $",
    "xread block 1 streams X $",
    "xgroup create X r1 0",
    "xgroup create X r2 $ mkstream",
    "xgroup setid X r1 5",
    "xgroup destroy X r2",
    "xgroup createconsumer X r1 c1",
    "xgroup delconsumer X r1 c2",
    "xreadgroup group r1 c1 count 2 streams X >",
    "xreadgroup group r1 c2 count 3 streams X >",
    "xreadgroup group r2 c2 noack streams X >",
    "xreadgroup group r1 c1 streams X 0",
    "xack X r1 5-1 5-2 0-1",
    "xpending X r1",
    "xpending X r1 - + 10 c3",
    "xclaim X r1 c2 0 5-1 5-2 5-3",
    "xclaim X r1 c1 0 0-1 force justid",
    "xautoclaim X r1 c2 0 - count 2",
    "xautoclaim X r1 c1 0 0 justid",
    "xinfo groups X",
    "xsetid X 99-1",
    "del X",
    "nosuch V",
    "get",
    "set T V bad",
    "expire K V",
    "lrange L V N",
    "hincrby H V V",
    "zadd Z V V",
    "select 99",
    "object nosuch K",
    "flushdb bad",
    "echo V",
    "ping",
    "ping V",
];

/// Strings that the generator writes: numbers, words, and binary.
const VALUES: &[&str] =
    &["a", "b", "c", "d", "1", "2", "-3", "10", "3.5", "0", "hello", "x\r\ny", "", "zz", "A"];

fn key(random: &mut Random, prefix: &str) -> Vec<u8> {
    // Sometimes a key of another type, for WRONGTYPE.
    let prefix =
        if random.below(40) == 0 { random.pick(&["t", "l", "s", "z", "h"]) } else { prefix };
    format!("{prefix}{}", random.below(3)).into_bytes()
}

/// A random command.
pub(crate) fn command(random: &mut Random) -> Vec<Vec<u8>> {
    let shape = random.pick(SHAPES);
    let mut args: Vec<Vec<u8>> = Vec::new();
    for word in shape.split(' ') {
        args.push(match word {
            "K" => {
                let prefix = random.pick(&["t", "l", "s", "z", "h"]);
                key(random, prefix)
            }
            "T" | "L" | "S" | "Z" | "H" => key(random, &word.to_lowercase()),
            "Y" => format!("y{}", random.below(2)).into_bytes(),
            "P" => format!("p{}", random.below(2)).into_bytes(),
            "G" => b"g".to_vec(),
            "X" => format!("x{}", random.below(2)).into_bytes(),
            "Q" => b"nothing-has-this-key".to_vec(),
            "V" if random.below(4) == 0 => format!("m{}", random.below(200)).into_bytes(),
            "V" => random.pick(VALUES).as_bytes().to_vec(),
            "N" => (random.below(14).cast_signed() - 4).to_string().into_bytes(),
            "#N" => format!("#{}", random.below(10)).into_bytes(),
            "U" => random.below(2).to_string().into_bytes(),
            "D" => random.pick(&["left", "right"]).as_bytes().to_vec(),
            "F" => random.pick(&["1", "2", "2.5", "-1", "1e3", "0.1", "7"]).as_bytes().to_vec(),
            "B" => random.pick(&["-inf", "+inf", "1", "(1", "2.5", "(3", "0"]).as_bytes().to_vec(),
            "E" => random.pick(&["-", "+", "[a", "(b", "[m1", "(zz", "bad"]).as_bytes().to_vec(),
            other => other.as_bytes().to_vec(),
        });
    }
    if args[0] == b"randomkey" {
        args.truncate(1);
        args[0] = b"dbsize".to_vec();
    }
    args
}

/// A random command that lets no key expire while a test runs.
pub(crate) fn lasting_command(random: &mut Random) -> Vec<Vec<u8>> {
    loop {
        let args = command(random);
        let seconds = args.get(2).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let is_short = seconds.is_some_and(|seconds: i64| (1..70).contains(&seconds));
        if args[0] != b"expire" || !is_short {
            return args;
        }
    }
}
