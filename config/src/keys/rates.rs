//! Keys of rates.

use super::{Group, Key, key};

pub(super) const READ: Key = key(
    "read",
    "size for each second, like `500MiB/s`",
    "",
    "File data that may be read, from `64KiB/s` on. If not set: no limit, as for the others.",
);
pub(super) const WRITE: Key = key(
    "write",
    "the same",
    "",
    "File data that may be written, copies within the server included.",
);
pub(super) const OPERATIONS: Key = key(
    "operations",
    "number for each second, like `20000/s`",
    "",
    "Operations on files and folders, reads and writes included, from `10/s` on. Those that give something back, like CLOSE, \
     unlocking and the return of a delegation, do not count.",
);
pub(super) const READ_OPERATIONS: Key =
    key("read_operations", "the same", "", "Operations that read file data.");
pub(super) const WRITE_OPERATIONS: Key =
    key("write_operations", "the same", "", "Operations that write file data.");
pub(super) const BURST: Key = key(
    "burst",
    "time from `10ms` to `60s`",
    "1s",
    "What may pass at once after idle time, as the time in which the rates would pass it.",
);

pub(crate) const RATES: Group = Group {
    name: "rates",
    is_list: false,
    about: "The `limits` of a share, of a user, and of `limits.client`; `limits` at the top has the same keys for all clients \
            together. A request that exceeds a rate waits, over RDMA as over TCP, and those that wait take turns. Each \
            gateway counts for itself. A reload changes rates at once, for requests that wait as well. See \
            [tuning](tuning.md#rates).",
    keys: &[READ, WRITE, OPERATIONS, READ_OPERATIONS, WRITE_OPERATIONS, BURST],
};
