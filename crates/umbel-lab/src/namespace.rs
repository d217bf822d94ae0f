//! Anonymous network namespaces, and operations inside them.
//!
//! A namespace lives as long as this process holds a descriptor of it or a process runs in it.
//! Nothing is mounted and nothing has a name. A process that dies, however it dies, leaves no
//! namespace behind once its children have ended too (see `warden`).
//!
//! A process with several threads may not enter a user namespace. All work inside is therefore done
//! by a forked child. The child makes a few system calls, hands descriptors back over a socket and
//! exits. Sockets keep belonging to the namespace in which they were made.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::CloneFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::Mode;

use crate::error::{LabError, SkipReason};

/// A network namespace and, without root, the user namespace that owns it.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    user: Option<Arc<OwnedFd>>,
    net: Arc<OwnedFd>,
}

/// The way in which namespaces can be made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// This process may make network namespaces itself.
    Root,
    /// This process may make them through its own user namespace.
    UserNamespace,
}

impl Privilege {
    /// Finds out by making a namespace and dropping it.
    pub(crate) fn probe() -> Result<Privilege, SkipReason> {
        let Err(as_root) = create_with(Privilege::Root, 1) else {
            return Ok(Privilege::Root);
        };
        match create_with(Privilege::UserNamespace, 1) {
            Ok(_) => Ok(Privilege::UserNamespace),
            Err(as_user) => Err(SkipReason(format!(
                "neither a network namespace ({as_root}) nor a user namespace ({as_user}) can be \
                 made; run as root or allow unprivileged user namespaces"
            ))),
        }
    }
}

/// Creates `count` namespaces that share one user namespace where one is needed.
pub(crate) fn create(count: usize) -> Result<Vec<Namespace>, LabError> {
    let privilege = Privilege::probe().map_err(LabError::Unavailable)?;
    create_with(privilege, count).map_err(LabError::system("make network namespaces"))
}

fn create_with(privilege: Privilege, count: usize) -> io::Result<Vec<Namespace>> {
    let maps = match privilege {
        Privilege::Root => None,
        Privilege::UserNamespace => {
            let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
            Some((format!("0 {uid} 1"), format!("0 {gid} 1")))
        }
    };
    let expected = count + usize::from(maps.is_some());
    let mut fds = fork_for_fds(expected, |sink| {
        if let Some((uid_map, gid_map)) = &maps {
            nix::sched::unshare(CloneFlags::CLONE_NEWUSER)?;
            write_file(c"/proc/self/setgroups", b"deny")?;
            write_file(c"/proc/self/uid_map", uid_map.as_bytes())?;
            write_file(c"/proc/self/gid_map", gid_map.as_bytes())?;
            sink.send(&open_raw(c"/proc/self/ns/user")?)?;
        }
        for _ in 0..count {
            nix::sched::unshare(CloneFlags::CLONE_NEWNET)?;
            sink.send(&open_raw(c"/proc/self/ns/net")?)?;
        }
        Ok(())
    })?
    .into_iter();
    let user = if maps.is_some() { fds.next().map(Arc::new) } else { None };
    Ok(fds.map(|net| Namespace { user: user.clone(), net: Arc::new(net) }).collect())
}

impl Namespace {
    /// Takes over descriptors of a namespace that another process made.
    pub(crate) fn from_fds(user: Option<OwnedFd>, net: OwnedFd) -> Namespace {
        Namespace { user: user.map(Arc::new), net: Arc::new(net) }
    }

    /// Returns the descriptor of the network namespace.
    pub(crate) fn net_fd(&self) -> RawFd {
        self.net.as_raw_fd()
    }

