//! Medians of throughput from a results file of `quintet-compare run`.

mod json;

use json::Json;

/// The runs of one workload that a group of bars shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunFilter {
    /// File name in `docs/results`.
    pub(super) file: &'static str,
    /// Name of the workload in the results file.
    pub(super) workload: &'static str,
    /// Number of operations of the run. A file may have the same workload at several sizes.
    pub(super) operations: f64,
    /// Selects the runs of one call of `quintet-compare` if a file has several builds.
    pub(super) run_prefix: &'static str,
}

/// The median throughput of one store and how many runs it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Median {
    pub(super) ops_per_second: f64,
    pub(super) runs: usize,
}

/// Returns the median of the single-threaded runs of `store` that `source` names in `text`, the
/// contents of its file. Runs that failed have no figures and are skipped.
pub(super) fn median(text: &str, source: RunFilter, store: &str) -> Result<Option<Median>, String> {
    let mut rates = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let run = Json::parse(line)
            .map_err(|error| format!("{}, line {}: {error}", source.file, index + 1))?;
        let is_wanted = run.text(&["kind"]) == Some("run")
            && run.text(&["store", "name"]) == Some(store)
            && run.text(&["workload", "name"]) == Some(source.workload)
            && run.number(&["workload", "threads"]) == Some(1.0)
            && run.number(&["workload", "operations"]) == Some(source.operations)
            && run.text(&["memory", "mode"]) == Some("fits")
            && run.text(&["run_id"]).is_some_and(|id| id.starts_with(source.run_prefix));
        if is_wanted {
            rates.extend(run.number(&["figures", "ops_per_second"]));
        }
    }
    rates.sort_by(f64::total_cmp);
    let middle = rates.len() / 2;
    let ops_per_second = match rates.len() {
        0 => return Ok(None),
        count if count % 2 == 0 => f64::midpoint(rates[middle - 1], rates[middle]),
        _ => rates[middle],
    };
    Ok(Some(Median { ops_per_second, runs: rates.len() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: RunFilter =
        RunFilter { file: "test.jsonl", workload: "c", operations: 10.0, run_prefix: "" };

    fn line(store: &str, threads: u32, id: &str, rate: &str) -> String {
        format!(
            "{{\"kind\":\"run\",\"run_id\":\"{id}\",\"store\":{{\"name\":\"{store}\"}},\
             \"workload\":{{\"name\":\"c\",\"operations\":10,\"threads\":{threads}}},\
             \"memory\":{{\"mode\":\"fits\"}},\"figures\":{rate}}}\n"
        )
    }

    #[test]
    fn medians_skip_other_runs() {
        let rate = |rate: u32| format!("{{\"ops_per_second\":{rate}}}");
        let mut text = line("a", 1, "x-1", &rate(5));
        text += &line("a", 1, "x-2", &rate(1));
        text += &line("a", 1, "y-1", &rate(9));
        text += &line("a", 2, "x-1", &rate(100));
        text += &line("b", 1, "x-1", &rate(100));
        text += &line("a", 1, "x-3", "null");
        let found = median(&text, SOURCE, "a").unwrap().unwrap();
        assert_eq!(found, Median { ops_per_second: 5.0, runs: 3 });
        let of_x = RunFilter { run_prefix: "x-", ..SOURCE };
        let found = median(&text, of_x, "a").unwrap().unwrap();
        assert_eq!(found, Median { ops_per_second: 3.0, runs: 2 });
        assert_eq!(median(&text, SOURCE, "c").unwrap(), None);
        assert!(median("{", SOURCE, "a").is_err());
    }
}
