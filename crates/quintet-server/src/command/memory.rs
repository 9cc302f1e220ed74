//! `MEMORY`: what the memory of the server is used for.
//!
//! The store reserves its memory within a budget: caches, indexes and buffers. Beside it are the
//! buffers of clients. The names of `MEMORY STATS` are those of Redis where the figure is the same,
//! and begin with `quintet.` otherwise.

use std::{fmt::Write as _, sync::atomic::Ordering};

use quintet::DatabaseStats;

use super::{
    call::{Call, commands},
    generic::reply_help,
};
use crate::{
    failure::{Done, Fail},
    resp::Reply,
    spec::{Group, Keys},
    state::{Server, resident_bytes, resident_bytes_max},
};

commands! { Group::Server;
    "memory" -2 [CONTAINER] Keys::None, help, "4.0.0",
        "A container for memory diagnostics commands.";
    "memory|doctor" 2 [] Keys::None, doctor, "4.0.0", "Outputs a memory problems report.";
    "memory|help" 2 [] Keys::None, help, "4.0.0",
        "Returns helpful text about the different subcommands.";
    "memory|malloc-stats" 2 [] Keys::None, malloc_stats, "4.0.0",
        "Returns the allocator statistics.";
    "memory|purge" 2 [] Keys::None, purge, "4.0.0", "Asks the allocator to release memory.";
    "memory|stats" 2 [] Keys::None, stats, "4.0.0", "Returns details about memory usage.";
    "memory|usage" -3 [READ] Keys::SECOND, usage, "4.0.0",
        "Estimates the memory usage of a key.";
}

/// Part of a limit from which `MEMORY DOCTOR` warns, in percent.
const NEAR_LIMIT: u64 = 75;
/// Part of the budget that snapshots can hold without a warning, in percent.
const SNAPSHOTS_MANY: u64 = 25;

fn usage(call: &mut Call<'_, '_>) -> Done {
    let is_sampled = call.args.is(3, "samples") && call.args.len() == 5;
    if call.args.len() > 3 && !is_sampled {
        return Err(Fail::SYNTAX);
    }
    let (database, key) = (call.database(), call.args.at(2));
    let Some(head) = call.unit.head(database, key)? else {
        call.reply.null();
        return Ok(());
    };
    let (mut encoded, kind, is_spilled) =
        (Vec::new(), head.kind(), head.spilled_version().is_some());
    head.encode(&mut encoded);
    let mut bytes = encoded.len() + key.len();
    if is_spilled && let Some(collection) = call.open(key, kind)? {
        collection.visit(crate::store::ALL, false, |name, value| {
            bytes += name.len() + value.len() + 8;
            std::ops::ControlFlow::Continue(())
        })?;
    }
    call.reply.count(bytes);
    Ok(())
}

/// A figure of `MEMORY STATS`.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Count(u64),
    Ratio(f64),
}

