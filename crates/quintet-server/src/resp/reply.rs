//! Replies, written into one buffer for a whole pipeline.

use crate::number::format_score;

/// The version of the protocol that a connection has chosen with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// RESP2, the default.
    #[default]
    Resp2,
    /// RESP3 with maps, sets, doubles, booleans and push messages.
    Resp3,
}

/// A buffer of replies. Bytes beyond its limit are dropped, so a reply cannot take all memory.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The encoded replies.
    pub(crate) out: Vec<u8>,
    /// The version to encode in.
    pub(crate) protocol: Protocol,
    /// Most bytes of the buffer.
    pub(crate) limit: usize,
    /// Whether bytes were dropped.
    has_overflowed: bool,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            out: Vec::new(),
            protocol: Protocol::default(),
            limit: usize::MAX,
            has_overflowed: false,
        }
    }
}

impl Reply {
    /// An empty buffer for a part of this one, with its protocol and its limit.
    pub(crate) fn part(&self) -> Self {
        Self { protocol: self.protocol, limit: self.limit, ..Self::default() }
    }

    /// Adds a part.
    pub(crate) fn append(&mut self, part: &Self) {
        self.has_overflowed |= part.has_overflowed;
        self.put(&part.out);
    }

    /// Whether bytes were dropped since the last call.
    pub(crate) fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.has_overflowed)
    }

    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > self.limit.saturating_sub(self.out.len()) {
            self.has_overflowed = true;
        } else {
            self.out.extend_from_slice(bytes);
        }
    }

    pub(crate) fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// `+text`
    pub(crate) fn simple(&mut self, text: &str) {
        self.put(b"+");
        self.put(text.as_bytes());
        self.end_line();
    }

    pub(crate) fn ok(&mut self) {
        self.put(b"+OK\r\n");
    }

    /// An error: a code, a space and a message. Ends of lines become spaces.
    pub(crate) fn error(&mut self, text: &str) {
        self.put(b"-");
        self.put(text.replace(['\r', '\n'], " ").as_bytes());
        self.end_line();
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A number of things.
    pub(crate) fn count(&mut self, value: usize) {
        self.header(b':', i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(crate) fn flag(&mut self, value: bool) {
        self.put(if value { b":1\r\n" } else { b":0\r\n" });
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.put(bytes);
        self.end_line();
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// A bulk string, or null.
    pub(crate) fn optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    pub(crate) fn null(&mut self) {
        let null: &[u8] = if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" };
        self.put(null);
    }

    pub(crate) fn null_array(&mut self) {
        let null: &[u8] = if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" };
        self.put(null);
    }

    /// The head of an array of `count` replies.
    pub(crate) fn array(&mut self, count: usize) {
        self.header(b'*', i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The head of a map of `count` pairs; in RESP2 an array of twice as many.
    pub(crate) fn map(&mut self, count: usize) {
        if self.is_resp3() {
            self.header(b'%', i64::try_from(count).unwrap_or(i64::MAX));
        } else {
            self.array(count * 2);
        }
    }

    /// The head of a set; in RESP2 an array.
    pub(crate) fn set(&mut self, count: usize) {
        let kind = if self.is_resp3() { b'~' } else { b'*' };
        self.header(kind, i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The head of a push message; in RESP2 an array.
    pub(crate) fn push(&mut self, count: usize) {
        let kind = if self.is_resp3() { b'>' } else { b'*' };
        self.header(kind, i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A score: a double, in RESP2 a bulk string.
    pub(crate) fn double(&mut self, value: f64) {
        self.number(&format_score(value));
    }

    /// A double that has been formatted; in RESP2 a bulk string.
    pub(crate) fn number(&mut self, text: &str) {
        if self.is_resp3() {
            self.put(b",");
            self.put(text.as_bytes());
            self.end_line();
        } else {
            self.text(text);
        }
    }

    /// A verbatim string of plain text; in RESP2 a bulk string.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if self.is_resp3() {
            self.header(b'=', i64::try_from(text.len() + 4).unwrap_or(i64::MAX));
            self.put(b"txt:");
            self.put(text.as_bytes());
            self.end_line();
        } else {
            self.text(text);
        }
    }

    fn header(&mut self, kind: u8, value: i64) {
        self.put(&[kind]);
        if value < 0 {
            self.put(b"-");
        }
        // The formatter of the standard library takes several times as long.
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        let mut left = value.unsigned_abs();
        loop {
            start -= 1;
            if let Some(digit) = digits.get_mut(start) {
                *digit += u8::try_from(left % 10).unwrap_or(0);
            }
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.put(digits.get(start..).unwrap_or(&[]));
        self.end_line();
    }

    fn end_line(&mut self) {
        self.put(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_limit_are_dropped() {
        let mut reply = Reply { limit: 16, ..Reply::default() };
        reply.bulk(b"0123456789");
        assert_eq!(reply.out, b"$10\r\n0123456789");
        assert!(reply.take_overflow(), "the end of the line is beyond");
        assert!(!reply.take_overflow());
        reply.bulk(&[b'x'; 1000]);
        assert!(reply.out.len() <= 16 && reply.take_overflow());
        let mut whole = Reply { limit: 8, ..Reply::default() };
        let mut part = whole.part();
        part.bulk(b"too long");
        whole.append(&part);
        assert!(whole.take_overflow());
    }

    #[test]
    fn integers_print_as_the_standard_library_prints_them() {
        for value in [0, 7, -7, 10, 99, 100, -1_234_567, i64::MAX, i64::MIN] {
            let mut reply = Reply::default();
            reply.integer(value);
            assert_eq!(reply.out, format!(":{value}\r\n").into_bytes());
        }
    }
}
