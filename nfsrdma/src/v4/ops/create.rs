//! CREATE (RFC 8881 section 18.4): makes all types but regular files, which OPEN makes.

use nfs_proto::nfs4::ops::{Create, Created, Createtype4};
use vfs::backend::Made;
use vfs::{Kind, Special};

use crate::v4::attrs::{Purpose, ToSet, supported};
use crate::v4::compound::{Compound, change_info, component};
use crate::v4::limits::LINKTEXT_MAX;
use crate::v4::object::{Located, Object};
use crate::v4::status::Status;
use crate::v4::wire::attr;

enum Wanted<'a> {
    Dir,
    Link(&'a [u8]),
    Special(Special),
}

pub(in crate::v4) async fn create(cx: &mut Compound<'_>) -> Result<(), Status> {
    let Create { objtype, objname, createattrs } = cx.args.value()?;
    let wanted = wanted(objtype)?;
    let name = component(objname)?;
    let at = cx.directory()?;
    let caps = at.share.backend.capabilities_of(&at.node);
    let mut to_set = cx.to_set(&createattrs, &supported(cx.minor, &caps), Purpose::Make).await?;
    if to_set.named.has(attr::SIZE) {
        return Err(Status::Inval);
    }
    if matches!(wanted, Wanted::Link(_)) {
        // Symbolic links have no permissions: mode and list are reported as not set.
        to_set.set.mode = None;
        to_set.mode_masked = None;
        to_set.acl = None;
        to_set.named = to_set.named.without(&ToSet::PERMISSION);
    }
    let kind = if matches!(wanted, Wanted::Dir) { Kind::Dir } else { Kind::File };
    to_set.check_list(&at.share, kind)?;
    let made = make(cx, &at, name, &wanted, &to_set).await?;
    let dated = to_set.date_new(&cx.file_ops(), &at.share, &made.node).await;
    let object = Object::Node(at.beside(made.node));
    let attrset = to_set.done_of(&made.attr).or(&dated);
    cx.out.value(&Created { cinfo: change_info(&made.dir), attrset });
    cx.set_current(object);
    Ok(())
}

fn wanted(objtype: Createtype4<'_>) -> Result<Wanted<'_>, Status> {
    Ok(match objtype {
        Createtype4::Dir => Wanted::Dir,
        Createtype4::Blk(d) => Wanted::Special(Special::Block(d.specdata1, d.specdata2)),
        Createtype4::Chr(d) => Wanted::Special(Special::Char(d.specdata1, d.specdata2)),
        Createtype4::Lnk(b"") => return Err(Status::Inval),
        Createtype4::Lnk(target) if target.len() > LINKTEXT_MAX => return Err(Status::NameTooLong),
        Createtype4::Lnk(target) if target.contains(&0) => return Err(Status::BadChar),
        Createtype4::Lnk(target) => Wanted::Link(target),
        Createtype4::Sock => Wanted::Special(Special::Socket),
        Createtype4::Fifo => Wanted::Special(Special::Fifo),
        Createtype4::Other(_) => return Err(Status::BadType),
    })
}

async fn make(
    cx: &Compound<'_>,
    at: &Located,
    name: &[u8],
    wanted: &Wanted<'_>,
    to_set: &ToSet,
) -> Result<Made, Status> {
    let file_ops = cx.file_ops().with_list(to_set.list_of_new(), to_set);
    let set = to_set.with_mode(0o700);
    let (share, dir, cred) = (&at.share, &at.node, &at.cred);
    Ok(match *wanted {
        Wanted::Dir => file_ops.mkdir(share, dir, cred, name, set).await?,
        Wanted::Link(target) => file_ops.symlink(share, dir, cred, name, target, set).await?,
        Wanted::Special(what) => file_ops.mknod(share, dir, cred, name, what, set).await?,
    })
}
