//! Groups as their members describe them, and what is done about them: no socket, no clock.

use consensus::core::{Peer, PeerState, Role};
use consensus::member::operator::{ChangeMasters, LogStatus, MasterSeat, MasterStatus, Voice};

use super::super::members::Answers;
use super::change::{Change, Next, Wanted, Which};
use super::view::{Group, HEADINGS, cells};
use crate::table;

const GROUP: u64 = 0xabc;

fn log(role: Role, term: u64, last: u64) -> LogStatus {
    LogStatus {
        role,
        term,
        leader: Some(1),
        committed: last,
        applied: last,
        first: 1,
        last,
        snapshot: 1,
        transferring: None,
    }
}

fn peer(matched: u64, last: u64) -> Peer {
    Peer {
        matched,
        lag: last - matched,
        committed: matched,
        state: PeerState::Replicating,
        silent: Some(0),
    }
}

/// Master n is at `m<n>:5050`; the first one leads, at index 90 of term 3.
struct Story {
    leader: u64,
    voices: Vec<(u64, Voice)>,
    silent: Vec<u64>,
    matched: u64,
    transferring: Option<u64>,
}

fn at(id: u64) -> String {
    format!("m{id}:5050")
}

impl Story {
    fn three() -> Self {
        Self {
            leader: 1,
            voices: (1..=3).map(|id| (id, Voice::Voter)).collect(),
            silent: Vec::new(),
            matched: 90,
            transferring: None,
        }
    }

    fn with(mut self, id: u64, voice: Voice) -> Self {
        self.voices.push((id, voice));
        self
    }

    fn answers(&self) -> Answers {
        let seat = |me: u64| {
            move |(id, voice): &(u64, Voice)| MasterSeat {
                id: *id,
                address: Some(at(*id)),
                voice: *voice,
                peer: (me == self.leader && *id != me).then(|| peer(self.matched, 90)),
            }
        };
        let status = |id: u64| {
            let leads = id == self.leader;
            let role = if leads { Role::Leader } else { Role::Follower };
            MasterStatus {
                address: at(id),
                identity: Some((id, GROUP)),
                waiting: None,
                log: Some(LogStatus {
                    transferring: self.transferring.filter(|_| leads),
                    ..log(role, 3, 90)
                }),
                seats: self.voices.iter().map(seat(id)).collect(),
                disk_bytes: 2048,
            }
        };
        let answer = |(id, _): &(u64, Voice)| {
            let answer = match self.silent.contains(id) {
                true => Err("no answer within 3s".to_owned()),
                false => Ok(status(*id)),
            };
            (at(*id), answer)
        };
        self.voices.iter().map(answer).collect()
    }

    fn group(&self) -> Group {
        Group::of(&self.answers())
    }
}

#[test]
fn every_seat_has_a_row_and_who_does_not_answer_is_said_to() {
    let mut story = Story::three().with(4, Voice::Learner);
    story.silent = vec![3];
    story.matched = 80;
    let group = story.group();
    let rows: Vec<_> = group.masters.iter().map(cells).collect();
    let lines = table::lines(HEADINGS, &rows);
    let expected = [
        "ID  ADDRESS  ROLE         TERM  COMMIT  APPLIED  LAG  DISK      NOTE",
        "1   m1:5050  leader       3     90      90       0    2.00 KiB",
        "2   m2:5050  follower     3     90      90       10   2.00 KiB",
        "3   m3:5050  unreachable  -     -       -        10   -         voter; no answer within 3s",
        "4   m4:5050  learner      3     90      90       10   2.00 KiB",
    ];
    assert_eq!(lines, expected);
    assert_eq!(
        group.summary(),
        "group 0000000000000abc: master 1 at m1:5050 leads in term 3; 2 of 3 voters answer, 2 are needed"
    );
    let json = group.json();
    assert_eq!(json[0]["role"], "leader");
    assert_eq!(json[2]["commit_index"], serde_json::Value::Null);
    assert_eq!(json[3]["votes"], false);
}

#[test]
fn a_master_with_a_seat_whose_disk_hangs_keeps_its_role_and_says_so() {
    let mut answers = Story::three().answers();
    let Some(Ok(status)) = answers.get_mut(&at(2)) else {
        panic!("nobody answers");
    };
    let hangs = "this master's disk has not answered for 4.2s".to_owned();
    status.waiting = Some(hangs.clone());
    let group = Group::of(&answers);
    assert_eq!(group.masters[1].role, "follower");
    assert_eq!(group.masters[1].note, hangs);
}

