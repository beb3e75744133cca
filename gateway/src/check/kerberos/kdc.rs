//! Asks a KDC for tickets for the gateway itself, with the keys of the keytab: a later join of this host changes the key of its
//! account, and then all new tickets are refused.
//!
//! *Operation.* The first question proves the key of the account, each further one a service. A thread asks, for [`TIME_MAX`] at
//! most: the library tries each KDC several times.
//!
//! *Errors.* All are remarks: the gateway starts with each. Silence of a KDC leaves the age of the keys unknown.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use config::{DomainBy, Kerberos, Settings};
use gss_sys::Fault;
use gss_sys::keytab::Entry;

use super::{Service, missing, newest_version};

/// Time for all questions.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The file that tools for members of a domain write.
const SYSTEM_KEYTAB: &str = "/etc/krb5.keytab";

/// The KDC's answer about one service, with the library's message.
pub(super) type Answer = Result<(), (Fault, String)>;

/// The KDC's answers.
pub(super) struct Answers {
    /// The principal of the keytab that requested the tickets.
    pub(super) client: String,
    /// In the order of the services; those after an answer about the account are missing.
    pub(super) all: Vec<Option<Answer>>,
}

/// Returns true for an answer that is about the account or the KDC, and the same for all services.
fn is_of_account(fault: Fault) -> bool {
    match fault {
        Fault::NoKdc
        | Fault::UnknownClient
        | Fault::Disabled
        | Fault::OldKey
        | Fault::Clock
        | Fault::Other => true,
        Fault::UnknownService | Fault::OtherKey => false,
    }
}

/// Returns whether the principal is an account of a computer: `GW$@LAB.TEST`.
fn is_computer(principal: &str) -> bool {
    principal.split('@').next().is_some_and(|account| account.ends_with('$'))
}

/// Returns the principal of the keytab that may be a client: the account of the computer if the keytab has it, else a service,
/// which realms other than Active Directory take as a client.
pub(super) fn client<'a>(entries: &'a [Entry], services: &[Service]) -> Option<&'a str> {
    let has_name = |e: &&Entry| {
        let account = e.service().trim_end_matches('$');
        services
            .iter()
            .any(|s| s.name.split('.').next().unwrap_or_default().eq_ignore_ascii_case(account))
    };
    let computers = || entries.iter().filter(|e| is_computer(&e.principal));
    let of_service = || entries.iter().find(|e| services.iter().any(|s| s.is_key(e)));
    let found = computers().find(has_name).or_else(|| computers().next());
    found.or_else(of_service).or(entries.first()).map(|e| e.principal.as_str())
}

/// Asks about all services. Blocks for [`TIME_MAX`] at most.
pub(super) fn ask(kerberos: &Kerberos, entries: &[Entry], services: &[Service]) -> Option<Answers> {
    let client = client(entries, services)?.to_owned();
    let realm = client.rsplit_once('@').map_or("", |(_, realm)| realm);
    let targets: Vec<String> =
        services.iter().map(|service| service.in_realm(entries, realm)).collect();
    let (keytab, its) = (kerberos.keytab.clone(), client.clone());
    let all = ask_all(targets, TIME_MAX, move |target| gss_sys::prove(&keytab, &its, target));
    Some(Answers { client, all })
}

fn ask_all(
    targets: Vec<String>,
    limit: Duration,
    ask: impl Fn(&str) -> Answer + Send + 'static,
) -> Vec<Option<Answer>> {
    let (until, mut all) = (Instant::now() + limit, vec![None; targets.len()]);
    let (tell, told) = mpsc::channel();
    let work = move || {
        for target in &targets {
            // The receiver is gone after the time.
            if tell.send(ask(target)).is_err() {
                return;
            }
        }
    };
    let silent = |why: String| Some(Err((Fault::NoKdc, why)));
    let started = thread::Builder::new().name("kdc".into()).spawn(work);
    for answer in &mut all {
        let left = until.saturating_duration_since(Instant::now());
        let said = match &started {
            Ok(_) => told
                .recv_timeout(left)
                .map_or_else(|_| silent(format!("no answer within {} s", limit.as_secs())), Some),
            Err(error) => silent(error.to_string()),
        };
        let is_last = matches!(&said, Some(Err((fault, _))) if is_of_account(*fault));
        *answer = said;
        if is_last {
            break;
        }
    }
    all
}

/// The facts for the remarks.
pub(super) struct Known<'a> {
    pub(super) keytab: &'a Path,
    pub(super) entries: &'a [Entry],
    pub(super) services: &'a [Service],
    pub(super) by: Option<DomainBy>,
}

impl<'a> Known<'a> {
    pub(super) fn of(
        settings: &Settings,
        kerberos: &'a Kerberos,
        entries: &'a [Entry],
        services: &'a [Service],
    ) -> Self {
        Self { keytab: &kerberos.keytab, entries, services, by: settings.domain_by }
    }

