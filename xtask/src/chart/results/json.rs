//! A reader for JSON values, as far as results files need it.

use std::collections::BTreeMap;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// Parses `text`, which must hold one value and nothing else.
    pub(super) fn parse(text: &str) -> Result<Json, String> {
        let mut parser = Parser { bytes: text.as_bytes(), at: 0 };
        let value = parser.value()?;
        parser.skip_space();
        if parser.at < parser.bytes.len() {
            return Err(parser.error("text after the value"));
        }
        Ok(value)
    }

    /// The value at the end of `path`, a list of field names.
    pub(super) fn get(&self, path: &[&str]) -> Option<&Json> {
        path.iter().try_fold(self, |value, name| match value {
            Json::Object(fields) => fields.get(*name),
            _ => None,
        })
    }

    pub(super) fn text(&self, path: &[&str]) -> Option<&str> {
        match self.get(path) {
            Some(Json::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn number(&self, path: &[&str]) -> Option<f64> {
        match self.get(path) {
            Some(Json::Number(number)) => Some(*number),
            _ => None,
        }
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn error(&self, message: &str) -> String {
        format!("{message} at byte {}", self.at)
    }

    fn skip_space(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// The next byte that is not white space, which is consumed.
    fn next(&mut self) -> Result<u8, String> {
        self.skip_space();
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.error("unexpected end"))?;
        self.at += 1;
        Ok(byte)
    }

    fn value(&mut self) -> Result<Json, String> {
        match self.next()? {
            b'{' => self.object(),
            b'[' => self.list(),
            b'"' => Ok(Json::Text(self.string()?)),
            b'n' => self.word("ull", Json::Null),
            b't' => self.word("rue", Json::Bool(true)),
            b'f' => self.word("alse", Json::Bool(false)),
            _ => self.number(),
        }
    }

    fn word(&mut self, rest: &str, value: Json) -> Result<Json, String> {
        if !self.bytes[self.at..].starts_with(rest.as_bytes()) {
            return Err(self.error("unknown word"));
        }
        self.at += rest.len();
        Ok(value)
    }

    /// The number whose first byte was consumed.
    fn number(&mut self) -> Result<Json, String> {
        let start = self.at - 1;
        while self.bytes.get(self.at).is_some_and(|byte| b"0123456789+-.eE".contains(byte)) {
            self.at += 1;
        }
        std::str::from_utf8(&self.bytes[start..self.at])
            .ok()
            .and_then(|text| text.parse().ok())
            .map(Json::Number)
            .ok_or_else(|| self.error("not a number"))
    }

    /// The string whose opening quote was consumed.
    fn string(&mut self) -> Result<String, String> {
        let mut out = Vec::new();
        loop {
            let byte = *self.bytes.get(self.at).ok_or_else(|| self.error("unexpected end"))?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(out).map_err(|_| self.error("not UTF-8")),
                b'\\' => {
                    let mut buffer = [0; 4];
                    out.extend_from_slice(self.escape()?.encode_utf8(&mut buffer).as_bytes());
                }
                _ => out.push(byte),
            }
        }
    }

    /// The character of the escape whose backslash was consumed.
    fn escape(&mut self) -> Result<char, String> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.error("unexpected end"))?;
        self.at += 1;
        Ok(match byte {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let digits = self.bytes.get(self.at..self.at + 4);
                let code = digits
                    .and_then(|digits| std::str::from_utf8(digits).ok())
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                    .ok_or_else(|| self.error("bad escape"))?;
                self.at += 4;
                char::from_u32(code).ok_or_else(|| self.error("surrogates are not supported"))?
            }
            b'"' | b'\\' | b'/' => char::from(byte),
            _ => return Err(self.error("bad escape")),
        })
    }

    fn list(&mut self) -> Result<Json, String> {
        let mut values = Vec::new();
        self.skip_space();
        if self.bytes.get(self.at) == Some(&b']') {
            self.at += 1;
            return Ok(Json::List(values));
        }
        loop {
            values.push(self.value()?);
            match self.next()? {
                b',' => {}
                b']' => return Ok(Json::List(values)),
                _ => return Err(self.error("expected `,` or `]`")),
            }
        }
    }

    fn object(&mut self) -> Result<Json, String> {
        let mut fields = BTreeMap::new();
        self.skip_space();
        if self.bytes.get(self.at) == Some(&b'}') {
            self.at += 1;
            return Ok(Json::Object(fields));
        }
        loop {
            if self.next()? != b'"' {
                return Err(self.error("expected a field name"));
            }
            let name = self.string()?;
            if self.next()? != b':' {
                return Err(self.error("expected `:`"));
            }
            let value = self.value()?;
            fields.insert(name, value);
            match self.next()? {
                b',' => {}
                b'}' => return Ok(Json::Object(fields)),
                _ => return Err(self.error("expected `,` or `}`")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let text =
            r#"{"a": [1, -2.5e3, null, true, false, []], "b": {"c": "x\"\u0041\n"}, "d": {}}"#;
        let value = Json::parse(text).unwrap();
        assert_eq!(value.text(&["b", "c"]), Some("x\"A\n"));
        let Some(Json::List(list)) = value.get(&["a"]) else { panic!("{value:?}") };
        assert_eq!(list[1], Json::Number(-2500.0));
        assert_eq!(list[2..5], [Json::Null, Json::Bool(true), Json::Bool(false)]);
        assert_eq!(value.number(&["b", "c"]), None);
        assert_eq!(value.get(&["b", "nothing"]), None);
    }

    #[test]
    fn malformed_values_are_errors() {
        for text in ["", "{", "[1", "[1 2]", "{\"a\" 1}", "\"", "nul", "1 2", "\"\\x\"", "-"] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
    }
}
