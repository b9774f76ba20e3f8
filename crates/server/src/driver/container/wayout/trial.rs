//! Whether boxes can have a way out on this host: tried for real, in a network that nobody else sees; and what a person
//! should know besides.

use std::fs::{self, File};

use super::{enter_new_network, in_thread, resolvers, rules, tools};
use crate::driver::Egress;

/// What was found out about the way out of boxes.
pub(in super::super) struct Findings {
    /// Whether it works; if not, why, and what to do about it.
    pub(in super::super) works: Result<(), String>,
    /// What lies in the way of it, each with what to do about it.
    pub(in super::super) warnings: Vec<(String, String)>,
    /// What there is to know.
    pub(in super::super) notes: Vec<String>,
}

/// Makes a link and both tables in networks of their own.
pub(super) fn try_it() -> Result<(), String> {
    let tried = in_thread(|| {
        enter_new_network()?;
        let network = File::open("/proc/thread-self/ns/net")?;
        let all = [
            tools::ip(Some(&network), "link add wan type veth peer name lan\n"),
            tools::nft(Some(&network), &rules::of_machine()),
            tools::nft(Some(&network), &rules::of_box(&Egress::open(), &[], &[])),
        ];
        Ok(all.into_iter().collect::<Result<Vec<()>, _>>())
    });
    let why = match tried {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(trouble)) => trouble.to_string(),
        Err(error) => error.to_string(),
    };
    Err(format!(
        "boxes can have no way out here: {why}; needed are the packages nftables and iproute2, and a kernel with veth, \
         nf_tables, its NAT and its reject"
    ))
}

/// Looks at all that a way out needs.
pub(in super::super) fn look() -> Findings {
    let works = try_it();
    let (mut warnings, mut notes) = (Vec::new(), Vec::new());
    let found = resolvers::of_machine();
    if found.usable.is_empty() {
        let others: Vec<String> = found.others.iter().map(ToString::to_string).collect();
        let named = if others.is_empty() {
            "none is named".to_owned()
        } else {
            format!("only this machine reaches {}", others.join(", "))
        };
        warnings.push((
            format!("boxes cannot resolve names: of the host's name servers, {named}"),
            "name others as `resolvers` in `[egress]` of the settings file".to_owned(),
        ));
    } else {
        let named: Vec<String> = found.usable.iter().map(ToString::to_string).collect();
        notes.push(format!("names by {}", named.join(", ")));
    }
    for chain in dropping_chains() {
        warnings.push((
            format!("another firewall drops what is forwarded: {chain}"),
            "let interfaces `icebox*` through there, in both directions".to_owned(),
        ));
    }
    let forwards = fs::read_to_string("/proc/sys/net/ipv4/ip_forward");
    if forwards.is_ok_and(|on| on.trim() == "0") {
        notes.push("sets net.ipv4.ip_forward when the first box needs it".to_owned());
    }
    Findings {
        works,
        warnings,
        notes,
    }
}

/// Chains of others on the host that drop forwarded packets unless they say otherwise.
fn dropping_chains() -> Vec<String> {
    dropping(&tools::chains().unwrap_or_default())
}

fn dropping(text: &str) -> Vec<String> {
    let (mut table, mut chain, mut found) = ("", "", Vec::new());
    for line in text.lines().map(str::trim) {
        let opened = |kind: &str| line.strip_prefix(kind)?.strip_suffix(" {");
        if let Some(name) = opened("table ") {
            table = name;
        } else if let Some(name) = opened("chain ") {
            chain = name;
        } else if line.contains("hook forward") && line.contains("policy drop") {
            found.push(format!("table {table}, chain {chain}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firewalls_that_drop_are_named() {
        let text = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy drop;\n\t}\n\
                    \tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n\
                    table inet icebox {\n\tchain forward {\n\t\ttype filter hook forward priority filter - 10; \
                    policy accept;\n\t}\n}\n";
        assert_eq!(dropping(text), ["table ip filter, chain FORWARD"]);
    }
}
