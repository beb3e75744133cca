//! The audit trail.

use super::*;
use crate::{Audit, AuditTo, Audited};

#[test]
fn audit_trail_needs_safe_destination() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    let shares =
        format!("shares:\n  - {{name: data, path: {at}, audit: [changes, reads, changes]}}\n");
    let settings = read(&format!("{shares}audit: {{to: journald, required: true}}\n")).unwrap();
    assert_eq!(settings.audit, Some(Audit { to: AuditTo::Journal, required: true }));
    assert_eq!(settings.shares[0].audit, [Audited::Changes, Audited::Reads]);
    let fault = |audit: &str| told(&format!("{shares}{audit}"));
    assert!(
        fault("").contains("2:")
            && fault("").contains("`data` sets `audit`, but there is no audit trail")
    );
    let inside = fault(&format!("audit: {{to: {at}/a}}"));
    assert!(inside.contains("3:13") && inside.contains("inside the share `data`"), "{inside}");
    assert!(fault("audit: {to: here}").contains("neither `journald` nor an absolute path"));
    assert!(fault("audit: {required: true}").contains("has no destination"));
    assert!(fault("audit: {to: /no/such/folder/a}").contains("mkdir -p -m 700 /no/such/folder"));
    assert!(fault("audit: {to: /proc}").contains("is a folder"));
    assert!(fault("audit: {to: journald, required: maybe}").contains("neither `true` nor"));
    let wrong = told(&shares.replace("reads", "opens"));
    assert!(wrong.contains("`opens` is not an audit level"), "{wrong}");
}
