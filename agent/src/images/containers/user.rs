//! The user that an image names, by the image's own lists. Pure.

use crate::host::sys::{Account, Credentials};

/// The account of `USER[:GROUP]`, names or numbers, in the texts of the image's `/etc/passwd` and
/// `/etc/group`. Without a user: root.
pub(super) fn account(named: Option<&str>, passwd: &str, group: &str) -> Result<Account, String> {
    let named = named.unwrap_or("0");
    let (user, main) = match named.split_once(':') {
        Some((user, main)) => (user, Some(main)),
        None => (named, None),
    };
    let entry = lines(passwd).find(|fields| {
        let has_name = fields.first() == Some(&user);
        has_name || (user.parse::<u32>().is_ok() && fields.get(2) == Some(&user))
    });
    let number = |field: usize| {
        entry
            .as_ref()
            .and_then(|fields| fields.get(field)?.parse().ok())
    };
    let uid = number(2).or_else(|| user.parse().ok());
    let uid =
        uid.ok_or_else(|| format!("the image names the user `{user}` and does not know it"))?;
    let name = entry.as_ref().and_then(|fields| fields.first().copied());
    let gid = match main {
        None => number(3).unwrap_or(0),
        Some(main) => {
            let known = lines(group).find(|fields| fields.first() == Some(&main));
            let known = known.and_then(|fields| fields.get(2)?.parse().ok());
            let gid = known.or_else(|| main.parse().ok());
            gid.ok_or_else(|| format!("the image names the group `{main}` and does not know it"))?
        }
    };
    let is_member = |fields: &Vec<&str>| {
        let members = fields.get(3).copied().unwrap_or_default();
        name.is_some_and(|name| members.split(',').any(|member| member == name))
    };
    let more = lines(group).filter(is_member);
    let more = more.filter_map(|fields| fields.get(2)?.parse().ok());
    let home = entry.as_ref().and_then(|fields| fields.get(5).copied());
    Ok(Account {
        name: name.unwrap_or(user).to_owned(),
        home: home.filter(|home| !home.is_empty()).unwrap_or("/").into(),
        credentials: Credentials {
            uid,
            gid,
            groups: [gid].into_iter().chain(more).collect(),
        },
    })
}

fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/home/app:\n";
    const GROUP: &str = "root:x:0:\napp:x:1001:\nlog:x:4:app,other\n";

    // Covers 5.12 Images in part: the image's User.
    #[test]
    fn users_are_names_or_numbers_of_the_image() {
        for (named, name, uid, groups, home) in [
            (None, "root", 0, vec![0], "/root"),
            (Some("app"), "app", 1000, vec![1001, 4], "/home/app"),
            (Some("1000"), "app", 1000, vec![1001, 4], "/home/app"),
            (Some("app:log"), "app", 1000, vec![4, 4], "/home/app"),
            (Some("7:8"), "7", 7, vec![8], "/"),
            (Some("7"), "7", 7, vec![0], "/"),
        ] {
            let account = account(named, PASSWD, GROUP).unwrap();
            assert_eq!(account.name, name);
            assert_eq!(account.credentials.uid, uid, "{named:?}");
            assert_eq!(account.credentials.gid, groups[0], "{named:?}");
            assert_eq!(account.credentials.groups, groups, "{named:?}");
            assert_eq!(account.home.to_str(), Some(home));
        }
        for named in ["web", "app:web", "-1"] {
            assert!(account(Some(named), PASSWD, GROUP).is_err(), "{named}");
        }
        assert!(account(None, "", "").is_ok(), "an image without lists");
    }
}
