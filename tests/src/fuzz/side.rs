//! Calls of NLM, NSM, the port mapper and NFSACL on a server with memory volumes.

use std::cell::Cell;
use std::sync::Arc;

use iobuf::{Buf, Pool, PoolLimits};
use nfs_proto::nfs3::Nfsstat3;
use nfs_proto::nlm::Args;
use nfsrdma::clock::Clock;
use nfsrdma::fh::{FH_MAX, Handles};
use nfsrdma::nlm::procedure as p;
use nfsrdma::nsm::procedure as sm;
use nfsrdma::rpc::program;
use nfsrdma::served_programs::ServedPrograms;
use nfsrdma::server::{Server, Session};
use nfsrdma::server_state::{Boot, ServerState};
use nfsrdma::v3::acl::{VERSION as ACL_VERSION, procedure as acl};
use rdma_transport::channel::{Handle, Info, Service, Transport};
use rdma_transport::xdr::{Reader, Writer};
use vfs::namespace::Namespace;

use super::share;

/// The programs, with a served version of each.
const PROGRAMS: [(u32, u32); 6] = [
    (program::NLM, 4),
    (program::NSM, 1),
    (program::PORTMAP, 2),
    (program::PORTMAP, 3),
    (program::PORTMAP, 4),
    (program::NFSACL, ACL_VERSION),
];

/// Calls made from one input.
const CALLS_MAX: usize = 24;

thread_local! {
    #[allow(clippy::expect_used)]
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
}

/// Placeholder in the arguments for the handle of the share, or of the file: an opaque of one byte.
const SHARE: &[u8; 8] = b"\0\0\0\x01d\0\0\0";
const FILE: &[u8; 8] = b"\0\0\0\x01f\0\0\0";

/// Input: a sequence of calls: the program (a byte, see [`PROGRAMS`]), the procedure (a byte), the length of the arguments (a
/// byte), the arguments. All come from one host. The share is `d`; it has a file `f`. The handles of a memory volume differ in
/// every run, so [`SHARE`] and [`FILE`] represent them.
pub fn side_calls(data: &[u8]) {
    answers(data);
}

/// The replies to the executed calls.
fn answers(data: &[u8]) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    let host = Host::new();
    let mut rest = data;
    // Lock requests wait for recalls of caching rights, which do not exist here.
    for _ in 0..CALLS_MAX {
        let [program, number, length, tail @ ..] = rest else { break };
        let (args, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let (program, version) = PROGRAMS[usize::from(*program) % PROGRAMS.len()];
        let number = u32::from(*number % 26);
        let args = &host.with_handles(args);
        let Some(answer) = host.call(program, version, number, args) else { continue };
        match (program, number) {
            (program::NLM, _) => answer_fits(number, args, &answer),
            (program::NFSACL, acl::GETACL) if answer.starts_with(&[0; 4]) => {
                shown_lists_hold(&host, args, &answer);
            }
            _ => {}
        }
        answers.push(answer);
    }
    answers
}

/// Checks that a list read with GETACL is valid for SETACL: only the volume may refuse it, because memory volumes store none.
fn shown_lists_hold(host: &Host, args: &[u8], answer: &[u8]) {
    let args = Buf::from(args.to_vec());
    let mut back = Writer::new();
    assert!(Reader::new(&args, &[]).opaque(FH_MAX).map(|object| back.opaque(object)).is_ok());
    // The bytes after the status and `post_op_attr`.
    let back = [back.bytes(), &answer[4 + 4 + 84..]].concat();
    let refused = host.call(program::NFSACL, ACL_VERSION, acl::SETACL, &back).unwrap_or_default();
    let not_supported = (Nfsstat3::Notsupp as u32).to_be_bytes();
    assert!(refused.starts_with(&not_supported), "{back:02x?} was answered {refused:02x?}");
}

