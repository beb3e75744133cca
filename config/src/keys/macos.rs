//! Keys for macOS.

use super::{Group, key};

pub(crate) const TIME_MACHINE: Group = Group {
    name: "time_machine",
    is_list: false,
    about: "Time Machine of macOS finds the share as a place for backups, and its writes are durable when it asks for that. `{}` \
            needs no further key. See [macOS](macos.md#time-machine).",
    keys: &[key(
        "size",
        "size, like `1TiB`",
        "",
        "The size of the share that SMB clients see; the bands of the backups count as used. Time Machine removes old backups to \
         stay below it; the gateway refuses no write because of it. If not set: the size of the file system.",
    )],
};
