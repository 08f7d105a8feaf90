//! The interface to a module in a process of its own: methods, version, and the environment of the
//! process. The messages are in `proto/module.proto`.

use std::time::Duration;

use resources::Invalid;
use v1::message::Message;
use v1::{Limits, protobuf};

/// The version of this interface. Raised by changes that a module must know of.
pub const API_VERSION: u32 = 1;

/// The environment variable with the path of the Unix socket on which a module listens.
pub const SOCKET: &str = "MEROS_MODULE_SOCKET";

/// The first call: whether the process serves this module, with these parameters.
pub const INITIALIZE: &str = "/meros.module.v1.Module/Initialize";
/// Requests an estimate.
pub const ESTIMATE: &str = "/meros.module.v1.ResourceEstimator/Estimate";
/// Requests corrections.
pub const CORRECTIONS: &str = "/meros.module.v1.QoSController/Corrections";

/// Time for a module to listen on its socket and to answer the first call.
pub const START_PATIENCE: Duration = Duration::from_secs(10);
/// Time for a module to answer any other call.
pub const CALL_PATIENCE: Duration = Duration::from_secs(5);

/// Limits of a decoded message: a small one must not become a large one.
const LIMITS: Limits = Limits {
    depth: 16,
    memory: 64 << 20,
};

/// Decodes a message.
pub fn read<M: Message + Default>(bytes: &[u8]) -> Result<M, Invalid> {
    protobuf::read(bytes, LIMITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use v1::message::{Kind, Label};
    use v1::schema::agent::module::*;
    use v1::schema::*;

    macro_rules! messages {
        ($($name:ident)*) => {
            BTreeMap::from([$((stringify!($name), Box::new($name::default()) as Box<dyn Message>),)*])
        };
    }

    fn messages() -> BTreeMap<&'static str, Box<dyn Message>> {
        messages! {
            InitializeRequest InitializeResponse Parameter EstimateRequest EstimateResponse
            CorrectionsRequest CorrectionsResponse QoSCorrection QoSCorrectionTarget
            QoSCorrectionThrottle ResourceUsage ResourceUsageExecutor ResourceUsageExecutorTask
            ResourceUsageExecutorThrottle ResourceUsageExecutorObjective ExecutorInfo FrameworkID ExecutorID ContainerID TaskID
            Resource ValueScalar ValueRanges ValueRange ValueSet ResourceRevocableInfo
            ResourceRevocableInfoThrottleInfo ResourceReservationInfo ResourceStatistics
            PressureStatistics
        }
    }

    /// The faults of one line of a message in the file.
    fn fault(message: &dyn Message, line: &str) -> Option<String> {
        let (declared, number) = line.trim_end_matches(';').split_once(" = ")?;
        let number: u32 = number.parse().ok()?;
        let [label, kind, name] = declared.split_whitespace().collect::<Vec<_>>()[..] else {
            return Some(format!("{line} is not a field"));
        };
        let known = message.table().iter().find(|info| info.number == number);
        let (Some(known), Some(field)) = (known, message.field(number)) else {
            return Some(format!("there is no field {number}"));
        };
        let label = match label {
            "required" => Label::Required,
            "optional" => Label::Optional,
            _ => Label::Repeated,
        };
        let is_kind = match field.kind() {
            Kind::U32 => kind == "uint32",
            Kind::U64 => kind == "uint64",
            Kind::F64 => kind == "double",
            Kind::Text => kind == "string",
            Kind::Enum | Kind::Message => kind.starts_with(char::is_uppercase),
            _ => false,
        };
        let is_same = known.name == name && field.label() == label && is_kind;
        (!is_same).then(|| {
            format!(
                "{line} is {known:?}, {:?} {:?}",
                field.label(),
                field.kind()
            )
        })
    }

    #[test]
    fn proto_file_matches_the_messages() {
        let messages = messages();
        let mut seen = Vec::new();
        let mut faults = Vec::new();
        let mut message = None;
        for line in include_str!("../proto/module.proto").lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("message ") {
                let name = name.split_whitespace().next().unwrap_or_default();
                message = messages.get(name).map(|message| &**message);
                faults.extend(message.is_none().then(|| format!("{name} is not known")));
                seen.push(name);
            } else if line.starts_with("enum ") || line.starts_with("service ") {
                message = None;
            } else if let (Some(message), false) = (message, line.starts_with("//")) {
                faults.extend(fault(message, line));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
        assert_eq!(seen.len(), messages.len(), "{seen:?}");
        let file = include_str!("../proto/module.proto");
        for method in [INITIALIZE, ESTIMATE, CORRECTIONS] {
            let parts: Vec<&str> = method.trim_start_matches('/').split('/').collect();
            let (package, service) = parts[0].rsplit_once('.').unwrap();
            assert!(file.contains(&format!("package {package};")), "{method}");
            assert!(file.contains(&format!("service {service} {{")), "{method}");
            assert!(file.contains(&format!("rpc {}(", parts[1])), "{method}");
        }
    }
}
