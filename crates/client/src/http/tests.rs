use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use super::connection::Connection;
use super::*;

const PATIENCE: Duration = Duration::from_secs(5);

/// A server that does this with each connection in turn, and then listens no more.
fn server<T: Send + 'static>(
    connections: usize,
    serve: impl Fn(usize, TcpStream) -> T + Send + 'static,
) -> (String, JoinHandle<Vec<T>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accept = move || (0..connections).map(|number| serve(number, listener.accept().unwrap().0)).collect();
    (address, thread::spawn(accept))
}

/// The head of a request.
fn head(stream: &TcpStream) -> String {
    let mut lines = BufReader::with_capacity(1, stream).lines().map_while(Result::ok);
    lines.by_ref().take_while(|line| !line.is_empty()).map(|line| line + "\n").collect()
}

/// What the client makes of these bytes: the status, and the body if it is whole.
fn answer(bytes: Vec<u8>) -> Result<(u16, io::Result<Vec<u8>>), TransportError> {
    let (address, served) = server(1, move |_, mut stream| {
        head(&stream);
        _ = stream.write_all(&bytes);
    });
    let response = Request::get("/").send(&address, PATIENCE);
    let read = response.map(|response| (response.status, response.bytes()));
    served.join().unwrap();
    read
}

fn body(bytes: &[u8]) -> String {
    String::from_utf8(answer(bytes.to_vec()).unwrap().1.unwrap()).unwrap()
}

fn kind_of<T: std::fmt::Debug>(answer: Result<T, TransportError>) -> ErrorKind {
    match answer {
        Err(TransportError::NoAnswer(error)) => error.kind(),
        other => panic!("{other:?} is not a missing answer"),
    }
}

