//! Runs whole COMPOUNDs: a server with memory volumes, a builder of arguments, a decoder of results.

use std::sync::Arc;
use std::time::Instant;

use iobuf::{Buf, Pool, PoolLimits};
use nfs_proto::nfs4::Nfsstat4;
use nfs_proto::rpcsec_gss::GssService;
use nfsrdma::clock::Clock;
use nfsrdma::context::{CallContext, Conn};
use nfsrdma::fh::Handles;
use nfsrdma::rpc::Flavor;
use nfsrdma::server_state::{Boot, ServerState};
use nfsrdma::v4::attrs::Bitmap;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};
use nfsrdma::v4::{Nfs4, Options};
use rdma_transport::channel::{Handle, Info, ReadChunkData, Reply, Transport};
use rdma_transport::xdr::{Reader, Writer};
use vfs::Acting;
use vfs::Cred;
use vfs::WriteBy;
use vfs::arbiter::Arbiter;
use vfs::backend::Backend;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::mem::MemBackend;
use vfs::namespace::{Cidr, Enforce, Namespace, Protocols, Rules, Share, Squash};

/// A server with the shares `data` and `more` for all clients, `hidden` for no client, and `frozen`, which is read-only.
pub struct Harness {
    pub nfs: Nfs4,
    pub conn: Arc<Conn>,
    pub cred: Cred,
    volumes: Vec<Arc<MemBackend>>,
}

/// The caller of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    pub flavor: Flavor,
    /// The fingerprint of the Kerberos principal.
    pub principal: u128,
    pub cred: Cred,
}

impl Caller {
    /// Authenticates calls with AUTH_SYS.
    pub fn sys(cred: &Cred) -> Self {
        Self { flavor: Flavor::Sys, principal: 0, cred: cred.clone() }
    }

    /// Authenticates calls with Kerberos.
    pub fn krb5(principal: u128, service: GssService, cred: Cred) -> Self {
        Self { flavor: Flavor::Gss(service), principal, cred }
    }
}

/// Builds a connection whose callbacks go to this handle.
pub fn conn(handle: Handle) -> Arc<Conn> {
    conn_from([10, 0, 0, 9], handle)
}

/// Builds a connection from this address.
pub fn conn_from(ip: [u8; 4], handle: Handle) -> Arc<Conn> {
    let info = Info::new(
        (ip, 700).into(),
        ([10, 0, 0, 1], 2049).into(),
        Transport::Tcp,
        Pool::new(PoolLimits::of_bytes(64 << 20)),
    );
    Arc::new(Conn::new(Arc::new(info), handle))
}

fn share(name: &str, backend: Arc<dyn Backend>, clients: Vec<Cidr>) -> Share {
    Share {
        name: name.into(),
        id: Share::id_of(name),
        backend,
        read_only: name == "frozen",
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: Some(clients.into_iter().map(Into::into).collect()),
        rules: Rules { hidden: name == "unlisted", ..Rules::default() },
    }
}

impl Harness {
    pub fn new() -> Self {
        Self::with(Options::default())
    }

    pub fn with(options: Options) -> Self {
        let volumes = (0..4).map(|_| MemBackend::new(64 << 20).unwrap()).collect();
        Self::run_of(7, volumes, options, Arbiter::default())
    }

    /// Builds a server with these limits on the holders of a file.
    pub fn within(limits: state::Limits) -> Self {
        let deadlines = state::Deadlines::new(1000, 2000).unwrap();
        let arbiter = Arbiter::new(state::Table::new(deadlines, limits, 0));
        let volumes = (0..4).map(|_| MemBackend::new(64 << 20).unwrap()).collect();
        Self::run_of(7, volumes, Options::default(), arbiter)
    }

    /// Starts a run of the server with this number.
    fn run_of(
        instance: u32,
        volumes: Vec<Arc<MemBackend>>,
        options: Options,
        arbiter: Arbiter,
    ) -> Self {
        let everybody = || vec![Cidr { addr: [0, 0, 0, 0].into(), bits: 0 }];
        let shares = vec![
            share("data", volumes[0].clone(), everybody()),
            share("more", volumes[1].clone(), everybody()),
            share("hidden", volumes[2].clone(), vec![]),
            share("frozen", volumes[3].clone(), everybody()),
            share("unlisted", volumes[0].clone(), everybody()),
        ];
        let boot = Boot { write_verifier: 0x1122_3344_5566_7788, instance };
        let clock = Clock::Manual(0.into());
        let namespace = Namespace::with_arbiter(shares, arbiter);
        let core = ServerState::new(namespace.into(), Handles::new([1; 16]), boot, clock);
        let nfs = Nfs4::with(Arc::new(core), options).unwrap();
        Self { nfs, conn: conn(Handle::detached()), cred: Cred::root(), volumes }
    }

