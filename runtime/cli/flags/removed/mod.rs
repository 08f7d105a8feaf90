//! Settings of Mesos 1.11 on the command line and as `MESOS_*` variables: none is ignored silently.
//!
//! Runs before the parser and only rewrites or rejects arguments. A flag that `meros` has is passed
//! on, also under its older Mesos name. For the others: a value with the behaviour of Meros is
//! accepted, a value that only tunes a missing mechanism causes a warning, and any other value is
//! refused. The tables are in `flags/removed/table.rs`. Starts and logs nothing.

pub mod table;

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Arg, Command};

use self::table::{ALIASES, LIBPROCESS, NOT_FLAGS, Rule, Service};
use crate::flags::{boolean, shown};

/// A rewritten command line.
#[derive(Debug)]
pub struct Settings {
    /// Flags for the parser, which rejects unknown ones.
    pub arguments: Vec<OsString>,
    /// One sentence for each setting without effect, to be logged once logging is set up.
    pub warnings: Vec<String>,
}

/// Checks the settings of `meros master`, `meros agent` and `meros local`. Arguments of other verbs
/// are unchanged.
pub fn check(
    command: &Command,
    arguments: Vec<OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Settings, clap::Error> {
    let text = |argument: &OsString| argument.to_str().unwrap_or_default().to_owned();
    let verb = verb(&arguments).and_then(|index| {
        let name = text(arguments.get(index)?);
        Some((
            index,
            Service::named(&name)?,
            command.find_subcommand(name)?,
        ))
    });
    let Some((index, service, parser)) = verb else {
        return Ok(Settings {
            arguments,
            warnings: Vec::new(),
        });
    };
    let mut check = Checker {
        service,
        root: command,
        parser,
        given: BTreeSet::new(),
        warnings: Vec::new(),
    };
    let (before, after) = arguments.split_at(index + 1);
    let own = check.command_line(after)?;
    let added = check.environment(environment)?;
    let arguments = before.iter().cloned().chain(added).chain(own).collect();
    Ok(Settings {
        arguments,
        warnings: check.warnings,
    })
}

/// The index of the verb: after the program's name and the global `--log`.
fn verb(arguments: &[OsString]) -> Option<usize> {
    let mut index = 1;
    loop {
        match arguments.get(index)?.to_str()? {
            "--log" => index += 2,
            flag if flag.starts_with('-') => index += 1,
            _ => return Some(index),
        }
    }
}

struct Checker<'a> {
    service: Service,
    root: &'a Command,
    parser: &'a Command,
    /// Flags of the command line, which take precedence over the environment.
    given: BTreeSet<String>,
    warnings: Vec<String>,
}

