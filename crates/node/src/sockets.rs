//! How long a connection may live without the other side: a host that vanishes says nothing, and TCP by itself waits for
//! it for a quarter of an hour, or for ever.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A connection that is idle is probed after this long.
const IDLE_TIME: Duration = Duration::from_secs(10);
const PROBE_TIME: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// Small messages leave at once, and the connection is lost when what was sent stays unheard for this long. Otherwise a
/// link that was cut for a minute would stay mute for up to another one: TCP doubles its pauses.
///
/// # Errors
/// If the connection is lost already.
pub fn tend(stream: &TcpStream, unheard: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, IDLE_TIME)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_TIME)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(unheard.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}
