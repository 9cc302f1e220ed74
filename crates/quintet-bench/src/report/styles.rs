//! Colours and strokes of the lines of stores: the same on the whole page.

use super::model::CaseGroup;
use crate::store::Family;

/// Number of colours of the style sheet (Okabe and Ito, distinguishable with colour blindness).
const COLOURS: usize = 8;

/// Stores in the order of their colours.
#[derive(Clone, Debug, Default)]
pub(super) struct Styles {
    names: Vec<String>,
}

impl Styles {
    /// Returns styles for the stores of `groups`. Ours come first, so they get solid strokes.
    pub(super) fn new(groups: &[CaseGroup<'_>]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let cells = || groups.iter().flat_map(|group| &group.cases).flat_map(|case| &case.cells);
        for family in [Family::Ours, Family::Peer] {
            for cell in cells().filter(|cell| cell.store.family == family) {
                if !names.contains(&cell.store.name) {
                    names.push(cell.store.name.clone());
                }
            }
        }
        Self { names }
    }

    /// Returns the classes of the lines of a store.
    pub(super) fn class(&self, name: &str, family: Family) -> String {
        if family == Family::Reference {
            return "reference".to_owned();
        }
        let index = self.names.iter().position(|known| known == name).unwrap_or(0);
        let stroke = if family == Family::Ours { "ours" } else { "peer" };
        // After the last colour the strokes are dashed, then dotted.
        format!("{stroke} c{} d{}", index % COLOURS, (index / COLOURS).min(2))
    }
}
