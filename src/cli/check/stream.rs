//! A chat completion of one token, asked for as a stream: what came, and which intervals can be had from it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::advice::{Place, broken, endless};
use super::ask::Heard;
use super::chat::{no_choices, refused};
use super::models::Model;
use super::report::{Finding, Status};
use super::words::{shown, words};
use crate::wire::chat::ChunkReader;
use crate::wire::sse::{DEFAULT_CAP, Item, SseParser};
use crate::wire::{Choice, Usage};

/// What a stream brought.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// When the first token event was read. `None` where none came.
    pub(super) first_token: Option<Instant>,
    last_token: Option<Instant>,
    token_events: u64,
    events: u64,
    choices: BTreeSet<u32>,
    /// The last finish reason. `None` where none came.
    finish: Option<String>,
    refused: bool,
    done: bool,
    /// The last usage. `None` where none came.
    pub(super) usage: Option<Usage>,
    /// The event that is an error. `None` where none is.
    error: Option<Vec<u8>>,
}

impl Seen {
    /// Reads a reply as a stream of events.
    pub(super) fn of(heard: &Heard) -> Self {
        let mut seen = Self::default();
        let mut chunks = ChunkReader::new();
        of_events(heard, &mut |item, at| seen.item(&mut chunks, item, at));
        seen
    }

    fn item(&mut self, chunks: &mut ChunkReader, item: Item<'_>, at: Instant) {
        let (data, whole) = match item {
            Item::Event(event) => (event.data, true),
            Item::Unterminated(event) => (event.data, false),
            Item::Stray(data) => (data, false),
            Item::Oversized { .. } => return,
        };
        let meaning = chunks.event(data);
        self.events += u64::from(whole);
        self.done |= meaning.done;
        self.usage = meaning.usage.or(self.usage);
        if meaning.error {
            self.error = Some(data.to_vec());
        }
        self.choices.extend(meaning.choices.iter().map(|choice| choice.index));
        if whole && meaning.choices.iter().any(Choice::has_output) {
            self.token_events += 1;
            self.first_token.get_or_insert(at);
            self.last_token = Some(at);
        }
        if meaning.choices.is_empty() {
            return;
        }
        let Ok(event) = serde_json::from_slice::<Value>(data) else { return };
        for choice in event["choices"].as_array().into_iter().flatten() {
            if let Some(reason) = choice["finish_reason"].as_str() {
                self.finish = Some(shown(reason, None));
            }
            self.refused |= choice["delta"]["refusal"].as_str().is_some_and(|refusal| !refusal.is_empty());
        }
    }

    /// Output tokens, by usage or else by counting events, and which of the two.
    fn tokens(&self) -> (u64, &'static str) {
        match self.usage.and_then(|usage| usage.output) {
            Some(output) => (output, "usage"),
            None => (self.token_events, "counted events"),
        }
    }

    /// TPOT, or why there is none.
    fn tpot(&self) -> String {
        let (tokens, source) = self.tokens();
        let why = if self.choices.len() > 1 {
            format!("it sent {} choices, whose tokens cannot be told apart", self.choices.len())
        } else if tokens < 2 {
            match self.finish.as_deref() {
                Some("length") => {
                    "one token has no gap (finish_reason \"length\": the cap that this check sets)".to_owned()
                }
                Some(reason) => format!("one token has no gap (finish_reason \"{reason}\")"),
                None => "one token has no gap".to_owned(),
            }
        } else if let (Some(first), Some(last)) = (self.first_token, self.last_token)
            && last > first
        {
            let gaps = u32::try_from(tokens - 1).unwrap_or(u32::MAX);
            return format!(
                "TPOT {} over {tokens} tokens ({source})",
                ms(last.saturating_duration_since(first) / gaps)
            );
        } else {
            let what = if self.token_events > 1 { "read" } else { "event" };
            format!("its {tokens} tokens ({source}) came in one {what}")
        };
        let refusal = if self.refused { ", and the model refused" } else { "" };
        format!("TPOT absent: {why}{refusal}")
    }
}

