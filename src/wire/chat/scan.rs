//! The scalars of JSON, passed over where they lie.
//!
//! Invariant: what is passed is valid JSON. `None` says that it is not, or not of the plain form looked for: an
//! exponent, for one, is left to the full reader.

/// A position in a document.
pub(super) struct Scan<'a> {
    pub(super) data: &'a [u8],
    pub(super) at: usize,
}

/// Where a string's text lies.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Scan<'_> {
    /// A string's place, and whether it holds escapes. An empty place for `null`.
    pub(super) fn string_or_null(&mut self) -> Option<(Span, bool)> {
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
    pub(super) fn string(&mut self) -> Option<bool> {
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

    pub(super) fn scalar(&mut self) -> Option<()> {
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

    pub(super) fn null(&mut self) -> Option<()> {
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

    pub(super) fn small_number(&mut self) -> Option<u32> {
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

    pub(super) fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next_byte()? == byte).then_some(())
    }

    pub(super) fn next_byte(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Nothing but white space to the end.
    pub(super) fn end(&self) -> Option<()> {
        self.data[self.at..].iter().all(|b| is_space(*b)).then_some(())
    }

    /// The next byte that is no white space, not yet passed.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
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

#[cfg(test)]
mod tests {
    use super::plain_length;

    #[test]
    fn the_first_special_byte_is_found_wherever_it_lies() {
        for (len, at) in (0..20).flat_map(|len| (0..len).map(move |at| (len, at))) {
            for byte in 0..=255_u8 {
                for behind in [b'a', b'"', b'!', 0x7f, 0xff] {
                    let mut bytes = vec![b'a'; len];
                    bytes[at..].fill(behind);
                    bytes[at] = byte;
                    let naive = bytes.iter().position(|b| *b < 0x20 || *b == b'"' || *b == b'\\').unwrap_or(len);
                    assert_eq!(plain_length(&bytes), naive, "{}", bytes.escape_ascii());
                }
            }
        }
    }
}
