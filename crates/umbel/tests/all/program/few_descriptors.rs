//! A limit of few open files ends a command with a line that says so, or does not matter to it.

use super::support::{Place, Ran, Running, in_namespace};

/// The descriptors that a command may have: with fewer than five nothing starts, with more than
/// these most do their work.
const LIMITS: std::ops::RangeInclusive<u32> = 5..=18;

/// Commands as a shell reads them.
const COMMANDS: [&str; 14] = [
    "get \"$URL\" -o out",
    "ls \"$URL\"",
    "serve repo --state-dir other --port 0",
    "send repo --name k --wait-for 200ms --state-dir other",
    "recv nobody -o out --wait 200ms --state-dir other",
    "groups --wait 200ms",
    "tree nobody --wait 200ms",
    "key --key other/host.key",
    "doctor --quick",
    "smo serve --listen :8080 --channel 232.7.7.7:8080 --http repo",
    "smo join 232.7.7.7:8080@10.7.0.1:8080 --for 200ms",
    "router",
    "gateway film --wait 200ms",
    "watch film -o - --wait 200ms",
];

/// Runs the commands one after the other in a network of their own, each for at most two seconds.
/// Prints the exit code and the output of each.
fn start(place: &Place, limit: u32) -> Option<Running> {
    let script = format!(
        "ip link set lo up; ip link add v0 type veth peer name v1
         ip addr add 10.7.0.1/24 dev v0; ip link set v0 up; ip link set v1 up
         mkdir {dir}; cd {dir}; cp -r {repo} repo
         try() {{
             (ulimit -n {limit}; exec timeout 2 \"$UMBEL\" \"$@\") >said 2>&1 </dev/null &&
                 code=0 || code=$?
             echo \"umbel $1 ends with $code\"; tr '\\n' ' ' <said; echo
         }}
         \"$UMBEL\" serve repo --state-dir state >url 2>/dev/null & server=$!
         until [ -s url ]; do kill -0 $server; sleep 0.05; done
         URL=$(cut -d\"'\" -f2 url)
         {commands}
         kill $server; wait $server",
        dir = place.path().join(limit.to_string()).display(),
        repo = place.repo().display(),
        commands = COMMANDS.map(|command| format!("try {command}")).join("\n"),
    );
    Some(Running::start(&mut in_namespace(&["--net"], &script)?))
}

/// Checks the end of each command.
#[track_caller]
fn check(limit: u32, ran: &Ran) {
    ran.succeeded();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 2 * COMMANDS.len(), "{ran:?}");
    for pair in lines.chunks(2) {
        let [end, said] = pair else { unreachable!() };
        let (_, code) = end.rsplit_once(' ').unwrap();
        let what = format!("with {limit} descriptors, {end}: {said}");
        // 124: it went on until its time was over.
        assert!(["0", "1", "124"].contains(&code), "{what}");
        assert!(code != "1" || !said.trim().is_empty(), "{what}");
        assert!(!said.contains("panicked") && !said.contains("a bug"), "{what}");
    }
}

#[test]
fn commands_that_may_open_few_files_say_so() {
    let place = Place::with(&[("f", b"x")]);
    let mut under_way = Vec::new();
    for limit in LIMITS {
        let Some(running) = start(&place, limit) else { return };
        under_way.push((limit, running));
    }
    let mut said = 0;
    for (limit, running) in under_way {
        let ran = running.finish();
        if ran.stderr.contains("ip: not found") {
            return umbel_lab::testing::skip("there is no `ip` here");
        }
        check(limit, &ran);
        said += ran.stdout.matches(&format!("the limit is {limit} open files")).count();
    }
    assert!(said > 50, "{said} ends of commands name the limit, so this tests little");
}
