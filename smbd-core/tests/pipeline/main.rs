//! The server as a client meets it, message by message: what is right gets its answer, what is wrong gets what MS-SMB2 says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod break_headers;
mod chains;
mod headers;
mod logon;
mod negotiating;
mod peer;
mod protected;
mod transforms;
