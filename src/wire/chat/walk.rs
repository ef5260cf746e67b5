//! The fast way through the common chunk: one choice, its delta of strings and other scalars, at most one tool call.
//!
//! [`Walk`] reads that shape byte by byte and knows nothing else: a second key that matters, an escape in a key, an
//! object where none belongs, whatever is not plainly this shape ends it without an answer. It is a deterministic
//! automaton, which is what [`Shape`] rests on: the same bytes lead to the same [`State`], so a chunk that opens with
//! the previous chunk's bytes resumes where those led, inside the string that carries the token; and when what follows
//! that string repeats too, the end is known as well.

use std::borrow::Cow;

use smallvec::smallvec;

use super::scan::{Scan, Span};
use crate::wire::{Choice, Meaning};

/// A chunk with more than this many bytes around its token is walked each time, and not remembered.
const LONGEST_MEMORY: usize = 4096;

/// What the last chunk looked like around the string that carried its token.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// From the chunk's start through the string's opening quote. Empty when nothing is remembered.
    prefix: Vec<u8>,
    /// From behind its closing quote to the chunk's end. Never empty where `prefix` is not: the chunk had to close.
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
        let mut walk = Walk { scan: Scan { data, at: 0 }, state: State::default(), token: None };
        let resumed = !self.prefix.is_empty() && data.starts_with(&self.prefix);
        if resumed {
            walk.scan.at = self.prefix.len();
            walk.state = self.token.before;
            walk.token_string(self.token.kind)?;
            if data[walk.scan.at..] == *self.suffix {
                return self.repeated(&walk).meaning(data);
            }
        } else {
            walk.scan.expect(b'{')?;
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
            let moved = |at: usize| at - self.token.close + walk.scan.at;
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
    ToolCall,
    Function,
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
const TOOL_CALLS: u16 = 1 << 9;
const FUNCTION: u16 = 1 << 10;
const NAME: u16 = 1 << 11;
const ARGUMENTS: u16 = 1 << 12;

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
    scan: Scan<'a>,
    state: State,
    /// The last string of output that was not empty.
    token: Option<Token>,
}

impl Walk<'_> {
    /// From wherever the state says to the end of the chunk.
    fn run(&mut self) -> Option<()> {
        loop {
            match self.scan.next_byte()? {
                b'}' => {
                    self.state.after_member = true;
                    self.state.level = match self.state.level {
                        Level::Function => Level::ToolCall,
                        Level::ToolCall => {
                            self.scan.expect(b']')?;
                            Level::Delta
                        }
                        Level::Delta => Level::Choice,
                        Level::Choice => {
                            self.scan.expect(b']')?;
                            Level::Top
                        }
                        Level::Top => return self.scan.end(),
                    };
                }
                b',' if self.state.after_member => {
                    self.scan.expect(b'"')?;
                    self.member()?;
                }
                b'"' if !self.state.after_member => self.member()?,
                _ => return None,
            }
        }
    }

    /// One member of the object at hand, from behind its key's opening quote.
    fn member(&mut self) -> Option<()> {
        let start = self.scan.at;
        if self.scan.string()? {
            return None; // An escape in a key: it might spell one that matters.
        }
        let key = &self.scan.data[start..self.scan.at - 1];
        self.scan.expect(b':')?;
        self.state.after_member = true;
        match self.state.level {
            Level::Top => match key {
                b"choices" => {
                    self.once(CHOICES)?;
                    self.enter_list(Level::Choice)
                }
                b"model" => {
                    self.once(MODEL)?;
                    let (model, escaped) = self.scan.string_or_null()?;
                    self.state.model = model;
                    (!escaped).then_some(())
                }
                b"error" | b"usage" | b"type" => self.scan.null(),
                _ => self.scan.scalar(),
            },
            Level::Choice => match key {
                b"delta" => {
                    self.once(DELTA)?;
                    self.enter(Level::Delta)
                }
                b"index" => {
                    self.once(INDEX)?;
                    self.state.index = self.scan.small_number()?;
                    Some(())
                }
                b"finish_reason" => {
                    self.once(FINISH_REASON)?;
                    let (reason, _) = self.scan.string_or_null()?;
                    self.state.finished = reason.start < reason.end;
                    Some(())
                }
                b"logprobs" | b"message" => self.scan.null(),
                _ => self.scan.scalar(),
            },
            Level::Delta => match key {
                b"content" => self.output(CONTENT, Kind::Answer),
                b"reasoning_content" => self.output(REASONING_CONTENT, Kind::Reasoning),
                b"reasoning" => self.output(REASONING, Kind::Reasoning),
                b"refusal" => self.output(REFUSAL, Kind::Answer),
                b"tool_calls" => {
                    self.once(TOOL_CALLS)?;
                    if self.scan.peek()? == b'[' { self.enter_list(Level::ToolCall) } else { self.scan.null() }
                }
                b"audio" | b"function_call" => self.scan.null(),
                _ => self.scan.scalar(),
            },
            Level::ToolCall => match key {
                b"function" => {
                    self.once(FUNCTION)?;
                    self.enter(Level::Function)
                }
                b"custom" => self.scan.null(),
                _ => self.scan.scalar(),
            },
            Level::Function => match key {
                b"name" => self.output(NAME, Kind::Answer),
                b"arguments" => self.output(ARGUMENTS, Kind::Answer),
                b"input" => self.scan.null(),
                _ => self.scan.scalar(),
            },
        }
    }

    fn once(&mut self, key: u16) -> Option<()> {
        let first = self.state.met & key == 0;
        self.state.met |= key;
        first.then_some(())
    }

    /// Enters the first object of a list, which must be its only one.
    fn enter_list(&mut self, level: Level) -> Option<()> {
        self.scan.expect(b'[')?;
        self.enter(level)
    }

    fn enter(&mut self, level: Level) -> Option<()> {
        self.scan.expect(b'{')?;
        self.state.level = level;
        self.state.after_member = false;
        Some(())
    }

    fn output(&mut self, key: u16, kind: Kind) -> Option<()> {
        self.once(key)?;
        if self.scan.peek()? == b'"' {
            self.scan.at += 1;
            return self.token_string(kind);
        }
        self.scan.null()
    }

    /// A string of output, from behind its opening quote.
    fn token_string(&mut self, kind: Kind) -> Option<()> {
        let (open, before) = (self.scan.at, self.state);
        self.scan.string()?;
        if self.scan.at - 1 > open {
            match kind {
                Kind::Answer => self.state.answer = true,
                Kind::Reasoning => self.state.reasoning = true,
            }
            self.token = Some(Token { open, close: self.scan.at, kind, before });
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
