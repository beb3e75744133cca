//! Accounts and groups as clients query them. The tier `third` (smbclients) does the same with other implementations.

use super::*;
use crate::pipe::samr::handles::HANDLES_MAX;

const MAXIMUM_ALLOWED: u32 = 0x0200_0000;
const SERVER_NAME: [u32; 1] = [0];

/// A host with this many accounts, and a named or anonymous caller.
pub(super) struct Other {
    pub(super) knows_caller: bool,
    pub(super) accounts: u32,
}

impl Guard for Other {}

impl Host for Other {
    fn computer(&self) -> String {
        Fake.computer()
    }
    fn shares(&self) -> Vec<(String, String)> {
        Fake.shares()
    }
    fn shares_size(&self) -> (usize, usize) {
        Fake.shares_size()
    }
    fn machine(&self) -> Sid {
        Fake.machine()
    }
    fn account(&self, _: &str) -> Option<(String, u32)> {
        None
    }
    fn account_of_uid(&self, _: u32) -> Option<String> {
        None
    }
    fn each_account(&self, each: &mut dyn FnMut(&str, &Cred)) {
        for uid in (0..self.accounts).rev() {
            each(
                &format!("user{uid}"),
                &Cred { uid, gid: 50, groups: [].into(), token: vfs::Token::NONE },
            );
        }
    }
    fn knows_caller(&self) -> bool {
        self.knows_caller
    }
    fn others(&self) -> &dyn Directory {
        &Fake
    }
    fn caller(&self) -> String {
        Fake.caller()
    }
    fn times(&self) -> (u64, u64) {
        Fake.times()
    }
    fn sessions(&self) -> u32 {
        Fake.sessions()
    }
}

fn stub(of: &[u32]) -> Vec<u8> {
    of.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A pipe, and helpers that return the results of its calls.
pub(super) struct Asker<'a> {
    pipe: Pipe,
    host: &'a dyn Host,
}

impl<'a> Asker<'a> {
    pub(super) fn of(host: &'a dyn Host) -> Self {
        Self { pipe: bound(Interface::Samr), host }
    }

    pub(super) fn ask(&self, op: u16, stub: &[u8]) -> Result<Vec<u8>, u32> {
        let mut pieces =
            vec![self.pipe.transceive(self.host, &request(3, op, stub), 4280).unwrap()];
        while pieces.last().is_some_and(|last| last.data[3] & 2 == 0) {
            pieces.push(self.pipe.read(4280).unwrap());
        }
        let first = pieces[0].data[2];
        let results = pieces.iter().flat_map(|piece| piece.data[24..].to_vec()).collect();
        if first == 2 { Ok(results) } else { Err(words(&results)[0]) }
    }

    /// Requests a handle and returns its bytes and the status.
    pub(super) fn open(&self, op: u16, stub: &[u8]) -> (Vec<u8>, Status) {
        let found = self.ask(op, stub).unwrap();
        (found[..20].to_vec(), Status(words(&found[20..])[0]))
    }

    fn server(&self) -> Vec<u8> {
        let (server, status) =
            self.open(57, &stub(&[&SERVER_NAME[..], &[MAXIMUM_ALLOWED]].concat()));
        assert_eq!(status, Status::SUCCESS);
        server
    }

    fn domain(&self, sid: &Sid) -> Vec<u8> {
        let mut asked = [self.server(), stub(&[MAXIMUM_ALLOWED])].concat();
        asked.extend(stub(&[u32::try_from(sid.subs().len()).unwrap()]));
        sid.put(&mut asked);
        let (domain, status) = self.open(7, &asked);
        assert_eq!(status, Status::SUCCESS);
        domain
    }

    pub(super) fn machine(&self) -> Vec<u8> {
        self.domain(&self.host.machine())
    }

