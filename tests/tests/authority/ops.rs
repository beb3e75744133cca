//! The operations on the file `d/f`, or in its folder `d`. `e` is a folder that all users may change, with a file of the caller.

/// An operation, in any protocol that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    Append,
    Truncate,
    /// Truncated by an open: UNCHECKED with a size of 0, FILE_OVERWRITE.
    Overwrite,
    /// FILE_SUPERSEDE of a file that exists.
    Supersede,
    /// FileAllocationInformation with 0.
    Allocation,
    /// ALLOCATE, fallocate(2).
    Allocate,
    /// FSCTL_SET_ZERO_DATA, DEALLOCATE.
    ZeroData,
    /// FSCTL_FILE_LEVEL_TRIM.
    Trim,
    /// FSCTL_SRV_COPYCHUNK_WRITE, COPY.
    Copy,
    /// FSCTL_SET_SPARSE.
    SetSparse,
    /// FILE_CREATE of a named stream, to read its attributes.
    Stream,
    Create,
    /// FILE_OPEN_IF of a name that is free; UNCHECKED.
    OpenIf,
    /// FILE_OVERWRITE_IF of a name that is free.
    OverwriteIf,
    /// FILE_SUPERSEDE of a name that is free.
    SupersedeNew,
    Mkdir,
    Symlink,
    Fifo,
    Device,
    Remove,
    /// FileDispositionInformation.
    Dispose,
    /// FileDispositionInformationEx with POSIX semantics.
    DisposePosix,
    RenameIn,
    RenameOut,
    Replace,
    /// FileRenameInformationEx with POSIX semantics.
    ReplacePosix,
    Link,
    LinkReplace,
    /// FileLinkInformationEx.
    LinkReplaceEx,
    Chmod,
    SetGroup,
    SetForeignGroup,
    GiveAway,
    SetTimes,
    /// The attributes of FileBasicInformation.
    SetAttributes,
    /// FileFullEaInformation, SETXATTR.
    SetEa,
    SetList,
}

impl Op {
    /// All operations, with the names used on the page.
    pub(crate) const ALL: [(Self, &str); 39] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Append, "append"),
        (Self::Truncate, "cut"),
        (Self::Overwrite, "empty by opening"),
        (Self::Supersede, "supersede"),
        (Self::Allocation, "cut its allocation"),
        (Self::Allocate, "reserve storage"),
        (Self::ZeroData, "clear a range"),
        (Self::Trim, "trim"),
        (Self::Copy, "copy into it"),
        (Self::SetSparse, "make sparse"),
        (Self::Stream, "make a stream of it"),
        (Self::Create, "make a file next to it"),
        (Self::OpenIf, "the same by open-if"),
        (Self::OverwriteIf, "by overwrite-if"),
        (Self::SupersedeNew, "by supersede"),
        (Self::Mkdir, "make a folder next to it"),
        (Self::Symlink, "make a symbolic link next to it"),
        (Self::Fifo, "make a pipe next to it"),
        (Self::Device, "make a device next to it"),
        (Self::Remove, "remove"),
        (Self::Dispose, "remove by disposition"),
        (Self::DisposePosix, "by POSIX disposition"),
        (Self::RenameIn, "rename in its folder"),
        (Self::RenameOut, "rename to a folder open to all"),
        (Self::Replace, "rename one's own file onto it"),
        (Self::ReplacePosix, "the same with POSIX semantics"),
        (Self::Link, "link in a folder open to all"),
        (Self::LinkReplace, "link one's own file over it"),
        (Self::LinkReplaceEx, "the same by the Ex class"),
        (Self::Chmod, "set the mode"),
        (Self::SetGroup, "give it to one's own group"),
        (Self::SetForeignGroup, "give it to another group"),
        (Self::GiveAway, "give it to another user"),
        (Self::SetTimes, "set times"),
        (Self::SetAttributes, "set DOS attributes"),
        (Self::SetEa, "set an extended attribute"),
        (Self::SetList, "set a list"),
    ];

    /// True if it creates an object with a mode.
    pub(crate) fn has_mode(self) -> bool {
        let makes = [Self::Create, Self::OpenIf, Self::OverwriteIf, Self::SupersedeNew];
        makes.contains(&self) || matches!(self, Self::Mkdir | Self::Fifo | Self::Device)
    }

    /// True if CephFS lacks the operation.
    pub(crate) fn is_not_of_ceph(self) -> bool {
        matches!(self, Self::Allocate | Self::Copy)
    }

    /// True if the operation leaves no visible effect on the host, so that only the answer counts.
    pub(crate) fn is_hidden(self) -> bool {
        matches!(
            self,
            Self::Read
                | Self::SetList
                | Self::Trim
                | Self::SetSparse
                | Self::Stream
                | Self::SetAttributes
                | Self::SetEa
        )
    }
}
