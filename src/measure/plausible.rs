//! What can be believed of what an upstream reports.

use crate::wire::Usage;

/// More tokens than this in one request are not believed: a counter must survive one bad report.
const MOST_TOKENS: u64 = 100_000_000;

/// What can be believed of a usage report: no count beyond reason, and no part larger than its whole.
pub(super) fn plausible(usage: Usage) -> Usage {
    let within = |count: Option<u64>, most: u64| count.filter(|count| *count <= most);
    let input = within(usage.input, MOST_TOKENS);
    let output = within(usage.output, MOST_TOKENS);
    Usage {
        input,
        output,
        reasoning: within(usage.reasoning, output.unwrap_or(0)),
        cached: within(usage.cached, input.unwrap_or(0)),
    }
}
