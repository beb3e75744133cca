//! Processes a message up to its answer: chains, asynchronous answers, credits.
//!
//! *Operation.* [`call`] returns the future of one message. The serve loop polls it in place; a command that is about to wait calls
//! [`RequestContext::pend`], which makes the interim answer the reply of the whole message. The rest of the work continues in its
//! own task, whose answer is pushed to the connection. Only commands that wait cost a task.
//!
//! In the middle of a chain only CREATE has an interim answer, as with Windows and Samba. Answers before it leave first, in a
//! separate message, and the rest of the chain leaves together when it is done. A command without an interim answer waits in place
//! if its wait ends without the client, and CANCEL finds it as well.
//!
//! Answers leave after the break notifications that their commands caused, so that a client does not list a directory from its
//! cache after it learned that its own change is made ([`Conn::notices_placed`]). For a directory lease that no other client broke,
//! the order is reversed if the client is not Linux, as with Windows ([`crate::slot`]).
//!
//! *Memory.* One [`Slot`] for each message.
//!
//! *Errors.* A malformed message, or a chain with invalid offsets, ends the connection ([`Violation`]).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use iobuf::Buf;
use rdma_transport::channel::{BoxFuture, Place, ReadChunkData, Reply, host_of};
use rdma_transport::memory_wait::no_memory;
use rdma_transport::meter::{Done, NO_SHARE};
use rdma_transport::{turn, watchdog};

use crate::answer::{Answer, Bulk, ERROR_BODY, Message, Seal};
use crate::compression::NotOpened;
use crate::conn::Conn;
use crate::crypto::Failed;
use crate::limits::CHAIN_MAX;
use crate::ops::room::SMALL_MAX;
use crate::request_context::RequestContext;
use crate::server_state::ServerState;
use crate::slot::{Slot, Work};
use crate::status::Status;
use crate::violation::{Fatal, Violation};
use crate::wire::file_id::FileId;
use crate::wire::header::PROTOCOL_ID;
use crate::wire::{Command, Flags, HEADER_LEN, Header, compression as compressed, smb1, transform};
use crate::{compression, dispatch, ops, sealed};

/// The future of one message.
struct Call<F> {
    conn: Arc<Conn>,
    slot: Arc<Slot>,
    work: Option<F>,
}

impl<F> Future for Call<F>
where
    F: Future<Output = Option<Reply>> + Unpin + Send + 'static,
{
    type Output = Option<Reply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut work) = self.work.take() else { return Poll::Ready(None) };
        let polled = Pin::new(&mut work).poll(cx);
        // Also if the work is done: it may end in the poll in which it sent an interim answer.
        let mut first = self.slot.take_first().into_iter();
        match (first.next(), polled) {
            (None, Poll::Ready(reply)) => Poll::Ready(reply),
            (None, Poll::Pending) => {
                self.work = Some(work);
                Poll::Pending
            }
            (Some(reply), polled) => {
                let conn = self.conn.clone();
                tokio::spawn(turn::in_turns(host_of(conn.info.peer.ip()), async move {
                    // A failed push means that the connection is gone, and with it the receiver.
                    let more = async {
                        for reply in first {
                            let _ = conn.push(reply).await;
                        }
                    };
                    let last = async {
                        match polled {
                            Poll::Ready(reply) => reply,
                            Poll::Pending => work.await,
                        }
                    };
                    if let ((), Some(reply)) = tokio::join!(more, last) {
                        let _ = conn.push(reply).await;
                    }
                }));
                Poll::Ready(Some(reply))
            }
        }
    }
}

pub(crate) fn call(
    core: Arc<ServerState>,
    conn: Arc<Conn>,
    body: Buf,
    read_chunks: Vec<ReadChunkData>,
) -> BoxFuture<'static, Option<Reply>> {
    let slot = Arc::new(Slot::default());
    let (of, into) = (conn.clone(), slot.clone());
    let work = Work::new(slot.clone(), &conn, || message(core, of, into, body, read_chunks));
    Box::pin(Call { conn, slot, work: Some(work) })
}

