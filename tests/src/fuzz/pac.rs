//! The PAC of a user, signed by a domain controller that may be faulty.

use smb_proto::pac::{GROUPS_MAX, LogonInfo};

/// Any bytes are parsed or refused, and the result is bounded.
pub fn pac_logon_info(data: &[u8]) {
    let Ok(info) = LogonInfo::parse(data) else { return };
    let most = usize::try_from(GROUPS_MAX).unwrap_or(usize::MAX);
    assert!(info.groups.len() <= most && info.others.len() <= 2 * most);
    assert!(info.rids().contains(&info.primary_group));
    assert!(info.domain_id.subs().len() <= 15);
}

/// The fixed part, and the targets of its pointers: strings, groups, SIDs.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut head = vec![1, 0x10, 8, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0];
    head.resize(236, 0);
    let mut put = |at: usize, value: u32| head[at..at + 4].copy_from_slice(&value.to_le_bytes());
    // EffectiveName of five characters, a group, the domain, an extra SID, no resource groups.
    for (at, value) in [
        (68, 0x000a_000a),
        (72, 0x0002_0004),
        (120, 1103),
        (124, 513),
        (128, 1),
        (132, 0x0002_0020),
        (136, 0x220),
        (172, 0x0002_002c),
        (216, 1),
        (220, 0x0002_0034),
    ] {
        put(at, value);
    }
    let words = |words: &[u32]| words.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let name = [words(&[5, 0, 5]), b"a\0l\0i\0c\0e\0\0\0".to_vec()].concat();
    let group = words(&[1, 513, 7]);
    let domain = [words(&[4]), vec![1, 4, 0, 0, 0, 0, 0, 5], words(&[21, 1, 2, 3])].concat();
    let extra =
        [words(&[1, 0x0002_0038, 7, 1]), vec![1, 1, 0, 0, 0, 0, 0, 18], words(&[1])].concat();
    let whole = [&head[..], &name, &group, &domain, &extra].concat();
    vec![whole.clone(), whole[..236].to_vec(), whole[..260].to_vec()]
}
