//! Rulesets as `nft -j list ruleset` prints them, and the fate of packets in them.

use super::*;
use crate::doctor::Verdict;

fn suspect() -> Suspect {
    Suspect {
        interface: "eth0".to_owned(),
        group: [232, 1, 1, 1].into(),
        port: 7702,
        purpose: None,
        source: Some([10, 1, 0, 1].into()),
        is_bridge: false,
    }
}

/// Creates a ruleset of one table `inet f` with the chain `i` at the input, and further objects.
fn firewall(policy: &str, rules: &[&str], more: &[&str]) -> Firewall {
    let mut objects = vec![format!(
        r#"{{"chain":{{"family":"inet","table":"f","name":"i","handle":1,"type":"filter",
            "hook":"input","prio":0,"policy":"{policy}"}}}}"#
    )];
    objects.extend(more.iter().map(ToString::to_string));
    for (handle, expression) in rules.iter().enumerate() {
        let handle = handle + 2;
        objects.push(format!(
            r#"{{"rule":{{"family":"inet","table":"f","chain":"i","handle":{handle},
                "expr":[{expression}]}}}}"#
        ));
    }
    let text = format!(r#"{{"nftables":[{}]}}"#, objects.join(","));
    Firewall { rules: Ok(Ruleset::parse(&text).unwrap()) }
}

const DROP: &str = r#"{"drop":null}"#;
const ACCEPT: &str = r#"{"accept":null}"#;

fn matching(protocol: &str, field: &str, operator: &str, right: &str) -> String {
    format!(
        r#"{{"match":{{"op":"{operator}","left":{{"payload":{{"protocol":"{protocol}",
            "field":"{field}"}}}},"right":{right}}}}}"#
    )
}

