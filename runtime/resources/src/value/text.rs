//! The text form `name(role):value;...` of `--resources` (SPEC 5.1).
//!
//! Errors contain the character's position. Formatting gives a text that parses back: properties
//! without a text form (a principal, a volume, revocable) are printed as JSON, which is accepted in
//! the same place.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::{Invalid, ParseError};
use crate::resource::Resource;
use crate::resource::annotation::{Annotations, Reservation, ReservationKind};
use crate::resources::quantities::Quantities;
use crate::resources::{Items, Resources};
use crate::role::Role;
use crate::value::Value;
use crate::value::name::Name;
use crate::value::ranges::{Range, Ranges};
use crate::value::scalar::Scalar;
use crate::value::set::Set;

/// The forms of a value, for resources and attributes.
pub(crate) enum Parsed<'a> {
    Number(f64),
    Ranges(Ranges),
    Set(Set),
    Text(Cow<'a, str>),
}

/// An error and its byte offset.
pub(crate) type At = (usize, Invalid);

impl Resources {
    /// Parses a text such as `cpus:4;mem:2048;cpus(ads):8;ports:[21000-29000]`, or a JSON array of
    /// resource objects. A role in parentheses is a static reservation.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::parse_for(text, &Role::STAR)
    }

    /// Like [`Resources::parse`]; resources without a role are reserved for `default_role`
    /// (`--default_role`; `*` does not reserve).
    pub fn parse_for(text: &str, default_role: &Role) -> Result<Self, ParseError> {
        if text.trim_start().starts_with(['[', '{']) {
            let resources = crate::json::parse_resources(text)?;
            return Ok(resources.reserve_unreserved_for(default_role));
        }
        let mut items = Items::new();
        for (at, token) in tokens(text) {
            let parsed = parse_resource(at, token, default_role, items.last());
            items.push(parsed.map_err(|(at, cause)| ParseError::at(text, at, cause))?);
        }
        Ok(Self::canonical(items).share_notes())
    }

    fn reserve_unreserved_for(self, role: &Role) -> Self {
        if role.is_star() {
            return self;
        }
        let reserve = |own: Resource| {
            if own.is_reserved() {
                own.clone()
            } else {
                own.push_reservation(Reservation::fixed(role.clone()))
                    .unwrap_or(own)
            }
        };
        self.into_iter().map(reserve).collect()
    }

    /// A short form for people and logs. It omits principals, labels and paths, so it does not
    /// parse back.
    pub fn brief(&self) -> impl fmt::Display + '_ {
        Brief(self)
    }

    /// Whether the text form can express all of it.
    fn has_text_form(&self) -> bool {
        self.iter()
            .all(|own| sayable_notes(own) && sayable_value(own.value()))
    }
}

fn sayable_notes(own: &Resource) -> bool {
    let notes = own.annotations();
    let silent = Annotations {
        reservations: notes.reservations.clone(),
        ..Annotations::NONE
    };
    own.is_plain()
        || *notes == silent
            && matches!(own.reservations(), [only] if *only == Reservation::fixed(only.role.clone())
                && !only.role.as_str().contains([':', ';', '(', ')']))
}

fn sayable_value(value: &Value) -> bool {
    let blank = |c: char| c.is_whitespace() || ",;{}".contains(c);
    value
        .as_set()
        .is_none_or(|set| !set.iter().any(|item| item.contains(blank)))
}

impl FromStr for Resources {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl fmt::Display for Resources {
    /// A text that parses back to the same value, except for lenders, which are hidden.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.has_text_form() {
            let json = serde_json::to_string(&crate::json::Resources(self.clone()));
            return f.write_str(&json.map_err(|_| fmt::Error)?);
        }
        for (n, own) in self.iter().enumerate() {
            let semicolon = if n == 0 { "" } else { ";" };
            write!(f, "{semicolon}{}", own.name_str())?;
            if own.is_reserved() {
                write!(f, "({})", own.role())?;
            }
            write!(f, ":{}", own.value())?;
        }
        Ok(())
    }
}

struct Brief<'a>(&'a Resources);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, own) in self.0.iter().enumerate() {
            let semicolon = if n == 0 { "" } else { ";" };
            write!(f, "{semicolon}{own}")?;
        }
        Ok(())
    }
}

