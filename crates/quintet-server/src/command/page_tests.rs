//! The generated page of commands, and what holds for each row of the table.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf};

use super::{registry, table};
use crate::spec::{Group, Keys, flag};

/// If this variable is set, the test writes the page instead of comparing it.
const WRITE: &str = "QUINTET_REFERENCE_WRITE";

/// Commands of Redis 7.0 that are missing, by group. Commands of clusters, modules, replication and
/// scripts are not listed one by one.
const MISSING: [(&str, &[&str]); 3] = [
    ("generic", &["migrate"]),
    ("hyperloglog", &["pfdebug", "pfselftest"]),
    (
        "server",
        &[
            "config|rewrite",
            "debug",
            "failover",
            "module|load",
            "module|loadex",
            "module|unload",
            "psync",
            "replconf",
            "restore-asking",
            "sync",
        ],
    ),
];

fn page() -> String {
    let mut text = "# Commands of the server\n\n\
        The table of commands makes this page: \
        `QUINTET_REFERENCE_WRITE=1 cargo test -p quintet-server page`. \
        [The server](server.md) lists how commands differ from Redis. Redis's documentation \
        explains each command.\n"
        .to_owned();
    let commands = table();
    for group in Group::ALL {
        let rows: BTreeSet<_> = commands
            .iter()
            .map(|command| command.spec)
            .filter(|spec| spec.group == group && !spec.has(flag::CONTAINER))
            .map(|spec| (spec.name.replace('|', " "), spec.since, spec.summary))
            .collect();
        let _ =
            write!(text, "\n## {}\n\n| command | since | summary |\n|---|---|---|\n", group.name());
        for (name, since, summary) in rows {
            let _ = writeln!(text, "| `{}` | {since} | {summary} |", name.to_uppercase());
        }
    }
    text.push_str(
        "\n## Missing\n\nThe server answers these with an error. It also lacks the \
        commands of clusters (`CLUSTER`, `READONLY`, `READWRITE`, `ASKING`) and of scripts \
        (`EVAL`, `EVALSHA`, `SCRIPT`, `FUNCTION`, `FCALL`).\n\n| group | commands |\n|---|---|\n",
    );
    for (group, names) in MISSING {
        let names: Vec<_> = names
            .iter()
            .map(|name| format!("`{}`", name.replace('|', " ").to_uppercase()))
            .collect();
        let _ = writeln!(text, "| {group} | {} |", names.join(", "));
    }
    text
}

#[test]
fn the_page_of_commands_is_that_of_the_table() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/redis-commands.md");
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &page).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(&path).unwrap() == page,
        "docs/redis-commands.md is not up to date; run \
         `QUINTET_REFERENCE_WRITE=1 cargo test -p quintet-server page`"
    );
}

#[test]
fn each_row_has_a_name_of_its_own_and_consistent_columns() {
    let commands = table();
    let registry = registry(&commands);
    for (at, command) in commands.iter().enumerate() {
        let spec = command.spec;
        assert_eq!(registry.find(spec.name.as_bytes()), Some(at), "{} has two rows", spec.name);
        assert_eq!(spec.name, spec.name.to_ascii_lowercase());
        assert!(spec.summary.ends_with(['.', 't']), "{}: {}", spec.name, spec.summary);
        let is_missing = MISSING.iter().any(|(_, names)| names.contains(&spec.name));
        assert!(!is_missing, "{} is listed as missing", spec.name);
        if spec.has(flag::WRITE) {
            assert!(!spec.has(flag::READ), "{} reads and writes", spec.name);
            let names_keys = spec.keys != Keys::None || spec.has(flag::LOCK_ALL);
            assert!(names_keys, "{} writes without a lock", spec.name);
        }
    }
}
