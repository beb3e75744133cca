//! Guesses a client's system for `status` from the version in its NTLM NEGOTIATE_MESSAGE (MS-NLMP section 2.2.2.10). No decision
//! depends on it. Pure.

/// Windows versions by build, the oldest first. Updates that only enable features keep the build that NTLM reports, and a client
/// shares its build with the server of the same year.
const WINDOWS: [(u16, &str); 24] = [
    (2600, "Windows XP"),
    (3790, "Windows Server 2003"),
    (6000, "Windows Vista"),
    (6001, "Windows Vista or Server 2008"),
    (6002, "Windows Vista or Server 2008"),
    (6003, "Windows Server 2008"),
    (7600, "Windows 7 or Server 2008 R2"),
    (7601, "Windows 7 or Server 2008 R2"),
    (9200, "Windows 8 or Server 2012"),
    (9600, "Windows 8.1 or Server 2012 R2"),
    (10_240, "Windows 10 1507"),
    (10_586, "Windows 10 1511"),
    (14_393, "Windows 10 1607 or Server 2016"),
    (15_063, "Windows 10 1703"),
    (16_299, "Windows 10 1709"),
    (17_134, "Windows 10 1803"),
    (17_763, "Windows 10 1809 or Server 2019"),
    (18_362, "Windows 10 1903 or 1909"),
    (19_041, "Windows 10 2004 to 22H2"),
    (20_348, "Windows Server 2022"),
    (22_000, "Windows 11 21H2"),
    (22_621, "Windows 11 22H2 or 23H2"),
    (25_398, "Windows Server 23H2"),
    (26_100, "Windows 11 24H2 or later, or Server 2025"),
];
/// Windows builds are larger than this. Linux sends the version of its SMB client here, which is smaller, and Samba sends none.
const LINUX_BUILDS_MAX: u16 = 999;

/// Describes the `VERSION` structure; `None` if it has no usable data.
pub(crate) fn guess([major, minor, low, high, ..]: [u8; 8]) -> Option<String> {
    let build = u16::from_le_bytes([low, high]);
    match (major, minor, build) {
        (0, 0, 0) => None,
        // The version that Samba's client library sends.
        (6, 1, 0) => Some("Samba".into()),
        (_, _, 0) => Some(format!("NTLM version {major}.{minor}")),
        (3.., _, 1..=LINUX_BUILDS_MAX) => Some(format!("Linux {major}.{minor}")),
        _ => {
            let near = WINDOWS.iter().rev().find(|(first, _)| *first <= build);
            let name = near.map_or("Windows", |(_, name)| *name);
            Some(format!("{name} (build {build})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(major: u8, minor: u8, build: u16) -> Option<String> {
        let [low, high] = build.to_le_bytes();
        guess([major, minor, low, high, 0, 0, 0, 15])
    }

    #[test]
    fn systems_are_guessed_from_version() {
        let is = |major, minor, build, name: &str| {
            assert_eq!(of(major, minor, build).as_deref(), Some(name));
        };
        is(10, 0, 19_041, "Windows 10 2004 to 22H2 (build 19041)");
        is(10, 0, 26_100, "Windows 11 24H2 or later, or Server 2025 (build 26100)");
        is(10, 0, 17_763, "Windows 10 1809 or Server 2019 (build 17763)");
        is(6, 1, 7601, "Windows 7 or Server 2008 R2 (build 7601)");
        // A build between two known ones is shown with its number.
        is(10, 0, 17_800, "Windows 10 1809 or Server 2019 (build 17800)");
        is(4, 0, 1381, "Windows (build 1381)");
        is(6, 12, 51, "Linux 6.12");
        is(6, 1, 40, "Linux 6.1");
        is(6, 1, 0, "Samba");
        is(10, 0, 0, "NTLM version 10.0");
        assert_eq!(of(0, 0, 0), None);
        assert!(WINDOWS.is_sorted_by_key(|(build, _)| *build));
    }
}
