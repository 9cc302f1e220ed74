//! The shell on a pipe; and, one by one, what the tools of the original stores did wrong.

use std::fmt::Write as _;

use crate::common::{Answer, Place, check_failure};

fn shell(place: &Place, input: impl Into<Vec<u8>>) -> Answer {
    place.feed(&["shell", "DB"], input)
}

/// The shell must take all of the input; returns its answers.
fn answers(place: &Place, input: impl Into<Vec<u8>>) -> String {
    let found = shell(place, input);
    assert_eq!((found.code, found.error.as_str()), (0, ""), "{found:?}");
    String::from_utf8(found.out).unwrap()
}

#[test]
fn each_command_is_answered() {
    let place = Place::with_table();
    let input = "put k a value \nget k\nput e\nget e\nget none\ncount\nscan k\n\
                 create app/u naive snapshot_bytes=65536\nput x y\ntables\nuse t\ndel k\nget k\n\
                 rename app/u v\ndrop v\ntables\n# a remark\ndelete e\nquit\nnot reached";
    let expected = "ok\n\"a value \"\nok\n\"\"\n(absent)\n2\nk\t\"a value \"\n\
                    ok\nok\napp/u\tnaive\nt\tnaive\nok\nok\n(absent)\n\
                    ok\nok\nt\tnaive\nok\n";
    assert_eq!(answers(&place, input), expected);
    assert!(answers(&place, "help\n").contains("begin"));
    assert!(answers(&place, "stats\nstatistic t\n").contains("naive"));
}

/// The tool of the log-structured original took its commands in any case.
#[test]
fn commands_are_read_in_any_case_and_tables_persist_and_compact() {
    let place = Place::with_table();
    assert_eq!(
        answers(&place, "use t\nPUT Key v\nGet Key\npersist\nCOMPACT\n"),
        "ok\nok\n\"v\"\nok\nok\n"
    );
    check_failure(&shell(&place, "use t\npersist t\n"), 1, "unexpected");
    // The only table of a database is chosen already.
    place.ok(&["create", "DB", "u", "--engine", "naive"]);
    check_failure(&shell(&place, "compact\n"), 1, "use TABLE");
}

#[test]
fn quotes_hold_what_cannot_be_typed() {
    let place = Place::with_table();
    let input =
        b"put \"a key\" \"line\\nbreak\\x00\\u{e9}\"\nget \"a key\"\nput r \xff\x1b\nget r\n";
    assert_eq!(
        answers(&place, &input[..]),
        "ok\n\"line\\nbreak\\0\u{e9}\"\nok\n\"\\xff\\u{1b}\"\n"
    );
    let value = place.run(&["get", "DB", "t", "a key", "--raw"]);
    assert_eq!(value.out, "line\nbreak\0\u{e9}".as_bytes());
}

#[test]
fn a_transaction_is_all_or_nothing_over_tables() {
    let place = Place::with_table();
    place.ok(&["create", "DB", "u", "--engine", "naive"]);
    let input = "use t\nbegin\nput a 1\nuse u\nput b 2\nget b\ncommit\nget b\nuse t\nget a\n";
    let expected = "ok\nok\nok\nok\nok\n\"2\"\nok\n\"2\"\nok\n\"1\"\n";
    assert_eq!(answers(&place, input), expected);
    assert_eq!(
        answers(&place, "use t\nbegin\nput c 3\nrollback\nget c\n"),
        "ok\nok\nok\nok\n(absent)\n"
    );
    let found = shell(&place, "use t\nbegin\nput c 3\ndel a\n");
    check_failure(&found, 1, "2 writes were not done");
    assert_eq!(place.ok(&["get", "DB", "t", "a"]), "1\n");
    check_failure(&shell(&place, "commit\n"), 1, "begin is not active");
    check_failure(&shell(&place, "begin\nbegin\n"), 1, "already");
}

#[test]
fn a_snapshot_shows_one_moment_until_it_is_released() {
    let place = Place::with_table();
    let input = "use t\nput a 1\nput b 1\nsnapshot\nput a 2\nput c 2\ndel b\nget a\ncount\n\
                 scan\nrelease\nget a\nscan\n";
    let found = answers(&place, input);
    let lines: Vec<_> = found.lines().filter(|line| *line != "ok").collect();
    let mut shown = lines[2..4].to_vec();
    shown.sort_unstable();
    let mut after = lines[5..].to_vec();
    after.sort_unstable();
    assert_eq!(lines[..2], ["\"1\"", "2"], "{found}");
    assert_eq!(shown, ["a\t\"1\"", "b\t\"1\""]);
    assert_eq!(lines[4], "\"2\"");
    assert_eq!(after, ["a\t\"2\"", "c\t\"2\""]);
    check_failure(&shell(&place, "release\n"), 1, "no snapshot is open");
    check_failure(&shell(&place, "snapshot\nbegin\n"), 1, "release it first");
}

