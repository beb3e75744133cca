//! Signals for commands that create something on disk or on a server and must remove it before they end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGINT, SIGTERM or SIGHUP. The handlers are installed at the first poll.
pub async fn signalled() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut heard: Vec<Signal> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    std::future::poll_fn(|cx| {
        let mut ready = heard.iter_mut().map(|signal| signal.poll_recv(cx).is_ready());
        match ready.any(|is| is) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}