/// Reads a reply as a stream of events, each with the instant of the read that brought its end.
pub(super) fn of_events(heard: &Heard, each: &mut dyn FnMut(Item<'_>, Instant)) {
    let mut parser = SseParser::new(DEFAULT_CAP);
    let mut rest = &heard.body[..];
    for piece in &heard.pieces {
        let (bytes, after) = rest.split_at(piece.length);
        rest = after;
        parser.feed(bytes, &mut |item| each(item, piece.read.at));
    }
    if let Some(last) = heard.pieces.last() {
        parser.finish(&mut |item| each(item, last.read.at));
    }
}

/// What the reply to a streaming request says.
pub(super) fn judge(heard: &Heard, seen: &Seen, place: &Place<'_>, model: &Model, listed: &[String]) -> Finding {
    if let Some(endless) = endless(heard) {
        return endless;
    }
    if let Some(ended) = heard.broken.as_ref().filter(|_| heard.status.is_success()) {
        return broken(ended);
    }
    if let Some(refused) = refused(heard, place, model, listed) {
        return refused;
    }
    let said = |body: &[u8]| words(body, place.key.secret).unwrap_or_default();
    if seen.events == 0 {
        let meaning = crate::wire::chat::reply(&heard.body);
        return match (meaning.choices.is_empty(), meaning.malformed) {
            (false, _) => Finding::failed(
                "it answered with one JSON document, not with a stream",
                "it ignores stream = true, so there is no TTFT and no ITL to measure: ask its operator for streaming",
            ),
            (true, false) => no_choices(meaning.error, &said(&heard.body)),
            (true, true) => Finding::failed(
                format!("it answered with something else than a stream of events: {}", said(&heard.body)),
                "check that base_url points at an OpenAI-compatible API",
            ),
        };
    }
    if let Some(error) = &seen.error {
        return Finding::failed(
            format!("the stream holds an error under status 200: {}", said(error)),
            "its words say why; such a request counts as inband_error",
        );
    }
    if !seen.done && seen.finish.is_none() {
        return Finding::failed(
            "the stream ended without a finish reason and without [DONE]",
            "it was cut off, by the upstream or by something between: such a request counts as truncated",
        );
    }
    let ttft = match (seen.first_token, heard.sent) {
        (Some(first), Some(sent)) => format!("TTFT {}", ms(first.saturating_duration_since(sent))),
        (Some(_), None) => "TTFT unknown: it answered before the request was sent whole".to_owned(),
        (None, _) => "TTFT absent: no event carried output".to_owned(),
    };
    let detail = format!("{ttft}; {}", seen.tpot());
    let odd = oddities(heard, seen);
    if odd.is_empty() {
        return Finding::ok(detail);
    }
    let (what, advice): (Vec<&str>, Vec<&str>) = odd.into_iter().unzip();
    Finding { status: Status::Note, detail: format!("{detail}; {}", what.join("; ")), advice: Some(advice.join("; ")) }
}

/// What is worth knowing of a stream that works, each with what to make of it.
fn oddities(heard: &Heard, seen: &Seen) -> Vec<(&'static str, &'static str)> {
    let mut odd = Vec::new();
    if !seen.done {
        odd.push(("no [DONE] came", "it is measured all the same; some clients wait for [DONE] until they time out"));
    }
    if seen.finish.is_none() {
        odd.push((
            "no finish reason came",
            "such a request counts as unconfirmed: nothing says that it ended as it should",
        ));
    }
    if seen.first_token.is_none() {
        odd.push((
            "its one token was not shown",
            "a model that reasons in secret spends the token on that; longer replies do have a TTFT",
        ));
    }
    let at_once = |stamp: Option<Instant>| stamp == Some(heard.head_at);
    let reads: BTreeSet<u64> = heard.pieces.iter().map(|piece| piece.read.number).collect();
    if reads.len() == 1 && at_once(heard.pieces.first().map(|piece| piece.read.at)) && seen.events > 1 {
        odd.push((
            "head and stream came in one read",
            "with one token that can be chance; if longer replies come in one piece too, something between buffers \
             them: switch its buffering off",
        ));
    }
    if heard.coding.is_some() {
        odd.push((
            "it is compressed, which nobody asked for",
            "compressors may hold tokens back: switch compression off for streams",
        ));
    }
    if heard.media != "text/event-stream" {
        odd.push(("it is not labelled text/event-stream", "some clients then read it as one document"));
    }
    odd
}

/// A time as it is shown.
pub(super) fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
