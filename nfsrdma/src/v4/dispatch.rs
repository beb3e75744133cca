//! The table of operations of the three minor versions.

use rdma_transport::channel::boxed;

use super::compound::Compound;
use super::ops;
use super::status::Status;
use super::wire::op;

/// True if the operation is defined in this minor version; others get OP_ILLEGAL.
pub(super) fn is_known(opcode: u32, minor: u32) -> bool {
    let last = match minor {
        0 => op::RELEASE_LOCKOWNER,
        1 => op::RECLAIM_COMPLETE,
        _ => op::REMOVEXATTR,
    };
    (op::ACCESS..=last).contains(&opcode)
}

/// The largest result of an operation that is not idempotent, in bytes: it is refused before execution if the reply has no room for
/// that.
pub(super) fn result_reserve(opcode: u32) -> usize {
    match opcode {
        op::OPEN => 256,
        op::GET_DIR_DELEGATION => 128,
        op::CLOSE
        | op::CREATE
        | op::LINK
        | op::LOCK
        | op::LOCKU
        | op::OPEN_CONFIRM
        | op::OPEN_DOWNGRADE
        | op::REMOVE
        | op::RENAME
        | op::SETATTR
        | op::WRITE
        | op::COPY
        | op::SETXATTR
        | op::REMOVEXATTR => 64,
        _ => 8,
    }
}

/// True if a second execution could have another result. Opens and locks of minor version 0 have their own sequence numbers.
pub(super) fn changes_something(opcode: u32) -> bool {
    matches!(
        opcode,
        op::CREATE
            | op::DELEGRETURN
            | op::LINK
            | op::REMOVE
            | op::RENAME
            | op::SETATTR
            | op::SETCLIENTID_CONFIRM
    )
}

/// True if a failed result has a body, which the operation has written.
pub(super) fn error_has_body(opcode: u32, status: Status) -> bool {
    match opcode {
        op::LOCK | op::LOCKT => status == Status::Denied,
        op::SETATTR => true,
        op::SETCLIENTID => status == Status::ClidInUse,
        op::COPY => status == Status::OffloadNoReqs,
        _ => false,
    }
}

