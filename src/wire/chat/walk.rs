//! The fast way through the common chunk: one choice, strings and other scalars, nothing nested but its delta.
//!
//! [`Walk`] reads that shape byte by byte and knows nothing else: a second key that matters, an escape in a key, an
//! object where none belongs, whatever is not plainly this shape ends it without an answer. It is a deterministic
//! automaton, which is what [`Shape`] rests on: the same bytes lead to the same [`State`], so a chunk that opens with
//! the previous chunk's bytes resumes where those led, inside the string that carries the token; and when what follows
//! that string repeats too, the end is known as well.

use std::borrow::Cow;

use smallvec::smallvec;

use crate::wire::{Choice, Meaning};

/// A chunk with more than this many bytes around its token is walked each time, and not remembered.
const LONGEST_MEMORY: usize = 4096;

/// What the last chunk looked like around the string that carried its token.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// From the chunk's start through the string's opening quote.
    prefix: Vec<u8>,
    /// From behind its closing quote to the chunk's end. Empty when unknown.
    suffix: Vec<u8>,
    /// The string, and the state that `prefix` led to.
    token: Token,
    /// The state that `suffix` led to.
    end: State,
}

impl Shape {
    /// What the chunk means. `None` when it has not the common shape: that says nothing about it.
    #[inline]
    pub(super) fn read<'a>(&mut self, data: &'a [u8]) -> Option<Meaning<'a>> {
        let mut walk = Walk { data, at: 0, state: State::default(), token: None };
        let resumed = !self.prefix.is_empty() && data.starts_with(&self.prefix);
        if resumed {
            walk.at = self.prefix.len();
            walk.state = self.token.before;
            walk.token_string(self.token.kind)?;
            if !self.suffix.is_empty() && data[walk.at..] == *self.suffix {
                return self.repeated(&walk).meaning(data);
            }
        } else {
            walk.open()?;
        }
        walk.run()?;
        let state = walk.state;
        if let Some(token) = walk.token {
            self.remember(data, token, state, resumed);
        }
        state.meaning(data)
    }

    /// The end that the known suffix leads to. It adds no output of its own, because the token's string was the last
    /// that was not empty; and what lies in it has moved with it.
    fn repeated(&self, walk: &Walk<'_>) -> State {
        let mut model = self.end.model;
        if model.start >= self.prefix.len() {
            let moved = |at: usize| at - self.token.close + walk.at;
            model = Span { start: moved(model.start), end: moved(model.end) };
        }
        State { answer: walk.state.answer, reasoning: walk.state.reasoning, model, ..self.end }
    }

    fn remember(&mut self, data: &[u8], token: Token, end: State, resumed: bool) {
        let (prefix, suffix) = (&data[..token.open], &data[token.close..]);
        if prefix.len() > LONGEST_MEMORY || suffix.len() > LONGEST_MEMORY {
            self.prefix.clear();
            self.suffix.clear();
            return;
        }
        if !resumed || prefix.len() != self.prefix.len() {
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
        }
        self.suffix.clear();
        self.suffix.extend_from_slice(suffix);
        self.token = token;
        self.end = end;
    }
}

/// A string of output that is not empty.
#[derive(Debug, Clone, Copy, Default)]
struct Token {
    /// Where the string's text starts.
    open: usize,
    /// Where its closing quote ends.
    close: usize,
    kind: Kind,
    /// The state in front of its text.
    before: State,
}

#[derive(Debug, Clone, Copy, Default)]
enum Kind {
    #[default]
    Answer,
    Reasoning,
}

/// Which object the walk is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Level {
    #[default]
    Top,
    Choice,
    Delta,
}

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: usize,
    end: usize,
}

/// Everything that the bytes read so far have led to.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    level: Level,
    /// A member of the object at hand has been read, so that a comma or the object's end must follow.
    after_member: bool,
    /// The keys met so far that may be met only once, one bit each.
    met: u16,
    index: u32,
    answer: bool,
    reasoning: bool,
    finished: bool,
    /// Where the model's name lies; empty when there is none.
    model: Span,
}

