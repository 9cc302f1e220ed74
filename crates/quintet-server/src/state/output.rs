//! Limits of the output that a client has not read yet: `client-output-buffer-limit`.
//!
//! Replies and messages wait in memory until the client reads them. Each class of clients has a
//! hard limit, which ends a client at once, and a soft limit, which ends a client that stays above
//! it for some time. Both come last: a client with output that waits is not read from before, so
//! its requests add nothing.
//!
//! Invariant: each value that a client may write can be read. So a hard limit that is too small
//! for `proto-max-bulk-len` is raised by [`OutputLimit::with_room_for`].

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::number::parse_u64;

/// Bytes that replies of earlier commands of a pipeline may have beside a value.
const ROOM_BYTES: u64 = 1 << 20;

/// Most seconds above the soft limit.
const SECONDS_MAX: u64 = 1_000_000_000;

/// The classes of clients. The server has no replicas; the class exists for tools that set it.
const CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// A class of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputClass {
    /// A client without subscriptions.
    Normal = 0,
    /// A client that has subscribed to channels or patterns.
    Pubsub = 2,
}

/// The limits of a class. 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    /// Bytes at which a client is ended at once.
    pub(crate) hard: u64,
    /// Bytes above which a client may stay for some time only.
    pub(crate) soft: u64,
    /// This time in seconds.
    pub(crate) soft_seconds: u64,
}

/// Why a client is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputExcess {
    /// Its output is above the hard limit.
    Hard,
    /// Its output has been above the soft limit for too long.
    Soft,
}

impl OutputLimit {
    /// The limit of each class by default.
    pub(crate) const DEFAULT: Self = Self { hard: 64 << 20, soft: 16 << 20, soft_seconds: 30 };

    /// The limit with a hard limit that lets a client read a value of `bytes`.
    pub(crate) fn with_room_for(self, bytes: u64) -> Self {
        let hard = if self.hard == 0 { 0 } else { self.hard.max(bytes.saturating_add(ROOM_BYTES)) };
        Self { hard, ..self }
    }

    /// The hard limit as the length of a buffer.
    pub(crate) fn hard_bytes(self) -> usize {
        if self.hard == 0 { usize::MAX } else { usize::try_from(self.hard).unwrap_or(usize::MAX) }
    }

    /// Checks `bytes` of output. `since` is when the output came above the soft limit; it is set
    /// and reset here. Whether the client must end, and why.
    pub(crate) fn check(
        self,
        bytes: u64,
        since: &mut Option<Instant>,
        now: Instant,
    ) -> Option<OutputExcess> {
        if self.hard > 0 && bytes > self.hard {
            return Some(OutputExcess::Hard);
        }
        if self.soft == 0 || bytes <= self.soft {
            *since = None;
            return None;
        }
        let start = *since.get_or_insert(now);
        let is_late =
            now.saturating_duration_since(start) >= Duration::from_secs(self.soft_seconds);
        is_late.then_some(OutputExcess::Soft)
    }

    /// The moment at which output that has been above the soft limit `since` ends the client.
    pub(crate) fn soft_deadline(self, since: Option<Instant>) -> Option<Instant> {
        since?.checked_add(Duration::from_secs(self.soft_seconds))
    }
}

/// The limits of all classes. They change at run time.
#[derive(Debug)]
pub(crate) struct OutputLimits([[AtomicU64; 3]; 3]);

impl Default for OutputLimits {
    fn default() -> Self {
        let OutputLimit { hard, soft, soft_seconds } = OutputLimit::DEFAULT;
        Self([(); 3].map(|()| [hard, soft, soft_seconds].map(AtomicU64::new)))
    }
}

impl OutputLimits {
    /// The limits of a class.
    pub(crate) fn of(&self, class: OutputClass) -> OutputLimit {
        let Self([normal, _, pubsub]) = self;
        let [hard, soft, seconds] = match class {
            OutputClass::Normal => normal,
            OutputClass::Pubsub => pubsub,
        };
        OutputLimit {
            hard: hard.load(Ordering::Relaxed),
            soft: soft.load(Ordering::Relaxed),
            soft_seconds: seconds.load(Ordering::Relaxed),
        }
    }

    /// Changes the classes that `text` names. Fails with the reason, and then nothing is changed.
    pub(crate) fn set(&self, text: &str) -> Result<(), String> {
        self.apply(&Self::parse(text)?);
        Ok(())
    }

