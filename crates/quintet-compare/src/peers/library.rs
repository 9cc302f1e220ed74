//! Shared libraries of peers: found, loaded, and their functions looked up by name.
//!
//! What: [`load`] and the macro [`functions`], which makes a struct of function pointers out of a
//! subset of a C header. Why not link: the tool has to build, and the other stores have to be
//! measured, where a peer could not be had.
//!
//! The declarations are kept by hand; those of `RocksDB`, `LevelDB`, LMDB and MDBX have been the
//! same for years, and a wrong one shows in the peers' tests at once.

use std::{env, ffi::CStr, path::PathBuf};

use libloading::Library;
use quintet_bench::failure::{Failure, Outcome};

/// The environment variable with the directory of the peers' libraries.
pub const DIR: &str = "QUINTET_PEERS";

/// Where the peers' libraries are: where [`DIR`] says, else where `setup` puts them.
pub fn dir() -> PathBuf {
    env::var_os(DIR)
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")), PathBuf::from)
}

/// The path of a peer's library, and why it cannot be used where it is not there.
pub fn find(name: &str) -> Outcome<PathBuf> {
    let path = dir().join(format!("lib{name}.so"));
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::Failed(format!(
        "{name} is not there: {} is missing; `setup {name}` makes it",
        path.display()
    )))
}

/// The version that `setup` wrote beside the library.
pub fn version(name: &str) -> String {
    std::fs::read_to_string(dir().join(format!("lib{name}.version")))
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Loads a peer's library for the rest of the process.
#[expect(unsafe_code, reason = "loading a library runs its initialisers")]
pub fn load(name: &str) -> Outcome<&'static Library> {
    let path = find(name)?;
    // SAFETY: the initialisers of the four libraries that `setup` makes only set up their own
    // statics. A file put there by somebody else is that person's choice, as with any program.
    let library = unsafe { Library::new(&path) };
    let library =
        library.map_err(|error| Failure::Failed(format!("{name} does not load: {error}")))?;
    Ok(Box::leak(Box::new(library)))
}

/// The text of a C string; empty for a null pointer.
///
/// # Safety
/// `text` is null or points to a terminated string that nobody changes during the call.
#[expect(unsafe_code, reason = "reads what the pointer points to")]
pub unsafe fn text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Declares a struct of function pointers and its constructor, which looks every function up under
/// a prefix.
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
            /// Looks the functions up. Fails where one is missing.
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
