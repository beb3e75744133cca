//! Sockets by which the kernel's configuration of the network is changed and followed (rtnetlink(7)).
//!
//! *Operation.* A [`Watch`] reports that something has changed, not what: its user reads the whole table again. So a lost
//! notification does no harm.
//!
//! *Memory.* The kernel keeps unread notifications up to the socket's receive buffer and drops the rest (ENOBUFS).

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR and RTMGRP_IPV6_ROUTE (linux/rtnetlink.h).
const GROUPS: u32 = 0x0001 | 0x0010 | 0x0040 | 0x0100 | 0x0400;
/// Bytes that are read of a notification.
const HEADER: usize = 16;

/// Opens a socket for requests.
pub fn open() -> io::Result<OwnedFd> {
    socket(SocketFlags::empty())
}

fn socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?)
}

/// Notifications of links, addresses and routes that come, change and go.
#[derive(Debug)]
pub struct Watch(UnixDatagram);

impl Watch {
    /// Follows from now on.
    ///
    /// # Errors
    /// The kernel gives no such socket.
    pub fn start() -> io::Result<Self> {
        let socket = socket(SocketFlags::NONBLOCK)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        // To the runtime it is a socket of datagrams as any other.
        Ok(Self(UnixDatagram::from_std(socket.into())?))
    }

    /// Waits for a notification and takes all that there are.
    ///
    /// # Errors
    /// The socket gives no more of them.
    pub async fn changed(&self) -> io::Result<()> {
        let take = || {
            let mut head = [0; HEADER];
            let (len, _) = recv(&self.0, &mut head[..], RecvFlags::empty())?;
            Ok(len)
        };
        let any = || if take_all(take)? { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) };
        self.0.async_io(Interest::READABLE, any).await
    }
}

/// Reads all notifications; returns whether there were any, or the kernel dropped some.
fn take_all(mut take: impl FnMut() -> io::Result<usize>) -> io::Result<bool> {
    let mut changed = false;
    loop {
        match take() {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => changed = true,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(changed),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // The buffer was full: some were dropped.
            Err(e) if e.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => changed = true,
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of `take_all` for these results, in turn.
    fn taken(results: &[Result<usize, i32>]) -> Result<bool, Option<i32>> {
        let mut results = results.iter();
        let next = || match results.next() {
            Some(result) => result.map_err(io::Error::from_raw_os_error),
            None => Err(ErrorKind::WouldBlock.into()),
        };
        take_all(next).map_err(|e| e.raw_os_error())
    }

    #[test]
    fn lost_notifications_count_as_changes() {
        let lost = Errno::NOBUFS.raw_os_error();
        assert_eq!(taken(&[]), Ok(false));
        assert_eq!(taken(&[Ok(16), Ok(16)]), Ok(true));
        assert_eq!(taken(&[Err(lost)]), Ok(true));
        assert_eq!(taken(&[Err(lost), Ok(16)]), Ok(true));
        assert_eq!(taken(&[Err(Errno::INTR.raw_os_error())]), Ok(false));
        let bad = Errno::BADF.raw_os_error();
        assert_eq!(taken(&[Ok(16), Err(bad)]), Err(Some(bad)));
        assert_eq!(taken(&[Ok(0)]), Err(None), "it has ended");
    }
}
