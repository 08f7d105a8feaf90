//! Manifest: the JSON value of `--modules`, in Mesos' form, or the files of `--modules_dir`.
//!
//! As in Mesos and its documentation, a single object may stand for a list of objects. A linked-in
//! module takes precedence, and its library file is never opened. The file of any other module is
//! an executable, which serves the module (see [`crate::serve`]). Does not start modules.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::nearest;
use crate::parameters::Parameters;
use crate::registry::Registry;

/// Bytes of the longest accepted manifest file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Errors in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The text is not JSON.
    #[error("--modules is not JSON: {reason}")]
    NotJson {
        /// Position and reason.
        reason: String,
    },
    /// The file cannot be read.
    #[error("{flag}: {path} cannot be read: {reason}")]
    Unreadable {
        /// The flag that names the file or its directory.
        flag: &'static str,
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// A field is missing or invalid.
    #[error("--modules: {field} is {found}: expected {expected}")]
    Field {
        /// Path of the field, e.g. `libraries[0].modules[1].name`.
        field: String,
        /// The value found.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// Two modules have the same name.
    #[error("--modules: {field} is `{name}`: expected each module name once")]
    Duplicate {
        /// Path of the second one.
        field: String,
        /// The name.
        name: String,
    },
    /// A file of `--modules_dir` has an error.
    #[error("--modules_dir: {path}: {problem}")]
    InDirectory {
        /// The file.
        path: String,
        /// The error.
        problem: Box<ManifestError>,
    },
    /// A module is neither linked in nor in an existing file.
    #[error(
        "--modules: module `{name}` is not linked in{hint}, and its library {library} does not exist: expected the name of a linked-in module, or the path of an executable"
    )]
    NoModule {
        /// Name of the module.
        name: String,
        /// The linked-in module with the nearest name.
        hint: String,
        /// Its library.
        library: String,
    },
    /// The file of a module cannot be started.
    #[error(
        "--modules: module `{name}` is not linked in, and its library {library} is {found}: expected an executable file"
    )]
    NotExecutable {
        /// Name of the module.
        name: String,
        /// Its library.
        library: String,
        /// The kind of file.
        found: &'static str,
    },
}

/// The configured location of a module's code.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Library {
    File(PathBuf),
    Name(String),
    Unspecified,
}

impl Library {
    /// Path of the file, if one is configured. A bare name `x` means `libx.so` on a search path and
    /// has none.
    fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }
}

impl std::fmt::Display for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Name(name) => write!(f, "lib{name}.so"),
            Self::Unspecified => f.write_str("(none given)"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    library: Library,
    parameters: Parameters,
}

/// A module that is not linked in, and its executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignModule {
    /// Name of the module.
    pub name: String,
    /// The absolute path of its executable.
    pub program: PathBuf,
}

/// The configured modules by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    modules: BTreeMap<String, Entry>,
}

impl Manifest {
    /// Parses the value of `--modules`: JSON, or the path of a JSON file, with or without
    /// `file://`.
    pub fn parse(given: &str) -> Result<Self, ManifestError> {
        let given = given.trim();
        if given.starts_with(['{', '[']) || given.is_empty() {
            return Self::from_json(given);
        }
        let path = Path::new(given.strip_prefix("file://").unwrap_or(given));
        Self::read("--modules", path)
    }

    /// Reads all files of a directory, in the order of their names: the value of `--modules_dir`.
    /// Subdirectories and files whose names begin with a dot are skipped.
    pub fn read_directory(directory: &Path) -> Result<Self, ManifestError> {
        let flag = "--modules_dir";
        let unreadable = |error: std::io::Error| ManifestError::Unreadable {
            flag,
            path: directory.display().to_string(),
            reason: error.to_string(),
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !is_hidden && entry.path().is_file() {
                files.push(entry.path());
            }
        }
        files.sort();
        let mut manifest = Self::default();
        for file in files {
            let added = Self::read(flag, &file).and_then(|more| manifest.merge(more));
            added.map_err(|error| match error {
                unreadable @ ManifestError::Unreadable { .. } => unreadable,
                error => ManifestError::InDirectory {
                    path: file.display().to_string(),
                    problem: Box::new(error),
                },
            })?;
        }
        Ok(manifest)
    }

    fn merge(&mut self, more: Self) -> Result<(), ManifestError> {
        for (name, entry) in more.modules {
            if self.modules.contains_key(&name) {
                let field = "a module of an earlier file".to_owned();
                return Err(ManifestError::Duplicate { field, name });
            }
            self.modules.insert(name, entry);
        }
        Ok(())
    }

