//! Checks before a command is executed (MS-SMB2 sections 3.3.5.2.4 to 3.3.5.2.11), and the dispatch to the files of commands.

use iobuf::Buf;
use rdma_transport::channel::{ReadChunkData, boxed};

use crate::answer::Answer;
use crate::crypto::sign::Sender;
use crate::limits::{FIXED_COMMAND_BYTES_MAX, MESSAGE_OVERHEAD_MAX};
use crate::ops;
use crate::refusal::Rule;
use crate::request_context::RequestContext;
use crate::session::{Kind, SessionState};
use crate::status::Status;
use crate::teardown;
use crate::violation::{Fatal, Violation};
use crate::wire::negotiate::Dialect;
use crate::wire::{Command, Flags, lock, read};

/// Answers a command of a chain. `failed`: the CREATE that should have opened its file failed. The outer error ends the connection.
pub(crate) async fn message(
    cx: &mut RequestContext,
    failed: Option<Status>,
) -> Result<Result<Answer, Status>, Fatal> {
    let Some(command) = cx.header.command() else {
        // MS-SMB2 section 3.3.5.2.6 would end the connection, but a client that sends such a command in a chain expects the other
        // answers.
        Violation::Format.note(&cx.conn, "a command that does not exist");
        return Ok(Err(Status::INVALID_PARAMETER));
    };
    match (command, cx.conn.negotiated().is_some()) {
        (Command::Negotiate, false) => return ops::negotiate::call(cx).await,
        (Command::Negotiate, true) => return Err((Violation::Order, "a second NEGOTIATE")),
        (_, false) => return Err((Violation::Order, "a command before NEGOTIATE")),
        _ => {}
    }
    cx.channel = cx.conn.channel(cx.header.session_id);
    if let Err(status) = admit(cx, command) {
        return Ok(Err(status));
    }
    if cx.message.len() > FIXED_COMMAND_BYTES_MAX
        && cx.message.len() > bytes_max(command, &cx.message)
    {
        Violation::Format.note(&cx.conn, "a message that is longer than its command can be");
        return Ok(Err(Status::INVALID_PARAMETER));
    }
    let waits = waits_for_client(command, cx) || cx.server.namespace.limits.is_on();
    if waits && cx.message.len() <= FIXED_COMMAND_BYTES_MAX {
        // The message is a view of its whole chain and of a receive buffer. Copy it, so that a long wait does not keep those.
        cx.message = Buf::from(cx.message.to_vec());
    }
    if let Some(status) = failed
        && command != Command::Create
    {
        return Ok(Err(status));
    }
    if command == Command::TreeConnect {
        tree_connect_is_protected(cx)?;
    }
    Ok(self::command(cx, command).await)
}

/// Returns whether the command may wait for as long as other clients like: for a lock, a change of a directory, or data in a pipe.
fn waits_for_client(command: Command, cx: &RequestContext) -> bool {
    let is_of_pipe = || cx.tree.as_ref().is_some_and(|tree| tree.share().is_none());
    match command {
        Command::Lock | Command::ChangeNotify => true,
        Command::Read | Command::Ioctl => is_of_pipe(),
        _ => false,
    }
}

/// Returns the most bytes of a command with its header. Data after it is dropped, because the command may wait for long.
fn bytes_max(command: Command, message: &[u8]) -> usize {
    match command {
        // These carry data, in a chain with others or in clear.
        Command::Write | Command::Ioctl | Command::SetInfo => usize::MAX,
        // Names, contexts, tokens: at most two parts of 64 KiB.
        Command::Negotiate
        | Command::SessionSetup
        | Command::TreeConnect
        | Command::Create
        | Command::QueryInfo
        | Command::QueryDirectory => MESSAGE_OVERHEAD_MAX,
        // MS-SMB2 section 2.2.26: LockCount elements of 24 bytes.
        Command::Lock => {
            FIXED_COMMAND_BYTES_MAX
                + lock::Request::parse(message).map_or(0, |lock| lock.locks.len() * 24)
        }
        // MS-SMB2 section 2.2.19: ReadChannelInfo, of descriptors of 16 bytes.
        Command::Read => {
            FIXED_COMMAND_BYTES_MAX
                + read::Request::parse(message).map_or(0, |read| read.descriptors.len() * 16)
        }
        _ => FIXED_COMMAND_BYTES_MAX,
    }
}

