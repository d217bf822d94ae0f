use umbel_net::session::signing;
use umbel_wire::Digest;

use super::super::{Came, Ended};
use super::*;
use crate::directory::tests::{feed, signed_packet, signer};

#[test]
fn each_name_has_a_place_of_its_own_in_the_directory() {
    let place = |name: &str| place_of(Path::new("/drop"), name);
    for name in ["nightly", "Stade de l'été 1", "$(reboot)", "a;b"] {
        assert_eq!(place(name), Some(Path::new("/drop").join(name)));
    }
    for name in ["..", ".", "a/b", "../a", "/a", ".ssh", "a/..", ".a.umbel-part", "http://x/y"] {
        assert_eq!(place(name), None, "{name}");
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl FollowObserver<RecvSummary> for Heard {
    fn taken(&self, came: &Came, _: &RecvSummary) {
        self.note(&format!("taken {}", came.name));
    }

    fn missed(&self, missed: &Missed) {
        self.note(&format!("missed {}: {}", missed.name, missed.reason));
    }

    fn hook_ended(&self, _: &Came, _: &Ended) {}

    fn note(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
}

/// A follower that receives nothing by itself, what it says, and what is on the air.
struct Scene {
    follower: Follower,
    heard: Arc<Heard>,
    directory: Directory,
    state: tempfile::TempDir,
    /// Number of the last session.
    tsi: u32,
}

fn pin(key: u8) -> Pin {
    signing::pin_of(&signer(key).public())
}

impl Scene {
    fn new(names: &[&str], all: bool, state: tempfile::TempDir) -> Scene {
        let options = FeedFollower {
            feeds: names.iter().map(|name| name.parse().unwrap()).collect(),
            all,
            directory: state.path().join("drop"),
            interface: None,
            state_dir: Some(state.path().to_owned()),
            attempts: None,
            hook: None,
            reception: Box::new(|_, _| unreachable!("nothing is received here")),
            observer_of: Box::new(|_| unreachable!("nothing is received here")),
        };
        let heard = Arc::new(Heard::default());
        let known = KnownSenders::in_dir(Noun::Feed, state.path());
        let place = state.path().join("drop");
        let taken = Taken::open(Ok(state.path().to_owned()), &place, |_| ()).unwrap();
        let running = Running::default();
        let mut follower = Follower::new(options, heard.clone(), known, taken, running);
        follower.name_feeds().unwrap();
        Scene { follower, heard, directory: Directory::default(), state, tsi: 0 }
    }

    fn announce(&mut self, name: &str, version: u64, key: u8) {
        let (items, bytes, manifest_len) = (1, 1, 1);
        let content = FeedContent::Files { items, bytes, manifest_len, digest: Digest([1; 32]) };
        self.tsi += 1;
        let feed = Feed { content, version, ..feed(name, self.tsi) };
        let packet = signed_packet(feed, false, &signer(key));
        self.directory.hear(Instant::now(), [10, 0, 0, 1].into(), &packet);
    }

    fn look(&mut self) -> Vec<(String, u64)> {
        self.follower.look(&self.directory, Instant::now())
    }

    fn receive(&mut self, name: &str, version: u64, key: u8, summary: RecvSummary) {
        let (name, sender, digest) = (name.to_owned(), pin(key), "d".to_owned());
        let found = Some(Found { name: name.clone(), sender, version, digest });
        self.follower.on_received(Received { name, version, found, result: Ok(summary) });
    }

    fn said(&self) -> String {
        std::mem::take(&mut *self.heard.0.lock().unwrap()).join("\n")
    }
}

#[test]
fn whoever_is_met_first_under_a_name_keeps_it() {
    let mut scene = Scene::new(&["a", "b"], false, tempfile::tempdir().unwrap());
    scene.announce("a", 1, 1);
    scene.announce("c", 1, 1);
    assert_eq!(scene.look(), [("a".to_owned(), 1)]);
    assert!(scene.look().is_empty(), "it is being received");
    scene.receive("a", 1, 1, RecvSummary::default());
    scene.announce("a", 9, 2);
    assert!(scene.look().is_empty());
    assert!(scene.look().is_empty());
    let said = scene.said();
    assert!(said.contains("taken a") && said.contains(&pin(2).to_string()), "{said}");
    assert_eq!(said.lines().count(), 2, "it is said once: {said}");
    scene.announce("a", 2, 1);
    assert_eq!(scene.look(), [("a".to_owned(), 2)]);
}

#[test]
fn what_was_taken_is_not_taken_by_the_next_process() {
    let mut scene = Scene::new(&["a"], false, tempfile::tempdir().unwrap());
    scene.announce("a", 3, 1);
    assert_eq!(scene.look().len(), 1);
    scene.receive("a", 3, 1, RecvSummary::default());
    let Scene { state, follower, .. } = scene;
    drop(follower);
    let mut scene = Scene::new(&["a"], false, state);
    scene.announce("a", 2, 1);
    scene.announce("a", 3, 1);
    assert!(scene.look().is_empty());
    scene.announce("a", 4, 1);
    assert_eq!(scene.look(), [("a".to_owned(), 4)]);
    // What failed is.
    let mut failed = RecvSummary::default();
    failed.failure = Some("no room".to_owned());
    scene.receive("a", 4, 1, failed);
    assert_eq!(scene.said(), "missed a: no room");
    let Scene { state, follower, .. } = scene;
    drop(follower);
    let mut scene = Scene::new(&["a"], false, state);
    scene.announce("a", 4, 1);
    assert_eq!(scene.look(), [("a".to_owned(), 4)]);
}

#[test]
fn a_star_stands_for_known_senders_and_a_known_name_keeps_its_key() {
    let state = tempfile::tempdir().unwrap();
    let known = KnownSenders::in_dir(Noun::Feed, state.path());
    let remember = |name: &str, key| {
        let known_key = crate::directory::Known { pin: pin(key), version: Some(1) };
        known.remember(&name.parse().unwrap(), known_key).unwrap();
    };
    remember("one", 1);
    remember("two", 2);
    // Of the third, nothing came but its name.
    remember("three", 0);
    for key in [1, 2] {
        crate::follow::remember_sender(state.path(), pin(key)).unwrap();
    }
    let mut scene = Scene::new(&[], true, state);
    for (name, key) in
        [("one", 1), ("two", 1), ("new", 2), ("strange", 0), ("three", 0), ("a/b", 1)]
    {
        scene.announce(name, 5, key);
    }
    let due: Vec<String> = scene.look().into_iter().map(|(name, _)| name).collect();
    assert_eq!(due, ["new", "one"]);
    let said = scene.said();
    assert!(said.contains("`a/b` is no name") && said.contains("`two`"), "{said}");
    assert!(!said.contains("strange"), "strangers cannot fill a log: {said}");
}

/// Returns a follower of `*` that knows the sender with key 1.
fn star(state: tempfile::TempDir) -> Scene {
    crate::follow::remember_sender(state.path(), pin(1)).unwrap();
    Scene::new(&[], true, state)
}

#[test]
fn a_star_does_not_take_to_what_the_user_has() {
    let mut scene = star(tempfile::tempdir().unwrap());
    let documents = scene.state.path().join("drop/Documents");
    std::fs::create_dir_all(&documents).unwrap();
    scene.announce("Documents", 5, 1);
    assert!(scene.look().is_empty() && scene.look().is_empty());
    let said = scene.said();
    assert!(said.contains("move it away") && said.lines().count() == 1, "{said}");
    std::fs::remove_dir(&documents).unwrap();
    assert_eq!(scene.look(), [("Documents".to_owned(), 5)]);
    // What an interrupted reception left is the sender's own, also for the next process.
    std::fs::create_dir(&documents).unwrap();
    let Scene { state, follower, .. } = scene;
    drop(follower);
    let mut scene = star(state);
    scene.announce("Documents", 5, 1);
    assert_eq!(scene.look(), [("Documents".to_owned(), 5)]);
    assert_eq!(scene.said(), "");
}

#[test]
fn a_name_that_is_off_the_air_makes_room_for_another() {
    let mut scene = star(tempfile::tempdir().unwrap());
    scene.announce("on the air", 5, 1);
    assert_eq!(scene.look().len(), 1);
    scene.receive("on the air", 5, 1, RecvSummary::default());
    let enter = |scene: &mut Scene, name: &str, is_met: bool| {
        let selector = format!("umbel-feed://{name}?pin={}", pin(1)).parse().unwrap();
        scene.follower.enter(selector, PathBuf::from(name), is_met);
    };
    enter(&mut scene, "named", false);
    enter(&mut scene, "under-way", true);
    scene.follower.under_way.insert("under-way".to_owned());
    for number in scene.follower.names.len()..MOST {
        enter(&mut scene, &number.to_string(), true);
    }
    scene.announce("new", 5, 1);
    assert_eq!(scene.look(), [("new".to_owned(), 5)]);
    let names: Vec<_> = scene.follower.names.keys().map(String::as_str).collect();
    assert_eq!(names, ["named", "new", "on the air", "under-way"]);
}

#[test]
fn the_key_of_a_feed_that_did_not_come_is_not_trusted() {
    let mut scene = Scene::new(&["a"], true, tempfile::tempdir().unwrap());
    scene.announce("a", 1, 1);
    scene.announce("b", 1, 1);
    assert_eq!(scene.look(), [("a".to_owned(), 1)]);
    let mut failed = RecvSummary::default();
    failed.failure = Some("no room".to_owned());
    scene.receive("a", 1, 1, failed);
    assert!(scene.look().is_empty());
    assert_eq!(scene.follower.names["a"].selector.pin, None);
    scene.announce("a", 2, 1);
    assert_eq!(scene.look(), [("a".to_owned(), 2)]);
    scene.receive("a", 2, 1, RecvSummary::default());
    assert_eq!(scene.look(), [("b".to_owned(), 1)]);
}
