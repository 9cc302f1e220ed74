//! The protocol: requests in RESP arrays or inline, replies in RESP2 or RESP3.

mod parse;
mod reply;

pub(crate) use parse::{Args, Limits, Parser};
pub(crate) use reply::{Protocol, Reply};
