//! CPU time of a process tree from the scheduler's own books, which count nanoseconds where `getrusage` may count ticks.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// CPU time of every thread of a process tree at one moment, by thread id, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Reading(HashMap<u32, u64>);

impl Reading {
    /// What the tree used since `earlier`. A thread that ended in between is left out.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let used = |(thread, now): (&u32, &u64)| now.saturating_sub(earlier.0.get(thread).copied().unwrap_or(0));
        Duration::from_nanos(self.0.iter().map(used).sum())
    }
}

/// Reads `/proc/PID/task/*/schedstat` of `root` and everything it started.
pub(crate) fn read_tree(root: u32) -> Reading {
    let mut threads = HashMap::new();
    for process in tree(root) {
        for thread in numbers_in(&format!("/proc/{process}/task")) {
            let stat = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).unwrap_or_default();
            if let Some(on_cpu) = stat.split(' ').next().and_then(|ns| ns.parse().ok()) {
                threads.insert(thread, on_cpu);
            }
        }
    }
    Reading(threads)
}

fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = numbers_in("/proc").filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        found.extend(parents.iter().filter(|(_, parent)| *parent == process).map(|(pid, _)| pid));
        next += 1;
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name before it is in parentheses and may hold anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

fn numbers_in(folder: &str) -> impl Iterator<Item = u32> {
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
