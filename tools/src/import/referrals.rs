//! The servers to which a share refers its clients, as smb.conf(5) and exports(5) write them.

use config::Refer;

/// Reads the value of `msdfs proxy`: `\HOST\SHARE`, several separated by commas.
pub(super) fn of_samba(value: &str) -> Option<Vec<Refer>> {
    let target = |text: &str| -> Option<Refer> {
        let text = text.trim().replace('\\', "/");
        let (host, path) = text.trim_start_matches('/').split_once('/')?;
        format!("{host}:/{path}").parse().ok()
    };
    match value.trim_matches('"') {
        "" => Some(Vec::new()),
        list => list.split(',').map(target).collect(),
    }
}

/// Reads the value of `refer=PATH@HOST[+HOST...][:PATH@HOST...]`.
pub(super) fn of_exports(value: &str) -> Option<Vec<Refer>> {
    let of = |place: &str| -> Option<Vec<Refer>> {
        let (path, hosts) = place.split_once('@')?;
        hosts.split('+').map(|host| format!("{host}:{path}").parse().ok()).collect()
    };
    let places: Option<Vec<_>> = value.split(':').map(of).collect();
    places.map(|all| all.concat())
}

/// Returns the servers of a share if each of its clients is referred to the same ones; the error says why they are not carried
/// over. Empty if no client is referred. `clients`: how many it has.
pub(super) fn of_all(sent: &[Vec<Refer>], clients: usize) -> Result<Vec<Refer>, String> {
    let Some(first) = sent.first() else { return Ok(Vec::new()) };
    if sent.len() == clients && sent.iter().all(|one| one == first) {
        return Ok(first.clone());
    }
    let list: Vec<String> = first.iter().map(ToString::to_string).collect();
    Err(format!(
        "`refer=` sent some of its clients to {}, and others not; write a separate share with `refer` for those",
        list.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: Option<Vec<Refer>>) -> Option<String> {
        list.map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn servers_of_samba_are_read() {
        for (text, wanted) in [
            (r"\other\share", Some("other:/share")),
            (r"\\other\share\below", Some("other:/share/below")),
            ("other/share, 192.0.2.3\\b", Some("other:/share 192.0.2.3:/b")),
            ("", Some("")),
            (r"\other", None),
            (r"\a b\share", None),
            (r"\other\..", None),
        ] {
            assert_eq!(shown(of_samba(text)).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn clients_must_go_the_same_way() {
        let one = of_exports("/a@gw2+gw3:/b@gw4").unwrap();
        assert_eq!(shown(Some(one.clone())).unwrap(), "gw2:/a gw3:/a gw4:/b");
        assert_eq!(of_exports("/a"), None);
        assert_eq!(of_exports("/a@[2001:db8::1]"), None);
        assert_eq!(of_all(&[], 2), Ok(Vec::new()));
        assert_eq!(of_all(&[one.clone(), one.clone()], 2), Ok(one.clone()));
        assert!(of_all(std::slice::from_ref(&one), 2).unwrap_err().contains("gw2:/a"));
        let other = of_exports("/a@gw5").unwrap();
        assert!(of_all(&[one, other], 2).is_err());
    }
}
