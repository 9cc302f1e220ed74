//! Every command: what it does, and what it says to arguments that make no sense.

use quintet::Database;

use crate::common::{Place, check_failure};

#[test]
fn tables_are_created_listed_renamed_and_dropped() {
    let place = Place::empty();
    place.ok(&["create", "DB", "app/users", "--engine", "naive"]);
    place.ok(&["create", "DB", "app/log", "--engine", "naive", "--option", "snapshot_bytes=65536"]);
    assert_eq!(place.ok(&["tables", "DB"]), "app/log\tnaive\napp/users\tnaive\n");
    assert_eq!(
        place.ok(&["tables", "DB", "--json"]).lines().next().unwrap(),
        r#"{"table":"app/log","engine":"naive"}"#
    );
    place.ok(&["put", "DB", "app/log", "k", "v"]);
    place.ok(&["rename", "DB", "app/log", "events"]);
    assert_eq!(place.ok(&["get", "DB", "events", "k"]), "v\n");
    place.ok(&["drop", "DB", "events"]);
    place.ok(&["create", "DB", "app/eu/orders", "--engine", "naive"]);
    place.ok(&["drop", "DB", "app", "--tree"]);
    assert_eq!(place.ok(&["tables", "DB"]), "");
}

#[test]
fn creating_says_what_it_refuses() {
    let place = Place::with_table();
    let create = |rest: &[&str], code, expected: &str| {
        let words: Vec<_> = ["create", "DB"].iter().chain(rest).copied().collect();
        place.fails(code, &words, expected);
    };
    create(&["t", "--engine", "naive"], 1, "exists already");
    create(&["u", "--engine", "lsm"], 2, "lsm");
    create(&["u", "--engine", "naive", "--option", "x"], 2, "NAME=VALUE");
    create(&["u", "--engine", "naive", "--option", "colour=red"], 2, "colour");
    create(&["u"], 2, "--engine");
    create(&["", "--engine", "naive"], 1, "");
    create(&["../u", "--engine", "naive"], 1, "");
    assert_eq!(place.ok(&["tables", "DB"]), "t\tnaive\n");
}

#[test]
fn a_refused_creation_leaves_no_directory() {
    let place = Place::empty();
    let file = place.file("x.csv", "k,v\na,b\n");
    for (code, words, expected) in [
        (1, &["create", "DB", "../u", "--engine", "naive"][..], "is not a name"),
        (2, &["create", "DB", "u", "--engine", "naive", "--option", "colour=red"], "colour"),
        (2, &["create", "DB", "u", "--engine", "hashlog", "--option", "compression=zstd"], "zstd"),
        (2, &["create", "DB", "u"], "--engine"),
        (1, &["defaults", "DB", "a b", "--engine", "naive"], "is not a name"),
        (2, &["defaults", "DB", "--engine", "naive", "--option", "colour=red"], "colour"),
        (1, &["import", "DB", "a b", &file, "--engine", "naive"], "is not a name"),
    ] {
        place.fails(code, words, expected);
        assert!(!place.path("db").exists(), "{words:?} has created a directory");
    }
}

#[test]
fn a_creation_without_an_engine_reports_why_the_database_does_not_open() {
    let place = Place::with_table();
    let words = ["create", "DB", "u"];
    let other = Database::open(place.path("db")).unwrap();
    place.fails(1, &words, "already open");
    other.close().unwrap();
    let catalog = place.path("db").join("catalog");
    let mut bytes = std::fs::read(&catalog).unwrap();
    for byte in &mut bytes {
        *byte ^= 0x55;
    }
    std::fs::write(&catalog, bytes).unwrap();
    place.fails(3, &words, "catalog");
}

