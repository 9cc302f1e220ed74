//! A small writer of SVG for charts.
//!
//! Plotting crates do not fit. Colours must follow the light or dark scheme of the page, so shapes
//! have classes for its style sheet; these crates do not support classes. Without a font library
//! they also only estimate the width of a text.
//!
//! Invariants: numbers have one decimal and are finite; text and attributes are escaped; the same
//! calls give the same bytes.

use std::fmt::Write as _;

/// Width of a common letter as a fraction of the font size, in the widest usual sans-serif font
/// (`DejaVu Sans`). Other fonts leave a margin.
const LETTER_WIDTH: f64 = 0.62;

/// A picture under construction.
#[derive(Clone, Debug)]
pub(super) struct Svg {
    text: String,
}

/// Point of a text that its position refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// Returns an empty picture with a description for screen readers.
    pub(super) fn new(width: f64, height: f64, description: &str) -> Self {
        let mut text = String::new();
        let _ = write!(
            text,
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
            number(width),
            number(height),
            escape(description)
        );
        Self { text }
    }

    pub(super) fn rect(&mut self, class: &str, [x, y]: [f64; 2], [width, height]: [f64; 2]) {
        let _ = write!(
            self.text,
            "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            escape(class),
            number(x),
            number(y),
            number(width.max(0.0)),
            number(height.max(0.0))
        );
    }

    pub(super) fn line(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        let _ = write!(
            self.text,
            "<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            escape(class),
            number(x1),
            number(y1),
            number(x2),
            number(y2)
        );
    }

    pub(super) fn circle(&mut self, class: &str, [x, y]: [f64; 2], radius: f64) {
        let _ = write!(
            self.text,
            "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>",
            escape(class),
            number(x),
            number(y),
            number(radius)
        );
    }

    /// A line through points.
    pub(super) fn path(&mut self, class: &str, points: &[[f64; 2]]) {
        let list: Vec<String> =
            points.iter().map(|[x, y]| format!("{},{}", number(*x), number(*y))).collect();
        let _ = write!(
            self.text,
            "<polyline class=\"{}\" points=\"{}\"/>",
            escape(class),
            list.join(" ")
        );
    }

    pub(super) fn text(&mut self, class: &str, [x, y]: [f64; 2], anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = write!(
            self.text,
            "<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            escape(class),
            number(x),
            number(y),
            escape(text)
        );
    }

    /// Adds text that reads upwards, centred at the position.
    pub(super) fn upright(&mut self, class: &str, [x, y]: [f64; 2], text: &str) {
        let (x, y) = (number(x), number(y));
        let _ = write!(
            self.text,
            "<text class=\"{}\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 {x} {y})\">{}</text>",
            escape(class),
            escape(text)
        );
    }

    /// Begins a group with a tooltip.
    pub(super) fn open_group(&mut self, tip: &str) {
        let _ = write!(self.text, "<g><title>{}</title>", escape(tip));
    }

    pub(super) fn close_group(&mut self) {
        self.text.push_str("</g>");
    }

    /// Returns the text of the picture.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>");
        self.text
    }
}

/// Estimates the width of `text` in a font of `size`.
pub(super) fn width_of(text: &str, size: f64) -> f64 {
    let letters = text.chars().map(|letter| match letter {
        'i' | 'j' | 'l' | 't' | 'f' | ' ' | '.' | ',' | ':' | '-' | '(' | ')' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' => 0.97,
        letter if letter.is_ascii_uppercase() => 0.74,
        _ => LETTER_WIDTH,
    });
    letters.sum::<f64>() * size
}

/// Returns `text` cut to a width, with two dots if something was cut.
pub(super) fn fit(text: &str, size: f64, width: f64) -> String {
    if width_of(text, size) <= width {
        return text.to_owned();
    }
    let mut cut: String = text.to_owned();
    while !cut.is_empty() && width_of(&cut, size) + width_of("..", size) > width {
        cut.pop();
    }
    cut.push_str("..");
    cut
}

/// Formats a number with one decimal; NaN and infinities give 0.
fn number(value: f64) -> String {
    let value = if value.is_finite() { value.clamp(-1e6, 1e6) } else { 0.0 };
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Escapes text for XML and HTML, inside elements and quoted attributes. Characters that XML does
/// not allow become `?`.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(letter),
            letter if letter.is_control() => escaped.push('?'),
            '\u{fffe}' | '\u{ffff}' => escaped.push('?'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_store_says_becomes_markup() {
        let evil = "</text><script>alert('1')</script> \"&\u{0}";
        let mut svg = Svg::new(10.0, 10.0, evil);
        svg.text("a\" onload=\"b", [1.0, 2.0], Anchor::Middle, evil);
        svg.open_group(evil);
        svg.close_group();
        let text = svg.finish();
        assert!(!text.contains("<script") && !text.contains("\" onload"), "{text}");
        assert_eq!(text.matches("&lt;script&gt;").count(), 3);
        assert_eq!(text.matches('<').count(), text.matches('>').count());
        assert!(!text.contains('\0'));
    }

    #[test]
    fn numbers_are_finite_and_short() {
        let numbers = [1.0, 1.25, -0.01, f64::NAN, f64::INFINITY, 1e300].map(number);
        assert_eq!(numbers, ["1", "1.2", "0", "0", "0", "1000000"]);
    }

    #[test]
    fn long_names_are_cut_to_their_place() {
        assert_eq!(fit("rocksdb", 12.0, 100.0), "rocksdb");
        let cut = fit("a-store-with-a-long-name", 12.0, 60.0);
        assert!(cut.ends_with("..") && width_of(&cut, 12.0) <= 60.0, "{cut}");
    }
}
