//! Logs: events with fields, as text or as JSON, one line each, to standard error.
//!
//! No event has a value, the name of a key, or a password: commands are logged by their name, the
//! number of their arguments and their length.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter};

use crate::store::now_millis;

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Time, level, message, and fields as `name=value`.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// The least important events that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Failures that an operator must act on.
    Error,
    /// What may need attention: slow commands, refused clients.
    Warn,
    /// Starts, ends, and changes of the configuration.
    #[default]
    Info,
    /// Connections too.
    Debug,
}

impl LogLevel {
    fn filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        }
    }
}

/// Begins to log to standard error. Does nothing if the process has a logger already.
pub fn start_logging(level: LogLevel, format: LogFormat) {
    let logger = logger(level, format, std::io::stderr);
    // A program that has a logger of its own keeps it.
    let _ = tracing::subscriber::set_global_default(logger);
}

fn logger<W>(
    level: LogLevel,
    format: LogFormat,
    writer: W,
) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt()
        .with_max_level(level.filter())
        .with_ansi(false)
        .with_target(false)
        .with_writer(writer);
    match format {
        LogFormat::Text => Box::new(lines.finish()),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).finish()),
    }
}

/// Most events of one kind in a second.
const RATE_MAX: u64 = 10;

/// Bounds the events that clients can cause. What is left out is counted in the next event.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    second: AtomicU64,
    count: AtomicU64,
    left_out: AtomicU64,
}

impl RateLimit {
    /// Returns the number of events that were left out since the last one, or `None` if this one
    /// is to be left out.
    pub(crate) fn admit(&self) -> Option<u64> {
        self.admit_at(now_millis() / 1000)
    }

    fn admit_at(&self, second: u64) -> Option<u64> {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        if self.count.fetch_add(1, Ordering::Relaxed) < RATE_MAX {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Limits of the events that clients can cause.
#[derive(Debug, Default)]
pub(crate) struct LogLimits {
    /// Connections that were refused.
    pub(crate) refused: RateLimit,
    /// Clients that were ended because of a limit.
    pub(crate) ended: RateLimit,
    /// Wrong passwords.
    pub(crate) passwords: RateLimit,
    /// Slow commands.
    pub(crate) slow: RateLimit,
    /// Failures of the store.
    pub(crate) storage: RateLimit,
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: LogLevel, format: LogFormat) -> String {
        let lines = Lines::default();
        let own = lines.clone();
        tracing::subscriber::with_default(logger(level, format, move || own.clone()), || {
            tracing::info!(addresses = "127.0.0.1:1", "ready");
            tracing::warn!(command = "get", micros = 7, text = "a\nb \"c\"", "slow command");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_event_is_a_line_of_text_or_of_json() {
        let text = logged(LogLevel::Info, LogFormat::Text);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("INFO ready addresses=\"127.0.0.1:1\""), "{text}");
        assert!(text.contains("WARN slow command command=\"get\" micros=7"), "{text}");
        let json = logged(LogLevel::Warn, LogFormat::Json);
        assert_eq!(json.lines().count(), 1, "{json}");
        let event: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(event["level"], "WARN");
        assert_eq!(event["message"], "slow command");
        assert_eq!(event["micros"], 7);
        assert_eq!(event["text"], "a\nb \"c\"");
        assert_eq!(logged(LogLevel::Off, LogFormat::Text), "");
    }

    #[test]
    fn events_beyond_the_rate_are_counted() {
        let limit = RateLimit::default();
        for _ in 0..RATE_MAX {
            assert_eq!(limit.admit_at(5), Some(0));
        }
        assert_eq!(limit.admit_at(5), None);
        assert_eq!(limit.admit_at(5), None);
        assert_eq!(limit.admit_at(6), Some(2));
        assert_eq!(limit.admit_at(6), Some(0));
    }
}
