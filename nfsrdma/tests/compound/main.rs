//! COMPOUNDs against a server over memory.
#![allow(missing_docs, unreachable_pub)]

mod attrs;
mod data;
mod kit;
mod names;
mod readdir;
mod rules;
mod v42;
