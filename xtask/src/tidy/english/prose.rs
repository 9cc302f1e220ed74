//! Sentences: of the comments and strings of a source, and of a Markdown document.
//!
//! Paragraphs end at blank lines, list items, headings, tables and fences; code in fences is left
//! out. A sentence ends at `.`, `?` or `!` before a space and a capital letter or a mark.

use super::super::source::Source;

/// Where a sentence is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// `///` or `//!`.
    Doc,
    /// `//`.
    Comment,
    /// A string literal.
    Literal,
    /// A Markdown document.
    Document,
}

/// One sentence on one line, however it is broken in the file.
#[derive(Clone, Debug)]
pub(super) struct Sentence {
    pub(super) text: String,
    /// Line of its first word, from 1.
    pub(super) line: usize,
    pub(super) origin: Origin,
    /// Whether it is the first of its paragraph.
    pub(super) is_first: bool,
}

/// The sentences of the comments and strings outside tests.
pub(super) fn of_source(source: &Source) -> Vec<Sentence> {
    let mut paragraphs = Paragraphs::default();
    let mut literals = Paragraphs::default();
    let mut offset = 0;
    for (index, line) in source.text.split_inclusive('\n').enumerate() {
        let range = offset..offset + line.len();
        offset = range.end;
        let comment = source.comments.get(range.clone()).unwrap_or_default().trim();
        let is_test = source.is_test(range.start);
        let (origin, text) = match comment.strip_prefix(['/', '!']) {
            Some(doc) => (Origin::Doc, doc),
            None => (Origin::Comment, comment),
        };
        paragraphs.add(if is_test { "" } else { text }, index + 1, origin);
        let literal = source.literals.get(range).unwrap_or_default();
        let literal = literal.trim().trim_end_matches('\\');
        literals.add(if is_test { "" } else { literal }, index + 1, Origin::Literal);
    }
    let mut found = paragraphs.finish();
    found.extend(literals.finish());
    found
}

/// The sentences of a document.
pub(super) fn of_document(text: &str) -> Vec<Sentence> {
    let mut paragraphs = Paragraphs::default();
    for (index, line) in text.lines().enumerate() {
        paragraphs.add(line, index + 1, Origin::Document);
    }
    paragraphs.finish()
}

/// Lines gathered to paragraphs, and paragraphs cut to sentences.
#[derive(Default)]
struct Paragraphs {
    open: Vec<(usize, String)>,
    origin: Option<Origin>,
    is_fenced: bool,
    found: Vec<Sentence>,
}

impl Paragraphs {
    fn add(&mut self, line: &str, number: usize, origin: Origin) {
        let text = line.trim();
        if self.origin != Some(origin) || text.is_empty() {
            self.close();
            self.is_fenced &= origin == Origin::Document || !text.is_empty() || !self.is_fenced;
            self.origin = Some(origin);
        }
        if text.starts_with("```") {
            self.close();
            self.is_fenced = !self.is_fenced;
            return;
        }
        if self.is_fenced || text.is_empty() || text.starts_with('|') {
            return;
        }
        if starts_item(text) {
            self.close();
        }
        self.open.push((number, text.trim_start_matches(['#', '-', '*', '>', ' ']).to_owned()));
        if text.starts_with('#') {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some(origin) = self.origin else { return };
        let mut text = String::new();
        let mut line = 0;
        let mut is_first = true;
        for (number, part) in std::mem::take(&mut self.open) {
            for word in part.split_whitespace() {
                if ends_sentence(&text) && starts_sentence(word) {
                    let text = std::mem::take(&mut text);
                    self.found.push(Sentence { text, line, origin, is_first });
                    is_first = false;
                }
                if text.is_empty() {
                    line = number;
                } else {
                    text.push(' ');
                }
                text.push_str(word);
            }
        }
        if !text.is_empty() {
            self.found.push(Sentence { text, line, origin, is_first });
        }
    }

    fn finish(mut self) -> Vec<Sentence> {
        self.close();
        self.found
    }
}

fn starts_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with(['#', '>'])
        || ["- ", "* "].iter().any(|mark| line.starts_with(mark))
        || (number.len() < line.len() && number.starts_with(". "))
}

fn ends_sentence(text: &str) -> bool {
    let text = text.trim_end_matches([')', '"', '*', '`']);
    text.ends_with(['.', '?', '!']) && !["e.g.", "i.e.", "vs."].iter().any(|a| text.ends_with(a))
}

fn starts_sentence(word: &str) -> bool {
    word.starts_with(|c: char| c.is_uppercase() || matches!(c, '`' | '[' | '(' | '"' | '*'))
}
