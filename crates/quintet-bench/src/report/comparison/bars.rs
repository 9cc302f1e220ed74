//! Horizontal bars, one for each store: the median, a line from the minimum to the maximum, and the
//! figure as text.
//!
//! Bars begin at zero. The longest bar of ours and the peers sets the scale. A bar of a reference
//! store that exceeds it is cut with a broken end; its figure remains. If less is better, a peer
//! far beyond all others is cut as well, so that the others remain distinguishable. Bars of ours
//! are never cut.

use super::super::{
    model::Spread,
    svg::{Anchor, Svg, fit, width_of},
    units::nice,
};
use crate::store::Family;

const WIDTH: f64 = 440.0;
const FONT: f64 = 13.0;
const ROW: f64 = 24.0;
const BAR: f64 = 13.0;
/// Height of the axis: ticks and title.
const AXIS: f64 = 40.0;
const NAME_MAX: f64 = 130.0;
const GAP: f64 = 6.0;
/// A peer is cut beyond this multiple of ours and of the median peer.
const CUT_FACTOR: f64 = 4.0;

/// The bar of a store.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// Store.
    pub(super) name: String,
    /// Family of the store, which selects the colour.
    pub(super) family: Family,
    /// Figures; `None` if the store failed.
    pub(super) spread: Option<Spread>,
    /// Median as text, or the reason why there is none.
    pub(super) text: String,
    /// Whether a peer is better.
    pub(super) loses: bool,
}

/// Bars that may be cut, besides those of reference stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CutPolicy {
    None,
    /// Peers far beyond ours and the median peer.
    FarPeers,
}

/// Draws the picture. `axis` is the title of the axis with its unit; `format` formats its figures.
pub(super) fn draw(
    axis: &str,
    bars: &[Bar],
    cut: CutPolicy,
    format: impl Fn(f64) -> String,
) -> String {
    let value_text = |bar: &Bar| {
        if bar.loses { format!("\u{25bc} {}", bar.text) } else { bar.text.clone() }
    };
    let widest = |texts: &mut dyn Iterator<Item = f64>| texts.fold(0.0, f64::max);
    let names = widest(&mut bars.iter().map(|bar| width_of(&bar.name, FONT))).min(NAME_MAX);
    let values = widest(&mut bars.iter().map(|bar| width_of(&value_text(bar), FONT)));
    let left = names + GAP;
    let plot = (WIDTH - left - values - 2.0 * GAP).max(60.0);
    let end = nice(scale_end(bars, cut));
    let x = |value: f64| left + plot * (value / end).clamp(0.0, 1.0);
    let mut rows = 0.0;
    for _ in bars {
        rows += ROW;
    }
    let mut svg = Svg::new(WIDTH, rows + AXIS, axis);
    for part in [0.0, 0.5, 1.0] {
        let at = left + plot * part;
        svg.line("grid", [at, 0.0], [at, rows + 4.0]);
        let anchor = if part == 0.0 { Anchor::Start } else { Anchor::Middle };
        svg.text("tick", [at, rows + 17.0], anchor, &tick(end * part, &format));
    }
    svg.text("axis", [left + plot / 2.0, rows + 34.0], Anchor::Middle, axis);
    let mut top = 0.0;
    for bar in bars {
        let middle = top + ROW / 2.0;
        let baseline = middle + FONT * 0.36;
        svg.open_group(&format!("{}: {}", bar.name, tip(bar, &format)));
        svg.text("name", [left - GAP, baseline], Anchor::End, &fit(&bar.name, FONT, names));
        let mut to = left;
        if let Some(spread) = bar.spread {
            to = shape(&mut svg, bar.family, spread, [left, middle], &x, end);
        }
        let class = if bar.loses { "value lose" } else { "value" };
        svg.text(class, [to + GAP, baseline], Anchor::Start, &value_text(bar));
        svg.close_group();
        top += ROW;
    }
    svg.finish()
}

