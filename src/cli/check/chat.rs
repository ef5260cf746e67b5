//! A chat completion of one token, asked for whole: the request, and what its reply says.

use serde_json::{Value, json};

use super::advice::{Place, answered, near, refusal};
use super::ask::Heard;
use super::models::{Model, Origin, some_names};
use super::report::{Finding, Status};
use super::words::{is_web_page, shown, words};
use crate::wire::chat::reply;

/// Where chat completions are asked for, below `/v1`.
pub(super) const PATH: &str = "/chat/completions";

/// The field that limits a reply to one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cap {
    /// `max_tokens`, which most APIs know.
    MaxTokens,
    /// `max_completion_tokens`, which some models insist on.
    MaxCompletionTokens,
}

impl Cap {
    fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// The smallest chat request there is. `usage` asks a stream for its token counts.
pub(super) fn request(model: &str, cap: Cap, stream: bool, usage: bool) -> Value {
    let mut request = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], (cap.name()): 1});
    if stream {
        request["stream"] = true.into();
    }
    if usage {
        request["stream_options"] = json!({"include_usage": true});
    }
    request
}

/// Whether a reply refuses `max_tokens`, so that the other field is worth a try.
pub(super) fn wants_other_cap(heard: &Heard) -> bool {
    matches!(heard.status.as_u16(), 400 | 422) && memchr::memmem::find(&heard.body, b"max_tokens").is_some()
}

/// What the reply says.
pub(super) fn judge(heard: &Heard, place: &Place<'_>, model: &Model, listed: &[String]) -> Finding {
    let name = shown(&model.name, place.key.secret);
    if let Some(refused) = refused(heard, place, model, listed) {
        return refused;
    }
    if heard.media == "text/event-stream" || heard.body.trim_ascii_start().starts_with(b"data:") {
        return Finding::note(
            format!("\"{name}\" answered with a stream although a whole reply was asked for"),
            "clients that do not stream cannot read it: let yours stream",
        );
    }
    let meaning = reply(&heard.body);
    let said = words(&heard.body, place.key.secret).unwrap_or_default();
    if meaning.malformed {
        return Finding::failed(
            format!("{} answered with something else than JSON: {said}", place.url),
            "check that base_url points at an OpenAI-compatible API",
        );
    }
    if meaning.choices.is_empty() {
        return no_choices(meaning.error, &said);
    }
    let tokens = match meaning.usage.and_then(|usage| usage.input.zip(usage.output)) {
        Some((input, output)) => format!(" (tokens: {input} in, {output} out)"),
        None => String::new(),
    };
    Finding::ok(format!("\"{name}\" answered{tokens}"))
}

/// What a reply says that came only with the other cap. `said` is what was said to `max_tokens`.
pub(super) fn with_other_cap(finding: Finding, said: &str) -> Finding {
    if finding.status != Status::Ok {
        return finding;
    }
    Finding::note(
        format!("{}; it refuses max_tokens: {said}", finding.detail),
        "clients must send max_completion_tokens to this model, as this check then did",
    )
}

/// What to say of a status 200 that brought no reply.
pub(super) fn no_choices(error: bool, said: &str) -> Finding {
    if error {
        Finding::failed(
            format!("it answered 200 with an error and no choices: {said}"),
            "its words say why; a client that reads choices without looking for an error fails here",
        )
    } else {
        Finding::failed(
            format!("it answered 200 without choices: {said}"),
            "check that base_url points at an OpenAI-compatible API",
        )
    }
}

/// A refusal of a chat request, whole or streamed: an unknown model first, else what any request may meet.
pub(super) fn refused(heard: &Heard, place: &Place<'_>, model: &Model, listed: &[String]) -> Option<Finding> {
    if is_unknown_model(heard, &model.name, listed) {
        let near = near(&model.name, listed);
        let known = if !near.is_empty() {
            format!("near names in its list: {}; ", some_names(near, place.key.secret))
        } else if !listed.is_empty() {
            format!(
                "its list of {} has no such name: {}; ",
                listed.len(),
                some_names(listed.iter().map(|name| &**name), place.key.secret)
            )
        } else {
            String::new()
        };
        let detail =
            format!("\"{}\" is not known there: {}", shown(&model.name, place.key.secret), answered(heard, place));
        return Some(Finding::failed(detail, format!("{known}{}", model.how_to_change())));
    }
    let mut refused = refusal(heard, place)?;
    if matches!(heard.status.as_u16(), 400 | 403 | 404 | 422 | 500..)
        && model.origin == Origin::List
        && let Some(advice) = &mut refused.advice
    {
        let name = shown(&model.name, place.key.secret);
        *advice = format!("{advice}; {name} was asked for, as the first of the list: give --model for another");
    }
    Some(refused)
}

/// What a model is called; relays of the one-api family answer in Chinese.
const MODEL: [&str; 2] = ["model", "模型"];

/// Whether an answer speaks of a model. A web page, which may speak of anything, does not.
pub(super) fn mentions_model(heard: &Heard) -> bool {
    let text = String::from_utf8_lossy(&heard.body).to_lowercase();
    !is_web_page(&heard.body) && MODEL.iter().any(|word| text.contains(word))
}

/// Whether a refusal is about the model's name: it says so by code or in words, or the name is not in the list.
pub(super) fn is_unknown_model(heard: &Heard, model: &str, listed: &[String]) -> bool {
    const CODES: [&str; 3] = ["model_not_found", "model_not_exist", "modelnotfound"];
    const SAYS: [&str; 11] = [
        "not found",
        "not exist",
        "unknown",
        "invalid model",
        "no available",
        "not available",
        "not supported",
        "no such",
        "无可用渠道",
        "不存在",
        "不支持",
    ];
    let status = heard.status.as_u16();
    if !matches!(status, 400 | 403 | 404 | 422 | 500 | 503) {
        return false;
    }
    let text = String::from_utf8_lossy(&heard.body).to_lowercase();
    let has = |any: &[&str]| any.iter().any(|part| text.contains(part));
    let said = has(&MODEL) && has(&SAYS) && text.contains(&model.to_lowercase());
    let unlisted = !listed.is_empty() && !listed.iter().any(|known| known.eq_ignore_ascii_case(model));
    has(&CODES) || said || (unlisted && has(&MODEL) && matches!(status, 400 | 404))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_the_smallest_there_is() {
        let plain = request("m", Cap::MaxTokens, false, false);
        assert_eq!(plain, json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}));
        let full = request("m", Cap::MaxCompletionTokens, true, true);
        assert_eq!(
            (full["stream"].as_bool(), &full["max_completion_tokens"], &full["stream_options"]["include_usage"]),
            (Some(true), &json!(1), &json!(true))
        );
        assert!(full.get("max_tokens").is_none());
    }
}
