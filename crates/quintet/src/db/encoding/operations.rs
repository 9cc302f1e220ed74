//! The body of a log record: the operations of one commit.
//!
//! Operations follow one another without gaps. All operations of a record apply or none. Each:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | varint | table | id of the table |
//! | 1 | kind | 1 put, 2 delete, 3 delete range, 4 put whose value is the rest of the body, without a size |
//! | varint + bytes | key | 1 to 65,535 bytes (of a range: the first key, or empty) |
//! | varint + bytes | value | put: envelope and the user's bytes; delete range: the first key kept, or empty; delete: absent |

#![deny(clippy::indexing_slicing)]

use crate::{
    contract::Op,
    db::limits::KEY_BYTES_MAX,
    util::codec::{Decoder, VARINT_BYTES_MAX, encode_varint, to_u64},
};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;
const PUT_REST: u8 = 4;

/// The bytes between the parts of one operation, on the stack, so that a single write is logged
/// without a copy of its key or value.
#[derive(Debug)]
pub(crate) struct Frame {
    head: [u8; 2 * VARINT_BYTES_MAX + 1],
    head_length: usize,
    kind_at: usize,
    middle: [u8; VARINT_BYTES_MAX],
    middle_length: usize,
}

impl Frame {
    pub(crate) fn new(table_id: u64, op: &Op<'_>) -> Self {
        let mut frame = Self {
            head: [0; 2 * VARINT_BYTES_MAX + 1],
            head_length: 0,
            kind_at: 0,
            middle: [0; VARINT_BYTES_MAX],
            middle_length: 0,
        };
        let (kind, key, rest) = match op {
            Op::Put { key, head, body } => (PUT, key, Some(head.len() + body.len())),
            Op::Delete { key } => (DELETE, key, None),
            Op::DeleteRange { start, end } => (DELETE_RANGE, start, Some(end.len())),
        };
        let mut buffer = [0; VARINT_BYTES_MAX];
        frame.push(encode_varint(table_id, &mut buffer));
        frame.kind_at = frame.head_length;
        frame.push(&[kind]);
        frame.push(encode_varint(to_u64(key.len()), &mut buffer));
        if let Some(length) = rest {
            frame.middle_length = encode_varint(to_u64(length), &mut frame.middle).len();
        }
        frame
    }

    /// Creates the frame of an operation that is the whole body: a put omits the value's size.
    pub(crate) fn alone(table_id: u64, op: &Op<'_>) -> Self {
        let mut frame = Self::new(table_id, op);
        if matches!(op, Op::Put { .. })
            && let Some(kind) = frame.head.get_mut(frame.kind_at)
        {
            *kind = PUT_REST;
            frame.middle_length = 0;
        }
        frame
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(target) = self.head.get_mut(self.head_length..self.head_length + bytes.len()) {
            target.copy_from_slice(bytes);
            self.head_length += bytes.len();
        }
    }

    /// Returns the operation's bytes, in order.
    pub(crate) fn pieces<'a>(&'a self, op: &Op<'a>) -> [&'a [u8]; 5] {
        let head = self.head.get(..self.head_length).unwrap_or(&[]);
        let middle = self.middle.get(..self.middle_length).unwrap_or(&[]);
        match *op {
            Op::Put { key, head: envelope, body } => [head, key, middle, envelope, body],
            Op::Delete { key } => [head, key, &[], &[], &[]],
            Op::DeleteRange { start, end } => [head, start, middle, end, &[]],
        }
    }
}

/// Returns the total size of `pieces` in bytes.
pub(crate) fn size_of_pieces(pieces: &[&[u8]]) -> u64 {
    pieces.iter().map(|piece| to_u64(piece.len())).sum()
}

/// Appends an operation to a record's body.
pub(crate) fn put_op(out: &mut Vec<u8>, table_id: u64, op: &Op<'_>) {
    let frame = Frame::new(table_id, op);
    for piece in frame.pieces(op) {
        out.extend_from_slice(piece);
    }
}

