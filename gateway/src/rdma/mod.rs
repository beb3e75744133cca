//! Which addresses are served by RDMA, by whom, and why not.
//!
//! *Operation.* [`host::Watcher`] asks the host: addresses, devices, libraries, rights. [`plan`] decides from that and from `rdma:`
//! of the configuration, for every address. [`listeners`] opens the listeners that were decided on, and follows the host while the
//! gateway runs. `check` shows the same decisions.
//!
//! *Errors.* A device that cannot be used is a sentence that names it and says what to do. It stops the start only where
//! `rdma: verbs` demands devices.

pub(crate) mod host;
pub(crate) mod listeners;
pub(crate) mod plan;
