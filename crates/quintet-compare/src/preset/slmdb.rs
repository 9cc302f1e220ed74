use super::Preset;
pub(super) const PRESETS: &[Preset] = &[];
