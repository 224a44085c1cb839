//! What the machine says of this process: how much memory there is for it, and when it began.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::SystemTime;

/// What is assumed where nobody tells, in bytes.
const UNKNOWN: usize = 4 << 30;

/// Bytes of memory of the machine, or of the control group in which the process runs if that has less.
pub(super) fn memory_bytes() -> usize {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| total_of(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups).into_iter();
    let limits = limits.filter_map(|path| limit_of(&read(&path)?));
    limits.chain(machine).min().unwrap_or(UNKNOWN)
}

/// `MemTotal` of `/proc/meminfo`.
fn total_of(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A limit of a control group; `max`, and what no machine has, is none.
fn limit_of(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 60)
}

/// The files that hold the limits of the groups in `/proc/self/cgroup`, and of those around them.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        let around = group.ancestors();
        files.extend(around.map(|group| Path::new(root).join(group).join(file)));
    }
    files
}

/// When the process opened its first database, in µs since 1970.
static STARTED_US: LazyLock<i64> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.ok()
        .and_then(|now| i64::try_from(now.as_micros()).ok())
        .unwrap_or(0)
});

/// When the process opened its first database, in µs since 1970. Who opens one asks for it.
pub(crate) fn started_us() -> i64 {
    *STARTED_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_all_groups_counts() {
        assert_eq!(
            total_of("MemFree:  1 kB\nMemTotal:       16384 kB\n"),
            Some(16 << 20)
        );
        assert_eq!(limit_of("268435456\n"), Some(256 << 20));
        assert_eq!(limit_of("max\n"), None);
        assert_eq!(limit_of("9223372036854771712\n"), None);
        let files = limit_files("0::/a/b\n");
        let expected = [
            "/sys/fs/cgroup/a/b/memory.max",
            "/sys/fs/cgroup/a/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
        let files = limit_files("5:cpu,cpuacct:/x\n4:memory:/\n");
        assert_eq!(
            files,
            [PathBuf::from("/sys/fs/cgroup/memory/memory.limit_in_bytes")]
        );
        assert!(memory_bytes() > 1 << 20);
    }
}
