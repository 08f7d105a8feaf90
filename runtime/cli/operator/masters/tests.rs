//! Groups as reported by their members, and the steps of changes: no socket, no clock.

use consensus::core::{Peer, PeerState, Role};
use consensus::member::operator::{ChangeMasters, LogStatus, MasterEntry, MasterStatus, VoteRole};
use testkit::{assert_contains, assert_matches};

use super::super::members::Answers;
use super::change::{Change, Goal, MasterRef, Next};
use super::two_groups;
use super::view::{Group, HEADINGS, cells};
use crate::output::table;

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
struct Fixture {
    leader: u64,
    votes: Vec<(u64, VoteRole)>,
    silent: Vec<u64>,
    matched: u64,
    transferring: Option<u64>,
}

fn at(id: u64) -> String {
    format!("m{id}:5050")
}

impl Fixture {
    fn three() -> Self {
        Self {
            leader: 1,
            votes: (1..=3).map(|id| (id, VoteRole::Voter)).collect(),
            silent: Vec::new(),
            matched: 90,
            transferring: None,
        }
    }

    fn with(mut self, id: u64, vote: VoteRole) -> Self {
        self.votes.push((id, vote));
        self
    }

    fn answers(&self) -> Answers {
        let member = |me: u64| {
            move |(id, vote): &(u64, VoteRole)| MasterEntry {
                id: *id,
                address: Some(at(*id)),
                vote: *vote,
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
                members: self.votes.iter().map(member(id)).collect(),
                disk_bytes: 2048,
            }
        };
        let answer = |(id, _): &(u64, VoteRole)| {
            let answer = match self.silent.contains(id) {
                true => Err("no answer within 3s".to_owned()),
                false => Ok(status(*id)),
            };
            (at(*id), answer)
        };
        self.votes.iter().map(answer).collect()
    }

    fn group(&self) -> Group {
        Group::of(&self.answers())
    }
}