/// The short form of one resource: `name(role){marks}:value`.
pub(crate) fn write_brief(own: &Resource, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}", own.name_str())?;
    if own.is_reserved() {
        write!(f, "({})", own.role())?;
    }
    if !own.is_plain() {
        let marks = marks(own);
        if !marks.is_empty() {
            write!(f, "{{{}}}", marks.join(","))?;
        }
    }
    write!(f, ":{}", own.value())
}

fn marks(own: &Resource) -> Vec<String> {
    let notes = own.annotations();
    let mut marks = Vec::new();
    let mut mark = |there: bool, text: &str| {
        if there {
            marks.push(text.to_owned())
        }
    };
    mark(
        own.reservation()
            .is_some_and(|entry| entry.kind == ReservationKind::Dynamic),
        "dynamic",
    );
    mark(own.is_throttleable(), "throttleable");
    mark(own.is_revocable(), "revocable");
    mark(own.is_shared(), "shared");
    if let Some(persistence) = notes
        .disk
        .as_ref()
        .and_then(|disk| disk.persistence.as_ref())
    {
        marks.push(format!("volume {}", persistence.id));
    }
    if let Some(source) = notes.disk.as_ref().and_then(|disk| disk.source.as_ref()) {
        marks.push(format!("{:?}", source.kind).to_lowercase());
    }
    if let Some(role) = &notes.allocation {
        marks.push(format!("for {role}"));
    }
    if own.copies() != 1 {
        marks.push(format!("{} copies", own.copies()));
    }
    marks
}

/// Amounts by name: the text form without roles, ranges and sets. A zero stays listed.
pub(crate) fn parse_quantities(text: &str) -> Result<Quantities, ParseError> {
    let mut all = Quantities::new();
    for (at, token) in tokens(text) {
        let one = || -> Result<(Name, Scalar), At> {
            let (name, value_at, value) =
                split_pair(at, token, "a name and an amount, e.g. cpus:4")?;
            let name = Name::new(name).map_err(|bad| (at, bad))?;
            match parse_value(value_at, value)? {
                Parsed::Number(units) => {
                    Ok((name, Scalar::new(units).map_err(|bad| (value_at, bad))?))
                }
                _ => Err((value_at, Invalid::new(name.as_str(), value, "a number"))),
            }
        };
        let (name, amount) = one().map_err(|(at, cause)| ParseError::at(text, at, cause))?;
        all.add(name, amount);
    }
    Ok(all)
}

/// Parses one item; shares the note of the previous one if the role is the same.
fn parse_resource(
    at: usize,
    token: &str,
    default_role: &Role,
    before: Option<&Resource>,
) -> Result<Resource, At> {
    let (label, value_at, value) = split_pair(at, token, "name:value or name(role):value")?;
    let (name, role) = match label.split_once('(') {
        None => (label, None),
        Some((name, rest)) => {
            let role_at = at + name.len() + 1;
            let Some(role) = rest.strip_suffix(')') else {
                let expected = "a role and a closing parenthesis";
                return Err((role_at, Invalid::new("role", rest, expected)));
            };
            (name.trim_end(), Some((role_at, role.trim())))
        }
    };
    let name = Name::new(name).map_err(|bad| (at, bad))?;
    let value: Value = match parse_value(value_at, value)? {
        Parsed::Number(units) => Scalar::new(units)
            .map_err(|bad| {
                (
                    value_at,
                    Invalid {
                        field: name.to_string(),
                        ..bad
                    },
                )
            })?
            .into(),
        Parsed::Ranges(ranges) => ranges.into(),
        Parsed::Set(set) => set.into(),
        Parsed::Text(text) => {
            let expected = "a number that is not negative, ranges [a-b,c-d], or a set {x,y}";
            return Err((value_at, Invalid::new(name.as_str(), text, expected)));
        }
    };
    let own = Resource::new(name, value).map_err(|bad| (value_at, bad))?;
    let text = role.map_or(default_role.as_str(), |(_, text)| text);
    if let Some(like) =
        before.filter(|like| like.role().as_str() == text && like.can_share_note_with(&own))
    {
        return Ok(own.with_note_of(like));
    }
    let role = match role {
        Some((role_at, text)) => Role::new(text).map_err(|bad| (role_at, bad))?,
        None => default_role.clone(),
    };
    if role.is_star() {
        return Ok(own);
    }
    own.push_reservation(Reservation::fixed(role))
        .map_err(|bad| (at, bad))
}

/// The parts between semicolons that are not blank, with their byte offsets.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut next = 0;
    text.split(';').filter_map(move |part| {
        let at = next + (part.len() - part.trim_start().len());
        next += part.len() + 1;
        let part = part.trim();
        (!part.is_empty()).then_some((at, part))
    })
}

