//! Errors of the configuration file without its content.
//!
//! A message of the TOML parser quotes the line that is wrong, and that line may have a password.
//! So an error has the number of the line, the name of the setting if it is one, and what was
//! expected. Nothing else of the file is in it: a word that is no setting may be a secret too.

use serde::de::DeserializeOwned;

/// Explains why `text` is no configuration `C`, which refuses unknown names.
pub(crate) fn explain<C: DeserializeOwned>(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let known = known_settings::<C>();
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let name = line.split('=').next().unwrap_or_default().trim();
    let setting = if known.iter().any(|own| own == name) { name } else { "" };
    let what = if message.starts_with("unknown field") {
        "there is no setting of this name; the example file lists all".to_owned()
    } else if message.starts_with("duplicate key") {
        "the setting is there twice".to_owned()
    } else {
        match message.rsplit_once(", expected ") {
            Some((_, expected)) => format!("expected {expected}"),
            None => "this is not valid TOML".to_owned(),
        }
    };
    let space = if setting.is_empty() { "" } else { ": " };
    format!("line {number}: {setting}{space}{what}")
}

/// The names of the settings, as the parser knows them.
fn known_settings<C: DeserializeOwned>() -> Vec<String> {
    let message = toml::from_str::<C>("\"\" = 0").err();
    let message = message.as_ref().map_or("", |error| error.message());
    let expected = message.split_once("expected").map_or("", |(_, names)| names);
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    /// A few settings of each kind.
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    #[expect(dead_code, reason = "only failures are looked at")]
    struct Settings {
        requirepass: Option<String>,
        masterauth: Option<String>,
        timeout: Option<u64>,
        proto_max_bulk_len: Option<u64>,
        appendfsync: Option<crate::state::AppendFsync>,
        users: Option<BTreeMap<String, Vec<String>>>,
    }

    #[test]
    fn errors_have_the_line_and_the_setting_and_no_content() {
        assert!(known_settings::<Settings>().iter().any(|name| name == "proto-max-bulk-len"));
        for (text, expected) in [
            ("timeout = 1\nrequirepass = 7123", "line 2: requirepass: expected a string"),
            ("requirepass = \"7123", "line 1: requirepass: "),
            ("\n\nrequirepass 7123", "line 3: "),
            ("7123 = 1", "line 1: there is no setting"),
            ("timeout = \"7123\"", "line 1: timeout: expected u64"),
            ("appendfsync = \"7123\"", "line 1: appendfsync: expected one of `always`"),
            ("timeout = 1\ntimeout = 7123", "line 2: timeout: the setting is there twice"),
            ("users.app = [\"on\", 7123]", "line 1: "),
            ("[users]\napp = 7123", "line 2: "),
            ("users.app = \"a, expected 7123\"", "line 1: expected a sequence"),
            ("masterauth = [\"7123\"]", "line 1: masterauth: expected a string"),
        ] {
            let error = toml::from_str::<Settings>(text).unwrap_err();
            let failure = explain::<Settings>(text, &error);
            assert!(failure.starts_with(expected), "{text:?}: {failure}");
            assert!(!failure.contains("7123"), "{text:?}: {failure}");
        }
    }
}
