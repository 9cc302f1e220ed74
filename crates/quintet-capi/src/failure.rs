//! Why a function of the interface fails: a code and a message.
//!
//! The numbers of the codes are part of the interface. A new error of the library gets the next
//! number; the codes of the interface itself begin at 100.

use std::ffi::{CStr, CString};

use quintet::Error;

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

            /// Returns the code of a number.
            pub fn from_number(number: i32) -> Option<Self> {
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
    /// The log does not have the position of a change feed. Begin again with a snapshot.
    ChangesLost = 32, ChangesLost { .. };
    --
    /// An error that this header does not know.
    Other = 99,
    /// A required pointer or handle is null.
    NullArgument = 100,
    /// The handle was freed, or is no handle.
    BadHandle = 101,
    /// The handle is one of another kind.
    WrongHandle = 102,
    /// Another call uses an object that is for one call at a time: of another thread, or the call
    /// that runs this callback. Or an update lost all its rounds to other writes of the key.
    Busy = 103,
    /// The memory of the caller is too small. Nothing was copied. The needed size was stored.
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

    /// Returns the message.
    pub fn message(&self) -> String {
        match self {
            Self::Library(error) => error.to_string(),
            Self::Call(_, message) => message.clone(),
        }
    }
}

/// The details of a failed call. `quintet_error_free` frees it.
#[derive(Debug)]
pub struct ErrorObject {
    message: CString,
    failure: Failure,
}

impl ErrorObject {
    /// Builds the details of a failure.
    pub fn new(failure: Failure) -> Self {
        let message = CString::new(failure.message().replace('\0', "\\0")).unwrap_or_default();
        Self { message, failure }
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.failure.code()
    }

    /// Returns the message, in which a zero byte is written `\0`.
    pub fn message(&self) -> &CStr {
        &self.message
    }

    /// Returns the failure.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }
}
