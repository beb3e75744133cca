//! The server as a client sees it, message by message: correct requests get their answers, wrong ones the errors of MS-SMB2.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod break_headers;
mod chains;
mod compressed;
mod headers;
mod logon;
mod negotiating;
mod peer;
mod protected;
mod transforms;