async fn message(
    core: Arc<ServerState>,
    conn: Arc<Conn>,
    slot: Arc<Slot>,
    body: Buf,
    read_chunks: Vec<ReadChunkData>,
) -> Option<Reply> {
    match body.first_chunk::<4>() {
        Some(&PROTOCOL_ID) => chain(&core, &conn, &slot, body, read_chunks, false).await,
        Some(&compressed::PROTOCOL_ID) => {
            let (body, read_chunks) = expand(&core, &conn, body, read_chunks).await?;
            chain(&core, &conn, &slot, body, read_chunks, false).await
        }
        Some(&transform::PROTOCOL_ID) => match sealed::open(&conn, body, read_chunks) {
            Ok((session, mut body, mut read_chunks)) => {
                if body.starts_with(&compressed::PROTOCOL_ID) {
                    (body, read_chunks) = expand(&core, &conn, body, read_chunks).await?;
                }
                if Header::parse(&body).is_ok_and(|inner| inner.session_id != session.id) {
                    Violation::Sealed.end(&conn, "a message of another session").await;
                    return None;
                }
                slot.seal_for(session);
                chain(&core, &conn, &slot, body, read_chunks, true).await
            }
            Err(why) => {
                Violation::Sealed.end(&conn, &why).await;
                None
            }
        },
        Some(&smb1::PROTOCOL_ID) => match ops::negotiate::from_smb1(&core, &conn, &body).await {
            Some(head) => Some(Reply { head, ..Reply::default() }),
            None => {
                Violation::Order.end(&conn, "SMB1").await;
                None
            }
        },
        _ => {
            Violation::NotAMessage.end(&conn, "protocol identifier").await;
            None
        }
    }
}

/// Expands a compressed message; one that is invalid, or gets no memory or no thread, ends the connection.
async fn expand(
    core: &ServerState,
    conn: &Conn,
    body: Buf,
    read_chunks: Vec<ReadChunkData>,
) -> Option<(Buf, Vec<ReadChunkData>)> {
    match compression::open(core, conn, body, read_chunks).await {
        Ok(plain) => Some(plain),
        Err(NotOpened::Broken(why)) => {
            Violation::Compressed.end(conn, &why).await;
            None
        }
        Err(NotOpened::NoMemory) => {
            no_memory(conn.info.peer);
            conn.handle.shutdown().await;
            None
        }
        Err(NotOpened::NoThread(why)) => {
            why.note(conn.info.peer);
            conn.handle.shutdown().await;
            None
        }
    }
}

/// Joins the answers of a message, compresses them if one of them requires it, and encrypts them if the message was encrypted.
async fn finish(core: &ServerState, conn: &Conn, slot: &Slot) -> Result<Option<Reply>, Failed> {
    let Some(mut joined) = slot.join(conn)? else { return Ok(None) };
    if joined.compresses {
        joined.reply = compression::shrink(core, conn, joined.reply).await;
    }
    joined.seal().map(Some)
}

/// The values that a related command takes from the previous one (MS-SMB2 section 3.3.5.2.7.2).
#[derive(Clone, Copy, Default)]
struct Before {
    session_id: u64,
    tree_id: u32,
    file: Option<FileId>,
    /// Set if the CREATE that should have opened the file failed: the following commands of the chain fail with the same status.
    failed: Option<Status>,
}