/// Checks that a reply begins with the cookie of the call and a defined status.
fn answer_fits(number: u32, args: &[u8], answer: &[u8]) {
    let (args, answer) = (Buf::from(args.to_vec()), Buf::from(answer.to_vec()));
    let parsed = wire::decode(&args, |i| Args::parse(number, i));
    let cookie = match parsed.map(|(_, args)| args) {
        Ok(Some(Args::Test(a) | Args::Granted(a))) => a.cookie,
        Ok(Some(Args::Lock(a))) => a.cookie,
        Ok(Some(Args::Cancel(a))) => a.cookie,
        Ok(Some(Args::Unlock(a))) => a.cookie,
        Ok(Some(Args::Share(a) | Args::Unshare(a))) => a.cookie,
        other => {
            assert!(other.is_ok_and(|args| args.is_some()), "arguments that cannot be read");
            return assert!(answer.is_empty());
        }
    };
    if (p::TEST_MSG..=p::GRANTED_MSG).contains(&number) {
        return assert!(answer.is_empty(), "the answer is a call of its own");
    }
    let mut r = Reader::new(&answer, &[]);
    assert_eq!(r.opaque(cookie.len()), Ok(cookie));
    assert!(r.u32().is_ok_and(|stat| stat <= 9));
}

/// A host and its server, with the handles of the share and of its file.
struct Host {
    session: Session,
    xid: Cell<u32>,
    /// The handles as XDR opaques.
    share: Vec<u8>,
    file: Vec<u8>,
}

impl Host {
    fn new() -> Self {
        let (share, nodes) = RUNTIME.with(|r| share(1 << 20, r));
        let boot = Boot { write_verifier: 1, instance: 1 };
        let handles = Handles::new([1; 16]);
        let [root, file] = nodes.map(|node| {
            let mut w = Writer::new();
            w.opaque(handles.of_node(&share, &node.handle()).as_bytes());
            w.bytes().to_vec()
        });
        let namespace = Arc::new(Namespace::new(vec![share]));
        let core = ServerState::new(namespace, handles, boot, Clock::Manual(0.into()));
        let pool = Pool::new(PoolLimits { buffers_max: [4, 4, 4] });
        let (peer, local) = (([127, 0, 0, 1], 700).into(), ([127, 0, 0, 1], 2049).into());
        let info = Arc::new(Info::new(peer, local, Transport::Tcp, pool));
        let server = Server::new(core, [2; 16]);
        server.ports().set_tcp(2049);
        let session = server.session_of(info, Handle::detached(), ServedPrograms::All);
        Self { session, xid: 0.into(), share: root, file }
    }

    /// Replaces placeholders in the arguments by handles.
    fn with_handles(&self, args: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        let mut rest = args;
        while let Some((word, tail)) = rest.split_first_chunk::<8>() {
            match word {
                SHARE => all.extend_from_slice(&self.share),
                FILE => all.extend_from_slice(&self.file),
                _ => {
                    all.extend_from_slice(&rest[..4]);
                    rest = &rest[4..];
                    continue;
                }
            }
            rest = tail;
        }
        all.extend_from_slice(rest);
        all
    }

    /// The reply to an executed call.
    fn call(&self, program: u32, version: u32, number: u32, args: &[u8]) -> Option<Vec<u8>> {
        self.xid.set(self.xid.get() + 1);
        let mut w = Writer::new();
        for v in [self.xid.get(), 0, 2, program, version, number, 1, 20, 0, 0, 0, 0, 0, 0, 0] {
            w.u32(v);
        }
        let call = [w.bytes(), args].concat();
        let reply = RUNTIME.with(|r| r.block_on(self.session.call(Buf::from(call), vec![])))?;
        let mut flat: Vec<u8> = reply.pieces().flatten().copied().collect();
        // The call's number, REPLY, accepted, an empty verifier, then the accept status.
        let done = flat.get(20..24) == Some(&[0; 4][..]);
        done.then(|| flat.split_off(24))
    }
}

/// One call of every kind, and a sequence of them.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let calls = [of_locks(), of_hosts(), of_lists()].concat();
    let history = calls.concat();
    calls.into_iter().chain([history]).collect()
}

