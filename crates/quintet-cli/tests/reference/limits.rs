//! `limits.md`: the table of the options of a database.

use std::fmt::Write as _;

use quintet::database_options;

use crate::page::Page;

#[test]
fn the_options_of_a_database_are_generated() {
    let mut page = Page::read("limits.md");
    let mut text = "| option | default | allowed |\n|---|---|---|\n".to_owned();
    for option in database_options() {
        let _ = writeln!(text, "| `{}` | {} | {} |", option.name, option.default, option.allowed);
    }
    page.fill("options of a database", &text);
    page.finish();
}
