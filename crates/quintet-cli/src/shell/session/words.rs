//! Splits a line of the shell into words.
//!
//! Words are separated by spaces or tabs. A word in double quotes can have any bytes, with the
//! escapes of [`crate::bytes::unescape`]. Other words have no escapes. The value of `put` is the
//! rest of the line after one space, byte for byte, unless it starts with a double quote.

use crate::{
    bytes::unescape,
    failure::{Failure, Outcome},
};

/// The rest of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// Starts at the first word.
    pub(super) fn new(line: &'a [u8]) -> Self {
        Self(line)
    }

    /// Returns the next word, or `None` at the end of the line.
    pub(super) fn next(&mut self) -> Outcome<Option<Vec<u8>>> {
        let start = self.0.iter().position(|byte| !is_space(*byte)).unwrap_or(self.0.len());
        self.0 = self.0.get(start..).unwrap_or(&[]);
        if self.0.is_empty() {
            return Ok(None);
        }
        if let Some(body) = self.0.strip_prefix(b"\"") {
            return self.quoted(body).map(Some);
        }
        let end = self.0.iter().position(|byte| is_space(*byte)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at_checked(end).unwrap_or((self.0, &[]));
        self.0 = rest;
        Ok(Some(word.to_vec()))
    }

    /// Returns the next word. Fails at the end of the line; `what` names the missing word.
    pub(super) fn need(&mut self, what: &str) -> Outcome<Vec<u8>> {
        self.next()?.ok_or_else(|| Failure::Usage(format!("{what} is missing")))
    }

    /// Returns the rest of the line after one space.
    pub(super) fn value(&mut self) -> Outcome<Vec<u8>> {
        let rest = self.0.strip_prefix(b" ").or(self.0.strip_prefix(b"\t")).unwrap_or(self.0);
        self.0 = &[];
        match rest.strip_prefix(b"\"") {
            None => Ok(rest.to_vec()),
            Some(body) => {
                let value = self.quoted(body)?;
                self.end()?;
                Ok(value)
            }
        }
    }

    /// Fails if the line has another word.
    pub(super) fn end(&mut self) -> Outcome {
        match self.next()? {
            None => Ok(()),
            Some(word) => {
                let word = crate::bytes::quote(&word);
                let what = format!("unexpected {word}; write words with spaces in double quotes");
                Err(Failure::Usage(what))
            }
        }
    }

    /// Returns the word whose opening quote has been read.
    fn quoted(&mut self, body: &'a [u8]) -> Outcome<Vec<u8>> {
        let mut is_escaped = false;
        let end = body.iter().position(|byte| {
            let closes = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            closes
        });
        let missing = || Failure::Usage("a double quote is not closed".to_owned());
        let (word, rest) = body.split_at_checked(end.ok_or_else(missing)?).ok_or_else(missing)?;
        self.0 = rest.get(1..).unwrap_or(&[]);
        if self.0.first().is_some_and(|byte| !is_space(*byte)) {
            return Err(Failure::Usage("text follows a closing double quote".to_owned()));
        }
        unescape(word).map_err(Failure::Usage)
    }
}

fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_verbatim_and_quotes_hold_anything() {
        let mut words = Words::new(b"put  \"a b\\n\\\"\" two  words \\n ");
        assert_eq!(words.need("op").unwrap(), b"put");
        assert_eq!(words.need("key").unwrap(), b"a b\n\"");
        assert_eq!(words.value().unwrap(), b"two  words \\n ");
        assert_eq!(Words::new(b" \"\\x00\\u{e9}\" ").value().unwrap(), b"\x00\xc3\xa9");
        assert_eq!(Words::new(b"").value().unwrap(), b"");
        assert_eq!(Words::new(b" ").value().unwrap(), b"");
        assert_eq!(Words::new(b"\0 a\0b").next().unwrap().unwrap(), b"\0");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [&b"\"open"[..], b"\"a\"b", b"\"\\q\"", b"\"\\\""] {
            assert!(Words::new(line).next().is_err(), "{line:?}");
        }
        assert!(Words::new(b" \"a\" b").value().is_err());
        assert!(Words::new(b"more").end().is_err());
    }
}