fn meta(key: &str, right: &str) -> String {
    format!(r#"{{"match":{{"op":"==","left":{{"meta":{{"key":"{key}"}}}},"right":{right}}}}}"#)
}

fn verdict(firewall: &Firewall, delivered: bool) -> Verdict {
    firewall.check_data(&suspect(), delivered).verdict
}

fn rule(parts: &[&str]) -> String {
    parts.join(",")
}

#[test]
fn a_rule_that_drops_the_port_is_named_with_one_that_lets_it_in() {
    for right in ["7702", r#"{"set":[80,{"range":[7000,7800]}]}"#, r#"{"range":[7702,7702]}"#] {
        let port = matching("udp", "dport", "==", right);
        let found = firewall("accept", &[&rule(&[&port, DROP])], &[]).check_data(&suspect(), false);
        assert_eq!(found.verdict, Verdict::Problem);
        assert!(
            found.what.contains("table `inet f` drops IPv4 multicast to UDP port 7702"),
            "{found}"
        );
        let mend = "nft insert rule inet f i ip daddr 224.0.0.0/4 udp dport 7702 accept";
        assert_eq!(found.mend.as_deref(), Some(mend));
    }
}

#[test]
fn rules_about_other_packets_drop_nothing() {
    let others = [
        matching("udp", "dport", "==", "7703"),
        matching("tcp", "dport", "==", "7702"),
        matching("ip", "daddr", "==", r#"{"prefix":{"addr":"239.0.0.0","len":8}}"#),
        matching("ip6", "daddr", "==", r#"{"prefix":{"addr":"ff00::","len":8}}"#),
        matching("ip", "saddr", "==", r#""10.1.0.2""#),
        matching("ip", "daddr", "!=", r#""232.1.1.1""#),
        matching("ip", "protocol", "==", r#""igmp""#),
        matching("udp", "dport", "<", "7702"),
        meta("iifname", r#""eth1""#),
        meta("iifname", r#""ens*""#),
        meta("pkttype", r#""broadcast""#),
        meta("nfproto", r#""ipv6""#),
        r#"{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["invalid","established"]}}"#
            .to_owned(),
    ];
    for other in others {
        let firewall = firewall("accept", &[&rule(&[&other, DROP])], &[]);
        assert_eq!(verdict(&firewall, true), Verdict::Ok, "{other}");
    }
}

#[test]
fn rules_about_the_packet_drop_it() {
    let ours = [
        matching("ip", "daddr", "==", r#"{"prefix":{"addr":"224.0.0.0","len":4}}"#),
        matching("ip", "daddr", "==", r#"{"range":["232.0.0.0","232.255.255.255"]}"#),
        matching("ip", "saddr", "==", r#""10.1.0.1""#),
        matching("ip", "saddr", "!=", r#""10.1.0.2""#),
        matching("udp", "dport", ">=", "1024"),
        meta("iifname", r#""eth*""#),
        meta("pkttype", r#""multicast""#),
        meta("l4proto", r#"{"set":["tcp","udp"]}"#),
        r#"{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["invalid","new"]}}"#
            .to_owned(),
        r#"{"match":{"op":"==","left":{"fib":{"result":"type","flags":["daddr"]}},
            "right":"multicast"}}"#
            .to_owned(),
    ];
    for own in ours {
        let counted = rule(&[&own, r#"{"counter":{"packets":0,"bytes":0}}"#, DROP]);
        let firewall = firewall("accept", &[&counted], &[]);
        assert_eq!(verdict(&firewall, true), Verdict::Problem, "{own}");
    }
}

#[test]
fn a_policy_that_drops_is_named_unless_a_rule_lets_the_packet_in() {
    let established =
        r#"{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["established","related"]}}"#;
    let replies = rule(&[established, ACCEPT]);
    let found = firewall("drop", &[&replies], &[]).check_data(&suspect(), false);
    assert!(found.what.contains("the policy of chain `i`"), "{found}");
    let port = rule(&[&matching("udp", "dport", "==", "7702"), ACCEPT]);
    assert_eq!(verdict(&firewall("drop", &[&replies, &port], &[]), true), Verdict::Ok);
}

#[test]
fn what_cannot_be_known_is_blamed_only_if_the_trial_failed() {
    let limit = r#"{"limit":{"rate":10,"per":"second"}}"#;
    let rules = firewall("accept", &[&rule(&[limit, DROP])], &[]);
    assert_eq!(verdict(&rules, true), Verdict::Ok);
    let found = rules.check_data(&suspect(), false);
    assert!(found.what.contains("rule 2"), "{found}");
    let accepting = firewall("drop", &[&rule(&[limit, ACCEPT])], &[]);
    assert_eq!(verdict(&accepting, true), Verdict::Ok);
    assert_eq!(verdict(&accepting, false), Verdict::Problem);
}

#[test]
fn chains_are_followed_and_return() {
    let chain = r#"{"chain":{"family":"inet","table":"f","name":"other","handle":9}}"#;
    let drop = format!(
        r#"{{"rule":{{"family":"inet","table":"f","chain":"other","handle":20,"expr":[{}]}}}}"#,
        rule(&[&matching("udp", "dport", "==", "7702"), DROP])
    );
    let jump = r#"{"jump":{"target":"other"}}"#;
    let found = firewall("accept", &[jump], &[chain, &drop]).check_data(&suspect(), true);
    assert!(found.mend.unwrap().starts_with("nft insert rule inet f other "));
    let back = drop.replace("drop", "return").replace("\"inreturn\"", "\"indrop\"");
    assert_eq!(verdict(&firewall("accept", &[jump], &[chain, &back]), true), Verdict::Ok);
    assert_eq!(
        verdict(&firewall("accept", &[jump, DROP], &[chain, &back]), true),
        Verdict::Problem
    );
    let endless = r#"{"rule":{"family":"inet","table":"f","chain":"other","handle":20,
        "expr":[{"jump":{"target":"other"}}]}}"#;
    assert_eq!(verdict(&firewall("accept", &[jump], &[chain, endless]), true), Verdict::Ok);
}

#[test]
fn sets_and_verdict_maps_are_looked_up() {
    let set = r#"{"set":{"family":"inet","name":"ports","table":"f","type":"inet_service",
        "handle":7,"elem":[80,7702]}}"#;
    let named = rule(&[&matching("udp", "dport", "==", r#""@ports""#), DROP]);
    assert_eq!(verdict(&firewall("accept", &[&named], &[set]), true), Verdict::Problem);
    let map = |verdict: &str| {
        format!(
            r#"{{"vmap":{{"key":{{"payload":{{"protocol":"udp","field":"dport"}}}},
                "data":{{"set":[[80,{{"accept":null}}],[7702,{{"{verdict}":null}}]]}}}}}}"#
        )
    };
    assert_eq!(verdict(&firewall("accept", &[&map("drop")], &[]), true), Verdict::Problem);
    assert_eq!(verdict(&firewall("drop", &[&map("accept")], &[]), true), Verdict::Ok);
}

#[test]
fn dropped_queries_and_reports_are_named() {
    let igmp = rule(&[&matching("ip", "protocol", "==", r#""igmp""#), DROP]);
    let found = firewall("accept", &[&igmp], &[]).check_membership(&suspect());
    assert_eq!(found.verdict, Verdict::Problem);
    assert!(found.what.contains("IGMP queries"), "{found}");
    assert_eq!(found.mend.as_deref(), Some("nft insert rule inet f i ip protocol igmp accept"));
    let output = r#"{"chain":{"family":"ip","table":"g","name":"o","handle":1,"type":"filter",
        "hook":"output","prio":0,"policy":"drop"}}"#;
    let found = firewall("accept", &[], &[output]).check_membership(&suspect());
    assert!(found.what.contains("IGMP reports"), "{found}");

    let v6 = Suspect { group: "ff3e::1".parse().unwrap(), source: None, ..suspect() };
    let mld = rule(&[&matching("icmpv6", "type", "==", r#""mld-listener-query""#), DROP]);
    let rules = firewall("accept", &[&mld], &[]);
    let found = rules.check_membership(&v6);
    assert!(found.what.contains("MLD queries"), "{found}");
    assert_eq!(rules.check_membership(&suspect()).verdict, Verdict::Ok);
    assert_eq!(firewall("accept", &[&igmp], &[]).check_membership(&v6).verdict, Verdict::Ok);
}

#[test]
fn each_kind_of_firewall_has_its_own_command() {
    let table = |name: &str| {
        format!(
            r#"{{"nftables":[{{"chain":{{"family":"ip","table":"{name}","name":"INPUT","handle":1,
                "type":"filter","hook":"input","prio":0,"policy":"drop"}}}}]}}"#
        )
    };
    let mend = |name: &str| {
        let rules = Ok(Ruleset::parse(&table(name)).unwrap());
        Firewall { rules }.check_data(&suspect(), false).mend.unwrap()
    };
    assert_eq!(mend("firewalld"), "firewall-cmd --add-port=7702/udp");
    assert_eq!(mend("filter"), "iptables -I INPUT -d 224.0.0.0/4 -p udp --dport 7702 -j ACCEPT");
}

#[test]
fn rules_that_cannot_be_read_leave_the_question_open() {
    for error in [ToolError::Missing, ToolError::Failed("Operation not permitted".to_owned())] {
        let firewall = Firewall { rules: Err(error) };
        assert_eq!(verdict(&firewall, true), Verdict::Ok);
        assert_eq!(verdict(&firewall, false), Verdict::Problem);
        assert_eq!(firewall.check_membership(&suspect()).verdict, Verdict::Unknown);
    }
}

#[test]
fn rubbish_is_no_ruleset() {
    assert!(Ruleset::parse("rubbish").is_none());
    assert!(Ruleset::parse("{}").is_none());
    let odd = r#"{"nftables":[{"rule":{}},{"chain":{"family":7}},{"set":[]},3]}"#;
    assert!(Ruleset::parse(odd).unwrap().chains.is_empty());
}

#[test]
fn rules_of_a_bridge_count_where_the_interface_is_one() {
    let chain = r#"{"chain":{"family":"bridge","table":"b","name":"c","handle":1,"type":"filter",
        "hook":"input","prio":0,"policy":"accept"}}"#;
    let rule = |matches: &str| {
        format!(
            r#"{{"rule":{{"family":"bridge","table":"b","chain":"c","handle":2,
                "expr":[{matches},{DROP}]}}}}"#
        )
    };
    let bridge = Suspect { is_bridge: true, ..suspect() };
    let group = matching("ip", "daddr", "==", r#"{"prefix":{"addr":"224.0.0.0","len":4}}"#);
    let frame = matching("ether", "daddr", "==", r#""01:00:5e:01:01:01""#);
    let port = meta("iifname", r#""eth7""#);
    for (matches, expected) in
        [(&group, Verdict::Problem), (&frame, Verdict::Warning), (&port, Verdict::Warning)]
    {
        let found = firewall("accept", &[], &[chain, &rule(matches)]);
        let finding = found.check_bridge(&bridge).unwrap();
        assert_eq!(finding.verdict, expected, "{finding}");
        assert!(finding.what.contains("table `bridge b`"), "{finding}");
        assert_eq!(found.check_bridge(&suspect()), None);
        assert_eq!(found.check_data(&bridge, true).verdict, Verdict::Ok);
    }
    let other = matching("ip", "daddr", "==", r#""224.0.0.251""#);
    assert_eq!(firewall("accept", &[], &[chain, &rule(&other)]).check_bridge(&bridge), None);
}