    /// Returns the numbers of an enumeration, the handle to resume with, and the status.
    fn enumerate(&self, op: u16, domain: &[u8], resume: u32) -> (Vec<u32>, u32, Status) {
        let more: &[u32] = if op == 13 { &[resume, 0, 0xffff] } else { &[resume, 0xffff] };
        let found = words(&self.ask(op, &[domain.to_vec(), stub(more)].concat()).unwrap());
        let count = usize::try_from(found[2]).unwrap();
        let numbers = (0..count).map(|n| found[5 + 3 * n]).collect();
        (numbers, found[0], Status(*found.last().unwrap()))
    }
}

fn builtin() -> Sid {
    Sid::new(5, &[32]).unwrap()
}

fn last(found: &[u8]) -> Status {
    Status(*words(found).last().unwrap())
}

fn has(found: &[u8], text: &str) -> bool {
    let mut wide = Vec::new();
    put_utf16(&mut wide, text);
    found.windows(wide.len()).any(|window| window == wide)
}

#[test]
fn accounts_and_groups_are_listed() {
    let asker = Asker::of(&Fake);
    let server = asker.server();
    let domains = asker.ask(6, &[server.clone(), stub(&[0, 0xffff])].concat()).unwrap();
    assert!(has(&domains, "GATE") && has(&domains, "Builtin") && last(&domains) == Status::SUCCESS);
    let machine = asker.machine();
    // The first of two names with one uid counts; root is 0.
    assert_eq!(asker.enumerate(13, &machine, 0), (vec![1000, 3000], 3000, Status::SUCCESS));
    assert_eq!(asker.enumerate(13, &machine, 1000).0, [3000]);
    assert_eq!(asker.enumerate(11, &machine, 0).0, [513]);
    // Only the second of the gids 0, 50 and 60 has a name.
    assert_eq!(asker.enumerate(15, &machine, 0).0, [1101]);
    let builtin = asker.domain(&builtin());
    assert!(asker.enumerate(13, &builtin, 0).0.is_empty());
    assert!(asker.enumerate(11, &builtin, 0).0.is_empty());
    assert_eq!(asker.enumerate(15, &builtin, 0).0, [544, 545, 546]);
}

#[test]
fn names_and_numbers_are_looked_up() {
    let asker = Asker::of(&Fake);
    let machine = asker.machine();
    let names = |domain: &[u8], names: &[&str]| {
        let count = u32::try_from(names.len()).unwrap();
        let mut asked = [domain.to_vec(), stub(&[count, 1000, 0, count])].concat();
        for name in names {
            let bytes = u16::try_from(2 * name.len()).unwrap().to_le_bytes();
            asked.extend([&bytes[..], &bytes, &[1, 0, 0, 0]].concat());
        }
        for name in names {
            let units = u32::try_from(name.len()).unwrap();
            asked.extend(stub(&[units, 0, units]));
            put_utf16(&mut asked, name);
            asked.resize(asked.len().next_multiple_of(4), 0);
        }
        words(&asker.ask(17, &asked).unwrap())
    };
    let found = names(&machine, &["ALICE", "none", "staff", "mallory"]);
    assert_eq!(found[3..7], [3000, 513, 1101, 0]);
    assert_eq!(found[10..], [1, 2, 4, 8, Status::SOME_NOT_MAPPED.0]);
    assert_eq!(names(&machine, &["mallory"]).last(), Some(&Status::NONE_MAPPED.0));
    let builtin = asker.domain(&builtin());
    assert_eq!(names(&builtin, &["administrators"])[3], 544);
    let rids = |rids: &[u32]| {
        let count = u32::try_from(rids.len()).unwrap();
        let asked = [machine.clone(), stub(&[count, 1000, 0, count]), stub(rids)].concat();
        asker.ask(18, &asked).unwrap()
    };
    let found = rids(&[3000, 513, 1101]);
    assert!(has(&found, "Alice") && has(&found, "None") && has(&found, "staff"));
    assert_eq!(words(&found)[words(&found).len() - 4..], [1, 2, 4, 0]);
    assert_eq!(last(&rids(&[3000, 7])), Status::SOME_NOT_MAPPED);
}

