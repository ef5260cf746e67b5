use proptest::prelude::*;

use super::{BOM, DEFAULT_CAP, Event, Item, NAME_CAP, SseParser};

/// An [`Item`] that owns its bytes, text where it is text, so that failures can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Event(String, String),
    Unterminated(String, String),
    Oversized,
    Stray(String),
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn event(data: &str) -> Seen {
    named("", data)
}

fn named(name: &str, data: &str) -> Seen {
    Seen::Event(text(name.as_bytes()), text(data.as_bytes()))
}

fn stray(bytes: &str) -> Seen {
    Seen::Stray(text(bytes.as_bytes()))
}

fn unterminated(data: &str) -> Seen {
    Seen::Unterminated(String::new(), text(data.as_bytes()))
}

/// What a parser makes of these reads.
fn parse<'a>(cap: usize, reads: impl IntoIterator<Item = &'a [u8]>) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut on = |item: Item<'_>| {
        seen.push(match item {
            Item::Event(Event { name, data }) => Seen::Event(text(name), text(data)),
            Item::Unterminated(Event { name, data }) => Seen::Unterminated(text(name), text(data)),
            Item::Oversized { .. } => Seen::Oversized,
            Item::Stray(bytes) => Seen::Stray(text(bytes)),
        });
    };
    let mut parser = SseParser::new(cap);
    for read in reads {
        parser.feed(read, &mut on);
        assert!(parser.line.len() + parser.data.bytes.len() + parser.stray.bytes.len() <= 2 * cap + NAME_CAP + 8);
    }
    parser.finish(&mut on);
    seen
}

/// Asserts what the stream holds: whole, under every cut in two, and one byte at a time.
#[track_caller]
fn check(cap: usize, stream: &[u8], expected: &[Seen]) {
    assert_eq!(parse(cap, [stream]), expected, "whole: {}", text(stream));
    assert_eq!(reference(cap, stream), expected, "by the standard: {}", text(stream));
    for cut in 0..=stream.len() {
        let (head, tail) = stream.split_at(cut);
        assert_eq!(parse(cap, [head, tail]), expected, "cut at {cut}: {}", text(stream));
    }
    assert_eq!(parse(cap, stream.chunks(1)), expected, "byte by byte: {}", text(stream));
}

/// The standard's own words, over the whole stream at once, with the cap and stray rules of [`Item`] added.
fn reference(cap: usize, stream: &[u8]) -> Vec<Seen> {
    // "One leading U+FEFF BYTE ORDER MARK character must be ignored if any are present."
    let mut rest = stream.strip_prefix(BOM).unwrap_or(stream);
    let mut lines: Vec<&[u8]> = Vec::new();
    while let Some(end) = rest.iter().position(|b| matches!(b, b'\r' | b'\n')) {
        lines.push(&rest[..end]);
        let width = if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[end + width..];
    }
    let mut seen = Vec::new();
    // The standard appends an LF after each data line and removes the last one: `None` is its empty buffer.
    let (mut name, mut data, mut data_over) = (Vec::new(), None::<Vec<u8>>, false);
    let (mut stray, mut stray_over) = (None::<Vec<u8>>, false);
    let end_stray = |stray: &mut Option<Vec<u8>>, over: &mut bool, seen: &mut Vec<Seen>| {
        if let Some(bytes) = stray.take() {
            seen.push(if *over { Seen::Oversized } else { Seen::Stray(text(&bytes)) });
        }
        *over = false;
    };
    let append = |to: &mut Option<Vec<u8>>, over: &mut bool, line: &[u8], cap: usize| {
        let mut bytes = to.take().map_or_else(Vec::new, |mut bytes| {
            bytes.push(b'\n');
            bytes
        });
        bytes.extend_from_slice(line);
        *over |= bytes.len() > cap;
        *to = Some(if *over { Vec::new() } else { bytes });
    };
    let held = |data: &Option<Vec<u8>>| data.as_ref().map_or(0, Vec::len);
    let last = (!rest.is_empty()).then_some(rest);
    for line in lines.into_iter().chain(last) {
        let colon = line.iter().position(|b| *b == b':');
        let (field, value) = colon.map_or((line, &b""[..]), |at| (&line[..at], &line[at + 1..]));
        let value = if value.first() == Some(&b' ') { &value[1..] } else { value };
        if line.is_empty() {
            end_stray(&mut stray, &mut stray_over, &mut seen);
            if let Some(data) = data.take() {
                seen.push(if data_over { Seen::Oversized } else { Seen::Event(text(&name), text(&data)) });
            }
            data_over = false;
            name.clear();
        } else if colon == Some(0) {
            // "Ignore the line."
        } else if [&b"data"[..], b"event", b"id", b"retry"].contains(&field) {
            end_stray(&mut stray, &mut stray_over, &mut seen);
            match field {
                b"data" => append(&mut data, &mut data_over, value, cap),
                b"event" => name = value[..value.len().min(NAME_CAP)].to_vec(),
                _ => {}
            }
        } else if stray.is_some() || line.trim_ascii_start().first() == Some(&b'{') {
            append(&mut stray, &mut stray_over, line, cap.saturating_sub(held(&data)));
        }
    }
    end_stray(&mut stray, &mut stray_over, &mut seen);
    if let Some(data) = data {
        seen.push(if data_over { Seen::Oversized } else { Seen::Unterminated(text(&name), text(&data)) });
    }
    seen
}

