//! The results of a suite as an aligned table with units, and each time as a multiple of the time
//! of `floor`.

use std::fmt::Write as _;

use super::measurement::Measurement;
use crate::{numbers::to_f64, workload::Suite};

/// Cell without a figure.
const DASH: &str = "-";

/// Returns the table, a line on the machine, and the notes.
pub fn render(results: &[Measurement], notes: &[String]) -> String {
    let mut rows = vec![head()];
    let mut previous = "";
    for result in results {
        if result.workload != previous && !previous.is_empty() {
            rows.push(Vec::new());
        }
        previous = &result.workload;
        rows.push(row(result, floor_of(results, result)));
    }
    let used: Vec<bool> = (0..head().len())
        .map(|column| {
            rows.iter().skip(1).any(|row| row.get(column).is_some_and(|cell| cell != DASH))
        })
        .collect();
    for row in &mut rows {
        let mut used = used.iter();
        row.retain(|_| used.next().copied().unwrap_or(false));
    }
    let mut text = align(&rows);
    text.push('\n');
    if let Some(first) = results.first() {
        text.push_str(&settings(first));
        text.push_str(&machine(first, results));
    }
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

fn head() -> Vec<String> {
    [
        "workload",
        "store",
        "ops/s",
        "min..max",
        "ns/op",
        "x floor",
        "p50",
        "p99",
        "p99.9",
        "max",
        "cpu s",
        "load ops/s",
        "resident",
        "peak",
        "index B/key",
        "mem util",
        "write amp",
        "space amp",
        "reopen",
        "errors",
        "aborts",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn row(result: &Measurement, floor: Option<f64>) -> Vec<String> {
    let or_dash = |shown: bool, text: String| if shown { text } else { DASH.to_owned() };
    let persistent = result.disk_bytes > 0;
    let time = to_f64(result.threads) * result.ns_per_operation();
    let recovery = result.recovery;
    vec![
        result.workload.clone(),
        result.name(),
        scaled(result.ops_per_second),
        or_dash(
            result.runs > 1,
            format!("{}..{}", scaled(result.ops_per_second_min), scaled(result.ops_per_second_max)),
        ),
        digits(time),
        floor.map_or(DASH.to_owned(), |floor| format!("{:.2}", result.ns_per_operation() / floor)),
        nanoseconds(result.p50_ns),
        nanoseconds(result.p99_ns),
        nanoseconds(result.p999_ns),
        nanoseconds(result.max_ns),
        format!("{:.2}", result.cpu_seconds),
        scaled(result.load_ops_per_second),
        bytes(result.resident_bytes),
        bytes(result.peak_resident_bytes),
        or_dash(result.index_bytes_per_key > 0.0, format!("{:.1}", result.index_bytes_per_key)),
        or_dash(
            result.suite == Suite::LogKv && result.memory_bytes > 0,
            format!("{:.2}", result.memory_utilisation),
        ),
        or_dash(persistent, format!("{:.2}", result.write_amplification)),
        or_dash(persistent, format!("{:.2}", result.space_amplification)),
        recovery.map_or(DASH.to_owned(), |found| format!("{:.1} ms", found.seconds * 1e3)),
        recovery.map_or(DASH.to_owned(), |found| format!("{:.3} %", found.error_rate * 100.0)),
        result
            .transactions
            .map_or(DASH.to_owned(), |all| format!("{:.2} %", all.abort_rate * 100.0)),
    ]
}

/// Returns the time of `floor` under the same workload.
fn floor_of(results: &[Measurement], result: &Measurement) -> Option<f64> {
    let same = |other: &&Measurement| other.engine == "floor" && other.workload == result.workload;
    results.iter().find(same).map(Measurement::ns_per_operation).filter(|time| *time > 0.0)
}

fn align(rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            match widths.get_mut(column) {
                Some(width) => *width = (*width).max(cell.len()),
                None => widths.push(cell.len()),
            }
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            // Names are left-aligned, figures right-aligned.
            if column < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn settings(result: &Measurement) -> String {
    let sizes: Vec<String> = result.value_bytes.iter().map(usize::to_string).collect();
    let threads = if result.threads == 1 { "thread" } else { "threads" };
    let verified = if result.verified { ", every read checked (slower)" } else { "" };
    format!(
        "{} records, {} operations, {} {threads}, {}keys {} B, values {} B, {}, seed {}, \
         {} run(s), one operation in {} timed{verified}\n",
        result.records,
        result.operations,
        result.threads,
        if result.random_keys { "random " } else { "" },
        result.key_bytes,
        sizes.join("/"),
        result.durability,
        result.seed,
        result.runs,
        result.timed_one_in,
    )
}

fn machine(result: &Measurement, results: &[Measurement]) -> String {
    let machine = &result.machine;
    let text = |part: &Option<String>| part.clone().unwrap_or_else(|| DASH.to_owned());
    let loads = results.iter().filter_map(|result| result.load_average);
    let load = loads.fold(None, |most: Option<f64>, load| Some(most.map_or(load, |m| m.max(load))));
    format!(
        "machine: {}, {} processors, {} memory, Linux {}, huge pages {}, read-ahead {}, \
         fsync p50 {}, clock {} ns, load average up to {}\n",
        text(&machine.cpu),
        machine.cpus.unwrap_or(0),
        bytes(machine.memory_bytes.unwrap_or(0)),
        text(&machine.kernel),
        text(&machine.huge_pages),
        machine.read_ahead_bytes.map_or(DASH.to_owned(), bytes),
        machine.fsync_p50_ns.map_or(DASH.to_owned(), nanoseconds),
        machine.timer_ns,
        load.map_or(DASH.to_owned(), |load| format!("{load:.2}")),
    )
}

/// Formats a figure with about three significant digits.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Formats a figure with `k` or `M` for thousands or millions.
fn scaled(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", digits(value / 1e6)),
        value if value >= 1e3 => format!("{}k", digits(value / 1e3)),
        value => digits(value),
    }
}

fn nanoseconds(time: u64) -> String {
    let value = to_f64(time);
    match time {
        0..1_000 => format!("{time} ns"),
        1_000..1_000_000 => format!("{} us", digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(value / 1e6)),
        _ => format!("{} s", digits(value / 1e9)),
    }
}

fn bytes(count: u64) -> String {
    let value = to_f64(count);
    if count >= 1 << 30 {
        format!("{} GiB", digits(value / to_f64(1 << 30)))
    } else if count >= 1 << 20 {
        format!("{} MiB", digits(value / to_f64(1 << 20)))
    } else {
        format!("{} KiB", digits(value / to_f64(1 << 10)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units_and_few_digits() {
        assert_eq!(scaled(1_234_567.0), "1.23M");
        assert_eq!(scaled(45_678.0), "45.7k");
        assert_eq!(scaled(12.0), "12.0");
        assert_eq!(nanoseconds(999), "999 ns");
        assert_eq!(nanoseconds(1_500), "1.50 us");
        assert_eq!(nanoseconds(2_500_000), "2.50 ms");
        assert_eq!(bytes(3 << 30), "3.00 GiB");
        assert_eq!(bytes(1 << 21), "2.00 MiB");
        assert_eq!(bytes(1 << 19), "512 KiB");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [
            vec!["a".to_owned(), "b".to_owned(), "1".to_owned()],
            vec!["long".to_owned(), "b".to_owned(), "100".to_owned()],
        ];
        assert_eq!(align(&rows), "a     b    1\nlong  b  100\n");
    }
}
