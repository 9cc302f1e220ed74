//! Summary, machine, limits, stores, and failures.

use crate::{
    machine::{Machine, spread},
    numbers::to_f64,
};

use super::{
    comparison::comparisons,
    document::{Document, Mark, Table, TableCell},
    input::ReportInput,
    model::{CaseGroup, Spread},
    units,
};
use crate::{
    limits::{Limits, LimitsRecord},
    machine::Conditions,
    result::RunResult,
    store::{Family, StoreInfo},
};

/// A slower sync was measured beside other work. Such runs say little about stores that sync.
const FSYNC_SLOW_NS: u64 = 1_000_000;

/// Adds the summary of wins and losses.
pub(super) fn add_summary(groups: &[CaseGroup<'_>], to: &mut Document) {
    to.heading(2, "Summary");
    let mut names: Vec<&str> = Vec::new();
    for (_, _, ours, _, _) in comparisons(groups) {
        if !names.contains(&ours.store.name.as_str()) {
            names.push(&ours.store.name);
        }
    }
    let mut table =
        Table::new(1, &["store", "comparisons with peers", "faster", "slower", "median ratio"]);
    let mut lost = Table::new(4, &["run", "workload", "store", "peer", "ratio"]);
    for name in names {
        let mut ratios = Vec::new();
        for (group, case, ours, peer, ratio) in comparisons(groups) {
            if ours.store.name != name {
                continue;
            }
            ratios.push(ratio.median);
            if ratio.median < 1.0 {
                lost.row(vec![
                    group.title().into(),
                    case.label.clone().into(),
                    name.into(),
                    (&*peer.store.name).into(),
                    lost_entry(ratio),
                ]);
            }
        }
        let slower = ratios.iter().filter(|ratio| **ratio < 1.0).count();
        table.row(vec![
            name.into(),
            ratios.len().to_string().into(),
            (ratios.len() - slower).to_string().into(),
            TableCell {
                text: slower.to_string(),
                mark: if slower > 0 { Mark::Loses } else { Mark::None },
                ..TableCell::default()
            },
            units::ratio(spread(&ratios).0).into(),
        ]);
    }
    if table.rows.is_empty() {
        to.text("No store of ours ran beside a peer.");
        return;
    }
    to.text(
        "Throughput of each of our engines against each peer under the same workload and settings. \
         Every comparison that was lost is listed.",
    );
    to.table(table);
    to.table(lost);
}

fn lost_entry(ratio: Spread) -> TableCell {
    let note = if ratio.greatest >= 1.0 { "within the spread" } else { "" };
    TableCell { text: units::ratio(ratio.median), note: note.to_owned(), mark: Mark::Loses }
}

/// Adds the machine and its conditions.
pub(super) fn add_machine(input: &ReportInput, to: &mut Document) {
    to.heading(2, "Machine");
    let mut known: Vec<(Machine, Vec<&RunResult>)> = Vec::new();
    for run in &input.runs {
        // Values measured anew for each run are not properties of the machine.
        let machine = Machine { fsync_p50_ns: None, timer_ns: 0, ..run.machine.clone() };
        match known.iter_mut().find(|(other, _)| *other == machine) {
            Some((_, runs)) => runs.push(run),
            None => known.push((machine, vec![run])),
        }
    }
    if known.len() > 1 {
        to.text("These results are of more than one machine: compare within a run only.");
    }
    for (machine, runs) in &known {
        to.table(machine_table(machine, runs));
    }
    let far = input.runs.iter().filter(|run| run.machine.reads_far_ahead()).count();
    if far > 0 {
        to.text(format!(
            "In {far} of {} runs the disk read more than the usual 128 KiB ahead: stores that map \
             their files read as much around each page they miss, and look slow where memory is \
             short.",
            input.runs.len()
        ));
    }
    let slow =
        |run: &&RunResult| run.conditions.fsync_p50_ns.is_some_and(|time| time > FSYNC_SLOW_NS);
    let slow = input.runs.iter().filter(slow).count();
    if slow > 0 {
        to.text(format!(
            "In {slow} of {} runs a bare fdatasync took more than 1 ms: the disk was busy with \
             other work, and figures that contain syncs say little.",
            input.runs.len()
        ));
    }
    for record in &input.limits {
        to.heading(3, "Limits of the machine");
        to.text(format!(
            "Measured at {} UTC by bare loops, in run {}; load average {} before.",
            units::moment(record.measured_unix_ms),
            record.run_id,
            record.limits.load_average_before.map_or(units::NONE.to_owned(), units::digits),
        ));
        to.table(limits_table(record));
    }
}

fn machine_table(machine: &Machine, runs: &[&RunResult]) -> Table {
    let mut table = Table::new(2, &["what", "value"]);
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| units::NONE.to_owned());
    let over = |figure: fn(&Conditions) -> Option<f64>, format: fn(f64) -> String| {
        let figures: Vec<f64> = runs.iter().filter_map(|run| figure(&run.conditions)).collect();
        if figures.is_empty() {
            return units::NONE.to_owned();
        }
        let (median, least, greatest) = spread(&figures);
        format!("{} ({} to {})", format(median), format(least), format(greatest))
    };
    let iops = |value: f64| format!("{} reads/s", units::scaled(value));
    let times = || runs.iter().map(|run| run.started_unix_ms);
    let mut built: Vec<&str> = runs.iter().map(|run| run.built.as_str()).collect();
    built.sort_unstable();
    built.dedup();
    let rows = [
        ("processor", text(&machine.cpu)),
        ("processors", machine.cpus.map_or(units::NONE.to_owned(), |count| count.to_string())),
        (
            "memory",
            machine.memory_bytes.map_or(units::NONE.to_owned(), |all| units::bytes(to_f64(all))),
        ),
        ("kernel", text(&machine.kernel)),
        ("transparent huge pages", text(&machine.huge_pages)),
        (
            "read-ahead of the disk",
            machine.read_ahead_bytes.map_or(units::NONE.to_owned(), units::size),
        ),
        ("built", built.join("; ")),
        (
            "runs",
            format!(
                "{}, started {} to {} UTC",
                runs.len(),
                units::moment(times().min().unwrap_or(0)),
                units::moment(times().max().unwrap_or(0))
            ),
        ),
        ("load average before a run", over(|at| at.load_average_before, units::digits)),
        ("load average after a run", over(|at| at.load_average_after, units::digits)),
        ("fdatasync p50 before a run", over(|at| at.fsync_p50_ns.map(to_f64), units::time)),
        ("fdatasync p99 before a run", over(|at| at.fsync_p99_ns.map(to_f64), units::time)),
        ("raw 4-KiB random reads before a run, depth 1", over(|at| at.raw_read_iops, iops)),
    ];
    for (what, value) in rows {
        table.row(vec![what.into(), value.into()]);
    }
    table
}

