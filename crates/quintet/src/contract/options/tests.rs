//! Names, values and displays of options, and whether an engine reads all that it declares.

use std::fmt;

use super::{
    EngineKind, EngineOption, OptionAudience, OptionDefault, OptionReader, OptionValues,
    TableOptions,
};
use crate::{Error, Result};

/// Asserts that each option changes what `parse` returns, and that `parse` refuses values that the
/// option does not accept.
pub(crate) fn assert_reads_all<S: fmt::Debug>(
    kind: EngineKind,
    known: &[EngineOption],
    parse: impl Fn(&TableOptions) -> Result<S>,
) {
    let with = |option: &EngineOption, value: &str| {
        parse(&TableOptions::new(kind).set(option.name, value)).map(|all| format!("{all:?}"))
    };
    let default = format!("{:?}", parse(&TableOptions::new(kind)).unwrap());
    for option in known {
        let (accepted, refused) = examples(option);
        let read: Vec<String> = accepted.iter().map(|text| with(option, text).unwrap()).collect();
        assert!(read.iter().any(|all| *all != default), "{kind} does not read {}", option.name);
        for text in refused {
            match with(option, &text) {
                Err(Error::InvalidOption { name, .. }) => assert_eq!(name, option.name),
                other => panic!("{kind}, {} = {text:?}: {other:?}", option.name),
            }
        }
    }
}

/// Values that the option accepts, and values that it refuses.
fn examples(option: &EngineOption) -> (Vec<String>, Vec<String>) {
    let mut refused: Vec<String> = ["", "-1", "1.5", "4K", "other"].map(str::to_owned).to_vec();
    let (min, max) = match option.values {
        OptionValues::Words(words) => {
            return (words.iter().map(|word| (*word).to_owned()).collect(), refused);
        }
        OptionValues::Path => return (vec!["/mnt/pmem".to_owned()], refused),
        OptionValues::Number { min, max }
        | OptionValues::PowerOfTwo { min, max }
        | OptionValues::Multiple { min, max, .. } => (min, max),
    };
    refused.push((max + 1).to_string());
    refused.extend(min.checked_sub(1).map(|below| below.to_string()));
    if !matches!(option.values, OptionValues::Number { .. }) {
        refused.push((min + 1).to_string());
        refused.push((max - 1).to_string());
    }
    (vec![min.to_string(), max.to_string()], refused)
}

const SIZE: EngineOption = EngineOption {
    name: "size_bytes",
    aliases: &["bytes", "length"],
    values: OptionValues::PowerOfTwo { min: 1 << 12, max: 1 << 46 },
    default: OptionDefault::Number { value: 8192, note: "the paper's" },
    unit: "bytes",
    meaning: "size",
    change_when: "never",
    audience: OptionAudience::Expert,
};
const KNOWN: &[EngineOption] = &[
    SIZE,
    EngineOption {
        name: "rate",
        aliases: &[],
        default: OptionDefault::Computed("half of it"),
        ..SIZE
    },
];

fn table() -> TableOptions {
    TableOptions::new(EngineKind::Naive)
}

fn refusal(options: &TableOptions) -> String {
    OptionReader::new(options, KNOWN).unwrap_err().to_string()
}

#[test]
fn a_former_name_is_accepted_once() {
    for name in ["size_bytes", "bytes"] {
        let options = table().set(name, "4096");
        let reader = OptionReader::new(&options, KNOWN).unwrap();
        assert!(reader.is_set("size_bytes") && !reader.is_set("rate"));
        assert_eq!(reader.number("size_bytes").unwrap(), 4096);
    }
    let twice = table().set("size_bytes", "4096").set("bytes", "8192");
    assert_eq!(
        refusal(&twice),
        "option size_bytes: it is set twice, once under its former name bytes"
    );
    let both_former = table().set("bytes", "4096").set("length", "8192");
    assert_eq!(
        refusal(&both_former),
        "option size_bytes: it is set twice, under its former names bytes and length"
    );
    // The message names the option as it is called today.
    assert_eq!(
        refusal(&table().set("bytes", "5000")),
        "option size_bytes: the naive engine does not accept \"5000\"; it accepts a power of two \
         from 4096 to 70368744177664 bytes"
    );
}

#[test]
fn an_option_is_recorded_under_its_current_name() {
    let options = table().set("length", "4096").set("rate", "8192").set("colour", "red");
    let settings = options.current_settings(KNOWN);
    let settings: Vec<_> =
        settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(settings, [("colour", "red"), ("rate", "8192"), ("size_bytes", "4096")]);
}

#[test]
fn defaults_are_the_declared_or_the_computed_ones() {
    let options = table();
    let reader = OptionReader::new(&options, KNOWN).unwrap();
    assert_eq!(reader.number("size_bytes").unwrap(), 8192);
    assert_eq!(reader.number_or("size_bytes", |default| default / 2).unwrap(), 4096);
    assert_eq!(reader.number_or("rate", |_| 7).unwrap(), 7);
    let set = table().set("rate", "4096");
    assert_eq!(OptionReader::new(&set, KNOWN).unwrap().number_or("rate", |_| 7).unwrap(), 4096);
}

#[test]
fn an_unknown_option_is_refused_with_the_known_names() {
    assert_eq!(
        refusal(&table().set("colour", "red")),
        "option colour: the naive engine has no such option; it has: size_bytes, rate"
    );
    // An engine that reads what it does not declare fails whatever is set.
    let options = table();
    let reader = OptionReader::new(&options, KNOWN).unwrap();
    let message = reader.number("colour").unwrap_err().to_string();
    assert_eq!(message, "option colour: the naive engine reads it but does not declare it");
}

#[test]
fn values_and_defaults_display_as_phrases() {
    assert_eq!(SIZE.values.to_string(), "a power of two, 4,096 to 2^46");
    assert_eq!(SIZE.default.to_string(), "8,192 (the paper's)");
    assert_eq!(KNOWN[1].default.to_string(), "half of it");
    let multiple = OptionValues::Multiple { of: 64, min: 64, max: 16_384 };
    assert_eq!(multiple.to_string(), "a multiple of 64, 64 to 16,384");
    assert_eq!(OptionValues::Number { min: 0, max: 1_234_567 }.to_string(), "0 to 1,234,567");
    assert_eq!(OptionValues::Words(&["one", "two"]).to_string(), "one, two");
    assert_eq!(OptionDefault::Word("one").to_string(), "one");
    assert_eq!(OptionDefault::Number { value: 0, note: "" }.to_string(), "0");
    assert_eq!(format!("{:8}|", OptionAudience::General), "general |");
}
