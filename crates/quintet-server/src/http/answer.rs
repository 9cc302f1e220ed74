//! Answers of the HTTP port, with the fields that keep browsers from misusing them.

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue},
};

/// An answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// Fields of each answer. The policy allows only files of this port: no inline scripts or styles.
const FIELDS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// An answer with a body of a type.
pub(super) fn body(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(bytes.into()));
    *answer.status_mut() = status;
    let fields = answer.headers_mut();
    for (name, value) in FIELDS {
        fields.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// An answer of text.
pub(super) fn text(status: StatusCode, content: &str) -> Answer {
    body(status, "text/plain; charset=utf-8", content.to_owned())
}

/// An answer of JSON.
pub(super) fn json(status: StatusCode, value: &serde_json::Value) -> Answer {
    body(status, "application/json", value.to_string())
}

/// The answer with a field replaced.
pub(super) fn header(mut answer: Answer, name: HeaderName, value: &'static str) -> Answer {
    answer.headers_mut().insert(name, HeaderValue::from_static(value));
    answer
}
