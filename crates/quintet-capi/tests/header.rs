//! `include/quintet.h` is generated from the functions inside `export!`, by cbindgen.
//! `UPDATE=1 cargo test -p quintet-capi --test header` writes it.

use std::{fmt::Write as _, fs, path::Path};

const MODULES: [&str; 14] = [
    "failure",
    "error",
    "boundary",
    "options",
    "range",
    "write",
    "database",
    "table",
    "read",
    "cursor",
    "batch",
    "load",
    "transaction",
    "changes",
];
/// Handles: the Rust type, the name in C, the documentation.
const HANDLES: [(&str, &str, &str); 11] = [
    ("ErrorObject", "error", "The details of a failed call."),
    ("OptionList", "options", "A list of options by name and value."),
    ("Database", "database", "An open database."),
    ("Snapshot", "snapshot", "All tables of a database at one moment."),
    ("TableHandle", "table", "A table, or a table as a snapshot or a transaction shows it."),
    ("EntryIterator", "iterator", "An iterator over entries. For one thread at a time."),
    ("CursorHandle", "cursor", "A position in an ordered table. For one thread at a time."),
    ("BatchHandle", "batch", "Writes to be committed together. For one thread at a time."),
    ("Load", "load", "A sorted load. For one thread at a time."),
    ("TransactionHandle", "transaction", "A transaction. For one thread at a time."),
    ("FeedHandle", "feed", "The commits of a database in their order. For one thread at a time."),
];
const SAVEPOINT: (&str, &str, &str) =
    ("SavepointHandle", "savepoint", "A point of a transaction to which it can return.");
/// Other types: the Rust name and the name in C.
const TYPES: [(&str, &str); 12] = [
    ("Slice", "slice"),
    ("Buffer", "buffer"),
    ("Range", "range"),
    ("WriteOptions", "write_options"),
    ("ValueInfo", "value_info"),
    ("Code", "code"),
    ("ChangeKind", "change_kind"),
    ("Change", "change"),
    ("MergeFunction", "merge_function"),
    ("UpdateFunction", "update_function"),
    ("VisitFunction", "visit_function"),
    ("EachFunction", "each_function"),
];
/// Titles of paragraphs, in their order.
const TITLES: [&str; 3] = ["Ownership: ", "Threads: ", "Errors: "];
/// Functions that take a table of a transaction, and use the transaction.
const IN_TRANSACTIONS: [&str; 16] = [
    "put",
    "delete",
    "delete_range",
    "merge",
    "get",
    "get_into",
    "get_with",
    "get_info",
    "get_for_update",
    "contains",
    "multi_get",
    "count",
    "first",
    "last",
    "iterate",
    "scan",
];
/// Names of types that a comment has.
const NOT_FUNCTIONS: [&str; 2] = ["quintet_buffer", "quintet_slice"];
const HEAD: &str = "\
/*
 * Quintet: a persistent key-value store. The C interface; the guide is docs/c.md.
 *
 * Results. A function returns QUINTET_OK (0) or the code of an error. The last parameter,
 * 'error', may be null. If it is not null and the call fails, '*error' gets an object with the
 * message, which quintet_error_free() frees. It is written only if the call fails. Other
 * results are written only if the call succeeds, with two exceptions: a call that fails may empty
 * the buffers that it was given, and quintet_get_into() says what it writes. Pointers for results
 * must not name the same memory.
 *
 * Ownership. A function that stores a handle gives it to the caller, who frees it. Handles may be
 * freed in any order. No argument is kept, except a callback and its context where a function says
 * so. Bytes that a function returns are in a buffer of the caller, which quintet_buffer_free()
 * frees, or in a slice, which is valid as long as the function says.
 *
 * Threads. \"Any\" means that any number of threads may make the call at once with the same
 * handle. \"One at a time\" means that a second call fails with QUINTET_BUSY while the first one
 * runs; the handle may move between threads. Lists of options are for all threads, buffers for one.
 *
 * Errors. Each function names those that a program may want to treat. Every function can fail with
 * QUINTET_NULL_ARGUMENT, QUINTET_BAD_HANDLE, QUINTET_WRONG_HANDLE, QUINTET_FORKED,
 * QUINTET_NOT_UTF8, QUINTET_LIMIT and QUINTET_PANIC.
 *   A read can also fail with QUINTET_CLOSED, QUINTET_STALE_TABLE, QUINTET_TABLE_FAILED,
 *   QUINTET_IO, QUINTET_CORRUPTION, QUINTET_NEWER_FORMAT and QUINTET_OUT_OF_MEMORY. In a snapshot
 *   it can fail with QUINTET_SNAPSHOT_EXPIRED, in a transaction with QUINTET_ENDED and
 *   QUINTET_OTHER_DATABASE.
 *   A write can also fail as a read, and with QUINTET_READ_ONLY, QUINTET_LOG_FAILED,
 *   QUINTET_DISK_FULL, QUINTET_LOADING, QUINTET_TYPE_MISMATCH, QUINTET_UNSUPPORTED and, in a
 *   transaction, QUINTET_LOCK_TIMEOUT and QUINTET_DEADLOCK.
 *
 * Generated from crates/quintet-capi/src by the command
 *   UPDATE=1 cargo test -p quintet-capi --test header
 */";