#[test]
fn every_member_has_a_row() {
    let mut fixture = Fixture::three().with(4, VoteRole::Learner);
    fixture.silent = vec![3];
    fixture.matched = 80;
    let group = fixture.group();
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
fn hung_disk_is_shown_in_the_note() {
    let mut answers = Fixture::three().answers();
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
fn members_are_known_without_a_leader() {
    let mut fixture = Fixture::three();
    fixture.silent = vec![1, 2];
    let group = fixture.group();
    assert_eq!((group.leader.clone(), group.masters.len()), (None, 3));
    assert!(group.masters.iter().all(|row| row.lag.is_none()));
    assert_contains!(
        group.summary(),
        "there is no leader; 1 of 3 voters answer, 2 are needed"
    );
    let change = Change::new(Goal::Leading(None)).next(&group);
    assert!(matches!(change, Next::Wait(_)), "{change:?}");
}

#[test]
fn non_members_are_listed() {
    let mut answers = Fixture::three().answers();
    let waits = |address: &str| MasterStatus {
        address: address.to_owned(),
        identity: None,
        waiting: Some("no master has answered yet".to_owned()),
        log: None,
        members: Vec::new(),
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
    let refused = adding(9, false).next(&group);
    let Next::Refuse(reason) = refused else {
        panic!("{refused:?}");
    };
    assert_contains!(reason, "it belongs to group 0000000000000def");
}

/// A master that was started without `--initial_masters` leads a group of its own.
#[test]
fn a_leader_of_another_group_is_named() {
    let mut answers = Fixture::three().answers();
    let mut own = Fixture::three();
    (own.leader, own.votes) = (4, vec![(4, VoteRole::Voter)]);
    for (address, answer) in own.answers() {
        let mut status = answer.unwrap();
        status.identity = Some((1, 0xdef));
        status.log = Some(log(Role::Leader, 99, 1));
        answers.insert(address, Ok(status));
    }
    let group = Group::of(&answers);
    assert_eq!(group.id, Some(0xdef), "the highest term wins");
    assert_eq!(group.others.len(), 3);
    let error = two_groups(&group).to_string();
    assert_contains!(error, "m1:5050 of group 0000000000000abc");
}

fn adding(id: u64, learner: bool) -> Change {
    let address = at(id);
    Change::new(Goal::Added { address, learner })
}

#[test]
fn adding_and_promoting_can_be_resumed() {
    let mut voter = adding(4, false);
    let mut adding_learner = adding(4, true);
    let address = at(4);
    let asked = voter.next(&Fixture::three().group());
    assert_eq!(asked, Next::Send(ChangeMasters::Add { address }));
    let address = at(4);
    let asked = adding_learner.next(&Fixture::three().group());
    assert_eq!(asked, Next::Send(ChangeMasters::Add { address }));
    let mut joined = Fixture::three().with(4, VoteRole::Learner);
    joined.silent = vec![4];
    let Next::Wait(reason) = voter.next(&joined.group()) else {
        panic!("it is not there");
    };
    let command = "meros master --work_dir DIR --hostname m4 --port 5050 --initial_masters m1:5050,m2:5050,m3:5050";
    assert!(reason.contains(command), "{reason}");
    (joined.silent, joined.matched) = (Vec::new(), 0);
    joined.matched = 0;
    let Next::Wait(reason) = voter.next(&joined.group()) else {
        panic!("it has nothing");
    };
    assert_eq!(reason, "master 4 at m4:5050 lacks 90 entries");
    joined.matched = 89;
    for change in [adding_learner, adding(4, true)].iter_mut() {
        let done = change.next(&joined.group());
        assert_matches!(&done, Next::Done(line) if line.contains("has caught up"));
    }
    let voting = Fixture::three().with(4, VoteRole::Voter).group();
    for mut change in [voter, Change::new(Goal::Promoted(MasterRef::Id(4)))] {
        let asked = change.next(&joined.group());
        assert_eq!(asked, Next::Send(ChangeMasters::Promote { id: 4 }));
        let done = Next::Done("master 4 at m4:5050 votes; 3 of 4 voters are needed".to_owned());
        assert_eq!(change.next(&voting), done);
    }
    let again = Change::new(Goal::Promoted(MasterRef::At(at(4)))).next(&voting);
    assert_matches!(&again, Next::Done(line) if line.contains("votes already"));
    let unknown = Change::new(Goal::Promoted(MasterRef::Id(9))).next(&voting);
    assert!(matches!(unknown, Next::Refuse(_)));
}

#[test]
fn leader_is_never_removed() {
    let mut removing = Change::new(Goal::Removed(MasterRef::At(at(3))));
    let asked = removing.next(&Fixture::three().group());
    assert_eq!(asked, Next::Send(ChangeMasters::Remove { id: 3 }));
    let mut two = Fixture::three();
    two.votes.pop();
    let done = removing.next(&two.group());
    assert!(
        matches!(&done, Next::Done(line) if line.starts_with("master 3 at m3:5050 is removed; 2 of 2 voters are needed")),
        "{done:?}"
    );
    let again = Change::new(Goal::Removed(MasterRef::Id(3))).next(&two.group());
    assert_eq!(
        again,
        Next::Done("master 3 is not a member: nothing has changed".to_owned())
    );
    let leader = Change::new(Goal::Removed(MasterRef::Id(1))).next(&two.group());
    assert!(matches!(&leader, Next::Refuse(reason) if reason.contains("meros masters transfer")));
}

#[test]
fn replacing_can_be_resumed() {
    let replace = |old: u64, new: u64| {
        let (old, new) = (MasterRef::Id(old), MasterRef::Id(new));
        Change::new(Goal::Replaced { old, new })
    };
    let joined = Fixture::three().with(4, VoteRole::Learner);
    let mut replacing = replace(3, 4);
    let asked = replacing.next(&joined.group());
    assert_eq!(asked, Next::Send(ChangeMasters::Replace { old: 3, new: 4 }));
    let mut changing = Fixture::three().with(4, VoteRole::Voter);
    changing.votes[2].1 = VoteRole::Outgoing;
    assert!(matches!(replacing.next(&changing.group()), Next::Wait(_)));
    changing.votes.remove(2);
    let line = "master 4 at m4:5050 votes in the place of master 3 at m3:5050; 2 of 3 voters are needed; the removed one must not return with its old directory";
    assert_eq!(
        replacing.next(&changing.group()),
        Next::Done(line.to_owned())
    );

    let promoted = Fixture::three().with(4, VoteRole::Voter);
    let asked = replace(3, 4).next(&promoted.group());
    assert_eq!(asked, Next::Send(ChangeMasters::Remove { id: 3 }));
    let again = replace(3, 4).next(&changing.group());
    let line = "master 4 at m4:5050 votes already, and master 3 is not a member";
    assert_eq!(again, Next::Done(line.to_owned()));
    for (old, new, group, words) in [
        (8, 4, joined.group(), "master 8 is not a member"),
        (4, 4, joined.group(), "cannot take its own place"),
        (3, 9, joined.group(), "master 9 is not a member"),
    ] {
        let refused = replace(old, new).next(&group);
        assert_matches!(&refused, Next::Refuse(reason) if reason.contains(words));
    }
}

#[test]
fn transfer_goes_to_the_named_or_newest_follower() {
    for (to, which) in [(2, None), (3, Some(MasterRef::Id(3)))] {
        let mut fixture = Fixture::three();
        let mut handing = Change::new(Goal::Leading(which));
        let asked = handing.next(&fixture.group());
        assert_eq!(asked, Next::Send(ChangeMasters::Transfer { id: to }));
        fixture.transferring = Some(to);
        let waits = handing.next(&fixture.group());
        assert!(matches!(waits, Next::Wait(_)), "{waits:?}");
        (fixture.leader, fixture.transferring) = (to, None);
        let done = handing.next(&fixture.group());
        let line = format!("master {to} at m{to}:5050 leads in term 3, after master 1");
        assert_eq!(done, Next::Done(line));
    }
    let already =
        Change::new(Goal::Leading(Some(MasterRef::Id(1)))).next(&Fixture::three().group());
    assert!(matches!(&already, Next::Done(line) if line.contains("leads already")));
    let mut alone = Fixture::three();
    alone.silent = vec![2, 3];
    let nobody = Change::new(Goal::Leading(None)).next(&alone.group());
    assert!(matches!(nobody, Next::Refuse(_)));
}

#[test]
fn master_is_named_by_number_or_address() {
    assert_eq!("7".parse(), Ok(MasterRef::Id(7)));
    assert_eq!(
        "10.0.0.1".parse(),
        Ok(MasterRef::At("10.0.0.1:5050".to_owned()))
    );
    assert_eq!("a:1".parse(), Ok(MasterRef::At("a:1".to_owned())));
    for wrong in ["", "0", "a:b", "a:0"] {
        assert!(wrong.parse::<MasterRef>().is_err(), "{wrong}");
    }
}
