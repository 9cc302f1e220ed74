//! Writes a document as one HTML page with its style sheet and pictures, without scripts and
//! external resources.

use std::fmt::Write as _;

use super::{
    document::{Chart, Document, DocumentBlock, Mark, Table, TableCell},
    svg::escape,
};

const STYLE: &str = include_str!("style.css");

/// Returns the text of the page.
pub(super) fn write(document: &Document) -> String {
    let title = escape(&document.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<header><h1>{title}</h1></header>\n"
    );
    write_contents(&mut page, document);
    page.push_str("<main>\n");
    for (index, block) in document.blocks.iter().enumerate() {
        match block {
            DocumentBlock::Heading(level, title) => {
                let _ = writeln!(page, "<h{level} id=\"s{index}\">{}</h{level}>", escape(title));
            }
            DocumentBlock::Text(text) if text.is_empty() => {}
            DocumentBlock::Text(text) => {
                let _ = writeln!(page, "<p>{}</p>", escape(text));
            }
            DocumentBlock::Table(table) => write_table(&mut page, table),
            DocumentBlock::Folded(title, table) => {
                let _ = writeln!(page, "<details><summary>{}</summary>", escape(title));
                write_table(&mut page, table);
                page.push_str("</details>\n");
            }
            DocumentBlock::Charts(charts) => write_charts(&mut page, charts),
        }
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// Writes links to the sections.
fn write_contents(page: &mut String, document: &Document) {
    page.push_str("<nav aria-label=\"Contents\"><ul>\n");
    for (index, block) in document.blocks.iter().enumerate() {
        if let DocumentBlock::Heading(2, title) = block {
            let _ = writeln!(page, "<li><a href=\"#s{index}\">{}</a></li>", escape(title));
        }
    }
    page.push_str("</ul></nav>\n");
}

fn write_charts(page: &mut String, charts: &[Chart]) {
    page.push_str("<div class=\"charts\">\n");
    for chart in charts {
        let _ = writeln!(
            page,
            "<figure><figcaption><b>{}</b><span>{}</span></figcaption>\n{}\n</figure>",
            escape(&chart.title),
            escape(&chart.about),
            chart.picture
        );
    }
    page.push_str("</div>\n");
}

fn write_table(page: &mut String, table: &Table) {
    // A focusable region can be scrolled with the keyboard.
    page.push_str("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table\">");
    page.push_str("<table>\n<thead><tr>");
    for (column, title) in table.head.iter().enumerate() {
        let class = if column < table.names { " class=\"text\"" } else { "" };
        let _ = write!(page, "<th scope=\"col\"{class}>{}</th>", escape(title));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    let mut before: Option<&TableCell> = None;
    for row in &table.rows {
        let first = row.first();
        // Rows of one name form a block.
        let class = if before.is_some() && before != first { " class=\"next\"" } else { "" };
        before = first;
        let _ = write!(page, "<tr{class}>");
        for (column, cell) in row.iter().enumerate() {
            write_cell(page, cell, column, table.names);
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
}

fn write_cell(page: &mut String, cell: &TableCell, column: usize, names: usize) {
    let mut text = escape(&cell.text);
    if !cell.note.is_empty() {
        let _ = write!(text, "<small>{}</small>", escape(&cell.note));
    }
    let _ = match (column, cell.mark) {
        (0, _) => write!(page, "<th scope=\"row\" class=\"text\">{text}</th>"),
        (column, Mark::None) if column < names => write!(page, "<td class=\"text\">{text}</td>"),
        (_, Mark::None) => write!(page, "<td>{text}</td>"),
        (_, Mark::Wins) => write!(page, "<td class=\"win\">{text}</td>"),
        (_, Mark::Loses) => write!(
            page,
            "<td class=\"lose\"><span class=\"mark\" title=\"ours is worse\">\u{25bc}</span> \
             {text}</td>"
        ),
    };
}
