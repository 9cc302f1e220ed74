//! The C interface of Quintet. `include/quintet.h` is generated from the functions here.
//!
//! Why: programs in C, Go and other languages use databases without Rust in their build.
//!
//! How: each function is written inside `boundary::export`, which gives it the C calling
//! convention, an error as result, and a guard that no panic passes. A handle that a program holds
//! is a number with the type of a pointer; [`handles`] finds the object behind it. Functions are
//! safe code over checked arguments; `boundary` has the conversions.
//!
//! Start at [`table`], and at `docs/c.md` for the rules of the interface.
#![deny(unsafe_code)]

pub mod batch;
mod boundary;
pub mod changes;
pub mod cursor;
pub mod database;
pub mod error;
pub mod failure;
pub mod handles;
pub mod keys;
pub mod load;
pub mod options;
pub mod range;
pub mod read;
pub mod statistics;
pub mod table;
pub mod transaction;
pub mod write;

pub use boundary::{Array, Buffer, Context, ErrorOut, In, InOut, Out, Room, Slice, View};
