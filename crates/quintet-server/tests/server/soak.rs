//! A soak: mixed commands for minutes, and a server that does not grow. `just server-soak 5`.
//!
//! The server is a process of its own, so its memory, files and threads are its own too.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use super::{
    client::{Client, Value, encode},
    durability::start_child,
    running::config,
};

/// Connections that run mixed commands.
const WRITERS: usize = 4;

/// Keys of each type that a writer uses.
const KEYS: u64 = 20_000;

/// Commands of a pipeline.
const PIPELINE: usize = 16;

/// Anonymous memory of the process beyond the budget: connections, the allocator, the runtime.
const BEYOND_BUDGET: u64 = 64 << 20;

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// One command of a writer, on keys of all types.
fn command(random: &mut Random) -> Vec<String> {
    let key = random.below(KEYS);
    let value = "v".repeat(1 + usize::try_from(random.below(900)).unwrap());
    let text = match random.below(16) {
        0..3 => format!("set s:{key} {value}"),
        3 => format!("set e:{key} {value} px {}", 1 + random.below(3000)),
        4..6 => format!("get s:{key}"),
        6 => format!("hset h:{} f{} {value}", key % 300, random.below(60)),
        7 => format!("hgetall h:{}", key % 300),
        8 => format!("zadd z:{} {key} m{}", key % 300, random.below(300)),
        9 => format!("zrangebyscore z:{} 0 {key} limit 0 10", key % 300),
        10 => format!("lpush l:{} {value}", key % 300),
        11 => format!("ltrim l:{} 0 40", key % 300),
        12 => format!("xadd x:{} maxlen 50 * f {value}", key % 100),
        13 => format!("sadd t:{} {key}", key % 300),
        14 => format!("spop t:{}", key % 300),
        _ => format!("del s:{key} e:{key}"),
    };
    text.split(' ').map(str::to_owned).collect()
}

/// Runs mixed commands until `end`. Returns how often it has counted.
fn write_mixed(port: u16, writer: usize, end: Instant) -> i64 {
    let mut client = Client::connect(port);
    let mut random = Random(0x9e37_79b9_7f4a_7c15 + u64::try_from(writer).unwrap());
    let mut count = 0;
    while Instant::now() < end {
        let mut requests = vec![encode(&["incr", &format!("count:{writer}")])];
        let is_transaction = random.below(8) == 0;
        let commands = (0..PIPELINE).map(|_| encode(&command(&mut random)));
        if is_transaction {
            requests.push(encode(&["multi"]));
        }
        requests.extend(commands);
        if is_transaction {
            requests.push(encode(&["exec"]));
        }
        client.send(&requests.concat());
        count += 1;
        assert_eq!(client.read(), Value::Integer(count));
        for _ in 1..requests.len() {
            let reply = client.read();
            assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
        }
    }
    count
}

/// Clients that wait for elements, and whose waits end in time.
fn wait_for_elements(port: u16, end: Instant) {
    let mut client = Client::connect(port);
    let mut pusher = Client::connect(port);
    while Instant::now() < end {
        client.send(&encode(&["blpop", "queue", "other", "5"]));
        assert!(matches!(pusher.call("rpush queue element"), Value::Integer(_)));
        assert!(matches!(client.read(), Value::Array(_)));
        assert_eq!(client.call("bzpopmin nothing 0.02"), Value::Null);
    }
}

/// Clients that come and go: at once, within a command, within a transaction, subscribed, blocked.
fn come_and_go(port: u16, end: Instant) {
    while Instant::now() < end {
        for request in [
            &b"PING\r\n"[..],
            b"*3\r\n$3\r\nSET\r\n$100000\r\nhalf",
            b"MULTI\r\nSET k v\r\n",
            b"SUBSCRIBE channel\r\n",
            b"WATCH k\r\n",
            b"BLPOP nothing 0\r\n",
        ] {
            Client::connect(port).send(request);
        }
        let mut publisher = Client::connect(port);
        assert!(matches!(publisher.call("publish channel message"), Value::Integer(_)));
    }
}

/// What the process has.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    anonymous_bytes: u64,
    used_bytes: u64,
    files: u64,
    threads: u64,
}

impl Sample {
    fn take(process: u32, client: &mut Client) -> Self {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let number = |text: &str, name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap().trim().split(' ').next().unwrap().parse().unwrap()
        };
        let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
        let info = client.call("info memory").text();
        Self {
            anonymous_bytes: number(&status, "RssAnon") * 1024,
            used_bytes: number(&info, "used_memory"),
            files: u64::try_from(files).unwrap(),
            threads: number(&status, "Threads"),
        }
    }

    fn most(samples: &[Self]) -> Self {
        samples.iter().fold(Self::default(), |most, one| Self {
            anonymous_bytes: most.anonymous_bytes.max(one.anonymous_bytes),
            used_bytes: most.used_bytes.max(one.used_bytes),
            files: most.files.max(one.files),
            threads: most.threads.max(one.threads),
        })
    }
}

/// Waits until no key is left that had an expiry.
fn wait_for_expiry(client: &mut Client) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while client.call("keys e:*") != Value::Array(Vec::new()) {
        assert!(Instant::now() < deadline, "keys are left that have expired");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "takes minutes; `just server-soak 5` runs it"]
fn a_server_under_mixed_load_does_not_grow() {
    let minutes: u64 =
        std::env::var("QUINTET_SOAK_MINUTES").map_or(1, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let (mut child, port) = start_child(dir.path());
    let mut client = Client::connect(port);
    let end = Instant::now() + Duration::from_mins(minutes);
    let (counts, samples) = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write_mixed(port, writer, end)))
            .collect();
        scope.spawn(move || wait_for_elements(port, end));
        scope.spawn(move || come_and_go(port, end));
        let mut samples = Vec::new();
        while Instant::now() < end {
            samples.push(Sample::take(child.id(), &mut client));
            thread::sleep(Duration::from_millis(500));
        }
        let counts: Vec<i64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        (counts, samples)
    });
    wait_for_expiry(&mut client);
    let quarter = samples.len() / 4;
    let (all, early) = (Sample::most(&samples), Sample::most(&samples[quarter..2 * quarter]));
    let late = Sample::most(&samples[3 * quarter..]);
    let pipelines: i64 = counts.iter().sum();
    println!("{minutes} minutes, {pipelines} pipelines of {PIPELINE} commands and more");
    println!("most: {all:?}\nsecond quarter: {early:?}\nlast quarter: {late:?}");
    let budget = config().memory_budget.unwrap();
    assert!(all.used_bytes <= budget, "{all:?}");
    assert!(all.anonymous_bytes <= budget + BEYOND_BUDGET, "{all:?}");
    // Clients come and go, and the store opens and closes files, so there is some slack.
    assert!(late.files <= early.files + 16, "files: {early:?}, {late:?}");
    assert!(late.threads <= early.threads + 2, "threads: {early:?}, {late:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    // A process again: a recovery beside other work may take longer than tests otherwise allow.
    let start = Instant::now();
    let (mut child, port) = start_child(dir.path());
    println!("recovery: {:.1} s", start.elapsed().as_secs_f64());
    let mut client = Client::connect(port);
    for (writer, count) in counts.iter().enumerate() {
        assert_eq!(client.call(&format!("get count:{writer}")).text(), count.to_string());
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
