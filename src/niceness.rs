//! Threads whose work can wait get the processor after those that serve.

/// How much such threads yield, in `nice` levels.
const NICENESS: i32 = 10;

/// Puts this thread, and those it starts, behind the threads that serve clients.
pub fn yield_to_proxy() {
    // Linux counts niceness by thread and hands it down; elsewhere it belongs to the process and is left alone.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        let thread = std::thread::current();
        tracing::warn!(%error, thread = thread.name(), "a thread cannot be given a lower priority");
    }
}
