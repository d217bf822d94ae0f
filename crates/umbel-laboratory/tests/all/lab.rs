//! `umbel lab` with the programs of both packages.

use umbel_lab::Topology;
use umbel_lab::testing::lab;

use crate::support::{Running, laboratory, product};

#[test]
fn one_command_brings_up_a_lab_whose_routers_route() {
    // A lab that cannot be made is said to be so.
    let Some(_lab) = lab(&Topology::new().host("a").host("b").link("a", "b")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let umbel = |arguments: &[&str]| {
        let mut command = laboratory();
        command.args(arguments).env("UMBEL_LAB_DIR", folder.path().join("lab"));
        Running::start(&mut command).finish().succeeded().stdout.clone()
    };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab/two-routers.toml");
    umbel(&["lab", "up", "--route", file]);
    let program = product();
    let program = program.to_str().unwrap();
    for router in ["r1", "r2"] {
        let status = umbel(&["lab", "exec", router, "--", program, "router", "status"]);
        assert!(status.contains("this router"), "{status}");
    }
    umbel(&["lab", "down"]);
}
