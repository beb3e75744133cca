//! Every number of this crate that bounds something a peer can ask for.

use std::time::Duration;

/// Largest RPC message without its bulk data, and largest bulk payload of one request, in bytes.
pub const RPC_PAYLOAD_MAX: usize = 1 << 20;
/// Largest RPC message on a byte stream: one payload and a generous head.
pub const RPC_RECORD_MAX: usize = RPC_PAYLOAD_MAX + (64 << 10);
/// Largest bulk payload of one SMB request, either way, in bytes: what servers tell as MaxReadSize and MaxWriteSize.
pub const SMB_PAYLOAD_MAX: usize = 8 << 20;
/// Largest SMB message on a byte stream: one payload and a generous head.
pub const SMB_MESSAGE_MAX: usize = SMB_PAYLOAD_MAX + (64 << 10);
/// Shortest SMB message: its protocol identifier, in bytes.
pub const SMB_MESSAGE_MIN: usize = 4;
/// Requests of one connection that may be in work at once; more stay unread (TCP) or without credit (RDMA).
pub const REQUESTS_IN_WORK_MAX: usize = 128;
/// The name of that limit; a connection that meets it waits, which is counted.
pub const REQUESTS_IN_WORK: &str = "requests-in-work";
/// Requests that the serve loop starts before it lets other tasks of the runtime run.
pub const REQUESTS_PER_TURN: usize = 64;
/// Time after which it does so whatever the number of requests; the one that has begun is not interrupted.
pub const TURN_MAX: Duration = Duration::from_millis(1);
/// Polls of tasks after which a busy worker looks for sockets and timers.
pub const POLLS_BEFORE_IO: u32 = 16;

/// Fragments of one record on a byte stream (RFC 5531 section 11): some libraries cut every 4,000 bytes.
pub const RECORD_FRAGMENTS_MAX: usize = 2048;
/// Fragments without data in one record. They mean nothing, so a few are a quirk and many are an attack.
pub const RECORD_EMPTY_FRAGMENTS_MAX: usize = 16;
/// Shortest RPC message: the transaction id and the message type, in bytes.
pub const RPC_MESSAGE_MIN: usize = 8;
/// First bytes of a large record that must be there before its bulk data is looked for; every head that real clients
/// send (credentials with 16 groups, SEQUENCE, a 128-byte handle) is shorter.
pub const RECORD_LOCATE_MIN: usize = 1024;
/// Bytes of a record behind its bulk data that the direct path takes (operations behind a WRITE in a COMPOUND).
pub const RECORD_TAIL_MAX: usize = 4096;
/// Receive buffer of a byte stream with little traffic, in bytes.
pub const TCP_RECV_SMALL: usize = 4 << 10;
/// Receive buffer of a busy byte stream, in bytes.
pub const TCP_RECV_LARGE: usize = 64 << 10;
/// Bytes of TLS records that one connection reads at a time, and that it encrypts before the socket has taken them.
pub const TLS_RECORDS_MAX: usize = 64 << 10;
/// Bytes of replies that are gathered before they leave although there are further requests.
pub const REPLY_GATHER_MAX: usize = 256 << 10;
/// Bytes of replies that may wait for a slow reader before no more requests are read from it: the largest there is, so that the
/// next is made ready while it leaves.
pub const REPLY_BACKLOG_MAX: usize = (8 << 20) + 4096;
/// Bytes of replies that a socket has refused to take before reads of its connection wait: what it has taken keeps the network busy
/// meanwhile. Above [`REPLY_BACKLOG_MAX`] nothing at all is read from the peer.
pub const UNTAKEN_MAX: usize = 64 << 10;
/// So many more for a peer that keeps up: one large answer, so that the next is made ready while it leaves. Without them answers of
/// 4 KiB would leave in small heaps, and large ones would be read and sent by turns.
pub const UNTAKEN_MORE: usize = 1 << 20;
/// A peer has earned one of those bytes with so many that it took.
pub const UNTAKEN_EARNED_BY: usize = 128;
/// The name of that limit, met by a connection whose reads waited for it for a second.
pub const UNTAKEN: &str = "answers-not-taken";
/// Bytes that a card has to send before reads of its connection wait: it needs some in its queue to be kept busy.
pub const VERBS_UNTAKEN_MAX: usize = 4 << 20;
/// Pieces that one system call sends.
pub const WRITEV_PIECES_MAX: usize = 128;
/// So many seconds has a peer with a message half sent or half taken: at any time it has moved [`STALL_BYTES_MIN`]
/// in the last of them.
pub const STALL_SECONDS_MAX: u64 = 60;
/// The name of that limit; a connection that meets it ends.
pub const STALL: &str = "no-progress";
/// So many seconds has one that holds memory of the pool by not taking its answers, while others wait for memory.
pub const STALL_SECONDS_PRESSED: u64 = 5;
/// So many have further ones of its address after that, since the connections that replace those that were ended are as deaf.
pub const STALL_SECONDS_AGAIN: u64 = 1;
/// For so many seconds after the last one.
pub const STALL_AGAIN_SECONDS: u64 = 60;
/// Bytes that a peer must move in [`STALL_SECONDS_PRESSED`], and in a shorter time its part of them.
pub const STALL_BYTES_PRESSED: usize = 1 << 10;
/// The name of that limit; a connection that meets it ends.
pub const STALL_PRESSED: &str = "no-progress-while-others-wait";
/// Bytes that a peer must move in [`STALL_SECONDS_MAX`], so that nobody holds memory by a trickle.
pub const STALL_BYTES_MIN: usize = 16 << 10;
/// Bytes of a message that is put together on the heap and counts for nobody: so much for each request in work, at most.
pub const HEAP_FREE_MAX: usize = 1 << 10;
/// The name of the bound on those that are longer, in all; a connection that meets it is read no further meanwhile.
pub const LARGE_MESSAGES: &str = "large-messages";

