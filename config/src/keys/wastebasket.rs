//! Keys of a share's wastebasket.

use super::{Group, key};

pub(crate) const WASTEBASKET: Group = Group {
    name: "wastebasket",
    is_list: false,
    about: "Files that clients remove, over SMB or NFS, and files that a rename replaces go to the wastebasket of the share: a \
            folder of the gateway that no client can enter. `headgate wastebasket` lists them, gives them back and removes them. \
            A file stays with its owner there and counts to the owner's quota. Folders, links and files with another name are \
            removed, and data that a client overwrites in place is not kept. Only for shares with a `path` on this host. See \
            [operating](operating.md#the-wastebasket).",
    keys: &[
        key(
            "keep",
            "number with `d`, `h`, `m` or `s`, at most `3650d`",
            "30d",
            "How long files are kept.",
        ),
        key(
            "most",
            "size, like `50GiB`",
            "",
            "The storage that all kept files may have. Above it, the oldest files of the user that removed most are removed. If \
             not set: no limit but the file system's.",
        ),
        key(
            "exclude",
            "path in the share, name with `*` or `?`, or list of them",
            "",
            "Files that are removed at once. `tmp`, `a/b`: that folder of the share with everything below it; `*.tmp`: files of \
             such names in every folder; `**/cache`: files and folders of that name in every folder. Linux' \
             `.nfs*` files of removed files that are still open are never kept.",
        ),
    ],
};
