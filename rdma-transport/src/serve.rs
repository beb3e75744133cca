//! The serve loop: passes the requests of one channel to a service and its replies back.
//!
//! *Operation.* One task per connection. Each request's future is polled once in place, so that an operation that does not wait
//! needs neither a task nor a queue. A waiting one joins the connection's set and is polled there. Replies are queued on the
//! channel, which sends them when it finds no further request, so that a burst of small requests is answered with one system call.
//!
//! *Memory.* At most [`limits::REQUESTS_IN_WORK_MAX`] requests are executed concurrently; beyond that the channel is only flushed,
//! and further requests of the peer remain unread. After [`limits::REQUESTS_PER_TURN`] requests, or [`limits::TURN_MAX`], the task
//! yields, and the runtime polls its sockets.
//!
//! *Errors.* When the connection ends, or is cut ([`serve_until`]), requests in progress are completed without a reply: a request
//! that is not idempotent must be able to record its result in reply caches.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, StreamExt};
use iobuf::ClientWork;
use tokio::sync::oneshot;

use crate::channel::{BoxFuture, Channel, ChannelError, Reply, ReplyTo, Service, Traffic, host_of};
use crate::turn::{self, Turn};
use crate::{count, lease, limits, watchdog};

/// A request in progress that had to wait.
struct InWork {
    to: ReplyTo,
    answer: BoxFuture<'static, Option<Reply>>,
}

impl Future for InWork {
    type Output = (ReplyTo, Option<Reply>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A request does a part of its work before it looks at the clock, and a connection may have many of them.
        if turn::is_over() {
            turn::defer(cx);
            return Poll::Pending;
        }
        let to = self.to;
        self.answer.as_mut().poll(cx).map(|reply| (to, reply))
    }
}

struct Serving {
    channel: Box<dyn Channel>,
    service: Arc<dyn Service>,
    in_work: FuturesUnordered<InWork>,
    /// The peer has reached its limit of concurrent requests.
    is_full: bool,
}

impl Serving {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ChannelError> {
        let _work = ClientWork::begin(host_of(self.channel.info().peer.ip()));
        let turn = Turn::begin();
        let _watch = watchdog::Poll::begin();
        for _ in 0..limits::REQUESTS_PER_TURN {
            self.answer(&turn, cx);
            if turn.is_over() {
                break;
            }
            let is_full = self.in_work.len() >= limits::REQUESTS_IN_WORK_MAX;
            if is_full && !self.is_full {
                count::limit_met(limits::REQUESTS_IN_WORK);
            }
            self.is_full = is_full;
            if is_full {
                return match self.channel.poll_flush(cx) {
                    Poll::Ready(Err(e)) => Poll::Ready(e),
                    // The set was polled above and wakes this task.
                    _ => Poll::Pending,
                };
            }
            match self.channel.poll_recv(cx) {
                Poll::Ready(Ok(request)) => {
                    lease::check();
                    Traffic::add(&self.channel.info().traffic.requests, 1);
                    let to = request.reply_to;
                    let begun = turn::began();
                    let mut answer = self.service.call(request.body, request.read_chunks);
                    match answer.as_mut().poll(cx) {
                        Poll::Ready(reply) => self.channel.reply(to, reply),
                        Poll::Pending => self.in_work.push(InWork { to, answer }),
                    }
                    // Counted operations have read the clock at their end; others have not.
                    if turn::began() == begun {
                        turn::done();
                    }
                }
                Poll::Ready(Err(e)) => return Poll::Ready(e),
                Poll::Pending => return Poll::Pending,
            }
        }
        if let Poll::Ready(Err(e)) = self.channel.poll_flush(cx) {
            return Poll::Ready(e);
        }
        turn::defer(cx);
        Poll::Pending
    }

    /// Sends replies of requests that had to wait, until the turn is over.
    fn answer(&mut self, turn: &Turn, cx: &mut Context<'_>) {
        if self.in_work.is_empty() {
            return;
        }
        turn::began();
        while !turn.is_over()
            && let Poll::Ready(Some((to, reply))) = self.in_work.poll_next_unpin(cx)
        {
            self.channel.reply(to, reply);
            turn::done();
        }
        turn::done();
    }
}

/// Serves one connection until it ends, and returns the reason. A violation of the peer is counted and logged.
pub async fn serve(channel: Box<dyn Channel>, service: Arc<dyn Service>) -> ChannelError {
    serve_until(channel, service, oneshot::channel().1).await
}

/// Like [`serve`], or until `cut` returns a reason to close the connection at once, whatever data the peer has not taken yet.
pub async fn serve_until(
    channel: Box<dyn Channel>,
    service: Arc<dyn Service>,
    cut: oneshot::Receiver<String>,
) -> ChannelError {
    let in_work = FuturesUnordered::new();
    let mut serving = Serving { channel, service, in_work, is_full: false };
    let mut cut = Some(cut);
    let why = poll_fn(|cx| {
        match cut.as_mut().map(|cut| Pin::new(cut).poll(cx)) {
            Some(Poll::Ready(Ok(why))) => return Poll::Ready(ChannelError::Closed(why)),
            // The sender is gone, so no cut can follow.
            Some(Poll::Ready(Err(_))) => cut = None,
            Some(Poll::Pending) | None => {}
        }
        serving.poll(cx)
    })
    .await;
    let Serving { channel, mut in_work, .. } = serving;
    if let ChannelError::Violation(rule, detail) = &why {
        count::broken(rule, detail, channel.info().peer);
    }
    drop(channel);
    while in_work.next().await.is_some() {}
    why
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