#[test]
fn line_ends() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = format!("data: a{end}{end}data: b{end}data: c{end}{end}: d{end}data:e{end}{end}");
        check(DEFAULT_CAP, stream.as_bytes(), &[event("a"), event("b\nc"), event("e")]);
    }
    check(DEFAULT_CAP, b"data: a\r\n\rdata: b\n\r\ndata: c\r\r\n", &[event("a"), event("b"), event("c")]);
    check(DEFAULT_CAP, b"\n\r\r\n\r\n\ndata: a\n\n\n\n", &[event("a")]);
}

#[test]
fn line_ends_of_unicode_are_text() {
    let data = "a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f";
    check(DEFAULT_CAP, format!("data: {data}\n\n").as_bytes(), &[event(data)]);
}

#[test]
fn byte_order_mark() {
    check(DEFAULT_CAP, "\u{feff}data: a\n\n".as_bytes(), &[event("a")]);
    check(DEFAULT_CAP, "\u{feff}".as_bytes(), &[]);
    check(DEFAULT_CAP, "\u{feff}\u{feff}data: a\n\n".as_bytes(), &[]);
    check(DEFAULT_CAP, "data: a\n\n\u{feff}data: b\n\n".as_bytes(), &[event("a")]);
    check(DEFAULT_CAP, b"\xef\xbbdata: a\n\ndata: b\n\n", &[event("b")]);
    check(DEFAULT_CAP, b"\xef\xbb", &[]);
    check(DEFAULT_CAP, b"\xef\n\ndata: b\n\n", &[event("b")]);
}

#[test]
fn comments() {
    check(DEFAULT_CAP, b": ping\n\n:\n\ndata: a\n\n: ping\n\n", &[event("a")]);
    check(DEFAULT_CAP, b": ping\ndata: a\n: ping\ndata: b\n:\n\n", &[event("a\nb")]);
}

#[test]
fn data_fields() {
    check(DEFAULT_CAP, b"data:{}\n\ndata: {}\n\ndata:  {} \n\n", &[event("{}"), event("{}"), event(" {} ")]);
    check(DEFAULT_CAP, b"data: {\"a\":\ndata: 1}\n\n", &[event("{\"a\":\n1}")]);
    // The standard's own example: an empty data line is data.
    check(DEFAULT_CAP, b"data\n\ndata\ndata\n\ndata:", &[event(""), event("\n"), unterminated("")]);
    check(DEFAULT_CAP, b"data:\n\ndata: \n\ndata:\ndata:\n\n", &[event(""), event(""), event("\n")]);
    check(DEFAULT_CAP, b"DATA: a\n\ndata : b\n\n data: c\n\ndatax: d\n\ndat: e\n\n", &[]);
}

#[test]
fn names() {
    check(DEFAULT_CAP, b"event: a\ndata: 1\n\ndata: 2\n\n", &[named("a", "1"), event("2")]);
    check(DEFAULT_CAP, b"data: 1\nevent:a\n\nevent: b\nevent: c\ndata: 2\n\n", &[named("a", "1"), named("c", "2")]);
    check(DEFAULT_CAP, b"event: a\n\ndata: 1\n\nevent: a\nevent\ndata: 2\n\n", &[event("1"), event("2")]);
    check(DEFAULT_CAP, b"event: a\rdata: 1\r\revent: b\r\ndata: 2\r\n\r\n", &[named("a", "1"), named("b", "2")]);
    let long = "n".repeat(NAME_CAP);
    for cap in [0, 1, DEFAULT_CAP] {
        check(cap, format!("event: {long}nnn\ndata:\n\n").as_bytes(), &[named(&long, "")]);
    }
}

#[test]
fn other_fields_are_ignored() {
    check(DEFAULT_CAP, b"id: 7\nretry: 10\nfoo: bar\nbaz\ndata: a\nid\n\nid: 8\n\n", &[event("a")]);
}

#[test]
fn any_byte_is_data() {
    check(
        DEFAULT_CAP,
        b"data: a\0b\xff\xc3\n\n\0\n\ndata: \xe2\x82\xac\n\n",
        &[Seen::Event(String::new(), text(b"a\0b\xff\xc3")), event("\u{20ac}")],
    );
}

#[test]
fn end_without_a_blank_line() {
    check(DEFAULT_CAP, b"data: a\n\ndata: b\n", &[event("a"), unterminated("b")]);
    check(DEFAULT_CAP, b"data: a\n\ndata: b", &[event("a"), unterminated("b")]);
    check(DEFAULT_CAP, b"data: a\r", &[unterminated("a")]);
    check(DEFAULT_CAP, b"event: a\nda", &[]);
    check(DEFAULT_CAP, b"event: a\ndata: b\nda", &[Seen::Unterminated("a".into(), "b".into())]);
    check(DEFAULT_CAP, b"", &[]);
}

