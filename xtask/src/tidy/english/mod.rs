//! English that readers stumble over, in comments, strings and documents.

mod prose;

use super::{Finding, Tree, tree::is_document};
use prose::{Origin, Sentence};

/// Words in a sentence of a doc comment or a document.
const WORDS_MAX: usize = 30;

/// Words that are refused anywhere in a sentence, and what to write. They stand between spaces,
/// and punctuation may follow. Each is written in two parts here, so that this file passes.
const WORDS: [(&str, &str); 20] = [
    (concat!("; whet", "her"), "make it a sentence that says who decides"),
    (concat!(", and n", "o"), "make it a sentence"),
    (concat!("so lo", "ng a"), "say what the time is: the longest time that ..."),
    (concat!("how oft", "en"), "say `number of`"),
    (concat!("so ma", "ny"), "give the number or its name"),
    (concat!("who", "ever"), "name who: the caller, the writer, another thread"),
    (concat!("some", "body"), "name who: the caller, the writer, another thread"),
    (concat!("every", "body"), "name who: all callers, all threads"),
    (concat!("no", "body"), "name who: no caller, no thread"),
    (concat!("li", "es"), "`is`, `is stored`"),
    (concat!("le", "nt"), "`borrowed`, `transient`"),
    (concat!("comes b", "y"), "name the event"),
    (concat!("come b", "y"), "name the event"),
    (concat!("goes r", "ound"), "`iterates`, `wraps around`"),
    (concat!("in va", "in"), "say what fails"),
    (concat!("is look", "ed"), "say who reads or checks it"),
    (concat!("is to", "ld"), "say who calls what"),
    (concat!("of the", "irs"), "name the owner"),
    (concat!("by itself al", "one"), "`alone`"),
    (concat!("in one g", "o"), "`at once`, `in one call`"),
];

/// Beginnings of a sentence that are refused.
const STARTS: [(&str, &str); 2] = [
    (concat!("Wh", "o "), "name who: the caller, the writer, another thread"),
    (concat!("Is it t", "rue"), "state it"),
];

/// Beginnings of the first sentence of a doc comment that are refused.
const DOC_STARTS: [(&str, &str); 3] = [
    (concat!("Ha", "s "), "`Returns ...`, `Whether ...`"),
    (concat!("I", "t."), "say what the item is"),
    (concat!("What i", "s "), "name it with a noun"),
];

/// Ends of a doc sentence that are refused.
const DOC_ENDS: [(&str, &str); 1] = [(concat!("of its ow", "n."), "`separate`, `its own ...`")];

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.sources.iter().filter(|(_, source)| !source.is_test_file()) {
        check_sentences(tree, path, &prose::of_source(source), findings);
    }
    for (path, text) in tree.documents() {
        check_sentences(tree, path, &prose::of_document(text), findings);
    }
}

fn check_sentences(tree: &Tree, path: &str, sentences: &[Sentence], findings: &mut Vec<Finding>) {
    for sentence in sentences {
        for (pattern, instead) in refused(sentence) {
            let message = format!("`{}`: {instead}", pattern.trim());
            findings.push(Finding::of("english", path, path, sentence.line, &message));
        }
        let words = word_count(&sentence.text);
        if words > WORDS_MAX && matches!(sentence.origin, Origin::Doc | Origin::Document) {
            let message = format!("a sentence of {words} words; {WORDS_MAX} is the limit");
            findings.push(Finding::of("sentence-length", path, path, sentence.line, &message));
        }
        if sentence.origin != Origin::Literal {
            check_citations(tree, path, sentence, findings);
        }
    }
}

/// Counts the words of a sentence. A code span, such as a command line, counts as one word.
fn word_count(text: &str) -> usize {
    let mut prose = String::new();
    for (index, part) in text.split('`').enumerate() {
        prose.push_str(if index % 2 == 0 { part } else { "code" });
    }
    prose.split(' ').filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// The patterns that a sentence has, with what to write.
fn refused(sentence: &Sentence) -> Vec<(&'static str, &'static str)> {
    let text = &sentence.text;
    let lower = text.to_lowercase();
    let is_doc = sentence.origin == Origin::Doc;
    let mut found: Vec<_> = WORDS.iter().filter(|(word, _)| has_word(&lower, word)).collect();
    found.extend(STARTS.iter().filter(|(start, _)| text.starts_with(start)));
    if is_doc && sentence.is_first {
        found.extend(DOC_STARTS.iter().filter(|(start, _)| text.starts_with(start)));
    }
    if is_doc {
        found.extend(DOC_ENDS.iter().filter(|(end, _)| text.ends_with(end)));
    }
    found.into_iter().copied().collect()
}

/// Whether `word` stands in `text` with no letter, digit or mark of code at its sides.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(offset, _)| {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '`' | '-');
        let before = text[..offset].chars().next_back();
        let after = text[offset + word.len()..].chars().next();
        (word.starts_with([';', ',']) || !before.is_some_and(is_part))
            && !after.is_some_and(is_part)
    })
}

