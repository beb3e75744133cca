//! Registration with the machine's own rpcbind, over its local socket (RFC 1833 section 2.1, RPCBPROC_SET).
//!
//! *Operation.* Each program is registered for each address family. If another program is registered there (such as the kernel's
//! lock manager), the server checks whether it answers: a dead entry is replaced, a live one is kept and reported.
//!
//! *Errors.* Programs that could not be registered are reported with the address of the program that occupies the entry.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use iobuf::Buf;
use nfs_proto::rpcbind::procedure::{DUMP, SET, UNSET};
use nfs_proto::rpcbind::{Rpcb, Rpcblist, parse_universal, universal};
use nfs_proto::xdr::{decode, encode};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::Mapping;
use super::address::netid;
use crate::rpc::callee::{Callee, Carrier, RPCBIND};
use crate::rpc::outgoing;
use crate::rpc::program;

/// The socket of rpcbind for local programs.
pub const SOCKET: &str = "/run/rpcbind.sock";
/// A working rpcbind answers at once.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Largest accepted list of registrations, in bytes.
const LIST_MAX: usize = 256 << 10;

/// The result of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// Programs registered by this call, which the server unregisters at exit.
    pub entered: Vec<(Mapping, bool)>,
    /// Entries occupied by other programs, one line for each.
    pub taken: Vec<String>,
}

fn name(program: u32) -> &'static str {
    match program {
        program::NFS => "NFS",
        program::NFSACL => "NFSACL",
        program::MOUNT => "MOUNT",
        program::NLM => "NLM (locks)",
        program::NSM => "NSM (status)",
        program::RQUOTA => "RQUOTA (quotas)",
        _ => "a program",
    }
}

struct Rpcbind(UnixStream);

impl Rpcbind {
    async fn connect(socket: &Path) -> io::Result<Self> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        Ok(Self(timeout(ANSWER_MAX, UnixStream::connect(socket)).await.map_err(late)??))
    }

    /// Calls a procedure of version 4.
    async fn ask(&mut self, procedure: u32, args: &[u8]) -> io::Result<Buf> {
        let callee = Callee { program: RPCBIND, version: 4, procedure };
        let (xid, call) = outgoing::message(callee, args);
        let exchange = outgoing::exchange(&mut self.0, &call, LIST_MAX);
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let reply = Buf::from(timeout(ANSWER_MAX, exchange).await.map_err(late)??);
        match outgoing::results(xid, &reply) {
            Some(at) => Ok(reply.slice(at..reply.len())),
            None => Err(io::Error::other("rpcbind refused the call")),
        }
    }

    /// Calls a procedure on one entry that answers with a boolean.
    async fn yes(&mut self, procedure: u32, m: &Mapping, six: bool) -> io::Result<bool> {
        let any = any(six);
        let at = universal(SocketAddr::new(any, m.port));
        let args = Rpcb {
            r_prog: m.program,
            r_vers: m.version,
            r_netid: netid(any, m.carrier).as_bytes(),
            r_addr: at.as_bytes(),
            r_owner: b"",
        };
        let answer = self.ask(procedure, &encode(&args)).await?;
        Ok(decode::<bool>(&answer).is_ok_and(|(_, yes)| yes))
    }

    /// Returns the address registered for this entry. GETADDR would report only the transport of the query, the local socket.
    async fn there(&mut self, m: &Mapping, six: bool) -> io::Result<Option<SocketAddr>> {
        let answer = self.ask(DUMP, &[]).await?;
        let unreadable = |_| io::Error::other("rpcbind's list cannot be read");
        let (_, list) = decode::<Rpcblist<'_>>(&answer).map_err(unreadable)?;
        let wanted = (m.program, m.version, netid(any(six), m.carrier).as_bytes());
        let mut entries = list.rpcblist.0.iter();
        let found = entries.find(|entry| (entry.r_prog, entry.r_vers, entry.r_netid) == wanted);
        Ok(found.and_then(|entry| parse_universal(entry.r_addr)))
    }

    /// Registers an entry. `true` if this call created it; an address if another program occupies it.
    async fn enter(&mut self, m: &Mapping, six: bool) -> io::Result<Result<bool, SocketAddr>> {
        if self.yes(SET, m, six).await? {
            return Ok(Ok(true));
        }
        let Some(other) = self.there(m, six).await? else {
            return Err(io::Error::other("rpcbind refused the entry"));
        };
        if other.port() == m.port {
            // The entry is ours, from a run that was killed.
            return Ok(Ok(true));
        }
        if is_alive(m, other).await {
            return Ok(Err(other));
        }
        let replaced = self.yes(UNSET, m, six).await? && self.yes(SET, m, six).await?;
        Ok(if replaced { Ok(true) } else { Err(other) })
    }
}