    fn read(flag: &'static str, path: &Path) -> Result<Self, ManifestError> {
        let unreadable = |reason: String| ManifestError::Unreadable {
            flag,
            path: path.display().to_string(),
            reason,
        };
        let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
        if size.len() > FILE_BYTES_MAX {
            return Err(unreadable(format!(
                "it has {} bytes, expected at most {FILE_BYTES_MAX}",
                size.len()
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        Self::from_json(&text)
    }

    fn from_json(text: &str) -> Result<Self, ManifestError> {
        let json: Value = serde_json::from_str(text).map_err(|error| ManifestError::NotJson {
            reason: error.to_string(),
        })?;
        let top = Field::new("the top", &json).object(&["libraries"])?;
        let mut manifest = Self::default();
        for library in top.list("libraries")? {
            let library = library.object(&["file", "name", "modules"])?;
            let place = match (library.text("file")?, library.text("name")?) {
                (Some(file), _) => Library::File(PathBuf::from(file)),
                (None, Some(name)) => Library::Name(name),
                (None, None) => Library::Unspecified,
            };
            for module in library.list("modules")? {
                manifest.add(&place, module)?;
            }
        }
        Ok(manifest)
    }

    fn add(&mut self, library: &Library, module: Field<'_>) -> Result<(), ManifestError> {
        let field = module.path.clone();
        let module = module.object(&["name", "parameters"])?;
        let name = module.required("name")?;
        let mut parameters = Parameters::none(&name);
        for parameter in module.list("parameters")? {
            let field = parameter.path.clone();
            let parameter = parameter.object(&["key", "value"])?;
            let (key, value) = (parameter.required("key")?, parameter.required("value")?);
            if parameters.get(&key).is_some() {
                let expected = "each key once";
                return Err(wrong(format!("{field}.key"), format!("`{key}`"), expected));
            }
            parameters = parameters.with(key, value);
        }
        let entry = Entry {
            library: library.clone(),
            parameters,
        };
        if self.modules.contains_key(&name) {
            let field = format!("{field}.name");
            return Err(ManifestError::Duplicate { field, name });
        }
        self.modules.insert(name, entry);
        Ok(())
    }

    /// Whether it lists this module.
    pub fn names(&self, module: &str) -> bool {
        self.modules.contains_key(module)
    }

    /// Names of its modules, sorted.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    /// Parameters of this module; empty if it is not listed. [`Registry::parameters`] also looks
    /// under the module's other names.
    pub fn parameters(&self, module: &str) -> Parameters {
        match self.modules.get(module) {
            Some(entry) => entry.parameters.clone(),
            None => Parameters::none(module),
        }
    }

    /// The modules that are not linked in, each with its executable. Rejects those without one.
    /// Logs each library that is not opened.
    pub fn foreign(&self, registry: &Registry) -> Result<Vec<ForeignModule>, ManifestError> {
        let mut foreign = Vec::new();
        for (name, entry) in &self.modules {
            let library = entry.library.to_string();
            if registry.knows(name) {
                tracing::info!(
                    module = name,
                    library,
                    "using the linked-in module, not opening its library"
                );
                continue;
            }
            let name = name.clone();
            let program = entry.library.path().filter(|path| path.exists());
            let Some(program) = program else {
                let hint = nearest(&name, registry.names());
                return Err(ManifestError::NoModule {
                    name,
                    hint,
                    library,
                });
            };
            if let Some(found) = not_executable(program) {
                return Err(ManifestError::NotExecutable {
                    name,
                    library,
                    found,
                });
            }
            if is_writable_by_all(program) {
                tracing::warn!(module = name, library, "all users can replace the module");
            }
            let program = std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
            foreign.push(ForeignModule { name, program });
        }
        Ok(foreign)
    }
}

/// Why this existing file cannot be started, if so. A library of Mesos often has an executable's
/// mode.
fn not_executable(path: &Path) -> Option<&'static str> {
    let mode = std::fs::metadata(path).map(|data| (data.is_file(), data.permissions().mode()));
    match mode {
        _ if path.extension().is_some_and(|extension| extension == "so") => {
            Some("a shared library")
        }
        Ok((false, _)) => Some("not a file"),
        Ok((true, mode)) if mode & 0o111 == 0 => Some("a file without execute permission"),
        Ok(_) => None,
        Err(_) => Some("unreadable"),
    }
}

/// Whether every user can write this file, or replace it in its directory.
fn is_writable_by_all(path: &Path) -> bool {
    let mode = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.permissions().mode());
    // In a sticky directory only its owner can replace a file.
    let replaceable = |directory: &Path| mode(directory) & 0o1002 == 0o002;
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    mode(&path) & 0o002 != 0 || path.parent().is_some_and(replaceable)
}

/// A value with its path.
struct Field<'a> {
    path: String,
    value: &'a Value,
}

/// A JSON object with its path.
struct Object<'a> {
    path: String,
    fields: &'a serde_json::Map<String, Value>,
}