/// Performs an operation: decodes its arguments and encodes the body of its result. Large operations are boxed; otherwise the
/// future of every COMPOUND would have the size of the largest.
pub(super) async fn perform(cx: &mut Compound<'_>, opcode: u32) -> Result<(), Status> {
    if cx.minor > 0 {
        // RFC 8881 section 17: sessions made these operations obsolete.
        match opcode {
            op::OPEN_CONFIRM
            | op::RELEASE_LOCKOWNER
            | op::RENEW
            | op::SETCLIENTID
            | op::SETCLIENTID_CONFIRM => return Err(Status::NotSupp),
            _ => {}
        }
        if cx.client.as_ref().is_some_and(|client| client.enforces(opcode, cx.call)) {
            return Err(Status::WrongCred);
        }
    }
    match opcode {
        op::ACCESS => ops::access::access(cx).await,
        op::ALLOCATE => boxed(|| ops::allocate::allocate(cx)).await,
        op::BACKCHANNEL_CTL => ops::backchannel_ctl::backchannel_ctl(cx).await,
        op::BIND_CONN_TO_SESSION => ops::bind_conn_to_session::bind_conn_to_session(cx).await,
        op::CLONE => boxed(|| ops::clone::clone(cx)).await,
        op::CLOSE => ops::close::close(cx).await,
        op::COMMIT => ops::commit::commit(cx).await,
        op::COPY => boxed(|| ops::copy::copy(cx)).await,
        op::CREATE => boxed(|| ops::create::create(cx)).await,
        op::CREATE_SESSION => boxed(|| ops::create_session::create_session(cx)).await,
        op::DEALLOCATE => boxed(|| ops::allocate::deallocate(cx)).await,
        op::DELEGPURGE => ops::delegpurge::delegpurge(cx).await,
        op::DELEGRETURN => boxed(|| ops::delegreturn::delegreturn(cx)).await,
        op::DESTROY_CLIENTID => ops::destroy_clientid::destroy_clientid(cx).await,
        op::DESTROY_SESSION => ops::destroy_session::destroy_session(cx).await,
        op::EXCHANGE_ID => boxed(|| ops::exchange_id::exchange_id(cx)).await,
        op::FREE_STATEID => ops::free_stateid::free_stateid(cx).await,
        op::GETATTR => ops::getattr::getattr(cx).await,
        op::GETFH => ops::getfh::getfh(cx).await,
        op::GET_DIR_DELEGATION => ops::get_dir_delegation::get_dir_delegation(cx).await,
        op::GETXATTR => ops::xattr::getxattr(cx).await,
        op::IO_ADVISE => ops::io_advise::io_advise(cx).await,
        op::LINK => boxed(|| ops::link::link(cx)).await,
        op::LISTXATTRS => ops::xattr::listxattrs(cx).await,
        op::LOCK => boxed(|| ops::lock::lock(cx)).await,
        op::LOCKT => ops::lockt::lockt(cx).await,
        op::LOCKU => ops::locku::locku(cx).await,
        op::LOOKUP => ops::lookup::lookup(cx).await,
        op::LOOKUPP => boxed(|| ops::lookupp::lookupp(cx)).await,
        op::NVERIFY => boxed(|| ops::verify::nverify(cx)).await,
        op::OFFLOAD_CANCEL | op::OFFLOAD_STATUS => ops::copy::offload(cx).await,
        op::OPEN => boxed(|| ops::open::open(cx)).await,
        op::OPEN_CONFIRM => ops::open_confirm::open_confirm(cx).await,
        op::OPEN_DOWNGRADE => ops::open_downgrade::open_downgrade(cx).await,
        op::PUTFH => ops::putfh::putfh(cx).await,
        op::PUTPUBFH | op::PUTROOTFH => ops::putrootfh::putrootfh(cx).await,
        op::READ => ops::read::read(cx).await,
        op::READ_PLUS => boxed(|| ops::read_plus::read_plus(cx)).await,
        op::READDIR => boxed(|| ops::readdir::readdir(cx)).await,
        op::READLINK => ops::readlink::readlink(cx).await,
        op::RECLAIM_COMPLETE => ops::reclaim_complete::reclaim_complete(cx).await,
        op::RELEASE_LOCKOWNER => ops::release_lockowner::release_lockowner(cx).await,
        op::REMOVE => boxed(|| ops::remove::remove(cx)).await,
        op::REMOVEXATTR => boxed(|| ops::xattr::removexattr(cx)).await,
        op::RENAME => boxed(|| ops::rename::rename(cx)).await,
        op::RENEW => ops::renew::renew(cx).await,
        op::RESTOREFH => ops::restorefh::restorefh(cx).await,
        op::SAVEFH => ops::savefh::savefh(cx).await,
        op::SECINFO => ops::secinfo::secinfo(cx).await,
        op::SECINFO_NO_NAME => ops::secinfo::secinfo_no_name(cx).await,
        op::SEEK => boxed(|| ops::seek::seek(cx)).await,
        op::SEQUENCE => ops::sequence::sequence(cx).await,
        op::SETATTR => boxed(|| ops::setattr::setattr(cx)).await,
        op::SETCLIENTID => ops::setclientid::setclientid(cx).await,
        op::SETCLIENTID_CONFIRM => ops::setclientid_confirm::setclientid_confirm(cx).await,
        op::SETXATTR => boxed(|| ops::xattr::setxattr(cx)).await,
        op::TEST_STATEID => ops::test_stateid::test_stateid(cx).await,
        op::VERIFY => boxed(|| ops::verify::verify(cx)).await,
        op::WRITE => boxed(|| ops::write::write(cx)).await,
        // Named attributes, layouts, copies between servers, WRITE_SAME, SSV.
        _ => Err(Status::NotSupp),
    }
}
