//! Shared libraries of peers: finds and loads them, and looks up their functions by name.
//!
//! [`load`] loads a library. The macro [`functions`] makes a struct of function pointers from a
//! part of a C header. The libraries are not linked, so that the tool builds and the other stores
//! run if a library is missing.
//!
//! The declarations are written by hand. Those of `RocksDB`, `LevelDB`, LMDB and MDBX have been
//! stable for years, and the tests of the peers detect a wrong one.

use std::{env, ffi::CStr, path::PathBuf};

use libloading::Library;
use quintet_bench::failure::{Failure, Outcome};

/// Environment variable with the directory of the libraries.
pub const DIR: &str = "QUINTET_PEERS";

/// Returns the directory of the libraries: that in [`DIR`], or the one that `setup` uses.
pub fn dir() -> PathBuf {
    env::var_os(DIR)
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")), PathBuf::from)
}

/// Returns the path of a library. Fails if the file is missing.
pub fn find(name: &str) -> Outcome<PathBuf> {
    let path = dir().join(format!("lib{name}.so"));
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::Failed(format!(
        "{name} is not available: {} is missing; `setup {name}` makes it",
        path.display()
    )))
}

/// Returns the version that `setup` wrote beside the library.
pub fn version(name: &str) -> String {
    std::fs::read_to_string(dir().join(format!("lib{name}.version")))
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Loads a library until the process ends.
#[expect(unsafe_code, reason = "loading a library runs its initialisers")]
pub fn load(name: &str) -> Outcome<&'static Library> {
    let path = find(name)?;
    // SAFETY: the initialisers of the four libraries that `setup` installs only set up their own
    // statics. The user is responsible for other files in that directory.
    let library = unsafe { Library::new(&path) };
    let library =
        library.map_err(|error| Failure::Failed(format!("{name} does not load: {error}")))?;
    Ok(Box::leak(Box::new(library)))
}

/// Returns the text of a C string; empty for a null pointer.
///
/// # Safety
/// `text` is null or points to a terminated string that does not change during the call.
#[expect(unsafe_code, reason = "reads what the pointer points to")]
pub unsafe fn text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Declares a struct of function pointers, and a constructor that looks up every function under a
/// prefix.
macro_rules! functions {
    (
        $(#[$about:meta])*
        $name:ident {
            $($function:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub(super) struct $name {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $name {
            /// Looks up the functions. Fails if one is missing.
            ///
            /// # Safety
            /// The library's functions under these names have the declared signatures.
            #[expect(unsafe_code, reason = "a looked-up symbol is given its type")]
            pub(super) unsafe fn look_up(
                library: &'static libloading::Library,
                prefix: &str,
            ) -> quintet_bench::failure::Outcome<Self> {
                Ok(Self {
                    $($function: {
                        let name = format!(concat!("{}", stringify!($function), "\0"), prefix);
                        // SAFETY: the caller promises the signature; the library stays loaded.
                        let symbol = unsafe { library.get(name.as_bytes()) };
                        *symbol.map_err(|error| {
                            quintet_bench::failure::Failure::Failed(format!(
                                "{} is not in the library: {error}",
                                name.trim_end_matches('\0')
                            ))
                        })?
                    },)*
                })
            }
        }
    };
}
pub(super) use functions;
