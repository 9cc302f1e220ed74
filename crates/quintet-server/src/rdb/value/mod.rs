//! Values of a dump, read element by element.
//!
//! A value's layout depends on the type before it: the constants of [`value_type`]. Strings and
//! lengths are those of [`input`](super::input).

mod stream;

use std::io::Read;

use super::{
    failure::{Failure, Parsed},
    input::Input,
    item::{Item, Sink, value_type},
    packed::{Entry, Malformed, Packed, Packing},
};

/// How a collection reads its entries.
#[derive(Clone, Copy, Debug)]
enum Shape {
    List,
    Set,
    SortedSet,
    Hash,
    HashWithExpiry,
}

/// Reads a value of a type. Each element goes to `sink`.
pub(super) fn read_value<R: Read>(input: &mut Input<R>, kind: u8, sink: &mut dyn Sink) -> Parsed {
    let mut emit = |input: &Input<R>, item: Item<'_>| {
        let offset = input.offset;
        sink.item(item).map_err(|failure| failure.at(offset))
    };
    match kind {
        value_type::STRING => {
            let value = input.string()?;
            emit(input, Item::String(value))
        }
        value_type::LIST => each(input, |input| {
            let element = input.string()?;
            emit(input, Item::Element(&element))
        }),
        value_type::SET => each(input, |input| {
            let member = input.string()?;
            emit(input, Item::Member(&member))
        }),
        value_type::SORTED_SET | value_type::SORTED_SET_TEXT => each(input, |input| {
            let member = input.string()?;
            let score = if kind == value_type::SORTED_SET {
                f64::from_le_bytes(input.array()?)
            } else {
                score_as_text(input)?
            };
            check_score(input, score)?;
            emit(input, Item::Scored(&member, score))
        }),
        value_type::HASH => each(input, |input| {
            let (field, value) = (input.string()?, input.string()?);
            emit(input, Item::Field(&field, &value, None))
        }),
        value_type::HASH_EXPIRY_OLD | value_type::HASH_EXPIRY => {
            hash_with_expiry(input, kind == value_type::HASH_EXPIRY, sink)
        }
        value_type::LIST_QUICKLIST => {
            each(input, |input| packed(input, Packing::Ziplist, Shape::List, sink))
        }
        value_type::LIST_QUICKLIST_2 => each(input, |input| match input.length()? {
            1 => {
                let element = input.string()?;
                let offset = input.offset;
                sink.item(Item::Element(&element)).map_err(|failure| failure.at(offset))
            }
            2 => packed(input, Packing::Listpack, Shape::List, sink),
            other => Err(input.malformed(format!("no node of a list has container {other}"))),
        }),
        value_type::STREAM | value_type::STREAM_2 | value_type::STREAM_3 => {
            stream::read(input, kind, sink)
        }
        value_type::HASH_LISTPACK_EXPIRY => {
            input.millis()?;
            packed(input, Packing::Listpack, Shape::HashWithExpiry, sink)
        }
        value_type::MODULE | value_type::MODULE_OLD => {
            Err(input.malformed("a value of a module; it can only be skipped in a whole file"))
        }
        _ => {
            let (packing, shape) = packing_of(kind)
                .ok_or_else(|| input.malformed(format!("no value has the type {kind}")))?;
            packed(input, packing, shape, sink)
        }
    }
}

/// The packing of a type whose values are one packed string.
fn packing_of(kind: u8) -> Option<(Packing, Shape)> {
    Some(match kind {
        value_type::HASH_ZIPMAP => (Packing::Zipmap, Shape::Hash),
        value_type::LIST_ZIPLIST => (Packing::Ziplist, Shape::List),
        value_type::SET_INTSET => (Packing::Intset, Shape::Set),
        value_type::SORTED_SET_ZIPLIST => (Packing::Ziplist, Shape::SortedSet),
        value_type::HASH_ZIPLIST => (Packing::Ziplist, Shape::Hash),
        value_type::HASH_LISTPACK => (Packing::Listpack, Shape::Hash),
        value_type::SORTED_SET_LISTPACK => (Packing::Listpack, Shape::SortedSet),
        value_type::SET_LISTPACK => (Packing::Listpack, Shape::Set),
        value_type::HASH_LISTPACK_EXPIRY_OLD => (Packing::Listpack, Shape::HashWithExpiry),
        _ => return None,
    })
}

