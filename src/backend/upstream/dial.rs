//! TCP to whichever of a name's addresses answers first (Happy Eyeballs, RFC 8305).
//!
//! The system's look-up gives both families at once and in its order of preference (RFC 6724); the order here takes turns
//! between the families. The next address is tried when the last one fails, or a quarter of a second after it.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::failure::again;
use crate::transport::keep_alive;

/// The time an address has before the next is tried beside it (RFC 8305, section 5: Connection Attempt Delay).
const HEAD_START: Duration = Duration::from_millis(250);
/// How many addresses an error names.
const MOST_NAMED: usize = 4;

/// No address accepted a connection.
#[derive(Debug)]
pub struct Unreachable {
    /// What each address said, in the order in which they failed. Never empty.
    pub tried: Vec<(SocketAddr, io::Error)>,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(_, only)] = self.tried.as_slice() {
            return write!(f, "{only}");
        }
        for (index, (address, error)) in self.tried.iter().take(MOST_NAMED).enumerate() {
            write!(f, "{}{address}: {error}", if index == 0 { "" } else { ", " })?;
        }
        match self.tried.len().saturating_sub(MOST_NAMED) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

impl Unreachable {
    /// The same, once more.
    pub(super) fn again(&self) -> Self {
        Self { tried: self.tried.iter().map(|(address, error)| (*address, again(error))).collect() }
    }
}

impl std::error::Error for Unreachable {}

/// Connects to the first of `addresses` that answers, and says which it is. The attempts that lose are dropped.
pub(super) async fn dial(addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), Unreachable> {
    race(addresses, Box::pin(tokio::time::sleep(HEAD_START)), connect).await
}

async fn connect(address: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    keep_alive(&socket)?;
    Ok((socket, address))
}

async fn race<T, F: Future<Output = io::Result<T>>>(
    addresses: &[SocketAddr],
    mut alarm: Pin<Box<Sleep>>,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<T, Unreachable> {
    let mut schedule = Schedule::new(addresses, Instant::now());
    let mut running: Vec<(SocketAddr, Pin<Box<F>>)> = Vec::new();
    let mut tried = Vec::new();
    poll_fn(|cx| {
        loop {
            while let Some(address) = schedule.take(Instant::now()) {
                running.push((address, Box::pin(connect(address))));
            }
            let failed = tried.len();
            match poll_each(&mut running, &mut tried, cx) {
                Some(won) => return Poll::Ready(Ok(won)),
                None if tried.len() > failed => schedule.failed(Instant::now()),
                None => {}
            }
            let Some(due) = schedule.due() else {
                let over = running.is_empty();
                return if over {
                    Poll::Ready(Err(Unreachable { tried: std::mem::take(&mut tried) }))
                } else {
                    Poll::Pending
                };
            };
            alarm.as_mut().reset(due.into());
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Polls every attempt; those that failed move to `tried`.
fn poll_each<T, F: Future<Output = io::Result<T>>>(
    running: &mut Vec<(SocketAddr, Pin<Box<F>>)>,
    tried: &mut Vec<(SocketAddr, io::Error)>,
    cx: &mut Context<'_>,
) -> Option<T> {
    let mut won = None;
    running.retain_mut(|(address, attempt)| match attempt.as_mut().poll(cx) {
        _ if won.is_some() => false,
        Poll::Pending => true,
        Poll::Ready(Err(error)) => {
            tried.push((*address, error));
            false
        }
        Poll::Ready(Ok(socket)) => {
            won = Some(socket);
            false
        }
    });
    won
}

/// When which address is tried.
struct Schedule {
    /// Reversed: the next one is last.
    left: Vec<SocketAddr>,
    due: Instant,
}

impl Schedule {
    /// The first address is due at once.
    fn new(addresses: &[SocketAddr], now: Instant) -> Self {
        let mut left = interleaved(addresses);
        left.reverse();
        Self { left, due: now }
    }

    /// The next address, if its time has come; the one after it gets its time anew.
    fn take(&mut self, now: Instant) -> Option<SocketAddr> {
        if now < self.due {
            return None;
        }
        self.due = now + HEAD_START;
        self.left.pop()
    }

    /// An attempt failed: the next is due.
    fn failed(&mut self, now: Instant) {
        self.due = self.due.min(now);
    }

    /// When the next address is due. `None` when none is left.
    fn due(&self) -> Option<Instant> {
        (!self.left.is_empty()).then_some(self.due)
    }
}

/// The addresses in turns of the two families, the first one's first; within a family the order stays (RFC 8305,
/// section 4, with a First Address Family Count of 1).
fn interleaved(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let (mut own, mut other): (Vec<SocketAddr>, Vec<SocketAddr>) =
        addresses.iter().rev().copied().partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut order = Vec::with_capacity(addresses.len());
    while order.len() < addresses.len() {
        order.extend(own.pop());
        order.extend(other.pop());
    }
    order
}

#[cfg(test)]
mod tests;
