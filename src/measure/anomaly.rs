//! What looked wrong in a reply without being its end.

/// One kind of oddity; the value of the `kind` label is [`Anomaly::label`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anomaly {
    /// An event was above the observer's cap and not looked at.
    OversizedEvent,
    /// A whole JSON reply was above the cap and not looked at.
    OversizedReply,
    /// The stream ended inside an event.
    UnterminatedEvent,
    /// An event's data is neither JSON nor an end marker.
    MalformedEvent,
    /// JSON stood where an event belongs.
    StrayJson,
    /// The end marker came more than once.
    RepeatedDone,
    /// A stream was asked for and one JSON document came.
    JsonForStream,
    /// Events came under another content type.
    MislabelledStream,
    /// The reply is compressed, and not all of it could be decoded: an unknown coding, damage, an end too early.
    ContentEncoding,
    /// An event claims more tokens than can be believed.
    ImplausibleCount,
    /// The backend's tokenizer did not count: too many replies waited for it, or it failed.
    Tokenizer,
    /// An interval came out negative.
    Clock,
    /// The observer failed; the traffic went on.
    Observer,
}

impl Anomaly {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::OversizedEvent,
        Self::OversizedReply,
        Self::UnterminatedEvent,
        Self::MalformedEvent,
        Self::StrayJson,
        Self::RepeatedDone,
        Self::JsonForStream,
        Self::MislabelledStream,
        Self::ContentEncoding,
        Self::ImplausibleCount,
        Self::Tokenizer,
        Self::Clock,
        Self::Observer,
    ];

    /// The value of the `kind` label.
    pub fn label(self) -> &'static str {
        match self {
            Self::OversizedEvent => "oversized_event",
            Self::OversizedReply => "oversized_reply",
            Self::UnterminatedEvent => "unterminated_event",
            Self::MalformedEvent => "malformed_event",
            Self::StrayJson => "stray_json",
            Self::RepeatedDone => "repeated_done",
            Self::JsonForStream => "json_for_stream",
            Self::MislabelledStream => "mislabelled_stream",
            Self::ContentEncoding => "content_encoding",
            Self::ImplausibleCount => "implausible_count",
            Self::Tokenizer => "tokenizer",
            Self::Clock => "clock",
            Self::Observer => "observer",
        }
    }
}

/// How often each kind was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Anomalies([u32; Anomaly::ALL.len()]);

impl Anomalies {
    /// Counts one.
    pub fn add(&mut self, kind: Anomaly) {
        let count = &mut self.0[kind as usize];
        *count = count.saturating_add(1);
    }

    /// How often `kind` was seen.
    pub fn count(&self, kind: Anomaly) -> u32 {
        self.0[kind as usize]
    }

    /// The kinds seen, with their counts.
    pub fn seen(&self) -> impl Iterator<Item = (Anomaly, u32)> {
        Anomaly::ALL.into_iter().map(|kind| (kind, self.count(kind))).filter(|(_, count)| *count > 0)
    }
}
