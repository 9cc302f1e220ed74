//! `statistics.md`: it names each figure that `quintet stats` prints, in that order.

use quintet::{Database, EngineKind, TableOptions};
use quintet_cli::figures::{self, Figures};

use crate::page::Page;

/// Figures that only a failure has.
const FAILURES: [&str; 2] = ["background_failure", "failure"];

#[test]
fn the_page_of_statistics_names_each_figure() {
    let page = Page::read("statistics.md");
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path().join("db")).unwrap();
    let mut common = Vec::new();
    for kind in EngineKind::ALL {
        let table = database.create_table(kind.name(), TableOptions::new(kind)).unwrap();
        let own = table.stats().unwrap().details.len();
        let mut all = names(&figures::of_table(&table).unwrap());
        let details = all.split_off(all.len() - own);
        assert_eq!(section(&page, kind.name()), details, "{kind}");
        common = all;
    }
    let in_pool = TableOptions::new(EngineKind::Slm).set("medium", "pmem");
    let table = database.create_table("pool", in_pool.set("pmem_bytes", "4194304")).unwrap();
    let slm = section(&page, "slm").len();
    let own = table.stats().unwrap().details.len();
    let all = names(&figures::of_table(&table).unwrap());
    let of_pool = &all[all.len() - own + slm..];
    assert_eq!(section(&page, "slm in persistent memory"), of_pool);
    assert_eq!(section(&page, "Table"), common);
    assert_eq!(section(&page, "Database"), names(&figures::of_database(&database)));
}

fn names(figures: &Figures) -> Vec<String> {
    figures.iter().map(|(name, _)| name.clone()).collect()
}

/// The names in the table of a section, without those that only a failure has.
fn section(page: &Page, heading: &str) -> Vec<String> {
    let start = page.committed().find(&format!("\n## {heading}\n")).unwrap() + 1;
    let text = &page.committed()[start..];
    let text = &text[..text.find("\n## ").unwrap_or(text.len())];
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned())
        .filter(|name| !FAILURES.contains(&name.as_str()))
        .collect()
}
