//! The console: one page with its scripts and styles, and its data.
//!
//! All files are a part of the program. The page loads nothing from other machines.

mod api;
mod keys;

use std::{net::IpAddr, sync::Arc};

use hyper::{Request, StatusCode, body::Incoming, header::WWW_AUTHENTICATE};

use super::{
    answer::{Answer, body, header, json, text},
    auth::{self, Access},
};
use crate::state::Server;

/// A file: its path, its type, its content.
type Asset = (&'static str, &'static str, &'static str);

const ASSETS: [Asset; 8] = [
    ("/", "text/html; charset=utf-8", include_str!("assets/index.html")),
    ("/console.css", "text/css; charset=utf-8", include_str!("assets/console.css")),
    ("/console.js", "text/javascript; charset=utf-8", include_str!("assets/console.js")),
    ("/keys.js", "text/javascript; charset=utf-8", include_str!("assets/keys.js")),
    ("/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ("/uplot.js", "text/javascript; charset=utf-8", include_str!("assets/uplot/uPlot.iife.min.js")),
    ("/uplot.css", "text/css; charset=utf-8", include_str!("assets/uplot/uPlot.min.css")),
    ("/uplot-license.txt", "text/plain; charset=utf-8", include_str!("assets/uplot/LICENSE")),
];

/// Answers a request for the page or its data.
pub(super) async fn answer(
    server: &Arc<Server>,
    request: &Request<Incoming>,
    ip: IpAddr,
) -> Answer {
    let user = match auth::access(request, server, ip).await {
        Access::Granted(user) => user,
        Access::Unchecked(why) => {
            return text(StatusCode::SERVICE_UNAVAILABLE, &format!("{why}\n"));
        }
        Access::Refused => {
            let refused = text(StatusCode::UNAUTHORIZED, "the password of the server is needed\n");
            let realm = "Basic realm=\"Quintet\", charset=\"UTF-8\"";
            return header(refused, WWW_AUTHENTICATE, realm);
        }
    };
    let path = request.uri().path();
    if let Some((_, kind, content)) = ASSETS.iter().find(|(own, ..)| *own == path) {
        return body(StatusCode::OK, kind, *content);
    }
    let query = request.uri().query().unwrap_or_default();
    let value = match path {
        "/api/overview" => Ok(api::overview(server)),
        "/api/history" => api::history(server, query),
        "/api/tables" => Ok(api::tables(server)),
        "/api/commands" => Ok(api::commands(server)),
        "/api/slow" => Ok(api::slow(server)),
        "/api/clients" => Ok(api::clients(server)),
        "/api/namespaces" => Ok(keys::namespaces(server, &user)),
        "/api/keys" => keys::page(server.clone(), &user, query).await,
        _ => return text(StatusCode::NOT_FOUND, "there is nothing at this path\n"),
    };
    match value {
        Ok(value) => json(StatusCode::OK, &value),
        Err(message) => json(StatusCode::BAD_REQUEST, &serde_json::json!({ "error": message })),
    }
}
