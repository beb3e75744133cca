//! Measures parsing and serializing of READ, WRITE, CREATE with contexts, NEGOTIATE and a header, in nanoseconds each.
use std::hint::black_box;
use std::time::Instant;

use smb_proto::smb2::context::{Asked, DurableV2, Lease, LeaseV2, name};
use smb_proto::smb2::create::{self, Context, Disposition, access, option, share};
use smb_proto::smb2::negotiate_context::{NegotiateContext, SHA_512};
use smb_proto::smb2::rdma::Channel;
use smb_proto::smb2::{Command, FileId, Flags, Header, negotiate, put_utf16, read, write};

/// Runs 20 rounds and prints the best.
fn measure(name: &str, mut run: impl FnMut()) {
    const TIMES: u32 = 200_000;
    let best = (0..20).map(|_| {
        let start = Instant::now();
        (0..TIMES).for_each(|_| run());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
    });
    println!("{name}: {:.1} ns", best.fold(f64::INFINITY, f64::min));
}

/// Builds a message from a header and a body.
fn message(command: Command, body: &[u8]) -> Vec<u8> {
    let header = Header {
        credit_charge: 1,
        status: 0,
        command: command as u16,
        credits: 1,
        flags: Flags::default(),
        next: 0,
        message_id: 9,
        tree_or_async: Header::of_tree(5),
        session_id: 7,
        signature: [0; 16],
    };
    [&header.emit()[..], body].concat()
}

fn main() {
    let file = FileId { persistent: 1, volatile: 2 };
    let read = read::Request {
        padding: 80,
        flags: 0,
        length: 1 << 20,
        offset: 4096,
        file,
        minimum_count: 0,
        channel: Some(Channel::None),
        remaining: 0,
        descriptors: Vec::new(),
    };
    let write = write::Request {
        data_offset: write::Request::DATA_OFFSET,
        length: 1 << 20,
        offset: 4096,
        file,
        channel: Some(Channel::None),
        remaining: 0,
        flags: 0,
        descriptors: Vec::new(),
        transform: None,
    };
    let mut path = Vec::new();
    put_utf16(&mut path, "folder\\a file.txt");
    let v2 = Some(LeaseV2 { parent: [6; 16], epoch: 1 });
    let create = create::Request {
        oplock_level: create::oplock::LEASE,
        impersonation: 2,
        access: access::GENERIC_READ,
        attributes: 0x80,
        share: share::READ,
        disposition: Disposition::Open as u32,
        options: option::NON_DIRECTORY_FILE,
        name: path.into(),
        contexts: vec![
            DurableV2 { timeout: 0, flags: 0, guid: [5; 16] }.context(),
            Context::new(name::QUERY_MAXIMAL_ACCESS, Vec::new()),
            Context::new(name::QUERY_ON_DISK_ID, Vec::new()),
            Lease { key: [7; 16], state: 7, flags: 0, v2 }.context(),
        ],
    };
    let negotiate = negotiate::Request {
        security_mode: 1,
        capabilities: 0x7f,
        client_guid: [9; 16],
        dialects: vec![0x202, 0x210, 0x300, 0x302, 0x311],
        contexts: vec![
            NegotiateContext::Preauth { algorithms: vec![SHA_512], salt: &[5; 32] },
            NegotiateContext::Encryption(vec![2, 1, 4, 3]),
            NegotiateContext::Signing(vec![2, 1, 0]),
        ],
    };

    let bytes = message(Command::Read, &read.emit());
    measure("header, parse", || {
        let _ = black_box(Header::parse(black_box(&bytes)));
    });
    measure("READ, parse", || drop(black_box(read::Request::parse(black_box(&bytes)))));
    measure("READ, emit", || drop(black_box(black_box(&read).emit())));
    let bytes = message(Command::Write, &write.emit());
    measure("WRITE, parse", || drop(black_box(write::Request::parse(black_box(&bytes)))));
    measure("WRITE, emit", || drop(black_box(black_box(&write).emit())));
    let bytes = message(Command::Create, &create.emit());
    measure("CREATE, parse", || {
        let request = create::Request::parse(black_box(&bytes));
        let _ = request.map(|request| black_box(Asked::parse(&request.contexts)).is_ok());
    });
    measure("CREATE, emit", || drop(black_box(black_box(&create).emit())));
    let bytes = message(Command::Negotiate, &negotiate.emit());
    measure("NEGOTIATE, parse", || drop(black_box(negotiate::Request::parse(black_box(&bytes)))));
    measure("NEGOTIATE, emit", || drop(black_box(black_box(&negotiate).emit())));
}
