//! The parser of `--acls`, in Mesos' own format.
//!
//! Pure. Input that would silently grant or deny something else is refused: unknown names and keys,
//! duplicate keys, and names where objects have none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use resources::Invalid;

use super::{Acls, Action, Entity, Rule};
use crate::tree::{At, Tree};

/// The syntax of an entity, for errors.
const ENTITY: &str = r#"{"values": [...]}, {"type": "ANY"} or {"type": "NONE"}"#;

impl Acls {
    /// Reads `{"permissive": BOOL, "NAME": [{"principals": ENTITY, "OBJECTS": ENTITY}]}`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let tree = Tree::read("acls", text)?;
        let root = At::root("acls", &tree);
        let (mut permissive, mut rules) = (true, BTreeMap::new());
        for (name, at) in root.entries()? {
            if name == "permissive" {
                permissive = at.bool()?;
                continue;
            }
            let Some(action) = Action::named(name) else {
                let expected = format!("`permissive` or {}", known(name));
                return Err(Invalid::new("acls", name, expected));
            };
            let list: Result<Vec<Rule>, Invalid> =
                at.items()?.map(|item| rule(action, &item)).collect();
            rules.insert(action, list?);
        }
        Ok(Self { permissive, rules })
    }
}

/// The name that was probably meant, or a description of the valid names.
fn known(name: &str) -> String {
    let stem = |name: &str| name.trim_end_matches('s').to_owned();
    let near = Action::ALL
        .iter()
        .find(|one| stem(one.name()) == stem(name));
    match (near, name) {
        (Some(near), _) => format!("`{}`", near.name()),
        (None, "shutdown_frameworks") => "`teardown_frameworks`".to_owned(),
        (None, "set_quotas" | "remove_quotas") => "`update_quotas`".to_owned(),
        (None, _) => "the name of an action, such as `register_frameworks`".to_owned(),
    }
}

fn rule(action: Action, at: &At<'_>) -> Result<Rule, Invalid> {
    let key = action.object();
    let [principals, objects] = at.fields(["principals", key])?;
    let principals = entity(&at.required(principals, "principals")?)?;
    let at = at.required(objects, key)?;
    let objects = entity(&at)?;
    if let Entity::Some(names) = &objects {
        if !action.has_names() {
            let expected = r#"{"type": "ANY"} or {"type": "NONE"}, since they are allowed or denied as a whole"#;
            return Err(Invalid::new(at.path, "a list of names", expected));
        }
        for name in names {
            check_name(action, &at, name)?;
        }
    }
    Ok(Rule {
        principals,
        objects: Arc::new(objects),
    })
}

fn check_name(action: Action, at: &At<'_>, name: &str) -> Result<(), Invalid> {
    let field = || format!("{}.values", at.path);
    if action.has_roles() {
        let whole = name.strip_suffix("/%").unwrap_or(name);
        let expected = "a role, or `ROLE/%` for all below it";
        let wrong = |_| Invalid::new(field(), name, expected);
        resources::Role::new(whole).map_err(wrong)?;
        if whole.contains('%') || name == "*/%" {
            return Err(Invalid::new(field(), name, expected));
        }
    }
    if action == Action::GetEndpoints && !name.starts_with('/') {
        return Err(Invalid::new(
            field(),
            name,
            "a path, such as `/metrics/snapshot`",
        ));
    }
    Ok(())
}

fn entity(at: &At<'_>) -> Result<Entity, Invalid> {
    let [kind, values] = at.fields(["type", "values"])?;
    let kind = match &kind {
        None => "SOME",
        Some(kind) => {
            let name = kind.text()?;
            if !["SOME", "ANY", "NONE"].contains(&name) {
                return Err(Invalid::new(&kind.path, name, "SOME, ANY or NONE"));
            }
            name
        }
    };
    match (kind, values) {
        ("ANY", None) => Ok(Entity::Any),
        ("NONE", None) => Ok(Entity::None),
        ("SOME", Some(values)) => {
            let names: Result<BTreeSet<String>, Invalid> = values
                .items()?
                .map(|item| Ok(item.text()?.to_owned()))
                .collect();
            Ok(Entity::Some(names?))
        }
        ("SOME", None) => Err(Invalid::new(&at.path, "without values", ENTITY)),
        (_, Some(_)) => Err(Invalid::new(&at.path, "both a type and values", ENTITY)),
        _ => Err(at.wrong(ENTITY)),
    }
}
