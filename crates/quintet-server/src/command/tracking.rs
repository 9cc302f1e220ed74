//! `CLIENT TRACKING` and its relatives: client-side caching. `state/tracking/` has what it does.

use std::sync::Arc;

use super::call::{Call, commands};
use crate::{
    failure::{Done, Fail},
    spec::{Group, Keys},
    state::{Client, ClientTracking, Overlap, Server, Session, TrackingMode},
};

commands! { Group::Connection;
    "client|caching" 3 [] Keys::None, caching, "6.0.0",
        "Instructs the server whether to track the keys in the next request.";
    "client|getredir" 2 [] Keys::None, getredir, "6.0.0", "Returns the client ID to which the \
     connection's tracking notifications are redirected.";
    "client|tracking" -3 [] Keys::None, tracking, "6.0.0",
        "Controls server-assisted client-side caching for the connection.";
    "client|trackinginfo" 2 [] Keys::None, trackinginfo, "6.2.0",
        "Returns information about server-assisted client-side caching for the connection.";
}

/// Options of `CLIENT TRACKING`.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[derive(Default)]
struct TrackingOptions<'c> {
    redirect: Option<Arc<Client>>,
    is_broadcast: bool,
    is_optin: bool,
    is_optout: bool,
    is_noloop: bool,
    prefixes: Vec<&'c [u8]>,
}

fn parse<'c>(call: &Call<'c, '_>) -> Done<TrackingOptions<'c>> {
    let mut options = TrackingOptions::default();
    let mut at = 3;
    while at < call.args.len() {
        let has_value = at + 1 < call.args.len();
        if call.args.is(at, "redirect") && has_value {
            if options.redirect.is_some() {
                return Err(Fail::new("ERR A client can only redirect to a single other client"));
            }
            let id = u64::try_from(call.integer(at + 1)?).unwrap_or(0);
            let target = call.server.clients.get(id);
            options.redirect = Some(
                target.ok_or(Fail::new("ERR The client ID you want redirect to does not exist"))?,
            );
            at += 1;
        } else if call.args.is(at, "prefix") && has_value {
            options.prefixes.push(call.args.at(at + 1));
            at += 1;
        } else if call.args.is(at, "bcast") {
            options.is_broadcast = true;
        } else if call.args.is(at, "optin") {
            options.is_optin = true;
        } else if call.args.is(at, "optout") {
            options.is_optout = true;
        } else if call.args.is(at, "noloop") {
            options.is_noloop = true;
        } else {
            return Err(Fail::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

/// The mode of the options, which must fit together and with the mode of the client.
fn mode(options: &TrackingOptions<'_>, own: Option<TrackingMode>) -> Done<TrackingMode> {
    if !options.is_broadcast && !options.prefixes.is_empty() {
        return Err(Fail::new("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if own.is_some_and(|own| (own == TrackingMode::Broadcast) != options.is_broadcast) {
        return Err(Fail::new(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
             and then re-enabling it with a different mode.",
        ));
    }
    if options.is_broadcast && (options.is_optin || options.is_optout) {
        return Err(Fail::new("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if options.is_optin && options.is_optout {
        return Err(Fail::new("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    let is_switched = (options.is_optin && own == Some(TrackingMode::OptOut))
        || (options.is_optout && own == Some(TrackingMode::OptIn));
    if is_switched {
        return Err(Fail::new(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
             and then re-enabling it with a different mode.",
        ));
    }
    Ok(match (options.is_broadcast, options.is_optin, options.is_optout) {
        (true, ..) => TrackingMode::Broadcast,
        (_, true, _) => TrackingMode::OptIn,
        (_, _, true) => TrackingMode::OptOut,
        _ => TrackingMode::Reads,
    })
}

fn tracking(call: &mut Call<'_, '_>) -> Done {
    let options = parse(call)?;
    if call.args.is(2, "off") {
        end_tracking(call.session, call.server);
        call.reply.ok();
        return Ok(());
    }
    if !call.args.is(2, "on") {
        return Err(Fail::SYNTAX);
    }
    let mode = mode(&options, call.session.tracking)?;
    let redirect = options.redirect.as_ref().map_or(0, |target| target.id);
    let new = ClientTracking { mode, is_noloop: options.is_noloop, redirect, is_broken: false };
    let (target, prefixes) = (options.redirect.as_ref(), options.prefixes.as_slice());
    let enabled = call.server.tracking.enable(&call.session.client, new, target, prefixes);
    let shown = |prefix: Vec<u8>| String::from_utf8_lossy(&prefix).into_owned();
    call.session.prefix_bytes = enabled.map_err(|overlap| match overlap {
        Overlap::Existing(new, own) => Fail::with(format!(
            "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single client \
             must not overlap.",
            shown(new),
            shown(own)
        )),
        Overlap::Provided(one, other) => Fail::with(format!(
            "ERR Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a single \
             client must not overlap.",
            shown(one),
            shown(other)
        )),
    })?;
    call.session.tracking = Some(mode);
    call.reply.ok();
    Ok(())
}

/// Ends the tracking of a connection.
pub(crate) fn end_tracking(session: &mut Session, server: &Server) {
    server.tracking.disable(&session.client);
    session.tracking = None;
    session.is_caching = false;
    session.prefix_bytes = 0;
}

fn caching(call: &mut Call<'_, '_>) -> Done {
    let Some(mode) = call.session.tracking else {
        return Err(Fail::new(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        ));
    };
    if call.args.is(2, "yes") {
        if mode != TrackingMode::OptIn {
            return Err(Fail::new(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
    } else if !call.args.is(2, "no") {
        return Err(Fail::SYNTAX);
    } else if mode != TrackingMode::OptOut {
        return Err(Fail::new(
            "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        ));
    }
    call.session.is_caching = true;
    call.reply.ok();
    Ok(())
}

/// The connection that gets the messages: its number, 0 for the own one, -1 without tracking.
fn redirect_id(session: &Session) -> i64 {
    let info = session.client.info();
    info.tracking.map_or(-1, |own| i64::try_from(own.redirect).unwrap_or(i64::MAX))
}

fn getredir(call: &mut Call<'_, '_>) -> Done {
    call.reply.integer(redirect_id(call.session));
    Ok(())
}

fn trackinginfo(call: &mut Call<'_, '_>) -> Done {
    let own = call.session.client.info().tracking;
    let mut flags = vec![if own.is_some() { "on" } else { "off" }];
    let is_caching = call.session.is_caching;
    match own.map(|own| own.mode) {
        None | Some(TrackingMode::Reads) => {}
        Some(TrackingMode::Broadcast) => flags.push("bcast"),
        Some(TrackingMode::OptIn) => {
            flags.push("optin");
            flags.extend(is_caching.then_some("caching-yes"));
        }
        Some(TrackingMode::OptOut) => {
            flags.push("optout");
            flags.extend(is_caching.then_some("caching-no"));
        }
    }
    flags.extend(own.is_some_and(|own| own.is_noloop).then_some("noloop"));
    flags.extend(own.is_some_and(|own| own.is_broken).then_some("broken_redirect"));
    call.reply.map(3);
    call.reply.text("flags");
    call.reply.set(flags.len());
    for flag in flags {
        call.reply.text(flag);
    }
    call.reply.text("redirect");
    call.reply.integer(redirect_id(call.session));
    call.reply.text("prefixes");
    let prefixes = call.server.tracking.prefixes_of(call.session.client.id);
    call.reply.array(prefixes.len());
    for prefix in &prefixes {
        call.reply.bulk(prefix);
    }
    Ok(())
}
