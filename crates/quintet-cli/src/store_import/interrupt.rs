//! The signals that ask an import to end: SIGINT (Ctrl-C) and SIGTERM.
//!
//! Problem: the default action ends the process at once. An import could not say how far it came,
//! and a directory of hard links would stay.
//! How: the first signal sets a flag, which the import reads after each batch, and restores the
//! default action. So a second signal ends the process at once.
#![expect(unsafe_code, reason = "signal of the C library; listed in UNSAFE.md")]

use std::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::failure::{Failure, Outcome};

/// Numbers of the signals, equal on all processors that Linux supports.
const SIGNALS: [c_int; 2] = [2, 15];
/// The default action of a signal.
const DEFAULT: *const () = ptr::null();
/// The action that ignores a signal.
const IGNORE: *const () = ptr::without_provenance(1);

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn signal(number: c_int, handler: *const ()) -> *const ();
}

extern "C" fn interrupt(number: c_int) {
    IS_INTERRUPTED.store(true, Ordering::Relaxed);
    // SAFETY: `signal` may be called in a handler. The default action is valid for each number.
    unsafe { signal(number, DEFAULT) };
}

/// Counts on the signals from now on. One that was ignored stays ignored, as a shell asks of a job
/// in the background.
pub fn watch() {
    let handler: extern "C" fn(c_int) = interrupt;
    for number in SIGNALS {
        // SAFETY: the handler has the signature of one, is part of this program, and touches only
        // an atomic flag. `IGNORE` is the system's SIG_IGN.
        unsafe {
            if signal(number, handler as *const ()) == IGNORE {
                signal(number, IGNORE);
            }
        }
    }
}

/// Fails if a signal has asked for the end.
pub fn check() -> Outcome {
    if IS_INTERRUPTED.load(Ordering::Relaxed) {
        return Err(Failure::Failed("interrupted".to_owned()));
    }
    Ok(())
}