/// Draws a bar and its spread. Returns the end of the bar.
fn shape(
    svg: &mut Svg,
    family: Family,
    spread: Spread,
    [left, middle]: [f64; 2],
    x: &impl Fn(f64) -> f64,
    end: f64,
) -> f64 {
    let class = match family {
        Family::Ours => "bar ours",
        Family::Peer => "bar peer",
        Family::Reference => "bar reference",
    };
    let width = (x(spread.median) - left).max(1.0);
    svg.rect(class, [left, middle - BAR / 2.0], [width, BAR]);
    if spread.median > end {
        // A broken end: two strokes across.
        for back in [10.0, 15.0] {
            let at = left + width - back;
            svg.line(
                "break",
                [at - 3.0, middle + BAR / 2.0 + 2.0],
                [at + 3.0, middle - BAR / 2.0 - 2.0],
            );
        }
        return left + width;
    }
    let (low, high) = (x(spread.least), x(spread.greatest));
    if spread.greatest > spread.least {
        svg.line("whisker", [low, middle], [high, middle]);
        for at in [low, high] {
            svg.line("whisker", [at, middle - 4.0], [at, middle + 4.0]);
        }
    }
    high.max(left + width)
}

/// Returns the maximum of ours and the peers, or of all stores if there are none.
fn scale_end(bars: &[Bar], cut: CutPolicy) -> f64 {
    let spreads = |family: Family| {
        bars.iter().filter(move |bar| bar.family == family).filter_map(|bar| bar.spread)
    };
    let greatest = |family| spreads(family).fold(0.0, |most, spread| spread.greatest.max(most));
    let ours = greatest(Family::Ours);
    let mut peers = greatest(Family::Peer);
    if cut == CutPolicy::FarPeers {
        let medians: Vec<f64> = spreads(Family::Peer).map(|spread| spread.median).collect();
        let usual = Spread::of(&medians).map_or(0.0, |spread| spread.median).max(ours);
        if usual > 0.0 {
            peers = peers.min(CUT_FACTOR * usual);
        }
    }
    let of_stores = ours.max(peers);
    if of_stores > 0.0 { of_stores } else { greatest(Family::Reference) }
}

/// Formats a figure of the axis. Zero has no unit.
fn tick(value: f64, format: &impl Fn(f64) -> String) -> String {
    if value > 0.0 { format(value) } else { "0".to_owned() }
}

fn tip(bar: &Bar, format: &impl Fn(f64) -> String) -> String {
    bar.spread.map_or(bar.text.clone(), |spread| {
        format!(
            "{} (from {} to {})",
            format(spread.median),
            format(spread.least),
            format(spread.greatest)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(family: Family, value: f64) -> Bar {
        let spread = Some(Spread { median: value, least: value, greatest: value });
        Bar { name: "x".to_owned(), family, spread, text: "1".to_owned(), loses: false }
    }

    #[test]
    fn the_scale_is_that_of_ours_and_of_usual_peers() {
        let bars = [
            bar(Family::Ours, 2.0),
            bar(Family::Peer, 1.0),
            bar(Family::Peer, 1.5),
            bar(Family::Peer, 200.0),
            bar(Family::Reference, 900.0),
        ];
        let ends = [CutPolicy::None, CutPolicy::FarPeers].map(|cut| scale_end(&bars, cut));
        assert_eq!(ends.map(f64::to_bits), [200.0, 8.0].map(f64::to_bits));
        let reference = [bar(Family::Reference, 9.0)];
        assert_eq!(scale_end(&reference, CutPolicy::FarPeers).to_bits(), 9.0_f64.to_bits());
        assert_eq!(scale_end(&[], CutPolicy::None).to_bits(), 0.0_f64.to_bits());
        let ours = [bar(Family::Ours, 500.0), bar(Family::Peer, 1.0)];
        assert_eq!(
            scale_end(&ours, CutPolicy::FarPeers).to_bits(),
            500.0_f64.to_bits(),
            "never ours"
        );
        // Cut bars have a broken end.
        let breaks =
            |cut| draw("x", &bars, cut, |value| value.to_string()).matches("break").count();
        assert_eq!((breaks(CutPolicy::None), breaks(CutPolicy::FarPeers)), (2, 4));
    }
}
