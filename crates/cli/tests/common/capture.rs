//! Every byte that TCP carries in this network namespace, as the kernel shows it to a process that may look at packets.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};

/// On loopback a packet is as long as what was written at once.
const PACKET_LEN_MAX: usize = 128 << 10;
/// How much the kernel keeps until it is read here.
const BUFFER_LEN: usize = 64 << 20;
const PAUSE: Duration = Duration::from_millis(100);
const TCP: u8 = 6;

/// Records until it is asked for what there was.
pub(crate) struct Capture {
    is_over: Arc<AtomicBool>,
    recording: JoinHandle<Vec<Segment>>,
}

/// What one packet of TCP carried.
pub(crate) struct Segment {
    pub(crate) ports: [u16; 2],
    pub(crate) payload: Vec<u8>,
}

impl Capture {
    /// From now on.
    pub(crate) fn start() -> Self {
        // Without the headers of the links: what arrives begins with the one of IP.
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::PACKET, kind, flags, Some(eth::ALL)).expect("packets can be seen");
        _ = set_socket_recv_buffer_size_force(&socket, BUFFER_LEN);
        set_socket_timeout(&socket, Timeout::Recv, Some(PAUSE)).expect("there is a time");
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        Self { is_over, recording: thread::spawn(move || record(&socket, &until)) }
    }

    /// Everything until now.
    pub(crate) fn end(self) -> Vec<Segment> {
        self.is_over.store(true, Ordering::Relaxed);
        self.recording.join().expect("it records")
    }
}

fn record(socket: &OwnedFd, is_over: &AtomicBool) -> Vec<Segment> {
    let (mut segments, mut packet) = (Vec::new(), vec![0; PACKET_LEN_MAX]);
    loop {
        match recv(socket, &mut packet[..], RecvFlags::empty()) {
            Ok((len, _)) => segments.extend(segment(&packet[..len])),
            Err(error) if io::Error::from(error).kind() == io::ErrorKind::WouldBlock => {
                if is_over.load(Ordering::Relaxed) {
                    return segments;
                }
            }
            Err(error) => panic!("no packets: {error}"),
        }
    }
}

/// What a packet carries, if that is TCP on IP of version 4, and something.
fn segment(packet: &[u8]) -> Option<Segment> {
    let [first, ..] = *packet else { return None };
    let header_len = usize::from(first & 15) * 4;
    if first >> 4 != 4 || *packet.get(9)? != TCP {
        return None;
    }
    let tcp = packet.get(header_len..)?;
    let port = |place: usize| Some(u16::from_be_bytes([*tcp.get(place)?, *tcp.get(place + 1)?]));
    let payload = tcp.get(usize::from(*tcp.get(12)? >> 4) * 4..)?;
    (!payload.is_empty()).then_some(Segment { ports: [port(0)?, port(2)?], payload: payload.to_vec() })
}

impl Segment {
    /// Do these bytes stand in it?
    pub(crate) fn holds(&self, text: &str) -> bool {
        self.payload.windows(text.len()).any(|window| window == text.as_bytes())
    }
}
