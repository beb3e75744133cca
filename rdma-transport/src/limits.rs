//! Limits on what a peer can request.

use std::time::Duration;

/// Largest RPC message without its bulk data, and largest bulk payload of one request, in bytes.
pub const RPC_PAYLOAD_MAX: usize = 1 << 20;
/// Largest RPC message on a byte stream: one payload and room for the head.
pub const RPC_RECORD_MAX: usize = RPC_PAYLOAD_MAX + (64 << 10);
/// Largest bulk payload of one SMB request in either direction, in bytes: reported as MaxReadSize and MaxWriteSize.
pub const SMB_PAYLOAD_MAX: usize = 8 << 20;
/// Largest SMB message on a byte stream: one payload and room for the head.
pub const SMB_MESSAGE_MAX: usize = SMB_PAYLOAD_MAX + (64 << 10);
/// Shortest SMB message: its protocol identifier, in bytes.
pub const SMB_MESSAGE_MIN: usize = 4;
/// Requests of one connection executed concurrently; further ones remain unread (TCP) or without credit (RDMA).
pub const REQUESTS_IN_WORK_MAX: usize = 128;
/// The name of that limit; a connection that reaches it waits, which is counted.
pub const REQUESTS_IN_WORK: &str = "requests-in-work";
/// Requests that the serve loop starts before it yields to other tasks.
pub const REQUESTS_PER_TURN: usize = 64;
/// Time after which it yields whatever the number of requests; a started request is not interrupted.
pub const TURN_MAX: Duration = Duration::from_millis(1);
/// Polls of tasks after which a busy worker polls sockets and timers.
pub const POLLS_BEFORE_IO: u32 = 16;

/// Fragments of one record on a byte stream (RFC 5531 section 11): some libraries use fragments of 4,000 bytes.
pub const RECORD_FRAGMENTS_MAX: usize = 2048;
/// Empty fragments in one record. They have no effect: a few are a quirk, many are an attack.
pub const RECORD_EMPTY_FRAGMENTS_MAX: usize = 16;
/// Shortest RPC message: the transaction id and the message type, in bytes.
pub const RPC_MESSAGE_MIN: usize = 8;
/// Bytes of a large record that must have arrived before its bulk data is located; the heads of real clients (credentials with 16
/// groups, SEQUENCE, a 128-byte handle) are shorter.
pub const RECORD_LOCATE_MIN: usize = 1024;
/// Bytes of a record after its bulk data that the direct path accepts (operations after a WRITE in a COMPOUND).
pub const RECORD_TAIL_MAX: usize = 4096;
/// Receive buffer of a byte stream with little traffic, in bytes.
pub const TCP_RECV_SMALL: usize = 4 << 10;
/// Receive buffer of a busy byte stream, in bytes.
pub const TCP_RECV_LARGE: usize = 64 << 10;
/// Largest record with its mark, in bytes, that is gathered in a large receive buffer: a write of 32 KiB with what surrounds it.
/// Copying its beginning costs less than system calls of its own for the rest.
pub const TCP_GATHER_MAX: usize = (32 << 10) + RECORD_TAIL_MAX;
/// Bytes of TLS records that one connection reads at a time, and encrypts before the socket has taken them.
pub const TLS_RECORDS_MAX: usize = 64 << 10;
/// Bytes of replies collected before they are sent although further requests are available.
pub const REPLY_GATHER_MAX: usize = 256 << 10;
/// Bytes of replies that may wait for a slow peer before no more requests are read from it: the largest reply, so that the next one
/// is prepared meanwhile.
pub const REPLY_BACKLOG_MAX: usize = (8 << 20) + 4096;
/// Bytes of replies not yet taken by the socket before reads of the connection wait: the bytes already taken keep the network busy.
/// Above [`REPLY_BACKLOG_MAX`] the connection reads no requests at all.
pub const UNTAKEN_MAX: usize = 64 << 10;
/// Additional bytes for a peer that keeps up: one large reply, so that the next one is prepared while it is sent. Otherwise replies
/// of 4 KiB would leave in small batches, and large ones would be read and sent alternately.
pub const UNTAKEN_MORE: usize = 1 << 20;
/// A peer earns one of those bytes for each of this many bytes that it has taken.
pub const UNTAKEN_EARNED_BY: usize = 128;
/// The name of that limit, reached by a connection whose reads waited for a second.
pub const UNTAKEN: &str = "answers-not-taken";
/// Bytes queued in a card before reads of its connection wait: it needs some in its queue to stay busy.
pub const VERBS_UNTAKEN_MAX: usize = 4 << 20;
/// Pieces in one system call.
pub const WRITEV_PIECES_MAX: usize = 128;
/// Time limit of a peer with a message partly sent or received: it must have moved [`STALL_BYTES_MIN`] within the last seconds of
/// this number.
pub const STALL_SECONDS_MAX: u64 = 60;
/// The name of that limit, whose violation ends a connection.
pub const STALL: &str = "no-progress";
/// Seconds before a peer is disconnected that occupies pool memory by not taking its replies, while other connections wait for
/// memory.
pub const STALL_SECONDS_PRESSED: u64 = 5;
/// Seconds for further connections of that peer's address, since clients replace closed connections by equally stuck ones.
pub const STALL_SECONDS_AGAIN: u64 = 1;
/// How long that shorter limit applies after the last one, in seconds.
pub const STALL_AGAIN_SECONDS: u64 = 60;
/// Bytes that a peer must move in [`STALL_SECONDS_PRESSED`], and proportionally in a shorter time.
pub const STALL_BYTES_PRESSED: usize = 1 << 10;
/// The name of that limit, whose violation ends a connection.
pub const STALL_PRESSED: &str = "no-progress-while-others-wait";
/// Bytes that a peer must move in [`STALL_SECONDS_MAX`], so that no client occupies memory by sending a trickle.
pub const STALL_BYTES_MIN: usize = 16 << 10;
/// Bytes of a message assembled on the heap that are not counted: at most this much for each request in progress.
pub const HEAP_FREE_MAX: usize = 1 << 10;
/// The name of the total limit on longer messages; a connection that reaches it is not read meanwhile.
pub const LARGE_MESSAGES: &str = "large-messages";

