//! Who uses a block device: file systems that are mounted, swap space, and devices that are made of
//! it. All of it is read from texts and directories of the kernel.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::DeviceError;

/// Number by which the kernel knows a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    major: u64,
    minor: u64,
}

impl Number {
    pub(crate) fn of(rdev: u64) -> Number {
        Number { major: nix::sys::stat::major(rdev), minor: nix::sys::stat::minor(rdev) }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for Number {
    type Err = ();

    fn from_str(text: &str) -> Result<Number, ()> {
        let (major, minor) = text.trim().split_once(':').ok_or(())?;
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(Number { major: number(major)?, minor: number(minor)? })
    }
}

/// A device, or a partition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Name that the kernel gives it, such as `sda1`.
    pub(crate) name: String,
    pub(crate) number: Number,
    /// Names of the devices that are made of it.
    pub(crate) holders: Vec<String>,
}

/// Returns the device of a directory of sysfs, and then its partitions.
pub(crate) fn members(directory: &Path) -> io::Result<Vec<Member>> {
    // The link that leads there is named after a number.
    let directory = fs::canonicalize(directory)?;
    let mut members = vec![member(&directory)?];
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        if path.join("partition").exists() {
            members.push(member(&path)?);
        }
    }
    members[1..].sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

fn member(directory: &Path) -> io::Result<Member> {
    let number = fs::read_to_string(directory.join("dev"))?;
    let number = number.parse().map_err(|()| io::Error::other("its number is none"))?;
    let holders = match fs::read_dir(directory.join("holders")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        entries => {
            let names = entries?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            names.collect::<io::Result<_>>()?
        }
    };
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Member { name, number, holders })
}

/// A line of `/proc/self/mountinfo` [proc_pid_mountinfo(5)].
#[derive(Debug)]
pub(crate) struct Mount<'a> {
    number: Option<Number>,
    source: &'a str,
    pub(crate) at: PathBuf,
    pub(crate) is_writable: bool,
}

/// Returns what is mounted. Lines that make no sense are left out.
pub(crate) fn mounts(text: &str) -> impl Iterator<Item = Mount<'_>> {
    text.lines().filter_map(|line| {
        let (mount, rest) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(2);
        let (number, _root, at) = (mount.next()?, mount.next()?, mount.next()?);
        let of_mount = mount.next()?;
        let mut rest = rest.split(' ').skip(1);
        let (source, of_file_system) = (rest.next()?, rest.next().unwrap_or_default());
        let writes = |options: &str| options.split(',').any(|option| option == "rw");
        Some(Mount {
            number: number.parse().ok(),
            source,
            at: unescaped(at),
            is_writable: writes(of_mount) && writes(of_file_system),
        })
    })
}

/// Returns a path with the bytes that the kernel writes as `\040` in lists.
fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let byte =
            octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Returns the member on which a file system is that is mounted. File systems of several devices
/// have numbers of their own, and name one of the devices.
pub(crate) fn member_of<'a>(
    members: &'a [Member],
    mount: &Mount<'_>,
    number_of: impl Fn(&str) -> Option<Number>,
) -> Option<&'a Member> {
    let by = |number: Number| members.iter().find(|member| member.number == number);
    mount.number.and_then(by).or_else(|| {
        let source = mount.source.starts_with('/').then(|| unescaped(mount.source))?;
        number_of(source.to_str()?).and_then(by)
    })
}

