// The side panel: counts by kind, the chosen node, and events in words.

/** Number of list lines on the page at a time, before and after now. */
const LINES_BEFORE = 60, LINES_AFTER = 40;
const FILTERS = [["note", "notes"], ["drop", "losses"], ["join", "joins"], ["message", "messages"]];
const SIGNS = { note: "•", drop: "✕", join: "+", leave: "−", message: "✉" };
const DROPS = {
  [FATE.lost]: "lost", [FATE.queue]: "queue full", [FATE.down]: "link down",
  [FATE.noRoute]: "no route", [FATE.hopLimit]: "hop limit",
};

const element = (id) => document.getElementById(id);

class Panel {
  constructor(run, replay, stage, palette, clock, actions) {
    Object.assign(this, { run, replay, stage, palette, clock, actions });
    this.shown = new Set(FILTERS.map(([type]) => type));
    this.node = null;
    this.buildKinds();
    this.buildFilters();
    this.filterEvents();
  }

  buildKinds() {
    const { run, stage } = this;
    this.rows = run.kinds.map((name, kind) => {
      const row = element("kinds").insertRow();
      row.innerHTML = `<td><button type="button" aria-pressed="true" title="Show or hide"><canvas></canvas>${escapeHtml(name)}</button></td><td></td><td></td><td></td>`;
      const button = row.querySelector("button");
      button.onclick = () => {
        if (!stage.hidden.delete(kind)) stage.hidden.add(kind);
        button.setAttribute("aria-pressed", String(!stage.hidden.has(kind)));
        this.actions.changed();
      };
      return row;
    });
    const present = (fates) => run.fate.some((fate) => fates.includes(fate));
    const signs = [
      ["loss", "lost on the way", [FATE.lost]], ["drop", "dropped by a full queue", [FATE.queue]],
      ["down", "link down or no way", [FATE.down, FATE.noRoute, FATE.hopLimit]],
    ];
    element("signs").innerHTML = signs.filter(([, , fates]) => present(fates))
      .map(([sign, text]) => `<li><canvas data-sign="${sign}"></canvas>${text}</li>`).join("");
    this.drawSigns();
  }

  drawSigns() {
    this.rows.forEach((row, kind) => drawSign(row.querySelector("canvas"), this.palette, this.run.kinds[kind]));
    for (const canvas of element("signs").querySelectorAll("canvas")) {
      drawSign(canvas, this.palette, canvas.dataset.sign);
    }
  }