#[test]
fn without_a_leader_the_seats_are_still_known_and_nobody_is_said_to_lag() {
    let mut story = Story::three();
    story.silent = vec![1, 2];
    let group = story.group();
    assert_eq!((group.leader.clone(), group.masters.len()), (None, 3));
    assert!(group.masters.iter().all(|row| row.lag.is_none()));
    assert!(
        group
            .summary()
            .contains("nobody leads; 1 of 3 voters answer, 2 are needed")
    );
    let change = Change::new(Wanted::Leading(None)).next(&group);
    assert!(matches!(change, Next::Wait(_)), "{change:?}");
}

#[test]
fn who_has_no_seat_is_listed_as_what_it_is() {
    let mut answers = Story::three().answers();
    let waits = |address: &str| MasterStatus {
        address: address.to_owned(),
        identity: None,
        waiting: Some("nobody has answered yet".to_owned()),
        log: None,
        seats: Vec::new(),
        disk_bytes: 0,
    };
    answers.insert("m8:5050".to_owned(), Ok(waits("m8:5050")));
    let mut foreign = waits("m9:5050");
    (foreign.identity, foreign.waiting) = (Some((1, 0xdef)), None);
    foreign.log = Some(log(Role::Follower, 99, 1));
    answers.insert("m9:5050".to_owned(), Ok(foreign));
    answers.insert("m7:5050".to_owned(), Err("down".to_owned()));
    let group = Group::of(&answers);
    let roles: Vec<_> = group.masters[3..].iter().map(|row| row.role).collect();
    assert_eq!(roles, ["unreachable", "waiting", "stranger"]);
    let refused = Change::new(Wanted::Added("m9:5050".to_owned())).next(&group);
    let Next::Refuse(reason) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        reason.contains("it belongs to group 0000000000000def"),
        "{reason}"
    );
}

#[test]
fn a_master_is_added_waited_for_and_promoted_whatever_was_done_before() {
    let mut adding = Change::new(Wanted::Added(at(4)));
    let address = at(4);
    let asked = adding.next(&Story::three().group());
    assert_eq!(asked, Next::Ask(ChangeMasters::Add { address }));
    let mut seated = Story::three().with(4, Voice::Learner);
    seated.silent = vec![4];
    let Next::Wait(reason) = adding.next(&seated.group()) else {
        panic!("it is not there");
    };
    let command = "meros master --work_dir DIR --hostname m4 --port 5050 --initial_masters m1:5050,m2:5050,m3:5050";
    assert!(reason.contains(command), "{reason}");
    (seated.silent, seated.matched) = (Vec::new(), 0);
    seated.matched = 0;
    let Next::Wait(reason) = adding.next(&seated.group()) else {
        panic!("it has nothing");
    };
    assert_eq!(reason, "master 4 at m4:5050 lacks 90 entries");
    seated.matched = 89;
    for change in [adding, Change::new(Wanted::Added(at(4)))].iter_mut() {
        let done = change.next(&seated.group());
        assert!(
            matches!(&done, Next::Done(line) if line.contains("has caught up")),
            "{done:?}"
        );
    }
    let mut promoting = Change::new(Wanted::Promoted(Which::Id(4)));
    let asked = promoting.next(&seated.group());
    assert_eq!(asked, Next::Ask(ChangeMasters::Promote { id: 4 }));
    let voting = Story::three().with(4, Voice::Voter).group();
    let done = Next::Done("master 4 at m4:5050 votes; 3 of 4 voters are needed".to_owned());
    assert_eq!(promoting.next(&voting), done);
    let again = Change::new(Wanted::Promoted(Which::At(at(4)))).next(&voting);
    assert!(
        matches!(&again, Next::Done(line) if line.contains("votes already")),
        "{again:?}"
    );
    let unknown = Change::new(Wanted::Promoted(Which::Id(9))).next(&voting);
    assert!(matches!(unknown, Next::Refuse(_)));
}