/// Splits a trimmed token into its name and its value with the byte offset.
pub(crate) fn split_pair<'a>(
    at: usize,
    token: &'a str,
    expected: &str,
) -> Result<(&'a str, usize, &'a str), At> {
    let Some((name, value)) = token.split_once(':') else {
        return Err((at, Invalid::new("item", token, expected)));
    };
    let value_at = at + name.len() + 1 + (value.len() - value.trim_start().len());
    Ok((name.trim_end(), value_at, value.trim()))
}

/// Parses a trimmed value at byte `at`: ranges, a set, a number, or a text without blanks.
pub(crate) fn parse_value(at: usize, value: &str) -> Result<Parsed<'_>, At> {
    if let Some(inner) = value.strip_prefix('[') {
        let inner = closed(at, inner, ']')?;
        return Ok(Parsed::Ranges(
            parts(at + 1, inner)
                .map(parse_range)
                .collect::<Result<_, At>>()?,
        ));
    }
    if let Some(inner) = value.strip_prefix('{') {
        let inner = closed(at, inner, '}')?;
        let items = parts(at + 1, inner).map(|(_, item)| without_blanks(item).into_owned());
        return Set::new(items).map(Parsed::Set).map_err(|bad| (at, bad));
    }
    if value.is_empty() {
        return Err((at, Invalid::new("value", value, "a value after the colon")));
    }
    let value = without_blanks(value);
    match value.parse::<f64>() {
        Ok(number) if number.is_finite() && !number.is_subnormal() && number >= 0.0 => {
            Ok(Parsed::Number(number))
        }
        _ => Ok(Parsed::Text(value)),
    }
}

fn closed(at: usize, inner: &str, bracket: char) -> Result<&str, At> {
    match inner.find(bracket) {
        Some(end) if end + 1 == inner.len() => Ok(&inner[..end]),
        Some(end) => {
            let rest = &inner[end + 1..];
            Err((
                at + end + 2,
                Invalid::new("value", rest, format!("nothing after `{bracket}`")),
            ))
        }
        None => Err((
            at + 1 + inner.len(),
            Invalid::new("value", inner, format!("a closing `{bracket}`")),
        )),
    }
}

/// The parts between commas that are not blank, with their byte offsets.
fn parts(at: usize, inner: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut next = at;
    inner.split(',').filter_map(move |part| {
        let at = next + (part.len() - part.trim_start().len());
        next += part.len() + 1;
        let part = part.trim();
        (!part.is_empty()).then_some((at, part))
    })
}

/// `begin-end`, or a single number.
fn parse_range((at, part): (usize, &str)) -> Result<Range, At> {
    let number = |text: &str| {
        let bad = |_| {
            (
                at,
                Invalid::new("range", part, "begin-end, two whole numbers"),
            )
        };
        without_blanks(text).parse::<u64>().map_err(bad)
    };
    let (begin, end) = match part.split_once('-') {
        Some((begin, end)) => (number(begin)?, number(end)?),
        None => (number(part)?, number(part)?),
    };
    Range::new(begin, end).map_err(|bad| (at, bad))
}

