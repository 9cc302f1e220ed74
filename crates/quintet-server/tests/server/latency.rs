//! `LATENCY`: histograms of commands, and events of what was slow.

use super::{
    client::{Client, Value},
    running::Server,
};

/// A string that is longer than what memory can write in a millisecond.
const SLOW: &str = "setrange long 30000000 x";

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Map(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        other => panic!("no number: {other:?}"),
    }
}

fn events(client: &mut Client) -> Vec<String> {
    let latest = items(client.call("latency latest"));
    latest.into_iter().map(|event| items(event)[0].text()).collect()
}

#[test]
fn slow_commands_are_events_if_there_is_a_threshold() {
    let server = Server::start();
    let mut client = server.client();
    client.call(SLOW);
    assert!(events(&mut client).is_empty());
    assert!(client.call("latency doctor").text().contains("latency-monitor-threshold"));
    assert!(client.call("latency graph command").text().starts_with("-ERR No samples"));
    assert_eq!(client.call("config set latency-monitor-threshold 1").text(), "+OK");
    client.call("del long");
    client.call(SLOW);
    let found = events(&mut client);
    assert!(found.contains(&"command".to_owned()), "{found:?}");
    assert!(found.contains(&"commit".to_owned()), "{found:?}");
    for latest in items(client.call("latency latest")) {
        let latest = items(latest);
        assert_eq!(latest.len(), 4);
        assert!(number(&latest[1]) > 1_700_000_000, "{latest:?}");
        assert!(1 <= number(&latest[2]) && number(&latest[2]) <= number(&latest[3]), "{latest:?}");
    }
    let history = items(client.call("latency history command"));
    assert!(!history.is_empty());
    assert!(history.into_iter().all(|sample| number(&items(sample)[1]) >= 1));
    assert!(items(client.call("latency history nonsense")).is_empty());
    let graph = client.call("latency graph command").text();
    assert!(graph.starts_with("command - high "), "{graph}");
    let report = client.call("latency doctor").text();
    assert!(report.contains("command: ") && report.contains("commit: "), "{report}");
    assert_eq!(number(&client.call("latency reset command nonsense")), 1);
    let found = events(&mut client);
    assert!(!found.contains(&"command".to_owned()) && found.contains(&"commit".to_owned()));
    assert!(number(&client.call("latency reset")) >= 1);
    // Other events of a slow machine may have come since.
    assert!(client.call("latency nonsense").text().starts_with("-ERR unknown subcommand"));
}

#[test]
fn histograms_count_each_call_once() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..20 {
        client.call(&format!("set k{number} v"));
    }
    client.call("config get maxclients");
    let found = items(client.call("latency histogram set get config nonsense"));
    let names: Vec<String> = found.iter().step_by(2).map(Value::text).collect();
    assert_eq!(names, ["set", "config|get"]);
    let set = items(found[1].clone());
    assert_eq!((set[0].text().as_str(), number(&set[1])), ("calls", 20));
    assert_eq!(set[2].text(), "histogram_usec");
    let buckets: Vec<i64> = items(set[3].clone()).iter().map(number).collect();
    let bounds: Vec<i64> = buckets.iter().step_by(2).copied().collect();
    let counts: Vec<i64> = buckets.iter().skip(1).step_by(2).copied().collect();
    assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
    assert!(counts.is_sorted_by(|a, b| a < b), "{counts:?}");
    assert_eq!(counts.last(), Some(&20));
    client.call("config resetstat");
    assert!(items(client.call("latency histogram set")).is_empty());
}
