//! The name of this host.

/// Returns the host name that the kernel has.
pub(crate) fn kernels() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "headgate".into(),
        name => name.into(),
    }
}
