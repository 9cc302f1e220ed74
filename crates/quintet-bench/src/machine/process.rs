//! Costs of this process: processor time and memory; and the load of the machine.

use std::time::{Duration, SystemTime};

use super::procfs::{field, kibibytes, read};

/// Returns the processor time of all threads of this process.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Memory of this process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident memory now.
    pub resident_bytes: u64,
    /// Maximum resident memory since the process started.
    pub peak_bytes: u64,
}

/// Returns the memory of this process; zeros if the kernel does not report it.
pub fn memory() -> ProcessMemory {
    let bytes = |name| field("/proc/self/status", name).and_then(|text| kibibytes(&text));
    ProcessMemory {
        resident_bytes: bytes("VmRSS").unwrap_or(0),
        peak_bytes: bytes("VmHWM").unwrap_or(0),
    }
}

/// Returns the load average of the last minute.
pub fn load_average() -> Option<f64> {
    read("/proc/loadavg")?.split_whitespace().next()?.parse().ok()
}

/// Returns the time in milliseconds since 1970, UTC.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}
