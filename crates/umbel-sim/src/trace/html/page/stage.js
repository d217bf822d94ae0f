// The network and its moving parts.

/** Pixels between the middle of a link and each of its ways. */
const LANE = 3.5;
/** Seconds of real time for which crosses, rings and texts stay. */
const LINGER = 0.9;
/** Share of its link after which a lost packet stops; there it fades until its time is over. */
const LOST_AT = 0.72;
/** Number of packets drawn one by one in a queue; for a longer one the number is shown. */
const QUEUE_SHOWN = 10;
const MAX_BUBBLES = 10;

class Stage {
  constructor(canvas, run, replay, palette) {
    Object.assign(this, { canvas, run, replay, palette });
    this.hidden = new Set();
    this.selected = null;
    this.hovered = null;
    this.metric = null;
    this.view = { scale: 1, x: 0, y: 0 };
    this.resize();
  }

  resize() {
    const { context, width, height } = fitCanvas(this.canvas);
    Object.assign(this, { context, width, height });
    this.place();
  }

  /** Puts the nodes on the page: the layout, fitted to the canvas, then zoomed and moved. */
  place() {
    const { nodes, stretch } = this.run;
    const xs = nodes.map((node) => node.x), ys = nodes.map((node) => node.y);
    const [left, right] = [Math.min(...xs), Math.max(...xs)];
    const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
    const margin = { x: Math.min(110, this.width * 0.12), y: 72 };
    let sx = (this.width - 2 * margin.x) / Math.max(right - left, 1e-9);
    let sy = (this.height - 2 * margin.y) / Math.max(bottom - top, 1e-9);
    if (stretch) {
      // A few rows or columns do not spread over the whole page.
      sx = Math.min(sx, 330);
      sy = Math.min(sy, (bottom - top > 2 ? 90 : 1e9));
    } else {
      // A round picture may become a little wider than it is high.
      sy = Math.min(sx, sy, 420);
      sx = Math.min(sx, sy * 1.3);
    }
    const { scale, x, y } = this.view;
    const [cx, cy] = [this.width / 2, this.height / 2];
    this.points = nodes.map((node) => ({
      x: cx + ((node.x - (left + right) / 2) * sx) * scale + x,
      y: cy + ((node.y - (top + bottom) / 2) * sy) * scale + y,
    }));
    this.radius = Math.min(Math.max(this.nearest() * 0.36, 2.5), 12);
    this.ways = [];
    this.run.links.forEach((_, link) => this.ways.push(this.line(2 * link), this.line(2 * link + 1)));
    this.placeLabels();
  }

  /** Returns the least distance between neighbours in a sample of the nodes. */
  nearest() {
    let least = 1e9;
    const points = this.points;
    for (let i = 0; i < points.length; i++) {
      for (let j = Math.max(0, i - 600); j < i; j++) {
        least = Math.min(least, (points[i].x - points[j].x) ** 2 + (points[i].y - points[j].y) ** 2);
      }
    }
    return Math.sqrt(least);
  }

  /** Returns the line of packets on one way of a link: from rim to rim, on its right side. */
  line(way) {
    const [from, to] = this.run.ends(way).map((node) => this.points[node]);
    const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
    const [ux, uy] = [(to.x - from.x) / length, (to.y - from.y) / length];
    const lane = Math.min(LANE, this.radius * 0.6);
    const rim = Math.min(this.radius, length / 3);
    return {
      x: from.x + ux * rim - uy * lane, y: from.y + uy * rim + ux * lane,
      dx: ux * (length - 2 * rim), dy: uy * (length - 2 * rim), ux, uy,
    };
  }

  /** Chooses the names that have room, hosts and routers alike, in the order of the nodes. */
  placeLabels() {
    const context = this.context;
    context.font = this.font();
    const taken = this.points.map(({ x, y }) => [x - this.radius, y - this.radius, x + this.radius, y + this.radius]);
    this.labels = [];
    const free = (box) => taken.every((other) =>
      box[0] >= other[2] || box[2] <= other[0] || box[1] >= other[3] || box[3] <= other[1]);
    if (this.points.length > 600 && this.view.scale < 2) return;
    this.run.nodes.forEach((node, index) => {
      const label = this.label(index, context.measureText(node.name).width);
      if (node.name && free(label.box)) {
        taken.push(label.box);
        this.labels.push(label);
      }
    });
  }

