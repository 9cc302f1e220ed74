//! `include/quintet.h` is generated from the functions inside `export!`, by cbindgen.
//! `UPDATE=1 cargo test -p quintet-capi --test header` writes it.

use std::{fmt::Write as _, fs, path::Path};

const MODULES: [&str; 13] = [
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
];
/// Handles: the Rust type, the name in C, the documentation.
const HANDLES: [(&str, &str, &str); 10] = [
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
];
const SAVEPOINT: (&str, &str, &str) =
    ("SavepointHandle", "savepoint", "A point of a transaction to which it can return.");
/// Other types: the Rust name and the name in C.
const TYPES: [(&str, &str); 10] = [
    ("Slice", "slice"),
    ("Buffer", "buffer"),
    ("Range", "range"),
    ("WriteOptions", "write_options"),
    ("ValueInfo", "value_info"),
    ("Code", "code"),
    ("MergeFunction", "merge_function"),
    ("UpdateFunction", "update_function"),
    ("VisitFunction", "visit_function"),
    ("EachFunction", "each_function"),
];
const HEAD: &str = "\
/* Quintet: a persistent key-value store. The C interface; the guide is docs/c.md.
 *
 * Errors: a function returns QUINTET_OK or the code of an error. `error` may be null. If it is not
 * and the call fails, it gets an object with the message, which quintet_error_free frees. It is
 * written only if the call fails. A result is written only if the call succeeds.
 *
 * Ownership: a function that stores a handle gives it to the caller, who frees it. An argument is
 * not kept. Bytes that a function returns are in a buffer of the caller (quintet_buffer_free), or
 * stay with their handle, as the function says.
 *
 * Threads: databases, tables and snapshots may be used by any number of threads at once, options,
 * iterators, cursors, batches, loads and transactions by one at a time.
 *
 * Generated from crates/quintet-capi/src by `UPDATE=1 cargo test -p quintet-capi --test header`.
 */";
const INLINE: &str = "\
/**
 * Returns a slice of a text that ends with 0, without the 0. Null: the absent slice.
 */
static inline quintet_slice quintet_string(const char *text) {
  quintet_slice slice = {(const uint8_t *)text, text ? strlen(text) : 0};
  return slice;
}

/**
 * Returns a slice of bytes.
 */
static inline quintet_slice quintet_bytes(const void *data, size_t size) {
  quintet_slice slice = {(const uint8_t *)data, size};
  return slice;
}

/**
 * Returns a slice of the content of a buffer, valid until the buffer changes.
 */
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
    code = rename(&code, "Context", "*mut c_void");
    for (rust, name) in TYPES {
        code = code.replace(&format!("Option<{rust}>"), rust);
        code = rename(&code, rust, &format!("quintet_{name}"));
    }
    code
}

/// Returns an item with the documentation above it; the documentation stays as it is.
fn item(lines: &[&str], start: usize, code: &str) -> String {
    let docs = lines[..start].iter().rev().take_while(|line| line.trim().starts_with("///"));
    let docs: Vec<_> = docs.map(|line| line.trim()).collect();
    let docs: Vec<_> = docs.into_iter().rev().collect();
    format!("{}\n{}\n", docs.join("\n"), with_c_types(code))
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

fn codes(lines: &[&str]) -> String {
    let mut text = String::from(
        "/// The result of a function. The numbers do not change between releases.\n\
         #[repr(i32)]\npub enum quintet_code {\n/// Success.\nQUINTET_OK = 0,\n",
    );
    let start = lines.iter().position(|line| *line == "codes! {").expect("the codes");
    for line in through(lines, start + 1, "}") {
        let line = line.trim();
        if line.starts_with("///") {
            text += &format!("{line}\n");
        } else if let Some((name, number)) = line.split_once(" = ") {
            let number = number.split([',', ';']).next().expect("a number");
            text += &format!("QUINTET_{} = {number},\n", screaming(name));
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
                let body = body.iter().map(|line| match line.trim().starts_with("///") {
                    true => (*line).to_owned(),
                    false => with_c_types(line),
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
            let Some(signature) = line.strip_prefix("    pub fn quintet_") else { continue };
            let name = signature.split('(').next().expect("a name");
            names.push(format!("quintet_{name}"));
            let code = through(&lines, start, "{").join("\n");
            let code = code.trim().trim_end_matches('{').trim();
            let code = if is_plain {
                code[..result_end(code)].to_owned()
            } else {
                let inner = code.trim_end_matches(')').trim_end().trim_end_matches(',');
                format!("{inner}, error: ErrorOut) -> Code")
            };
            let code = code.replace("pub fn", "#[no_mangle]\npub extern \"C\" fn");
            functions += &item(&lines, start, &format!("{code} {{}}"));
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
        documentation_style: cbindgen::DocumentationStyle::C,
        ..cbindgen::Config::default()
    };
    config.enumeration.prefix_with_name = false;
    config.export.include = handles().map(|(_, name, _)| format!("quintet_{name}")).collect();
    let bindings = cbindgen::Builder::new().with_config(config).with_src(&source).generate();
    let mut header = Vec::new();
    bindings.expect("a header").write(&mut header);
    let header = String::from_utf8(header).expect("text");
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
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &header).expect("the header");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = "include/quintet.h differs: UPDATE=1 cargo test -p quintet-capi --test header";
    assert!(kept == header, "{differs}");
}
