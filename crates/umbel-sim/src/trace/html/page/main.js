// Time of the page, and the reader's controls.

/** Seconds of real time that a usual packet is visible on its link. */
const SEEN = 0.9;
/** Largest length of a run in seconds, unless its packets became too fast to follow. */
const PATIENCE = 180;
/** Seconds that a usual packet is visible in a run that would last too long. */
const SEEN_AT_LEAST = 0.15;

const run = new Run(JSON.parse(element("run").textContent));
const clock = new Clock(run.end, run.usualTransit / 20);
const options = new URLSearchParams(location.hash.slice(1));
setTheme(options.get("theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

const palette = new Palette();
const replay = new Replay(run);
const stage = new Stage(element("stage"), run, replay, palette);
const panel = new Panel(run, replay, stage, palette, clock, { seek, changed });
const timeline = new Timeline(element("timeline"), run, palette, clock, seek);
timeline.onHover = () => request();

let t = 0, playing = false, speed = usualSpeed(), lastFrame = null, requested = false;

/** Returns nanoseconds per second at which packets can be followed and the run comes to an end. */
function usualSpeed() {
  const followed = run.usualTransit / SEEN;
  return Math.max(followed, Math.min(run.busyTime / PATIENCE, run.usualTransit / SEEN_AT_LEAST));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

/** Requests one picture; while playing, one follows the other. */
function request() {
  if (!requested) requestAnimationFrame(frame);
  requested = true;
}

function frame(now) {
  requested = false;
  let moved = 0;
  if (playing) {
    // A page that was hidden does not catch up.
    const passed = Math.min((now - (lastFrame ?? now)) / 1000, 0.1);
    const before = t;
    t = Math.min(t + passed * speed, run.end);
    moved = t - before;
    skipQuiet();
    if (t >= run.end) pause();
  }
  lastFrame = now;
  draw(moved);
  if (playing) request();
}

/** Shows the present moment; `moved` is the time of the run since the last picture. */
function draw(moved) {
  replay.seek(t);
  stage.draw(t, moved, speed);
  timeline.draw(t, stage.hidden);
  panel.update(t);
  element("clock").innerHTML = `${clock.number(t)} <small>${clock.unit}</small>`;
}

/** If nothing is under way, moves on to shortly before the next event. */
function skipQuiet() {
  const quiet = element("skip").checked ? run.quiet(t) : null;
  if (quiet && t > quiet.since + LINGER * speed && quiet.until - t > 0.5 * speed) {
    t = quiet.until - 0.2 * speed;
  }
}

function play() {
  if (t >= run.end) t = 0;
  playing = true;
  lastFrame = null;
  showPlaying();
  request();
}

function pause() {
  playing = false;
  showPlaying();
}

function showPlaying() {
  element("play").setAttribute("aria-pressed", String(playing));
}

function seek(time) {
  t = Math.min(Math.max(time, 0), run.end);
  request();
}

/** Moves to the next moment with an event, or to the previous one. */
function step(direction) {
  pause();
  const next = upperBound(run.steps, t);
  if (direction > 0) seek(run.steps[next] ?? run.end);
  else seek(run.steps[run.steps[next - 1] < t ? next - 1 : next - 2] ?? 0);
}

/** Updates the page after something was shown or hidden. */
function changed() {
  timeline.background = null;
  request();
}

/** The slider covers ten powers of ten. */
const SLOWEST = 1e1;
function showSpeed() {
  element("speed").value = Math.log10(speed / SLOWEST) * 100;
  element("pace").textContent = `${duration(speed)} per second`;
}

element("speed").oninput = () => {
  speed = SLOWEST * 10 ** (element("speed").value / 100);
  showSpeed();
  request();
};
element("play").onclick = () => (playing ? pause() : play());
element("start").onclick = () => seek(0);
element("step").onclick = () => step(1);
element("back").onclick = () => step(-1);
element("theme").onclick = () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  palette.refresh();
  panel.drawSigns();
  changed();
};

function changeSpeed(factor) {
  speed = Math.min(Math.max(speed * factor, SLOWEST), SLOWEST * 1e10);
  showSpeed();
  request();
}

const KEYS = {
  " ": () => (playing ? pause() : play()),
  ArrowRight: () => step(1),
  ArrowLeft: () => step(-1),
  PageDown: () => seek(t + run.end / 20),
  PageUp: () => seek(t - run.end / 20),
  Home: () => seek(0),
  End: () => seek(run.end),
  "+": () => changeSpeed(1.5),
  "-": () => changeSpeed(1 / 1.5),
  Escape: () => panel.choose(null),
};
addEventListener("keydown", (event) => {
  const inControl = event.target.matches?.("input, select") || (event.key === " " && event.target.matches?.("button"));
  const action = KEYS[event.key];
  if (!action || inControl || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  action();
});

/** The pointer on the stage: moves the stage, chooses nodes, describes the thing below it. */
let grabbed = null;
const canvas = element("stage");
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  grabbed = { x: event.clientX, y: event.clientY, far: 0 };
});
canvas.addEventListener("pointermove", (event) => {
  if (grabbed) {
    const [dx, dy] = [event.clientX - grabbed.x, event.clientY - grabbed.y];
    grabbed = { x: event.clientX, y: event.clientY, far: grabbed.far + Math.hypot(dx, dy) };
    canvas.classList.toggle("moving", grabbed.far > 4);
    stage.move(dx, dy);
    request();
  } else {
    pointAt(stage.at(event.offsetX, event.offsetY), event);
  }
});
canvas.addEventListener("pointerup", (event) => {
  const clicked = grabbed && grabbed.far < 5;
  grabbed = null;
  canvas.classList.remove("moving");
  if (clicked) panel.choose(stage.at(event.offsetX, event.offsetY)?.node ?? null);
});
canvas.addEventListener("pointerleave", () => pointAt(null));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  stage.zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
  request();
}, { passive: false });
element("zoom").onclick = (event) => {
  const how = event.target.dataset.zoom;
  if (how === "fit") stage.fit(); else if (how) stage.zoom(how === "in" ? 1.4 : 1 / 1.4);
  request();
};

