//! What HTTP/2 needs beside HTTP/1: a task for each stream, and an eye on those that stand still.
//!
//! Invariant: a stream that ends, in order or not, ends no other.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper_util::rt::TokioTimer;
use tokio::time::{Instant, Sleep, sleep};

use super::tally::Tally;
use super::{Handler, Limits, Refused};

/// Streams that one connection may have open.
const MOST_STREAMS: u32 = 256;
/// How often a client is asked whether it is still there, and how long it may take to say so.
const PING: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));
/// Once so many bytes of one reply wait for its stream to go on, nothing more is handed over. One piece may go beyond it
/// ([`Held`](super::held::Held)).
const SEND_BUFFER: usize = 32 << 10;
/// How long a client that was idle may take over its last words.
const GRACE: Duration = Duration::from_secs(5);

pub(super) fn builder<H: Handler>(streams: Streams<H>, limits: &Limits) -> Builder<Streams<H>> {
    let mut builder = Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1);
    builder
}

/// The streams of one connection: runs each in a task of its own.
pub(super) struct Streams<H> {
    handler: Arc<H>,
    /// How long a stream's client may take nothing of what waits for it.
    limit: Duration,
    /// Belongs to the stream that is about to be run: hyper asks for its answer, and at once has it run.
    next: Arc<Mutex<Option<Arc<Tally>>>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    begun: AtomicUsize,
}

impl<H> Clone for Streams<H> {
    fn clone(&self) -> Self {
        let Self { handler, limit, next, counts } = self;
        Self { handler: handler.clone(), limit: *limit, next: next.clone(), counts: counts.clone() }
    }
}

impl<H: Handler> Streams<H> {
    pub(super) fn new(handler: Arc<H>, limits: &Limits) -> Self {
        Self { handler, limit: limits.write_timeout, next: Arc::default(), counts: Arc::default() }
    }

    /// A stream was opened, whose reply is counted by `tally`.
    pub(super) fn opened(&self, tally: Arc<Tally>) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(tally);
    }

    /// Watches for a connection that has had no stream for `limit`.
    pub(super) fn idle(&self, limit: Duration) -> Idle {
        Idle { counts: self.counts.clone(), limit, begun: 0, told: false, alarm: Box::pin(sleep(limit)) }
    }
}

impl<H: Handler, F: Future<Output = ()> + Send + 'static> Executor<F> for Streams<H> {
    fn execute(&self, stream: F) {
        let tally = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        let open = Open::new(&self.counts);
        let (handler, limit) = (self.handler.clone(), self.limit);
        tokio::spawn(async move {
            let _open = open;
            let mut stream = pin!(stream);
            let Some(tally) = tally else { return stream.await };
            let mut still = Still { tally, limit, taken: 0, alarm: None };
            let ended = std::future::poll_fn(|cx| match stream.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => still.poll(cx).map(|()| false),
            });
            if !ended.await {
                // Dropped half-way, it is reset.
                handler.refused(Refused::WriteTimeout);
            }
        });
    }
}

/// Notices that a client takes nothing of a reply that waits for it.
///
/// One timer a stream, set when something first waits and looked at when it rings: between `limit` and twice that.
struct Still {
    tally: Arc<Tally>,
    limit: Duration,
    /// Bytes taken when the timer was set.
    taken: u64,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Still {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.alarm.as_ref().is_some_and(|alarm| !alarm.is_elapsed()) {
            return Poll::Pending;
        }
        let Some(taken) = self.tally.taken_of_more() else {
            self.alarm = None;
            return Poll::Pending;
        };
        if self.alarm.take().is_some() && taken == self.taken {
            return Poll::Ready(());
        }
        self.taken = taken;
        let alarm = self.alarm.insert(Box::pin(sleep(self.limit)));
        alarm.as_mut().poll(cx)
    }
}

/// Counts a stream as open until dropped.
struct Open(Arc<Counts>);

impl Open {
    fn new(counts: &Arc<Counts>) -> Self {
        counts.open.fetch_add(1, Relaxed);
        counts.begun.fetch_add(1, Relaxed);
        Self(counts.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
        if std::thread::panicking() {
            tracing::error!("a stream's task panicked; its request counts as internal");
        }
    }
}

/// What is to be done with a connection that nobody uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unused {
    /// There never was a stream: it is ended at once.
    Never,
    /// It is told to open no more streams, and has [`GRACE`] to end the connection.
    Lately,
    /// It was told, and the grace is over.
    Still,
}

/// Notices a connection that nobody uses.
pub(super) struct Idle {
    counts: Arc<Counts>,
    limit: Duration,
    /// Streams begun when the timer was set.
    begun: usize,
    /// The client was told.
    told: bool,
    alarm: Pin<Box<Sleep>>,
}

impl Idle {
    /// Ready when no stream was open for long, and again when that was told in vain.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Unused> {
        // Whatever is returned, the timer has been polled since it was set, and will ring.
        let mut unused = Poll::Pending;
        while self.alarm.as_mut().poll(cx).is_ready() {
            let begun = self.counts.begun.load(Relaxed);
            if self.counts.open.load(Relaxed) == 0 && std::mem::replace(&mut self.begun, begun) == begun {
                unused = Poll::Ready(match begun {
                    0 => Unused::Never,
                    _ if self.told => Unused::Still,
                    _ => Unused::Lately,
                });
                self.told = true;
            }
            let wait = if self.told { self.limit.min(GRACE) } else { self.limit };
            self.alarm.as_mut().reset(Instant::now() + wait);
        }
        unused
    }
}
