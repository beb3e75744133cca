//! The directory watch of one open, which also collects changes between CHANGE_NOTIFY requests.
//!
//! *Operation.* The first request starts the watch, with its filter, and the watch continues until the open ends: changes between
//! two requests are reported by the second. Requests of one open are answered in order.

use tokio::sync::{Mutex, watch};
use vfs::Action as Seen;
use vfs::names::Spelling;
use vfs::watch::{Event, Taken, Watch};

use crate::fscc::notify::{Action, Change};
use crate::parts::Part;
use crate::status::Status;

/// The watch of one open.
pub struct Watching {
    watch: Watch,
    /// Serializes requests in the order of arrival.
    pub(crate) turn: Mutex<()>,
    /// Bytes for changes between requests: the buffer size of the first request.
    pub(crate) between: usize,
    ended: watch::Sender<Option<Status>>,
    /// Its slot in the watch quota of the client's address.
    _part: Part,
}

impl Watching {
    /// Builds a watch; `between`: bytes of the first request's buffer.
    pub(crate) fn new(watch: Watch, between: usize, part: Part) -> Self {
        let ended = watch::Sender::new(None);
        Self { watch, turn: Mutex::new(()), between, ended, _part: part }
    }

    /// Ends the watch because the open or its directory is about to end, and wakes its waiting requests.
    pub(crate) fn end(&self, why: Status) {
        self.ended.send_replace(Some(why));
    }

    /// Returns why the watch has ended, `None` while it runs.
    pub(crate) fn why(&self) -> Option<Status> {
        *self.ended.borrow()
    }

    /// Waits until there is a change or the watch has ended.
    pub(crate) async fn ready(&self) -> Result<(), Status> {
        let mut ended = self.ended.subscribe();
        let ended = async move {
            let why = ended.wait_for(Option::is_some).await.ok().and_then(|w| *w);
            why.unwrap_or(Status::NOTIFY_CLEANUP)
        };
        tokio::select! {
            biased;
            why = ended => Err(why),
            () = self.watch.ready() => Ok(()),
        }
    }

    /// Returns whether a change is pending.
    pub(crate) async fn is_ready(&self) -> bool {
        let mut ready = std::pin::pin!(self.watch.something());
        std::future::poll_fn(|cx| std::task::Poll::Ready(ready.as_mut().poll(cx).is_ready())).await
    }

    /// Takes the pending changes.
    pub(crate) fn take(&self) -> Taken {
        self.watch.take()
    }
}

/// Converts a change to the form that clients get.
pub(crate) fn change(event: &Event, spelling: Spelling) -> Change {
    let action = match event.action {
        Seen::Added => Action::Added,
        Seen::Removed => Action::Removed,
        Seen::Modified => Action::Modified,
        Seen::RenamedOld => Action::RenamedOldName,
        Seen::RenamedNew => Action::RenamedNewName,
        Seen::AddedStream => Action::AddedStream,
        Seen::RemovedStream => Action::RemovedStream,
        Seen::ModifiedStream => Action::ModifiedStream,
    };
    let is_stream =
        matches!(action, Action::AddedStream | Action::RemovedStream | Action::ModifiedStream);
    let colon = event.path.iter().rposition(|b| *b == b':').filter(|_| is_stream);
    let (path, stream) = event.path.split_at(colon.unwrap_or(event.path.len()));
    let names = path.split(|b| *b == b'/').map(|name| spelling.to_client(name));
    let names: Vec<String> = names.collect();
    let separator = match spelling {
        Spelling::Windows => "\\",
        // The other separator may be part of a name.
        Spelling::Posix => "/",
    };
    let name = names.join(separator) + &String::from_utf8_lossy(stream);
    Change { action, name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_as_clients_write_them() {
        let event = |action, path: &[u8]| Event { action, path: path.to_vec() };
        let told = |action, path| change(&event(action, path), Spelling::Windows).name;
        assert_eq!(told(Seen::Added, b"a/b"), "a\\b");
        assert_eq!(told(Seen::Added, b"a:b"), "a\u{f022}b");
        assert_eq!(told(Seen::AddedStream, b"d/a:b"), "d\\a:b");
        let posix = change(&event(Seen::Added, b"d/a:b\\c"), Spelling::Posix);
        assert_eq!(posix.name, "d/a:b\\c");
    }
}
