//! A provider that answers at once and always the same: a chat completion, or one in 200 events with a
//! pause before each. A thread a connection, nothing is computed.
//!
//!   upstream --chunks 200 --pause-us 3000        prints the port it listens on

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sluice_bench::{Reader, find, number};

/// All that is ever said, made once.
struct Words {
    whole: Vec<u8>,
    stream_head: Vec<u8>,
    chunk: Vec<u8>,
    finish: Vec<u8>,
    usage: Vec<u8>,
    done: Vec<u8>,
    chunks: usize,
    pause: Duration,
}

fn main() -> io::Result<()> {
    let words = Arc::new(Words::new(
        number("chunks", 200),
        Duration::from_micros(number("pause-us", 3000)),
    ));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming().flatten() {
        let words = words.clone();
        // A connection that breaks ends its thread and nothing else.
        thread::spawn(move || words.serve(stream));
    }
    Ok(())
}

impl Words {
    fn new(chunks: usize, pause: Duration) -> Self {
        let completion = r#"{"id":"chatcmpl-bench","object":"chat.completion","created":1767225600,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps over the lazy dog, again and again, until the meter has counted every word.","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":40,"completion_tokens":24,"total_tokens":64,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}"#;
        let event = |choices: &str, usage: &str| {
            let data = format!(
                r#"{{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1767225600,"model":"bench","choices":{choices}{usage}}}"#
            );
            framed(&format!("data: {data}\n\n"))
        };
        Self {
            whole: format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{completion}", completion.len()).into_bytes(),
            stream_head: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
            chunk: event(r#"[{"index":0,"delta":{"content":" word"},"finish_reason":null}]"#, ""),
            finish: event(r#"[{"index":0,"delta":{},"finish_reason":"stop"}]"#, ""),
            usage: event("[]", r#","usage":{"prompt_tokens":40,"completion_tokens":200,"total_tokens":240}"#),
            done: framed("data: [DONE]\n\n"),
            chunks,
            pause,
        }
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut out = stream.try_clone()?;
        let mut reader = Reader::new(stream);
        while let Some(request) = reader.next(|| {})? {
            if find(&request.body, br#""stream":true"#, 0).is_some() {
                self.stream(
                    &mut out,
                    find(&request.body, br#""include_usage":true"#, 0).is_some(),
                )?;
            } else {
                out.write_all(&self.whole)?;
            }
        }
        Ok(())
    }

    fn stream(&self, out: &mut TcpStream, usage: bool) -> io::Result<()> {
        out.write_all(&self.stream_head)?;
        for _ in 0..self.chunks {
            thread::sleep(self.pause);
            out.write_all(&self.chunk)?;
        }
        out.write_all(&self.finish)?;
        if usage {
            out.write_all(&self.usage)?;
        }
        out.write_all(&self.done)?;
        out.write_all(b"0\r\n\r\n")
    }
}

fn framed(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}