function pointAt(thing, event) {
  stage.hovered = thing;
  canvas.classList.toggle("on-something", thing !== null);
  const tip = element("tip");
  tip.hidden = thing === null;
  if (thing) {
    tip.innerHTML = thing.packet !== undefined ? panel.describePacket(thing.packet, false)
      : thing.node !== undefined ? panel.describeNode(thing.node) : panel.describeLink(thing.link);
    const [x, y] = [event.offsetX + 14, event.offsetY + 14];
    tip.style.left = `${Math.max(4, Math.min(x, stage.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(y, stage.height - tip.offsetHeight - 4))}px`;
  }
  request();
}

new ResizeObserver(() => {
  stage.resize();
  timeline.resize();
  // At once; otherwise an empty canvas would be visible.
  draw(0);
}).observe(element("view"));

/** Describes the run, and the part of it that is missing here. */
function describeRun() {
  const facts = [`${count(run.nodes.length)} nodes`, `${count(run.links.length)} links`,
    `${duration(run.wholeEnd)} of simulated time`, `${count(run.allHops)} packet hops`];
  if (run.end < run.wholeEnd && run.cut === null) facts[2] += `, nothing after ${duration(run.last)}`;
  element("facts").textContent = facts.join(" · ");
  if (run.cut !== null) {
    element("cut").hidden = false;
    element("cut").textContent = `Only the first ${duration(run.cut)} are shown, with `
      + `${count(run.hops)} of ${count(run.allHops)} packet hops: the run was too long for a page.`;
  }
}

/** Offers the notes whose values can be shown at the nodes. */
function offerMetrics() {
  const numeric = run.names.map((name, index) => ({ name, index }))
    .filter(({ index }) => run.notes.some((note) => note.name === index && note.values[0] !== 0));
  element("metric-label").hidden = numeric.length === 0;
  element("metric").innerHTML = `<option value="">nothing</option>`
    + numeric.map(({ name, index }) => `<option value="${index}">${escapeHtml(name)}</option>`).join("");
  const outstanding = numeric.find(({ name }) => name === "outstanding");
  stage.metric = outstanding?.index ?? null;
  element("metric").value = stage.metric ?? "";
  element("metric").onchange = () => {
    stage.metric = element("metric").value === "" ? null : Number(element("metric").value);
    request();
  };
}

/** `#t=SECONDS`, `#node=NAME`, `#theme=dark`, `#play=1` in the address set the initial state of the page. */
function begin() {
  if (options.has("t")) seek(Number(options.get("t")) * 1e9 || 0);
  const node = run.nodes.findIndex(({ name }) => name === options.get("node"));
  if (node >= 0) panel.choose(node);
  if (options.get("play") === "1") play();
}

describeRun();
offerMetrics();
showSpeed();
begin();
request();
