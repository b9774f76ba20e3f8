//! The rules, as nft reads them. Each text makes its table anew in one transaction, so that there is no moment between.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::machine::{LINKS_BITS, LINKS_FIRST};
use super::resolvers::SECOND;
use super::{BOX_ADDRESS, GATEWAY};
use crate::driver::egress::{Egress, NEVER, PRIVATE, Range};

/// No table.
pub(super) const NONE: &str = "add table inet icebox\ndelete table inet icebox\n";

/// The table in the gateway of a box on a machine with these addresses, which boxes do not reach even while somebody has
/// emptied the machine's own rules. A packet is judged by where its connection was meant to go, in both directions and
/// each time, so that a changed setting holds for connections that are open.
pub(super) fn of_box(egress: &Egress, resolvers: &[Ipv4Addr], machine: &[Range]) -> String {
    let (private, public): (Vec<Range>, Vec<Range>) =
        egress.allow.iter().partition(|range| range.is_private());
    let sets = [
        ("never", &NEVER[..]),
        ("machine", machine),
        ("private", &PRIVATE),
        ("allowed_private", &private),
        ("allowed", &public),
        ("denied", &egress.deny),
    ];
    let sets: String = sets.into_iter().map(|(name, has)| set(name, has)).collect();
    let names = name_servers(resolvers);
    let rest = if egress.open { "accept" } else { "goto refuse" };
    format!(
        "{NONE}\
         table inet icebox {{\n\
         {sets}\
         chain names {{\n type nat hook prerouting priority dstnat;\n{names}}}\n\
         chain hide {{\n type nat hook postrouting priority srcnat;\n oifname \"wan\" masquerade\n}}\n\
         chain forward {{\n\
         type filter hook forward priority filter; policy drop;\n\
         meta nfproto != ipv4 drop\n\
         iifname \"lan\" ip saddr != {BOX_ADDRESS} drop\n\
         iifname \"wan\" ct direction original drop\n\
         ct state invalid drop\n\
         ct state related accept\n\
         ct status dnat accept\n\
         ct original ip daddr @never goto refuse\n\
         ct original ip daddr @machine goto refuse\n\
         ct original ip daddr @allowed_private accept\n\
         ct original ip daddr @private goto refuse\n\
         ct original ip daddr @allowed accept\n\
         ct original ip daddr @denied goto refuse\n\
         {rest}\n\
         }}\n\
         chain refuse {{\n\
         meta l4proto tcp ct state established reject with tcp reset\n\
         ct direction original reject with icmpx admin-prohibited\n\
         drop\n\
         }}\n\
         chain input {{\n\
         type filter hook input priority filter; policy drop;\n\
         reject with icmpx admin-prohibited\n\
         }}\n\
         }}\n"
    )
}

/// The table on the machine: boxes reach neither it, by whichever of its addresses, nor what it hands on from there (ports of
/// other containers that it publishes), nor each other, nor what is link-local. It looks at nothing that does not come from
/// or go to a box.
pub(super) fn of_machine() -> String {
    format!(
        "{NONE}\
         table inet icebox {{\n\
         chain arrive {{\n\
         type filter hook prerouting priority dstnat - 10;\n\
         iifname \"icebox*\" fib daddr type {{ local, broadcast, multicast }} reject with icmpx admin-prohibited\n\
         }}\n\
         chain input {{\n\
         type filter hook input priority filter - 10;\n\
         iifname \"icebox*\" reject with icmpx admin-prohibited\n\
         }}\n\
         chain forward {{\n\
         type filter hook forward priority filter - 10;\n\
         iifname != \"icebox*\" oifname != \"icebox*\" accept\n\
         meta nfproto != ipv4 drop\n\
         iifname \"icebox*\" oifname \"icebox*\" reject with icmpx admin-prohibited\n\
         iifname \"icebox*\" ip saddr != {LINKS_FIRST}/{LINKS_BITS} drop\n\
         iifname \"icebox*\" ip daddr 169.254.0.0/16 reject with icmpx admin-prohibited\n\
         oifname \"icebox*\" ct direction original drop\n\
         tcp flags syn tcp option maxseg size set rt mtu\n\
         }}\n\
         chain hide {{\n\
         type nat hook postrouting priority srcnat;\n\
         ip saddr {LINKS_FIRST}/{LINKS_BITS} oifname != \"icebox*\" masquerade\n\
         }}\n\
         }}\n"
    )
}

fn set(name: &str, ranges: &[Range]) -> String {
    let mut text = format!("set {name} {{\n type ipv4_addr; flags interval; auto-merge\n");
    if !ranges.is_empty() {
        let ranges: Vec<String> = ranges.iter().map(Range::to_string).collect();
        // A text takes it all.
        let _ = writeln!(text, " elements = {{ {} }}", ranges.join(", "));
    }
    text + "}\n"
}

/// Questions to the gateway go to the host's name servers, whichever these are at the moment.
fn name_servers(resolvers: &[Ipv4Addr]) -> String {
    let Some(first) = resolvers.first() else {
        return String::new();
    };
    let second = resolvers.get(1).unwrap_or(first);
    [(GATEWAY, first), (SECOND, second)]
        .into_iter()
        .map(|(asked, answers)| {
            format!(
                " iifname \"lan\" ip daddr {asked} meta l4proto {{ tcp, udp }} th dport 53 dnat ip to {answers}\n"
            )
        })
        .collect()
}
