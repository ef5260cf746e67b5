//! What the bytes of one direction of an HTTP/2 connection say of its streams (RFC 9113, sections 4 and 6).
//!
//! hyper tells neither when a stream's last byte left nor which read brought a piece of it, so the frames are read
//! beside it. Only their heads matter: nothing is decompressed and nothing is kept.
//!
//! Invariant: whatever the split, the same frames are told, each with its last byte.

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;

/// What a client sends before its first frame, in bytes (RFC 9113, section 3.4).
const PREFACE: usize = 24;
const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
/// The error of a stream that was reset before anything was done about it (RFC 9113, section 8.7).
const REFUSED_STREAM: u32 = 7;

/// A frame, or what is of interest in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// A stream's header block is complete: a head, an interim one, or trailers.
    Headers {
        /// The stream.
        stream: u32,
        /// Nothing of the stream follows.
        last: bool,
    },
    /// A stream's data.
    Data {
        /// The stream.
        stream: u32,
        /// How much, padding not counted.
        bytes: usize,
        /// Nothing of the stream follows.
        last: bool,
    },
    /// A stream was reset.
    Reset {
        /// The stream.
        stream: u32,
        /// Its request was not processed.
        refused: bool,
    },
    /// The sender takes no more streams, and has processed none beyond this one.
    GoAway {
        /// The stream; the highest number there can be, where that is still to come.
        last: u32,
    },
    /// A setting: how many streams the other side may have open at once.
    MostStreams(u32),
    /// The sender's settings, complete.
    Settings,
    /// The first frame is none of settings, which every connection begins with: this is not HTTP/2.
    NotHttp2,
}

/// One direction of a connection.
#[derive(Default)]
pub(super) struct Frames {
    /// What is left of the preface.
    preface: usize,
    began: bool,
    head: [u8; 9],
    /// How much of `head` has come.
    head_bytes: usize,
    /// The frame whose payload is being read. `None` between two.
    open: Option<Open>,
    /// Whether the header block that waits for its continuation ends its stream. `None` where none waits.
    continued: Option<bool>,
    setting: [u8; 6],
    /// The first four bytes of a payload: a reset's error, or the last stream of an end.
    first: [u8; 4],
}

struct Open {
    kind: u8,
    flags: u8,
    stream: u32,
    length: usize,
    read: usize,
    padding: usize,
}

impl Frames {
    /// What a client sends.
    pub(super) fn of_client() -> Self {
        Self { preface: PREFACE, ..Self::default() }
    }

    /// What a server sends.
    pub(super) fn of_server() -> Self {
        Self::default()
    }

    /// Reads on, and tells of each frame as its last byte comes.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Told)) {
        let skipped = self.preface.min(bytes.len());
        self.preface -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            let open = match &mut self.open {
                Some(open) => open,
                None => {
                    let taken = (self.head.len() - self.head_bytes).min(bytes.len());
                    self.head[self.head_bytes..][..taken].copy_from_slice(&bytes[..taken]);
                    self.head_bytes += taken;
                    bytes = &bytes[taken..];
                    if self.head_bytes < self.head.len() {
                        return;
                    }
                    self.head_bytes = 0;
                    let open = Open::new(self.head);
                    if !self.began && open.kind != SETTINGS {
                        tell(Told::NotHttp2);
                    }
                    self.began = true;
                    self.open.insert(open)
                }
            };
            let taken = (open.length - open.read).min(bytes.len());
            let (payload, rest) = bytes.split_at(taken);
            bytes = rest;
            if open.kind == SETTINGS {
                read_settings(&mut self.setting, open.read, payload, &mut tell);
            } else if open.kind == DATA && open.flags & PADDED != 0 && open.read == 0 {
                open.padding = payload.first().map_or(0, |&length| usize::from(length) + 1);
            } else if matches!(open.kind, RST_STREAM | GOAWAY) {
                for (place, &byte) in self.first.iter_mut().skip(open.read).zip(payload) {
                    *place = byte;
                }
            }
            open.read += taken;
            if open.read == open.length
                && let Some(open) = self.open.take()
            {
                self.complete(&open, &mut tell);
            }
        }
    }

    fn complete(&mut self, open: &Open, tell: &mut impl FnMut(Told)) {
        let &Open { kind, flags, stream, length, padding, .. } = open;
        match kind {
            DATA => tell(Told::Data { stream, bytes: length.saturating_sub(padding), last: flags & END_STREAM != 0 }),
            HEADERS if flags & END_HEADERS != 0 => tell(Told::Headers { stream, last: flags & END_STREAM != 0 }),
            HEADERS => self.continued = Some(flags & END_STREAM != 0),
            CONTINUATION if flags & END_HEADERS != 0 => {
                if let Some(last) = self.continued.take() {
                    tell(Told::Headers { stream, last });
                }
            }
            RST_STREAM => {
                let refused = length >= self.first.len() && u32::from_be_bytes(self.first) == REFUSED_STREAM;
                tell(Told::Reset { stream, refused });
            }
            GOAWAY if length >= self.first.len() => {
                tell(Told::GoAway { last: u32::from_be_bytes(self.first) & (u32::MAX >> 1) });
            }
            SETTINGS if flags & ACK == 0 => tell(Told::Settings),
            _ => {}
        }
    }
}