  font(weight = 500) {
    return `${weight} 12px Inter, "Segoe UI", Roboto, system-ui, sans-serif`;
  }

  label(node, width) {
    const { x, y } = this.points[node];
    const gap = this.radius + 6;
    const [lx, ly] = [[x + gap, y], [x - gap - width, y], [x - width / 2, y + gap + 6], [x - width / 2, y - gap - 6]][this.run.nodes[node].side];
    return { node, x: lx, y: ly, box: [lx - 2, ly - 8, lx + width + 2, ly + 8] };
  }

  /** Draws the moment `t`. `moved` is the time of the run since the last picture, and `speed` the
   * time of the run per second. */
  draw(t, moved, speed) {
    const { context } = this;
    Object.assign(this, { t, moved, linger: LINGER * speed });
    context.clearRect(0, 0, this.width, this.height);
    this.drawLinks();
    this.drawMessages();
    this.drawPackets();
    this.drawNodes();
    this.drawDrops();
    this.drawBubbles();
  }

  drawLinks() {
    const { context, run, points } = this;
    context.lineCap = "round";
    run.links.forEach(({ a, b }, link) => {
      const bits = Math.max(...run.links[link].directions.map((direction) => direction.bits));
      const up = run.isUp(2 * link, this.t) && run.isUp(2 * link + 1, this.t);
      const chosen = this.hovered?.link === link;
      context.strokeStyle = this.palette.get(up ? (chosen ? "rim" : "link") : "down");
      context.lineWidth = this.linkWidth(bits);
      context.setLineDash(up ? [] : [3, 6]);
      context.beginPath();
      context.moveTo(points[a].x, points[a].y);
      context.lineTo(points[b].x, points[b].y);
      context.stroke();
    });
    context.setLineDash([]);
  }

  /** Returns the width of a link's line: wider for faster links, narrower where there is less room. */
  linkWidth(bits) {
    const wide = bits > 0 ? Math.min(1.2 + Math.max(Math.log10(bits / 1e5), 0) * 0.55, 5) : 1.8;
    return Math.max(wide * Math.min(this.radius / 7, 1), 0.7);
  }

