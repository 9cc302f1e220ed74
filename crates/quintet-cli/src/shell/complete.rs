//! Completion of commands and table names.

use rustyline::{
    Context, Helper,
    completion::{Completer, Pair},
    highlight::Highlighter,
    hint::Hinter,
    validate::Validator,
};

use super::session::COMMANDS;

/// The completer of the line editor.
#[derive(Debug)]
pub(super) struct CommandHelper {
    tables: Vec<String>,
}

impl CommandHelper {
    /// Creates a completer for commands and these table names.
    pub(super) fn new(tables: Vec<String>) -> Self {
        Self { tables }
    }
}

/// Returns the start of the word under the cursor, and its completions.
fn candidates(line: &str, tables: &[String]) -> (usize, Vec<String>) {
    let start = line.rfind([' ', '\t']).map_or(0, |space| space + 1);
    let (before, word) = line.split_at_checked(start).unwrap_or(("", line));
    let begins = |name: &&str| name.starts_with(word);
    let mut earlier = before.split_whitespace();
    let found = match (earlier.next(), earlier.next()) {
        (None, _) => {
            COMMANDS.iter().map(|command| command.name).filter(begins).map(str::to_owned).collect()
        }
        (Some("use" | "stats" | "drop" | "rename"), None) => {
            tables.iter().map(String::as_str).filter(begins).map(str::to_owned).collect()
        }
        (Some("create"), Some(_)) => quintet::EngineKind::AVAILABLE
            .iter()
            .map(quintet::EngineKind::name)
            .filter(begins)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    };
    (start, found)
}

impl Completer for CommandHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = candidates(line.get(..position).unwrap_or(line), &self.tables);
        // A completion is a whole word; the user can type the next one at once.
        let pair = |display: String| Pair { replacement: format!("{display} "), display };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for CommandHelper {
    type Hint = String;
}
impl Highlighter for CommandHelper {}
impl Validator for CommandHelper {}
impl Helper for CommandHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_first_and_tables_after_those_that_take_one() {
        let tables = ["app/users".to_owned(), "zones".to_owned()];
        assert_eq!(candidates("pu", &tables), (0, vec!["put".to_owned()]));
        assert_eq!(candidates("use ap", &tables), (4, vec!["app/users".to_owned()]));
        assert_eq!(candidates("use ", &tables).1.len(), 2);
        assert_eq!(candidates("create t n", &tables), (9, vec!["naive".to_owned()]));
        assert_eq!(candidates("get z", &tables), (4, Vec::new()));
    }
}
