//! Listening sockets: several on one port, one per thread, and still an error when the port is taken.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel may queue on one listener before they are accepted.
const BACKLOG: i32 = 1024;

/// Binds `count` listeners to one address with `SO_REUSEPORT`, so that the kernel spreads connections over them.
///
/// A given port is first probed without `SO_REUSEPORT`: two processes that both set it would silently share a port.
/// With port 0 all listeners share the port the kernel chose for the first.
///
/// # Errors
/// Whatever the system says, `AddrInUse` above all.
pub fn reuseport(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    if address.port() != 0 {
        drop(socket(address, false)?);
    }
    // A port that the kernel chooses is nobody else's, and is not let go again.
    let first = listening(socket(address, true)?)?;
    let address = first.local_addr()?;
    let others = (1..count).map(|_| listening(socket(address, true)?));
    std::iter::once(Ok(first)).chain(others).collect()
}

/// Binds one listener; the port must be free.
///
/// # Errors
/// Whatever the system says, `AddrInUse` above all.
pub fn single(address: SocketAddr) -> io::Result<TcpListener> {
    listening(socket(address, false)?)
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for connections of the last run to leave TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listening(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_share_the_chosen_port() {
        let listeners = reuseport("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        let ports: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), 3);
        assert!(ports[0] != 0 && ports.iter().all(|port| *port == ports[0]));
    }

    #[test]
    fn ports_chosen_at_the_same_time_are_never_shared() {
        let chosen =
            |_| std::thread::spawn(|| (0..200).map(|_| reuseport("127.0.0.1:0".parse().unwrap(), 2)).collect());
        let threads: Vec<std::thread::JoinHandle<Vec<_>>> = (0..4).map(chosen).collect();
        let bound: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let ports = bound.iter().map(|listeners| listeners.as_ref().unwrap()[0].local_addr().unwrap().port());
        assert_eq!(ports.collect::<std::collections::HashSet<_>>().len(), 800);
    }

    #[test]
    fn a_taken_port_is_an_error_even_when_shared() {
        let ours = reuseport("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let address = ours[0].local_addr().unwrap();
        assert_eq!(reuseport(address, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(single(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
