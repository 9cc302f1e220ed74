//! The details of failed calls, and the functions that read them.

use std::{
    ffi::{CString, c_char},
    ptr,
};

use quintet::Error;

use crate::{
    boundary::{Buffer, InOut, Out, Slice, export, export_plain, give, required},
    failure::{Code, ErrorObject, Failure},
    handles::Handle,
};

/// Returns a detail of an error by name.
fn detail(error: &Error, name: &str) -> Option<Vec<u8>> {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    match (error, name) {
        (
            Error::TableFailed { table, .. }
            | Error::Loading { table }
            | Error::TypeMismatch { table, .. }
            | Error::OtherDatabase { table }
            | Error::Unordered { table, .. }
            | Error::MergeOperatorMissing { table, .. }
            | Error::MergeRefused { table, .. }
            | Error::Conflict { table, .. }
            | Error::Deadlock { table, .. }
            | Error::LockTimeout { table, .. },
            "table",
        ) => text(table),
        (
            Error::NoSuchTable { name }
            | Error::TableExists { name }
            | Error::StaleTable { name }
            | Error::InvalidOption { name, .. }
            | Error::UnknownEngine { name, .. },
            "name",
        ) => text(name),
        (
            Error::OutOfOrder { key, .. }
            | Error::MergeRefused { key, .. }
            | Error::Conflict { key, .. }
            | Error::Deadlock { key, .. }
            | Error::LockTimeout { key, .. },
            "key",
        ) => Some(key.clone()),
        (Error::Corruption { file, .. } | Error::NewerFormat { file, .. }, "file") => text(file),
        (Error::Corruption { offset, .. }, "offset") => text(&offset.to_string()),
        (Error::Locked { path, .. } | Error::NotADatabase { path, .. }, "path") => {
            text(&path.to_string_lossy())
        }
        (Error::OutOfMemory { needed, .. }, "needed") => text(&needed.to_string()),
        (Error::OutOfMemory { budget, .. }, "budget") => text(&budget.to_string()),
        (Error::ChangesLost { position, .. }, "position") => text(&position.to_string()),
        (Error::ChangesLost { start, .. }, "start") => text(&start.to_string()),
        (Error::ChangesLost { end, .. }, "end") => text(&end.to_string()),
        (Error::Io { source, .. }, "os_error") => text(&source.raw_os_error()?.to_string()),
        _ => None,
    }
}

export_plain! {
    /// Returns the message of an error, terminated by 0. It is valid until the error is freed.
    /// Returns an empty text for null or a freed error.
    pub fn quintet_error_message(error: Handle<ErrorObject>) -> *const c_char, c"".as_ptr(), {
        // The registry keeps the object, and so the text, until the handle is freed.
        error.get().map_or(c"".as_ptr(), |error| error.message().as_ptr())
    }

    /// Returns the code of an error, or `QUINTET_BAD_HANDLE` for null or a freed error.
    pub fn quintet_error_code(error: Handle<ErrorObject>) -> Code, Code::Panic, {
        error.get().map_or(Code::BadHandle, |error| error.code())
    }

    /// Returns the name of a code, such as "Conflict", terminated by 0, or "unknown". The text is
    /// valid until the program ends.
    pub fn quintet_code_name(code: i32) -> *const c_char, ptr::null(), {
        name_of(code)
    }

    /// Frees an error. Null and a freed error are ignored.
    pub fn quintet_error_free(error: Handle<ErrorObject>) -> (), (), {
        drop(error.free());
    }
}

/// Returns the name of a code as a terminated text that is kept for ever.
fn name_of(number: i32) -> *const c_char {
    static NAMES: std::sync::OnceLock<Vec<(i32, CString)>> = std::sync::OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let name = |code| CString::new(format!("{code:?}")).unwrap_or_default();
        (0..=199).filter_map(|n| Some((n, name(Code::from_number(n)?)))).collect()
    });
    let found = names.iter().find(|(other, _)| *other == number);
    found.map_or(c"unknown".as_ptr(), |(_, name)| name.as_ptr())
}

export! {
    /// Copies a detail of an error to `value`. Stores whether the error has it in `found`, which
    /// may be null. The names are `"table"`, `"key"`, `"name"` (of a table or an option), `"file"`,
    /// `"offset"`, `"path"`, `"needed"`, `"budget"`, `"os_error"`, and of lost changes
    /// `"position"`, `"start"` and `"end"`. Numbers are decimal text.
    ///
    /// Errors: those of every function.
    pub fn quintet_error_detail(
        of: Handle<ErrorObject>, name: Slice, value: InOut<Buffer>, found: Out<bool>,
    ) {
        let (of, name) = (of.get()?, name.text()?);
        let value = required(value, "value")?;
        let content = match of.failure() {
            Failure::Library(error) => detail(error, name),
            Failure::Call(..) => None,
        };
        give(found, content.is_some());
        value.set(content.unwrap_or_default());
        Ok(())
    }
}
