//! The commands of guides, run as they stand there.

use crate::support::documents;
use crate::support::stage::play;

macro_rules! pages {
    ($($test:ident: $page:literal)*) => { $(
        #[test]
        fn $test() {
            play($page);
        }
    )* };
}

pages! {
    completions_and_man_pages_are_written_as_the_page_says: "docs/start/install.md"
    images_are_pushed_as_the_guide_says: "docs/guides/images.md"
    disks_are_written_as_the_guide_says: "docs/guides/devices.md"
    a_repository_is_served_as_the_guide_says: "docs/guides/repository.md"
    the_simulator_runs_as_its_page_says: "docs/laboratory/simulator.md"
    a_paper_is_reproduced_as_the_page_says: "docs/laboratory/reproduce.md"
    feeds_and_repositories_are_private_as_the_guide_says: "docs/guides/private.md"
    a_crowd_downloads_as_the_guide_says: "docs/guides/downloads.md"
    video_is_streamed_as_the_guide_says: "docs/guides/video.md"
    hls_is_streamed_as_the_guide_says: "docs/guides/hls.md"
    rtp_is_streamed_as_the_guide_says: "docs/guides/rtp.md"
    networks_are_routed_as_the_guide_says: "docs/guides/routers.md"
    scripts_read_what_the_guide_shows: "docs/guides/scripts.md"
    the_doctor_looks_where_the_guide_says: "docs/guides/trouble.md"
    the_lab_works_as_its_page_says: "docs/laboratory/lab.md"
}

#[test]
#[ignore = "takes minutes of processor time"]
fn studies_are_made_as_their_page_says() {
    play("docs/laboratory/studies.md");
}

/// Guides with commands are all played here.
#[test]
fn every_guide_with_commands_is_played() {
    let source = include_str!("documents.rs");
    for page in documents::pages() {
        let is_guide = page.name.starts_with("docs/guides/");
        let runs = page
            .blocks()
            .iter()
            .any(|block| !block.words.is_empty() && !block.words.contains(&"no-run".to_owned()));
        let is_played = source.contains(&format!("\"{}\"", page.name));
        assert!(!is_guide || !runs || is_played, "{}", page.name);
    }
}
