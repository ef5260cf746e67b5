//! Listening sockets: several on one port, one per thread, and still an error when the port is taken; and one in the file
//! system.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, setrlimit};
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

/// Binds a listener in the file system. A socket that a process left behind there is replaced.
///
/// # Errors
/// `AddrInUse` where somebody serves there, `AlreadyExists` where something else is there, and whatever the system says.
pub fn unix(path: &Path) -> io::Result<(UnixListener, UnixFile)> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(io::ErrorKind::AlreadyExists.into()),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(error) => return Err(error),
        },
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    let inode = fs::symlink_metadata(path)?.ino();
    Ok((listener, UnixFile { path: path.to_owned(), inode }))
}

/// The file of a Unix socket, removed when this is dropped.
pub struct UnixFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        // Somebody else's, put there meanwhile, stays.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Lets this process open as many descriptors as it may ask for: each client takes one, and its upstream another.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open descriptors stays as it was");
    }
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
