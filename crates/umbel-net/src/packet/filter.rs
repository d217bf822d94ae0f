//! Filters that the kernel applies before a packet socket sees a frame.

use std::net::{IpAddr, SocketAddr};

use libc::sock_filter;
use umbel_wire::ip::TCP;

use super::frame;

/// Length of an Ethernet header, as programs count.
const ETHERNET: u32 = frame::ETHERNET as u32;
/// Bytes of a frame that passes: all.
const ALL: u32 = 0x4_0000;

/// A classic BPF program.
#[derive(Clone, Debug)]
pub(crate) struct Program(Vec<sock_filter>);

/// A condition on a frame.
#[derive(Clone, Copy, Debug)]
enum Test {
    /// The number of so many bytes at an offset, after a mask, equals another.
    Equal { load: u32, at: u32, mask: u32, to: u32 },
    /// Always true: loads the length of the IPv4 header for [`Test::Equal`] with `BPF_IND`.
    HeaderLength,
}

/// The end of a segment that a filter looks at.
#[derive(Clone, Copy, Debug)]
enum End {
    Source,
    Destination,
}

impl Program {
    /// Accepts TCP segments for an address and port of this host. Fragments do not pass.
    pub(crate) fn to(server: SocketAddr) -> Program {
        Program::any_of(&[[kind(libc::PACKET_HOST), segments_to(server)].concat()])
    }

    /// Accepts what a receiver must see of a server's connections: the server's segments, and this
    /// host's own to the server.
    pub(crate) fn between(server: IpAddr) -> Program {
        let ip = if server.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let ip = vec![equal(libc::BPF_H, ETHERNET - 2, ip as u32)];
        Program::any_of(&[
            [ip.clone(), segments(server, End::Source)].concat(),
            [ip, kind(libc::PACKET_OUTGOING), segments(server, End::Destination)].concat(),
        ])
    }

    /// Accepts ARP requests [RFC 826].
    pub(crate) fn arp_requests() -> Program {
        Program::any_of(&[vec![equal(libc::BPF_H, ETHERNET + 6, 1)]])
    }

    /// Accepts neighbour solicitations [RFC 4861 §4.3].
    pub(crate) fn solicitations() -> Program {
        Program::any_of(&[vec![
            equal(libc::BPF_B, ETHERNET + 6, libc::IPPROTO_ICMPV6 as u32),
            equal(libc::BPF_B, ETHERNET + 40, 135),
        ]])
    }

    /// Returns its instructions.
    pub(crate) fn code(&self) -> &[sock_filter] {
        &self.0
    }

