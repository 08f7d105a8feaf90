//! Verbs and flags of `meros` in documents, comments and error texts: each must exist.
//!
//! A verb is a word after `meros` in backticks or in a block of code. A flag is a word that begins
//! with two dashes, unless it is in the command of another program. Flags of Mesos may be named
//! where Meros lacks them. Pure functions over lines.

use std::collections::{BTreeMap, BTreeSet};

use clap::Command;

use crate::source::Source;

/// Flags of cargo and its test runner, which stand alone in comments.
const OF_CARGO: &[&str] = &["bench", "example", "ignored", "list", "release", "test"];

/// All that the command line knows.
pub struct Vocabulary {
    /// The verbs, each with its own verbs.
    verbs: BTreeMap<String, BTreeSet<String>>,
    flags: BTreeSet<String>,
}

impl Vocabulary {
    /// That of this command, the flags of Mesos that it lacks, and those of `meros-lab`.
    pub fn new(command: &Command, of_mesos: &[&str], of_lab: Vec<String>) -> Self {
        fn flags(command: &Command, all: &mut BTreeSet<String>) {
            let own = command.get_arguments().filter_map(|flag| flag.get_long());
            all.extend(own.map(str::to_owned));
            command.get_subcommands().for_each(|verb| flags(verb, all));
        }
        let names = |command: &Command| -> BTreeSet<String> {
            let verbs = command.get_subcommands();
            verbs.map(|verb| verb.get_name().to_owned()).collect()
        };
        let verbs = command.get_subcommands();
        let verbs = verbs
            .map(|verb| (verb.get_name().to_owned(), names(verb)))
            .collect();
        let mut all = BTreeSet::from(["help", "version"].map(str::to_owned));
        all.extend(of_mesos.iter().map(|&flag| flag.to_owned()));
        all.extend(of_lab);
        flags(command, &mut all);
        Self { verbs, flags: all }
    }

    /// Whether a flag exists, also as a negated boolean or as the beginning of several
    /// (`--http_*`).
    fn has_flag(&self, spelled: &str) -> bool {
        let name = spelled.replace('-', "_");
        let known = |name: &str| self.flags.contains(name);
        let begins =
            || name.ends_with('_') && self.flags.iter().any(|flag| flag.starts_with(&name));
        known(&name)
            || name.strip_prefix("no_").is_some_and(known)
            || begins()
            || OF_CARGO.contains(&name.as_str())
    }

    /// What is wrong with the command that begins after `meros `.
    fn wrong_verb(&self, rest: &str) -> Option<String> {
        let rest = rest.split('`').next().unwrap_or_default();
        let mut words = rest
            .split(' ')
            .map(|word| word.trim_end_matches(['`', ',', '.', ')', ':']));
        let verb = words.next().filter(|word| is_word(word))?;
        let Some(own) = self.verbs.get(verb) else {
            return Some(format!("there is no verb `meros {verb}`"));
        };
        let sub = words
            .next()
            .filter(|word| is_word(word) && !own.is_empty())?;
        (!own.contains(sub)).then(|| format!("there is no verb `meros {verb} {sub}`"))
    }

    /// The flags in a piece of text that do not exist.
    fn wrong_flags(&self, text: &str) -> Vec<String> {
        let starts = text.match_indices("--").filter(|(at, _)| {
            let before = text[..*at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_')
        });
        let names = starts.map(|(at, _)| {
            let name = text[at + 2..].chars();
            let name: String = name
                .take_while(|c| c.is_ascii_alphanumeric() || "_-".contains(*c))
                .collect();
            name
        });
        let names = names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
        let wrong = names.filter(|name| !self.has_flag(name));
        wrong
            .map(|name| format!("there is no flag `--{name}`"))
            .collect()
    }
}

fn is_word(word: &str) -> bool {
    !word.is_empty()
        && word
            .chars()
            .all(|c| c.is_ascii_lowercase() || c == '-' || c == '_')
        && !word.starts_with('-')
}

/// The commands and flags of a document that do not exist.
pub fn wrong_in_document(path: &str, text: &str, vocabulary: &Vocabulary) -> Vec<String> {
    let mut faults = Vec::new();
    let mut is_fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        let spans = line.split('`').skip(1).step_by(2).map(str::to_owned);
        let is_block = is_fenced || line.starts_with("    ");
        let block = is_block.then(|| line.trim().trim_start_matches("$ ").to_owned());
        for span in spans.chain(block) {
            // What follows a bare `--` is a task's.
            let own = span.split(" -- ").next().unwrap_or_default();
            let own = own.split(" #").next().unwrap_or_default();
            let program = own
                .split(' ')
                .find(|word| !word.contains('=') || word.starts_with("--"));
            let program = program.unwrap_or_default();
            let is_ours = program == "meros" || program.ends_with("/meros");
            let mut wrong = Vec::new();
            if is_ours {
                wrong.extend(
                    own.split_once("meros ")
                        .and_then(|(_, rest)| vocabulary.wrong_verb(rest)),
                );
            }
            if is_ours || program.starts_with("--") {
                wrong.extend(vocabulary.wrong_flags(own));
            }
            faults.extend(
                wrong
                    .into_iter()
                    .map(|fault| format!("{path}:{}: {fault}", number + 1)),
            );
        }
    }
    faults
}

