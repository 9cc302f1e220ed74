//! The parser of requests and the encoder of replies beside the crate `redis-protocol`.
//!
//! Both sides read the same bytes. Where the results differ, [`Difference`] names the reason; a
//! difference without a reason fails the test.

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};
use redis_protocol::{
    resp2::{decode::decode as decode2, encode::encode as encode2, types::OwnedFrame as Frame2},
    resp3::{
        decode::complete::decode as decode3,
        types::{OwnedFrame as Frame3, VerbatimStringFormat},
    },
};

use super::{
    parse::{Args, Limits, Parser, ProtocolError},
    reply::{Protocol, Reply},
};

const LIMITS: Limits = Limits { args_max: 16, bulk_bytes_max: 256, is_authenticated: true };

/// The arguments and the length in bytes of a request, if it is whole.
type Request = Option<(Vec<Vec<u8>>, usize)>;

/// What our parser reads from bytes that come at once.
fn ours(input: &[u8]) -> Result<Request, ProtocolError> {
    let mut parser = Parser::default();
    let length = parser.parse(input, &LIMITS)?;
    Ok(length.map(|length| {
        let source = if parser.words.is_empty() { input } else { &parser.words };
        (Args::new(source, &parser.ranges).from(0).map(<[u8]>::to_vec).collect(), length)
    }))
}

/// What the library reads.
#[derive(Debug)]
enum Theirs {
    Partial,
    Request(Vec<Vec<u8>>, usize),
    /// A frame that is no array of bulk strings.
    Other,
    Error,
}

fn theirs(input: &[u8]) -> Theirs {
    match decode2(input) {
        Ok(None) => Theirs::Partial,
        Ok(Some((Frame2::Array(items), length))) => {
            let bulks = items.into_iter().map(|item| match item {
                Frame2::BulkString(bytes) => Some(bytes),
                _ => None,
            });
            bulks.collect::<Option<_>>().map_or(Theirs::Other, |args| Theirs::Request(args, length))
        }
        Ok(Some(_)) => Theirs::Other,
        Err(_) => Theirs::Error,
    }
}

/// Why the parser and the library may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    /// A line of words is a request, and no frame.
    Inline,
    /// An array with a negative length is an empty request, as in Redis.
    Empty,
    /// Items of a request are bulk strings. Others are refused when their line is whole, as in
    /// Redis: the library refuses an unknown kind at once, and waits for all of a known one.
    NotBulk,
    /// More arguments, or longer ones, than the limits allow. Refused before they come.
    Limit,
    /// Redis takes no plus sign and no zeros in front of a length.
    Number,
    /// A line ends at its first `\r`, as in Redis, and the byte behind it is not looked at.
    LineEnd,
}

/// The reason why the results for `input` may differ, if there is one.
fn difference(input: &[u8]) -> Option<Difference> {
    let mut rest = match input {
        [b'*', ..] => input,
        _ => return Some(Difference::Inline),
    };
    loop {
        let is_head = rest.len() == input.len();
        let unknown = (!is_head && rest[0] != b'$').then_some(Difference::NotBulk);
        let Some(end) = rest.iter().position(|byte| *byte == b'\r') else { return unknown };
        let (kind, text) = (rest[0], rest.get(1..end).unwrap_or(&[]));
        match rest.get(end + 1) {
            None => return unknown,
            Some(b'\n') => {}
            Some(_) => return Some(Difference::LineEnd),
        }
        let text = std::str::from_utf8(text).unwrap_or("");
        let number = text.parse::<i64>().ok();
        if number.is_some_and(|number| number.to_string() != text) {
            return Some(Difference::Number);
        }
        let length = match (is_head, kind, number) {
            (true, _, Some(..0)) => return Some(Difference::Empty),
            (true, _, Some(count)) if count > 16 => return Some(Difference::Limit),
            (true, _, Some(_)) => None,
            (false, b'$', Some(length)) if length > 256 => return Some(Difference::Limit),
            (false, b'$', Some(length @ 0..)) => Some(usize::try_from(length).unwrap()),
            (false, b'$', None) | (true, _, None) => return None,
            // Among them is the bulk string of length -1, which is null.
            (false, _, _) => return Some(Difference::NotBulk),
        };
        let skipped = end + 2 + length.map_or(0, |length| length + 2);
        match rest.get(skipped..) {
            None | Some([]) => return None,
            Some(next) => rest = next,
        }
    }
}

