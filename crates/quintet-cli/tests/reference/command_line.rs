//! `command-line.md`: the help of each command.

use std::fmt::Write as _;

use clap::CommandFactory as _;
use quintet_cli::arguments::Arguments;

use crate::page::Page;

/// Columns of the help texts.
const WIDTH: usize = 100;

#[test]
fn the_page_of_commands_is_generated() {
    let mut page = Page::read("command-line.md");
    let mut text = String::new();
    let definition = Arguments::command();
    for command in definition.get_subcommands() {
        let name = command.get_name();
        let _ = writeln!(text, "## {name}\n\n{}\n", help_block(&["quintet", name, "--help"]));
    }
    page.fill("help", &help_block(&["quintet", "--help"]));
    page.fill("commands", &text);
    page.finish();
}

fn help_block(words: &[&str]) -> String {
    format!("```text\n{}\n```", help(words))
}

/// What the command prints, without spaces at line ends.
fn help(words: &[&str]) -> String {
    let asked = Arguments::command().term_width(WIDTH).try_get_matches_from(words);
    let text = asked.unwrap_err().render().to_string();
    text.trim().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
