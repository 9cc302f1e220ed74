//! A document of headings, paragraphs, tables and charts. [`super::html`] and [`super::markdown`]
//! write it. All text is plain; the writers escape it.

/// A document.
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    /// Title.
    pub(super) title: String,
    /// Parts in order.
    pub(super) blocks: Vec<DocumentBlock>,
}

/// A part of a document.
#[derive(Clone, Debug)]
pub(super) enum DocumentBlock {
    /// A heading of level 2 to 4.
    Heading(u8, String),
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
    /// A folded table with this title.
    Folded(String, Table),
    /// Charts side by side. Markdown omits them.
    Charts(Vec<Chart>),
}

/// A picture with its title.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// Title.
    pub(super) title: String,
    /// Caption.
    pub(super) about: String,
    /// SVG.
    pub(super) picture: String,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Titles of the columns, with units.
    pub(super) head: Vec<String>,
    /// Number of columns from the left that contain names instead of figures.
    pub(super) names: usize,
    /// Rows, as long as the header.
    pub(super) rows: Vec<Vec<TableCell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableCell {
    /// Text.
    pub(super) text: String,
    /// Note below the text; usually empty.
    pub(super) note: String,
    /// Comparison of ours with another store.
    pub(super) mark: Mark,
}

/// Comparison of ours with another store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mark {
    /// No comparison.
    #[default]
    None,
    /// Ours is better.
    Wins,
    /// Ours is worse.
    Loses,
}

impl Document {
    pub(super) fn heading(&mut self, level: u8, text: impl Into<String>) {
        self.blocks.push(DocumentBlock::Heading(level, text.into()));
    }

    pub(super) fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(DocumentBlock::Text(text.into()));
    }

    /// Adds a table without the columns that are empty in every row. Adds nothing if the table has
    /// no rows.
    pub(super) fn table(&mut self, mut table: Table) {
        table.drop_empty_columns();
        if !table.rows.is_empty() {
            self.blocks.push(DocumentBlock::Table(table));
        }
    }

    /// Adds a folded table, as [`Document::table`].
    pub(super) fn folded(&mut self, title: impl Into<String>, mut table: Table) {
        table.drop_empty_columns();
        if !table.rows.is_empty() {
            self.blocks.push(DocumentBlock::Folded(title.into(), table));
        }
    }

    /// Adds charts. Adds nothing if there are none.
    pub(super) fn charts(&mut self, charts: Vec<Chart>) {
        if !charts.is_empty() {
            self.blocks.push(DocumentBlock::Charts(charts));
        }
    }
}

impl Table {
    /// Returns a table with these columns. The first `names` columns contain names.
    pub(super) fn new(names: usize, head: &[&str]) -> Self {
        let head = head.iter().map(|&title| title.to_owned()).collect();
        Self { head, names, rows: Vec::new() }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: Vec<TableCell>) {
        debug_assert_eq!(cells.len(), self.head.len());
        self.rows.push(cells);
    }

    fn drop_empty_columns(&mut self) {
        let is_used = |column: usize| {
            column < self.names
                || self
                    .rows
                    .iter()
                    .any(|row| row.get(column).is_some_and(|cell| cell.text != super::units::NONE))
        };
        let used: Vec<bool> = (0..self.head.len()).map(is_used).collect();
        let keep = |column: usize| used.get(column).copied().unwrap_or(false);
        let mut column = 0;
        self.head.retain(|_| {
            column += 1;
            keep(column - 1)
        });
        for row in &mut self.rows {
            let mut column = 0;
            row.retain(|_| {
                column += 1;
                keep(column - 1)
            });
        }
    }
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl TableCell {
    /// Converts a figure; `None` is a dash.
    pub(super) fn figure(value: Option<f64>, format: impl Fn(f64) -> String) -> Self {
        value.filter(|value| value.is_finite()).map_or(super::units::NONE.to_owned(), format).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_a_figure_are_left_out() {
        let mut table = Table::new(1, &["store", "a", "b"]);
        table.row(vec!["x".into(), "-".into(), "1".into()]);
        table.row(vec!["y".into(), "-".into(), "-".into()]);
        let mut document = Document::default();
        document.table(table);
        document.table(Table::new(1, &["store"]));
        let [DocumentBlock::Table(table)] = document.blocks.as_slice() else { panic!("one table") };
        assert_eq!(table.head, ["store", "b"]);
        assert!(table.rows.iter().all(|row| row.len() == 2));
    }
}
