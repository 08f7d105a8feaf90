//! Streams of a container's input and output: records of [`ProcessIO`], and for input of calls
//! with one each.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use resources::Invalid;

use super::super::absent;
use crate::form::Form;
use crate::limits::Limits;
use crate::message::Message;
use crate::recordio::{self, Decoder};
use crate::schema::agent::{
    Call, CallAttachContainerInput, CallAttachContainerInputType, CallType, ProcessIO,
    ProcessIOControl, ProcessIOControlHeartbeat, ProcessIOControlType, ProcessIOData,
    ProcessIODataType, ProcessIOType,
};
use crate::schema::{TTYInfo, TTYInfoWindowSize};

/// Input of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessInput {
    /// Bytes. None of them: no more follow.
    Data(Bytes),
    /// The size of its terminal, in characters.
    Window {
        /// Its lines.
        rows: u32,
        /// The characters of a line.
        columns: u32,
    },
    /// Keeps the connection alive.
    Heartbeat,
}

/// The input in a call of an input stream after the first. The messages are those of Mesos, without
/// a prefix.
pub fn process_input(call: &Call) -> Result<ProcessInput, Invalid> {
    let name = "attach_container_input";
    let attach = need(name, call.attach_container_input.as_ref())?;
    match attach.r#type.unwrap_or_default() {
        CallAttachContainerInputType::ProcessIo => {}
        other => {
            return Err(Invalid::message(format!(
                "Expecting '{name}.type' to be 'PROCESS_IO' instead of: '{}'",
                other
            )));
        }
    }
    let io = need(
        "attach_container_input.process_io",
        attach.process_io.as_deref(),
    )?;
    match *need("process_io.type", io.r#type.as_ref())? {
        ProcessIOType::Unknown => Err(Invalid::message("'process_io.type' is unknown")),
        ProcessIOType::Control => control(io.control.as_ref()),
        ProcessIOType::Data => {
            let data = need("process_io.data", io.data.as_ref())?;
            let kind = *need("process_io.data.type", data.r#type.as_ref())?;
            if kind != ProcessIODataType::Stdin {
                let problem = "Expecting 'process_io.data.type' to be 'STDIN'";
                return Err(Invalid::message(problem));
            }
            let data = need("process_io.data.data", data.data.as_ref())?;
            Ok(ProcessInput::Data(data.clone()))
        }
    }
}

fn control(control: Option<&ProcessIOControl>) -> Result<ProcessInput, Invalid> {
    let control = need("process_io.control", control)?;
    match *need("process_io.control.type", control.r#type.as_ref())? {
        ProcessIOControlType::Unknown => {
            Err(Invalid::message("'process_io.control.type' is unknown"))
        }
        ProcessIOControlType::TtyInfo => {
            let tty = need("process_io.control.tty_info", control.tty_info.as_ref())?;
            let size = need("tty_info.window_size", tty.window_size.as_ref())?;
            let (rows, columns) = (size.rows, size.columns);
            Ok(ProcessInput::Window { rows, columns })
        }
        ProcessIOControlType::Heartbeat => {
            need("process_io.control.heartbeat", control.heartbeat.as_ref())?;
            Ok(ProcessInput::Heartbeat)
        }
    }
}

fn need<'a, A>(name: &str, value: Option<&'a A>) -> Result<&'a A, Invalid> {
    value.ok_or_else(|| absent(name))
}

impl ProcessIO {
    /// Bytes of a stream.
    pub fn data(stream: ProcessIODataType, data: impl Into<Bytes>) -> Self {
        Self {
            r#type: Some(ProcessIOType::Data),
            data: Some(ProcessIOData {
                r#type: Some(stream),
                data: Some(data.into()),
            }),
            ..Self::default()
        }
    }

    /// A heartbeat, the next of which follows after `interval`.
    pub fn heartbeat(interval: Duration) -> Self {
        Self::control(ProcessIOControl {
            r#type: Some(ProcessIOControlType::Heartbeat),
            heartbeat: Some(ProcessIOControlHeartbeat {
                interval: Some(interval.into()),
            }),
            ..ProcessIOControl::default()
        })
    }

    /// The size of a terminal, in characters.
    pub fn window(rows: u32, columns: u32) -> Self {
        Self::control(ProcessIOControl {
            r#type: Some(ProcessIOControlType::TtyInfo),
            tty_info: Some(TTYInfo {
                window_size: Some(TTYInfoWindowSize { rows, columns }),
            }),
            ..ProcessIOControl::default()
        })
    }

    fn control(control: ProcessIOControl) -> Self {
        Self {
            r#type: Some(ProcessIOType::Control),
            control: Some(control),
            ..Self::default()
        }
    }

    /// The bytes and their stream, if it has any.
    pub fn bytes(&self) -> Option<(ProcessIODataType, &Bytes)> {
        let data = self.data.as_ref()?;
        Some((data.r#type?, data.data.as_ref()?))
    }

    /// The call that sends this input to an attached container.
    pub fn into_call(self) -> Call {
        Call {
            r#type: Some(CallType::AttachContainerInput),
            attach_container_input: Some(CallAttachContainerInput {
                r#type: Some(CallAttachContainerInputType::ProcessIo),
                process_io: Some(Box::new(self)),
                ..CallAttachContainerInput::default()
            }),
            ..Call::default()
        }
    }
}

/// A message of a stream, as a record.
pub fn record(form: Form, message: &dyn Message) -> Vec<u8> {
    recordio::encode(&form.write(message))
}

/// Decodes the messages of a stream from its chunks.
#[derive(Debug)]
pub struct Records<M> {
    form: Form,
    limits: Limits,
    decoder: Decoder,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + Default> Records<M> {
    /// For messages of at most `longest` bytes.
    pub fn new(form: Form, limits: Limits, longest: usize) -> Self {
        Self {
            form,
            limits,
            decoder: Decoder::new(longest),
            message: PhantomData,
        }
    }

    /// The next message. Consumes its bytes from `piece`: call it until it returns `None`, then
    /// continue with the next chunk.
    pub fn next(&mut self, piece: &mut &[u8]) -> Result<Option<M>, Invalid> {
        let record = self.decoder.next(piece)?;
        let read = record.map(|record| self.form.read(&record, self.limits));
        read.transpose()
    }

    /// Checks that the stream may end here.
    pub fn end(&self) -> Result<(), Invalid> {
        self.decoder.end()
    }
}
