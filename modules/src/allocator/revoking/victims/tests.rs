//! Each case has a few agents with free resources and tasks, and states the tasks to revoke.

use super::*;

/// One agent: free resources, and its tasks as `name role amounts priority since`.
type Agent<'a> = (&'a str, &'a [&'a str]);

struct Story<'a> {
    /// As `role lacks`, or `role lacks sets` with `|` between the sets, or `role lacks sets
    /// within`.
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
    /// Names of the chosen tasks, in order.
    fn victims(&self) -> String {
        let mut names = Vec::new();
        let mut candidates: Vec<CandidateAgent> = Vec::new();
        for (free, tasks) in self.agents {
            let free = amounts(free);
            let mut candidate = CandidateAgent {
                free,
                ..CandidateAgent::default()
            };
            for task in *tasks {
                let words: Vec<&str> = task.split(' ').collect();
                candidate.tasks.push(CandidateTask {
                    number: names.len(),
                    role: role(words[1]),
                    frees: amounts(words[2]),
                    counts: amounts(words[2]),
                    priority: words[3].parse().unwrap(),
                    since: Some(Timestamp::from_nanos(words[4].parse().unwrap())),
                });
                names.push(words[0]);
            }
            candidates.push(candidate);
        }
        let need = |text: &&str| {
            let words: Vec<&str> = text.split(' ').collect();
            let sets = words.get(2).map_or("cpus:0.01|mem:32", |sets| sets);
            Need {
                role: role(words[0]),
                lacks: amounts(words[1]),
                within: words.get(3).map(|within| role(within)),
                sets: sets.split('|').map(amounts).collect(),
                candidates: (0..candidates.len()).collect(),
            }
        };
        let mut needs: Vec<Need> = self.needs.iter().map(need).collect();
        let guards = self.guards.iter().map(|text| {
            let words: Vec<&str> = text.split(' ').collect();
            (role(words[0]), amounts(words[1]), amounts(words[2]))
        });
        let mut guards = Guards::new(guards);
        let total = amounts("cpus:100;mem:100000");
        let unhelped = unhelped(&needs, &candidates);
        use_free(&mut needs, &mut candidates);
        let lacking: BTreeSet<Role> = needs.iter().map(|need| need.role.clone()).collect();
        assert_eq!(unhelped, lacking, "the same without using anything up");
        let chosen = choose(&needs, &mut candidates, &mut guards, &total);
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
// Covers S123.
#[test]
fn victims_are_ordered_by_priority_waste_age() {
    let need = &["r cpus:2"];
    let tasks = &["a x cpus:2 5 1", "b x cpus:4 -1 1", "c x cpus:2 0 1"];
    check(need, &[], &[("", tasks)], "b");
    let tasks = &["a x cpus:2;mem:512 0 1", "b x cpus:2 0 1", "c x cpus:4 0 1"];
    check(need, &[], &[("", tasks)], "b");
    let tasks = &["a x cpus:2 0 7", "b x cpus:2 0 9", "c x cpus:2 0 8"];
    check(need, &[], &[("", tasks)], "b");
    // A single task rather than two; two of lower priority rather than one of higher.
    let tasks = &["a x cpus:1 0 1", "b x cpus:1 0 1", "c x cpus:2 0 1"];
    check(need, &[], &[("", tasks)], "c");
    let tasks = &["a x cpus:1 0 1", "b x cpus:1 0 1", "c x cpus:2 1 1"];
    check(need, &[], &[("", tasks)], "a b");
}

/// S123: below the guarantee none of its tasks may be killed, above it any may.
// Covers S123.
#[test]
fn victims_never_push_their_role_below_its_guarantee() {
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
    // The guarantee of a parent role counts as well.
    let below = &[("", &["a x/y cpus:2 0 1", "b x/z cpus:2 0 1"][..])];
    check(need, &["x cpus:2 cpus:4"], below, "a");
    check(need, &["x/y cpus:2 cpus:2"], below, "b");
}

#[test]
fn unnecessary_victims_are_dropped() {
    // `a` alone is not enough, and any addition is.
    let tasks = &["a x cpus:3 0 1", "b x cpus:4 0 1"];
    check(&["r cpus:4"], &[], &[("", tasks)], "b");
    let tasks = &["a x cpus:3 0 1", "b x cpus:5 1 1"];
    check(&["r cpus:4"], &[], &[("", tasks)], "b");
}

/// W9: four cpus on four agents do not help a framework that needs four on one.
#[test]
fn victims_free_amounts_worth_an_offer() {
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
fn excess_of_one_need_serves_the_next() {
    let agents = &[("", &["a x cpus:4 0 1", "b x cpus:4 0 1"][..])];
    check(&["r cpus:2", "s cpus:2"], &[], agents, "a");
    check(&["r cpus:2", "s cpus:3"], &[], agents, "a b");
}

#[test]
fn only_tasks_below_a_blocking_limit_help() {
    let tasks = &["a x cpus:2 0 1", "b eng/a cpus:2 5 1", "c eng/a cpus:2 9 1"][..];
    let agents = &[("cpus:9", tasks)];
    let sets = "cpus:0.01|mem:32";
    check(&["eng/web cpus:2"], &[], agents, "");
    check(&[&*format!("eng/web cpus:2 {sets} eng")], &[], agents, "b");
    // `eng` as a whole keeps its guarantee; `eng/a` would lose it.
    let need = &[&*format!("eng/web cpus:4 {sets} eng")];
    check(need, &["eng cpus:4 cpus:4"], agents, "b c");
    check(need, &["eng/a cpus:2 cpus:4"], agents, "b");
    // Two needs do not count on the same tasks.
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

/// With thousands of agents outside the request, the cost of a search follows only the few within
/// it.
#[test]
fn agents_without_tasks_cost_nothing() {
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
