//! A value nobody may see.

use std::fmt;

/// A key: `Debug` and `Display` show that it is there, never what it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Takes a key as it came from a variable or a file.
    ///
    /// Surrounding whitespace is removed: a space or line end pasted along with a key is a common cause of 401s.
    ///
    /// # Errors
    ///
    /// [`NotHeaderSafe`] if a character could not stand in an HTTP header (RFC 9110, section 5.5).
    pub fn new(raw: &str) -> Result<Self, NotHeaderSafe> {
        let key = raw.trim();
        if key.bytes().all(|byte| matches!(byte, b' '..=b'~')) { Ok(Self(key.into())) } else { Err(NotHeaderSafe) }
    }

    /// The key itself, for the one header it belongs in: visible ASCII and inner spaces only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Where a key comes from; never the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySource {
    /// The environment variable's name, or the file's path.
    pub name: String,
    /// White space stood around the key there and was removed.
    pub trimmed: bool,
}

/// A key holds a character that no HTTP header can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key holds a character that no HTTP header can carry")]
pub struct NotHeaderSafe;

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
