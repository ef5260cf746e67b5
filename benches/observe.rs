//! What observing costs: SSE splitting in bytes per second, the meaning of a chunk, both together per event, and the
//! whole observer per event, from the read that brings it to the write that takes it away.
//!
//! `cargo bench --bench observe -- --passes N DIALECT` passes N events of a dialect (`chat` if none is named) through the
//! observer and does nothing else, to be run under a tool that counts: `scripts/observer-cost.sh`.

#[path = "observe/pass.rs"]
mod pass;

use std::fmt::Write as _;
use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use streamgauge::wire::Dialect;
use streamgauge::wire::chat::{ChunkReader, reply};
use streamgauge::wire::sse::{DEFAULT_CAP, Item, SseParser};

/// A read's size, as a proxy's buffer has it.
const READ: usize = 8192;

/// A chunk of about 200 bytes, as vLLM and most relays send it.
fn plain(token: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-9b3f2a7c4d1e4f60","object":"chat.completion.chunk","created":1760000000,"model":"llama-2-7b-chat","choices":[{{"index":0,"delta":{{"content":"{token}"}},"logprobs":null,"finish_reason":null}}]}}"#
    )
}

/// The same as `OpenAI` sends it, padded so that its length gives nothing away: its end never repeats.
fn padded(token: &str, padding: &str) -> String {
    let chunk = plain(token);
    format!(r#"{},"obfuscation":"{padding}"}}"#, &chunk[..chunk.len() - 1])
}

const TOKENS: [&str; 6] = [" The", " gauge", "\\n", " stands", " in", " a"];
const PADDINGS: [&str; 6] = ["Xa9", "b", "kq0Zt1", "Pp", "x7", "LmNo"];

fn chunks() -> Vec<String> {
    TOKENS.iter().map(|token| plain(token)).collect()
}

fn meaning(c: &mut Criterion) {
    let mut group = c.benchmark_group("meaning");
    let mut stream = |name: &str, chunks: &[String]| {
        let mut reader = ChunkReader::new();
        let mut next = chunks.iter().cycle();
        group.bench_function(name, |b| {
            b.iter(|| {
                let chunk = next.next().map_or(&[][..], String::as_bytes);
                black_box(reader.event(black_box(chunk)).choices.len())
            });
        });
    };
    stream("chunk, shape remembered", &chunks());
    stream("chunk, its end new each time", &TOKENS.iter().zip(PADDINGS).map(|(t, p)| padded(t, p)).collect::<Vec<_>>());
    let shifting: Vec<_> = TOKENS.iter().zip(PADDINGS).map(|(t, p)| plain(t).replace("chatcmpl", p)).collect();
    stream("chunk, nothing remembered", &shifting);
    let call = r#"{"id":"chatcmpl-9b3f2a7c4d1e4f60","object":"chat.completion.chunk","created":1760000000,"model":"llama-2-7b-chat","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city"}}]},"logprobs":null,"finish_reason":null}]}"#;
    stream("tool call", &[call.to_owned()]);
    let usage = r#"{"id":"chatcmpl-9b3f2a7c4d1e4f60","object":"chat.completion.chunk","created":1760000000,"model":"llama-2-7b-chat","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":64,"total_tokens":76}}"#;
    stream("usage", &[usage.to_owned()]);
    let chunk = plain(" The");
    group.bench_function("chunk, by serde", |b| b.iter(|| black_box(reply(black_box(chunk.as_bytes())).choices.len())));
    group.finish();
}

/// A stream of 200-byte chunks.
fn stream(events: usize) -> String {
    chunks().iter().cycle().take(events).fold(String::new(), |mut stream, chunk| {
        let _ = write!(stream, "data: {chunk}\n\n");
        stream
    })
}

fn split(c: &mut Criterion) {
    let stream = stream(2000);
    let mut group = c.benchmark_group("split");
    group.throughput(Throughput::Bytes(stream.len() as u64));
    let blocks: Vec<&[u8]> = stream.as_bytes().chunks(READ).collect();
    let single: Vec<&[u8]> = stream.split_inclusive("\n\n").map(str::as_bytes).collect();
    for (name, reads) in [("8 KiB reads", &blocks), ("one event a read", &single)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut parser = SseParser::new(DEFAULT_CAP);
                let mut bytes = 0;
                for read in reads {
                    parser.feed(read, &mut |item| {
                        if let Item::Event(event) = item {
                            bytes += event.data.len();
                        }
                    });
                }
                black_box(bytes)
            });
        });
    }
    group.finish();
}