    /// Compiles alternatives, each a list of conditions that must all hold.
    fn any_of(alternatives: &[Vec<Test>]) -> Program {
        let mut code = Vec::new();
        for tests in alternatives {
            let start = code.len();
            for test in tests {
                match *test {
                    Test::HeaderLength => {
                        code.push(statement(libc::BPF_LDX | libc::BPF_MSH | libc::BPF_B, ETHERNET));
                    }
                    Test::Equal { load, at, mask, to } => {
                        code.push(statement(libc::BPF_LD | load, at));
                        if mask != u32::MAX {
                            code.push(statement(libc::BPF_ALU | libc::BPF_AND, mask));
                        }
                        code.push(statement(libc::BPF_JMP | libc::BPF_JEQ, to));
                    }
                }
            }
            // A condition that does not hold leads past this alternative's end.
            let end = code.len();
            for (at, step) in code.iter_mut().enumerate().skip(start) {
                if u32::from(step.code) == libc::BPF_JMP | libc::BPF_JEQ {
                    step.jf = (end - at) as u8;
                }
            }
            code.push(statement(libc::BPF_RET, ALL));
        }
        code.push(statement(libc::BPF_RET, 0));
        Program(code)
    }
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

fn equal(size: u32, at: u32, to: u32) -> Test {
    Test::Equal { load: size | libc::BPF_ABS, at, mask: u32::MAX, to }
}

/// Returns the tests for a frame of this `PACKET_*` kind.
fn kind(kind: libc::c_uchar) -> Vec<Test> {
    let at = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    vec![equal(libc::BPF_B, at, kind.into())]
}

/// Returns the tests for a whole TCP segment with this address at one end.
fn segments(address: IpAddr, end: End) -> Vec<Test> {
    match (address, end) {
        (IpAddr::V4(v4), end) => {
            let at = if matches!(end, End::Source) { 12 } else { 16 };
            let fragment = Test::Equal {
                load: libc::BPF_H | libc::BPF_ABS,
                at: ETHERNET + 6,
                mask: 0x3FFF,
                to: 0,
            };
            vec![
                equal(libc::BPF_B, ETHERNET + 9, TCP.into()),
                equal(libc::BPF_W, ETHERNET + at, v4.into()),
                fragment,
            ]
        }
        (IpAddr::V6(v6), end) => {
            let at = if matches!(end, End::Source) { 8 } else { 24 };
            let mut tests = vec![equal(libc::BPF_B, ETHERNET + 6, TCP.into())];
            for (n, word) in v6.octets().chunks_exact(4).enumerate() {
                let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
                tests.push(equal(libc::BPF_W, ETHERNET + at + 4 * n as u32, word));
            }
            tests
        }
    }
}

/// Returns the tests for a whole TCP segment for this address and port.
fn segments_to(server: SocketAddr) -> Vec<Test> {
    let mut tests = segments(server.ip(), End::Destination);
    if server.is_ipv4() {
        let (load, to) = (libc::BPF_H | libc::BPF_IND, server.port().into());
        tests.push(Test::HeaderLength);
        tests.push(Test::Equal { load, at: ETHERNET + 2, mask: u32::MAX, to });
    } else {
        tests.push(equal(libc::BPF_H, ETHERNET + 40 + 2, server.port().into()));
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does, on a frame of this kind. Returns whether it passes.
    fn passes(program: &Program, frame: &[u8], kind: u8) -> bool {
        let (mut a, mut x, mut at) = (0, 0, 0);
        let load = |size: u32, offset: u32| -> Option<u32> {
            if offset == (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32 {
                return Some(kind.into());
            }
            let bytes = frame.get(offset as usize..)?;
            Some(match size {
                libc::BPF_B => (*bytes.first()?).into(),
                libc::BPF_H => u16::from_be_bytes(*bytes.first_chunk()?).into(),
                _ => u32::from_be_bytes(*bytes.first_chunk()?),
            })
        };
        loop {
            let step = program.code()[at];
            let code = u32::from(step.code);
            at += 1;
            match code & 7 {
                libc::BPF_LDX => x = 4 * (frame[step.k as usize] & 15) as u32,
                libc::BPF_LD => {
                    let from = if code & 0xE0 == libc::BPF_IND { x + step.k } else { step.k };
                    match load(code & 0x18, from) {
                        Some(value) => a = value,
                        None => return false,
                    }
                }
                libc::BPF_ALU => a &= step.k,
                libc::BPF_JMP => at += usize::from(if a == step.k { step.jt } else { step.jf }),
                _ => return step.k > 0,
            }
        }
    }

    /// Returns a frame with a segment from 10.0.0.2:4000 to 10.0.0.1:8080, or the same by IPv6.
    fn frame(v6: bool) -> Vec<u8> {
        let mut frame = vec![0; 12];
        let kind = if v6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP };
        frame.extend((kind as u16).to_be_bytes());
        if v6 {
            frame.extend([0x60, 0, 0, 0, 0, 20, 6, 64]);
            frame.extend("fd00::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
            frame.extend("fd00::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        } else {
            // With four bytes of options.
            frame.extend([0x46, 0, 0, 44, 0, 0, 0x40, 0, 64, 6, 0, 0]);
            frame.extend([10, 0, 0, 2, 10, 0, 0, 1, 1, 1, 1, 1]);
        }
        frame.extend(4000_u16.to_be_bytes());
        frame.extend(8080_u16.to_be_bytes());
        frame.extend([0; 16]);
        frame
    }

    #[test]
    fn a_server_sees_segments_for_its_address_and_port_only() {
        for (v6, server) in [(false, "10.0.0.1:8080"), (true, "[fd00::1]:8080")] {
            let program = Program::to(server.parse().unwrap());
            let frame = frame(v6);
            assert!(passes(&program, &frame, libc::PACKET_HOST));
            assert!(!passes(&program, &frame, libc::PACKET_OTHERHOST));
            assert!(!passes(&program, &frame[..30], libc::PACKET_HOST));
            let other = Program::to(server.replace("8080", "8081").parse().unwrap());
            assert!(!passes(&other, &frame, libc::PACKET_HOST));
            let other = Program::to(server.replace('1', "3").parse().unwrap());
            assert!(!passes(&other, &frame, libc::PACKET_HOST));
        }
        let mut fragment = frame(false);
        fragment[14 + 7] = 1;
        let program = Program::to("10.0.0.1:8080".parse().unwrap());
        assert!(!passes(&program, &fragment, libc::PACKET_HOST));
    }

    #[test]
    fn a_receiver_sees_what_comes_from_the_server_and_what_this_host_sends_there() {
        for v6 in [false, true] {
            let address = |v4: &str, six: &str| if v6 { six.parse() } else { v4.parse() }.unwrap();
            let from = Program::between(address("10.0.0.2", "fd00::2"));
            assert!(passes(&from, &frame(v6), libc::PACKET_MULTICAST));
            let mut arp = frame(v6);
            arp[13] = 6;
            assert!(!passes(&from, &arp, libc::PACKET_MULTICAST));
            let to = Program::between(address("10.0.0.1", "fd00::1"));
            assert!(passes(&to, &frame(v6), libc::PACKET_OUTGOING));
            assert!(!passes(&to, &frame(v6), libc::PACKET_HOST));
            let neither = Program::between(address("10.0.0.3", "fd00::3"));
            assert!(!passes(&neither, &frame(v6), libc::PACKET_HOST));
        }
    }
}
