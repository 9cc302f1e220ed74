//! Checks of the Host field and of the password.

use std::{net::IpAddr, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::{
    Request,
    header::{AUTHORIZATION, HOST},
    http::uri::Authority,
};
use zeroize::Zeroizing;

use crate::{
    acl::{DEFAULT_USER, Login, User},
    state::{Answer, Server, Work},
    work::run_work,
};

/// Most bytes of the name of a user in the log.
const SHOWN_BYTES_MAX: usize = 64;

/// Whether a request may see the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It may: the server is open, or this user of the request may do everything.
    Granted(Arc<User>),
    /// It has no password, or a wrong one.
    Refused,
    /// The password was not checked, for this reason.
    Unchecked(String),
}

/// Whether the Host field is one that a browser of a user of this server sends: an address,
/// `localhost`, or one of `hosts`. A name of another site that resolves to this machine is not.
pub(super) fn is_host_allowed<B>(request: &Request<B>, hosts: &[String]) -> bool {
    let mut fields = request.headers().get_all(HOST).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return false };
    let authority = field.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let Some(authority) = authority else { return false };
    let host = authority.host().to_ascii_lowercase();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_address = bare.parse::<IpAddr>().is_ok();
    is_address || host == "localhost" || hosts.contains(&host)
}

/// Decides whether a request from `ip` may see the console. Its user must be one that may do
/// everything, since the console shows all keys. The password is checked on another thread, with
/// the delays of `AUTH` after failures.
pub(super) async fn access<B>(request: &Request<B>, server: &Arc<Server>, ip: IpAddr) -> Access {
    let default = server.acl.default_user();
    let plain = server.settings.password();
    let is_open = plain.is_empty() && default.is_open();
    if is_open && default.is_unrestricted {
        return Access::Granted(default);
    }
    let Some((name, password)) = credentials(request) else { return Access::Refused };
    let user = std::str::from_utf8(&name).ok().and_then(|name| server.acl.user(name));
    let user = user.filter(|user| user.is_enabled && user.is_unrestricted);
    let has_plain = name == DEFAULT_USER.as_bytes() && !plain.is_empty();
    let shown = name.get(..SHOWN_BYTES_MAX).unwrap_or(&name);
    let login = Login {
        password,
        plain: Some(plain).filter(|_| has_plain && user.is_some()),
        hashes: user.as_ref().map(|user| user.hashes.clone()),
        user: shown.escape_ascii().to_string(),
        address: format!("http {ip}"),
    };
    match run_work(server, Some(ip), Work::Login(login)).await {
        Answer::Right => user.map_or(Access::Refused, Access::Granted),
        Answer::Failed(why) => Access::Unchecked(why),
        Answer::Wrong | Answer::Changed(_) => Access::Refused,
    }
}

/// The user and the password of HTTP's basic authentication. No user is the user `default`.
fn credentials<B>(request: &Request<B>) -> Option<(Vec<u8>, Zeroizing<Vec<u8>>)> {
    let field = request.headers().get(AUTHORIZATION)?.as_bytes();
    let (scheme, encoded) = field.split_first_chunk::<6>()?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = Zeroizing::new(BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?);
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (user, password) = (decoded.get(..colon)?, decoded.get(colon + 1..)?);
    let user = if user.is_empty() { b"default" } else { user };
    Some((user.to_vec(), Zeroizing::new(password.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_sites_are_no_hosts() {
        let hosts = ["db.example".to_owned()];
        let is_allowed = |fields: &[&str]| {
            let mut request = Request::new(());
            for field in fields {
                request.headers_mut().append(HOST, field.parse().unwrap());
            }
            is_host_allowed(&request, &hosts)
        };
        for host in ["127.0.0.1:9", "127.0.0.1", "[::1]:9", "[::1]", "localhost:1", "LocalHost"] {
            assert!(is_allowed(&[host]), "{host}");
        }
        assert!(is_allowed(&["DB.example:9121"]));
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:1", "", "a b"]
        {
            assert!(!is_allowed(&[host]), "{host}");
        }
        assert!(!is_allowed(&[]));
        assert!(!is_allowed(&["localhost", "localhost"]));
    }

    #[test]
    fn credentials_are_parsed() {
        let parse = |field: &str| {
            let mut request = Request::new(());
            request.headers_mut().insert(AUTHORIZATION, field.parse().unwrap());
            credentials(&request)
        };
        let found =
            |user: &str, password: &str| Some((user.into(), Zeroizing::new(password.into())));
        assert_eq!(parse("Basic ZGVmYXVsdDpzZWNyZXQ="), found("default", "secret"));
        assert_eq!(parse("basic OmE6Yg=="), found("default", "a:b"));
        for field in ["", "Basic", "Basic !", "Bearer ZGVmYXVsdDpzZWNyZXQ=", "Basic c2VjcmV0"] {
            assert_eq!(parse(field), None, "{field}");
        }
    }
}
