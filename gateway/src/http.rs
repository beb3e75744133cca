//! One request of HTTP/1.1 on a stream of any kind, for the commands that ask the running daemon.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// A snapshot of a few thousand connections is a few megabytes.
const ANSWER_MAX: usize = 64 << 20;

/// Asks, and gives the status and the text of the answer.
pub(crate) async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, String), String> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(told)?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await.map_err(told)?;
    Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
}

fn told(e: impl std::fmt::Display) -> String {
    e.to_string()
}
