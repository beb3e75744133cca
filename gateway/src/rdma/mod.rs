//! Decides which addresses are served over RDMA, by which provider, and explains why not.
//!
//! *Operation.* [`host::Watcher`] reads addresses, devices, libraries and rights of the host. [`plan`] decides from these and
//! from `rdma:` of the configuration for every address. [`listeners`] opens the planned listeners, and follows the host while
//! the gateway runs. `check` shows the same decisions.
//!
//! *Errors.* An unusable device is reported in a sentence that names it and its remedy. It stops the start only if `rdma:
//! verbs` requires devices.

pub(crate) mod host;
pub(crate) mod listeners;
pub(crate) mod plan;