fn observe(c: &mut Criterion) {
    let events = 2000;
    let stream = stream(events);
    let mut group = c.benchmark_group("split and meaning");
    group.throughput(Throughput::Elements(events as u64));
    let run = |(mut parser, mut chunks): (SseParser, ChunkReader), reads: &[&[u8]]| {
        let mut tokens = 0;
        for read in reads {
            parser.feed(read, &mut |item| {
                if let Item::Event(event) = item {
                    tokens += chunks.event(event.data).choices.iter().filter(|choice| choice.has_output()).count();
                }
            });
        }
        tokens
    };
    let fresh = || (SseParser::new(DEFAULT_CAP), ChunkReader::new());
    let blocks: Vec<&[u8]> = stream.as_bytes().chunks(READ).collect();
    let single: Vec<&[u8]> = stream.split_inclusive("\n\n").map(str::as_bytes).collect();
    for (name, reads) in [("8 KiB reads", &blocks), ("one event a read", &single)] {
        assert_eq!(run(fresh(), reads), events, "every event of the bench carries a token");
        group.bench_function(name, |b| {
            b.iter_batched(fresh, |state| black_box(run(state, black_box(reads))), BatchSize::SmallInput);
        });
    }
    group.finish();
}

/// Frames of one event each, all with output of the common kind.
fn dialects(name: &str) -> (Dialect, Vec<Bytes>) {
    let frames = |write: &dyn Fn(&str) -> String| TOKENS.iter().map(|token| write(token).into()).collect();
    match name {
        "chat" => (Dialect::Chat, frames(&|token| format!("data: {}\n\n", plain(token)))),
        "messages" => (Dialect::Messages, frames(&message)),
        "responses" => (Dialect::Responses, frames(&response)),
        other => panic!("there is no dialect {other} here"),
    }
}

fn message(token: &str) -> String {
    format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{token}\"}}}}\n\n"
    )
}

fn response(token: &str) -> String {
    format!(
        "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":7,\"item_id\":\"msg_68b1\",\"output_index\":0,\"content_index\":0,\"delta\":\"{token}\",\"logprobs\":[],\"obfuscation\":\"Xa9\"}}\n\n"
    )
}

/// One event a read, each looked at after it was written, as it is where a stream is paced; beside it, the same reads and
/// writes of an unobserved body.
fn whole_observer(c: &mut Criterion) {
    let frames = stream(TOKENS.len()).split_inclusive("\n\n").map(|frame| frame.to_owned().into()).collect::<Vec<_>>();
    let mut group = c.benchmark_group("observer");
    let mut bare = pass::Bare::new(frames);
    group.bench_function("none", |b| b.iter(|| bare.pass()));
    for name in ["chat", "messages", "responses"] {
        let (dialect, frames) = dialects(name);
        let mut observed = pass::Observed::new(dialect, frames);
        observed.pass();
        group.bench_function(format!("{name}, one event a read"), |b| b.iter(|| observed.pass()));
        observed.check();
    }
    group.finish();
}

criterion_group!(benches, meaning, split, observe, whole_observer);

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--passes").skip(1);
    let Some(passes) = arguments.next() else {
        benches();
        Criterion::default().configure_from_args().final_summary();
        return;
    };
    let dialect = dialects(&arguments.next().unwrap_or_else(|| "chat".to_owned()));
    let mut observed = pass::Observed::new(dialect.0, dialect.1);
    for _ in 0..passes.parse::<u64>().expect("a number of events") {
        observed.pass();
    }
    observed.check();
}
