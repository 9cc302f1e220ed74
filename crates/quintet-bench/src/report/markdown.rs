//! Writes a document as Markdown: the tables, without charts.

use std::fmt::Write as _;

use super::document::{Document, DocumentBlock, Mark, Table, TableCell};

/// Returns the text of the document.
pub(super) fn write(document: &Document) -> String {
    let mut text = format!("# {}\n", escape(&document.title));
    for block in &document.blocks {
        match block {
            DocumentBlock::Heading(level, title) => {
                let marks = "#".repeat(usize::from(*level));
                let _ = write!(text, "\n{marks} {}\n", escape(title));
            }
            DocumentBlock::Text(words) if words.is_empty() => {}
            DocumentBlock::Text(words) => {
                let _ = write!(text, "\n{}\n", escape(words));
            }
            DocumentBlock::Table(table) => write_table(&mut text, table),
            DocumentBlock::Folded(title, table) => {
                let _ = write!(text, "\n{}:\n", escape(title));
                write_table(&mut text, table);
            }
            DocumentBlock::Charts(_) => {}
        }
    }
    text
}

fn write_table(text: &mut String, table: &Table) {
    text.push('\n');
    let head: Vec<String> = table.head.iter().map(|title| escape(title)).collect();
    let _ = writeln!(text, "| {} |", head.join(" | "));
    let rules: Vec<&str> =
        (0..head.len()).map(|column| if column < table.names { "---" } else { "---:" }).collect();
    let _ = writeln!(text, "| {} |", rules.join(" | "));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(cell).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

fn cell(cell: &TableCell) -> String {
    let mut text = escape(&cell.text);
    if !cell.note.is_empty() {
        let _ = write!(text, " ({})", escape(&cell.note));
    }
    match cell.mark {
        Mark::Loses => format!("**\u{25bc} {text}**"),
        Mark::Wins | Mark::None => text,
    }
}

/// Escapes text for Markdown, on one line.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '|' | '*' | '`' | '[' | ']' | '_' | '#' => {
                escaped.push('\\');
                escaped.push(letter);
            }
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_break_out_of_their_table() {
        let mut document = Document { title: "a".to_owned(), ..Document::default() };
        let mut table = Table::new(1, &["x|y", "z"]);
        let evil = "1 | 2\n| <b> `c`";
        table.row(vec![
            evil.into(),
            TableCell { text: "0.5x".to_owned(), mark: Mark::Loses, ..TableCell::default() },
        ]);
        document.table(table);
        let text = write(&document);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert_eq!(rows[2], "| 1 \\| 2 \\| &lt;b&gt; \\`c\\` | **\u{25bc} 0.5x** |");
    }
}
