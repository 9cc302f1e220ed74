//! Latency of a server at a given rate: requests at fixed times on many connections.
//!
//! `redis-benchmark` sends the next request when the reply to the last one has come. So a server
//! that stops for a moment gets fewer requests in it. Here each request is due at its time. Its
//! latency counts from then, also if the connection was still waiting.
//!
//! ```sh
//! cargo run --release -p quintet-server --example equal_rate -- 127.0.0.1:6379 20000 30
//! ```
//!
//! The arguments are the address, requests a second, and seconds. 50 connections send one `SET` for
//! ten `GET`s, as memtier does, of values of 32 bytes and a million keys.

use std::{
    error::Error,
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

/// Connections, each with a thread.
const CONNECTIONS: u32 = 50;
/// Keys that requests use.
const KEYS: u64 = 1_000_000;
/// Longest wait for a reply.
const REPLY_TIME: Duration = Duration::from_secs(30);
/// One request in this many is a `SET`.
const SET_PART: u64 = 11;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

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

fn request(random: &mut Random) -> String {
    let key = format!("key:{:012}", random.below(KEYS));
    if random.below(SET_PART) == 0 {
        let value = "v".repeat(32);
        format!("*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n$32\r\n{value}\r\n")
    } else {
        format!("*2\r\n$3\r\nGET\r\n$16\r\n{key}\r\n")
    }
}

/// Reads one reply: a line, and the bulk that it announces.
fn read_reply(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Outcome<()> {
    buffer.clear();
    let mut chunk = [0; 512];
    loop {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Err("the server closed the connection".into());
        }
        buffer.extend_from_slice(&chunk[..count]);
        let Some(end) = buffer.windows(2).position(|two| two == b"\r\n") else { continue };
        let line = std::str::from_utf8(&buffer[..end])?;
        let length = match line.split_at_checked(1) {
            Some(("+", _) | ("$", "-1")) => 0,
            Some(("$", length)) => length.parse::<usize>()? + 2,
            _ => return Err(format!("the reply is {line}").into()),
        };
        if buffer.len() >= end + 2 + length {
            return Ok(());
        }
    }
}

/// Sends the requests of one connection. Returns their latencies in microseconds.
fn run(
    address: &str,
    number: u32,
    begin: Instant,
    period: Duration,
    count: u32,
) -> Outcome<Vec<u32>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    // A server that does not reply is an error.
    stream.set_read_timeout(Some(REPLY_TIME))?;
    let (mut random, mut buffer) = (Random(u64::from(number) * 7919 + 1), Vec::new());
    let mut latencies = Vec::new();
    for step in 0..count {
        // Connections take turns.
        let due = begin + period * step + period * number / CONNECTIONS;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(request(&mut random).as_bytes())?;
        read_reply(&mut stream, &mut buffer)?;
        latencies.push(u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    Ok(latencies)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, rate, seconds] = arguments.as_slice() else {
        return Err("the arguments are: ADDRESS REQUESTS_PER_SECOND SECONDS".into());
    };
    let (rate, seconds): (u32, u32) = (rate.parse()?, seconds.parse()?);
    if rate < CONNECTIONS {
        return Err(format!("the rate is at least {CONNECTIONS}, one for each connection").into());
    }
    let period = Duration::from_secs(1) * CONNECTIONS / rate;
    let requests = rate.checked_mul(seconds).ok_or("there are too many requests")?;
    let count = requests / CONNECTIONS;
    let begin = Instant::now() + Duration::from_millis(200);
    let mut latencies = thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|number| scope.spawn(move || run(address, number, begin, period, count)))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Outcome::Ok(all)
    })?;
    let elapsed = begin.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |per_mille: usize| latencies.get(latencies.len() * per_mille / 1000).copied();
    let parts = [500, 990, 999].map(|part| at(part).unwrap_or_default());
    println!(
        "{} requests in {elapsed:.1} s; p50 {} us, p99 {} us, p99.9 {} us, longest {} us",
        latencies.len(),
        parts[0],
        parts[1],
        parts[2],
        latencies.last().copied().unwrap_or_default(),
    );
    Ok(())
}
