//! A worked executor that speaks the v1 HTTP API as executors written for Mesos do, with nothing of Meros but its endpoint.
//!
//! It is started by an agent, never by hand. Each task has begun and finished as soon as it is launched; a message is sent back. It does as
//! SPEC 2.5 asks of an executor: what is not acknowledged it keeps, and says again when it subscribes again.
//!
//! Shown here is the protocol in the open. A library for Mesos in any language does the same.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

struct Speaker {
    /// Where the agent serves HTTP.
    agent: String,
    token: String,
    framework_id: String,
    executor_id: String,
    /// Updates by their number, until they are acknowledged.
    unacknowledged: BTreeMap<u64, Value>,
    number: u64,
}

impl Speaker {
    /// Says a call on a connection of its own; gives what is answered after the status and the headers.
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

    fn hear(&mut self, event: &Value) -> Result<bool> {
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

/// Sixteen bytes in base64 that stand for a number: its digits are such bytes already.
fn bytes(number: &u64) -> Value {
    format!("{number:0>20}AA==").into()
}

/// The next record of a chunked body: its length, a line feed, and so many bytes.
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

/// The bytes of a chunked body.
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
    let mut speaker = Speaker {
        agent: variable("MESOS_AGENT_ENDPOINT")?,
        token: variable("MESOS_EXECUTOR_AUTHENTICATION_TOKEN")?,
        framework_id: variable("MESOS_FRAMEWORK_ID")?,
        executor_id: variable("MESOS_EXECUTOR_ID")?,
        unacknowledged: BTreeMap::new(),
        number: 0,
    };
    loop {
        let updates: Vec<&Value> = speaker.unacknowledged.values().collect();
        let subscribe = json!({"subscribe": {"unacknowledged_updates": updates}});
        let answer = speaker.call("SUBSCRIBE", subscribe)?;
        let mut chunks = Chunks { answer, left: 0 };
        while let Ok(event) = record(&mut chunks) {
            if !speaker.hear(&event)? {
                return Ok(());
            }
        }
        // The stream has broken. Who does not outlive its agent ends with it.
        if variable("MESOS_CHECKPOINT")? == "0" {
            return Ok(());
        }
    }
}
