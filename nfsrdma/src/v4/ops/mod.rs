//! The operations, one file each: `async fn name(cx) -> Result<(), Status>` decodes the arguments from `cx.args` and writes
//! the body of the result to `cx.out`; the loop writes opcode and status.

pub(super) mod getfh;
pub(super) mod putfh;
pub(super) mod putrootfh;
pub(super) mod restorefh;
pub(super) mod savefh;