async fn chain(
    core: &Arc<ServerState>,
    conn: &Arc<Conn>,
    slot: &Arc<Slot>,
    mut rest: Buf,
    mut read_chunks: Vec<ReadChunkData>,
    encrypted: bool,
) -> Option<Reply> {
    let mut before: Option<Before> = None;
    let mut first = None;
    let mut has_ids = false;
    for _ in 0..CHAIN_MAX {
        let mut header = match Header::parse(&rest) {
            Ok(header) => header,
            Err(fault) => {
                Violation::NotAMessage.end(conn, &fault.to_string()).await;
                return None;
            }
        };
        if header.flags.has(Flags::RESPONSE) {
            Violation::NotAMessage.end(conn, "an answer").await;
            return None;
        }
        if encrypted && !is_of_its_session(&mut header, &mut first) {
            Violation::Sealed.end(conn, "a message of another session").await;
            return None;
        }
        if !std::mem::replace(&mut has_ids, true) {
            let Some(later) = take_ids(conn, &rest) else {
                Violation::MessageId.end(conn, "not granted, or used before").await;
                return None;
            };
            slot.queue(later);
        }
        let next = usize::try_from(header.next).unwrap_or(usize::MAX);
        if next != 0 && (!next.is_multiple_of(8) || next < HEADER_LEN || next >= rest.len()) {
            Violation::Chain.end(conn, "NextCommand").await;
            return None;
        }
        let behind = if next == 0 { 0 } else { rest.len() };
        let message = if next == 0 { std::mem::take(&mut rest) } else { rest.split_to(next) };
        let mut cx = RequestContext::new(core.clone(), conn.clone(), slot.clone(), header, message);
        cx.read_chunks = std::mem::take(&mut read_chunks);
        cx.encrypted = encrypted;
        cx.behind = behind;
        if let Err((rule, detail)) = one(cx, &mut before).await {
            rule.end(conn, detail).await;
            return None;
        }
        if next == 0 {
            conn.notices_placed().await;
            let finished = finish(core, conn, slot).await;
            if finished.is_err() {
                Violation::Sealed.end(conn, "an answer could not be signed or encrypted").await;
            }
            return finished.ok().flatten();
        }
        turn::pause_as_seen().await;
    }
    Violation::Chain.end(conn, "too many messages").await;
    None
}

/// Uses the message ids of a whole chain at once, so that a waiting command does not delay the window for those behind it. Returns
/// the ids after the first, or `None` if one cannot be used.
fn take_ids(conn: &Conn, mut chain: &[u8]) -> Option<Vec<u64>> {
    let mut later = Vec::new();
    for n in 0..CHAIN_MAX {
        // A malformed header ends the connection when its command is reached.
        let Ok(header) = Header::parse(chain) else { break };
        if header.command() != Some(Command::Cancel)
            && !conn.take_ids(header.message_id, header.credit_charge)
        {
            return None;
        }
        if n > 0 {
            later.push(header.message_id);
        }
        match usize::try_from(header.next).ok().and_then(|next| chain.get(next..)) {
            Some(rest) if header.next != 0 => chain = rest,
            _ => break,
        }
    }
    Some(later)
}

/// Checks that the commands of an encrypted chain belong to the session whose keys encrypted it (MS-SMB2 section 3.3.5.2.1.1). A
/// related command may name any session; its answer names the session of the keys, or the client discards the whole chain (section
/// 3.2.5.1.1.1).
fn is_of_its_session(header: &mut Header, first: &mut Option<u64>) -> bool {
    let related = header.flags.has(Flags::RELATED);
    match *first {
        Some(session) if related => {
            header.session_id = session;
            true
        }
        Some(session) => header.session_id == session,
        None => {
            // Decryption has compared it with the session of the transform header.
            *first = Some(header.session_id);
            !related
        }
    }
}

