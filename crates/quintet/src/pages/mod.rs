//! Memory in pages, for index structures: they import nothing below this layer.
//!
//! So far only reserved regions of anonymous memory ([`Region`]).

pub(crate) use crate::disk::{Region, store};