#[test]
fn bodies_end_where_they_should() {
    assert_eq!(body(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc"), "ab");
    assert_eq!(body(b"HTTP/1.1 200 OK\r\n\r\nabc"), "abc");
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
    assert_eq!(body(chunked), "abcde");
}

#[test]
fn half_an_answer_is_no_answer() {
    let cut_short = answer(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".to_vec()).unwrap().1;
    assert_eq!(cut_short.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    let cut_short = answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nabc".to_vec()).unwrap().1;
    assert_eq!(cut_short.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    for bytes in ["", "HTTP/1.1 200"] {
        assert_eq!(kind_of(answer(bytes.into())), ErrorKind::ConnectionAborted, "{bytes:?}");
    }
    for bytes in ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"] {
        assert_eq!(kind_of(answer(bytes.into())), ErrorKind::InvalidData, "{bytes:?}");
    }
}

#[test]
fn a_head_that_does_not_end_is_not_read_to_its_end() {
    let many = "HTTP/1.1 200 OK\r\n".to_owned() + &"x: y\r\n".repeat(101) + "\r\n";
    assert_eq!(kind_of(answer(many.into())), ErrorKind::InvalidData);
    let long = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(1 << 20));
    assert_eq!(kind_of(answer(long.into())), ErrorKind::InvalidData);
}

#[test]
fn a_body_that_is_too_long_is_not_read_to_its_end() {
    let (address, _) = server(1, |_, mut stream| {
        head(&stream);
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b' '; 1 << 10]).is_ok() {}
    });
    let limits = Limits { connect_time: PATIENCE, idle_time: PATIENCE, answer_len_max: 1 << 20 };
    let asked = wait(Connections::new(limits).ask(&Request::get("/"), &address, &[], PATIENCE));
    assert_eq!(kind_of(asked), ErrorKind::InvalidData);
}

#[test]
fn a_line_that_does_not_end_is_not_read_to_its_end() {
    let (address, _) = server(1, |_, mut stream| {
        head(&stream);
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\none\r\ntwo\n");
        while stream.write_all(&[b' '; 1 << 10]).is_ok() {}
    });
    let mut lines = Request::get("/").send(&address, PATIENCE).unwrap().lines();
    assert_eq!((lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap()), ("one".into(), "two".into()));
    assert_eq!(lines.next().unwrap().unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn where_nobody_listens_nothing_was_sent() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let sent = Request::get("/").send(&free, PATIENCE);
    assert!(matches!(sent, Err(TransportError::Unreachable)), "{sent:?}");
}

#[test]
fn only_a_server_that_hangs_up_before_it_was_asked_has_heard_nothing() {
    let (address, _) = server(2, |number, stream| {
        if number == 0 {
            drop(head(&stream));
        }
    });
    let sent = Request::post("/", b"{}").send(&address, PATIENCE);
    assert!(matches!(sent, Err(TransportError::NoAnswer(_))), "{sent:?}");
    let sent = wait(async {
        let connection = Connection::open(&address, PATIENCE).await?;
        // Until it is known here that the server has closed the connection.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let request = Request::post("/", b"{}").addressed(&address, &[])?;
        connection.ask(request, PATIENCE, PATIENCE).await.map_err(|failed| failed.error)
    });
    assert!(matches!(sent, Err(TransportError::Unreachable)), "{sent:?}");
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_longer_than_it_may_take() {
    let (address, served) = server(2, |number, mut stream| {
        head(&stream);
        if number == 1 {
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nx");
        }
        // Until the client has given up.
        _ = stream.read_to_end(&mut Vec::new());
    });
    let soon = Duration::from_millis(100);
    assert_eq!(kind_of(Request::get("/").send(&address, soon)), ErrorKind::TimedOut);
    let begun = Request::get("/").send(&address, soon).unwrap();
    assert_eq!(begun.bytes().unwrap_err().kind(), ErrorKind::TimedOut);
    served.join().unwrap();
}

#[test]
fn a_session_uses_its_connection_again_and_opens_another_one_when_it_must() {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7";
    let (address, served) = server(2, |number, mut stream| {
        let mut heads = Vec::new();
        for _ in 0..2 - number {
            heads.push(head(&stream));
            stream.write_all(ANSWER).unwrap();
        }
        heads
    });
    let mut session = Session::new(&address, PATIENCE);
    let mut answers = Vec::new();
    // The server closes the first connection after two answers; nobody knows whether it has heard a third request.
    while answers.len() < 3 {
        answers.extend(session.json(&Request::get("/")).ok());
    }
    assert_eq!(answers, [7, 7, 7]);
    let heads = served.join().unwrap();
    assert_eq!(heads.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    assert!(heads.iter().flatten().all(|head| head.contains("x-primus-here: 1\n")), "{heads:?}");
}

#[test]
fn what_could_not_leave_on_an_old_connection_leaves_on_a_new_one() {
    let (address, served) = server(2, |_, mut stream| {
        head(&stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7").unwrap();
    });
    let limits = Limits { connect_time: PATIENCE, idle_time: PATIENCE, answer_len_max: 9 };
    let connections = Connections::new(limits);
    wait(async {
        for _ in 0..2 {
            let asked = connections.ask(&Request::get("/"), &address, &[], PATIENCE).await;
            assert_eq!(asked.unwrap(), (200, b"7".to_vec()));
            // Until it is known here that the server has closed the connection.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    served.join().unwrap();
}

/// What arrives of a long body, without the frames around its pieces.
fn read_pieces(stream: &TcpStream) -> usize {
    let (mut reader, mut read) = (BufReader::new(stream), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let len = usize::from_str_radix(line.trim(), 16).unwrap();
        reader.read_exact(&mut vec![0; len + 2]).unwrap();
        if len == 0 {
            return read;
        }
        read += len;
    }
}

#[test]
fn long_bodies_are_sent_while_they_are_read() {
    let (address, served) = server(1, |_, mut stream| {
        let head = head(&stream);
        let len = read_pieces(&stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        (head, len)
    });
    let len = 5 << 20;
    let sent = upload(&address, "/v1/x?y=1", LINES, &mut io::repeat(b'x').take(len), PATIENCE).unwrap();
    assert_eq!(sent.status, 200);
    let (head, read) = served.join().unwrap().remove(0);
    assert_eq!(read as u64, len);
    assert!(head.starts_with("POST /v1/x?y=1 HTTP/1.1\n"), "{head}");
    for field in ["transfer-encoding: chunked", "content-type: application/x-ndjson", "connection: close"] {
        assert!(head.contains(field), "{head}");
    }
}

#[test]
fn a_long_body_that_is_refused_is_not_sent_to_its_end() {
    let (address, _) = server(1, |_, mut stream| {
        head(&stream);
        _ = stream.write_all(b"HTTP/1.1 413 Too Long\r\ncontent-length: 0\r\n\r\n");
        _ = stream.read_to_end(&mut Vec::new());
    });
    let sent = upload(&address, "/", LINES, &mut io::repeat(b'x'), PATIENCE);
    assert_eq!(sent.unwrap().status, 413);
}
