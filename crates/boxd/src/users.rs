//! Users and groups, read from `/etc/passwd` and `/etc/group` by ourselves.
//!
//! boxd is linked statically, so the C library's name service is out of reach; in a box the two files are all there is.

use std::collections::HashMap;
use std::fs;

use crate::error::Error;

/// Whom a process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Every group, the first one included.
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
    pub(crate) shell: String,
}

impl User {
    /// Looks `name` up; empty means root, who exists even where no file says so.
    pub(crate) fn find(name: &str) -> Result<Self, Error> {
        let name = if name.is_empty() { "root" } else { name };
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let mut user = match parse_passwd(&passwd, name) {
            Some(user) => user,
            None if name == "root" => root(),
            None => return Err(Error::NoUser(name.to_owned())),
        };
        if user.uid != 0 {
            let group = fs::read_to_string("/etc/group").unwrap_or_default();
            add_groups(&group, &mut user);
        }
        Ok(user)
    }
}

/// The names of all users, or of all groups, by number.
pub(crate) fn names(file: &str) -> HashMap<u32, String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let entries = text.lines().rev().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
    });
    entries.collect()
}

fn root() -> User {
    User {
        name: "root".to_owned(),
        uid: 0,
        gid: 0,
        groups: vec![0],
        home: "/root".to_owned(),
        shell: "/bin/sh".to_owned(),
    }
}

fn parse_passwd(text: &str, name: &str) -> Option<User> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        let home = fields.nth(1)?;
        let shell = fields
            .next()
            .filter(|shell| !shell.is_empty())
            .unwrap_or("/bin/sh");
        Some(User {
            name: name.to_owned(),
            uid,
            gid,
            groups: vec![gid],
            home: if home.is_empty() { "/" } else { home }.to_owned(),
            shell: shell.to_owned(),
        })
    })
}

fn add_groups(text: &str, user: &mut User) {
    for line in text.lines() {
        let mut fields = line.split(':');
        let (Some(gid), Some(members)) = (
            fields.nth(2).and_then(|gid| gid.parse().ok()),
            fields.next(),
        ) else {
            continue;
        };
        if !user.groups.contains(&gid) && members.split(',').any(|member| member == user.name) {
            user.groups.push(gid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\nuser:x:1000:1001:,,,:/home/user:/bin/zsh\nbare:x:7:7:::\n";

    #[test]
    fn finds_a_user_with_home_shell_and_groups() {
        let mut user = parse_passwd(PASSWD, "user").expect("user is listed");
        add_groups(
            "sudo:x:27:user,other\nuser:x:1001:\nuserx:x:5:userx\nbad\n",
            &mut user,
        );
        assert_eq!((user.uid, user.gid), (1000, 1001));
        assert_eq!(user.groups, [1001, 27]);
        assert_eq!(
            (user.home.as_str(), user.shell.as_str()),
            ("/home/user", "/bin/zsh")
        );
    }

    #[test]
    fn empty_fields_get_usable_values() {
        let user = parse_passwd(PASSWD, "bare").expect("bare is listed");
        assert_eq!((user.home.as_str(), user.shell.as_str()), ("/", "/bin/sh"));
        assert_eq!(parse_passwd(PASSWD, "nobody"), None);
    }
}