  /** Messages of sessions travel on arcs of their own, since they name no links. */
  drawMessages() {
    const { context, run, t } = this;
    const kind = run.kinds.indexOf(SESSION);
    if (kind < 0 || this.hidden.has(kind)) return;
    const path = new Path2D();
    context.strokeStyle = this.palette.kind(SESSION);
    context.globalAlpha = 0.35;
    context.lineWidth = 1;
    context.setLineDash([2, 4]);
    for (const message of run.messages) {
      if (message.at > t) break;
      if (message.end < t) continue;
      const [from, to] = [this.points[message.from], this.points[message.to]];
      const bend = { x: (from.x + to.x) / 2 + (to.y - from.y) * 0.16, y: (from.y + to.y) / 2 - (to.x - from.x) * 0.16 };
      context.beginPath();
      context.moveTo(from.x, from.y);
      context.quadraticCurveTo(bend.x, bend.y, to.x, to.y);
      context.stroke();
      const share = message.end > message.at ? (t - message.at) / (message.end - message.at) : 1;
      const mix = (p, q, r) => (1 - share) ** 2 * p + 2 * share * (1 - share) * q + share ** 2 * r;
      shapeOf(SESSION)(path, mix(from.x, bend.x, to.x), mix(from.y, bend.y, to.y), this.size(100));
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
    context.fillStyle = this.palette.kind(SESSION);
    context.fill(path);
  }

  /** Returns half the width of a packet on the page. */
  size(bytes) {
    const most = Math.min(Math.max(this.radius * 0.62, 2.2), 5.4);
    return most * (bytes >= 600 ? 1 : bytes >= 200 ? 0.85 : 0.72);
  }

  /** Returns the position of packet `i` on its link at `t`, from 0 to 1. */
  progress(i, t) {
    const { departs, arrives } = this.run;
    return Math.min(Math.max((t - departs[i]) / Math.max(arrives[i] - departs[i], 1), 0), 1);
  }

  drawPackets() {
    const { context, run, t, moved } = this;
    const shapes = run.kinds.map(() => new Path2D());
    const dying = run.kinds.map(() => new Path2D());
    const trails = run.kinds.map(() => new Path2D());
    const queues = new Map();
    run.visit(t - moved, t, (i) => {
      const way = run.way[i], kind = run.kindOf(i);
      if (way < 0 || this.hidden.has(kind) || run.arrives[i] === run.at[i]) return;
      if (t < run.departs[i]) {
        if (!queues.has(way)) queues.set(way, []);
        queues.get(way).push(i);
        return;
      }
      const limit = run.fate[i] === FATE.arrived ? 1 : LOST_AT;
      const now = Math.min(this.progress(i, t), limit);
      const before = Math.min(this.progress(i, t - moved), limit);
      const line = this.ways[way];
      const [x, y] = [line.x + line.dx * now, line.y + line.dy * now];
      if ((now - before) * Math.hypot(line.dx, line.dy) > 9) {
        trails[kind].moveTo(line.x + line.dx * before, line.y + line.dy * before);
        trails[kind].lineTo(x, y);
      }
      if (run.arrives[i] < t) return;
      const paths = now === LOST_AT ? dying : shapes;
      shapeOf(run.kinds[kind])(paths[kind], x, y, this.size(run.classes[run.classOf[i]].bytes));
    });
    this.addQueues(queues, shapes);
    run.kinds.forEach((name, kind) => {
      const colour = this.palette.kind(name);
      Object.assign(context, { strokeStyle: colour, lineWidth: this.size(600) * 1.1, globalAlpha: 0.4 });
      context.stroke(trails[kind]);
      context.fillStyle = colour;
      context.fill(dying[kind]);
      Object.assign(context, { strokeStyle: this.palette.get("halo"), lineWidth: 2, globalAlpha: 1 });
      context.stroke(shapes[kind]);
      context.fill(shapes[kind]);
    });
  }

  /** Packets that wait for their turn stand beside the link, the next to go at the node. */
  addQueues(queues, shapes) {
    const { context, run } = this;
    context.font = this.font(600);
    for (const [way, waiting] of queues) {
      waiting.sort((a, b) => run.departs[a] - run.departs[b]);
      const line = this.ways[way];
      const step = this.size(600) * 1.9;
      waiting.slice(0, QUEUE_SHOWN).forEach((i, n) => {
        const along = 3 + n * step, beside = this.size(600) * 1.9;
        const x = line.x + line.ux * along - line.uy * beside, y = line.y + line.uy * along + line.ux * beside;
        shapeOf(run.kinds[run.kindOf(i)])(shapes[run.kindOf(i)], x, y, this.size(600) * 0.8);
      });
      if (waiting.length > QUEUE_SHOWN) {
        const along = 10 + QUEUE_SHOWN * step, beside = this.size(600) * 1.9;
        context.fillStyle = this.palette.get("text");
        context.fillText(`+${waiting.length - QUEUE_SHOWN}`, line.x + line.ux * along - line.uy * beside,
          line.y + line.uy * along + line.ux * beside + 4);
      }
    }
  }

  drawNodes() {
    const { context, run, replay, radius: r } = this;
    const colour = (name) => this.palette.get(name);
    this.drawPulses();
    run.nodes.forEach((node, index) => {
      const { x, y } = this.points[index];
      const member = replay.isMember(index);
      const chosen = this.selected === index || this.hovered?.node === index;
      if (member || chosen) {
        context.globalAlpha = chosen ? 0.38 : 0.16;
        context.fillStyle = colour(chosen ? "accent" : "member");
        context.beginPath();
        context.arc(x, y, r + Math.min(5, r * 0.7), 0, 2 * Math.PI);
        context.fill();
        context.globalAlpha = 1;
      }
      context.beginPath();
      this.outline(node.kind, x, y, r);
      context.fillStyle = colour(node.kind > 0 ? "rim" : run.sources.has(index) ? "accent" : "node");
      context.strokeStyle = colour(member ? "member" : "rim");
      context.lineWidth = r > 5 ? 2 : 1.2;
      context.fill();
      context.stroke();
      this.drawMetric(index, x, y);
    });
    context.font = this.font();
    context.textBaseline = "middle";
    for (const { node, x, y } of this.labels) this.text(run.nodes[node].name, x, y, colour("text"));
  }

  /** Hosts are round, routers square, switches stand on a corner. */
  outline(kind, x, y, r) {
    const { context } = this;
    if (kind === 0) context.arc(x, y, r, 0, 2 * Math.PI);
    else if (kind === 1) context.roundRect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8, r * 0.4);
    else PATHS.repair(context, x, y, r);
  }