impl<'a> Field<'a> {
    fn new(path: impl Into<String>, value: &'a Value) -> Self {
        let path = path.into();
        Self { path, value }
    }

    fn object(self, known: &[&'static str]) -> Result<Object<'a>, ManifestError> {
        let Some(fields) = self.value.as_object() else {
            return Err(wrong(self.path, brief(self.value), "an object"));
        };
        let path = if self.path == "the top" {
            String::new()
        } else {
            self.path
        };
        let object = Object { path, fields };
        match fields.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(wrong(object.at(key), "given".into(), "no such field")),
            None => Ok(object),
        }
    }
}

impl<'a> Object<'a> {
    fn at(&self, key: &str) -> String {
        let key: String = key.chars().take(80).collect();
        match self.path.as_str() {
            "" => key,
            path => format!("{path}.{key}"),
        }
    }

    /// The objects of a repeated field: a list, or a single object.
    fn list(&self, key: &str) -> Result<Vec<Field<'a>>, ManifestError> {
        let path = self.at(key);
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(values)) => Ok(values
                .iter()
                .enumerate()
                .map(|(n, value)| Field::new(format!("{path}[{n}]"), value))
                .collect()),
            Some(value @ Value::Object(_)) => Ok(vec![Field::new(path, value)]),
            Some(value) => Err(wrong(path, brief(value), "an object or a list of objects")),
        }
    }

    fn text(&self, key: &str) -> Result<Option<String>, ManifestError> {
        match self.fields.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(value) => Err(wrong(self.at(key), brief(value), "a text")),
        }
    }

    fn required(&self, key: &str) -> Result<String, ManifestError> {
        match self.text(key)? {
            Some(text) if !text.is_empty() => Ok(text),
            Some(_) => Err(wrong(self.at(key), "empty".into(), "a text")),
            None => Err(wrong(self.at(key), "missing".into(), "a text")),
        }
    }
}

fn wrong(field: String, found: String, expected: &'static str) -> ManifestError {
    ManifestError::Field {
        field,
        found,
        expected,
    }
}

