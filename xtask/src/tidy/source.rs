//! A Rust source file, split into code and comments.
//!
//! The scanner knows comments, strings and character literals, and nothing else of Rust: enough to
//! find words, braces and attributes. Both views have the text's length and lines.

/// One file.
#[derive(Debug)]
pub(super) struct Source {
    /// Path from the root of the repository.
    pub(super) path: String,
    /// The unchanged text.
    pub(super) text: String,
    /// The text with the contents of comments, strings and characters blanked.
    pub(super) code: String,
    /// The text with everything but comments blanked.
    pub(super) comments: String,
    /// The text with everything but the contents of strings blanked.
    pub(super) literals: String,
    /// For each byte, whether it belongs to a test module.
    test: Vec<bool>,
    /// Inline modules: name, first and last byte of the braces.
    inline: Vec<(String, usize, usize)>,
    /// `mod name;` items.
    declared: Vec<Declared>,
    /// `use` items.
    uses: Vec<UseItem>,
}

/// A `use` item, from `use` to behind its `;`.
#[derive(Clone, Copy, Debug)]
pub(super) struct UseItem {
    /// Its first byte.
    pub(super) offset: usize,
    /// The byte behind its last.
    pub(super) end: usize,
    /// Whether `pub`, in any form, is before it.
    pub(super) is_public: bool,
}

/// A module in a separate file.
#[derive(Debug)]
pub(super) struct Declared {
    /// Its name.
    pub(super) name: String,
    /// Whether it is compiled for tests only.
    pub(super) is_test: bool,
}

impl Source {
    /// Scans `text`.
    pub(super) fn new(path: &str, text: String) -> Self {
        let (code, comments, literals) = split(&text);
        let tested = vec![is_test_path(path); text.len()];
        let mut source = Self {
            path: path.to_owned(),
            text,
            code,
            comments,
            literals,
            test: tested,
            inline: Vec::new(),
            declared: Vec::new(),
            uses: Vec::new(),
        };
        source.find_modules();
        source.find_uses();
        source.mark_test_items();
        source
    }

    /// The `mod name;` items.
    pub(super) fn declared_modules(&self) -> impl Iterator<Item = &Declared> {
        self.declared.iter()
    }

    /// The `use` items.
    pub(super) fn use_items(&self) -> impl Iterator<Item = &UseItem> {
        self.uses.iter()
    }

    /// Names of the inline modules that no other inline module has around it.
    pub(super) fn top_inline_modules(&self) -> impl Iterator<Item = &str> {
        let is_top = |start: usize| self.inline_modules(start).len() == 1;
        self.inline
            .iter()
            .filter(move |(_, start, _)| is_top(*start))
            .map(|(name, _, _)| name.as_str())
    }

    /// Where the files of `mod name;` items are.
    pub(super) fn child_folder(&self) -> String {
        let (folder, file) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let stem = file.strip_suffix(".rs").unwrap_or(file);
        let is_root = matches!(stem, "mod" | "lib" | "main")
            || ["/tests", "/examples", "/benches", "/fuzz_targets", "/bin"]
                .iter()
                .any(|roots| folder.ends_with(roots));
        if is_root { folder.to_owned() } else { format!("{folder}/{stem}") }
    }

    /// Says that all of this file is tests.
    pub(super) fn mark_as_test(&mut self) {
        self.test.fill(true);
    }

    /// Whether all of this file is tests.
    pub(super) fn is_test_file(&self) -> bool {
        !self.test.is_empty() && self.test.iter().all(|test| *test)
    }

    /// Whether the byte at `offset` is in a test.
    pub(super) fn is_test(&self, offset: usize) -> bool {
        self.test.get(offset).copied().unwrap_or(false)
    }

