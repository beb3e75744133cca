//! What every TCP socket of a connection is set to, and what its peer has heard.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::channel::Silence;
use crate::limits;

/// Small messages leave at once, and a peer that vanished without a word is noticed.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(limits::KEEPALIVE_IDLE_SECONDS))
        .with_interval(Duration::from_secs(limits::KEEPALIVE_INTERVAL_SECONDS))
        .with_retries(limits::KEEPALIVE_PROBES_MAX);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// How the peer's TCP acknowledges what it is sent.
pub(crate) fn silence(stream: &TcpStream) -> io::Result<Silence> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).unwrap_or(0);
    // SAFETY: the descriptor is open while `stream` is borrowed; the kernel writes at most `len` bytes, the size of `info`.
    let failed = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: numbers, for which every pattern of bits is a value; what the kernel did not write is zero.
    let info = unsafe { info.assume_init() };
    Ok(Silence {
        owes: info.tcpi_unacked > 0,
        lasts: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        repeats: info.tcpi_retransmits.into(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use socket2::SockFilter;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// The peer's system drops all that comes, as a cable that was pulled does.
    #[tokio::test]
    async fn a_peer_that_hears_nothing_is_silent_and_one_that_reads_nothing_is_not() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut own, _) = listener.accept().await.unwrap();
        own.write_all(b"heard").await.unwrap();
        while silence(&own).unwrap().owes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // BPF_RET | BPF_K: no byte of any packet is kept.
        SockRef::from(&peer).attach_filter(&[SockFilter::new(6, 0, 0, 0)]).unwrap();
        own.write_all(b"not heard").await.unwrap();
        let found = loop {
            let now = silence(&own).unwrap();
            assert!(now.owes, "nobody acknowledges it");
            if now.repeats >= 2 {
                break now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert!(found.lasts >= Duration::from_millis(200), "{found:?}");
        SockRef::from(&peer).detach_filter().unwrap();
        while silence(&own).unwrap().owes {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(silence(&own).unwrap().repeats, 0);
    }
}