/// A value, shortened for an error text.
fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("`{}...`", &text[..at]),
        None => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S37, as its users copy it: single objects where lists are meant.
    const FIXED: &str = r#"{
  "libraries": {
    "file": "/usr/local/lib64/libfixed_resource_estimator.so",
    "modules": {
      "name": "org_apache_mesos_FixedResourceEstimator",
      "parameters": {
        "key": "resources",
        "value": "cpus:14"
      }
    }
  }
}"#;

    /// S38: a list of parameters within single objects.
    const LOAD: &str = r#"{
  "libraries": {
    "file": "/usr/local/lib64/libload_qos_controller.so",
    "modules": {
      "name": "org_apache_mesos_LoadQoSController",
      "parameters": [
        {
          "key": "load_threshold_5min",
          "value": "6"
        },
        {
      "key": "load_threshold_15min",
      "value": "4"
        }
      ]
    }
  }
}"#;

    fn registry() -> Registry {
        let mut registry = Registry::new();
        registry.add_resource_estimator(
            &["fixed", "org_apache_mesos_FixedResourceEstimator"],
            |_, _| {
                Err(crate::ModuleError::Down {
                    kind: crate::ModuleKind::ResourceEstimator,
                })
            },
        );
        registry
    }

    // Covers S37 in part: read and estimated, not offered.
    // Covers S38 in part: what is read and advised, not the 20 seconds.
    #[test]
    fn single_objects_are_accepted_for_lists() {
        let fixed = Manifest::parse(FIXED).unwrap();
        let given = fixed.parameters("org_apache_mesos_FixedResourceEstimator");
        assert_eq!(given.get("resources"), Some("cpus:14"));
        let load = Manifest::parse(LOAD).unwrap();
        let given = load.parameters("org_apache_mesos_LoadQoSController");
        let given: Vec<_> = given.iter().collect();
        assert_eq!(
            given,
            [("load_threshold_15min", "4"), ("load_threshold_5min", "6")]
        );
    }

    #[test]
    fn lists_mean_the_same_as_single_objects() {
        let lists = r#"{"libraries":[{"name":"fixed_resource_estimator","modules":[
            {"name":"org_apache_mesos_FixedResourceEstimator","parameters":[{"key":"resources","value":"cpus:14"}]},
            {"name":"other"}]}]}"#;
        let manifest = Manifest::parse(lists).unwrap();
        assert_eq!(
            manifest.parameters("org_apache_mesos_FixedResourceEstimator"),
            Manifest::parse(FIXED)
                .unwrap()
                .parameters("org_apache_mesos_FixedResourceEstimator")
        );
        assert_eq!(manifest.modules().count(), 2);
    }

    #[test]
    fn a_module_finds_its_parameters_under_any_of_its_names() {
        let manifest = Manifest::parse(FIXED).unwrap();
        for name in ["fixed", "org_apache_mesos_FixedResourceEstimator"] {
            let given = registry().parameters(&manifest, name);
            assert_eq!(given.get("resources"), Some("cpus:14"), "{name}");
        }
        assert_eq!(registry().parameters(&manifest, "noop").iter().count(), 0);
    }

    #[test]
    fn linked_in_module_takes_precedence_over_its_library() {
        let foreign = |text: &str| Manifest::parse(text).unwrap().foreign(&registry());
        assert_eq!(foreign(FIXED), Ok(Vec::new()));
        let error = foreign(LOAD);
        assert!(
            matches!(error, Err(ManifestError::NoModule { .. })),
            "{error:?}"
        );
        let error = foreign(r#"{"libraries":{"modules":{"name":"fixd"}}}"#).unwrap_err();
        let hint = "module `fixd` is not linked in (did you mean `fixed`?)";
        assert!(error.to_string().contains(hint), "{error}");
    }

    #[test]
    fn foreign_module_needs_an_executable() {
        let directory = tempfile::tempdir().unwrap();
        let foreign = |path: &Path| {
            let file = path.display();
            let text =
                format!(r#"{{"libraries":{{"file":"{file}","modules":{{"name":"mine"}}}}}}"#);
            Manifest::parse(&text).unwrap().foreign(&registry())
        };
        let refused = |path: &Path| foreign(path).unwrap_err().to_string();
        assert!(refused(directory.path()).contains("is not a file: expected an executable"));
        for (name, mode, found) in [
            ("libmine.so", 0o755, "is a shared library"),
            ("plain", 0o644, "is a file without execute permission"),
            ("mine", 0o755, ""),
        ] {
            let path = directory.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match found {
                "" => {
                    let name = "mine".to_owned();
                    let program = path.clone();
                    assert_eq!(foreign(&path), Ok(vec![ForeignModule { name, program }]));
                }
                _ => assert!(refused(&path).contains(found), "{}", refused(&path)),
            }
        }
    }

    #[test]
    fn files_that_all_users_can_replace_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine");
        std::fs::write(&file, "").unwrap();
        for (directory_mode, file_mode, expected) in [
            (0o755, 0o755, false),
            (0o755, 0o757, true),
            (0o777, 0o755, true),
            (0o1777, 0o755, false),
        ] {
            let set = |path: &Path, mode| {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            };
            set(directory.path(), directory_mode);
            set(&file, file_mode);
            assert_eq!(is_writable_by_all(&file), expected, "{directory_mode:o}");
        }
    }

    #[test]
    fn files_of_a_directory_are_read_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write("2-load.json", LOAD);
        write("1-fixed.json", FIXED);
        write(".1-fixed.json.swp", "not JSON");
        let manifest = Manifest::read_directory(directory.path()).unwrap();
        assert_eq!(
            manifest.modules().collect::<Vec<_>>(),
            [
                "org_apache_mesos_FixedResourceEstimator",
                "org_apache_mesos_LoadQoSController"
            ]
        );
        write("3-fixed.json", FIXED);
        let error = Manifest::read_directory(directory.path()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("3-fixed.json: --modules: a module of an earlier file is `org_"));
        write("0-broken.json", "{");
        let error = Manifest::read_directory(directory.path()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("0-broken.json: --modules is not")
        );
        let error = Manifest::read_directory(Path::new("/nowhere/at/all")).unwrap_err();
        let expected = "--modules_dir: /nowhere/at/all cannot be read: No such file or directory";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    #[test]
    fn errors_name_the_path() {
        for (text, expected) in [
            (
                "",
                "--modules is not JSON: EOF while parsing a value at line 1 column 0",
            ),
            ("[]", "--modules: the top is `[]`: expected an object"),
            (
                r#"{"libs":{}}"#,
                "--modules: libs is given: expected no such field",
            ),
            (
                r#"{"libraries":7}"#,
                "--modules: libraries is `7`: expected an object or a list of objects",
            ),
            (
                r#"{"libraries":[{"modules":[{"name":"a"},{}]}]}"#,
                "--modules: libraries[0].modules[1].name is missing: expected a text",
            ),
            (
                r#"{"libraries":[{"modules":[{"name":"a"},{"name":"a"}]}]}"#,
                "--modules: libraries[0].modules[1].name is `a`: expected each module name once",
            ),
            (
                r#"{"libraries":{"modules":{"name":"a","parameters":{"key":"k","value":14}}}}"#,
                "--modules: libraries.modules.parameters.value is `14`: expected a text",
            ),
        ] {
            assert_eq!(Manifest::parse(text).unwrap_err().to_string(), expected);
        }
        let error = Manifest::parse("file:///nowhere/at/all.json").unwrap_err();
        let expected = "--modules: /nowhere/at/all.json cannot be read: No such file";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