const INLINE: &str = "\
/** Returns a slice of a text that ends with 0, without the 0; of null, the absent slice. */
static inline quintet_slice quintet_string(const char *text) {
  quintet_slice slice = {(const uint8_t *)text, text ? strlen(text) : 0};
  return slice;
}

/** Returns a slice of size bytes at data. */
static inline quintet_slice quintet_bytes(const void *data, size_t size) {
  quintet_slice slice = {(const uint8_t *)data, size};
  return slice;
}

/** Returns a slice of the content of a buffer, valid until the buffer changes. */
static inline quintet_slice quintet_content(const quintet_buffer *buffer) {
  return quintet_bytes(buffer->data, buffer->size);
}

#endif";

fn handles() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    HANDLES.into_iter().chain([SAVEPOINT])
}

/// Replaces whole words of code.
fn rename(code: &str, from: &str, to: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut renamed = String::new();
    let mut rest = code;
    while let Some(at) = rest.find(from) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let is_whole = !before.ends_with(is_word) && !after.starts_with(is_word);
        renamed += before;
        renamed += if is_whole { to } else { from };
        rest = after;
    }
    renamed + rest
}

/// Returns Rust code with the C types in place of those of the crate.
fn with_c_types(code: &str) -> String {
    let mut code = code.replace("error: ErrorOut", "error: *mut *mut quintet_error");
    for (rust, name, _) in handles() {
        code = code.replace(&format!("Handle<{rust}>"), &format!("*mut quintet_{name}"));
    }
    for (from, to) in [("InOut<", "*mut "), ("Out<", "*mut "), ("In<", "*const ")] {
        while let Some(at) = code.find(from) {
            let end = at + code[at..].find('>').expect("the type ends");
            code.replace_range(end..=end, "");
            code.replace_range(at..at + from.len(), to);
        }
    }
    code = code.replace("Array<Slice>", "*const Slice").replace("C-unwind", "C");
    code = rename(&code, "Room", "*mut u8");
    code = rename(&code, "View", "Slice");
    code = rename(&code, "Context", "*mut c_void");
    for (rust, name) in TYPES {
        code = code.replace(&format!("Option<{rust}>"), rust);
        code = rename(&code, rust, &format!("quintet_{name}"));
    }
    code
}

/// Returns the documentation above a line.
fn documentation(lines: &[&str], start: usize) -> String {
    let docs = lines[..start].iter().rev().map(|line| line.trim());
    let docs: Vec<_> = docs.map_while(|line| line.strip_prefix("///")).collect();
    docs.iter().rev().map(|line| line.trim().to_owned() + "\n").collect()
}

