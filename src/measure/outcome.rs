//! How a request ended: exactly one [`Outcome`] each.

/// The end of one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Every choice finished, or an unmeasured reply came whole.
    Ok,
    /// The client left before the first token.
    ClientCancelBeforeToken,
    /// The client left after the first token and before the finish.
    ClientCancel,
    /// The upstream answered 3xx.
    Upstream3xx,
    /// The upstream answered 4xx.
    Upstream4xx,
    /// The upstream answered 5xx.
    Upstream5xx,
    /// An error object inside a 2xx reply.
    InbandError,
    /// The reply ended in order, but nothing in it said that the model had finished.
    Unconfirmed,
    /// The stream ended with neither a finish reason nor an end marker.
    Truncated,
    /// The upstream broke the connection.
    Reset,
    /// No connection: name look-up, TCP, TLS, or their time limit.
    ConnectError,
    /// No reply head, or silence within the reply, for too long.
    Timeout,
    /// Refused by streamgauge.
    Rejected,
    /// A fault of streamgauge's own, or its shutdown.
    Internal,
}

impl Outcome {
    /// The value of the `outcome` label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientCancelBeforeToken => "client_cancel_before_token",
            Self::ClientCancel => "client_cancel",
            Self::Upstream3xx => "upstream_3xx",
            Self::Upstream4xx => "upstream_4xx",
            Self::Upstream5xx => "upstream_5xx",
            Self::InbandError => "inband_error",
            Self::Unconfirmed => "unconfirmed",
            Self::Truncated => "truncated",
            Self::Reset => "reset",
            Self::ConnectError => "connect_error",
            Self::Timeout => "timeout",
            Self::Rejected => "rejected",
            Self::Internal => "internal",
        }
    }

    /// Whether the client ended it.
    pub fn is_cancel(self) -> bool {
        matches!(self, Self::ClientCancel | Self::ClientCancelBeforeToken)
    }
}

/// What broke a reply body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection was reset or its framing broken.
    Reset,
    /// The connection ended before the body did.
    Truncated,
    /// Silence for longer than allowed.
    Timeout,
}

/// How the reply's body ended, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// HTTP says that it came whole.
    Whole,
    /// It broke off.
    Broken(Fault),
    /// Who took it apart found an error object in the place of its end.
    InError,
    /// Nobody wants the rest: the client left.
    Dropped,
}

/// What the reply's content had said by then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Said {
    /// Its status code.
    pub status: u16,
    /// Its content was not looked at: an unmeasured path.
    pub unmeasured: bool,
    /// Some of its content could not be looked at: compressed as is not understood, or too large.
    pub unreadable: bool,
    /// It was an event stream; otherwise one JSON document.
    pub events: bool,
    /// Every choice that was asked for, or that appeared, has finished.
    pub finished: bool,
    /// Every choice that appeared has finished, though fewer may have appeared than were asked for.
    pub finished_seen: bool,
    /// An end marker came.
    pub done: bool,
    /// An error object came.
    pub error: bool,
    /// Output came.
    pub token: bool,
}

/// The outcome of a reply, from what its content said and how its body ended.
///
/// What is finished stays finished: clients hang up after the end marker, servers forget to close. An error object
/// beats whatever broke off after it.
pub fn decide(said: Said, ending: Ending) -> Outcome {
    match said.status {
        300..400 => return Outcome::Upstream3xx,
        400..500 => return Outcome::Upstream4xx,
        500.. => return Outcome::Upstream5xx,
        _ => {}
    }
    if said.finished || (said.finished_seen && (said.done || ending == Ending::Whole)) {
        return Outcome::Ok;
    }
    if said.error {
        return Outcome::InbandError;
    }
    if said.done {
        return Outcome::Unconfirmed;
    }
    match ending {
        // Nothing is known against it, and an anomaly says that it was not looked at.
        Ending::Whole if said.unmeasured || said.unreadable => Outcome::Ok,
        Ending::Whole if said.events => Outcome::Truncated,
        Ending::Whole => Outcome::Unconfirmed,
        Ending::Broken(Fault::Reset) => Outcome::Reset,
        Ending::Broken(Fault::Truncated) => Outcome::Truncated,
        Ending::Broken(Fault::Timeout) => Outcome::Timeout,
        Ending::InError => Outcome::InbandError,
        Ending::Dropped if said.token || said.unreadable => Outcome::ClientCancel,
        Ending::Dropped => Outcome::ClientCancelBeforeToken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_finished_stays_finished() {
        let said = Said { status: 200, events: true, finished: true, finished_seen: true, ..Said::default() };
        for ending in [Ending::Whole, Ending::Dropped, Ending::Broken(Fault::Reset), Ending::Broken(Fault::Timeout)] {
            assert_eq!(decide(said, ending), Outcome::Ok);
            assert_eq!(decide(Said { error: true, ..said }, ending), Outcome::Ok);
        }
    }

    #[test]
    fn one_finished_choice_of_two_asked_for_is_enough_only_at_a_clean_end() {
        let said = Said { status: 200, events: true, finished_seen: true, token: true, ..Said::default() };
        assert_eq!(decide(said, Ending::Whole), Outcome::Ok);
        assert_eq!(decide(Said { done: true, ..said }, Ending::Dropped), Outcome::Ok);
        assert_eq!(decide(said, Ending::Dropped), Outcome::ClientCancel);
        assert_eq!(decide(said, Ending::Broken(Fault::Truncated)), Outcome::Truncated);
    }

    #[test]
    fn an_unfinished_stream_is_judged_by_error_then_marker_then_ending() {
        let said = Said { status: 200, events: true, ..Said::default() };
        assert_eq!(decide(Said { error: true, done: true, ..said }, Ending::Whole), Outcome::InbandError);
        assert_eq!(decide(Said { error: true, ..said }, Ending::Broken(Fault::Truncated)), Outcome::InbandError);
        assert_eq!(decide(Said { done: true, ..said }, Ending::Whole), Outcome::Unconfirmed);
        assert_eq!(decide(Said { done: true, ..said }, Ending::Dropped), Outcome::Unconfirmed);
        assert_eq!(decide(said, Ending::Whole), Outcome::Truncated);
        assert_eq!(decide(said, Ending::Broken(Fault::Timeout)), Outcome::Timeout);
        assert_eq!(decide(said, Ending::Dropped), Outcome::ClientCancelBeforeToken);
        assert_eq!(decide(said, Ending::InError), Outcome::InbandError);
        assert_eq!(decide(Said { events: false, ..said }, Ending::Whole), Outcome::Unconfirmed);
        assert_eq!(decide(Said { unmeasured: true, events: false, ..said }, Ending::Whole), Outcome::Ok);
        let unreadable = Said { unreadable: true, events: false, ..said };
        assert_eq!(decide(unreadable, Ending::Whole), Outcome::Ok);
        assert_eq!(decide(unreadable, Ending::Dropped), Outcome::ClientCancel);
        assert_eq!(decide(unreadable, Ending::Broken(Fault::Truncated)), Outcome::Truncated);
    }

    #[test]
    fn a_status_outside_2xx_is_the_outcome_whatever_follows() {
        for (status, outcome) in [(304, Outcome::Upstream3xx), (429, Outcome::Upstream4xx), (503, Outcome::Upstream5xx)]
        {
            let said = Said { status, ..Said::default() };
            assert_eq!(decide(said, Ending::Whole), outcome);
            assert_eq!(decide(said, Ending::Dropped), outcome);
        }
    }
}
