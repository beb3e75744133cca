//! `server min protocol` of smb.conf.

/// The lowest dialect that `server min protocol` allows, if that is above SMB 2.
pub(super) struct Dialect {
    pub(super) whole: String,
    /// SMB 3.0 clients may connect. Each of them can encrypt; no SMB 2 client can.
    pub(super) is_3_0: bool,
}

impl Dialect {
    pub(super) fn lost(&self) -> String {
        let remedy = match self.is_3_0 {
            true => {
                "`smb: {encryption: required}`, or `encrypt: true` of the share, refuses clients of SMB 2"
            }
            false => "clients of SMB 2 and of earlier versions of SMB 3 could connect",
        };
        format!("`{}`: {remedy}", self.whole)
    }
}
