//! Whether an upstream heeds `stream_options`, held against what the configuration asks of it.

use hyper::StatusCode;

use super::advice::{Place, answered, unanswered};
use super::ask::Heard;
use super::report::Finding;
use super::stream::Seen;
use crate::backend::upstream::Cause;

/// What came of a stream that was asked for its usage. `before` is the stream that was not asked.
pub(super) fn judge(answer: &Result<Heard, Cause>, before: &Seen, backend: &str, place: &Place<'_>) -> Finding {
    let heard = match answer {
        Ok(heard) => heard,
        Err(cause) => return unanswered(cause, place.config),
    };
    let on = place.config.include_usage;
    if matches!(heard.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) {
        let detail = format!("rejected: {}", answered(heard, place));
        let advice = if on {
            format!(
                "streams are asked for again without it, and work; set include_usage = false in [backend.{backend}] to \
                 spare the second request"
            )
        } else {
            "leave include_usage = false; clients that ask for usage get this answer".to_owned()
        };
        return Finding::note(detail, advice);
    }
    if !heard.status.is_success() {
        return Finding::note(format!("unknown: {}", answered(heard, place)), "the stream before it worked: try again");
    }
    let usage = Seen::of(heard).usage;
    let unasked = before.usage.is_some();
    match (usage.and_then(|usage| usage.output), on) {
        (Some(tokens), true) => {
            Finding::ok(format!("accepted: usage came ({tokens} out), and include_usage asks for it"))
        }
        (Some(tokens), false) if unasked => Finding::ok(format!("usage came ({tokens} out), asked for or not")),
        (Some(tokens), false) => Finding::note(
            format!("accepted: usage came ({tokens} out), but include_usage = false"),
            format!(
                "set include_usage = true in [backend.{backend}] to know output tokens, and so TPOT, of every stream"
            ),
        ),
        (None, _) => {
            let detail = if on {
                "ignored: no usage came, so include_usage = true has no effect here"
            } else {
                "ignored: no usage came"
            };
            match &place.config.tokenizer {
                Some(_) => Finding::ok(format!("{detail}; the tokenizer counts output tokens")),
                None => Finding::note(
                    format!("{detail}; output tokens are counted by events"),
                    "TPOT is then right only where an event is a token: give the backend a tokenizer to count with",
                ),
            }
        }
    }
}
