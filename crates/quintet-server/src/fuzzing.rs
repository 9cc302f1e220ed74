//! What the fuzz targets run on inputs that may hold anything.
//!
//! A reader ends in a value or in an error, whatever the bytes are. How they are cut does not
//! matter: what is read a byte at a time is what is read at once.

use std::io::Read;

use crate::{
    loading::Check,
    rdb::{Failure, Item, Parsed, Payload, Sink, finish_payload, read_file},
    resp::{Limits, Parser},
};

/// Notes a digest of the elements.
#[derive(Debug, Default, PartialEq, Eq)]
struct Digest {
    items: u64,
    text: u64,
}

impl Sink for Digest {
    fn item(&mut self, item: Item<'_>) -> Parsed {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        match item {
            Item::String(value) => value.hash(&mut hasher),
            Item::Element(name) | Item::Member(name) | Item::Scored(name, _) => {
                name.hash(&mut hasher);
            }
            Item::Field(name, value, expiry) => (name, value, expiry).hash(&mut hasher),
            Item::Entry(id, words) => (id, words).hash(&mut hasher),
            other => format!("{other:?}").hash(&mut hasher),
        }
        self.items += 1;
        self.text = hasher.finish();
        Ok(())
    }
}

/// A source that gives one byte at a time.
struct Slowly<'b>(&'b [u8]);

impl Read for Slowly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(1);
        self.0.read(buffer.get_mut(..count).unwrap_or(&mut []))
    }
}

fn explains_itself(failure: &Failure) {
    let text = failure.to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
}

/// Reads a dump file.
///
/// # Panics
///
/// If a promise of the reader is broken.
pub fn dump_file(input: &[u8]) {
    let whole = read_file(input, &mut Check);
    let slowly = read_file(Slowly(input), &mut Check);
    match (whole, slowly) {
        (Ok(whole), Ok(slowly)) => assert_eq!(whole, slowly),
        (Err(whole), Err(slowly)) => {
            explains_itself(&whole);
            assert_eq!(whole.to_string(), slowly.to_string());
        }
        (whole, slowly) => panic!("{whole:?} at once, {slowly:?} by bytes"),
    }
}

/// Reads a payload of `DUMP`: a type and a value, to which the checksum is added.
///
/// # Panics
///
/// If a promise of the reader is broken.
pub fn dump_payload(input: &[u8]) {
    if let Some(payload) = Payload::verify(input) {
        check_payload(&payload);
    }
    let finished = finish_payload(input.to_vec(), 12);
    if let Some(payload) = Payload::verify(&finished) {
        check_payload(&payload);
    } else {
        assert!(input.is_empty(), "a payload that was finished is right");
    }
}

fn check_payload(payload: &Payload<'_>) {
    let (mut first, mut second) = (Digest::default(), Digest::default());
    if let Err(failure) = payload.read(&mut first) {
        explains_itself(&failure);
    }
    // A failure is the same again, behind the same elements.
    drop(payload.read(&mut second));
    assert_eq!(first, second);
}

/// Parses requests of clients, at once and a byte at a time.
///
/// # Panics
///
/// If the results differ, or an argument is not where the parser says.
pub fn requests(input: &[u8]) {
    let limits = Limits { args_max: 1024, bulk_bytes_max: 1 << 20, is_authenticated: true };
    let (mut whole, mut slowly) = (Parser::default(), Parser::default());
    let at_once = whole.parse(input, &limits);
    let mut by_bytes = Ok(None);
    for end in 0..=input.len() {
        by_bytes = slowly.parse(input.get(..end).unwrap_or(&[]), &limits);
        if !matches!(by_bytes, Ok(None)) {
            break;
        }
    }
    match (&at_once, &by_bytes) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one, other);
            assert_eq!(whole.words, slowly.words);
            if one.is_some() {
                assert_eq!(whole.ranges, slowly.ranges);
            }
            for (start, end) in &whole.ranges {
                let source = if whole.words.is_empty() { input } else { &whole.words };
                assert!(start <= end && *end <= source.len(), "an argument is in the request");
            }
        }
        // A line that is too long may be refused before its end has come.
        (Err(_), Err(_)) => {}
        _ => panic!("{at_once:?} at once, {by_bytes:?} by bytes"),
    }
}