    /// Says how to get the keys of the account, by the program that joined this host.
    fn renew(&self) -> String {
        let copy = match self.keytab == Path::new(SYSTEM_KEYTAB) {
            true => String::new(),
            false => format!("if the file is a copy of {SYSTEM_KEYTAB}, copy it again; else "),
        };
        let how = match self.by {
            Some(DomainBy::Winbind) => {
                "make it anew by `net ads keytab create -P`. So that it stays current, smb.conf needs `sync machine password to \
                 keytab` (Samba 4.21 and later) or `machine password timeout = 0`"
            }
            Some(DomainBy::Sssd) => {
                "make it anew by `adcli update --computer-password-lifetime=0 --login-user=Administrator` (with `--add-samba-data` \
                 if Samba runs here, too), which changes the password: copy the keytab again to other gateways of this account"
            }
            _ => {
                "make it anew: in Active Directory by `net ads keytab create -P` (a host that Samba joined) or `adcli update \
                 --computer-password-lifetime=0 --login-user=Administrator` (one that realmd or adcli joined), elsewhere by \
                 `kadmin ktadd` or `ipa-getkeytab`; all but the first change the key: copy the keytab again to other gateways of \
                 this account"
            }
        };
        format!("{copy}{how}")
    }

    /// Says how to add a name to the account of the computer.
    fn add_name(&self, service: &str) -> String {
        let by_samba = format!("`net ads setspn add {service} -U Administrator`");
        let by_adcli =
            format!("`adcli update --add-service-principal={service} --login-user=Administrator`");
        match self.by {
            Some(DomainBy::Winbind) => by_samba,
            Some(DomainBy::Sssd) => by_adcli,
            _ => format!("{by_samba}, or {by_adcli}"),
        }
    }

    /// Returns the remarks about these answers, or about the keytab if there are none.
    pub(super) fn remarks(&self, answers: Option<&Answers>) -> Vec<String> {
        let mut told = Vec::new();
        // An answer tells more than the keytab.
        let mut is_open = true;
        for (at, service) in self.services.iter().enumerate() {
            let answer = answers.and_then(|all| Some((&*all.client, all.all.get(at)?.as_ref()?)));
            match answer {
                Some((_, Ok(()))) => continue,
                Some((client, Err((fault, why)))) if is_of_account(*fault) => {
                    is_open = match fault {
                        Fault::UnknownClient => !is_computer(client),
                        _ => matches!(fault, Fault::NoKdc | Fault::Other),
                    };
                    told.push(self.of_account(client, *fault, why));
                }
                Some((client, Err((fault, _)))) => {
                    told.push(self.of_service(service, client, *fault));
                    continue;
                }
                None => {}
            }
            if is_open && !service.has_key && !self.is_of_computer(service) {
                told.push(missing(self.entries, service.of, &service.name));
            }
        }
        told
    }

    /// Returns whether the domain certainly issues tickets for the service with the key of the computer.
    fn is_of_computer(&self, service: &Service) -> bool {
        let is_member = matches!(self.by, Some(DomainBy::Winbind | DomainBy::Sssd));
        is_member && service.of == "cifs" && self.entries.iter().any(|e| is_computer(&e.principal))
    }

    fn of_account(&self, client: &str, fault: Fault, why: &str) -> String {
        let keytab = self.keytab.display();
        let (account, realm) = client.rsplit_once('@').unwrap_or((client, ""));
        match fault {
            Fault::NoKdc => {
                let domain = realm.to_lowercase();
                format!(
                    "no KDC of {realm} answers ({why}), so it is unknown whether the keys of {keytab} are current; see that \
                     `host -t SRV _kerberos._tcp.{domain}` or krb5.conf names one, and that port 88 is open"
                )
            }
            Fault::OldKey => format!(
                "the keytab {keytab} is older than the key of its account: the KDC refuses the key of {client} (version {}), \
                 so that the gateway refuses all new tickets; {}",
                newest_version(self.entries, client),
                self.renew()
            ),
            Fault::UnknownClient if is_computer(client) => format!(
                "the KDC of {realm} has no account `{account}`, of which the keytab {keytab} has keys: it was deleted or \
                 renamed; join this host again"
            ),
            Fault::UnknownClient => format!(
                "whether the keys of {keytab} are current cannot be checked: the keytab has no key of the account itself \
                 (`HOST$@{realm}`), and the KDC knows no account `{account}`; in Active Directory `net ads keytab create -P` adds \
                 it, and at another KDC the service does not exist"
            ),
            Fault::Disabled => format!(
                "the KDC of {realm} refuses the account `{account}` ({why}): it is disabled or has expired, and clients get no \
                 tickets for it; enable it in the directory"
            ),
            Fault::Clock => format!(
                "the clocks of this host and of the KDC of {realm} differ ({why}), so that tickets are refused; set the time by \
                 that of the controllers (`timedatectl`, `chronyc sources`)"
            ),
            _ => format!("whether the keys of {keytab} are current cannot be checked: {why}"),
        }
    }

