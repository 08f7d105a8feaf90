//! Each case is a few agents with what is free and what runs there, and says who has to make room.

use super::*;

/// One agent: what is free, and its tasks as `name role amounts priority since`.
type Agent<'a> = (&'a str, &'a [&'a str]);

struct Story<'a> {
    /// As `role lacks`, or `role lacks sets` with `|` between the sets, or `role lacks sets within`.
    needs: &'a [&'a str],
    /// As `role guarantee has`.
    guards: &'a [&'a str],
    agents: &'a [Agent<'a>],
}

fn amounts(text: &str) -> Quantities {
    Quantities::parse(text).unwrap()
}

fn role(text: &str) -> Role {
    Role::new(text).unwrap()
}

impl Story<'_> {
    /// The names of those who make room, in order.
    fn victims(&self) -> String {
        let mut names = Vec::new();
        let mut spots: Vec<Spot> = Vec::new();
        for (free, tasks) in self.agents {
            let free = amounts(free);
            let mut spot = Spot {
                free,
                ..Spot::default()
            };
            for task in *tasks {
                let words: Vec<&str> = task.split(' ').collect();
                spot.tasks.push(Candidate {
                    number: names.len(),
                    role: role(words[1]),
                    frees: amounts(words[2]),
                    counts: amounts(words[2]),
                    priority: words[3].parse().unwrap(),
                    since: Some(Timestamp::from_nanos(words[4].parse().unwrap())),
                });
                names.push(words[0]);
            }
            spots.push(spot);
        }
        let need = |text: &&str| {
            let words: Vec<&str> = text.split(' ').collect();
            let sets = words.get(2).map_or("cpus:0.01|mem:32", |sets| sets);
            Need {
                role: role(words[0]),
                lacks: amounts(words[1]),
                within: words.get(3).map(|within| role(within)),
                sets: sets.split('|').map(amounts).collect(),
                spots: (0..spots.len()).collect(),
            }
        };
        let mut needs: Vec<Need> = self.needs.iter().map(need).collect();
        let guards = self.guards.iter().map(|text| {
            let words: Vec<&str> = text.split(' ').collect();
            (role(words[0]), amounts(words[1]), amounts(words[2]))
        });
        let mut guards = Guards::new(guards);
        let total = amounts("cpus:100;mem:100000");
        let unhelped = unhelped(&needs, &spots);
        use_free(&mut needs, &mut spots);
        let lacking: BTreeSet<Role> = needs.iter().map(|need| need.role.clone()).collect();
        assert_eq!(unhelped, lacking, "the same without using anything up");
        let chosen = choose(&needs, &mut spots, &mut guards, &total);
        let mut chosen: Vec<&str> = chosen.iter().map(|(number, _)| names[*number]).collect();
        chosen.sort_unstable();
        chosen.join(" ")
    }
}