#[test]
fn a_master_is_removed_once_and_the_leader_not_at_all() {
    let mut removing = Change::new(Wanted::Removed(Which::At(at(3))));
    let asked = removing.next(&Story::three().group());
    assert_eq!(asked, Next::Ask(ChangeMasters::Remove { id: 3 }));
    let mut two = Story::three();
    two.voices.pop();
    let done = removing.next(&two.group());
    assert!(
        matches!(&done, Next::Done(line) if line.starts_with("master 3 at m3:5050 is removed; 2 of 2 voters are needed")),
        "{done:?}"
    );
    let again = Change::new(Wanted::Removed(Which::Id(3))).next(&two.group());
    assert_eq!(
        again,
        Next::Done("master 3 has no seat: nothing has changed".to_owned())
    );
    let leader = Change::new(Wanted::Removed(Which::Id(1))).next(&two.group());
    assert!(matches!(&leader, Next::Refuse(reason) if reason.contains("meros masters transfer")));
}

#[test]
fn a_master_takes_the_place_of_another_whatever_was_done_before() {
    let replace = |old: u64, new: u64| {
        let (old, new) = (Which::Id(old), Which::Id(new));
        Change::new(Wanted::Replaced { old, new })
    };
    let seated = Story::three().with(4, Voice::Learner);
    let mut replacing = replace(3, 4);
    let asked = replacing.next(&seated.group());
    assert_eq!(asked, Next::Ask(ChangeMasters::Replace { old: 3, new: 4 }));
    let mut changing = Story::three().with(4, Voice::Voter);
    changing.voices[2].1 = Voice::Outgoing;
    assert!(matches!(replacing.next(&changing.group()), Next::Wait(_)));
    changing.voices.remove(2);
    let line = "master 4 at m4:5050 votes in the place of master 3 at m3:5050; 2 of 3 voters are needed; whoever left must not come back with its old directory";
    assert_eq!(
        replacing.next(&changing.group()),
        Next::Done(line.to_owned())
    );

    let promoted = Story::three().with(4, Voice::Voter);
    let asked = replace(3, 4).next(&promoted.group());
    assert_eq!(asked, Next::Ask(ChangeMasters::Remove { id: 3 }));
    let again = replace(3, 4).next(&changing.group());
    let line = "master 4 at m4:5050 votes already, and master 3 has no seat";
    assert_eq!(again, Next::Done(line.to_owned()));
    for (old, new, group, words) in [
        (8, 4, seated.group(), "master 8 has no seat"),
        (4, 4, seated.group(), "cannot take its own place"),
        (3, 9, seated.group(), "master 9 has no seat"),
    ] {
        let refused = replace(old, new).next(&group);
        assert!(
            matches!(&refused, Next::Refuse(reason) if reason.contains(words)),
            "{refused:?}"
        );
    }
}

#[test]
fn the_leadership_goes_to_whom_was_named_or_to_who_lacks_least() {
    for (to, which) in [(2, None), (3, Some(Which::Id(3)))] {
        let mut story = Story::three();
        let mut handing = Change::new(Wanted::Leading(which));
        let asked = handing.next(&story.group());
        assert_eq!(asked, Next::Ask(ChangeMasters::Transfer { id: to }));
        story.transferring = Some(to);
        let waits = handing.next(&story.group());
        assert!(matches!(waits, Next::Wait(_)), "{waits:?}");
        (story.leader, story.transferring) = (to, None);
        let done = handing.next(&story.group());
        let line = format!("master {to} at m{to}:5050 leads in term 3, after master 1");
        assert_eq!(done, Next::Done(line));
    }
    let already = Change::new(Wanted::Leading(Some(Which::Id(1)))).next(&Story::three().group());
    assert!(matches!(&already, Next::Done(line) if line.contains("leads already")));
    let mut alone = Story::three();
    alone.silent = vec![2, 3];
    let nobody = Change::new(Wanted::Leading(None)).next(&alone.group());
    assert!(matches!(nobody, Next::Refuse(_)));
}

#[test]
fn a_master_is_named_by_number_or_address() {
    assert_eq!("7".parse(), Ok(Which::Id(7)));
    assert_eq!(
        "10.0.0.1".parse(),
        Ok(Which::At("10.0.0.1:5050".to_owned()))
    );
    assert_eq!("a:1".parse(), Ok(Which::At("a:1".to_owned())));
    for wrong in ["", "0", "a:b", "a:0"] {
        assert!(wrong.parse::<Which>().is_err(), "{wrong}");
    }
}
