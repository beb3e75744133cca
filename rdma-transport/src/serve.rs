//! The serve loop: requests of one channel go to a service, its replies go back.
//!
//! *Operation.* One task per connection. Each request's future is polled once in place, so an operation that need not
//! wait costs no task and no queue. One that waits joins the connection's set and is polled there. Replies are queued on
//! the channel, which sends them when it finds no further request, so a burst of small requests is answered by one system
//! call.
//!
//! *Memory.* At most [`limits::REQUESTS_IN_WORK_MAX`] requests are in work; beyond that the channel is only flushed, and
//! the peer's further requests stay where they are. After [`limits::REQUESTS_PER_TURN`] requests, or
//! [`limits::REPLIES_PER_TURN`] bytes of replies that were made in place, other tasks get the thread.
//!
//! *Errors.* When the connection ends, what is in work is still finished, without an answer: a request that changed
//! something must be able to record that (reply caches), whoever is there to hear it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::channel::{BoxFuture, Channel, ChannelError, Reply, ReplyTo, Service, Traffic};
use crate::{count, limits};

/// A request whose answer takes a while.
struct InWork {
    to: ReplyTo,
    answer: BoxFuture<'static, Option<Reply>>,
}

impl Future for InWork {
    type Output = (ReplyTo, Option<Reply>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let to = self.to;
        self.answer.as_mut().poll(cx).map(|reply| (to, reply))
    }
}

struct Serving {
    channel: Box<dyn Channel>,
    service: Arc<dyn Service>,
    in_work: FuturesUnordered<InWork>,
    /// Nothing was asked for yet.
    is_new: bool,
    /// The peer has as many requests in work as it may have.
    is_full: bool,
}

impl Serving {
    fn new(channel: Box<dyn Channel>, service: Arc<dyn Service>) -> Self {
        let in_work = FuturesUnordered::new();
        Self { channel, service, in_work, is_new: true, is_full: false }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ChannelError> {
        let mut made = 0;
        for _ in 0..limits::REQUESTS_PER_TURN {
            if made >= limits::REPLIES_PER_TURN {
                // Not flushed: that would take in more of the peer's data, which nobody looks at before the next turn.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            while let Poll::Ready(Some((to, reply))) = self.in_work.poll_next_unpin(cx) {
                self.channel.reply(to, reply);
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
                    Traffic::add(&self.channel.info().traffic.requests, 1);
                    if std::mem::take(&mut self.is_new) {
                        self.channel.info().heard.notify_one();
                    }
                    let to = request.reply_to;
                    let mut answer = self.service.call(request.body, request.pulled);
                    match answer.as_mut().poll(cx) {
                        Poll::Ready(reply) => {
                            made += reply.as_ref().map_or(0, Reply::inline_len);
                            self.channel.reply(to, reply);
                        }
                        Poll::Pending => self.in_work.push(InWork { to, answer }),
                    }
                }
                Poll::Ready(Err(e)) => return Poll::Ready(e),
                Poll::Pending => return Poll::Pending,
            }
        }
        if let Poll::Ready(Err(e)) = self.channel.poll_flush(cx) {
            return Poll::Ready(e);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Serves one connection until it ends, and says why it did. A rule that its peer broke is counted and logged.
pub async fn serve(channel: Box<dyn Channel>, service: Arc<dyn Service>) -> ChannelError {
    let mut serving = Serving::new(channel, service);
    let why = poll_fn(|cx| serving.poll(cx)).await;
    let Serving { channel, mut in_work, .. } = serving;
    if let ChannelError::Violation(rule, detail) = &why {
        count::broken(rule, detail, channel.info().peer);
    }
    drop(channel);
    while in_work.next().await.is_some() {}
    why
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use iobuf::{Buf, Pool, PoolLimits};

    use super::*;
    use crate::channel::{Handle, Info, Pulled, Request, Transport};

    /// A peer that always has another request and takes every reply.
    struct Endless(Arc<Info>);

    impl Channel for Endless {
        fn info(&self) -> &Arc<Info> {
            &self.0
        }
        fn poll_recv(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Request, ChannelError>> {
            Poll::Ready(Ok(Request {
                body: Buf::empty(),
                pulled: Vec::new(),
                reply_to: ReplyTo(0),
            }))
        }
        fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ChannelError>> {
            Poll::Ready(Ok(()))
        }
        fn reply(&mut self, _to: ReplyTo, _reply: Option<Reply>) {}
        fn handle(&self) -> Handle {
            Handle::detached()
        }
        fn shutdown(&mut self) {}
    }

    /// Answers every call in place with so many bytes, and counts.
    struct Answers(usize, AtomicUsize);

    impl Service for Answers {
        fn call(&self, _: Buf, _: Vec<Pulled>) -> BoxFuture<'static, Option<Reply>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let reply = Reply::of(vec![0; self.0]);
            Box::pin(std::future::ready(Some(reply)))
        }
    }

    fn served_in_a_turn(reply_len: usize) -> usize {
        let here = ([127, 0, 0, 1], 1).into();
        let pool = Pool::new(PoolLimits { buffers_max: [1; 3] });
        let channel = Endless(Arc::new(Info::new(here, here, Transport::Tcp, pool)));
        let service = Arc::new(Answers(reply_len, AtomicUsize::new(0)));
        let mut serving = Serving::new(Box::new(channel), service.clone());
        assert!(serving.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        service.1.load(Ordering::Relaxed)
    }

    #[test]
    fn a_busy_connection_lets_others_have_the_thread() {
        assert_eq!(served_in_a_turn(100), limits::REQUESTS_PER_TURN);
        assert_eq!(served_in_a_turn(limits::REPLIES_PER_TURN / 2), 2);
        assert_eq!(served_in_a_turn(limits::REPLIES_PER_TURN * 2), 1);
    }
}
