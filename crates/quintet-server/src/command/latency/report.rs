//! Reports of latency events as text: a graph of one event, and advice.

use std::fmt::Write as _;

use crate::state::{Event, EventSamples, LatencyMonitor, Slow};

/// The measures against an event.
fn advice(event: Event) -> &'static str {
    match event {
        Event::Command => {
            "SLOWLOG GET names the commands. Use SCAN instead of KEYS, and ranges instead of \
             whole collections."
        }
        Event::FastCommand => {
            "Fast commands read the disk if memory is small for the keys in use, or the \
             machine has too few processors. Compare quintet_table_disk_reads_total."
        }
        Event::Commit => {
            "Writes waited for memory or for a checkpoint. Compare quintet_write_stalls_total, \
             and raise memory-budget."
        }
        Event::Sync => {
            "The disk syncs slowly. Use a faster disk, or appendfsync everysec if the last \
             second may be lost."
        }
        Event::ExpireCycle => "Many keys expire at one moment. Spread their expiries.",
    }
}

/// Columns and rows of a graph.
const GRAPH_COLUMNS: usize = 80;
const GRAPH_ROWS: u64 = 4;

/// Draws samples as columns of characters: the newest at the right, with its age below.
pub(crate) fn graph(event: Event, samples: &EventSamples, now: u64) -> String {
    let skipped = samples.samples.len().saturating_sub(GRAPH_COLUMNS);
    let shown: Vec<Slow> = samples.samples.iter().skip(skipped).copied().collect();
    let all = || shown.iter().map(|slow| slow.millis);
    let (low, high) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
    let mut text = format!(
        "{} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        event.name(),
        samples.longest,
        "-".repeat(GRAPH_COLUMNS)
    );
    // Each column has a height of up to two marks a row.
    let steps = GRAPH_ROWS * 2 - 1;
    let height = |millis: u64| ((millis - low) * steps).checked_div(high - low).unwrap_or(0) + 1;
    for row in (0..GRAPH_ROWS).rev() {
        let line: String = all()
            .map(|millis| match height(millis).saturating_sub(row * 2) {
                0 => ' ',
                1 => '_',
                _ => '#',
            })
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let ages: Vec<Vec<char>> =
        shown.iter().map(|slow| age(now.saturating_sub(slow.second)).chars().collect()).collect();
    let rows = ages.iter().map(Vec::len).max().unwrap_or(0);
    text.push('\n');
    for row in 0..rows {
        let line: String = ages.iter().map(|own| own.get(row).copied().unwrap_or(' ')).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A report of the events with advice.
pub(crate) fn doctor(monitor: &LatencyMonitor, threshold: u64) -> String {
    if threshold == 0 {
        return "No latency events are recorded. Turn them on with CONFIG SET \
                latency-monitor-threshold <milliseconds>.\n"
            .to_owned();
    }
    let all = monitor.all();
    if all.is_empty() {
        return format!("Nothing took {threshold} ms or more.\n");
    }
    let mut text = format!("These events took {threshold} ms or more:\n");
    for (event, own) in all {
        let count = u64::try_from(own.samples.len()).unwrap_or(u64::MAX);
        let sum: u64 = own.samples.iter().map(|slow| slow.millis).sum();
        let mean = sum.checked_div(count).unwrap_or(0);
        // A write to a string cannot fail.
        let _ = writeln!(
            text,
            "\n{}: {count} samples, mean {mean} ms, longest {} ms.\n{}",
            event.name(),
            own.longest,
            advice(event)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_a_column_for_each_sample() {
        let own = LatencyMonitor::of_syncs(1, &[(0, 10), (3000, 40), (3590, 80), (3600, 20)]);
        let text = graph(Event::Sync, &own.samples(Event::Sync), 3600);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "sync - high 80 ms, low 10 ms (all time high 80 ms)");
        assert_eq!(lines[2..6], ["  #", "  #", " ##", "_###"].map(str::to_owned));
        assert_eq!(lines[7..10], ["1110", "h00s", " ms"].map(str::to_owned));
        let flat = LatencyMonitor::of_syncs(1, &[(0, 10), (1, 10)]);
        assert!(graph(Event::Sync, &flat.samples(Event::Sync), 1).contains("\n__\n"));
        let none = EventSamples::default();
        assert!(graph(Event::Sync, &none, 1).starts_with("sync - high 0 ms"));
    }

    #[test]
    fn the_doctor_names_what_was_slow() {
        assert!(doctor(&LatencyMonitor::of_syncs(0, &[]), 0).contains("latency-monitor-threshold"));
        assert!(
            doctor(&LatencyMonitor::of_syncs(10, &[(1, 9)]), 10).contains("Nothing took 10 ms")
        );
        let report = doctor(&LatencyMonitor::of_syncs(10, &[(1, 10), (2, 30)]), 10);
        assert!(report.contains("sync: 2 samples, mean 20 ms, longest 30 ms."), "{report}");
        assert!(report.contains(advice(Event::Sync)), "{report}");
    }
}