/// `part` of `whole` in percent.
#[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^53")]
fn percentage(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// The figures in the order of Redis.
fn figures(server: &Server, store: &DatabaseStats, keys: u64) -> Vec<(&'static str, Figure)> {
    let clients = server.clients.totals().all_bytes();
    let tables: u64 = store.tables.iter().map(|table| table.memory_bytes).sum();
    let indexes: u64 =
        store.tables.iter().map(|table| table.index_bytes.min(table.memory_bytes)).sum();
    let total = store.memory_bytes + clients;
    let (resident, peak) = (resident_bytes(), resident_bytes_max());
    let dataset = tables - indexes;
    let fragmentation = percentage(resident, total) / 100.0;
    let (count, ratio) = (Figure::Count, Figure::Ratio);
    vec![
        ("peak.allocated", count(peak)),
        ("total.allocated", count(total)),
        ("clients.normal", count(clients)),
        ("overhead.total", count(total.saturating_sub(dataset))),
        ("keys.count", count(keys)),
        ("keys.bytes-per-key", count(dataset.checked_div(keys).unwrap_or(0))),
        ("dataset.bytes", count(dataset)),
        ("dataset.percentage", ratio(percentage(dataset, total))),
        ("peak.percentage", ratio(percentage(resident, peak))),
        ("allocator.resident", count(resident)),
        ("fragmentation", ratio(fragmentation)),
        ("fragmentation.bytes", count(resident.saturating_sub(total))),
        ("quintet.memory-budget", count(store.memory_budget_bytes)),
        ("quintet.memory-reserved", count(store.memory_bytes)),
        ("quintet.tables", count(tables)),
        ("quintet.tables.indexes", count(indexes)),
        ("quintet.tables.open", count(store.open_tables)),
        ("quintet.snapshots", count(store.snapshot_bytes)),
    ]
}

fn stats(call: &mut Call<'_, '_>) -> Done {
    let databases = &call.server.store.databases;
    let keys = databases.key_count(call.database().namespace());
    let figures = figures(call.server, &databases.database().stats(), keys);
    call.reply.map(figures.len());
    for (name, figure) in figures {
        call.reply.text(name);
        reply_figure(call.reply, figure);
    }
    Ok(())
}

fn reply_figure(reply: &mut Reply, figure: Figure) {
    match figure {
        Figure::Count(count) => reply.integer(i64::try_from(count).unwrap_or(i64::MAX)),
        Figure::Ratio(ratio) => reply.double(ratio),
    }
}

/// What `MEMORY DOCTOR` looks at.
#[derive(Clone, Copy, Debug, Default)]
struct Symptoms {
    /// The budget of the store, and bytes that snapshots hold of it.
    budget: u64,
    snapshots: u64,
    /// Operations since the start that found no memory.
    out_of_memory: u64,
    /// Bytes of clients, and their limit; 0 is none.
    clients: u64,
    clients_max: u64,
    /// Clients that were ended for their memory since the start.
    evicted: u64,
    resident: u64,
}

impl Symptoms {
    fn of(server: &Server) -> Self {
        let store = server.store.databases.database().stats();
        let mut storage = server.stats.errors.storage();
        let out_of_memory = storage.find(|(kind, _)| *kind == "out_of_memory");
        Self {
            budget: store.memory_budget_bytes,
            snapshots: store.snapshot_bytes,
            out_of_memory: out_of_memory.map_or(0, |(_, count)| count),
            clients: server.clients.totals().all_bytes(),
            clients_max: server.settings.maxmemory_clients.load(Ordering::Relaxed),
            evicted: server.stats.evicted_clients.load(Ordering::Relaxed),
            resident: resident_bytes(),
        }
    }

    /// The report: one line for each problem, with what to do.
    fn report(&self) -> String {
        let mut text = String::new();
        let mut add = |problem: String| {
            // A write to a string cannot fail.
            let _ = writeln!(text, " * {problem}");
        };
        if self.out_of_memory > 0 {
            add(format!(
                "{} operations since the start found no memory in the budget of {} bytes. Raise \
                 memory-budget.",
                self.out_of_memory, self.budget
            ));
        }
        if self.snapshots > self.budget / 100 * SNAPSHOTS_MANY {
            add(format!(
                "Snapshots hold {} bytes of earlier values. A long scan or export holds them \
                 until it ends.",
                self.snapshots
            ));
        }
        if self.clients_max > 0 && self.clients > self.clients_max / 100 * NEAR_LIMIT {
            add(format!(
                "Buffers of clients have {} bytes, near maxmemory-clients, {}. CLIENT LIST names \
                 the largest (tot-mem).",
                self.clients, self.clients_max
            ));
        }
        if self.evicted > 0 {
            add(format!(
                "{} clients were ended because of maxmemory-clients. The log names them.",
                self.evicted
            ));
        }
        let expected = self.budget.saturating_add(self.clients);
        if self.resident > expected.saturating_add(expected / 2) {
            add(format!(
                "The process has {} bytes of resident memory, and the budget and clients explain \
                 {expected}. Lower memory-budget if the machine has too little memory.",
                self.resident
            ));
        }
        if text.is_empty() {
            return "No memory problem was found.\n".to_owned();
        }
        format!("Memory problems:\n{text}")
    }
}

fn doctor(call: &mut Call<'_, '_>) -> Done {
    call.reply.verbatim(&Symptoms::of(call.server).report());
    Ok(())
}

/// The allocator of the system returns memory by itself, as in a Redis that is built with it.
fn purge(call: &mut Call<'_, '_>) -> Done {
    call.reply.ok();
    Ok(())
}

fn malloc_stats(call: &mut Call<'_, '_>) -> Done {
    call.reply.verbatim("Stats not supported for the current allocator");
    Ok(())
}

fn help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "MEMORY",
        &[
            ("DOCTOR", "Return memory problems reports."),
            ("MALLOC-STATS", "Return internal statistics report from the memory allocator."),
            ("PURGE", "Has no effect: the allocator releases memory by itself."),
            ("STATS", "Return information about the memory usage of the server."),
            ("USAGE <key> [SAMPLES <count>]", "Return bytes of <key> and its value in the tables."),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_one_line_with_its_figures() {
        let healthy = Symptoms {
            budget: 1 << 30,
            clients: 70 << 20,
            clients_max: 100 << 20,
            resident: 1 << 30,
            ..Symptoms::default()
        };
        assert_eq!(healthy.report(), "No memory problem was found.\n");
        for (symptoms, part) in [
            (Symptoms { out_of_memory: 3, ..healthy }, "3 operations"),
            (Symptoms { snapshots: 1 << 29, ..healthy }, "Snapshots hold 536870912 bytes"),
            (Symptoms { clients: 80 << 20, ..healthy }, "maxmemory-clients, 104857600"),
            (Symptoms { evicted: 2, ..healthy }, "2 clients were ended"),
            (Symptoms { resident: 2 << 30, ..healthy }, "2147483648 bytes of resident memory"),
        ] {
            let report = symptoms.report();
            assert!(report.contains(part), "{report}");
            assert_eq!(report.lines().count(), 2, "{report}");
        }
        // No limit is never near.
        let unlimited = Symptoms { clients_max: 0, clients: 80 << 20, ..healthy };
        assert_eq!(unlimited.report(), healthy.report());
    }

    #[test]
    fn a_part_of_nothing_is_zero() {
        assert!(percentage(1, 0).abs() < f64::EPSILON);
        assert!((percentage(1, 4) - 25.0).abs() < 1e-9);
    }
}
