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

/// A buffer of replies.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    /// The encoded replies.
    pub(crate) out: Vec<u8>,
    /// The version to encode in.
    pub(crate) protocol: Protocol,
}

impl Reply {
    pub(crate) fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// `+text`
    pub(crate) fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    pub(crate) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// An error: a code, a space and a message. Ends of lines become spaces.
    pub(crate) fn error(&mut self, text: &str) {
        self.out.push(b'-');
        self.out.extend(text.bytes().map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            other => other,
        }));
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
        self.out.extend_from_slice(if value { b":1\r\n" } else { b":0\r\n" });
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.out.extend_from_slice(bytes);
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
        self.out.extend_from_slice(null);
    }

    pub(crate) fn null_array(&mut self) {
        let null: &[u8] = if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" };
        self.out.extend_from_slice(null);
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
            self.out.push(b',');
            self.out.extend_from_slice(text.as_bytes());
            self.end_line();
        } else {
            self.text(text);
        }
    }

    /// A verbatim string of plain text; in RESP2 a bulk string.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if self.is_resp3() {
            self.header(b'=', i64::try_from(text.len() + 4).unwrap_or(i64::MAX));
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.end_line();
        } else {
            self.text(text);
        }
    }

    fn header(&mut self, kind: u8, value: i64) {
        self.out.push(kind);
        if value < 0 {
            self.out.push(b'-');
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
        self.out.extend_from_slice(digits.get(start..).unwrap_or(&[]));
        self.end_line();
    }

    fn end_line(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_print_as_the_standard_library_prints_them() {
        for value in [0, 7, -7, 10, 99, 100, -1_234_567, i64::MAX, i64::MIN] {
            let mut reply = Reply::default();
            reply.integer(value);
            assert_eq!(reply.out, format!(":{value}\r\n").into_bytes());
        }
    }
}
