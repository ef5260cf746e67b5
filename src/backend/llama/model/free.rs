//! How much memory is free.

use std::fs;
use std::path::{Path, PathBuf};

use candle_core::Device;

/// Bytes that can be had on `device`. `None` where that cannot be told.
pub(super) fn free(device: &Device) -> Option<u64> {
    match device {
        Device::Cpu => {
            let machine = available(&fs::read_to_string("/proc/meminfo").ok()?);
            let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| {
                groups(&text, Path::new("/sys/fs/cgroup")).iter().filter_map(|group| left_in(group)).min()
            });
            machine.into_iter().chain(group).min()
        }
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            let (free, _) = device.cuda_stream().context().mem_get_info().ok()?;
            Some(free as u64)
        }
        _ => None,
    }
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The control groups (version 2) that this process is in, the innermost first, by `/proc/self/cgroup`'s text.
fn groups(text: &str, root: &Path) -> Vec<PathBuf> {
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    // Inside a container the path may be the host's and not exist; its root does.
    let innermost = root.join(path);
    innermost.ancestors().take_while(|group| group.starts_with(root)).map(Path::to_path_buf).collect()
}

/// What a group's limit leaves. `None` without a limit.
fn left_in(group: &Path) -> Option<u64> {
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    left(&read("memory.max")?, &read("memory.current")?, &read("memory.stat").unwrap_or_default())
}

/// The limit less what is in use; file pages that can be dropped are not in use.
fn left(max: &str, current: &str, stat: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok()).unwrap_or(0);
    Some(max.saturating_sub(current.saturating_sub(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_and_every_group_around_the_process_are_asked() {
        assert_eq!(available("MemTotal:  9 kB\nMemAvailable:   2048 kB\n"), Some(2_097_152));
        assert_eq!(available("MemTotal:  9 kB\n"), None);
        let found = groups("1:cpu:/x\n0::/a/b\n", Path::new("/sys/fs/cgroup"));
        assert_eq!(found, ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"].map(PathBuf::from));
        assert_eq!(left("1000\n", "900\n", "anon 1\ninactive_file 300\n"), Some(400));
        assert_eq!(left("1000\n", "1200\n", ""), Some(0));
        assert_eq!(left("max\n", "900\n", ""), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(free(&Device::Cpu).is_some_and(|bytes| bytes > 1 << 20));
    }
}
