//! The operations by SMB.

use client::connect::Local;
use client::smb::{Options, Smb, SmbFile};
use client::{Error, Result};
use headgate_tests::world::{World, buf};
use smbd_core::dtyp::descriptor::control;
use smbd_core::dtyp::{Ace, Acl, SecurityDescriptor, Sid, mask};
use smbd_core::status::Status;
use smbd_core::wire::create::{Disposition, option};
use smbd_core::wire::query_info::security_information as part;

use crate::{Caller, Cell, FOREIGN, NEW, OLD, Op, user};

pub(crate) async fn connect(world: &World, caller: Caller) -> Smb {
    let (at, share) = (world.running.smb[0], ("127.0.0.1", "data"));
    Smb::connect(at, false, share, &user(caller), Options::default(), &Local::default())
        .await
        .unwrap()
}

/// `None` for what it has no operation for.
pub(crate) async fn by_smb(smb: &Smb, cell: &Cell, op: Op, caller: Caller) -> Option<bool> {
    let none = [Op::Symlink, Op::Fifo, Op::Device, Op::Chmod, Op::SetTimes];
    if none.contains(&op) {
        return None;
    }
    Some(match act(smb, cell, op, caller).await {
        Ok(()) => true,
        Err(Error::Smb(_, Status::ACCESS_DENIED | Status::INVALID_OWNER)) => false,
        Err(e) => panic!("{op:?} by {caller:?}, SMB: {e}"),
    })
}

/// Opens with one right, does it and closes.
async fn with(
    smb: &Smb,
    (name, access): (&str, u32),
    act: impl AsyncFnOnce(&SmbFile) -> Result<()>,
) -> Result<()> {
    let file = smb.open(name, access, Disposition::Open, 0).await?;
    let done = act(&file).await;
    smb.close(file).await?;
    done
}

async fn act(smb: &Smb, cell: &Cell, op: Op, caller: Caller) -> Result<()> {
    let at = |name: &str| format!("{}\\{name}", cell.name);
    let (f, own) = (at("d\\f"), at("e\\own"));
    let owned = async |owner: Option<u32>, group: Option<u32>| {
        let parts = if owner.is_some() { part::OWNER } else { part::GROUP };
        let sd = SecurityDescriptor {
            owner: owner.map(Sid::unix_user),
            group: group.map(Sid::unix_group),
            ..SecurityDescriptor::default()
        };
        let set = async |file: &SmbFile| smb.set_security(file, parts, sd.emit()).await;
        with(smb, (&f, mask::WRITE_OWNER), set).await
    };
    let makes = async |options: u32| {
        let all = mask::READ_ATTRIBUTES;
        let made = smb.open(&at("d\\n"), all, Disposition::Create, options).await?;
        smb.close(made).await
    };
    match op {
        Op::Read => {
            let read = async |file: &SmbFile| {
                let data = smb.read(file, 0, 100).await?;
                assert_eq!(data.iter().map(|b| b.len()).sum::<usize>(), OLD.len());
                Ok(())
            };
            with(smb, (&f, mask::READ_DATA), read).await
        }
        Op::Write => {
            let write = async |file: &SmbFile| smb.write(file, 0, vec![buf(NEW)]).await.map(drop);
            with(smb, (&f, mask::WRITE_DATA), write).await
        }
        Op::Truncate => {
            with(smb, (&f, mask::WRITE_DATA), async |file| smb.set_size(file, 1).await).await
        }
        Op::Create => makes(option::NON_DIRECTORY_FILE).await,
        Op::Mkdir => makes(option::DIRECTORY_FILE).await,
        Op::Remove => smb.unlink(&f).await,
        Op::RenameIn | Op::RenameOut => {
            let to = at(if op == Op::RenameIn { "d\\g" } else { "e\\g" });
            with(smb, (&f, mask::DELETE), async |file| smb.rename(file, &to, false).await).await
        }
        Op::Replace => {
            with(smb, (&own, mask::DELETE), async |file| smb.rename(file, &f, true).await).await
        }
        Op::Link => {
            let to = at("e\\l");
            let link = async |file: &SmbFile| smb.link(file, &to, false).await;
            with(smb, (&f, mask::READ_ATTRIBUTES), link).await
        }
        Op::LinkReplace => {
            let link = async |file: &SmbFile| smb.link(file, &f, true).await;
            with(smb, (&own, mask::READ_ATTRIBUTES), link).await
        }
        Op::SetGroup => owned(None, Some(caller.uid())).await,
        Op::SetForeignGroup => owned(None, Some(FOREIGN)).await,
        Op::GiveAway => owned(Some(Caller::Other.uid()), None).await,
        Op::SetList => {
            let sd = SecurityDescriptor {
                control: control::DACL_PRESENT,
                dacl: Some(Acl::new(vec![Ace::allow(Sid::everyone(), mask::FILE_READ, 0)])),
                ..SecurityDescriptor::default()
            };
            let set = async |file: &SmbFile| smb.set_security(file, part::DACL, sd.emit()).await;
            with(smb, (&f, mask::WRITE_DAC), set).await
        }
        _ => Ok(()),
    }
}