    /// Kills the server and starts it again on the same volumes, with the clock at zero.
    pub fn restart(self, options: impl FnOnce() -> Options) -> Self {
        let Self { nfs, volumes, .. } = self;
        let instance = nfs.core.boot.instance + 1;
        // Closes the store, so that the next run can open it.
        drop(nfs);
        Self::run_of(instance, volumes, options(), Arbiter::default())
    }

    /// Reloads the configuration with a change of this share.
    pub fn reload(&self, name: &str, change: impl FnOnce(&mut Share)) {
        let of = |s: &Share| Share {
            name: s.name.clone(),
            id: s.id,
            backend: s.backend.clone(),
            protocols: s.protocols,
            read_only: s.read_only,
            squash: s.squash,
            nfs_locks: s.nfs_locks,
            clients: s.clients.clone(),
            rules: s.rules.clone(),
        };
        let mut shares: Vec<Share> =
            self.nfs.core.namespace.shares().iter().map(|share| of(share)).collect();
        change(shares.iter_mut().find(|share| share.name == name).unwrap());
        self.nfs.core.namespace.set_shares(shares.into_iter().map(Arc::new).collect());
    }

    /// Sets the server's clock to this time.
    pub fn at_ms(&self, ms: u64) {
        let Clock::Manual(now) = &self.nfs.core.clock else { panic!("a real clock") };
        now.store(ms, std::sync::atomic::Ordering::Relaxed);
    }

    /// Runs a COMPOUND of minor version 0.
    pub async fn run(&self, build: impl FnOnce(Args) -> Args) -> Results {
        self.run_minor(0, build).await
    }

    pub async fn run_minor(&self, minor: u32, build: impl FnOnce(Args) -> Args) -> Results {
        self.run_on(&self.conn, &self.cred, minor, build).await
    }

    /// Runs a COMPOUND of this caller on this connection.
    pub async fn run_on(
        &self,
        conn: &Arc<Conn>,
        cred: &Cred,
        minor: u32,
        build: impl FnOnce(Args) -> Args,
    ) -> Results {
        self.run_by(conn, &Caller::sys(cred), minor, build).await
    }

    pub async fn run_by(
        &self,
        conn: &Arc<Conn>,
        caller: &Caller,
        minor: u32,
        build: impl FnOnce(Args) -> Args,
    ) -> Results {
        let args = build(Args::default());
        let mut w = Writer::new();
        w.opaque(b"tag");
        w.u32(minor);
        w.count(args.count);
        w.fixed(args.w.bytes());
        let body = w.into_reply().head;
        let results = self.raw_on(conn, caller, body, &[]).await.expect("a readable COMPOUND");
        assert_eq!(results.tag, b"tag");
        results
    }

    /// Runs an encoded COMPOUND; `None` if its head cannot be decoded.
    pub async fn raw(&self, body: Vec<u8>, read_chunks: &[ReadChunkData]) -> Option<Results> {
        self.raw_on(&self.conn, &Caller::sys(&self.cred), body, read_chunks).await
    }

    async fn raw_on(
        &self,
        conn: &Arc<Conn>,
        caller: &Caller,
        body: Vec<u8>,
        read_chunks: &[ReadChunkData],
    ) -> Option<Results> {
        let body = Buf::from(body);
        let call = CallContext {
            xid: 1,
            flavor: caller.flavor,
            principal: caller.principal,
            peer: conn.info.peer.ip(),
            cred: caller.cred.clone(),
            began: Instant::now(),
            now: self.nfs.core.clock.now(),
        };
        let mut args = Reader::new(&body, read_chunks);
        let mut out = Writer::new();
        self.nfs.compound(conn, &call, &mut args, &mut out).await.ok()?;
        Some(Results::new(out.into_reply()))
    }

    /// Builds a server whose only share, `data`, is this folder.
    pub fn over_folder(root: &std::path::Path) -> Self {
        Self::over(LocalConfig::new(root))
    }

