//! Errors as codes, with a message and details.

use std::{
    ffi::{CString, c_char},
    ptr,
};

use quintet::Error;

use crate::{
    boundary::{Buffer, InOut, Out, Slice, export, export_plain, give, required},
    handles::Handle,
};

/// Declares the codes: those of the library's errors, then those of the interface.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $variant:ident $({$($fields:tt)*})?;)*
        -- $($(#[$own_doc:meta])* $own:ident = $own_number:literal,)*) => {
        /// The result of a function. The numbers do not change between releases.
        #[repr(i32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            /// The function did what it says.
            Ok = 0,
            $($(#[$doc])* $name = $number,)*
            $($(#[$own_doc])* $own = $own_number,)*
        }

        impl Code {
            fn of(error: &Error) -> Self {
                match error {
                    $(Error::$variant $({$($fields)*})? => Self::$name,)*
                    _ => Self::Other,
                }
            }

            fn from_number(number: i32) -> Option<Self> {
                [Self::Ok, $(Self::$name,)* $(Self::$own,)*]
                    .into_iter()
                    .find(|code| *code as i32 == number)
            }
        }
    };
}

codes! {
    /// The directory is open elsewhere.
    Locked = 1, Locked { .. };
    /// The directory is missing or holds no database.
    NotADatabase = 2, NotADatabase { .. };
    /// The operating system refused a file operation.
    Io = 3, Io { .. };
    /// The disk or the quota is full.
    DiskFull = 4, DiskFull { .. };
    /// Bytes on disk differ from what was written.
    Corruption = 5, Corruption { .. };
    /// A newer release wrote the file.
    NewerFormat = 6, NewerFormat { .. };
    /// A sync of the log failed earlier. Writes fail until the database is opened again.
    LogFailed = 7, LogFailed { .. };
    /// A write could not be applied. The table fails until the database is opened again.
    TableFailed = 8, TableFailed { .. };
    /// The operation needs more memory than the budget leaves.
    OutOfMemory = 9, OutOfMemory { .. };
    /// A key, value, batch, name or expiry is outside its limits.
    Limit = 10, Limit { .. };
    /// An option does not exist, or its value is not allowed.
    InvalidOption = 11, InvalidOption { .. };
    /// A sorted load received a key that is not greater than the previous one.
    OutOfOrder = 12, OutOfOrder { .. };
    /// A sorted load of the table is in progress.
    Loading = 13, Loading { .. };
    /// No table has this name.
    NoSuchTable = 14, NoSuchTable { .. };
    /// The name exists.
    TableExists = 15, TableExists { .. };
    /// The snapshot has ended.
    SnapshotExpired = 16, SnapshotExpired { .. };
    /// The table was dropped.
    StaleTable = 17, StaleTable { .. };
    /// A key or value does not have the table's type.
    TypeMismatch = 18, TypeMismatch { .. };
    /// A value cannot be encoded.
    NotEncodable = 19, NotEncodable { .. };
    /// The table belongs to another database.
    OtherDatabase = 20, OtherDatabase { .. };
    /// A mount cannot be created or used.
    Mount = 21, Mount { .. };
    /// The engine keeps no key order.
    Unordered = 22, Unordered { .. };
    /// The merge operator of the table is not registered.
    MergeOperatorMissing = 23, MergeOperatorMissing { .. };
    /// The merge operator refuses the operand.
    MergeRefused = 24, MergeRefused { .. };
    /// This build has no engine of that name.
    UnknownEngine = 25, UnknownEngine { .. };
    /// Another commit changed what the transaction depends on. Run it again.
    Conflict = 26, Conflict { .. };
    /// Transactions wait for each other. Run this one again.
    Deadlock = 27, Deadlock { .. };
    /// A lock was not free in time.
    LockTimeout = 28, LockTimeout { .. };
    /// The database was opened read-only.
    ReadOnly = 29, ReadOnly;
    /// The database was closed.
    Closed = 30, Closed;
    /// The handle belongs to the parent of this process.
    Forked = 31, Forked;
    --
    /// An error that this header does not know.
    Other = 99,
    /// A required pointer or handle is null.
    NullArgument = 100,
    /// The handle was freed, or is no handle.
    BadHandle = 101,
    /// The handle is one of another kind.
    WrongHandle = 102,
    /// Another thread uses the handle, which is for one thread at a time; or a callback uses it.
    Busy = 103,
    /// The memory of the caller is too small. The needed size was stored.
    BufferTooSmall = 104,
    /// Text is not UTF-8.
    NotUtf8 = 105,
    /// The operation is not possible through this handle, for example a write through a snapshot.
    Unsupported = 106,
    /// The transaction has ended.
    Ended = 107,
    /// A callback failed.
    CallbackFailed = 108,
    /// A panic was caught: a defect of the library or of a callback. Close the database.
    Panic = 109,
}

/// Why a function of the interface fails.
#[derive(Debug)]
pub enum Failure {
    /// The library failed.
    Library(Error),
    /// The call is wrong.
    Call(Code, String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl Failure {
    /// Builds a failure of the interface.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Call(code, message.into())
    }

    /// Builds `NullArgument`.
    pub fn null(message: impl Into<String>) -> Self {
        Self::new(Code::NullArgument, message)
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        match self {
            Self::Library(error) => Code::of(error),
            Self::Call(code, _) => *code,
        }
    }

    /// Stores an error object where the caller wants it.
    pub fn give(self, out: ErrorOut<'_>) {
        if out.is_none() {
            return;
        }
        let message = match &self {
            Self::Library(error) => error.to_string(),
            Self::Call(_, message) => message.clone(),
        };
        let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
        let object = ErrorObject { code: self.code(), message, failure: self };
        give(out, Handle::new(object).unwrap_or(Handle::NULL));
    }
}

/// The details of a failed call. `quintet_error_free` frees it.
#[derive(Debug)]
pub struct ErrorObject {
    code: Code,
    message: CString,
    failure: Failure,
}

/// The last parameter of each function that can fail. It is written only if the function fails.
pub type ErrorOut<'a> = Out<'a, Handle<ErrorObject>>;

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
        (Error::Io { source, .. }, "os_error") => text(&source.raw_os_error()?.to_string()),
        _ => None,
    }
}

export_plain! {
    /// Returns the message of an error, terminated by 0. It is valid until the error is freed. Of a
    /// null or freed handle: an empty text.
    pub fn quintet_error_message(error: Handle<ErrorObject>) -> *const c_char, c"".as_ptr(), {
        // The registry keeps the object, and so the text, until the handle is freed.
        error.get().map_or(c"".as_ptr(), |error| error.message.as_ptr())
    }

    /// Returns the code of an error; `QUINTET_BAD_HANDLE` of a null or freed one.
    pub fn quintet_error_code(error: Handle<ErrorObject>) -> Code, Code::Panic, {
        error.get().map_or(Code::BadHandle, |error| error.code)
    }

    /// Returns the name of a code, such as `Conflict`, terminated by 0 and valid for ever.
    pub fn quintet_code_name(code: i32) -> *const c_char, ptr::null(), {
        name_of(code)
    }

    /// Frees an error. Null is allowed.
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
    /// Copies a detail of an error to `value` and stores whether it has one. Names: `table`, `key`,
    /// `name` (of a table or option), `file`, `offset`, `path`, `needed`, `budget`, `os_error`.
    pub fn quintet_error_detail(
        of: Handle<ErrorObject>, name: Slice, value: InOut<Buffer>, found: Out<bool>,
    ) {
        let of = of.get()?;
        let name = name.text()?;
        let content = match &of.failure {
            Failure::Library(error) => detail(error, name),
            Failure::Call(..) => None,
        };
        give(found, content.is_some());
        required(value, "value")?.set(content.unwrap_or_default());
        Ok(())
    }
}