/// Checks signature, session and tree.
fn admit(cx: &mut RequestContext, command: Command) -> Result<(), Status> {
    verify(cx)?;
    if cx.header.flags.has(Flags::ASYNC) {
        // Sections 2.2.1.1 and 2.2.1.2: CANCEL is the only request with an AsyncId, which other requests replace by their tree id.
        return Err(Status::INVALID_PARAMETER);
    }
    // MS-SMB2 section 3.3.5.17: a request in clear that names a session, or is signed, refers to that session.
    let names_none = cx.encrypted || cx.header.session_id == 0;
    let is_free = names_none && !cx.header.flags.has(Flags::SIGNED);
    if command == Command::SessionSetup || command == Command::Echo && is_free {
        return Ok(());
    }
    let session = cx.session()?.clone();
    let now = cx.server.now();
    session.note_used(now);
    match session.state(now) {
        SessionState::Valid => {}
        // MS-SMB2 section 3.3.5.2.9: commands that release state are still executed; LOCK checks this itself. ECHO releases no
        // state, but Windows answers it.
        SessionState::Expired
            if matches!(
                command,
                Command::Logoff | Command::Close | Command::Lock | Command::Echo
            ) => {}
        SessionState::Expired => return Err(Status::NETWORK_SESSION_EXPIRED),
        SessionState::InProgress | SessionState::Gone => return Err(Status::USER_SESSION_DELETED),
    }
    if session.encrypts() && !cx.encrypted {
        Violation::Clear.note(&cx.conn, "a session that encrypts");
        Rule::Encryption.note(&cx.conn, &session.owner(), "");
        return Err(Status::ACCESS_DENIED);
    }
    if matches!(command, Command::Logoff | Command::TreeConnect | Command::Echo) {
        return Ok(());
    }
    cx.tree = session.tree(cx.header.tree_id());
    let tree = cx.tree()?;
    if tree.settings.encrypt && !cx.encrypted {
        Violation::Clear.note(&cx.conn, "a share that encrypts");
        Rule::EncryptionOfShare.note(&cx.conn, &session.owner(), &tree.name);
        return Err(Status::ACCESS_DENIED);
    }
    Ok(())
}

/// MS-SMB2 section 3.3.5.2.4.
pub(crate) fn verify(cx: &RequestContext) -> Result<(), Status> {
    if cx.encrypted {
        return Ok(());
    }
    let Some(channel) = &cx.channel else {
        // A SESSION_SETUP that binds is verified by its own command.
        return Ok(());
    };
    if !cx.header.flags.has(Flags::SIGNED) {
        if channel.session.signing_required() {
            Violation::Signature.note(&cx.conn, "missing");
            Rule::Signing.note(&cx.conn, &channel.session.owner(), "");
            return Err(Status::ACCESS_DENIED);
        }
        return Ok(());
    }
    let Some(signer) = &channel.signer else { return Ok(()) };
    if cx.read_chunks.iter().any(ReadChunkData::is_missing) {
        // It cannot be verified. It has no effect, and its answer reports the error.
        return Err(Status::INSUFFICIENT_RESOURCES);
    }
    cx.with_pieces(|pieces| signer.verify(Sender::Client, pieces)).map_err(|_| {
        Violation::Signature.note(&cx.conn, "wrong");
        Status::ACCESS_DENIED
    })
}

/// Checks that a TREE_CONNECT in dialect 3.1.1 cannot have been altered (MS-SMB2 section 3.3.5.7).
fn tree_connect_is_protected(cx: &RequestContext) -> Result<(), Fatal> {
    let is_user =
        cx.channel.as_ref().and_then(|c| c.session.user()).is_some_and(|u| u.kind == Kind::User);
    let protected = cx.encrypted || cx.header.flags.has(Flags::SIGNED);
    if is_user && !protected && cx.conn.dialect() == Dialect::V311 {
        return Err((Violation::Signature, "a TREE_CONNECT in clear"));
    }
    Ok(())
}

/// Answers a command whose session and tree were found. Every request moves its whole future to the heap, so the large ones have an
/// allocation of their own: the small ones, which are the frequent ones, do not pay for their size.
async fn command(cx: &RequestContext, command: Command) -> Result<Answer, Status> {
    cx.in_rates(command).await?;
    match command {
        Command::SessionSetup => boxed(|| ops::session_setup::call(cx)).await,
        Command::Logoff => ops::logoff::call(cx).await,
        Command::TreeConnect => boxed(|| ops::tree_connect::call(cx)).await,
        Command::TreeDisconnect => ops::tree_disconnect::call(cx).await,
        Command::Create => {
            let answer = boxed(|| ops::create::call(cx)).await?;
            still_wanted(cx, answer).await
        }
        Command::Close => ops::close::call(cx).await,
        Command::Flush => ops::flush::call(cx).await,
        Command::Read => ops::read::call(cx).await,
        Command::Write => boxed(|| ops::write::call(cx)).await,
        Command::Lock => ops::lock::call(cx).await,
        Command::OplockBreak => ops::oplock_break::call(cx).await,
        Command::Echo => ops::echo::call(cx).await,
        Command::Ioctl => boxed(|| ops::ioctl::call(cx)).await,
        Command::ChangeNotify => ops::change_notify::call(cx).await,
        Command::QueryDirectory => boxed(|| ops::query_directory::call(cx)).await,
        Command::QueryInfo => ops::query_info::call(cx).await,
        Command::SetInfo => boxed(|| ops::set_info::call(cx)).await,
        _ => Err(Status::NOT_SUPPORTED),
    }
}

/// Closes an open that was made while its session or tree ended: the end did not see it.
async fn still_wanted(cx: &RequestContext, answer: Answer) -> Result<Answer, Status> {
    let (session, tree) = (cx.session()?, cx.tree()?);
    let gone = match session.state(cx.server.now()) {
        SessionState::Gone => Status::USER_SESSION_DELETED,
        _ if session.tree(tree.id).is_none() => Status::NETWORK_NAME_DELETED,
        _ => return Ok(answer),
    };
    if let Some(open) = answer.opened.and_then(|id| cx.server.opens.get(id)) {
        teardown::end_open(&cx.server, &open).await;
    }
    Err(gone)
}
