use super::*;

/// What becomes of a tunnel when the proxy answers so, in one piece and byte by byte; and what it was asked.
async fn answered(answer: &[u8]) -> (Result<(), String>, String) {
    let mut told = Vec::new();
    for step in [answer.len().max(1), 1] {
        let (mut near, mut far) = tokio::io::duplex(64);
        let proxy = async {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                assert!(far.read_buf(&mut asked).await.unwrap() > 0);
            }
            for piece in answer.chunks(step) {
                if far.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(far);
            String::from_utf8(asked).unwrap()
        };
        let opening = async {
            let opened = open(&mut near, "api.example:443", Some("Basic dTpw"), First::We).await;
            drop(near);
            opened.map_err(|fault| fault.to_string())
        };
        told.push(tokio::join!(opening, proxy));
    }
    // What follows a head byte by byte is still on its way when the tunnel is there.
    if told[0].0 != Err("its answer is not a proxy's: bytes follow its head".to_owned()) {
        assert_eq!(told[0], told[1]);
    }
    told.remove(0)
}

#[tokio::test]
async fn a_tunnel_is_asked_for_and_granted() {
    for head in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.0 200 Connection established\r\nProxy-agent: x\r\n\r\n",
    ] {
        let (opened, asked) = answered(head.as_bytes()).await;
        assert_eq!(opened, Ok(()), "{head}");
        assert_eq!(
            asked,
            "CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\nProxy-Authorization: Basic dTpw\r\n\r\n"
        );
    }
}

#[tokio::test]
async fn what_the_target_says_first_is_left_to_be_read() {
    let (mut near, mut far) = tokio::io::duplex(1024);
    far.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nvia: x\r\n\r\nhello").await.unwrap();
    open(&mut near, "api.example:80", None, First::Either).await.unwrap();
    let mut hello = [0; 5];
    near.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
}

#[tokio::test]
async fn an_answer_that_grants_no_tunnel_is_told_apart() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(65));
    let long = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(MOST_HEAD));
    let wordy = format!("HTTP/1.1 502 {}\r\n\r\n", "x".repeat(200));
    for (answer, expected) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\nbody", "it answered 407 Proxy Authentication Required"),
        ("HTTP/1.1 403\r\n\r\n", "it answered 403 "),
        ("HTTP/1.1 101 Switching\r\n\r\n", "it answered 101 Switching"),
        (&wordy, &*format!("it answered 502 {}", "x".repeat(MOST_REASON))),
        ("HTTP/1.1 200 OK\r\n\r\nx", "its answer is not a proxy's: bytes follow its head"),
        ("SSH-2.0-x\r\n\r\n", "its answer is not a proxy's: it is not HTTP"),
        (&many, "its answer is not a proxy's: it has more than 64 headers"),
        (&long, "its answer is not a proxy's: its head is larger than 16 KiB"),
        ("HTTP/1.1 200 OK\r\n", "it closed the connection without an answer: unexpected end of file"),
        ("HTTP/1.1 100 Continue\r\n\r\n", "it closed the connection without an answer: unexpected end of file"),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 No\r\n\r\n", "it answered 403 No"),
        ("", "it closed the connection without an answer: unexpected end of file"),
    ] {
        assert_eq!(answered(answer.as_bytes()).await.0, Err(expected.to_owned()), "{answer:.40}");
    }
}
