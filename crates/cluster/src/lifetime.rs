//! Addresses that the kernel removes when this process does not renew them.
//!
//! *Operation.* An address has a lifetime of [`LIFETIME`], which this process renews every [`PAUSE`] while it may serve.
//! Once it is killed, together with its gateway, the address goes about when that is over. A kernel that kept it would refuse
//! connections, and a client that is refused backs off: the NFS client of Linux tries again after 3 s, then 6 s, then 12 s, whoever
//! serves meanwhile. Where no host has the address, its SYN is sent again every second and reaches the next owner. A node that
//! stands still loses its addresses in the same way.
//!
//! The kernel gives the route of an IPv6 address's network the lifetime of the address. At the usual metric that route would be
//! the one that the node's own addresses of the network have, which would go with it; at [`ROUTE_METRIC`] it is another, behind it.
//!
//! *Blocking.* The kernel carries a renewal out in the thread that sends it, and keeps that waiting for as long as another changes
//! the network's configuration. A thread of its own renews ([`Renewals`]), so that nothing else of the node waits.
//!
//! *Errors.* What the kernel refuses is logged once, and tried again.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send,
    socket_with,
};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Address;
use crate::hold::{Hold, now};

/// In seconds, as the kernel counts. Less than the first back-off of a client that is refused, with a second to spare.
pub(crate) const LIFETIME: u32 = 2;
/// Of the route of an IPv6 address's network. That of an address without a lifetime has 256.
pub(crate) const ROUTE_METRIC: u32 = 512;
/// Between renewals: three may be late before an address goes.
const PAUSE: Duration = Duration::from_millis(500);
/// A header, an error number, and the request that it is about.
const ANSWER_MAX: usize = 256;

/// The thread that renews all addresses of this node, for as long as a copy of this lives. The kernel may hold it up: one lock of
/// its network configuration is for all.
#[derive(Clone, Debug)]
pub(crate) struct Renewals {
    thread: Handle,
    _lives: watch::Receiver<()>,
}

impl Renewals {
    /// Begins without an address.
    pub(crate) fn start() -> io::Result<Self> {
        let (end, lives) = watch::channel(());
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let thread = runtime.handle().clone();
        let renew = move || runtime.block_on(end.closed());
        std::thread::Builder::new().name("addresses".into()).spawn(renew)?;
        Ok(Self { thread, _lives: lives })
    }

    /// Renews this address too, at once and then while the owner may act, until `kept` is shut down.
    pub(crate) fn keep(
        &self,
        Address { ip, prefix, device }: &Address,
        hold: &watch::Receiver<Hold>,
        kept: &mut JoinSet<()>,
    ) {
        let address = (*ip, *prefix, device.clone());
        kept.spawn_on(keep_one(address, hold.clone(), renew), &self.thread);
    }
}

async fn keep_one(
    (ip, prefix, device): (IpAddr, u8, String),
    hold: watch::Receiver<Hold>,
    renew: impl Fn(IpAddr, u8, &str) -> io::Result<()>,
) {
    let mut is_told = false;
    loop {
        // A process that stood still for longer than its lease must not take the address from the next owner.
        if hold.borrow().left(now()).is_zero() {
            sleep(PAUSE).await;
            continue;
        }
        // In this task: once it has ended, nothing is under way that would add the address again.
        match renew(ip, prefix, &device) {
            Ok(()) => is_told = false,
            Err(_) if is_told => {}
            Err(why) => {
                is_told = true;
                tracing::error!(
                    address = %ip, device,
                    "the kernel does not renew the address and removes it in {LIFETIME} s: {why}"
                );
            }
        }
        sleep(PAUSE).await;
    }
}

/// Gives the address its lifetime from now on, and adds it where it is gone.
fn renew(ip: IpAddr, prefix: u8, device: &str) -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let index = netdevice::name_to_index(&socket, device)?;
    send(&socket, &request(ip, prefix, index), SendFlags::empty())?;
    let mut answer = [0; ANSWER_MAX];
    // The kernel carries it out, and answers, before `send` returns.
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    judge(answer.get(..len).unwrap_or(&answer))
}

