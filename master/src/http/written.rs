//! The largest answers, written of books without anybody asking: for benchmarks. Nothing of a real master uses it.

use v1::Form;
use v1::pieces::Keeper;
use v1::schema::master::CallType;

use super::Chosen;
use super::operator::answer;
use super::page::page;
use super::shown::Shown;
use super::state::Whole;
use crate::books::Books;

/// An answer that shows all that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// `/state`.
    StatePage,
    /// `GET_STATE` in JSON.
    StateAsJson,
    /// `GET_STATE` in protobuf.
    StateAsProtobuf,
}

impl Written {
    /// Its text, without what the keeper adds to it.
    pub fn of(self, books: &Books, keeper: Option<&mut Keeper>) -> Vec<u8> {
        let (shown, chosen) = (Shown::of(books), &Chosen::default());
        let form = match self {
            Self::StatePage => return page(&Whole { shown, chosen }, keeper),
            Self::StateAsJson => Form::Json,
            Self::StateAsProtobuf => Form::Protobuf,
        };
        answer(form, CallType::GetState, shown, chosen, keeper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Arrival;
    use crate::measure::{Crowd, decide, end_some};

    #[test]
    fn each_answer_has_every_task() {
        let crowd = Crowd::new(20, 5).unwrap();
        let mut books = Crowd::empty_books().unwrap();
        decide(&mut books, crowd.reports.into_iter().map(Arrival::from));
        assert_eq!(end_some(&mut books, 50), 50);
        let text = |written: Written| String::from_utf8(written.of(&books, None)).unwrap();
        let page = text(Written::StatePage);
        let json = text(Written::StateAsJson);
        assert_eq!(page.matches("\"slave_id\"").count(), 100);
        assert_eq!(json.matches("\"status_update_state\"").count(), 100);
        assert_eq!(page.matches("\"TASK_FINISHED\"").count(), 100);
        assert!(Written::StateAsProtobuf.of(&books, None).len() < json.len());
    }
}