    /// Like [`Harness::over_folder`], with a full configuration of the volume.
    pub fn over(config: LocalConfig) -> Self {
        let local = LocalBackend::open(config).unwrap();
        let everybody = vec![Cidr { addr: [0, 0, 0, 0].into(), bits: 0 }];
        let boot = Boot { write_verifier: 0x1122_3344_5566_7788, instance: 7 };
        let clock = Clock::Manual(0.into());
        let shares = Namespace::new(vec![share("data", local, everybody)]).into();
        let core = ServerState::new(shares, Handles::new([1; 16]), boot, clock);
        let nfs = Nfs4::with(Arc::new(core), Options::default()).unwrap();
        Self { nfs, conn: conn(Handle::detached()), cred: Cred::root(), volumes: vec![] }
    }

    /// Creates a file in the share `data`, and returns the handles of both.
    pub async fn with_file(&self, name: &[u8], content: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let core = &self.nfs.core;
        let share = &core.namespace.share_named(b"data").unwrap();
        let root = share.backend.root();
        let set = vfs::SetAttr { mode: Some(0o644), ..Default::default() };
        let how = vfs::CreateHow::Guarded;
        let made = root.create(Acting::caller(&self.cred), name, how, set).await.unwrap();
        let data = vec![Buf::from(content.to_vec())];
        made.node.write(WriteBy::Open(None), 0, data, vfs::Stable::File).await.unwrap();
        let fh = |h| core.handles.of_node(share, &h).as_bytes().to_vec();
        (fh(root.handle()), fh(made.node.handle()))
    }
}

#[derive(Default)]
pub struct Args {
    w: Writer,
    count: usize,
}

impl Args {
    /// Appends an operation with its arguments.
    pub fn op(mut self, opcode: u32, args: impl FnOnce(&mut Writer)) -> Self {
        self.w.u32(opcode);
        args(&mut self.w);
        self.count += 1;
        self
    }

    pub fn root(self) -> Self {
        self.op(op::PUTROOTFH, |_| {})
    }

    pub fn putfh(self, fh: &[u8]) -> Self {
        self.op(op::PUTFH, |w| w.opaque(fh))
    }

    pub fn savefh(self) -> Self {
        self.op(op::SAVEFH, |_| {})
    }

    pub fn getfh(self) -> Self {
        self.op(op::GETFH, |_| {})
    }

    pub fn lookup(self, name: &[u8]) -> Self {
        self.op(op::LOOKUP, |w| w.opaque(name))
    }

    /// Moves to the share `data`.
    pub fn data(self) -> Self {
        self.root().lookup(b"data")
    }

    pub fn getattr(self, attrs: &[u32]) -> Self {
        self.op(op::GETATTR, |w| w.value(&Bitmap::of(attrs)))
    }

    pub fn read(self, at: u64, count: u32) -> Self {
        self.op(op::READ, |w| {
            w.value(&Stateid::ANONYMOUS);
            w.u64(at);
            w.u32(count);
        })
    }

    pub fn write(self, at: u64, stable: u32, data: &[u8]) -> Self {
        self.op(op::WRITE, |w| {
            w.value(&Stateid::ANONYMOUS);
            w.u64(at);
            w.u32(stable);
            w.opaque(data);
        })
    }

    /// CREATE of a directory with mode 0755.
    pub fn mkdir(self, name: &[u8]) -> Self {
        self.op(op::CREATE, |w| {
            w.u32(2);
            w.opaque(name);
            fattr(w, &[33], |v| v.u32(0o755));
        })
    }

    pub fn readdir(self, cookie: u64, dircount: u32, maxcount: u32, attrs: &[u32]) -> Self {
        self.op(op::READDIR, |w| {
            w.u64(cookie);
            w.fixed(&[0; 8]);
            w.u32(dircount);
            w.u32(maxcount);
            w.value(&Bitmap::of(attrs));
        })
    }
}

/// Writes `fattr4`.
pub fn fattr(w: &mut Writer, named: &[u32], values: impl FnOnce(&mut Writer)) {
    let mut inner = Writer::new();
    values(&mut inner);
    w.value(&Bitmap::of(named));
    w.opaque(inner.bytes());
}

/// A reply, decoded operation by operation.
#[derive(Debug)]
pub struct Results {
    pub status: Status,
    pub tag: Vec<u8>,
    /// Number of results not decoded yet.
    pub left: u32,
    /// Bulk data, by position in the head.
    pub payloads: usize,
    pub body: Vec<u8>,
    at: usize,
}

impl Results {
    fn new(reply: Reply) -> Self {
        let payloads = reply.payloads.len();
        let body = reply.pieces().flatten().copied().collect();
        let mut all = Self { status: Status::Ok, tag: vec![], left: 0, payloads, body, at: 0 };
        all.status = Nfsstat4::from_u32(all.u32()).map(Status).unwrap();
        all.tag = all.opaque();
        all.left = all.u32();
        all
    }

