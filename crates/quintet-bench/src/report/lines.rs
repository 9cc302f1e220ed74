//! Line charts over two axes. Each line has its name at its right end instead of a legend.
//!
//! Positions are given as drawn: for a logarithmic axis the caller passes logarithms.

use super::svg::{Anchor, Svg, fit, width_of};

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 300.0;
const FONT: f64 = 13.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;
/// Minimum vertical distance of two names.
const NAME_STEP: f64 = 14.0;
const NAME_MAX: f64 = 126.0;
/// Minimum gap between two names in a row, and the distance of rows.
const NAME_GAP: f64 = 4.0;
const ROW: f64 = 14.0;
/// Distance from the end of the lines to their names, for a leader line.
const LEADER: f64 = 14.0;

/// An axis.
#[derive(Clone, Debug, Default)]
pub(super) struct Axis {
    /// Title with the unit.
    pub(super) title: String,
    /// Start.
    pub(super) from: f64,
    /// End, above `from`.
    pub(super) to: f64,
    /// Labelled positions.
    pub(super) ticks: Vec<(f64, String)>,
}

/// A line.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    /// Name.
    pub(super) name: String,
    /// Classes of the style sheet for colour and stroke.
    pub(super) class: String,
    /// Points from left to right.
    pub(super) points: Vec<[f64; 2]>,
    /// At some points: position, minimum and maximum. If there are any, points get dots.
    pub(super) spreads: Vec<[f64; 3]>,
}

