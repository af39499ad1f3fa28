//! Callers who call again as soon as they have their answer, each on a connection of their own that is kept.
//!
//!   callers --port 8787 --requests FILE --order FILE --connections 16 --seconds 2
//!           --status 200 --body-has TEXT          every answer has this status and this in its body
//!           --calls N                             ends after N calls in place of a time
//!
//! `requests` holds HTTP messages, each behind its length (u32, little endian); `order` holds the index of
//! the message of every call, also as u32, and begins anew at its end. Prints one line of JSON.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use sluice_bench::{Reader, argument, count, find, number};

struct Plan {
    port: u16,
    requests: Vec<Vec<u8>>,
    order: Vec<u32>,
    status: u16,
    body_has: Vec<u8>,
    end: Instant,
    most: u64,
    begun: AtomicU64,
}

/// What one caller has seen.
#[derive(Default)]
struct Seen {
    statuses: BTreeMap<u16, u64>,
    latency: Vec<u32>,
    first_byte: Vec<u32>,
    events: u64,
    arrivals: u64,
    wrong: u64,
    broken: u64,
    /// The first answer that was not as it should be.
    example: String,
}

fn main() -> io::Result<()> {
    let seconds: f64 = number("seconds", 2.0);
    let begin = Instant::now();
    let plan = Plan {
        port: number("port", 0),
        requests: messages(&fs::read(argument("requests").unwrap_or_default())?),
        order: numbers(&fs::read(argument("order").unwrap_or_default())?),
        status: number("status", 200),
        body_has: argument("body-has").unwrap_or_default().into_bytes(),
        end: begin + Duration::from_secs_f64(seconds),
        most: number("calls", u64::MAX),
        begun: AtomicU64::new(0),
    };
    let connections = number("connections", 16);
    let mut all = Seen::default();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..connections)
            .map(|_| scope.spawn(|| plan.call_again_and_again()))
            .collect();
        for caller in callers {
            all.add(caller.join().unwrap_or_default());
        }
    });
    all.print(begin.elapsed());
    Ok(())
}

impl Plan {
    fn call_again_and_again(&self) -> Seen {
        let mut seen = Seen::default();
        while self.goes_on() {
            // A connection that breaks is counted, and made anew.
            if let Err(error) = self.on_one_connection(&mut seen) {
                seen.broken += 1;
                seen.example = format!("{error}");
                if seen.broken > 100 {
                    break;
                }
            }
        }
        seen
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.end && self.begun.load(Ordering::Relaxed) < self.most
    }

    fn on_one_connection(&self, seen: &mut Seen) -> io::Result<()> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut out = stream.try_clone()?;
        let mut reader = Reader::new(stream);
        while self.goes_on() {
            let turn = self.begun.fetch_add(1, Ordering::Relaxed);
            if turn >= self.most {
                break;
            }
            let index = self.order[turn as usize % self.order.len()];
            let began = Instant::now();
            out.write_all(&self.requests[index as usize])?;
            let mut first = None;
            let answer = reader.next(|| {
                first.get_or_insert_with(|| began.elapsed());
                seen.arrivals += 1;
            });
            let answer = answer.and_then(|answer| answer.ok_or(ErrorKind::UnexpectedEof.into()));
            let answer = answer.map_err(|error| after(&error, began, turn))?;
            seen.latency.push(micros(began.elapsed()));
            seen.first_byte.push(micros(first.unwrap_or_default()));
            self.check(&answer, seen);
        }
        Ok(())
    }

    fn check(&self, answer: &sluice_bench::Message, seen: &mut Seen) {
        let status = answer
            .head
            .get(9..12)
            .and_then(|s| std::str::from_utf8(s).ok())
            .and_then(|s| s.parse().ok())
            .unwrap_or(0);
        *seen.statuses.entry(status).or_default() += 1;
        seen.events += count(&answer.body, b"data: ");
        if status != self.status || find(&answer.body, &self.body_has, 0).is_none() {
            seen.wrong += 1;
            seen.example = format!(
                "{} {}",
                String::from_utf8_lossy(&answer.head),
                String::from_utf8_lossy(&answer.body)
            );
        }
    }
}

/// A connection that broke, with when it did.
fn after(error: &io::Error, began: Instant, turn: u64) -> io::Error {
    let waited = began.elapsed().as_millis();
    io::Error::new(
        error.kind(),
        format!("{error}, {waited} ms after request {turn} was sent"),
    )
}

impl Seen {
    fn add(&mut self, other: Self) {
        for (status, times) in other.statuses {
            *self.statuses.entry(status).or_default() += times;
        }
        self.latency.extend(other.latency);
        self.first_byte.extend(other.first_byte);
        self.events += other.events;
        self.arrivals += other.arrivals;
        self.wrong += other.wrong;
        self.broken += other.broken;
        if self.example.is_empty() {
            self.example = other.example;
        }
    }

    fn print(mut self, took: Duration) {
        self.latency.sort_unstable();
        self.first_byte.sort_unstable();
        let statuses: Vec<_> = self
            .statuses
            .iter()
            .map(|(status, times)| format!("\"{status}\":{times}"))
            .collect();
        let example: String = self
            .example
            .chars()
            .take(600)
            .map(|c| {
                if c.is_ascii_graphic() && c != '"' && c != '\\' {
                    c
                } else {
                    ' '
                }
            })
            .collect();
        println!(
            r#"{{"calls":{},"seconds":{:.6},"statuses":{{{}}},"p50_us":{},"p99_us":{},"first_byte_p50_us":{},"first_byte_p99_us":{},"events":{},"arrivals":{},"wrong":{},"broken":{},"cpu_us":{},"example":"{}"}}"#,
            self.latency.len(),
            took.as_secs_f64(),
            statuses.join(","),
            share(&self.latency, 0.50),
            share(&self.latency, 0.99),
            share(&self.first_byte, 0.50),
            share(&self.first_byte, 0.99),
            self.events,
            self.arrivals,
            self.wrong,
            self.broken,
            cpu_micros(),
            example,
        );
    }
}

fn share(sorted: &[u32], share: f64) -> u32 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0)
}

/// What this program itself has used of the processor. The kernel counts in hundredths of a second.
fn cpu_micros() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks = fields
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok());
    ticks.sum::<u64>() * 10_000
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (message, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        all.push(message.to_vec());
        bytes = rest;
    }
    all
}

fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|number| u32::from_le_bytes(*number))
        .collect()
}