    /// Parses `CLASS HARD SOFT SECONDS`, again for each class: positions of classes with their
    /// limits. A size may have a unit, such as `64mb`. Fails with the reason.
    pub(crate) fn parse(text: &str) -> Result<Vec<(usize, [u64; 3])>, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (groups, rest) = words.as_chunks::<4>();
        if !rest.is_empty() {
            return Err("Wrong number of arguments in buffer limit configuration: it needs a \
                        class, a hard limit, a soft limit and seconds."
                .to_owned());
        }
        let mut parsed = Vec::new();
        for [class, hard, soft, seconds] in groups {
            let class = class.to_ascii_lowercase();
            let class = if class == "replica" { "slave" } else { &class };
            let at = CLASSES.iter().position(|own| *own == class).ok_or(
                "Invalid client class specified in buffer limit configuration: it is normal, \
                 replica or pubsub.",
            )?;
            let size = |word: &&str| {
                parse_memory(word).ok_or_else(|| format!("{word:?} is not a number of bytes"))
            };
            let seconds =
                parse_u64(seconds.as_bytes())
                    .filter(|seconds| *seconds <= SECONDS_MAX)
                    .ok_or_else(|| format!("{seconds:?} is not 0 to {SECONDS_MAX} seconds"))?;
            parsed.push((at, [size(hard)?, size(soft)?, seconds]));
        }
        Ok(parsed)
    }

    /// Changes the classes of [`Self::parse`].
    pub(crate) fn apply(&self, parsed: &[(usize, [u64; 3])]) {
        for (at, values) in parsed {
            for (own, value) in self.0.get(*at).into_iter().flatten().zip(values) {
                own.store(*value, Ordering::Relaxed);
            }
        }
    }
}

impl fmt::Display for OutputLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, [hard, soft, seconds])) in CLASSES.iter().zip(&self.0).enumerate() {
            let space = if at == 0 { "" } else { " " };
            let [hard, soft, seconds] =
                [hard, soft, seconds].map(|own| own.load(Ordering::Relaxed));
            write!(f, "{space}{name} {hard} {soft} {seconds}")?;
        }
        Ok(())
    }
}

/// Parses a number of bytes as Redis does: `k`, `m` and `g` are powers of 1000, and `kb`, `mb` and
/// `gb` are powers of 1024. `None` if it is none or too large.
pub(crate) fn parse_memory(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let factor = match unit {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    parse_u64(digits.as_bytes())?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_class_as_a_whole() {
        let limits = OutputLimits::default();
        let all = "67108864 16777216 30";
        assert_eq!(limits.to_string(), format!("normal {all} slave {all} pubsub {all}"));
        limits.set("PUBSUB 32mb 8MB 60 replica 1k 2g 0").unwrap();
        let shown = format!("normal {all} slave 1000 2000000000 0 pubsub 33554432 8388608 60");
        assert_eq!(limits.to_string(), shown);
        for wrong in [
            "normal 1 2",
            "other 1 2 3",
            "normal 1 2 3 pubsub x 2 3",
            "normal 1 2 -3",
            "normal -1 2 3",
        ] {
            assert!(limits.set(wrong).is_err(), "{wrong}");
        }
        assert_eq!(limits.to_string(), shown, "a wrong text changes nothing");
        limits.set("").unwrap();
        assert_eq!(limits.of(OutputClass::Pubsub).hard, 32 << 20);
        assert_eq!(limits.of(OutputClass::Normal), OutputLimit::DEFAULT);
    }

    #[test]
    fn a_value_of_the_longest_size_can_be_read() {
        let limit = OutputLimit::DEFAULT;
        assert_eq!(limit.with_room_for(1 << 20), limit);
        assert_eq!(limit.with_room_for(64 << 20).hard, 65 << 20);
        assert_eq!(OutputLimit { hard: 0, ..limit }.with_room_for(64 << 20).hard, 0);
    }

    #[test]
    fn the_soft_limit_needs_time_and_the_hard_limit_none() {
        let limit = OutputLimit { hard: 100, soft: 10, soft_seconds: 30 };
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut since = None;
        assert_eq!(limit.check(10, &mut since, start), None);
        assert_eq!(limit.soft_deadline(since), None);
        assert_eq!(limit.check(11, &mut since, start), None);
        assert_eq!(limit.soft_deadline(since), Some(after(30)));
        assert_eq!(limit.check(100, &mut since, after(29)), None);
        assert_eq!(limit.check(11, &mut since, after(30)), Some(OutputExcess::Soft));
        assert_eq!(limit.check(10, &mut since, after(31)), None, "the time begins anew");
        assert_eq!(limit.check(11, &mut since, after(32)), None);
        assert_eq!(limit.check(11, &mut since, after(61)), None);
        assert_eq!(limit.check(101, &mut since, after(33)), Some(OutputExcess::Hard));
        let off = OutputLimit { hard: 0, soft: 0, soft_seconds: 0 };
        assert_eq!(off.check(u64::MAX, &mut since, after(99)), None);
    }

    #[test]
    fn sizes_have_the_units_of_redis() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("7b", Some(7)),
            ("1k", Some(1000)),
            ("1KB", Some(1024)),
            ("2m", Some(2_000_000)),
            ("2mb", Some(2 << 20)),
            ("3g", Some(3_000_000_000)),
            ("3Gb", Some(3 << 30)),
            ("", None),
            ("mb", None),
            ("-1", None),
            ("1tb", None),
            ("99999999999999999gb", None),
        ] {
            assert_eq!(parse_memory(text), bytes, "{text:?}");
        }
    }
}
