// The run at a glance, and the position of the page in it. Packets entering links are stacked by
// kind, with drops below the line, and notes and joins of nodes above it.

const LINE = 0.74;

class Timeline {
  constructor(canvas, run, palette, clock, seek) {
    Object.assign(this, { canvas, run, palette, clock, hover: null });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      seek(this.timeAt(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      this.hover = this.timeAt(event);
      if (event.buttons & 1) seek(this.hover);
      this.onHover?.();
    });
    canvas.addEventListener("pointerleave", () => {
      this.hover = null;
      this.onHover?.();
    });
    this.resize();
  }

  timeAt(event) {
    const { left, width } = this.canvas.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - left) / width, 0), 1) * this.run.end;
  }

  /** Fits the canvas and its columns. The background is then drawn again. */
  resize() {
    const { context, width, height } = fitCanvas(this.canvas);
    Object.assign(this, { context, width, height });
    this.columns = Math.max(Math.floor(width / 3), 1);
    this.background = null;
  }

  histogram(times) {
    const counts = new Float64Array(this.columns);
    for (const time of times) {
      counts[Math.min(Math.floor((time / this.run.end) * this.columns), this.columns - 1)]++;
    }
    return counts;
  }

  /** Counts and draws the events of each column: once, and later put below the marker. */
  drawBackground(hidden) {
    const { run, palette, columns, width, height } = this;
    const canvas = new OffscreenCanvas(this.canvas.width, this.canvas.height);
    const context = canvas.getContext("2d");
    context.scale(this.canvas.width / width, this.canvas.height / height);
    const base = height * LINE, room = base - 12, column = width / columns;
    const kinds = run.kinds.map((_, kind) => kind).filter((kind) => !hidden.has(kind));
    const counts = new Map(kinds.map((kind) => [kind, this.histogram(run.entered[kind])]));
    const total = new Float64Array(columns), drops = new Float64Array(columns);
    for (const kind of kinds) {
      counts.get(kind).forEach((n, i) => (total[i] += n));
      this.histogram(run.dropped[kind]).forEach((n, i) => (drops[i] += n));
    }
    // The root keeps a single request visible beside a burst of data.
    const most = Math.sqrt(Math.max(...total, 1));
    const mostDrops = Math.sqrt(Math.max(...drops, 1));
    for (let i = 0; i < columns; i++) {
      let y = base;
      for (const kind of kinds) {
        const share = counts.get(kind)[i] / (total[i] || 1);
        const h = share * (Math.sqrt(total[i]) / most) * room;
        context.fillStyle = palette.kind(run.kinds[kind]);
        context.fillRect(i * column, y - h, column - 0.6, h);
        y -= h;
      }
      const h = (Math.sqrt(drops[i]) / mostDrops) * (height - base - 5);
      context.fillStyle = palette.get("loss");
      if (h > 0) context.fillRect(i * column, base + 2, column - 0.6, Math.max(h, 2));
    }
    context.fillStyle = palette.get("line");
    context.fillRect(0, base, width, 1);
    this.ticks(context, run.notes.map((note) => note.at), "accent");
    this.ticks(context, run.members.map((member) => member.at), "join");
    this.background = canvas;
  }

  ticks(context, times, colour) {
    context.fillStyle = this.palette.get(colour);
    const seen = new Set();
    for (const time of times) {
      const x = Math.round((time / this.run.end) * this.width);
      if (seen.has(x)) continue;
      seen.add(x);
      context.fillRect(x - 1, 3, 2, 5);
    }
  }

  draw(t, hidden) {
    const { context, run, palette, width, height, clock } = this;
    if (!this.background) this.drawBackground(hidden);
    context.clearRect(0, 0, width, height);
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.background, 0, 0);
    context.restore();
    const x = (t / run.end) * width;
    context.fillStyle = palette.get("accent");
    context.globalAlpha = 0.09;
    context.fillRect(0, 0, x, height);
    context.globalAlpha = 1;
    context.fillRect(x - 1, 0, 2, height);
    context.beginPath();
    context.arc(x, height * LINE, 5, 0, 2 * Math.PI);
    context.fill();
    if (this.hover !== null) this.mark(this.hover);
    this.canvas.setAttribute("aria-valuetext", clock.text(t));
    this.canvas.setAttribute("aria-valuenow", clock.number(t));
    this.canvas.setAttribute("aria-valuemax", clock.number(run.end));
  }

  /** Returns the time below the pointer. */
  mark(time) {
    const { context, palette, width, height, run, clock } = this;
    const x = (time / run.end) * width, text = clock.text(time);
    context.font = "600 11.5px Inter, system-ui, sans-serif";
    const room = context.measureText(text).width + 12;
    const left = Math.min(Math.max(x - room / 2, 2), width - room - 2);
    context.fillStyle = palette.get("soft");
    context.fillRect(x - 0.5, 0, 1, height);
    context.beginPath();
    context.roundRect(left, 14, room, 18, 5);
    context.fill();
    context.fillStyle = palette.get("panel");
    context.textBaseline = "middle";
    context.fillText(text, left + 6, 23.5);
  }
}
