//! What the log calls an event is what the proxy's own reader makes of it, in every dialect.

use streamgauge::wire::sse::{DEFAULT_CAP, Item, SseParser};
use streamgauge::wire::{Dialect, EventReader, Meaning};

use super::dialects::{COMPLETIONS, MESSAGES, RESPONSES, post};
use super::*;

/// Each dialect with streams and a reader: its path, and a request for one.
const READ: [(Dialect, &str, &str); 4] = [
    (Dialect::Chat, "/v1/chat/completions", STREAM),
    (Dialect::Completion, "/v1/completions", COMPLETIONS),
    (Dialect::Responses, "/v1/responses", RESPONSES),
    (Dialect::Messages, "/v1/messages", MESSAGES),
];

/// What the log would call an event of this meaning. `None` for one that carries no output and ends nothing.
fn kind(meaning: &Meaning<'_>) -> Option<Kind> {
    assert!(!meaning.malformed, "{meaning:?}");
    let choice = meaning.choices.first();
    match choice {
        _ if meaning.error => Some(Kind::Error),
        _ if meaning.done => Some(Kind::Done),
        Some(choice) if choice.answer => Some(Kind::Token),
        Some(choice) if choice.reasoning => Some(Kind::Reasoning),
        Some(choice) if choice.finished => Some(Kind::Finish),
        _ => None,
    }
}

#[test]
fn what_the_log_calls_an_event_is_what_its_reader_makes_of_it() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    let mut replies = 0;
    for (dialect, path, body) in READ {
        for shape in [
            "",
            "role_first=1,events_per_write=3",
            "reasoning=3,tokens_per_event=2",
            "tool=1",
            "tool=1,reasoning=3,tokens_per_event=2",
            "refusal=1",
            "usage=always,hidden=3,reasoning=2",
            "error_after=4",
            "no_finish=1",
            "no_done=1",
            "end=truncate",
        ] {
            replies += 1;
            let name = format!("r{replies}");
            let reply = client.ask(post(path, &format!("request={name},ttft_ms=1,itl_ms=0,tokens=9,{shape}"), body));
            let mut reader = EventReader::new(dialect);
            let mut read = Vec::new();
            let mut parser = SseParser::new(DEFAULT_CAP);
            let mut on = |item: Item<'_>| match item {
                Item::Event(event) => read.push(kind(&reader.event(event))),
                other => panic!("{path} {shape}: {other:?}"),
            };
            parser.feed(&reply.body, &mut on);
            parser.finish(&mut on);
            let log = log_of(&sim, replies);
            let ours = log.iter().filter(|entry| *entry.request == name && entry.event.is_some());
            let logged: Vec<_> = ours
                .map(|entry| match entry.kind {
                    Kind::Role | Kind::Part | Kind::Usage => None,
                    kind => Some(kind),
                })
                .collect();
            assert_eq!(read, logged, "{path} {shape}");
        }
    }
}