fn call(program: u8, number: u32, args: impl Fn(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::new();
    args(&mut w);
    let args = w.into_reply().head;
    let byte = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
    let number = u8::try_from(number).unwrap_or(u8::MAX);
    [&[program, number, byte(args.len())][..], &args].concat()
}

fn words(w: &mut Writer, values: &[u32]) {
    values.iter().for_each(|v| w.u32(*v));
}

fn of_locks() -> Vec<Vec<u8>> {
    let lock = |w: &mut Writer, flags: &[u32], svid: u32, tail: &[u32]| {
        w.opaque(b"c");
        words(w, flags);
        w.opaque(b"host");
        w.fixed(FILE);
        w.opaque(b"oh");
        w.u32(svid);
        w.u64(5);
        w.u64(10);
        words(w, tail);
    };
    let share = |w: &mut Writer| {
        w.opaque(b"c");
        w.opaque(b"host");
        w.fixed(FILE);
        w.opaque(b"oh");
        words(w, &[2, 3, 0]);
    };
    vec![
        call(0, p::LOCK, |w| lock(w, &[1, 1], 1, &[0, 3])),
        call(0, p::TEST, |w| lock(w, &[1], 2, &[])),
        call(0, p::LOCK, |w| lock(w, &[1, 1], 2, &[0, 3])),
        call(0, p::CANCEL, |w| lock(w, &[1, 1], 2, &[])),
        call(0, p::UNLOCK, |w| lock(w, &[], 1, &[])),
        call(0, p::SHARE, share),
        call(0, p::NM_LOCK, |w| lock(w, &[0, 0], 1, &[0, 3])),
        call(0, p::UNSHARE, share),
        call(0, p::GRANTED, |w| lock(w, &[1], 1, &[])),
    ]
}

fn of_hosts() -> Vec<Vec<u8>> {
    let named = |w: &mut Writer| {
        w.opaque(b"host");
        w.u32(3);
    };
    let address = |w: &mut Writer| {
        words(w, &[program::NSM, 1]);
        [&b"tcp"[..], b"0.0.0.0.8.1", b""].into_iter().for_each(|s| w.opaque(s));
    };
    vec![
        call(0, p::FREE_ALL, named),
        call(1, sm::STAT, |w| w.opaque(b"host")),
        call(1, sm::NOTIFY, named),
        call(2, 3, |w| words(w, &[program::NLM, 4, 6, 0])),
        call(2, 4, |_| {}),
        call(3, 3, address),
        call(4, 9, address),
    ]
}

fn of_lists() -> Vec<Vec<u8>> {
    // A list for mode 0750 with one additional user; a directory may also have a default list.
    let list = |w: &mut Writer, default: u32| {
        let entries = [[1, 0, 7], [2, 1001, 6], [4, 0, 5], [16, 0, 7], [32, 0, 0]];
        w.u32(5);
        w.count(entries.len());
        entries.iter().for_each(|[tag, id, bits]| words(w, &[tag | default, *id, *bits]));
    };
    let getacl = |w: &mut Writer, object: &[u8; 8]| {
        w.fixed(object);
        w.u32(15);
    };
    let setacl = |w: &mut Writer| {
        w.fixed(FILE);
        w.u32(3);
        list(w, 0);
        words(w, &[0, 0]);
    };
    let set_both = |w: &mut Writer| {
        w.fixed(SHARE);
        w.u32(15);
        list(w, 0);
        list(w, 0x1000);
    };
    vec![
        call(5, acl::GETACL, |w| getacl(w, FILE)),
        call(5, acl::GETACL, |w| getacl(w, SHARE)),
        call(5, acl::SETACL, setacl),
        call(5, acl::SETACL, set_both),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that does not recognize the handles would refuse all calls about files.
    #[test]
    fn seed_handles_are_recognized() {
        let all = |seed: &Vec<u8>| answers(seed);
        let told: Vec<Vec<u8>> = seeds().iter().flat_map(all).collect();
        let granted = [&b"\0\0\0\x01c\0\0\0"[..], &[0; 4]].concat();
        assert_eq!(told[0], granted, "LOCK");
        let lists = |answer: &&Vec<u8>| answer.len() > 150 && answer.starts_with(&[0; 4]);
        assert_eq!(told.iter().filter(lists).count(), 2 * 2, "GETACL");
    }

    /// The parser may leave trailing bytes of arguments unread.
    #[test]
    fn trailing_argument_bytes_are_ignored() {
        let args = [&FILE[..], &[0, 0, 0, 15], &[0; 8]].concat();
        let length = u8::try_from(args.len()).unwrap();
        assert_eq!(answers(&[&[5, 1, length][..], &args].concat()).len(), 1);
    }
}
