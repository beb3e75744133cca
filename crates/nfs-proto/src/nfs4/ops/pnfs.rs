//! Operations of parallel NFS (RFC 8881 sections 18.40 to 18.44, RFC 7862 sections 15.6 and 15.7).

use super::{
    Bitmap4, LIST_MAX, Nfsstat4, Nfstime4, Stateid4, UNLIMITED, VERIFIER_SIZE, structs, union,
};

/// Length of a device id, in bytes.
pub const DEVICEID_SIZE: usize = 16;

structs! {
    /// `GETDEVICEINFO4args`.
    #[derive(Copy)]
    pub struct Getdeviceinfo {
        device_id: [u8; DEVICEID_SIZE],
        layout_type: u32,
        maxcount: u32,
        notify_types: Bitmap4,
    }

    /// `GETDEVICEINFO4resok`.
    #[derive(Copy)]
    pub struct Deviceinfo<'a> {
        layout_type: u32,
        addr_body: &'a [u8] as UNLIMITED,
        notification: Bitmap4,
    }

    /// `GETDEVICELIST4args`.
    #[derive(Copy)]
    pub struct Getdevicelist {
        layout_type: u32,
        maxdevices: u32,
        cookie: u64,
        cookieverf: [u8; VERIFIER_SIZE],
    }

    /// `GETDEVICELIST4resok`.
    pub struct Devicelist {
        cookie: u64,
        cookieverf: [u8; VERIFIER_SIZE],
        deviceid_list: Vec<[u8; DEVICEID_SIZE]> as LIST_MAX,
        eof: bool,
    }

    /// `layoutupdate4`, `layout_content4`.
    #[derive(Copy)]
    pub struct LayoutBody<'a> {
        layout_type: u32,
        body: &'a [u8] as UNLIMITED,
    }

    /// `LAYOUTCOMMIT4args`.
    #[derive(Copy)]
    pub struct Layoutcommit<'a> {
        offset: u64,
        length: u64,
        reclaim: bool,
        stateid: Stateid4,
        last_write_offset: Option<u64>,
        time_modify: Option<Nfstime4>,
        layoutupdate: LayoutBody<'a>,
    }

    /// `LAYOUTGET4args`.
    #[derive(Copy)]
    pub struct Layoutget {
        signal_layout_avail: bool,
        layout_type: u32,
        iomode: u32,
        offset: u64,
        length: u64,
        minlength: u64,
        stateid: Stateid4,
        maxcount: u32,
    }

    /// `layout4`.
    #[derive(Copy)]
    pub struct Layout4<'a> {
        offset: u64,
        length: u64,
        iomode: u32,
        content: LayoutBody<'a>,
    }

    /// `LAYOUTGET4resok`.
    pub struct Layouts<'a> {
        return_on_close: bool,
        stateid: Stateid4,
        layout: Vec<Layout4<'a>> as LIST_MAX,
    }

    /// `layoutreturn_file4`.
    #[derive(Copy)]
    pub struct LayoutreturnFile4<'a> {
        offset: u64,
        length: u64,
        stateid: Stateid4,
        body: &'a [u8] as UNLIMITED,
    }

    /// `LAYOUTRETURN4args`.
    #[derive(Copy)]
    pub struct Layoutreturn<'a> {
        reclaim: bool,
        layout_type: u32,
        iomode: u32,
        layoutreturn: Layoutreturn4<'a>,
    }

    /// `device_error4`.
    #[derive(Copy)]
    pub struct DeviceError4 {
        deviceid: [u8; DEVICEID_SIZE],
        status: Nfsstat4,
        opnum: u32,
    }

    /// `LAYOUTERROR4args`.
    pub struct Layouterror {
        offset: u64,
        length: u64,
        stateid: Stateid4,
        errors: Vec<DeviceError4> as LIST_MAX,
    }

    /// `io_info4`.
    #[derive(Copy)]
    pub struct IoInfo4 {
        count: u64,
        bytes: u64,
    }

    /// `LAYOUTSTATS4args`.
    #[derive(Copy)]
    pub struct Layoutstats<'a> {
        offset: u64,
        length: u64,
        stateid: Stateid4,
        read: IoInfo4,
        write: IoInfo4,
        deviceid: [u8; DEVICEID_SIZE],
        layoutupdate: LayoutBody<'a>,
    }
}

union! {
    /// `layoutreturn4`.
    #[derive(Copy)]
    pub enum Layoutreturn4<'a> switch "returntype" {
        1 => File(LayoutreturnFile4<'a>),
        2 => Fsid,
        3 => All,
    }
}