/// Reads a count and calls `read` so often.
fn each<R: Read>(input: &mut Input<R>, mut read: impl FnMut(&mut Input<R>) -> Parsed) -> Parsed {
    // Each element takes bytes of the source, so a count that is too large ends with the source.
    for _ in 0..input.length()? {
        read(input)?;
    }
    Ok(())
}

fn check_score<R: Read>(input: &Input<R>, score: f64) -> Parsed {
    if score.is_nan() {
        return Err(input.malformed("a score is not a number"));
    }
    Ok(())
}

/// A score as text: its length, or 253 for NaN, 254 for infinity and 255 for negative infinity.
fn score_as_text<R: Read>(input: &mut Input<R>) -> Parsed<f64> {
    let length = match input.byte()? {
        253 => return Ok(f64::NAN),
        254 => return Ok(f64::INFINITY),
        255 => return Ok(f64::NEG_INFINITY),
        length => usize::from(length),
    };
    let mut text = [0; 255];
    let text = text.get_mut(..length).unwrap_or(&mut []);
    input.fill(text)?;
    crate::number::parse_f64(text).ok_or_else(|| input.malformed("a score is not a number"))
}

fn hash_with_expiry<R: Read>(
    input: &mut Input<R>,
    is_relative: bool,
    sink: &mut dyn Sink,
) -> Parsed {
    let base = if is_relative { input.millis()? } else { 1 };
    each(input, |input| {
        let expiry = match input.length()? {
            0 => None,
            after => {
                let expiry = (after - 1).checked_add(base);
                Some(expiry.ok_or_else(|| input.malformed("the expiry of a field is too large"))?)
            }
        };
        let (field, value) = (input.string()?, input.string()?);
        let offset = input.offset;
        sink.item(Item::Field(&field, &value, expiry)).map_err(|failure| failure.at(offset))
    })
}

/// Reads a packed string and hands its elements to `sink`.
fn packed<R: Read>(
    input: &mut Input<R>,
    packing: Packing,
    shape: Shape,
    sink: &mut dyn Sink,
) -> Parsed {
    let bytes = input.string()?;
    let offset = input.offset;
    let malformed = |Malformed(at, what)| Failure::Malformed {
        offset,
        what: format!("byte {at} of the {packing:?} that ends here: {what}"),
    };
    let odd = || Failure::Malformed {
        offset,
        what: format!("the {packing:?} that ends here lacks a value for its last entry"),
    };
    let mut packed = Packed::open(packing, &bytes).map_err(malformed)?;
    while let Some(entry) = packed.next().map_err(malformed)? {
        let name = entry.bytes();
        let mut next = || packed.next().map_err(malformed)?.ok_or_else(odd);
        let value: Entry<'_>;
        let value_bytes;
        let item = match shape {
            Shape::List => Item::Element(&name),
            Shape::Set => Item::Member(&name),
            Shape::SortedSet => {
                let score = crate::number::parse_f64(&next()?.bytes());
                Item::Scored(&name, score.ok_or(Failure::Content("a score is not a number"))?)
            }
            Shape::Hash | Shape::HashWithExpiry => {
                value = next()?;
                value_bytes = value.bytes();
                let mut expiry = None;
                if matches!(shape, Shape::HashWithExpiry) {
                    let millis = next()?.integer().and_then(|millis| u64::try_from(millis).ok());
                    let millis = millis.ok_or(Failure::Content("an expiry is not a time"));
                    expiry = Some(millis.map_err(|failure| failure.at(offset))?)
                        .filter(|millis| *millis > 0);
                }
                Item::Field(&name, &value_bytes, expiry)
            }
        };
        sink.item(item).map_err(|failure| failure.at(offset))?;
    }
    Ok(())
}
