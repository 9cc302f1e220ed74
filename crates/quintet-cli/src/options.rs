//! Engine options: `options`, the part of the help of `create` that lists them, and the options of
//! a new table.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use quintet::{
    EngineKind, EngineOption, OptionAudience, TableOptions, check_table_options, engine_options,
};

use crate::{
    failure::{Failure, Outcome},
    form::Typing,
};

/// Columns of the text of an option.
const WIDTH: usize = 100;
const INDENT: &str = "    ";

/// Returns the options of a new table from the arguments of a command. Fails with
/// [`Failure::Usage`] if a name is given twice or an option is not valid.
pub fn of_table(
    engine: EngineKind,
    settings: &[(String, String)],
    typing: &Typing,
) -> Outcome<TableOptions> {
    let mut options = TableOptions::new(engine);
    for (name, value) in settings {
        if options.settings().any(|(given, _)| given == name) {
            let what = format!("option {name}: it is given twice; give it once");
            return Err(Failure::Usage(what));
        }
        options = options.set(name, value);
    }
    check_table_options(&options)?;
    typing.apply(options)
}

/// Writes the options of an engine, or of all engines.
pub fn print(engine: Option<EngineKind>, out: &mut dyn Write) -> io::Result<()> {
    let kinds = engine.map_or_else(|| EngineKind::ALL.to_vec(), |engine| vec![engine]);
    for (index, kind) in kinds.into_iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "Options of {kind}:")?;
        for option in engine_options(kind) {
            writeln!(out, "\n{}={}", option.name, values(option))?;
            writeln!(out, "{INDENT}default: {}; for: {}", option.default, option.audience)?;
            let text = format!("{}. Change it when {}.", option.meaning, option.change_when);
            for line in wrap(&text, WIDTH - INDENT.len()) {
                writeln!(out, "{INDENT}{line}")?;
            }
        }
    }
    Ok(())
}

/// The general options, as the help of `create` lists them.
pub fn summary() -> String {
    let mut text = "Options by engine that depend on the data or on the machine. `quintet options \
                    ENGINE` lists all, with defaults and when to change them.\n"
        .to_owned();
    for kind in EngineKind::ALL {
        let general =
            engine_options(kind).iter().filter(|option| option.audience == OptionAudience::General);
        for option in general {
            let _ = write!(text, "\n  {:8} {}={}", kind.name(), option.name, values(option));
        }
    }
    text
}

fn values(option: &EngineOption) -> String {
    match option.unit {
        "" => option.values.to_string(),
        unit => format!("{} {unit}", option.values),
    }
}

/// The lines of a text, each of at most `width` columns unless a word is longer.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(engine: Option<EngineKind>) -> String {
        let mut out = Vec::new();
        print(engine, &mut out).unwrap_or_default();
        String::from_utf8(out).unwrap_or_default()
    }

    #[test]
    fn each_option_is_listed_once_with_values_and_default() {
        for kind in EngineKind::ALL {
            let text = printed(Some(kind));
            for option in engine_options(kind) {
                let head = format!("\n{}={}\n", option.name, values(option));
                assert_eq!(text.matches(&head).count(), 1, "{kind}: {head}");
            }
            assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        }
        let naive = "Options of naive:\n\nsnapshot_bytes=4,096 to 2^40 bytes\n    default: \
                     2,097,152 (the paper's); for: general\n";
        assert!(printed(Some(EngineKind::Naive)).starts_with(naive));
        let all = printed(None);
        assert!(EngineKind::ALL.iter().all(|kind| all.contains(&printed(Some(*kind)))));
    }

    #[test]
    fn the_summary_lists_general_options_alone() {
        let text = summary();
        assert!(text.contains("\n  hashlog  compression=none, lz4\n"), "{text}");
        assert!(!text.contains("chunk_bytes"), "{text}");
    }
}
