//! Checks of the Host field and of the password.

use std::{net::IpAddr, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::{
    Request,
    header::{AUTHORIZATION, HOST},
    http::uri::Authority,
};

use crate::{command::connection::is_equal_in_constant_time, state::Server};

/// Pause before the answer to a wrong password. With the limit of connections it bounds the rate of
/// guesses to 64 a second.
pub(super) const FAILURE_PAUSE: Duration = Duration::from_secs(1);

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

/// Whether a request has the password, or the server has none.
pub(super) fn has_password<B>(request: &Request<B>, server: &Server) -> bool {
    let expected = server.settings.password();
    expected.is_empty()
        || credentials(request).is_some_and(|(user, password)| {
            let is_right = is_equal_in_constant_time(&password, expected.as_bytes());
            is_right && user == b"default"
        })
}

/// Whether a request has a user and a password, right or wrong.
pub(super) fn has_credentials<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(AUTHORIZATION)
}

/// The user and the password of HTTP's basic authentication. No user is the user `default`.
fn credentials<B>(request: &Request<B>) -> Option<(Vec<u8>, Vec<u8>)> {
    let field = request.headers().get(AUTHORIZATION)?.as_bytes();
    let (scheme, encoded) = field.split_first_chunk::<6>()?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (user, password) = (decoded.get(..colon)?, decoded.get(colon + 1..)?);
    let user = if user.is_empty() { b"default" } else { user };
    Some((user.to_vec(), password.to_vec()))
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
        let found = |user: &str, password: &str| Some((user.into(), password.into()));
        assert_eq!(parse("Basic ZGVmYXVsdDpzZWNyZXQ="), found("default", "secret"));
        assert_eq!(parse("basic OmE6Yg=="), found("default", "a:b"));
        for field in ["", "Basic", "Basic !", "Bearer ZGVmYXVsdDpzZWNyZXQ=", "Basic c2VjcmV0"] {
            assert_eq!(parse(field), None, "{field}");
        }
    }
}
