//! Registered memory is locked, and a process may lock only so much of it.

use std::fs;

/// CAP_IPC_LOCK lifts the limit (`capabilities(7)`); its bit in `/proc/self/status`.
const CAP_IPC_LOCK: u64 = 1 << 14;

/// What the kernel tells about this process.
struct Allowed {
    /// RLIMIT_MEMLOCK in bytes; `None` is no limit.
    limit: Option<u64>,
    may_exceed: bool,
}

/// Whether this process may lock so many bytes; otherwise what is needed and how to get it.
pub fn locked_memory_suffices(bytes: u64) -> Result<(), String> {
    allowed().map_or(Ok(()), |allowed| judge(&allowed, bytes))
}

fn judge(allowed: &Allowed, bytes: u64) -> Result<(), String> {
    match allowed.limit {
        Some(limit) if limit < bytes && !allowed.may_exceed => Err(format!(
            "RDMA cards need {} MiB of locked memory and this process may lock {} KiB: raise it (LimitMEMLOCK=infinity \
             in the systemd unit, `ulimit -l unlimited` in a shell, --ulimit memlock=-1 for a container) or make the \
             memory limit of the gateway smaller",
            bytes.div_ceil(1 << 20),
            limit >> 10,
        )),
        _ => Ok(()),
    }
}

fn allowed() -> Option<Allowed> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    parse(&limits, &status)
}

fn parse(limits: &str, status: &str) -> Option<Allowed> {
    let soft = limits.lines().find_map(|l| l.strip_prefix("Max locked memory"))?;
    let limit = soft.split_whitespace().next()?.parse().ok();
    let held = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(held.trim(), 16).ok()?;
    Some(Allowed { limit, may_exceed: held & CAP_IPC_LOCK != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                          Max locked memory         8388608              8388608              bytes\n";

    #[test]
    fn a_limit_that_is_too_small_names_both_numbers() {
        let allowed = parse(LIMITS, "CapEff:\t0000000000000000\n").unwrap();
        assert_eq!(judge(&allowed, 8 << 20), Ok(()));
        let why = judge(&allowed, 512 << 20).unwrap_err();
        assert!(why.contains("512 MiB") && why.contains("8192 KiB"), "{why}");
        assert!(why.contains("LimitMEMLOCK"), "{why}");
    }

    #[test]
    fn the_capability_and_no_limit_lift_it() {
        let allowed = parse(LIMITS, "CapEff:\t0000000000004000\n").unwrap();
        assert_eq!(judge(&allowed, 1 << 40), Ok(()));
        let unlimited =
            "Max locked memory         unlimited            unlimited            bytes\n";
        let allowed = parse(unlimited, "CapEff:\t0\n").unwrap();
        assert_eq!(judge(&allowed, 1 << 40), Ok(()));
    }

    #[test]
    fn this_process_can_be_asked() {
        assert!(allowed().is_some());
        assert_eq!(locked_memory_suffices(0), Ok(()));
    }
}