const CHOICES: u16 = 1;
const MODEL: u16 = 1 << 1;
const INDEX: u16 = 1 << 2;
const DELTA: u16 = 1 << 3;
const FINISH_REASON: u16 = 1 << 4;
const CONTENT: u16 = 1 << 5;
const REASONING_CONTENT: u16 = 1 << 6;
const REASONING: u16 = 1 << 7;
const REFUSAL: u16 = 1 << 8;

impl State {
    /// `None` for a chunk without a choice, or with a model's name that is no UTF-8.
    #[inline]
    fn meaning(self, data: &[u8]) -> Option<Meaning<'_>> {
        if self.met & CHOICES == 0 {
            return None;
        }
        let model = str::from_utf8(&data[self.model.start..self.model.end]).ok()?;
        Some(Meaning {
            choices: smallvec![Choice {
                index: self.index,
                answer: self.answer,
                reasoning: self.reasoning,
                tokens: None,
                finished: self.finished,
            }],
            model: (!model.is_empty()).then_some(Cow::Borrowed(model)),
            ..Meaning::default()
        })
    }
}

/// One walk through one chunk. Every step returns `None` where the common shape ends.
struct Walk<'a> {
    data: &'a [u8],
    at: usize,
    state: State,
    /// The last string of output that was not empty.
    token: Option<Token>,
}

