//! The access that commands have to the data of their keys.
//!
//! Rules such as `%R~pattern` allow reads only. A command that returns data of a key needs to read
//! it. A command that changes a key needs to write it. `LPUSH` returns no element, so it needs no
//! read. `EXISTS` and `STRLEN` return no data, so any rule that covers the key suffices.

use crate::{
    resp::Args,
    spec::{Spec, flag},
};

/// The access of a command to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyAccess {
    /// Data of the key is returned or copied.
    pub(crate) reads: bool,
    /// The key changes.
    pub(crate) writes: bool,
}

impl KeyAccess {
    const NONE: Self = Self { reads: false, writes: false };
    /// Data is returned.
    pub(crate) const READ: Self = Self { reads: true, writes: false };
    const WRITE: Self = Self { reads: false, writes: true };
    /// Data is returned, and the key changes.
    pub(crate) const BOTH: Self = Self { reads: true, writes: true };
}

/// Commands that return no data of their keys and do not change them.
const ASK: [&str; 18] = [
    "exists",
    "hexists",
    "hlen",
    "hstrlen",
    "llen",
    "memory|usage",
    "object|encoding",
    "object|freq",
    "object|idletime",
    "object|refcount",
    "scard",
    "sismember",
    "strlen",
    "touch",
    "type",
    "watch",
    "xlen",
    "zcard",
];

/// Commands that change keys and return no data of them.
const CHANGE: [&str; 54] = [
    "append",
    "del",
    "expire",
    "expireat",
    "geoadd",
    "hdel",
    "hexpire",
    "hexpireat",
    "hmset",
    "hpersist",
    "hpexpire",
    "hpexpireat",
    "hset",
    "hsetex",
    "hsetnx",
    "linsert",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "mset",
    "msetnx",
    "persist",
    "pexpire",
    "pexpireat",
    "pfadd",
    "psetex",
    "restore",
    "rpush",
    "rpushx",
    "sadd",
    "setex",
    "setnx",
    "setrange",
    "srem",
    "unlink",
    "xack",
    "xadd",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xgroup|create",
    "xgroup|createconsumer",
    "xgroup|delconsumer",
    "xgroup|destroy",
    "xgroup|setid",
    "xsetid",
    "xtrim",
    "zadd",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// Commands whose first key is replaced by what the other keys have.
const TO_FIRST: [&str; 9] = [
    "bitop",
    "geosearchstore",
    "sdiffstore",
    "sinterstore",
    "sunionstore",
    "zdiffstore",
    "zinterstore",
    "zrangestore",
    "zunionstore",
];

/// Commands that move data of the first key to the second.
const FROM_FIRST: [&str; 7] =
    ["blmove", "brpoplpush", "lmove", "rename", "renamenx", "rpoplpush", "smove"];

/// Commands that write what the first key has to the other keys.
const COPY_FIRST: [&str; 4] = ["copy", "georadius", "georadiusbymember", "sort"];

/// The access to the keys of one row of the table of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowAccess {
    first: KeyAccess,
    rest: KeyAccess,
    /// Options that add an access to that of [`Self::first`].
    options: Options,
}

/// Options of a command that decide about its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Options {
    None,
    /// `SET key value GET` reads.
    Set,
    /// `BITFIELD` writes with `SET` and `INCRBY`.
    BitField,
}

impl RowAccess {
    /// The access of a command.
    pub(crate) fn of(spec: &Spec) -> Self {
        let name = spec.name;
        let of = |first, rest| Self { first, rest, options: Options::None };
        let both = |access| of(access, access);
        if name == "set" {
            return Self { options: Options::Set, ..both(KeyAccess::WRITE) };
        }
        if name == "bitfield" {
            return Self { options: Options::BitField, ..both(KeyAccess::READ) };
        }
        if ASK.contains(&name) {
            both(KeyAccess::NONE)
        } else if name == "pfmerge" {
            of(KeyAccess::BOTH, KeyAccess::READ)
        } else if TO_FIRST.contains(&name) {
            of(KeyAccess::WRITE, KeyAccess::READ)
        } else if FROM_FIRST.contains(&name) {
            of(KeyAccess::BOTH, KeyAccess::WRITE)
        } else if COPY_FIRST.contains(&name) {
            of(KeyAccess::READ, KeyAccess::WRITE)
        } else if name == "xreadgroup" || spec.has(flag::READ) {
            both(KeyAccess::READ)
        } else if CHANGE.contains(&name) {
            both(KeyAccess::WRITE)
        } else {
            both(KeyAccess::BOTH)
        }
    }

    /// The access of a request to its key number `index`, counted from 0.
    pub(crate) fn at(self, index: usize, args: Args<'_>) -> KeyAccess {
        let access = if index == 0 { self.first } else { self.rest };
        let has = |from: usize, words: &[&str]| {
            (from..args.len()).any(|at| words.iter().any(|word| args.is(at, word)))
        };
        let is_widened = match self.options {
            Options::None => false,
            Options::Set => has(3, &["get"]),
            Options::BitField => has(2, &["set", "incrby"]),
        };
        if is_widened { KeyAccess::BOTH } else { access }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_name_commands_with_keys() {
        let commands = crate::command::table();
        let lists: [&[&str]; 5] = [&ASK, &CHANGE, &TO_FIRST, &FROM_FIRST, &COPY_FIRST];
        for name in lists.concat() {
            let found = commands.iter().find(|command| command.spec.name == name);
            let spec = found.unwrap_or_else(|| panic!("there is no {name}")).spec;
            assert_ne!(spec.keys, crate::spec::Keys::None, "{name} has no keys");
        }
    }
}