fn limits_table(record: &LimitsRecord) -> Table {
    let limits: &Limits = &record.limits;
    let rate = |value: f64| format!("{}/s", units::bytes(value));
    let reads = |value: f64| format!("{} reads/s", units::scaled(value));
    let mut table = Table::new(2, &["limit", "value"]);
    let rows = [
        ("DRAM latency, 4-KiB pages", TableCell::figure(limits.dram_4k_ns, units::time)),
        ("DRAM latency, 2-MiB pages", TableCell::figure(limits.dram_2m_ns, units::time)),
        (
            "DRAM latency, 16 loads overlapped",
            TableCell::figure(limits.dram_overlapped_ns, units::time),
        ),
        ("copying (memcpy)", TableCell::figure(limits.memcpy_bytes_per_second, rate)),
        ("random 4-KiB reads, depth 1", TableCell::figure(limits.read_iops_1, reads)),
        ("random 4-KiB reads, depth 32", TableCell::figure(limits.read_iops_32, reads)),
        ("sequential writes", TableCell::figure(limits.write_bytes_per_second, rate)),
        ("fdatasync p50", TableCell::figure(limits.fdatasync_p50_ns.map(to_f64), units::time)),
        ("fdatasync p99", TableCell::figure(limits.fdatasync_p99_ns.map(to_f64), units::time)),
    ];
    for (what, value) in rows {
        table.row(vec![what.into(), value]);
    }
    for error in &limits.errors {
        table.row(vec!["not measured".into(), error.as_str().into()]);
    }
    table
}