impl Walk<'_> {
    fn open(&mut self) -> Option<()> {
        self.expect(b'{')
    }

    /// From wherever the state says to the end of the chunk.
    fn run(&mut self) -> Option<()> {
        loop {
            match self.next_byte()? {
                b'}' => {
                    self.state.after_member = true;
                    self.state.level = match self.state.level {
                        Level::Delta => Level::Choice,
                        Level::Choice => {
                            self.expect(b']')?;
                            Level::Top
                        }
                        Level::Top => return self.data[self.at..].iter().all(|b| is_space(*b)).then_some(()),
                    };
                }
                b',' if self.state.after_member => {
                    self.expect(b'"')?;
                    self.member()?;
                }
                b'"' if !self.state.after_member => self.member()?,
                _ => return None,
            }
        }
    }

    /// One member of the object at hand, from behind its key's opening quote.
    fn member(&mut self) -> Option<()> {
        let start = self.at;
        if self.string()? {
            return None; // An escape in a key: it might spell one that matters.
        }
        let key = &self.data[start..self.at - 1];
        self.expect(b':')?;
        self.state.after_member = true;
        match self.state.level {
            Level::Top => match key {
                b"choices" => {
                    self.once(CHOICES)?;
                    self.expect(b'[')?;
                    self.enter(Level::Choice)
                }
                b"model" => {
                    self.once(MODEL)?;
                    let (model, escaped) = self.string_or_null()?;
                    self.state.model = model;
                    (!escaped).then_some(())
                }
                b"error" | b"usage" | b"type" => self.null(),
                _ => self.scalar(),
            },
            Level::Choice => match key {
                b"delta" => {
                    self.once(DELTA)?;
                    self.enter(Level::Delta)
                }
                b"index" => {
                    self.once(INDEX)?;
                    self.state.index = self.small_number()?;
                    Some(())
                }
                b"finish_reason" => {
                    self.once(FINISH_REASON)?;
                    let (reason, _) = self.string_or_null()?;
                    self.state.finished = reason.start < reason.end;
                    Some(())
                }
                b"logprobs" | b"message" => self.null(),
                _ => self.scalar(),
            },
            Level::Delta => match key {
                b"content" => self.output(CONTENT, Kind::Answer),
                b"reasoning_content" => self.output(REASONING_CONTENT, Kind::Reasoning),
                b"reasoning" => self.output(REASONING, Kind::Reasoning),
                b"refusal" => self.output(REFUSAL, Kind::Answer),
                b"audio" | b"tool_calls" | b"function_call" => self.null(),
                _ => self.scalar(),
            },
        }
    }

    fn once(&mut self, key: u16) -> Option<()> {
        let first = self.state.met & key == 0;
        self.state.met |= key;
        first.then_some(())
    }

    fn enter(&mut self, level: Level) -> Option<()> {
        self.expect(b'{')?;
        self.state.level = level;
        self.state.after_member = false;
        Some(())
    }

    fn output(&mut self, key: u16, kind: Kind) -> Option<()> {
        self.once(key)?;
        if self.peek()? == b'"' {
            self.at += 1;
            return self.token_string(kind);
        }
        self.null()
    }

    /// A string of output, from behind its opening quote.
    fn token_string(&mut self, kind: Kind) -> Option<()> {
        let (open, before) = (self.at, self.state);
        self.string()?;
        if self.at - 1 > open {
            match kind {
                Kind::Answer => self.state.answer = true,
                Kind::Reasoning => self.state.reasoning = true,
            }
            self.token = Some(Token { open, close: self.at, kind, before });
        }
        Some(())
    }

    /// A string's place, and whether it holds escapes. An empty place for `null`.
    fn string_or_null(&mut self) -> Option<(Span, bool)> {
        if self.peek()? != b'"' {
            self.null()?;
            return Some((Span::default(), false));
        }
        self.at += 1;
        let start = self.at;
        let escaped = self.string()?;
        Some((Span { start, end: self.at - 1 }, escaped))
    }

    /// Passes a string, from behind its opening quote, and says whether it holds escapes. What JSON forbids in one ends
    /// the walk. UTF-8 is not checked: no byte of a broken sequence looks like a quote, a backslash or a control byte.
    fn string(&mut self) -> Option<bool> {
        let mut escaped = false;
        loop {
            self.at += plain_length(&self.data[self.at..]);
            match self.data[self.at..] {
                [b'"', ..] => {
                    self.at += 1;
                    return Some(escaped);
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => self.at += 2,
                [b'\\', b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(u8::is_ascii_hexdigit) => self.at += 6,
                _ => return None,
            }
            escaped = true;
        }
    }

    fn scalar(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => {
                self.at += 1;
                self.string().map(|_| ())
            }
            b'n' => self.literal(b"null"),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            _ => self.number(),
        }
    }

    fn null(&mut self) -> Option<()> {
        self.peek()?;
        self.literal(b"null")
    }

    fn literal(&mut self, literal: &[u8]) -> Option<()> {
        self.data[self.at..].starts_with(literal).then(|| self.at += literal.len())
    }

    /// A number without an exponent.
    fn number(&mut self) -> Option<()> {
        if self.data.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        let whole = self.digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            return None;
        }
        if self.data.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        Some(())
    }

    fn small_number(&mut self) -> Option<u32> {
        self.peek()?;
        let digits = self.digits()?;
        if digits.len() > 9 || (digits.len() > 1 && digits[0] == b'0') {
            return None;
        }
        Some(digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')))
    }

    /// At least one digit.
    fn digits(&mut self) -> Option<&[u8]> {
        let start = self.at;
        while self.data.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        (self.at > start).then(|| &self.data[start..self.at])
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next_byte()? == byte).then_some(())
    }

    fn next_byte(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// The next byte that is no white space, not yet passed.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.data.get(self.at)?;
            if !is_space(byte) {
                return Some(byte);
            }
            self.at += 1;
        }
    }
}

/// JSON's white space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// How many bytes come before the first quote, backslash or control byte, eight at a time.
#[inline]
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    // The classic test for a byte below `n` (n ≤ 128): exact for the lowest such byte, which is all that counts here.
    let below = |word: u64, n: u64| word.wrapping_sub(ONES * n) & !word & HIGH;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let found = quote | backslash | below(word, 0x20);
        if found != 0 {
            return at * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    bytes.len() - rest.len() + rest.iter().position(special).unwrap_or(rest.len())
}
