//! Commands that make something on disk or on a server are told to end, and remove it first.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGINT, SIGTERM or SIGHUP, from when it is polled first.
pub(crate) async fn signalled() {
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