/// The data of a request waits so long for payload memory, as a READ does.
pub const MEMORY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Requests that begin to wait so soon after one was refused came with it, and are refused too.
pub const MEMORY_WAIT_BEHIND: Duration = Duration::from_secs(1);
/// The name of that limit; the request is refused, and its connection stays.
pub const MEMORY_WAIT: &str = "memory-wait";

/// Callbacks of one connection that wait for their answers.
pub const CALLS_WAITING_MAX: usize = 64;
/// Commands of other tasks to one connection that wait to be taken.
pub const COMMANDS_WAITING_MAX: usize = 32;

/// Requests that one RPC-over-RDMA connection may have under way: credits granted in every reply, each backed by a
/// posted Receive (RFC 8166 section 3.3.1).
pub const RPCRDMA_CREDITS: u16 = 64;
/// Credits that it grants until its client has introduced itself, and where receives are scarce.
pub const RPCRDMA_CREDITS_FEW: u16 = 4;
/// Callbacks under way on one RPC-over-RDMA connection (RFC 8167 section 4.1); as many Receives wait for their replies.
pub const RPCRDMA_CREDITS_REVERSE: u16 = 4;
/// Receive buffer, and largest Send either way, in bytes. Told to the peer (RFC 8797).
pub const RPCRDMA_INLINE: usize = 4096;
/// Inline threshold towards a peer that tells nothing (RFC 8166 section 3.3.2).
pub const RPCRDMA_INLINE_DEFAULT: usize = 1024;
/// Segments in the chunk lists of one message. A header of [`RPCRDMA_INLINE`] bytes has room for fewer.
pub const RPCRDMA_SEGMENTS_MAX: usize = 256;
/// Chunks in one list. COMPOUNDs with several READs or WRITEs are rare; real clients use one.
pub const RPCRDMA_CHUNKS_MAX: usize = 16;
/// Bytes that one connection fetches by RDMA Read at once; a peer that does not answer Reads holds no more of the pool.
pub const RPCRDMA_FETCHING_MAX: usize = 8 << 20;
/// Work requests posted at once on one RPC-over-RDMA connection; more wait in its queue.
pub const RPCRDMA_SENDS_MAX: usize = 256;
/// RDMA Reads that this side wants on the wire at once.
pub const RPCRDMA_READS_OUT: u16 = 32;
/// Messages that break a rule and are answered before the connection ends: each costs a Send that the peer may not take.
pub const RPCRDMA_ERRORS_MAX: usize = 16;
/// Largest RPC message of a long call that comes with a payload too long to share a buffer with it, in bytes.
pub const RPCRDMA_LONG_CALL_MAX: usize = 64 << 10;