    fn of_service(&self, service: &Service, client: &str, fault: Fault) -> String {
        let (Service { of, name, .. }, keytab) = (service, self.keytab.display());
        match (fault == Fault::UnknownService, is_computer(client)) {
            (true, true) => format!(
                "the domain has no name {of}/{name}: clients that connect to `{name}` get no ticket; {}, or set `kerberos.names` \
                 to the name that clients type",
                self.add_name(&format!("{of}/{name}"))
            ),
            (true, false) if service.has_key => format!(
                "the KDC has no {of}/{name}, of which the keytab has a key: clients that connect to `{name}` get no ticket; \
                 `kadmin -q \"addprinc -randkey {of}/{name}\"`, then `ktadd`"
            ),
            (true, false) => missing(self.entries, of, name),
            (false, _) => format!(
                "the KDC makes tickets for {of}/{name} with a key that the keytab {keytab} does not have, so that the gateway \
                 refuses them: the name belongs to another account (`setspn -Q {of}/{name}` says which), or the keytab is older \
                 than its key; then {}",
                self.renew()
            ),
        }
    }
}

/// Formats the fault as a word that stays the same.
pub(super) fn word(answer: &Answer) -> &'static str {
    match answer {
        Ok(()) => "good",
        Err((Fault::NoKdc, _)) => "no-kdc",
        Err((Fault::UnknownClient, _)) => "unknown-account",
        Err((Fault::Disabled, _)) => "disabled",
        Err((Fault::OldKey, _)) => "old-keytab",
        Err((Fault::UnknownService, _)) => "unknown-service",
        Err((Fault::OtherKey, _)) => "other-key",
        Err((Fault::Clock, _)) => "clock",
        Err((Fault::Other, _)) => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(principal: &str, kvno: u32) -> Entry {
        Entry { principal: principal.into(), kvno, enctype: 18 }
    }

    fn service(of: &'static str, name: &str, has_key: bool) -> Service {
        Service { of, name: name.into(), has_key }
    }

    #[test]
    fn account_of_computer_asks_first() {
        let services = [service("cifs", "gw.lab", false)];
        for (principals, wanted) in [
            (&["host/gw.lab@LAB", "OLD$@LAB", "GW$@LAB"][..], "GW$@LAB"),
            (&["host/gw.lab@LAB", "OLD$@LAB"], "OLD$@LAB"),
            (&["host/gw.lab@LAB", "CIFS/gw.lab@LAB"], "CIFS/gw.lab@LAB"),
            (&["host/gw.lab@LAB"], "host/gw.lab@LAB"),
        ] {
            let entries: Vec<Entry> = principals.iter().map(|one| entry(one, 1)).collect();
            assert_eq!(client(&entries, &services), Some(wanted));
        }
        assert_eq!(client(&[], &services), None);
    }

    #[test]
    fn questions_end_with_answer_about_account() {
        let ask = |answers: &'static [Option<Fault>]| {
            let targets: Vec<String> = (0..answers.len()).map(|at| at.to_string()).collect();
            let answer = |target: &str| {
                let at: usize = target.parse().unwrap();
                answers[at].map_or(Ok(()), |fault| Err((fault, "why".to_owned())))
            };
            let all = ask_all(targets, Duration::from_secs(60), answer);
            all.iter().map(|answer| answer.as_ref().map(word)).collect::<Vec<_>>()
        };
        let told = ask(&[None, Some(Fault::UnknownService), Some(Fault::OtherKey), None]);
        assert_eq!(told, ["good", "unknown-service", "other-key", "good"].map(Some));
        assert_eq!(ask(&[Some(Fault::OldKey), None]), [Some("old-keytab"), None]);
        assert_eq!(ask(&[None, Some(Fault::NoKdc), None]), [Some("good"), Some("no-kdc"), None]);
    }

    /// The library tries each KDC for long.
    #[test]
    fn silent_kdc_is_not_waited_for() {
        let (go, stop) = mpsc::channel::<()>();
        let stop = std::sync::Mutex::new(stop);
        let ask = move |_: &str| {
            let _ = mutex::locked(&stop).recv();
            Ok(())
        };
        let all = ask_all(vec!["a".into(), "b".into()], Duration::from_millis(20), ask);
        assert_eq!(all, [Some(Err((Fault::NoKdc, "no answer within 0 s".into()))), None]);
        drop(go);
    }

    fn computer() -> [Entry; 3] {
        [entry("GW$@LAB", 2), entry("GW$@LAB", 3), entry("host/gw.lab@LAB", 3)]
    }

    fn alone() -> [Entry; 1] {
        [entry("cifs/gw.lab@LAB", 3)]
    }

    /// Checks that there are so many remarks about services `cifs` and `nfs`, one of them with all of these words.
    fn says(
        (entries, by): (&[Entry], Option<DomainBy>),
        answers: [Option<Fault>; 2],
        (count, wanted): (usize, &[&str]),
    ) {
        let has_key = entries.iter().any(|e| e.service() == "cifs");
        let services = [service("cifs", "gw.lab", has_key), service("nfs", "gw.lab", false)];
        let known = Known { keytab: Path::new(SYSTEM_KEYTAB), entries, services: &services, by };
        let client = client(entries, &services).unwrap().to_owned();
        let mut all: Vec<Option<Answer>> = answers
            .map(|fault| Some(fault.map_or(Ok(()), |fault| Err((fault, "its words".to_owned())))))
            .into();
        if answers[0].is_some_and(is_of_account) {
            all[1] = None;
        }
        let told = known.remarks(Some(&Answers { client, all }));
        let is_it = |told: &&String| wanted.iter().all(|word| told.contains(word));
        let found = told.iter().filter(is_it).count();
        assert_eq!((told.len(), found), (count, count.min(1)), "{answers:?} {wanted:?}: {told:#?}");
    }

    const WINBIND: Option<DomainBy> = Some(DomainBy::Winbind);
    const SSSD: Option<DomainBy> = Some(DomainBy::Sssd);

    /// Each state has one remark, with its remedy.
    #[test]
    fn states_of_account_are_told_apart() {
        let (computer, alone) = (computer(), alone());
        let of = |whose, fault, wanted| says(whose, [Some(fault), None], wanted);
        let (gw, sssd, other) =
            ((&computer[..], WINBIND), (&computer[..], SSSD), (&alone[..], None));
        of(gw, Fault::OldKey, (1, &["older", "GW$@LAB (version 3)", "`net ads keytab create -P`"]));
        of(gw, Fault::OldKey, (1, &["sync machine password to keytab"]));
        of(sssd, Fault::OldKey, (1, &["older", "`adcli update"]));
        of(other, Fault::OldKey, (1, &["older", "cifs/gw.lab@LAB (version 3)", "`kadmin ktadd`"]));
        of(
            gw,
            Fault::NoKdc,
            (2, &["no KDC of LAB answers", "unknown whether", "_kerberos._tcp.lab"]),
        );
        of((&computer, None), Fault::NoKdc, (3, &["no key of cifs/gw.lab", "Active Directory"]));
        of(gw, Fault::Clock, (1, &["clocks", "`timedatectl`"]));
        of(gw, Fault::Disabled, (1, &["refuses the account `GW$`", "enable it"]));
        of(gw, Fault::UnknownClient, (1, &["no account `GW$`", "join this host again"]));
        of(
            other,
            Fault::UnknownClient,
            (2, &["cannot be checked", "`HOST$@LAB`", "`cifs/gw.lab`"]),
        );
        of(gw, Fault::Other, (2, &["cannot be checked: its words"]));
    }

    #[test]
    fn states_of_service_are_told_apart() {
        let (computer, alone) = (computer(), alone());
        let (gw, sssd, other) =
            ((&computer[..], WINBIND), (&computer[..], SSSD), (&alone[..], None));
        let (unknown, other_key) = (Some(Fault::UnknownService), Some(Fault::OtherKey));
        // The KDC makes tickets for a name of the computer with its key.
        says(gw, [None, None], (0, &[]));
        says(gw, [None, unknown], (1, &["no name nfs/gw.lab", "`net ads setspn add nfs/gw.lab"]));
        says(sssd, [None, unknown], (1, &["--add-service-principal=nfs/gw.lab"]));
        says(other, [unknown, None], (1, &["KDC has no cifs/gw.lab", "addprinc"]));
        says(other, [None, unknown], (1, &["no key of nfs/gw.lab"]));
        says(
            gw,
            [other_key, None],
            (1, &["another account", "setspn -Q cifs/gw.lab", "keytab create"]),
        );
        says(gw, [unknown, other_key], (2, &["no name cifs/gw.lab"]));
    }

    #[test]
    fn copy_of_keytab_is_copied_again() {
        let entries = [entry("GW$@LAB", 3)];
        let known = |keytab| Known {
            keytab: Path::new(keytab),
            entries: &entries,
            services: &[],
            by: Some(DomainBy::Winbind),
        };
        assert!(
            known("/etc/headgate/krb5.keytab")
                .renew()
                .starts_with("if the file is a copy of /etc/krb5.keytab")
        );
        assert!(known(SYSTEM_KEYTAB).renew().starts_with("make it anew"));
    }
}