impl Axis {
    /// Returns the position of `value` on the axis, from 0 to 1. A value beyond the axis is at its
    /// end.
    fn part(&self, value: f64) -> f64 {
        let length = self.to - self.from;
        if length > 0.0 { ((value - self.from) / length).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Draws the picture.
pub(super) fn draw(x: &Axis, y: &Axis, series: &[Series]) -> String {
    let widest = |texts: &mut dyn Iterator<Item = &str>| {
        texts.map(|text| width_of(text, FONT)).fold(0.0, f64::max)
    };
    let names = widest(&mut series.iter().map(|line| line.name.as_str())).min(NAME_MAX);
    let ticks = widest(&mut y.ticks.iter().map(|(_, text)| text.as_str()));
    let left = ticks + 26.0;
    let right = WIDTH - names - LEADER - 4.0;
    let rows = rows(
        &x.ticks
            .iter()
            .map(|(at, text)| {
                let half = width_of(text, FONT) / 2.0;
                let across = left + (right - left) * x.part(*at);
                [across - half, across + half]
            })
            .collect::<Vec<_>>(),
    );
    let deepest = rows.iter().flatten().copied().fold(0.0, f64::max);
    let low = HEIGHT - BOTTOM - deepest * ROW;
    let place = |[across, up]: [f64; 2]| {
        [left + (right - left) * x.part(across), low - (low - TOP) * y.part(up)]
    };
    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("{} over {}", y.title, x.title));
    for (at, text) in &y.ticks {
        let [_, height] = place([x.from, *at]);
        svg.line("grid", [left, height], [right, height]);
        svg.text("tick", [left - 5.0, height + FONT * 0.33], Anchor::End, text);
    }
    for ((at, text), row) in x.ticks.iter().zip(rows) {
        // Every line must have its name, so names use all of the height.
        let Some(row) = row else { continue };
        let [across, _] = place([*at, y.from]);
        svg.line("grid", [across, TOP], [across, low + 4.0 + row * ROW]);
        svg.text("tick", [across, low + 18.0 + row * ROW], Anchor::Middle, text);
    }
    svg.text("axis", [f64::midpoint(left, right), HEIGHT - 8.0], Anchor::Middle, &x.title);
    // Vertical text beside the axis needs less room than a title above it.
    svg.upright("axis", [12.0, f64::midpoint(TOP, low)], &y.title);
    for line in series {
        let points: Vec<[f64; 2]> = line.points.iter().map(|point| place(*point)).collect();
        svg.open_group(&line.name);
        svg.path(&format!("line {}", line.class), &points);
        for [across, least, greatest] in &line.spreads {
            svg.line(
                &format!("line thin {}", line.class),
                place([*across, *least]),
                place([*across, *greatest]),
            );
        }
        if !line.spreads.is_empty() {
            for point in &points {
                svg.circle(&format!("dot {}", line.class), *point, 3.0);
            }
        }
        svg.close_group();
    }
    let ends: Vec<[f64; 2]> =
        series.iter().filter_map(|line| line.points.last()).map(|end| place(*end)).collect();
    let heights = spread_out(&ends.iter().map(|[_, y]| *y).collect::<Vec<_>>(), low);
    let drawn = series.iter().filter(|line| !line.points.is_empty());
    for ((line, [across, height]), name_height) in drawn.zip(ends).zip(heights) {
        let text = fit(&line.name, FONT, NAME_MAX);
        let at = right + LEADER;
        svg.line("leader", [across + 3.0, height], [at - 2.0, name_height]);
        let class = format!("name end {}", line.class);
        svg.text(&class, [at, name_height + FONT * 0.33], Anchor::Start, &text);
    }
    svg.finish()
}

/// Returns the row of each name below an axis, given the start and end of each name. It is the
/// first row in which the name touches no other name, or else the second; `None` if both are
/// occupied.
fn rows(reaches: &[[f64; 2]]) -> Vec<Option<f64>> {
    let mut row_ends = [f64::NEG_INFINITY; 2];
    let row = |[from, to]: &[f64; 2]| {
        let (row, free) = (0..2_u8).zip(&mut row_ends).find(|(_, end)| *from > **end)?;
        *free = to + NAME_GAP;
        Some(f64::from(row))
    };
    reaches.iter().map(row).collect()
}

/// A block of names that touch.
struct NameBlock {
    /// Mean of the wanted heights.
    wanted: f64,
    count: f64,
    members: Vec<usize>,
}

impl NameBlock {
    fn half(&self) -> f64 {
        (self.count - 1.0) / 2.0 * NAME_STEP
    }

    /// Returns the middle of the block: as wanted, but within the picture if there is room.
    fn middle(&self, low: f64) -> f64 {
        self.wanted.min(low - self.half()).max(TOP + self.half())
    }
}

/// Returns heights at least [`NAME_STEP`] apart, as close as possible to the wanted ones and above
/// `low` if there is room, in the given order.
fn spread_out(wanted: &[f64], low: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let height = |index: &usize| wanted.get(*index).copied().unwrap_or(0.0);
    order.sort_by(|a, b| height(a).total_cmp(&height(b)));
    let mut blocks: Vec<NameBlock> = Vec::new();
    for index in order {
        blocks.push(NameBlock { wanted: height(&index), count: 1.0, members: vec![index] });
        while let [.., above, below] = blocks.as_slice() {
            let apart = above.half() + NAME_STEP + below.half();
            if below.middle(low) - above.middle(low) >= apart {
                break;
            }
            let (Some(below), Some(mut above)) = (blocks.pop(), blocks.pop()) else { break };
            let count = above.count + below.count;
            above.wanted = (above.wanted * above.count + below.wanted * below.count) / count;
            above.count = count;
            above.members.extend(below.members);
            blocks.push(above);
        }
    }
    let mut heights = vec![0.0; wanted.len()];
    for block in blocks {
        let mut at = block.middle(low) - block.half();
        for member in block.members {
            if let Some(place) = heights.get_mut(member) {
                *place = at;
            }
            at += NAME_STEP;
        }
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_distance_and_their_order() {
        let heights = spread_out(&[100.0, 101.0, 50.0, 99.0, 255.0], 256.0);
        let order = [2, 3, 0, 1, 4];
        for pair in order.windows(2) {
            let (above, below) = (heights[pair[0]], heights[pair[1]]);
            assert!(below - above >= NAME_STEP - 1e-9, "{heights:?}");
        }
        assert!((heights[2] - 50.0).abs() < 1e-9, "whoever has room stays: {heights:?}");
        assert!((heights[0] - 100.0).abs() < 1e-9, "a block is centred: {heights:?}");
        assert!(spread_out(&[], 1.0).is_empty());
        // Blocks pushed down from the upper edge and up from the lower edge keep the distance.
        let mut crowd = spread_out(&[0.0, 1.0, 2.0, 3.0, 58.0, 240.0, 250.0, 256.0, 256.0], 256.0);
        assert!(crowd.iter().all(|height| (TOP..=256.0).contains(height)), "{crowd:?}");
        crowd.sort_by(f64::total_cmp);
        let closest = crowd.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MAX, f64::min);
        assert!(closest >= NAME_STEP - 1e-9, "{crowd:?}");
    }

    #[test]
    fn every_line_of_the_grid_has_its_name() {
        let crowded = [[0.0, 20.0], [21.0, 40.0], [30.0, 50.0], [26.0, 60.0], [70.0, 80.0]];
        assert_eq!(rows(&crowded), [Some(0.0), Some(1.0), Some(0.0), None, Some(0.0)]);
        let ticks = (0..6).map(|n| (f64::from(n), format!("p99.{n}{n}{n}"))).collect();
        let x = Axis { from: 0.0, to: 5.0, ticks, ..Axis::default() };
        let line = Series { points: vec![[0.0, 0.0]], ..Series::default() };
        let picture = draw(&x, &Axis::default(), &[line]);
        let lines = picture.matches("class=\"grid\"").count();
        assert_eq!(lines, picture.matches("class=\"tick\"").count());
        assert!(lines >= 5, "{picture}");
    }

    #[test]
    fn what_lies_beyond_an_axis_is_drawn_at_its_end() {
        let axis = Axis { from: 1.0, to: 3.0, ..Axis::default() };
        let parts = [0.0, 2.0, 9.0].map(|value| axis.part(value).to_bits());
        assert_eq!(parts, [0.0, 0.5, 1.0].map(f64::to_bits));
        assert_eq!(Axis::default().part(1.0).to_bits(), 0);
        let line = Series {
            name: "a".to_owned(),
            points: vec![[f64::NAN, 1.0], [2.0, f64::INFINITY]],
            ..Series::default()
        };
        let picture = draw(&axis, &axis, &[line, Series::default()]);
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }
}
