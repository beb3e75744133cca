//! Divides the files that this process may open (RLIMIT_NOFILE), so that connections and clients' files leave enough for the
//! admin address and the state folder.
//!
//! *Operation.* Raises the soft limit to the hard one, and the hard one where the process may do that. A third is for
//! clients' files, at most a sixteenth for the pipes that move pages of files to sockets, a reserve for the gateway itself,
//! and the rest for connections. If the rest is smaller than `connections`, the gateway accepts fewer. If it is larger,
//! clients' files get the difference.

use std::net::IpAddr;

use config::{Discovery, Settings};

use crate::admin::listener;

/// Open files of the gateway itself: the runtime, listeners, log, state folder, control socket, calls to NFSv3 hosts.
const OF_ITS_OWN: u64 = 48;
/// Open files of the folder of a share: three for its root, and one for its watch.
const OF_SHARE: u64 = 4;
/// Open files of announcements: for each link a socket for each protocol and version of IP, two listeners, and connections to them.
const OF_DISCOVERY: u64 =
    (8 * discovery::links::LINKS_MAX + discovery::metadata::CONNECTIONS_MAX) as u64;
/// Maximum number of evicted connections that are not closed yet.
pub(crate) const CLOSING_MAX: usize = 16;
/// Maximum number of files of a connection: over a card its two queues and librdmacm.
const OF_CONNECTION: u64 = 3;
const OF_PIPE: u64 = 2;
/// Connections that are accepted however few files the limit allows: a gateway without any would be useless.
const CONNECTIONS_MIN: usize = 4;

/// Division of the files that this process may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Files that this process may open; `u64::MAX` means any number.
    pub(crate) may: u64,
    /// Connections that the gateway accepts: `connections`, or fewer.
    pub(crate) connections: usize,
    /// Files and folders that clients may hold open.
    files: usize,
    /// Pipes that move pages of files to sockets.
    pipes: usize,
}

impl Descriptors {
    /// Divides `may` files according to the settings.
    pub(crate) fn of(settings: &Settings, may: u64) -> Self {
        let pipes = pipes(may);
        let reserve = reserve(settings) + OF_PIPE * pipes;
        let third = may / 3;
        let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let room = whole((may - third).saturating_sub(reserve)).max(CONNECTIONS_MIN);
        let connections = settings.connections.min(room);
        let files = may.saturating_sub(reserve + OF_CONNECTION * connections as u64).max(third);
        Self { may, connections, files: whole(files), pipes: whole(pipes) }
    }

    /// Raises the limit as far as these settings need it, divides it, and logs the result.
    pub(crate) fn raised(settings: &Settings) -> Self {
        // Assume that all connections use cards, and that clients open as many files.
        let pipes = OF_PIPE * iobuf::PIPES_MAX as u64;
        let wanted = reserve(settings) + pipes + (OF_CONNECTION + 1) * settings.connections as u64;
        let this = Self::of(settings, vfs::local::raise_open_files(wanted));
        vfs::local::limit_descriptors(this.files);
        iobuf::limit_pipes(this.pipes);
        let (asked, connections) = (settings.connections, this.connections);
        if connections < asked {
            tracing::warn!(
                connections,
                asked,
                files = this.may,
                "fewer connections than `connections` are admitted, because this process may open few files: \
                 raise `LimitNOFILE=` or `ulimit -Hn`"
            );
        }
        this
    }
}

/// Returns the number of pipes of a process that may open `may` files.
fn pipes(may: u64) -> u64 {
    (may / 16 / OF_PIPE).min(iobuf::PIPES_MAX as u64)
}

/// Returns the number of counted descriptors: files that clients hold, pipes, and `connections` connections. The descriptors
/// that are not counted are a few of the gateway itself.
pub(crate) fn counted(connections: usize) -> u64 {
    (vfs::local::descriptors_held() + connections) as u64 + OF_PIPE * iobuf::pipes() as u64
}

fn reserve(settings: &Settings) -> u64 {
    let shares = OF_SHARE * settings.shares.len() as u64;
    let only_loopback = !settings.bind.is_empty() && settings.bind.iter().all(IpAddr::is_loopback);
    let is_announced = settings.discovery == Discovery::On && !only_loopback;
    let discovery = if is_announced { OF_DISCOVERY } else { 0 };
    OF_ITS_OWN + discovery + shares + (listener::CONNECTIONS_MAX + CLOSING_MAX) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_files_and_the_reserve_alone() {
        let settings = Settings { connections: 2048, ..Settings::default() };
        let of = |may| Descriptors::of(&settings, may).connections;
        assert_eq!(of(u64::MAX), 2048);
        assert_eq!(of(1 << 20), 2048);
        assert_eq!(of(1024), 1024 - 341 - 64 - 128);
        assert_eq!(of(256), 256 - 85 - 16 - 128);
        assert_eq!(of(100), CONNECTIONS_MIN, "nobody would be served otherwise");
        let files = |may| Descriptors::of(&settings, may).files;
        assert_eq!(files(256), 85, "a third");
        assert_eq!(files(20_000), 20_000 - 512 - 128 - 3 * 2048, "what is left over");
        let on = Settings { discovery: Discovery::On, ..settings.clone() };
        assert_eq!(Descriptors::of(&on, 1024).connections, 1024 - 341 - 64 - 128 - 72);
        let here = Settings { bind: vec!["127.0.0.1".parse().unwrap()], ..on };
        assert_eq!(Descriptors::of(&here, 1024).connections, 1024 - 341 - 64 - 128);
        let few = Settings { connections: 10, ..Settings::default() };
        assert_eq!(Descriptors::of(&few, 1024).connections, 10);
    }
}