/// How long the data of a request waits for payload memory, as a READ does.
pub const MEMORY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Requests that begin to wait this soon after another was refused were sent together with it, and are refused too.
pub const MEMORY_WAIT_BEHIND: Duration = Duration::from_secs(1);
/// The name of that limit; the request is refused, its connection stays open.
pub const MEMORY_WAIT: &str = "memory-wait";
/// How long a request waits for memory if it cannot be answered before it is read: longer than Windows waits for an answer.
pub const MESSAGE_WAIT_MAX: Duration = Duration::from_secs(90);
/// The name of that limit; the connection ends, and the client repeats its requests on the next one.
pub const MESSAGE_WAIT: &str = "message-memory-wait";

/// Callbacks of one connection that wait for replies.
pub const CALLS_WAITING_MAX: usize = 64;
/// Queued commands of other tasks to one connection.
pub const COMMANDS_WAITING_MAX: usize = 32;

/// Concurrent requests of one RPC-over-RDMA connection: credits granted in every reply, each backed by a posted Receive (RFC 8166
/// section 3.3.1).
pub const RPCRDMA_CREDITS: u16 = 64;
/// Credits granted until the client has introduced itself, and while receives are scarce.
pub const RPCRDMA_CREDITS_FEW: u16 = 4;
/// Concurrent callbacks on one RPC-over-RDMA connection (RFC 8167 section 4.1), with as many Receives for their replies.
pub const RPCRDMA_CREDITS_REVERSE: u16 = 4;
/// Receive buffer, and largest Send in either direction, in bytes. Announced to the peer (RFC 8797).
pub const RPCRDMA_INLINE: usize = 4096;
/// Inline threshold for a peer that announces none (RFC 8166 section 3.3.2).
pub const RPCRDMA_INLINE_DEFAULT: usize = 1024;
/// Segments in the chunk lists of one message. A header of [`RPCRDMA_INLINE`] bytes has room for fewer.
pub const RPCRDMA_SEGMENTS_MAX: usize = 256;
/// Chunks in one list. COMPOUNDs with several READs or WRITEs are rare; real clients use one.
pub const RPCRDMA_CHUNKS_MAX: usize = 16;
/// Bytes that one connection fetches by RDMA Read concurrently, so that a peer that does not respond to Reads occupies no more of
/// the pool.
pub const RPCRDMA_FETCHING_MAX: usize = 8 << 20;
/// Work requests posted at once on one RPC-over-RDMA connection; further ones are queued.
pub const RPCRDMA_SENDS_MAX: usize = 256;
/// Concurrent RDMA Reads that this side requests.
pub const RPCRDMA_READS_OUT: u16 = 32;
/// Messages with violations that are answered before the connection ends: each costs a Send that the peer may not take.
pub const RPCRDMA_ERRORS_MAX: usize = 16;
/// Largest RPC message of a long call whose payload is too large to share a buffer with it, in bytes.
pub const RPCRDMA_LONG_CALL_MAX: usize = 64 << 10;