    /// The line of a byte, from 1.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
    }

    /// Names of the inline modules around a byte, outermost first.
    pub(super) fn inline_modules(&self, offset: usize) -> Vec<&str> {
        self.inline
            .iter()
            .filter(|(_, start, end)| (*start..*end).contains(&offset))
            .map(|(name, _, _)| name.as_str())
            .collect()
    }

    /// Offsets at which `word` stands in the code as a whole word.
    pub(super) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        whole_words(&self.code, word)
    }

    /// The offset of the brace that closes the one at `open`.
    pub(super) fn closing_brace(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (offset, byte) in self.code.bytes().enumerate().skip(open) {
            match byte {
                b'{' => depth += 1,
                b'}' if depth == 1 => return offset,
                b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        self.code.len()
    }

    fn find_uses(&mut self) {
        let mut uses = Vec::new();
        for offset in whole_words(&self.code, "use") {
            let rest = &self.code[offset + 3..];
            // `impl Trait + use<'a>` is no item.
            let Some(length) = rest.find(';').filter(|_| !rest.starts_with('<')) else { continue };
            let before = self.code[..offset].trim_end();
            let is_public = before.ends_with("pub")
                || before.rfind("pub(").is_some_and(|start| {
                    before[start..].find(')').is_some_and(|end| start + end + 1 == before.len())
                });
            uses.push(UseItem { offset, end: offset + 3 + length + 1, is_public });
        }
        self.uses = uses;
    }

    /// Marks items with an attribute such as `#[cfg(test)]` as tests.
    fn mark_test_items(&mut self) {
        let mut marked = Vec::new();
        for word in ["use", "fn", "impl", "struct", "enum", "trait", "const", "static", "type"] {
            for offset in whole_words(&self.code, word) {
                if test_attribute_before(&self.code[..offset]) {
                    marked.push((offset, self.end_of_item(offset)));
                }
            }
        }
        for (start, end) in marked {
            self.test[start..end].fill(true);
        }
    }

    /// The byte behind the item that starts at `offset`: behind its `;`, or behind its braces.
    fn end_of_item(&self, offset: usize) -> usize {
        let mut depth = 0_usize;
        let is_use = self.code[offset..].starts_with("use");
        for (at, byte) in self.code.bytes().enumerate().skip(offset) {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth = depth.saturating_sub(1),
                b'{' if depth == 0 && !is_use => {
                    return (self.closing_brace(at) + 1).min(self.code.len());
                }
                b';' if depth == 0 => return at + 1,
                _ => {}
            }
        }
        self.code.len()
    }

    fn find_modules(&mut self) {
        let mut inline = Vec::new();
        let mut declared = Vec::new();
        for offset in whole_words(&self.code, "mod").collect::<Vec<_>>() {
            let rest = &self.code[offset + 3..];
            let name: String = rest
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let Some(end) = rest.find(['{', ';']) else { continue };
            if name.is_empty() || rest[..end].trim() != name {
                continue;
            }
            let is_test = test_attribute_before(&self.code[..offset]);
            let open = offset + 3 + end;
            if rest.as_bytes()[end] == b';' {
                declared.push(Declared { name, is_test });
                continue;
            }
            let close = self.closing_brace(open);
            if is_test {
                let until = close.min(self.test.len());
                self.test[offset..until].fill(true);
            }
            inline.push((name, open, close));
        }
        self.inline = inline;
        self.declared = declared;
    }
}

/// Whether all files at such a path are tests, examples or benchmarks.
fn is_test_path(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches")) || path.ends_with("/tests.rs")
}

/// Whether the attributes right before an item say `cfg(test)`, `cfg(loom)`, `cfg(shuttle)` or
/// `cfg(model)`.
fn test_attribute_before(code: &str) -> bool {
    let mut rest = code.trim_end();
    loop {
        rest = rest.trim_end_matches("pub(crate)").trim_end_matches("pub(super)");
        rest = rest.trim_end_matches("pub").trim_end();
        if !rest.ends_with(']') {
            return false;
        }
        let Some(start) = rest.rfind("#[") else { return false };
        let attribute = &rest[start..];
        let is_cfg = attribute.starts_with("#[cfg(") && !attribute.contains("not(");
        if is_cfg
            && ["test", "loom", "shuttle", "model"]
                .iter()
                .any(|word| whole_words(attribute, word).next().is_some())
        {
            return true;
        }
        rest = rest[..start].trim_end();
    }
}

/// Offsets at which `word` stands in `code` with no letter, digit or `_` on either side.
pub(super) fn whole_words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(offset, _)| offset).filter(move |offset| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        !code[..*offset].chars().next_back().is_some_and(is_word)
            && !code[*offset + word.len()..].chars().next().is_some_and(is_word)
    })
}

/// What the scanner is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hashes: usize },
}

/// The code, the comments and the strings of `text`; newlines are kept in each.
fn split(text: &str) -> (String, String, String) {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut comments = Vec::with_capacity(bytes.len());
    let mut literals = Vec::with_capacity(bytes.len());
    let mut state = State::Code;
    let mut at = 0;
    while at < bytes.len() {
        let (length, next) = advance(bytes, at, state);
        let is_character = bytes[at] == b'\'' && length > 1;
        for byte in &bytes[at..at + length] {
            let is_code = state == State::Code && next == State::Code && !is_character;
            let is_comment = matches!(state, State::LineComment | State::BlockComment { .. });
            let keep = |kept: bool| if kept || *byte == b'\n' { *byte } else { b' ' };
            code.push(keep(is_code));
            comments.push(keep(is_comment));
            literals
                .push(keep(state == next && matches!(state, State::Text | State::RawText { .. })));
        }
        state = next;
        at += length;
    }
    (ascii(code), ascii(comments), ascii(literals))
}