#[test]
fn an_update_needs_the_expected_value() {
    let place = Place::with_table();
    let input = "use t\nput a 1\nupdate a 1 2\nupdate a 1 3\nupdate b 1 2\nbegin\nupdate a 2 4\n\
                 update a 2 5\ncommit\nget a\n";
    let expected = "ok\nok\nok\nnot changed: \"2\"\nnot changed: (absent)\nok\nok\n\
                    not changed: \"4\"\nok\n\"4\"\n";
    assert_eq!(answers(&place, input), expected);
}

#[test]
fn a_merge_uses_the_operator_of_the_table() {
    let place = Place::with_table();
    let input = "create m btree merge=append\nmerge k a\nmerge k b\nbegin\nmerge k c\nget k\n\
                 commit\nget k\n";
    let expected = "ok\nok\nok\nok\nok\n\"abc\"\nok\n\"abc\"\n";
    assert_eq!(answers(&place, input), expected);
    check_failure(&shell(&place, "use t\nmerge k a\n"), 1, "without a merge operator");
    check_failure(&shell(&place, "create n btree merge=own\n"), 1, "own");
}

#[test]
fn a_line_that_makes_no_sense_is_named_and_ends_the_run() {
    let place = Place::with_table();
    for (line, expected) in [
        ("frob", "line 2: there is no command \"frob\""),
        ("get", "line 2: KEY is missing"),
        ("get a b", "unexpected \"b\""),
        ("put", "KEY is missing"),
        ("put \"a", "not closed"),
        ("put a \"b\" c", "unexpected \"c\""),
        ("put \"\\q\" v", "unknown escape"),
        ("put \"\" v", "key"),
        ("use nope", "nope"),
        ("create t naive", "exists"),
        ("create x lsm", "lsm"),
        ("create x naive y", "NAME=VALUE"),
        ("quit now", "unexpected \"now\""),
        ("\u{1b}[2J", "\\u{1b}"),
    ] {
        let found = shell(&place, format!("put before 1\n{line}\nput after 1\n"));
        check_failure(&found, 1, expected);
        assert_eq!(found.text(), "ok\n", "{line}");
        assert_eq!(place.ok(&["scan", "DB", "t"]), "before\t1\n", "{line}");
    }
    let found = place.feed(&["shell", "DB", "--keep-going"], "frob\nput k v\nget\nget k\n");
    assert_eq!((found.code, found.text()), (1, "ok\n\"v\"\n"));
    assert_eq!(found.error.lines().count(), 2);
}

#[test]
fn without_a_table_the_shell_asks_for_one() {
    let place = Place::with_table();
    place.ok(&["create", "DB", "u", "--engine", "naive"]);
    check_failure(&shell(&place, "put a b\n"), 1, "use TABLE");
    assert_eq!(place.feed(&["shell", "DB", "u"], "put a b\n").text(), "ok\n");
    assert_eq!(place.ok(&["get", "DB", "u", "a"]), "b\n");
}

#[test]
fn a_read_only_shell_refuses_writes_and_lets_readers_in() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "k", "v"]);
    let found = place.feed(&["shell", "DB", "--read-only"], "get k\nput k w\n");
    assert_eq!(found.text(), "\"v\"\n");
    check_failure(&found, 1, "read-only");
}

#[test]
fn an_empty_line_does_nothing() {
    // LogKV's tool ended with a segmentation fault.
    let place = Place::with_table();
    assert_eq!(answers(&place, "\n"), "");
    assert_eq!(answers(&place, "\n\n   \n\t\nput k v\n\n\r\nget k\n\n"), "ok\n\"v\"\n");
    assert_eq!(answers(&place, ""), "");
}

#[test]
fn a_nul_in_a_value_is_kept() {
    // LogKV cut the value at the NUL.
    let place = Place::with_table();
    assert_eq!(answers(&place, &b"put k a\0b\nget k\n"[..]), "ok\n\"a\\0b\"\n");
    assert_eq!(place.run(&["get", "DB", "t", "k", "--raw"]).out, b"a\0b");
}

#[test]
fn a_value_of_70_000_bytes_is_kept() {
    // LogKV stored 4,465 of them.
    let place = Place::with_table();
    let value = "v".repeat(70_000);
    let printed = answers(&place, format!("put k {value}\nget k\n"));
    assert!(printed == format!("ok\n\"{value}\"\n"), "{} bytes", printed.len());
    assert_eq!(place.ok(&["get", "DB", "t", "k", "--raw"]).len(), 70_000);
}

