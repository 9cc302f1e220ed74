//! `REPLICAOF` and `ROLE`.

use super::call::{Call, commands};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    state::Master,
};

commands! { Group::Server;
    "replicaof" 3 [ADMIN DANGEROUS COMMIT_FIRST] Keys::None, replicaof, "5.0.0",
        "Configures a server as replica of another, or promotes it to a master.";
    "role" 1 [FAST ADMIN DANGEROUS] Keys::None, role, "2.8.12", "Returns the replication role.";
    "slaveof" 3 [ADMIN DANGEROUS COMMIT_FIRST] Keys::None, replicaof, "1.0.0",
        "Sets a server as a replica of another, or promotes it to being a master.";
}

fn replicaof(call: &mut Call<'_, '_>) -> Done {
    if call.session.is_executing {
        return Err(Fail::new("ERR REPLICAOF is not supported in a transaction"));
    }
    let replication = &call.server.replication;
    let store = &call.server.store;
    if call.args.is(1, "no") && call.args.is(2, "one") {
        if replication.is_replica() {
            replication.set_master(store, None)?;
        }
        call.reply.ok();
        return Ok(());
    }
    let host = std::str::from_utf8(call.args.at(1)).ok().filter(|host| !host.is_empty());
    let host = host.ok_or(Fail::new("ERR Invalid master host"))?.to_owned();
    let port = u16::try_from(call.integer(2)?).ok().filter(|port| *port > 0);
    let port = port.ok_or(Fail::new("ERR Invalid master port"))?;
    let master = Master { host, port };
    if replication.master().as_ref() == Some(&master) && !replication.is_stopped() {
        call.reply.simple("OK Already connected to specified master");
        return Ok(());
    }
    replication.set_master(store, Some(master))?;
    call.reply.ok();
    Ok(())
}

fn role(call: &mut Call<'_, '_>) -> Done {
    let Some(master) = call.server.replication.master() else {
        call.reply.array(3);
        call.reply.text("master");
        call.reply.integer(0);
        call.reply.array(0);
        return Ok(());
    };
    let status = call.server.replication.status();
    let offset = status.position.and_then(|position| i64::try_from(position.offset).ok());
    call.reply.array(5);
    call.reply.text("slave");
    call.reply.text(&master.host);
    call.reply.integer(i64::from(master.port));
    call.reply.text(status.state.name());
    call.reply.integer(offset.unwrap_or(-1));
    Ok(())
}