/// Bytes as a string; what is not ASCII becomes `?`, so that offsets stay.
fn ascii(bytes: Vec<u8>) -> String {
    bytes.into_iter().map(|byte| if byte.is_ascii() { char::from(byte) } else { '?' }).collect()
}

/// How many bytes to pass at `at`, and the state behind them.
fn advance(bytes: &[u8], at: usize, state: State) -> (usize, State) {
    let rest = &bytes[at..];
    match state {
        State::Code => advance_code(bytes, at),
        State::LineComment if rest[0] == b'\n' => (1, State::Code),
        State::BlockComment { depth } if rest.starts_with(b"/*") => {
            (2, State::BlockComment { depth: depth + 1 })
        }
        State::BlockComment { depth: 1 } if rest.starts_with(b"*/") => (2, State::Code),
        State::BlockComment { depth } if rest.starts_with(b"*/") => {
            (2, State::BlockComment { depth: depth - 1 })
        }
        State::Text if rest[0] == b'\\' => (rest.len().min(2), State::Text),
        State::Text if rest[0] == b'"' => (1, State::Code),
        State::RawText { hashes } if closes_raw(rest, hashes) => (1 + hashes, State::Code),
        _ => (1, state),
    }
}

/// Whether `rest` starts with the quote and hashes that end a raw string.
fn closes_raw(rest: &[u8], hashes: usize) -> bool {
    rest[0] == b'"'
        && rest.get(1..=hashes).is_some_and(|tail| tail.iter().all(|byte| *byte == b'#'))
}

fn advance_code(bytes: &[u8], at: usize) -> (usize, State) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return (2, State::LineComment);
    }
    if rest.starts_with(b"/*") {
        return (2, State::BlockComment { depth: 1 });
    }
    if rest[0] == b'"' {
        return (1, State::Text);
    }
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if !in_word {
        let prefix = [&b"br"[..], b"cr", b"r"].into_iter().find(|prefix| rest.starts_with(prefix));
        if let Some(prefix) = prefix {
            let hashes = rest[prefix.len()..].iter().take_while(|byte| **byte == b'#').count();
            if rest.get(prefix.len() + hashes) == Some(&b'"') {
                return (prefix.len() + hashes + 1, State::RawText { hashes });
            }
        }
    }
    // A character literal (longer than its quote) or a lifetime.
    if rest[0] == b'\'' {
        return (character_length(rest), State::Code);
    }
    (1, State::Code)
}

/// The length of the character literal at the start of `rest`, or 1 for a lifetime.
fn character_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let tail = rest.iter().skip(3).position(|byte| *byte == b'\'');
        return tail.map_or(1, |position| position + 4);
    }
    let close = rest.iter().skip(2).take(4).position(|byte| *byte == b'\'');
    match close {
        // `'a'`; a multi-byte character is longer.
        Some(0) => 3,
        Some(position) if !rest[1].is_ascii() => position + 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comments, strings, raw strings, characters and lifetimes each leave the code around them.
    #[test]
    fn code_and_comments_are_told_apart() {
        let text = "let a = \"x // y\"; // note\nlet b = r#\"un\"safe\"#; \
            /* a /* b */ c */ let c: &'a u8;";
        let source = Source::new("a.rs", text.to_owned());
        assert!(!source.code.contains("note") && !source.code.contains("safe"));
        assert!(source.code.contains("let c: &'a u8;"));
        assert!(source.comments.contains("note") && source.comments.contains("c */"));
        assert!(!source.comments.contains('x'));
        assert_eq!(source.code.len(), text.len());
    }

    /// A brace or quote in a character literal does not unbalance what follows.
    #[test]
    fn character_literals_hide_braces() {
        let text =
            "mod a { const C: char = '{'; const D: u8 = b'\\''; const E: u8 = b'\"'; }\nmod b {}";
        let source = Source::new("a.rs", text.to_owned());
        let names: Vec<&str> = source.inline.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(source.inline_modules(text.len() - 2).contains(&"b"));
        assert!(!source.inline_modules(text.len() - 2).contains(&"a"));
    }

    #[test]
    fn test_modules_are_recognised() {
        let text = "fn a() {}\n#[cfg(all(test, not_loom))]\nmod tests { fn b() {} }\n\
            #[cfg(feature = \"testing\")]\nmod sim { fn c() {} }";
        let source = Source::new("a.rs", text.to_owned());
        assert!(!source.is_test(text.find("fn a").unwrap()));
        assert!(source.is_test(text.find("fn b").unwrap()));
        assert!(!source.is_test(text.find("fn c").unwrap()));
    }
}