/// The flags that this source declares by `#[arg(long)]`.
pub fn declared_flags(source: &Source) -> Vec<String> {
    let declared = source.text.split("#[arg(").skip(1).filter_map(|rest| {
        let (attribute, field) = rest.split_once(")]")?;
        if !attribute.contains("long") {
            return None;
        }
        if let Some((_, name)) = attribute.split_once("long = \"") {
            return name.split('"').next().map(str::to_owned);
        }
        let field = field.trim_start().trim_start_matches("pub ");
        field.split(':').next().map(str::to_owned)
    });
    declared.collect()
}

/// The unknown verbs in backticks anywhere in a source, and the unknown flags outside its tests.
pub fn wrong_in_source(source: &Source, vocabulary: &Vocabulary) -> Vec<String> {
    let path = source.path.as_str();
    if path.ends_with("architecture/commands.rs") {
        return Vec::new(); // Its tests plant faults.
    }
    let is_test = ["tests/", "/tests.rs", "/laws", "bench", "flags/removed"]
        .iter()
        .any(|part| path.contains(part));
    let begins_tests = source
        .text
        .lines()
        .position(|line| line.trim() == "#[cfg(test)]");
    let mut faults = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let mut wrong: Vec<String> = line
            .split("`meros ")
            .skip(1)
            .filter_map(|rest| vocabulary.wrong_verb(rest))
            .collect();
        if !is_test && begins_tests.is_none_or(|begin| number < begin) {
            wrong.extend(vocabulary.wrong_flags(line));
        }
        faults.extend(
            wrong
                .into_iter()
                .map(|fault| format!("{path}:{}: {fault}", number + 1)),
        );
    }
    faults
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn vocabulary() -> Vocabulary {
        let flag = |name: &'static str| Arg::new(name).long(name);
        let add = Command::new("add").arg(flag("in_place_of"));
        let command = Command::new("meros").subcommands([
            Command::new("logs").arg(flag("follow")),
            Command::new("masters").subcommand(add),
        ]);
        Vocabulary::new(&command, &["quorum"], Vec::new())
    }

    #[test]
    fn unknown_verb_or_flag_is_a_fault() {
        let document = "`meros logs TASK --follow`, `meros tail`, `--quorum`, `--no-follow`, `--unfollow`\n\
            `meros masters add | remove`, `meros masters drop`, `meros VERB`, `cargo test --workspace`, `--fol_*`\n    \
            $ meros log -- sh --any\n```sh\ntarget/meros logs --slow  # --any\n```\n";
        let faults = wrong_in_document("a.md", document, &vocabulary());
        let expected = [
            "a.md:1: there is no verb `meros tail`",
            "a.md:1: there is no flag `--unfollow`",
            "a.md:2: there is no verb `meros masters drop`",
            "a.md:2: there is no flag `--fol_`",
            "a.md:3: there is no verb `meros log`",
            "a.md:5: there is no flag `--slow`",
        ];
        assert_eq!(faults, expected);
    }

    #[test]
    fn comments_are_read_and_tests_are_not() {
        let text = "/// `meros tail` follows; a--b\nlet error = \"use --fast or --follow\";\n#[cfg(test)]\n\"--any\"\n";
        let source = Source {
            path: "a.rs".to_owned(),
            text: text.to_owned(),
        };
        let faults = wrong_in_source(&source, &vocabulary());
        let expected = [
            "a.rs:1: there is no verb `meros tail`",
            "a.rs:2: there is no flag `--fast`",
        ];
        assert_eq!(faults, expected);
    }
}
