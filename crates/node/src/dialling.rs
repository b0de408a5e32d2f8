//! How whoever is no peer calls a server: a worker, or the leader of another farm.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use primus_wire::native::{self, Answer};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::sockets::tend;

const DIAL_TIME: Duration = Duration::from_secs(1);
const HELLO_TIME: Duration = Duration::from_secs(2);
/// No answer to a hello is longer.
const ANSWER_LEN_MAX: u64 = 4096;
/// A link on which nothing arrives for this long, though something was sent, is dialled anew.
const UNHEARD_TIME: Duration = Duration::from_secs(1);
/// How long to wait before dialling again.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(1);
pub(crate) const BACKOFF_MAX: Duration = Duration::from_millis(250);
/// How long whoever was refused waits.
pub(crate) const REFUSED_TIME: Duration = Duration::from_secs(2);

/// Opens a link and says who calls. Gives back what came after the answer, too.
///
/// # Errors
/// What the system says; [`io::ErrorKind::PermissionDenied`], with a reason, if whoever answers does not want this one.
pub(crate) async fn dial(address: SocketAddr, hello: &impl Serialize) -> io::Result<(TcpStream, BytesMut)> {
    let mut stream = timeout(DIAL_TIME, TcpStream::connect(address)).await??;
    tend(&stream, UNHEARD_TIME)?;
    // A dead port in the ephemeral range can connect to itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let mut arrived = BytesMut::new();
    match timeout(HELLO_TIME, greet(&mut stream, hello, &mut arrived)).await?? {
        Answer::Admitted => Ok((stream, arrived)),
        // That is for servers of one cluster.
        Answer::Welcome(_) => Err(io::ErrorKind::InvalidData.into()),
        Answer::Refused(reason) => Err(io::Error::new(io::ErrorKind::PermissionDenied, reason)),
    }
}

async fn greet(stream: &mut TcpStream, hello: &impl Serialize, arrived: &mut BytesMut) -> io::Result<Answer> {
    let mut buffer = BytesMut::new();
    native::put(&mut buffer, hello).map_err(io::Error::other)?;
    stream.write_all(&buffer).await?;
    let mut stream = stream.take(ANSWER_LEN_MAX);
    loop {
        if let Some(answer) = native::take(arrived).map_err(io::Error::other)? {
            return Ok(answer);
        }
        if stream.read_buf(arrived).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