/// Adds the stores with their settings and reasons.
pub(super) fn add_stores(groups: &[CaseGroup<'_>], to: &mut Document) {
    to.heading(2, "Stores and their settings");
    let mut stores: Vec<(&StoreInfo, Vec<&StoreInfo>)> = Vec::new();
    let cells = groups.iter().flat_map(|group| &group.cases).flat_map(|case| &case.cells);
    for info in cells.flat_map(|cell| cell.runs.iter().map(|run| &run.store)) {
        let same = |(first, _): &&mut (&StoreInfo, Vec<&StoreInfo>)| {
            (&first.name, &first.version) == (&info.name, &info.version)
        };
        match stores.iter_mut().find(same) {
            Some((_, all)) if all.contains(&info) => {}
            Some((_, all)) => all.push(info),
            None => stores.push((info, vec![info])),
        }
    }
    stores.sort_by_key(|(info, _)| (info.family == Family::Reference, info.family == Family::Peer));
    let mut table = Table::new(6, &["store", "version", "kind", "keys", "files", "promise"]);
    let mut settings = Table::new(4, &["store", "setting", "value", "why"]);
    for (info, all) in &stores {
        table.row(vec![
            (&*info.name).into(),
            (&*info.version).into(),
            match info.family {
                Family::Ours => "ours",
                Family::Peer => "peer",
                Family::Reference => "reference",
            }
            .into(),
            if info.is_ordered { "ordered" } else { "unordered" }.into(),
            if info.is_persistent { "on disk" } else { "none" }.into(),
            if info.promise.is_empty() { "as ours" } else { &info.promise }.into(),
        ]);
        add_settings(&info.name, all, &mut settings);
    }
    to.table(table);
    to.table(settings);
}

/// Adds the settings of a store. Several values of one setting share a row.
fn add_settings(name: &str, variants: &[&StoreInfo], table: &mut Table) {
    let mut known: Vec<(&str, Vec<&str>, &str)> = Vec::new();
    for setting in variants.iter().flat_map(|info| &info.settings) {
        match known.iter_mut().find(|(name, _, _)| *name == setting.name) {
            Some((_, values, _)) if values.contains(&setting.value.as_str()) => {}
            Some((_, values, _)) => values.push(&setting.value),
            None => known.push((&setting.name, vec![&setting.value], &setting.reason)),
        }
    }
    for (setting, values, reason) in known {
        let value = values.join(" / ");
        table.row(vec![name.into(), setting.into(), value.into(), reason.into()]);
    }
}

/// Adds failed runs and rejected lines.
pub(super) fn add_failures(groups: &[CaseGroup<'_>], input: &ReportInput, to: &mut Document) {
    let mut failed = Table::new(5, &["run", "workload", "store", "repetition", "error"]);
    for group in groups {
        for case in &group.cases {
            for cell in &case.cells {
                for (run, error) in cell.errors() {
                    failed.row(vec![
                        group.title().into(),
                        case.label.clone().into(),
                        (&*cell.store.name).into(),
                        (run.repetition + 1).to_string().into(),
                        error.lines().next().unwrap_or_default().into(),
                    ]);
                }
            }
        }
    }
    if !failed.rows.is_empty() {
        to.heading(2, "Runs that failed");
        to.table(failed);
    }
    if !input.rejected.is_empty() {
        to.heading(2, "Lines that were left out");
        let mut table = Table::new(3, &["file", "line", "why"]);
        for rejected in &input.rejected {
            table.row(vec![
                (&*rejected.file).into(),
                rejected.line.to_string().into(),
                (&*rejected.what).into(),
            ]);
        }
        to.table(table);
    }
}