fn any(six: bool) -> IpAddr {
    if six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// Checks whether a program answers at this address.
async fn is_alive(m: &Mapping, at: SocketAddr) -> bool {
    let ip = match at.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    match m.carrier {
        Carrier::Stream => {
            let connect = tokio::net::TcpStream::connect((ip, at.port()));
            timeout(ANSWER_MAX, connect).await.is_ok_and(|c| c.is_ok())
        }
        // A UDP port in use is detected by a failing bind.
        Carrier::Datagrams => tokio::net::UdpSocket::bind((ip, at.port())).await.is_err(),
    }
}

/// Registers these programs for IPv4, and for IPv6 if `six`.
pub async fn register(socket: &Path, served: &[Mapping], six: bool) -> io::Result<Registered> {
    let mut rpcbind = Rpcbind::connect(socket).await?;
    let mut done = Registered::default();
    for m in served {
        for family in [false, true].into_iter().filter(|f| !f || six) {
            match rpcbind.enter(m, family).await? {
                Ok(_) => done.entered.push((*m, family)),
                Err(other) => {
                    let line = format!(
                        "{} {} is registered by another program, at {other}",
                        name(m.program),
                        m.version
                    );
                    if !done.taken.contains(&line) {
                        done.taken.push(line);
                    }
                }
            }
        }
    }
    Ok(done)
}

/// Removes these entries from the local rpcbind.
pub async fn unregister(socket: &Path, entered: &[(Mapping, bool)]) -> io::Result<()> {
    let mut rpcbind = Rpcbind::connect(socket).await?;
    for (m, six) in entered {
        rpcbind.yes(UNSET, m, *six).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use nfs_proto::oncrpc::{AcceptStat, ReplyHead};

    use super::*;
    use rdma_transport::xdr::{Reader, Writer};

    type Entries = Arc<Mutex<HashMap<(u32, u32, Vec<u8>), Vec<u8>>>>;

    /// A minimal rpcbind that implements SET, UNSET and DUMP of version 4.
    async fn rpcbind(listener: UnixListener, entries: Entries) {
        while let Ok((mut stream, _)) = listener.accept().await {
            while let Ok(mark) = stream.read_u32().await {
                let mut call = vec![0; usize::try_from(mark & 0x7fff_ffff).unwrap()];
                stream.read_exact(&mut call).await.unwrap();
                let call = Buf::from(call);
                let mut r = Reader::new(&call, &[]);
                let head = crate::rpc::decode_call(&mut r).unwrap();
                assert_eq!((head.program, head.version), (RPCBIND, 4));
                let entry = if head.procedure == DUMP {
                    None
                } else {
                    let key = (r.u32().unwrap(), r.u32().unwrap(), r.opaque(99).unwrap().to_vec());
                    Some((key, r.opaque(99).unwrap().to_vec()))
                };
                let mut w = Writer::new();
                ReplyHead::accepted(head.xid, AcceptStat::Success).emit(w.head());
                {
                    let mut entries = entries.lock().unwrap();
                    match entry {
                        Some((key, address)) if head.procedure == SET => {
                            let free = !entries.contains_key(&key);
                            if free {
                                entries.insert(key, address);
                            }
                            w.bool(free);
                        }
                        Some((key, _)) => w.bool(entries.remove(&key).is_some()),
                        None => {
                            for ((program, version, netid), address) in entries.iter() {
                                w.bool(true);
                                w.u32(*program);
                                w.u32(*version);
                                w.opaque(netid);
                                w.opaque(address);
                                w.opaque(b"superuser");
                            }
                            w.bool(false);
                        }
                    }
                }
                let reply = w.into_reply().head;
                stream.write_u32(0x8000_0000 | u32::try_from(reply.len()).unwrap()).await.unwrap();
                stream.write_all(&reply).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn dead_registrations_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rpcbind.sock");
        let living = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mapping =
            |program, version| Mapping { program, version, carrier: Carrier::Stream, port: 2049 };
        let served = [mapping(program::NFS, 3), mapping(program::NLM, 4), mapping(program::NSM, 1)];
        let entries = Entries::default();
        {
            let mut e = entries.lock().unwrap();
            let local = universal(living.local_addr().unwrap());
            e.insert((program::NLM, 4, b"tcp".to_vec()), local.into_bytes());
            e.insert((program::NSM, 1, b"tcp".to_vec()), universal(dead).into_bytes());
        }
        tokio::spawn(rpcbind(UnixListener::bind(&path).unwrap(), entries.clone()));

        let done = register(&path, &served, true).await.unwrap();
        let at = living.local_addr().unwrap();
        assert_eq!(
            done.taken,
            [format!("NLM (locks) 4 is registered by another program, at {at}")]
        );
        assert_eq!(done.entered.len(), 5, "{:?}", done.entered);
        let of = |program, version, id: &[u8]| {
            entries.lock().unwrap().get(&(program, version, id.to_vec())).cloned()
        };
        assert_eq!(of(program::NSM, 1, b"tcp").as_deref(), Some(&b"0.0.0.0.8.1"[..]));
        assert_eq!(of(program::NFS, 3, b"tcp6").as_deref(), Some(&b"::.8.1"[..]));
        // The next run takes over entries of a killed run.
        assert_eq!(register(&path, &served, true).await.unwrap().entered.len(), 5);
        unregister(&path, &done.entered).await.unwrap();
        assert_eq!(entries.lock().unwrap().len(), 1, "the other's entry stays");
        let missing = dir.path().join("none");
        assert!(register(&missing, &served, false).await.is_err());
    }
}
