//! ONC RPC and the NFS server: version 3 with MOUNT, versions 4.0 to 4.2.

pub mod xdr;
