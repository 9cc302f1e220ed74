//! The flags of keys that `COMMAND GETKEYSANDFLAGS` replies: what a command does with a key.
//!
//! | flag | meaning |
//! |---|---|
//! | `RO` | the key is only read |
//! | `RW` | data of the key changes, and what it was has an effect |
//! | `OW` | data of the key is replaced, whatever it was |
//! | `RM` | the key is removed |
//! | `access` | data of the key is returned or copied |
//! | `update`, `insert`, `delete` | values are replaced, added, removed |
//!
//! A command that only reads its keys needs no row below.

use crate::{acl::RowAccess, resp::Args, spec::Spec};

/// Flags of a key.
type Flags = &'static [&'static str];

const ASK: Flags = &["RO"];
const READ: Flags = &["RO", "access"];
const UPDATE: Flags = &["RW", "update"];
const INSERT: Flags = &["RW", "insert"];
const DELETE: Flags = &["RW", "delete"];
const CHANGE: Flags = &["RW", "access", "update"];
const TAKE: Flags = &["RW", "access", "delete"];
const REPLACE: Flags = &["OW", "update"];

/// Flags of the first key and of the others, with the commands that have them.
const ROWS: &[(Flags, Flags, &[&str])] = &[
    (&["RM", "delete"], &["RM", "delete"], &["del", "unlink"]),
    (
        INSERT,
        INSERT,
        &[
            "append",
            "hsetnx",
            "linsert",
            "lpush",
            "lpushx",
            "pfadd",
            "rpush",
            "rpushx",
            "sadd",
            "xgroup|create",
            "xgroup|createconsumer",
        ],
    ),
    (
        UPDATE,
        UPDATE,
        &[
            "expire",
            "expireat",
            "geoadd",
            "hexpire",
            "hexpireat",
            "hmset",
            "hpersist",
            "hpexpire",
            "hpexpireat",
            "hset",
            "hsetex",
            "lset",
            "persist",
            "pexpire",
            "pexpireat",
            "setrange",
            "xack",
            "xadd",
            "xclaim",
            "xgroup|setid",
            "xsetid",
            "zadd",
        ],
    ),
    (
        DELETE,
        DELETE,
        &[
            "hdel",
            "lrem",
            "ltrim",
            "srem",
            "xautoclaim",
            "xdel",
            "xgroup|delconsumer",
            "xgroup|destroy",
            "xtrim",
            "zrem",
            "zremrangebylex",
            "zremrangebyrank",
            "zremrangebyscore",
        ],
    ),
    (
        CHANGE,
        CHANGE,
        &[
            "decr",
            "decrby",
            "getex",
            "getset",
            "hgetex",
            "hincrby",
            "hincrbyfloat",
            "incr",
            "incrby",
            "incrbyfloat",
            "move",
            "setbit",
            "zincrby",
        ],
    ),
    (
        TAKE,
        TAKE,
        &[
            "blmpop", "blpop", "brpop", "bzmpop", "bzpopmax", "bzpopmin", "getdel", "hgetdel",
            "lmpop", "lpop", "rpop", "spop", "zmpop", "zpopmax", "zpopmin",
        ],
    ),
    (REPLACE, REPLACE, &["mset", "psetex", "restore", "set", "setex"]),
    (&["OW", "insert"], &["OW", "insert"], &["msetnx", "setnx"]),
    (TAKE, INSERT, &["blmove", "brpoplpush", "lmove", "rpoplpush", "smove"]),
    (TAKE, REPLACE, &["rename"]),
    (TAKE, &["OW", "insert"], &["renamenx"]),
    (READ, REPLACE, &["copy", "georadius", "georadiusbymember", "sort"]),
    (
        REPLACE,
        READ,
        &[
            "bitop",
            "geosearchstore",
            "sdiffstore",
            "sunionstore",
            "zdiffstore",
            "zinterstore",
            "zrangestore",
            "zunionstore",
        ],
    ),
    (UPDATE, READ, &["sinterstore"]),
    (&["RW", "access", "insert"], READ, &["pfmerge"]),
    // Redis caches the estimate in the key.
    (&["RW", "access"], &["RW", "access"], &["pfcount"]),
];

/// The flags of key number `index` of a request, counted from 0.
pub(super) fn flags_of(spec: &Spec, index: usize, args: Args<'_>) -> Flags {
    let access = RowAccess::of(spec).at(index, args);
    // `SET key value GET`, and `BITFIELD` with `SET` or `INCRBY`.
    if ["set", "bitfield"].contains(&spec.name) && access.reads && access.writes {
        return CHANGE;
    }
    if !access.reads && !access.writes {
        return ASK;
    }
    let row = ROWS.iter().find(|(.., names)| names.contains(&spec.name));
    let (first, rest) = row.map_or((READ, READ), |(first, rest, _)| (*first, *rest));
    if index == 0 { first } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Keys, flag};

    /// The rules of users and the flags say the same about each command with keys.
    #[test]
    fn flags_agree_with_the_rules_of_users() {
        let commands = crate::command::table();
        let known = |name: &&str| commands.iter().any(|command| command.spec.name == *name);
        for (.., names) in ROWS {
            assert!(names.iter().all(known), "{names:?}");
        }
        for command in commands.iter().filter(|command| command.spec.keys != Keys::None) {
            let spec = command.spec;
            for index in [0, 1] {
                let args = Args::new(&[], &[]);
                let (flags, access) =
                    (flags_of(&spec, index, args), RowAccess::of(&spec).at(index, args));
                assert_eq!(flags.contains(&"access"), access.reads, "{} {flags:?}", spec.name);
                let writes = ["update", "insert", "delete"].iter().any(|f| flags.contains(f));
                assert_eq!(writes, access.writes, "{} {flags:?}", spec.name);
                let is_reader = spec.has(flag::READ) && spec.name != "pfcount";
                assert!(!is_reader || flags.first() == Some(&"RO"), "{} {flags:?}", spec.name);
            }
        }
    }
}