/// Iterator over the operations of a body, in order. A `None` item (bytes that are no operation) is
/// the last.
#[derive(Clone, Debug)]
pub(crate) struct Ops<'a> {
    decoder: Decoder<'a>,
}

impl<'a> Ops<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { decoder: Decoder::new(body) }
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn remaining_bytes(&self) -> usize {
        self.decoder.rest().len()
    }

    fn decode(&mut self) -> Option<(u64, Op<'a>)> {
        let table_id = self.decoder.varint()?;
        let kind = self.decoder.u8()?;
        let key = self.decoder.bytes()?;
        let op = match kind {
            PUT => Op::Put { key, head: &[], body: self.decoder.bytes()? },
            PUT_REST => {
                let rest = self.decoder.rest();
                Op::Put { key, head: &[], body: self.decoder.take(rest.len())? }
            }
            DELETE => Op::Delete { key },
            DELETE_RANGE => Op::DeleteRange { start: key, end: self.decoder.bytes()? },
            _ => return None,
        };
        let keyed = !matches!(op, Op::DeleteRange { .. });
        let sound = key.len() <= KEY_BYTES_MAX && !(keyed && key.is_empty());
        sound.then_some((table_id, op))
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Option<(u64, Op<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.decoder.is_empty() {
            return None;
        }
        let item = self.decode();
        if item.is_none() {
            self.decoder = Decoder::new(&[]);
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Vec<u8> {
        let mut body = Vec::new();
        put_op(&mut body, 7, &Op::Put { key: b"k", head: &[0], body: b"value" });
        put_op(&mut body, 300, &Op::Delete { key: b"gone" });
        put_op(&mut body, 7, &Op::DeleteRange { start: b"a", end: b"" });
        body
    }

    #[test]
    fn layout_is_pinned() {
        let expected =
            [&[7, 1, 1, b'k', 6, 0][..], b"value", &[0xac, 2, 2, 4], b"gone", &[7, 3, 1, b'a', 0]]
                .concat();
        assert_eq!(body(), expected);
    }

    #[test]
    fn a_put_alone_omits_the_size_of_its_value() {
        let op = Op::Put { key: b"k", head: &[0], body: b"value" };
        let body = Frame::alone(300, &op).pieces(&op).concat();
        assert_eq!(body, b"\xac\x02\x04\x01k\0value");
        let whole = Op::Put { key: b"k", head: &[], body: b"\0value" };
        assert_eq!(Ops::new(&body).collect::<Vec<_>>(), [Some((300, whole))]);
        let delete = Op::Delete { key: b"k" };
        let body = Frame::alone(7, &delete).pieces(&delete).concat();
        assert_eq!(Ops::new(&body).collect::<Vec<_>>(), [Some((7, delete))]);
    }

    #[test]
    fn operations_round_trip() {
        let body = body();
        let ops: Vec<_> = Ops::new(&body).collect();
        assert_eq!(
            ops,
            [
                Some((7, Op::Put { key: b"k", head: &[], body: b"\0value" })),
                Some((300, Op::Delete { key: b"gone" })),
                Some((7, Op::DeleteRange { start: b"a", end: b"" })),
            ]
        );
    }

    #[test]
    fn every_truncation_is_detected() {
        let body = body();
        let whole = [11, 19, body.len()];
        for cut in 1..body.len() {
            let sound = Ops::new(&body[..cut]).all(|item| item.is_some());
            assert_eq!(sound, whole.contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn kinds_and_keys_outside_their_limits_are_refused() {
        assert_eq!(Ops::new(&[1, 9, 1, b'k']).collect::<Vec<_>>(), [None]);
        assert_eq!(Ops::new(&[1, DELETE, 0]).collect::<Vec<_>>(), [None]);
        let mut long = vec![1, DELETE];
        crate::util::codec::put_bytes(&mut long, &vec![b'x'; 65_536]);
        assert_eq!(Ops::new(&long).collect::<Vec<_>>(), [None]);
    }
}
