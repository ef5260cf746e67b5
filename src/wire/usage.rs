//! Token counts as OpenAI's dialects write them: the same four, under two sets of names.

use super::Usage;
use super::raw::{fields, whole_number};

/// Usage of chat and text completions. `None` when it names no count at all.
pub(super) fn of_completion(text: &str) -> Option<Usage> {
    let [input, output, input_details, output_details, cache_hit] = fields(
        text,
        [
            "prompt_tokens",
            "completion_tokens",
            "prompt_tokens_details",
            "completion_tokens_details",
            "prompt_cache_hit_tokens",
        ],
    )?;
    told([input, output, input_details, output_details], cache_hit)
}

/// Usage of a response. `None` when it names no count at all.
pub(super) fn of_response(text: &str) -> Option<Usage> {
    let names = ["input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details"];
    told(fields(text, names)?, None)
}

/// `cached` is a count that stands where the details have none.
fn told([input, output, input_details, output_details]: [Option<&str>; 4], cached: Option<&str>) -> Option<Usage> {
    let detail = |details: Option<&str>, name| {
        let [value] = fields(details?, [name])?;
        whole_number(value?)
    };
    let usage = Usage {
        input: input.and_then(whole_number),
        output: output.and_then(whole_number),
        reasoning: detail(output_details, "reasoning_tokens"),
        cached: detail(input_details, "cached_tokens").or_else(|| cached.and_then(whole_number)),
    };
    (usage != Usage::default()).then_some(usage)
}
