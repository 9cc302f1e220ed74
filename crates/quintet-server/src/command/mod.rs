//! The commands, one file for each group, and the table of all.

#![expect(clippy::unnecessary_wraps, reason = "all handlers have one signature")]

mod acl;
mod administration;
mod bitmaps;
pub(crate) mod call;
pub(crate) mod connection;
mod generic;
mod geo;
mod hash_expiries;
mod hash_values;
mod hashes;
mod hyperloglog;
mod introspection;
mod latency;
mod list_moves;
mod lists;
mod login;
mod members;
mod memory;
mod namespaces;
mod pause;
pub(crate) mod pubsub;
mod replication;
mod scan;
mod server;
mod sets;
mod sort;
mod sorted_set;
mod sorted_set_ranges;
mod sorted_sets;
mod stream;
mod stream_claims;
mod stream_groups;
mod stream_info;
mod streams;
mod strings;
pub(crate) mod tracking;
pub(crate) mod transactions;
pub(crate) mod transfer;

use crate::spec::Registry;
use call::{Action, Command};

/// All commands and subcommands.
pub(crate) fn table() -> Vec<Command> {
    let groups = [
        strings::COMMANDS,
        bitmaps::COMMANDS,
        generic::COMMANDS,
        scan::COMMANDS,
        scan::server_rows::COMMANDS,
        pubsub::COMMANDS,
        hashes::COMMANDS,
        hash_expiries::COMMANDS,
        hash_values::COMMANDS,
        geo::COMMANDS,
        hyperloglog::COMMANDS,
        sort::COMMANDS,
        streams::COMMANDS,
        stream_groups::COMMANDS,
        stream_info::COMMANDS,
        stream_claims::COMMANDS,
        lists::COMMANDS,
        list_moves::COMMANDS,
        sets::COMMANDS,
        sorted_sets::COMMANDS,
        sorted_set_ranges::COMMANDS,
        transactions::COMMANDS,
        transfer::COMMANDS,
        connection::COMMANDS,
        login::COMMANDS,
        tracking::COMMANDS,
        pause::COMMANDS,
        namespaces::COMMANDS,
        namespaces::server_rows::COMMANDS,
        server::COMMANDS,
        memory::COMMANDS,
        acl::COMMANDS,
        administration::COMMANDS,
        replication::COMMANDS,
        latency::COMMANDS,
        introspection::COMMANDS,
    ];
    let mut commands = groups.concat();
    for command in &mut commands {
        if command.spec.name == "exec" {
            command.action = Action::Exec;
        }
    }
    commands
}

#[cfg(test)]
mod page_tests;

/// The index of the table.
pub(crate) fn registry(commands: &[Command]) -> Registry {
    Registry::new(commands.iter().map(|command| command.spec).collect())
}
