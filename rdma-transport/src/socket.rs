//! Socket options: for TCP connections, acknowledgement statistics, traffic class, and fragmentation of datagrams.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::channel::Silence;
use crate::limits;

/// Sends small messages at once, and detects a peer that vanished.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(limits::KEEPALIVE_IDLE_SECONDS))
        .with_interval(Duration::from_secs(limits::KEEPALIVE_INTERVAL_SECONDS))
        .with_retries(limits::KEEPALIVE_PROBES_MAX);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Reads how the peer's TCP acknowledges data.
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

/// Lets the kernel and routers fragment datagrams larger than the MTU. A kernel without one of these options fragments anyway.
pub fn allow_fragments(socket: &impl AsFd, is_ipv6: bool) {
    let ipv4 = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT);
    let ipv6 = [
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 0),
    ];
    // An IPv6 socket may send over IPv4 as well.
    for option in [ipv4].into_iter().chain(ipv6.into_iter().filter(|_| is_ipv6)) {
        set_number(socket, option);
    }
}

/// Sets the byte of IP headers that holds the traffic class. An IPv6 socket may send over IPv4 as well.
pub(crate) fn set_class(socket: &impl AsFd, is_ipv6: bool, byte: u8) {
    set_number(socket, (libc::IPPROTO_IP, libc::IP_TOS, byte.into()));
    if is_ipv6 {
        set_number(socket, (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, byte.into()));
    }
}

fn set_number(socket: &impl AsFd, (level, name, value): (i32, i32, i32)) {
    let len = libc::socklen_t::try_from(size_of::<i32>()).unwrap_or(0);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while `socket` is borrowed; the kernel reads `len` bytes, the size of `value`.
    let _ = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use socket2::SockFilter;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// The peer's system drops all incoming packets, as with an unplugged cable.
    #[tokio::test]
    async fn unreachable_peer_is_silent() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut own, _) = listener.accept().await.unwrap();
        own.write_all(b"heard").await.unwrap();
        while silence(&own).unwrap().owes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // BPF_RET | BPF_K: all packets are dropped.
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

    fn number(socket: &impl AsFd, (level, name): (i32, i32)) -> i32 {
        let mut value = -1;
        let mut len = libc::socklen_t::try_from(size_of::<i32>()).unwrap();
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open; the kernel writes at most `len` bytes, the size of `value`.
        unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
        value
    }

    const V4: (i32, i32) = (libc::IPPROTO_IP, libc::IP_TOS);
    const V6: (i32, i32) = (libc::IPPROTO_IPV6, libc::IPV6_TCLASS);

    /// Kernels leave the bits of ECN of a stream alone.
    #[tokio::test]
    async fn class_is_set_for_both_versions_of_ip() {
        let class = crate::traffic_class::TrafficClass::default();
        for (at, is_ipv6) in
            [("127.0.0.1:0", false), ("[::1]:0", true), ("[::ffff:127.0.0.1]:0", true)]
        {
            let Ok(listener) = TcpListener::bind(at).await else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            class.set(None);
            class.mark(&stream, is_ipv6);
            assert_eq!(number(&stream, V4), 0, "{at}");
            class.set(Some(26));
            class.mark(&stream, is_ipv6);
            assert_eq!(number(&stream, V4) & 0xfc, 0x68, "{at}");
            if is_ipv6 {
                assert_eq!(number(&stream, V6) & 0xfc, 0x68, "{at}");
            }
        }
    }

    /// The socket's MTU is set to 1500, since the loopback has 65536.
    #[test]
    fn large_datagram_leaves_in_fragments() {
        let Ok(socket) = UdpSocket::bind("[::1]:0") else { return };
        let to = socket.local_addr().unwrap();
        for option in [
            (libc::IPPROTO_IPV6, libc::IPV6_MTU, 1500),
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
            (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1),
        ] {
            set_number(&socket, option);
        }
        let error = socket.send_to(&[0; 8192], to).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        allow_fragments(&socket, true);
        assert_eq!(socket.send_to(&[7; 8192], to).unwrap(), 8192);
        let mut room = [0; 9000];
        assert_eq!(socket.recv(&mut room).unwrap(), 8192);
    }
}
