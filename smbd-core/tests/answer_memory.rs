//! The memory for an answer is bounded by its buffer, whatever the request names. Runs in its own process, whose memory it
//! measures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation, dead_code)]

#[path = "pipeline/peer.rs"]
mod peer;

use peer::{Offer, Peer, create, file, server};
use smb_proto::fscc::ea::{FullEa, emit_names};
use smb_proto::smb2::query_info::{Request, info_type};
use smb_proto::smb2::{Command, set_info};
use smbd_core::status::Status;

const FULL_EA: u8 = 15;

/// Returns the peak memory of this process, in KiB.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn values_named_often_are_read_until_full() {
    let server = server(|_| {});
    let mut peer = Peer::ready(&server, &Offer::default()).await;
    let file = file(&peer.ask(Command::Create, &create("f", 0)).await);
    let ea = FullEa { flags: 0, name: b"A".to_vec(), value: vec![b'v'; 60_000] };
    let set = set_info::Request {
        info_type: info_type::FILE,
        class: FULL_EA,
        additional: 0,
        file,
        buffer: ea.emit(),
    };
    assert_eq!(peer.ask(Command::SetInfo, &set.emit()).await.status(), Status::SUCCESS);
    let query = Request {
        info_type: info_type::FILE,
        class: FULL_EA,
        output_len: 65_536,
        additional: 0,
        flags: 0,
        file,
        input: emit_names(&vec![&b"A"[..]; 8000]),
    };
    let before = peak();
    let status = peer.ask(Command::QueryInfo, &query.emit()).await.status();
    assert_eq!(status, Status::BUFFER_OVERFLOW, "one value fits");
    assert!(peak() - before < 20_000, "{} KiB more", peak() - before);
}
