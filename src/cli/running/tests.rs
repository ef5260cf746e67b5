//! What a failing engine leaves standing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use super::*;
use crate::backend::sim::{Sim, SimConfig};

const LLAMA: &str = r#"{"model":"local","messages":[{"role":"user","content":"hello"}],"max_tokens":100}"#;
const STREAM: &str =
    r#"{"model":"local","stream":true,"messages":[{"role":"user","content":"hello"}],"max_tokens":100}"#;

/// Sends a request on a connection of its own and reads until that ends.
fn ask(address: SocketAddr, request: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + body).as_bytes()).unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}

fn chat(running: &Running, body: &str) -> String {
    ask(running.listen(), "POST /v1/chat/completions", body)
}

fn status(reply: &str) -> &str {
    reply.split(' ').nth(1).unwrap()
}

#[test]
fn an_engine_that_panics_takes_nothing_else_down() {
    let sim = Sim::spawn(SimConfig::default()).unwrap();
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\
         [backend.up]\nbase_url = \"http://{}\"\n[[route]]\nmodel = \"local\"\nbackend = \"local\"\n\
         [[route]]\nmodel = \"*\"\nbackend = \"up\"\n\
         [backend.local]\nkind = \"llama\"\nmodel = \"/nowhere\"\n",
        sim.addr()
    );
    let config = Config::parse("test.toml", &text, |_| None).unwrap();
    let mut site = Site::new(&config, Vec::new()).unwrap();
    // One slot: of three requests one runs and two wait when it panics.
    let (llama, panic) = Llama::that_panics("local", 1);
    let waiting = llama.clone();
    site.replace_llama(llama);
    let running = Running::serve(&config.server, Arc::new(site)).unwrap();
    // Dropped before the engine's handles, so that a failure here ends it instead of waiting for it.
    let panic = panic;
    (running.loading())(&mut |_| {}).unwrap();
    for _ in 0..1000 {
        if status(&ask(running.admin(), "GET /readyz", "")) == "200" {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let replies: Vec<_> = thread::scope(|scope| {
        let asked: Vec<_> =
            [STREAM, STREAM, LLAMA].map(|body| scope.spawn(|| chat(&running, body))).into_iter().collect();
        // All three are in before it breaks.
        for _ in 0..1000 {
            if waiting.waiting() == 2 {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic.send(()).unwrap();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    for reply in &replies[..2] {
        assert_eq!(status(reply), "200");
        assert!(reply.contains("engine_failed") && reply.contains("as a test wishes"), "{reply}");
        assert!(!reply.contains("[DONE]"), "{reply}");
    }
    assert_eq!(status(&replies[2]), "503", "{}", replies[2]);

    let unready = ask(running.admin(), "GET /readyz", "");
    assert!(status(&unready) == "503" && unready.contains("\"local\""), "{unready}");
    assert_eq!(status(&ask(running.admin(), "GET /healthz", "")), "200");
    let refused = chat(&running, LLAMA);
    assert!(status(&refused) == "503" && refused.contains("engine_failed"), "{refused}");
    let upstream = chat(&running, &STREAM.replace("local", "hosted"));
    assert!(status(&upstream) == "200" && upstream.contains("[DONE]"), "{upstream}");
    let metrics = running.meter().render();
    let count = |outcome: &str| {
        let lines = metrics.lines().filter(|line| {
            line.starts_with("streamgauge_requests_total") && line.contains(&format!("outcome=\"{outcome}\""))
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum::<u32>()
    };
    assert_eq!((count("inband_error"), count("internal"), count("ok")), (2, 2, 1), "{metrics}");
}
