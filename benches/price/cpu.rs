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

/// How much of the machine other programs took: the books of the machine less those of this process and the proxies.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Busy and total CPU time of all cores since boot, and busy time of this process and the proxies, in ticks.
    at_start: [f64; 3],
}

impl Neighbours {
    /// Begins to watch; `proxies` are the roots of process trees that are not others.
    pub(crate) fn watch(proxies: &[u32]) -> Self {
        Self { at_start: Self::books(proxies) }
    }

    /// The others' share of the machine's CPU time since [`Self::watch`], 0 to 1.
    pub(crate) fn share(&self, proxies: &[u32]) -> f64 {
        let now = Self::books(proxies);
        let [busy, total, own] = std::array::from_fn(|n| now[n] - self.at_start[n]);
        if total > 0.0 { ((busy - own) / total).max(0.0) } else { 0.0 }
    }

    fn books(proxies: &[u32]) -> [f64; 3] {
        /// Ticks of `/proc` files a second, the same on every Linux.
        const USER_HZ: f64 = 100.0;
        let numbers = |text: &str| -> Vec<f64> { text.split_whitespace().map_while(|n| n.parse().ok()).collect() };
        // user nice system idle iowait irq softirq steal; guests are within user.
        let all = fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut machine = numbers(all.strip_prefix("cpu").unwrap_or_default().lines().next().unwrap_or_default());
        machine.truncate(8);
        let total: f64 = machine.iter().sum();
        let idle: f64 = machine.iter().skip(3).take(2).sum();
        // Behind the command's name: 11 fields, then user and system time, ended threads included.
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let own = own.rsplit_once(") ").map_or("", |(_, rest)| rest).split_once(' ').map_or("", |(_, rest)| rest);
        let own: f64 = numbers(own).iter().skip(10).take(2).sum();
        let proxies: u64 = proxies.iter().flat_map(|root| read_tree(*root).0.into_values()).sum();
        [total - idle, total, own + proxies as f64 / 1e9 * USER_HZ]
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