/// Receives posted and granted on one SMB Direct connection, and credits requested: the values of Windows and Linux (MS-SMBD
/// section 3.1.1.1, ReceiveCreditMax and SendCreditTarget).
pub const SMBD_CREDITS_MAX: u16 = 255;
/// Minimum of Receives granted by an SMB Direct connection, whatever its peer requests, so that two sides with one credit each need
/// not answer every grant by a grant.
pub const SMBD_CREDITS_MIN: u16 = 4;
/// Largest fragmented message accepted before logon, in bytes: the first messages of clients are smaller.
pub const SMBD_FRAGMENTED_STRANGER_MAX: usize = 64 << 10;
/// Replies after which a connection with less than its full credits requests more again.
pub const REPLIES_BEFORE_CREDITS: u32 = 32;
/// Largest SMB Direct message accepted, in bytes: one receive buffer (MaxReceiveSize).
pub const SMBD_RECV_SIZE: usize = 4096;
/// Largest SMB Direct message sent, in bytes, if the peer accepts it (MaxSendSize). Windows accepts 8,192, and refuses a request
/// for more than 8,136.
pub const SMBD_SEND_SIZE: usize = 8136;
/// Smallest SMB Direct message size that a peer may request, in bytes (MS-SMBD section 3.1.5.6).
pub const SMBD_SIZE_MIN: usize = 128;
/// Smallest fragmented message size that a peer must accept, in bytes (MS-SMBD section 3.1.5.6).
pub const SMBD_FRAGMENTED_MIN: usize = 131_072;
/// Largest fragmented message accepted, in bytes (MaxFragmentedRecvSize): the value of Windows, and one payload buffer.
pub const SMBD_FRAGMENTED_RECV_MAX: usize = 1 << 20;
/// Bytes that one SMB Direct connection fetches by RDMA Read concurrently, so that a peer that does not respond to Reads occupies
/// no more of the pool.
pub const SMBD_FETCHING_MAX: usize = 2 * SMB_PAYLOAD_MAX;
/// Queued fetches of one SMB Direct connection before callers have to wait.
pub const SMBD_PULLS_WAITING_MAX: usize = 256;
/// Work requests posted at once on one SMB Direct connection; further ones are queued.
pub const SMBD_SENDS_MAX: usize = 512;
/// Concurrent RDMA Reads that this side requests.
pub const SMBD_READS_OUT: u16 = 32;
/// Descriptors of one request: as many as fit the 16-bit length in bytes (MS-SMB2 section 2.2.21).
pub const SMBD_DESCRIPTORS_MAX: usize = 4095;
/// Seconds for the negotiation after a connection was accepted (MS-SMBD section 3.1.2.1).
pub const SMBD_ACCEPT_SECONDS: u64 = 5;
/// Seconds for the negotiation after a connection was dialled.
pub const SMBD_CONNECT_SECONDS: u64 = 120;
/// Seconds without a message after which a keepalive is requested from the peer (MS-SMBD section 3.1.2.2).
pub const SMBD_IDLE_SECONDS: u64 = 120;
/// Seconds for the answer to it.
pub const SMBD_RESPONSE_SECONDS: u64 = 5;
/// Seconds that a queued message waits for a credit (MS-SMBD section 3.1.2.3).
pub const SMBD_CREDIT_SECONDS: u64 = 5;

/// A silent connection is probed after this many seconds.
pub const KEEPALIVE_IDLE_SECONDS: u64 = 60;
/// Seconds between probes.
pub const KEEPALIVE_INTERVAL_SECONDS: u64 = 10;
/// Unanswered probes that end a connection.
pub const KEEPALIVE_PROBES_MAX: u32 = 6;

/// Connections queued by the kernel for an iWARP listener until they are accepted.
pub const IWARP_BACKLOG: u32 = 1024;
/// Regions registered at once on one iWARP connection.
pub const IWARP_REGIONS_MAX: usize = 4096;
/// Pieces of one Send over iWARP.
pub const IWARP_SEND_PIECES_MAX: usize = 64;
/// Segments of one RDMA Read over iWARP, each a separate Read Request.
pub const IWARP_READ_SEGMENTS_MAX: usize = 4096;

/// Connections queued by a card for a listener until they are accepted.
pub const VERBS_BACKLOG: i32 = 1024;
/// Regions registered at once on one connection over a card.
pub const VERBS_REGIONS_MAX: usize = 1024;
/// Pieces of one Send over a card; more than the card supports are gathered.
pub const VERBS_SEND_PIECES_MAX: usize = 64;
/// Receives posted before a connection is accepted, for messages that arrive before the protocol has posted its own. Both protocols
/// begin with one credit.
pub const VERBS_EARLY_RECVS: usize = 2;
/// Receives that a device must support for a connection.
pub const VERBS_RECVS_MIN: u32 = 16;

/// The remedy for a client that needs more than this limit; docs/limits.md lists them all.
pub fn remedy(limit: &str) -> &'static str {
    match limit {
        "opens-of-session" | "opens-of-client" | "locks-of-client" | "nfs-opens-of-address" => {
            "close files on the client, or raise `limits.client_opens`"
        }
        "nfs-clients" | "nfs-clients-of-address" => "raise `limits.nfs_clients`",
        "nfs-kept-replies"
        | LARGE_MESSAGES
        | MESSAGE_WAIT
        | "rdma-first-receives"
        | "rdma-first-receives-of-address" => "raise `memory`",
        "rate-bytes" | "rate-bytes-of-address" => {
            "raise `memory`, or the rate that the client waits for"
        }
        "rate-wait" | "rate-waits" | "rate-waits-of-address" | "rate-waits-of-connection" => {
            "raise the rate in `limits` of the share, of the user, of each client (`limits.client`) or of all"
        }
        "kerberos" | "kerberos-nfs" => {
            "see why the disk of the keytab or the name service of the gateway's host does not answer"
        }
        "name-service" | "client-names" => {
            "see why the name service of the gateway's host does not answer"
        }
        _ => "let the client use less at once: this limit is fixed",
    }
}