/// Answers one command of a chain. An error ends the connection.
async fn one(mut cx: RequestContext, before: &mut Option<Before>) -> Result<(), Fatal> {
    if cx.header.command() == Some(Command::Cancel) {
        cancel(&mut cx);
        return Ok(());
    }
    // The wait for data sent with the command does not count, as for NFS.
    let began = if cx.read_chunks.is_empty() { turn::began() } else { Instant::now() };
    watchdog::operation(Command::name_of(operation(cx.header.command())));
    let related = cx.header.flags.has(Flags::RELATED);
    if let (true, Some(b)) = (related, *before) {
        cx.header.session_id = b.session_id;
        cx.header.tree_or_async = Header::of_tree(b.tree_id);
        cx.previous = b.file;
    }
    let given_up = cx.slot.begins(&cx.header);
    let answer = match (related, *before) {
        (true, None) => Err(Status::INVALID_PARAMETER),
        _ if given_up => {
            cx.channel = cx.conn.channel(cx.header.session_id);
            Err(Status::CANCELLED)
        }
        (true, Some(b)) => dispatch::message(&mut cx, b.failed).await?,
        (false, _) => dispatch::message(&mut cx, None).await?,
    };
    cx.settle_rates();
    record(&cx, began, answer.as_ref().map_or_else(|status| *status, |a| a.status));
    let is_create = cx.header.command() == Some(Command::Create);
    let failed = match &answer {
        Err(status) if is_create => Some(*status),
        Ok(a) if is_create && a.status.is_error() => Some(a.status),
        // A new file replaces the failed one.
        Ok(Answer { opened: Some(_), .. }) => None,
        _ => before.and_then(|b| b.failed).filter(|_| related),
    };
    let nowhere =
        matches!(answer, Err(Status::USER_SESSION_DELETED | Status::NETWORK_NAME_DELETED));
    if nowhere || related && before.is_none() {
        // The following commands have no command to relate to.
        *before = None;
        let message = respond(&cx, answer);
        cx.slot.push(message);
        return Ok(());
    }
    let done = answer.as_ref().ok();
    *before = Some(Before {
        session_id: done.and_then(|a| a.session_id).unwrap_or(cx.header.session_id),
        tree_id: done.and_then(|a| a.tree_id).unwrap_or(cx.header.tree_id()),
        file: done.and_then(|a| a.opened).or(cx.meant.get().copied()).or(cx.previous),
        failed,
    });
    let message = respond(&cx, answer);
    cx.slot.push(message);
    Ok(())
}

/// Returns the counter index of a command; unknown commands use the one after the last.
fn operation(command: Option<Command>) -> u8 {
    let number = command.map_or(Command::ALL.len(), |c| usize::from(c as u16));
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// Counts an answered command.
fn record(cx: &RequestContext, began: Instant, status: Status) {
    let share = cx.tree.as_ref().and_then(|t| t.share());
    let done = Done {
        share: share.map_or(NO_SHARE, |s| s.id),
        operation: operation(cx.header.command()),
        bytes: cx.moved.load(Ordering::Relaxed),
        // This status ends the first half of every logon.
        failed: status.is_error() && status != Status::MORE_PROCESSING_REQUIRED,
    };
    cx.conn.info.meter.record(began, done, || share.map_or_else(String::new, |s| s.name.clone()));
}

/// Executes CANCEL (MS-SMB2 section 3.3.5.16): never answered, and ignored if it is not signed as required.
fn cancel(cx: &mut RequestContext) {
    cx.channel = cx.conn.channel(cx.header.session_id);
    // A session that this connection does not have has no waiting requests here.
    if cx.channel.is_none() || dispatch::verify(cx).is_err() {
        return;
    }
    let (h, is_async) = (&cx.header, cx.header.flags.has(Flags::ASYNC));
    cx.conn.end_waits(Status::CANCELLED, |p| {
        let same = match is_async {
            true => p.is_async() && p.async_id == h.tree_or_async,
            false => p.message_id == h.message_id,
        };
        same && p.session_id == h.session_id
    });
    if !is_async {
        cx.conn.give_up(h.message_id, h.session_id);
    }
}

fn respond(cx: &RequestContext, answer: Result<Answer, Status>) -> Message {
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(status) => Answer::with_status(status, ERROR_BODY.to_vec()),
    };
    // If an interim answer was sent, it has granted the credits.
    let credits =
        if cx.gone_async().is_some() { 0 } else { cx.conn.grant(asked(cx, answer.status)) };
    let mut header = cx.answer_header(answer.status, credits);
    if let Some(session) = answer.session_id {
        header.session_id = session;
    }
    if let Some(tree) = answer.tree_id {
        header.tree_or_async = Header::of_tree(tree);
    }
    if cx.channel.is_none() && cx.header.flags.has(Flags::SIGNED) {
        // No key is available to sign this answer. Windows sends back the request's signature, which shows the client that the
        // answer is no forgery for one of its sessions.
        header.flags.0 |= Flags::SIGNED;
        header.signature = cx.header.signature;
    }
    let mut body = std::mem::take(&mut answer.body);
    if answer.bulk.is_none() && body.len() > SMALL_MAX {
        answer.bulk = Some(held(cx, &mut body));
    }
    let mut head = Vec::with_capacity(HEADER_LEN + body.len() + 8);
    head.extend_from_slice(&header.emit());
    head.extend_from_slice(&body);
    let seal = answer.seal.take().unwrap_or_else(|| match &cx.channel {
        Some(c) if cx.signs() => Seal::Channel(c.clone()),
        None if cx.header.command() == Some(Command::SessionSetup) => bound(cx),
        _ => Seal::None,
    });
    let compresses = cx.compresses.load(Ordering::Relaxed);
    let (invalidate, hash) = (answer.invalidate, answer.hash);
    Message { head, bulk: answer.bulk, invalidate, seal, hash, compresses }
}