/// Compares the results for bytes that come at once.
fn compare(input: &[u8]) -> Result<(), TestCaseError> {
    let (ours, theirs) = (ours(input), theirs(input));
    let is_same = match (&ours, &theirs) {
        (Ok(None), Theirs::Partial) | (Err(_), Theirs::Error) => true,
        (Ok(Some((args, length))), Theirs::Request(other, end)) => args == other && length == end,
        _ => false,
    };
    prop_assert!(
        is_same || difference(input).is_some(),
        "{}: ours {ours:?}, the library's {theirs:?}",
        input.escape_ascii()
    );
    Ok(())
}

/// A request as the library encodes it.
fn encoded(args: &[Vec<u8>]) -> Vec<u8> {
    let frame = Frame2::Array(args.iter().cloned().map(Frame2::BulkString).collect());
    let mut bytes = vec![0; args.iter().map(|arg| arg.len() + 16).sum::<usize>() + 16];
    let length = encode2(&mut bytes, &frame, false).unwrap();
    bytes.truncate(length);
    bytes
}

/// A change of one place of a request.
#[derive(Clone, Debug)]
enum Change {
    Put(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let byte = || select(b"\r\n*$:+-0123456789a\xff".to_vec());
    prop_oneof![
        (any::<Index>(), byte()).prop_map(|(at, byte)| Change::Put(at, byte)),
        (any::<Index>(), byte()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        any::<Index>().prop_map(Change::Remove),
        any::<Index>().prop_map(Change::Cut),
    ]
}

fn apply(input: &mut Vec<u8>, change: &Change) {
    if input.is_empty() {
        return;
    }
    match change {
        Change::Put(at, byte) => *at.get_mut(input) = *byte,
        Change::Insert(at, byte) => input.insert(at.index(input.len()), *byte),
        Change::Remove(at) => drop(input.remove(at.index(input.len()))),
        Change::Cut(at) => input.truncate(at.index(input.len())),
    }
}

/// A reply of any shape.
#[derive(Clone, Debug)]
enum Shape {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    NullArray,
    Double(f64),
    Verbatim(String),
    Array(Vec<Shape>),
    Push(Vec<Shape>),
    /// Distinct bulk strings.
    Set(Vec<Vec<u8>>),
    /// Values by distinct bulk strings.
    Map(Vec<(Vec<u8>, Shape)>),
}

fn shape() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        "[a-zA-Z ]{0,9}".prop_map(Shape::Simple),
        "[A-Z]{1,5} [a-z ]{0,9}".prop_map(Shape::Error),
        any::<i64>().prop_map(Shape::Integer),
        vec(any::<u8>(), 0..40).prop_map(Shape::Bulk),
        Just(Shape::Null),
        Just(Shape::NullArray),
        any::<f64>().prop_filter("not a number", |value| !value.is_nan()).prop_map(Shape::Double),
        "[a-z:\r\n]{0,20}".prop_map(Shape::Verbatim),
        proptest::collection::btree_set(vec(any::<u8>(), 0..9), 0..5)
            .prop_map(|names| Shape::Set(names.into_iter().collect())),
    ];
    leaf.prop_recursive(3, 40, 6, |inner| {
        let map = proptest::collection::btree_map(vec(any::<u8>(), 0..9), inner.clone(), 0..5);
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Shape::Array),
            map.prop_map(|pairs| Shape::Map(pairs.into_iter().collect())),
        ]
    })
}

/// A whole reply. Only a message is pushed, and a message is within nothing.
fn reply() -> impl Strategy<Value = Shape> {
    let push = (any::<Vec<u8>>(), vec(shape(), 0..4)).prop_map(|(kind, rest)| {
        Shape::Push(std::iter::once(Shape::Bulk(kind)).chain(rest).collect())
    });
    prop_oneof![4 => shape(), 1 => push]
}