/// Refuses members that are mounted, swap space in use, or part of other devices. `number_of` has
/// the numbers of devices by their paths.
pub(crate) fn check(
    members: &[Member],
    mountinfo: &str,
    swaps: &str,
    number_of: impl Fn(&str) -> Option<Number>,
) -> Result<(), DeviceError> {
    let part = |member: &Member| format!("/dev/{}", member.name);
    for mount in mounts(mountinfo) {
        if let Some(member) = member_of(members, &mount, &number_of) {
            return Err(DeviceError::Mounted { part: part(member), at: mount.at });
        }
    }
    // The first line has titles.
    for line in swaps.lines().skip(1) {
        let path = unescaped(line.split_whitespace().next().unwrap_or_default());
        let number = path.to_str().and_then(&number_of);
        let is_it = |member: &&Member| number == Some(member.number);
        if let Some(member) = members.iter().find(is_it) {
            return Err(DeviceError::Swap { part: part(member) });
        }
    }
    for member in members {
        if let Some(holder) = member.holders.first() {
            return Err(DeviceError::Held { part: part(member), holder: holder.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
35 22 0:31 / /proc rw,nosuid - proc proc rw
36 22 8:1 / /mnt/my\\040disk rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue
37 22 8:17 / /media/cd ro,noatime - iso9660 /dev/sdb1 ro
38 22 0:45 /@ /pool rw,relatime shared:7 - btrfs /dev/sdc2 rw,space_cache
39 22 8:33 / /fixed rw - ext4 /dev/sdc1 ro
a line that makes no sense
";
    const SWAPS: &str = "\
Filename				Type		Size		Used		Priority
/dev/sdd2                               partition	1048572		0		-2
/swapfile                               file		1048572		0		-3
";

    fn number(text: &str) -> Number {
        text.parse().unwrap()
    }

    fn number_of(path: &str) -> Option<Number> {
        let known = [("/dev/sdc2", "8:34"), ("/dev/sdd2", "8:50"), ("/dev/sda1", "8:1")];
        known.iter().find(|(name, _)| *name == path).map(|(_, text)| number(text))
    }

    fn disk(members: &[(&str, &str)]) -> Vec<Member> {
        let member = |(name, text): &(&str, &str)| Member {
            name: (*name).to_owned(),
            number: number(text),
            holders: Vec::new(),
        };
        members.iter().map(member).collect()
    }

    fn said(members: &[Member]) -> String {
        check(members, MOUNTS, SWAPS, number_of).unwrap_err().to_string()
    }

    #[test]
    fn a_disk_is_in_use_if_a_partition_is_mounted_swap_or_part_of_a_volume() {
        let sda = disk(&[("sda", "8:0"), ("sda1", "8:1"), ("sda2", "8:2")]);
        assert!(said(&sda).starts_with("/dev/sda1 is mounted at /mnt/my disk:"), "{}", said(&sda));
        // btrfs has a number of its own.
        let sdc = disk(&[("sdc2", "8:34")]);
        assert!(said(&sdc).starts_with("/dev/sdc2 is mounted at /pool:"), "{}", said(&sdc));
        let sdd = disk(&[("sdd", "8:48"), ("sdd2", "8:50")]);
        assert!(said(&sdd).contains("swapoff /dev/sdd2"), "{}", said(&sdd));
        let mut sde = disk(&[("sde", "8:64"), ("sde1", "8:65")]);
        check(&sde, MOUNTS, SWAPS, number_of).unwrap();
        sde[1].holders.push("md0".to_owned());
        assert!(said(&sde).starts_with("/dev/sde1 is part of md0"), "{}", said(&sde));
        // A partition is free though another one of its disk is mounted.
        check(&disk(&[("sda2", "8:2")]), MOUNTS, SWAPS, number_of).unwrap();
        check(&sda[2..], "", "", number_of).unwrap();
    }

    #[test]
    fn a_mount_is_writable_if_both_it_and_its_file_system_are() {
        let writable: Vec<PathBuf> =
            mounts(MOUNTS).filter(|mount| mount.is_writable).map(|mount| mount.at).collect();
        let expected = ["/", "/proc", "/mnt/my disk", "/pool"].map(PathBuf::from);
        assert_eq!(writable, expected);
    }

    #[test]
    fn members_are_what_sysfs_lists() {
        let sysfs = tempfile::tempdir().unwrap();
        let make = |path: &str, text: &str| {
            let path = sysfs.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        make("sda/dev", "8:0\n");
        make("sda/queue/rotational", "1\n");
        make("sda/sda2/dev", "8:2\n");
        make("sda/sda2/partition", "2\n");
        make("sda/sda2/holders/dm-0", "");
        make("sda/sda1/dev", "8:1\n");
        make("sda/sda1/partition", "1\n");
        std::os::unix::fs::symlink("sda", sysfs.path().join("8:0")).unwrap();
        let mut expected = disk(&[("sda", "8:0"), ("sda1", "8:1"), ("sda2", "8:2")]);
        expected[2].holders.push("dm-0".to_owned());
        assert_eq!(members(&sysfs.path().join("8:0")).unwrap(), expected);
        assert!(members(&sysfs.path().join("8:1")).is_err());
        make("sda/dev", "nonsense");
        assert!(members(&sysfs.path().join("8:0")).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in ".{0,200}", other in "(.|\\n| - |\\\\[0-7]{3}){0,60}") {
            let sda = disk(&[("sda", "8:0")]);
            let _ = check(&sda, &text, &other, number_of);
            let _ = check(&sda, &other, &text, number_of);
        }
    }
}