#[test]
fn a_wrong_option_is_explained() {
    let place = Place::with_table();
    for (words, expected) in [
        (
            &["hashlog", "--option", "chunk_bytes=20000"][..],
            "option chunk_bytes: the hashlog engine does not accept \"20000\"; it accepts a power \
             of two from 16384 to 16777216 bytes",
        ),
        (
            &["naive", "--option", "snapshot_bytes=8192", "--option", "snapshot_bytes=4096"],
            "option snapshot_bytes: it is given twice; give it once",
        ),
        (
            &["btree", "--key-type", "u16"],
            "\"u16\" is not a type; the types are: u32, u64, i64, f32, f64, string, blob",
        ),
    ] {
        let words: Vec<_> =
            ["create", "DB", "u", "--engine"].iter().chain(words).copied().collect();
        place.fails(2, &words, expected);
        let words: Vec<_> =
            words.iter().map(|word| if *word == "create" { "defaults" } else { *word }).collect();
        place.fails(2, &words, expected);
        assert_eq!(place.ok(&["defaults", "DB", "u"]), "");
    }
    assert_eq!(place.ok(&["tables", "DB"]), "t\tnaive\n");
}

#[test]
fn a_missing_thing_is_named_with_the_command_that_lists_what_there_is() {
    let place = Place::with_table();
    let list = |command| format!("`quintet {command} {}`", place.path("db").display());
    place.fails(1, &["get", "DB", "nope", "k"], &format!("{} lists the tables", list("tables")));
    place.fails(1, &["unmount", "DB", "nope"], &format!("{} lists the mounts", list("mounts")));
    place.fails(1, &["list", "DB", "t"], "no directory of tables is named \"t\"");
    place.fails(1, &["list", "DB", "t"], &list("list"));
    place.ok(&["create", "DB", "app/users", "--engine", "naive"]);
    for words in [&["drop", "DB", "app"][..], &["get", "DB", "app", "k"], &["scan", "DB", "app"]] {
        place.fails(1, words, "\"app\" is a directory of tables");
    }
    place.fails(1, &["drop", "DB", "app"], "--tree` drops it with all its tables");
    assert_eq!(place.ok(&["tables", "DB"]), "app/users\tnaive\nt\tnaive\n");
    place.file("plain", "text");
    for words in [
        &["get", "DIR/plain", "t", "k"][..],
        &["tables", "DIR/plain"],
        &["create", "DIR/plain", "t", "--engine", "naive"],
        &["create", "DIR/plain", "t"],
    ] {
        place.fails(1, words, "is a file; a database is a directory");
    }
}

#[test]
fn typed_keys_say_what_they_accept() {
    let place = Place::empty();
    place.ok(&["create", "DB", "n", "--engine", "naive", "--key-type", "u32"]);
    place.ok(&["create", "DB", "f", "--engine", "naive", "--value-type", "f64"]);
    place.fails(
        2,
        &["get", "DB", "n", "-1"],
        "quintet: key: \"-1\" is not a u32: a whole number from 0 to 4294967295",
    );
    place.fails(2, &["put", "DB", "f", "k", "x"], "value: \"x\" is not an f64: a number");
    place.fails(2, &["scan", "DB", "n", "--from", "x"], "key: \"x\" is not a u32");
}

#[test]
fn the_options_of_an_engine_are_listed() {
    let place = Place::empty();
    let naive = place.ok(&["options", "naive"]);
    assert!(naive.starts_with("Options of naive:\n\nsnapshot_bytes=4,096 to 2^40"), "{naive}");
    assert!(place.ok(&["options"]).ends_with(&place.ok(&["options", "tph"])));
    place.fails(2, &["options", "lsm"], "lsm");
    let help = place.ok(&["create", "--help"]);
    assert!(help.contains("hashlog  compression=none, lz4"), "{help}");
}

#[test]
fn a_mistyped_directory_is_not_created() {
    let place = Place::empty();
    std::fs::create_dir(place.path("plain")).unwrap();
    for words in [
        &["put", "DB", "t", "k", "v"][..],
        &["get", "DB", "t", "k"],
        &["tables", "DB"],
        &["stats", "DB"],
        &["check", "DB"],
        &["shell", "DB"],
        &["export", "DB", "t"],
    ] {
        place.fails(1, words, "does not exist");
        let plain: Vec<_> =
            words.iter().map(|word| if *word == "DB" { "DIR/plain" } else { *word }).collect();
        place.fails(1, &plain, "is not a Quintet database");
    }
    assert!(!place.path("db").exists());
    assert_eq!(std::fs::read_dir(place.path("plain")).unwrap().count(), 0);
}