  /** Rings that grow where a host has just joined, and shrink where one has left. */
  drawPulses() {
    const { context, run, t, linger } = this;
    const first = upperBound(this.memberTimes(), t - linger);
    for (let i = first; i < run.members.length && run.members[i].at <= t; i++) {
      const { at, node, joined } = run.members[i];
      const age = (t - at) / linger;
      const { x, y } = this.points[node];
      context.globalAlpha = 1 - age;
      context.strokeStyle = this.palette.get(joined ? "join" : "rim");
      context.lineWidth = 2.5;
      context.beginPath();
      context.arc(x, y, this.radius + 4 + 18 * (joined ? age : 1 - age), 0, 2 * Math.PI);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  memberTimes() {
    this.times ??= Float64Array.from(this.run.members, (member) => member.at);
    return this.times;
  }

  /** Draws the value of the chosen note in a host, and around it the share of the greatest value. */
  drawMetric(node, x, y) {
    const { context, replay, metric, radius: r } = this;
    const value = metric === null ? undefined : replay.value(node, metric);
    if (value === undefined) return;
    const greatest = replay.greatest(node, metric);
    const share = greatest > 0 ? Math.min(value / greatest, 1) : 0;
    context.strokeStyle = this.palette.get(share > 0 ? "nak" : "join");
    context.lineWidth = Math.max(r * 0.28, 2);
    context.beginPath();
    context.arc(x, y, r, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * (share > 0 ? share : 1));
    context.stroke();
    if (r < 8) return;
    context.font = `650 ${value > 999 ? 7.5 : value > 99 ? 9 : 11}px Inter, system-ui, sans-serif`;
    context.fillStyle = this.palette.get("text");
    Object.assign(context, { textAlign: "center", textBaseline: "middle" });
    context.fillText(Number.isInteger(value) ? value : value.toPrecision(2), x, y + 0.5);
    context.textAlign = "left";
  }

  /** Draws crosses where packets were dropped, for some time. */
  drawDrops() {
    const { context, run, t, linger } = this;
    const fresh = { loss: new Map(), drop: new Map(), down: new Map() };
    run.visit(t - linger, t, (i) => {
      const fate = run.fate[i];
      if (fate === FATE.arrived || this.hidden.has(run.kindOf(i))) return;
      const age = (t - run.droppedAt(i)) / linger;
      if (age < 0 || age > 1) return;
      const sort = fate === FATE.lost ? "loss" : fate === FATE.queue ? "drop" : "down";
      const [x, y] = this.dropPoint(i, age);
      // All crosses of about the same age are drawn at once.
      const step = Math.floor(age * 8);
      if (!fresh[sort].has(step)) fresh[sort].set(step, { crosses: new Path2D(), rings: new Path2D() });
      const { crosses, rings } = fresh[sort].get(step);
      DROP_SIGNS[sort](crosses, x, y, 4.5);
      rings.moveTo(x + 6 + age * 9, y);
      rings.arc(x, y, 6 + age * 9, 0, 2 * Math.PI);
    });
    for (const [sort, ages] of Object.entries(fresh)) {
      for (const [step, { crosses, rings }] of ages) {
        const alpha = 1 - step / 8;
        Object.assign(context, { strokeStyle: this.palette.get("halo"), lineWidth: 5, globalAlpha: alpha * 0.8 });
        context.stroke(crosses);
        Object.assign(context, { strokeStyle: this.palette.get(sort), lineWidth: 2.4, globalAlpha: alpha });
        context.stroke(crosses);
        Object.assign(context, { lineWidth: 1.2, globalAlpha: alpha * 0.6 });
        context.stroke(rings);
      }
    }
    context.globalAlpha = 1;
  }

  /** Returns the place of a drop; a packet falls out of a full queue. */
  dropPoint(i, age) {
    const way = this.run.way[i];
    if (way < 0) {
      const { x, y } = this.points[-1 - way];
      return [x, y - this.radius - 9];
    }
    const line = this.ways[way];
    const share = this.run.arrives[i] > this.run.at[i] ? LOST_AT : 0.1;
    const fall = this.run.fate[i] === FATE.queue ? 8 + 16 * age : 0;
    return [line.x + line.dx * share, line.y + line.dy * share + fall];
  }

  /** Draws the recent notes of nodes, the latest of each node. */
  drawBubbles() {
    const { context, run, t, linger } = this;
    this.noteTimes ??= Float64Array.from(run.notes, (note) => note.at);
    const said = new Map();
    for (let i = upperBound(this.noteTimes, t) - 1; i >= 0 && run.notes[i].at > t - linger; i--) {
      const { node, name } = run.notes[i];
      if (said.has(node) || run.names[name] === run.names[this.metric]) continue;
      said.set(node, run.notes[i]);
      if (said.size === MAX_BUBBLES) break;
    }
    context.font = this.font(600);
    context.textBaseline = "middle";
    const taken = [];
    for (const [node, note] of said) {
      const text = noteText(run.names[note.name], note.values);
      const age = (t - note.at) / linger;
      const width = context.measureText(text).width + 14;
      const { x, y } = this.points[node];
      if (x < 0 || y < 0 || x > this.width || y > this.height) continue;
      const left = Math.min(Math.max(x - width / 2, 4), this.width - width - 4);
      const top = y - this.radius - 28 - age * 5;
      if (taken.some((other) => Math.abs(other.top - top) < 22 && left < other.right && other.left < left + width)) continue;
      taken.push({ left, top, right: left + width });
      context.globalAlpha = Math.min(1, 3 * (1 - age));
      context.fillStyle = this.palette.get("accent");
      context.beginPath();
      context.roundRect(left, top, width, 20, 6);
      context.fill();
      context.fillStyle = this.palette.get("panel");
      context.fillText(text, left + 7, top + 10.5);
    }
    context.globalAlpha = 1;
  }

  /** Draws text that can be read on top of lines. */
  text(text, x, y, colour) {
    const { context } = this;
    Object.assign(context, { strokeStyle: this.palette.get("halo"), lineWidth: 3.5, lineJoin: "round", fillStyle: colour });
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
  }

  /** Returns the packet, node or link at a point of the page. */
  at(x, y) {
    const { run } = this;
    let found = null, nearest = 9;
    run.visit(this.t, this.t, (i) => {
      const way = run.way[i];
      if (way < 0 || this.hidden.has(run.kindOf(i)) || this.t < run.departs[i]) return;
      const line = this.ways[way];
      let now = this.progress(i, this.t);
      if (run.fate[i] !== FATE.arrived) now = Math.min(now, LOST_AT);
      const distance = Math.hypot(x - line.x - line.dx * now, y - line.y - line.dy * now);
      if (distance < nearest) [found, nearest] = [{ packet: i }, distance];
    });
    if (found) return found;
    this.points.forEach((point, node) => {
      const distance = Math.hypot(x - point.x, y - point.y) - this.radius;
      if (distance < nearest) [found, nearest] = [{ node }, distance];
    });
    if (found) return found;
    nearest = 6;
    run.links.forEach(({ a, b }, link) => {
      const [p, q] = [this.points[a], this.points[b]];
      const length = Math.max((q.x - p.x) ** 2 + (q.y - p.y) ** 2, 1);
      const share = Math.min(Math.max(((x - p.x) * (q.x - p.x) + (y - p.y) * (q.y - p.y)) / length, 0), 1);
      const distance = Math.hypot(x - p.x - share * (q.x - p.x), y - p.y - share * (q.y - p.y));
      if (distance < nearest) [found, nearest] = [{ link }, distance];
    });
    return found;
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const scale = Math.min(Math.max(this.view.scale * factor, 0.5), 60);
    const real = scale / this.view.scale;
    const [cx, cy] = [this.width / 2, this.height / 2];
    this.view = {
      scale,
      x: x - cx - (x - cx - this.view.x) * real,
      y: y - cy - (y - cy - this.view.y) * real,
    };
    this.place();
  }

  move(dx, dy) {
    this.view.x += dx;
    this.view.y += dy;
    this.place();
  }

  fit() {
    this.view = { scale: 1, x: 0, y: 0 };
    this.place();
  }
}
