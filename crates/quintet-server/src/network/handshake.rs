//! The TLS handshake of a connection.
//!
//! A client has a limited time for it. It counts as a client meanwhile, so the limits of clients
//! bound how many handshakes are under way. A client that speaks the protocol without TLS gets an
//! error that it can read.

use std::{io, sync::Arc};

use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};
use tokio_rustls::server::TlsStream;

use super::connection::{Connection, RegisteredClient};
use crate::{dispatch::Dispatcher, state::Stats, tls::Tls};

/// The first byte of each TLS handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Serves a connection that begins with a handshake.
pub(super) async fn serve(
    stream: TcpStream,
    tls: &Tls,
    dispatcher: Arc<Dispatcher>,
    registered: &RegisteredClient,
) {
    let server = &registered.server;
    let mut ending = server.ending.subscribe();
    let shaken = tokio::select! {
        shaken = timeout(tls.handshake_time, shake_hands(stream, tls)) => shaken,
        _ = ending.wait_for(|is_ending| *is_ending) => return,
    };
    match shaken {
        Ok(Ok(stream)) => Connection::new(stream, dispatcher, registered).serve().await,
        // The client has no part in the protocol yet, so there is nothing to tell it.
        Ok(Err(_)) | Err(_) => Stats::add(&server.stats.failed_handshakes, 1),
    }
}

async fn shake_hands(mut stream: TcpStream, tls: &Tls) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first != [HANDSHAKE_RECORD] {
        stream.write_all(b"-ERR this port needs TLS\r\n").await?;
        return Err(io::ErrorKind::InvalidData.into());
    }
    tls.acceptor().accept(stream).await
}