    /// Returns the descriptor of the user namespace, if there is one.
    pub(crate) fn user_fd(&self) -> Option<RawFd> {
        self.user.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Returns the tag that is unique to the network namespace in this kernel, `net:[inode]`.
    pub(crate) fn tag(&self) -> io::Result<String> {
        let stat = nix::sys::stat::fstat(&self.net)?;
        Ok(format!("net:[{}]", stat.st_ino))
    }

    /// Moves the calling process into the namespace. Makes system calls only.
    fn enter(&self) -> nix::Result<()> {
        if let Some(user) = &self.user {
            nix::sched::setns(user, CloneFlags::CLONE_NEWUSER)?;
        }
        nix::sched::setns(&self.net, CloneFlags::CLONE_NEWNET)
    }

    /// Creates a command that will run in this namespace.
    ///
    /// It sees its own `/sys` where the system allows that, so that `/sys/class/net` shows the
    /// interfaces of the namespace.
    #[allow(unsafe_code)]
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let namespace = self.clone();
        // SAFETY: between fork and exec the closure makes system calls on descriptors that it owns
        // and on static strings. It neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(move || {
                namespace.enter()?;
                remount_sysfs();
                Ok(())
            });
        }
        command
    }

    /// Creates a command that runs in this namespace, with `inherited` open under their numbers.
    #[allow(unsafe_code)]
    pub(crate) fn command_with_fds(&self, program: &str, inherited: Vec<Namespace>) -> Command {
        let mut command = Command::new(program);
        let namespace = self.clone();
        // SAFETY: as in `command`.
        unsafe {
            command.pre_exec(move || {
                namespace.enter()?;
                inherited.iter().try_for_each(Namespace::keep_open)
            });
        }
        command
    }

    /// Lets the descriptors survive exec. Makes system calls only.
    pub(crate) fn keep_open(&self) -> io::Result<()> {
        let keep = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
        nix::fcntl::fcntl(&self.net, keep)?;
        Ok(())
    }

    /// Opens a socket that belongs to this namespace. It can be used from anywhere.
    pub(crate) fn socket(&self, domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
        let mut fds = fork_for_fds(1, |sink| {
            self.enter()?;
            sink.send(&open_socket(domain, kind, protocol)?)
        })?;
        Ok(fds.remove(0))
    }

    /// Opens one of the tables in `/proc/net/`, as this namespace sees it.
    pub(crate) fn open_table(&self, path: &std::ffi::CStr) -> io::Result<std::fs::File> {
        let mut fds = fork_for_fds(1, |sink| {
            self.enter()?;
            sink.send(&open_raw(path)?)
        })?;
        Ok(fds.remove(0).into())
    }

    /// Writes kernel parameters below `/proc/sys/`. Those marked optional may be missing.
    pub(crate) fn write_sysctls(&self, values: &[Sysctl]) -> io::Result<()> {
        let prepared: Vec<(CString, &str, bool)> = values
            .iter()
            .map(|s| Ok((CString::new(format!("/proc/sys/{}", s.path))?, s.value, s.optional)))
            .collect::<Result<_, std::ffi::NulError>>()?;
        fork_for_fds(0, |_| {
            self.enter()?;
            for (path, value, optional) in &prepared {
                match write_file(path, value.as_bytes()) {
                    Err(_) if *optional => {}
                    result => result?,
                }
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// A kernel parameter to set.
pub(crate) struct Sysctl {
    path: String,
    value: &'static str,
    optional: bool,
}

impl Sysctl {
    /// Creates a parameter that must exist.
    pub(crate) fn required(path: impl Into<String>, value: &'static str) -> Sysctl {
        Sysctl { path: path.into(), value, optional: false }
    }

    /// Creates a parameter that may be missing in this kernel.
    pub(crate) fn optional(path: impl Into<String>, value: &'static str) -> Sysctl {
        Sysctl { path: path.into(), value, optional: true }
    }
}

#[allow(unsafe_code)]
fn open_socket(domain: i32, kind: i32, protocol: i32) -> nix::Result<OwnedFd> {
    // SAFETY: `socket` takes no pointers; a result that is not -1 is a new descriptor.
    unsafe {
        let fd = Errno::result(libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn open_raw(path: &std::ffi::CStr) -> nix::Result<OwnedFd> {
    nix::fcntl::open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

fn write_file(path: &std::ffi::CStr, content: &[u8]) -> nix::Result<()> {
    let file = nix::fcntl::open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    nix::unistd::write(&file, content).map(drop)
}

/// Moves the process to a mount namespace with a fresh `/sys`, where that is allowed.
pub(crate) fn remount_sysfs() {
    use nix::mount::{MsFlags, mount};
    let none = None::<&std::ffi::CStr>;
    let private = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    let ok = nix::sched::unshare(CloneFlags::CLONE_NEWNS).is_ok()
        && mount(none, c"/", none, private, none).is_ok();
    if ok {
        // Refused in user namespaces of containers whose /sys is partly hidden.
        let _ = mount(Some(c"sysfs"), c"/sys", Some(c"sysfs"), MsFlags::empty(), none);
    }
}

/// The child's end of the socket over which descriptors come back.
struct FdSink(OwnedFd);

/// Length of a message from the child: an error number, or 0 beside a descriptor or at the end.
const REPORT_BYTES: usize = 4;

/// Buffer for the control message of one descriptor, aligned as `cmsghdr` needs.
#[repr(C, align(8))]
struct FdControl([u8; 64]);

impl FdSink {
    /// Sends a descriptor. Allocates nothing.
    fn send(&self, fd: &OwnedFd) -> nix::Result<()> {
        self.report(0, Some(fd))
    }

    #[allow(unsafe_code)]
    fn report(&self, errno: i32, fd: Option<&OwnedFd>) -> nix::Result<()> {
        let mut payload = errno.to_ne_bytes();
        let mut part = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: REPORT_BYTES };
        let mut control = FdControl([0; 64]);
        // SAFETY: all pointers in `message` refer to locals that outlive the call. The control
        // buffer is aligned for `cmsghdr` and larger than CMSG_SPACE of one descriptor.
        unsafe {
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            if let Some(fd) = fd {
                let size = mem::size_of::<RawFd>() as u32;
                message.msg_control = control.0.as_mut_ptr().cast();
                message.msg_controllen = libc::CMSG_SPACE(size) as _;
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(size) as _;
                ptr::write_unaligned(libc::CMSG_DATA(header).cast(), fd.as_raw_fd());
            }
            Errno::result(libc::sendmsg(self.0.as_raw_fd(), &raw const message, 0)).map(drop)
        }
    }
}

/// Runs `work` in a forked child and collects the `expected` descriptors that it sends.
///
/// `work` runs between fork and exit in a copy of a process that may have had other threads. It may
/// make system calls and touch memory prepared before, but not allocate or lock.
#[allow(unsafe_code)]
fn fork_for_fds(
    expected: usize,
    work: impl FnOnce(&FdSink) -> nix::Result<()>,
) -> io::Result<Vec<OwnedFd>> {
    let (parent, child) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let sink = FdSink(child);
    // SAFETY: the child calls `work`, which keeps to the rule above, then `_exit`; it never
    // returns into code of this process.
    let pid = unsafe { Errno::result(libc::fork())? };
    if pid == 0 {
        // An error that nix does not know has the number 0 and must not pass for success.
        let errno = work(&sink).map_or_else(|errno| (errno as i32).max(1), |()| 0);
        let _ = sink.report(errno, None);
        // SAFETY: ends the child without running destructors or exit handlers of the parent.
        unsafe { libc::_exit(0) };
    }
    drop(sink);
    let received = receive_fds(&parent, expected);
    let pid = nix::unistd::Pid::from_raw(pid);
    while nix::sys::wait::waitpid(pid, None) == Err(Errno::EINTR) {}
    received
}

fn receive_fds(socket: &OwnedFd, expected: usize) -> io::Result<Vec<OwnedFd>> {
    let mut fds = Vec::with_capacity(expected);
    loop {
        let (errno, fd) = receive_report(socket)?;
        match (errno, fd) {
            (0, Some(fd)) => fds.push(fd),
            (0, None) if fds.len() == expected => return Ok(fds),
            (0, None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            (errno, _) => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

#[allow(unsafe_code)]
fn receive_report(socket: &OwnedFd) -> io::Result<(i32, Option<OwnedFd>)> {
    let mut payload = [0_u8; REPORT_BYTES];
    let mut part = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: REPORT_BYTES };
    let mut control = FdControl([0; 64]);
    // SAFETY: all pointers in `message` refer to locals that outlive the call. The header is read
    // only where the kernel says that it wrote one, and the descriptor in it is ours.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let size = loop {
            let flags = libc::MSG_CMSG_CLOEXEC;
            match Errno::result(libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags)) {
                Err(Errno::EINTR) => {}
                result => break result?,
            }
        };
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let fd = (!header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS).then(|| {
            OwnedFd::from_raw_fd(ptr::read_unaligned(libc::CMSG_DATA(header).cast::<RawFd>()))
        });
        if size as usize != REPORT_BYTES {
            return Err(io::Error::other("the helper process died"));
        }
        Ok((i32::from_ne_bytes(payload), fd))
    }
}
