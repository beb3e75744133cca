//! WS-Discovery of April 2005, as Windows' Explorer looks for computers ([MS-PBSD], Devices Profile for Web Services).
//!
//! *Operation.* [`request::parse`] reads a message, [`Device`] answers it. The device's metadata, with the name that Explorer
//! shows, is read by HTTP ([`crate::metadata`]).

mod device;
pub mod request;

use std::net::{Ipv4Addr, Ipv6Addr};

pub use device::Device;

/// UDP port of WS-Discovery.
pub const PORT: u16 = 3702;
/// TCP port at which the metadata is read.
pub const HTTP_PORT: u16 = 5357;
/// Groups of WS-Discovery (WS-Discovery section 2.4).
pub const GROUP4: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
/// See [`GROUP4`].
pub const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xc);
/// Largest message in bytes. A Probe of Windows has a thousand.
pub const MESSAGE_MAX: usize = 8192;

/// Namespaces.
pub(crate) mod namespace {
    pub(crate) const SOAP: &str = "http://www.w3.org/2003/05/soap-envelope";
    pub(crate) const ADDRESSING: &str = "http://schemas.xmlsoap.org/ws/2004/08/addressing";
    pub(crate) const DISCOVERY: &str = "http://schemas.xmlsoap.org/ws/2005/04/discovery";
    pub(crate) const TRANSFER: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer";
    pub(crate) const METADATA: &str = "http://schemas.xmlsoap.org/ws/2004/09/mex";
    pub(crate) const PROFILE: &str = "http://schemas.xmlsoap.org/ws/2006/02/devprof";
    pub(crate) const PNPX: &str = "http://schemas.microsoft.com/windows/pnpx/2005/10";
    pub(crate) const PUBLICATION: &str = "http://schemas.microsoft.com/windows/pub/2005/07";
}
