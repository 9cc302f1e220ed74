//! `LATENCY`: what was slow, and how long commands take.

mod report;

use std::{sync::atomic::Ordering, time::Duration};

use report::{doctor, graph};

use super::{
    call::{Call, commands},
    generic::reply_help,
};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    state::{Event, HistogramCounts, bound},
    store::now_millis,
};

commands! { Group::Server;
    "latency" -2 [CONTAINER] Keys::None, help, "2.8.13",
        "A container for latency diagnostics commands.";
    "latency|doctor" 2 [ADMIN DANGEROUS] Keys::None, report, "2.8.13",
        "Returns a human-readable latency analysis report.";
    "latency|graph" 3 [ADMIN DANGEROUS] Keys::None, draw, "2.8.13",
        "Returns a latency graph for an event.";
    "latency|help" 2 [] Keys::None, help, "2.8.13",
        "Returns helpful text about the different subcommands.";
    "latency|histogram" -2 [ADMIN DANGEROUS] Keys::None, histogram, "7.0.0",
        "Returns the cumulative distribution of latencies of a subset or all commands.";
    "latency|history" 3 [ADMIN DANGEROUS] Keys::None, history, "2.8.13",
        "Returns timestamp-latency samples for an event.";
    "latency|latest" 2 [ADMIN DANGEROUS] Keys::None, latest, "2.8.13",
        "Returns the latest latency samples for all events.";
    "latency|reset" -2 [ADMIN DANGEROUS] Keys::None, reset, "2.8.13",
        "Resets the latency data for one or more events.";
}

fn integer(call: &mut Call<'_, '_>, value: u64) {
    call.reply.integer(i64::try_from(value).unwrap_or(i64::MAX));
}

fn latest(call: &mut Call<'_, '_>) -> Done {
    let all = call.server.latency.all();
    call.reply.array(all.len());
    for (event, own) in all {
        call.reply.array(4);
        call.reply.text(event.name());
        let last = own.samples.back().map_or((0, 0), |slow| (slow.second, slow.millis));
        for value in [last.0, last.1, own.longest] {
            integer(call, value);
        }
    }
    Ok(())
}

fn history(call: &mut Call<'_, '_>) -> Done {
    let event = Event::parse(call.args.at(2));
    let samples = event.map(|event| call.server.latency.samples(event)).unwrap_or_default().samples;
    call.reply.array(samples.len());
    for slow in samples {
        call.reply.array(2);
        integer(call, slow.second);
        integer(call, slow.millis);
    }
    Ok(())
}

fn reset(call: &mut Call<'_, '_>) -> Done {
    let wanted: Vec<Option<Event>> = call.args.from(2).map(Event::parse).collect();
    let is_wanted = |event| wanted.is_empty() || wanted.contains(&Some(event));
    let count = call.server.latency.reset(is_wanted);
    call.reply.count(count);
    Ok(())
}

fn draw(call: &mut Call<'_, '_>) -> Done {
    let name = call.args.at(2);
    let found = Event::parse(name).map(|event| (event, call.server.latency.samples(event)));
    let Some((event, samples)) = found.filter(|(_, own)| !own.samples.is_empty()) else {
        let name = String::from_utf8_lossy(name.get(..64).unwrap_or(name)).into_owned();
        return Err(Fail::with(format!("ERR No samples available for event '{name}'")));
    };
    call.reply.verbatim(&graph(event, &samples, now_millis() / 1000));
    Ok(())
}

fn report(call: &mut Call<'_, '_>) -> Done {
    let threshold = call.server.settings.latency_monitor_threshold.load(Ordering::Relaxed);
    call.reply.verbatim(&doctor(&call.server.latency, threshold));
    Ok(())
}

/// Histograms of the named commands, or of all that have run. A name of a container stands for its
/// subcommands.
fn histogram(call: &mut Call<'_, '_>) -> Done {
    let wanted: Vec<Vec<u8>> = call.args.from(2).map(<[u8]>::to_ascii_lowercase).collect();
    let is_wanted = |name: &str| {
        let container = name.split('|').next().unwrap_or(name);
        let is_named =
            |wanted: &Vec<u8>| [name.as_bytes(), container.as_bytes()].contains(&wanted.as_slice());
        wanted.is_empty() || wanted.iter().any(is_named)
    };
    let server = call.server;
    let rows = server.registry.specs().iter().zip(&server.stats.by_command);
    let found: Vec<(&str, HistogramCounts)> = rows
        .filter(|(spec, _)| is_wanted(spec.name))
        .map(|(spec, counters)| (spec.name, counters.latency.counts()))
        .filter(|(_, counts)| counts.count() > 0)
        .collect();
    call.reply.map(found.len());
    for (name, counts) in found {
        call.reply.text(name);
        call.reply.map(2);
        call.reply.text("calls");
        integer(call, counts.count());
        call.reply.text("histogram_usec");
        let buckets = cumulative(&counts);
        call.reply.map(buckets.len());
        for (micros, count) in buckets {
            integer(call, micros);
            integer(call, count);
        }
    }
    Ok(())
}

/// The buckets that are not empty, with their bounds in microseconds and cumulative counts. The
/// last bucket has no bound; it gets the double of the one before.
fn cumulative(counts: &HistogramCounts) -> Vec<(u64, u64)> {
    let mut below = 0;
    let mut last = Duration::ZERO;
    let mut shown = Vec::new();
    for (bucket, count) in counts.buckets.into_iter().enumerate() {
        below += count;
        last = bound(bucket).unwrap_or(last * 2);
        if count > 0 {
            shown.push((u64::try_from(last.as_micros()).unwrap_or(u64::MAX), below));
        }
    }
    shown
}

fn help(call: &mut Call<'_, '_>) -> Done {
    reply_help(
        call,
        "LATENCY",
        &[
            ("DOCTOR", "Return a human readable latency analysis report."),
            ("GRAPH <event>", "Return an ASCII latency graph for the <event> class."),
            ("HISTORY <event>", "Return time-latency samples for the <event> class."),
            ("LATEST", "Return the latest latency samples for all events."),
            ("RESET [<event> ...]", "Reset latency data of one or more <event> classes."),
            (
                "HISTOGRAM [<command> ...]",
                "Return a cumulative distribution of latencies of all or the named commands.",
            ),
            ("HELP", "Print this help."),
        ],
    );
    Ok(())
}