fn write(reply: &mut Reply, shape: &Shape) {
    match shape {
        Shape::Simple(text) => reply.simple(text),
        Shape::Error(text) => reply.error(text),
        Shape::Integer(value) => reply.integer(*value),
        Shape::Bulk(bytes) => reply.bulk(bytes),
        Shape::Null => reply.null(),
        Shape::NullArray => reply.null_array(),
        Shape::Double(value) => reply.double(*value),
        Shape::Verbatim(text) => reply.verbatim(text),
        Shape::Array(items) | Shape::Push(items) => {
            if matches!(shape, Shape::Array(_)) {
                reply.array(items.len());
            } else {
                reply.push(items.len());
            }
            for item in items {
                write(reply, item);
            }
        }
        Shape::Set(names) => {
            reply.set(names.len());
            for name in names {
                reply.bulk(name);
            }
        }
        Shape::Map(pairs) => {
            reply.map(pairs.len());
            for (name, value) in pairs {
                reply.bulk(name);
                write(reply, value);
            }
        }
    }
}

/// What the library should read in RESP2.
fn frame2(shape: &Shape) -> Frame2 {
    let bulk = |bytes: &[u8]| Frame2::BulkString(bytes.to_vec());
    match shape {
        Shape::Simple(text) => Frame2::SimpleString(text.clone().into_bytes()),
        Shape::Error(text) => Frame2::Error(text.clone()),
        Shape::Integer(value) => Frame2::Integer(*value),
        Shape::Bulk(bytes) => bulk(bytes),
        Shape::Null | Shape::NullArray => Frame2::Null,
        Shape::Double(value) => bulk(crate::number::format_score(*value).as_bytes()),
        Shape::Verbatim(text) => bulk(text.as_bytes()),
        Shape::Array(items) | Shape::Push(items) => {
            Frame2::Array(items.iter().map(frame2).collect())
        }
        Shape::Set(names) => Frame2::Array(names.iter().map(|name| bulk(name)).collect()),
        Shape::Map(pairs) => {
            let flat = pairs.iter().flat_map(|(name, value)| [bulk(name), frame2(value)]);
            Frame2::Array(flat.collect())
        }
    }
}

/// What the library should read in RESP3.
fn frame3(shape: &Shape) -> Frame3 {
    let attributes = None;
    let bulk = |bytes: &[u8]| Frame3::BlobString { data: bytes.to_vec(), attributes: None };
    match shape {
        Shape::Simple(text) => Frame3::SimpleString { data: text.clone().into_bytes(), attributes },
        Shape::Error(text) => Frame3::SimpleError { data: text.clone(), attributes },
        Shape::Integer(value) => Frame3::Number { data: *value, attributes },
        Shape::Bulk(bytes) => bulk(bytes),
        Shape::Null | Shape::NullArray => Frame3::Null,
        Shape::Double(value) => Frame3::Double { data: *value, attributes },
        Shape::Verbatim(text) => Frame3::VerbatimString {
            data: text.clone().into_bytes(),
            format: VerbatimStringFormat::Text,
            attributes,
        },
        Shape::Array(items) => {
            Frame3::Array { data: items.iter().map(frame3).collect(), attributes }
        }
        Shape::Push(items) => Frame3::Push { data: items.iter().map(frame3).collect(), attributes },
        Shape::Set(names) => {
            Frame3::Set { data: names.iter().map(|name| bulk(name)).collect(), attributes }
        }
        Shape::Map(pairs) => {
            let data = pairs.iter().map(|(name, value)| (bulk(name), frame3(value))).collect();
            Frame3::Map { data, attributes }
        }
    }
}

/// The bytes of a reply.
fn written(protocol: Protocol, shape: &Shape) -> Vec<u8> {
    let mut reply = Reply::default();
    reply.protocol = protocol;
    write(&mut reply, shape);
    reply.out
}

