//! The operations over SMB.

use client::connect::Local;
use client::smb::{Options, Smb, SmbFile};
use client::{Error, Result};
use headgate_tests::world::{World, buf};
use smb_proto::NtStatus;
use smb_proto::fscc::ea::FullEa;
use smb_proto::fscc::file::Basic;
use smb_proto::fscc::set::{NewName, Set, disposition, rename};
use smb_proto::smb2::create::{Disposition, option};
use smb_proto::smb2::fsctl::{Chunk, CopyChunks, ResumeKey, Span, Trim, code};
use smb_proto::smb2::query_info::security_information as part;
use smbd_core::dtyp::descriptor::control;
use smbd_core::dtyp::{Ace, Acl, FileTime, SecurityDescriptor, Sid, mask};

use crate::shape::By;
use crate::{Caller, Cell, FOREIGN, NEW, OLD, Op, TIME, user};

/// Connects; `None` if the share refuses the caller.
pub(crate) async fn connect(world: &World, caller: Caller, by: By) -> Option<Smb> {
    let (at, share) = (world.running.smb[0], ("127.0.0.1", caller.share(by)));
    let local = Local { from: Some(by.address()), ..Local::default() };
    match Smb::connect(at, false, share, &user(caller), Options::default(), &local).await {
        Ok(smb) => Some(smb),
        Err(Error::Smb(_, NtStatus::ACCESS_DENIED)) => None,
        Err(e) => panic!("{caller:?}, SMB: {e}"),
    }
}

/// Performs the operation; `None` if SMB lacks it.
pub(crate) async fn by_smb(smb: Option<&Smb>, cell: &Cell, op: Op, caller: Caller) -> Option<bool> {
    if matches!(op, Op::Symlink | Op::Fifo | Op::Device | Op::Chmod | Op::Allocate) {
        return None;
    }
    let Some(smb) = smb else { return Some(false) };
    Some(match act(smb, cell, op, caller).await {
        Ok(()) => true,
        Err(Error::Smb(_, NtStatus::ACCESS_DENIED | NtStatus::INVALID_OWNER)) => false,
        Err(Error::Smb(_, NtStatus::MEDIA_WRITE_PROTECTED | NtStatus::CANNOT_DELETE)) => false,
        Err(e) => panic!("{op:?} by {caller:?}, SMB: {e}"),
    })
}

/// Opens with one right, performs the operation and closes.
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

/// Opens the file with one right and sends a control code.
async fn control(smb: &Smb, f: &str, code: u32, input: &[u8]) -> Result<()> {
    let send = async |file: &SmbFile| smb.control(file, code, input).await.map(drop);
    with(smb, (f, mask::WRITE_DATA), send).await
}

/// Opens the file with one right and sets one information class.
async fn set(smb: &Smb, (name, access): (&str, u32), what: Set) -> Result<()> {
    with(smb, (name, access), async |file| smb.set_info(file, &what).await).await
}

/// Operations that change or inspect the data of the file `f`.
async fn on_data(smb: &Smb, f: &str, op: Op, own: &str) -> Result<()> {
    let write = async |access: u32, at: usize| {
        let write =
            async |file: &SmbFile| smb.write(file, at as u64, vec![buf(NEW)]).await.map(drop);
        with(smb, (f, access), write).await
    };
    let opens = async |disposition: Disposition| {
        let file = smb.open(f, mask::READ_ATTRIBUTES, disposition, 0).await?;
        smb.close(file).await
    };
    match op {
        Op::Read => {
            let read = async |file: &SmbFile| {
                let data = smb.read(file, 0, 100).await?;
                assert_eq!(data.iter().map(|b| b.len()).sum::<usize>(), OLD.len());
                Ok(())
            };
            with(smb, (f, mask::READ_DATA), read).await
        }
        Op::Write => write(mask::WRITE_DATA, 0).await,
        Op::Append => write(mask::APPEND_DATA, OLD.len()).await,
        Op::Truncate => {
            with(smb, (f, mask::WRITE_DATA), async |file| smb.set_size(file, 1).await).await
        }
        Op::Overwrite => opens(Disposition::OverwriteIf).await,
        Op::Supersede => opens(Disposition::Supersede).await,
        Op::Allocation => set(smb, (f, mask::WRITE_DATA), Set::Allocation(0)).await,
        Op::ZeroData => {
            control(smb, f, code::SET_ZERO_DATA, &Span { at: 0, other: 4 }.emit()).await
        }
        Op::Trim => {
            let trim = Trim { ranges: vec![Span { at: 0, other: 4 }] };
            control(smb, f, code::FILE_LEVEL_TRIM, &trim.emit()).await
        }
        Op::SetSparse => control(smb, f, code::SET_SPARSE, &[]).await,
        Op::Stream => {
            let (name, access) = (format!("{f}:s"), mask::READ_ATTRIBUTES);
            let made = smb.open(&name, access, Disposition::Create, 0).await?;
            smb.close(made).await
        }
        _ => {
            let copy = async |from: &SmbFile| {
                let key = smb.control(from, code::SRV_REQUEST_RESUME_KEY, &[]).await?;
                let key = ResumeKey::parse(&key).unwrap();
                let len = u32::try_from(NEW.len()).unwrap();
                let chunks = vec![Chunk { from: 0, to: 0, len }];
                let asked = CopyChunks { key, count: 1, chunks }.emit();
                control(smb, f, code::SRV_COPYCHUNK_WRITE, &asked).await
            };
            with(smb, (own, mask::READ_DATA), copy).await
        }
    }
}

