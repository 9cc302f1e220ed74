//! `options.md`: the tables of options.

use std::fmt::Write as _;

use quintet::{EngineKind, EngineOption, OptionDefault, OptionValues, engine_options};

use crate::page::Page;

#[test]
fn the_page_of_options_is_generated() {
    let mut page = Page::read("options.md");
    for kind in EngineKind::ALL {
        page.fill(kind.name(), &table(engine_options(kind)));
    }
    page.finish();
}

fn table(options: &[EngineOption]) -> String {
    let mut text = "| option | values | default | meaning | change it when | for |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for option in options {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            names(option),
            values(option),
            default(option),
            option.meaning,
            option.change_when,
            option.audience
        );
    }
    text
}

fn names(option: &EngineOption) -> String {
    match option.aliases {
        [] => format!("`{}`", option.name),
        aliases => format!("`{}` (former name: `{}`)", option.name, aliases.join("`, `")),
    }
}

fn values(option: &EngineOption) -> String {
    match (option.values, option.unit) {
        (OptionValues::Words(words), _) => format!("`{}`", words.join("`, `")),
        (values, "") => values.to_string(),
        (values, unit) => format!("{values} {unit}"),
    }
}

fn default(option: &EngineOption) -> String {
    match option.default {
        OptionDefault::Word(word) => format!("`{word}`"),
        default => default.to_string(),
    }
}
