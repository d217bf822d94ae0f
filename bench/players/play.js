// play.js URL SECONDS [PICTURE]: plays a stream in headless Chromium with hls.js, and prints what a
// viewer saw as one line of JSON. PICTURE is a screenshot of the gateway's page while it plays.
//
// A stall is a time of at least 400 ms after the first picture in which the position does not move;
// the events of the video element alone tell of stalls of a few milliseconds that nobody sees.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const [url, seconds, picture] = process.argv.slice(2);
const hls = readFileSync(createRequire(import.meta.url).resolve("hls.js/dist/hls.min.js"), "utf8");
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--autoplay-policy=no-user-gesture-required"],
});
try {
  const page = await browser.newPage();
  await page.setViewport({ width: 760, height: 1000 });
  await page.goto(new URL("/", url).href);
  await page.addScriptTag({ content: hls });
  await page.evaluate(url => {
    const video = document.querySelector("video");
    document.querySelector("#hint").hidden = true;
    const seen = (window.seen = { stalls: [], errors: [], sizes: [], latency: [] });
    const begun = performance.now();
    const at = () => (performance.now() - begun) / 1000;
    let [position, moved, start] = [0, null, 0];
    setInterval(() => {
      const now = at();
      if (video.currentTime !== position) {
        if (moved === null) [seen.first_picture_s, start] = [now, video.currentTime];
        else if (now - moved >= 0.4) seen.stalls.push({ at_s: moved, for_s: now - moved });
        [position, moved] = [video.currentTime, now];
      }
    }, 50);
    setInterval(() => {
      const size = `${video.videoWidth}x${video.videoHeight}`;
      if (video.videoWidth && seen.sizes.at(-1)?.size !== size) seen.sizes.push({ at_s: at(), size });
      const date = player.playingDate;
      if (date) seen.latency.push((Date.now() - date.getTime()) / 1000);
      const quality = video.getVideoPlaybackQuality();
      [seen.pictures, seen.dropped] = [quality.totalVideoFrames, quality.droppedVideoFrames];
      [seen.played_s, seen.watched_s] = [video.currentTime - start, at()];
    }, 250);
    const player = new Hls();
    player.on(Hls.Events.ERROR, (_, data) => seen.errors.push({ at_s: at(), details: data.details, fatal: data.fatal }));
    player.loadSource(url);
    player.attachMedia(video);
    video.muted = true;
    video.play().catch(() => {});
  }, url);
  const pause = s => new Promise(done => setTimeout(done, s * 1000));
  await pause(seconds - 2);
  if (picture) await page.screenshot({ path: picture, type: "webp", quality: 70 });
  await pause(2);
  const seen = await page.evaluate(() => window.seen);
  const sorted = seen.latency.toSorted((a, b) => a - b);
  seen.latency = { median_s: sorted[sorted.length >> 1], worst_s: sorted.at(-1) };
  console.log(JSON.stringify(seen));
} finally {
  await browser.close();
}
