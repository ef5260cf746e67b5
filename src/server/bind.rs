//! Listening sockets: several on one port, one per thread, and still an error when the port is taken; and one in the file
//! system.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

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

/// Binds a listener in the file system. A socket that a process left behind there is replaced, and at no instant is there
/// one at `path` that does not listen yet.
///
/// # Errors
/// `AddrInUse` where somebody serves there, `AlreadyExists` where something else is there, and whatever the system says.
pub fn unix(path: &Path) -> io::Result<(UnixListener, UnixFile)> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(io::ErrorKind::AlreadyExists.into()),
        Ok(_) if is_served(path)? => return Err(io::ErrorKind::AddrInUse.into()),
        Ok(_) | Err(_) => {}
    }
    // A name of this process's own, short since a socket's path may have 107 bytes at most. One that is there already was
    // begun by a process of the same number, as the first in a container always is.
    let begun = path.with_file_name(format!(".{}", std::process::id()));
    if fs::symlink_metadata(&begun).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(&begun)?;
    }
    let listener = UnixListener::bind(&begun)?;
    // Dropped on an error, it removes what was begun.
    let mut file = UnixFile { id: identity(&begun)?, path: begun };
    listener.set_nonblocking(true)?;
    fs::rename(&file.path, path)?;
    path.clone_into(&mut file.path);
    Ok((listener, file))
}

/// Whether somebody listens at `path`; whoever does not come to accept does, too.
fn is_served(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The file of a Unix socket, removed when this is dropped.
pub struct UnixFile {
    path: PathBuf,
    id: Identity,
}

/// Tells a socket's file from any that comes after it: device, inode, and when it was made, since inodes are used again.
/// The time of modification is that of its making; unlike the time of change, a new mode or owner leaves it as it is.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> io::Result<Identity> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        // Somebody else's, put there meanwhile, stays.
        if identity(&self.path).is_ok_and(|found| found == self.id) {
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
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

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

    #[test]
    fn a_socket_of_a_successor_stays_when_the_one_before_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gauge.sock");
        // Each stops listening at once, and removes its file much later: after the next one has come, and after that one
        // has gone again. One was interrupted.
        drop(UnixListener::bind(folder.path().join(format!(".{}", std::process::id()))).unwrap());
        for _ in 0..20 {
            let (listener, first) = unix(&path).unwrap();
            drop(listener);
            let second = unix(&path).unwrap();
            drop(first);
            assert!(UnixStream::connect(&path).is_ok());
            drop(second);
            assert!(!path.exists());

            let (listener, first) = unix(&path).unwrap();
            drop(listener);
            drop(unix(&path).unwrap());
            let third = unix(&path).unwrap();
            drop(first);
            assert!(UnixStream::connect(&path).is_ok());
            drop(third);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no other name is left");
    }

    #[test]
    fn who_does_not_come_to_accept_is_still_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gauge.sock");
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        busy.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        assert!(!is_served(&path).unwrap(), "it does not listen yet");
        busy.listen(0).unwrap();
        // Its queue holds one or two; whoever comes then would wait for ever.
        for _ in 0..4 {
            assert_eq!(unix(&path).err().unwrap().kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn a_new_mode_does_not_make_it_somebody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gauge.sock");
        let (_listener, file) = unix(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        drop(file);
        assert!(!path.exists());
    }
}