/// Returns the documentation as a C programmer expects it: no Markdown, functions with `()`, and
/// parameters and fields in quotes.
fn plain(text: &str) -> String {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_' || c == '*';
    let mut plain = String::new();
    for (index, part) in text.split('`').enumerate() {
        let is_code = index % 2 == 1;
        if is_code && part.starts_with("quintet_") {
            plain += part;
            plain += if NOT_FUNCTIONS.contains(&part) { "" } else { "()" };
        } else if is_code && part.chars().all(is_name) {
            let _ = write!(plain, "'{part}'");
        } else {
            plain += part;
        }
    }
    plain
}

/// Returns documentation lines of at most 92 columns. An empty line separates paragraphs, and
/// each paragraph with a title begins on its own line.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for paragraph in plain(text).trim().split("\n\n") {
        let is_titled = TITLES.iter().any(|title| paragraph.starts_with(title));
        let follows_title = TITLES.iter().any(|title| lines.iter().any(|l| l.starts_with(title)));
        if lines.len() > 1 && !(is_titled && follows_title) {
            lines.push(String::new());
        }
        lines.push(String::new());
        for word in paragraph.split_whitespace() {
            let line = lines.last_mut().expect("a line");
            if line.is_empty() {
                *line += word;
            } else if line.len() + 1 + word.len() <= 92 {
                line.push(' ');
                *line += word;
            } else {
                let indent = if is_titled { "  " } else { "" };
                lines.push(indent.to_owned() + word);
            }
        }
    }
    lines.iter().skip(1).map(|line| ["/// ", line, "\n"].concat()).collect()
}

/// Returns an item with the documentation above it.
fn item(lines: &[&str], start: usize, code: &str) -> String {
    format!("{}{}\n", wrapped(&documentation(lines, start)), with_c_types(code))
}

/// Returns the parameters of a signature: names and Rust types.
fn parameters(code: &str) -> Vec<(&str, &str)> {
    let (start, end) = (code.find('(').expect("parameters"), code.rfind(')').expect("an end"));
    let parameters = code[start + 1..end].split(',').filter_map(|one| one.split_once(':'));
    parameters.map(|(name, rust)| (name.trim(), rust.trim())).collect()
}

/// Returns the C name of the handle in a type such as `Handle<Database>`.
fn handle_in(rust: &str) -> Option<&'static str> {
    let find = |(other, name, _)| rust.contains(&format!("Handle<{other}>")).then_some(name);
    handles().find_map(find)
}

/// Returns what follows from the types of the parameters: who frees results, and which threads may
/// call the function.
fn rules(code: &str) -> String {
    let parameters = parameters(code);
    let handles = parameters.iter().filter(|(_, rust)| rust.starts_with("Out<"));
    let handles = handles.filter_map(|(name, rust)| Some((name, handle_in(rust)?)));
    let mut owned: Vec<_> =
        handles.map(|(name, kind)| format!("`*{name}` with `quintet_{kind}_free`")).collect();
    let is_buffer = |(name, rust): &&(&str, &str)| *rust == "InOut<Buffer>" && *name != "buffer";
    let buffers = parameters.iter().filter(is_buffer).map(|(name, _)| format!("`{name}`"));
    let buffers: Vec<_> = buffers.collect();
    if !buffers.is_empty() {
        owned.push(format!("{} with `quintet_buffer_free`", buffers.join(" and ")));
    }
    let mut rules = String::new();
    if !owned.is_empty() {
        let _ = writeln!(rules, "\nOwnership: the caller frees {}.", owned.join(", "));
    }
    rules + &format!("\nThreads: {}.\n", threads(code, &parameters))
}

/// Returns which threads may call a function.
fn threads(code: &str, parameters: &[(&str, &str)]) -> String {
    if parameters.first().is_some_and(|(_, rust)| *rust == "InOut<Buffer>") {
        return "one for each buffer".to_owned();
    }
    let is_input = |rust: &str| !rust.starts_with("Out<") && !rust.contains("<OptionList>");
    let mut inputs = parameters.iter().filter(|(_, rust)| is_input(rust));
    match inputs.find_map(|(_, rust)| handle_in(rust)) {
        Some("table") => {
            let name = code.split("quintet_").nth(1).and_then(|rest| rest.split('(').next());
            let uses_transaction = name.is_some_and(|name| IN_TRANSACTIONS.contains(&name));
            let limit = if uses_transaction { "; in a transaction, one at a time" } else { "" };
            format!("any{limit}")
        }
        None | Some("database" | "snapshot" | "error" | "savepoint") => "any".to_owned(),
        Some(kind) => format!("one at a time for each {kind}"),
    }
}

