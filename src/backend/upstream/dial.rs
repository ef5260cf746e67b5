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
mod tests {
    use super::*;

    fn addresses(hosts: &[&str]) -> Vec<SocketAddr> {
        hosts.iter().map(|host| SocketAddr::new(host.parse().unwrap(), 9)).collect()
    }

    #[test]
    fn families_take_turns_in_the_order_of_the_system() {
        for (given, expected) in [
            (&[][..], &[][..]),
            (&["::1"], &["::1"]),
            (&["127.0.0.1", "127.0.0.2", "::1"], &["127.0.0.1", "::1", "127.0.0.2"]),
            (&["::1", "::2", "::3", "127.0.0.1"], &["::1", "127.0.0.1", "::2", "::3"]),
            (&["::1", "127.0.0.1", "127.0.0.2", "::2"], &["::1", "127.0.0.1", "::2", "127.0.0.2"]),
        ] {
            assert_eq!(interleaved(&addresses(given)), addresses(expected), "{given:?}");
        }
    }

    #[test]
    fn the_next_address_is_due_after_its_time_or_a_failure() {
        let now = Instant::now();
        let order = addresses(&["127.0.0.1", "::1", "127.0.0.2", "127.0.0.3"]);
        let mut schedule = Schedule::new(&order, now);
        assert_eq!((schedule.take(now), schedule.take(now)), (Some(order[0]), None));
        let later = now + HEAD_START;
        assert_eq!((schedule.due(), schedule.take(now + HEAD_START / 2)), (Some(later), None));
        assert_eq!((schedule.take(later), schedule.take(later)), (Some(order[1]), None));
        schedule.failed(later);
        assert_eq!((schedule.due(), schedule.take(later)), (Some(later), Some(order[2])));
        // A failure a while later starts one attempt, whose head start counts from then.
        let soon = later + HEAD_START / 2;
        schedule.failed(soon);
        assert_eq!((schedule.take(soon), schedule.due()), (Some(order[3]), None));
        assert_eq!(schedule.take(soon + HEAD_START), None);
    }

    fn refused() -> io::Error {
        io::ErrorKind::ConnectionRefused.into()
    }

    #[tokio::test]
    async fn the_first_answer_wins_and_the_losers_are_dropped() {
        let order = addresses(&["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]);
        let alive = std::sync::Arc::new(());
        let connect = |address: SocketAddr| {
            let held = alive.clone();
            let place = order.iter().position(|known| *known == address).unwrap();
            async move {
                match place {
                    0 => std::future::pending::<()>().await,
                    1 => return Err(refused()),
                    _ => {}
                }
                drop(held);
                Ok(address)
            }
        };
        let began = Instant::now();
        let won = race(&order, Box::pin(tokio::time::sleep(HEAD_START)), connect).await;
        // The second was tried after the first one's head start, and the third as soon as that had failed.
        assert_eq!(won.unwrap(), order[2]);
        assert!(began.elapsed() >= HEAD_START);
        assert_eq!(std::sync::Arc::strong_count(&alive), 1);
    }

    #[tokio::test]
    async fn a_socket_that_does_not_answer_holds_nobody_up() {
        use tokio::net::{TcpListener, TcpSocket};
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = live.local_addr().unwrap();
        // A queue that is full gives no answer, not even a refusal.
        let hole = TcpSocket::new_v4().unwrap();
        hole.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let hole = hole.listen(1).unwrap();
        let silent = hole.local_addr().unwrap();
        let filling: Vec<_> = (0..4).map(|_| tokio::spawn(TcpStream::connect(silent))).collect();
        for _ in 0..10_000 {
            if filling.iter().filter(|one| one.is_finished()).count() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let refusing = TcpListener::bind("127.0.0.3:0").await.unwrap().local_addr().unwrap();

        let patience = Duration::from_secs(60);
        for (order, least) in [([refusing, live], Duration::ZERO), ([silent, live], HEAD_START)] {
            let began = Instant::now();
            let (_, address) = tokio::time::timeout(patience, dial(&order)).await.unwrap().unwrap();
            assert_eq!(address, live);
            assert!(began.elapsed() >= least);
        }
        let told = dial(&[refusing, refusing]).await.unwrap_err().to_string();
        assert_eq!(told.matches("127.0.0.3").count(), 2, "{told}");
        filling.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn when_all_fail_each_is_named_up_to_a_bound() {
        let order = addresses(&["127.0.0.1", "::1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]);
        let alarm = || Box::pin(tokio::time::sleep(HEAD_START));
        let failed = |addresses: Vec<SocketAddr>| async move {
            race(&addresses, alarm(), |_| async { Err::<(), _>(refused()) }).await.unwrap_err().to_string()
        };
        assert_eq!(failed(order[..1].to_vec()).await, "connection refused");
        assert_eq!(failed(order[..2].to_vec()).await, "127.0.0.1:9: connection refused, [::1]:9: connection refused");
        let six = failed(order.clone()).await;
        assert!(six.ends_with("127.0.0.3:9: connection refused, and 2 more"), "{six}");
    }
}
