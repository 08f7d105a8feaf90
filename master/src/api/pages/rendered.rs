//! The largest answers, rendered without a request: for benchmarks only.

use v1::Form;
use v1::answer_cache::AnswerWriter;
use v1::schema::master::CallType;

use super::page::page;
use super::visible::VisibleState;
use crate::api::PublishedFlags;
use crate::api::operator::answer;
use crate::api::v0::state::Whole;
use crate::state::MasterState;

/// An answer with the whole state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderedAnswer {
    /// `/state`.
    StatePage,
    /// `GET_STATE` in JSON.
    StateAsJson,
    /// `GET_STATE` in protobuf.
    StateAsProtobuf,
}

impl RenderedAnswer {
    /// Its text; parts may come from the cache of `writer`.
    pub fn of(self, state: &MasterState, writer: Option<&mut AnswerWriter>) -> Vec<u8> {
        let (visible, published) = (VisibleState::of(state), &PublishedFlags::default());
        let form = match self {
            Self::StatePage => return page(&Whole { visible, published }, writer),
            Self::StateAsJson => Form::Json,
            Self::StateAsProtobuf => Form::Protobuf,
        };
        answer(form, CallType::GetState, visible, published, writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::comparison::Arrival;
    use crate::state::measure::{decide, empty_state, end_some};

    #[test]
    fn each_answer_has_every_task() {
        let synthetic = testkit::agents::SyntheticAgents::new(20, 5).unwrap();
        let mut state = empty_state();
        decide(&mut state, synthetic.reports.into_iter().map(Arrival::from));
        assert_eq!(end_some(&mut state, 50), 50);
        let text = |written: RenderedAnswer| String::from_utf8(written.of(&state, None)).unwrap();
        let page = text(RenderedAnswer::StatePage);
        let json = text(RenderedAnswer::StateAsJson);
        assert_eq!(page.matches("\"slave_id\"").count(), 100);
        assert_eq!(json.matches("\"status_update_state\"").count(), 100);
        assert_eq!(page.matches("\"TASK_FINISHED\"").count(), 100);
        assert!(RenderedAnswer::StateAsProtobuf.of(&state, None).len() < json.len());
    }
}