/// Returns the documentation of a function, with [`rules`] before the errors.
fn function_documentation(docs: &str, code: &str, is_plain: bool) -> String {
    let rules = rules(code);
    if let Some((text, errors)) = docs.split_once("\nErrors: ") {
        return wrapped(&format!("{text}{rules}\nErrors: {errors}"));
    }
    assert!(is_plain, "the documentation of {code} has no line `Errors:`");
    wrapped(&format!("{docs}{rules}"))
}

/// Returns the lines from `start` to the first that ends with `end`.
fn through<'l>(lines: &[&'l str], start: usize, end: &str) -> Vec<&'l str> {
    let count = lines[start..].iter().position(|line| line.ends_with(end)).expect("an end") + 1;
    lines[start..start + count].to_vec()
}

/// Returns `NullArgument` as `NULL_ARGUMENT`.
fn screaming(name: &str) -> String {
    let mut screaming = String::new();
    for (index, c) in name.char_indices() {
        if c.is_uppercase() && index > 0 {
            screaming.push('_');
        }
        screaming.extend(c.to_uppercase());
    }
    screaming
}

/// Returns what the constants of an enumeration begin with: `QUINTET_CHANGE_` of `ChangeKind`.
/// `None`: the line does not begin an enumeration.
fn constants_prefix(line: &str) -> Option<String> {
    let name = line.strip_prefix("pub enum ")?.strip_suffix("Kind {")?;
    Some(format!("QUINTET_{}_", screaming(name)))
}

/// Returns a line with the name of a constant as C has it.
fn constant(prefix: Option<&str>, line: &str) -> String {
    match (prefix, line.trim().split_once(" = ")) {
        (Some(prefix), Some((name, number))) => format!("{prefix}{} = {number}", screaming(name)),
        _ => line.to_owned(),
    }
}

fn codes(lines: &[&str]) -> String {
    let mut text = String::from(
        "/// The result of a function. The numbers do not change between releases.\n\
         #[repr(i32)]\npub enum quintet_code {\n/// Success.\nQUINTET_OK = 0,\n",
    );
    let start = lines.iter().position(|line| *line == "codes! {").expect("the codes");
    for line in through(lines, start + 1, "}") {
        let line = line.trim();
        if line.starts_with("///") {
            let _ = writeln!(text, "{line}");
        } else if let Some((name, number)) = line.split_once(" = ") {
            let number = number.split([',', ';']).next().expect("a number");
            let _ = writeln!(text, "QUINTET_{} = {number},", screaming(name));
        }
    }
    text + "}\n"
}

