//! The picture: panels of horizontal bars as SVG.

use std::fmt::{self, Write};

use super::panel::{Group, PanelFigures};

/// Colours of the picture.
pub(super) struct Scheme {
    background: &'static str,
    text: &'static str,
    muted: &'static str,
    line: &'static str,
    ours: &'static str,
    peer: &'static str,
    lost: &'static str,
}

pub(super) const LIGHT: Scheme = Scheme {
    background: "#ffffff",
    text: "#1f2328",
    muted: "#59636e",
    line: "#d1d9e0",
    ours: "#0969da",
    peer: "#afb8c1",
    lost: "#bc4c00",
};
pub(super) const DARK: Scheme = Scheme {
    background: "#0d1117",
    text: "#f0f6fc",
    muted: "#9198a1",
    line: "#3d444d",
    ours: "#4493f8",
    peer: "#57606a",
    lost: "#f0883e",
};

/// Lengths in pixels of the image.
const WIDTH: u32 = 960;
const MARGIN: u32 = 24;
const COLUMNS: usize = 3;
const COLUMN_STEP: u32 = 312;
const PANEL_WIDTH: u32 = 288;
/// Bars begin this far from the left edge of their panel, behind the store's name.
const BARS_AT: u32 = 66;
/// The longest bar. Its rate stands behind it, and the ratio at the right edge of the panel.
const BAR_LONGEST: f64 = 128.0;
const BAR_HEIGHT: u32 = 13;
const BAR_STEP: u32 = 18;
const PANELS_AT: u32 = 84;
const PANEL_HEAD: u32 = 30;
const GROUP_HEAD: u32 = 20;
const GROUP_GAP: u32 = 10;
const ROW_GAP: u32 = 22;

/// The notes, a line each.
const NOTES: [&str; 14] = [
    "How to read it",
    "Ratios are ours divided by the peer's.",
    "Orange: the peer is faster.",
    "Bars have one scale in each workload.",
    "Stores of one workload took turns; panels",
    "are of different days: do not compare them.",
    "LMDB is the better of read-ahead on and off",
    "where both were run.",
    "tph, slm: measured at rest after the load.",
    "load: random inserts. C: gets. A: half gets,",
    "half updates. E: ranges of about 50 entries",
    "(tph, btree: uniform; slm: zipfian).",
    "E of btree: files in memory (tmpfs).",
    "FASTER has not been measured.",
];

/// Draws the panels, three in a row, and the notes at the end of the first row.
pub(super) fn draw(panels: &[PanelFigures], scheme: &Scheme) -> Result<String, fmt::Error> {
    let mut cells: Vec<Option<&PanelFigures>> = panels.iter().map(Some).collect();
    cells.insert(cells.len().min(COLUMNS - 1), None);
    let mut body = String::new();
    let mut top = PANELS_AT;
    for row in cells.chunks(COLUMNS) {
        let mut tallest = 0;
        for (column, cell) in (0..).zip(row) {
            let left = MARGIN + column * COLUMN_STEP;
            let height = match cell {
                Some(panel) => draw_panel(&mut body, panel, left, top, scheme)?,
                None => draw_notes(&mut body, left, top, scheme)?,
            };
            tallest = tallest.max(height);
        }
        top += tallest + ROW_GAP;
    }
    let mut out = head(top, scheme)?;
    out += &body;
    out += "</svg>\n";
    Ok(out)
}

fn head(height: u32, scheme: &Scheme) -> Result<String, fmt::Error> {
    let Scheme { background, text, muted, .. } = scheme;
    let title = "Throughput in thousand operations a second";
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" font-family=\"system-ui, \
         -apple-system, 'Segoe UI', 'Liberation Sans', Helvetica, Arial, sans-serif\" \
         font-size=\"12\">\n<title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"{background}\"/>\n"
    );
    write!(
        out,
        "<text x=\"{MARGIN}\" y=\"36\" font-size=\"18\" font-weight=\"600\" \
         fill=\"{text}\">{title}</text>\n\
         <text x=\"{MARGIN}\" y=\"58\" fill=\"{muted}\">10 million records of 23 + 128 bytes, all \
         in memory, one thread, buffered writes, 2 cores of an AMD EPYC. Medians.</text>\n"
    )?;
    Ok(out)
}

fn group_height(group: &Group) -> u32 {
    GROUP_HEAD + group.bars.iter().map(|_| BAR_STEP).sum::<u32>() + GROUP_GAP
}

/// Draws a panel and returns its height.
fn draw_panel(
    out: &mut String,
    panel: &PanelFigures,
    left: u32,
    top: u32,
    scheme: &Scheme,
) -> Result<u32, fmt::Error> {
    let Scheme { text, muted, line, .. } = scheme;
    let right = left + PANEL_WIDTH;
    let (name_at, line_at) = (top + 14, top + 22);
    write!(
        out,
        "<text x=\"{left}\" y=\"{name_at}\" font-size=\"15\" font-weight=\"600\" \
         fill=\"{text}\">{}</text>\n\
         <text x=\"{right}\" y=\"{name_at}\" text-anchor=\"end\" fill=\"{muted}\">{}</text>\n\
         <path d=\"M{left} {line_at}H{right}\" stroke=\"{line}\"/>\n",
        panel.engine, panel.about,
    )?;
    let mut at = top + PANEL_HEAD;
    for group in &panel.groups {
        draw_group(out, group, left, at, scheme)?;
        at += group_height(group);
    }
    Ok(at - top)
}

