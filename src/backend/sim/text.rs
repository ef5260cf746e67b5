//! The words a simulated model says: a fixed function of choice and position, so that any two replies can be compared.
//!
//! Invariant: a token's text never depends on how it is sent: streamed, whole, one at a time or eight at a time.

use std::ops::Range;
use std::sync::OnceLock;

/// What the first choice says in its first `tokens` tokens, reasoning and answer together.
pub fn text(tokens: u32) -> String {
    text_of(0, 0..tokens)
}

/// What choice number `choice` says in the given tokens.
pub fn text_of(choice: u32, tokens: Range<u32>) -> String {
    tokens.map(|index| plain(choice, index)).collect()
}

/// Appends the given tokens as the inside of a JSON string, without its quotes.
pub(super) fn write_escaped(choice: u32, tokens: Range<u32>, out: &mut Vec<u8>) {
    write_words(&escaped().once, choice, tokens, out);
}

/// Appends a piece of a tool's arguments, `{"text":"…"}` with the text of the tokens `all`, as the inside of a JSON
/// string: the piece that the given tokens are of it. All pieces together are JSON.
pub(super) fn write_arguments(choice: u32, tokens: Range<u32>, all: &Range<u32>, out: &mut Vec<u8>) {
    if tokens.is_empty() {
        return;
    }
    if tokens.start == all.start {
        out.extend_from_slice(br#"{\"text\":\""#);
    }
    let end = tokens.end;
    write_words(&escaped().twice, choice, tokens, out);
    if end == all.end {
        out.extend_from_slice(br#"\"}"#);
    }
}

/// The vocabulary as it stands inside a JSON string, and inside one that is inside another.
struct Escaped {
    once: Vec<String>,
    twice: Vec<String>,
}

fn escaped() -> &'static Escaped {
    static ESCAPED: OnceLock<Escaped> = OnceLock::new();
    ESCAPED.get_or_init(|| {
        let once: Vec<String> = VOCABULARY.iter().map(|word| escape(word)).collect();
        let twice = once.iter().map(|word| escape(word)).collect();
        Escaped { once, twice }
    })
}

fn escape(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn write_words(words: &[String], choice: u32, tokens: Range<u32>, out: &mut Vec<u8>) {
    for index in tokens {
        if index > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(words[word(choice, index)].as_bytes());
    }
}

fn plain(choice: u32, index: u32) -> String {
    let space = if index == 0 { "" } else { " " };
    format!("{space}{}", VOCABULARY[word(choice, index)])
}

/// Which word stands at `index`: one round of the splitmix64 mixer (Steele, Lea and Flood, 2014).
fn word(choice: u32, index: u32) -> usize {
    let mut z = ((u64::from(choice) << 32) | u64::from(index)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    usize::try_from(z >> 58).unwrap_or(0)
}

/// Mostly plain words, and some that break careless readers: quotes, backslashes, newlines, wide characters, and
/// U+2028 and U+0085, which JSON leaves raw and which end no line in SSE.
const VOCABULARY: [&str; 64] = [
    "river",
    "gauge",
    "stands",
    "in",
    "the",
    "water",
    "and",
    "measures",
    "what",
    "flows",
    "past",
    "without",
    "holding",
    "it",
    "back",
    "rain",
    "falls",
    "over",
    "hills",
    "stone",
    "bridge",
    "under",
    "which",
    "a",
    "heron",
    "waits",
    "morning",
    "light",
    "moves",
    "slowly",
    "toward",
    "sea",
    "depth",
    "level",
    "rises",
    "night",
    "current",
    "strong",
    "gentle",
    "bank",
    "reeds",
    "mill",
    "wheel",
    "turns",
    "again",
    "then",
    "still",
    "quiet",
    "boat",
    "rope",
    "north",
    "south",
    "naïve",
    "Fluß",
    "strøm",
    "水位",
    "川",
    "🌊",
    "\"quoted\"",
    "back\\slash",
    "line\nbreak",
    "tab\tstop",
    "line\u{2028}sep",
    "next\u{85}line",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_reads_back_as_the_plain_text() {
        for choice in 0..3 {
            let mut json = b"\"".to_vec();
            write_escaped(choice, 0..500, &mut json);
            json.push(b'"');
            let read: String = serde_json::from_slice(&json).expect("valid JSON");
            assert_eq!(read, text_of(choice, 0..500));
        }
    }

    #[test]
    fn parts_add_up_to_the_whole_and_choices_differ() {
        assert_eq!(text_of(0, 0..7) + &text_of(0, 7..40), text(40));
        assert_ne!(text_of(1, 0..40), text(40));
    }
}