#[test]
fn wrong_usage_is_one_line_and_code_2() {
    let place = Place::with_table();
    place.fails(2, &[], "no command");
    place.fails(2, &["frob"], "frob");
    place.fails(2, &["get", "DB"], "<TABLE>");
    place.fails(2, &["get", "DB", "t"], "<KEY>");
    place.fails(2, &["get", "DB", "t", "k", "--raw", "--json"], "--json");
    place.fails(2, &["get", "DB", "t", "xyz", "--hex"], "hexadecimal");
    place.fails(2, &["put", "DB", "t", "k"], "<VALUE>");
    place.fails(2, &["put", "DB", "t", "k"], "give a VALUE or --value-file; `quintet put --help`");
    place.fails(2, &["put", "DB", "t", "k", "v", "--ttl", "soon"], "soon");
    place.fails(2, &["put", "DB", "t", "k", "v", "--durability", "x"], "durability");
    place.fails(2, &["put", "DB", "t", "k", "v", "--type", "u16"], "u16");
    place.fails(2, &["put", "DB", "t", "k", "v", "--if-absent", "--if-present"], "--if-present");
    place.fails(2, &["del", "DB", "t"], "KEYS");
    place.fails(2, &["del", "DB", "t"], "give KEYS, or --from and --to; `quintet del --help`");
    place.fails(2, &["scan", "DB", "t", "--limit", "many"], "many");
    place.fails(2, &["tables", "DB", "--memory-budget", "lots"], "lots");
    place.fails(2, &["completions", "tcsh"], "tcsh");
    place.fails(2, &["check", "DB", "--quick", "--deep"], "--deep");
    place.fails(2, &["inspect"], "<FILE>");
    place.fails(2, &["export", "DB", "t", "DIR/x.xyz"], "--format");
    place.fails(2, &["export", "DB", "t", "DIR/x.dump", "--rows"], "dump");
    place.fails(2, &["export", "DB", "t", "DIR/x.csv", "--print"], "--print");
    place.fails(2, &["export", "DB", "t", "--no-header"], "--no-header");
    place.fails(2, &["import", "DB", "t", "x.dump", "--key", "k"], "--key");
    place.fails(2, &["import", "DB", "t", "x.csv", "--database", "d"], "--database");
    place.fails(2, &["import", "DB", "t", "x.jsonl", "--no-header"], "--no-header");
    place.fails(2, &["import", "DB", "t", "-"], "--format");
    place.fails(2, &["import", "DB", "t", "x.csv", "--batch", "0"], "--batch");
}

#[test]
fn a_table_that_is_not_there_is_named() {
    let place = Place::with_table();
    let file = place.file("x.csv", "k,v\na,b\n");
    for words in [
        &["get", "DB", "nope", "k"][..],
        &["put", "DB", "nope", "k", "v"],
        &["del", "DB", "nope", "k"],
        &["scan", "DB", "nope"],
        &["count", "DB", "nope"],
        &["drop", "DB", "nope"],
        &["rename", "DB", "nope", "new"],
        &["import", "DB", "nope", &file],
        &["export", "DB", "nope"],
        &["stats", "DB", "nope"],
        &["shell", "DB", "nope"],
    ] {
        place.fails(1, words, "nope");
    }
    place.ok(&["create", "DB", "u", "--engine", "naive"]);
    place.fails(1, &["rename", "DB", "t", "u"], "exists");
}

