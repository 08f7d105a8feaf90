//! Example of an executor on the v1 HTTP API, like those written for Mesos, without any code of
//! Meros.
//!
//! An agent starts it. Each task starts and finishes at once, and each message is returned. It
//! keeps unacknowledged updates and repeats them when it subscribes again, as the API requires.
//!
//! The protocol is written out here. Any Mesos library does the same.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

struct HttpExecutor {
    /// The agent's HTTP address.
    agent: String,
    token: String,
    framework_id: String,
    executor_id: String,
    /// Unacknowledged updates by number.
    unacknowledged: BTreeMap<u64, Value>,
    number: u64,
}

impl HttpExecutor {
    /// Sends a call on a new connection, and returns the body of the answer.
    fn call(&self, kind: &str, mut call: Value) -> Result<BufReader<TcpStream>> {
        call["type"] = kind.into();
        call["framework_id"] = json!({"value": self.framework_id});
        call["executor_id"] = json!({"value": self.executor_id});
        let body = call.to_string();
        let mut connection = TcpStream::connect(&self.agent)?;
        write!(
            connection,
            "POST /api/v1/executor HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.agent,
            self.token,
            body.len()
        )?;
        let mut answer = BufReader::new(connection);
        let mut status = String::new();
        answer.read_line(&mut status)?;
        if !status.contains(" 200 ") && !status.contains(" 202 ") {
            return Err(Error::other(format!("{kind}: {}", status.trim())));
        }
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            answer.read_line(&mut line)?;
        }
        Ok(answer)
    }

    fn report(&mut self, task_id: &Value, state: &str) -> Result<()> {
        self.number += 1;
        let uuid = bytes(&self.number);
        let status = json!({
            "task_id": task_id,
            "state": state,
            "source": "SOURCE_EXECUTOR",
            "uuid": uuid,
        });
        let update = json!({"status": status});
        self.unacknowledged.insert(self.number, update.clone());
        self.call("UPDATE", json!({"update": update})).map(drop)
    }

    fn handle(&mut self, event: &Value) -> Result<bool> {
        println!("{event}"); // Into `stdout` of the sandbox.
        match event["type"].as_str() {
            Some("LAUNCH") => {
                let task_id = &event["launch"]["task"]["task_id"];
                self.report(task_id, "TASK_RUNNING")?;
                self.report(task_id, "TASK_FINISHED")?;
            }
            Some("MESSAGE") => {
                let message = json!({"message": {"data": event["message"]["data"]}});
                self.call("MESSAGE", message)?;
            }
            Some("ACKNOWLEDGED") => {
                let uuid = &event["acknowledged"]["uuid"];
                self.unacknowledged
                    .retain(|number, _| bytes(number) != *uuid);
            }
            Some("SHUTDOWN" | "ERROR") => return Ok(false),
            _ => {}
        }
        Ok(true)
    }
}

/// A number as 16 bytes in base64: decimal digits are valid base64.
fn bytes(number: &u64) -> Value {
    format!("{number:0>20}AA==").into()
}

/// The next record of a chunked body: its length, a line feed, and this number of bytes.
fn record(chunks: &mut impl Read) -> Result<Value> {
    let mut digits = String::new();
    loop {
        let mut byte = [0];
        chunks.read_exact(&mut byte)?;
        match byte[0] {
            b'\n' if digits.is_empty() => {}
            b'\n' => break,
            digit => digits.push(digit.into()),
        }
    }
    let length = digits.parse().map_err(Error::other)?;
    let mut record = vec![0; length];
    chunks.read_exact(&mut record)?;
    serde_json::from_slice(&record).map_err(Error::other)
}

/// Reader of a chunked body.
struct Chunks {
    answer: BufReader<TcpStream>,
    left: usize,
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        while self.left == 0 {
            let mut line = String::new();
            if self.answer.read_line(&mut line)? == 0 {
                return Ok(0);
            }
            if let Ok(length) = usize::from_str_radix(line.trim(), 16) {
                if length == 0 {
                    return Ok(0);
                }
                self.left = length;
            }
        }
        let most = into.len().min(self.left);
        let read = self.answer.read(&mut into[..most])?;
        self.left -= read;
        Ok(read)
    }
}

fn main() -> Result<()> {
    let variable = |name: &str| std::env::var(name).map_err(|_| Error::other(name.to_owned()));
    let mut executor = HttpExecutor {
        agent: variable("MESOS_AGENT_ENDPOINT")?,
        token: variable("MESOS_EXECUTOR_AUTHENTICATION_TOKEN")?,
        framework_id: variable("MESOS_FRAMEWORK_ID")?,
        executor_id: variable("MESOS_EXECUTOR_ID")?,
        unacknowledged: BTreeMap::new(),
        number: 0,
    };
    loop {
        let updates: Vec<&Value> = executor.unacknowledged.values().collect();
        let subscribe = json!({"subscribe": {"unacknowledged_updates": updates}});
        let answer = executor.call("SUBSCRIBE", subscribe)?;
        let mut chunks = Chunks { answer, left: 0 };
        while let Ok(event) = record(&mut chunks) {
            if !executor.handle(&event)? {
                return Ok(());
            }
        }
        // The stream has ended. Without checkpointing the executor ends with its agent.
        if variable("MESOS_CHECKPOINT")? == "0" {
            return Ok(());
        }
    }
}