proptest! {
    #[test]
    fn requests_are_read_as_the_library_reads_them_cut_at_every_byte(
        args in vec(vec(any::<u8>(), 0..40), 0..8),
        follower in vec(any::<u8>(), 0..4),
    ) {
        let request = encoded(&args);
        let mut slowly = Parser::default();
        for end in 0..request.len() {
            let part = &request[..end];
            prop_assert_eq!(ours(part), Ok(None));
            prop_assert!(matches!(theirs(part), Theirs::Partial));
            prop_assert_eq!(slowly.parse(part, &LIMITS), Ok(None));
        }
        // Bytes of the next request change nothing.
        let all = [request.as_slice(), &follower].concat();
        prop_assert_eq!(slowly.parse(&all, &LIMITS), Ok(Some(request.len())));
        let found: Vec<_> = Args::new(&all, &slowly.ranges).from(0).collect();
        prop_assert_eq!(&found, &args);
        prop_assert_eq!(ours(&all), Ok(Some((args.clone(), request.len()))));
        let is_same = matches!(
            theirs(&all),
            Theirs::Request(found, end) if found == args && end == request.len()
        );
        prop_assert!(is_same);
    }

    #[test]
    fn changed_requests_are_read_or_refused_as_by_the_library(
        args in vec(vec(select(b"ab0\r\n$*".to_vec()), 0..12), 0..5),
        changes in vec(change(), 1..4),
    ) {
        let mut input = encoded(&args);
        for change in &changes {
            apply(&mut input, change);
            compare(&input)?;
        }
    }

    #[test]
    fn random_bytes_are_read_or_refused_as_by_the_library(
        input in vec(select(b"\r\n*$:+-0123456789a".to_vec()), 0..40),
    ) {
        compare(&[b"*", input.as_slice()].concat())?;
        compare(&[b"*1\r\n$", input.as_slice()].concat())?;
        compare(&input)?;
    }

    #[test]
    fn the_library_reads_replies_cut_at_every_byte(shape in reply()) {
        let bytes = written(Protocol::Resp2, &shape);
        for end in 0..bytes.len() {
            prop_assert!(matches!(decode2(&bytes[..end]), Ok(None)), "RESP2, cut at {}", end);
        }
        let all = [bytes.as_slice(), b"+OK\r\n"].concat();
        prop_assert_eq!(decode2(&all).unwrap(), Some((frame2(&shape), bytes.len())));

        let bytes = written(Protocol::Resp3, &shape);
        for end in 0..bytes.len() {
            prop_assert!(matches!(decode3(&bytes[..end]), Ok(None)), "RESP3, cut at {}", end);
        }
        let all = [bytes.as_slice(), b"+OK\r\n"].concat();
        prop_assert_eq!(decode3(&all).unwrap(), Some((frame3(&shape), bytes.len())));
    }
}

#[test]
fn each_difference_has_an_example() {
    for (input, expected) in [
        ("PING\r\n", Some(Difference::Inline)),
        ("*-2\r\n", Some(Difference::Empty)),
        ("*1\r\n:1\r\n", Some(Difference::NotBulk)),
        ("*2\r\n$-1\r\n", Some(Difference::NotBulk)),
        ("*17\r\n", Some(Difference::Limit)),
        ("*1\r\n$257\r\n", Some(Difference::Limit)),
        ("*01\r\n$1\r\na\r\n", Some(Difference::Number)),
        ("*1\r\n$+1\r\na\r\n", Some(Difference::Number)),
        ("*1\rx$1\r\na\r\n", Some(Difference::LineEnd)),
        ("*1\r\n$1\r\na\r\n", None),
        ("*x\r\n", None),
        ("*1\r\n$x\r\n", None),
    ] {
        let (ours, theirs) = (ours(input.as_bytes()), theirs(input.as_bytes()));
        let is_same = match (&ours, &theirs) {
            (Ok(None), Theirs::Partial) | (Err(_), Theirs::Error) => true,
            (Ok(Some((args, _))), Theirs::Request(other, _)) => args == other,
            _ => false,
        };
        assert_eq!(difference(input.as_bytes()), expected, "{input:?}");
        assert_eq!(is_same, expected.is_none(), "{input:?}: {ours:?}, {theirs:?}");
    }
}