/// RTM_NEWADDR (rtnetlink(7)), in the byte order of this host.
fn request(ip: IpAddr, prefix: u8, index: u32) -> Vec<u8> {
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    const RTM_NEWADDR: u16 = 20;
    // NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_CREATE.
    const FLAGS: u16 = 0x001 | 0x004 | 0x100 | 0x400;
    const IFA_F_NODAD: u8 = 0x02;
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_CACHEINFO: u16 = 6;
    const IFA_RT_PRIORITY: u16 = 9;
    let attribute = |kind: u16, value: &[u8]| {
        let len = u16::try_from(4 + value.len()).unwrap_or(0);
        [&len.to_ne_bytes(), &kind.to_ne_bytes(), value].concat()
    };
    // Preferred and valid for; the kernel notes from when.
    let times = [LIFETIME, LIFETIME, 0, 0].map(u32::to_ne_bytes).concat();
    let (family, flags, octets, route) = match ip {
        IpAddr::V4(ip) => (AF_INET, 0, ip.octets().to_vec(), Vec::new()),
        IpAddr::V6(ip) => {
            let route = attribute(IFA_RT_PRIORITY, &ROUTE_METRIC.to_ne_bytes());
            (AF_INET6, IFA_F_NODAD, ip.octets().to_vec(), route)
        }
    };
    let message = [
        // Its scope, that of every other host, is zero.
        [family, prefix, flags, 0].to_vec(),
        index.to_ne_bytes().to_vec(),
        attribute(IFA_LOCAL, &octets),
        attribute(IFA_ADDRESS, &octets),
        attribute(IFA_CACHEINFO, &times),
        route,
    ]
    .concat();
    let len = u32::try_from(16 + message.len()).unwrap_or(0);
    let kind = [RTM_NEWADDR.to_ne_bytes(), FLAGS.to_ne_bytes()].concat();
    // Sequence number and port are zero.
    [&len.to_ne_bytes()[..], &kind, &[0; 8], &message].concat()
}

/// NLMSG_ERROR, which also says that there was none (netlink(7)).
fn judge(answer: &[u8]) -> io::Result<()> {
    const NLMSG_ERROR: u16 = 2;
    let number = |at: usize| answer.get(at..at + 4).and_then(|b| b.try_into().ok());
    let kind = answer.get(4..6) == Some(&NLMSG_ERROR.to_ne_bytes()[..]);
    match number(16).map(i32::from_ne_bytes).filter(|_| kind) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("its answer is not of netlink")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use tokio::time::timeout;

    use super::*;

    const IP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));

    #[test]
    fn a_request_says_how_long_it_is_and_for_how_long_the_address_is_valid() {
        let bytes = request(IP, 24, 7);
        assert_eq!(bytes.len(), 16 + 8 + 8 + 8 + 20);
        assert_eq!(bytes[..4], 60_u32.to_ne_bytes());
        assert_eq!(
            (&bytes[16..20], &bytes[20..24]),
            (&[2, 24, 0, 0][..], &7_u32.to_ne_bytes()[..])
        );
        assert_eq!((&bytes[28..32], &bytes[36..40]), (&[192, 0, 2, 10][..], &[192, 0, 2, 10][..]));
        let times = [2_u32.to_ne_bytes(), 2_u32.to_ne_bytes()].concat();
        assert_eq!((&bytes[44..52], &bytes[52..]), (&times[..], &[0; 8][..]));
    }

    #[test]
    fn the_route_of_an_address_of_ipv6_is_one_of_its_own() {
        let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
        let bytes = request(ip.into(), 64, 7);
        assert_eq!(bytes.len(), 16 + 8 + 20 + 20 + 20 + 8);
        assert_eq!(bytes[16..20], [10, 64, 2, 0]);
        assert_eq!((&bytes[28..44], &bytes[48..64]), (&ip.octets()[..], &ip.octets()[..]));
        assert_eq!(bytes[88..], 512_u32.to_ne_bytes());
    }

    #[test]
    fn what_the_kernel_refuses_is_an_error() {
        let answer = |kind: u16, error: i32| {
            let mut bytes = [0; 36];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[16..20].copy_from_slice(&error.to_ne_bytes());
            judge(&bytes).map_err(|e| e.raw_os_error())
        };
        assert_eq!(answer(2, 0), Ok(()));
        assert_eq!(answer(2, -19), Err(Some(19)));
        assert_eq!(answer(20, 0), Err(None));
        assert!(judge(&[0; 12]).is_err());
    }

    #[tokio::test]
    async fn a_renewal_is_sent_at_once_and_one_that_hangs_holds_up_nothing_else() {
        let (began, has_begun) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let hang = move |_: IpAddr, _: u8, _: &str| {
            began.send(()).unwrap();
            may_go_on.recv().map_err(io::Error::other)
        };
        let renewals = Renewals::start().unwrap();
        let hold = watch::Sender::new(Hold::new(Duration::from_secs(60), now()));
        let mut kept = JoinSet::new();
        let address = (IP, 24, "no-such-device".into());
        kept.spawn_on(keep_one(address, hold.subscribe(), hang), &renewals.thread);
        has_begun.recv().unwrap();
        // This thread goes on meanwhile, and is not told that nothing is under way.
        assert!(timeout(PAUSE, kept.shutdown()).await.is_err());
        go_on.send(()).unwrap();
        kept.shutdown().await;
        assert!(has_begun.recv().is_err(), "it was renewed once");
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(renew(IP, 24, "no-such-device").is_err());
    }
}
