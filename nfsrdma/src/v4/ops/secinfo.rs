//! SECINFO and SECINFO_NO_NAME (RFC 8881 sections 18.29 and 18.45): list the flavors that a share accepts. Pseudo folders accept
//! all.

use super::lookup::child;
use super::lookupp::parent;
use crate::v4::compound::{Compound, component};
use crate::v4::object::Object;
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::{Component4, RpcsecGssInfo, Secinfo4, Secinfos};
use nfs_proto::oncrpc::{AUTH_NONE, AUTH_SYS};
use nfs_proto::rpcsec_gss::GssService;
use vfs::namespace::{Flavor, Flavors};

/// 1.2.840.113554.1.2.2 in DER without its tag and length (RFC 1964 section 1).
const KRB5: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
const SECINFO_STYLE4_CURRENT_FH: u32 = 0;
const SECINFO_STYLE4_PARENT: u32 = 1;

pub(in crate::v4) async fn secinfo(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Component4 { name } = cx.args.value()?;
    let name = component(name)?;
    let of = match cx.named()? {
        // Files in a share need the flavor of the share.
        object if object.wants_flavor() => object.clone(),
        _ => child(cx, name).await?,
    };
    answer(cx, &of);
    Ok(())
}

pub(in crate::v4) async fn secinfo_no_name(cx: &mut Compound<'_>) -> Result<(), Status> {
    let style: u32 = cx.args.value()?;
    let current = cx.named()?.clone();
    let of = match style {
        SECINFO_STYLE4_CURRENT_FH => current,
        SECINFO_STYLE4_PARENT if current.wants_flavor() => current,
        SECINFO_STYLE4_PARENT => parent(cx).await?,
        _ => return Err(Status::BadXdr),
    };
    answer(cx, &of);
    Ok(())
}

/// Lists the flavors, strongest first. RFC 8881 section 2.6.3.1.1.8: the current file handle is consumed.
fn answer(cx: &mut Compound<'_>, of: &Object) {
    let sec = match of {
        // For an absent share, the other server decides.
        Object::Node(at) if !of.is_absent() => at.share.rules.sec,
        _ if cx.nfs.core.gss.is_served() => Flavor::ALL.into_iter().collect(),
        _ => Flavors::default(),
    };
    let secinfo = sec.iter().flat_map(told).collect();
    cx.out.value(&Secinfos { secinfo });
    if cx.minor > 0 {
        cx.current = None;
        cx.current_stateid = None;
    }
}

fn told(flavor: Flavor) -> Vec<Secinfo4<'static>> {
    let krb5 = |service: GssService| {
        vec![Secinfo4::RpcsecGss(RpcsecGssInfo { oid: KRB5, qop: 0, service: service as u32 })]
    };
    match flavor {
        Flavor::Krb5p => krb5(GssService::Privacy),
        Flavor::Krb5i => krb5(GssService::Integrity),
        Flavor::Krb5 => krb5(GssService::None),
        Flavor::Sys => vec![Secinfo4::Other(AUTH_SYS), Secinfo4::Other(AUTH_NONE)],
    }
}
