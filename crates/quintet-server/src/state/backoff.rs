//! Delays of logins after failures, by address.
//!
//! An address that has failed 5 times within a minute gets its next logins one after the other,
//! with a pause before each. The pause is 1 s after the fifth failure, then twice as long, up to
//! 30 s. The pauses of logins that wait at the same time add up. A login that would wait longer
//! than 30 s is refused. A minute without a failure ends the pauses. A login that succeeds does
//! not: a client of the same address must not end the pauses of another that guesses.
//!
//! IPv6 addresses count by their first 64 bits, because a machine often has all addresses below.
//! The table has at most 10,000 addresses. A new one then replaces the one whose last failure is
//! the oldest.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Failures before pauses begin.
const FREE_FAILURES: u32 = 5;
/// Time without a failure after which an address is forgotten.
const WINDOW: Duration = Duration::from_mins(1);
/// The first pause, and the longest one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Most addresses in the table.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
    /// When the next login may go on.
    next: Instant,
}

impl Failures {
    fn pause(&self) -> Duration {
        if self.count < FREE_FAILURES {
            return Duration::ZERO;
        }
        let doublings = (self.count - FREE_FAILURES).min(10);
        PAUSE_MAX.min(PAUSE_FIRST * (1 << doublings))
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.last.max(self.next) + WINDOW
    }
}

/// Failed logins by address.
#[derive(Debug, Default)]
pub(crate) struct Backoff(Mutex<HashMap<IpAddr, Failures>>);

/// What counts as one address. Unix sockets are one.
fn address_key(ip: Option<IpAddr>) -> IpAddr {
    let bits = match ip {
        None => return IpAddr::from([0, 0, 0, 0]),
        Some(IpAddr::V4(ip)) => return ip.into(),
        Some(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
            Some(ip) => return ip.into(),
            None => ip.to_bits(),
        },
    };
    Ipv6Addr::from_bits(bits >> 64 << 64).into()
}

impl Backoff {
    /// Reserves the turn of a login: when it may go on, which is `now` unless others have failed.
    /// `None` if too many wait.
    pub(crate) fn turn(&self, ip: Option<IpAddr>, now: Instant) -> Option<Instant> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = address_key(ip);
        if table.get(&key).is_some_and(|failures| failures.is_over(now)) {
            table.remove(&key);
        }
        let Some(failures) = table.get_mut(&key) else { return Some(now) };
        let pause = failures.pause();
        if pause.is_zero() {
            return Some(now);
        }
        let at = failures.next.max(now) + pause;
        if at > now + PAUSE_MAX {
            return None;
        }
        failures.next = at;
        Some(at)
    }

    /// Counts a failure. Returns how many there are of this address.
    pub(crate) fn failed(&self, ip: Option<IpAddr>, now: Instant) -> u32 {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = address_key(ip);
        if table.len() >= ADDRESSES_MAX && !table.contains_key(&key) {
            let oldest = table.iter().min_by_key(|(_, failures)| failures.last);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                table.remove(&oldest);
            }
        }
        let failures = table.entry(key).or_insert(Failures { count: 0, last: now, next: now });
        if failures.is_over(now) {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        failures.next = failures.next.max(now);
        failures.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn pauses_double_after_five_failures_and_end_after_a_minute() {
        let backoff = Backoff::default();
        let mut now = Instant::now();
        for count in 1..=5 {
            assert_eq!(backoff.turn(Some(ip("10.0.0.1")), now), Some(now));
            assert_eq!(backoff.failed(Some(ip("10.0.0.1")), now), count);
        }
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let at = now + Duration::from_secs(seconds);
            assert_eq!(backoff.turn(Some(ip("10.0.0.1")), now), Some(at));
            now = at;
            backoff.failed(Some(ip("10.0.0.1")), now);
            assert_eq!(backoff.turn(Some(ip("10.0.0.2")), now), Some(now));
            assert_eq!(backoff.turn(None, now), Some(now));
        }
        now += WINDOW;
        assert_eq!(backoff.turn(Some(ip("10.0.0.1")), now), Some(now));
        assert_eq!(backoff.failed(Some(ip("10.0.0.1")), now), 1);
    }

    #[test]
    fn logins_that_wait_at_the_same_time_wait_for_one_another() {
        let backoff = Backoff::default();
        let now = Instant::now();
        for count in 1..=8 {
            assert_eq!(backoff.failed(Some(ip("::ffff:10.0.0.1")), now), count);
        }
        for seconds in [8, 16, 24] {
            let at = now + Duration::from_secs(seconds);
            assert_eq!(backoff.turn(Some(ip("10.0.0.1")), now), Some(at));
        }
        assert_eq!(backoff.turn(Some(ip("10.0.0.1")), now), None);
    }

    #[test]
    fn the_table_is_bounded_and_counts_networks() {
        let backoff = Backoff::default();
        let now = Instant::now();
        for number in 0..u32::try_from(ADDRESSES_MAX).unwrap() + 100 {
            let address = IpAddr::from(number.to_be_bytes());
            backoff.failed(Some(address), now + Duration::from_millis(number.into()));
        }
        assert_eq!(backoff.0.lock().unwrap().len(), ADDRESSES_MAX);
        let later = now + Duration::from_secs(11);
        let count = |text| backoff.failed(Some(ip(text)), later);
        assert_eq!((count("fe80::1"), count("fe80::2"), count("fe80:0:0:1::1")), (1, 2, 1));
    }
}
