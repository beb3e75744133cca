//! CREATE (RFC 8881 section 18.4): everything but regular files, which OPEN makes.

use vfs::Special;
use vfs::backend::Made;

use crate::v4::attrs::{Purpose, ToSet, supported};
use crate::v4::compound::{Compound, Located, Object};
use crate::v4::limits::LINKTEXT_MAX;
use crate::v4::status::Status;
use crate::v4::wire::attr;
use rdma_transport::xdr::XdrError;

enum Wanted<'a> {
    Dir,
    Link(&'a [u8]),
    Special(Special),
}

pub(in crate::v4) async fn create(cx: &mut Compound<'_>) -> Result<(), Status> {
    let wanted = wanted(cx)?;
    let name = cx.component()?;
    let at = cx.directory()?;
    let caps = at.share.backend.capabilities();
    let mut to_set = cx.take_to_set(&supported(cx.minor, &caps), Purpose::Make).await?;
    if to_set.named.has(attr::SIZE) {
        return Err(Status::Inval);
    }
    if matches!(wanted, Wanted::Link(_)) {
        // A link has no permission of its own; the client is told that neither mode nor list was set.
        to_set.set.mode = None;
        to_set.mode_masked = None;
        to_set.acl = None;
        to_set.named = to_set.named.without(&ToSet::PERMISSION);
    }
    let made = make(cx, &at, name, &wanted, &to_set).await?;
    let object = Object::Node(at.beside(made.node));
    cx.change_info(&made.dir);
    cx.out.value(&to_set.done_of(&made.attr));
    cx.set_current(object);
    Ok(())
}

/// `createtype4`.
fn wanted<'a>(cx: &mut Compound<'a>) -> Result<Wanted<'a>, Status> {
    Ok(match cx.args.u32()? {
        2 => Wanted::Dir,
        3 => Wanted::Special(Special::Block(cx.args.u32()?, cx.args.u32()?)),
        4 => Wanted::Special(Special::Char(cx.args.u32()?, cx.args.u32()?)),
        5 => match cx.args.opaque(LINKTEXT_MAX) {
            Ok(b"") => return Err(Status::Inval),
            Ok(target) if target.contains(&0) => return Err(Status::BadChar),
            Ok(target) => Wanted::Link(target),
            Err(XdrError::TooLong) => return Err(Status::NameTooLong),
            Err(_) => return Err(Status::BadXdr),
        },
        6 => Wanted::Special(Special::Socket),
        7 => Wanted::Special(Special::Fifo),
        _ => return Err(Status::BadType),
    })
}

async fn make(
    cx: &Compound<'_>,
    at: &Located,
    name: &[u8],
    wanted: &Wanted<'_>,
    to_set: &ToSet,
) -> Result<Made, Status> {
    let door = cx.door().with_list(to_set.list_of_new(), to_set);
    let set = to_set.with_mode(0o700);
    let (share, dir, cred) = (&at.share, &at.node, &at.cred);
    Ok(match *wanted {
        Wanted::Dir => door.mkdir(share, dir, cred, name, set).await?,
        Wanted::Link(target) => door.symlink(share, dir, cred, name, target, set).await?,
        Wanted::Special(what) => door.mknod(share, dir, cred, name, what, set).await?,
    })
}