#[test]
fn values_are_put_got_and_deleted() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "k", "a value"]);
    assert_eq!(place.ok(&["get", "DB", "t", "k"]), "a value\n");
    assert_eq!(place.ok(&["get", "DB", "t", "k", "--raw"]), "a value");
    assert_eq!(
        place.ok(&["get", "DB", "t", "k", "--json"]),
        "{\"key\":\"k\",\"value\":\"a value\"}\n"
    );
    place.ok(&["put", "DB", "t", "k", "new", "--durability", "sync"]);
    assert_eq!(place.ok(&["get", "DB", "t", "k"]), "new\n");
    place.ok(&["put", "DB", "t", "other", "x"]);
    assert_eq!(place.ok(&["del", "DB", "t", "k", "absent"]), "deleted 1 of 2\n");
    place.fails(1, &["get", "DB", "t", "k"], "no key \"k\" in table t");
    assert_eq!(place.ok(&["count", "DB", "t"]), "1\n");
    assert_eq!(place.ok(&["count", "DB", "t", "--json"]), "{\"count\":1}\n");
}

#[test]
fn conditions_are_kept_and_their_failure_is_told() {
    let place = Place::with_table();
    place.fails(1, &["put", "DB", "t", "k", "v", "--if-present"], "has no value");
    place.ok(&["put", "DB", "t", "k", "v", "--if-absent"]);
    place.fails(1, &["put", "DB", "t", "k", "w", "--if-absent"], "already has a value");
    assert_eq!(place.ok(&["get", "DB", "t", "k"]), "v\n");
}

#[test]
fn an_entry_expires() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "short", "v", "--ttl", "1ms"]);
    place.ok(&["put", "DB", "t", "long", "v", "--ttl", "7d"]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    place.fails(1, &["get", "DB", "t", "short"], "no key");
    assert_eq!(place.ok(&["scan", "DB", "t"]), "long\tv\n");
    assert_eq!(place.ok(&["count", "DB", "t"]), "1\n");
    place.fails(1, &["put", "DB", "t", "k", "v", "--ttl", "0s"], "");
    // A file cannot say when an entry goes: the export says so.
    let found = place.run(&["export", "DB", "t"]);
    assert_eq!((found.code, found.text()), (0, "{\"key\":\"long\",\"value\":\"v\"}\n"));
    assert!(found.error.contains("1 entries had one"), "{found:?}");
}

#[test]
fn bytes_that_are_no_text_are_shown_safely_and_kept_exactly() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "ff00", "0a1b5b9b", "--hex"]);
    assert_eq!(place.ok(&["scan", "DB", "t"]), "\\xff\\0\t\\n\\u{1b}[\\x9b\n");
    assert_eq!(place.ok(&["scan", "DB", "t", "--hex"]), "ff00\t0a1b5b9b\n");
    assert_eq!(
        place.ok(&["scan", "DB", "t", "--json"]),
        "{\"key_hex\":\"ff00\",\"value_hex\":\"0a1b5b9b\"}\n"
    );
    assert_eq!(place.ok(&["get", "DB", "t", "ff00", "--hex"]), "0a1b5b9b\n");
    let every_byte: Vec<u8> = (0..=255).collect();
    let file = place.file("bytes", &every_byte);
    place.ok(&["put", "DB", "t", "all", "--value-file", &file]);
    assert_eq!(place.run(&["get", "DB", "t", "all", "--raw"]).out, every_byte);
    assert_eq!(place.feed(&["put", "DB", "t", "in", "--value-file", "-"], "\0\0").code, 0);
    assert_eq!(place.run(&["get", "DB", "t", "in", "--raw"]).out, b"\0\0");
}

