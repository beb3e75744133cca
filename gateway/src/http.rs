//! One HTTP/1.1 request on a stream of any kind, for the commands that query the running daemon.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes; a snapshot of a few thousand connections has a few megabytes.
const ANSWER_MAX: usize = 64 << 20;

/// Sends the request and returns the status and the text of the response.
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
