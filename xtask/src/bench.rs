//! Figures beside other servers. They are written down, never judged: a rate on a shared machine is not a test.

use crate::sh::{Outcome, Result};

/// `cargo xtask bench`.
pub(crate) fn command(_args: &[String]) -> Result<Outcome> {
    Err("bench is not there yet".into())
}
