//! The command of a container with an image: its own words, or those of the image. Pure.
//!
//! For type MESOS as in Mesos' table: a shell's line and a named file are taken as they are;
//! without a file, the arguments follow the image's entry point or else the first of its default
//! words, all of which are used only if there are no arguments. For type DOCKER as `docker run`: a
//! value and the arguments follow the entry point (SPEC 5.12).

use protocol::CommandInfo;

use crate::images::ImageConfig;

/// The command to execute in the image's root file system.
pub(super) fn command(
    own: &CommandInfo,
    image: &ImageConfig,
    is_docker: bool,
) -> Result<CommandInfo, String> {
    let has_file = !own.value.is_empty() && !is_docker;
    if own.shell || has_file {
        return Ok(own.clone());
    }
    let value = Some(&own.value).filter(|value| !value.is_empty());
    let given: Vec<&String> = value.into_iter().chain(&own.arguments).collect();
    let first_default = image.cmd.first().filter(|_| !is_docker);
    let rest = match (given.is_empty(), image.entrypoint.is_empty()) {
        (true, _) => image.cmd.iter().collect(),
        (false, true) => first_default.into_iter().chain(given).collect(),
        (false, false) => given,
    };
    let words: Vec<String> = image.entrypoint.iter().chain(rest).cloned().collect();
    let Some(file) = words.first().cloned() else {
        return Err(
            "the command has no value, and the image has neither an entry point nor default words"
                .to_owned(),
        );
    };
    Ok(CommandInfo {
        value: file,
        arguments: words,
        ..own.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetcher::digest::Digest;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn executed(
        value: &str,
        arguments: &str,
        (entrypoint, cmd): (&str, &str),
        is_docker: bool,
    ) -> Result<Vec<String>, String> {
        let own = CommandInfo {
            shell: false,
            arguments: words(arguments),
            ..CommandInfo::shell(value)
        };
        let image = ImageConfig {
            digest: Digest::of(b"x"),
            entrypoint: words(entrypoint),
            cmd: words(cmd),
            environment: Vec::new(),
            user: None,
            working_dir: None,
        };
        let command = command(&own, &image, is_docker)?;
        assert!(!command.shell);
        Ok(match command.arguments.is_empty() {
            true => vec![command.value],
            false => {
                let file = [command.value];
                let rest = command.arguments.into_iter().skip(1);
                file.into_iter().chain(rest).collect()
            }
        })
    }

    // Covers 5.12 Images.
    #[test]
    fn words_are_the_tasks_or_the_images() {
        for (value, arguments, image, is_docker, expected) in [
            ("", "", ("", "c d"), false, "c d"),
            ("", "", ("e f", ""), false, "e f"),
            ("", "", ("e", "c d"), false, "e c d"),
            ("", "a b", ("e", "c d"), false, "e a b"),
            ("", "a b", ("", "c d"), false, "c a b"),
            ("/x", "", ("e", "c"), false, "/x"),
            ("/x", "n a", ("e", "c"), false, "/x a"),
            ("v", "a b", ("e", "c"), true, "e v a b"),
            ("", "a", ("e", "c"), true, "e a"),
            ("", "", ("e", "c"), true, "e c"),
            ("v", "", ("", "c"), true, "v"),
        ] {
            let executed = executed(value, arguments, image, is_docker);
            assert_eq!(
                executed,
                Ok(words(expected)),
                "{value} {arguments} {image:?}"
            );
        }
        assert!(executed("", "", ("", ""), false).is_err());
    }

    #[test]
    fn line_of_a_shell_is_kept() {
        let image = ImageConfig {
            digest: Digest::of(b"x"),
            entrypoint: words("e"),
            cmd: Vec::new(),
            environment: Vec::new(),
            user: None,
            working_dir: None,
        };
        let line = CommandInfo::shell("exit 3");
        for is_docker in [false, true] {
            assert_eq!(command(&line, &image, is_docker), Ok(line.clone()));
        }
    }
}