impl Checker<'_> {
    /// The arguments for the parser, up to a bare `--`.
    fn command_line(&mut self, arguments: &[OsString]) -> Result<Vec<OsString>, clap::Error> {
        let mut left = Vec::new();
        let mut arguments = arguments.iter().peekable();
        while let Some(argument) = arguments.next() {
            let text = argument.to_str().unwrap_or_default();
            if text == "--" {
                left.push(argument.clone());
                left.extend(arguments.cloned());
                break;
            }
            let Some(flag) = text.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
                left.push(argument.clone());
                continue;
            };
            let (spelled, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            let name = self.current_name(spelled);
            self.given.insert(name.to_owned());
            if self.flag(name).is_some() {
                left.extend(match value {
                    Some(value) => self.argument(text, name, value)?,
                    None => Some(format!("--{name}").into()),
                });
                continue;
            }
            let positive = name.strip_prefix("no_").filter(|_| value.is_none());
            if let Some(positive) = positive.filter(|name| self.is_boolean(name)) {
                self.given.insert(positive.to_owned());
                left.push(format!("--{positive}=false").into());
                continue;
            }
            let removed = match positive {
                Some(positive) => self.rule(positive).map(|rule| (rule, Some("false"))),
                None => self.rule(name).map(|rule| (rule, value)),
            };
            let Some((rule, value)) = removed else {
                left.push(argument.clone());
                continue;
            };
            // `--flag value`: these verbs have no positional arguments.
            let next = arguments.next_if(|next| {
                value.is_none() && !next.to_str().is_some_and(|next| next.starts_with("--"))
            });
            let value = value.or_else(|| next.and_then(|next| next.to_str()));
            self.apply(&format!("--{}", positive.unwrap_or(spelled)), rule, value)?;
        }
        Ok(left)
    }

    /// Arguments equivalent to the variables that the parser does not read itself.
    fn environment(
        &mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Vec<OsString>, clap::Error> {
        let variables: Vec<_> = variables.into_iter().collect();
        for (name, instead) in LIBPROCESS {
            if variables.iter().any(|(variable, _)| variable == name) {
                self.warnings
                    .push(format!("{name} has no effect: use {instead}"));
            }
        }
        let mut all: Vec<(String, String)> = { variables.iter() }
            .filter_map(|(name, value)| {
                let name = name.to_str()?.strip_prefix("MESOS_")?.to_lowercase();
                Some((name, value.to_string_lossy().into_owned()))
            })
            .collect();
        all.sort();
        let set: BTreeSet<String> = all.iter().map(|(name, _)| name.clone()).collect();
        let (mut added, mut unknown) = (Vec::new(), Vec::new());
        for (spelled, value) in all {
            let variable = format!("MESOS_{}", spelled.to_uppercase());
            if self.reads(&spelled, &variable) {
                continue;
            }
            let name = self.current_name(&spelled);
            if self.given.contains(name) || (name != spelled && set.contains(name)) {
                continue;
            }
            if self.flag(name).is_some() {
                added.extend(self.argument(&variable, name, &value)?);
                continue;
            }
            let positive = name.strip_prefix("no_");
            if let Some(positive) = positive.filter(|name| self.is_boolean(name)) {
                let is_set = boolean(&value).map_err(|error| refused(&variable, &error))?;
                if is_set && !self.given.contains(positive) && !set.contains(positive) {
                    added.push(format!("--{positive}=false").into());
                }
                continue;
            }
            match self.rule(name) {
                Some(rule) => self.apply(&variable, rule, Some(&value))?,
                None if self.is_foreign(name) => {}
                None => unknown.push(variable),
            }
        }
        if !unknown.is_empty() {
            let names = unknown.join(", ");
            self.warnings
                .push(format!("no flag of Mesos or Meros has this name: {names}"));
        }
        Ok(added)
    }

    /// The present name of this flag in Mesos.
    fn current_name<'n>(&self, name: &'n str) -> &'n str {
        let current = ALIASES.iter().find(|(old, _)| *old == name);
        let current = current.map_or(name, |(_, current)| current);
        match self.flag(name) {
            Some(_) => name,
            None => current,
        }
    }

    /// The parser's flag with this name.
    fn flag(&self, name: &str) -> Option<&Arg> {
        named(self.parser, name)
    }

    /// Whether the parser reads this variable.
    fn reads(&self, name: &str, variable: &str) -> bool {
        let env = self.flag(name).and_then(Arg::get_env);
        env.is_some_and(|env| env == variable)
    }

    /// The argument that gives this flag a value; none for a switch that is off.
    fn argument(
        &self,
        setting: &str,
        name: &str,
        value: &str,
    ) -> Result<Option<OsString>, clap::Error> {
        let takes_values = |flag: &Arg| flag.get_action().takes_values();
        if self.flag(name).is_some_and(takes_values) {
            return Ok(Some(format!("--{name}={value}").into()));
        }
        let is_set = boolean(value).map_err(|error| refused(setting, &error))?;
        Ok(is_set.then(|| format!("--{name}").into()))
    }

    /// Whether the parser has a flag with this name that needs no value.
    fn is_boolean(&self, name: &str) -> bool {
        let values = self.flag(name).and_then(Arg::get_num_args);
        values.is_some_and(|values| values.min_values() == 0)
    }

    fn rule(&self, name: &str) -> Option<Rule> {
        if let Some(rule) = table::rule(self.service, name) {
            return Some(rule);
        }
        // `meros local` lacks flags of the services that it starts.
        let services = [Service::Master, Service::Agent];
        let of = services.iter().find(|service| {
            let parser = self.root.find_subcommand(service.verb());
            parser.is_some_and(|parser| named(parser, name).is_some())
        })?;
        match (self.service, of) {
            (Service::Local, Service::Master) => Some(Rule::Refused("a flag of `meros master`")),
            (Service::Local, _) => Some(Rule::Refused("a flag of `meros agent`")),
            _ => None,
        }
    }

    /// Whether this is a setting of another service, or no setting.
    fn is_foreign(&self, name: &str) -> bool {
        let services = [Service::Master, Service::Agent, Service::Local];
        let of_other = services.iter().any(|service| {
            let parser = self.root.find_subcommand(service.verb());
            table::rule(*service, name).is_some()
                || parser.is_some_and(|parser| named(parser, name).is_some())
        });
        of_other || NOT_FLAGS.contains(&name)
    }

    fn apply(&mut self, setting: &str, rule: Rule, value: Option<&str>) -> Result<(), clap::Error> {
        let value = value.unwrap_or_default();
        match rule {
            Rule::Tunes(reason) => {
                self.warnings
                    .push(format!("{setting} has no effect: {reason}"));
                Ok(())
            }
            Rule::Only(accepted, _) if accepts(accepted, value) => Ok(()),
            Rule::Only(accepted, advice) => {
                let expected = accepted.join("` or `");
                let problem = format!("expected `{expected}`; else leave it out: {advice}");
                Err(refused(&with_value(setting, value), &problem))
            }
            Rule::Refused(advice) => {
                let problem = format!("no flag of `meros {}`: {advice}", self.service.verb());
                Err(refused(&with_value(setting, value), &problem))
            }
        }
    }
}

fn refused(setting: &str, problem: &str) -> clap::Error {
    let message = format!("{setting}: {problem}\n");
    clap::Error::raw(ErrorKind::InvalidValue, message)
}

fn named<'c>(parser: &'c Command, name: &str) -> Option<&'c Arg> {
    let mut flags = parser.get_arguments();
    flags.find(|flag| {
        let aliases = flag.get_all_aliases().unwrap_or_default();
        flag.get_long() == Some(name) || aliases.contains(&name)
    })
}

/// Whether a value is one of these. Booleans have several spellings; the order of lists is
/// irrelevant.
fn accepts(accepted: &[&str], value: &str) -> bool {
    let parts = |text: &str| -> BTreeSet<String> {
        let parts = text.split(',').map(str::trim);
        parts.map(str::to_lowercase).collect()
    };
    accepted.iter().any(|one| {
        let is_same = parts(one) == parts(value);
        let (expected, given) = (one.parse::<bool>(), boolean(value));
        is_same || expected.is_ok_and(|expected| given == Ok(expected))
    })
}

/// A flag with its variable, to be found in the manual; without passwords in its value.
fn with_value(setting: &str, value: &str) -> String {
    let setting = match setting.strip_prefix("MESOS_") {
        Some(name) => format!("{setting} (--{})", name.to_lowercase()),
        None => setting.to_owned(),
    };
    match value {
        "" => setting,
        value => format!("{setting}=`{}`", shown(value)),
    }
}

#[cfg(test)]
mod tests;