#[test]
fn scans_select_by_prefix_and_limit() {
    let place = Place::with_table();
    for key in ["a1", "a2", "b1"] {
        place.ok(&["put", "DB", "t", key, "v"]);
    }
    let mut found: Vec<_> =
        place.ok(&["scan", "DB", "t", "--prefix", "a"]).lines().map(str::to_owned).collect();
    found.sort();
    assert_eq!(found, ["a1\tv", "a2\tv"]);
    assert_eq!(place.ok(&["count", "DB", "t", "--prefix", "b"]), "1\n");
    assert_eq!(place.ok(&["scan", "DB", "t", "--limit", "2", "--keys-only"]).lines().count(), 2);
    assert_eq!(place.ok(&["scan", "DB", "t", "--limit", "0"]), "");
    // The naive engine keeps no order.
    let needs = "--from, --to and --reverse need key order: use btree, slm or tph";
    place.fails(1, &["scan", "DB", "t", "--from", "a"], needs);
    place.fails(1, &["count", "DB", "t", "--to", "a"], needs);
    place.fails(1, &["scan", "DB", "t", "--reverse"], "order");
    place.fails(1, &["del", "DB", "t", "--from", "a", "--to", "b"], "order");
    place.fails(2, &["scan", "DB", "t", "--from", "a", "--prefix", "b"], "--prefix");
}

#[test]
fn keys_outside_their_limits_change_nothing() {
    let place = Place::with_table();
    place.fails(1, &["put", "DB", "t", "", "v"], "key");
    let long = "k".repeat(65_536);
    place.fails(1, &["put", "DB", "t", &long, "v"], "65535");
    place.fails(1, &["del", "DB", "t", "a", &long], "65535");
    let longest = "k".repeat(65_535);
    place.ok(&["put", "DB", "t", &longest, "v"]);
    assert_eq!(place.ok(&["get", "DB", "t", &longest]), "v\n");
    assert_eq!(place.ok(&["count", "DB", "t"]), "1\n");
}

/// Bad input: a message, the documented code, and a database as it was.
#[test]
fn what_is_refused_changes_nothing() {
    let place = Place::with_table();
    place.ok(&["create", "DB", "n", "--engine", "naive", "--key-type", "u64"]);
    place.ok(&["put", "DB", "t", "k", "before"]);
    let all = || {
        [
            place.ok(&["tables", "DB"]),
            place.ok(&["mounts", "DB"]),
            place.ok(&["scan", "DB", "t"]),
            place.ok(&["count", "DB", "n"]),
        ]
    };
    let before = all();
    let long = "k".repeat(65_536);
    for (code, words, what) in [
        (1, &["put", "DB", "t", "k", "v", "--ttl", "0s"][..], "at least 1 ms"),
        (2, &["put", "DB", "t", "k", "v", "--ttl=-5s"], "-5s"),
        (1, &["put", "DB", "t", &long, "v"], "65535"),
        (2, &["put", "DB", "n", "seven", "v"], "seven"),
        (1, &["put", "DB", "nowhere", "k", "v"], "nowhere"),
        (1, &["rename", "DB", "nowhere", "x"], "nowhere"),
        (1, &["drop", "DB", "nowhere", "--tree"], "nowhere"),
        (1, &["mount", "DB", "m", "DB"], "back to this database"),
        (1, &["create", "DB", ".expiry", "--engine", "naive"], ".expiry"),
    ] {
        place.fails(code, words, what);
        assert_eq!(all(), before, "{words:?} has changed something");
    }
}

#[test]
fn figures_are_printed_as_text_and_json() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "k", "v"]);
    assert!(place.ok(&["stats", "DB"]).lines().next().unwrap().contains("tables"));
    let table: serde_json::Value =
        serde_json::from_str(&place.ok(&["stats", "DB", "t", "--json"])).unwrap();
    assert_eq!(table["engine"], "naive");
    assert_eq!(table["keys"], 1);
    let database: serde_json::Value =
        serde_json::from_str(&place.ok(&["stats", "DB", "--json"])).unwrap();
    assert_eq!(database["tables"], 1);
}

#[test]
fn a_sound_database_passes_the_check_and_is_not_touched() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "k", "v"]);
    let before = contents(&place.path("db"));
    for level in [&["check", "DB"][..], &["check", "DB", "--quick"], &["check", "DB", "--deep"]] {
        let report = place.ok(level);
        assert!(report.starts_with("sound: "));
        assert!(report.contains(" entries and log records, "));
    }
    let report: serde_json::Value =
        serde_json::from_str(&place.ok(&["check", "DB", "--json"])).unwrap();
    assert_eq!(report["sound"], true);
    assert!(contents(&place.path("db")) == before, "the files have changed");
}