    pub fn remaining(&self) -> usize {
        self.body.len() - self.at
    }

    pub fn u32(&mut self) -> u32 {
        self.at += 4;
        u32::from_be_bytes(self.body[self.at - 4..self.at].try_into().unwrap())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    pub fn bool(&mut self) -> bool {
        match self.u32() {
            0 => false,
            1 => true,
            other => panic!("{other} is no bool"),
        }
    }

    pub fn fixed(&mut self, n: usize) -> Vec<u8> {
        let bytes = self.body[self.at..self.at + n].to_vec();
        let padded = n.next_multiple_of(4);
        assert!(self.body[self.at + n..self.at + padded].iter().all(|&b| b == 0));
        self.at += padded;
        bytes
    }

    pub fn opaque(&mut self) -> Vec<u8> {
        let n = self.u32() as usize;
        self.fixed(n)
    }

    /// Decodes the numbers of a `bitmap4`.
    pub fn bitmap(&mut self) -> Vec<u32> {
        let words = self.u32();
        let mut all = vec![];
        for i in 0..words {
            let word = self.u32();
            assert!(i + 1 < words || word != 0, "a trailing word of zeros");
            all.extend((0..32).filter(|b| word & (1 << b) != 0).map(|b| i * 32 + b));
        }
        all
    }

    /// Checks operation and status of the next result.
    pub fn expect(&mut self, opcode: u32, status: Status) -> &mut Self {
        assert!(self.left > 0, "no further result");
        self.left -= 1;
        let (found, code) = (self.u32(), self.u32());
        let code = Nfsstat4::from_u32(code).map(Status).unwrap();
        assert_eq!((op::name(found), code), (op::name(opcode), status));
        self
    }

    /// Checks that the next results are OK and without a body.
    pub fn ok(&mut self, opcodes: &[u32]) -> &mut Self {
        for &opcode in opcodes {
            self.expect(opcode, Status::Ok);
        }
        self
    }

    /// Checks that no results remain, and the status of the COMPOUND.
    pub fn end(&mut self, status: Status) {
        assert_eq!((self.left, self.status), (0, status));
        assert_eq!(self.at, self.body.len(), "bytes are left");
    }
}

/// A session of minor version 2 whose only slot is in use.
pub struct Session<'a> {
    harness: &'a Harness,
    id: Vec<u8>,
    sequence: std::cell::Cell<u32>,
}

impl Harness {
    pub async fn session(&self) -> Session<'_> {
        self.session_of(1 << 21, 1 << 12).await
    }

    /// Creates a session with these limits on replies and cached replies.
    pub async fn session_of(&self, reply_max: u32, cached_max: u32) -> Session<'_> {
        let exchange = |w: &mut Writer| {
            w.u64(0xabcd);
            w.opaque(b"a client");
            w.u32(0);
            w.u32(0);
            w.u32(0);
        };
        let mut r = self.run_minor(2, |c| c.op(op::EXCHANGE_ID, exchange)).await;
        r.expect(op::EXCHANGE_ID, Status::Ok);
        let (client, sequence) = (r.u64(), r.u32());
        let channel = |w: &mut Writer| {
            for n in [0, 1 << 21, reply_max, cached_max, 64, 1, 0] {
                w.u32(n);
            }
        };
        let create = |w: &mut Writer| {
            w.u64(client);
            w.u32(sequence);
            w.u32(0);
            channel(w);
            channel(w);
            w.u32(0x4000_0000);
            w.u32(1);
            w.u32(0);
        };
        let mut r = self.run_minor(2, |c| c.op(op::CREATE_SESSION, create)).await;
        r.expect(op::CREATE_SESSION, Status::Ok);
        Session { harness: self, id: r.fixed(16), sequence: 0.into() }
    }
}

impl Session<'_> {
    /// Runs a COMPOUND with SEQUENCE in front, whose result is decoded.
    pub async fn run(&self, build: impl FnOnce(Args) -> Args) -> Results {
        self.run_cached(false, build).await
    }

    pub async fn run_cached(&self, cache: bool, build: impl FnOnce(Args) -> Args) -> Results {
        self.sequence.set(self.sequence.get() + 1);
        let sequence = |w: &mut Writer| {
            w.fixed(&self.id);
            w.u32(self.sequence.get());
            w.u32(0);
            w.u32(0);
            w.bool(cache);
        };
        let mut r = self.harness.run_minor(2, |c| build(c.op(op::SEQUENCE, sequence))).await;
        r.expect(op::SEQUENCE, Status::Ok).fixed(36);
        r
    }
}
