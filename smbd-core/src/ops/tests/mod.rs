//! File commands against an in-memory server, with the errors that clients can make in each.

mod appends;
mod attributes;
mod authority;
mod below;
mod chains;
mod changes;
mod compression;
mod create;
mod data;
mod delete;
mod dfs;
mod hold;
mod info;
mod ioctl;
mod links;
mod listing;
mod logon;
mod notices;
mod persist;
mod pipes;
mod posix;
mod reparse;
mod rights;
mod statuses;
mod store_faults;
mod symlinks;