#[test]
fn damage_is_code_3_whatever_the_command() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "k", "v", "--durability", "sync"]);
    // The last quarter of the catalog's first 64 bytes lies in its head, whatever the head's
    // layout.
    let path = place.path("db/catalog");
    let mut bytes = std::fs::read(&path).unwrap();
    for byte in bytes.iter_mut().take(64) {
        *byte ^= 0x55;
    }
    std::fs::write(&path, &bytes).unwrap();
    let before = contents(&place.path("db"));
    for words in [
        &["check", "DB"][..],
        &["check", "DB", "--quick", "--json"],
        &["get", "DB", "t", "k"],
        &["put", "DB", "t", "k", "w"],
        &["inspect", "DIR/db/catalog"],
    ] {
        place.fails(3, words, "");
    }
    assert!(contents(&place.path("db")) == before, "the files have changed");
}

#[test]
fn files_can_be_inspected_and_others_are_refused() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "k", "v"]);
    let catalog = place.ok(&["inspect", "DIR/db/catalog"]);
    assert!(catalog.contains(": add table 1 \"t\" in 0, engine naive, seed "), "{catalog}");
    let segment = "DIR/db/log/0000000000000001.log";
    assert!(place.ok(&["inspect", segment]).contains("table 1 put \"k\" value of 1 bytes"));
    let other = place.file("other", "nothing known");
    place.fails(3, &["inspect", &other], "starts with");
    place.fails(1, &["inspect", "DIR/missing"], "does not exist");
    place.fails(1, &["inspect", "DB"], "is not a file");
}

#[test]
fn a_second_process_is_told_who_is_in() {
    let place = Place::with_table();
    let mut holder = std::process::Command::new(crate::common::QUINTET)
        .args(place.words(&["shell", "DB"]))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = std::io::BufReader::new(holder.stdout.take().unwrap());
    let mut input = holder.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"put k v\n").unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut answers, &mut line).unwrap();
    assert_eq!(line, "ok\n");
    place.fails(1, &["put", "DB", "t", "k", "w"], "already open in process");
    place.fails(1, &["get", "DB", "t", "k"], "already open in process");
    drop(input);
    assert!(holder.wait().unwrap().success());
    assert_eq!(place.ok(&["get", "DB", "t", "k"]), "v\n");
}

#[test]
fn help_version_and_completions_go_to_standard_output() {
    let place = Place::empty();
    assert!(place.ok(&["--help"]).contains("import"));
    assert!(place.ok(&["--version"]).starts_with("quintet "));
    assert!(place.ok(&["import", "--help"]).contains("JSON object"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(place.ok(&["completions", shell]).contains("export"), "{shell}");
    }
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let place = Place::with_table();
    let rows: Vec<_> = (0..20_000).map(|n| format!("key{n},value{n}")).collect();
    let file = place.file("x.csv", format!("k,v\n{}\n", rows.join("\n")));
    place.ok(&["import", "DB", "t", &file]);
    for words in [&["scan", "DB", "t"][..], &["export", "DB", "t"]] {
        let mut child = std::process::Command::new(crate::common::QUINTET)
            .args(place.words(words))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{words:?}");
    }
}

#[test]
fn a_full_disk_on_standard_output_is_told() {
    let place = Place::with_table();
    place.ok(&["put", "DB", "t", "k", "v"]);
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let output = std::process::Command::new(crate::common::QUINTET)
        .args(place.words(&["scan", "DB", "t"]))
        .stdout(full)
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let code = output.status.code().unwrap();
    check_failure(&crate::common::Answer { code, out: Vec::new(), error }, 1, "no space");
}

/// Every file below `dir` with its bytes.
fn contents(dir: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}