fn without_blanks(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_whitespace) {
        text.split_whitespace().collect::<String>().into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    fn whole(units: u32) -> Scalar {
        Scalar::whole(units)
    }

    /// S90, the seed's exact text.
    // Covers S90.
    #[test]
    fn text_reserves_for_roles_in_parentheses() {
        let text = "cpus:4;mem:2048;cpus(ads):8;mem(ads):4096";
        let pool = parse(text);
        let ads = pool.reserved(&Role::new("ads").unwrap());
        assert_eq!((ads.cpus(), ads.mem()), (whole(8), whole(4096)));
        assert_eq!(
            (pool.unreserved().cpus(), pool.unreserved().mem()),
            (whole(4), whole(2048))
        );
        assert!(
            ads.iter()
                .all(|own| own.reservation().unwrap().kind == ReservationKind::Static)
        );
        assert_eq!(pool.to_string(), text);
    }

    /// S95, the seed's exact text.
    // Covers S95.
    #[test]
    fn text_has_amounts_ranges_and_sets() {
        let text = "cpus:30;mem:122880;disk:921600;ports:[21000-29000];bugs:{a,b,c}";
        let pool = parse(text);
        let types: Vec<&str> = pool.iter().map(|own| own.value().type_name()).collect();
        assert_eq!(types, ["SCALAR", "SCALAR", "SCALAR", "RANGES", "SET"]);
        assert_eq!(pool.ports().count(), 8001);
        assert_eq!(pool.set(&Name::new("bugs").unwrap()).len(), 3);
        assert_eq!(pool.to_string(), text);
    }

    /// The text form.
    #[test]
    fn order_and_blanks_of_a_text_are_ignored() {
        let text = "cpus:4;mem:2048;ports:[21000-29000];bugs:{a,b,c};cpus(ads):8;mem(ads):4096";
        let same = " mem ( ads ) : 4096 ; bugs:{ c , b, a,};;cpus(ads): 8.0;ports:[ 25000 - 29000, 21000-24999];
                    mem(*):2048;cpus:3;cpus : 1;";
        assert_eq!(parse(text), parse(same));
        assert_eq!(parse(same).to_string(), text);
        assert_eq!(parse(""), Resources::new());
        assert_eq!(parse("cpus:0;ports:[];bugs:{}"), Resources::new());
    }

    #[test]
    fn a_default_role_takes_what_names_none() {
        let role = Role::new("prod").unwrap();
        let pool = Resources::parse_for("cpus:1;mem(*):2;cpus(dev):3", &role).unwrap();
        assert_eq!(pool, parse("cpus(prod):1;mem:2;cpus(dev):3"));
        let json = r#"[{"name":"cpus","scalar":1}]"#;
        assert_eq!(
            Resources::parse_for(json, &role).unwrap(),
            parse("cpus(prod):1")
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let table = "
            cpus | at character 1: item is `cpus`: expected name:value or name(role):value
            cpus:1;mem | at character 8: item is `mem`: expected name:value or name(role):value
            cpus:1; mem:x | at character 13: mem is `x`: expected a number that is not negative, ranges [a-b,c-d], or a set {x,y}
            cpus:-1 | at character 6: cpus is `-1`: expected a number that is not negative, ranges [a-b,c-d], or a set {x,y}
            cpus:nan | at character 6: cpus is `nan`: expected a number that is not negative, ranges [a-b,c-d], or a set {x,y}
            cpus:1e13 | at character 6: cpus is `10000000000000`: expected a number from 0 to 1000000000000
            cpus: | at character 6: value is ``: expected a value after the colon
            ports:[1-2 | at character 11: value is `1-2`: expected a closing `]`
            ports:[1-2]x | at character 12: value is `x`: expected nothing after `]`
            ports:[1-2,4-3] | at character 12: range is `4-3`: expected a begin that is not larger than its end
            ports:[1-2,a] | at character 12: range is `a`: expected begin-end, two whole numbers
            ports:5 | at character 7: ports is `5`: expected ranges, e.g. [31000-32000]
            gpus:0.5 | at character 6: gpus is `0.5`: expected a whole number
            cpus(ads:1 | at character 6: role is `ads`: expected a role and a closing parenthesis
            日本(a/):1; | at character 4: role is `a/`: expected `*`, or components
            :1 | at character 1: name is ``: expected 1 to 255 characters
        ";
        for row in table.trim().lines() {
            let (text, said) = row.trim().split_once(" | ").unwrap();
            let error = Resources::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{text}\n  {error}\n  {said}");
        }
    }

    #[test]
    fn inexpressible_text_is_printed_as_json() {
        let odd = Role::new("a(b").unwrap();
        for pool in [
            parse("cpus:1")
                .push_reservation(&Reservation::dynamic(Role::new("a").unwrap(), Some("ops")))
                .unwrap(),
            parse("cpus:1")
                .push_reservation(&Reservation::fixed(odd))
                .unwrap(),
            parse("cpus:1;bugs:{x}")
                .to_revocable(crate::Revocable::Throttleable)
                .unwrap(),
            parse("cpus:1").allocate(&Role::STAR),
        ] {
            assert_eq!(parse(&pool.to_string()), pool, "{pool}");
        }
    }

    #[test]
    fn the_brief_form_marks_what_is_special() {
        let slack = parse("cpus:0.45")
            .to_revocable(crate::Revocable::NonThrottleable)
            .unwrap();
        let pool = parse("cpus:2;cpus(ads):1") + &slack;
        assert_eq!(
            pool.brief().to_string(),
            "cpus:2;cpus(ads):1;cpus{revocable}:0.45"
        );
    }
}