#[test]
fn objects_are_opened_and_told_of() {
    let asker = Asker::of(&Fake);
    let machine = asker.machine();
    let open = |op, rid| asker.open(op, &[machine.clone(), stub(&[MAXIMUM_ALLOWED, rid])].concat());
    let (user, status) = open(34, 3000);
    assert_eq!(status, Status::SUCCESS);
    for level in 0..30_u16 {
        let asked = [&user[..], &level.to_le_bytes()].concat();
        let found = asker.ask(36, &asked).unwrap();
        // Levels with passwords, and invalid levels.
        let none = matches!(level, 0 | 15 | 18 | 19 | 22..);
        let want = if none { Status::INVALID_INFO_CLASS } else { Status::SUCCESS };
        assert_eq!(last(&found), want, "{level}");
        assert_eq!(has(&found, "Alice"), matches!(level, 1 | 3 | 5 | 6 | 7 | 21), "{level}");
    }
    let groups = words(&asker.ask(39, &user).unwrap());
    assert_eq!((groups[1], &groups[3..]), (1, &[1, 513, 7, 0][..]));
    let (group, _) = open(19, 513);
    let members = words(&asker.ask(25, &group).unwrap());
    assert_eq!((members[1], &members[4..7]), (2, &[2, 1000, 3000][..]));
    for level in 1..6_u16 {
        assert_eq!(
            last(&asker.ask(20, &[&group[..], &level.to_le_bytes()].concat()).unwrap()).0,
            0
        );
    }
    let (alias, _) = open(27, 1101);
    let members = asker.ask(33, &alias).unwrap();
    assert_eq!(words(&members)[0], 2, "Alice and root");
    for level in 1..4_u16 {
        assert_eq!(
            last(&asker.ask(28, &[&alias[..], &level.to_le_bytes()].concat()).unwrap()).0,
            0
        );
    }
    for (op, why) in
        [(19, Status::NO_SUCH_GROUP), (27, Status::NO_SUCH_ALIAS), (34, Status::NO_SUCH_USER)]
    {
        assert_eq!(open(op, 1), (vec![0; 20], why));
    }
    for level in [1_u16, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13] {
        let found = asker.ask(46, &[&machine[..], &level.to_le_bytes()].concat()).unwrap();
        assert_eq!(last(&found), Status::SUCCESS, "{level}");
    }
    let security = asker.ask(3, &[user, stub(&[4])].concat()).unwrap();
    assert_eq!(last(&security), Status::SUCCESS);
    let sid = asker.ask(65, &[machine, stub(&[3000])].concat()).unwrap();
    let alice = Fake.machine().child(3000).unwrap().emit();
    assert!(sid.windows(alice.len()).any(|window| window == alice));
}

#[test]
fn members_of_groups_are_found_by_identifier() {
    let asker = Asker::of(&Fake);
    let membership = |domain: Vec<u8>, sids: &[Sid]| {
        let count = u32::try_from(sids.len()).unwrap();
        let mut asked = [domain, stub(&[count, 1, count])].concat();
        asked.extend(sids.iter().flat_map(|_| [1, 0, 0, 0]));
        for sid in sids {
            asked.extend(u32::try_from(sid.subs().len()).unwrap().to_le_bytes());
            sid.put(&mut asked);
        }
        words(&asker.ask(16, &asked).unwrap())
    };
    let (alice, root) = (Fake.machine().child(3000).unwrap(), Sid::unix_user(0));
    assert_eq!(membership(asker.machine(), std::slice::from_ref(&alice))[3..], [1101, 0]);
    assert_eq!(membership(asker.domain(&builtin()), &[alice, root])[3..], [544, 0]);
    assert_eq!(membership(asker.domain(&builtin()), &[Sid::everyone()]), [0, 0, 0]);
}