/// Returns the interface as plain Rust, for cbindgen, and the names of its functions.
fn interface() -> (String, Vec<String>) {
    let mut text = String::from("use std::ffi::{c_char, c_int, c_void};\n");
    let mut functions = String::new();
    let mut names = Vec::new();
    for (_, name, doc) in handles() {
        let _ = writeln!(text, "/// {doc}\npub struct quintet_{name} {{ private: u8 }}");
    }
    for module in MODULES.into_iter().chain(["keys"]) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{module}.rs"));
        let source = fs::read_to_string(path).expect("a module");
        let lines: Vec<&str> = source.lines().collect();
        if module == "failure" {
            text += &codes(&lines);
        }
        let mut is_plain = false;
        for (start, line) in lines.iter().enumerate() {
            if *line == "#[repr(C)]" {
                let body = through(&lines, start, "}").into_iter();
                let body: Vec<_> = body.filter(|line| !line.starts_with("#[derive")).collect();
                let prefix = body.iter().find_map(|line| constants_prefix(line));
                let body = body.iter().map(|line| match line.trim().strip_prefix("///") {
                    Some(text) => format!("///{}", plain(text)),
                    None => with_c_types(&constant(prefix.as_deref(), line)),
                });
                text += &item(&lines, start, "");
                text += &(body.collect::<Vec<_>>().join("\n") + "\n");
            }
            if line.starts_with("pub type") && line.contains("Function") {
                text += &item(&lines, start, &through(&lines, start, ";").join("\n"));
            }
            if line.starts_with("export") {
                is_plain = line.starts_with("export_plain!");
            }
            let Some(name) = line.strip_prefix("    pub fn quintet_") else { continue };
            let name = name.split('(').next().expect("a name");
            names.push(format!("quintet_{name}"));
            let code = through(&lines, start, "{").join("\n");
            let code = code.trim().trim_end_matches('{').trim();
            let signature = &code[..=code.rfind(')').expect("an end")];
            let code = if is_plain {
                code[..result_end(code)].to_owned()
            } else {
                let inner = code.trim_end_matches(')').trim_end().trim_end_matches(',');
                format!("{inner}, error: ErrorOut) -> Code")
            };
            let code = code.replace("pub fn", "#[no_mangle]\npub extern \"C\" fn");
            let docs = documentation(&lines, start);
            functions += &function_documentation(&docs, signature, is_plain);
            let _ = writeln!(functions, "{}", with_c_types(&format!("{code} {{}}")));
        }
    }
    (text + &functions, names)
}

/// Returns where the result type of a function that cannot fail ends.
fn result_end(code: &str) -> usize {
    let arrow = code.find("-> ").expect("a result");
    let result = &code[arrow + 3..];
    let end = if result.starts_with("()") { 2 } else { result.find(',').expect("a default") };
    arrow + 3 + end
}

/// Puts each comment of one line on one line.
fn with_short_comments(header: &str) -> String {
    let lines: Vec<_> = header.lines().collect();
    let mut short = String::new();
    let mut at = 0;
    while at < lines.len() {
        let text = lines.get(at + 1).and_then(|line| line.trim_start().strip_prefix("* "));
        let is_short = lines[at].trim() == "/**"
            && lines.get(at + 2).is_some_and(|line| line.trim() == "*/")
            && lines[at + 1].len() < 92;
        if let Some(text) = text.filter(|_| is_short) {
            let indent = lines[at].len() - lines[at].trim_start().len();
            let _ = writeln!(short, "{:indent$}/** {text} */", "");
            at += 3;
        } else {
            let _ = writeln!(short, "{}", lines[at].trim_end());
            at += 1;
        }
    }
    short
}

fn generated() -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("interface.rs");
    fs::write(&source, interface().0).expect("the source");
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(HEAD.to_owned()),
        include_guard: Some("QUINTET_H".to_owned()),
        cpp_compat: true,
        usize_is_size_t: true,
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h", "string.h"].map(str::to_owned).into(),
        line_length: 100,
        style: cbindgen::Style::Type,
        documentation_style: cbindgen::DocumentationStyle::Doxy,
        ..cbindgen::Config::default()
    };
    config.enumeration.prefix_with_name = false;
    config.export.include = handles().map(|(_, name, _)| format!("quintet_{name}")).collect();
    let bindings = cbindgen::Builder::new().with_config(config).with_src(&source).generate();
    let mut header = Vec::new();
    bindings.expect("a header").write(&mut header);
    let header = with_short_comments(&String::from_utf8(header).expect("text"));
    let guard = header.rfind("#endif").expect("the guard");
    let end = header[guard..].find('\n').map_or("", |at| &header[guard + 6..guard + at]);
    format!("{}{INLINE}{end}\n", &header[..guard])
}

#[test]
fn header_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/quintet.h");
    let header = generated();
    for name in interface().1 {
        assert!(header.contains(&format!("{name}(")), "the header declares {name}");
    }
    assert!(!header.contains(['`', '[']), "the comments of the header have no Markdown");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &header).expect("the header");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = "include/quintet.h differs: UPDATE=1 cargo test -p quintet-capi --test header";
    assert!(kept == header, "{differs}");
}