#[test]
fn stray_json() {
    check(DEFAULT_CAP, b": PING\n\n{\"error\":1}", &[stray("{\"error\":1}")]);
    check(DEFAULT_CAP, b": PING\n\n {\"error\":1}\n\n", &[stray(" {\"error\":1}")]);
    check(DEFAULT_CAP, b"{\n  \"error\": {}\n}\n\ndata: a\n\n", &[stray("{\n  \"error\": {}\n}"), event("a")]);
    check(DEFAULT_CAP, b"{\"a\":1}\ndata: a\n\n", &[stray("{\"a\":1}"), event("a")]);
    check(DEFAULT_CAP, b"{\"a\":1}\n: ping\n{\"b\":1}\nid: 1\n\n", &[stray("{\"a\":1}\n{\"b\":1}")]);
    check(DEFAULT_CAP, b"data: a\n{\"a\":1}\n\n", &[stray("{\"a\":1}"), event("a")]);
    check(DEFAULT_CAP, b"data: a\n{\"a\":1}\ndata: b\n\n", &[stray("{\"a\":1}"), event("a\nb")]);
    check(DEFAULT_CAP, b"<html>\n{\n</html>\n\n[1]\n\n", &[stray("{\n</html>")]);
}

#[test]
fn the_cap_counts_data_alone() {
    check(8, b"data: 12345678\n\ndata:123456789\n\ndata: a\n\n", &[event("12345678"), Seen::Oversized, event("a")]);
    check(8, b"data: 123\ndata: 5678\n\ndata: 123\ndata: 56789\n\n", &[event("123\n5678"), Seen::Oversized]);
    check(8, b"data: 123456789\ndata: a\n\ndata: b\n\n", &[Seen::Oversized, event("b")]);
    check(8, b": 1234567890123456789\nid: 1234567890123456789\ndata: a\n\n", &[event("a")]);
    check(8, b"event: 123456789012\ndata: a\n\n", &[named("123456789012", "a")]);
    check(
        8,
        b"{2345678\n\n{23456789\n\n{23\n5678\n\n{23\n56789\n\n",
        &[stray("{2345678"), Seen::Oversized, stray("{23\n5678"), Seen::Oversized],
    );
    check(
        8,
        b"data: 123456\n{23\ndata: b\n\ndata: 1234567890",
        &[Seen::Oversized, event("123456\nb"), Seen::Oversized],
    );
    check(0, b"data: a\n\ndata:\n\n", &[Seen::Oversized, event("")]);
}

#[test]
fn a_line_above_the_cap_is_never_held() {
    let mut stream = b"data: before\n\ndata: ".to_vec();
    stream.resize(200_000, b'x');
    stream.extend_from_slice(b"\n\ndata: after\n\n");
    let expected = [event("before"), Seen::Oversized, event("after")];
    for size in [100, 8192, 65_536, 1 << 20] {
        assert_eq!(parse(65_536, stream.chunks(size)), expected, "reads of {size}");
    }
    for cut in (0..40).chain(stream.len() - 40..stream.len()) {
        let (head, tail) = stream.split_at(cut);
        assert_eq!(parse(65_536, [head, tail]), expected, "cut at {cut}");
    }
}

#[test]
fn a_whole_event_is_lent_and_not_copied() {
    let stream = b"data: {\"a\":1}\n\nevent: x\r\ndata: 2\r\n\r\n";
    let range = stream.as_ptr_range();
    let mut parser = SseParser::new(DEFAULT_CAP);
    let mut lent = 0;
    parser.feed(stream, &mut |item| {
        if let Item::Event(event) = item {
            lent += usize::from(range.contains(&event.data.as_ptr()));
        }
    });
    assert_eq!(lent, 2);
    assert_eq!(parser.data.bytes.capacity() + parser.line.capacity() + parser.name.capacity(), 0);
}

/// Streams rich in what the rules turn on.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "\r",
        "\n",
        "\r\n",
        "\n\n",
        "data",
        "data:",
        "data: ",
        ":",
        " ",
        "{",
        "}",
        "event",
        "event: ",
        "id:",
        "retry",
        "a",
        "bcdefg",
        "\u{feff}",
        "\u{2028}",
        "\0",
        "event: x\ndata: y\n\n",
        "data: 1\n\n",
        "12345678901234567890",
    ]);
    let wild = prop::collection::vec(any::<u8>(), 0..3);
    prop::collection::vec(prop_oneof![12 => pieces.prop_map(|p| p.as_bytes().to_vec()), 1 => wild], 0..40)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_cut_reads_as_the_standard_says(
        stream in streams(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        cap in prop_oneof![0_usize..30, Just(DEFAULT_CAP)],
    ) {
        let expected = reference(cap, &stream);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let reads: Vec<&[u8]> = at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        prop_assert_eq!(parse(cap, reads), expected.clone());
        prop_assert_eq!(parse(cap, stream.chunks(1)), expected);
    }
}