#[test]
fn long_lists_go_on_behind_the_last() {
    let host = Other { knows_caller: true, accounts: 1300 };
    let asker = Asker::of(&host);
    let machine = asker.machine();
    let (mut seen, mut resume, mut calls) = (Vec::new(), 0, 0);
    loop {
        let (rids, next, status) = asker.enumerate(13, &machine, resume);
        seen.extend(rids);
        (resume, calls) = (next, calls + 1);
        if status == Status::SUCCESS {
            break;
        }
        assert_eq!(status, Status::MORE_ENTRIES);
    }
    assert_eq!(calls, 3);
    assert_eq!(seen, (0..1300).map(|uid| 1000 + 2 * uid).collect::<Vec<u32>>());
    for (level, start, most, count) in
        [(1, 0, 5, 5), (1, 1298, 5, 2), (4, 0, 3, 3), (3, 0, 9, 1), (2, 0, 9, 0)]
    {
        let asked = [machine.clone(), stub(&[level, start, most, 0xffff])].concat();
        let found = asker.ask(48, &asked).unwrap();
        assert_eq!(words(&found)[3], count, "{level} {start}");
        let more = level != 3 && level != 2 && start == 0;
        let want = if more { Status::MORE_ENTRIES } else { Status::SUCCESS };
        assert_eq!(Status(*words(&found[found.len() - 4..]).last().unwrap()), want);
    }
}

#[test]
fn guests_are_refused_by_every_connect() {
    let host = Other { knows_caller: false, accounts: 1 };
    let asker = Asker::of(&host);
    for (op, asked) in [
        (0, &[0, MAXIMUM_ALLOWED][..]),
        (57, &[0, MAXIMUM_ALLOWED]),
        (61, &[0, 0, MAXIMUM_ALLOWED]),
        (62, &[0, 2, MAXIMUM_ALLOWED]),
        (64, &[0, MAXIMUM_ALLOWED, 1, 1, 3, 0]),
    ] {
        let found = asker.ask(op, &stub(asked)).unwrap();
        assert_eq!(last(&found), Status::ACCESS_DENIED, "{op}");
        assert!(found[found.len() - 24..found.len() - 4].iter().all(|byte| *byte == 0));
        let served = Asker::of(&Fake).ask(op, &stub(asked)).unwrap();
        assert_eq!(last(&served), Status::SUCCESS, "{op}");
    }
    assert_eq!(last(&asker.ask(56, &stub(&[0])).unwrap()), Status::ACCESS_DENIED);
}

#[test]
fn changes_are_refused_and_others_faults() {
    const CHANGES: [u16; 25] = [
        2, 4, 9, 10, 12, 14, 21, 22, 23, 24, 26, 29, 30, 31, 32, 35, 37, 38, 45, 50, 52, 53, 54,
        58, 66,
    ];
    // And changes of passwords.
    const READS: [u16; 33] = [
        0, 1, 3, 5, 6, 7, 8, 11, 13, 15, 16, 17, 18, 19, 20, 25, 27, 28, 33, 34, 36, 39, 40, 44,
        46, 47, 48, 51, 55, 56, 57, 63, 73,
    ];
    for op in 0..300 {
        let want = match op {
            op if CHANGES.contains(&op) => Err(5),
            op if READS.contains(&op) || [61, 62, 64, 65].contains(&op) => Err(Fault::BAD_STUB.0),
            _ => Err(Fault::NO_OPERATION.0),
        };
        assert_eq!(Asker::of(&Fake).ask(op, &[]), want, "{op}");
    }
    // GENERIC_WRITE, and the right to make accounts.
    let asker = Asker::of(&Fake);
    for access in [0x4000_0000, 0x1000_0000, 0x0000_0010, 0x000f_07ff] {
        let mut asked = [asker.server(), stub(&[access, 4])].concat();
        Fake.machine().put(&mut asked);
        assert_eq!(asker.open(7, &asked).1, Status::ACCESS_DENIED, "{access:#x}");
    }
}