fn draw_group(
    out: &mut String,
    group: &Group,
    left: u32,
    top: u32,
    scheme: &Scheme,
) -> fmt::Result {
    let Scheme { text, muted, .. } = scheme;
    let right = left + PANEL_WIDTH;
    let baseline = top + 13;
    let runs = if group.runs == 1 { "1 run".to_owned() } else { format!("{} runs", group.runs) };
    write!(
        out,
        "<text x=\"{left}\" y=\"{baseline}\" font-weight=\"600\" fill=\"{text}\">{}</text>\n\
         <text x=\"{right}\" y=\"{baseline}\" font-size=\"11\" text-anchor=\"end\" \
         fill=\"{muted}\">{}, {runs}</text>\n",
        group.title, group.date,
    )?;
    let most = group.bars.iter().map(|bar| bar.ops_per_second).fold(0.0, f64::max);
    let ours = group.bars.first().map_or(0.0, |bar| bar.ops_per_second);
    let bars_at = left + BARS_AT;
    for (index, bar) in (0..).zip(&group.bars) {
        let at = top + GROUP_HEAD + index * BAR_STEP;
        let baseline = at + 11;
        let length = bar.ops_per_second / most * BAR_LONGEST;
        let value_at = f64::from(bars_at) + length + 5.0;
        let is_ours = index == 0;
        let (fill, weight) = if is_ours { (scheme.ours, "600") } else { (scheme.peer, "400") };
        write!(
            out,
            "<text x=\"{left}\" y=\"{baseline}\" font-weight=\"{weight}\" \
             fill=\"{text}\">{}</text>\n\
             <rect x=\"{bars_at}\" y=\"{at}\" width=\"{length:.1}\" height=\"{BAR_HEIGHT}\" \
             rx=\"2\" fill=\"{fill}\"/>\n\
             <text x=\"{value_at:.1}\" y=\"{baseline}\" font-weight=\"{weight}\" \
             fill=\"{text}\">{}</text>\n",
            bar.label,
            thousands(bar.ops_per_second),
        )?;
        if !is_ours {
            let ratio = ours / bar.ops_per_second;
            let (fill, weight) = if ratio < 1.0 { (scheme.lost, "600") } else { (*muted, "400") };
            let places = if ratio < 1.095 { 2 } else { 1 };
            writeln!(
                out,
                "<text x=\"{right}\" y=\"{baseline}\" text-anchor=\"end\" \
                 font-weight=\"{weight}\" fill=\"{fill}\">{ratio:.places$}\u{d7}</text>"
            )?;
        }
    }
    Ok(())
}

/// Draws the notes and returns their height.
fn draw_notes(out: &mut String, left: u32, top: u32, scheme: &Scheme) -> Result<u32, fmt::Error> {
    let Scheme { text, muted, line, .. } = scheme;
    let mut baseline = top + 14;
    for (index, note) in NOTES.iter().enumerate() {
        let (size, weight, fill) = if index == 0 { (15, "600", text) } else { (12, "400", muted) };
        writeln!(
            out,
            "<text x=\"{left}\" y=\"{baseline}\" font-size=\"{size}\" font-weight=\"{weight}\" \
             fill=\"{fill}\">{note}</text>"
        )?;
        if index == 0 {
            let (line_at, right) = (top + 22, left + PANEL_WIDTH);
            writeln!(out, "<path d=\"M{left} {line_at}H{right}\" stroke=\"{line}\"/>")?;
            baseline += 10;
        }
        baseline += 19;
    }
    Ok(baseline - top)
}

/// `rate` in thousands, with a decimal below 100 and commas from 1,000 thousand on.
fn thousands(rate: f64) -> String {
    let value = rate / 1e3;
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Bar;

    #[test]
    fn rates_are_written_in_thousands() {
        assert_eq!(thousands(24_060.0), "24.1");
        assert_eq!(thousands(202_400.0), "202");
        assert_eq!(thousands(1_538_600.0), "1,539");
        assert_eq!(thousands(1_234_567_800.0), "1,234,568");
    }

    #[test]
    fn a_faster_peer_is_marked() {
        let bar = |label, ops_per_second| Bar { label, ops_per_second };
        let group = |theirs| Group {
            title: "load",
            date: "2026-01-01".to_owned(),
            runs: 1,
            bars: vec![bar("ours", 100e3), bar("theirs", theirs)],
        };
        let panel =
            |theirs| PanelFigures { engine: "ours", about: "", groups: vec![group(theirs)] };
        let lost = draw(&[panel(200e3)], &LIGHT).unwrap();
        assert!(lost.contains(&format!("fill=\"{}\">0.50\u{d7}<", LIGHT.lost)), "{lost}");
        let won = draw(&[panel(50e3)], &LIGHT).unwrap();
        assert!(won.contains(">2.0\u{d7}<") && !won.contains(LIGHT.lost), "{won}");
    }
}
