//! Finds the memory that this process can still allocate: the free memory of the machine, within the limits of the
//! process's control groups and of `ulimit -v`.
//!
//! In a container, `/proc/meminfo` shows the memory of the host. If a process exceeds the limit of its control group,
//! it is killed without a message, so the limits of the group and of all groups around it count. Memory in pages of
//! files that the system can drop counts as free.

use std::path::{Path, PathBuf};

/// Returns the number of bytes that can be allocated without swapping; 0 if unknown.
pub fn available_memory() -> usize {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|info| in_machine(&info));
    let groups = match (read(Path::new("/proc/self/cgroup")), read(Path::new("/proc/self/mountinfo"))) {
        (Some(groups), Some(mounts)) => in_groups(&groups, &mounts, &read),
        _ => None,
    };
    let addresses = read(Path::new("/proc/self/limits")).zip(read(Path::new("/proc/self/status")));
    let addresses = addresses.and_then(|(limits, status)| in_addresses(&limits, &status));
    machine.unwrap_or(0).min(groups.unwrap_or(usize::MAX)).min(addresses.unwrap_or(usize::MAX))
}

/// Returns the number of bytes of address space that the process may still use; `None` if it has no limit.
fn in_addresses(limits: &str, status: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit = line.split_whitespace().next()?.parse::<usize>().ok()?;
    let used = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let used = used.split_whitespace().next()?.parse::<usize>().ok()?;
    Some(limit.saturating_sub(used.saturating_mul(1024)))
}

fn in_machine(info: &str) -> Option<usize> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<usize>().ok()?.saturating_mul(1024))
}

/// The files of a control group's version.
struct Version {
    limits: &'static [&'static str],
    used: &'static str,
    /// Fields of `memory.stat` that the system can free.
    freeable: [&'static str; 2],
}

const V1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    freeable: ["total_inactive_file", "total_active_file"],
};
const V2: Version = Version {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    freeable: ["inactive_file", "active_file"],
};

/// Returns the smallest number of bytes that any control group of a process leaves for allocation; `None` if no group
/// has a limit. `groups` and `mounts` are `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn in_groups(groups: &str, mounts: &str, read: &impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let each = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, kinds, path) = (fields.next()?, fields.next()?, fields.next()?);
        let version = match kinds {
            "" if number == "0" => V2,
            kinds if kinds.split(',').any(|kind| kind == "memory") => V1,
            _ => return None,
        };
        let (top, group) = directory(mounts, &version, path)?;
        let around = group.ancestors().take_while(|group| group.starts_with(&top));
        around.filter_map(|group| left_in(group, &version, read)).min()
    });
    each.min()
}

/// Returns the directory at which the control groups of a version are mounted, and the directory of a group.
fn directory(mounts: &str, version: &Version, path: &str) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
        let is_ours = match version.used {
            "memory.current" => kind == "cgroup2",
            _ => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        };
        let mut fields = mount.split(' ').skip(3);
        let (root, top) = (fields.next()?, fields.next().filter(|_| is_ours)?);
        // Removes the root of the mount from the group's path, because in a container the mount may begin at the
        // container's own group.
        let inside = Path::new(path).strip_prefix(root).or_else(|_| Path::new(path).strip_prefix("/")).ok()?;
        Some((PathBuf::from(top), Path::new(top).join(inside)))
    })
}

/// Returns the number of bytes that a control group may still allocate; `None` if it has no limit.
fn left_in(group: &Path, version: &Version, read: &impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let number = |name: &str| read(&group.join(name))?.trim().parse::<usize>().ok();
    let limit = version.limits.iter().filter_map(|name| number(name)).min()?;
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let freeable = stat.lines().filter_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        version.freeable.contains(&name).then(|| bytes.trim().parse::<usize>().ok())?
    });
    let used = number(version.used).unwrap_or(0).saturating_sub(freeable.sum());
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<usize> {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| text.to_string())
        };
        in_groups(groups, mounts, &read)
    }

    #[test]
    fn a_limit_of_addresses_counts() {
        let limits = |limit: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max resident set          unlimited            unlimited            bytes     \n\
                 Max address space         {limit:20} unlimited            bytes     \n"
            )
        };
        let status = "Name:\tarenite\nVmPeak:\t  900 kB\nVmSize:\t     700 kB\n";
        assert_eq!(in_addresses(&limits("1024000"), status), Some(300 << 10));
        assert_eq!(in_addresses(&limits("1000"), status), Some(0));
        assert_eq!(in_addresses(&limits("unlimited"), status), None);
    }

    const V2_MOUNT: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_least_of_a_group_and_the_groups_around_it_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.current", "700\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a/memory.current", "900\n"),
            ("/sys/fs/cgroup/a/memory.stat", "anon 100\ninactive_file 500\nactive_file 100\nfile 800\n"),
        ];
        assert_eq!(left("0::/a/b\n", V2_MOUNT, &files), Some(700));
        assert_eq!(left("0::/c\n", V2_MOUNT, &files), None);
        let high = [&files[..], &[("/sys/fs/cgroup/a/b/memory.high", "800")]].concat();
        assert_eq!(left("0::/a/b\n", V2_MOUNT, &high), Some(100));
        // A group that takes more than it may leaves nothing.
        let full = [("/sys/fs/cgroup/a/memory.max", "10"), ("/sys/fs/cgroup/a/memory.current", "90")];
        assert_eq!(left("0::/a\n", V2_MOUNT, &full), Some(0));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount() {
        let mounts = "700 699 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let files = [("/sys/fs/cgroup/memory.max", "5000"), ("/sys/fs/cgroup/memory.current", "1000")];
        assert_eq!(left("0::/docker/x\n", mounts, &files), Some(4000));
        assert_eq!(left("0::/\n", V2_MOUNT, &files), Some(4000));
    }

    #[test]
    fn groups_of_the_first_version_count() {
        let groups = "12:cpu,cpuacct:/x\n9:memory:/docker/y\n0::/z\n";
        let mounts = "30 29 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
            31 29 0:28 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";
        let files = [
            ("/sys/fs/cgroup/memory/docker/y/memory.limit_in_bytes", "3000"),
            ("/sys/fs/cgroup/memory/docker/y/memory.usage_in_bytes", "2500"),
            (
                "/sys/fs/cgroup/memory/docker/y/memory.stat",
                "inactive_file 1\ntotal_inactive_file 400\ntotal_active_file 100\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
        ];
        assert_eq!(left(groups, mounts, &files), Some(1000));
    }
}
