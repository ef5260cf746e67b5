//! `gzip`: members of a header, deflate data, and a checksum (RFC 1952).
//!
//! Bytes behind a member that begin no other are passed over, as clients do.

use flate2::{Crc, Decompress};

use super::deflate::inflated;
use super::{Format, Undecodable};

const MAGIC: u8 = 0x1F;
/// What else must stand in a header: the magic's second byte, and the method.
const MAGIC_AND_METHOD: [u8; 2] = [0x8B, 8];
/// Flags of a header; those above are reserved.
const HEADER_CRC: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const RESERVED: u8 = 0xE0;

/// The members of one stream.
pub(super) struct Gzip {
    at: At,
    inflate: Decompress,
    /// The checksum and length of what the member became.
    sum: Crc,
}

/// What comes next.
#[derive(Clone, Copy)]
enum At {
    /// The first byte of a member.
    Member {
        first: bool,
    },
    /// Byte `read` of the header's fixed part.
    Header {
        read: u8,
        flags: u8,
    },
    /// The length of the extra field, its low byte known or not.
    ExtraLength {
        low: Option<u8>,
        flags: u8,
    },
    Extra {
        left: u16,
        flags: u8,
    },
    /// The name or the comment, up to a zero.
    Text {
        flags: u8,
    },
    HeaderCrc {
        left: u8,
    },
    Data,
    /// Byte `read` of the checksum and the length.
    Trailer {
        read: u8,
    },
    /// Behind the last member.
    Over,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self { at: At::Member { first: true }, inflate: Decompress::new(false), sum: Crc::new() }
    }

    /// Reads one byte outside the data.
    fn byte(&mut self, byte: u8) -> Result<At, Undecodable> {
        Ok(match self.at {
            At::Member { .. } if byte == MAGIC => At::Header { read: 1, flags: 0 },
            At::Member { first: false } | At::Over => At::Over,
            At::Member { first: true } => return Err(Undecodable::Damaged),
            At::Header { read: read @ 1..=2, .. } if byte != MAGIC_AND_METHOD[usize::from(read) - 1] => {
                return Err(Undecodable::Damaged);
            }
            At::Header { read: 3, .. } if byte & RESERVED != 0 => return Err(Undecodable::Damaged),
            At::Header { read: 3, .. } => At::Header { read: 4, flags: byte },
            At::Header { read: 9.., flags } | At::Extra { left: ..=1, flags } => self.fields(flags),
            At::Header { read, flags } => At::Header { read: read + 1, flags },
            At::ExtraLength { low: None, flags } => At::ExtraLength { low: Some(byte), flags },
            At::ExtraLength { low: Some(low), flags } => match u16::from_le_bytes([low, byte]) {
                0 => self.fields(flags),
                left => At::Extra { left, flags },
            },
            At::Extra { left, flags } => At::Extra { left: left - 1, flags },
            At::Text { flags } if byte == 0 => self.fields(flags),
            At::Text { flags } => At::Text { flags },
            At::HeaderCrc { left: ..=1 } => self.data(),
            At::HeaderCrc { left } => At::HeaderCrc { left: left - 1 },
            At::Trailer { read } => {
                let [sum, length] = [self.sum.sum().to_le_bytes(), self.sum.amount().to_le_bytes()];
                if byte != [sum, length].concat()[usize::from(read)] {
                    return Err(Undecodable::Damaged);
                }
                if read == 7 { At::Member { first: false } } else { At::Trailer { read: read + 1 } }
            }
            At::Data => At::Data,
        })
    }

    /// The next field that `flags` announce; those read are taken out of them.
    fn fields(&mut self, flags: u8) -> At {
        match flags {
            _ if flags & EXTRA != 0 => At::ExtraLength { low: None, flags: flags & !EXTRA },
            _ if flags & NAME != 0 => At::Text { flags: flags & !NAME },
            _ if flags & COMMENT != 0 => At::Text { flags: flags & !COMMENT },
            _ if flags & HEADER_CRC != 0 => At::HeaderCrc { left: 2 },
            _ => self.data(),
        }
    }

    fn data(&mut self) -> At {
        self.inflate.reset(false);
        self.sum.reset();
        At::Data
    }
}

impl Format for Gzip {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<(usize, usize), Undecodable> {
        let mut read = 0;
        while !matches!(self.at, At::Data) {
            let Some(byte) = input.get(read) else { return Ok((read, 0)) };
            self.at = self.byte(*byte)?;
            read += 1;
        }
        let (inflated, written, ended) = inflated(&mut self.inflate, &input[read..], output)?;
        self.sum.update(&output[..written]);
        if ended {
            self.at = At::Trailer { read: 0 };
        }
        Ok((read + inflated, written))
    }

    fn is_whole(&self) -> bool {
        matches!(self.at, At::Member { .. } | At::Over)
    }
}