#[test]
fn an_empty_value_is_not_an_absent_one() {
    let place = Place::with_table();
    assert_eq!(answers(&place, "put k\nget k\nget absent\n"), "ok\n\"\"\n(absent)\n");
    place.ok(&["put", "DB", "t", "l", ""]);
    assert_eq!(place.ok(&["get", "DB", "t", "l", "--json"]), "{\"key\":\"l\",\"value\":\"\"}\n");
    place.fails(1, &["get", "DB", "t", "absent", "--json"], "no key");
    assert_eq!(place.ok(&["count", "DB", "t"]), "2\n");
}

#[test]
fn a_last_line_without_an_end_counts() {
    // LogKV lost what its last chunk held; its tool, the last line.
    let place = Place::with_table();
    assert_eq!(answers(&place, "put a 1\nput b 2"), "ok\nok\n");
    assert_eq!(answers(&place, "get b"), "\"2\"\n");
}

#[test]
fn puts_after_a_reopen_are_kept() {
    // LogKV crashed at the first put after a recovery.
    let place = Place::with_table();
    for round in 0..5 {
        assert_eq!(answers(&place, format!("put k{round} v\nput same {round}\n")), "ok\nok\n");
        assert_eq!(place.ok(&["count", "DB", "t"]), format!("{}\n", round + 2));
        assert_eq!(place.ok(&["get", "DB", "t", "same"]), format!("{round}\n"));
    }
}

/// LogKV replayed stale buffers once its log was longer than its 512 MB buffer. Takes a gigabyte
/// of disk.
#[test]
#[ignore = "writes more than 512 MiB; run it with --ignored"]
fn more_than_512_mib_of_log_are_replayed_exactly() {
    replay_exactly(600 << 20);
}

/// The same with less data: as many segments and snapshots as the budget makes small.
#[test]
fn many_segments_of_log_are_replayed_exactly() {
    replay_exactly(24 << 20);
}

fn replay_exactly(total: usize) {
    const KEYS: usize = 50;
    const VALUE_BYTES: usize = 40_000;
    let place = Place::with_table();
    let rounds = total / (KEYS * VALUE_BYTES);
    let value = |round: usize, key: usize| {
        let mut text = format!("{round}.{key}.").repeat(VALUE_BYTES / 8);
        text.truncate(VALUE_BYTES);
        text
    };
    for part in 0..4 {
        let mut input = String::new();
        for round in (rounds * part / 4)..(rounds * (part + 1) / 4) {
            for key in 0..KEYS {
                writeln!(input, "put k{key} {}", value(round, key)).unwrap();
            }
        }
        let found = place.feed(&["shell", "DB", "--memory-budget", "32M"], input);
        assert_eq!((found.code, found.error.as_str()), (0, ""));
    }
    for key in 0..KEYS {
        let name = format!("k{key}");
        let found = place.ok(&["get", "DB", "t", &name, "--raw"]);
        assert!(found == value(rounds - 1, key), "{name} differs");
    }
}

#[test]
fn limits_of_the_log_are_flags_of_the_shell_and_of_import() {
    let place = Place::with_table();
    let limits =
        ["--sync-interval", "5ms", "--recovery-budget", "1M", "--checkpoint-interval", "20ms"];
    let shell = place.feed(&[&["shell", "DB", "t"], &limits[..]].concat(), "put k v\nget k\n");
    assert_eq!(shell.code, 0, "{shell:?}");
    assert!(shell.text().ends_with("\"v\"\n"), "{shell:?}");
    let file = place.file("in.csv", "key,value\na,b\n");
    place.ok(&[&["import", "DB", "t", &file], &limits[..]].concat());
    let row = place.ok(&["get", "DB", "t", "a"]);
    assert!(row.contains("\"b\""), "{row}");
    for (flag, value, expected) in [
        ("--sync-interval", "5", "not a time such as 500ms"),
        ("--sync-interval", "0s", "sync_interval: it must be from 1 ms to 1 hour"),
        ("--recovery-budget", "1K", "recovery_budget: it must be at least 64 KiB"),
        ("--recovery-budget", "much", "not a size such as"),
        ("--checkpoint-interval", "1ms", "checkpoint_interval: it must be 0, or from 10 ms"),
        ("--checkpoint-interval", "2d", "checkpoint_interval: it must be 0, or from 10 ms"),
    ] {
        place.fails(2, &["shell", "DB", "t", flag, value], expected);
        place.fails(2, &["import", "DB", "t", &file, flag, value], expected);
    }
}