/// Moves all but the first few bytes of a large body to memory that the pool counts until the answer has left.
fn held(cx: &RequestContext, body: &mut Vec<u8>) -> Bulk {
    const STAY: usize = 8;
    let whole = std::mem::take(body);
    body.extend_from_slice(&whole[..STAY]);
    let held = cx.conn.info.pool.pay_now(whole.len()).hold(whole).freeze();
    let data = vec![held.slice(STAY..held.len())];
    Bulk { at: STAY, data, pages: None, place: Place::Inline, is_protected: false }
}

/// Returns the number of credits to grant as requested. Like Windows, this server grants more credits than the request cost only
/// from the end of a logon on, so that an unauthenticated client keeps a window of one (MS-SMB2 section 3.3.1.2 leaves it to the
/// server).
fn asked(cx: &RequestContext, status: Status) -> u16 {
    let stranger = match cx.header.command() {
        Some(Command::Negotiate) => true,
        Some(Command::SessionSetup) => status != Status::SUCCESS,
        _ => false,
    };
    if stranger { cx.header.credits.min(1) } else { cx.header.credits }
}

/// Returns the session's key for signing the refusal of a binding (MS-SMB2 section 3.3.4.1.1).
fn bound(cx: &RequestContext) -> Seal {
    match cx.server.sessions.get(cx.header.session_id) {
        Some(session) if cx.header.flags.has(Flags::SIGNED) => Seal::Session(session),
        _ => Seal::None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::harness::{Answered, Client, Harness};
    use crate::limits::STORAGE_USUAL_MAX;

    /// Builds a FLUSH of this client whose storage work ends when the sender is used.
    fn slow(
        client: &Client,
        change: impl FnOnce(&mut Header),
    ) -> (Call<BoxFuture<'static, Option<Reply>>>, oneshot::Sender<()>) {
        let (done, storage) = oneshot::channel::<()>();
        let mut header = client.header(Command::Flush, 1);
        change(&mut header);
        let (conn, slot) = (client.conn.clone(), Arc::new(Slot::default()));
        let message = Buf::from(header.emit().to_vec());
        let cx =
            RequestContext::new(client.core.clone(), conn.clone(), slot.clone(), header, message);
        let work: BoxFuture<'static, _> = Box::pin(async move {
            let answer = cx.by_storage(storage).await.map(|_| Answer::ok(vec![4, 0, 0, 0]));
            let message = respond(&cx, answer);
            cx.slot.push(message);
            finish(&cx.server, &cx.conn, &cx.slot).await.unwrap()
        });
        (Call { conn, slot, work: Some(work) }, done)
    }

    async fn reply(call: impl Future<Output = Option<Reply>>) -> Answered {
        Answered::of(call.await.expect("an answer"))
    }

    #[tokio::test(start_paused = true)]
    async fn storage_that_is_quick_makes_no_interim_answer() {
        let client = Harness::new().client();
        let (call, done) = slow(&client, |_| ());
        done.send(()).unwrap();
        let answered = reply(call).await;
        assert_eq!(answered.status(), Status::SUCCESS);
        assert!(!answered.header.flags.has(Flags::ASYNC));
    }

    #[tokio::test(start_paused = true)]
    async fn storage_that_takes_its_time_makes_one_and_the_answer_comes_later() {
        let client = Harness::new().client();
        let (call, done) = slow(&client, |_| ());
        let interim = reply(call).await;
        assert_eq!(interim.status(), Status::PENDING);
        assert!(interim.header.flags.has(Flags::ASYNC) && interim.header.credits > 0);
        done.send(()).unwrap();
        let last = client.pushed().await;
        assert_eq!((last.status(), last.header.credits), (Status::SUCCESS, 0));
        assert_eq!(last.header.tree_or_async, interim.header.tree_or_async);
        assert_eq!(last.header.message_id, interim.header.message_id);
    }

    /// Long before an interim answer is due, and in the middle of a chain as well.
    #[tokio::test(start_paused = true)]
    async fn storage_is_given_up_before_anybody_was_told_that_it_takes_its_time() {
        let client = Harness::new().client();
        for next in [0, 72] {
            let mut id = 0;
            let (call, _never) = slow(&client, |header| {
                header.next = next;
                id = header.message_id;
            });
            let given_up = async {
                tokio::time::sleep(STORAGE_USUAL_MAX * 2).await;
                client.cancel(id, None).await;
            };
            let (answered, ()) = tokio::join!(reply(call), given_up);
            assert_eq!(answered.status(), Status::CANCELLED);
            assert!(!answered.header.flags.has(Flags::ASYNC));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn storage_that_takes_its_time_can_be_given_up() {
        let client = Harness::new().client();
        let (call, _never) = slow(&client, |_| ());
        assert_eq!(reply(call).await.status(), Status::PENDING);
        client.conn.end_waits(Status::CANCELLED, |_| true);
        assert_eq!(client.pushed().await.status(), Status::CANCELLED);
    }

    /// The work announces a wait and ends before [`Call`] sees the announcement.
    #[tokio::test(start_paused = true)]
    async fn an_interim_answer_leaves_though_the_work_ends_in_the_same_poll() {
        let client = Harness::new().client();
        let header = client.header(Command::Flush, 1);
        let (conn, slot) = (client.conn.clone(), Arc::new(Slot::default()));
        let message = Buf::from(header.emit().to_vec());
        let cx =
            RequestContext::new(client.core.clone(), conn.clone(), slot.clone(), header, message);
        let work = Box::pin(async move {
            let answer = cx.by_storage(cx.pend()).await.map(|_| Answer::ok(vec![4, 0, 0, 0]));
            let message = respond(&cx, answer);
            cx.slot.push(message);
            finish(&cx.server, &cx.conn, &cx.slot).await.unwrap()
        });
        let interim = reply(Call { conn, slot, work: Some(work) }).await;
        assert_eq!(interim.status(), Status::PENDING);
        assert!(interim.header.credits > 0);
        let last = client.pushed().await;
        assert_eq!((last.status(), last.header.credits), (Status::SUCCESS, 0));
    }

    /// MS-SMB2 section 3.3.5.2.7: in the middle of a chain only CREATE is answered later.
    #[tokio::test(start_paused = true)]
    async fn in_the_middle_of_a_chain_storage_is_waited_for() {
        let client = Harness::new().client();
        let (call, done) = slow(&client, |header| header.next = 72);
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_secs(9)).await;
            done.send(()).unwrap();
        });
        assert_eq!(reply(call).await.status(), Status::SUCCESS);
    }
}