#[track_caller]
fn check(needs: &[&str], guards: &[&str], agents: &[Agent<'_>], expected: &str) {
    let story = Story {
        needs,
        guards,
        agents,
    };
    assert_eq!(story.victims(), expected);
}

#[test]
fn nobody_makes_room_while_what_is_free_suffices() {
    let runs = &["a x cpus:4 0 1"][..];
    check(&["r cpus:4"], &[], &[("cpus:4", runs)], "");
    check(&["r cpus:4"], &[], &[("cpus:3", runs), ("cpus:1", &[])], "");
    check(&["r cpus:4"], &[], &[("cpus:3", runs)], "a");
}

/// S123: kill low first.
#[test]
fn the_least_important_go_first_then_those_freed_in_vain_least_then_the_youngest() {
    let need = &["r cpus:2"];
    let tasks = &["a x cpus:2 5 1", "b x cpus:4 -1 1", "c x cpus:2 0 1"];
    check(need, &[], &[("", tasks)], "b");
    let tasks = &["a x cpus:2;mem:512 0 1", "b x cpus:2 0 1", "c x cpus:4 0 1"];
    check(need, &[], &[("", tasks)], "b");
    let tasks = &["a x cpus:2 0 7", "b x cpus:2 0 9", "c x cpus:2 0 8"];
    check(need, &[], &[("", tasks)], "b");
    // One alone rather than two; and two that matter less rather than one that matters more.
    let tasks = &["a x cpus:1 0 1", "b x cpus:1 0 1", "c x cpus:2 0 1"];
    check(need, &[], &[("", tasks)], "c");
    let tasks = &["a x cpus:1 0 1", "b x cpus:1 0 1", "c x cpus:2 1 1"];
    check(need, &[], &[("", tasks)], "a b");
}

/// S123: below the guarantee none of its tasks may be killed, above it any may.
#[test]
fn no_task_goes_without_which_its_role_is_below_what_it_is_guaranteed() {
    let agents = &[(
        "",
        &["a x cpus:2 0 1", "b x cpus:2 0 1", "c x cpus:2 0 1"][..],
    )];
    let need = &["r cpus:6"];
    check(need, &[], agents, "a b c");
    check(need, &["x cpus:2 cpus:6"], agents, "a b");
    check(need, &["x cpus:3 cpus:6"], agents, "a");
    check(need, &["x cpus:5 cpus:6"], agents, "");
    check(need, &["x cpus:9 cpus:6"], agents, "");
    check(need, &["x cpus:2;mem:64 cpus:6"], agents, "a b");
    check(need, &["x mem:1 cpus:6"], agents, "a b c");
    check(need, &["y cpus:9 cpus:0"], agents, "a b c");
    // What a role above is guaranteed counts as well.
    let below = &[("", &["a x/y cpus:2 0 1", "b x/z cpus:2 0 1"][..])];
    check(need, &["x cpus:2 cpus:4"], below, "a");
    check(need, &["x/y cpus:2 cpus:2"], below, "b");
}

#[test]
fn what_was_chosen_before_is_spared_if_what_is_chosen_later_suffices() {
    // `a` alone is not enough, and whatever comes to it is.
    let tasks = &["a x cpus:3 0 1", "b x cpus:4 0 1"];
    check(&["r cpus:4"], &[], &[("", tasks)], "b");
    let tasks = &["a x cpus:3 0 1", "b x cpus:5 1 1"];
    check(&["r cpus:4"], &[], &[("", tasks)], "b");
}

/// W9: who wants four processors in one piece is not helped by as many on four agents.
#[test]
fn room_is_made_in_pieces_that_are_worth_an_offer() {
    let one = &["a x cpus:1 0 1", "b x cpus:1 0 1", "c x cpus:1 0 1"][..];
    let other = &["d x cpus:2 3 1", "e x cpus:2 3 1"][..];
    let agents = &[("", one), ("", other), ("cpus:3", &[])];
    check(&["r cpus:4 cpus:4"], &[], agents, "d e");
    check(&["r cpus:4 cpus:5"], &[], agents, "");
    let agents = &[("cpus:1", one), ("", other)];
    check(&["r cpus:4 cpus:4"], &[], agents, "a b c");
    check(&["r cpus:3 cpus:2"], &[], agents, "b c");
}

#[test]
fn what_one_need_has_freed_in_vain_is_for_the_next() {
    let agents = &[("", &["a x cpus:4 0 1", "b x cpus:4 0 1"][..])];
    check(&["r cpus:2", "s cpus:2"], &[], agents, "a");
    check(&["r cpus:2", "s cpus:3"], &[], agents, "a b");
}

#[test]
fn where_a_limit_above_leaves_nothing_only_tasks_below_it_help_and_what_is_free_does_not() {
    let tasks = &["a x cpus:2 0 1", "b eng/a cpus:2 5 1", "c eng/a cpus:2 9 1"][..];
    let agents = &[("cpus:9", tasks)];
    let sets = "cpus:0.01|mem:32";
    check(&["eng/web cpus:2"], &[], agents, "");
    check(&[&*format!("eng/web cpus:2 {sets} eng")], &[], agents, "b");
    // What is guaranteed to `eng` is not less by that, but what is guaranteed to `eng/a` would be.
    let need = &[&*format!("eng/web cpus:4 {sets} eng")];
    check(need, &["eng cpus:4 cpus:4"], agents, "b c");
    check(need, &["eng/a cpus:2 cpus:4"], agents, "b");
    // Two in need do not count on the same tasks.
    let needs = ["eng/web", "eng/db"].map(|role| format!("{role} cpus:2 {sets} eng"));
    check(&[&*needs[0], &*needs[1]], &[], agents, "b c");
}

#[test]
fn nobody_makes_room_for_its_own_role() {
    let agents = &[("", &["a eng/x cpus:2 0 1", "b y cpus:2 5 1"][..])];
    check(&["eng cpus:2"], &[], agents, "b");
}

#[test]
fn tasks_that_free_nothing_that_lacks_stay() {
    let agents = &[("", &["a x mem:512 -9 1", "b x cpus:1 0 1"][..])];
    check(&["r cpus:1"], &[], agents, "b");
    check(&["r gpus:1"], &[], agents, "");
}

/// Where thousands of agents were not asked about, the few that were decide, and each look costs what these few do.
#[test]
fn agents_without_tasks_and_room_count_for_nothing_however_many_they_are() {
    let task = |n: usize| format!("t{n:03} x cpus:1 {} 1", n % 7);
    let tasks: Vec<String> = (0..600).map(task).collect();
    let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
    let none: Agent<'_> = ("", &[]);
    let mut agents = vec![none; 60_000];
    for (own, place) in tasks.chunks(10).zip((0..).step_by(997)) {
        agents[place] = ("", own);
    }
    let least: Vec<String> = (0..600)
        .filter(|n| n % 7 < 2)
        .map(|n| format!("t{n:03}"))
        .collect();
    check(
        &[&format!("r cpus:{}", least.len())],
        &[],
        &agents,
        &least.join(" "),
    );
}