  buildFilters() {
    const { events } = this.run;
    const types = FILTERS.filter(([type]) => events.some((event) => event.type === type));
    for (const [type, name] of types.length > 1 ? types : []) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: name });
      button.setAttribute("aria-pressed", "true");
      button.onclick = () => {
        if (!this.shown.delete(type)) this.shown.add(type);
        button.setAttribute("aria-pressed", String(this.shown.has(type)));
        this.filterEvents();
        this.actions.changed();
      };
      element("filters").append(button);
    }
    element("events").onclick = (event) => {
      const line = event.target.closest("[data-at]");
      if (line) this.actions.seek(Number(line.dataset.at));
    };
  }

  /** Keeps the events of the chosen kinds, and of the chosen node if there is one. */
  filterEvents() {
    const concerns = (event) => {
      if (this.node === null) return true;
      const { type, index } = event;
      if (type === "note") return this.run.notes[index].node === this.node;
      if (type === "drop") return this.run.ends(this.run.way[index]).includes(this.node);
      const { from, to, node } = type === "message" ? this.run.messages[index] : this.run.members[index];
      return [from, to, node].includes(this.node);
    };
    this.events = this.run.events.filter((event) =>
      this.shown.has(event.type === "leave" ? "join" : event.type) && concerns(event));
    this.times = Float64Array.from(this.events, (event) => event.at);
    this.line = -1;
  }

  choose(node) {
    this.node = node;
    this.stage.selected = node;
    this.filterEvents();
    if (node !== null) this.buildNode(); else element("node").hidden = true;
    this.actions.changed();
  }

  update(t) {
    const { run } = this;
    this.rows.forEach((row, kind) => {
      const entered = upperBound(run.entered[kind], t);
      const lost = upperBound(run.dropped[kind], t);
      const underway = entered - upperBound(run.left[kind], t - 1e-3);
      const [, on, hops, drops] = row.cells;
      on.textContent = count(Math.max(underway, 0));
      hops.textContent = count(entered);
      drops.textContent = lost > 0 ? count(lost) : "–";
      drops.className = lost > 0 ? "some" : "";
    });
    this.updateEvents(t);
    if (this.node !== null) this.updateNode(t);
  }

  updateEvents(t) {
    const line = upperBound(this.times, t);
    if (line === this.line) return;
    this.line = line;
    const list = element("events");
    const first = Math.max(line - LINES_BEFORE, 0);
    const last = Math.min(line + LINES_AFTER, this.events.length);
    const lines = [];
    for (let i = first; i < last; i++) {
      const { type, at, index } = this.events[i];
      const sort = type === "drop" ? (this.run.fate[index] === FATE.lost ? "loss" : "drop") : type;
      const state = i >= line ? "ahead" : at === this.times[line - 1] ? "now" : "";
      lines.push(`<li class="${state}" data-at="${at}"><time>${this.clock.text(at)}</time><i class="${sort}">${SIGNS[type]}</i>${this.text(type, index)}</li>`);
    }
    list.innerHTML = lines.join("") || `<li class="none">Nothing of this sort.</li>`;
    const now = list.children[line - first - 1];
    list.scrollTop = now ? now.offsetTop - list.offsetTop - list.clientHeight * 0.6 : 0;
  }

  /** Returns an event in words; all of them if they do not fit the line. */
  text(type, index) {
    const text = escapeHtml(this.describe(type, index));
    return `<span title="${text}">${text}</span>`;
  }

  describe(type, index) {
    const { run } = this;
    const name = (node) => run.nodeName(node);
    if (type === "note") {
      const note = run.notes[index];
      return `${name(note.node)}: ${noteText(run.names[note.name], note.values)}`;
    }
    if (type === "message") {
      const { from, to, bytes: length } = run.messages[index];
      return `${name(from)} → ${name(to)}: message, ${bytes(length)}`;
    }
    if (type === "drop") return this.describePacket(index, true);
    const { node, channel } = run.members[index];
    return `${name(node)} ${type === "join" ? "joins" : "leaves"} ${run.channels[channel]}`;
  }

  describePacket(i, short) {
    const { run } = this;
    const [from, to] = run.ends(run.way[i]).map((node) => run.nodeName(node));
    const where = run.way[i] < 0 ? `at ${from}` : `${from} → ${to}`;
    const kind = run.kinds[run.kindOf(i)];
    if (short) return `${kind} ${run.id[i]} ${where}: ${DROPS[run.fate[i]]}`;
    const { flow, source, destination, channel, bytes: length } = run.classes[run.classOf[i]];
    const goal = destination >= 0 ? run.nodeName(destination) : (run.channels[channel] ?? "a group");
    return `<b>${escapeHtml(kind)} ${run.id[i]}</b>from ${escapeHtml(run.nodeName(source))} to ${escapeHtml(goal)}<br>`
      + `${escapeHtml(where)}, ${bytes(length)}, flow ${flow}<br>`
      + `${this.clock.text(run.at[i])} – ${this.clock.text(run.arrives[i])}`
      + (run.fate[i] === FATE.arrived ? "" : `<br>${DROPS[run.fate[i]]}`);
  }

  describeLink(link) {
    const { a, b, directions } = this.run.links[link];
    const [ab, ba] = directions.map(({ delay, bits }) => `${duration(delay)}${bits > 0 ? `, ${rate(bits)}` : ""}`);
    const names = [a, b].map((node) => escapeHtml(this.run.nodeName(node)));
    if (ab === ba) return `<b>${names[0]} – ${names[1]}</b>${ab} each way`;
    return `<b>${names[0]} – ${names[1]}</b>→ ${ab}<br>← ${ba}`;
  }

  describeNode(node) {
    const { run, replay } = this;
    const { kind, address } = run.nodes[node];
    const said = [...replay.latest[node].values()].map((note) => noteText(run.names[note.name], note.values));
    return `<b>${escapeHtml(run.nodeName(node))}</b>${["host", "router", "switch"][kind]} ${address}`
      + said.map((text) => `<br>${escapeHtml(text)}`).join("");
  }

  buildNode() {
    const { run, node } = this;
    const { kind, address } = run.nodes[node];
    this.traffic = this.nodeTraffic(node);
    this.curves = new Map();
    for (const note of run.notes) {
      if (note.node !== node) continue;
      if (!this.curves.has(note.name)) this.curves.set(note.name, []);
      this.curves.get(note.name).push(note);
    }
    const figures = [...this.curves.keys()].map((name) =>
      `<figure><figcaption><span>${escapeHtml(run.names[name])}</span><b data-value="${name}"></b></figcaption><canvas data-name="${name}"></canvas></figure>`);
    element("node").innerHTML = `<div class="head"><b>${escapeHtml(run.nodeName(node))}</b><span>${["host", "router", "switch"][kind]} ${address}</span><button type="button" title="Close (Esc)">✕</button></div><dl></dl>${figures.join("")}`;
    element("node").hidden = false;
    element("node").querySelector("button").onclick = () => this.choose(null);
  }

  /** Returns when packets left a node, arrived at it, and were lost on the way to it. */
  nodeTraffic(node) {
    const { run } = this;
    const traffic = { sent: [], came: [], lost: [] };
    for (let i = 0; i < run.count; i++) {
      if (run.way[i] < 0) continue;
      const [from, to] = run.ends(run.way[i]);
      const arrived = run.fate[i] === FATE.arrived;
      if (from === node && (arrived || run.fate[i] === FATE.lost)) traffic.sent.push(run.at[i]);
      if (to === node) traffic[arrived ? "came" : "lost"].push(arrived ? run.arrives[i] : run.droppedAt(i));
    }
    for (const times of Object.values(traffic)) times.sort((a, b) => a - b);
    return traffic;
  }

  updateNode(t) {
    const { run, replay, node, traffic } = this;
    const until = (times) => count(upperBound(times, t));
    const channels = [...replay.joined[node].keys()].map((channel) => run.channels[channel]);
    const rows = [["packets sent", until(traffic.sent)], ["packets that came", until(traffic.came)]];
    if (traffic.lost.length > 0) rows.push(["lost on the way here", until(traffic.lost)]);
    if (channels.length > 0) rows.push(["member of", channels.join(", ")]);
    element("node").querySelector("dl").innerHTML =
      rows.map(([name, value]) => `<dt>${name}</dt><dd>${escapeHtml(value)}</dd>`).join("");
    for (const canvas of element("node").querySelectorAll("figure canvas")) {
      const name = Number(canvas.dataset.name);
      const latest = replay.latest[node].get(name);
      const value = element("node").querySelector(`[data-value="${name}"]`);
      value.textContent = latest ? noteText("", latest.values).trim() || noteNumber(latest.values[0]) : "–";
      this.drawCurve(canvas, this.curves.get(name), t);
    }
  }

  /** Draws the first values of a note over the run, as steps. */
  drawCurve(canvas, notes, t) {
    const { context, width, height } = fitCanvas(canvas);
    const x = (time) => (time / this.run.end) * width;
    const greatest = Math.max(...notes.map((note) => note.values[0]), 1e-12);
    const least = Math.min(...notes.map((note) => note.values[0]), 0);
    const y = (value) => height - 3 - ((value - least) / (greatest - least)) * (height - 8);
    const line = new Path2D();
    notes.forEach(({ at, values }, i) => {
      if (i === 0) line.moveTo(x(at), y(values[0]));
      else {
        line.lineTo(x(at), y(notes[i - 1].values[0]));
        line.lineTo(x(at), y(values[0]));
      }
    });
    line.lineTo(width, y(notes[notes.length - 1].values[0]));
    context.clearRect(0, 0, width, height);
    Object.assign(context, { strokeStyle: this.palette.get("accent"), lineWidth: 1.6, lineJoin: "round" });
    context.stroke(line);
    context.fillStyle = this.palette.get("soft");
    context.fillRect(x(t) - 0.5, 0, 1, height);
  }
}
