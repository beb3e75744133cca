//! Addresses that the kernel removes unless this process renews them.
//!
//! *Operation.* An address has a lifetime of [`LIFETIME`], renewed every [`PAUSE`] while the node may serve. If this process and
//! its gateway are killed, the address disappears shortly afterwards. If the kernel kept the address, it would refuse connections,
//! and a refused client backs off: the Linux NFS client retries after 3 s, then 6 s, then 12 s, even if another node already
//! serves. If no host has the address, the client repeats its SYN every second and reaches the next owner. A frozen node loses its
//! addresses in the same way.
//!
//! The kernel gives the network route of an IPv6 address the lifetime of the address. With the default metric this would be the
//! same route as for the node's own addresses in that network, and would disappear with it; [`ROUTE_METRIC`] makes it a separate
//! route of lower priority.
//!
//! *Blocking.* The kernel executes a renewal in the sending thread, and blocks it while another process changes the network
//! configuration. A separate thread renews ([`Renewals`]), so that the rest of the node does not wait.
//!
//! *Errors.* Errors of the kernel are logged once, and the renewal is retried.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, netdevice, recv, send};
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Address;
use crate::hold::{Hold, now};
use crate::netlink;

/// Lifetime in seconds, the kernel's unit. One second less than the first back-off of a refused client.
pub(crate) const LIFETIME: u32 = 2;
/// Metric of the network route of an IPv6 address. The route of an address without a lifetime has 256.
pub(crate) const ROUTE_METRIC: u32 = 512;
/// Interval of renewals: three may be late before an address disappears.
const PAUSE: Duration = Duration::from_millis(500);
/// Length of a header, an error number, and the request that it refers to.
const ANSWER_MAX: usize = 256;

/// The thread that renews all addresses of this node, for as long as a clone of this value exists. The kernel may block it, since
/// all changes of the network configuration share one lock.
#[derive(Clone, Debug)]
pub(crate) struct Renewals {
    thread: Handle,
    _lives: watch::Receiver<()>,
}

impl Renewals {
    /// Starts the thread without addresses.
    pub(crate) fn start() -> io::Result<Self> {
        let (end, lives) = watch::channel(());
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let thread = runtime.handle().clone();
        let renew = move || runtime.block_on(end.closed());
        std::thread::Builder::new().name("addresses".into()).spawn(renew)?;
        Ok(Self { thread, _lives: lives })
    }

    /// Renews this address, at once and then while the owner may act, until `kept` is shut down.
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
        // A process that was frozen for longer than its lease must not take the address from the next owner.
        if hold.borrow().left(now()).is_zero() {
            sleep(PAUSE).await;
            continue;
        }
        // Renew in this task: once it has ended, no operation is pending that would add the address again.
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

/// Renews the lifetime of an address, and adds the address if it is missing.
fn renew(ip: IpAddr, prefix: u8, device: &str) -> io::Result<()> {
    let socket = netlink::open()?;
    let index = netdevice::name_to_index(&socket, device)?;
    send(&socket, &request(ip, prefix, index), SendFlags::empty())?;
    let mut answer = [0; ANSWER_MAX];
    // The kernel executes the request and replies before `send` returns.
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    judge(answer.get(..len).unwrap_or(&answer))
}

/// Builds an RTM_NEWADDR request (rtnetlink(7)), in host byte order.
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
    // Preferred and valid lifetime; the kernel sets the timestamps.
    let times = [LIFETIME, LIFETIME, 0, 0].map(u32::to_ne_bytes).concat();
    let (family, flags, octets, route) = match ip {
        IpAddr::V4(ip) => (AF_INET, 0, ip.octets().to_vec(), Vec::new()),
        IpAddr::V6(ip) => {
            let route = attribute(IFA_RT_PRIORITY, &ROUTE_METRIC.to_ne_bytes());
            (AF_INET6, IFA_F_NODAD, ip.octets().to_vec(), route)
        }
    };
    let message = [
        // The scope zero is global.
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

/// Evaluates NLMSG_ERROR, which also reports success (netlink(7)).
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
    fn request_has_length_and_lifetime() {
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
    fn ipv6_route_has_separate_metric() {
        let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10);
        let bytes = request(ip.into(), 64, 7);
        assert_eq!(bytes.len(), 16 + 8 + 20 + 20 + 20 + 8);
        assert_eq!(bytes[16..20], [10, 64, 2, 0]);
        assert_eq!((&bytes[28..44], &bytes[48..64]), (&ip.octets()[..], &ip.octets()[..]));
        assert_eq!(bytes[88..], 512_u32.to_ne_bytes());
    }

    #[test]
    fn kernel_refusal_is_an_error() {
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
    async fn hanging_renewal_blocks_only_its_thread() {
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
        // This thread continues meanwhile, and does not see the pending operation end.
        assert!(timeout(PAUSE, kept.shutdown()).await.is_err());
        go_on.send(()).unwrap();
        kept.shutdown().await;
        assert!(has_begun.recv().is_err(), "it was renewed once");
    }

    #[test]
    fn missing_device_is_an_error() {
        assert!(renew(IP, 24, "no-such-device").is_err());
    }
}