#[test]
fn handles_are_bounded_and_of_one_pipe() {
    let asker = Asker::of(&Fake);
    let first = asker.server();
    let mut open = 1;
    let connect = stub(&[0, MAXIMUM_ALLOWED]);
    while asker.open(57, &connect).1 == Status::SUCCESS {
        open += 1;
    }
    assert_eq!(open, HANDLES_MAX);
    assert_eq!(asker.open(57, &connect).1, Status::INSUFFICIENT_RESOURCES);
    let kept = locked(&asker.pipe.answers).part.count();
    assert!(kept >= HANDLES_MAX * 16, "{kept}");
    let list = |asker: &Asker<'_>, handle: &[u8]| {
        last(&asker.ask(6, &[handle.to_vec(), stub(&[0, 0xffff])].concat()).unwrap())
    };
    assert_eq!(list(&asker, &first), Status::SUCCESS);
    assert_eq!(list(&Asker::of(&Fake), &first), Status::INVALID_HANDLE, "of another pipe");
    let alone = Asker::of(&Fake);
    let only = alone.server();
    for byte in 0..20 {
        let mut changed = only.clone();
        changed[byte] ^= 0x80;
        assert_eq!(list(&alone, &changed), Status::INVALID_HANDLE, "{byte}");
    }
    // A handle of another kind.
    let asked = [first.clone(), 5_u16.to_le_bytes().to_vec()].concat();
    assert_eq!(last(&asker.ask(8, &asked).unwrap()), Status::INVALID_HANDLE);
    assert_eq!(last(&asker.ask(1, &first).unwrap()), Status::SUCCESS);
    assert_eq!(list(&asker, &first), Status::INVALID_HANDLE, "closed");
    assert_eq!(last(&asker.ask(1, &first).unwrap()), Status::INVALID_HANDLE);
    assert_eq!(asker.open(57, &connect).1, Status::SUCCESS, "there is room again");
}

/// A handle without the rights that an operation needs is refused.
#[test]
fn rights_of_handles_are_kept() {
    let asker = Asker::of(&Fake);
    let (server, status) = asker.open(57, &stub(&[0, 0x20]));
    assert_eq!(status, Status::SUCCESS);
    let asked = [server, stub(&[0, 0xffff])].concat();
    assert_eq!(last(&asker.ask(6, &asked).unwrap()), Status::ACCESS_DENIED);
}

#[test]
fn answers_are_paid_for_before_they_are_made() {
    let host = Other { knows_caller: true, accounts: 600 };
    let all = parts(6 << 20);
    let part = |n: u16| all.of(std::net::SocketAddr::from(([192, 0, 2, 1], n)));
    let pipe = open("samr", part(1)).unwrap();
    pipe.transceive(&host, &bind(Interface::Samr, 4280), 4280).unwrap();
    let asker = Asker { pipe, host: &host };
    let machine = asker.machine();
    let list = [machine, stub(&[0, 0, 0xffff])].concat();
    assert!(asker.ask(13, &list).is_ok());
    // Another pipe of the address has used all but the memory for the list.
    let mut other = part(2);
    other.set(5 << 20).unwrap();
    assert_eq!(asker.ask(13, &list), Err(Fault::NO_MEMORY.0));
    other.set(0).unwrap();
    assert!(asker.ask(13, &list).is_ok(), "the pipe goes on");
    let kept = locked(&asker.pipe.answers).part.count();
    assert!(kept < 4096, "what was reserved is given back: {kept}");
}

/// Every answer fits its price, whatever the request.
#[test]
fn prices_cover_the_longest_answers() {
    let host = Other { knows_caller: true, accounts: 20_000 };
    let asker = Asker::of(&host);
    let machine = asker.machine();
    for op in [13, 15, 11] {
        let more: &[u32] = if op == 13 { &[0, 0, 0xffff] } else { &[0, 0xffff] };
        let found = asker.ask(op, &[machine.clone(), stub(more)].concat());
        assert!(found.is_ok(), "{op}: {found:?}");
    }
    let rids: Vec<u32> = (0..1000).map(|n| 1000 + 2 * n).collect();
    let asked = [machine.clone(), stub(&[1000, 1000, 0, 1000]), stub(&rids)].concat();
    assert!(asker.ask(18, &asked).is_ok());
    let (alias, _) = asker.open(27, &[machine, stub(&[MAXIMUM_ALLOWED, 1101])].concat());
    let members = asker.ask(33, &alias).unwrap();
    assert_eq!(last(&members), Status::INSUFFICIENT_RESOURCES, "20,000 do not fit");
}
