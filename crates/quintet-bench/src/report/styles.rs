//! Which colour and stroke a store's lines have: the same on the whole page.

use super::model::CaseGroup;
use crate::store::Family;

/// Colours of the style sheet (Okabe and Ito's, which colour-blind people can tell apart).
const COLOURS: usize = 8;

/// Stores in the order of their colours.
#[derive(Clone, Debug, Default)]
pub(super) struct Styles {
    names: Vec<String>,
}

impl Styles {
    /// Styles for the stores of `groups`: ours first, so that theirs are the plain strokes.
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

    /// The classes of a store's lines.
    pub(super) fn class(&self, name: &str, family: Family) -> String {
        if family == Family::Reference {
            return "reference".to_owned();
        }
        let index = self.names.iter().position(|known| known == name).unwrap_or(0);
        let stroke = if family == Family::Ours { "ours" } else { "peer" };
        // Beyond the colours the strokes are broken: dashes, then dots.
        format!("{stroke} c{} d{}", index % COLOURS, (index / COLOURS).min(2))
    }
}