/// Operations that remove the file `f` or replace it.
async fn on_names(smb: &Smb, cell: &Cell, op: Op) -> Result<()> {
    let at = |name: &str| format!("{}\\{name}", cell.name);
    let (f, own) = (at("d\\f"), at("e\\own"));
    let over = || NewName {
        flags: rename::REPLACE_IF_EXISTS | rename::POSIX_SEMANTICS,
        root: 0,
        name: f.clone(),
    };
    let dispose = |flags, ex| Set::Disposition { flags, ex };
    let posix = disposition::DELETE | disposition::POSIX_SEMANTICS;
    match op {
        Op::Remove => smb.unlink(&f).await,
        Op::Dispose => set(smb, (&f, mask::DELETE), dispose(disposition::DELETE, false)).await,
        Op::DisposePosix => set(smb, (&f, mask::DELETE), dispose(posix, true)).await,
        Op::RenameIn | Op::RenameOut => {
            let to = at(if op == Op::RenameIn { "d\\g" } else { "e\\g" });
            with(smb, (&f, mask::DELETE), async |file| smb.rename(file, &to, false).await).await
        }
        Op::Replace => {
            with(smb, (&own, mask::DELETE), async |file| smb.rename(file, &f, true).await).await
        }
        Op::ReplacePosix => set(smb, (&own, mask::DELETE), Set::Rename(over())).await,
        Op::LinkReplaceEx => set(smb, (&own, mask::READ_ATTRIBUTES), Set::Link(over())).await,
        Op::Link => {
            let to = at("e\\l");
            let link = async |file: &SmbFile| smb.link(file, &to, false).await;
            with(smb, (&f, mask::READ_ATTRIBUTES), link).await
        }
        _ => {
            let link = async |file: &SmbFile| smb.link(file, &f, true).await;
            with(smb, (&own, mask::READ_ATTRIBUTES), link).await
        }
    }
}

/// Operations on the file's owner, list, times and attributes.
async fn on_attributes(smb: &Smb, f: &str, op: Op, caller: Caller) -> Result<()> {
    let owned = async |owner: Option<u32>, group: Option<u32>| {
        let parts = if owner.is_some() { part::OWNER } else { part::GROUP };
        let sd = SecurityDescriptor {
            owner: owner.map(Sid::unix_user),
            group: group.map(Sid::unix_group),
            ..SecurityDescriptor::default()
        };
        let set = async |file: &SmbFile| smb.set_security(file, parts, sd.emit()).await;
        with(smb, (f, mask::WRITE_OWNER), set).await
    };
    let basic = async |last_write, attributes| {
        let omit = FileTime::OMIT;
        let (creation, last_access, change) = (omit, omit, omit);
        let what = Set::Basic(Basic { creation, last_access, last_write, change, attributes });
        set(smb, (f, mask::WRITE_ATTRIBUTES), what).await
    };
    match op {
        Op::SetGroup => owned(None, Some(caller.gid())).await,
        Op::SetForeignGroup => owned(None, Some(FOREIGN)).await,
        Op::GiveAway => owned(Some(Caller::Other.uid()), None).await,
        Op::SetTimes => basic(FileTime::of_unix(TIME, 0), 0).await,
        // FILE_ATTRIBUTE_HIDDEN
        Op::SetAttributes => basic(FileTime::OMIT, 2).await,
        Op::SetEa => {
            let list = vec![FullEa { flags: 0, name: b"X".to_vec(), value: b"y".to_vec() }];
            set(smb, (f, mask::WRITE_EA), Set::FullEa(FullEa::emit_list(&list))).await
        }
        _ => {
            let sd = SecurityDescriptor {
                control: control::DACL_PRESENT,
                dacl: Some(Acl::new(vec![Ace::allow(Sid::everyone(), mask::FILE_READ, 0)])),
                ..SecurityDescriptor::default()
            };
            let set = async |file: &SmbFile| smb.set_security(file, part::DACL, sd.emit()).await;
            with(smb, (f, mask::WRITE_DAC), set).await
        }
    }
}

async fn act(smb: &Smb, cell: &Cell, op: Op, caller: Caller) -> Result<()> {
    let at = |name: &str| format!("{}\\{name}", cell.name);
    let (f, n, own) = (at("d\\f"), at("d\\n"), at("e\\own"));
    let makes = async |disposition: Disposition, options: u32| {
        let made = smb.open(&n, mask::READ_ATTRIBUTES, disposition, options).await?;
        smb.close(made).await
    };
    match op {
        Op::Create => makes(Disposition::Create, option::NON_DIRECTORY_FILE).await,
        Op::OpenIf => makes(Disposition::OpenIf, option::NON_DIRECTORY_FILE).await,
        Op::OverwriteIf => makes(Disposition::OverwriteIf, option::NON_DIRECTORY_FILE).await,
        Op::SupersedeNew => makes(Disposition::Supersede, option::NON_DIRECTORY_FILE).await,
        Op::Mkdir => makes(Disposition::Create, option::DIRECTORY_FILE).await,
        Op::Remove | Op::Dispose | Op::DisposePosix => on_names(smb, cell, op).await,
        Op::RenameIn | Op::RenameOut | Op::Replace | Op::ReplacePosix => {
            on_names(smb, cell, op).await
        }
        Op::Link | Op::LinkReplace | Op::LinkReplaceEx => on_names(smb, cell, op).await,
        Op::SetGroup | Op::SetForeignGroup | Op::GiveAway | Op::SetTimes => {
            on_attributes(smb, &f, op, caller).await
        }
        Op::SetAttributes | Op::SetEa | Op::SetList => on_attributes(smb, &f, op, caller).await,
        _ => on_data(smb, &f, op, &own).await,
    }
}
