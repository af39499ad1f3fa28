//! The little HTTP/1.1 that both ends of a measured call speak. It has to cost next to nothing: both ends
//! share the machine with the Worker they measure.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;

/// A message's first lines, and its body without the framing.
#[derive(Default)]
pub struct Message {
    /// Request line or status line and headers, up to the empty line.
    pub head: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
}

/// Reads messages off one connection.
pub struct Reader {
    stream: TcpStream,
    /// What has arrived and was not taken yet.
    held: Vec<u8>,
}

impl Reader {
    /// A reader of this connection.
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            held: Vec::with_capacity(64 << 10),
        }
    }

    /// The next message; `None`: the other side has closed instead. `on_body` is told of every arrival of
    /// bytes of the body.
    pub fn next(&mut self, mut on_body: impl FnMut()) -> io::Result<Option<Message>> {
        let Some(head) = self.head()? else {
            return Ok(None);
        };
        let mut message = Message {
            head,
            body: Vec::new(),
        };
        if has(&message.head, "transfer-encoding", "chunked") {
            self.chunks(&mut message.body, &mut on_body)?;
        } else {
            let length = header(&message.head, "content-length")
                .and_then(|v| v.parse().ok())
                .unwrap_or(0);
            self.take(length, &mut message.body)?;
            on_body();
        }
        Ok(Some(message))
    }

    fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut seen = 0;
        loop {
            if let Some(at) = find(&self.held, b"\r\n\r\n", seen) {
                let rest = self.held.split_off(at + 4);
                return Ok(Some(std::mem::replace(&mut self.held, rest)));
            }
            seen = self.held.len().saturating_sub(3);
            if self.fill()? == 0 {
                return if self.held.is_empty() {
                    Ok(None)
                } else {
                    Err(ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    fn chunks(&mut self, body: &mut Vec<u8>, on_body: &mut impl FnMut()) -> io::Result<()> {
        loop {
            let line = self.line()?;
            let digits = line.split(|b| *b == b';').next().unwrap_or_default();
            let digits = std::str::from_utf8(digits).map_err(|_| ErrorKind::InvalidData)?;
            let size =
                usize::from_str_radix(digits.trim(), 16).map_err(|_| ErrorKind::InvalidData)?;
            self.take(size, body)?;
            self.line()?;
            if size == 0 {
                return Ok(());
            }
            on_body();
        }
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = find(&self.held, b"\r\n", 0) {
                let line = self.held.get(..at).unwrap_or_default().to_vec();
                self.held.drain(..at + 2);
                return Ok(line);
            }
            self.must_fill()?;
        }
    }

    fn take(&mut self, length: usize, into: &mut Vec<u8>) -> io::Result<()> {
        while self.held.len() < length {
            self.must_fill()?;
        }
        into.extend(self.held.drain(..length));
        Ok(())
    }

    fn must_fill(&mut self) -> io::Result<()> {
        if self.fill()? == 0 {
            Err(ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut part = [0; 16 << 10];
        let read = self.stream.read(&mut part)?;
        self.held
            .extend_from_slice(part.get(..read).unwrap_or_default());
        Ok(read)
    }
}

/// The value of a header; `name` in lower case.
pub fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(head).ok()?;
    let lines = text.split("\r\n").skip(1);
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    fields
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

fn has(head: &[u8], name: &str, value: &str) -> bool {
    header(head, name).is_some_and(|v| v.eq_ignore_ascii_case(value))
}

/// Where `needle`, which is not empty, first is in `bytes`, from `from` on.
pub fn find(bytes: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(needle.len())
        .position(|w| w == needle)
        .map(|at| at + from)
}

/// How often `needle` is in `bytes`.
pub fn count(bytes: &[u8], needle: &[u8]) -> u64 {
    bytes.windows(needle.len()).filter(|w| *w == needle).count() as u64
}

/// The value after `--name` among the program's arguments.
pub fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|a| a != &format!("--{name}"));
    arguments.next();
    arguments.next()
}

/// A number after `--name`, or else `default`.
pub fn number<T: std::str::FromStr>(name: &str, default: T) -> T {
    argument(name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}