/// Receives that one SMB Direct connection has posted and granted at most, and credits that it asks for: what Windows and
/// Linux use (MS-SMBD section 3.1.1.1, ReceiveCreditMax and SendCreditTarget).
pub const SMBD_CREDITS_MAX: u16 = 255;
/// Receives that an SMB Direct connection grants at least, whatever its peer asks for, so that two sides with one credit each
/// need not answer every grant by a grant.
pub const SMBD_CREDITS_MIN: u16 = 4;
/// Largest message in fragments that is taken before a logon, in bytes: the first messages of a client have less.
pub const SMBD_FRAGMENTED_STRANGER_MAX: usize = 64 << 10;
/// Replies after which a connection that has fewer credits than its protocol uses asks for more again.
pub const REPLIES_BEFORE_CREDITS: u32 = 32;
/// Largest SMB Direct message taken, in bytes: one receive buffer (MaxReceiveSize).
pub const SMBD_RECV_SIZE: usize = 4096;
/// Largest SMB Direct message sent, in bytes, if the peer takes as much (MaxSendSize). Windows takes 8,192, and refuses to be
/// asked for more than 8,136.
pub const SMBD_SEND_SIZE: usize = 8136;
/// Smallest size of an SMB Direct message that a peer may ask for, in bytes (MS-SMBD section 3.1.5.6).
pub const SMBD_SIZE_MIN: usize = 128;
/// Smallest size of a message in fragments that a peer must take, in bytes (MS-SMBD section 3.1.5.6).
pub const SMBD_FRAGMENTED_MIN: usize = 131_072;
/// Largest message taken in fragments, in bytes (MaxFragmentedRecvSize): what Windows takes, and one payload buffer.
pub const SMBD_FRAGMENTED_RECV_MAX: usize = 1 << 20;
/// Bytes that one SMB Direct connection fetches by RDMA Read at once; a peer that does not answer Reads holds no more of the
/// pool.
pub const SMBD_FETCHING_MAX: usize = 2 * SMB_PAYLOAD_MAX;
/// Fetches that wait on one SMB Direct connection before those who ask for more have to wait.
pub const SMBD_PULLS_WAITING_MAX: usize = 256;
/// Work requests posted at once on one SMB Direct connection; more wait in its queue.
pub const SMBD_SENDS_MAX: usize = 512;
/// RDMA Reads that this side wants on the wire at once.
pub const SMBD_READS_OUT: u16 = 32;
/// Descriptors of one request: those that fit the 16 bits of their length in bytes (MS-SMB2 section 2.2.21).
pub const SMBD_DESCRIPTORS_MAX: usize = 4095;
/// Seconds for the negotiation after a connection was accepted (MS-SMBD section 3.1.2.1).
pub const SMBD_ACCEPT_SECONDS: u64 = 5;
/// Seconds for the negotiation after a connection was dialled.
pub const SMBD_CONNECT_SECONDS: u64 = 120;
/// Seconds without a message after which a peer is asked for one (MS-SMBD section 3.1.2.2).
pub const SMBD_IDLE_SECONDS: u64 = 120;
/// Seconds in which it must answer.
pub const SMBD_RESPONSE_SECONDS: u64 = 5;
/// Seconds without a credit for a message that waits (MS-SMBD section 3.1.2.3).
pub const SMBD_CREDIT_SECONDS: u64 = 5;

/// A silent connection is probed after this many seconds.
pub const KEEPALIVE_IDLE_SECONDS: u64 = 60;
/// Seconds between probes.
pub const KEEPALIVE_INTERVAL_SECONDS: u64 = 10;
/// Probes without an answer that end a connection.
pub const KEEPALIVE_PROBES_MAX: u32 = 6;

/// Connections that the kernel holds for an iWARP listener until they are accepted.
pub const IWARP_BACKLOG: u32 = 1024;
/// Regions registered at once on one iWARP connection.
pub const IWARP_REGIONS_MAX: usize = 4096;
/// Pieces of one Send over iWARP.
pub const IWARP_SEND_PIECES_MAX: usize = 64;
/// Segments of one RDMA Read over iWARP, each a Read Request of its own.
pub const IWARP_READ_SEGMENTS_MAX: usize = 4096;

/// Connections that a card holds for a listener until they are accepted.
pub const VERBS_BACKLOG: i32 = 1024;
/// Regions registered at once on one connection over a card.
pub const VERBS_REGIONS_MAX: usize = 1024;
/// Pieces of one Send over a card; more than it takes at once are gathered.
pub const VERBS_SEND_PIECES_MAX: usize = 64;
/// Receives that are posted before a connection is accepted, for messages that come before the protocol posted its own. Both
/// protocols begin with one credit.
pub const VERBS_EARLY_RECVS: usize = 2;

/// What to do where a client is to have more than this limit lets it; docs/limits.md has them all.
pub fn remedy(limit: &str) -> &'static str {
    match limit {
        "opens-of-session" | "opens-of-client" | "locks-of-client" | "nfs-opens-of-address" => {
            "close files on the client, or raise `limits.client_opens`"
        }
        "nfs-clients" | "nfs-clients-of-address" => "raise `limits.nfs_clients`",
        "nfs-kept-replies" | LARGE_MESSAGES => "raise `memory`",
        "kerberos" | "kerberos-nfs" => {
            "see why the disk of the keytab or the name service of the gateway's host does not answer"
        }
        "name-service" | "client-names" => {
            "see why the name service of the gateway's host does not answer"
        }
        _ => "let the client use less at once: this limit is fixed",
    }
}