impl Open {
    fn new(head: [u8; 9]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = head;
        // The highest bit is reserved.
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        Self { kind, flags, stream, length, read: 0, padding: 0 }
    }
}

/// Collects settings of six bytes, `read` bytes of the frame having come before.
fn read_settings(setting: &mut [u8; 6], read: usize, payload: &[u8], tell: &mut impl FnMut(Told)) {
    for (at, &byte) in payload.iter().enumerate() {
        let place = (read + at) % setting.len();
        setting[place] = byte;
        let [a, b, value @ ..] = *setting;
        if place + 1 == setting.len() && u16::from_be_bytes([a, b]) == SETTINGS_MAX_CONCURRENT_STREAMS {
            tell(Told::MostStreams(u32::from_be_bytes(value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn told(mut frames: Frames, bytes: &[u8], step: usize) -> Vec<Told> {
        let mut all = Vec::new();
        for piece in bytes.chunks(step) {
            frames.feed(piece, |told| all.push(told));
        }
        all
    }

    #[test]
    fn frames_are_told_whatever_the_split() {
        let bytes = [
            frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255, 0, 3, 0, 0, 0, 9]),
            frame(SETTINGS, ACK, 0, &[]),
            frame(8, 0, 0, &[0, 0, 1, 0]),
            frame(HEADERS, END_HEADERS, 1, b"block"),
            frame(HEADERS, END_STREAM, 3, b"half"),
            frame(CONTINUATION, 0, 3, b"more"),
            frame(CONTINUATION, END_HEADERS, 3, b"rest"),
            frame(DATA, 0, 1, &[b'x'; 300]),
            frame(DATA, PADDED, 1, &[2, b'x', b'x', b'x', 0, 0]),
            frame(DATA, PADDED, 1, &[0]),
            frame(DATA, 0, 0x8000_0005, b"reserved bit"),
            frame(DATA, END_STREAM, 1, &[]),
            frame(RST_STREAM, 0, 5, &[0, 0, 0, 8]),
            frame(RST_STREAM, 0, 7, &[0, 0, 0, 7]),
            frame(GOAWAY, 0, 0, &[0x80, 0, 1, 5, 0, 0, 0, 0, b'x']),
            frame(RST_STREAM, 0, 9, &[]),
            frame(6, 0, 0, &[0; 8]),
        ]
        .concat();
        let data = |stream, bytes| Told::Data { stream, bytes, last: false };
        let expected = [
            Told::MostStreams(9),
            Told::Settings,
            Told::Headers { stream: 1, last: false },
            Told::Headers { stream: 3, last: true },
            data(1, 300),
            data(1, 3),
            data(1, 0),
            data(5, 12),
            Told::Data { stream: 1, bytes: 0, last: true },
            Told::Reset { stream: 5, refused: false },
            Told::Reset { stream: 7, refused: true },
            Told::GoAway { last: 261 },
            Told::Reset { stream: 9, refused: false },
        ];
        for step in 1..=bytes.len() {
            assert_eq!(told(Frames::of_server(), &bytes, step), expected, "{step}");
        }
    }

    #[test]
    fn a_frame_is_told_with_its_last_byte_and_not_before() {
        let bytes = [frame(SETTINGS, 0, 0, &[]), frame(DATA, END_STREAM, 1, b"abc")].concat();
        let (all, but_one) = (bytes.len(), bytes.len() - 1);
        assert_eq!(told(Frames::of_server(), &bytes[..but_one], all), [Told::Settings]);
        assert_eq!(told(Frames::of_server(), &bytes, all).len(), 2);
    }

    #[test]
    fn a_clients_preface_is_no_frame() {
        let bytes = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
        for step in 1..=bytes.len() {
            assert_eq!(told(Frames::of_client(), &bytes, step), [Told::Settings]);
        }
    }

    #[test]
    fn an_answer_of_http_1_is_known_by_its_first_bytes() {
        assert_eq!(told(Frames::of_server(), b"HTTP/1.1 400 Bad Request\r\n\r\n", 1), [Told::NotHttp2]);
    }
}