/// Documents that a sentence names are in the repository.
fn check_citations(tree: &Tree, path: &str, sentence: &Sentence, findings: &mut Vec<Finding>) {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
    for word in sentence.text.split(|c| !is_part(c)).map(|word| word.trim_end_matches(['.', ':'])) {
        let name = word.trim_start_matches("../").trim_start_matches("./");
        let is_cited = is_document(name) && name.len() > 3 && !word.contains("://");
        let is_known = || {
            tree.names.iter().any(|known| {
                known.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
            })
        };
        if is_cited && !is_known() {
            let message = format!("`{word}` is not in the repository");
            findings.push(Finding::of("citation", path, path, sentence.line, &message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;

    #[test]
    fn refused_words_are_found_in_comments_strings_and_documents() {
        for text in [
            "/// Decides; whether it is right.\nstruct A;\n",
            "// The page lies\n// in the cache.\n",
            "//! Whoever holds it.\n",
            "// It works. Who asks gets it.\n",
            "/// Has the page.\nfn f() {}\n",
            "/// It.\nfn f() {}\n",
            "/// What is made.\nfn f() {}\n",
            "/// Each has a lock of its own.\nstruct A;\n",
            "const A: &str = \"somebody has it open\";\n",
            "// So many bytes.\n",
        ] {
            let said = library("mod wal;", &[("wal.rs", text)]);
            assert_finds(&said, "wal.rs:1:", "[english]");
        }
        let said = says(&[("a.md", "# A\n\nThe file is good.\nWhoever reads it\nis pleased.\n")]);
        assert_finds(&said, "a.md:4:", "`whoever`");
    }

    #[test]
    fn code_and_other_words_pass() {
        let sound = "//! Returns the value. `lies` is a name. Supplies and silent are words.\n\
            //! ```\n//! // nobody\n//! ```\n//! The owner has the page, and it has two.\n\
            fn nobody() {}\n#[cfg(test)]\nmod tests { /* nobody */ }\n";
        assert_eq!(library("mod wal;", &[("wal.rs", sound)]), "");
    }

    #[test]
    fn long_sentences_are_found() {
        let words = |count: usize| format!("Page{}.", " page".repeat(count - 1));
        let doc = |text: &str| format!("/// Short one.\n/// {text}\nstruct A;\n");
        let broken = |count| doc(&words(count).replacen(" page page", "\n/// page page", 1));
        let said = library("mod wal;", &[("wal.rs", &broken(19))]);
        assert_eq!(said, "");
        let long = format!(
            "/// Short one.\n///\n/// {}\nstruct A;\n",
            words(31).replace(" page page", "\n/// page page")
        );
        assert_finds(&library("mod wal;", &[("wal.rs", &long)]), "wal.rs:3:", "31 words");
        assert_eq!(says(&[("a.md", &format!("# A\n\n- {} {}\n", words(30), words(30)))]), "");
        assert_finds(&says(&[("a.md", &format!("# A\n\n{}\n", words(31)))]), "a.md:3:", "31 words");
        // A command line is one word.
        let command = format!("# A\n\nRun `{}` now.\n", words(40));
        assert_eq!(says(&[("a.md", &command)]), "");
        let prose = format!("# A\n\nRun `it`; {}\n", words(30));
        assert_finds(&says(&[("a.md", &prose)]), "a.md:3:", "32 words");
    }

    #[test]
    fn cited_documents_exist() {
        let said = library("mod wal;", &[("wal.rs", "// See DESIGN.md.\n")]);
        assert_finds(&said, "wal.rs:1:", "`DESIGN.md` is not in the repository");
        let said = says(&[
            ("docs/a.md", "# A\n\nSee `b.md` and ../c.md, but not https://x.y/z.md.\n"),
            ("docs/b.md", "# B\n"),
            ("c.md", "# C\n"),
        ]);
        assert_eq!(said, "");
    }
}
