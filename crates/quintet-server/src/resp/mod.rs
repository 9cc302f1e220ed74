//! The protocol: requests in RESP arrays or inline, replies in RESP2 or RESP3.

#[cfg(test)]
mod oracle_tests;
mod parse;
mod reply;

pub(crate) use parse::{Args, Limits, Parser};
pub(crate) use reply::{Protocol, Reply};
